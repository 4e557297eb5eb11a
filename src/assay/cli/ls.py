"""`assay ls` and `assay schema`: the names of a kind, and the keys of a kind of file."""

import argparse
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from assay.catalog.index import Index, index_root
from assay.catalog.roots import all_roots
from assay.cli.commands import LISTED_KINDS as KINDS
from assay.cli.commands import REGISTRIES
from assay.cli.flags import task_manager
from assay.cli.output import counted, echo_columns, echo_err, echo_json, is_terminal, write_lines
from assay.dialect import dialect_of_files
from assay.errors import ConfigError, Place
from assay.records import JSON, UserFunction
from assay.safe_text import printable
from assay.similar import nearest

DETAILED = 300
"""The most names whose files are read for titles and sizes: fourteen thousand would take half a minute."""


class ListedName(NamedTuple):
    """One line of the list: a name, its kind, its file, why it cannot be used, and further facts."""

    name: str
    kind: str
    path: str | None
    error: str = ""
    more: dict[str, JSON] | None = None

    def described(self) -> dict[str, JSON]:
        error = {"error": self.error} if self.error else {}
        return {"name": self.name, "kind": self.kind, "path": self.path, **error, **(self.more or {})}


def run_ls(options: argparse.Namespace) -> int:
    if options.kind == "runs":
        from assay.cli.runs import list_runs, runs_dir  # reads runs, which names do without

        return list_runs(runs_dir(options.word or options.runs_dir), options.pattern or "*", as_json=options.json)
    _take_words(options)
    if options.kind in KINDS:
        index = _index(options)
        if not (options.json or options.pattern or is_terminal()):
            return _write_names(index, KINDS[options.kind])
        rows = _catalog_rows(index, KINDS[options.kind])
    else:
        rows = _registry_rows(options)
    if options.pattern:
        rows = [row for row in rows if fnmatchcase(row.name, options.pattern)]
        if not rows:
            _report_unmatched(options)
    if options.json:
        echo_json([row.described() for row in rows])
    elif is_terminal():
        _show(rows, wide=options.wide)
    else:
        write_lines(_line(row.name, row.error) for row in rows)
    _report_broken([row.name for row in rows if row.error])
    if options.kind == "tasks" and is_terminal() and not options.pattern:
        _report_absent(_index(options))
    return 0


def _take_words(options: argparse.Namespace) -> None:
    """Read `ls gsm8k`, `ls tasks gsm8k` and `ls metrics acc` as what they look for."""
    kinds, word = [*KINDS, *REGISTRIES, "runs"], options.word
    if options.kind not in kinds:
        meant = nearest(options.kind, kinds, count=1, only_slips=True)
        if word is not None or meant:
            fix = f"did you mean {meant[0]!r}?" if meant else f"use one of: {', '.join(kinds)}"
            raise ConfigError.at("ls", f"no kind of names {options.kind!r}", fix)
        options.kind, word = "tasks", options.kind
    if word is not None and options.pattern:
        raise ConfigError.at("ls", f"{word!r} and --pattern exclude each other", "give one of them")
    if word is not None:
        options.pattern = word if any(mark in word for mark in "*?[") else f"*{word}*"


def _report_unmatched(options: argparse.Namespace) -> None:
    """Say that nothing matches, and which of lm-eval's names would."""
    if options.kind not in KINDS:
        echo_err(f"no name matches {options.pattern!r}")
        return
    from assay.catalog.lm_eval_names import unmatched

    problem = unmatched(_index(options), options.pattern, Place("ls"), KINDS[options.kind])
    echo_err(f"{problem.what} — {problem.fix}")


def _report_absent(index: Index) -> None:
    """Say on a terminal that lm-eval's tasks are not in the list, and how to get them."""
    from assay.catalog.lm_eval_names import GET, missing_names

    absent = missing_names(index)
    if absent:
        echo_err(f"without lm-eval's {len(absent):,} tasks, groups and tags: {GET}")


def _show(rows: list[ListedName], *, wide: bool) -> None:
    """Print the list on a terminal: with titles and sizes of a few hundred names, with what the index has of more."""
    if len(rows) <= DETAILED:
        from assay.cli.ls_details import detailed  # reads files, and their data

        cells = detailed(rows)
    else:
        cells = [(each, "") for each in map(_from_index, rows)]
    about = [(row.name, row.kind, title, size) for row, (title, size) in zip(rows, cells, strict=True)]
    has_sizes = any(each[3] for each in about)
    header = ("name", "kind", "title", "documents")[: 4 if has_sizes else 3]
    shown = [each[: len(header)] for each in about]
    if wide:
        header, shown = (*header, "where"), [(*each, row.path or "") for each, row in zip(shown, rows, strict=True)]
    from assay.report.report_table import make_table  # names alone are listed without it

    echo_columns(make_table(header, shown))


def _from_index(row: ListedName) -> str:
    more = row.more or {}
    return f"broken: {row.error}" if row.error else str(more.get("description") or more.get("output_type") or "")


def _write_names(index: Index, kinds: tuple[str, ...]) -> int:
    """Write the plain list; no rows are built for names that are only printed."""
    errors = {entry.name: entry.error for entry in index.entries() if entry.error and entry.kind in kinds}
    write_lines(_line(name, errors[name]) if name in errors else name for name in index.names(*kinds))
    write_lines(row.name for row in _graph_rows(index, kinds))
    broken = index.broken if "task" in kinds else []
    write_lines(_line(entry.name, entry.error) for entry in broken)
    _report_broken([*errors, *(entry.name for entry in broken)])
    return 0


