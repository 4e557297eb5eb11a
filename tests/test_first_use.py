"""Mistakes of a new user who tries everything for the first time."""

import json
import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import run_world
from assay import simple_evaluate
from assay.cli import COMMANDS, main
from assay.cli.plan import _cells
from assay.comparison.planning import Planned, ScoreSpread
from assay.config.run import RunConfig
from assay.errors import AssayError, ConfigError, installing
from assay.evaluation.verify import _remarks
from assay.exchange.archive import pack, unpack
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.models.load import check_generation, load_model
from assay.models.local.embedded import BUNDLED, Embedded
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.estimates import estimate, with_draws
from assay.statistics.evidence import Estimate
from assay.statistics.intervals import interval
from commands import Ended, Run
from conftest import Write
from graph_world import QUESTION_ANSWERING, RECORDS, write_graph
from run_world import ACC, COLOURS, FILES, RecordingModel, rows_of

TREE = {
    **FILES,
    "tints.yaml": FILES["colours.yaml"].replace("task: colours", "task: tints"),
    "plain.yaml": "group: plain\ntask: [colours]\n",
    "all.yaml": """
        group: all
        task: [plain, tints]
        aggregate_metric_list: [{metric: acc}]
    """,
}


@pytest.mark.parametrize("has_counts", [True, False])
def test_a_group_that_is_exported_and_imported_is_of_as_many_documents(
    has_counts: bool, write: Write, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), write(TREE), output, tasks=["all"])
    [results, *_] = export(output, "lm-eval", tmp_path / "files")
    loaded = json.loads(Path(results).read_text())
    if not has_counts:
        del loaded["groups"]["all"]["sample_count"]
    Path(results).write_text(json.dumps(loaded))
    imported = lm_eval_layout(import_runs([tmp_path / "files"], tmp_path / "back"))
    row = rows_of(imported, "all")["acc,none"]
    assert (row["value"], row["n"]) == (ACC, 2 * len(COLOURS))
    assert row["interval"] == pytest.approx(rows_of(run_world.results(output), "all")["acc,none"]["interval"])
    assert imported["group_subtasks"]["plain"] == ["colours"]


def test_an_imported_group_number_that_is_not_the_mean_of_its_members_has_no_document_count(
    write: Write, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), write(TREE), output, tasks=["all"])
    [results, *_] = export(output, "lm-eval", tmp_path / "files")
    loaded = json.loads(Path(results).read_text())
    loaded["groups"]["all"] = {"alias": "all", "acc,none": 0.9, "acc_stderr,none": 0.1}
    Path(results).write_text(json.dumps(loaded))
    imported = lm_eval_layout(import_runs([tmp_path / "files"], tmp_path / "back"))
    row = rows_of(imported, "all")["acc,none"]
    assert (row["value"], row["stderr"], row["n"], row["interval"]) == (0.9, 0.1, 0, None)


@pytest.mark.torch  # which a thread begins to import meanwhile
def test_a_typo_in_a_generation_parameter_is_refused_before_anything_is_loaded(run_assay: Run) -> None:
    for model in ("embedded", "hf"):
        ended = run_assay("run", "--model", model, "--tasks", "first_steps_sums", "--gen_kwargs", "temprature=0")
        assert ended.returncode == 2
        assert "did you mean 'temperature'?" in ended.stderr
    with pytest.raises(ConfigError, match="no generation parameter 'top_k'"):
        check_generation("embedded", {"top_k": 5})  # it would have no effect there


def test_any_server_parameter_is_accepted_and_a_likely_typo_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    check_generation("openai-chat", {"temprature": 0, "some_other_thing": 1, "seed": 3})
    assert [record.getMessage() for record in caplog.records] == [
        "gen_kwargs: 'temprature' is passed to the server unchanged; did you mean 'temperature'?"
    ]


def drawn(aggregation: str, values: Sequence[Any]) -> Estimate:
    known = AGGREGATIONS[aggregation]
    estimated = estimate(known, values, bootstrap_iters=100)
    return with_draws(estimated, known, values, range(len(values)), "here")


@given(st.lists(st.floats(-30, 0), min_size=2, max_size=8))
def test_an_interval_of_a_perplexity_never_falls_below_1(logs: list[float]) -> None:
    estimated = drawn("perplexity", logs)
    ends = interval(estimated)
    assert ends is None or 1 <= ends[0] <= float(estimated) <= ends[1]


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=2, max_size=6))
def test_an_interval_of_a_brier_score_is_between_0_and_2(pairs: list[tuple[int, float]]) -> None:
    ends = interval(drawn("brier_score", [(gold, (p, 1 - p)) for gold, p in pairs]))
    assert ends is None or 0 <= ends[0] <= ends[1] <= 2


