"""`assay report`, `assay table`, `assay leaderboard` and `assay plot`: runs as one file, side by side, in order, as pictures."""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from assay.cli.flags import given
from assay.cli.output import echo, echo_err, echo_json, echo_table
from assay.comparison.leaderboard import Leaderboard, Ranking, Standing, leaderboard
from assay.config.record_json import json_values
from assay.errors import ConfigError
from assay.number_text import format_level
from assay.records import JSONDict
from assay.report.page_tables import short_cells
from assay.report.pictures import Picture, check_target, plot
from assay.report.report_table import (
    Cell,
    Column,
    CountCell,
    IntervalCell,
    NumberCell,
    PValueCell,
    ReportTable,
    make_table,
    number_columns,
)
from assay.report.runs_table import RunsTableOptions, metadata_table, runs_table
from assay.report.table_writers import csv_text, write_csv, write_html, write_json, write_latex, write_markdown
from assay.report.write import format_of_file, report_text, write_report
from assay.runs.extensions import ReportOptions
from assay.runs.files import new_file
from assay.runs.folder import RunError
from assay.runs.storage import refuse_url
from assay.score_keys import metric_title
from assay.statistics.paired import PairedDifference
from assay.statistics.ratings import Rating

T = TypeVar("T")


def run_report(options: argparse.Namespace) -> int:
    path = options.output_path
    name = options.format or (format_of_file(Path(path)) if path is not None else "html")
    parameters = given(options, "tasks", "samples", "allow_different_prompts")
    report_options = ReportOptions(columns=options.slice, **parameters)
    if path == "-" or (path is None and name != "html"):
        text, is_whole = of_readable_runs(options.runs, lambda runs: report_text(runs, name, report_options))
        sys.stdout.write(text)
    else:
        target = path or "report.html"
        written, is_whole = of_readable_runs(
            options.runs, lambda runs: write_report(runs, target, format=name, options=report_options)
        )
        echo(f"{written}: {written.stat().st_size:,} bytes")
    return 0 if is_whole else 1


def of_readable_runs(runs: Sequence[str], make: Callable[[Sequence[str]], T], needed: int = 0) -> tuple[T, bool]:
    """Return the result of `make` for the runs that can be read, and whether all can; the problems of the others are printed.

    An error of all, or of one of the first `needed`, is raised.
    """
    left = list(runs)
    while True:
        try:
            return make(left), len(left) == len(runs)
        except RunError as error:
            damaged = {_run_of(problem.place.file, left) for problem in error.problems}
            if None in damaged or len(left) - len(damaged) <= needed or not damaged.isdisjoint(left[:needed]):
                raise
            for problem in error.problems:
                echo_err(f"left out: {problem}")
            left = [run for run in left if run not in damaged]


def _run_of(file: str, runs: Sequence[str]) -> str | None:
    """The run whose folder a file is in; a scoring is in the folder of its run, too."""
    around = [run for run in runs if Path(file).is_relative_to(run)]
    return max(around, key=len, default=None)


TO_STDOUT = "-"


def run_plot(options: argparse.Namespace) -> int:
    target = options.output or f"{options.kind}.svg"
    if target != TO_STDOUT:
        check_target(Path(target))  # before any run is read
    picture = plot(options.runs, options.kind, **given(options, "tasks", "metric", "over", "title"))
    write_picture(picture, target)
    return 0


def write_picture(picture: Picture, target: str) -> None:
    """Write a picture, and its path; or its SVG where the target is `-`."""
    if target == TO_STDOUT:
        sys.stdout.write(picture.svg)
    else:
        echo(f"plot: {picture.save(target).resolve()}")


WRITERS: Mapping[str, Callable[[ReportTable], str]] = {
    "latex": write_latex,
    "md": write_markdown,
    "html": write_html,
    "csv": write_csv,
    "json": write_json,
}
SUFFIXES = {".tex": "latex", ".md": "md", ".html": "html", ".csv": "csv", ".json": "json"}
MOST_COLUMNS = 8
"""More columns of numbers with their errors than that are wider than a page."""


def run_table(options: argparse.Namespace) -> int:
    path = None if options.output_path in (None, "-") else Path(options.output_path)
    if path is not None:
        refuse_url(path)
    form = options.format or (_format_of_file(path) if path is not None else "terminal")
    chosen = RunsTableOptions(
        names=parse_names(options.name),
        spread=options.error,
        transposed=options.transpose,
        **given(options, "tasks", "metrics", "level", "digits", "allow_different_prompts"),
    )
    table, is_whole = of_readable_runs(
        options.runs,
        lambda runs: runs_table(runs, chosen) if options.by is None else metadata_table(runs, options.by, chosen),
    )
    if form == "latex" and len(table.columns) > MOST_COLUMNS + 1:
        echo_err(f"note: {len(table.columns)} columns may be wider than a page; --transpose has a line for each task")
    if path is not None:
        text = write_markdown(table) + "\n" if form == "terminal" else WRITERS[form](table)
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
        echo(f"{path}: {len(table.lines)} lines of {len(table.columns)} columns")
    elif form == "terminal":
        echo_table(table)
    else:
        sys.stdout.write(WRITERS[form](table).rstrip("\n") + "\n")
    return 0 if is_whole else 1


def _format_of_file(path: Path) -> str:
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        what, fix = f"unsupported file name '{path.name}'", f"end it in {', '.join(SUFFIXES)}, or give --format"
        raise ConfigError.at(path, what, fix)
    return form


