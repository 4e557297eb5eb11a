"""A run that was packed and imported reads as before: in every command that reads runs."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import run_world
from assay.exchange.archive import pack
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.redaction import redact, redact_results
from assay.report.write import report_text
from assay.runs.run import Run
from graph_world import RECORDS, write_graph
from run_world import RecordingModel
from serving import TALKING, Servers
from small_runs import write_task
from viewer_world import fetched, serving

Assay = Callable[..., Any]
CHAT = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
SAMPLED = "generation_kwargs: {until: [], max_gen_toks: 99, do_sample: true, temperature: 1.0}\n"


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def answered(tmp_path: Path, url: str, run_assay: Assay, yaml: str, *more: object) -> tuple[Path, Path]:
    """A run of three questions that a server answers with its usage, and the folder of its task."""
    rows = [{"q": json.dumps({"say": text, "usage": [11, 2, 0]}), "gold": "yes"} for text in ("yes", "no", "yes")]
    write_task(tmp_path / "tasks", rows, yaml)
    where = f"model=m,base_url={url},price_in=1,price_out=2"
    ended = run_assay("run", "--model", "openai-chat", "--model_args", where, "--tasks", "t", "--include_path",
                      tmp_path / "tasks", "--apply_chat_template", "-o", tmp_path / "run", *more)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return tmp_path / "run", tmp_path / "tasks"


def served(tmp_path: Path, url: str, run_assay: Assay) -> tuple[Path, Path]:
    return answered(tmp_path, url, run_assay, CHAT + "metric_list: [{metric: exact_match}]\n")


def repeated(tmp_path: Path, url: str, run_assay: Assay) -> tuple[Path, Path]:
    filters = (
        "filter_list:\n  - {name: first_token, filter: [{function: take_first}]}\n"
        "  - {name: each, filter: [{function: take_first_k, k: 2}]}\n"
    )
    return answered(tmp_path, url, run_assay, CHAT + SAMPLED + "repeats: 2\n" + filters)


def judged(tmp_path: Path, url: str, run_assay: Assay) -> tuple[Path, Path]:
    said = [json.dumps({"score": points, "usage": [7, 3, 0]}) for points in (1, 4, 10)]
    rows = [{"q": json.dumps({"say": text}), "gold": "x"} for text in said]
    yaml = CHAT + "scorer: llm_judge\ngeneration_kwargs: {until: [], max_gen_toks: 99}\n"
    write_task(tmp_path / "tasks", rows, yaml)
    where = f"model=m,base_url={url},price_in=1,price_out=1"
    ended = run_assay("run", "--model", "openai-chat", "--model_args", where, "--tasks", "t", "--include_path",
                      tmp_path / "tasks", f"--model_role=judge=openai-chat,{where}", "-o", tmp_path / "run")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return tmp_path / "run", tmp_path / "tasks"


def walked(tmp_path: Path, url: str, run_assay: Assay) -> tuple[Path, Path]:
    """A run of a graph."""
    write_graph(tmp_path, RECORDS)
    ended = run_assay("run", "--model", "openai-chat", "--model_args", f"model=m,base_url={url}", "--tasks",
                      "tasks.eval.question_answering.simpleqa", "-o", tmp_path / "run")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return tmp_path / "run", tmp_path


def scripted(tmp_path: Path, url: str, run_assay: Assay) -> tuple[Path, Path]:  # no server is asked
    """A run without usage, with documents that failed."""
    for name, text in run_world.FILES.items():
        (tmp_path / "tasks").mkdir(exist_ok=True)
        (tmp_path / "tasks" / name).write_text(re.sub(r"^ {8}", "", text.lstrip("\n"), flags=re.MULTILINE))
    run_world.run(RecordingModel(failing={"7-4="}), tmp_path / "tasks", tmp_path / "run")
    return tmp_path / "run", tmp_path / "tasks"


KINDS = {each.__name__: each for each in (served, repeated, judged, walked, scripted)}


def results_text(run: Path) -> dict[str, Any]:
    """The results as they are, without the name of the home folder."""
    return dict(json.loads(json.dumps(run_world.results(run)).replace(str(Path.home()), "~")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_same_after_it_was_packed_and_imported(
    kind: str, talking: str, tmp_path: Path, run_assay: Assay
) -> None:
    run, tasks = KINDS[kind](tmp_path, talking, run_assay)
    archive = pack(run, tmp_path / "run.zip").path
    ended = run_assay("import", archive, "-o", tmp_path / "there/run")
    assert ended.returncode == (1 if kind == "scripted" else 0), ended.stderr
    there = tmp_path / "there/run"
    assert results_text(there) == results_text(run)
    account = results_text(run)["assay"].get("usage", {})
    assert (account.get("tokens", {}).get("out", 0) > 0) == (kind != "scripted")
    assert Run.open(there).tasks == Run.open(run).tasks
    for each in ("md", "csv"):
        assert report_text([there], each) == report_text([run], each)
    samples = [run_assay("samples", folder, "-n", "0", "--full").stdout for folder in (run, there)]
    assert samples[0] == samples[1] != ""
    compared = run_assay("compare", run, there)
    assert (compared.returncode, "Traceback" in compared.stderr) == (0, False), compared.stderr
    for to in ("lm-eval", "inspect", "parquet"):
        assert export(there, to, tmp_path / f"out-{to}")
    ended = run_assay("score", there, "--include_path", tasks)
    assert "Traceback" not in ended.stderr
    again, before = run_world.results(there / "scored/001"), results_text(run)
    assert again["results"] == before["results"]
    with serving(tmp_path / "there") as at:
        assert [fetched(at, "/")[0], fetched(at, "/run", run="run")[0]] == [200, 200]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_without_right_answers_still_has_its_numbers(
    kind: str, talking: str, tmp_path: Path, run_assay: Assay
) -> None:
    run, _ = KINDS[kind](tmp_path, talking, run_assay)
    archive = pack(run, tmp_path / "run.zip", no_gold=True).path
    ended = run_assay("import", archive, "-o", tmp_path / "there")
    assert ended.returncode == (1 if kind == "scripted" else 0), ended.stderr
    now, before = results_text(tmp_path / "there"), results_text(run)
    assert (now["results"], now["assay"]) == (before["results"], before["assay"])
    for command in (["samples"], ["report", "--format", "md"], ["export", "--to", "parquet", "-o", tmp_path / "out"]):
        ended = run_assay(command[0], tmp_path / "there", *command[1:])
        assert ended.returncode == 0, ended.stderr


def test_an_imported_run_is_imported_again(talking: str, tmp_path: Path, run_assay: Assay) -> None:
    run, _ = served(tmp_path, talking, run_assay)
    import_runs([pack(run, tmp_path / "a.zip").path], tmp_path / "one")
    import_runs([pack(tmp_path / "one", tmp_path / "b.zip").path], tmp_path / "two")
    assert results_text(tmp_path / "two") == results_text(run)


@pytest.mark.parametrize(
    "value", [7, 0.5, None, True, {}, [], {"in": 3, "out": 0.5}, [1, 2], {"judge": {"in": 3, "out": None}}]
)
def test_numbers_are_not_secrets_whatever_they_are_called(value: object) -> None:
    assert redact({"tokens": value}) == {"tokens": value}
    assert redact(value, "api_key") == value


@pytest.mark.parametrize("value", ["abc", ["abc"], {"in": "abc"}, [1, "abc"], {"deep": {"er": [1, {"x": "abc"}]}}])
def test_texts_under_names_of_secrets_stay_hidden(value: object) -> None:
    assert redact({"auth_tokens": value}) == {"auth_tokens": "***"}


def test_tasks_metrics_and_filters_may_be_called_like_a_secret() -> None:
    rows = [{"metric": "acc_token", "filter": "strict_key", "value": None, "n": 3, "reason": "no number"}]
    content: dict[str, Any] = {
        "status": "complete",
        "broken": {"my_token": "its data is missing"},
        "tasks": {
            "api_key": {"rows": rows, "directions": {"f1_token": True}, "config": {"metadata": {"password": "abc"}}}
        },
        "groups": {"secret": {"metadata": {"api_key": "abc"}, "rows": rows}},
        "rescored": {"changed": {"api_key": {"count": 1, "ids": [3]}}},
    }
    result = redact_results(content)
    assert result["groups"]["secret"].pop("metadata") == {"api_key": "***"}
    assert result["tasks"]["api_key"].pop("config") == {"metadata": {"password": "***"}}
    del content["groups"]["secret"]["metadata"], content["tasks"]["api_key"]["config"]
    assert result == content


def test_a_text_in_an_account_is_still_without_secrets() -> None:
    result = redact_results({"broken": {"t": "401 for https://me:secret99@host/v1 with sk-abcdefgh12345678"}})
    assert "secret99" not in str(result) and "sk-abc" not in str(result)
