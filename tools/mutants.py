"""Measures what the tests notice: changes one place of the code at a time and runs the quick tests that reach it.

usage: python tools/mutants.py [PACKAGE …] [--seed N] [--drawn N] [--tests PATH …] [--again]

Cosmic-ray finds the places, makes the change and runs pytest; this file draws the places, chooses the tests by coverage.py's
contexts and prints the table. Everything happens in a copy of the repository, .mutants/tree. The exit code is 1 when less than
80 % of a package's mutants are killed, equivalents not counted, or more than 5 % are equivalents.
(docs/decisions/0033-mutants.md)
"""

import argparse
import ast
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutants"
TREE = WORK / "tree"
EQUIVALENTS = ROOT / "tools" / "mutants_equivalent.toml"
PACKAGES = ("groups", "statistics", "catalog", "engine", "runs", "scoring")
LEAST_KILLED, MOST_EQUIVALENT = 0.8, 0.05
SECONDS_OF_TESTS = 60.0
"""A mutant that lives through so many seconds of tests, quick ones first, survives: thousands reach the middle of the code."""


def is_telling(operator: str) -> bool:
    """Say whether an operator makes mutants that a test can only kill by looking at a result.

    `a | b` for `a + b`, `x < None` for `x is None` raise as soon as the line runs; `==` for `is`, and a function without its cache,
    mostly mean the same.
    """
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
    spec: MutationSpec


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

    def of(self, spec: MutationSpec) -> list[str]:
        """Return the tests that execute the changed statement, quick ones first, up to SECONDS_OF_TESTS.

        What is executed at import (defaults, fields, constants) concerns every test of its function, or of its file.
        """
        lines = self.tests.get(str(spec.module_path), {})
        first, last = _executed_lines(TREE / spec.module_path, spec.start_pos[0])
        reaching = {test for line, tests in lines.items() if first <= line <= last for test in tests}
        chosen, spent = [], 0.0
        for test in sorted(reaching & self.seconds.keys(), key=lambda test: (self.seconds[test], test)):
            spent += self.seconds[test]
            if chosen and spent > SECONDS_OF_TESTS:
                break
            chosen.append(test)
        return chosen


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


def _is_code(path: Path, spec: MutationSpec) -> bool:
    """Say whether what is changed runs: types do not, and the `*` of a signature or of `**kwargs` is no multiplication."""
    annotations, operations = _spans(path)
    if spec.operator_name.startswith("core/ReplaceBinaryOperator"):
        return any(start <= spec.start_pos < end for start, end in operations)
    return not any(start <= spec.start_pos < end for start, end in annotations)


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


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def draw(package: str, seed: int, count: int) -> list[Mutant]:
    """Draw `count` places of a package and one change for each.

    Places and changes are ranked by a hash of the seed and their name: code that changes elsewhere leaves the draw as it is.
    """
    paths = [path.relative_to(TREE) for path in sorted((TREE / "src/assay" / package).rglob("*.py"))]
    with use_db(str(WORK / "places.sqlite"), WorkDB.Mode.create) as found:
        init(paths, found, {})
        specs = [mutation for item in found.work_items for mutation in item.mutations]
    lines = {path: (TREE / path).read_text(encoding="utf-8").splitlines() for path in paths}
    alike: Counter[str] = Counter()
    places: dict[tuple[Path, tuple[int, int]], list[Mutant]] = {}
    for spec in sorted(specs, key=lambda spec: (spec.module_path, spec.operator_name, spec.occurrence)):
        path, operator = spec.module_path, spec.operator_name.removeprefix("core/")
        if is_telling(operator) and _is_code(TREE / path, spec):
            name = f"{path}: {spec.definition_name or ''}: {lines[path][spec.start_pos[0] - 1].strip()}: {operator}"
            alike[name] += 1
            places.setdefault((path, spec.start_pos), []).append(Mutant(f"{name} {alike[name]}", spec))

    def rank(mutant: Mutant, kind: str) -> str:
        return hashlib.sha256(f"{seed} {kind} {mutant.name}".encode()).hexdigest()

    # one change for each place, whichever the number of operators that fit it
    chosen = [min(changes, key=lambda mutant: rank(mutant, "change")) for changes in places.values()]
    return sorted(chosen, key=lambda mutant: rank(mutant, "place"))[:count]


