"""`!function`: checked without running, loaded when used, never mixed up."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import ConfigError, TaskManager
from assay.catalog.functions import load_problem, written_definition
from assay.compat.modules import HelperCode
from assay.config.run import RunConfig
from assay.evaluation.prepare import find_problems
from assay.records import Function
from assay.tasks.validate import validate
from commands import isolated_plugins
from conftest import a_task


def process_docs(manager: TaskManager, name: str) -> Function:
    function = manager.load(name)["tasks"][name].config.process_docs
    assert function is not None
    return function


def test_two_modules_of_one_name_in_different_folders_never_collide(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {
            "a/t.yaml": a_task("a", process_docs="!function utils.f"),
            "a/utils.py": "def f(x): return ('a', x)\n",
            "b/t.yaml": a_task("b", process_docs="!function utils.f"),
            "b/utils.py": "def f(x): return ('b', x)\n",
        }
    )
    loader = HelperCode()
    first, second = (loader.resolve(process_docs(manager, name)) for name in ("a", "b"))
    assert (first(1), second(1)) == (("a", 1), ("b", 1))  # type: ignore[operator]
    assert loader.resolve(process_docs(manager, "a")) is first


def test_a_fresh_loader_loads_modules_afresh(manage: Callable[..., TaskManager]) -> None:
    manager = manage({"t.yaml": a_task("t", process_docs="!function utils.f"), "utils.py": "def f(x): return x\n"})
    function = process_docs(manager, "t")
    assert HelperCode().resolve(function) is not HelperCode().resolve(function)


def test_a_function_may_be_in_a_subfolder_or_in_an_installed_module(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {
            "t.yaml": a_task("t", process_docs="!function sub.mod.f"),
            "u.yaml": a_task("u", process_docs="!function json.dumps"),
            "sub/mod.py": "f = len\n",
        }
    )
    assert HelperCode().resolve(process_docs(manager, "t")) is len
    assert HelperCode().resolve(process_docs(manager, "u"))([1]) == "[1]"  # type: ignore[operator]
    assert validate(manager) == []


@pytest.mark.parametrize(
    ("written", "what", "fix"),
    [
        ("utils.proces_docs", "utils.py has no 'proces_docs'", "did you mean 'process_docs'?"),
        ("utlis.process_docs", "no module 'utlis'", "did you mean 'utils'?"),
        ("broken.f", "cannot be read", "correct the module"),
    ],
)
def test_a_typo_in_a_function_name_is_found_without_running_anything(
    written: str, what: str, fix: str, manage: Callable[..., TaskManager]
) -> None:
    trap = "from pathlib import Path\nPath(__file__).with_name('sprung').touch()\n\ndef process_docs(x): return x\n"
    files = {"t.yaml": a_task("t", process_docs=f"!function {written}"), "utils.py": trap, "broken.py": "def f(:\n"}
    manager = manage(files)
    [problem] = validate(manager)
    assert what in problem.what
    assert problem.fix == fix
    assert (Path(problem.place.file).name, problem.place.line, problem.place.column) == ("t.yaml", 10, 15)
    assert not (Path(problem.place.file).parent / "sprung").exists()
    with pytest.raises(ConfigError, match=r"t\.yaml:10:15"):
        HelperCode().resolve(process_docs(manager, "t"))


def test_names_that_only_running_would_show_are_not_called_missing(manage: Callable[..., TaskManager]) -> None:
    manager = manage(
        {
            "t.yaml": a_task("t", process_docs="!function utils.made"),
            "u.yaml": a_task("u", process_docs="!function other.starred"),
            "utils.py": "globals()['made'] = len\n",
            "other.py": "from somewhere import *\n",
        }
    )
    assert validate(manager) == []


@pytest.mark.parametrize(
    "source",
    ["def f(x): pass", "class f: pass", "f = 1", "f: int = 1", "import x as f", "from x import f",
     "a, (f, b) = 1, (2, 3)", "if True:\n    def f(x): pass", "try:\n    import f\nexcept ImportError:\n    f = None",
     "for f in []: pass", "with open('x') as f: pass"],
)  # fmt: skip
def test_every_way_to_define_a_name_is_understood(source: str, manage: Callable[..., TaskManager]) -> None:
    manager = manage({"t.yaml": a_task("t", process_docs="!function utils.f"), "utils.py": source + "\n"})
    assert validate(manager) == []


REGISTERS = "from lm_eval.api.registry import register_filter\n\n\ndef text(doc): return doc['question']\n\n\n"
NAMED = "doc_to_text: !function helpers.text\nfilter_list: [{name: f, filter: [{function: backwards}]}]\noutput_type: generate_until\nmetric_list: [{metric: exact_match}]\n"


@pytest.mark.parametrize(
    ("source", "serious"),
    [
        ("@register_filter('backwards')\nclass B: pass\n", []),
        ("NAME = 'backwards'\n@register_filter(NAME)\nclass B: pass\n", [False]),
        ("import others\n", []),
        ("@register_filter('forwards')\nclass B: pass\n", [True]),
        ("", [True]),
    ],
    ids=["a registered name", "a computed name", "a name of a module that it imports", "another name", "none"],
)
def test_an_unknown_name_is_a_note_only_where_helper_code_may_register_it(
    source: str, serious: list[bool], manage: Callable[..., TaskManager]
) -> None:
    others = "from lm_eval.api.registry import register_filter\n\n\n@register_filter('backwards')\nclass B: pass\n"
    task = a_task("t").split("output_type")[0] + NAMED
    listed = validate(manage({"t.yaml": task, "helpers.py": REGISTERS + source, "others.py": others}))
    assert [problem.serious for problem in listed] == serious
    assert all("no filter named 'backwards'" in problem.what for problem in listed)


@pytest.mark.parametrize(
    ("code", "keys", "refused"),
    [
        ("@assay.reduction('first_of_')\ndef f(scores, *, k): return scores[0]\n", "repeats: 2\nmetric_list: [{metric: exact_match, reduction: first_of_2}]\n", ""),
        ("@assay.sampler('last')\ndef f(pool, seed, leaks): return lambda doc, n: range(n)\n", "fewshot_config: {sampler: last}\nmetric_list: [{metric: exact_match}]\n", ""),
        ("assay.metric('near')(lambda references, prediction: 1.0)\n", "metric_list: [{metric: near}]\n", ""),
        ("# @assay.metric('distant')\n", "metric_list: [{metric: distant}]\n", "no metric named 'distant'"),
        ("TEXT = \"@assay.metric('quoted')\"\n", "metric_list: [{metric: quoted}]\n", "no metric named 'quoted'"),
    ],
    ids=["a reduction with a number", "a sampler", "a call", "a comment", "a text"],
)  # fmt: skip
def test_validate_finds_what_the_modules_of_a_task_register_whether_it_loads_them_or_not(
    code: str, keys: str, refused: str, manage: Callable[..., TaskManager]
) -> None:
    task = a_task("t").split("output_type")[0]
    task += f"doc_to_text: !function helpers.text\noutput_type: generate_until\n{keys}"
    helpers = f"import assay\n{code}\ndef text(doc):\n    return 'q'\n"
    manager = manage({"t.yaml": task, "helpers.py": helpers})
    with isolated_plugins():
        for load in (False, True):
            listed = [problem.what for problem in find_problems(manager, RunConfig(), ["t"], load=load)]
            assert [what for what in listed if "named" in what] == ([refused] if refused else [])


def test_validate_finds_the_aggregator_of_a_group_that_a_module_of_its_task_registers(
    manage: Callable[..., TaskManager],
) -> None:
    task = a_task("t").split("output_type")[0] + NAMED.replace("backwards", "lowercase")
    code = "import assay\n@assay.aggregator('widest_of_all')\nclass W(assay.RowAggregator): pass\ndef text(doc): pass\n"
    group = "group: g\ntask: [t]\naggregate_metric_list: [{metric: exact_match, aggregation: NAME}]\n"
    files = {"t.yaml": task, "helpers.py": code, "g.yaml": group.replace("NAME", "widest_of_all")}
    assert not validate(manage(files))
    [unknown] = validate(manage({**files, "g.yaml": group.replace("NAME", "widest")}))
    assert "no aggregator named 'widest'" in unknown.what


def test_a_signature_that_parses_and_does_not_compile_is_no_bug_of_ours(manage: Callable[..., TaskManager]) -> None:
    task = a_task("t").split("output_type")[0] + NAMED.replace("backwards", "lowercase")
    listed = validate(manage({"t.yaml": task, "helpers.py": "def text(doc, doc): return doc\n"}))
    assert not [problem for problem in listed if "bug in assay" in problem.fix], listed


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1\nimport os.path\nfrom json import loads\n", ""),
        ("from . import gone\nfrom .gone import x\n", ""),  # of a package, which is not known here
        ("import beside\nfrom beside.deep import x\n", ""),
        ("import supplied.deep\n", ""),
        ("x = 1\nfrom gone.deep import y\n", "No module named 'gone' (pip install gone) (utils.py:2)"),
        ("import os, gone\n", "No module named 'gone' (pip install gone) (utils.py:1)"),
        ("def function():\n    import gone\n", ""),  # it may never be called
        ("def (:\n", "SyntaxError"),
    ],
)
def test_a_module_that_imports_what_is_not_there_is_known_by_its_text(code: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text(code)
    (tmp_path / "beside.py").touch()
    said = load_problem(tmp_path / "utils.py", lambda name: name == "supplied")
    assert problem in said and bool(said) is bool(problem)


WRITTEN = """
def plain(a, /, b: int, *c: str, d: "list[float]" = [1], e: int | None = None, f: list["int"] = 3, g: numpy.ndarray = 0.5,
          h: dict[str, int] = len("x"), i: tuple = (), j: "not a type" = None, **k: bool) -> int:
    return launch()

