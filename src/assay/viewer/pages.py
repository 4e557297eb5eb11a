"""The content of each page, gathered from runs and samples, and its tables with their links; the templates only format it.
Tables that reports have, too, are in report/page_tables.py."""

import shlex
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from assay.number_text import format_short, format_trimmed
from assay.records import AnyJSON
from assay.report.charts import Span, Timeline, draw_part
from assay.report.drawing import Drawing
from assay.report.index import IndexedRun
from assay.report.page_tables import bar_cell, estimate_cells, numbers_table, results_page_table, slices_table
from assay.report.pictures import slices_panel
from assay.report.report_table import (
    Align,
    Cell,
    CheckCell,
    Column,
    CountCell,
    DurationCell,
    FoldCell,
    LinkCell,
    MetricCell,
    MoneyCell,
    NumberCell,
    Order,
    PartsCell,
    ProgressCell,
    ReportTable,
    TableLine,
    TextCell,
    make_table,
    number_columns,
)
from assay.report.table import documents_cell, interval_cell, table_rows
from assay.report.table_writers import cell_text
from assay.results import Row
from assay.runs.comparison import ComparedRow
from assay.runs.folder import is_moved_aside, is_outside
from assay.runs.lines import ResultLine, worst_tasks
from assay.runs.live import newest_samples
from assay.runs.run import RUNNING, Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredSample, shown_texts
from assay.runs.samples.turns import question_of
from assay.safe_text import cut
from assay.score_keys import ScoreKey
from assay.tasks.audit import KINDS, audit_counts
from assay.viewer.library import ComparisonCache, RunLibrary
from assay.viewer.query import OPERATORS, SHOWS, RunFilter, SampleQuery, page_number, read_query, url_for
from assay.viewer.sample_page import (
    SampleView,
    TaskSettings,
    as_text,
    choice_views,
    judge_questions,
    label_lines,
    node_prices,
    sample_scores,
    sample_view,
    target_of,
    verdict_views,
)
from assay.viewer.samples import Database, Samples, choose_metric
from assay.viewer.task_charts import MAX_COUNTED, MAX_SLICES, more_columns, score_slices, task_charts, value_count

Page = dict[str, Any]
RUNS_PER_PAGE = 200
SORTS = ("name", "model", "score", "n", "failed", "cost", "seconds", "created")
MAX_OTHERS = 12
"""Other runs of the same document that a page links to."""
MAX_QUESTION, MAX_TEXT = 160, 120
"""Letters of a question and of other texts in a list of samples."""
KINDS_OF_FILES = ("parquet", "csv", "jsonl")


class MissingPage(Exception):
    """The URL names something that does not exist."""


class PageSources(NamedTuple):
    """What pages are made of: runs, their samples, comparisons; and who labels, if anybody may."""

    library: RunLibrary
    database: Database
    comparisons: ComparisonCache
    labeller: str = ""

    def run(self, name: str) -> Run:
        """Return the run of that name."""
        run = self.library.run(name)
        if run is None:
            raise MissingPage(f"no run named {name!r:.80} in this folder")
        return run

    def task(self, query: Mapping[str, str]) -> tuple[Run, str]:
        """The run and the task that a URL names."""
        run = self.run(query.get("run", ""))
        return run, find_task(run, query.get("task", ""))

    def samples(self, run: Run, task: str, metric: ScoreKey | None = None) -> Samples | None:
        """Open the samples of a task, where they are complete, else the newest of a task in progress; `metric`, if not the main
        one, decides right, wrong and the order."""
        return _open_samples(run, task, self.database, metric)


