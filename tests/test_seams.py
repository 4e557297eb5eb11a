"""The seam matrix: everything a user can extend, by every way it is brought in, used by every part of assay that has to.

A cell is an extension (a `Seam`) and a consumer. It has the number that was worked out by hand, or is refused before the first
request, with its location and a fix. A further cell is a line of `SEAMS`.
"""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import (
    Aggregator,
    FilterConfig,
    GenerateTask,
    GenerationScorer,
    GroupConfig,
    Instance,
    RowAggregator,
    StandardGroup,
    TagGroup,
    evaluate,
    run,
    simple_evaluate,
)
from assay.compat.modules import HelperCode
from assay.errors import AssayError, ConfigError, SelfExplanatory
from assay.evaluation.score import ScoreOptions
from assay.exchange.importers import score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.groups import Group
from assay.models import Scripted
from assay.models.protocol import Answered
from assay.plugins import REGISTRIES, registry
from assay.records import Request, Text
from assay.registry import load_plugins
from assay.runs.folder import RunError
from assay.score_keys import ScoreKey
from assay.scoring.declarations import Metric
from assay.tasks.validate import validate
from seam_matrix import graph, matrix
from seam_world import CONSUMERS, GEOMETRIC, MICRO, Names, Refused, Seam, World, world_of

# --- an aggregator set on a group -----------------------------------------------------------------------------------


