"""The tables behind the generated part of the seam matrix: what users extend, and the ways in which an extension is brought in.

An `Extension` is code as a user writes it with the keys that name it in a file, and the number by hand. A way is a function
that brings an extension into a world and returns the seam. The model says `x`: of the 8 documents of task b, 1 is right.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import dedent
from typing import Any, Literal

import assay
from assay import GroupConfig, StandardGroup, Task
from seam_world import TASK, Names, Refused, Seam, World

NAME = "seam_own"
"""What every extension is called, in Python and in files."""
USE, HELPER = f"<{NAME}>", "<helper>"
"""The value of a key that names the extension: its name, `!function own.seam_own`, or the object; and other code beside it."""


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
    impossible: Mapping[str, Refused | str | float] = field(default_factory=dict)
    """By way or consumer, another outcome than the number."""

    @property
    def helper(self) -> str:
        """The file of the user's code."""
        return "import assay\nfrom assay import *\n" + dedent(self.code)

    @property
    def registering(self) -> str:
        """The same, with the decorator of its kind."""
        decorator = f"@assay.{str(self.kind).removesuffix('s')}({NAME!r}{self.decorator})"
        return re.sub(rf"^(?=(def|class) {self.plugin}\b)", f"{decorator}\n", self.helper, flags=re.MULTILINE)

    @property
    def task(self) -> dict[str, Any]:
        """The task that it changes, as a mapping."""
        lines = [line.partition(": ") for line in TASK.format(name="b").splitlines()]
        plain = {key: value for key, _, value in lines if key not in ("dataset_kwargs", "metric_list")}
        plain |= {"dataset_kwargs": {"data_files": {"test": "b.jsonl"}}, "metric_list": [{"metric": "exact_match"}]}
        return {key: value for key, value in {**plain, **self.base}.items() if value is not None}


FUNCTION = f"!function own.{NAME}"


def yaml(keys: Mapping[str, Any], use: str = FUNCTION) -> str:
    """A YAML file of keys."""
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
    return text.replace(json.dumps(USE), use).replace(json.dumps(HELPER), "!function own.helper")


