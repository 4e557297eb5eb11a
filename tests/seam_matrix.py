"""The tables behind the generated part of the seam matrix: what users extend, and the ways in which it is brought in.

An `Extension` is code as a user writes it, with the keys of a file that use it and the number by hand. A `Way` writes the files,
or makes the objects. The model says `x`: of the 8 documents of task b, 1 is right.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any, Literal, NamedTuple

from assay import GroupConfig, StandardGroup, Task
from seam_world import TASK, Names, Outcome, Refused, Seam, World

NAME = "seam_own"
"""What every extension is called."""
USE, HELPER = f"<{NAME}>", "<helper>"
"""The value of a key that uses the extension: its name, `!function own.seam_own`, or the object; and other code beside it."""
FUNCTION = f"!function own.{NAME}"


@dataclass(frozen=True)
class Extension:
    """What a user adds. `keys` are those of the task or group file that use it."""

    title: str
    number: float
    code: str
    keys: Mapping[str, Any]
    kind: str | None = None
    """The registry that it can be put into by name; None where the keys take no name."""
    row: str = "exact_match,none"
    of: Literal["task", "group"] = "task"
    base: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the task file beside those of task b; None removes one."""
    plugin: str = NAME
    """What is registered, where it is not the object that `!function` names."""
    decorator: str = ""
    """Arguments of the decorator beside the name."""
    unnamed: str = "must be a `!function`"
    """The refusal of a name, where `kind` is None."""
    asks: bool = False
    """Whether it changes what is asked, and not how answers are scored."""
    others: Mapping[str, Outcome] = field(default_factory=dict)
    """By way, what happens instead."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """By way, or kind of way, what happens today and should not."""

    @property
    def helper(self) -> str:
        """The file of the user's code."""
        return "import assay\nfrom assay import *\n" + dedent(self.code)

    @property
    def registering(self) -> str:
        """The same, with the decorator of its kind; a kind of group is known by its name once it is imported."""
        if self.kind == "groups":
            return self.helper
        decorator = f"@assay.{str(self.kind).removesuffix('s')}({NAME!r}{self.decorator})"
        return re.sub(rf"^(?=(def|class) {self.plugin}\b)", f"{decorator}\n", self.helper, flags=re.MULTILINE)

    @property
    def plain(self) -> dict[str, Any]:
        """The task or group without the extension, as a mapping."""
        if self.of == "group":
            return {"group": "g", "task": ["a", "b"]}
        own = {
            "task": "t",
            "dataset_kwargs": {"data_files": {"test": "b.jsonl"}},
            "metric_list": [{"metric": "exact_match"}],
        }
        lines = [line.partition(": ") for line in TASK.format(name="b").splitlines()]
        whole = {**{key: value for key, _, value in lines}, **own, **self.base}
        return {key: value for key, value in whole.items() if value is not None}

    @property
    def object_keys(self) -> dict[str, Any]:
        """The keys, with the objects themselves."""
        names: dict[str, Any] = {"__name__": "own"}
        exec(compile(self.helper, "own.py", "exec"), names)

        def replaced(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: replaced(inner) for key, inner in value.items()}
            if isinstance(value, list):
                return [replaced(inner) for inner in value]
            return names[value.strip("<>")] if value in (USE, HELPER) else value

        keys: dict[str, Any] = replaced(self.keys)
        return keys


def yaml(keys: Mapping[str, Any], use: str = FUNCTION) -> str:
    """A YAML file."""
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
    return text.replace(json.dumps(USE), use).replace(json.dumps(HELPER), "!function own.helper")


# --- ways in ---------------------------------------------------------------------------------------------------------


class BroughtIn(NamedTuple):
    """Files of a world, what is selected in it, and how it is called in the results."""

    files: Mapping[str, str]
    select: Callable[[World], Sequence[Any]]
    name: str
    plugins: Sequence[str] = ()


def own_file(extension: Extension, use: str = FUNCTION) -> dict[str, str]:
    """The file of the task or group that uses the extension."""
    return {f"{extension.of}.yaml": yaml({**extension.plain, **extension.keys}, use)}


