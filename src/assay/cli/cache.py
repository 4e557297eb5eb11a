"""`assay cache`: what a cache of responses holds, and taking things out of it."""

import argparse
import time
from pathlib import Path

from assay.cli.output import say, say_columns
from assay.errors import ConfigError, Place, Problem
from assay.runs.cache import FILE, Cache


def define(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("ls", help="what it holds, by model")
    pruned = actions.add_parser("prune", help="take out responses: of a model, unused ones, or all")
    for action in (listed, pruned):
        action.add_argument("folder", metavar="DIR", help="the folder that --use_cache named")
    pruned.add_argument("--model", metavar="NAME", help="only those of this model, as `ls` calls it")
    pruned.add_argument("--unused_days", type=float, metavar="N", help="only those that no run has used for N days")
    pruned.add_argument("--all", action="store_true", help="every response")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    if not (folder / FILE).is_file():
        raise ConfigError(
            [Problem(Place(str(folder)), "there is no cache in this folder", "name the one of --use_cache")]
        )
    cache = Cache(folder)
    try:
        return _list(cache) if options.action == "ls" else _prune(cache, options)
    finally:
        cache.close()


def _list(cache: Cache) -> int:
    rows = [
        (shelf.model, f"{shelf.responses:,}", f"{shelf.bytes / 2**20:.1f} MB", _day(shelf.written), _day(shelf.used))
        for shelf in cache.shelves()
    ]
    say_columns(("model", "responses", "size", "first written", "last used"), rows)
    return 0


def _prune(cache: Cache, options: argparse.Namespace) -> int:
    chosen = options.model is not None or options.unused_days is not None
    if chosen == options.all:
        raise ConfigError([Problem(Place("prune"), "say what is to go", "--model NAME, --unused_days N, or --all")])
    known = [shelf.model for shelf in cache.shelves()]
    if options.model is not None and options.model not in known:
        from assay.errors import did_you_mean

        fix = did_you_mean(options.model, known)
        raise ConfigError([Problem(Place("--model"), f"the cache holds nothing of {options.model!r}", fix)])
    say(f"{cache.prune(model=options.model, unused_days=options.unused_days):,} responses were taken out")
    return 0


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))
