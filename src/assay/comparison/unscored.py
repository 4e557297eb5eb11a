"""Documents that not both runs scored: how far they could move a difference, and when nothing can be decided for want of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.comparison.contrasts import Part
from assay.comparison.rows import PairedRow, below
from assay.errors import some
from assay.runs.run import Run

ENDED = ("complete", "incomplete", "unknown")
"""How a run may have ended that was asked all there was to ask; of one from elsewhere that may not be known."""
MOST = 0.01
"""The share of documents that may be lacking where nothing bounds what they could have scored."""
ALLOW = "--allow_incomplete decides all the same"


def why_open(line: PairedRow, runs: Sequence[Run]) -> str:
    """Why a gate cannot be decided on this line, whatever its documents say; nothing where it can."""
    for run in runs:
        if run.status not in ENDED:
            return f"the run {run.path.name} is {run.status}; {ALLOW}"
        if line.kind == "group":
            not_run = run.extras.get("groups", {}).get(line.name, {}).get("not_run", ())
            broken = run.extras.get("broken", {}).keys() & below(run, line.name, {line.name}) | {*not_run}
            if broken:
                return f"not run in {run.path.name}: {some(sorted(broken))}; {ALLOW}"
    for member in (part.member for part in line.parts):
        lacking = max(_not_asked(run, member.task) for run in runs)
        if lacking:
            return f"{member.task}: {lacking} documents were not asked; {ALLOW}"
        if not member.is_rate and member.missed > MOST * (member.n + member.missed):
            what = f"{member.task}: {member.missed} of {member.n + member.missed} documents are not scored in both runs"
            return f"{what}; {ALLOW}"
    return ""


def _not_asked(run: Run, task: str) -> int:
    own: Mapping[str, Any] = run.extras.get("tasks", {}).get(task, {})
    return int(own.get("not_asked", 0))


def moved(parts: Sequence[Part], scale: float = 1.0) -> tuple[float, float]:
    """How far `b - scale · a` could be moved down and up by the documents that not both runs scored: of rates, if what is not
    known were all wrong, or all right."""
    low = high = 0.0
    for member, slope_a, slope_b in parts:
        if member.is_rate and member.missed:
            whole = member.n + member.missed
            for slope, own, sum_known, known in (
                (slope_b, member.b, member.missed_b, member.only_b),
                (-scale * slope_a, member.a, member.missed_a, member.only_a),
            ):
                if_wrong = slope * (sum_known - member.missed * own) / whole
                if_right = if_wrong + slope * (member.missed - known) / whole
                low, high = low + min(if_wrong, if_right), high + max(if_wrong, if_right)
    return low, high
