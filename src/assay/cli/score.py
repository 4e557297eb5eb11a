"""`assay score`: score the answers of a run again. The old scores stay; the new ones get a folder beside them."""

import argparse
import sys
from collections.abc import Iterable, Sequence

from assay.cli.output import counted, say, say_tables, tell
from assay.cli.run import EXIT
from assay.evaluation.changes import NAME, Number
from assay.evaluation.score import Scored, ScoreOptions, score
from assay.report.table import markdown_table, table_footing
from assay.runs.redact import redacted_command

SHOWN = 10


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        metavar="RUN",
        help="the folder of a run; or samples_*.jsonl files of lm-eval's, or their folder; or the output of a graph, which"
        " --tasks names",
    )
    add("--tasks", "-t", nargs="+", default=[], metavar="NAME", help="only these: names, globs, groups")
    add("--filter", action="append", default=[], metavar="NAME=STEP:VALUE", help=r"a filter more, or in place of the one of"
        r" that name: 'number=regex:(\d+)', or an entry of filter_list in YAML")  # fmt: skip
    add("--metric", action="append", default=[], metavar="NAME[:K=V]", help="a metric more, or in place of the one of that"
        " name: exact_match:ignore_case=true, or an entry of metric_list in YAML")  # fmt: skip
    add("--with", action="append", default=[], dest="files", metavar="FILE", help="a YAML file of a task or group, in place"
        " of the one of that name")  # fmt: skip
    add(
        "--include_path",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with tasks, beside those of the run",
    )
    add(
        "--no_defaults",
        action="store_true",
        help="for lm-eval's files: leave out bundled tasks, lm_eval's and plug-ins'",
    )
    add("--compat", choices=["lm-eval", "sygra"], help="reproduce lm-eval 0.4.13, or SyGra's reports, also where they err"
        " (default: as in the run)")  # fmt: skip
    add("--output_path", "-o", metavar="DIR", help="put scored/ there (default: into the folder of the run)")
    add("--confirm_run_unsafe_code", action="store_true", help="run code that the model wrote")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    wanted = ScoreOptions(
        tasks=options.tasks,
        filters=options.filter,
        metrics=options.metric,
        files=options.files,
        include_path=options.include_path,
        plugins=options.plugin,
        include_defaults=not options.no_defaults,
        compat=options.compat,
        output_path=options.output_path,
        confirm_run_unsafe_code=options.confirm_run_unsafe_code,
        facts={"command": redacted_command(["assay", *sys.argv[1:]])},
    )
    scored = score(options.runs, wanted)
    _show(scored)
    account = scored.results["assay"]
    return EXIT[account.get("shard", account)["status"]]


def _show(scored: Scored) -> None:
    say_tables(scored.results)
    say("\n" + _numbers(scored.numbers))
    for line in _samples(scored):
        say(line)
    for line in [*scored.remarks, *table_footing(scored.results)]:
        tell(line)
    say(f"\nscored: {scored.folder.resolve()}")


def _numbers(several: Sequence[Number]) -> str:
    """The numbers that are others now, as a table."""
    rows = [
        (each.name, each.row, _number(each.before), _number(each.after), _step(each), str(each.changed))
        for each in several
        if each.before != each.after or each.changed
    ]
    return (
        markdown_table(("Task or group", "Metric", "Before", "After", "Difference", "changed"), rows)
        if rows
        else "no number changed"
    )


def _samples(scored: Scored) -> Iterable[str]:
    changed = scored.results["assay"]["scored"]["changed"]
    for task, found in changed.items():
        ids = ", ".join(map(str, found["ids"][:SHOWN])) + (" …" if found["count"] > SHOWN else "")
        yield f"{task}: {counted(found['count'], 'sample')} changed: {ids}"
    if changed:
        yield f"all of them: {scored.folder / NAME}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _step(number: Number) -> str:
    return "" if number.before is None or number.after is None else f"{number.after - number.before:+.4f}"
