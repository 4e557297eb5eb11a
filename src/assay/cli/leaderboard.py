"""`assay leaderboard`: rank the models of runs, with intervals."""

import argparse
import math
from collections.abc import Sequence

from assay.cli.output import echo, echo_err, echo_json, echo_table
from assay.comparison.leaderboard import Leaderboard, Ranking, Standing, leaderboard
from assay.config.record_json import json_values
from assay.errors import ConfigError
from assay.number_text import format_level
from assay.records import JSONDict
from assay.report.page_tables import short_cells
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
from assay.report.table_writers import Value, csv_text
from assay.score_keys import metric_title
from assay.statistics.paired import PairedDifference
from assay.statistics.ratings import Rating

CSV = ("board", "metric", "filter", "pool", "rank", "rank_low", "rank_high", "name", "value", "low", "high", "n", "wins", "ties",
       "losses", "difference", "difference_low", "difference_high", "p")  # fmt: skip

RATING = (
    "name",
    "pool",
    "rank",
    "ranks",
    "rating",
    "stderr",
    "low",
    "high",
    "wins",
    "ties",
    "losses",
    "documents",
    "reason",
)
"""The keys of a rating in JSON, in the order that people read them."""


def run_leaderboard(options: argparse.Namespace) -> int:
    board = leaderboard(
        options.runs,
        tasks=options.tasks,
        metrics=options.metrics,
        names=parse_names(options.name),
        level=options.level,
        allow_different_prompts=options.allow_different_prompts,
    )
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
    rows: list[Sequence[Value]] = []
    for rating in board.ratings:
        values = _rating_values(rating)
        numbers = [values[name] for name in ("rating", "low", "high", "documents", "wins", "ties", "losses")]
        name = ("ratings", None, None, rating.pool, rating.rank, *rating.ranks, rating.name)
        rows.append([*name, *numbers, None, None, None, None])
    for ranking in board.rankings:
        for row in ranking.standings:
            values = json_values(row)
            about = (ranking.name, ranking.metric, ranking.filter, None, row.rank, *row.ranks, row.name)
            numbers = [values[name] for name in ("value", "low", "high", "n")]
            rows.append([*about, *numbers, None, None, None, *(values[name] for name in CSV[-4:])])
    return csv_text(CSV, rows)