def runs_page(sources: PageSources, query: QueryParams) -> Page:
    """All runs, filtered by words in name, model or tasks, and sorted by a column, the latest first."""
    sort = query.get("sort", "created") if query.get("sort", "created") in SORTS else "created"
    descending = query.get("desc", "1" if "sort" not in query else "") == "1"
    library = sources.library
    every, chosen = library.runs(), RunFilter.of(query)
    moved = sum(is_moved_aside(entry.name) for entry in every)
    entries = [entry for entry in every if chosen.matches(entry)]
    entries.sort(key=lambda entry: _sort_key(entry, sort), reverse=descending)
    live = bool(library.pending) or any(entry.is_running for entry in entries)
    pages = max(-(-len(entries) // RUNS_PER_PAGE), 1)
    page = min(page_number(query), pages)
    rest = [(key, value) for key, value in query.multi_items() if key not in ("page", "run")]
    heads = entries[(page - 1) * RUNS_PER_PAGE : page * RUNS_PER_PAGE]
    return {
        "heads": heads, "table_of_runs": runs_table(heads, sort, descending=descending, parameters=chosen.parameters),
        "count": len(every) - (0 if chosen.old else moved), "matching": len(entries), "old": moved,
        "pending": library.pending, "page": page, "pages": pages,
        "page_url": lambda number: url_for("", rest, [("page", str(number))] if number > 1 else []),
        "old_url": url_for("", [pair for pair in rest if pair[0] != "old"], [] if chosen.old else [("old", "1")]),
        "sort": sort, "descending": descending, "q": query.get("q", ""), "chosen": chosen,
        "live": url_for("events") if live else "",
    }  # fmt: skip


def _sort_key(run: IndexedRun, sort: str) -> tuple[bool, AnyJSON]:
    value = (
        (run.headline.estimate.value if run.headline else None)
        if sort == "score"
        else getattr(run, {"n": "headline_n"}.get(sort, sort))
    )
    return value is not None, value if value is not None else 0


def run_page(sources: PageSources, query: QueryParams) -> Page:
    """One run: its results as a tree or worst first, its audit, usage and provenance."""
    run = sources.run(query.get("run", ""))
    closed = {name for text in query.getlist("closed") for name in text.split("|") if name}
    view = query.get("view", "tree") if query.get("view") in ("tree", "worst", "columns") else "tree"
    lines: Sequence[ResultLine] = run.lines
    if view == "worst":
        lines = worst_tasks(run.lines, len(run.lines))
    else:
        lines = [line for line in run.lines if not closed.intersection(line.path[:-1])]
    flagged = {flag: [line for line in _tasks(run) if line.audit.get(flag)] for flag in KINDS}
    worst = worst_tasks(run.lines, 3) if not run.results.is_empty else ()
    return {
        "run": run, "view": view, "results": results_of_run(run, lines, view, _fold_links(run, closed, query), closed),
        "worst": lowest_table(run, worst) if worst else None,
        "without_share": _without_share(run) if view == "worst" else (),
        "audit": flags_table(run, audit_counts(run.results), flagged),
        "provenance": {key: _provenance(value, is_line=key == "command") for key, value in run.provenance.items()},
        "usage": as_text(run.usage, indent=True) if run.usage else "",
        "live": url_for("events", run=run.name) if run.is_running else "",
    }  # fmt: skip


def _provenance(value: AnyJSON, *, is_line: bool) -> str:
    """Format a provenance value as text; a command as a line to copy."""
    return shlex.join(map(str, value)) if is_line and isinstance(value, list) else as_text(value, indent=True)


def _without_share(run: Run) -> list[ResultLine]:
    """The tasks that cannot be ranked: none of their metrics is a share."""
    placed = {line.name for line in worst_tasks(run.lines, len(run.lines))}
    return [line for line in _tasks(run) if line.name not in placed]


def _tasks(run: Run) -> list[ResultLine]:
    return list({line.name: line for line in run.lines if not line.is_group}.values())


def _fold_links(run: Run, closed: set[str], query: QueryParams) -> dict[str, str]:
    """By group, the URL of the page with that group opened or closed."""
    rest = [(key, value) for key, value in query.multi_items() if key != "closed"]
    return {
        line.name: url_for(
            "run", rest, [("closed", "|".join(sorted(closed ^ {line.name})))] if closed ^ {line.name} else []
        )
        for line in run.lines
        if line.is_group
    }


def task_page(sources: PageSources, query: QueryParams) -> Page:
    """One task: its results, the distribution of its scores, its samples."""
    run, task = sources.task(query)
    sample_query = read_query(query)
    base: Page = {
        "run": run, "task": task, "line": run.line(task), "query": sample_query, "shows": SHOWS, "kinds": KINDS,
        "operators": OPERATORS, "config": as_text(run.config(task), indent=True), "has_graph": bool(run.graph(task)),
        "live": url_for("events", run=run.name) if run.is_running else "",
        "is_partial": run.is_running and run.sample_file(task) is None,
    }  # fmt: skip
    samples = sources.samples(run, task, sample_query.metric)
    scores = samples.scores if samples is not None else ()
    addresses_by_metric = {key: task_url(run.name, task, sample_query, metric=key) for key in scores}
    if base["line"] is not None:
        base["numbers"] = numbers_of_task(base["line"], samples, addresses_by_metric)
    if samples is None:
        return {**base, "page": None, "downloads": {}}
    columns, page = samples.document_columns(), samples.page(sample_query)
    addresses = [
        url_for("sample", sample_query.parameters, run=run.name, task=task, doc=row.doc_id, at=position)
        for row, position in zip(page.rows, page.positions, strict=True)
    ]
    briefs = list(map(brief, page.rows))
    parts = score_slices(samples, sample_query.slice) if sample_query.slice else []
    return {
        **base,
        "samples": samples,
        "release": samples.stored.close,
        "page": page,
        "downloads": {
            kind: url_for(f"samples.{kind}", sample_query.parameters, run=run.name, task=task)
            for kind in KINDS_OF_FILES
        },
        "labels_by": run.labels[task].counts if task in run.labels else {},
        "columns": columns,
        "filterable": _filterable(samples, columns, run.config(task)),
        "charts": task_charts(samples, MAX_COUNTED if query.get("charts") != "all" else None),
        "all_charts": _all_charts(samples, query),
        "most_counted": MAX_COUNTED,
        "slice_table": slices_table(sample_query.slice, parts),
        "more_columns": more_columns(samples),
        "slices": draw_part(slices_panel(parts, samples.metric), f"{samples.metric} by {sample_query.slice}")
        if parts and samples.metric is not None
        else None,
        "can_be_wrong": samples.metric in samples.scores,
        "shown": list(zip(page.rows, addresses, briefs, strict=True)),
        "table_of_samples": _samples_table(
            run, task, samples, sample_query, zip(page.rows, addresses, briefs, strict=True)
        ),
        "slices_left_out": max(value_count(samples, sample_query.slice) - MAX_SLICES, 0)
        if len(parts) == MAX_SLICES
        else 0,
        "not_numbers": [
            each.value
            for each in sample_query.conditions
            if each.operator in ("lt", "gt") and not _is_numeric(each.value)
        ],
    }


def _all_charts(samples: Samples, query: QueryParams) -> str:
    """The URL of the page with charts of all samples, where they are of the first alone."""
    if query.get("charts") == "all" or samples.size <= MAX_COUNTED:
        return ""
    return url_for("task", [*query.multi_items(), ("charts", "all")])


def _samples_table(
    run: Run,
    task: str,
    samples: Samples,
    query: SampleQuery,
    shown: Iterable[tuple[StoredSample, str, Mapping[str, str]]],
) -> ReportTable:
    current = query.sort or str(samples.metric)
    order: Order = "descending" if query.descending else "ascending"
    titles: list[tuple[str, Order]] = []
    for name in ("doc_id", *map(str, samples.scores)):
        address = task_url(run.name, task, query, sort=name, descending=query.sort == name and not query.descending)
        titles.append((address, order if name == current else ""))
    return samples_table(samples, list(shown), titles)


def _is_numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def draw_timeline(spans: Sequence[Span]) -> Drawing:
    """Draw the requests and tool calls of a sample."""
    return draw_part(Timeline(spans), "timeline of requests and tool calls")


def _filterable(samples: Samples, columns: Sequence[str], config: TaskSettings) -> list[str]:
    """The columns that samples can be filtered by."""
    written = config.get("filter_list")
    filters = (
        [str(entry.get("name")) for entry in written if isinstance(entry, Mapping)]
        if isinstance(written, list)
        else ["none"]
    )
    return [
        *(f"doc.{name}" for name in columns), *(f"answer.{name}" for name in filters),
        *(f"score.{name}" for name in samples.scores), "target", "failed", "doc_id",
    ]  # fmt: skip


def brief(row: StoredSample) -> dict[str, str]:
    """Summarize a sample in one table row: question, answer, target, scores by column."""
    texts = shown_texts(row.responses, row.replies)
    best = "" if texts else next((choice.text for choice in choice_views(row) if choice.is_best), "")
    answers = row.answers
    filtered = (
        next((as_text(answer[0]) for answer in answers.values() if answer), "") if texts and not row.trace else ""
    )
    if row.trace:  # its output is the whole state: the last answer says more
        texts = [text for number, text in enumerate(texts) if text and number not in judge_questions(row)][-1:]
    return {
        "question": _prompt_end(question_of(row)), "answer": cut((texts[0] if texts else best).strip(), MAX_TEXT),
        "filtered": cut(filtered, MAX_TEXT),
        "target": cut(target_of(row), MAX_TEXT), "failed": cut(row.failed or "", MAX_TEXT),
    }  # fmt: skip


def _prompt_end(text: str) -> str:
    """The end of a prompt, which holds the question."""
    text = text.strip()
    return text if len(text) <= MAX_QUESTION else "…" + text[-MAX_QUESTION:]


def sample_page(sources: PageSources, query: QueryParams) -> Page:
    """One sample, with links to the previous and next sample of its list."""
    run, task = sources.task(query)
    sample_query, doc, at = read_query(query), query.get("doc", ""), query.get("at", "")
    samples = sources.samples(run, task, sample_query.metric)
    row = samples.document(int(doc)) if samples is not None and doc.lstrip("-").isdecimal() and len(doc) < 19 else None
    if samples is None or row is None:
        more = "; while the task runs, only its newest samples are shown" if run.is_running else ""
        raise MissingPage(f"no document {doc!r:.40} in the samples of {task}{more}")
    better = run.higher_is_better(task)
    links = {"before": "", "behind": ""}
    if at.isdecimal() and len(at) < 12:
        before, _, behind = samples.around(sample_query, int(at))
        for name, doc_id, place in (("before", before, int(at) - 1), ("behind", behind, int(at) + 1)):
            if doc_id >= 0:
                links[name] = url_for("sample", sample_query.parameters, run=run.name, task=task, doc=doc_id, at=place,
                                      markup=query.get("markup"))  # fmt: skip
    return {
        "markup": query.get("markup") == "1", "switch": markup_links("sample", query), "timeline": draw_timeline,
        "run": run, "task": task, "line": run.line(task),
        "sample": sample_view(row, run.config(task), better, node_prices(run, task)),
        "query": sample_query,
        "kinds": KINDS, "links": links, "back": url_for("task", sample_query.parameters, run=run.name, task=task),
        "row": row, "verdicts": verdict_views(run, task, row), "labels": label_lines(run.labels.get(task), row.doc_id),
        "shown": as_text, "has_graph": bool(run.graph(task)), "others": _same_document(sources.library, run, task, row.doc_id),
    }  # fmt: skip


def markup_links(page: str, query: QueryParams) -> list[tuple[str, str, bool]]:
    """The switch between texts as they are and as rendered markdown: name, URL, and whether it is shown."""
    rest = [(key, value) for key, value in query.multi_items() if key != "markup"]
    is_rendered = query.get("markup") == "1"
    return [
        ("text", url_for(page, rest), not is_rendered),
        ("markdown", url_for(page, [*rest, ("markup", "1")]), is_rendered),
    ]


def _same_document(library: RunLibrary, run: Run, task: str, doc_id: int) -> list[tuple[str, str]]:
    """The same document in other runs of the task on the same data, those nearest in time first."""
    source = run.source(task)
    mark, own = zlib.crc32(source.encode()), run.created or 0.0
    others = [each for each in library.runs() if each.name != run.name and source and each.sources.get(task) == mark]
    others.sort(key=lambda each: abs((each.created or 0.0) - own))
    return [(each.name, url_for("sample", run=each.name, task=task, doc=doc_id)) for each in others[:MAX_OTHERS]]


def find_task(run: Run, name: str) -> str:
    """Return the name, checked to be a task of the run."""
    if name not in run.tasks and name not in run.broken:
        raise MissingPage(f"no task named {name!r:.80} in the run {run.name}")
    return name


def _open_samples(run: Run, task: str, database: Database, metric: ScoreKey | None) -> Samples | None:
    whole = run.sample_file(task)
    file = whole or newest_file(run, task, database)
    if file is None:
        return None
    stored = database.samples(file)
    line = run.line(task)
    better = {number.key: number.higher_is_better for number in line.numbers} if line is not None else {}
    main = {line.main.key: line.main.higher_is_better} if line is not None and line.main is not None else {}
    chosen = {metric: better.get(metric)} if metric is not None else {}
    key, more_is_better = choose_metric(stored.score_keys, {**chosen, **main, **better})
    scales = {number.key: number.estimate.scale for number in line.numbers} if line is not None else {}
    return Samples(
        database, stored, key, more_is_better, scales.get(key) if key is not None else None, is_live=whole is None
    )


def newest_file(run: Run, task: str, database: Database) -> SampleFile | None:
    """The newest samples of a task in progress, as they were a moment ago."""
    if not run.is_running or (path := newest_samples(run.path, task)) is None or is_outside(run.path, path):
        return None
    copy = database.snapshot(path)
    return run.sample_file_at(copy, task) if copy is not None else None


def _without_condition(sample_query: SampleQuery, number: int) -> list[tuple[str, str]]:
    """A query without one of its conditions, as URL parameters."""
    return sample_query.replace(
        conditions=(*sample_query.conditions[:number], *sample_query.conditions[number + 1 :])
    ).parameters


def task_url(run: str, task: str, sample_query: SampleQuery, **changes: str | int | bool | ScoreKey) -> str:
    """The URL of a task's page with a changed query; `without` is the index of a condition to remove."""
    without = changes.pop("without", None)
    parameters = (
        _without_condition(sample_query, without)
        if isinstance(without, int)
        else sample_query.replace(**changes).parameters
    )
    return url_for("task", parameters, run=run, task=task)


MOST_TASKS = 4
"""Tasks that are listed in a cell; others are counted."""
MOST_LETTERS = 300
"""Letters of the arguments of a call in a timeline."""


def format_time(created: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created)) if created else ""


def results_of_run(
    run: Run, lines: Sequence[ResultLine], view: str, folds: Mapping[str, str], closed: Set[str]
) -> ReportTable:
    """The results of a run: as a tree, the worst tasks first, or with a column for each metric.

    `folds` are the addresses that open or close each group.
    """

    def name_cell(line: ResultLine) -> Cell:
        return _name_cell(run, line, folds, line.name in closed)

    if view == "columns":
        return _metrics_as_columns(run, [(line, name_cell(line)) for line in lines])
    return results_page_table(lines, name_cell, main_only=view == "worst")


def _name_cell(run: Run, line: ResultLine, folds: Mapping[str, str], is_closed: bool) -> Cell:
    if line.is_group:
        return PartsCell([FoldCell(line.alias, folds[line.name], is_closed), TextCell(line.alias, "bold")], line.name)
    parts: list[Cell] = [FoldCell(line.alias, "", is_closed=False)] if line.depth else []
    parts.append(TextCell(line.alias) if line.not_run else task_link(run, line, opens_line=True))
    if run.graph(line.name):
        parts.append(LinkCell("graph", url_for("graph", run=run.name, task=line.name), "dim"))
    return PartsCell(parts, line.name)


def task_link(run: Run, line: ResultLine, *, opens_line: bool = False) -> LinkCell:
    """A link to the page of a task."""
    return LinkCell(line.alias, url_for("task", run=run.name, task=line.name), opens_line=opens_line)


def _metrics_as_columns(run: Run, named: Iterable[tuple[ResultLine, Cell]]) -> ReportTable:
    keys = list(dict.fromkeys(row.key for line in run.lines for row in table_rows(line.numbers)))
    lines = []
    for line, name in named:
        rows = {row.key: row for row in line.numbers}
        cells = [_hinted_value(line, rows[key]) if key in rows else "" for key in keys]
        if line.not_run:
            cells = [PartsCell([TextCell("not run", "worse"), TextCell(line.not_run, "dim")])]
        lines.append(TableLine([name, *cells], line.depth))
    return ReportTable([Column("Task"), *(_score_column(key) for key in keys)], lines)


def _hinted_value(line: ResultLine, row: Row) -> Cell:
    hint = f"{cell_text(interval_cell(row.estimate))}, n {cell_text(documents_cell(line, row))}"
    return PartsCell([NumberCell(row.estimate.value, digits=4, mark="*" if line.coverage else "")], hint)


def _score_column(key: ScoreKey, address: str = "", order: Order = "") -> Column:
    title = key.metric if key.filter == "none" else f"{key.metric}\n{key.filter}"
    return Column(title, align="right", address=address, order=order)


def lowest_table(run: Run, lines: Iterable[ResultLine]) -> ReportTable:
    """The tasks with the lowest main numbers, with links to their samples."""
    table_lines = []
    for line in lines:
        row = line.main
        if row is None:
            continue
        samples: Cell = ""
        if line.scorer and row.metric == line.scorer:
            samples = LinkCell("lowest samples", url_for("task", run=run.name, task=line.name))
        elif (row.estimate.value or 0.0) < 1:
            samples = LinkCell("wrong samples", url_for("task", run=run.name, task=line.name, show="wrong"))
        value = NumberCell(row.estimate.value, digits=4)
        table_lines.append(TableLine([task_link(run, line), value, bar_cell(row), samples]))
    return ReportTable([Column("")] * 4, table_lines)


def flags_table(run: Run, counts: Mapping[str, int], tasks: Mapping[str, Sequence[ResultLine]]) -> ReportTable:
    """The flags of the audit with their number, and links to the samples of the first tasks that have them."""
    lines = []
    for flag, count in counts.items():
        if count:
            name = PartsCell([TextCell(flag.replace("_", " "))], KINDS[flag])
            links: list[Cell] = [
                LinkCell(line.alias, url_for("task", run=run.name, task=line.name, audit=flag))
                for line in tasks[flag][:MOST_TASKS]
            ]
            more = len(tasks[flag]) - MOST_TASKS
            lines.append(TableLine([name, CountCell(count), PartsCell([*links, f"+{more}" if more > 0 else ""])]))
    return ReportTable([Column(""), Column("", align="right"), Column("")], lines)


def runs_table(
    runs: Iterable[IndexedRun], sort: str, *, descending: bool, parameters: Sequence[tuple[str, str]]
) -> ReportTable:
    """Runs with their main results; titles lead to the table sorted by their columns."""

    def column(key: str, title: str, align: Align = "left", drop: int | None = None) -> Column:
        is_sorted = key == sort
        address = url_for("", parameters, sort=key, desc="0" if is_sorted and descending else "1")
        order: Order = ("descending" if descending else "ascending") if is_sorted else ""
        return Column(title, align=align, drop=drop, address=address, order=order)

    columns = [
        column("name", "Run"),
        column("model", "Model"),
        Column("Tasks", drop=1),
        column("score", "Headline", "right"),
        Column("95 %", "interval"),
        column("n", "n", "right"),
        column("failed", "failed", "right"),
        column("cost", "cost", "right"),
        column("seconds", "duration", "right"),
        column("created", "started"),
        Column("status"),
    ]
    return ReportTable(columns, [TableLine(_run_cells(run)) for run in runs])


def _run_cells(run: IndexedRun) -> list[Cell]:
    name = LinkCell(run.name, url_for("run", run=run.name), opens_line=True)
    tags = [LinkCell(tag, url_for("", tag=tag), is_tag=True) for tag in run.tags]
    settings = [TextCell(f"{key}={value}", "dim") for key, value in run.settings.items()]
    more = len(run.tasks) - MOST_TASKS
    tasks = ", ".join(run.tasks[:MOST_TASKS]) + (f" +{more}" if more > 0 else "")
    count: Cell = CountCell(run.headline_n or None)
    if run.headline is not None:
        count = PartsCell([count], f"samples of the headline; {run.n:,} in the whole run")
    return [
        PartsCell([CheckCell(run.name), name, *tags]),
        PartsCell([TextCell(run.model), *settings]),
        TextCell(tasks),
        *_headline_cells(run),
        count,
        CountCell(run.failed, style="worse" if run.failed else ""),
        MoneyCell(run.cost),
        DurationCell(run.seconds),
        format_time(run.created),
        TextCell(run.status, "" if run.status in ("complete", RUNNING) else "worse"),
    ]


def _headline_cells(run: IndexedRun) -> list[Cell]:
    if run.problem:
        return [TextCell(f"cannot be read: {run.problem}", "worse"), ""]
    row = run.headline
    if row is None:
        return [ProgressCell(run.done or 0, run.expected or 0) if run.is_running else "", ""]
    value, interval, _ = estimate_cells(row)
    if run.is_running:
        done = ProgressCell(run.done or 0, run.expected or 0)
        return [PartsCell([done, TextCell(row.metric, "dim"), value, TextCell("provisional", "dim")]), interval]
    return [PartsCell([TextCell(row.metric, "dim"), value], keys=("metric", "value")), interval]


def numbers_of_task(line: ResultLine, samples: Samples | None, addresses: Mapping[ScoreKey, str]) -> ReportTable:
    """The numbers of a task; each leads to the samples sorted by it."""
    rows = []
    for row in table_rows(line.numbers):
        metric = MetricCell(row.metric, row.filter, row.higher_is_better, addresses.get(row.key, ""))
        hint = "show and sort the samples by this metric" if metric.address else ""
        rows.append((row, PartsCell([metric], hint), samples is not None and row.key == samples.metric))
    return numbers_table(rows)


def samples_table(
    samples: Samples,
    shown: Sequence[tuple[StoredSample, str, Mapping[str, str]]],
    titles: Sequence[tuple[str, Order]],
) -> ReportTable:
    """A page of samples: of each its address and its texts in short.

    `titles` are of the documents' numbers and of each score the address of the page sorted by it, and how it is sorted now.

    Columns that are empty in every sample are left out, as are targets that are the prompt.
    """
    more_scores = _further_scores(samples, [row for row, _, _ in shown])
    has_answers = any(row.choices or row.failed or brief["answer"] for row, _, brief in shown)
    has_targets = any(target_of(row) != row.prompt for row, _, _ in shown)
    columns = [
        Column("doc", align="right", address=titles[0][0], order=titles[0][1]),
        Column("question", has_texts=True),
        *([Column("answer", has_texts=True)] if has_answers else []),
        *([Column("target", has_texts=True)] if has_targets else []),
        *(_score_column(key, *title) for key, title in zip(samples.scores, titles[1:], strict=True)),
        *(_score_column(key) for key in more_scores),
        Column("audit"),
    ]
    lines = []
    for row, address, brief in shown:
        scores = [
            TextCell(
                "–" if value is None else format_trimmed(value), "worse" if value is not None and value <= 0 else ""
            )
            for value in samples.values(row)
        ]
        cells: list[Cell] = [
            LinkCell(str(row.doc_id), address, opens_line=True),
            brief["question"],
            *([_answer_cell(brief)] if has_answers else []),
            *([brief["target"]] if has_targets else []),
            *scores,
            *(NumberCell(value, digits=4) for value in sample_scores(row.scores, more_scores)),
            TextCell(", ".join(row.audit or ()).replace("_", " "), "dim"),
        ]
        lines.append(TableLine(cells))
    return ReportTable(columns, lines, "Samples")


def _further_scores(samples: Samples, rows: Sequence[StoredSample]) -> list[ScoreKey]:
    """The scores that the samples of a page have besides those of all samples."""
    keys = dict.fromkeys(key for row in rows for key in row.scores if key not in samples.scores)
    return [key for key in keys if any(sample_scores(row.scores, [key]) != [None] for row in rows)]


def _answer_cell(brief: Mapping[str, str]) -> Cell:
    parts: list[Cell] = [brief["answer"]]
    if brief["filtered"] and brief["filtered"] != brief["answer"]:
        parts += [TextCell("→", "dim"), brief["filtered"]]
    return PartsCell([*parts, TextCell(brief["failed"], "worse")])


def choices_table(sample: SampleView) -> ReportTable:
    """The choices of a sample with their log-likelihoods."""
    is_several = len(sample.choices) > 1
    is_alone = sample.choices[0].without_context is not None
    columns = [
        *([Column("which")] if is_several else []),
        Column("continuation", has_texts=True),
        Column("log-lik.", align="right", hint="log-likelihood"),
        Column("/ char", align="right", hint="log-likelihood by characters: acc_norm"),
        Column("/ byte", align="right", hint="log-likelihood by bytes: acc_bytes"),
        *(
            [Column("− alone", align="right", hint="minus its log-likelihood without the context: acc_mutual_info")]
            if is_alone
            else []
        ),
        *([Column("share", align="right", hint="its share among all choices")] if is_several else []),
        Column("greedy", hint="whether every token was the likeliest"),
    ]
    lines = []
    for choice in sample.choices:
        right = TextCell("right" if choice.is_gold else "", "better")
        chosen = TextCell("chosen" if choice.is_best else "", "bold")
        numbers = [choice.per_character, choice.per_byte]
        numbers += [choice.without_context] if is_alone else []
        numbers += [choice.share] if is_several else []
        cells: list[Cell] = [
            *([PartsCell([right, chosen], separator=" · ")] if is_several else []),
            choice.text,
            "−∞" if choice.value is None else NumberCell(choice.value, digits=4),
            *(NumberCell(number, digits=4) for number in numbers),
            "yes" if choice.greedy else "",
        ]
        lines.append(TableLine(cells, style="chosen" if choice.is_best else ""))
    return ReportTable(columns, lines)


def timeline_table(sample: SampleView) -> ReportTable:
    """The requests and tool calls of a sample, one after another."""
    rows = (
        (span.name, span.kind, NumberCell(span.seconds, digits=3), cut(span.note, MOST_LETTERS))
        for span in sample.spans
    )
    return make_table(["what", "by", *number_columns("seconds"), Column("details", has_texts=True)], rows)


def scores_table(sample: SampleView) -> ReportTable:
    """The scores of a sample; without the column of filters where none has a name."""
    has_filters = any(name != "none" for _, name, _, _ in sample.scores)
    columns = [
        Column("metric"),
        *([Column("filter")] if has_filters else []),
        Column("value", align="right", has_texts=True),
    ]
    lines = []
    for metric, name, value, is_bad in sample.scores:
        is_good = is_bad is False and float(value) >= 1
        score = TextCell(value, "worse" if is_bad else "better" if is_good else "")
        lines.append(TableLine([metric, *([name] if has_filters else []), score]))
    return ReportTable(columns, lines)


def points_table(columns: Sequence[str], records: Iterable[Mapping[str, Any]], *, is_over_time: bool) -> ReportTable:
    """The points of a chart over many runs, each with a link to its run."""
    times = {"created", "at"} if is_over_time else {"created"}
    rows = ([_point_cell(name, record[name], times) for name in columns] for record in records)
    return make_table([name.replace("_", " ") for name in columns], rows)


def _point_cell(name: str, value: Any, times: Set[str]) -> Cell:
    if name == "run":
        return LinkCell(value, url_for("run", run=value), opens_line=True)
    if value is None:
        return ""
    if name in times:
        return format_time(value)
    return format_short(value, 3) if isinstance(value, float) else str(value)


def compared_name(run: str, row: ComparedRow) -> Cell:
    """The name of a compared row; a task's leads to its page in a run."""
    if row.kind == "group":
        return PartsCell([TextCell(row.alias, "bold")], row.name)
    return PartsCell([LinkCell(row.alias, url_for("task", run=run, task=row.name), opens_line=True)], row.name)
