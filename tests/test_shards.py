"""`--shard i/n` and `assay merge`: disjoint parts of the documents, and one run of them again, byte for byte."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config.run import RunConfig
from assay.errors import AssayError
from assay.evaluation.merge import merge
from assay.exchange.importers import score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.runs.results import total_usage
from assay.tasks.documents import chosen, count, is_in
from assay.tasks.settings import Settings, Shard
from commands import Run
from run_world import ACC, EXACT_MATCH, RecordingModel, differing, manifest, outcome, results, run
from small_runs import SAMPLED, write_task
from small_runs import run as run_small

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

ROWS = [{"q": f"q{number}", "gold": "a" if number % 3 else "b"} for number in range(11)]


@given(
    size=st.integers(0, 60),
    of=st.integers(1, 70),
    limit=st.none() | st.integers(1, 80) | st.floats(0.01, 0.99),
    sample=st.none() | st.integers(1, 80),
)
def test_shards_are_a_partition_of_the_documents(size: int, of: int, limit: float | None, sample: int | None) -> None:
    """Every document is in one shard, in order, whatever limit chose them; sizes differ by one at most and are known before."""
    docs = [{"n": number} for number in range(size)]
    settings = Settings(RunConfig(limit=limit if sample is None else None, sample=sample))
    whole = [number for number, _ in chosen(docs, "t", settings)]
    parts = [[doc for n, doc in enumerate(whole) if is_in(Shard(number, of), n)] for number in range(1, of + 1)]
    assert sorted(doc for part in parts for doc in part) == whole
    assert all(part == sorted(part) for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    sizes = [count(docs, "t", dataclasses.replace(settings, shard=Shard(n, of))) for n in range(1, of + 1)]
    assert sizes == [len(part) for part in parts]


def sharded(output: Path, of: int, **options: Any) -> list[Path]:
    """The folders of shards of run_world's tasks."""
    folders = [output.with_name(f"shard{number}") for number in range(1, of + 1)]
    for number, folder in enumerate(folders, 1):
        run(
            RecordingModel(**options.get("asked", {})),
            options["tasks"],
            folder,
            shard=f"{number}/{of}",
            log_samples=True,
        )
    return folders


@pytest.mark.parametrize("of", [1, 2, 4, 7])
def test_merged_shards_are_the_run_that_was_not_sharded(of: int, tasks: Path, output: Path) -> None:
    """Seven shards of five and four documents: some have none of a task."""
    run(RecordingModel(), tasks, output, log_samples=True)
    merged = output.with_name("merged")
    result = lm_eval_layout(merge(merged, sharded(output, of, tasks=tasks)[::-1]))
    assert result["results"]["sums"]["exact_match,none"] == EXACT_MATCH
    assert result["results"]["colours"]["acc,none"] == ACC
    assert differing(merged, outcome(output)) == []
    assert manifest(merged)["spec"] == manifest(output)["spec"]


SHOTS = """
    output_type: generate_until
    doc_to_text: "{{q}}:"
    doc_to_target: gold
    num_fewshot: 2
    repeats: 3
    filter_list:
      - {name: first, filter: [{function: take_first}]}
      - {name: often, filter: [{function: custom, filter_fn: !function helper.most_common}]}
    metric_list: [{metric: exact_match}]
"""
HELPER = """
from collections import Counter

def most_common(resps, docs):
    every = Counter(r for rs in resps for r in rs).most_common(1)[0][0]
    return [every for _ in resps]
"""


def talking(asked: list[str]) -> Scripted:
    """Answers depend on the whole prompt and the repeat; one question has none."""

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        if prompt.endswith("q4:"):
            raise TimeoutError("no answer")
        return "ab"[(sum(map(ord, prompt)) + repeat) % 2]

    return Scripted(generate=answer, identity="talking")


