"""The house: what the core needs, what importing costs, how long is long."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "src/assay").rglob("*.py"))
HEAVY = ("torch", "transformers", "datasets", "litellm", "pandas", "numpy", "yaml", "jinja2", "rich", "asyncio")


def test_the_core_has_no_heavy_dependency_and_the_extras_are_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.split(r"[\[<>=!~ ]", name)[0] for name in project["dependencies"]}
    assert core.isdisjoint({"torch", "transformers", "datasets", "litellm", "pandas"})
    extras = {"hub", "hf", "vllm", "metrics", "math", "view", "ray", "litellm", "mlflow", "wandb", "test"}
    assert set(project["optional-dependencies"]) == extras
    assert "torch==2.13.0" in project["optional-dependencies"]["test"]
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    assert all(name in architecture for name in core), "each core dependency is justified in ARCHITECTURE.md"


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in ended.stdout.split()}


def test_importing_assay_imports_nothing_heavy() -> None:
    assert loaded_after("import assay").isdisjoint(HEAVY)


def test_help_imports_nothing_heavy() -> None:
    helped = "from assay.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded_after(helped).isdisjoint(HEAVY)


def test_a_warm_listing_parses_no_yaml() -> None:
    listing = "from assay.cli import main\nmain(['ls', '--pattern', 'nothing'])"
    loaded_after(listing)
    assert loaded_after(listing).isdisjoint(HEAVY)


def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_functions_fit_a_screen_and_files_stay_readable() -> None:
    long = [name for name, node in functions() if (node.end_lineno or 0) - node.lineno + 1 > 60]
    assert long == []
    assert [str(path) for path in MODULES if path.read_text().count("\n") > 600] == []


def test_no_room_is_called_utils() -> None:
    assert [
        path for path in MODULES if path.stem in ("utils", "util", "helpers", "common", "misc", "base", "core")
    ] == []


MAY_CATCH_ANYTHING = {
    "errors.py": "a user's exception words itself, and may raise another",
    "aggregate/estimate.py": "an aggregation may be anybody's code",
    "groups/aggregators.py": "an aggregation may be anybody's code",
    "catalog/examine.py": "a file of another program may say anything: it is broken, and the others are listed",
    "tasks/manager.py": "a task file may say anything: it is not loaded, and the others are",
    "tasks/validate.py": "a task file may say anything: it cannot be checked, and the others are",
    "compat/dotted.py": "a module is anybody's code",
    "compat/class_task.py": "a class is anybody's code",
    "engine/calls.py": "calls are anybody's code",
    "engine/lanes.py": "whatever a model raises, its requests failed",
    "models/litellm.py": "its errors are those of a hundred libraries",
    "compat/modules.py": "a helper module is anybody's code",
    "models/scripted.py": "a script stands for a model",
    "plans/graph.py": "nodes are anybody's code",
    "tasks/collate.py": "an aggregator may be anybody's code",
    "tasks/graph_files.py": "a post-processor is anybody's code",
    "tasks/unit_metrics.py": "with --compat sygra, what a unit metric raises is a wrong answer",
    "samples/data.py": "the hub's errors are those of a dozen libraries, and of a data set's own code",
    "samples/user_code.py": "it is where a user's functions are called",
    "scorers/loop.py": "filters and metrics may be anybody's code",
    "cli/show.py": "--render runs helper code",
}


def test_a_broad_except_stands_only_where_other_peoples_code_is_called() -> None:
    broad = [
        str(path.relative_to(ROOT / "src/assay"))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
        )
        and not (node.body and isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    ]
    assert sorted(set(broad)) == sorted(MAY_CATCH_ANYTHING)


def test_every_public_name_can_be_imported() -> None:
    import assay

    for name in assay.__all__:
        assert getattr(assay, name) is not None
    assert set(assay.__all__) <= set(dir(assay))