CSV = ("board", "metric", "filter", "pool", "rank", "rank_low", "rank_high", "name", "value", "low", "high", "n", "wins", "ties",
       "losses", "difference", "difference_low", "difference_high", "p")  # fmt: skip
RATING = ("name", "pool", "rank", "ranks", "rating", "stderr", "low", "high", "wins", "ties", "losses", "documents",
          "reason")  # fmt: skip
"""The keys of a rating in JSON, in the order that people read them."""


def run_leaderboard(options: argparse.Namespace) -> int:
    parameters = given(options, "tasks", "metrics", "level", "allow_different_prompts")
    board = leaderboard(options.runs, names=parse_names(options.name), **parameters)
    if options.format == "json":
        echo_json(leaderboard_json(board))
    elif options.format == "csv":
        echo(leaderboard_csv(board).rstrip("\n"))
    else:
        for number, table in enumerate(leaderboard_tables(board)):
            if number:
                echo()
            echo_table(table)
    for note in board.notes:
        echo_err(f"note: {note}")
    return 0


def parse_names(written: Sequence[str]) -> dict[str, str]:
    """Read the values of --name: new names by the old ones."""
    pairs = [each.partition("=") for each in written]
    wrong = next((each for each, (old, _, new) in zip(written, pairs, strict=True) if not old or not new), None)
    if wrong is not None:
        raise ConfigError.at("--name", f"invalid name {wrong!r}", "write OLD=NEW")
    return {old: new for old, _, new in pairs}


def leaderboard_json(board: Leaderboard) -> object:
    """The leaderboard as JSON; an open end of an interval is null."""
    return {
        **json_values(board),
        "ratings": [_rating_values(rating) for rating in board.ratings],
        "rankings": [
            {**json_values(ranking), "standings": [json_values(standing) for standing in ranking.standings]}
            for ranking in board.rankings
        ],
    }


def _rating_values(rating: Rating) -> JSONDict:
    values = json_values(rating)
    values |= {end: None for end in ("low", "high") if values[end] in (math.inf, -math.inf)}
    return {name: values[name] for name in RATING}


def leaderboard_tables(board: Leaderboard) -> list[ReportTable]:
    """A table for each pool of rated models, and for each ranking."""
    pools = dict.fromkeys(rating.pool for rating in board.ratings)
    tables = [_rating_table(board, [rating for rating in board.ratings if rating.pool == pool]) for pool in pools]
    return tables + [_ranking_table(board, ranking) for ranking in board.rankings]


def _rating_table(board: Leaderboard, ratings: Sequence[Rating]) -> ReportTable:
    interval = Column(format_level(board.level), "interval", align="right")
    rows: list[list[Cell]] = []
    for rating in ratings:
        number, games = rating.estimate, f"{rating.wins}/{rating.ties}/{rating.losses}"
        value, ends = NumberCell(number.value, digits=0), IntervalCell(number.low, number.high, digits=0)
        rows.append([*_name_cells(rating), value, ends, games, CountCell(number.n)])
    return make_table(
        [*NAMED, *number_columns("Rating"), interval, "wins/ties/losses", *number_columns("documents")], rows
    )


def _ranking_table(board: Leaderboard, ranking: Ranking) -> ReportTable:
    columns = [
        *NAMED,
        *number_columns("Value"),
        Column("95 %", "interval", align="right"),  # the run's own; that of the difference has the board's level
        *number_columns("n"),
        Column("to the first", "difference", align="right", drop=3),
        Column(f"{format_level(board.level)} of it", "difference_interval", align="right", drop=1),
        Column("p", align="right", drop=2),
    ]
    rows: list[list[Cell]] = []
    for standing in ranking.standings:
        numbers = short_cells(standing.estimate)
        rows.append([*_name_cells(standing), *numbers, *_difference_cells(standing.difference)])
    direction = "higher is better" if ranking.higher_is_better else "lower is better"
    metric = metric_title(ranking.metric, ranking.filter)
    return make_table(columns, rows, f"{ranking.name}: {metric}, {direction}")


def _difference_cells(difference: PairedDifference | None) -> list[Cell]:
    if difference is None:
        return ["", IntervalCell(None, None), PValueCell(None)]
    number = NumberCell(difference.value, digits=4, is_signed=True)
    return [number, IntervalCell(difference.low, difference.high), PValueCell(difference.p)]


NAMED = [*number_columns("Rank"), Column("ranks"), Column("Model")]


def _name_cells(ranked: Rating | Standing) -> list[Cell]:
    """The rank of a model, the ranks that it may have, and its name."""
    return [CountCell(ranked.rank), "–".join(map(str, dict.fromkeys(ranked.ranks))), ranked.name]


def leaderboard_csv(board: Leaderboard) -> str:
    """Every row of every board."""
    rows: list[JSONDict] = []
    for rating in board.ratings:
        values = _rating_values(rating)
        rows.append({**values, "board": "ratings", "value": values["rating"], "n": values["documents"]})
    for ranking in board.rankings:
        about = {"board": ranking.name, "metric": ranking.metric, "filter": ranking.filter}
        rows += [json_values(standing) | about for standing in ranking.standings]
    for row in rows:
        row["rank_low"], row["rank_high"] = row["ranks"]
    return csv_text(CSV, [[row.get(name) for name in CSV] for row in rows])
