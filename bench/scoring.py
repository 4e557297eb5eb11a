"""Scoring alone: a million generations, two patterns, three ways to compare each; CPU and memory of one process."""

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.environments import ROOT, assay_python, bare_environment
from bench.measure import Said

DOCUMENTS = 1_000_000
YAML = {
    "task": "t",
    "output_type": "generate_until",
    "doc_to_text": "q",
    "doc_to_target": "gold",
    "filter_list": [
        {"name": "strict", "filter": [{"function": "regex", "regex_pattern": r"#### (\-?[0-9\.\,]+)"}, {"function": "take_first"}]},
        {"name": "last", "filter": [{"function": "regex", "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1}, {"function": "take_first"}]},
    ],
    "metric_list": [
        {"metric": "exact_match"},
        {"metric": "exact_match", "name": "plain", "ignore_case": True, "ignore_punctuation": True},
        {"metric": "exact_match", "name": "numbers", "regexes_to_ignore": [",", r"\$"]},
    ],
}  # fmt: skip


def rows() -> Iterator[Said]:
    python = assay_python()
    done = subprocess.run(
        [str(python), "-m", "bench.scoring"],
        env=bare_environment(),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    summary = f"{loaded['cpu_s']:.1f} s CPU, {loaded['mb']:.0f} MB; {loaded['rows']}"
    yield Said(
        f"{DOCUMENTS:,} generations × 2 patterns × 3 exact_match, scored and aggregated", summary, "≤ 30 s, ≤ 300 MB"
    )


def main(count: int) -> None:
    """Samples are made as they are scored, as in a run; what making them takes is measured and taken off."""
    import time

    from assay import Task
    from assay.records import Generate, Sample, Text
    from assay.scoring.metric_binding import NO_HELPERS
    from assay.scoring.results import AnsweredSample, grouped
    from assay.statistics.aggregations import AGGREGATIONS
    from assay.statistics.board import Board
    from assay.tasks.scoring import scoring
    from assay.tasks.settings import Settings
    from bench.measure import peak_memory

    task = Task.from_config(YAML)
    scored = scoring(task, task.config, Settings(), NO_HELPERS)

    def documents() -> Iterator[AnsweredSample]:
        for number in range(count):
            gold = str(number % 1000)
            request = Generate(f"question {number}", {})
            text = f"First {number % 7} and then {number % 13} make it.\n#### {number % 1000 if number % 3 else 5}"
            sample = Sample(number, {"q": "x"}, [request], gold, gold)
            yield AnsweredSample(sample, grouped(sample.requests, [Text(text)], 1))

    start = time.process_time()
    for _ in documents():
        pass
    built = time.process_time() - start
    board, start = Board(), time.process_time()
    for document in documents():
        [scores] = scored.score([document])
        assert isinstance(scores, list)
        for each in scores:
            board.add(document.sample.doc_id, each)
    result = board.estimates(lambda _: AGGREGATIONS["mean"], bootstrap_iters=1000, source="t")
    seconds = time.process_time() - start - built
    printed = ", ".join(f"{key.metric},{key.filter} {float(value):.4f}" for key, value in list(result.items())[:2])
    print(json.dumps({"cpu_s": seconds, "made_s": built, "mb": peak_memory(), "rows": printed}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS)
