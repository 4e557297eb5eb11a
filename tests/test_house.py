"""Rules of the code: what the core needs, what an import loads, how long is long, which words are banned."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest
from tools import house, words

pytestmark = pytest.mark.xdist_group("house")  # the sources are parsed once
ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "src/assay").rglob("*.py"))
HEAVY = ("torch", "transformers", "datasets", "litellm", "pandas", "numpy", "yaml", "jinja2", "rich", "asyncio")


def test_the_core_has_no_heavy_dependency_and_the_extras_are_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.split(r"[\[<>=!~ ]", name)[0] for name in project["dependencies"]}
    assert core.isdisjoint({"torch", "transformers", "datasets", "litellm", "pandas"})
    extras = {
        "hub",
        "hf",
        "vllm",
        "metrics",
        "math",
        "view",
        "ray",
        "litellm",
        "mlflow",
        "wandb",
        "plot",
        "object-storage",
        "quick",
        "test",
        "mutants",
    }
    assert set(project["optional-dependencies"]) == extras
    assert "torch==2.13.0" in project["optional-dependencies"]["test"]
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    assert all(name in architecture for name in core), "each core dependency is justified in ARCHITECTURE.md"


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def loaded_after(statement: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_after(statement)}


def test_importing_assay_imports_nothing_heavy() -> None:
    assert loaded_after("import assay").isdisjoint(HEAVY)


def test_help_imports_nothing_heavy() -> None:
    helped = "from assay.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded_after(helped).isdisjoint(HEAVY)


def test_a_warm_listing_parses_no_yaml() -> None:
    listing = "from assay.cli import main\nmain(['ls', '--pattern', 'nothing'])"
    loaded_after(listing)
    assert loaded_after(listing).isdisjoint(HEAVY)


UNUSED = {
    "pandas", "duckdb", "datasets", "sympy", "torch", "transformers", "ray", "aiohttp",
    "assay.graphs", "assay.compat.names", "assay.compat.class_task", "assay.exchange", "assay.tasks.rescore",
    "assay.scoring.metrics.math_comparison", "assay.scoring.metrics.math_text", "assay.scoring.metrics.math_units",
    "assay.cli.show", "assay.cli.sweep_processes",
}  # fmt: skip
"""What a run of a plain task with the model `dummy` has no use for: libraries that are installed here, and own modules."""
TASK = """
    dataset_path: json
    dataset_kwargs: {{data_files: {{test: {data}}}}}
    test_split: test
    doc_to_text: "{{{{q}}}} é"
    doc_to_target: a
"""
PLAIN_TASKS = {
    "texts": "output_type: generate_until\n    repeats: 2\n    generation_kwargs: {do_sample: true, temperature: 1.0}",
    "choices": "output_type: multiple_choice\n    doc_to_choice: [b, c]",
    "pages": "output_type: loglikelihood_rolling",
}
SMALL_GRAPH = """
    data_config: {source: {type: disk, file_path: data.jsonl}}
    graph_config:
      nodes:
        say:
          node_type: llm
          prompt: [{user: "{q}"}]
          output_keys: said
          model: {name: m}
        check: {node_type: lambda, lambda: code.check, output_keys: right}
      edges: [{from: START, to: say}, {from: say, to: check}, {from: check, to: END}]