def plain_file(extension: Extension) -> dict[str, str]:
    return {f"{extension.of}.yaml": yaml(extension.plain)}


def by(extension: Extension, files: Mapping[str, str], *plugins: str) -> BroughtIn:
    name: str = extension.plain[extension.of]
    return BroughtIn(files, Names([name]), name, plugins)


def in_its_file(extension: Extension) -> BroughtIn:
    return by(extension, {**own_file(extension), "own.py": extension.helper})


def in_an_include(extension: Extension) -> BroughtIn:
    base = {key: value for key, value in extension.plain.items() if key not in extension.keys}
    file = {f"{extension.of}.yaml": f"{yaml(base)}include: shared/base_yaml\n"}
    return by(extension, {**file, "shared/base_yaml": yaml(extension.keys), "shared/own.py": extension.helper})


def registered_beside(extension: Extension) -> BroughtIn:
    return by(extension, {**own_file(extension, NAME), "own.py": extension.registering})


def as_plugin(extension: Extension) -> BroughtIn:
    files = {**own_file(extension, NAME), "elsewhere/plugged.py": extension.registering}
    return by(extension, files, "elsewhere/plugged.py")


def as_package(extension: Extension) -> BroughtIn:
    # decorated where an entry point alone cannot say everything
    code = extension.registering if extension.decorator else extension.helper
    point = f"[assay.{extension.kind}]\n{NAME} = seam_package:{extension.plugin}\n"
    about = "site/seam_package-1.0.dist-info"
    files = {"site/seam_package.py": code, f"{about}/entry_points.txt": point,
             f"{about}/METADATA": "Metadata-Version: 2.1\nName: seam_package\nVersion: 1.0\n"}  # fmt: skip
    return by(extension, {**own_file(extension, NAME), **files})


def inline(extension: Extension) -> BroughtIn:
    inner = {**extension.plain, **extension.keys}
    if extension.of == "task":
        inner["dataset_kwargs"] = {"data_files": {"test": "../b.jsonl"}}
    files = {"mine/top.yaml": yaml({"group": "top", "task": [inner]}), "mine/own.py": extension.helper}
    return BroughtIn(files, Names(["top"]), f"top::{inner[extension.of]}")


def over_a_member(extension: Extension) -> BroughtIn:
    member = {extension.of: extension.plain[extension.of], **extension.keys}
    files = {"mine/top.yaml": yaml({"group": "top", "task": [member]}), "mine/own.py": extension.helper}
    return by(extension, {**plain_file(extension), **files})._replace(select=Names(["top"]))


def as_default(extension: Extension) -> BroughtIn:
    top = {"group": "top", "task": [extension.plain[extension.of]], **extension.keys}
    files = {"mine/top.yaml": yaml(top), "mine/own.py": extension.helper}
    return by(extension, {**plain_file(extension), **files})._replace(select=Names(["top"]))


def over_a_name_in_python(extension: Extension) -> BroughtIn:
    spec = {extension.of: extension.plain[extension.of], **extension.object_keys}
    return by(extension, plain_file(extension))._replace(select=lambda _: [dict(spec)])


def in_a_configuration(extension: Extension) -> BroughtIn:
    return by(extension, {})._replace(select=lambda world: [{**_plain_in(world, extension), **extension.object_keys}])


def in_an_object(extension: Extension) -> BroughtIn:
    def select(world: World) -> list[Any]:
        if extension.of == "task":
            return [Task.from_config({**_plain_in(world, extension), **extension.object_keys})]
        group: StandardGroup[Any] = StandardGroup(GroupConfig(group="g", **extension.object_keys))
        for task in world.manager.load(["a", "b"])["tasks"].values():
            group.add_child(task)
        return [group]

    return by(extension, {})._replace(select=select)


def _plain_in(world: World, extension: Extension) -> dict[str, Any]:
    data = {"dataset_kwargs": {"data_files": {"test": str(world.folder / "b.jsonl")}}}
    return {**extension.plain, **(data if extension.of == "task" else {})}


