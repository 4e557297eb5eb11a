"""What each page shows, gathered from runs and samples; the templates only lay it out."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import QueryParams

from assay.config.row_names import is_row_name
from assay.report.plots import Interval, calibration, histogram, slices
from assay.report.reading import Head, Line, RunReading, worst_tasks
from assay.runs.redact import redacted_text
from assay.runs.rows import Row
from assay.tasks.audit import KINDS
from assay.viewer.distributions import PARTS, calibrated, score_bins, slices_by, value_count
from assay.viewer.library import Library
from assay.viewer.query import OPERATORS, SHOWS, Wish, address, read_wish
from assay.viewer.sample_page import choices_of, own_numbers, sample_view, shown, target_of
from assay.viewer.samples import Database, Found, Samples, score_columns

Page = dict[str, Any]
SORTS = ("name", "model", "score", "n", "failed", "cost", "seconds", "created")


class NotThere(Exception):
    """What an address names does not exist."""


def runs_page(library: Library, query: QueryParams) -> Page:
    """All runs: filtered by words in name, model or tasks; sorted by a column, the latest first."""
    words = query.get("q", "").lower().split()
    sort = query.get("sort", "created") if query.get("sort", "created") in SORTS else "created"
    descending = query.get("desc", "1" if "sort" not in query else "") == "1"
    every = [run.head for run in library.runs()]
    heads = [head for head in every if all(word in _words(head) for word in words)]
    heads.sort(key=lambda head: _sort_key(head, sort), reverse=descending)
    live = any(head.is_running for head in heads)
    return {"heads": heads, "count": len(every), "sort": sort, "descending": descending, "q": query.get("q", ""),
            "live": address("stamp") if live else ""}  # fmt: skip


def _words(head: Head) -> str:
    return " ".join((head.name, head.model, *head.tasks, head.status)).lower()


def _sort_key(head: Head, sort: str) -> tuple[bool, Any]:
    value = (
        (head.headline.value if head.headline else None)
        if sort == "score"
        else getattr(head, {"n": "headline_n"}.get(sort, sort))
    )
    return value is not None, value if value is not None else 0


def run_page(library: Library, query: QueryParams) -> Page:
    """One run: its tree of numbers, or its tasks from the worst on; what deserves a look, what it took, where it comes from."""
    run = known_run(library, query.get("run", ""))
    closed = {name for text in query.getlist("closed") for name in text.split("|") if name}
    view = query.get("view", "tree") if query.get("view") in ("tree", "worst", "columns") else "tree"
    lines: Sequence[Line] = run.lines
    if view == "worst":
        lines = worst_tasks(run.lines, len(run.lines))
    else:
        lines = [line for line in run.lines if not closed.intersection(line.path[:-1])]
    keys = list(dict.fromkeys(number.key for line in run.lines for number in line.numbers))
    return {
        "run": run, "lines": lines, "view": view, "closed": closed, "keys": keys, "worst": worst_tasks(run.lines, 3),
        "without_share": _without_share(run) if view == "worst" else (),
        "audit": {kind: (count, KINDS[kind]) for kind, count in run.audit.items()},
        "audit_tasks": {kind: [line for line in _tasks(run) if (line.audit or {}).get(kind)] for kind in KINDS},
        "provenance": {key: _provenance(value, is_line=key == "command") for key, value in run.provenance.items()},
        "account": shown(run.account["account"], indent=True) if run.account.get("account") else "",
        "closing": _closing(run, closed, query), "has_graph": {line.name for line in _tasks(run) if run.graph(line.name)},
        "live": address("stamp", run=run.name) if run.head.is_running else "",
    }  # fmt: skip


def _provenance(value: Any, *, is_line: bool) -> str:
    """Something that a run comes from, as text; a command as a line to copy."""
    return shlex.join(map(str, value)) if is_line and isinstance(value, list) else shown(value, indent=True)


def _without_share(run: RunReading) -> list[Line]:
    """The tasks that have no place between the worst and the best: none of their numbers is a share of what is right."""
    placed = {line.name for line in worst_tasks(run.lines, len(run.lines))}
    return [line for line in _tasks(run) if line.name not in placed]


def _tasks(run: RunReading) -> list[Line]:
    return list({line.name: line for line in run.lines if not line.is_group}.values())


def _closing(run: RunReading, closed: set[str], query: QueryParams) -> dict[str, str]:
    """For every group the address of the page with it opened or closed."""
    rest = [(key, value) for key, value in query.multi_items() if key != "closed"]
    return {
        line.name: address(
            "run", rest, [("closed", "|".join(sorted(closed ^ {line.name})))] if closed ^ {line.name} else []
        )
        for line in run.lines
        if line.is_group
    }


def task_page(library: Library, database: Database, query: QueryParams) -> Page:
    """One task: its numbers, how its scores are distributed, its samples."""
    run = known_run(library, query.get("run", ""))
    task = known_task(run, query.get("task", ""))
    wish = read_wish(query)
    base: Page = {
        "run": run, "task": task, "line": run.line(task), "wish": wish, "shows": SHOWS, "kinds": KINDS,
        "operators": OPERATORS, "config": shown(run.config(task), indent=True), "has_graph": bool(run.graph(task)),
        "live": address("stamp", run=run.name) if run.head.is_running else "",
    }  # fmt: skip
    samples = samples_of(run, task, database, wish.metric)
    if samples is None:
        return {**base, "found": None}
    columns, found = samples.document_columns(), samples.page(wish)
    parts = slices_by(samples, wish.slice) if wish.slice else []
    return {
        **base,
        "samples": samples,
        "found": found,
        "columns": columns,
        "filterable": _filterable(samples, columns, run.config(task)),
        "histogram": histogram(
            samples.remember(("bins", samples.metric), lambda: score_bins(samples)),
            label=f"{samples.metric} of all samples",
        ),
        "calibration": calibration(points)
        if (points := samples.remember("calibrated", lambda: calibrated(samples)))
        else "",
        "slices": _drawn(parts) if parts else "",
        "brief": brief,
        **_shown_columns(found, samples),
        "parts_left_out": max(value_count(samples, wish.slice) - PARTS, 0) if len(parts) == PARTS else 0,
        "no_numbers": [
            each.value for each in wish.conditions if each.operator in ("lt", "gt") and not _is_number(each.value)
        ],
        "sample_address": lambda row, position: address(
            "sample", wish.parameters, run=run.name, task=task, doc=row.doc_id, at=position
        ),
    }


def _shown_columns(found: Found, samples: Samples) -> Page:
    """Which columns a list of samples has: what says nothing of any of them is left out."""
    told = [row.scores for row in found.rows]
    more = [
        name
        for name in dict.fromkeys(name for scores in told for name in scores if is_row_name(name))
        if name not in samples.scores and any(own_numbers(scores, [name]) != [None] for scores in told)
    ]
    return {
        "can_be_wrong": samples.metric in samples.scores,
        "more_scores": more,
        "more_values": lambda row: own_numbers(row.scores, more),
        "has_answers": any(row.choices or row.failed or _texts(row) for row in found.rows),
        "has_targets": any(target_of(row) != row.prompt for row in found.rows),
    }


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _drawn(parts: Sequence[Interval]) -> str:
    """Parts on a scale that all of them fit on: that of shares, where they are shares."""
    ends = [end for part in parts for end in (part.value, part.low, part.high) if end is not None]
    inside = all(0 <= end <= 1 for end in ends)
    return slices(parts) if inside else slices(parts, start=min(ends), end=max(ends))


def _filterable(samples: Samples, columns: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """The columns that samples can be filtered by."""
    written = config.get("filter_list")
    filters = (
        [str(each.get("name")) for each in written if isinstance(each, Mapping)]
        if isinstance(written, list)
        else ["none"]
    )
    return [
        *(f"doc.{name}" for name in columns), *(f"answer.{name}" for name in filters),
        *(f"score.{name}" for name in samples.scores), "target", "failed", "doc_id",
    ]  # fmt: skip


def _texts(row: Row) -> list[str]:
    """The texts that were answered."""
    return [each for several in row.responses for each in several if isinstance(each, str)]


def brief(row: Row) -> dict[str, str]:
    """A sample in one line of a table: question, answer, target, scores by column."""
    texts = _texts(row)
    best = "" if texts else next((choice.text for choice in choices_of(row) if choice.is_best), "")
    answers = row.answers
    filtered = next((shown(each[0]) for each in answers.values() if each), "") if texts else ""
    return {
        "question": _ending(row.prompt or ""), "answer": _cut((texts[0] if texts else best).strip()), "filtered": _cut(filtered),
        "target": _cut(target_of(row)), "failed": _cut(redacted_text(row.failed or "")),
    }  # fmt: skip


def _cut(text: str, length: int = 120) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _ending(text: str, length: int = 160) -> str:
    """The end of a prompt: where the question stands."""
    text = text.strip()
    return text if len(text) <= length else "…" + text[-length:]


def sample_page(library: Library, database: Database, query: QueryParams) -> Page:
    """One sample, with the way to those before and behind it in the list it was found in."""
    run = known_run(library, query.get("run", ""))
    task = known_task(run, query.get("task", ""))
    wish, doc, at = read_wish(query), query.get("doc", ""), query.get("at", "")
    samples = samples_of(run, task, database, wish.metric)
    row = samples.document(int(doc)) if samples is not None and doc.lstrip("-").isdecimal() and len(doc) < 19 else None
    if samples is None or row is None:
        raise NotThere(f"there is no document {doc!r:.40} among the samples of {task}")
    better = run.run.higher_is_better(task)
    links = {"before": "", "behind": ""}
    if at.isdecimal() and len(at) < 12:
        before, _, behind = samples.around(wish, int(at))
        for name, doc_id, place in (("before", before, int(at) - 1), ("behind", behind, int(at) + 1)):
            if doc_id >= 0:
                links[name] = address("sample", wish.parameters, run=run.name, task=task, doc=doc_id, at=place)
    return {
        "run": run, "task": task, "line": run.line(task), "sample": sample_view(row, run.config(task), better), "wish": wish,
        "kinds": KINDS, "links": links, "back": address("task", wish.parameters, run=run.name, task=task),
        "shown": shown, "has_graph": bool(run.graph(task)), "others": _others(library, run, task, row.doc_id),
    }  # fmt: skip


def _others(library: Library, run: RunReading, task: str, doc_id: int) -> list[tuple[str, str]]:
    """The same document in other runs of the task: those of the same data, by whose number it is the same."""
    source = run.source(task)
    return [
        (each.name, address("sample", run=each.name, task=task, doc=doc_id))
        for each in library.runs()
        if each.name != run.name and task in each.tasks and source and each.source(task) == source
    ][:20]


def known_run(library: Library, name: str) -> RunReading:
    """The run of that name."""
    run = library.run(name)
    if run is None:
        raise NotThere(f"there is no run {name!r:.80} in this folder")
    return run


def known_task(run: RunReading, name: str) -> str:
    """A name that the run has a task of."""
    if name not in run.tasks:
        raise NotThere(f"the run {run.name} has no task {name!r:.80}")
    return name


def samples_of(run: RunReading, task: str, database: Database, metric: str = "") -> Samples | None:
    """The samples of a task, where they are whole; `metric` is the column to go by, if another than the main one."""
    path = run.sample_path(task)
    if path is None:
        return None
    stored = database.samples(path)
    line = run.line(task)
    better = {number.name: number.higher_is_better for number in line.numbers} if line is not None else {}
    main = {line.main.name: line.main.higher_is_better} if line is not None and line.main is not None else {}
    asked = {metric: better.get(metric)} if metric else {}
    column, more = score_columns(stored.names, {**asked, **main, **better})
    return Samples(database, stored, column, more)


def _wish_without(wish: Wish, number: int) -> list[tuple[str, str]]:
    """A wish without one of its conditions, as an address has it."""
    return wish.but(conditions=(*wish.conditions[:number], *wish.conditions[number + 1 :])).parameters


def task_address(run: str, task: str, wish: Wish, **changes: object) -> str:
    """The page of a task with something else wanted; `without` is the number of a condition to take out."""
    without = changes.pop("without", None)
    parameters = _wish_without(wish, without) if isinstance(without, int) else wish.but(**changes).parameters
    return address("task", parameters, run=run, task=task)
