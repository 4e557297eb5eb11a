"""`assay score`: answers that are there are filtered, scored and aggregated again, without a model and without the data."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.evaluation.definitions import parse_filter, parse_metric
from assay.evaluation.score import Rescored, ScoreOptions
from assay.exchange.importers import import_runs, score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Response, Rolling, Sample, Text, Usage
from assay.runs.folder import scorings
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.scoring.results import grouped
from assay.tasks.run import response_metadata
from commands import Run
from run_world import RecordingModel, everything, results, run, samples
from small_runs import SAMPLED, generate, processed, says, write_task
from small_runs import run as run_small

pytestmark = pytest.mark.slow  # many runs: too long for `make quick`

HERE = Path(__file__).parent


def values(data: Mapping[str, Any], name: str) -> dict[str, float]:
    """The numbers of a task or group, without errors and names."""
    row = data["results"][name]
    return {key: value for key, value in row.items() if "," in key and "_stderr" not in key}


def changed(scored: Rescored) -> dict[str, list[int]]:
    return {
        task: result["ids"] for task, result in lm_eval_layout(scored.results)["assay"]["rescored"]["changed"].items()
    }


def test_scoring_again_without_changes_gives_the_same_and_touches_nothing(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    before = everything(output)
    scored = score([output])
    assert lm_eval_layout(scored.results)["results"] == results(output)["results"]
    assert changed(scored) == {}
    now = everything(output)
    assert {name: now[name] for name in before} == before
    parquet = {name: now[f"scored/001/{name}"] for name in before if name.startswith("samples/")}
    assert parquet == {name: before[name] for name in parquet}
    assert len(parquet) == 2


def test_neither_the_data_nor_a_model_is_needed(tasks: Path, output: Path) -> None:
    asked = RecordingModel()
    run(asked, tasks, output)
    calls = len(asked.calls)
    for data in tasks.glob("*.jsonl"):
        data.unlink()
    assert values(lm_eval_layout(score([output]).results), "sums") == {"exact_match,none": 0.6}
    assert len(asked.calls) == calls


def test_a_filter_of_text_is_not_applied_to_log_likelihoods(tmp_path: Path) -> None:
    """A regular expression found nothing in numbers, and every document failed; filters that only select answers are applied."""
    from assay.cli import main

    command = ["run", "-t", "first_steps_facts", "first_steps_sums", "-L", "4", "-o", str(tmp_path / "r")]
    assert main(command) == 0
    before = results(tmp_path / "r")["results"]
    scored = score([tmp_path / "r"], ScoreOptions(filters=[r"number=regex:(\d+)"]))
    assert [line for line in scored.remarks if "not filtered by 'number': first_steps_facts" in line]
    assert lm_eval_layout(scored.results)["results"]["first_steps_facts"] == before["first_steps_facts"]
    assert "exact_match,number" in lm_eval_layout(scored.results)["results"]["first_steps_sums"]
    with pytest.raises(AssayError, match="reads text, and the answers are log-likelihoods"):
        score([tmp_path / "r"], ScoreOptions(tasks=["first_steps_facts"], filters=[r"number=regex:(\d+)"]))
    first = score([tmp_path / "r"], ScoreOptions(tasks=["first_steps_facts"], filters=["first=take_first"]))
    assert (
        lm_eval_layout(first.results)["results"]["first_steps_facts"]["acc,first"]
        == before["first_steps_facts"]["acc,none"]
    )


def test_a_replaced_filter_changes_its_rows(tasks: Path, output: Path) -> None:
    """Of the answers 2, 5, 4, 9, none the pattern leaves 2 and nothing else: 1 of 5 is right; 5 and 9 were right before."""
    run(RecordingModel(), tasks, output)
    scored = score([output], ScoreOptions(tasks=["sums"], filters=["none=regex:([1-3])"]))
    assert values(lm_eval_layout(scored.results), "sums") == {"exact_match,none": 0.2}
    assert changed(scored) == {"sums": [1, 3]}
    lines = [json.loads(line) for line in (scored.folder / "changes.jsonl").read_text().splitlines()]
    assert lines == [
        {"task": "sums", "doc_id": 1, "scores": {"exact_match,none": [1.0, 0.0]}},
        {"task": "sums", "doc_id": 3, "scores": {"exact_match,none": [1.0, 0.0]}},
    ]
    assert [tuple(number.as_json().values()) for number in scored.numbers] == [
        ("sums", "exact_match,none", 0.6, 0.2, 2)
    ]
    assert "colours" not in lm_eval_layout(scored.results)["results"]
    assert [row["answers"] for row in samples(scored.folder, "sums")][1] == {"none": ["[invalid]"]}
    assert lm_eval_layout(scored.results)["assay"]["tasks"]["sums"]["audit"]["unextracted"] == {
        "count": 4,
        "ids": [1, 2, 3, 4],
    }


def test_a_filter_of_another_name_is_added_and_so_is_a_metric(tmp_path: Path) -> None:
    """Answers Yes., no.: exact match 0; without punctuation no is right: 0.5; without case too, both: 1."""
    generate(tmp_path, ["Yes.", "no."], ["yes", "no"], output_path=str(tmp_path / "run"))
    words = score([tmp_path / "run"], ScoreOptions(filters=[r"word=regex:(\w+)"]))
    assert values(lm_eval_layout(words.results), "t") == {"exact_match,none": 0.0, "exact_match,word": 0.5}
    assert changed(words) == {}
    case = score([tmp_path / "run"], ScoreOptions(metrics=["exact_match:ignore_case=true,ignore_punctuation=true"]))
    assert values(lm_eval_layout(case.results), "t") == {"exact_match,none": 1.0}
    assert changed(case) == {"t": [0, 1]}
    assert [path.name for path in scorings(tmp_path / "run")] == ["001", "002"]


def test_a_changed_task_is_scored_by_its_current_definition_and_reported(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    text = (tasks / "sums.yaml").read_text()
    (tasks / "sums.yaml").write_text(text.replace('"{{q}}="', '"{{q}} ="') + "filter_list: [{name: x, filter: []}]\n")
    scored = score([output], ScoreOptions(tasks=["sums"]))
    assert values(lm_eval_layout(scored.results), "sums") == {"exact_match,x": 0.6}
    assert [line for line in scored.remarks if "sums" in line] == [
        "sums: doc_to_text changed since the run; the answers belong to the old definition"
    ]


def test_a_missing_task_definition_is_asked_for_and_can_be_passed(tasks: Path, output: Path, tmp_path: Path) -> None:
    run(RecordingModel(), tasks, output, tasks=["sums"])
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    shutil.move(tasks / "sums.yaml", kept / "sums.yaml")
    with pytest.raises(AssayError, match=r"task 'sums'.*is not found.*--with FILE"):
        score([output])
    assert not (output / "scored").exists()
    for expected in (ScoreOptions(files=[str(kept / "sums.yaml")]), ScoreOptions(include_path=[str(kept)])):
        assert values(lm_eval_layout(score([output], expected).results), "sums") == {"exact_match,none": 0.6}


def test_groups_are_computed_again_and_a_file_may_add_another(
    tasks: Path, output: Path, write: Callable[..., Path]
) -> None:
    """With weights of their sizes 5 and 4: (5 · 0.6 + 4 · 0.75) / 9 = 6/9; without weights (0.6 + 0.75) / 2 = 0.675."""
    items = "    aggregate_metric_list: [{metric: right, aggregation: mean, weight_by_size: %s}]\n"
    named = {
        "sums.yaml": (tasks / "sums.yaml").read_text() + "process_results: !function tools.right\n",
        "colours.yaml": (tasks / "colours.yaml").read_text() + "process_results: !function tools.chosen\n",
    }
    write({name: text.replace("metric: exact_match", "metric: right, aggregation: mean")
           .replace("metric: acc", "metric: right, aggregation: mean") for name, text in named.items()})  # fmt: skip
    (tasks / "tools.py").write_text(
        "def same(docs):\n    return docs\n"
        "def right(doc, results):\n    return {'right': float(results[0] == doc['a'])}\n"
        "def chosen(doc, results):\n    lls = [r[0] for r in results]\n"
        "    return {'right': float(lls.index(max(lls)) == doc['gold'])}\n"
    )
    write({"both.yaml": "    group: both\n    task: [sums, colours]\n" + items % "true"})
    run(RecordingModel(), tasks, output, tasks=["both"])
    assert math.isclose(values(results(output), "both")["right,none"], 6 / 9)
    other = output.with_name("other.yaml")
    other.write_text("group: both\ntask: [sums, colours]\n" + items.lstrip() % "false")
    scored = score([output], ScoreOptions(files=[str(other)]))
    assert math.isclose(values(lm_eval_layout(scored.results), "both")["right,none"], 0.675)
    assert scored.numbers[0].name == "both"
    alone = score([output], ScoreOptions(tasks=["sums"]))
    assert "both" not in lm_eval_layout(alone.results)["results"]
    assert alone.remarks == ["left out: both: not scored here: colours"]


def test_failed_requests_stay_failed_and_unscored_documents_are_scored_again(tasks: Path, output: Path) -> None:
    """2+3= has no answer. 8/2= is answered none, which this metric cannot take: the others are 2 of 3 right."""
    (tasks / "tools.py").write_text(
        "def same(docs):\n    return docs\ndef right(doc, results):\n    return {'r': float(int(results[0]) == int(doc['a']))}\n"
    )
    text = (tasks / "sums.yaml").read_text().replace("metric: exact_match", "metric: r, aggregation: mean")
    (tasks / "sums.yaml").write_text(text + "process_results: !function tools.right\n")
    results = run(RecordingModel(failing={"2+3="}), tasks, output, tasks=["sums"])
    assert values(results, "sums") == {"r,none": 2 / 3}
    assert results["assay"]["tasks"]["sums"]["audit"]["failed"] == {"count": 2, "ids": [1, 4]}
    again = score([output])
    assert (
        lm_eval_layout(again.results)["assay"]["tasks"]["sums"]["reasons"]
        == results["assay"]["tasks"]["sums"]["reasons"]
    )
    (tasks / "tools.py").write_text((tasks / "tools.py").read_text().replace("int(results[0])", "results[0]"))
    corrected = score([output])
    assert values(lm_eval_layout(corrected.results), "sums") == {"r,none": 0.0}
    assert lm_eval_layout(corrected.results)["assay"]["tasks"]["sums"]["failed"] == 1
    assert changed(corrected)["sums"][-1] == 4


def test_a_filter_that_sees_all_documents_at_once_is_applied_again(tmp_path: Path) -> None:
    """It gives every document the longest answer of all: ccc, which is right once in three."""
    yaml = """
        filter_list: [{name: longest, filter: [{function: !function helper.longest}]}]
        metric_list: [{metric: exact_match}]
    """
    (tmp_path / "helper.py").write_text(
        "def longest(resps, docs):\n    best = max((r[0] for r in resps), key=len)\n    return [best for _ in resps]\n"
    )
    results = generate(tmp_path, ["a", "ccc", "bb"], ["a", "ccc", "x"], yaml, output_path=str(tmp_path / "run"))
    scored = score([tmp_path / "run"])
    assert values(results, "t") == values(lm_eval_layout(scored.results), "t") == {"exact_match,longest": 1 / 3}
    assert changed(scored) == {}


def test_a_long_run_keeps_every_answer_with_its_document(tmp_path: Path) -> None:
    """2,050 documents are more than one row group. n mod 7 is 3 for n = 3, 10, …, 2047: 293 are right, and none without 3."""
    generate(tmp_path, [f"{n % 7}" for n in range(2050)], ["3"] * 2050, output_path=str(tmp_path / "run"))
    assert values(results(tmp_path / "run"), "t") == {"exact_match,none": 293 / 2050}
    scored = score(tmp_path / "run", ScoreOptions(filters=["none=regex:([0-2])"]))
    assert values(lm_eval_layout(scored.results), "t") == {"exact_match,none": 0.0}
    assert scored.numbers[0].changed == 293
    rows = samples(scored.folder, "t")
    assert [row["prompt"] for row in rows] == [f"{n}" for n in range(2050)]
    assert [row["answers"]["none"] for row in rows[-3:]] == [["[invalid]"], ["[invalid]"], ["[invalid]"]]
    assert [row["responses"] for row in rows[-3:]] == [[["3"]], [["4"]], [["5"]]]


def test_a_file_may_add_a_filter_over_all_documents_where_some_had_failed(tasks: Path, output: Path) -> None:
    """The answers are 2, 4, 9, none, and 2+3= has none: all become the longest, none, which is never right."""
    run(RecordingModel(failing={"2+3="}), tasks, output, tasks=["sums"])
    (tasks / "tools.py").write_text(
        "def same(docs):\n    return docs\ndef longest(resps, docs):\n    return [max((r[0] for r in resps), key=len)] * len(resps)\n"
    )
    wide = "filter_list: [{name: none, filter: [{function: custom, filter_fn: !function tools.longest}]}]\n"
    (tasks / "sums.yaml").write_text((tasks / "sums.yaml").read_text() + wide)
    scored = score([output])
    assert values(lm_eval_layout(scored.results), "sums") == {"exact_match,none": 0.0}
    assert [row["failed"] is not None for row in samples(scored.folder, "sums")] == [False, True, False, False, False]
    assert [row["responses"] for row in samples(scored.folder, "sums")] == [
        [["2"]], [], [["4"]], [["9"]], [["none"]],
    ]  # fmt: skip
    assert changed(scored) == {"sums": [0, 3]}


def test_repeats_are_scored_again_each(tmp_path: Path) -> None:
    """a answered a, a, b and b answered a, b, a: votes are a and a: 1/2; of all answers (2/3 + 1/3) / 2 = 1/2."""
    yaml = SAMPLED + "repeats: 3\nmetric_list: [{metric: exact_match}]\n"
    generate(tmp_path, [["a", "a", "b"], ["a", "b", "a"]], ["a", "b"], yaml, output_path=str(tmp_path / "run"))
    each = "{name: each, filter: [{function: take_first_k, k: 3}]}"
    scored = score([tmp_path / "run"], ScoreOptions(filters=["vote=majority_vote", each, "two=take_first_k:2"]))
    assert values(lm_eval_layout(scored.results), "t") == {
        "exact_match,none": 0.5, "exact_match,vote": 0.5, "exact_match,each": 0.5, "exact_match,two": 0.75,
    }  # fmt: skip
    per_repeat = samples(scored.folder, "t")[0]["scores"]["exact_match,each,repeats"]
    assert per_repeat == [1.0, 1.0, 0.0]


CLASS = """
    from lm_eval.api.task import ConfigurableTask
    class Mine(ConfigurableTask):
        def process_results(self, doc, results):
            return {"found": float(doc["gold"] in results[0])}
        def aggregation(self):
            return {"found": lambda values: sum(values) / len(values)}
        def higher_is_better(self):
            return {"found": True}