COMMAND = "a command takes names"


def of_python(extension: Extension, way: "Way") -> dict[str, Outcome]:
    """Code in memory has no name on the command line, and is not there any more when a run is scored again."""
    score: Outcome = Refused(["set in Python: "])
    merge = score
    if extension.of == "task" and extension.asks:  # what was asked is stored
        score, merge = extension.number, Refused(["changed since the shards were run"])
    if way.make is in_an_object and (extension.of == "group" or extension.asks):
        score = merge = Refused(["task '", "its definition is not found", "--with FILE"])
    return {"command": COMMAND, "validate": COMMAND, "score": score, "merge": merge}


class Way(NamedTuple):
    title: str
    make: Callable[[Extension], BroughtIn]
    by: Literal["function", "name", "object"] = "function"


WAYS = (
    Way("!function in its file", in_its_file),
    Way("!function in a file that it includes", in_an_include),
    Way("a name that a file beside it registers", registered_beside, "name"),
    Way("a name, with --plugin", as_plugin, "name"),
    Way("a name of an installed package", as_package, "name"),
    Way("inline in a group", inline),
    Way("over a member of a group", over_a_member),
    Way("default of a group", as_default),
    Way("an object, over a registered name", over_a_name_in_python, "object"),
    Way("an object, in a configuration", in_a_configuration, "object"),
    Way("an object, in a Task or Group", in_an_object, "object"),
)  # fmt: skip
BESIDE, PLUGIN, PACKAGE = (way.title for way in WAYS[2:5])
OBJECT = WAYS[-1].title


def outcomes(extension: Extension, way: Way) -> Outcome:
    """What every consumer of a row of cells has, where it is not the number."""
    if way.title in extension.others:
        return extension.others[way.title]
    if extension.of == "group" and way.make is as_default:
        return "the keys of a group are its own"
    if way.by == "name" and extension.kind is None:
        return Refused([extension.unnamed]) if way.title == BESIDE else "no registry"
    if way.title == BESIDE and extension.kind == "groups":
        return Refused([f"no kind of group named '{NAME}'", "!function"])
    if way.title == BESIDE and extension.kind != "scorers":  # only scorers are found without being named
        return Refused([f"no {str(extension.kind).removesuffix('s')} named '{NAME}'"])
    return None


def seam(extension: Extension, way: Way) -> Seam:
    """The cells of an extension that is brought in like that."""
    outcome = outcomes(extension, way)
    if isinstance(outcome, str):
        return Seam(extension.title, way.title, outcome, Names(), of=extension.of)
    files, select, name, plugins = way.make(extension)
    row = extension.row
    if way.by == "name":  # of each way another one: a class of an earlier cell may still be known by its name
        named = f"{NAME}_{WAYS.index(way)}"
        files, row = {file: text.replace(NAME, named) for file, text in files.items()}, row.replace(NAME, named)
        if isinstance(outcome, Refused):
            outcome = Refused([text.replace(NAME, named) for text in outcome.texts])
    others = of_python(extension, way) if way.by == "object" and outcome is None else {}
    if extension.asks:
        others["process_instances"] = "instances have their question and target"
    wrong = extension.wrong.get(way.title) or extension.wrong.get(way.by)
    return Seam(extension.title, way.title, extension.number if outcome is None else outcome, select, files, name=name, row=row,
                of=extension.of, options={"plugins": list(plugins)} if plugins else {}, others=others, wrong=wrong)  # fmt: skip


def matrix() -> Iterator[Seam]:
    """Every extension in every way."""
    yield from (seam(extension, way) for extension in EXTENSIONS for way in WAYS)
    yield from of_graphs()
    yield from of_models()
    yield from of_formats()


# --- extensions ------------------------------------------------------------------------------------------------------

