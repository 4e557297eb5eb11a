"""The frozen corpus: what small runs of many kinds report, as plain values that are compared bit for bit with tests/frozen/.

The cases are in frozen_tasks.py, frozen_judges.py and frozen_commands.py. Runs are read through two doors that outlive changes inside the program: lm-eval's export, and
`rows_of_run` and `facts_of_run` below, which use the public reader. When the reader changes, those two are adapted and the
expected files stay as they are. tools/freeze_corpus.py rewrites the files.
"""

import contextlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

from assay import Run, export
from assay.cli import main
from assay.runs.results_json import schema
from run_world import stored_results

HERE = Path(__file__).parent
FROZEN = HERE / "frozen"
LM_EVAL = "lm_eval"
"""What a case needs that reads task files of lm-eval's package."""
Outcome = Mapping[str, object]
"""What a case is compared by: by name, the folder of a run, or any JSON value."""


class World(NamedTuple):
    """Where a case works: an empty folder of its own, and lm-eval's folder of tasks."""

    folder: Path
    lm_eval_tasks: Path


class Case(NamedTuple):
    """Small runs of one kind, and the libraries without which they are skipped."""

    name: str
    make: Callable[[World], Outcome]
    needs: Sequence[str]


CASES: dict[str, Case] = {}
"""Filled by the modules that `all_cases` imports."""


def case(*needs: str) -> Callable[[Callable[[World], Outcome]], Callable[[World], Outcome]]:
    """Add a function to the cases; it is skipped where one of the libraries that it needs is missing."""

    def add(make: Callable[[World], Outcome]) -> Callable[[World], Outcome]:
        CASES[make.__name__] = Case(make.__name__, make, needs)
        return make

    return add


def all_cases() -> Mapping[str, Case]:
    """The cases of all modules that have some, by name."""
    for name in ("frozen_tasks", "frozen_judges", "frozen_commands"):
        import_module(name)
    return CASES


# --- runs ------------------------------------------------------------------------------------------------------------


def outcome_of_run(folder: Path, exported: Path, names: Mapping[str, str]) -> dict[str, object]:
    """Everything that a run reports: natively, and as lm-eval writes it. Its results.json has the published schema."""
    jsonschema.validate(stored_results(folder), schema())
    return {**facts_of_run(folder), "rows": rows_of_run(folder), "lm_eval": lm_eval_files(folder, exported, names)}


def rows_of_run(folder: Path) -> list[dict[str, object]]:
    """The rows of a run in their order, each with every field that has a value."""
    run = Run.open(folder)
    return [_plain_row(kind, owner, row) for kind, owner, row in run.scored_rows()]


def _plain_row(kind: str, owner: str, row: Any) -> dict[str, object]:
    number = row.estimate
    fields = {
        "owner": owner,
        "kind": kind,
        "metric": row.metric,
        "filter": row.filter,
        "value": number.value,
        "named_values": number.named_values,
        "stderr": number.stderr,
        "interval": number.interval,
        "method": number.method,
        "df": number.df,
        "n": number.n,
        "failed": row.failed,
        "incomplete": row.is_incomplete or None,
        "higher_is_better": row.higher_is_better,
        "reason": number.reason,
        "note": number.note,
        "scale": number.scale,
        "unused_bounds": number.unused_bounds,
        "bounds": row.failure_bounds,
        "tasks": row.tasks if row.tasks > 1 else None,
        "slopes": [[task, *key, slope] for (task, key), slope in (row.slopes or {}).items()],
        "values": number.named_values,
        "clusters": number.clusters,
        "missing": list(row.missing),
        "chosen": list(row.chosen),
        "noise": row.noise,
        "reliability": [
            {
                "confidence": point.confidence,
                "accuracy": point.accuracy.value,
                "n": point.accuracy.n,
                "interval": point.accuracy.interval,
            }
            for point in row.reliability
        ],
        "labels": row.labels,
        "tuning": row.tuning,
        "reasons": dict(row.reasons) or None,
    }
    return {name: value for name, value in fields.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == []


def facts_of_run(folder: Path) -> dict[str, object]:
    """What a run reports beside its rows: documents, failures and their reasons, members of groups, usage."""
    run = Run.open(folder)
    results = run.results
    facts = {
        "ended": results.ended, "shard": results.shard, "stop_when": results.stop_when, "servers": results.servers,
        "fallbacks": results.fallbacks, "imported": results.imported, "scored": results.rescored,
    }  # fmt: skip
    owners = {name: _facts_of_task(task) for name, task in results.tasks.items()}
    return {
        "status": run.status,
        "failed": results.failed,
        "incomplete": [task.name for task in results.tasks.values() if task.is_incomplete],
        "broken": results.broken,
        **{name: value for name, value in facts.items() if value},
        "owners": {**owners, **{name: _facts_of_group(group) for name, group in results.groups.items()}},
        "usage": run.usage,
    }


def _facts_of_task(task: Any) -> dict[str, object]:
    further = {
        "not_asked": task.not_asked,
        "noticed": task.noticed,
        "remarks": task.remarks,
        "audit": {
            flag: {"count": found.count, **({"ids": found.ids} if found.count else {})}
            for flag, found in task.audit.items()
        },
        "no_value": {str(row.key): row.estimate.reason for row in task.rows if row.lacks_number},
        "never_came": task.never_came,
    }
    return {
        "documents": task.documents,
        "scored": task.scored,
        "failed": task.failed,
        "reasons": task.reasons,
        "incomplete": task.is_incomplete,
        **{name: value for name, value in further.items() if value or name == "audit"},
    }


def _facts_of_group(group: Any) -> dict[str, object]:
    names = ("tasks", "scored_tasks", "failed", "not_run", "incomplete_tasks") if group.is_incomplete else ()
    further = {
        "metadata": group.metadata,
        "skipped": group.skipped,
        "computed_by": group.computed_by,
        "no_value": {str(row.key): row.estimate.reason for row in group.rows or () if row.lacks_number},
    }
    return {
        "incomplete": group.is_incomplete,
        **{name: getattr(group, name) for name in names},
        **{name: value for name, value in further.items() if value},
    }


EXPORTED = ("results", "groups", "group_subtasks", "n-shot", "n-samples", "versions", "higher_is_better", "configs")
"""What is compared of lm-eval's results file; the rest says when, where and with which versions it was made."""


def lm_eval_files(folder: Path, target: Path, names: Mapping[str, str]) -> dict[str, object]:
    """The files that are written for lm-eval: the results, and of each samples file a digest of every column."""
    results, *samples = [Path(path) for path in export(folder, "lm-eval", target)]
    written = json.loads(results.read_text(encoding="utf-8"))
    return {
        **{name: written[name] for name in EXPORTED if name in written},
        "samples": {path.name.rpartition("_")[0]: _digests(path, names) for path in samples},
    }


def _digests(path: Path, names: Mapping[str, str]) -> dict[str, object]:
    """How many samples a file has, and by column a digest of its values."""
    lines: list[Any] = [settled(json.loads(line), names) for line in path.read_text(encoding="utf-8").splitlines()]
    columns = list(dict.fromkeys(column for line in lines for column in line))
    return {"lines": len(lines), **{column: digest([line.get(column) for line in lines]) for column in columns}}


def digest(value: object) -> str:
    """Twelve characters that differ where values do."""
    return sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:12]