"""


def test_a_class_task_is_rescored_with_its_data_by_its_own_method(write: Callable[..., Path], tmp_path: Path) -> None:
    fields = "class: !function mine.Mine\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    folder = write({"mine.py": CLASS})
    write_task(folder, [{"q": "0", "gold": "a"}, {"q": "1", "gold": "b"}], fields)
    results = run_small(folder, says(["xax", "x"]), output_path=str(tmp_path / "run"))
    assert values(results, "t") == {"found,none": 0.5}
    assert values(lm_eval_layout(score([tmp_path / "run"]).results), "t") == {"found,none": 0.5}
    with pytest.raises(AssayError, match="is a Python class, which defines its own scoring"):
        score([tmp_path / "run"], ScoreOptions(metrics=["exact_match"]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ScoreOptions(filters=["x=regx:a"]), "no filter named 'regx'.*'regex'"),
        (ScoreOptions(filters=["x=regex:("]), "filter 'regex' cannot be made"),
        (ScoreOptions(filters=["x"]), "invalid filter 'x'.*NAME=STEP"),
        (ScoreOptions(filters=["x=lowercase:a"]), "filter 'lowercase' has no parameter"),
        (ScoreOptions(filters=["{name: x, filtr: []}"]), "filtr.*filter"),
        (ScoreOptions(filters=["{name: x, filter: [{function: regex, pattern: a}]}"]), "no parameter 'pattern'"),
        (ScoreOptions(metrics=["exact_mach"]), "no metric named 'exact_mach'.*'exact_match'"),
        (ScoreOptions(metrics=["exact_match:ignore_cas=true"]), "no parameter 'ignore_cas'.*'ignore_case'"),
        (ScoreOptions(metrics=[""]), "invalid metric ''"),
        (ScoreOptions(metrics=["acc"]), "metric 'acc' does not score generate_until"),
        (ScoreOptions(tasks=["sum"]), "this run has no task named 'sum'.*'sums'"),
        (ScoreOptions(files=["nowhere.yaml"]), "no file 'nowhere.yaml'"),
    ],
)
def test_typos_are_refused_before_anything_is_scored(
    options: ScoreOptions, said: str, tasks: Path, output: Path
) -> None:
    run(RecordingModel(), tasks, output, tasks=["sums"])
    with pytest.raises(AssayError, match=said):
        score([output], options)
    assert not (output / "scored").exists()


def test_metrics_are_refused_where_a_function_computes_the_values(tmp_path: Path) -> None:
    processed(tmp_path, [{"v": 1.0}], "metric_list: [{metric: v, aggregation: mean}]\n")
    run_small(tmp_path, says(["x"]), output_path=str(tmp_path / "run"))
    with pytest.raises(AssayError, match="computes its values in process_results"):
        score([tmp_path / "run"], ScoreOptions(metrics=["exact_match"]))


@pytest.mark.parametrize("folder", ["nothing", "."])
def test_a_folder_without_a_run_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"no such file|holds no run"):
        score([tmp_path / folder])
    (tmp_path / "manifest.json").write_text('{"spec": 3, "options": 4, "tasks": []}')
    with pytest.raises(AssayError, match="damaged: spec must be a mapping"):
        score(tmp_path)
    (tmp_path / "manifest.json").write_text('{"scored": {}}')
    with pytest.raises(AssayError, match="holds a scoring of a run"):
        score(tmp_path)


def test_a_scoring_that_is_stopped_leaves_nothing(tasks: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(RecordingModel(), tasks, output)
    (tasks / "tools.py").write_text(
        "def same(docs):\n    return docs\ndef stop(doc, results):\n    raise KeyboardInterrupt\n"
    )
    (tasks / "sums.yaml").write_text((tasks / "sums.yaml").read_text() + "process_results: !function tools.stop\n")
    with pytest.raises(KeyboardInterrupt):
        score([output])
    assert list((output / "scored").iterdir()) == []


LOGGED = sorted(path.name for path in (HERE / "logged").iterdir())


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    subprocess.run([sys.executable, str(HERE.parent / "bench/make_benchmark.py"), str(folder)], check=True)
    return folder / "tasks"


@pytest.mark.parametrize("name", LOGGED)
def test_the_samples_files_of_lm_eval_give_its_numbers(name: str, synthetic: Path, tmp_path: Path) -> None:
    """All kinds of requests, repeats, several filters, choices in contexts, a group; the files are lm-eval 0.4.13's own."""
    folder = tmp_path / name
    shutil.copytree(HERE / "logged" / name, folder)
    [theirs] = [json.loads(path.read_text()) for path in folder.glob("results_*.json")]
    options = ScoreOptions(tasks=[name], include_path=[str(synthetic)], include_defaults=False, compat="lm-eval")
    scored = score([folder], options)
    assert lm_eval_layout(scored.results)["results"].keys() == theirs["results"].keys()
    for task, row in theirs["results"].items():
        ours = values(lm_eval_layout(scored.results), task)
        wanted_values = {key: value for key, value in row.items() if "," in key and "_stderr" not in key}
        assert ours == pytest.approx(wanted_values, rel=1e-12)
    assert changed(scored) == {}
    assert all(number.before == pytest.approx(number.after, rel=1e-12) for number in scored.numbers)