def _line(name: str, error: str) -> str:
    return printable(f"{name}\tbroken: {error}" if error else name).replace("\n", "\\n")


def _report_broken(names: list[str]) -> None:
    if names:
        echo_err(f"{counted(len(names), 'name')} cannot be used; `assay validate` reports why")


def _index(options: argparse.Namespace) -> Index:
    dialect = dialect_of_files(options.compat)
    roots = all_roots(options.include_path, include_defaults=options.include_defaults is None, dialect=dialect)
    return Index([(root, index_root(root)) for root in roots])


def _catalog_rows(index: Index, kinds: Iterable[str]) -> list[ListedName]:
    rows = []
    for name in index.names(*kinds):
        entry = index.named.get(name)
        if entry is None:
            rows.append(ListedName(name, "tag", None, more={"tasks": index.tags[name]}))
        elif entry.kind == "task":
            more: dict[str, JSON] = {"output_type": entry.output_type, "tags": entry.tags}
            rows.append(ListedName(name, "task", entry.path, entry.error, more))
        else:
            rows.append(ListedName(name, entry.kind, entry.path, entry.error))
    rows += _graph_rows(index, kinds)
    if "task" in kinds:
        rows += [ListedName(entry.name, "broken", entry.path, entry.error) for entry in index.broken]
    return rows


def _graph_rows(index: Index, kinds: Iterable[str]) -> list[ListedName]:
    """Graphs without `task:`, by what they are run with: the name of their folder, else the path. Subgraphs are left out."""
    if "task" not in kinds or not index.graphs:
        return []
    from assay.catalog.selection import GRAPH_FILE, graph_file
    from assay.graphs.kind import GRAPH

    folders = {Path(entry.path).parent for entry in index.graphs if Path(entry.path).name == GRAPH_FILE}
    roots = [root.path for root, _ in index.parts]
    rows = []
    for entry in {entry.path: entry for entry in index.graphs}.values():
        path, name = Path(entry.path), GRAPH.default_name(Path(entry.path).as_posix())
        if folders.isdisjoint(path.parent.parents) and path.parent not in (folders if path.name != GRAPH_FILE else ()):
            meant = graph_file(name, roots) if name not in index.named else None
            is_found = meant is not None and meant == path.resolve()
            more: dict[str, JSON] = {"output_type": entry.output_type, "tags": entry.tags}
            rows.append(ListedName(name if is_found else entry.path, "task", entry.path, more=more))
    return sorted(rows, key=lambda row: row.name)


def _registry_rows(options: argparse.Namespace) -> list[ListedName]:
    """List names defined in Python, with the first sentence of their docstrings. Plug-ins are imported, and may be broken."""
    if options.kind == "formats":
        return _format_rows(options)
    from assay.errors import AssayError
    from assay.plugins import registry

    kind, known = options.kind.removesuffix("s"), registry(options.kind)
    rows = (
        [ListedName("custom", kind, None, more={"description": "A function of the user's, named by `filter_fn`."})]
        if kind == "filter"
        else []
    )
    first: dict[int, str] = {}
    for name in known.names():
        try:
            member = known[name]
            more = _described(kind, member)
            if first.setdefault(id(member), name) != name:
                more |= {"alias_of": first[id(member)], "description": f"same as {first[id(member)]}"}
            rows.append(ListedName(name, kind, None, more=more))
        except AssayError as error:
            rows.append(ListedName(name, kind, None, str(error)))
    return sorted(rows, key=lambda row: row.name)


def _described(kind: str, member: Any) -> dict[str, JSON]:
    functions = getattr(member, "functions", {})
    described: dict[str, JSON] = {"description": _sentence(member, functions)}
    if kind == "metric":
        described |= {"output_types": list(functions), "aggregation": member.aggregation}
    return described


def _sentence(member: Any, functions: Mapping[str, UserFunction]) -> str:
    """Return the sentence of a declaration, or the first line of the docstring of its function."""
    function = next(iter(functions.values()), getattr(member, "function", member))
    about = getattr(member, "sentence", "") or getattr(function, "__doc__", "") if callable(function) else ""
    return (about or "").strip().partition("\n")[0]


def _format_rows(options: argparse.Namespace) -> list[ListedName]:
    from assay.samples.formats import FORMATS

    manager = task_manager(options)
    files, known = manager.catalog.index.formats, manager.formats
    names = sorted({*known, *FORMATS.names()})
    return [
        ListedName(
            name, "format", files[name].path if name in files else None, more={"output_type": known[name].output_type}
        )
        for name in names
    ]


def run_schema(options: argparse.Namespace) -> int:
    """Print a JSON Schema for editors. The records are imported here: listing names does without them."""
    if options.kind == "view":
        from assay.viewer.json_pages import view_schema

        echo_json(view_schema())
        return 0
    if options.kind == "results":
        from assay.runs.results_json import schema

        echo_json(schema())
        return 0
    from assay.config.group import GroupConfig
    from assay.config.run import RunConfig
    from assay.config.schema import json_schema
    from assay.config.task import FormatConfig, TaskConfig
    from assay.graphs.spec import GraphConfig

    # A group file may hold any key of a task: a default for its members.
    records: dict[str, tuple[type, ...]] = {
        "task": (TaskConfig,), "group": (GroupConfig, TaskConfig), "graph": (GraphConfig,), "format": (FormatConfig,),
        "run": (RunConfig,),
    }  # fmt: skip
    record, *more = records[options.kind]
    echo_json(json_schema(record, f"assay {options.kind}", *more))
    return 0
