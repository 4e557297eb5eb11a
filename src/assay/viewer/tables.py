"""The tables of the viewer's pages, with their links; the tables that reports have, too, are in report/page_tables.py."""

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from assay.number_text import format_short, format_trimmed
from assay.report.index import IndexedRun
from assay.report.page_tables import bar_cell, estimate_cells, numbers_table, results_page_table
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
from assay.runs.lines import ResultLine
from assay.runs.run import RUNNING, Run
from assay.runs.samples.records import StoredSample
from assay.safe_text import cut
from assay.score_keys import ScoreKey
from assay.tasks.audit import KINDS
from assay.viewer.query import url_for
from assay.viewer.sample_page import SampleView, sample_scores, target_of
from assay.viewer.samples import Samples

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
