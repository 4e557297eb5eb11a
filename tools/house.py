"""Counts what should exist once: signature checkers, registries, readers of runs, ways into scoring, broad excepts.

usage: python tools/house.py [TREE …]      (a folder with src/assay; this repository without one)

Everything is counted from the syntax trees, so that trees of other versions can be counted, too. Each number is followed by
where it comes from.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KINDS = (
    "METRICS", "FILTERS", "AGGREGATIONS", "REDUCTIONS", "AGGREGATORS", "SCORERS", "SCORER_REGISTRY", "BACKENDS", "SAMPLERS",
    "TRANSFORMS", "FORMATS", "UNIT_METRICS", "AGGREGATOR_METRICS", "EXPORTERS",
)  # fmt: skip
"""The tables of names that users write."""
RUN_FILES = {"MANIFEST", "RESULTS", "manifest.json", "results.json"}
OPENERS = {"read_manifest", "read_results", "SampleFile", "ParquetFile", "sample_file"}
NOT_RUNS = {
    "samples/parquet.py": "data sets of users in Parquet",
    "exchange/archive.py": "the members of an archive, searched for answers before it is written",
    "viewer/samples.py": "opened by Run, and queried by DuckDB",
}
"""Modules outside runs/ that open Parquet and do not read a run, each with the reason."""


class Module(NamedTuple):
    name: str
    tree: ast.Module


@cache
def modules(tree: Path) -> list[Module]:
    """The modules of a tree, by their path below src/assay."""
    root = tree / "src/assay"
    return [Module(str(path.relative_to(root)), ast.parse(path.read_text())) for path in sorted(root.rglob("*.py"))]


def signature_checkers(every: list[Module]) -> Iterator[str]:
    """Modules that refuse an unknown parameter in their own words."""
    for module in every:
        texts = (ast.unparse(node) for node in ast.walk(module.tree) if isinstance(node, ast.JoinedStr))
        if any(re.search(r"has no (parameter|argument|\{word\}) \{", text) for text in texts):
            yield module.name


def registries(every: list[Module]) -> Iterator[str]:
    """The classes, and `dict`, that hold names which users write. One that keeps nothing itself is a view."""
    for module in every:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and re.search(r"Regist", node.name) and _keeps(node):
                yield f"class {node.name} ({module.name})"
        for name, value in _assigned(module.tree):
            if name in KINDS and isinstance(value, ast.Dict) and not module.name.startswith("compat/"):
                yield f"dict ({name} in {module.name})"


def _keeps(node: ast.ClassDef) -> bool:
    """Whether a class has a dict to which things are added."""
    for each in ast.walk(node):
        target = (
            each.targets[0]
            if isinstance(each, ast.Assign)
            else each.target
            if isinstance(each, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Attribute | ast.Tuple) and re.search(r"\{|dict\(", ast.unparse(each)):
            return True
    return False


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def run_readers(every: list[Module]) -> Iterator[str]:
    """Modules that open the files of a run to read them, beside writers in runs/; `runs/run.py` where it is there."""
    for module in every:
        if module.name == "runs/run.py" or (
            not module.name.startswith("runs/")
            and module.name not in NOT_RUNS
            and any(map(_reads, ast.walk(module.tree)))
        ):
            yield module.name


def _reads(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    called = called or (
        node.func.attr if isinstance(node.func, ast.Attribute) and node.func.attr == "ParquetFile" else ""
    )
    if called in OPENERS:
        return True
    named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    named |= {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return bool(re.search(r"loads|read_json|read_bytes", ast.unparse(node.func))) and bool(named & RUN_FILES)


SCORING_METHODS = {"scores", "scores_asked", "scores_shown", "scores_together", "values"}
"""Methods of a scorer, beside those of the seeds, from which scores could be had."""


def ways_into_scoring(every: list[Module]) -> Iterator[str]:
    """Modules that apply filters to answers or build the scores of a filter; and what else a scorer can be asked for."""
    for module in every:
        if not module.name.startswith(("scoring/", "scorers/", "tasks/", "evaluation/")):
            continue
        if any(map(_scores, ast.walk(module.tree))):
            yield module.name
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name == "Scorer":
                yield from (f"Scorer.{each.name}" for each in node.body if getattr(each, "name", "") in SCORING_METHODS)


def _scores(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ("apply", "apply_batch"):
        return bool(re.search(r"\b(pipeline|filter)$", ast.unparse(node.value)))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "FilterScores"


def broad_excepts(every: list[Module]) -> Iterator[str]:
    """Handlers of everything: `except Exception` and wider."""
    for module in every:
        for node in ast.walk(module.tree):
            caught = ast.unparse(node.type) if isinstance(node, ast.ExceptHandler) and node.type is not None else ""
            if isinstance(node, ast.ExceptHandler) and (not node.type or re.search(r"\b(Base)?Exception\b", caught)):
                yield f"{module.name}:{node.lineno}"


COUNTS: dict[str, Callable[[list[Module]], Iterator[str]]] = {
    "signature checkers": signature_checkers,
    "registry kinds": registries,
    "run readers": run_readers,
    "ways into scoring": ways_into_scoring,
    "broad excepts": broad_excepts,
}


def repeated_classes(every: list[Module]) -> dict[str, list[str]]:
    """Class names that more than one class has, each with the modules that define them."""
    places: dict[str, list[str]] = {}
    for module in every:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module.name)
    return {name: modules for name, modules in sorted(places.items()) if len(modules) > 1}


def loose_signatures(every: list[Module]) -> tuple[list[str], int]:
    """Functions whose signature mentions `Any` or `object`, and the number of all functions."""
    loose, number = [], 0
    for module in every:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                number += 1
                arguments = node.args
                parameters = [
                    *arguments.posonlyargs,
                    *arguments.args,
                    *arguments.kwonlyargs,
                    arguments.vararg,
                    arguments.kwarg,
                ]
                annotations = [each.annotation for each in parameters if each and each.annotation] + [node.returns]
                text = " ".join(ast.unparse(each) for each in annotations if each)
                if re.search(r"\b(Any|object)\b", text):
                    loose.append(f"{module.name}:{node.lineno} {node.name}")
    return loose, number


def counted(tree: Path) -> dict[str, list[str]]:
    """By what is counted, where it was found."""
    every = modules(tree)
    return {name: sorted({*find(every)}) for name, find in COUNTS.items()}


def number(name: str, collected: list[str]) -> int:
    """How many there are; of registries how many kinds: all dicts are one."""
    return len({each.split(" (")[0] for each in collected}) if name == "registry kinds" else len(collected)


def pass_at_k(every: list[Module]) -> Iterator[str]:
    """Functions that compute pass@k: one minus a quotient of two binomial coefficients."""
    yield from _functions_with(every, _is_pass_at_k)


def _is_pass_at_k(node: ast.AST) -> bool:
    is_difference = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant)
    return is_difference and re.match(r"1(\.0)? - (\w+\.)?comb\(.* / (\w+\.)?comb\(", ast.unparse(node)) is not None


def class_scores(every: list[Module]) -> Iterator[str]:
    """Modules that compute F1: twice something over a sum; as a quotient, or as numerator and denominator."""
    result = _functions_with(every, _is_f1)
    yield from dict.fromkeys(each.split(":")[0] for each in result)


def _is_f1(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        above, below = node.left, node.right
    elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
        above, below = node.elts
    else:
        return False
    is_sum = isinstance(below, ast.BinOp) and isinstance(below.op, ast.Add)
    names = {each.id for each in ast.walk(below) if isinstance(each, ast.Name)}
    constants = any(isinstance(each, ast.Constant) for each in ast.walk(below))  # 2 * x / (n + 1) is another thing
    return is_sum and len(names) > 1 and not constants and re.match(r"2(\.0)? \* ", ast.unparse(above)) is not None


def softmaxes(every: list[Module]) -> Iterator[str]:
    """Functions that compute softmax: exponentials of distances to the largest value, over their sum."""
    yield from _functions_with(every, _is_softmax, whole=True)


def _is_softmax(node: ast.AST) -> bool:
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    if not any("exp" in (getattr(each, "attr", ""), getattr(each, "id", "")) for each in calls):
        return False
    text = ast.unparse(node)
    shifted = re.search(r"exp\((np\.asarray\()?(\w+)\)? - (np\.)?(max\(|\w*(best|most|max|highest|largest)\w*\b)", text)
    return shifted is not None and re.search(r"\bsum\(", text) is not None and "fsum(" not in text


def _functions_with(every: list[Module], test: Callable[[ast.AST], object], *, whole: bool = False) -> Iterator[str]:
    """Functions of which the whole, or a part, passes a test; by module and name."""
    for module in every:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef) and any(map(test, [node] if whole else ast.walk(node))):
                yield f"{module.name}:{node.name}"


STATISTICS: dict[str, Callable[[list[Module]], Iterator[str]]] = {
    "pass@k": pass_at_k,
    "precision, recall, F1": class_scores,
    "softmax": softmaxes,
}
"""What belongs into statistics/ and nowhere else."""


def statistics(tree: Path) -> dict[str, list[str]]:
    """By statistic, where it is implemented."""
    every = modules(tree)
    return {name: sorted({*find(every)}) for name, find in STATISTICS.items()}


def main() -> None:
    for tree in [Path(each) for each in sys.argv[1:]] or [ROOT]:
        every = counted(tree) | statistics(tree)
        print(" / ".join(f"{name} {number(name, result)}" for name, result in every.items()))
        for name, result in every.items():
            print(f"  {name}: {', '.join(result)}")
        trees = modules(tree)
        loose, functions = loose_signatures(trees)
        print(f"  signatures with Any or object: {len(loose)} of {functions}, {len(loose) / functions:.1%}")
        for name, places in repeated_classes(trees).items():
            print(f"  class {name}: {', '.join(places)}")


if __name__ == "__main__":
    main()
