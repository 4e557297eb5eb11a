"""The comparison of two backends, for a person and for a program."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from assay.comparison.verification import (
    DIFFER,
    DRIFTS,
    EDGES,
    NOTHING,
    POSITIONS,
    SAME,
    Divergence,
    Verification,
    VerificationRow,
    Where,
    counts_by_kind,
    histogram,
    spread,
)
from assay.report.table import markdown

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
        (MEANING[kind], str(asked), str(compared), str(left or ""))
        for kind, asked, compared, left in counts_by_kind(of)
    ]
    yield markdown(("requests", "asked", "compared", "not comparable"), rows)
    if of.answers.requests["sampled"]:
        yield "what is drawn at random differs anyway: of sampled generations only the scores are compared"
    for each in of.of.left_out:
        yield f"not comparable: {each.task}: {each.reason}"


def _texts(of: Verification) -> Iterator[str]:
    found, compared = of.answers.divergences, of.answers.compared["generate"]
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
    found = of.answers.likelihoods
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
    if of.answers.greedy_changed:
        yield f"{of.answers.greedy_changed} continuations are greedy for one of the two alone"
    for each in sorted(found, key=lambda each: -each.per_token)[:SHOWN]:
        if each.difference:
            yield f"  {_place(each.where)}: A {each.a:.6f} B {each.b:.6f} ({each.tokens} tokens)"


def _choices(of: Verification) -> Iterator[str]:
    if of.answers.questions:
        flips, count = of.answers.flips, of.answers.questions
        yield f"choices: {len(flips)} of {count} questions ({len(flips) / count:.2%}) have another likeliest choice"
        for each in flips[:SHOWN]:
            yield f"  {each.where.task} document {each.where.doc_id}: A choice {each.a} B choice {each.b}"


def _rows(rows: Sequence[VerificationRow]) -> Iterator[str]:
    if rows:
        header = ("Task", "Metric", "Filter", "n", "A", "B", "Drift", "95 %", "")
        yield markdown(header, [_row(each) for each in rows])


def _row(row: VerificationRow) -> tuple[str, ...]:
    drift = row.drift
    ends = f"{drift.interval[0]:+.4f} … {drift.interval[1]:+.4f}" if drift.interval is not None else drift.reason
    mark = "off" if row.is_off else ""
    return (row.task, row.metric, row.filter, str(drift.n), *(_number(each) for each in (drift.before, drift.after)),
            "–" if math.isnan(drift.value) else f"{drift.value:+.4f}", ends, mark)  # fmt: skip


def _troubles(of: Verification) -> Iterator[str]:
    for side in (0, 1):
        reasons = Counter(each[side + 1] for each in of.answers.failures if each[side + 1])
        if reasons:
            yield f"{'AB'[side]} failed {reasons.total()} requests:"
            yield from (f"  {count} × {reason}" for reason, count in reasons.most_common(SHOWN))
    for name, reason in of.of.broken.items():
        yield f"task {name!r} cannot be run: {reason}"
    yield from of.of.remarks


def _verdict(of: Verification) -> Iterator[str]:
    is_part = of.of.left_out or of.answers.failures
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
    found = of.answers
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
            for kind, asked, compared, left in counts_by_kind(of)
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


def _score(row: VerificationRow) -> dict[str, Any]:
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
