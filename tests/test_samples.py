"""Where rows come from, and which of them are evaluated.

What the readers must give was read with `datasets.load_dataset` 5.2.0, the library through which lm-eval 0.4.13 reads the same files.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import assay
from assay import ConfigError
from assay.models import Scripted
from commands import Run
from conftest import Write

TASK = """
    task: t
    test_split: test
    doc_to_text: "{{q}}"
    doc_to_target: "{{a}}"
"""


def a_task(data: str) -> str:
    return "".join(f"{line.strip()}\n" for line in (TASK + data).splitlines() if line.strip())


def of_files(reader: str, written: str) -> str:
    return a_task(f"dataset_path: {reader}\ndataset_kwargs: {{data_files: {written}}}")


def samples(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """The samples of the task t, as they are logged."""
    model = Scripted(generate=lambda prompt, params, repeat: f"said {prompt}")
    fixed = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    return list(assay.simple_evaluate(model, tasks=["t"], **(fixed | options))["samples"]["t"])


def docs(folder: Path, **options: Any) -> list[dict[str, Any]]:
    return [dict(sample["doc"]) for sample in samples(folder, **options)]


def questions(folder: Path, **options: Any) -> list[str]:
    return [sample["arguments"][0][0] for sample in samples(folder, **options)]


def numbers(folder: Path, **options: Any) -> list[int]:
    return [sample["doc_id"] for sample in samples(folder, **options)]


def jsonl(*items: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in items)


def counted(count: int) -> str:
    return jsonl(*({"q": f"q{n}", "a": str(n)} for n in range(count)))


TWO = [{"q": "x", "a": 1}, {"q": "y", "a": 2}]

CONTENTS = {
    "lines of JSON": ("d.jsonl", '{"q": "x", "a": 1}\n\n{"q": "y", "a": 2}\n', TWO),
    "lines of JSON called json": ("d.json", '{"q": "x", "a": 1}\n{"q": "y", "a": 2}\n', TWO),
    "a list of objects": ("d.json", '[\n {"q": "x",\n "a": 1}, {"q": "y", "a": 2}\n]', TWO),
    "a key that a later row lacks": ("d.jsonl", '{"q": "x", "a": 1}\n{"q": "y"}\n', [TWO[0], {"q": "y", "a": None}]),
    "a key that only a later row has": (
        "d.jsonl", '{"q": "x", "a": 1}\n{"q": "y", "a": 2, "b": 3}\n', [{**TWO[0], "b": None}, {**TWO[1], "b": 3}],
    ),
    "whole numbers among others": ("d.jsonl", '{"q": "x", "a": 1}\n{"q": "y", "a": 2.5}\n', [{"q": "x", "a": 1.0}, {"q": "y", "a": 2.5}]),
    "letters beyond ASCII": ("d.jsonl", '{"q": "\\u00e9\\ud83d\\ude00", "a": "ß"}\n', [{"q": "é😀", "a": "ß"}]),
    "a table": ("d.csv", "q,a\nx,1\ny,2\n", TWO),
    "a table with a byte-order mark": ("d.csv", "\ufeffq,a\nx,1\ny,2\n", TWO),
    "quotes and lines in a cell": ("d.csv", 'q,a\n"He said ""hi""\nand, well, left",1\n', [{"q": 'He said "hi"\nand, well, left', "a": 1}]),
    "columns of every type": (
        "d.csv", "q,a,b,c\nx,1.5,True,007\ny,2,False,010\n",
        [{"q": "x", "a": 1.5, "b": True, "c": 7}, {"q": "y", "a": 2.0, "b": False, "c": 10}],
    ),
    "an empty cell": ("d.csv", "q,a\nx,u\ny,\n", [{"q": "x", "a": "u"}, {"q": "y", "a": None}]),
    "an empty cell among numbers": ("d.csv", "q,a\nx,1\ny,\n", [{"q": "x", "a": 1.0}, {"q": "y", "a": None}]),
    "a cell that says there is nothing": ("d.csv", "q,a\nx,NA\ny,null\nz,u\n", [{"q": "x", "a": None}, {"q": "y", "a": None}, {"q": "z", "a": "u"}]),
    "a short line": ("d.csv", "q,a\nx\ny,u\n", [{"q": "x", "a": None}, {"q": "y", "a": "u"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENTS)
def test_files_are_read_as_lm_eval_reads_them(name: str, write: Write) -> None:
    file, content, expected = CONTENTS[name]
    documents = docs(
        write({"t.yaml": of_files(file.split(".")[1].removesuffix("l"), f"{{test: {file}}}"), file: content}),
        compat="lm-eval",
    )
    assert documents == expected
    assert [list(map(type, row.values())) for row in documents] == [list(map(type, row.values())) for row in expected]


def test_options_of_a_reader_are_honoured(write: Write) -> None:
    semicolons = a_task("dataset_path: csv\ndataset_kwargs: {data_files: {test: d.csv}, delimiter: ';'}")
    inside = a_task("dataset_path: json\ndataset_kwargs: {data_files: {test: d.json}, field: data}")
    assert docs(write({"t.yaml": semicolons, "d.csv": "q;a\nx;1\ny;2\n"})) == TWO
    assert docs(write({"t.yaml": inside, "d.json": json.dumps({"version": 1, "data": TWO})})) == TWO


def test_parquet_is_read_with_its_types(write: Write) -> None:
    folder = write({"t.yaml": of_files("parquet", "{test: d.parquet}")})
    rows = [{"q": "x", "a": 1, "l": ["u", "v"], "m": {"k": 1.5}}, {"q": "y", "a": None, "l": [], "m": {"k": 2.0}}]
    parquet.write_table(pa.Table.from_pylist(rows), folder / "d.parquet")
    assert docs(folder, compat="lm-eval") == rows


def test_without_compat_numbers_stay_as_written_and_null_is_not_text(write: Write) -> None:
    """lm-eval's data library makes 2 of a column with 0.5 into 2.0, and its templates write what is missing as None."""
    content = '{"q": "x", "a": 2}\n{"q": "y", "a": 0.5}\n{"q": "z"}\n{"q": "u", "a": null}\n'
    yaml = of_files("json", "{test: d.jsonl}").replace("doc_to_target: a", "doc_to_target: '{{a}}'")
    results = assay.simple_evaluate(
        Scripted(generate=lambda prompt, params, repeat: {"x": "2", "y": "0.5"}.get(prompt, "None")),
        tasks=["t"], include_path=str(write({"t.yaml": yaml, "d.jsonl": content})), include_defaults=False,
    )  # fmt: skip
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert results["assay"]["tasks"]["t"]["reasons"] == {"the document has no value in the column 'a'": 2}


