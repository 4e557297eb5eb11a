"""The flags of `assay run` that SyGra's users know."""

import argparse
from collections.abc import Callable

from assay.errors import ConfigError, Place, Problem

ALIASES = {"num_records": "limit", "output_dir": "output_path"}
"""SyGra's name for a flag, and ours."""


def define_graphs(add: Callable[..., object]) -> None:
    add(
        "--task",
        metavar="NAME",
        help="one task: tasks.eval.a.b, eval/a/b, a folder; with it --batch_size is records at once",
    )
    add("--num_records", type=int, metavar="N", help="the first N records (default: all)")
    add("--start_index", type=int, metavar="N", help="the first record, counted from 0")
    add("--output_dir", metavar="DIR", help="as --output_path")
    add("--run_name", metavar="NAME", help="stands before the names of output files")
    add("--models_file", metavar="FILE", help="a models.yaml (default: beside the graph, or here)")
    add("--resume", nargs="?", const=True, default=None, metavar="BOOL", help="no effect: a run with a folder goes on")


def with_graph_flags(options: argparse.Namespace) -> None:
    """Say SyGra's flags in our own."""
    options.records_at_once = None
    if options.task is not None:
        if options.tasks:
            raise ConfigError([Problem(Place("task"), "--task and --tasks exclude each other", "give one of them")])
        options.tasks = [options.task]
        options.records_at_once, options.batch_size = _records_at_once(options.batch_size), None
    for theirs, ours in ALIASES.items():
        given = getattr(options, theirs)
        if given is not None and getattr(options, ours) is not None:
            raise ConfigError([Problem(Place(theirs), f"--{theirs} and --{ours} are the same", "give one of them")])
        if given is not None:
            setattr(options, ours, given)
    for name in ("task", "resume", *ALIASES):
        setattr(options, name, None)


def _records_at_once(written: str | None) -> int | None:
    if written is None:
        return None
    if not written.isdigit() or int(written) < 1:
        raise ConfigError([Problem(Place("batch_size"), f"{written!r} is no number of records", "give one from 1 on")])
    return int(written)