def test_of_many_samples_files_some_can_be_chosen(synthetic: Path, tmp_path: Path) -> None:
    shutil.copytree(HERE / "logged/synth_mmlu5", tmp_path / "out")
    options = ScoreOptions(tasks=["synth_mmlu_s01_law"], include_path=[str(synthetic)], include_defaults=False)
    assert list(lm_eval_layout(score(tmp_path / "out", options).results)["results"]) == ["synth_mmlu_s01_law"]
    every = ScoreOptions(include_path=[str(synthetic)], include_defaults=False)
    [theirs] = [json.loads(path.read_text())["results"] for path in (tmp_path / "out").glob("results_*.json")]
    ours = lm_eval_layout(score(sorted((tmp_path / "out").glob("samples_*")), every).results)["results"]
    assert ours.keys() == theirs.keys()  # five tasks and their group, which is one of the folder's
    assert ours["synth_mmlu5"]["acc,none"] == pytest.approx(theirs["synth_mmlu5"]["acc,none"], rel=1e-12)


def test_the_groups_of_an_imported_run_are_computed_or_said_to_be_left_out(synthetic: Path, tmp_path: Path) -> None:
    shutil.copytree(HERE / "logged/synth_mmlu5", tmp_path / "out")
    import_runs([tmp_path / "out"], tmp_path / "run")
    with_groups = ScoreOptions(include_path=[str(synthetic)], include_defaults=False)
    assert list(score(tmp_path / "run", with_groups).results.groups) == ["synth_mmlu5"]
    tasks_alone = tmp_path / "tasks"
    shutil.copytree(synthetic, tasks_alone)
    for file in tasks_alone.rglob("*.yaml"):
        if "group: synth_mmlu5" in file.read_text():
            file.unlink()
    [remark] = score(tmp_path / "run", ScoreOptions(include_path=[str(tasks_alone)], include_defaults=False)).remarks
    assert remark.startswith("left out: synth_mmlu5: its definition cannot be loaded")


