"""Measures what the tests notice: changes one place of the code at a time and runs the tests that reach it.

usage: python tools/mutants.py [PACKAGE …] [--seed N] [--drawn N] [--tests PATH …] [--again]

Cosmic Ray finds the places and makes the change; this file draws the places, chooses the tests by coverage.py's contexts, runs
pytest and prints the table. Everything happens in a copy of the repository, .mutants/tree. The exit code is 1 when less than
80 % of a package's mutants are killed, equivalents not counted, or more than 5 % are equivalents.
(docs/decisions/0033-mutants.md)
"""

import argparse
import ast
import difflib
import filecmp
import gc
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator, operator_names

from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutants"
TREE = WORK / "tree"
EQUIVALENTS = ROOT / "tools" / "mutants_equivalent.toml"
PACKAGES = ("groups", "statistics", "catalog", "engine", "runs", "scoring")
LEAST_KILLED, MOST_EQUIVALENT = 0.8, 0.05
SECONDS_OF_TESTS = 20.0
"""A mutant that lives through so many seconds of tests, quick ones first, survives: thousands reach the middle of the code."""

FILES_FIRST = 3


def is_telling(name: str) -> bool:
    """Say whether an operator makes mutants that a test can only kill by looking at a result.

    `a | b` for `a + b`, `x < None` for `x is None` raise as soon as the line runs; `==` for `is`, and a function without its cache,
    mostly mean the same.
    """
    operator = name.removeprefix("core/")
    old, _, new = operator.partition("_")[2].partition("_")
    bits, shifts = {"BitOr", "BitAnd", "BitXor"}, {"LShift", "RShift"}
    if operator.startswith("ReplaceBinaryOperator"):
        return (old in bits) == (new in bits) and (old in shifts) == (new in shifts)
    if operator.startswith("ReplaceComparisonOperator"):
        return (old in ("Is", "IsNot") and new in ("Is", "IsNot")) or not {old, new} & {"Is", "IsNot"}
    return "Invert" not in operator and operator not in ("RemoveDecorator", "VariableReplacer", "VariableInserter")