class Geometric(Aggregator):
    """The geometric mean of the tasks, as a user writes it."""

    def aggregate(self, group: Group[Any], task_results: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        product, tasks = 1.0, group.get_all_tasks()
        for task in tasks:
            product *= task_results[task.name]["exact_match,none"]
        return {"exact_match,none": product ** (1 / len(tasks))}


class Smallest(RowAggregator):
    """The smallest member, by the hook for one row."""

    def combine(self, members: Any, weights: Any) -> Any:  # the shape of the hook
        return min(members, key=lambda member: float(member.estimate)).estimate


class SetsItsAggregator(StandardGroup[Any]):
    def __init__(self, config: GroupConfig, parent: Any = None) -> None:
        super().__init__(config, parent)
        self._aggregator = Geometric(config)


class SetsItFirst(StandardGroup[Any]):
    def __init__(self, config: GroupConfig, parent: Any = None) -> None:
        self._aggregator = Geometric(config)
        super().__init__(config, parent)


class DefinesItsAggregator(StandardGroup[Any]):
    @property
    def aggregator(self) -> Aggregator:  # type: ignore[override]  # as users write it, without a setter
        return Geometric(self.config)


OWN_GROUP = """
from assay import Aggregator, StandardGroup

class Geometric(Aggregator):
    def aggregate(self, group, results):
        product = 1.0
        for task in group.get_all_tasks():
            product *= results[task.name]["exact_match,none"]
        return {"exact_match,none": product ** 0.5}

class Own(StandardGroup):
    def __init__(self, config, parent=None):
        super().__init__(config, parent)
        self._aggregator = Geometric(config)

class NotOne(StandardGroup):
    def __init__(self, config, parent=None):
        super().__init__(config, parent)
        self._aggregator = 5
"""
GROUP, ENTRIES = "group: g\ntask: [a, b]\n", "aggregate_metric_list: [{metric: exact_match}]\n"
MACRO = "aggregate_metric_list: [{metric: exact_match, levels: children, weight_by_size: false}]\n"


def set_on_loaded(make: Callable[[GroupConfig], Aggregator], *specs: str) -> Callable[[World], list[Any]]:
    """Select g as the manager loads it, with an aggregator that is set afterwards."""

    def select(world: World) -> list[Any]:
        group = world.manager.load(list(specs or ["g"]))["groups"]["g"]
        group.aggregator = make(group.config)
        return [group]

    return select


def with_method(method: str, value: Callable[..., Any], *parts: str) -> Callable[[World], list[Any]]:
    """Select g as the manager loads it, with a method set on it, or on the object that `parts` lead to."""

    def select(world: World) -> list[Any]:
        owner = group = world.manager.load(["g"])["groups"]["g"]
        for part in parts:
            owner = owner[int(part)] if part.isdecimal() else getattr(owner, part)
        setattr(owner, method, value)
        return [group]

    return select


def built(kind: Callable[..., Group[Any]], aggregator: type[Aggregator] | None = None, **config: Any) -> Any:
    """Select a group that is built in Python around the tasks of files."""

    def select(world: World) -> list[Any]:
        group = kind(GroupConfig(group="g", **config)) if kind is not TagGroup else TagGroup("g")
        for task in world.manager.load(["a", "b"])["tasks"].values():
            group.add_child(task)
        if aggregator is not None:
            group.aggregator = aggregator(group.config)
        return [group]

    return select


def in_python_around_files(world: World) -> list[Any]:
    """A group in Python, above the group of a file whose aggregator is set."""
    inner = world.manager.load(["inner"])["groups"]["inner"]
    inner.aggregator = Geometric(inner.config)
    entry = {"metric": "exact_match", "levels": "children"}
    outer: StandardGroup[Any] = StandardGroup(GroupConfig(group="g", aggregate_metric_list=[entry]))
    outer.add_child(inner)
    return [outer]


def names(*names: str) -> Names:
    return Names(names)


SET_IN_PYTHON = {
    "score": Refused(["left out: g: Geometric, which computed it, was set in Python", "type: !function"]),
    "merge": Refused(["group 'g'", "Geometric, which computed it, was set in Python"]),
    "validate": None,
}
IN_PYTHON = {name: Refused(["task 'a'", "its definition is not found", "--with FILE"]) for name in ("score", "merge")}
IN_PYTHON |= {"validate": None}
SET, SET_METHOD = "an aggregator set on a group", "a method set on a group or its aggregator"
TWO_ENTRIES = ENTRIES.replace("}]", "}, {metric: exact_match, aggregation: min, name: low}]")


def geometric(group: Any, results: Any) -> dict[str, float]:
    return {"exact_match,none": GEOMETRIC}


def smallest(members: Any, weights: Any) -> Any:
    return min(members, key=lambda member: float(member.estimate)).estimate


def in_python_by(owner: str) -> dict[str, Any]:
    said = f"{owner}, which computed it, was set in Python"
    return {"score": Refused([f"left out: g: {said}"]), "merge": Refused([said]), "validate": None}


ROW = {"aggregate_metric_list": [{"metric": "exact_match"}]}
AGGREGATORS = [
    Seam(SET, "after load", GEOMETRIC, set_on_loaded(Geometric), {"g.yaml": GROUP}, others=SET_IN_PYTHON),
    Seam(SET, "after load, over a list", GEOMETRIC, set_on_loaded(Geometric), {"g.yaml": GROUP + ENTRIES},
         others=SET_IN_PYTHON),
    Seam(SET, "after load, over lm-eval's means", GEOMETRIC, set_on_loaded(Geometric), {"g.yaml": GROUP + ENTRIES},
         options={"compat": "lm-eval"}, others=SET_IN_PYTHON),
    Seam(SET, "a row aggregator", 0.125, set_on_loaded(Smallest), {"g.yaml": GROUP + ENTRIES},
         others={**SET_IN_PYTHON, "score": Refused(["Smallest, which computed it"]), "merge": Refused(["Smallest"])}),
    Seam(SET, "on a Python group", GEOMETRIC, built(StandardGroup, Geometric), others=IN_PYTHON),
    Seam(SET, "on a Python group with a list", GEOMETRIC, built(StandardGroup, Geometric, **ROW), others=IN_PYTHON),
    Seam(SET, "on a TagGroup", GEOMETRIC, built(TagGroup, Geometric), others=IN_PYTHON),
    Seam(SET, "in a subclass's __init__", GEOMETRIC, built(SetsItsAggregator), others=IN_PYTHON),
    Seam(SET, "in a subclass's __init__, with a list", GEOMETRIC, built(SetsItsAggregator, **ROW), others=IN_PYTHON),
    Seam(SET, "in a subclass before its base", GEOMETRIC, built(SetsItFirst, **ROW), others=IN_PYTHON),
    Seam(SET, "as a property", GEOMETRIC, built(DefinesItsAggregator, **ROW), others=IN_PYTHON),
    Seam(SET, "on a file's group inside a Python group", GEOMETRIC, in_python_around_files,
         {"inner.yaml": "group: inner\ntask: [a, b]\n"}, others=IN_PYTHON),
    Seam(SET, "type: !function", GEOMETRIC, names("g"), {"g.yaml": GROUP + "type: !function own.Own\n", "own.py": OWN_GROUP}),
    Seam(SET, "type: !function, over a list", GEOMETRIC, names("g"),
         {"g.yaml": GROUP + ENTRIES + "type: !function own.Own\n", "own.py": OWN_GROUP}),
    Seam(SET, "type: !function, over a list of another metric", GEOMETRIC, names("g"),
         {"g.yaml": GROUP + ENTRIES.replace("exact_match", "own") + "type: !function own.Own\n", "own.py": OWN_GROUP}),
    Seam(SET, "type: a class by name", GEOMETRIC, names("g"), {"g.yaml": GROUP + ENTRIES + "type: SetsItsAggregator\n"}),
    Seam(SET, "type: !function, in a nested group", GEOMETRIC, names("top"),
         {"top.yaml": "group: top\ntask: [a, g]\n" + MACRO, "g.yaml": GROUP + "type: !function own.Own\n", "own.py": OWN_GROUP}),
    # The members of `top` are a with 1/2 and g with 1/4: their mean is 3/8.
    Seam(SET, "type: !function, above its number", 0.375, names("top"), name="top", files=
         {"top.yaml": "group: top\ntask: [a, g]\n" + MACRO, "g.yaml": GROUP + "type: !function own.Own\n", "own.py": OWN_GROUP}),
    Seam(SET, "type: !function, inline in a list", GEOMETRIC, names("top"), name="top::g", files={"own.py": OWN_GROUP,
         "top.yaml": "group: top\ntask:\n  - {group: g, task: [a, b], type: !function own.Own}\n"}),
    Seam(SET, "what is no aggregator", Refused(["group 'g'", "must be an instance of a subclass of assay.Aggregator, got 5",
         "MyAggregator(group.config)"]), names("g"), {"g.yaml": GROUP + "type: !function own.NotOne\n", "own.py": OWN_GROUP},
         others={"compute_metrics": None, "validate": None}),
]  # fmt: skip


AGGREGATORS += [
    Seam(SET_METHOD, "aggregate of the configured one", GEOMETRIC, with_method("aggregate", geometric, "aggregator"),
         {"g.yaml": GROUP + ENTRIES}, others=in_python_by("MeanAggregator")),
    Seam(SET_METHOD, "combine of the configured one", 0.125, with_method("combine", smallest, "aggregator"),
         {"g.yaml": GROUP + ENTRIES}, others=in_python_by("MeanAggregator")),
    Seam(SET_METHOD, "aggregate of a list", GEOMETRIC, with_method("aggregate", geometric, "aggregator"),
         {"g.yaml": GROUP + TWO_ENTRIES}, others=in_python_by("AggregatorList")),
    Seam(SET_METHOD, "aggregate of one in a list", GEOMETRIC,
         with_method("aggregate", geometric, "aggregator", "aggregators", "0"),
         {"g.yaml": GROUP + TWO_ENTRIES}, others=in_python_by("AggregatorList")),
    Seam(SET_METHOD, "own_metrics of the group", GEOMETRIC, with_method("own_metrics", lambda _: geometric(None, None)),
         {"g.yaml": GROUP}, others=in_python_by("StandardGroup")),
]  # fmt: skip


def test_a_run_leaves_a_users_group_and_aggregator_as_they_were(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"g.yaml": GROUP + ENTRIES})
    loaded = world.manager.load("g")
    group = loaded["groups"]["g"]
    config, aggregator = group.config, group.aggregator
    for options in ({"predict_only": True}, {}):
        results = evaluate(world.model(), loaded, task_manager=world.manager, **options)
        assert (group.config, group.aggregator, aggregator.strict) == (config, aggregator, False)
    assert results["results"]["g"]["exact_match,none"] == MICRO


def test_compute_metrics_set_on_a_group_is_called(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"g.yaml": GROUP + ENTRIES})
    loaded = world.manager.load("g")
    loaded["groups"]["g"].compute_metrics = lambda results: {"own,none": results["a"]["exact_match,none"] * 3}
    results = evaluate(world.model(), loaded, task_manager=world.manager)
    assert results["results"]["g"]["own,none"] == 1.5
    assert results["assay"]["groups"]["g"]["computed_by"] == "StandardGroup"