def test_a_damaged_samples_file_is_reported_with_its_line(tmp_path: Path, synthetic: Path) -> None:
    [source] = (HERE / "logged/synth_wino").glob("samples_*")
    lines = source.read_text().splitlines()
    (tmp_path / "samples_synth_wino.jsonl").write_text("\n".join([lines[0], lines[1][:40]]))
    with pytest.raises(AssayError, match=r"samples_synth_wino.jsonl:2:1: invalid JSON"):
        score(
            [tmp_path / "samples_synth_wino.jsonl"], ScoreOptions(include_path=[str(synthetic)], include_defaults=False)
        )


usages = st.none() | st.builds(
    Usage, st.integers(0, 9), st.integers(1, 9), st.floats(0, 9), st.integers(1, 3), st.integers(0, 3), st.just(0)
)
texts = st.builds(
    Text, st.text(), st.sampled_from([None, "stop", "length"]), st.none() | st.text(min_size=1), usages, st.just(())
)
lls = st.builds(Likelihood, st.floats(max_value=0, allow_nan=False), st.booleans(), usages)
PARAMS = {"until": ["\n"], "temperature": 0.5}


@st.composite
def answered(draw: st.DrawFn) -> tuple[Sample, list[Response], int]:
    """A sample of any kind with its responses, some of which may have failed."""
    kind, repeats, prefix = draw(st.sampled_from("glr")), draw(st.integers(1, 3)), draw(st.text(max_size=5))
    if kind == "g":
        prompt = prefix + draw(st.text())
        requests: list[Any] = [Generate(prompt, PARAMS, repeat) for repeat in range(repeats)]
    elif kind == "l":
        contexts = [prefix + draw(st.text()) for _ in range(draw(st.integers(1, 3)))]
        requests = [Loglikelihood(context, draw(st.text())) for context in contexts for _ in range(repeats)]
        requests = [each for each in requests[::repeats] for _ in range(repeats)]
    else:
        requests = [Rolling(draw(st.text()))] * repeats
    predicted = [draw(texts if kind == "g" else lls) for _ in requests]
    if kind == "r":
        predicted = [each._replace(greedy=False) for each in predicted]
    target = draw(st.text() | st.integers(0, 9) | st.lists(st.text(), max_size=2))
    sample = Sample(
        draw(st.integers(0, 99)),
        {"q": draw(st.text())},
        requests,
        target,
        target,
        prefix=prefix,
        dropped=draw(st.integers(0, 2)),
    )
    return sample, predicted, repeats


