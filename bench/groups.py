"""Groups at work: CPU time of many groups, and CPU time and memory of resampling documents.

`python -m bench.groups CASE` measures one case and prints it as JSON: each has a separate process.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.environments import ROOT, bare_environment
from bench.measure import Row, peak_memory

CASES: dict[str, tuple[str, str]] = {
    "many": ("10,000 tasks in 1,000 groups (each task in up to 3) × 3 metrics, CPU", "≤ 1 s"),
    "median rates": ("10,000 draws of a median over 57 tasks × 250 documents, 0 or 1, CPU", "≤ 2 s"),
    "median scores": ("the same, any scores, CPU", "≤ 2 s"),
    "million rates": ("1,000 draws over 1,000,000 documents, 0 or 1, CPU", "≤ 10 s"),
    "million scores": ("the same, any scores, CPU", "≤ 10 s"),
}


def rows() -> Iterator[Row]:
    for case, (what, expected) in CASES.items():
        command = [sys.executable, "-m", "bench.groups", case]
        ended = subprocess.run(command, env=bare_environment(), capture_output=True, text=True, cwd=ROOT, check=True)
        loaded = json.loads(ended.stdout.splitlines()[-1])
        limit = float(expected.split()[1])
        yield Row(what, None, loaded["cpu_s"], expected + ("" if loaded["cpu_s"] <= limit else ": missed"))
        if case.startswith("million"):
            peak = loaded["peak_mb"]
            yield Row("peak memory of that", None, peak, "≤ 300 MB" + ("" if peak <= 300 else ": missed"), "MB")


def measure(case: str) -> dict[str, float]:
    """CPU seconds of the case itself, and the most memory the process ever had."""
    run = many() if case == "many" else resampling(case)
    start = time.process_time()
    run()
    taken = time.process_time() - start
    return {"cpu_s": taken, "peak_mb": peak_memory()}


def many() -> Callable[[], object]:
    """1,000 groups of 30 out of 10,000 tasks, which have 20 documents each, as different metrics see them."""
    import numpy as np

    from assay.config.group import AggMetricConfig, GroupConfig
    from assay.groups.group import StandardGroup
    from assay.groups.manager import GroupManager
    from assay.groups.task_results import EstimatedFloat
    from bench.worlds import Leaf

    random = np.random.default_rng(0)
    metrics = ("acc", "acc_norm", "exact_match")
    manager: GroupManager[Leaf] = GroupManager()
    leaves = [Leaf(f"task_{number}") for number in range(10_000)]
    groups: list[StandardGroup[Leaf]] = []
    for number in range(1000):
        entries = [AggMetricConfig(metric=metric) for metric in metrics]
        groups.append(StandardGroup(GroupConfig(group=f"group_{number}", aggregate_metric_list=entries)))
        manager.register_group(groups[-1])
    for number, leaf in enumerate(leaves):
        for times in (1, 7, 11):
            groups[(number * times + times) % 1000].add_child(leaf)
    results: dict[str, dict[str, float]] = {}
    for leaf in leaves:
        own: dict[str, float] = {
            f"{metric},none": EstimatedFloat(_estimate(leaf.name, random.integers(2, size=20))) for metric in metrics
        }
        results[leaf.name] = {**own, "samples": 20}
    return lambda: manager.compute_all_group_metrics(results)


def resampling(case: str) -> Callable[[], object]:
    """A median of many members, or of one with a million documents."""
    import numpy as np

    from assay.config.group import GroupConfig
    from assay.groups.aggregators import MedianAggregator
    from assay.statistics.spread import MemberEstimate

    random = np.random.default_rng(0)
    tasks, documents, draws = (57, 250, 10_000) if case.startswith("median") else (1, 1_000_000, 1000)
    members = []
    for number in range(tasks):
        scores = random.integers(2, size=documents) if case.endswith("rates") else random.random(documents)
        members.append(MemberEstimate(f"task_{number}", _estimate(f"task_{number}", scores), documents))
    aggregator = MedianAggregator(GroupConfig(group="g"), draws=draws)
    return lambda: aggregator.combine(members, [1.0] * tasks)


def _estimate(source: str, scores: Any) -> Any:
    from assay.statistics.evidence import Estimate, Evidence
    from assay.statistics.influence import Influence
    from assay.statistics.members import mean_of_scores

    return mean_of_scores(
        scores, Estimate(0.0, evidence=Evidence({Influence(source, range(len(scores)), None, 0.0): 1.0}))
    )


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
