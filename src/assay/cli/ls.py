"""`assay ls`: every name of a kind."""

import argparse
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from assay.catalog.index import Index
from assay.cli.options import add_catalog_options, task_manager
from assay.cli.output import is_terminal, say, say_columns, say_json, tell
from assay.tasks import TaskManager

Row = dict[str, object]

KINDS = {"tasks": ("task", "group", "tag"), "subtasks": ("task",), "groups": ("group",), "tags": ("tag",)}
TABLES: dict[str, Callable[[TaskManager], Iterator[Row]]] = {}
"""Kinds of names that are not in the catalog: for each, its rows."""


def define(parser: argparse.ArgumentParser) -> None:
    kinds = [*KINDS, "formats", "models", "metrics", "filters", "scorers"]
    parser.add_argument("kind", nargs="?", default="tasks", choices=kinds, help="tasks: whatever can be run (default)")
    parser.add_argument("--pattern", metavar="GLOB", help="only names that match")
    parser.add_argument("--json", action="store_true", help="an array of objects: name, kind, path and more")
    add_catalog_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    manager = task_manager(options)
    rows = list(_rows(manager, options.kind))
    if options.pattern:
        rows = [row for row in rows if fnmatchcase(str(row["name"]), options.pattern)]
    if options.json:
        say_json(rows)
    elif is_terminal():
        say_columns(("name", "kind", "where"), [[str(row["name"]), str(row["kind"]), _where(row)] for row in rows])
    else:
        for row in rows:
            say(f"{row['name']}\tbroken: {row['error']}" if row.get("error") else str(row["name"]))
    broken = sum(1 for row in rows if row.get("error"))
    if broken:
        tell(f"{broken} of {len(rows)} cannot be used; `assay validate` says why")
    return 0


def _where(row: Row) -> str:
    return f"broken: {row['error']}" if row.get("error") else str(row["path"] or row.get("note") or "")


def _rows(manager: TaskManager, kind: str) -> Iterator[Row]:
    if kind in KINDS:
        return _catalog_rows(manager.catalog.index, KINDS[kind])
    if kind == "formats":
        return _format_rows(manager)
    return iter(())


def _catalog_rows(index: Index, kinds: tuple[str, ...]) -> Iterator[Row]:
    for name in index.names(*kinds):
        entry = index.named.get(name)
        if entry is None:
            yield {"name": name, "kind": "tag", "path": None, "tasks": index.tags[name]}
        else:
            row: Row = {"name": name, "kind": entry.kind, "path": entry.path}
            if entry.kind == "task":
                row |= {"output_type": entry.output_type, "tags": list(entry.tags)}
            yield row | ({"error": entry.error} if entry.error else {})
    if "task" in kinds:
        for entry in index.broken:
            yield {"name": entry.name, "kind": "broken", "path": entry.path, "error": entry.error}


def _format_rows(manager: TaskManager) -> Iterator[Row]:
    files = manager.catalog.index.formats
    for name, known in sorted(manager.formats.items()):
        path = files[name].path if name in files else None
        yield {"name": name, "kind": "format", "path": path, "output_type": known.output_type, "note": "built in"}
