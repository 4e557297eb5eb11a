"""`assay ls`: every name of a kind."""

import argparse
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from assay.catalog.index import Index, index_root
from assay.catalog.roots import all_roots
from assay.cli.options import add_catalog_options, task_manager
from assay.cli.output import counted, is_terminal, printable, say_columns, say_json, tell, write_lines

KINDS = {"tasks": ("task", "group", "tag"), "subtasks": ("task",), "groups": ("group",), "tags": ("tag",)}
TABLES = ("formats", "models", "metrics", "filters", "scorers", "aggregators", "aggregations", "reductions", "samplers",
          "transforms", "unit_metrics", "aggregator_metrics", "exporters")  # fmt: skip


class Row(NamedTuple):
    """One name: what it is, where it is defined, why it cannot be used, and what else is known of it."""

    name: str
    kind: str
    path: str | None
    error: str = ""
    more: dict[str, object] | None = None

    def described(self) -> dict[str, object]:
        error = {"error": self.error} if self.error else {}
        return {"name": self.name, "kind": self.kind, "path": self.path, **error, **(self.more or {})}

    def where(self) -> str:
        return f"broken: {self.error}" if self.error else self.path or ""


def define(parser: argparse.ArgumentParser) -> None:
    kinds = [*KINDS, *TABLES]
    parser.add_argument("kind", nargs="?", default="tasks", choices=kinds, help="tasks: whatever can be run (default)")
    parser.add_argument("--pattern", metavar="GLOB", help="only names that match")
    parser.add_argument("--json", action="store_true", help="an array of objects: name, kind, path and more")
    add_catalog_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.kind in KINDS:
        index = _index(options)
        if not (options.json or options.pattern or is_terminal()):
            return _write_names(index, KINDS[options.kind])
        rows = _catalog_rows(index, KINDS[options.kind])
    else:
        rows = _table_rows(options)
    if options.pattern:
        rows = [row for row in rows if fnmatchcase(row.name, options.pattern)]
        if not rows:
            tell(f"no name of these matches {options.pattern!r}")
    if options.json:
        say_json([row.described() for row in rows])
    elif is_terminal():
        say_columns(("name", "kind", "where"), [(row.name, row.kind, row.where()) for row in rows])
    else:
        write_lines(_line(row.name, row.error) for row in rows)
    _tell_broken([row.name for row in rows if row.error])
    return 0


def _write_names(index: Index, kinds: tuple[str, ...]) -> int:
    """The plain list, by the shortest way: no row is made of names that are only written down."""
    errors = {entry.name: entry.error for entry in index.entries() if entry.error and entry.kind in kinds}
    write_lines(_line(name, errors[name]) if name in errors else name for name in index.names(*kinds))
    broken = index.broken if "task" in kinds else []
    write_lines(_line(entry.name, entry.error) for entry in broken)
    _tell_broken([*errors, *(entry.name for entry in broken)])
    return 0


def _line(name: str, error: str) -> str:
    return printable(f"{name}\tbroken: {error}" if error else name).replace("\n", "\\n")


def _tell_broken(names: list[str]) -> None:
    if names:
        tell(f"{counted(len(names), 'name')} cannot be used; `assay validate` says why")


def _index(options: argparse.Namespace) -> Index:
    lenient = options.compat == "lm-eval"
    roots = all_roots(options.include_path, include_defaults=not options.no_defaults, lenient=lenient)
    return Index([(root, index_root(root)) for root in roots])


def _catalog_rows(index: Index, kinds: Iterable[str]) -> list[Row]:
    rows = []
    for name in index.names(*kinds):
        entry = index.named.get(name)
        if entry is None:
            rows.append(Row(name, "tag", None, more={"tasks": index.tags[name]}))
        elif entry.kind == "task":
            more: dict[str, object] = {"output_type": entry.output_type, "tags": entry.tags}
            rows.append(Row(name, "task", entry.path, entry.error, more))
        else:
            rows.append(Row(name, entry.kind, entry.path, entry.error))
    if "task" in kinds:
        rows += [Row(entry.name, "broken", entry.path, entry.error) for entry in index.broken]
    return rows


def _table_rows(options: argparse.Namespace) -> list[Row]:
    """What has a name in Python: its first sentence says what it is. Plug-ins are imported, and may be broken."""
    if options.kind == "formats":
        return _format_rows(options)
    from assay.errors import AssayError
    from assay.plugins import table

    kind, known = options.kind.removesuffix("s"), table(options.kind)
    rows = [Row("custom", kind, None, more={"description": ""})] if kind == "filter" else []
    for name in known.names():
        try:
            rows.append(Row(name, kind, None, more=_described(kind, known[name])))
        except AssayError as error:
            rows.append(Row(name, kind, None, str(error)))
    return sorted(rows, key=lambda row: row.name)


def _described(kind: str, member: Any) -> dict[str, object]:
    if kind == "metric":
        return {"output_types": list(member.functions), "aggregation": member.aggregation}
    return {"description": _sentence(getattr(member, "function", member))}


def _sentence(made: object) -> str:
    return (getattr(made, "__doc__", None) or "").strip().split("\n")[0] if callable(made) else ""


def _format_rows(options: argparse.Namespace) -> list[Row]:
    from assay.samples.formats import FORMATS

    manager = task_manager(options)
    files, known = manager.catalog.index.formats, manager.formats
    names = sorted({*known, *FORMATS.names()})
    return [
        Row(name, "format", files[name].path if name in files else None, more={"output_type": known[name].output_type})
        for name in names
    ]