async def later(a: str) -> None:
    inner = lambda: (yield)
    def generator():
        yield 1

def generator(a):
    if a:
        yield a

def twice(): ...
def twice(a): ...
stored = 1
def stored(): ...

@decorated
def decorated(): ...

class Plain:
    def __init__(self, a: int = 1): launch()

class Object(object):
    x = 1

class Task(Base):
    def __init__(self, a, b): launch()

class Meta(metaclass=Base): ...

def broken(a, a): ...
"""


def test_what_is_written_of_a_function_is_its_signature_with_plain_types_and_nothing_is_executed(
    tmp_path: Path,
) -> None:
    (tmp_path / "utils.py").write_text(WRITTEN)
    names = ("plain", "later", "generator", "Plain", "Object", "Task", "Meta")
    written = {name: written_definition(Function(str(tmp_path), "utils", name)) for name in names}
    about = {name: (known.is_class, known.is_plain) for name, known in written.items() if known is not None}
    assert about == {
        "plain": (False, True), "later": (False, True), "generator": (False, True), "Plain": (True, True),
        "Object": (True, True), "Task": (True, False), "Meta": (True, False),
    }  # fmt: skip
    for name in ("twice", "stored", "decorated", "broken", "missing"):
        assert written_definition(Function(str(tmp_path), "utils", name)) is None, name
    like = {name: known.like for name, known in written.items() if known is not None and known.like is not None}
    assert like.keys() == {"plain", "later", "generator", "Plain", "Task"}
    assert like["plain"].__annotations__ == {
        "b": int, "c": str, "d": list[float], "e": int | None, "f": list[int], "g": Any, "h": Any, "i": Any, "j": Any,
        "k": bool,
    }  # fmt: skip
    signature = inspect.signature(like["plain"])
    assert [parameter.kind.name[:8] for parameter in signature.parameters.values()] == [
        "POSITION", "POSITION", "VAR_POSI", *["KEYWORD_"] * 7, "VAR_KEYW",
    ]  # fmt: skip
    defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
    assert {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty} == {
        "d": None, "e": None, "f": 3, "g": 0.5, "h": None, "i": None, "j": None,
    }  # fmt: skip
    assert [name for name, function in like.items() if inspect.isgeneratorfunction(function)] == ["generator"]
    assert inspect.iscoroutinefunction(like["later"])
    assert like["Plain"].__annotations__ == {"a": int} and [*inspect.signature(like["Task"]).parameters] == [
        "self",
        "a",
        "b",
    ]
