"""The house: what the core needs, what importing costs, how long is long."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools import house

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
    "user_code.py": "call_user_code, where other people's code is called; and a user's exception that fails at its own message",
    "engine/lanes.py": "an error behind a callback of the event loop ends the run, from where the run is awaited",
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
    ]
    assert sorted(set(broad)) == sorted(MAY_CATCH_ANYTHING)
    assert len(broad) == 3


def test_there_is_one_binder_one_registry_one_reader_and_one_scoring_loop() -> None:
    found = house.counted(ROOT)
    numbers = {name: house.number(name, places) for name, places in found.items() if name != "broad excepts"}
    assert numbers == dict.fromkeys(numbers, 1), found


def test_the_count_finds_what_exists_twice(tmp_path: Path) -> None:
    second = tmp_path / "src/assay/tasks/second.py"
    second.parent.mkdir(parents=True)
    second.write_text(
        "METRICS = {'a': len}\n"
        "class MetricRegistry:\n    def __init__(self): self.known = {}\n"
        "def check(key): return f'it has no parameter {key!r}'\n"
        "def read(path): return orjson.loads((path / RESULTS).read_bytes())\n"
        "def score(pipeline, answers):\n    try: return pipeline.apply(answers)\n    except Exception: return 0\n"
    )
    found = house.counted(tmp_path)
    assert {name: house.number(name, places) for name, places in found.items()} == {
        "signature checkers": 1, "registry kinds": 2, "run readers": 1, "ways into scoring": 1, "broad excepts": 1,
    }  # fmt: skip


def test_every_public_name_can_be_imported() -> None:
    import assay

    for name in assay.__all__:
        assert getattr(assay, name) is not None
    assert set(assay.__all__) <= set(dir(assay))
