"""A comparison for people and programs: a table, eight lines for a chat message, JSON, CSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from assay.comparison.comparison import Attribution, ComparedRow, Comparison, Flip, GateVerdict
from assay.errors import some
from assay.report.table import markdown
from assay.report.texts import in_cell

HEADER = ("Tasks", "Filter", "Metric", "", "a", "b", "b − a", "interval", "p", "p (Holm)", "test", "better/worse/same", "n",
          "detectable", "b is")  # fmt: skip
SAYS = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}
MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
LINES = 8
TOLD = 3


def comparison_table(found: Comparison) -> str:
    """The rows as markdown, a table for each run that is compared with the first."""
    made = []
    for number, run in enumerate(found.runs[1:], 1):
        rows = [row for row in found.rows if row.run == number]
        title = f"a: {found.runs[0].label} — {found.runs[0].model}\nb: {run.label} — {run.model}"
        head = [each.replace("interval", f"{found.level:.0%}".replace("%", " %")) for each in HEADER]
        made.append(f"{title}\n\n{markdown(head, list(_cells(rows)))}")
    return "\n\n".join(made)


def _cells(rows: Sequence[ComparedRow]) -> Iterator[tuple[str, ...]]:
    before = ""
    for row in rows:
        alias = " " * row.depth + ("- " if row.depth else "") + row.alias
        counts = f"{row.wins}/{row.losses}/{row.ties}" if row.wins is not None else ""
        yield (
            "" if row.name == before else alias,
            row.filter,
            row.metric,
            {True: "↑", False: "↓"}.get(row.higher_is_better, "") if row.higher_is_better is not None else "",
            number(row.a),
            number(row.b),
            signed(row.difference),
            f"{signed(row.interval[0])} … {signed(row.interval[1])}" if row.interval is not None else row.reason,
            chance(row.p),
            chance(row.p_holm),
            row.test,
            counts,
            f"{row.n}" + (f" in {row.clusters}" if row.clusters else ""),
            number(row.mde),
            row.verdict if row.verdict != "unknown" else "",
        )
        before = row.name


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4f}"


def chance(p: float | None) -> str:
    """A probability, as far as it means anything."""
    return "" if p is None else "<0.0001" if p < 0.0001 else f"{p:.4f}"


def attribution_lines(found: Comparison) -> list[str]:
    """Where each run begins to differ from the first, and in what."""
    said: list[str] = []
    for each in found.attributions:
        name = found.runs[each.run].label
        if each.first is None:
            said.append(f"{name}: made with the same data, prompts, sampling, model, filters and scorers")
            continue
        said.append(f"{name}: differs first in: {each.first}")
        for difference in each.differences:
            values = f": {difference.a or '–'} → {difference.b or '–'}" if difference.a or difference.b else ""
            tasks = f" ({some(list(difference.tasks))})" if difference.tasks else ""
            said.append(f"  {difference.stage}: {difference.what}{values}{tasks}")
    return said


def flip_lines(flips: Sequence[Flip]) -> list[str]:
    """Documents that changed, each with both answers."""
    said = []
    for flip in flips:
        mark = "worse " if flip.is_loss else "better"
        said += [
            f"{mark} {flip.task} · document {flip.doc_id} · {flip.metric} {flip.score_a:g} → {flip.score_b:g}",
            f"  a: {_one_line(flip.answer_a)}",
            f"  b: {_one_line(flip.answer_b)}",
            f"  target: {_one_line(flip.target)}",
        ]
    return said


def _one_line(text: str) -> str:
    plain = text.replace("\n", "⏎")
    return plain if len(plain) <= 160 else plain[:159] + "…"


def summary(found: Comparison) -> str:
    """The whole in eight lines at most, for a chat message."""
    names = " and ".join(run.label for run in found.runs[1:])
    verdict = f"{SAYS[found.decision]}: " if found.decision is not None else ""
    said = [f"{verdict}{names} against {found.runs[0].label}"]
    said += _gate_lines(found.verdicts)
    said += [_documents(found.rows), _tasks(found), _differs(found)]
    if found.notes:
        more = f" (and {len(found.notes) - 1} more notes)" if len(found.notes) > 1 else ""
        said.append(f"note: {found.notes[0]}{more}")
    return "\n".join([line for line in said if line][:LINES])


def _gate_lines(verdicts: Sequence[GateVerdict]) -> list[str]:
    """Those that fail first; of many only so many."""
    order = ("fail", "inconclusive", "pass")
    ranked = sorted(verdicts, key=lambda each: order.index(each.decision))
    several = [gate_line(each) for each in ranked[: TOLD if len(ranked) > TOLD + 1 else TOLD + 1]]
    left = Counter(each.decision for each in ranked[len(several) :])
    return several + ([f"further gates: {', '.join(f'{n} {what}' for what, n in left.items())}"] if left else [])


def gate_line(verdict: GateVerdict) -> str:
    """What a gate says, in a line.

    >>> gate_line(Verdict("acc > -0.5pp", "t", "acc", "none", 1, "pass", 0.01, 0.002, -0.005, unit="pp"))
    '✓ acc > -0.5pp: t +1.00pp, bound +0.20pp'
    """

    def shown(value: float) -> str:
        return f"{value * 100:+.2f}{verdict.unit}" if verdict.unit else f"{value:+.4f}"

    told = [shown(verdict.difference)] if verdict.difference is not None else []
    bound = [f"bound {shown(verdict.bound)}"] if verdict.bound is not None else []
    text = ", ".join([*told, *bound, *([verdict.reason] if verdict.reason else [])])
    return f"{MARKS[verdict.decision]} {verdict.gate}: {verdict.name} {text}"


def _documents(rows: Sequence[ComparedRow]) -> str:
    """The headline: the first row, which is the group at the top or the first task."""
    if not rows:
        return ""
    row = rows[0]
    ends = f" [{signed(row.interval[0])}, {signed(row.interval[1])}]" if row.interval is not None else ""
    p = f", p {chance(row.p)}" if row.p is not None else ""
    counts = f"; {row.wins} documents better, {row.losses} worse, {row.ties} same" if row.wins is not None else ""
    return f"{row.name} {row.metric}: {signed(row.difference)}{ends}{p}{counts}"


def _tasks(found: Comparison) -> str:
    """How many of the tasks' numbers differ, all of them looked at together."""
    rows = [row for row in found.rows if row.kind == "task" and row.p_holm is not None]
    counts = Counter(row.verdict for row in rows)
    worse = sorted((r for r in rows if r.verdict == "worse"), key=lambda row: (row.p_holm, -abs(row.difference or 0)))
    names = list(dict.fromkeys(f"{row.name} {row.metric} {signed(row.difference)}" for row in worse))
    differ = f", {counts['differs']} different" if counts["differs"] else ""
    told = f"{counts['better']} better, {counts['worse']} worse{differ}, {counts['unclear']} not told apart"
    return f"tasks' numbers (Holm): {told}" + (f"; worst: {some(names)}" if names else "")