@dataclass(frozen=True)
class Mutant:
    """One change of one place. `name` is its file, function, line and operator, and which of those that are alike."""

    name: str
    file: Path
    start: tuple[int, int]
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed, survived or equivalent, and why."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True)
class Reach:
    """Which tests execute a line of a file, and how long each takes."""

    tests: Mapping[str, Mapping[int, frozenset[str]]]
    seconds: Mapping[str, float]

    def of(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests that execute the changed statement, quick ones first, up to SECONDS_OF_TESTS: first those of the files
        that have most of them, since a file must be read before its tests run.

        What is executed at import (defaults, fields, constants) concerns every test of its function, or of its file.
        """
        lines = self.tests.get(str(mutant.file), {})
        first, last = _executed_lines(TREE / mutant.file, mutant.start[0])
        reaching = {test for line, tests in lines.items() if first <= line <= last for test in tests}
        chosen, spent = [], 0.0
        for test in sorted(reaching & self.seconds.keys(), key=lambda test: (self.seconds[test], test)):
            spent += self.seconds[test]
            if chosen and spent > SECONDS_OF_TESTS:
                break
            chosen.append(test)
        nearest = {file for file, _ in Counter(test.partition("::")[0] for test in chosen).most_common(FILES_FIRST)}
        parts = [[test for test in chosen if (test.partition("::")[0] in nearest) is first] for first in (True, False)]
        return [part for part in parts if part]


@cache
def _syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _executed_lines(path: Path, line: int) -> tuple[int, int]:
    """Return the lines of the statement at a line, of the function whose head it is, or of the file where it runs at import."""
    within = [
        node for node in ast.walk(_syntax(path)) if isinstance(node, ast.stmt) and _first(node) <= line <= _last(node)
    ]
    functions = [node for node in within if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        return 1, sys.maxsize
    inner = max(functions, key=_first)
    if line < _first(inner.body[0]):
        return _first(inner.body[0]), _last(inner)
    statement = max(
        (node for node in within if _first(node) >= _first(inner)), key=lambda node: (_first(node), -_last(node))
    )
    return _first(statement), _last(statement)


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _is_code(path: Path, operator: str, place: tuple[int, int]) -> bool:
    """Say whether what is changed runs: types do not, and the `*` of a signature or of `**kwargs` is no multiplication."""
    if operator == "core/ExceptionReplacer":
        return place in _caught(path)
    annotations, operations = _spans(path)
    if operator.startswith("core/ReplaceBinaryOperator"):
        return any(start <= place < end for start, end in operations)
    return not any(start <= place < end for start, end in annotations)


Span = tuple[tuple[int, int], tuple[int, int]]


@cache
def _spans(path: Path) -> tuple[list[Span], list[Span]]:
    """Return where a file writes types, and where the operators between two operands are."""
    annotations: list[Span] = []
    operations: list[Span] = []
    for node in ast.walk(_syntax(path)):
        written = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        annotations += [((part.lineno, part.col_offset), _end(part)) for part in written if isinstance(part, ast.expr)]
        if isinstance(node, ast.BinOp):
            operations.append((_end(node.left), (node.right.lineno, node.right.col_offset)))
    inside = [span for span in operations if not any(start <= span[0] < end for start, end in annotations)]
    return annotations, inside


@cache
def _caught(path: Path) -> set[tuple[int, int]]:
    """Return where a file names the exceptions that it catches. Cosmic Ray fails at a name with a dot."""
    types = [node.type for node in ast.walk(_syntax(path)) if isinstance(node, ast.ExceptHandler)]
    names = [name for kind in types for name in (kind.elts if isinstance(kind, ast.Tuple) else [kind])]
    return {(name.lineno, name.col_offset) for name in names if isinstance(name, ast.Name)}


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _changes(path: Path) -> Iterator[Mutant]:
    """Yield every change of a file by an operator that is telling."""
    nodes, lines = list(ast_nodes(get_ast_from_path(path))), path.read_text(encoding="utf-8").splitlines()
    file, alike = path.relative_to(TREE), Counter[str]()
    for name in filter(is_telling, operator_names()):
        operator = get_operator(name)()
        found = ((node, start) for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, (node, start) in enumerate(found):
            if _is_code(path, name, start):
                function = ASTQuery(node).get_definition_name() or ""
                change = f"{file}: {function}: {lines[start[0] - 1].strip()}: {name.removeprefix('core/')}"
                alike[change] += 1
                yield Mutant(f"{change} {alike[change]}", file, start, name, occurrence)


def draw(package: str, seed: int, count: int) -> list[Mutant]:
    """Draw `count` places of a package and one change for each.

    Places and changes are ranked by a hash of the seed and their name: code that changes elsewhere leaves the draw as it is.
    """
    places: dict[tuple[Path, tuple[int, int]], list[Mutant]] = {}
    for path in sorted((TREE / "src/assay" / package).rglob("*.py")):
        for mutant in _changes(path):
            places.setdefault((path, mutant.start), []).append(mutant)

    def rank(mutant: Mutant, kind: str) -> str:
        return hashlib.sha256(f"{seed} {kind} {mutant.name}".encode()).hexdigest()

    # one change for each place, whichever the number of operators that fit it
    chosen = [min(changes, key=lambda mutant: rank(mutant, "change")) for changes in places.values()]
    return sorted(chosen, key=lambda mutant: rank(mutant, "place"))[:count]


def copy_tree() -> None:
    """Copy the files that git knows or would add: mutants are written into the copy. What is the same stays, compiled as it is."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if (ROOT / name).is_file()}
    for path in TREE.rglob("*.py"):
        if str(path.relative_to(TREE)) not in names:
            path.unlink()
    for name in names:
        copied = TREE / name
        if not copied.is_file() or not filecmp.cmp(ROOT / name, copied, shallow=False):
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copied)


PRELOADED = (
    "aiohttp",
    "hypothesis",
    "jinja2",
    "numpy",
    "orjson",
    "pyarrow.parquet",
    "pytest",
    "scipy.stats",
    "sklearn.metrics",
    "yaml",
)
"""What most tests import, and no mutant changes: imported once, it costs a mutant nothing."""
MARKED = ["-m", "not (process or browser or torch or slow or nightly)", "--continue-on-collection-errors"]
"""The tests that run within this process. Files that import torch are not collected where it is not installed."""
KILLED = None
"""The exit code of tests whose time was over."""


def run_pytest(arguments: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Run tests in a fork of this process, which knows no module of assay; return pytest's exit code and what it printed."""
    output = WORK / "output"
    child = os.fork()
    if child == 0:
        os.setsid()  # processes of tests end with it
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.path[:0] = [str(TREE), str(TREE / "src")]
        known = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported already
        options = ["-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0", *known]
        code: int = pytest.main([*options, *arguments])
        sys.stdout.flush()
        os._exit(code)
    end = time.monotonic() + limit
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), output.read_text(encoding="utf-8", errors="replace")
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return KILLED, ""
        time.sleep(0.02)