FILE_LISTS = [
    ("one file is the split train", "part2.jsonl", "train", ["p2"]),
    ("a list is the split train, in its order", "[part2.jsonl, part1.jsonl]", "train", ["p2", "p1"]),
    ("a list of a split", "{test: [part2.jsonl, part10.jsonl], train: part1.jsonl}", "test", ["p2", "p10"]),
    ("a pattern, in the order of names", "part*.jsonl", "train", ["p1", "p10", "p2"]),
    ("a pattern of a split", '{test: "part1*.jsonl"}', "test", ["p1", "p10"]),
    ("a pattern through folders", '{test: "**/part*.jsonl"}', "test", ["p1", "p10", "p2", "s"]),
]


@pytest.mark.parametrize(("written", "split", "expected"), [each[1:] for each in FILE_LISTS], ids=[each[0] for each in FILE_LISTS])  # fmt: skip
def test_data_files_may_be(written: str, split: str, expected: list[str], write: Write) -> None:
    parts = {f"part{n}.jsonl": jsonl({"q": f"p{n}", "a": ""}) for n in (10, 2, 1)}
    task = of_files("json", written).replace("test_split: test", f"test_split: {split}")
    assert questions(write({"t.yaml": task, **parts, "sub/part3.jsonl": jsonl({"q": "s", "a": ""})})) == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{test: nope.jsonl}", r"no data file 'nope\.jsonl'"),
        ("{train: d.jsonl}", "no split 'test'.*train"),
        ("{test: broken.jsonl}", r"broken\.jsonl:2"),
        ("{test: list.jsonl}", r"list\.jsonl:1.*object"),
        ("{test: empty.jsonl}", "empty"),
    ],
)
def test_data_that_cannot_be_read_is_a_clear_error(written: str, said: str, write: Write) -> None:
    files = {
        "broken.jsonl": '{"q": "x", "a": "1"}\n{"q": \n',
        "list.jsonl": "[1, 2]\n",
        "empty.jsonl": "",
        "d.jsonl": counted(1),
    }
    with pytest.raises(ConfigError, match=said):
        samples(write({"t.yaml": of_files("json", written), **files}))