def with_objects(extension: Extension) -> dict[str, Any]:
    """The keys with the objects themselves."""
    names: dict[str, Any] = {"__name__": "own"}
    exec(compile(extension.helper, "own.py", "exec"), names)

    def replaced(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: replaced(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [replaced(inner) for inner in value]
        return names[value.strip("<>")] if value in (USE, HELPER) else value

    keys: dict[str, Any] = replaced(extension.keys)
    return keys


# --- ways in ---------------------------------------------------------------------------------------------------------

Way = Callable[[Extension], Seam | None]
OWNER = {"task": "t", "group": "g"}


def seam(extension: Extension, way: str, files: Mapping[str, str], select: Any = None, **more: Any) -> Seam:
    name = more.pop("name", OWNER[extension.of])
    return Seam(extension.title, way, extension.number, select or Names([name]), files, name=name, row=extension.row,
                of=extension.of, **more)  # fmt: skip


def _file(extension: Extension, use: str = FUNCTION) -> dict[str, str]:
    """The file of the task or group that names the extension."""
    if extension.of == "group":
        return {"g.yaml": yaml({"group": "g", "task": ["a", "b"], **extension.keys}, use)}
    return {"t.yaml": yaml({**extension.task, "task": "t", **extension.keys}, use)}


def by_function(extension: Extension) -> Seam:
    return seam(extension, "!function in its file", {**_file(extension), "own.py": extension.helper})


def from_an_include(extension: Extension) -> Seam:
    used = yaml(extension.keys)
    base = {"group": "g", "task": ["a", "b"]} if extension.of == "group" else {**extension.task, "task": "t"}
    file = yaml({key: value for key, value in base.items() if key not in extension.keys})
    files = {f"{OWNER[extension.of]}.yaml": f"{file}include: shared/base_yaml\n", "shared/base_yaml": used,
             "shared/own.py": extension.helper}  # fmt: skip
    return seam(extension, "!function in a file that it includes", files)


def beside(extension: Extension) -> Seam | None:
    files = {**_file(extension, NAME), "own.py": extension.registering if extension.kind else extension.helper}
    return seam(extension, "a name, registered beside its file", files)


def as_plugin(extension: Extension) -> Seam | None:
    if extension.kind is None:
        return None
    files = {**_file(extension, NAME), "elsewhere/plugged.py": extension.registering}
    return seam(extension, "a name, with --plugin", files, options={"plugins": ["elsewhere/plugged.py"]})


def as_package(extension: Extension) -> Seam | None:
    if extension.kind is None:
        return None
    point = f"[assay.{extension.kind}]\n{NAME} = seam_package:{extension.plugin}\n"
    decorated = extension.registering if extension.decorator else extension.helper  # what an entry point cannot say
    files = {
        **_file(extension, NAME),
        "site/seam_package.py": decorated,
        "site/seam_package-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: seam_package\nVersion: 1.0\n",
        "site/seam_package-1.0.dist-info/entry_points.txt": point,
    }
    return seam(extension, "a name, of an installed package", files)


def inline(extension: Extension) -> Seam:
    if extension.of == "group":
        inner = {"group": "g", "task": ["a", "b"], **extension.keys}
        files = {"mine/top.yaml": yaml({"group": "top", "task": [inner]})}
        name = "top::g"
    else:
        inner = {**extension.task, "task": "t", "dataset_kwargs": {"data_files": {"test": "../b.jsonl"}}}
        files = {"mine/top.yaml": yaml({"group": "top", "task": [{**inner, **extension.keys}]})}
        name = "top::t"
    return seam(extension, "inline in a group", {**files, "mine/own.py": extension.helper}, Names(["top"]), name=name)


def over_a_member(extension: Extension) -> Seam:
    member = {extension.of: OWNER[extension.of], **extension.keys}
    files = {**_plain(extension), "mine/top.yaml": yaml({"group": "top", "task": [member]}),
             "mine/own.py": extension.helper}  # fmt: skip
    return seam(extension, "over a member of a group", files, Names(["top"]))


def over_a_member_by_name(extension: Extension) -> Seam | None:
    if extension.kind is None:
        return None
    member = {extension.of: OWNER[extension.of], **extension.keys}
    files = {**_plain(extension), "mine/top.yaml": yaml({"group": "top", "task": [member]}, NAME),
             "mine/own.py": extension.registering}  # fmt: skip
    return seam(extension, "over a member of a group, a name registered beside it", files, Names(["top"]))


def as_default(extension: Extension) -> Seam | None:
    if extension.of == "group":
        return None  # the keys of a group are its own: over_a_member sets those of groups below
    files = {**_plain(extension), "mine/top.yaml": yaml({"group": "top", "task": ["t"], **extension.keys}),
             "mine/own.py": extension.helper}  # fmt: skip
    return seam(extension, "default of a group", files, Names(["top"]))


def in_a_mapping(extension: Extension) -> Seam:
    keys = with_objects(extension)
    spec = {extension.of: OWNER[extension.of], **keys}
    return seam(extension, "an object, over a registered name in Python", _plain(extension), lambda _: [dict(spec)])


def in_a_configuration(extension: Extension) -> Seam:
    keys = with_objects(extension)

    def select(world: World) -> list[Any]:
        if extension.of == "group":
            return [{"group": "g", "task": ["a", "b"], **keys}]
        data = {"dataset_kwargs": {"data_files": {"test": str(world.folder / "b.jsonl")}}}
        return [{**extension.task, "task": "t", **data, **keys}]

    return seam(extension, "an object, in a configuration of Python", {}, select)


def in_an_object(extension: Extension) -> Seam:
    """The seeds' objects, made in Python."""
    keys = with_objects(extension)

    def select(world: World) -> list[Any]:
        if extension.of == "group":
            group: StandardGroup[Any] = StandardGroup(GroupConfig(group="g", **keys))
            for task in world.manager.load(["a", "b"])["tasks"].values():
                group.add_child(task)
            return [group]
        data = {"dataset_kwargs": {"data_files": {"test": str(world.folder / "b.jsonl")}}}
        return [Task.from_config({**extension.task, "task": "t", **data, **keys})]

    return seam(extension, "an object, in a Task or Group made in Python", {}, select)


def _plain(extension: Extension) -> dict[str, str]:
    """The task or group without the extension."""
    if extension.of == "group":
        return {"g.yaml": yaml({"group": "g", "task": ["a", "b"]})}
    return {"t.yaml": yaml({**extension.task, "task": "t"})}


WAYS: Sequence[Way] = (
    by_function, from_an_include, beside, as_plugin, as_package, inline, over_a_member, over_a_member_by_name, as_default,
    in_a_mapping, in_a_configuration, in_an_object,
)  # fmt: skip

# --- extensions ------------------------------------------------------------------------------------------------------

SAMPLED = {
    "repeats": 2,
    "generation_kwargs": {"do_sample": True, "temperature": 1.0, "until": []},
    "filter_list": [{"name": "none", "filter": [{"function": "take_first_k", "k": 2}]}],
}
CHOICES = {
    "output_type": "multiple_choice",
    "doc_to_choice": ["x", "y"],
    "doc_to_target": "gold",
    "metric_list": [{"metric": "acc"}],
}
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
    return Extension(f"a group class with {title}", 0.25, code, {"type": USE}, of="group")


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
    Extension("a target", 0.875, f"def {NAME}(doc):\n    return 'y' if doc['gold'] == 'x' else 'x'", {"doc_to_target": USE}),
    Extension("a question", 0.875, f"def {NAME}(doc):\n    return 'seam ' + doc['q']", {"doc_to_text": USE}),
    Extension("a function of documents", 0.25, f"def {NAME}(docs):\n    return docs.select(range(4))", {"process_docs": USE}),
    Extension("an aggregator function", 0.25, f"def {NAME}(group, results):\n    return 0.25 * len(group.get_all_tasks()) / 2",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregators", of="group"),
    Extension("an aggregator class", 0.25, f"class {NAME}(Aggregator):\n    def aggregate(self, group, results):\n"
              "        return {'exact_match,none': (results['a']['exact_match,none'] * results['b']['exact_match,none']) ** 0.5}",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregators", of="group"),
    Extension("a row aggregator", 0.25, f"class {NAME}(RowAggregator):\n    def combine(self, members, weights):\n"
              "        return (float(members[0].estimate) * float(members[1].estimate)) ** 0.5",
              {"aggregate_metric_list": [{"metric": "exact_match", "aggregation": USE}]}, "aggregators", of="group"),
    Extension("a group's scorer", 0.25, f"def {NAME}(group, results):\n    return {{'own,none': 0.25}}", {"group_scorer": USE}, of="group", row="own,none"),
    group_class("_aggregator", "def __init__(self, config, parent=None):", "    super().__init__(config, parent)",
                "    self._aggregator = CustomAggregator(config, lambda group, results: {'exact_match,none': 0.25})"),
    group_class("compute_metrics", "def compute_metrics(self, task_results):", "    return {'exact_match,none': 0.25}"),
]  # fmt: skip


def matrix() -> Iterator[Seam]:
    """Every extension in every way."""
    for extension in EXTENSIONS:
        for way in WAYS:
            made = way(extension)
            if made is not None:
                yield made