def test_only_the_end_that_is_impossible_is_moved() -> None:
    estimated = drawn(
        "perplexity", [0.0, 0.0, -3.0]
    )  # e¹, standard error of the power 1, Student's 4.303 with two degrees
    assert interval(estimated) == pytest.approx((1.0, math.exp(1 + 4.303)), rel=1e-3)


def test_a_rolling_task_has_no_examples_for_any_num_fewshot(write: Write, output: Path) -> None:
    folder = write({
        "texts.yaml": """
            task: texts
            dataset_path: json
            dataset_kwargs: {data_files: {test: texts.jsonl}}
            test_split: test
            fewshot_split: test
            output_type: loglikelihood_rolling
            doc_to_text: ""
            doc_to_target: "{{text}}"
            metric_list: [{metric: word_perplexity}]
        """,
        "texts.jsonl": '{"text": "one two"}\n{"text": "three"}\n',
    })  # fmt: skip
    model = Scripted(loglikelihood_rolling=lambda text: -float(len(text)))
    results = simple_evaluate(model, tasks=["texts"], include_path=str(folder), include_defaults=False, num_fewshot=1)
    assert results["n-shot"] == {"texts": 0}


def test_a_difference_without_a_unit_is_not_taken_for_a_hundred_points(run_assay: Run) -> None:
    ended = run_assay("plan", "first_steps_sums", "--mde", "1")
    assert ended.returncode == 2
    assert "write 1pp, or 0.01" in ended.stderr
    good = run_assay("plan", "first_steps_sums", "--mde", "1pp")
    assert good.returncode == 0
    assert "no number suffices: repeats do not reduce the variance" in good.stdout


def test_a_perplexity_is_planned_for_in_its_own_unit() -> None:
    planned = Planned("texts", "word_perplexity", 60, 10, 0.0047, 1, ScoreSpread(0.1))
    assert _cells(planned)[5] == "0.0047"
    assert _cells(replace(planned, metric="acc"))[5] == "0.47pp"