def test_a_function_may_return_the_data(write: Write) -> None:
    data = "custom_dataset: !function made.rows\ndataset_kwargs: {count: 2}\nmetadata: {word: hello, version: 1}"
    helper = """
        import datasets

        def rows(count, word, **more):
            made = [{"q": f"{word} {n}", "a": "x"} for n in range(count)]
            return {"test": datasets.Dataset.from_list(made)}
    """
    assert questions(write({"t.yaml": a_task(data), "made.py": helper})) == ["hello 0", "hello 1"]


def test_an_earlier_run_may_be_the_data(write: Write, tmp_path: Path) -> None:
    second = """
        task: second
        dataset_path: assay
        dataset_kwargs: {run: ../first}
        test_split: t
        doc_to_text: "{{q}} was asked as <{{prompt}}>"
        doc_to_target: a
    """
    folder = write({"t.yaml": of_files("json", "{test: d.jsonl}"), "second.yaml": second, "d.jsonl": counted(3)})
    assert len(samples(folder, output_path=str(tmp_path / "first"), limit=2)) == 2
    model = Scripted(generate=lambda prompt, params, repeat: "x")
    results = assay.simple_evaluate(model, tasks=["second"], include_path=str(folder), include_defaults=False)
    assert [sample["arguments"][0][0] for sample in results["samples"]["second"]] == [
        "q0 was asked as <q0>",
        "q1 was asked as <q1>",
    ]
    assert "said q0" in json.dumps(results["samples"]["second"][0]["doc"])


LAYOUTS = [
    ("owner/set", None, "owner/set/default/test.jsonl"),
    ("owner/set", "main", "owner/set/main/test.jsonl"),
    ("plain", None, "plain/default/test.json"),
    ("owner/set", "main", "owner/set/main/test.csv"),
]


