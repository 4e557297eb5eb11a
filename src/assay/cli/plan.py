"""`assay plan`: how many documents or repeats it takes to see a difference."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict

from assay.cli.options import add_catalog_options, task_manager
from assay.cli.output import say, say_json, tell
from assay.comparison.planning import Aim, Planned, Unknown, planned_from_runs, planned_from_tasks
from assay.config.row_names import row_key
from assay.errors import ConfigError, Place, Problem
from assay.records import ScoreKey
from assay.report.table import markdown_table

HEADER = ("Tasks", "Metric", "n", "needed", "enough", "found with all", "repeats of all")
NONE = "none would do"


MOST = 0.5
"""A larger difference without a unit is taken for a slip: shares lie between 0 and 1."""
OWN_UNITS = ("bits_per_byte", "bleu", "chrf", "chrf++", "ter")


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "tasks",
        nargs="*",
        metavar="TASK",
        help="tasks and groups; with --baseline those of the run where none is named",
    )
    add(
        "--mde",
        required=True,
        metavar="SIZE",
        help="the difference that must be seen: 1pp, or in the metric's units 0.05",
    )
    add("--baseline", nargs="+", metavar="RUN", help="a run whose spread is taken; or two, whose differences are")
    add("--metric", metavar="NAME", help="plan for this one (default: the first of each task)")
    add("--power", type=float, default=0.8, metavar="P", help="how surely it must be seen (0.8)")
    add("--alpha", type=float, default=0.05, metavar="P", help="how often none may be seen as one (0.05)")
    add("--repeats", type=int, default=1, metavar="N", help="how often each document is asked (1)")
    add("--correlation", type=float, default=0.5, metavar="R", help="of two models' scores on the same documents, where no"
        " second run tells it (0.5)")  # fmt: skip
    add("--format", choices=["table", "json"], default="table")
    add_catalog_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    aim = _aim(options)
    found = _from_runs(options, aim) if options.baseline else _from_tasks(options, aim)
    if options.format == "json":
        say_json({"aim": asdict(aim), "rows": [{**asdict(each), "enough": each.is_enough} for each in found]})
    else:
        say(markdown_table(HEADER, [_cells(each) for each in found]))
        for line in _said(options, aim, found):
            say(line)
    return 0


def _aim(options: argparse.Namespace) -> Aim:
    size = re.fullmatch(r"(\d+\.?\d*|\.\d+)(pp)?", options.mde.replace(" ", ""))
    shares = ("power", "alpha")
    wrong = [name for name in shares if not 0 < getattr(options, name) < 1]
    problems = [Problem(Place(f"--{name}"), "lies between 0 and 1") for name in wrong]
    if size is None or not float(size[1]):
        problems.append(Problem(Place("--mde"), f"{options.mde!r} is no difference", "write 1pp, or 0.05"))
    elif not size[2] and float(size[1]) > MOST and not _has_own_unit(options.metric or ""):
        what = f"a difference of {size[1]} is that of {float(size[1]) * 100:g} percentage points"
        fix = f"write {size[1]}pp, or {float(size[1]) / 100:g}; of a number that is no share, name its --metric"
        problems.append(Problem(Place("--mde"), what, fix))
    if not -1 <= options.correlation < 1:
        problems.append(Problem(Place("--correlation"), "lies between -1 and 1"))
    if options.repeats < 1:
        problems.append(Problem(Place("--repeats"), "is 1 or more"))
    if problems or size is None:
        raise ConfigError(problems)
    share = float(size[1]) / (100 if size[2] else 1)
    return Aim(share, options.power, options.alpha, options.repeats, options.correlation)


def _from_runs(options: argparse.Namespace, aim: Aim) -> list[Planned]:
    from assay.comparison.lines import below
    from assay.runs.run import Run

    if len(options.baseline) > 2:
        raise ConfigError([Problem(Place("--baseline"), "one run or two", "name a run, or two to be compared")])
    runs = [Run.open(each).finished() for each in options.baseline]
    names = [*runs[0].groups, *runs[0].scored_tasks]
    wanted = set().union(*(below(runs[0], each, set(names)) for each in options.tasks)) if options.tasks else set(names)
    found = planned_from_runs(runs, [name for name in names if name in wanted], options.metric, aim)
    told = {each.name for each in found}
    lost = [name for name in names if name in wanted and name not in told and runs[0].rows(name)]
    if lost and options.metric is None:
        tell(f"their spread is not known: {', '.join(lost)}")
    return found


def _from_tasks(options: argparse.Namespace, aim: Aim) -> list[Planned]:
    from assay.config.run import RunConfig
    from assay.evaluation.flow import Run

    if not options.tasks:
        raise ConfigError(
            [Problem(Place("assay plan"), "no task is named", "name tasks or groups, or a --baseline RUN")]
        )
    made = Run(RunConfig(tasks=options.tasks), task_manager(options))
    made.prepare()
    for name, why in made.broken.items():
        tell(f"{name}: {why}")
    tasks = {}
    for each in (one.runnable for one in made.tasks if one.runnable.size):
        keys = each.rows() or [ScoreKey(metric, "none") for metric in each.higher_is_better()]
        tasks[each.task.name] = Unknown.of(keys, each.size, each.source or each.task.name, aim)
    found = planned_from_tasks(tasks, made.loaded["groups"].values(), aim)
    lost = {*made.loaded["groups"]} - {each.name for each in found}
    if lost:
        tell(f"no number of their own, or none with a spread that is known: {', '.join(sorted(lost))}")
    return found


def _has_own_unit(metric: str) -> bool:
    """Whether a metric is no share, so that percentage points say nothing of it."""
    name = row_key(metric).metric
    return name.endswith("perplexity") or name in OWN_UNITS


def _size(size: float, metric: str, digits: int = 2) -> str:
    """A difference in the unit of its metric.

    >>> _size(0.0047, "acc"), _size(0.0047, "word_perplexity")
    ('0.47pp', '0.0047')
    """
    return f"{size:.4g}" if _has_own_unit(metric) else f"{size * 100:.{digits}f}pp"


def _cells(each: Planned) -> tuple[str, ...]:
    reached = _size(each.mde, each.metric) if each.mde is not None else "–"
    repeats = "–" if each.documents is None else str(each.repeats_needed or NONE)
    enough = {True: "yes", False: "no", None: "–"}[each.is_enough]
    return each.name, each.metric, str(each.documents or "–"), str(each.needed), enough, reached, repeats


def _said(options: argparse.Namespace, aim: Aim, found: Sequence[Planned]) -> list[str]:
    """What the figures rest on."""
    units = {_has_own_unit(each.metric) for each in found}
    size = f"{aim.mde:g}" if units == {True} else f"{aim.mde * 100:g}pp" + (f" ({aim.mde:g})" if True in units else "")
    how = f"to see {size} with power {aim.power:g} at alpha {aim.alpha:g}, two models on the same documents"
    if not options.baseline:
        rests = f"rests on rates of 0.5 (the worst case) and a correlation of {aim.correlation:g} between the models:"
        rests += f" {2 * 0.25 * (1 - aim.correlation):.0%} of documents right for one alone"
    elif len(options.baseline) == 1:
        rests = f"rests on the spread in the run and a correlation of {aim.correlation:g} between two models"
    else:
        rests = "rests on the differences between the two runs"
    few = [each for each in found if each.is_enough is False]
    worst = max(few, key=lambda each: each.mde or 0, default=None)
    said = [f"\n{how}, each asked {aim.repeats}×; {rests}"]
    if worst is not None and worst.mde is not None:
        said.append(
            f"too few documents in {len(few)} of {len(found)}; {worst.name} finds {_size(worst.mde, worst.metric, 1)} at best"
        )
    if any(each.documents is not None and each.repeats_needed is None for each in found):
        said.append(f"repeats of all: {NONE}: what differs from document to document is not mended by asking again")
    return said
