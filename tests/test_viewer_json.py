"""The JSON of every page against its schema, downloads of filtered samples, tasks that did not run, and older runs."""

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import simple_evaluate
from assay.cli import main
from assay.runs.run import Run
from viewer_world import HOSTILE, SECRET, fetched, model, serving, write_runs

pytest.importorskip("duckdb")
MISSING = "task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}\ntest_split: test\ndoc_to_text: a\ndoc_to_target: b\n"  # fmt: skip
EVIL = "<img src=x onerror=alert(0)>"
WRONG = [number for number in range(60) if number % 5 == 0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    runs = write_runs(folder)
    for name in ("gone_1", "gone_2", "gone_3"):
        (folder / f"tasks/{name}.yaml").write_text(MISSING.format(name=name))
    arguments = {"include_path": str(folder / "tasks"), "include_defaults": False, "output_path": str(runs / "partial")}
    simple_evaluate(model(lambda a: a % 5 == 0), tasks=["sums", "gone_1", "gone_2", "gone_3"], **arguments)
    shutil.copytree(runs / "second", runs / "second.old-20261116-201500")
    shutil.copytree(runs / "second", runs / "damaged")
    (runs / "damaged/results.json").write_text('{"x')
    return runs


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving(runs) as at:
        yield at


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/runs.json", {}),
        ("/run.json", {"run": "first"}),
        ("/run.json", {"run": "partial"}),
        ("/run.json", {"run": "damaged"}),
        ("/run.json", {"run": EVIL}),
        ("/task.json", {"run": "first", "task": "sums", "show": "wrong"}),
        ("/task.json", {"run": "partial", "task": "gone_1"}),
        ("/task.json", {"run": EVIL, "task": HOSTILE[0]}),
        ("/sample.json", {"run": "first", "task": "sums", "doc": "5"}),
        ("/sample.json", {"run": "first", "task": "colours", "doc": "0"}),
        ("/sample.json", {"run": EVIL, "task": HOSTILE[0], "doc": "5"}),
        ("/graph.json", {"run": "more/graphs", "task": "first_steps_graph_tries"}),
        ("/matrix.json", {}),
        ("/trend.json", {"task": "sums"}),
        ("/scatter.json", {}),
        ("/compare.json", {}),
        ("/compare.json?run=first&run=second", {}),
        ("/flips.json?run=first&run=second&task=sums", {}),
    ],
)
def test_every_page_is_also_json_as_its_schema_says(
    path: str, query: dict[str, str], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert main(["schema", "view"]) == 0
    schema = json.loads(capsys.readouterr().out)
    status, text, headers = fetched(address, path, **query)
    assert (status, headers["content-type"]) == (200, "application/json")
    kind = path.partition("?")[0].strip("/")
    document = json.loads(text)
    jsonschema.validate(document, {**schema["$defs"][kind], "$schema": schema["$schema"]})
    assert document["version"] == 1
    assert SECRET not in text
    html = fetched(address, path.replace("/runs.json", "/").replace(".json", ""), **query)[1]
    assert f'href="/{kind}' in html  # the page leads to its JSON


def test_json_has_the_numbers_of_the_page(address: str) -> None:
    run = json.loads(fetched(address, "/run.json", run="first")[1])
    [sums] = [line for line in run["lines"] if line["path"][-1] == "sums"]
    strict = sums["numbers"][0]
    assert (strict["metric"], strict["filter"], strict["value"], strict["n"]) == ("exact_match", "strict", 48 / 60, 60)
    runs = json.loads(fetched(address, "/runs.json", run="first")[1])
    assert (runs["matching"], [each["name"] for each in runs["runs"]]) == (1, ["first"])
    task = json.loads(fetched(address, "/task.json", run="first", task="sums", show="wrong")[1])
    assert (task["total"], [each["doc"] for each in task["samples"]]) == (12, WRONG)
    assert task["charts"][0]["rows"] == [["0", "12", "20.0 %"], ["1", "48", "80.0 %"]]
    matrix = json.loads(fetched(address, "/matrix.json", run="first", task="sums")[1])
    assert [(each["run"], each["value"], each["n"]) for each in matrix["numbers"]] == [("first", 48 / 60, 60)]
    sample = json.loads(fetched(address, "/sample.json", run="first", task="sums", doc="5")[1])
    assert (sample["document"]["a"], sample["target"], sample["answers"]["strict"]) == (5, "6", ["8"])
    compared = json.loads(fetched(address, "/compare.json?run=first&run=second")[1])
    assert [row["difference"] for row in compared["rows"] if row["name"] == "sums"] == pytest.approx([-0.2, -0.2])
    status, text, _ = fetched(address, "/run.json", run="none")
    assert (status, json.loads(text)["error"]) == (404, "no run named 'none' in this folder")


def test_filtered_samples_are_downloaded_as_parquet_csv_and_json_lines(
    address: str, runs: Path, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    query = {"run": "first", "task": "sums", "show": "wrong"}
    rows = list(csv.DictReader(io.StringIO(fetched(address, "/samples.csv", **query)[1])))
    assert [int(row["doc_id"]) for row in rows] == WRONG
    assert (rows[1]["response"], rows[1]["target"], rows[1]["exact_match,strict"]) == (" 8", "6", "0.0")
    lines = [json.loads(line) for line in fetched(address, "/samples.jsonl", **query)[1].splitlines()]
    assert [line["doc_id"] for line in lines] == WRONG and lines[1]["doc"]["a"] == 5
    from urllib.parse import urlencode
    from urllib.request import urlopen

    with urlopen(f"{address}/samples.parquet?{urlencode(query)}") as reply:
        (tmp_path / "s.parquet").write_bytes(reply.read())
        assert reply.headers["content-disposition"] == 'attachment; filename="first-sums.parquet"'
    table = parquet.read_table(tmp_path / "s.parquet")
    own = Run.open(runs / "first").samples("sums")
    expected = own.take([own["doc_id"].to_pylist().index(number) for number in WRONG])
    assert table.select(expected.column_names).to_pylist() == expected.to_pylist()
    with urlopen(f"{address}/samples.parquet?{urlencode({**query, 'q': 'nowhere'})}") as reply:
        (tmp_path / "none.parquet").write_bytes(reply.read())
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0
    assert fetched(address, "/samples.xml", **query)[0] == 404
    assert fetched(address, "/samples.csv", run="partial", task="gone_1")[0] == 404


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_download_holds_no_key_and_no_formula(kind: str, address: str) -> None:
    from urllib.parse import urlencode
    from urllib.request import urlopen

    with urlopen(f"{address}/samples.{kind}?{urlencode({'run': EVIL, 'task': HOSTILE[0]})}") as reply:
        data = reply.read()
    if kind == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        data = str(parquet.read_table(io.BytesIO(data)).to_pylist()).encode()
    assert SECRET.encode() not in data
    if kind == "csv":
        cells = [cell for row in csv.reader(io.StringIO(data.decode(), newline="")) for cell in row]
        assert any(cell.startswith("'=HYPERLINK") for cell in cells)
        assert not any(cell.startswith(("=", "@", "\t")) for cell in cells)


def test_tasks_that_did_not_run_have_a_mark_and_a_reason_and_no_dead_link(address: str) -> None:
    text = fetched(address, "/run", run="partial")[1]
    assert text.count('class="bad">not run') == 3
    assert "no data file &#x27;gone_1.jsonl&#x27;" in text
    assert "task=gone_1" not in text  # no link
    assert text.count("not run: 3 of 4 tasks (gone_1, gone_2, gone_3)") == 1  # one remark for all
    assert fetched(address, "/run", run="partial", view="columns")[1].count('class="bad">not run') == 3
    status, page, _ = fetched(address, "/task", run="partial", task="gone_1")
    assert status == 200 and "no data file" in page
    assert fetched(address, "/sample", run="partial", task="gone_1", doc="0")[0] == 404


def test_a_damaged_run_is_a_row_and_older_runs_are_not_among_the_others(address: str) -> None:
    text = fetched(address, "/")[1]
    assert "cannot be read: results.json: the file is damaged" in text
    assert "second.old-" not in text and "without 1 older run" in text
    assert "second.old-" in fetched(address, "/", old="1")[1]
    assert "limit=6<" in text and "limit=6.0" not in text