@pytest.mark.parametrize(("path", "name", "file"), LAYOUTS)
def test_a_hub_data_set_is_searched_in_the_data_folder(
    path: str, name: str | None, file: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    content = "q,a\nx,1\ny,2\n" if file.endswith("csv") else json.dumps(TWO) if file.endswith("json") else jsonl(*TWO)
    (tmp_path / "data" / file).parent.mkdir(parents=True)
    (tmp_path / "data" / file).write_text(content)
    folder = write({"t.yaml": a_task(f"dataset_path: {path}" + (f"\ndataset_name: {name}" if name else ""))})
    assert docs(folder, data_dir=str(tmp_path / "data")) == TWO


@pytest.mark.slow  # asks the hub, which retries without a network
def test_the_data_folder_holds_parquet_too_and_may_be_named_in_the_environment(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data/set/default").mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(TWO), tmp_path / "data/set/default/test.parquet")
    monkeypatch.setenv("ASSAY_DATA_DIR", str(tmp_path / "data"))
    folder = write({"t.yaml": a_task("dataset_path: set")})
    assert docs(folder) == TWO
    with pytest.raises(ConfigError, match="set/default"):
        (tmp_path / "other").mkdir()
        docs(folder, data_dir=str(tmp_path / "other"))  # what is said in the call wins


def test_the_command_line_knows_the_data_folder_by_flag_and_by_variable(
    write: Write, tmp_path: Path, run_assay: Run
) -> None:
    folder = write({"t.yaml": a_task("dataset_path: set"), "../data/set/default/test.jsonl": counted(2)})
    command = ("run", "--model", "dummy", "--tasks", "t", "--no_defaults", "--include_path", folder)
    for flags, variables in ((("--data_dir", tmp_path / "data"), {}), ((), {"ASSAY_DATA_DIR": str(tmp_path / "data")})):
        done = run_assay(*command, *flags, **variables)
        assert done.returncode == 0, done.stderr
        assert "exact_match" in done.stdout


def test_a_missing_split_is_reported_with_the_existing_ones(write: Write, tmp_path: Path) -> None:
    folder = write({"t.yaml": a_task("dataset_path: set"), "../data/set/default/train.jsonl": counted(2)})
    with pytest.raises(ConfigError, match=r"no split 'test'.*train"):
        samples(folder, data_dir=str(tmp_path / "data"))


@pytest.mark.slow  # asks the hub, which retries without a network
def test_without_the_hub_the_error_says_where_to_put_the_data(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = write({"t.yaml": a_task("dataset_path: owner/set\ndataset_name: main")})
    with pytest.raises(ConfigError) as caught:
        samples(folder, data_dir=str(tmp_path))
    assert "--data_dir" in str(caught.value)
    assert "owner/set/main/<split>.jsonl" in str(caught.value)


def test_missing_data_fails_only_its_task(write: Write) -> None:
    lost = of_files("json", "{test: nope.jsonl}").replace("task: t", "task: lost")
    folder = write({"t.yaml": of_files("json", "{test: d.jsonl}"), "lost.yaml": lost, "d.jsonl": counted(2)})
    model = Scripted(generate=lambda prompt, params, repeat: "0")
    results = assay.simple_evaluate(model, tasks=["lost", "t"], include_path=str(folder), include_defaults=False)
    assert results["results"]["t"]["exact_match,none"] == 0.5
    assert "nope.jsonl" in results["assay"]["broken"]["lost"]


def test_process_docs_prepares_the_rows_before_they_are_chosen(write: Write) -> None:
    helper = """
        def odd(split):
            return split.filter(lambda row: int(row["a"]) % 2 == 1).map(lambda row: {"q": row["q"] + "!"})
    """
    task = of_files("json", "{test: d.jsonl}") + "process_docs: !function made.odd\n"
    folder = write({"t.yaml": task, "made.py": helper, "d.jsonl": counted(8)})
    assert questions(folder, limit=3) == ["q1!", "q3!", "q5!"]
    assert numbers(folder, limit=3) == [0, 1, 2]


# get_sample_size of lm-eval 0.4.13: ceil(n · limit) below 1, else int(limit). 100 · 0.07 is 7.000000000000001.
LIMITS = [(3, 10, 3), (1, 10, 1), (1.0, 10, 1), (99, 10, 10), (2.7, 10, 2), (0.3, 10, 3), (0.25, 10, 3), (0.001, 10, 1), (0.07, 100, 8)]  # fmt: skip


@pytest.mark.parametrize(("limit", "count", "expected"), LIMITS)
def test_a_limit_takes_the_first_ones_as_lm_eval_counts_them(
    limit: float, count: int, expected: int, write: Write
) -> None:
    folder = write({"t.yaml": of_files("json", "{test: d.jsonl}"), "d.jsonl": counted(count)})
    assert numbers(folder, limit=limit) == list(range(expected))


def test_a_sample_is_a_random_subset_in_the_order_of_the_data_and_the_same_every_time(write: Write) -> None:
    folder = write({"t.yaml": of_files("json", "{test: d.jsonl}"), "d.jsonl": counted(50)})
    first = numbers(folder, sample=10)
    assert len(set(first)) == 10
    assert first == sorted(first) != list(range(10))
    assert numbers(folder, sample=10) == first
    assert questions(folder, sample=10) == [f"q{number}" for number in first]
    assert numbers(folder, sample=99) == list(range(50))


def test_samples_are_picked_by_their_numbers_and_keep_them(write: Write) -> None:
    folder = write({"t.yaml": of_files("json", "{test: d.jsonl}"), "d.jsonl": counted(8)})
    sample_rows = samples(folder, samples={"t": [7, 2, 4]})
    assert [(sample["doc_id"], sample["doc"]["q"]) for sample in sample_rows] == [(2, "q2"), (4, "q4"), (7, "q7")]
    # lm-eval evaluates the same documents and logs the numbers in the order in which they were given
    wrong = samples(folder, samples={"t": [7, 2, 4]}, compat="lm-eval")
    assert [(sample["doc_id"], sample["doc"]["q"]) for sample in wrong] == [(7, "q2"), (2, "q4"), (4, "q7")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": {"t": [8]}}, "document 8.*8"),
        ({"samples": {"t": [-1]}}, "numbers"),
        ({"samples": {"u": [0]}}, "'u'"),
        ({"samples": {"t": [0]}, "limit": 2}, "exclude"),
        ({"samples": {"t": [0]}, "sample": 2}, "exclude"),
        ({"limit": 2, "sample": 2}, "exclude"),
        ({"limit": 0}, "limit"),
        ({"sample": 0}, "sample"),
    ],
)
def test_an_invalid_selection_of_documents_is_refused(options: dict[str, Any], said: str, write: Write) -> None:
    folder = write({"t.yaml": of_files("json", "{test: d.jsonl}"), "d.jsonl": counted(8)})
    with pytest.raises(ConfigError, match=said):
        samples(folder, **options)