def test_the_file_extension_decides_the_format_or_nothing_is_written(
    run_assay: Run, tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    for command, name, fix in (("pack", "x.tar.gz", ".zip"), ("report", "x.pdf", ".html, .md, .json, .csv")):
        ended = run_assay(command, output, "-o", tmp_path / name)
        assert (ended.returncode, (tmp_path / name).exists()) == (2, False)
        assert fix in ended.stderr


def test_a_packed_run_is_unpacked_by_import(run_assay: Run, tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    packed = run_assay("pack", output, "-o", tmp_path / "x.zip")
    assert "then assay view FOLDER" in packed.stdout
    imported = run_assay("import", tmp_path / "x.zip", "-o", tmp_path / "there")
    assert imported.returncode == 0
    assert run_world.results(tmp_path / "there")["results"] == run_world.results(output)["results"]
    assert run_world.samples(tmp_path / "there", "sums") == run_world.samples(output, "sums")
    for command in (["view"], ["samples"], ["report"]):
        ended = run_assay(*command, tmp_path / "x.zip")
        assert (ended.returncode, "assay import" in ended.stderr) == (2, True), command
    assert run_assay("compare", output, tmp_path / "x.zip").returncode == 0  # as gates read a baseline


def test_an_archive_is_imported_again_into_its_folder_and_no_other_archive_is(
    tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    run_world.run(RecordingModel(), tasks, tmp_path / "other", limit=2)
    archive, other = pack(output, tmp_path / "x.zip").path, pack(tmp_path / "other", tmp_path / "y.zip").path
    there = tmp_path / "there"

    def state() -> dict[str, tuple[bytes, int]]:
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in there.rglob("*") if path.is_file()}

    assert main(["import", str(archive), "-o", str(there)]) == 0
    results, before = lm_eval_layout(unpack(archive, there)), state()
    assert results["results"] == run_world.results(output)["results"]
    assert main(["import", str(archive), "-o", str(there)]) == 0
    (there / "notes.json").write_text('{"note": "mine"}')
    assert lm_eval_layout(unpack(archive, there)) == results
    (there / "notes.json").unlink()
    assert state() == before
    with pytest.raises(AssayError, match="the folder holds another run — choose a new folder"):
        unpack(other, there)
    (there / "samples/sums.parquet").write_bytes(b"")
    with pytest.raises(AssayError, match=r"the folder holds this run, and samples/sums\.parquet has changed"):
        unpack(archive, there)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").touch()
    with pytest.raises(AssayError, match="the folder is not empty"):
        unpack(archive, tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir() if ".part" in path.name) == []


@pytest.mark.parametrize("name", ["x/../../out.json", "/etc/out.json", "x/samples/../../out.parquet", "x/run.py"])
def test_an_archive_with_a_name_that_leads_elsewhere_is_refused_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr(name, "{}")
    with pytest.raises(AssayError, match="which `assay pack` never writes"):
        unpack(tmp_path / "x.zip", tmp_path / "there/run")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".zip"] == []


def test_an_archive_that_was_changed_is_refused(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    packed = pack(output, tmp_path / "x.zip").path
    with zipfile.ZipFile(packed) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in members.items():
            file.writestr(name, content.replace(b"0.75", b"0.95") if name.endswith("results.json") else content)
    with pytest.raises(AssayError, match=r"differs from what was packed: results\.json"):
        unpack(packed, tmp_path / "there")


@pytest.mark.parametrize(("origin", "reported"), [
    (None, "pip install 'assay[view]'"),
    ('{"url": "file:///somewhere/assay", "dir_info": {"editable": true}}', "pip install '.[view]' in the folder of assay's"),
])  # fmt: skip
def test_missing_extras_are_installed_from_the_source_of_assay(
    origin: str | None, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "assay-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: assay\nVersion: 9\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(tmp_path)
    assert installing("view").startswith(reported)


def test_a_comparison_of_backends_names_what_each_computes_in() -> None:
    coarse = Scripted(generate=lambda *_: "")
    coarse.precision = "float16"  # type: ignore[attr-defined]
    said = list(_remarks(RunConfig(), (Embedded(), coarse), as_messages=False))
    assert said[0] == "A computes in float64, B in float16"
    assert "--precision float16" in said[1]


def test_a_missing_argument_of_a_backend_is_asked_for_in_words_that_every_command_has() -> None:
    with pytest.raises(ConfigError, match="add it: hf,pretrained=…"):
        load_model("hf", {})


def validated(run_assay: Run, tmp_path: Path, *changes: tuple[str, str]) -> Ended:
    """What validate says of a graph that is right but for these changes."""
    graph = QUESTION_ANSWERING
    for old, new in changes:
        assert old in graph
        graph = graph.replace(old, new)
    folder = write_graph(tmp_path, RECORDS, graph)
    return run_assay("validate", folder / "graph_config.yaml", cwd=tmp_path)


def test_validate_finds_nothing_in_a_graph_that_is_right(run_assay: Run, tmp_path: Path) -> None:
    ended = validated(run_assay, tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "0 problems, 0 notes\n")


@pytest.mark.parametrize(("change", "said"), [
    (("{problem}", "{proble}"), "did you mean 'problem'?"),
    (("utils.UnitMetrics", "utils.UnitMetrix"), "did you mean 'UnitMetrics'?"),
    (("utils.MetricCollatorPostProcessor", "utils.MetricColatorPostProcessor"), "did you mean 'MetricCollatorPostProcessor'?"),
    (("      aggregator_metrics_map:", "      agregator_metrics_map:"), "did you mean 'aggregator_metrics_map'?"),
    (("data_transform.RenameFields", "data_transfrom.RenameFields"), "did you mean 'sygra.processors.data_transform'?"),
    (("file_path: records.jsonl", "file_path: record.jsonl"), "put the file there, or correct its name"),
    (('golden_key: "answer"', 'golden_key: "anwser"'), "did you mean 'answer'?"),
])  # fmt: skip
def test_validate_finds_in_a_graph_what_a_run_would_refuse(
    change: tuple[str, str], said: str, run_assay: Run, tmp_path: Path
) -> None:
    ended = validated(run_assay, tmp_path, change)
    assert ended.returncode == 1
    [line] = [line for line in ended.stdout.splitlines() if said in line]
    assert re.match(r".*graph_config\.yaml:\d+:\d+: ", line)


def test_all_typos_in_a_graph_are_reported_at_once(run_assay: Run, tmp_path: Path) -> None:
    ended = validated(run_assay, tmp_path, ("{problem}", "{proble}"), ("      aggregator_metrics_map:", "      map:"))
    assert "2 problems" in ended.stdout


def test_a_missing_file_of_a_graph_is_reported_at_its_place(run_assay: Run, tmp_path: Path) -> None:
    graph = QUESTION_ANSWERING.replace("file_path: records.jsonl", "file_path: record.jsonl")
    folder = write_graph(tmp_path, RECORDS, graph)
    ended = run_assay("run", "--model", "dummy", "--tasks", folder / "graph_config.yaml", cwd=tmp_path)
    assert ended.returncode == 2
    assert re.search(r"graph_config\.yaml:5:\d+: no data file 'record\.jsonl'.* — put the file there", ended.stderr)


UNMEASURED = """
data_config:
  source: {type: disk, file_path: records.jsonl}
graph_config:
  nodes:
    ask:
      node_type: llm
      prompt: [{user: "{problem}"}]
      output_keys: said
      model: {name: eval_model}
  edges:
    - {from: START, to: ask}
    - {from: ask, to: END}
"""


def test_a_graph_that_measures_nothing_says_so(run_assay: Run, tmp_path: Path) -> None:
    file = write_graph(tmp_path, RECORDS, UNMEASURED) / "graph_config.yaml"
    warning = "no metric: nothing is measured"
    ended = run_assay("run", "--model", "dummy", "--tasks", file, cwd=tmp_path)
    assert warning in ended.stderr
    assert "add a UnitMetrics node or a post-processor" in ended.stderr
    assert warning in run_assay("validate", file, cwd=tmp_path).stdout
    assert warning not in run_assay("run", "--model", "dummy", "--tasks", file, "--predict_only", cwd=tmp_path).stderr


def test_a_path_selects_its_file_even_if_other_tasks_have_the_name(tasks: Path, run_assay: Run) -> None:
    (tasks / "copy.yaml").write_text((tasks / "sums.yaml").read_text().replace("{{q}}=", "Copied: {{q}}="))
    for more in ((), ("--include_path", tasks)):
        ended = run_assay("run", "--tasks", tasks / "copy.yaml", "--limit", "1", "--dry_run", *more)
        assert ended.returncode == 0, ended.stderr
        assert "Copied: 1+1=" in ended.stdout
    assert run_assay("run", "--tasks", "sums", "--include_path", tasks, "--dry_run").returncode == 2


def test_a_name_that_two_files_have_is_reported_once(tasks: Path, run_assay: Run) -> None:
    (tasks / "twin.yaml").write_text((tasks / "sums.yaml").read_text())
    ended = run_assay("validate", tasks)
    assert ended.stdout.count("is also defined in") == 1
    assert "twin.yaml:1:7" in ended.stdout


def test_assay_alone_lists_its_commands(run_assay: Run) -> None:
    ended = run_assay()
    assert ended.returncode == 0
    assert all(re.search(rf"^ +{name}\b", ended.stdout, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize(("arguments", "said"), [
    (["vew"], "did you mean view?"),
    (["run", "--limitt", "5", "--tasks", "x"], "unknown argument --limitt — did you mean --limit?"),
    (["export", "run", "--to", "lmeval"], "did you mean 'lm-eval'?"),
    (["compare", "a", "b", "--gat", "x"], "unknown argument --gat — did you mean --gate?"),
    (["verify-backend", "a", "b", "--tasks", "x", "--model_args", "k=v"], "unknown argument --model_args"),
])  # fmt: skip
def test_a_typo_is_reported_with_a_suggestion(arguments: list[str], said: str, run_assay: Run) -> None:
    ended = run_assay(*arguments)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


def test_a_pattern_that_matches_nothing_says_so(run_assay: Run) -> None:
    ended = run_assay("ls", "--pattern", "nothing*")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "no name matches 'nothing*'" in ended.stderr


@pytest.mark.torch
def test_a_missing_folder_is_not_looked_up_at_the_hub() -> None:
    pytest.importorskip("transformers")
    for name in ("/no/such/dir", "./no_such", "models/of/mine"):
        with pytest.raises(ConfigError, match="no folder named"):
            load_model("hf", {"pretrained": name})


@pytest.mark.torch
@pytest.mark.parametrize(("arguments", "said"), [
    (["--apply_chat_template", "nosuch"], "nosuch"),
    (["--batch_size", "zero"], "zero"),
    (["--batch_size", "0"], "0"),
    (["--device", "bogus"], "bogus"),
])  # fmt: skip
def test_an_invalid_setting_of_a_local_model_is_refused(arguments: list[str], said: str, run_assay: Run) -> None:
    pytest.importorskip("transformers")
    ended = run_assay("run", "--model", "hf", "--model_args", f"pretrained={BUNDLED}", "--tasks", "first_steps_sums",
                      "--limit", "1", *arguments)  # fmt: skip
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert re.search(rf"{said}.* — ", ended.stderr)
