"""Runs from elsewhere: lm-eval's files, Inspect's logs, several runs as one; with groups over all of them."""

import json
import math
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import run_world
from assay import Run, ScoreKey, ScoreOptions, score, simple_evaluate
from assay.comparison.compare import compare
from assay.errors import AssayError
from assay.exchange.archive import write_archive
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.exchange.inspect.log_file import member, with_attachments
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from conftest import Write
from exchange_world import HERE, INSPECT, LOGGED, TASKS, as_json, changed_log
from run_world import ACC, EXACT_MATCH, RecordingModel, rows_of, sample_rows


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The definitions of the tasks that lm-eval ran."""
    folder = tmp_path_factory.mktemp("synthetic")
    subprocess.run([sys.executable, str(HERE.parent / "bench/make_benchmark.py"), str(folder)], check=True)
    return folder / "tasks"


def values(results: Any, task: str) -> dict[str, float]:
    return {key: value for key, value in results["results"][task].items() if "," in key and "_stderr" not in key}


@pytest.mark.parametrize("name", LOGGED)
def test_lm_evals_files_become_a_run_that_is_scored_again_to_the_same_numbers(
    name: str, synthetic: Path, tmp_path: Path
) -> None:
    [theirs] = [json.loads(path.read_text()) for path in (HERE / "logged" / name).glob("results_*.json")]
    imported = lm_eval_layout(import_runs([HERE / "logged" / name], tmp_path / "run"))
    assert imported["results"].keys() == theirs["results"].keys()
    for task in theirs["results"]:
        assert values(imported, task) == pytest.approx(values(theirs, task), rel=1e-12)
    again = score(tmp_path / "run", ScoreOptions(include_path=[str(synthetic)], compat="lm-eval"))
    assert lm_eval_layout(again.results)["results"].keys() == theirs["results"].keys()
    for task in theirs["results"]:
        assert values(lm_eval_layout(again.results), task) == pytest.approx(values(theirs, task), rel=1e-12)
    assert lm_eval_layout(again.results)["assay"]["rescored"]["changed"] == {}


def test_numbers_that_are_means_of_documents_have_intervals_and_lm_evals_errors(tmp_path: Path) -> None:
    imported = lm_eval_layout(import_runs([HERE / "logged/synth_wino"], tmp_path / "run"))
    row = rows_of(imported, "synth_wino")["acc,none"]
    assert row["value"] == pytest.approx(1 / 3)
    assert row["stderr"] == pytest.approx(1 / 3)  # √(2/9 / 2), of three documents
    assert 0 < row["interval"][0] < 1 / 3 < row["interval"][1] < 1


def test_a_group_of_lm_evals_keeps_its_number(tmp_path: Path) -> None:
    imported = lm_eval_layout(import_runs([HERE / "logged/synth_mmlu5"], tmp_path / "run"))
    [theirs] = [json.loads(path.read_text()) for path in (HERE / "logged/synth_mmlu5").glob("results_*.json")]
    [group] = imported["groups"]
    assert values(imported, group) == pytest.approx(values(theirs, group))
    assert len(imported["group_subtasks"][group]) == 5


def test_samples_of_an_imported_run_are_shown_like_any_others(run_assay: Any, tmp_path: Path) -> None:
    [samples] = (HERE / "logged/synth_lambada").glob("samples_*")
    ended = run_assay("import", samples, "-o", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert "synth_lambada" in ended.stdout
    shown = run_assay("samples", tmp_path / "run", "-n", "1")
    assert shown.returncode == 0, shown.stderr
    assert "perplexity,none" in shown.stdout


SUMS = {"a": (1.0, [1, 1]), "b": (0.5, [1, 0]), "c": (0.5, [0, 1])}
"""What each sample of the log scores, and its epochs: tools/make_inspect_logs.py says which answers are right."""


def test_an_inspect_log_is_imported_with_its_numbers(tmp_path: Path) -> None:
    imported = lm_eval_layout(import_runs([INSPECT / "sums.eval"], tmp_path / "run"))
    row = imported["results"]["sums"]
    assert row["accuracy,match"] == pytest.approx(2 / 3)
    assert row["accuracy_stderr,match"] == pytest.approx(1 / 6)  # deviation √(1/12) of three, over √3
    assert row["short,manners"] == pytest.approx(5 / 6)
    assert row["polite,manners"] == 0.5
    account = imported["assay"]["tasks"]["sums"]
    assert (account["documents"], account["scored"], account["failed"]) == (4, 3, 1)
    assert account["reasons"] == {"ValueError('nothing can be asked about this')": 1}
    assert imported["assay"]["status"] == "incomplete"
    rows = sample_rows(tmp_path / "run/samples/sums.parquet")
    for number, (value, epochs) in enumerate(SUMS.values()):
        scores = rows[number]["scores"]
        assert (scores["accuracy,match"], scores["accuracy,match,repeats"]) == (value, epochs)
    assert rows[2]["responses"] == [["It is 54", "56"]]
    assert json.loads(rows[2]["doc"])["level"] == "hard"


def test_choices_of_inspects_have_their_right_one(tmp_path: Path) -> None:
    imported = lm_eval_layout(import_runs([INSPECT / "colours.eval"], tmp_path / "run"))
    assert imported["results"]["colours"]["accuracy,choice"] == pytest.approx(1 / 3)
    rows = sample_rows(tmp_path / "run/samples/colours.parquet")
    assert [json.loads(row["gold"]) for row in rows] == [0, 1, 0]
    assert rows[0]["choices"] == ["green", "red"]
    assert "green" in rows[0]["prompt"]  # what the solver made of the question


def test_epochs_that_are_put_together_in_two_ways_have_two_numbers(tmp_path: Path) -> None:
    """Right are 1 and 0, 1 and 1, 0 and 0 of three samples; another scorer leaves the first of them out."""
    imported = lm_eval_layout(import_runs([INSPECT / "talks.eval"], tmp_path / "run"))
    row, rows = imported["results"]["talks"], rows_of(imported, "talks")
    assert (row["accuracy,match"], row["accuracy_at_least_1,match"]) == (0.5, pytest.approx(2 / 3))
    assert rows["accuracy_at_least_1,match"]["stderr"] == pytest.approx(1 / 3)
    assert rows["mean,left_out"]["value"] == 2 and rows["mean,left_out"]["n"] == 2
    assert rows["std,left_out"]["value"] == 0 and rows["std,left_out"]["stderr"] is None
    samples = run_world.samples(tmp_path / "run", "talks")
    assert samples[0]["prompt"] == "[system]\nBe brief.\n\n[user]\n1+1="
    assert json.loads(samples[1]["target"]) == ["4", "four"]


def test_a_log_is_read_however_it_is_packed(tmp_path: Path) -> None:
    with zipfile.ZipFile(INSPECT / "sums.eval") as file:
        packed = {name: member(file, name) for name in file.namelist()}
        assert {about.compress_type for about in file.infolist()} == {93}  # zstd, which Inspect writes
    write_archive(tmp_path / "sums.eval", packed.items())
    as_json(INSPECT / "sums.eval", tmp_path / "sums.json")
    first = lm_eval_layout(import_runs([INSPECT / "sums.eval"], tmp_path / "a"))
    for name in ("sums.eval", "sums.json"):
        again = lm_eval_layout(import_runs([tmp_path / name], tmp_path / f"run-{name}"))["assay"]
        assert (again["tasks"], again["status"]) == (first["assay"]["tasks"], first["assay"]["status"])


def cancelled(name: str, value: Any) -> Any:
    """A log of three colours that was cancelled after the first and the third."""
    if name == "header.json":
        value |= {"status": "cancelled", "results": None, "error": {"message": "interrupted"}}
    return None if name == "reductions.json" or name.startswith("samples/2_") else value


@pytest.mark.parametrize("packed", ["eval", "json"])
def test_a_log_that_was_cancelled_is_an_incomplete_run(packed: str, tmp_path: Path, run_assay: Any) -> None:
    log = changed_log(INSPECT / "colours.eval", tmp_path / "x.eval", cancelled)
    log = log if packed == "eval" else as_json(log, tmp_path / "x.json")
    ended = run_assay("import", log, "-o", tmp_path / "run")
    assert (ended.returncode, "ended early: colours: cancelled: interrupted\n" in ended.stderr) == (1, True)
    account = run_world.results(tmp_path / "run")["assay"]
    reasons = {"the sample is not in the log, which ended with cancelled: interrupted": 1}
    assert (account["status"], account["tasks"]["colours"]["reasons"]) == ("incomplete", reasons)
    assert (account["tasks"]["colours"]["documents"], account["tasks"]["colours"]["scored"]) == (3, 2)
    rows = sample_rows(tmp_path / "run/samples/colours.parquet")
    assert [(row["doc_id"], json.loads(row["doc"])["id"]) for row in rows] == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(("limit", "lacking"), [(None, 3), (5, 2), ([2, 6], 1), (2, 0)])
def test_missing_samples_without_ids_are_reported_by_their_count(limit: Any, lacking: int, tmp_path: Path) -> None:
    """Three samples are there: of a data set of 6, or of what a limit leaves of it."""

    def without_ids(name: str, value: Any) -> Any:
        if name == "header.json":
            value["eval"]["dataset"] = {"samples": 6}
            value["eval"]["config"]["limit"] = limit
        return value

    log = changed_log(INSPECT / "colours.eval", tmp_path / "x.eval", without_ids)
    account = lm_eval_layout(import_runs([log], tmp_path / "run"))["assay"]
    assert account["tasks"]["colours"].get("not_asked", 0) == lacking
    assert account["status"] == ("incomplete" if lacking else "complete")


def test_an_error_at_the_end_of_a_log_is_reported_though_all_samples_are_there(tmp_path: Path) -> None:
    def failed(name: str, value: Any) -> Any:
        if name == "header.json":
            value["status"] = "error"
        return value if name != "samples/3_epoch_1.json" else {**value, "scores": None}

    account = lm_eval_layout(
        import_runs([changed_log(INSPECT / "colours.eval", tmp_path / "x.eval", failed)], tmp_path / "run")
    )["assay"]
    assert (account["status"], account["ended"]) == ("incomplete", "colours: error")
    assert account["tasks"]["colours"]["is_incomplete"]
    assert account["tasks"]["colours"]["reasons"] == {"not scored: error": 1}


def test_unanswered_requests_of_a_run_are_missing_after_the_import(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output, tasks=["sums"])
    changes = {"documents": 5, "not_asked": 2}
    run_world.change_results(output, lambda content: content["tasks"]["sums"].update(changes))
    imported = lm_eval_layout(import_runs([output], tmp_path / "brought"))
    assert (imported["assay"]["status"], imported["assay"]["tasks"]["sums"]["not_asked"]) == ("incomplete", 2)


def test_attachments_of_a_log_are_put_in_their_place() -> None:
    sample = {
        "input": "attachment://x",
        "messages": [{"content": "attachment://y"}],
        "attachments": {"x": "long", "y": "longer"},
    }
    assert with_attachments(sample) == {**sample, "input": "long", "messages": [{"content": "longer"}]}


def test_a_run_is_exported_to_inspect_and_imported_without_loss(write: Write, output: Path, tmp_path: Path) -> None:
    folder = write({**run_world.FILES, **TASKS})
    run_world.run(RecordingModel(failing={"3*3="}), folder, output)
    back = lm_eval_layout(import_runs(export(output, "inspect", tmp_path / "logs"), tmp_path / "back"))
    assert values(back, "sums") == values(run_world.results(output), "sums")
    ours, theirs = run_world.results(output)["assay"]["tasks"], json.loads(json.dumps(back["assay"]["tasks"]))
    for task in ("sums", "colours"):
        assert theirs[task]["rows"] == ours[task]["rows"]
        assert theirs[task]["failed"] == ours[task]["failed"]
        assert run_world.samples(tmp_path / "back", task) == run_world.samples(output, task)
    again = score(tmp_path / "back", ScoreOptions(include_path=[str(folder)]))
    assert lm_eval_layout(again.results)["assay"]["rescored"]["changed"] == {}


def set_to_nothing(kind: str, name: str, value: Any) -> Any:
    """A log that was scored again, to 0: in its header, or in one of its samples."""
    if kind == "header" and name == "header.json":
        for score in value["results"]["scores"]:
            score["metrics"]["exact_match"]["value"] = 0.0
    if kind == "sample" and name == "samples/0_epoch_1.json":
        value["scores"]["exact_match"]["value"] = 0.0
    if kind == "further" and name == "samples/0_epoch_1.json":
        value["scores"]["another"] = {"value": 0.0}
    return None if name == "reductions.json" else value


@pytest.mark.parametrize("kind", ["header", "sample", "further", "none"])
def test_an_exported_log_that_was_scored_again_has_the_new_numbers(
    kind: str, tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output, tasks=["sums"])
    [log] = export(output, "inspect", tmp_path / "logs")
    scored = changed_log(Path(log), tmp_path / "again.eval", partial(set_to_nothing, kind))
    import_runs([scored], tmp_path / "back")
    row = run_world.results(tmp_path / "back")["results"]["sums"]
    first = sample_rows(tmp_path / "back/samples/sums.parquet")[0]["scores"]
    [reported] = [value for key, value in row.items() if key.startswith("exact_match,")]
    [of_first] = [value for key, value in first.items() if key.startswith("exact_match,")]
    assert reported == (0.0 if kind == "header" else EXACT_MATCH)
    assert of_first == (0.0 if kind == "sample" else 1.0)
    assert ("another,another" in first) is (kind == "further")


def test_an_imported_run_is_compared_with_a_run_of_assay(tasks: Path, output: Path, tmp_path: Path) -> None:
    """Out to lm-eval and in again: the documents are found by what they say, and nothing has changed."""
    run_world.run(RecordingModel(), tasks, output)
    export(output, "lm-eval", tmp_path / "out")
    import_runs([tmp_path / "out"], tmp_path / "back")
    comparison = compare([output, tmp_path / "back"])
    assert {(row.name, row.difference.n, row.difference.value, row.wins, row.losses) for row in comparison.rows} == {
        ("sums", 5, 0, 0, 0), ("colours", 4, 0, 0, 0),
    }  # fmt: skip


GROUP = """
group: both
task: [sums, colours]
aggregate_metric_list:
  - {metric: accuracy, filter_list: {sums: match, colours: choice}}