def measure_reach(tests: Sequence[str], again: bool) -> None:
    """Run quick tests without a mutant and store which lines each executes and how long it takes, beside what is known `again`.

    A test that fails without a mutant is left out: it would kill them all.
    """
    settings, report, kept = WORK / "tracing.ini", WORK / "times.xml", WORK / "times.json"
    included = ",".join(f"src/assay/{package}/*" for package in PACKAGES)
    lines = ["[run]", "relative_files = true", f"data_file = {WORK / 'coverage'}", f"include = {included}", ""]
    settings.write_text("\n".join(lines), encoding="utf-8")
    traced = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    timed = ["-o", "junit_family=xunit1", f"--junitxml={report}"]
    run_pytest([*MARKED, *traced, *(["--cov-append"] if again else []), *timed, *tests], 24 * 60 * 60)
    print((WORK / "output").read_text(encoding="utf-8").splitlines()[-1], flush=True)
    seconds = json.loads(kept.read_text(encoding="utf-8")) if again else {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            seconds[f"{case.get('file')}::{case.get('name')}"] = float(case.get("time", 0))
    kept.write_text(json.dumps(seconds), encoding="utf-8")


def read_reach(packages: Sequence[str]) -> Reach:
    """Read what `measure_reach` stored of the files of these packages."""
    stored = CoverageData(str(WORK / "coverage"))
    stored.read()
    tests = {
        file: {
            line: frozenset(context.removesuffix("|run") for context in contexts if context.endswith("|run"))
            for line, contexts in stored.contexts_by_lineno(file).items()
        }
        for file in stored.measured_files()
        if Path(file).parts[2] in packages
    }
    return Reach(tests, json.loads((WORK / "times.json").read_text(encoding="utf-8")))


def examine(mutant: Mutant, reach: Reach) -> Result:
    """Run the tests that reach a mutant until one fails."""
    parts = reach.of(mutant)
    limit = 60 + 5 * sum(reach.seconds[test] for part in parts for test in part)
    code, output, tests = 0, "", []
    with use_mutation(mutant.file, get_operator(mutant.operator)(), mutant.occurrence) as (before, after):
        compared = difflib.unified_diff(before.splitlines(), str(after).splitlines(), lineterm="", n=1)
        diff = "\n".join(list(compared)[2:])
        for tests in parts:
            code, output = run_pytest(["-x", "--tb=no", *tests], limit)
            if code != 0:
                break
    if code == 0:
        return Result("survived", f"{sum(map(len, parts))} tests pass\n{diff}")
    named = next((line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))), None)
    # pytest itself broke, or time was over: that is the change's doing only if the same tests pass without it
    if named is None and run_pytest(["-x", "--tb=no", *tests], limit)[0] != 0:
        return Result("survived", f"undecided: these tests break without the change, too\n{diff}")
    return Result("killed", named or "timeout, or tests that cannot be loaded")


def examine_package(package: str, options: argparse.Namespace, reach: Reach) -> Counter[str]:
    """Examine the drawn mutants of a package, print those that survive, and keep the results for `--again`."""
    equivalents: Mapping[str, str] = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))
    kept = WORK / f"{package}.json"
    known = json.loads(kept.read_text(encoding="utf-8")) if options.again and kept.exists() else {}
    mutants = draw(package, options.seed, options.drawn)
    outcomes: Counter[str] = Counter()
    for number, mutant in enumerate(mutants, 1):
        before = Result(**known[mutant.name]) if mutant.name in known else None
        if reason := equivalents.get(mutant.name):
            result = Result("equivalent", reason)
        elif before is not None and (before.outcome == "killed" or not options.tests):
            result = before
        else:
            result = examine(mutant, reach)
        known[mutant.name] = asdict(result)
        outcomes[result.outcome] += 1
        place = f"{mutant.file}:{mutant.start[0]}"
        shown = f"\n{mutant.name}\n{result.reason}\n" if result.outcome == "survived" else result.reason
        print(f"{package} {number}/{len(mutants)}: {result.outcome} {place} {shown}", flush=True)
        kept.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return outcomes


def main() -> int:
    """Examine packages and print how many mutants of each were drawn, killed, survived and are equivalent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(PACKAGES)} (default: all)")
    parser.add_argument("--seed", type=int, default=34, help="which places are drawn (default: %(default)s)")
    parser.add_argument("--drawn", type=int, default=80, help="places drawn of each package (default: %(default)s)")
    parser.add_argument(
        "--again", action="store_true", help="keep what is known of tests, and mutants that were killed"
    )
    parser.add_argument(
        "--tests", nargs="+", default=[], help="only these files of tests (default: all; with --again: none)"
    )
    options = parser.parse_args()
    copy_tree()
    os.chdir(TREE)
    os.environ |= {"PYTHONPATH": str(TREE / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for module in PRELOADED:
        import_module(module)
    if options.tests or not options.again:
        measure_reach(options.tests or ["tests", "src"], options.again)
    packages = options.packages or PACKAGES
    reach = read_reach(packages)
    gc.freeze()
    sys.dont_write_bytecode = True  # or of two changes within a second the first is run twice
    counts = {package: examine_package(package, options, reach) for package in packages}
    print(f"\n{'package':12}{'drawn':>8}{'killed':>8}{'survived':>10}{'equivalent':>12}{'share':>8}")
    enough = True
    for package, count in counts.items():
        killed, survived, equivalent = (count[outcome] for outcome in ("killed", "survived", "equivalent"))
        share = killed / max(killed + survived, 1)
        enough = enough and share >= LEAST_KILLED and equivalent <= MOST_EQUIVALENT * count.total()
        print(f"{package:12}{count.total():8}{killed:8}{survived:10}{equivalent:12}{share:8.0%}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
