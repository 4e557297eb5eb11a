"""Label mode: the next document of a plan with one key for each verdict, blind to the judge; labels, tags and notes are stored
beside the run."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.datastructures import QueryParams

from assay.comparison.labelling import (
    JudgeRows,
    Plan,
    judge_instructions,
    judge_rows,
    people_agreement,
    plan_labels,
    scored_documents,
    store_labels,
)
from assay.errors import ConfigError
from assay.records import JSONObject
from assay.report.page_tables import SHORT_COLUMNS, short_cells
from assay.report.report_table import ReportTable, TextCell, make_table
from assay.runs.labels import TaskLabels, corrected_key, judged_answer
from assay.runs.notes import write_notes
from assay.runs.run import Run
from assay.statistics.evidence import Estimate
from assay.viewer.pages import MissingPage, Page, PageSources
from assay.viewer.query import url_for
from assay.viewer.sample_page import as_text, parse_json, prompt_chat, target_of

KEYS = "1234567890-"
STEPS = 5
"""Verdicts on a scale that is not one of a few whole numbers."""
PLANNED, MOST = 100, 100_000


class VerdictButton(NamedTuple):
    """A verdict that a person may give, and the key that gives it."""

    key: str
    label: float
    text: str


class LabelRequest(NamedTuple):
    """Which documents are labelled, and by whom: the parameters of the URL."""

    run: Run
    task: str
    rows: JudgeRows
    by: str
    planned: int
    metric: str

    def url(self, **more: str | int | None) -> str:
        """The URL of the next document."""
        count = self.planned if self.planned != PLANNED else None
        return url_for("label", run=self.run.name, task=self.task, by=self.by, metric=self.metric, n=count, **more)


def verdict_buttons(rows: JudgeRows) -> list[VerdictButton]:
    """The verdicts of a scale: each whole number where they are few, else some steps. Of pairs which answer is better.

    >>> [each[:2] for each in verdict_buttons(JudgeRows("t", (), (1.0, 3.0), (0.0, 1.0)))]
    [('1', 1.0), ('2', 2.0), ('3', 3.0)]
    >>> [each[:2] for each in verdict_buttons(JudgeRows("t", (), (0.0, 0.5), (0.0, 1.0)))]
    [('1', 0.0), ('2', 0.125), ('3', 0.25), ('4', 0.375), ('5', 0.5)]
    """
    low, high = rows.scale
    if rows.other:
        words = (("1", 1.0, "the first is better"), ("2", 0.5, "neither"), ("3", 0.0, "the second is better"))
        return [VerdictButton(*each) for each in words]
    is_whole = low.is_integer() and high.is_integer() and high - low < len(KEYS)
    labels = [low + step for step in range(int(high - low) + 1)] if is_whole else [
        low + step * (high - low) / (STEPS - 1) for step in range(STEPS)
    ]  # fmt: skip
    named = is_whole and low >= 0 and (high <= 9 or (low > 0 and high <= 10))
    keys = [f"{label:g}"[-1] for label in labels] if named else KEYS
    ends = {low: "lowest", high: "highest"}
    return [
        VerdictButton(key, label, f"{label:g}" + (f" {ends[label]}" if label in ends else ""))
        for key, label in zip(keys, labels, strict=False)
    ]


def label_request(sources: PageSources, query: Mapping[str, str]) -> LabelRequest:
    """Read the parameters of a URL or form; a page that does not exist where nothing can be labelled."""
    run, task = sources.task(query)
    metric, count, by = query.get("metric", ""), query.get("n", ""), sources.labeller
    try:
        [rows] = judge_rows(run.finished(), [task], metric or None)
    except ConfigError as error:
        raise MissingPage("; ".join(str(problem) for problem in error.problems)) from None
    planned = min(int(count), MOST) if count.isdecimal() and len(count) < 9 else PLANNED
    return LabelRequest(run, task, rows, (query.get("by") or by).strip()[:80] or by, planned, metric)


def label_page(sources: PageSources, query: QueryParams) -> Page:
    """The next document that a person has not labelled; or the `doc` that the URL names."""
    asked = label_request(sources, query)
    run = Run.open(asked.run.path, follow_links=False)
    plan = plan_labels(run, asked.rows, asked.planned, by=asked.by)
    about = run.labels.get(asked.task)
    own = dict(about.people.get(asked.by, {})) if about is not None else {}
    doc = _chosen(query.get("doc", ""), query.get("after", ""), plan)
    shown = _document(sources, asked, doc)
    last = query.get("last", "")
    return {
        "run": asked.run, "task": asked.task, "line": asked.run.line(asked.task), "by": asked.by, "metric": asked.metric,
        "count": asked.planned, "done": len(own), "left": len(plan.documents), "buttons": verdict_buttons(asked.rows),
        "instructions": judge_instructions(run, asked.rows), "shown": shown, "given": own.get(doc) if doc is not None else None,
        "last": (int(last), own[int(last)]) if last.isdecimal() and len(last) < 19 and int(last) in own else None,
        "skip": asked.url(after=doc) if doc is not None and len(plan.documents) > 1 else "",
        "people": about.counts if about is not None else {},
        "agreement": agreement_lines(about), "agreement_table": _agreement_table(about),
        "corrected": _corrected(run, asked) if doc is None else None,
        "request": asked,
    }  # fmt: skip


def _chosen(doc: str, after: str, plan: Plan) -> int | None:
    if doc.isdecimal() and len(doc) < 19:
        return int(doc)
    left = list(plan.documents)
    place = left.index(int(after)) + 1 if after.isdecimal() and len(after) < 19 and int(after) in left else 0
    return left[place % len(left)] if left else None


def agreement_lines(about: TaskLabels | None) -> list[tuple[str, Estimate, str]]:
    """How far people agree with each other: name, number, meaning."""
    return list(people_agreement(about)) if about is not None else []


def _agreement_table(about: TaskLabels | None) -> ReportTable:
    rows = [[name, *short_cells(number), TextCell(meaning, "dim")] for name, number, meaning in agreement_lines(about)]
    return make_table(["agreement", *SHORT_COLUMNS, "meaning"], rows)


def _corrected(run: Run, asked: LabelRequest) -> ReportTable | None:
    """The number of the judge, and the same one corrected by labels."""
    row = run.results.row(asked.task, corrected_key(asked.rows.keys[0]))
    judge = run.results.row(asked.task, asked.rows.keys[0])
    if row is None or judge is None:
        return None
    rows = [["judge", *short_cells(judge.estimate)], ["corrected by labels", *short_cells(row.estimate)]]
    return make_table(["number", *SHORT_COLUMNS], rows)


def _document(sources: PageSources, asked: LabelRequest, doc: int | None) -> JSONObject | None:
    """The texts that a person sees: no verdict of the judge is among them."""
    if doc is None:
        return None
    samples = sources.samples(asked.run, asked.task)
    row = samples.document(doc) if samples is not None else None
    if row is None:
        raise MissingPage(f"no document {doc} in the samples of {asked.task}")
    content = parse_json(row.doc, {})
    other = content.get(asked.rows.other) if asked.rows.other and isinstance(content, Mapping) else None
    return {
        "doc": doc, "chat": prompt_chat(row, asked.run.config(asked.task)), "prompt": row.prompt or row.prefix,
        "target": target_of(row),
        "answer": judged_answer(row, asked.rows.keys[0].filter), "other": None if other is None else as_text(other),
    }  # fmt: skip


def store_label(sources: PageSources, form: Mapping[str, str]) -> str:
    """Store a label, or take it back; returns the URL of the next document."""
    asked = label_request(sources, form)
    run = Run.open(asked.run.path, follow_links=False)
    doc, written = form.get("doc", ""), form.get("label", "").strip()
    rows = asked.rows
    if not (doc.isdecimal() and len(doc) < 19 and int(doc) in scored_documents(run, rows)):
        raise MissingPage(f"no document {doc!r:.40} with a score of {rows.keys[0]!s} in {asked.task}")
    label = None if not written else _number(written, rows)
    store_labels(run, [rows], {asked.task: {int(doc): label}}, asked.by)
    return asked.url(last=doc) if label is not None else asked.url(doc=doc)


def _number(written: str, rows: JudgeRows) -> float:
    low, high = rows.scale
    try:
        label = float(written)
    except ValueError:
        label = float("nan")
    if not low <= label <= high:
        raise MissingPage(f"a label is a number from {low:g} to {high:g}, got {written!r:.40}")
    return label


def store_notes(sources: PageSources, form: Mapping[str, str]) -> str:
    """Store the tags and the note of a run; returns the URL of its page."""
    run = sources.run(form.get("run", ""))
    try:
        write_notes(run.path, form.get("tags", "").split(","), form.get("note", "").replace("\r\n", "\n"))
    except ConfigError as error:
        raise MissingPage("; ".join(problem.what for problem in error.problems)) from None
    return url_for("run", run=run.name)


WRITING = {"/label": store_label, "/note": store_notes}
"""The paths that store a form beside a run, where that is permitted; no other path writes."""