SAMPLED = {
    "repeats": 2,
    "generation_kwargs": {"do_sample": True, "temperature": 1.0, "until": []},
    "filter_list": [{"name": "none", "filter": [{"function": "take_first_k", "k": 2}]}],
}
CHOICES = {"output_type": "multiple_choice", "doc_to_choice": ["x", "y"], "metric_list": [{"metric": "acc"}]}
METRIC = {"metric_list": [{"metric": USE, "aggregation": "mean"}]}
STEP = {"filter_list": [{"name": "none", "filter": [{"function": USE}, {"function": "take_first"}]}]}
MADE = "\ndef made():\n    return lambda responses, doc: [each.replace('x', 'y') for each in responses]\n"


def scorer(title: str, number: float, *body: str, row: str = "exact_match,none", base: str = "GenerationScorer", **more: Any) -> Extension:  # fmt: skip
    code = f"class {NAME}({base}):\n" + "".join(f"    {line}\n" for line in body)
    return Extension(f"a scorer with {title}", number, code, {"scorer": USE}, "scorers", row, **more)


def task_class(title: str, number: float, *body: str, **more: Any) -> Extension:
    code = f"class {NAME}(GenerateTask):\n" + "".join(f"    {line}\n" for line in body)
    return Extension(f"a task class with {title}", number, code, {"class": USE}, **more)


def group_class(title: str, *body: str) -> Extension:
    code = f"class {NAME}(StandardGroup):\n" + "".join(f"    {line}\n" for line in body)
    other_kind = Refused(["group 'g'", f"`type: {NAME}`", "make an object of that class"])
    return Extension(f"a group class with {title}", 0.25, code, {"type": USE}, "groups", of="group",
                     others={PACKAGE: "no registry of installed packages", OBJECT: other_kind})  # fmt: skip


