"""Three runs of 15 tasks as a paper compares them; which numbers are bold is worked out by hand, task by task."""

from collections.abc import Sequence
from pathlib import Path

from compared_world import MEAN, make_run, write_tasks

DOCUMENTS = 12
RUNS = ("a_1%", "b&co", "c#{$}~^")
"""Folders whose names LaTeX, Markdown and HTML could take for commands."""
LESS_IS_BETTER = "metric_list: [{metric: x, aggregation: mean, higher_is_better: false}]\n"
FAILS = "no number"
"""A score that fails its document."""


def right(count: int) -> list[object]:
    """Scores with so many documents right: the first ones, so that a run with fewer loses without a win."""
    return [1.0] * count + [0.0] * (DOCUMENTS - count)


SCORES: dict[str, tuple[list[object], list[object], list[object] | None]] = {
    "t_00": (right(12), right(6), right(6)),
    "t_01": (right(12), right(7), right(7)),
    "t_02": (right(12), right(7), right(5)),
    "t_03": (right(12), right(8), right(5)),
    "t_04": (right(8), right(8), right(8)),
    "t_05": (right(5), right(12), right(8)),
    "t_06": (right(10), right(9), right(3)),
    "t_07": (right(12), right(6), [*right(11)[:-1], FAILS]),
    "t_08": (right(9), right(2), None),
    "t_09": (right(11), right(6), right(11)),
    "t_10": (right(11), right(6), right(11)),
    "t_11": (right(0), right(0), right(6)),
    "less_0": (right(12), right(6), right(6)),
    "less_1": (right(12), right(7), right(8)),
    "less_2": (right(1), right(1), right(0)),
}
"""By task the scores of the three runs."""
WITHOUT_SAMPLES = "t_10"
"""The samples of this task are not in the second run."""
BOLD = {
    # k documents lost and none won: p = 2^-k by McNemar's test (mid-p). Of two comparisons the smaller p is doubled (Holm).
    "t_00": (0,),  # 6 and 6 lost: 0.016, doubled 0.031 for both
    "t_01": (0, 1, 2),  # 5 and 5 lost: 0.031 would reject alone, but is doubled: 0.063
    "t_02": (0,),  # 7 lost: 0.0078, doubled 0.016; then 5 lost: 0.031 as it is
    "t_03": (0, 1),  # 4 lost: 0.063
    "t_04": (0, 1, 2),  # all alike
    "t_05": (1, 2),  # 7 lost by the first run, 4 by the third
    "t_06": (0, 1),  # 1 lost: 0.5; 7 lost
    "t_07": (0,),  # the third has a failed document: it is not compared, so that 6 lost are 0.016 alone
    "t_08": (0,),  # the third has no such task; 7 lost
    "t_09": (0, 1, 2),  # 5 lost, doubled: 0.063
    "t_10": (0, 2),  # unpaired: 5/12 / hypot(0.0833, 0.1508) = 2.42, p = 0.016, doubled 0.031
    "t_11": (2,),  # 6 and 6 lost
    "less_0": (1, 2),  # less is better: the second and the third are alike, the first has 6 more
    "less_1": (0, 1, 2),  # 5 more: 0.031, doubled 0.063; 1 more: 0.5
    "less_2": (0, 1, 2),  # 1 more: 0.5
}
"""By task the runs whose number is bold."""


def make_paper_runs(folder: Path) -> list[Path]:
    """Make the three runs in this folder."""
    documents: Sequence[dict[str, object]] = [{}] * DOCUMENTS
    for more, start in ((MEAN, "t_"), (LESS_IS_BETTER, "less_")):
        write_tasks(folder / "tasks", {name: documents for name in SCORES if name.startswith(start)}, more)
    runs = []
    for place, run in enumerate(RUNS):
        scores = {name: own for name, columns in SCORES.items() if (own := columns[place]) is not None}
        runs.append(make_run(folder / "tasks", folder / run, scores))
    for file in (runs[1] / "samples").glob(f"{WITHOUT_SAMPLES}*"):
        file.unlink()
    return runs