"""


def test_a_run_of_each_kind_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    assert all(find_spec(name) for name in ("pandas", "duckdb", "datasets", "sympy", "ray")), "else this shows nothing"
    data = tmp_path / "data.jsonl"
    data.write_text('{"q": "x", "a": "b", "right": 1}\n{"q": "y", "a": "c", "right": null}\n')
    for name, settings in PLAIN_TASKS.items():
        text = f"    task: {name}\n    {settings}{TASK.format(data=data)}"
        (tmp_path / f"{name}.yaml").write_text(dedent(text))
    main = "from assay.cli import main\nmain"
    place = f"'--include_path', '{tmp_path}'"
    modules_after(f"{main}(['ls', {place}])")  # the index of bundled tasks is made, which reads graphs
    output = f"'--log_samples', '--output_path', '{tmp_path}/run'"
    run = modules_after(f"{main}(['run', '--model', 'dummy', '--tasks', '{','.join(PLAIN_TASKS)}', {output}, {place}])")
    assert (tmp_path / "run/results.json").is_file()
    assert sorted(UNUSED & run) == []


def test_a_run_of_a_graph_imports_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"q": "x"}\n')
    (tmp_path / "code.py").write_text("def check(spec, state):\n    return {**state, 'right': 1.0}\n")
    (tmp_path / "graph_config.yaml").write_text(dedent(SMALL_GRAPH))
    models = "'--model', 'dummy', '--model_role', 'm=dummy'"
    places = f"'--tasks', '{tmp_path}/graph_config.yaml', '--output_path', '{tmp_path}/run'"
    modules = modules_after(f"from assay.cli import main\nmain(['run', {models}, {places}])")
    assert (tmp_path / "run/results.json").is_file()
    assert modules.isdisjoint(("pandas", "duckdb", "datasets", "sympy", "torch"))


def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{module.name}:{node.lineno} {node.name}", node)
        for module in house.modules(ROOT)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.slow
def test_functions_fit_a_screen_and_files_stay_readable() -> None:
    long = [name for name, node in functions() if (node.end_lineno or 0) - node.lineno + 1 > 60]
    assert long == []
    assert [str(path) for path in MODULES if path.read_text().count("\n") > 900] == []


def test_the_flow_is_on_one_page() -> None:
    flow = (ROOT / "src/assay/evaluation/flow.py").read_text()
    assert flow.count("\n") <= 120
    assert not [node for node in ast.walk(ast.parse(flow)) if isinstance(node, ast.ClassDef)]


def test_no_module_is_called_utils() -> None:
    assert [
        path for path in MODULES if path.stem in ("utils", "util", "helpers", "common", "misc", "base", "core")
    ] == []


MAY_CATCH_ANYTHING = {
    "user_code.py": "call_user_code, where other people's code is called; and a user's exception that fails at its own message",
    "engine/lanes.py": "an error behind a callback of the event loop ends the run, from where the run is awaited",
}


@pytest.mark.slow
def test_a_broad_except_is_only_where_other_peoples_code_is_called() -> None:
    broad = [
        module.name
        for module in house.modules(ROOT)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
        )
    ]
    assert sorted(set(broad)) == sorted(MAY_CATCH_ANYTHING)
    assert len(broad) == 3


@pytest.mark.slow
def test_there_is_one_binder_one_registry_one_reader_and_one_scoring_loop() -> None:
    counts = house.counted(ROOT)
    numbers = {name: house.number(name, places) for name, places in counts.items() if name != "broad excepts"}
    assert numbers == dict.fromkeys(numbers, 1), counts


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
    counts = house.counted(tmp_path)
    assert {name: house.number(name, places) for name, places in counts.items()} == {
        "signature checkers": 1, "registry kinds": 2, "run readers": 1, "ways into scoring": 1, "broad excepts": 1,
    }  # fmt: skip


def test_every_public_name_can_be_imported() -> None:
    import assay

    for name in assay.__all__:
        assert getattr(assay, name) is not None
    assert set(assay.__all__) <= set(dir(assay))


BAN_LIST = (
    "word\ttold|tells?\treported\n"
    "name\tfound\tthe noun\n"
    "typed\twords: .*Tokenizer\ttokenizer\n"
    "phrase\t(?<!there )\\bis no [a-z]\tis not a\n"
    "start\tWhat\\b\ta verb\n"
    "name-ok\ttold_by_lm_eval\ta name of lm-eval's\n"
    "phrase-ok\tno is no answer\tpart of a prompt\n"
    "file-ok\tdocs/old/*\thistory\n"
)


def test_the_ban_list_is_applied_to_names_prose_and_docstrings(tmp_path: Path) -> None:
    files = {
        "src/assay/one.py": (
            '"""What it is."""\n'
            "def tell_it(words: HFTokenizer, not_found: int) -> str:\n"
            "    found = told_by_lm_eval = 1  # there is no such thing; this is no comment\n"
            "    return f'{found} is no number' + 'no is no answer' + 'told'\n"
        ),
        "src/assay/viewer/page.html": "<p>It is no page</p>\n",
        "docs/page.md": "a\nb is no c, `is no d`\n",
        "docs/old/page.md": "b is no c\n",
        "tests/test_one.py": "def test_it_is_no_test() -> None: ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    hits = words.hits(tmp_path, words.BanList(BAN_LIST))
    assert sorted((hit.kind, Path(hit.file).name, hit.line, hit.instead) for hit in hits) == [
        ("docs", "page.md", 2, "is not a"),
        ("docstrings", "one.py", 1, "a verb"),
        ("elsewhere", "one.py", 2, "reported"),
        ("elsewhere", "one.py", 2, "tokenizer"),
        ("elsewhere", "one.py", 3, "is not a"),
        ("elsewhere", "one.py", 3, "the noun"),
        ("messages", "one.py", 4, "is not a"),
        ("tests", "test_one.py", 1, "is not a"),
        ("viewer", "page.html", 1, "is not a"),
    ]


SAME_NAME = {
    "Filter": "lm-eval's base class of filters, for helper code of its tasks, and ours",
    "Instance": "lm-eval's request of a class task, and the seeds' instance",
    "Metric": "lm-eval 0.5's record of a metric, and ours",
    "Results": "the seeds' results of a document's answers, and the tree of a run",
    "Task": "lm-eval's base class of tasks, and the seeds' task",
}
MOST_REPEATED_CLASS_NAMES = 0


def test_class_names_have_one_meaning() -> None:
    repeated = house.repeated_classes(house.modules(ROOT))
    assert len(set(repeated) - set(SAME_NAME)) <= MOST_REPEATED_CLASS_NAMES, repeated
    assert set(SAME_NAME) <= set(repeated), "an exemption that is no longer needed"


# By the text of annotations. The number of such signatures did not grow where functions without them were deleted: 366 of 7,273.
LARGEST_SHARE_OF_LOOSE_SIGNATURES = 0.055


def test_few_signatures_mention_any_or_object() -> None:
    loose, functions_in_all = house.loose_signatures(house.modules(ROOT))
    assert len(loose) / functions_in_all <= LARGEST_SHARE_OF_LOOSE_SIGNATURES, loose


def test_only_late_finds_packages_above_by_name() -> None:
    doors = {"__init__.py", "late.py", "public.py"}
    by_name = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "src/assay").rglob("*.py"))
        if path.name not in doors
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"""import_module\(f?["']assay""", line)
    ]
    assert by_name == []