def _differs(found: Comparison) -> str:
    firsts = {each.first or "nothing" for each in found.attributions}
    told = [f"{each.what}: {each.a} → {each.b}" for each in _first_differences(found.attributions) if each.a or each.b]
    return f"differs first in: {', '.join(sorted(firsts))}" + (f" ({told[0]})" if told else "")


def _first_differences(several: Sequence[Attribution]) -> list[Any]:
    return [each for one in several for each in one.differences if each.stage == one.first]


def as_mapping(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON has it."""
    return {
        "decision": found.decision,
        "level": found.level,
        "power": found.power,
        "runs": [{**asdict(run), "folder": str(run.folder)} for run in found.runs],
        "rows": [asdict(row) for row in found.rows],
        "attributions": [{**asdict(each), "first": each.first} for each in found.attributions],
        "gates": [asdict(each) for each in found.verdicts],
        "flips": [asdict(each) for each in found.flips],
        "notes": list(found.notes),
    }


def as_csv(found: Comparison) -> str:
    """The rows, one a line; an interval in two columns."""
    names = [each.name for each in fields(ComparedRow) if each.name not in ("interval", "verdict")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run_a", "run_b", *names, "low", "high", "verdict"])
    for row in found.rows:
        ends = row.interval or ("", "")
        own = [getattr(row, name) for name in names]
        several = [found.runs[0].label, found.runs[row.run].label, *own, *ends, row.verdict]
        writer.writerow(["" if each is None else in_cell(each) if isinstance(each, str) else each for each in several])
    return out.getvalue()