def copy_tree() -> None:
    """Copy the files that git knows or would add: mutants are written into the copy."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, TREE / name)


PYTEST = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"]


def measure_reach(tests: Sequence[str], again: bool) -> None:
    """Run quick tests without a mutant and store which lines each executes and how long it takes, beside what is known `again`.

    A test that fails without a mutant is left out: it would kill them all.
    """
    settings, report, kept = WORK / "coverage.ini", WORK / "times.xml", WORK / "times.json"
    included = ",".join(f"src/assay/{package}/*" for package in PACKAGES)
    lines = ["[run]", "relative_files = true", f"data_file = {WORK / 'coverage'}", f"include = {included}", ""]
    settings.write_text("\n".join(lines), encoding="utf-8")
    traced = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    timed = ["-o", "junit_family=xunit1", f"--junitxml={report}"]
    subprocess.run([*PYTEST, "--quick", *traced, *(["--cov-append"] if again else []), *timed, *tests], check=False)
    seconds = json.loads(kept.read_text(encoding="utf-8")) if again else {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            seconds[f"{case.get('file')}::{case.get('name')}"] = float(case.get("time", 0))
    kept.write_text(json.dumps(seconds), encoding="utf-8")


def read_reach() -> Reach:
    """Read what `measure_reach` stored."""
    stored = CoverageData(str(WORK / "coverage"))
    stored.read()
    tests = {
        file: {
            line: frozenset(context.removesuffix("|run") for context in contexts if context.endswith("|run"))
            for line, contexts in stored.contexts_by_lineno(file).items()
        }
        for file in stored.measured_files()
    }
    return Reach(tests, json.loads((WORK / "times.json").read_text(encoding="utf-8")))


def examine(spec: MutationSpec, reach: Reach) -> Result:
    """Run the tests that reach a mutant until one fails."""
    tests = reach.of(spec)
    command = shlex.join([*PYTEST, "-x", "--tb=no", *tests] if tests else ["true"])
    limit = 60 + 5 * sum(reach.seconds[test] for test in tests)
    result = mutate_and_test([spec], command, limit)
    if result.diff is None:
        raise RuntimeError(result.output)
    if not result.is_killed:
        return Result(
            "survived", f"{len(tests)} tests pass\n{result.diff}" if tests else f"no test reaches it\n{result.diff}"
        )
    named = next((line for line in str(result.output).splitlines() if line.startswith(("FAILED ", "ERROR "))), None)
    # pytest itself broke, or time was over: that is the change's doing only if the same tests pass without it
    if named is None and run_tests(command, limit)[0] is not TestOutcome.SURVIVED:
        return Result("survived", f"undecided: these tests break without the change, too\n{result.diff}")
    return Result("killed", named or "timeout, or tests that cannot be loaded")


def examine_package(package: str, options: argparse.Namespace, reach: Reach) -> Counter[str]:
    """Examine the drawn mutants of a package, print those that survive, and keep the results for `--again`."""
    equivalents: Mapping[str, str] = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))
    kept = WORK / f"{package}.json"
    known = json.loads(kept.read_text(encoding="utf-8")) if options.again and kept.exists() else {}
    mutants = draw(package, options.seed, options.drawn)
    results: dict[str, Result] = {}
    for number, mutant in enumerate(mutants, 1):
        if reason := equivalents.get(mutant.name):
            result = Result("equivalent", reason)
        elif known.get(mutant.name, {}).get("outcome") == "killed":
            result = Result(**known[mutant.name])
        else:
            result = examine(mutant.spec, reach)
        results[mutant.name] = result
        place = f"{mutant.spec.module_path}:{mutant.spec.start_pos[0]}"
        shown = f"\n{mutant.name}\n{result.reason}\n" if result.outcome == "survived" else result.reason
        print(f"{package} {number}/{len(mutants)}: {result.outcome} {place} {shown}", flush=True)
        kept.write_text(json.dumps({name: asdict(done) for name, done in results.items()}, indent=1), encoding="utf-8")
    return Counter(result.outcome for result in results.values())


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
    os.environ["PYTHONPATH"] = str(TREE / "src")
    if options.tests or not options.again:
        measure_reach(options.tests or ["tests", "src"], options.again)
    reach = read_reach()
    counts = {package: examine_package(package, options, reach) for package in options.packages or PACKAGES}
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