# --- commands --------------------------------------------------------------------------------------------------------


def command(*arguments: object) -> dict[str, object]:
    """Run `assay` with these arguments in this process; its exit code, and what it printed: JSON, or lines of text."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main([str(argument) for argument in arguments])
    text = printed.getvalue()
    try:
        return {"code": code, "printed": json.loads(text)}
    except ValueError:
        return {"code": code, "printed": text.splitlines()}


# --- cases -----------------------------------------------------------------------------------------------------------


def outcome_of_case(case: Case, world: World) -> str:
    """Run a case; its outcome as its file in tests/frozen/ has it."""
    world.folder.mkdir(parents=True)
    names = {str(world.folder): "WORLD", str(world.lm_eval_tasks): "LM_EVAL", str(HERE.parent): "ASSAY"}
    with within(world.folder):
        outcome = {
            name: outcome_of_run(value, world.folder / "exported" / name, names) if isinstance(value, Path) else value
            for name, value in case.make(world).items()
        }
    return "".join(_lines(settled(outcome, names), "", 4)) + "\n"


LEFT_OUT = re.compile(
    r"date|created|started|finished|git_hash|crc32|checksum|.*seconds.*|.*_time|time|latency.*|.*per_second"
    r"|path|folder|.*_version|version_of_.*|digest|signature|provenance"
)
"""Keys whose values differ between two equal runs, or say where and when one was made."""


def settled(value: object, names: Mapping[str, str]) -> object:
    """A value as JSON has it, without what differs between two equal runs, and with `names` in place of folders."""
    if isinstance(value, Mapping):
        return {
            str(settled(str(key), names)): settled(inner, names)
            for key, inner in value.items()
            if not LEFT_OUT.fullmatch(str(key))
        }
    if isinstance(value, list | tuple):
        return [settled(inner, names) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        for folder, name in names.items():
            value = value.replace(folder, name)
    return value


def _lines(value: object, indent: str, depth: int) -> Iterator[str]:
    """A value as JSON text, on lines of their own down to a depth: a row that changes is one line of a diff."""
    is_opened = depth > 0 and isinstance(value, dict | list) and bool(value)
    if not is_opened:
        yield json.dumps(value, ensure_ascii=False)
        return
    inner = indent + " "
    if isinstance(value, dict):
        yield "{\n"
        for number, (key, item) in enumerate(value.items()):
            yield ("" if number == 0 else ",\n") + f"{inner}{json.dumps(key, ensure_ascii=False)}: "
            yield from _lines(item, inner, depth - 1)
        yield f"\n{indent}}}"
    elif isinstance(value, list):
        yield "[\n"
        for number, item in enumerate(value):
            yield ("" if number == 0 else ",\n") + inner
            yield from _lines(item, inner, 0)
        yield f"\n{indent}]"


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder: for tasks whose data is named from there."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
