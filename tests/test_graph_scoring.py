"""`assay score` and `assay merge` with graphs: what is made of records that are there, without a model."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
import run_world
from assay.evaluation.merge import merge
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from graph_world import CLASSIFICATION, RECORDS, the_file, write_graph
from run_world import sample_rows
from serving import TALKING, Servers, fetched

Run = Callable[..., Any]
NAME = "eval.question_answering.simpleqa"
FAILING = {"task_id": 11, "problem": '{"status": 500}', "answer": "x"}


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


@pytest.fixture
def run(run_assay: Run, talking: str) -> Run:
    def with_model(*arguments: object) -> Any:
        model_args = f"model=m,base_url={talking},max_retries=1"
        return run_assay("run", *arguments, "--model", "openai-chat", "--model_args", model_args)

    return with_model


def changed(folder: Path, old: str, new: str) -> None:
    path = folder / "graph_config.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


MORE = """\
        - {name: accuracy, as: share, unit_metrics_results: exact_match_result}
        - {name: f1_score, params: {golden_key: text, predicted_key: text}, unit_metrics_results: exact_match_result}
"""


def test_changed_aggregators_are_applied_to_the_records_that_are_there(
    tmp_path: Path, talking: str, run: Run, run_assay: Run
) -> None:
    folder = write_graph(tmp_path, [*RECORDS, FAILING])
    assert run("--task", NAME, "-o", "out").returncode == 1  # one record failed
    asked = len(fetched(talking, "/log"))
    output = the_file(tmp_path / "out", "output_*.json")
    with (folder / "graph_config.yaml").open("a") as file:
        file.write(MORE)
    (folder / "records.jsonl").unlink()  # neither data nor a model is needed
    ended = run_assay("score", "out")
    assert ended.returncode == 1, ended.stderr  # and the record has still failed
    assert len(fetched(talking, "/log")) == asked
    assert "share" in ended.stdout
    assert "graph_post_process changed" not in ended.stderr  # that is what scoring again is for
    loaded = run_world.results(tmp_path / "out/scored/001")
    row = loaded["results"][NAME]
    assert (row["accuracy.accuracy,none"], row["share.accuracy,none"], row["exact_match,none"]) == (0.75, 0.75, 0.75)
    # right: Paris, rome, Bern; given: Paris, rome, Oslo, Bern: three of five classes with an F1 of 1, two with one of 0
    assert row["average_f1_score,none"] == pytest.approx(3 / 5)
    [account] = loaded["assay"]["tasks"].values()
    assert (account["failed"], account["documents"]) == (1, 5)
    [report] = the_file(tmp_path / "out/scored/001", "MetricCollatorPostProcessor_*.json")
    assert set(report["results"]) == {"accuracy", "share", "f1_score"}
    assert report["evaluation_summary"] == {
        "total_records": 4, "status": "incomplete", "requested": 5, "ok": 4, "failed": 1, "skipped": 0,
    }  # fmt: skip
    assert [path.name for path in (tmp_path / "out").glob("Metric*")] == [
        path.name for path in (tmp_path / "out/scored/001").glob("Metric*")
    ]
    assert the_file(tmp_path / "out", "output_*.json") == output
    assert not list((tmp_path / "out/scored/001").glob("*output*"))
    samples = [row for path in (tmp_path / "out/scored/001/samples").iterdir() for row in sample_rows(path)]
    assert [row["failed"] is None for row in samples] == [True, True, True, True, False]


def test_nothing_changes_where_nothing_was_changed(tmp_path: Path, run: Run, run_assay: Run) -> None:
    write_graph(tmp_path, RECORDS)
    assert run("--task", NAME, "-o", "out").returncode == 0
    ended = run_assay("score", "out")
    assert ended.returncode == 0, ended.stderr
    assert "no number changed" in ended.stdout
    before, after = (run_world.results(tmp_path / at) for at in ("out", "out/scored/001"))
    assert before["results"] == after["results"]
    assert before["assay"]["tasks"] == after["assay"]["tasks"]


def test_a_column_that_the_records_lack_is_refused_with_its_place(tmp_path: Path, run: Run, run_assay: Run) -> None:
    folder = write_graph(tmp_path, RECORDS)
    assert run("--task", NAME, "-o", "out").returncode == 0
    with (folder / "graph_config.yaml").open("a") as file:
        file.write("        - {name: accuracy, as: other, unit_metrics_results: exact_mach_result}\n")
    ended = run_assay("score", "out")
    assert ended.returncode == 2
    assert "graph_config.yaml:" in ended.stderr
    assert "aggregates 'exact_mach_result', which the records do not have" in ended.stderr
    assert "did you mean 'exact_match_result'?" in ended.stderr
    assert not list((tmp_path / "out/scored").glob("*"))


def test_a_graph_that_changed_since_the_run_is_reported(tmp_path: Path, run: Run, run_assay: Run) -> None:
    folder = write_graph(tmp_path, RECORDS)
    assert run("--task", NAME, "-o", "out").returncode == 0
    changed(folder, "You answer questions.", "You answer all questions.")
    ended = run_assay("score", "out")
    assert "graph_config changed since the run; the answers belong to the old definition" in ended.stderr


def test_a_post_processor_of_the_users_sees_the_stored_records(tmp_path: Path, run: Run, run_assay: Run) -> None:
    folder = write_graph(tmp_path, [*RECORDS, FAILING])
    run("--task", NAME, "-o", "out")
    (folder / "mine.py").write_text(
        "from sygra.core.graph.graph_postprocessor import GraphPostProcessor\n\n\n"
        "class Indices(GraphPostProcessor):\n    def process(self, data, metadata):\n"
        "        return [{'seen': [record['original_index'] for record in data], 'of': metadata['output_file']}]\n"
    )
    text = (folder / "graph_config.yaml").read_text()
    (tmp_path / "other.yaml").write_text(text + "  - processor: tasks.eval.question_answering.simpleqa.mine.Indices\n")
    ended = run_assay("score", "out", "--with", "other.yaml")
    assert ended.returncode == 1, ended.stderr
    [reported] = the_file(tmp_path / "out/scored/001", "Indices_*.json")
    assert reported["seen"] == [7, 8, 9, 10]
    assert (tmp_path / "out" / reported["of"]).is_file()


def test_an_output_file_alone_is_aggregated_as_a_graph_says(tmp_path: Path, run_assay: Run) -> None:
    write_graph(tmp_path, [], CLASSIFICATION, kind="classification")
    cells = [("Music", "Music"), ("Art", "Music"), ("Art", "Art")]
    records = [
        {
            "topic": golden,
            "exact_match_result": {
                "correct": golden == arguments,
                "golden": {"text": golden},
                "predicted": {"text": arguments},
            },
        }
        for golden, arguments in cells
    ]
    for name, text in (
        ("mine_output_2026-01-27_12-31-46.json", json.dumps(records, indent=4)),  # as SyGra writes it
        ("output_2026-01-27_12-31-46.jsonl", "".join(json.dumps(record) + "\n" for record in records)),
    ):
        (tmp_path / name).write_text(text)
        ended = run_assay("score", name, "--tasks", "eval/classification/simpleqa", "-o", f"of_{name}")
        assert ended.returncode == 0, ended.stderr
        label = name.rpartition("output")[0]
        [report] = the_file(
            tmp_path / f"of_{name}/scored/001", f"{label}MetricCollatorPostProcessor_2026-01-27_12-31-46.json"
        )
        assert report["evaluation_summary"]["total_records"] == 3
        assert report["results"]["accuracy"]["accuracy"] == pytest.approx(2 / 3)
        assert report["results"]["recall"]["recall_per_class"] == {"Music": 1.0, "Art": 0.5}


def test_the_report_of_a_run_can_be_had_as_sygra_would_have_written_it(
    tmp_path: Path, run: Run, run_assay: Run
) -> None:
    write_graph(tmp_path, RECORDS)
    run("--task", NAME, "-o", "out")
    ended = run_assay("score", "out", "--compat", "sygra")
    assert ended.returncode == 0, ended.stderr
    assert the_file(tmp_path / "out/scored/001", "MetricCollatorPostProcessor_*.json") == [
        {"evaluation_summary": {"total_records": 4, "status": "success"}, "results": {"accuracy": {"accuracy": 0.75}}}
    ]


def test_metrics_on_the_command_line_are_not_for_graphs(tmp_path: Path, run: Run, run_assay: Run) -> None:
    write_graph(tmp_path, RECORDS)
    run("--task", NAME, "-o", "out")
    ended = run_assay("score", "out", "--metric", "exact_match")
    assert ended.returncode == 2
    assert "is a graph, which has neither filters nor metrics" in ended.stderr


def talks(prompt: str, params: dict[str, object], repeat: int) -> str:  # the shape of a script
    """A model that says what its question asks for; a question without an instruction fails."""
    said: str = json.loads(json.loads(prompt)[1]["content"].splitlines()[0])["say"]
    return said


def scripted() -> Scripted:
    return Scripted(talks, chat_template=lambda messages, _: json.dumps(messages))


SINK = """
  sink: {type: jsonl, file_path: SINK}
  source:"""


@pytest.mark.parametrize("of", [1, 3, 7])
def test_merged_shards_of_a_graph_are_the_run_that_was_not_sharded(tmp_path: Path, of: int) -> None:
    vague = {
        "task_id": 3,
        "problem": '{"say": "no structure"}',
        "answer": "x",
    }  # is asked about twice, which is noticed
    folder = write_graph(tmp_path, [*RECORDS, FAILING, vague, *RECORDS[:2]])
    changed(folder, "\n  source:", SINK.replace("SINK", str(tmp_path / "sink.jsonl")))
    whole = assay.simple_evaluate(scripted(), tasks=[str(folder)], output_path=str(tmp_path / "whole"))
    sink = (tmp_path / "sink.jsonl").read_text()
    (tmp_path / "sink.jsonl").unlink()
    parts = [tmp_path / f"part{number}" for number in range(1, of + 1)]
    for number, part in enumerate(parts, 1):
        assay.simple_evaluate(scripted(), tasks=[str(folder)], output_path=str(part), shard=f"{number}/{of}")
    assert not (tmp_path / "sink.jsonl").exists()  # a part of the records is not a copy of the output
    merged = lm_eval_layout(merge(tmp_path / "merged", parts[::-1]))
    assert merged["results"] == whole["results"]
    assert merged["assay"]["tasks"] == whole["assay"]["tasks"]
    [own] = whole["assay"]["tasks"].values()
    assert own["failed"] == 1
    assert own["noticed"]["asked again for structured output"] == 1
    for pattern in ("output_*.json", "Metric*.json", "samples_*.jsonl"):
        assert the_file(tmp_path / "merged", pattern) == the_file(tmp_path / "whole", pattern), pattern
    assert (tmp_path / "sink.jsonl").read_text() == sink
    tables = [[sample_rows(path) for path in (tmp_path / at / "samples").iterdir()] for at in ("whole", "merged")]
    assert tables[0] == tables[1]


def test_an_output_beside_its_run_does_not_hide_what_failed(tmp_path: Path, run: Run, run_assay: Run) -> None:
    write_graph(tmp_path, [*RECORDS, FAILING])
    assert run("--task", NAME, "-o", "out").returncode == 1
    [output] = (tmp_path / "out").glob("output_*.json")
    ended = run_assay("score", output, "--tasks", NAME, "-o", "again")
    assert ended.returncode == 1, ended.stderr
    [report] = the_file(tmp_path / "again/scored/001", "MetricCollatorPostProcessor_*.json")
    assert report["evaluation_summary"]["status"] == "incomplete"
    assert (report["evaluation_summary"]["requested"], report["evaluation_summary"]["failed"]) == (5, 1)
    alone = tmp_path / "alone.json"
    output.rename(alone)
    ended = run_assay("score", alone, "--tasks", NAME, "-o", "once_more")
    assert ended.returncode == 0
    assert "an output lacks the records that failed" in ended.stdout + ended.stderr


def test_two_post_processors_of_a_class_have_a_report_each(tmp_path: Path, run: Run) -> None:
    folder = write_graph(tmp_path, RECORDS)
    with (folder / "graph_config.yaml").open("a") as file:
        file.write(
            "  - processor: tasks.eval.utils.MetricCollatorPostProcessor\n    params:\n      aggregator_metrics_map:\n"
            + MORE
        )
    assert run("--task", NAME, "-o", "out").returncode == 0
    [second], [first] = (the_file(tmp_path / "out", f"MetricCollatorPostProcessor_{n}*.json") for n in ("2_", "20"))
    assert set(first["results"]) == {"accuracy"}
    assert set(second["results"]) == {"share", "f1_score"}
    rows = run_world.results(tmp_path / "out")["results"][NAME]
    assert {"accuracy,none", "MetricCollatorPostProcessor_2.accuracy,none"} <= set(rows)