@pytest.mark.slow
@given(answered(), st.booleans())
def test_samples_are_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, built: tuple[Sample, list[Response], int], fails: bool
) -> None:
    sample, responses, repeats = built
    folder = tmp_path_factory.mktemp("parquet")
    if fails:
        responses = [Failed("no answer"), *responses[1:]]
    raw = [] if fails else grouped(sample.requests, responses, repeats)
    writer = SampleWriter(folder, "t")
    writer.add(
        SampleRecord(
            sample, raw, (), repeats, "no answer" if fails else "", response_metadata(responses, len(responses))
        )
    )
    writer.end()
    writer.place()
    [stored] = SampleFile(folder / "t.parquet", repeats).samples()
    assert stored.sample == sample._replace(prefix=stored.sample.prefix)
    assert stored.sample.prefix in (sample.prefix, "")
    assert response_metadata(stored.responses, len(stored.responses)) == response_metadata(responses, len(responses))
    assert stored.failed == ("no answer" if fails else "")
    if not fails:
        assert grouped(stored.sample.requests, stored.responses, repeats) == raw


def test_short_forms_are_what_they_look_like() -> None:
    parsed = parse_filter("a=regex:x=(.*):y")
    assert (parsed.name, parsed.filter[0].kwargs, parsed.filter[1].function) == (
        "a",
        {"regex_pattern": "x=(.*):y"},
        "take_first",
    )
    assert dict(parse_filter("k=take_first_k:2").filter[0].kwargs) == {"k": 2}
    assert dict(parse_metric("{metric: exact_match, ignore_case: true}").kwargs) == {"ignore_case": True}


