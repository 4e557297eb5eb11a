"""`assay plan` counts documents as `assay compare` does: paired by what they say, in clusters, shared between tasks."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from assay.cli import main
from assay.comparison.compare import compare
from assay.comparison.planning import Aim, Planned, planned_from_runs
from assay.runs.run import Run
from compared_world import GROUP, MEAN, make_run, write_tasks

QUANTILES = 1.959964 + 0.841621
"""Of the normal distribution, for 5 % at two sides and a power of 80 %."""


def planned(*runs: Path, mde: float = 0.01) -> dict[str, Planned]:
    read = [Run.open(run).finished() for run in runs]
    names = [*read[0].groups, *read[0].tasks]
    return {each.name: each for each in planned_from_runs(read, names, None, Aim(mde))}


def test_documents_in_another_order_are_paired_by_what_they_say(tmp_path: Path) -> None:
    """All of them differ by 0.01, but for one by 0.03: a variance of 0.02² (1/200)(1 - 1/200) · 200/199."""
    scores = np.random.default_rng(1).random(200)
    changes = np.full(200, 0.01)
    changes[0] = 0.03
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 200})
    a = make_run(folder, tmp_path / "a", {"t": scores.tolist()})
    lines = (folder / "t.jsonl").read_text().splitlines(keepends=True)
    (folder / "t.jsonl").write_text("".join(lines[::-1]))
    b = make_run(folder, tmp_path / "b", {"t": (scores + changes).tolist()})
    assert planned(a, b)["t"].spread.documents == pytest.approx(0.02**2 / 200)


def in_clusters(tmp_path: Path) -> tuple[list[Path], float]:
    """Fifty clusters of ten documents that are won or lost as one; and the variance of the mean difference, from cluster sums."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{"c": n // 10} for n in range(500)]}, MEAN + "cluster_by: c\n")
    flipped = np.repeat(np.random.default_rng(2).random(50) < 0.3, 10)
    a = np.repeat(np.tile([0, 1], 25), 10)
    b = np.where(flipped, 1 - a, a)
    sums = (b - a - (b - a).mean()).reshape(50, 10).sum(axis=1)
    runs = [make_run(folder, tmp_path / n, {"t": s.tolist()}) for n, s in (("a", a), ("b", b))]
    return runs, float((sums**2).sum()) / 500**2 * 50 / 49


def test_clusters_are_one_draw_of_a_plan(tmp_path: Path) -> None:
    runs, variance = in_clusters(tmp_path)
    result, [row] = planned(*runs)["t"], compare(runs).rows
    assert result.mde == pytest.approx(row.mde)
    assert result.mde == pytest.approx(
        QUANTILES * math.sqrt(variance), rel=0.05
    )  # but for half a document at either side
    alone = planned(runs[0])["t"]
    sums = np.tile([-0.5, 0.5], 25) * 10
    of_a = float((sums**2).sum()) / 500**2 * 50 / 49
    assert alone.mde == pytest.approx(QUANTILES * math.sqrt(of_a), rel=0.05)  # 2 · (1 - ½) of it


@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_tasks_over_the_same_documents_are_planned_as_one(tmp_path: Path, aggregation: str) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 60}, MEAN.replace("mean", aggregation), GROUP)
    (folder / "u.yaml").write_text((folder / "t.yaml").read_text().replace("task: t\n", "task: u\n"))
    random = np.random.default_rng(3)
    a = random.normal(0, 1, 60)
    b = a + random.normal(0, 0.5, 60)
    runs = [make_run(folder, tmp_path / n, {"t": s.tolist()}, tasks=["g"]) for n, s in (("a", a), ("b", b))]
    plan = planned(*runs)
    assert plan["g"].mde == pytest.approx(plan["t"].mde)
    if aggregation == "mean":
        assert plan["t"].mde == pytest.approx(QUANTILES * np.std(b - a, ddof=1) / math.sqrt(60), rel=1e-6)
        alone = planned(runs[0])
        assert alone["g"].mde == pytest.approx(alone["t"].mde)


def test_without_a_run_tasks_over_the_same_documents_are_not_independent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """t and u have the same 40 documents: their mean is known as well as one of them, and no better."""
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 40}, group=GROUP)
    (folder / "u.yaml").write_text((folder / "t.yaml").read_text().replace("task: t\n", "task: u\n"))
    assert main(["plan", "g", "--mde", "5pp", "--include_path", str(folder), "--no_defaults", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["g"]["mde"] == pytest.approx(QUANTILES * math.sqrt(0.25 / 40), rel=1e-6)
    assert rows["g"]["mde"] == pytest.approx(rows["t"]["mde"])


def test_without_a_run_a_perplexity_is_not_planned_as_a_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 40, "u": [{}] * 40})
    likelihood = (folder / "u.yaml").read_text().split("output_type")[0] + (
        "output_type: loglikelihood\ndoc_to_text: n\ndoc_to_target: n\nmetric_list: [{metric: perplexity}]\n"
    )
    (folder / "u.yaml").write_text(likelihood)
    words = ["--mde", "10pp", "--include_path", str(folder), "--no_defaults"]
    assert main(["plan", "t", "u", *words]) == 0
    shown = capsys.readouterr()
    assert "|t" in shown.out and "|u" not in shown.out
    assert "no rate, so the variance is not known without a run of it (--baseline RUN): u" in shown.err
    assert main(["plan", "u", *words]) == 2
    assert "nothing is known of u — add --baseline RUN" in capsys.readouterr().err
