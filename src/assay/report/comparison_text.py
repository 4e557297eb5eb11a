"""A comparison for people and programs: a table, eight lines for a chat message, JSON, CSV."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from assay.comparison.comparison import Attribution, Comparison, Flip, Row, Verdict
from assay.comparison.verification import (
    DIFFER,
    DRIFTS,
    EDGES,
    NOTHING,
    POSITIONS,
    SAME,
    Divergence,
    Verification,
    Where,
    histogram,
    kinds_told,
    spread,
)
from assay.comparison.verification import Row as VerifiedRow
from assay.errors import some
from assay.report.table import in_cell, markdown

HEADER = ("Tasks", "Filter", "Metric", "", "a", "b", "b − a", "interval", "p", "p (Holm)", "test", "better/worse/same", "n",
          "detectable", "b is")  # fmt: skip
SAYS = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}
MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
LINES = 8
TOLD = 3
BAR = 40
SHOWN = 3
AROUND = 24
"""Characters shown on either side of where two texts part."""
MEANING = {"generate": "greedy generations", "sampled": "sampled generations", "loglikelihood": "log-likelihoods",
           "rolling": "log-likelihoods of whole texts"}  # fmt: skip
VERDICT = {
    SAME: "same: every answer is within the tolerance",
    DRIFTS: "drifts: answers differ, and no score is known to do so by more than chance explains",
    DIFFER: "differ",
    NOTHING: "nothing: there is nothing to compare",
}


def comparison_table(found: Comparison) -> str:
    """The rows as markdown, a table for each run that is compared with the first."""
    made = []
    for number, run in enumerate(found.runs[1:], 1):
        rows = [row for row in found.rows if row.run == number]
        title = f"a: {found.runs[0].label} — {found.runs[0].model}\nb: {run.label} — {run.model}"
        head = [each.replace("interval", f"{found.level:.0%}".replace("%", " %")) for each in HEADER]
        made.append(f"{title}\n\n{markdown(head, list(_cells(rows)))}")
    return "\n\n".join(made)


def _cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
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


def _gate_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Those that fail first; of many only so many."""
    order = ("fail", "inconclusive", "pass")
    ranked = sorted(verdicts, key=lambda each: order.index(each.decision))
    several = [gate_line(each) for each in ranked[: TOLD if len(ranked) > TOLD + 1 else TOLD + 1]]
    left = Counter(each.decision for each in ranked[len(several) :])
    return several + ([f"further gates: {', '.join(f'{n} {what}' for what, n in left.items())}"] if left else [])


def gate_line(verdict: Verdict) -> str:
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