def test_examples_repeats_failures_and_filters_over_all_documents_come_out_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    write_task(folder, ROWS, SHOTS.replace("\n    ", "\n").lstrip("\n") + SAMPLED)
    (folder / "helper.py").write_text(HELPER)
    whole: list[str] = []
    run_small(folder, talking(whole), output_path=str(tmp_path / "whole"), log_samples=True)
    asked: list[str] = []
    folders = [tmp_path / f"{number}" for number in (1, 2, 3)]
    for number, each in enumerate(folders, 1):
        part = run_small(folder, talking(asked), output_path=str(each), log_samples=True, shard=f"{number}/3")
        assert part["assay"]["status"] == "partial"
        assert part["assay"]["shard"]["part"] == f"{number}/3"
        assert part["n-samples"]["t"]["original"] == 11
    assert sorted(asked) == sorted(whole)
    assert len({prompt for prompt in whole if "q" in prompt}) == 11
    result = lm_eval_layout(merge(tmp_path / "merged", folders))
    assert result["assay"]["tasks"]["t"]["failed"] == 1
    assert differing(tmp_path / "merged", outcome(tmp_path / "whole")) == []


def test_chosen_documents_keep_their_numbers_in_lm_evals_samples(tasks: Path, output: Path) -> None:
    """lm-eval logs the n-th document under the n-th number that was asked for."""
    options: dict[str, Any] = {
        "samples": {"sums": [3, 0, 4]},
        "tasks": ["sums"],
        "compat": "lm-eval",
        "log_samples": True,
    }
    run(RecordingModel(), tasks, output, **options)
    folders = [output.with_name(f"s{number}") for number in (1, 2)]
    for number, folder in enumerate(folders, 1):
        run(RecordingModel(), tasks, folder, shard=f"{number}/2", **options)
    lines = (folders[1] / "samples_sums.jsonl").read_text().splitlines()
    assert [json.loads(line)["doc_id"] for line in lines] == [0]
    merge(output.with_name("merged"), folders)
    assert differing(output.with_name("merged"), outcome(output)) == []


def test_the_command_without_a_shard_resumes_in_the_merged_folder_and_asks_nothing(tasks: Path, output: Path) -> None:
    merged = output.with_name("merged")
    merge(merged, sharded(output, 2, tasks=tasks))
    asked = RecordingModel()
    run(asked, tasks, merged, log_samples=True)
    assert asked.calls == []


def test_a_shard_resumes_where_it_stopped_and_its_folder_takes_no_other(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, shard="1/2")
    asked = RecordingModel()
    run(asked, tasks, output, shard="1/2")
    assert asked.calls == []
    with pytest.raises(AssayError, match=r'another run \(shard: "1/2" there, "2/2" here\)'):
        run(RecordingModel(), tasks, output, shard="2/2")