def test_the_command_prints_what_changed_and_the_folder_of_the_scoring(run_assay: Run, tmp_path: Path) -> None:
    assert run_assay("run", "--tasks", "first_steps_sums", "--limit", 4, "-o", "out").returncode == 0
    ended = run_assay("score", "out", "--filter", r"strict=regex:(q)")
    assert ended.returncode == 0, ended.stderr
    assert "exact_match,strict" in ended.stdout
    assert "first_steps_sums: 4 samples changed: 0, 1, 2, 3" in ended.stdout
    assert (tmp_path / "out/scored/001/changes.jsonl").exists()
    wrong = run_assay("score", "out", "--filter", "strict=regexp:(q)")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    assert "did you mean 'regex'" in wrong.stderr
    assert run_assay("score", "nowhere").returncode == 2


def test_a_run_that_only_asked_is_scored_afterwards(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, predict_only=True)
    assert values(lm_eval_layout(score([output]).results), "sums") == {"exact_match,none": 0.6}


def test_a_run_that_was_killed_is_scored_as_far_as_tasks_had_ended(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    (output / "results.json").unlink()
    (output / "samples/sums.parquet").rename(output / "samples/sums.parquet.part")
    torn = output / "samples/colours.parquet"
    (output / "samples/colours.parquet.part").write_bytes(torn.read_bytes()[:-9])
    torn.unlink()
    scored = score([output])
    assert values(lm_eval_layout(scored.results), "sums") == {"exact_match,none": 0.6}
    assert lm_eval_layout(scored.results)["assay"]["status"] == "partial"
    assert any("not finished, not scored: colours" in line for line in scored.remarks)
    (output / "samples/sums.parquet.part").unlink()
    with pytest.raises(AssayError, match="no task of this run has finished"):
        score([output])


def test_secrets_are_not_among_what_is_remembered(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, model_args={"api_key": "sk-verysecret123"}, metadata={"token": "hush"})
    kept = json.loads((output / "manifest.json").read_text())
    assert kept["options"]["model_args"] == {"api_key": "***"}
    assert kept["options"]["metadata"] == {"token": "***"}
    assert "verysecret" not in json.dumps([kept["options"], kept.get("conditions")])


def test_answers_with_escape_sequences_are_scored_like_others(tmp_path: Path) -> None:
    write_task(
        tmp_path, [{"q": "0", "gold": "\x1b[2J"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    )
    run_small(tmp_path, Scripted(generate=lambda p, a, r: "\x1b[2J", identity="e"), output_path=str(tmp_path / "run"))
    assert values(lm_eval_layout(score([tmp_path / "run"]).results), "t") == {"exact_match,none": 1.0}