@pytest.mark.parametrize("rows", ["", ENTRIES])
def test_a_set_aggregator_that_fails_is_a_row_without_a_number(tmp_path: Path, rows: str) -> None:
    class Broken(Aggregator):
        def aggregate(self, group: Group[Any], task_results: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
            raise ZeroDivisionError("no documents")

    world = world_of(tmp_path, {"g.yaml": GROUP + rows})
    loaded = world.manager.load("g")
    group = loaded["groups"]["g"]
    group.aggregator = Broken(group.config)
    account = evaluate(world.model(), loaded, task_manager=world.manager)["assay"]
    [row] = account["groups"]["g"]["rows"]
    assert "ZeroDivisionError: no documents (test_seams.py:" in row["reason"]
    assert account["status"] == "incomplete"


def test_a_group_whose_class_cannot_be_loaded_any_more_is_left_out_and_says_why(tmp_path: Path) -> None:
    files = {"g.yaml": GROUP + "type: !function own.Own\n", "own.py": OWN_GROUP}
    world = world_of(tmp_path, files)
    run(world.model(), tasks=["a", "b", "g"], output_path=str(tmp_path / "run"), progress=False, **world.options)
    (tmp_path / "own.py").write_text("class Other: pass\n")
    rescored = score(tmp_path / "run", ScoreOptions())
    assert any(re.search(r"left out: g: its definition cannot be loaded: .*own", each) for each in rescored.remarks)
    assert lm_eval_layout(rescored.results)["results"]["a"]["exact_match,none"] == 0.5


def test_what_is_no_aggregator_cannot_be_set() -> None:
    group: StandardGroup[Any] = StandardGroup(GroupConfig(group="g"))
    with pytest.raises(ConfigError, match=r"group 'g'.*must be an instance of a subclass of assay.Aggregator"):
        group.aggregator = Geometric  # type: ignore[assignment]  # a class, where an object is wanted


# --- methods set on an object ---------------------------------------------------------------------------------------

SETS_METHODS = """
from assay import GenerateTask, GenerationScorer

class SetsScore(GenerationScorer):
    def __init__(self, config=None):
        super().__init__(config)
        self.score = lambda reference, predictions: 0.75

class SetsComputeMetric(GenerationScorer):
    def __init__(self, config=None):
        super().__init__(config)
        self._compute_metric = lambda result, metric: 0.75

class SetsMethod(GenerateTask):
    def __init__(self, config):
        super().__init__(config)
        self._compute_metric = lambda result, metric: 0.75
"""


def says_y(world: World) -> Scripted:
    """A model that says `x`, whose method was replaced."""
    model = world.model()

    async def answer(requests: Sequence[Request]) -> AsyncIterator[Answered]:
        world.asked.extend(request.prompt for request in requests)
        yield [(number, Text("y")) for number, _ in enumerate(requests)]

    model.answer = answer  # type: ignore[method-assign]  # as users do
    return model


def loaded_with_method(world: World) -> list[Any]:
    task = world.manager.load(["a"])["tasks"]["a"]
    task._compute_metric = lambda result, metric: 0.75  # type: ignore[method-assign]  # as users do
    return [task]


def loaded_with(**attributes: Any) -> Callable[[World], list[Any]]:
    """Select task b as the manager loads it, with attributes that are set afterwards."""

    def select(world: World) -> list[Any]:
        task = world.manager.load(["b"])["tasks"]["b"]
        for name, value in attributes.items():
            setattr(task, name, value)
        return [task]

    return select


def with_scorer_method(world: World) -> list[Any]:
    task = world.manager.load(["b"])["tasks"]["b"]
    task._scorer._compute_metric = lambda result, metric: 0.75  # type: ignore[method-assign]  # as users do
    return [task]


class ThreeQuarters(GenerationScorer):
    def score(self, reference: Any, predictions: Any) -> Any:
        return [0.75 for _ in predictions]


class SetsItsScorer(GenerateTask):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._scorer = ThreeQuarters(self.config)


class SwapsLetters:
    def apply(self, resps: Any, docs: Any) -> Any:
        return [[answer.replace("x", "y") for answer in answers] for answers in resps]


def later(key: str) -> dict[str, Any]:
    """Code in memory is not there any more when a run is scored again."""
    refused = Refused([f"{key} was set in Python", "--with FILE"])
    return {"score": refused, "merge": refused}


NO_NAME = {"validate": "a command takes names"}


ON_OBJECT = "a method set on an object"
SET_PART = "an object in place of a part"
METHODS = [
    # 7 of the 8 right answers of b are not `x`, but `y`.
    Seam(ON_OBJECT, "a model", 0.875, names("b"), name="b", model=says_y, of="task",
         others={"process_instances": "no model is asked"}),
    Seam(ON_OBJECT, "a task", 0.75, loaded_with_method, name="a",
         of="task", others={"validate": "a command takes names",
         **dict.fromkeys(("score", "merge"), Refused(["task 'a'", "class was set in Python: _compute_metric", "--with FILE"]))}),
    Seam(SET_PART, "_scorer of a task", 0.75, loaded_with(_scorer=ThreeQuarters()), name="b", row="ThreeQuarters,none", of="task",
         others=later("scorer") | NO_NAME),
    Seam(SET_PART, "_filters of a task", 0.125, loaded_with(_filters=[FilterConfig(name="own")]), name="b", row="exact_match,own",
         of="task", others=later("filter_list") | NO_NAME),
    Seam(SET_PART, "_scorer in __init__ of a task's class", 0.75, lambda _: [{"task": "b", "class": SetsItsScorer}], name="b",
         row="ThreeQuarters,none", of="task", others=later("class")),
    Seam(SET_PART, "a method on the scorer of a task", 0.75, with_scorer_method, name="b", of="task", others=later("scorer") | NO_NAME),
    Seam(SET_PART, "a scorer in a configuration", 0.75, lambda _: [{"task": "b", "scorer": ThreeQuarters()}], name="b",
         row="ThreeQuarters,none", of="task", others=later("scorer")),
    Seam(SET_PART, "a filter in a configuration", 0.875, lambda _: [{"task": "b", "filter_list": [{"name": "own", "filter": [
         {"function": SwapsLetters()}, {"function": "take_first"}]}]}], name="b", row="exact_match,own", of="task",
         others=later("filter_list")),
    Seam(ON_OBJECT, "score of a scorer", 0.75, names("t"), name="t", row="SetsScore,none", of="task",
         files={"t.yaml": "include: a.yaml\ntask: t\nscorer: !function own.SetsScore\n", "own.py": SETS_METHODS}),
    Seam(ON_OBJECT, "_compute_metric of a scorer", 0.75, names("t"), name="t", of="task",
         files={"t.yaml": "include: a.yaml\ntask: t\nscorer: !function own.SetsComputeMetric\n", "own.py": SETS_METHODS}),
    Seam(ON_OBJECT, "_compute_metric of a class task", 0.75, names("t"), name="t", of="task",
         files={"t.yaml": "include: a.yaml\ntask: t\nclass: !function own.SetsMethod\n", "own.py": SETS_METHODS}),
]  # fmt: skip


def test_a_model_with_a_method_set_on_it_is_not_resumed_as_the_one_without(tmp_path: Path) -> None:
    world = world_of(tmp_path, {})
    assert says_y(world).identity != world.model().identity
    assert says_y(world).identity == says_y(world).identity, "the same code is the same model"


class SaysY(Scripted):
    def _respond(self, request: Request) -> Text:
        return Text("y")


def says(word: str) -> Callable[..., str]:
    return lambda *_: word


def says_by(speak: Callable[..., str]) -> Callable[..., str]:
    def answer(prompt: str, params: Any, repeat: int) -> str:
        return speak()

    return answer


def counts(start: int) -> Callable[..., str]:
    number = start

    def answer(*_: Any) -> str:
        nonlocal number
        number += 1
        return str(number)

    return answer


def test_models_whose_functions_or_methods_differ_are_not_resumed_as_each_other(tmp_path: Path) -> None:
    """Functions of one source, which captured other words, and a subclass."""
    models: list[Callable[[], Scripted]] = [
        lambda: Scripted(generate=says("x")),
        lambda: Scripted(generate=says("y")),
        lambda: Scripted(generate=says_by(says("x"))),
        lambda: Scripted(generate=says_by(says("y"))),
        lambda: SaysY(generate=says("x")),
        lambda: Scripted(generate=lambda *_, word="x": word),
    ]
    identities = [make().identity for make in models]
    assert len({*identities}) == len(models)
    assert identities == [make().identity for make in models], "a model that is made again is the same"
    assert Scripted(generate=counts(0)).identity == Scripted(generate=counts(7)).identity
    world = world_of(tmp_path, {})
    options: Any = {"tasks": ["a"], "output_path": str(tmp_path / "run"), "progress": False, **world.options}
    assert lm_eval_layout(run(models[0](), **options).results)["results"]["a"]["exact_match,none"] == 0.5
    with pytest.raises(RunError, match="the folder holds another run"):
        run(models[1](), **options)


# --- members that nothing asks for -----------------------------------------------------------------------------------


def unasked(base: str, member: str, fix: str, *more: str, number: float | None = None) -> Seam:
    """A class beside a task or group with a member that nothing asks for; with a number, one that its own code reads."""
    of = {"GenerateTask": "class", "StandardGroup": "type", "MeanAggregator": "aggregation"}.get(base, "scorer")
    is_group = of in ("type", "aggregation")
    code = f"from assay import *\n\nclass Own({base}):\n" + "".join(f"    {line}\n" for line in (member, *more))
    name = re.search(r"def (\w+)|(\w+) =", member)
    assert name is not None
    text = "group: t\ntask: [a, b]\n" if is_group else "include: b.yaml\ntask: t\n"
    key = f"{of}: !function own.Own"
    key = f"aggregate_metric_list: [{{metric: exact_match, {key}}}]" if of == "aggregation" else key
    refused = Refused(["t.yaml:3:", f"{name[1] or name[2]} {'has no effect' if fix else 'belongs to assay'}", fix])
    by_hand = {"process_instances": None, "compute_metrics": None} if of != "scorer" else {}
    return Seam("a member that nothing asks for", f"{base}: {member}", refused if number is None else number, names("t"), name="t",
                files={"t.yaml": f"{text}{key}\n", "own.py": code}, row="own,none", of="group" if is_group else "task",
                others={**by_hand, "validate": None} if number is None else {})  # fmt: skip


UNASKED = [
    unasked("GenerationScorer", "def _compute_metircs(self, result, metrics): return {'own': 1.0}", "did you mean '_compute_metrics'?"),
    unasked("GenerationScorer", "def score_instance(self, instances, filter_name): return {'own': 1.0}", "did you mean 'score_instances'?"),
    unasked("GenerationScorer", "needs_filter = ('a',)", "did you mean 'needs_filters'?"),
    unasked("GenerationScorer", "def models(self): return {}", "model_roles"),
    unasked("GenerationScorer", "def rows(self): return ['own']", "gives"),
    unasked("GenerationScorer", "def bind(self, filter_name, metrics): pass", "override get_metrics"),
    unasked("GenerationScorer", "def process_results(self, doc, results): return {'own': 1.0}", "override score_instances"),
    unasked("GenerationScorer", "def _memory(self): return None", ""),
    unasked("GenerationScorer", "def rows(self): return {'own': 0.75}", "", "def score(self, *_): return self.rows()", number=0.75),
    unasked("GenerateTask", "def _compute_metrics(self, result, metrics): return {'own': 1.0}", "did you mean '_compute_metric'?"),
    unasked("GenerateTask", "def process_results(self, doc, results): return {'own': 1.0}", "write `process_results: !function …`"),
    unasked("GenerateTask", "def doc_to_text(self, doc): return 'seam'", "write `doc_to_text: !function …`"),
    unasked("GenerateTask", "def compute_aggregations(self, scores=None): return {}", "write `aggregation: !function …`"),
    unasked("GenerateTask", "def construct_requests(self, doc, ctx): return []", "ConfigurableTask"),
    unasked("GenerateTask", "_scorer = GenerationScorer()", "set it in `__init__`"),
    unasked("GenerateTask", "def groups(self): return []", ""),
    unasked("StandardGroup", "def compute_metric(self, results): return {'own': 1.0}", "did you mean 'compute_metrics'?"),
    unasked("StandardGroup", "def aggregate(self, group, results): return {'own': 1.0}", "override compute_metrics"),
    unasked("StandardGroup", "metadata = {'version': 2}", "set it on the group"),
    unasked("StandardGroup", "def rows(self, members): return {}", ""),
    unasked("MeanAggregator", "def agregate(self, group, results): return {'own': 1.0}", "did you mean 'aggregate'?"),
    unasked("MeanAggregator", "def combin(self, members, weights): return 1.0", "did you mean 'combine'?"),
    unasked("MeanAggregator", "def compute_metrics(self, results): return {'own': 1.0}", "override aggregate"),
    unasked("StandardGroup", "def compute_metric(self, results): return {'own': 0.75}", "",
            "def compute_metrics(self, results): return self.compute_metric(results)", number=0.75),
]  # fmt: skip


# --- one file that is brought in twice ------------------------------------------------------------------------------

# It scores every document 0.75 and counts how often it is executed.
PLUGIN = """
from assay import GenerationScorer, scorer

@scorer("beside_its_task")
class Beside(GenerationScorer):
    def score(self, reference, predictions):
        return 0.75

def same(docs):
    return docs
"""
NAMED = "include: a.yaml\ntask: t\nscorer: beside_its_task\n"
IN_FILE = {"t.yaml": NAMED, "own.py": PLUGIN}
HELPER_TOO = {**IN_FILE, "t.yaml": NAMED + "process_docs: !function own.same\n"}
ENTRY_POINT = {
    **HELPER_TOO,
    "own_scorers-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: own_scorers\nVersion: 1.0\n",
    "own_scorers-1.0.dist-info/entry_points.txt": "[assay.scorers]\nbeside_its_task = own:Beside\n",
}


def plugged(way: str, files: Mapping[str, str], *plugins: str) -> Seam:
    return Seam("a scorer plug-in beside its task", way, 0.75, names("t"), files, name="t", row="beside_its_task,none",
                options={"plugins": list(plugins)} if plugins else {}, of="task")  # fmt: skip


PLUGINS = [
    plugged("beside alone", IN_FILE),
    plugged("as a file", IN_FILE, "own.py"),
    plugged("by a longer path", IN_FILE, "../world/./own.py"),
    plugged("by a link to it", IN_FILE, "link.py"),
    plugged("twice, by two names", IN_FILE, "own.py", "link.py", "../world/own.py"),
    plugged("as a module", IN_FILE, "own"),
    plugged("as a module and as a file", IN_FILE, "own", "own.py"),
    plugged("as a file, and as helper code", HELPER_TOO, "own.py"),
    plugged("as a module, and as helper code", HELPER_TOO, "own"),
    plugged("as an entry point", ENTRY_POINT),
    plugged("as an entry point, and as a file", ENTRY_POINT, "own.py"),
]
EVERY_KIND = (Path(__file__).parent / "plugin_package/assay_demo/__init__.py").read_text(encoding="utf-8")
DECORATED = (
    EVERY_KIND
    + """
import assay, functools
from assay.graphs.transforms import TRANSFORMS
from assay.graphs.unit_metrics import UNIT_METRICS
from assay.graphs.aggregator_registry import AGGREGATOR_METRICS
assay.filter("nth_word")(nth_word), assay.aggregation("lowest")(lowest), assay.reduction("spread")(spread)
assay.aggregator("widest")(Widest), assay.scorer("long_enough")(LongEnough), assay.model("parrot")(parrot)
assay.sampler("last_n")(last_n), assay.transform("loud")(Loud), assay.format("plain_question")(plain_question)
assay.exporter("names_only")(names_only), UNIT_METRICS.register("same_length")(same_length)
AGGREGATOR_METRICS.register("share_right")(share_right), assay.aggregation("top")(functools.partial(lowest, floor=1.0))
"""
)


def test_a_file_of_every_kind_of_plug_in_can_be_brought_in_by_every_way_at_once(
    tmp_path: Path, plugged_world: Path
) -> None:
    (plugged_world / "every.py").write_text(DECORATED)
    (plugged_world / "link_to_every.py").symlink_to(plugged_world / "every.py")
    load_plugins(["every.py", "./every.py", "../world/every.py", "link_to_every.py", "every"])
    HelperCode().load(plugged_world / "every.py")
    for kind in REGISTRIES:
        assert len(registry(kind).added) == (2 if kind == "aggregations" else 1), kind


def test_two_files_that_register_one_name_are_refused_with_both_places(plugged_world: Path) -> None:
    for name in ("own.py", "other.py"):
        (plugged_world / name).write_text(PLUGIN)
    with pytest.raises(ConfigError, match=r"two scorers are called 'beside_its_task': .*own.py:6.* and .*other.py:6"):
        load_plugins(["own.py", "other.py"])


def test_a_script_that_registers_a_scorer_beside_a_task_is_not_run_again(tmp_path: Path) -> None:
    world_of(tmp_path, {"t.yaml": NAMED})
    (tmp_path / "script.py").write_text(
        f"""{PLUGIN}
import assay
print("begins")
model = assay.Scripted(generate=lambda *_: "x", identity="x")
if __name__ == "__main__":
    results = assay.simple_evaluate(model, tasks=["t"], include_path=".", include_defaults=False)
    print(results["results"]["t"]["beside_its_task,none"])
"""
    )
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["begins", "0.75"], ended.stderr


@pytest.fixture
def plugged_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one and on the path."""
    folder = tmp_path / "world"
    folder.mkdir()
    (folder / "link.py").symlink_to(folder / "own.py")
    monkeypatch.chdir(folder)
    for path in (folder, folder / "site"):
        monkeypatch.syspath_prepend(str(path))
    return folder


# --- a class over a task ---------------------------------------------------------------------------------------------

OWN_CLASS = """
from assay import GenerateTask

class Mine(GenerateTask):
    def _compute_metric(self, result, metric):
        return 0.75

class Other(GenerateTask):
    def _compute_metric(self, result, metric):
        return 0.25

class Plain:
    pass
"""
LM_EVALS_CLASS = """
from lm_eval.api.task import ConfigurableTask

class Mine(ConfigurableTask):
    def process_results(self, doc, results):
        return {"exact_match": 0.75}
"""
IN_LIST = "group: g\ntask:\n  - b\n  - {task: a, class: !function own.Mine}\n"
LM_EVALS = {
    "lm_eval/tasks/scrolls/scrolls_qasper.yaml": "group: scrolls\ntask: scrolls_qasper\ninclude: ../../../a.yaml\nclass: !function task.Qasper\n",
    "lm_eval/tasks/scrolls/scrolls_qmsum.yaml": "group: scrolls\ntask: scrolls_qmsum\ninclude: ../../../a.yaml\nclass: !function task.Qasper\n",
    "lm_eval/tasks/scrolls/task.py": LM_EVALS_CLASS.replace("0.75", "0.0").replace("Mine", "Qasper"),
    "mine/scrolls.yaml": "group: scrolls\ntask:\n  - task: scrolls_qasper\n    class: !function own.Mine\n",
    "mine/own.py": OWN_CLASS,
}


class MineInPython(GenerateTask):
    def _compute_metric(self, result: Any, metric: Any) -> float:
        return 0.75


def classed(
    way: str,
    group: str,
    *more: tuple[str, str],
    number: float | Refused = 0.75,
    name: str = "a",
    own: str = OWN_CLASS,
    **others: Any,
) -> Seam:
    """A class over a registered task, in the list of the group g."""
    files = {"g.yaml": group, "own.py": own, **dict(more)}
    return Seam("a class over a task", way, number, names("g"), files, name=name, of="task", others=others)


def in_python(way: str, spec: Mapping[str, Any], number: float | Refused = 0.75, **others: Any) -> Seam:
    later = Refused(["task 'a'", "class was set in Python: MineInPython", "--with FILE"])
    stored = {} if isinstance(number, Refused) else {"score": later, "merge": later}
    return Seam(
        "a class over a task", way, number, lambda _: [dict(spec)], name="a", of="task", others={**stored, **others}
    )


TAGGED = ("t.yaml", "include: b.yaml\ntask: t\ntag: tagged\n")
GRAPH = ("graph_config.yaml", "task: drawn\ngraph_config: {nodes: {x: {node_type: lambda, lambda: own.f}}, edges: [{from: START, to: x},"
         " {from: x, to: END}]}\n")  # fmt: skip
ONLY_IN_RUN = Refused(["task 'a'", "which only a run scores"])
CLASSES = [
    classed("in a list", IN_LIST),
    classed("in a list, the others are as they were", IN_LIST, number=0.125, name="b"),
    classed("in a list, of lm-eval's kind", IN_LIST, own=LM_EVALS_CLASS, process_instances=ONLY_IN_RUN),
    Seam("a class over a task", "in a list, with overrides beside it", 0.75, names("g"), {"own.py": OWN_CLASS, "g.yaml":
         IN_LIST.replace("own.Mine}", "own.Mine, metric_list: [{metric: exact_match, name: mine}]}")}, name="a",
         row="mine,none", of="task"),
    classed("in an inline group", "group: g\ntask:\n  - {group: inner, task: [b, {task: a, class: !function own.Mine}]}\n"),
    classed("of the tasks of a tag", "group: g\ntask:\n  - {task: tagged, class: !function own.Mine}\n", TAGGED, name="t"),
    classed("of a registered group", "group: g\ntask:\n  - {group: h, class: !function own.Mine}\n",
            ("h.yaml", "group: h\ntask: [a, b]\n")),
    classed("as a group's default", "group: g\ntask: [a, b]\nclass: !function own.Mine\n"),
    classed("as a group's default, for every member", "group: g\ntask: [a, b]\nclass: !function own.Mine\n", name="b"),
    classed("as a default of an inline group", "group: g\ntask:\n  - {group: i, class: !function own.Mine, task: [a]}\n"),
    classed("as a default that an include brings", "group: g\ntask: [a]\ninclude: base_yaml\n",
            ("base_yaml", "class: !function own.Mine\n")),
    classed("nearer than the group's default", "group: g\ntask: [{task: a, class: !function own.Mine}]\nclass: !function own.Other\n"),
    classed("over a task that has a class", "group: g\ntask: [{task: c, class: !function own.Mine}]\n",
            ("c.yaml", "include: a.yaml\ntask: c\nclass: !function own.Other\n"), name="c"),
    classed("over a format", "group: g\ntask:\n  - {task: a@generate, class: !function own.Mine}\n", name="a@generate"),
    classed("of lm-eval's kind, over a format", "group: g\ntask:\n  - {task: a@generate, class: !function own.Mine}\n",
            own=LM_EVALS_CLASS, number=Refused(["g.yaml:3:31", "format 'generate'", "derive it from assay.GenerateTask"]),
            validate=None, process_instances=None),  # its base is known when it is imported
    classed("that does not exist", IN_LIST.replace("own.Mine", "own.Nope"), number=Refused(["g.yaml:4:22", "no 'Nope'"])),
    classed("that is no task", IN_LIST.replace("own.Mine", "own.Plain"), number=Refused(["g.yaml:4:22", "not a task class"]),
            process_instances=ONLY_IN_RUN),
    classed("that is text", IN_LIST.replace("!function own.Mine", "own.Mine"), number=Refused(["g.yaml:4:22", "`!function`"])),
    classed("over a graph", "group: g\ntask: [{task: drawn, class: !function own.Mine}]\n", GRAPH,
            number=Refused(["g.yaml:2:29", "a graph cannot be a class", "leave `class` out"])),
    Seam("a class over a task", "in a group named like lm-eval's", 0.75, names("scrolls"), LM_EVALS, name="scrolls_qasper",
         include=["lm_eval/tasks", "mine"], of="task"),
    Seam("a class over a task", "in a group named like lm-eval's, by its path", 0.75, names("mine/scrolls.yaml"), LM_EVALS,
         name="scrolls_qasper", include=["lm_eval/tasks"], of="task"),
    in_python("a Python class in a mapping", {"task": "a", "class": MineInPython}),
    in_python("a Python class in a list", {"group": "g", "task": [{"task": "a", "class": MineInPython}, "b"]}),
    in_python("a Python class as a default", {"group": "g", "task": ["a", "b"], "class": MineInPython}),
    in_python("a Python class that is no task", {"task": "a", "class": dict},
              Refused(["configuration.class", "'dict' is not a task class", "derive it from assay.GenerateTask"]),
              process_instances=ONLY_IN_RUN),
]  # fmt: skip


@pytest.mark.parametrize("spec", [{"group": "g"}, {"task": "tagged"}])
def test_a_class_over_a_registered_group_or_tag_among_a_runs_tasks_is_that_of_its_members(
    spec: dict[str, str], tmp_path: Path
) -> None:
    world = world_of(tmp_path, {"g.yaml": "group: g\ntask: [a, t]\n", TAGGED[0]: TAGGED[1]})
    tasks: list[Any] = [spec | {"class": MineInPython}]
    done = run(world.model(), tasks=tasks, output_path=str(tmp_path / "run"), progress=False, **world.options)
    assert lm_eval_layout(done.results)["results"]["t"]["exact_match,none"] == 0.75


def known_bug(seam: Seam, consumer: str) -> list[pytest.MarkDecorator]:
    reason = seam.known_bug(consumer)
    return [pytest.mark.xfail(strict=True, reason=reason)] if reason is not None else []


SEAMS = [*AGGREGATORS, *METHODS, *UNASKED, *PLUGINS, *CLASSES, *matrix()]
CELLS = [
    pytest.param(seam, consumer, id=f"{seam.title}: {consumer}", marks=known_bug(seam, consumer))
    for seam in SEAMS
    for consumer in CONSUMERS
    if not isinstance(seam.outcome(consumer), str | None)
]


@pytest.mark.parametrize(("seam", "consumer"), CELLS)
def test_an_extension_is_used_or_refused_before_the_first_request(
    plugged_world: Path, seam: Seam, consumer: str
) -> None:
    world = world_of(plugged_world, seam.files, seam.include)
    outcome = seam.outcome(consumer)
    if isinstance(outcome, Refused):
        with pytest.raises((AssayError, SelfExplanatory)) as refusal:
            CONSUMERS[consumer](world, seam)
        missing = [text for text in outcome.texts if text not in str(refusal.value)]
        assert not missing, str(refusal.value)
        assert re.search(" — |left out: ", str(refusal.value)), "a refusal says how to correct it"
        assert consumer in ("score", "merge") or not world.asked
        return
    assert CONSUMERS[consumer](world, seam) == pytest.approx(outcome, abs=1e-12)
    assert outcome != MICRO, "a number that the extension does not change shows nothing"


EVERYWHERE = """
import assay

@assay.aggregation("root_mean_square")
def root_mean_square(values, *, times: float = 1.0):
    return times * (sum(value ** 2 for value in values) / len(values)) ** 0.5
"""


def test_one_aggregation_counts_in_a_task_a_group_and_a_graph(plugged_world: Path) -> None:
    """Of 1 right answer of 8: √(1/8) in the task and the graph, twice that with `times: 2`; of members with 1/2 and 1/8:
    √((1/4 + 1/64) / 2)."""
    collated = {"processor": "tasks.eval.utils.MetricCollatorPostProcessor"}
    metric = {"name": "root_mean_square", "unit_metrics_results": ["exact_match_result"]}
    files = {
        "everywhere.py": EVERYWHERE,
        "own.yaml": "task: own\ninclude: b.yaml\nmetric_list: [{metric: exact_match, aggregation: root_mean_square, times: 2}]\n",
        "g.yaml": f"{GROUP}aggregate_metric_list: [{{metric: exact_match, aggregation: root_mean_square}}]\n",
        "walk/graph_config.yaml": graph(
            graph_post_process=[{**collated, "params": {"aggregator_metrics_map": [metric]}}],
            data_config={"source": {"type": "disk", "file_path": "../b.jsonl"}},
        ),
    }
    world = world_of(plugged_world, files)
    load_plugins([str(world.folder / "everywhere.py")])
    done = run(
        world.model(), tasks=["own", "g", "t"], progress=False, output_path=str(world.folder / "out"), **world.options
    )
    results = done.results
    expected = {("own", "exact_match"): 2 * (1 / 8) ** 0.5, ("g", "exact_match"): ((1 / 4 + 1 / 64) / 2) ** 0.5,
                ("t", "root_mean_square"): (1 / 8) ** 0.5}  # fmt: skip
    numbers = {(name, row): results.row(name, ScoreKey(row, "none")).estimate.value for name, row in expected}
    assert numbers == pytest.approx(expected)


# --- seed 001's data flow, by hand -----------------------------------------------------------------------------------


def test_instances_are_filled_as_the_data_flow_of_seed_001_says() -> None:
    """Of two right answers one is left right by the filter."""
    instances = [Instance({"q": str(number)}, number, (f"q{number}",), "x") for number in range(2)]
    for instance, left in zip(instances, ["x", "y"], strict=True):
        instance.resps = ["x"]  # as the model answers
        instance.filtered_resps["none"] = left  # as the filter leaves it
    task = GenerateTask({"task": "t", "metric_list": [{"metric": "exact_match"}]})
    assert task.process_instances(instances)["exact_match", "none"] in ([1.0, 0.0], [[1.0], [0.0]])


def test_the_scores_of_generations_are_a_list_with_one_for_each() -> None:
    config = GenerateTask({"task": "t", "metric_list": [{"metric": "exact_match"}]}).config
    for resps, expected in ((["x"], [1.0]), (["x", "y"], [1.0, 0.0])):
        answers = resps[0] if len(resps) == 1 else resps
        instance = Instance({}, 0, ("q",), "x", resps=resps, filtered_resps={"none": answers})
        result: Any = GenerationScorer(config).score_instances([instance], "none")
        assert result.scores == {"exact_match": expected}


# --- a method of a scorer beside another one ---------------------------------------------------------------------------

SCORED = "def score(self, reference, predictions): return 0.75"
BATCH = "def score_batch(self, results): return [0.75 * (result.answer == 'y') for result in results]"
CREATED = """def _create_result(self, instances, filter_name):
        result = super()._create_result(instances, filter_name)
        result.answer = 'y'
        return result"""
COMPUTED = "def _compute_metrics(self, result, metrics): return {'own': 0.75}"
ALSO = "def _compute_metrics(self, result, metrics): return {**super()._compute_metrics(result, metrics), 'own': 0.75}"
BY_METRIC = "def _compute_metric(self, result, metric): return 0.75 * (result.answer == 'x')"
CHOSEN = (
    "def get_metrics(self, filter_name): return [MetricConfig(name='own', fn=lambda references, predictions: 0.75)]"
)
OF_INSTANCES = "def score_instances(self, instances, filter_name): return {'own': 0.75}"
SUPER = "def score_instances(self, instances, filter_name): return super().score_instances(instances, filter_name)"
ASKS = """asks, model_roles = True, {'judge': None}
    def questions(self, result): return [Generate('seam', {}, 0, 'judge')]
    def verdict(self, result, responses): return 0.75 * (result.answer == 'y')"""
PLANNED = """asks = True
    def ask(self, result):
        yield []
        return 0.75"""
PARALLEL = "parallel = True"
OF_OWN = "include: b.yaml\ntask: b2\nscorer: !function own.Own\n"


def scorer_file(*parts: str) -> str:
    body = "".join(f"    {part}\n" for part in parts)
    return f"from assay import *\nfrom assay.records import Generate\nclass Own(GenerationScorer):\n{body}"


@pytest.mark.parametrize(
    ("parts", "unused"),
    [
        ((SCORED, BATCH), "score_batch and score,"),
        ((SCORED, COMPUTED), "_compute_metrics and score,"),
        ((BY_METRIC, COMPUTED), "_compute_metrics and _compute_metric,"),
        ((SCORED, ASKS), "questions and score,"),
        ((ASKS, PLANNED), "ask and questions,"),
        ((ASKS.replace("asks, model_roles = True, {", "model_roles = {"),), "`asks` is False"),
        ((OF_INSTANCES, ASKS), "questions and score_instances,"),
        ((OF_INSTANCES, BATCH), "score_batch and score_instances,"),
        ((OF_INSTANCES, SCORED), "score_instances and score,"),
        ((OF_INSTANCES, BY_METRIC), "score_instances and _compute_metric,"),
        ((OF_INSTANCES, COMPUTED), "score_instances and _compute_metrics,"),
        ((PARALLEL, SCORED, BATCH), "`parallel`"),
        ((PARALLEL, SCORED, OF_INSTANCES), "`parallel`"),
        ((PARALLEL,), "no `score`"),
    ],
)
def test_a_method_of_a_scorer_that_another_one_replaces_is_refused(
    parts: Sequence[str], unused: str, tmp_path: Path
) -> None:
    world = world_of(tmp_path, {"own.py": scorer_file(*parts), "b2.yaml": OF_OWN})
    with pytest.raises(ConfigError, match=re.escape(unused)) as refused:
        simple_evaluate(world.model(), tasks=["b2"], **world.options)
    assert "b2.yaml:" in str(refused.value)
    assert world.asked == []


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        # the model says x: 1 of 8 documents has the target x, 7 have y
        ((CREATED, BATCH), {"exact_match": 0.875, "Own": 0.75}),
        ((CREATED, ASKS), {"exact_match": 0.875, "Own": 0.75}),
        ((CREATED, PLANNED), {"exact_match": 0.875, "Own": 0.75}),
        ((CREATED, SCORED), {"exact_match": 0.875, "Own": 0.75}),
        ((CREATED, ALSO), {"exact_match": 0.875, "own": 0.75}),
        ((CREATED, CHOSEN), {"own": 0.75}),
        ((CREATED, BY_METRIC), {"exact_match": 0.0}),
        ((CREATED, PARALLEL, SCORED), {"exact_match": 0.875, "Own": 0.75}),
        ((CREATED, SUPER, SCORED), {"exact_match": 0.875, "Own": 0.75}),
        ((CREATED, SUPER, CHOSEN), {"own": 0.75}),
        ((BY_METRIC, BATCH), {"exact_match": 0.75, "Own": 0.0}),
        ((BY_METRIC, ASKS), {"exact_match": 0.75, "Own": 0.0}),
        ((BY_METRIC, SCORED, ALSO), {"exact_match": 0.75, "Own": 0.75, "own": 0.75}),
        ((COMPUTED, BATCH), {"own": 0.75, "Own": 0.0}),
        ((COMPUTED, ASKS), {"own": 0.75, "Own": 0.0}),
        ((CHOSEN, BATCH), {"own": 0.75, "Own": 0.0}),
        ((CHOSEN, ASKS), {"own": 0.75, "Own": 0.0}),
    ],
)
def test_methods_of_a_scorer_are_used_side_by_side(
    parts: Sequence[str], rows: Mapping[str, float], tmp_path: Path
) -> None:
    world = world_of(tmp_path, {"own.py": scorer_file(*parts), "b2.yaml": OF_OWN})
    judge = Scripted(lambda *_: "fine", identity="judge")
    results = simple_evaluate(
        world.model(), tasks=["b2"], model_role={"judge": judge} if ASKS in parts else None, **world.options
    )
    assert {row: results["results"]["b2"].get(f"{row},none") for row in rows} == rows


def test_a_batch_scorer_creates_the_result_of_a_document_once(tmp_path: Path) -> None:
    made: list[int] = []

    class Own(GenerationScorer):
        def _create_result(self, instances: Any, filter_name: str) -> Any:
            made.append(instances[0].doc_id)
            return super()._create_result(instances, filter_name)

        def score_batch(self, results: Any) -> Any:
            return [1.0 for _ in results]

    world = world_of(tmp_path, {})
    simple_evaluate(world.model(), tasks=[{"task": "b", "scorer": Own()}], **world.options)
    assert sorted(made) == [*range(8)]


def test_methods_set_on_a_scorer_are_refused_where_they_would_not_be_called(tmp_path: Path) -> None:
    scorer: Any = ThreeQuarters()
    scorer._compute_metrics = lambda result, metrics: {"own": 1.0}
    world = world_of(tmp_path, {})
    with pytest.raises(ConfigError, match="_compute_metrics and score,"):
        simple_evaluate(world.model(), tasks=[{"task": "b", "scorer": scorer}], **world.options)


@pytest.mark.parametrize("part", [CREATED, BY_METRIC])
def test_a_member_of_an_ensemble_whose_method_would_not_be_called_is_refused(part: str, tmp_path: Path) -> None:
    yaml = OF_OWN.replace("!function own.Own", "{type: ensemble, kwargs: {scorers: [!function own.Own]}}")
    world = world_of(tmp_path, {"own.py": scorer_file(part), "b2.yaml": yaml})
    with pytest.raises(ConfigError, match="would never be called"):
        simple_evaluate(world.model(), tasks=["b2"], **world.options)
    assert world.asked == []


# --- the libraries of metrics ------------------------------------------------------------------------------------------

LIBRARY = "import pathlib\nwith pathlib.Path(__file__).with_name('imports').open('a') as log: log.write('x')\n"


@pytest.mark.parametrize("fails", [False, True])
def test_the_library_of_a_metric_is_imported_before_the_first_request_and_not_by_validate(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"seam_library_{fails}".lower()
    (tmp_path / f"{module}.py").write_text(LIBRARY + "raise OSError('no disk')\n" * fails)
    monkeypatch.syspath_prepend(str(tmp_path))
    metric = Metric({"generate_until": lambda references, prediction: 0.75}, needs=module)
    registry("metrics").add(f"of_{module}", metric)
    world = world_of(tmp_path, {"b2.yaml": f"include: b.yaml\ntask: b2\nmetric_list: [{{metric: of_{module}}}]\n"})
    assert not [problem for problem in validate(world.manager, ["b2"]) if problem.serious]
    assert not (tmp_path / "imports").exists()
    if fails:
        with pytest.raises(ConfigError, match=f"cannot import {module}: OSError: no disk"):
            simple_evaluate(world.model(), tasks=["b2"], **world.options)
        assert world.asked == []
    else:
        results = simple_evaluate(world.model(), tasks=["b2"], **world.options)
        assert results["results"]["b2"][f"of_{module},none"] == 0.75
    assert (tmp_path / "imports").read_text() == "x"