@pytest.mark.parametrize("written", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4", "1/4/2", "²/4"])
def test_an_invalid_shard_is_refused(written: str, tasks: Path) -> None:
    with pytest.raises(AssayError, match=r"must be a part such as 2/4"):
        run(RecordingModel(), tasks, shard=written)


def test_shards_that_are_not_one_run_are_refused_with_the_reason(tasks: Path, output: Path) -> None:
    first, second, third = sharded(output, 3, tasks=tasks)
    into = output.with_name("merged")
    with pytest.raises(AssayError, match=r"shards missing: 2/3, 3/3"):
        merge(into, [first])
    with pytest.raises(AssayError, match=r"shard 1/3 is named twice: here and in .*shard1"):
        merge(into, [first, second, third, first])
    run(RecordingModel(), tasks, output)
    with pytest.raises(AssayError, match="is a whole run, not a shard"):
        merge(into, [first, output])
    other, few = output.with_name("other"), output.with_name("few")
    run(RecordingModel(), tasks, other, shard="2/2")
    run(RecordingModel(), tasks, few, shard="2/3", num_fewshot=0)
    with pytest.raises(AssayError, match=r"is one of 2 shards, and .* one of 3"):
        merge(into, [first, other])
    with pytest.raises(AssayError, match=r"is a shard of another run than .*num_fewshot: null there, 0 here"):
        merge(into, [first, few, third])
    (third / "results.json").unlink()
    with pytest.raises(AssayError, match="shard 3/3 has not finished"):
        merge(into, [first, second, third])
    with pytest.raises(AssayError, match="holds no run"):
        merge(into, [output.with_name("nowhere")])
    with pytest.raises(AssayError, match="no shards were named"):
        merge(into, [])
    assert not into.exists()


def test_changes_since_the_shards_were_run_are_refused(tasks: Path, output: Path) -> None:
    folders, into = sharded(output, 2, tasks=tasks), output.with_name("merged")
    with pytest.raises(AssayError, match="is one of the shards"):
        merge(folders[0], folders)
    text = (tasks / "sums.yaml").read_text()
    (tasks / "sums.yaml").write_text(text + "filter_list: [{name: other, filter: [{function: take_first}]}]\n")
    with pytest.raises(AssayError, match="task 'sums': changed since the shards were run: filter_list"):
        merge(into, folders)
    (tasks / "sums.yaml").write_text(text)
    (tasks / "tools.py").write_text("def same(docs):\n    return list(docs)\n")
    with pytest.raises(AssayError, match=r"tools.py: changed since the shards were run"):
        merge(into, folders)
    assert not into.exists()


def test_a_shard_can_be_scored_alone_and_stays_a_part(tasks: Path, output: Path) -> None:
    """The second of two shards has 2+3= and 3*3=, both right, and blood and snow, both right."""
    [_, second] = sharded(output, 2, tasks=tasks)
    scored = score(second)
    assert lm_eval_layout(scored.results)["results"]["sums"]["exact_match,none"] == 1.0
    assert lm_eval_layout(scored.results)["assay"]["status"] == "partial"
    assert lm_eval_layout(scored.results)["assay"]["shard"] == {"part": "2/2", "status": "complete"}


def test_shards_may_ask_different_servers_of_the_same_model(tasks: Path, output: Path) -> None:
    folders = sharded(output, 2, tasks=tasks)
    for number, folder in enumerate(folders):
        run_manifest = manifest(folder)
        run_manifest["spec"]["model"] = f"openai http://node{number}:8000/v1/completions llama 0f3a"
        (folder / "manifest.json").write_text(json.dumps(run_manifest))
    assert (
        lm_eval_layout(merge(output.with_name("merged"), folders))["results"]["sums"]["exact_match,none"] == EXACT_MATCH
    )
    run_manifest["spec"]["model"] = "openai http://node1:8000/v1/completions llama 77aa"
    (folders[1] / "manifest.json").write_text(json.dumps(run_manifest))
    with pytest.raises(AssayError, match="is a shard of another run"):
        merge(output.with_name("again"), folders)


def test_accounts_add_up() -> None:
    one = {"requests": 2, "tokens": {"in": 10, "out": 1}, "cost": 0.5, "seconds": {"p50": 1.0, "p99": 2.0}}
    two = {"requests": 3, "tokens": {"in": 5, "out": 2}, "cost": 0.25, "seconds": {"p50": 0.5, "p99": 4.0}}
    assert total_usage([one, two]) == {
        "requests": 5,
        "tokens": {"in": 15, "out": 3},
        "cost": 0.75,
        "seconds": {"p50": 1.0, "p99": 4.0},
    }


def test_four_processes_make_one_run(run_assay: Run, tmp_path: Path) -> None:
    task = ("run", "--tasks", "first_steps_sums", "--limit", 10)
    assert run_assay(*task, "-o", "whole").returncode == 0
    for number in range(1, 5):
        ended = run_assay(*task, "-o", f"part{number}", "--shard", f"{number}/4")
        assert ended.returncode == 0, ended.stderr
        assert f"shard {number}/4: the results of a part" in ended.stderr
    ended = run_assay("merge", "merged", *[f"part{number}" for number in range(1, 5)])
    assert ended.returncode == 0, ended.stderr
    assert differing(tmp_path / "merged", outcome(tmp_path / "whole")) == []
    assert results(tmp_path / "merged")["assay"]["status"] == "complete"
    wrong = run_assay("merge", "again", "part1", "part3")
    assert (wrong.returncode, "shards missing: 2/4, 4/4" in wrong.stderr) == (2, True)