"""


def test_imported_results_join_a_group(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(GROUP)
    logs = [INSPECT / "sums.eval", INSPECT / "colours.eval"]
    imported = lm_eval_layout(import_runs(logs, tmp_path / "run", groups=[tmp_path / "both.yaml"]))
    row = imported["groups"]["both"]
    assert row["accuracy,match+choice"] == pytest.approx(0.5)  # (3 · 2/3 + 3 · 1/3) / 6
    assert row["accuracy_stderr,match+choice"] == pytest.approx(math.sqrt((1 / 6) ** 2 + (1 / 3) ** 2) / 2)
    assert imported["group_subtasks"]["both"] == ["sums", "colours"]


def test_a_run_of_assay_and_a_log_of_inspect_join_one_tree(tasks: Path, output: Path, tmp_path: Path) -> None:
    group = tasks / "ours.yaml"
    group.write_text("group: ours\ntask: [colours]\naggregate_metric_list: [{metric: acc}]\n")
    run_world.run(RecordingModel(), tasks, output, tasks=["ours"])
    (tmp_path / "all.yaml").write_text(
        "group: all\ntask: [ours, sums]\naggregate_metric_list:\n"
        "  - {metric: acc, name: worst, aggregation: min, missing: skip}\n"
        "  - {metric: accuracy, filter_list: match, missing: skip}\n"
    )
    imported = lm_eval_layout(
        import_runs([output, INSPECT / "sums.eval"], tmp_path / "joined", groups=[tmp_path / "all.yaml"])
    )
    assert imported["groups"]["ours"]["acc,none"] == ACC
    assert imported["groups"]["all"]["worst,none"] == ACC
    assert imported["groups"]["all"]["accuracy,match"] == pytest.approx(2 / 3)
    assert imported["group_subtasks"] == {"all": ["ours", "sums"], "ours": ["colours"]}


def test_an_imported_run_keeps_its_numbers(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    imported = lm_eval_layout(import_runs([output], tmp_path / "joined"))
    assert values(imported, "sums") == {"exact_match,none": EXACT_MATCH}
    assert rows_of(imported, "sums") == rows_of(run_world.results(output), "sums")


def test_what_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.eval").write_text("no zip")
    write_archive(tmp_path / "going.eval", [("_journal/start.json", b"{}")])
    write_archive(tmp_path / "other.eval", [("header.json", b"[]")])
    (tmp_path / "empty").mkdir()
    wrong = {
        "x.eval": "is not an Inspect log",
        "going.eval": "has not finished",
        "other.eval": "is not an Inspect log",
        "empty": "there is nothing to import",
        "nowhere": "no such file or folder",
    }
    for name, what in wrong.items():
        with pytest.raises(AssayError, match=what):
            import_runs([tmp_path / name], tmp_path / "run")
        assert not (tmp_path / "run").exists()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def ways(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(way for key, each in inner for way in ways(each, (*before, key)))]


@pytest.fixture(scope="session")
def whole_log(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    text: dict[str, Any] = json.loads(
        as_json(INSPECT / "sums.eval", tmp_path_factory.mktemp("log") / "x.json").read_text()
    )
    return text


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_content_of_a_log_is_imported_or_refused(
    whole_log: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Anything anywhere in a log: never an error of another kind, and nothing left behind where it is refused."""
    folder = tmp_path_factory.mktemp("any")
    log = json.loads(json.dumps(whole_log))
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(ways(log)[1:]))
        place = log
        for step in way:
            place = place[step]
        place[last] = data.draw(anything)
    (folder / "x.json").write_text(json.dumps(log))
    try:
        imported = lm_eval_layout(import_runs([folder / "x.json"], folder / "run"))
    except AssayError:
        assert not (folder / "run").exists()
    else:
        assert len(imported["assay"]["tasks"]) == 1
        export(folder / "run", "parquet", folder / "out")


