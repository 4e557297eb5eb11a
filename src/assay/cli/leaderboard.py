"""`assay leaderboard`: rank the models of runs, with intervals."""

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import asdict

from assay.cli.flags import add_table_options
from assay.cli.output import draw_table, echo, echo_err, echo_json, wrapped_text
from assay.comparison.leaderboard import Leaderboard, Ranking, leaderboard
from assay.errors import ConfigError, Place, Problem
from assay.number_text import format_decimal, format_interval, format_p, format_signed
from assay.safe_text import spreadsheet_text
from assay.statistics.ratings import Rating

RATED = ("Rank", "ranks", "Model", "Rating", "95 %", "wins/ties/losses", "documents")
RANKED = ("Rank", "ranks", "Model", "Value", "95 %", "n", "to the first", "95 % of it", "p")
CSV = ("board", "metric", "filter", "pool", "rank", "rank_low", "rank_high", "name", "value", "low", "high", "n", "wins", "ties",
       "losses", "difference", "difference_low", "difference_high", "p")  # fmt: skip


def define_leaderboard(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs, or of scorings (RUN/scored/001), one for each model")
    add("--tasks", "-t", nargs="+", default=[], metavar="NAME", help="only these: names, globs, groups")
    add("--metrics", nargs="+", default=[], metavar="NAME", help="rank by these, besides pairwise verdicts (default: the first"
        " metric of every task or group that is in no other; none where there are verdicts)")  # fmt: skip
    add("--name", action="append", default=[], metavar="OLD=NEW", help="another name for a run or a baseline; a baseline that is"
        " also a run gets its name; repeatable")  # fmt: skip
    add(
        "--level",
        type=float,
        default=0.95,
        metavar="P",
        help="confidence of intervals, and of all ranks together (0.95)",
    )
    add("--allow_different_prompts", action="store_true", help="rank runs whose prompts differ, too")
    add_table_options(parser, "json", "csv")
    add("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    add("--csv", action="store_const", const="csv", dest="format", help="the same as --format csv")
    parser.set_defaults(run=run_leaderboard)


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
        echo(leaderboard_text(board))
    for note in board.notes:
        echo_err(f"note: {note}")
    return 0


def parse_names(written: Sequence[str]) -> dict[str, str]:
    """Read the values of --name: new names by the old ones."""
    pairs = [each.partition("=") for each in written]
    wrong = next((each for each, (old, _, new) in zip(written, pairs, strict=True) if not old or not new), None)
    if wrong is not None:
        raise ConfigError([Problem(Place("--name"), f"invalid name {wrong!r}", "write OLD=NEW")])
    return {old: new for old, _, new in pairs}


def leaderboard_json(board: Leaderboard) -> object:
    """The leaderboard as JSON; an open end of an interval is null."""
    return {
        **asdict(board),
        "ratings": [
            {**asdict(each), "low": _finite(each.low), "high": _finite(each.high), "ranks": list(each.ranks)}
            for each in board.ratings
        ],
    }


def _finite(number: float | None) -> float | None:
    return None if number is None or number in (float("inf"), float("-inf")) else number


def leaderboard_text(board: Leaderboard) -> str:
    level = f"{board.level * 100:g} %"
    blocks = []
    for pool in dict.fromkeys(each.pool for each in board.ratings):
        header = [cell.replace("95 %", level) for cell in RATED]
        blocks.append(draw_table(header, [_rated(each) for each in board.ratings if each.pool == pool]))
    for ranking in board.rankings:
        header = [cell.replace("95 % of it", f"{level} of it") for cell in RANKED]  # values have the run's own
        direction = "higher is better" if ranking.higher_is_better else "lower is better"
        filtered = "" if ranking.filter == "none" else f" ({ranking.filter})"
        blocks.append(
            wrapped_text(f"{ranking.name}: {ranking.metric}{filtered}, {direction}\n")
            + draw_table(header, _ranked(ranking), drop=[header[each] for each in (7, 8, 6)])
        )
    return "\n\n".join(blocks)


def _ranks(ranks: tuple[int, int]) -> str:
    return f"{ranks[0]}" if ranks[0] == ranks[1] else f"{ranks[0]}–{ranks[1]}"


def _rated(each: Rating) -> tuple[str, ...]:
    ends = "" if each.low is None or each.high is None else f"{each.low:.0f} … {each.high:.0f}"
    counts = f"{each.wins}/{each.ties}/{each.losses}"
    return (str(each.rank), _ranks(each.ranks), each.name, f"{each.rating:.0f}", ends.replace("inf", "∞"), counts,
            f"{each.documents}")  # fmt: skip


def _ranked(ranking: Ranking) -> list[tuple[str, ...]]:
    return [
        (
            str(each.rank), _ranks(each.ranks), each.name, format_decimal(each.value), format_interval(each.low, each.high),
            f"{each.n}", "" if each.difference is None else format_signed(each.difference),
            format_interval(each.difference_low, each.difference_high), format_p(each.p),
        )
        for each in ranking.standings
    ]  # fmt: skip


def leaderboard_csv(board: Leaderboard) -> str:
    """Every row of every board."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV)
    for each in board.ratings:
        writer.writerow(["ratings", "", "", each.pool, each.rank, *each.ranks, spreadsheet_text(each.name), each.rating,
                         _finite(each.low), _finite(each.high), each.documents, each.wins, each.ties, each.losses])  # fmt: skip
    for ranking in board.rankings:
        about = [spreadsheet_text(text) for text in (ranking.name, ranking.metric, ranking.filter)]
        for row in ranking.standings:
            apart = (row.difference, row.difference_low, row.difference_high, row.p)
            writer.writerow([*about, "", row.rank, *row.ranks, spreadsheet_text(row.name), row.value, row.low, row.high, row.n,
                             "", "", "", *apart])  # fmt: skip
    return out.getvalue()