TEXTS_OF_KEYS = {"REPEATS", "STDERR", "is_joined", "join_scores", "split_rows", "stderr_name"}
"""What score_keys.py has for the text that joins a metric and a filter, beside `ScoreKey.parse`."""
MAY_JOIN = {
    "score_keys.py": "the one module that joins and splits",
    "exchange/": "files of lm-eval and Inspect",
    "groups/task_results.py": "what users' aggregators are given",
    "groups/aggregators.py": "what users' aggregators return",
    "compat/lm_eval_scorers.py": "lm-eval's record of such a text",
    "runs/samples/": "names of columns",
    "comparison/packs.py": "names of columns",
    "runs/labels.py": "lines of labels.jsonl",
    "evaluation/score.py": "lines of changes.jsonl",
    "tasks/documents.py": "documents of an earlier run, whose scores templates name",
    "report/write.py": "report.json",
    "viewer/json_pages.py": "JSON of pages",
    "viewer/sample_page.py": "JSON of pages",
    "viewer/query.py": "addresses of pages",
    "viewer/samples.py": "addresses of pages, and names of columns",
    "viewer/matrix.py": "addresses of pages",
    "cli/samples.py": "scores as they are printed",
    "cli/plan.py": "an option",
}
COMMAS = re.compile(
    r"""partition\(","\)|split\(",", 1\)|metric\}(_stderr)?,\{|filter\}?,repeats|_stderr,[n{]|suffix\(.,none"""
)
OTHER_COMMAS = {"cli/completion.py", "evaluation/models.py"}
"""Names of tasks in a list, and a model with its arguments."""


def keys_of_mappings(node: ast.AST) -> Iterator[ast.expr | None]:
    """The keys by which a piece of code fills a mapping, or looks something up in it."""
    if isinstance(node, ast.DictComp):
        yield node.key
    elif isinstance(node, ast.Dict):
        yield from node.keys
    elif isinstance(node, ast.Subscript):
        yield node.slice
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "setdefault", "pop"):
        yield from node.args[:1]


def is_text_of_key(node: ast.expr | None) -> bool:
    """Whether it is `str(key)` or `str(row.key)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args):
        return False
    [named] = node.args
    return ast.unparse(named).split(".")[-1] == "key"


def joins_or_splits(tree: ast.Module, source: str) -> bool:
    """Whether a module handles the text of a metric and a filter as data: reads it, or keys a mapping by it."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "assay.score_keys"
        for alias in node.names
    }
    is_text_used = imported & TEXTS_OF_KEYS or "ScoreKey.parse" in source or COMMAS.search(source)
    is_key_of_mapping = imported and any(
        is_text_of_key(key) for node in ast.walk(tree) for key in keys_of_mappings(node)
    )
    return bool(is_text_used or is_key_of_mapping)


@pytest.mark.slow
def test_inside_a_metric_and_its_filter_are_a_record_and_never_one_text() -> None:
    """A text for people is `str(key)`; only what reads or writes files, pages and users' mappings goes by it."""
    found = set()
    for path in MODULES:
        name, source = path.relative_to(ROOT / "src/assay").as_posix(), path.read_text(encoding="utf-8")
        if joins_or_splits(ast.parse(source), source) and name not in OTHER_COMMAS:
            found.add(next((place for place in MAY_JOIN if name.startswith(place)), f"new: {name}"))
    assert found == set(MAY_JOIN)