def test_a_member_larger_than_its_declared_size_is_not_unpacked(tmp_path: Path) -> None:
    write_archive(tmp_path / "big.eval", [("header.json", b"{}")])
    packed = bytearray((tmp_path / "big.eval").read_bytes())
    place = packed.rindex(b"PK\x01\x02") + 24
    packed[place : place + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "big.eval").write_bytes(packed)
    with pytest.raises(AssayError, match="too many for a sample"):
        import_runs([tmp_path / "big.eval"], tmp_path / "run")


@pytest.mark.parametrize("name", ["header.json", "samples/1_epoch_1.json"])
@pytest.mark.parametrize("packed", ["zstd", "deflate"])
def test_a_damaged_member_is_reported_and_leaves_nothing_behind(name: str, packed: str, tmp_path: Path) -> None:
    source = INSPECT / "colours.eval"  # as Inspect packs it, and as we do
    if packed == "deflate":
        source = changed_log(source, tmp_path / "x.eval", lambda _, value: value)
    with zipfile.ZipFile(source) as file:
        known = file.getinfo(name)
    content = bytearray(source.read_bytes())
    start = known.header_offset + 30 + len(name)
    for place in range(start + 20, start + 30):
        content[place] ^= 0xFF
    (tmp_path / "damaged.eval").write_bytes(content)
    with pytest.raises(AssayError, match=f"damaged.eval: {name} is damaged"):
        import_runs([tmp_path / "damaged.eval"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "again.eval").write_bytes((INSPECT / "sums.eval").read_bytes())
    with pytest.raises(AssayError, match="more than one file has a task of the same name: sums"):
        import_runs([INSPECT / "sums.eval", tmp_path / "again.eval"], tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("group: g\ntask: [sumz]\n", "no task or group named 'sumz' — did you mean 'sums'"),
        ("group: g\ntask: [sums]\naggregate_metric_list: [{metric: accurcy}]\n", "accurcy"),
        ("task: sums\n", "defines no group"),
        (
            "group: g\ntask: [sums]\naggregate_metric_list: [{metric: accuracy, aggregation: !function a.b}]\n",
            "cannot be used here",
        ),
    ],
)
def test_a_group_that_cannot_be_computed_is_refused(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(text)
    with pytest.raises(AssayError, match=what):
        import_runs([INSPECT / "sums.eval"], tmp_path / "run", groups=[tmp_path / "g.yaml"])
    assert not (tmp_path / "run").exists()


def test_two_models_of_lm_evals_are_not_taken_for_one(tmp_path: Path) -> None:
    for model in ("a", "b"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "samples_t.jsonl").write_text("{}\n")
    with pytest.raises(AssayError, match="there is more than one model below it"):
        import_runs([tmp_path], tmp_path / "run")


def test_another_run_is_not_overwritten(tmp_path: Path) -> None:
    import_runs([INSPECT / "sums.eval"], tmp_path / "run")
    import_runs([INSPECT / "sums.eval"], tmp_path / "run")  # the same once more
    with pytest.raises(AssayError, match="the folder holds another run"):
        import_runs([INSPECT / "colours.eval"], tmp_path / "run")
    import_runs([INSPECT / "colours.eval"], tmp_path / "run", force=True)


ROUND_TRIP = {
    "base.yaml": """
        task: base
        task_alias: Base sums
        dataset_path: json
        dataset_kwargs: {data_files: {test: sums.jsonl}}
        test_split: test
        fewshot_split: test
        doc_to_text: "{{q}}"
        doc_to_target: a
        generation_kwargs: {until: ["\\n"]}
        cluster_by: subject
        filter_list:
          - {name: strict, filter: [{function: regex, regex_pattern: "^([0-9]+)$"}, {function: take_first}]}
          - {name: loose, filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: take_first}]}
        metric_list:
          - {metric: exact_match}
          - {metric: !function tools.length, aggregation: !function tools.by_name, higher_is_better: false}
        metadata: {version: 2.0}
    """,
    "skewed.yaml": """
        task: skewed
        dataset_path: json
        dataset_kwargs: {data_files: {test: sums.jsonl}}
        test_split: test
        doc_to_text: "{{q}}"
        doc_to_target: a
        generation_kwargs: {until: ["\\n"]}
        metric_list: [{metric: !function tools.size, aggregation: mean, higher_is_better: false}]
    """,
    "all.yaml": """
        group: all
        group_alias: Everything
        task:
          - base
          - group: inner
            task:
              - {task: base, task_alias: one shot, num_fewshot: 1}
              - skewed
            aggregate_metric_list: [{metric: exact_match, missing: skip}]
          - task: inline
            dataset_path: json
            dataset_kwargs: {data_files: {test: sums.jsonl}}
            test_split: test
            doc_to_text: "{{q}}"
            doc_to_target: a
            generation_kwargs: {until: ["\\n"]}
            metric_list: [{metric: exact_match}]
        aggregate_metric_list: [{metric: exact_match, missing: skip}]
        metadata: {version: 3}
    """,
    "tools.py": (
        "def length(references, predictions):\n    return len(predictions[0])\n"
        "def by_name(items):\n    return {'short': sum(n < 2 for n in items), 'long': sum(n >= 2 for n in items)}\n"
        "def size(references, predictions):\n    return 2.0 ** int(references[0])\n"
    ),
    "sums.jsonl": "".join(
        json.dumps({"q": f"{number}+1=", "a": str(number + 1), "subject": "abc"[number % 3]}) + "\n"
        for number in range(12)
    ),
}
"""Tasks within groups, which have no file of their own; two filters; numbers by name; clusters; scores of very unlike size."""


def says_the_sum(prompt: str, params: dict[str, object], repeat: int) -> str:
    total = int(prompt.splitlines()[-1].partition("+")[0]) + 1
    if total == 7:
        raise TimeoutError("no answer")
    return str(total) if total % 3 else f"it is {total}"


@pytest.mark.parametrize("to", ["lm-eval", "lm-eval as a file", "assay"])
def test_what_is_exported_for_lm_eval_and_imported_again_has_every_row_as_it_was(
    to: str, write: Write, output: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"tasks": ["all"], "include_path": str(write(ROUND_TRIP)), "include_defaults": False}
    simple_evaluate(Scripted(generate=says_the_sum), output_path=str(output), **options)
    run = Run.open(output)
    source = output
    if to != "assay":
        source = tmp_path / ("out.json" if to == "lm-eval as a file" else "out")
        export(output, "lm-eval", source)
    imported = import_runs([source.parent if source.suffix else source], tmp_path / "back")
    back = Run.open(tmp_path / "back").results
    assert [row.key for row in back.tasks["all::inner::base"].rows] == [
        ScoreKey(metric, name) for name in ("strict", "loose") for metric in ("exact_match", "length")
    ]
    assert back.groups["all::inner"].members == ["all::inner::base", "skewed"]
    assert back.tasks["base"].failed == 1
    for results in (imported, back):
        assert results.paths == run.results.paths
        assert (results.tasks, results.groups) == (run.results.tasks, run.results.groups)
        assert (results.status, results.failed) == (run.results.status, run.results.failed)


def test_a_file_whose_numbers_were_changed_is_read_as_lm_evals(write: Write, output: Path, tmp_path: Path) -> None:
    """assay's own results are in the file it exports, and are not those of a file that another program wrote since."""
    options: dict[str, Any] = {"tasks": ["skewed"], "include_path": str(write(ROUND_TRIP)), "include_defaults": False}
    simple_evaluate(Scripted(generate=says_the_sum), output_path=str(output), **options)
    file = Path(export(output, "lm-eval", tmp_path / "out")[0])
    written = json.loads(file.read_text())
    written["results"]["skewed"] |= {"size,none": 7.0, "size_stderr,none": 2.0}
    file.write_text(json.dumps(written))
    [row] = import_runs([tmp_path / "out"], tmp_path / "back").tasks["skewed"].rows
    number = row.estimate
    assert (number.value, number.stderr, number.n) == (7.0, 2.0, 11)
    assert number.interval == pytest.approx((7 - 2 * 2.228139, 7 + 2 * 2.228139), abs=1e-5)  # Student's of 10 degrees
    assert number.note == "its interval follows from the reported standard error alone"


def test_numbers_of_lm_evals_that_are_none_or_several_are_not_replaced_by_a_mean(tmp_path: Path) -> None:
    shutil.copytree(HERE / "logged/synth_wino", tmp_path / "theirs")
    [file] = (tmp_path / "theirs").glob("results_*.json")
    written = json.loads(file.read_text())
    for value, named in ((math.nan, None), ({"few": 1, "many": 2}, {"few": 1, "many": 2})):
        written["results"]["synth_wino"] |= {"acc,none": value, "acc_stderr,none": "N/A"}
        file.write_text(json.dumps(written))  # as in lm-eval, which writes NaN
        task = import_runs([tmp_path / "theirs"], tmp_path / "run", force=True).tasks["synth_wino"]
        assert (task.rows[0].estimate.value, task.rows[0].estimate.named_values) == (None, named)
        assert task.rows[0].metric == "acc"