EXTENSIONS = [
    Extension("a metric", 0.75, f"def {NAME}(references, prediction):\n    return 0.75 * (prediction == 'x')",
              METRIC, "metrics", f"{NAME},none"),
    Extension("a metric without aggregation", 0.75, f"def {NAME}(references, prediction):\n    return 0.75 * (prediction == 'x')",
              {"metric_list": [{"metric": USE}]}, "metrics", f"{NAME},none"),
    Extension("a metric of several rows", 0.75, f"def {NAME}(references, predictions):\n    return {{'part': 0.75 * (predictions == ['x'])}}",
              METRIC, "metrics", "part,none"),
    Extension("a metric with a parameter", 0.75, f"def {NAME}(references, prediction, *, value: float = 0.0):\n    return value",
              {"metric_list": [{"metric": USE, "aggregation": "mean", "value": 0.75}]}, "metrics", f"{NAME},none"),
    Extension("a metric of choices", 0.75, f"def {NAME}(result):\n    return 0.75 * (list(result.lls) == [-1.0, -2.0])",
              METRIC, "metrics", f"{NAME},none", base=CHOICES, decorator=", output_type='multiple_choice'"),
    Extension("a metric of one filter", 0.75, f"def {NAME}(references, prediction):\n    return 0.75 * (prediction == 'x')",
              {"filter_list": [{"name": "only", "filter": [{"function": "take_first"}], **METRIC}]}, "metrics", f"{NAME},only"),
    Extension("a filter", 0.875, f"def {NAME}(resps, docs):\n    return [[each.replace('x', 'y') for each in of] for of in resps]" + MADE,
              STEP, "filters", plugin="made"),
    Extension("a filter class", 0.875, f"class {NAME}:\n    def apply(self, resps, docs):\n        return [[each.replace('x', 'y') for each in of] for of in resps]",
              STEP, "filters"),
    Extension("an aggregation", 0.75, f"def {NAME}(values):\n    return 0.75 * len(list(values)) / 8",
              {"metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregations"),
    Extension("a reduction", 0.75, f"def {NAME}(scores):\n    return 0.75 * (len(list(scores)) == 2)",
              {"metric_list": [{"metric": "exact_match", "reduction": {"own": USE}}]}, "reductions", "own,none", base=SAMPLED),
    Extension("a reduction of references", 0.75, f"def {NAME}(references, predictions):\n    return 0.75 * (references in 'xy' and len(predictions) == 2)",
              {"metric_list": [{"metric": "exact_match", "reduction": USE}]}, "reductions", base=SAMPLED),
    scorer("score", 0.75, "def score(self, reference, predictions):", "    return 0.75 * (predictions == ['x'])", row=f"{NAME},none"),
    scorer("score_batch", 0.75, "def score_batch(self, results):", "    return [0.75 * (result.answer == 'x') for result in results]", row=f"{NAME},none"),
    scorer("score_instances", 0.75, "def score_instances(self, instances, filter_name):",
           "    return {'own': 0.75 * (instances[0].filtered_resps[filter_name] == 'x')}", row="own,none"),
    scorer("get_metrics", 0.75, "def get_metrics(self, filter_name):",
           "    return [MetricConfig(name='own', fn=lambda references, predictions: 0.75)]", row="own,none"),
    scorer("_create_result", 0.875, "def _create_result(self, instances, filter_name):", "    result = super()._create_result(instances, filter_name)",
           "    result.answer = 'y'", "    return result"),
    scorer("_compute_metrics", 0.75, "def _compute_metrics(self, result, metrics):", "    return {**super()._compute_metrics(result, metrics), 'own': 0.75}",
           row="own,none"),
    scorer("_compute_metric", 0.75, "def _compute_metric(self, result, metric):", "    return 0.75 * (result.answer == 'x')"),
    scorer("default_filters", 0.875, "def default_filters(self):",
           "    steps = ({'function': 'map', 'mapping_dict': {'x': 'y'}}, {'function': 'take_first'})",
           "    return Task.from_config({'task': 'd', 'filter_list': [{'name': 'own', 'filter': list(steps)}]}).config.filter_list", row="exact_match,own"),
    Extension("a scorer with default_metrics", 0.875, f"class {NAME}(GenerationScorer):\n    def default_metrics(self):\n        return (MetricConfig(name='edit_distance'),)",
              {"scorer": USE}, "scorers", "edit_distance,none", base={"metric_list": None}),
    scorer("score_instances of Scorer alone", 0.75, "def score_instances(self, instances, filter_name):",
           "    return {'own': 0.75}", row="own,none", base="Scorer"),
    Extension("a scorer of one filter", 0.75, f"class {NAME}(GenerationScorer):\n    def score(self, reference, predictions):\n        return 0.75",
              {"filter_list": [{"name": "only", "filter": [{"function": "take_first"}], "scorer": USE}]}, "scorers", f"{NAME},only"),
    task_class("_create_result", 0.875, "def _create_result(self, instances, filter_name):", "    result = super()._create_result(instances, filter_name)",
               "    result.answer = 'y'", "    return result"),
    task_class("_compute_metric", 0.75, "def _compute_metric(self, result, metric):", "    return 0.75 * (result.answer == 'x')"),
    Extension("a task class with _process_with_custom_fn", 0.75,
              f"class {NAME}(GenerateTask):\n    def _process_with_custom_fn(self, instances_by_doc):\n        return {{('own', 'none'): [0.75 for _ in instances_by_doc]}}\n"
              "def helper(doc, results):\n    return {'own': 0.0}", {"class": USE, "process_results": HELPER}, row="own,none", base={"metric_list": None}),
    task_class("process_instances", 0.75, "def process_instances(self, instances=None):",
               "    self._sample_scores = {('own', 'none'): [0.75 for _ in self.sort_instances(instances)]}", "    return self._sample_scores", row="own,none"),
    Extension("process_results", 0.75, f"def {NAME}(doc, results):\n    return {{'own': 0.75 * (results == ['x'])}}",
              {"process_results": USE}, row="own,none", base={"metric_list": None}),
    Extension("a target", 0.875, f"def {NAME}(doc):\n    return 'y' if doc['gold'] == 'x' else 'x'", {"doc_to_target": USE},
              unnamed="have no column", asks=True),
    Extension("a question", 0.875, f"def {NAME}(doc):\n    return 'seam ' + doc['q']", {"doc_to_text": USE},
              unnamed="have no column", asks=True),
    Extension("a function of documents", 0.25, f"def {NAME}(docs):\n    return docs.select(range(4))", {"process_docs": USE},
              asks=True),
    Extension("an aggregator function", 0.25, f"def {NAME}(group, results):\n    return 0.25 * len(group.get_all_tasks()) / 2",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregators", of="group",
              others=dict.fromkeys([PLUGIN, PACKAGE], Refused(["must be a class derived from Aggregator"]))),
    Extension("an aggregator class", 0.25, f"class {NAME}(Aggregator):\n    def aggregate(self, group, results):\n"
              "        return {'exact_match,none': (results['a']['exact_match,none'] * results['b']['exact_match,none']) ** 0.5}",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregators", of="group"),
    Extension("an aggregation, of a group", 0.25, f"def {NAME}(values):\n    return (values[0] * values[1]) ** 0.5",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregations", of="group",
              others={way.title: Refused(["must take 2 arguments by position"]) for way in WAYS if way.by != "name"}
              | {BESIDE: Refused(["no aggregator named"]), WAYS[7].title: "the keys of a group are its own"}),
    Extension("a row aggregator", 0.25, f"class {NAME}(RowAggregator):\n    def combine(self, members, weights):\n"
              "        return (float(members[0].estimate) * float(members[1].estimate)) ** 0.5",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregators", of="group"),
    Extension("a group's scorer", 0.25, f"def {NAME}(group, results):\n    return {{'own,none': 0.25}}", {"group_scorer": USE}, of="group", row="own,none"),
    group_class("_aggregator", "def __init__(self, config, parent=None):", "    super().__init__(config, parent)",
                "    self._aggregator = CustomAggregator(config, lambda group, results: {'exact_match,none': 0.25})"),
    group_class("compute_metrics", "def compute_metrics(self, task_results):", "    return {'exact_match,none': 0.25}"),
]  # fmt: skip


# --- graphs, models and formats, which have ways of their own ---------------------------------------------------------

GRAPH: Mapping[str, Any] = {
    "task": "t",
    "data_config": {"source": {"type": "disk", "file_path": "b.jsonl"}},
    "graph_config": {
        "nodes": {
            "ask": {"node_type": "llm", "prompt": [{"user": "{q}"}], "output_keys": "said", "model": {"name": "any"}},
            "measure": {"node_type": "lambda", "lambda": "tasks.eval.utils.UnitMetrics", "golden_key": "gold",
                        "predicted_key": "said", "unit_metrics_map": [{"name": "exact_match"}]},
        },
        "edges": [{"from": "START", "to": "ask"}, {"from": "ask", "to": "measure"}, {"from": "measure", "to": "END"}],
    },
}  # fmt: skip
UNIT = "def {name}(golden, predicted):\n    return 0.75 * (predicted['text'] == 'x')\n"
WHOLE = "def {name}(results):\n    return 0.75 * len(list(results)) / 8\n"
SAYS_Y = "def {name}(node, state):\n    return {{'said': state['said'].replace('x', 'y')}}\n"
REPORT = "class {name}(GraphPostProcessor):\n    def process(self, data, metadata):\n        return [{{**each, 'exact_match_result': {{**each['exact_match_result'], 'correct': True}}}} for each in data]\n"
LOUD = "class {name}(DataTransform):\n    def transform(self, data, params):\n        return [{{**each, 'gold': 'y' if each['gold'] == 'x' else 'x'}} for each in data]\n"


def graph(**changes: Any) -> str:
    """The graph with other keys, those of `nodes` and `edges` among them."""
    config = {**GRAPH["graph_config"], **{key: changes.pop(key) for key in ("edges",) if key in changes}}
    nodes = {name: {**node, **changes.pop(name, {})} for name, node in config["nodes"].items()}
    nodes |= {name: changes.pop(name) for name in [*changes] if name == "change"}
    return yaml({**GRAPH, "graph_config": {**config, "nodes": nodes}, **changes})


def of_graphs() -> Iterator[Seam]:
    """What a graph names, in the ways in which its code is found."""
    collated = {"processor": "tasks.eval.utils.MetricCollatorPostProcessor"}
    through = [("START", "ask"), ("ask", "change"), ("change", "measure"), ("measure", "END")]
    edges = [{"from": start, "to": end} for start, end in through]
    named: Sequence[tuple[str, str, str, str, Callable[[str], Mapping[str, Any]]]] = (
        ("a unit metric", "unit_metrics", UNIT, "{name},none", lambda name: {"measure": {"unit_metrics_map": [{"name": name}]}}),
        ("an aggregator metric", "aggregator_metrics", WHOLE, "{name},none", lambda name: {"graph_post_process": [{**collated, "params": {
            "aggregator_metrics_map": [{"name": name, "unit_metrics_results": ["exact_match_result"]}]}}]}),
        ("a transform", "transforms", LOUD, "exact_match,none", lambda name: {"data_config": {"source": {
            **GRAPH["data_config"]["source"], "transformations": [{"transform": name}]}}}),
    )  # fmt: skip
    for title, kind, code, row, keys in named:
        number = 0.875 if kind == "transforms" else 0.75
        for place, way in enumerate((Way("a name that a file beside it registers", as_plugin), Way("a name, of a module in `imports`", as_plugin),
                                     Way("a name, with --plugin", as_plugin), Way("a name of an installed package", as_package))):  # fmt: skip
            name = f"{NAME}_graph_{place}"
            written = f"import assay\nfrom assay import *\n@assay.{kind.removesuffix('s')}({name!r})\n{code.format(name=name)}"
            about = "site/seam_package-1.0.dist-info"
            files = (
                {"own.py": written}, {"own.py": written}, {"elsewhere/plugged.py": written},
                {"site/seam_package.py": "from assay import *\n" + code.format(name=name),
                 f"{about}/entry_points.txt": f"[assay.{kind}]\n{name} = seam_package:{name}\n",
                 f"{about}/METADATA": "Metadata-Version: 2.1\nName: seam_package\nVersion: 1.0\n"},
            )[place]  # fmt: skip
            more = {"imports": ["own"]} if place == 1 else {}
            outcome: Outcome = Refused([f"named '{name}'"]) if place == 0 else number
            yield Seam(title, way.title, outcome, Names(["t"]), {"graph_config.yaml": graph(**keys(name), **more), **files}, name="t", of="graph",
                       row=row.format(name=name), options={"plugins": ["elsewhere/plugged.py"]} if place == 2 else {})  # fmt: skip
    dotted: Sequence[tuple[str, float, str, str, Mapping[str, Any]]] = (
        ("a lambda of a graph", 0.875, SAYS_Y, "exact_match,none", {"change": {"node_type": "lambda", "lambda": "own.seam_own", "output_keys": "said"}, "edges": edges}),
        ("a post-processor of a graph", 1.0, REPORT, "accuracy,none", {"graph_post_process": [{"processor": "own.seam_own"}, {**collated, "params": {
            "use_previous_output": True, "aggregator_metrics_map": [{"name": "accuracy", "unit_metrics_results": ["exact_match_result"]}]}}]}),
    )  # fmt: skip
    for title, number, code, row, changes in dotted:
        own = "from assay import *\n" + code.format(name=NAME)
        yield Seam(title, "a dotted name beside it", number, Names(["t"]), {"graph_config.yaml": graph(**changes), "own.py": own}, name="t",
                   of="graph", row=row)  # fmt: skip
        yield Seam(title, "a dotted name, in a group", number, Names(["top"]), {"graph_config.yaml": graph(**changes), "own.py": own,
                   "top.yaml": "group: top\ntask: [t]\n"}, name="t", of="graph", row=row)  # fmt: skip
        yield Seam(title, "a dotted name that is not there", Refused(["graph_config.yaml:", "seam_own"]), Names(["t"]),
                   {"graph_config.yaml": graph(**changes), "own.py": "x = 1\n"}, name="t", of="graph")  # fmt: skip


MODEL = "from assay import *\ndef {name}(*, word: str = 'y'):\n    return Scripted(generate=lambda *_: word, identity='says ' + word)\n"


def of_models() -> Iterator[Seam]:
    """A model that says `y`: 7 of the 8 answers of b are right."""
    about = "site/seam_package-1.0.dist-info"
    files = (
        {"elsewhere/plugged.py": MODEL.replace("def ", "import assay\n@assay.model('{name}')\ndef ")},
        {"site/seam_package.py": MODEL, f"{about}/entry_points.txt": "[assay.models]\n{name} = seam_package:{name}\n",
         f"{about}/METADATA": "Metadata-Version: 2.1\nName: seam_package\nVersion: 1.0\n"},
        {"own.py": MODEL.replace("def ", "import assay\n@assay.model('{name}')\ndef ")},
    )  # fmt: skip
    outcomes = (0.875, 0.875, Refused(["no model named"]))
    for place, way in enumerate(
        ("a name, with --plugin", "a name of an installed package", "a name that a file beside the task registers")
    ):
        name = f"{NAME}_model_{place}"
        written = {file: text.replace("{name}", name) for file, text in files[place].items()}
        yield Seam("a model", way, outcomes[place], Names(["b"]), written, name="b", of="task", model=lambda _, name=name: name,
                   options={"plugins": ["elsewhere/plugged.py"]} if place == 0 else {},
                   others={"process_instances": "no model is asked", "validate": "no model is asked"})  # fmt: skip


def of_formats() -> Iterator[Seam]:
    """A format whose prompts have the word to which the model says `y`."""
    keys = {"output_type": "generate_until", "choice_labels": None, "question_prefix": "seam "}
    task = {**Extension("", 0.0, "", {}).plain, "doc_to_choice": ["x", "y"], "metric_list": [{"metric": "exact_match"}]}
    code = f"import assay\nown = assay.FormatConfig(**{keys!r})\n"
    about = "site/seam_package-1.0.dist-info"
    ways: Sequence[tuple[str, Callable[[str], Mapping[str, str]], Outcome]] = (
        ("in `formats` of the task", lambda name: {"task.yaml": yaml({**task, "formats": {name: {"type": "cloze", **keys}}})}, 0.875),
        ("in a file of its own", lambda name: {"task.yaml": yaml(task), "own.yaml": yaml({"format": name, **keys})}, 0.875),
        ("a name, with --plugin", lambda name: {"task.yaml": yaml(task), "elsewhere/plugged.py": f"{code}assay.format({name!r})(own)\n"}, 0.875),
        ("a name of an installed package", lambda name: {"task.yaml": yaml(task), "site/seam_package.py": code,
         f"{about}/entry_points.txt": f"[assay.formats]\n{name} = seam_package:own\n",
         f"{about}/METADATA": "Metadata-Version: 2.1\nName: seam_package\nVersion: 1.0\n"}, 0.875),
        ("a name that nothing has", lambda name: {"task.yaml": yaml(task)}, Refused(["format"])),
    )  # fmt: skip
    for place, (way, files, outcome) in enumerate(ways):
        name = f"{NAME}_format_{place}"
        more: dict[str, Any] = {"options": {"plugins": ["elsewhere/plugged.py"]} if place == 2 else {}, "of": "task",
                                "others": {"process_instances": "instances have their question and target"}}  # fmt: skip
        for title, select, top in (
            ("", f"t@{name}", {}),
            (", in a group", "top", {"top.yaml": yaml({"group": "top", "task": [f"t@{name}"]})}),
            (
                ", over a member of a group",
                "top",
                {"top.yaml": yaml({"group": "top", "task": [{"task": f"t@{name}", "num_fewshot": 0}]})},
            ),
        ):
            yield Seam(
                "a format", way + title, outcome, Names([select]), {**files(name), **top}, name=f"t@{name}", **more
            )