def _documents(rows: Sequence[Row]) -> str:
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
    names = [each.name for each in fields(Row) if each.name not in ("interval", "verdict")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run_a", "run_b", *names, "low", "high", "verdict"])
    for row in found.rows:
        ends = row.interval or ("", "")
        own = [getattr(row, name) for name in names]
        several = [found.runs[0].label, found.runs[row.run].label, *own, *ends, row.verdict]
        writer.writerow(["" if each is None else in_cell(each) if isinstance(each, str) else each for each in several])
    return out.getvalue()


def verification_text(of: Verification) -> str:
    """All that was found, as text."""
    parts = [
        _heading(of),
        _kinds(of),
        _texts(of),
        _likelihoods(of),
        _choices(of),
        _rows(of.rows),
        _troubles(of),
        _verdict(of),
    ]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def _heading(of: Verification) -> Iterator[str]:
    yield f"A: {of.of.labels[0]}"
    yield f"B: {of.of.labels[1]}"
    yield f"tolerance: {of.tolerance.per_token:g} per token, {of.tolerance.texts:.0%} of greedy texts"


def _kinds(of: Verification) -> Iterator[str]:
    rows = [
        (MEANING[kind], str(asked), str(compared), str(left or "")) for kind, asked, compared, left in kinds_told(of)
    ]
    yield markdown(("requests", "asked", "compared", "not comparable"), rows)
    if of.found.requests["sampled"]:
        yield "what is drawn at random differs anyway: of sampled generations only the scores are compared"
    for each in of.of.left_out:
        yield f"not comparable: {each.task}: {each.reason}"


def _texts(of: Verification) -> Iterator[str]:
    found, compared = of.found.divergences, of.found.compared["generate"]
    if not compared:
        return
    yield f"greedy generations: {compared - len(found)} of {compared} are equal"
    if found:
        by_token = all(each.tokens is not None for each in found)
        yield f"the others part after so many {'tokens' if by_token else 'characters'}:"
        yield from _bars([each.tokens if each.tokens is not None else each.characters for each in found], POSITIONS)
        for each in sorted(found, key=lambda each: each.characters)[:SHOWN]:
            yield f"  {_place(each.where)}, after {each.characters} characters:"
            yield f"    A {_excerpt(each, each.a)}"
            yield f"    B {_excerpt(each, each.b)}"


def _likelihoods(of: Verification) -> Iterator[str]:
    found = of.found.likelihoods
    if not found:
        return
    for name, values in (
        ("request", [each.difference for each in found]),
        ("token", [each.per_token for each in found]),
    ):
        told = ", ".join(f"{key} {value:.2g}" for key, value in spread(values).items())
        yield f"log-likelihoods, difference per {name}: {told}"
        yield from _bars(values, EDGES)
    if of.of.count_tokens is None:
        yield "neither model counts tokens: every difference is taken as that of one token"
    if of.found.greedy_changed:
        yield f"{of.found.greedy_changed} continuations are greedy for one of the two alone"
    for each in sorted(found, key=lambda each: -each.per_token)[:SHOWN]:
        if each.difference:
            yield f"  {_place(each.where)}: A {each.a:.6f} B {each.b:.6f} ({each.tokens} tokens)"


def _choices(of: Verification) -> Iterator[str]:
    if of.found.questions:
        flips, count = of.found.flips, of.found.questions
        yield f"choices: {len(flips)} of {count} questions ({len(flips) / count:.2%}) have another likeliest choice"
        for each in flips[:SHOWN]:
            yield f"  {each.where.task} document {each.where.doc_id}: A choice {each.a} B choice {each.b}"


def _rows(rows: Sequence[VerifiedRow]) -> Iterator[str]:
    if rows:
        header = ("Task", "Metric", "Filter", "n", "A", "B", "Drift", "95 %", "")
        yield markdown(header, [_row(each) for each in rows])


def _row(row: VerifiedRow) -> tuple[str, ...]:
    drift = row.drift
    ends = f"{drift.interval[0]:+.4f} … {drift.interval[1]:+.4f}" if drift.interval is not None else drift.reason
    mark = "off" if row.is_off else ""
    return (row.task, row.metric, row.filter, str(drift.n), *(_number(each) for each in (drift.before, drift.after)),
            "–" if math.isnan(drift.value) else f"{drift.value:+.4f}", ends, mark)  # fmt: skip


def _troubles(of: Verification) -> Iterator[str]:
    for side in (0, 1):
        reasons = Counter(each[side + 1] for each in of.found.failures if each[side + 1])
        if reasons:
            yield f"{'AB'[side]} failed {reasons.total()} requests:"
            yield from (f"  {count} × {reason}" for reason, count in reasons.most_common(SHOWN))
    for name, reason in of.of.broken.items():
        yield f"task {name!r} cannot be run: {reason}"
    yield from of.of.remarks


def _verdict(of: Verification) -> Iterator[str]:
    is_part = of.of.left_out or of.found.failures
    yield f"verdict: {VERDICT[of.verdict]}" + (" (of what can be compared)" if is_part else "")
    yield from (f"  {reason}" for reason in of.because)


def _bars(values: Iterable[float], edges: Sequence[float]) -> Iterator[str]:
    """A histogram as lines of text, from the first bar that has any length to the last."""
    counts = list(zip(histogram(values, edges), (0.0, *edges), strict=False))
    filled = [number for number, ((_, count), _) in enumerate(counts) if count]
    most = max((count for (_, count), _ in counts), default=0)
    for (edge, count), below in counts[filled[0] : filled[-1] + 1] if filled else ():
        name = "= 0" if edge == 0 else f"> {below:g}" if math.isinf(edge) else f"≤ {edge:g}"
        yield f"  {name:>8} {'█' * math.ceil(BAR * count / most):{BAR}} {count}"


def _place(where: Where) -> str:
    return f"{where.task} document {where.doc_id} request {where.number}"


def _excerpt(of: Divergence, text: str) -> str:
    start = max(0, of.characters - AROUND)
    end = of.characters + AROUND
    return repr(("…" if start else "") + text[start:end] + ("…" if end < len(text) else ""))


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def verification_json(of: Verification) -> dict[str, Any]:
    """All that was found, as JSON has it."""
    found = of.found
    by_request, by_token = (
        [each.difference for each in found.likelihoods],
        [each.per_token for each in found.likelihoods],
    )
    return {
        "verdict": of.verdict,
        "because": list(of.because),
        "a": {"model": of.of.labels[0], "identity": of.of.identities[0]},
        "b": {"model": of.of.labels[1], "identity": of.of.identities[1]},
        "tolerance": {"per_token": of.tolerance.per_token, "texts": of.tolerance.texts},
        "requests": {
            kind: {"asked": asked, "compared": compared, "not_comparable": left}
            for kind, asked, compared, left in kinds_told(of)
        },
        "not_comparable": [
            {"task": each.task, "reason": each.reason, "requests": dict(each.requests)} for each in of.of.left_out
        ],
        "texts": {
            "compared": found.compared["generate"],
            "equal": found.compared["generate"] - len(found.divergences),
            "divergences": [{**each._asdict(), "where": each.where._asdict()} for each in found.divergences],
        },
        "likelihoods": {
            "compared": len(found.likelihoods),
            "counted_tokens": of.of.count_tokens is not None,
            "greedy_changed": found.greedy_changed,
            "per_request": {**spread(by_request), "histogram": _pairs(by_request)},
            "per_token": {**spread(by_token), "histogram": _pairs(by_token)},
        },
        "choices": {
            "questions": found.questions,
            "flips": [{**each._asdict(), "where": each.where._asdict()} for each in found.flips],
        },
        "scores": [_score(row) for row in of.rows],
        "failures": [{**each._asdict(), "where": each.where._asdict()} for each in found.failures],
        "broken": dict(of.of.broken),
        "remarks": list(of.of.remarks),
    }


def _pairs(values: Sequence[float]) -> list[dict[str, Any]]:
    return [{"up_to": edge, "count": count} for edge, count in histogram(values, EDGES)]


def _score(row: VerifiedRow) -> dict[str, Any]:
    drift = row.drift
    return {
        "task": row.task,
        "metric": row.metric,
        "filter": row.filter,
        "n": drift.n,
        "a": drift.before,
        "b": drift.after,
        "drift": drift.value,
        "interval": list(drift.interval) if drift.interval is not None else None,
        "reason": drift.reason,
        "off": row.is_off,
    }
