"""What a plug-in declares, and what its code returns before the first request, is checked: a slip is refused, never ignored."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import assay
from assay import RunConfig
from assay.errors import AssayError
from assay.evaluation.prepare import find_problems
from assay.tasks.validate import validate
from seam_world import world_of

MODEL = "Scripted(generate=lambda *_: 'x', identity='x')"
SHOTS = {"num_fewshot": 1, "fewshot_split": "test"}

# the plug-in, the keys that use it, and what is said of it
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a decorator without parentheses": (
        "@assay.metric\ndef {name}(references, prediction): return 1.0", {}, r"must be a text, got <function .*@assay.metric\('NAME'\)"),
    "a metric's direction": (
        "@assay.metric('{name}', higher_is_better='no')\ndef f(references, prediction): return 1.0", {}, "higher_is_better of '.*' must be"),
    "a metric's output type": (
        "@assay.metric('{name}', output_type='multiple_choise')\ndef f(result): return 1.0", {}, "output_type of '.*' must be one of"),
    "how many answers a filter keeps": (
        "@assay.filter('{name}', keeps='oen')\ndef f(): return lambda resps, doc: resps", {}, "keeps of '.*' must be one of 'one', 'k', 'all'"),
    "what a filter reads": (
        "@assay.filter('{name}', reads='txt')\ndef f(): return lambda resps, doc: resps", {}, "reads of '.*' must be one of"),
    "the base of a format": (
        "assay.format('{name}')(assay.FormatConfig(type='cloze'))", {}, "leave `type='cloze'` out"),
    "a filter that returns no function": (
        "@assay.filter('{name}')\ndef f(): return 5",
        {"filter_list": [{"name": "f", "filter": [{"function": "{name}"}]}]}, "returned 5, which cannot be called"),
    "a filter whose function yields": (
        "@assay.filter('{name}')\ndef f():\n  def step(resps, doc): yield from resps\n  return step",
        {"filter_list": [{"name": "f", "filter": [{"function": "{name}"}]}]}, "returned a function that yields.*write `return`"),
    "a filter whose function is async": (
        "@assay.filter('{name}')\ndef f():\n  async def step(resps, doc): return resps\n  return step",
        {"filter_list": [{"name": "f", "filter": [{"function": "{name}"}]}]}, "returned a function that is async"),
    "a sampler that returns no function": (
        "@assay.sampler('{name}')\ndef f(pool, seed, leaks): return 5", {**SHOTS, "fewshot_config": {"sampler": "{name}"}},
        "returned 5, which cannot be called"),
    "a sampler that returns a number": (
        "@assay.sampler('{name}')\ndef f(pool, seed, leaks): return lambda doc, number: 0",
        {**SHOTS, "fewshot_config": {"sampler": "{name}"}}, "'int' object is not iterable"),
    "a sampler that chooses too many": (
        "@assay.sampler('{name}')\ndef f(pool, seed, leaks): return lambda doc, number: range(3)",
        {**SHOTS, "fewshot_config": {"sampler": "{name}"}}, r"chose \[0, 1, 2\], and must choose 1 of the 8 examples"),
    "a scorer's aggregations": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  aggregations = {{'own': 'meann'}}\n"
        "  def score(self, reference, predictions): return 1.0", {"scorer": "{name}"}, "no aggregation of 'own' named 'meann'"),
    "a scorer's direction": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  higher_is_better = 'no'\n"
        "  def score(self, reference, predictions): return 1.0", {"scorer": "{name}"}, "higher_is_better cannot be 'no'"),
    "a scorer's filters as a text": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  needs_filters = 'none'\n"
        "  def score(self, reference, predictions): return 1.0", {"scorer": "{name}"}, r"write `needs_filters = \('none',\)`"),
    "a scorer's row": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  name = 'a,b'\n"
        "  def score(self, reference, predictions): return 1.0", {"scorer": "{name}"}, "a row cannot be named 'a,b'"),
    "a scorer's metrics as texts": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  def get_metrics(self, filter_name): return ['exact_match']",
        {"scorer": "{name}"}, "it returned 'exact_match' — return a list of `MetricConfig"),
    "a scorer's own metrics as texts": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  def default_metrics(self): return ['exact_match']",
        {"scorer": "{name}", "metric_list": None}, "default_metrics returned 'exact_match', and must return MetricConfig"),
    "a scorer's own filters, which raise": (
        "@assay.scorer('{name}')\nclass F(assay.GenerationScorer):\n  def default_filters(self): return 1 / 0",
        {"scorer": "{name}"}, "default_filters raised an error: ZeroDivisionError"),
}  # fmt: skip


@pytest.mark.parametrize("slip", REFUSED)
def test_a_slip_in_what_a_plug_in_declares_is_refused_before_the_first_request(slip: str, tmp_path: Path) -> None:
    plugin, keys, message = REFUSED[slip]
    name = f"declared_{list(REFUSED).index(slip)}"
    world = world_of(tmp_path, {"own.py": f"import assay\n{plugin.format(name=name)}\n"})
    [task] = world.manager.load(["b"])["tasks"].values()
    spec = {**dict(task.fields), **json.loads(json.dumps(keys).replace("{name}", name))}
    spec |= {"task": "t", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "b.jsonl")}}}
    with pytest.raises(AssayError, match=message):
        assay.simple_evaluate(
            world.model(), tasks=[{key: value for key, value in spec.items() if value is not None}],
            plugins=[str(tmp_path / "own.py")], **world.options,
        )  # fmt: skip
    assert not world.asked


def test_a_scorers_first_parameter_with_a_value_is_not_the_configuration(tmp_path: Path) -> None:
    """As in a dataclass, whose fields are its parameters."""
    code = """
from dataclasses import dataclass
from assay import GenerationScorer, scorer

@scorer("declared_scale")
@dataclass
class Scaled(GenerationScorer):
    scale: float = 0.75

    def score(self, reference, predictions):
        return self.scale * (self.config.output_type == "generate_until")
"""
    files = {
        "own.py": code,
        "t.yaml": "include: b.yaml\ntask: t\nscorer: declared_scale\n",
        "u.yaml": "include: b.yaml\ntask: u\nscorer: {type: declared_scale, kwargs: {scale: 0.5}}\n",
    }
    world = world_of(tmp_path, files)
    results = assay.simple_evaluate(world.model(), tasks=["t", "u"], **world.options)["results"]
    assert results["t"]["declared_scale,none"] == 0.75
    assert results["u"]["declared_scale,none"] == 0.5


FILES: dict[str, tuple[dict[str, str], str]] = {
    "an option of the reader": (
        {"t.yaml": "include: b.yaml\ntask: t\ndataset_kwargs: {data_files: {test: b.jsonl}, encodng: utf-8}\n"},
        "t.yaml:3:.*dataset_kwargs has no key 'encodng' — did you mean 'encoding'"),
    "a recipe without a class": (
        {"t.yaml": "include: b.yaml\ntask: t\nrecipe: card=x\n"}, "t.yaml:3:1: a recipe is read by a class"),
    "a metric without a right answer": (
        {"t.yaml": "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: b.jsonl}}\ntest_split: test\ndoc_to_text: q\n"
                   "metric_list: [{metric: exact_match}]\n"}, "t.yaml:6:.*'exact_match' compares with the right answer.*add `doc_to_target:`"),
    "a reduction of a scorer without scores": (
        {"t.yaml": "include: b.yaml\ntask: t\nscorer: {type: first_token, reduction: max}\n"},
        "t.yaml:3:.*has no scores of its own.*write `reduction` beside a metric"),
    "a parameter of a metric, given twice": (
        {"t.yaml": "include: b.yaml\ntask: t\nmetric_list:\n- metric: exact_match\n  ignore_case: true\n  kwargs: {ignore_case: false}\n"},
        "t.yaml:5:3: 'ignore_case' is given twice, here and in kwargs — leave one"),
    "a configuration of a reader of files": (
        {"t.yaml": "include: b.yaml\ntask: t\ndataset_name: main\n"}, "t.yaml:3:1: dataset_name has no effect: the reader 'json'"),
    "contexts for one continuation, of a generation": (
        {"t.yaml": "include: b.yaml\ntask: t\nmultiple_inputs: true\n"}, "t.yaml:3:1: multiple_inputs has no effect on generate_until"),
    "a split of examples that does not exist, without examples": (
        {"t.yaml": "include: b.yaml\ntask: t\nfewshot_split: trian\n"}, "t.yaml:3:16: there is no split 'trian' for examples; there are: test"),
    "a process_results that yields": (
        {"t.yaml": "include: b.yaml\ntask: t\nprocess_results: !function h.p\n", "h.py": "def p(doc, results): yield 'acc', 1.0\n"},
        "process_results: 'p' yields, and must return its value — write `return`"),
    "a member that a group's filter leaves out": (
        {"t.yaml": "group: t\ntask: [a, b]\naggregate_metric_list: [{metric: exact_match}]\ngroup_filter: {exclude: [c]}\n"},
        "t.yaml:4:.*no member named 'c'"),
}  # fmt: skip


@pytest.mark.parametrize(("inherited", "own"), [
    ("dataset_path", "custom_dataset: !function h.rows\n"),
    ("dataset_name", "dataset_path: json\ndataset_kwargs: {data_files: {test: b.jsonl}}\n"),
])  # fmt: skip
def test_an_inherited_key_that_has_no_effect_any_more_is_noted(inherited: str, own: str, tmp_path: Path) -> None:
    files = {
        "hub.yaml": "dataset_path: org/data\ndataset_name: main\ntest_split: test\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{gold}}'\n",
        "t.yaml": f"include: hub.yaml\ntask: t\n{own}",
        "h.py": "def rows(**_): return {'test': [{'q': 1, 'gold': 'x'}]}\n",
    }
    problems = validate(world_of(tmp_path, files).manager)
    assert [problem.serious for problem in problems if f"{inherited} has no effect" in problem.what] == [False]


@pytest.mark.parametrize("slip", FILES)
def test_a_key_of_a_file_that_would_have_no_effect_is_refused(slip: str, tmp_path: Path) -> None:
    files, message = FILES[slip]
    world = world_of(tmp_path, files)
    with pytest.raises(AssayError, match=message):
        assay.simple_evaluate(world.model(), tasks=["t"], **world.options)
    assert not world.asked
    found = find_problems(world.manager, RunConfig(), ["t"], load=True)  # what `assay validate --load` says
    assert any(re.search(message, str(problem), re.DOTALL) for problem in found if problem.serious), found


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("dataset_path: jsno\n", "t.yaml:3:.*no reader named 'jsno'.*did you mean 'json'"),
        ("dataset_kwargs: {data_file: none.jsonl}\n", "t.yaml:3:.*no data file 'none.jsonl'"),
    ],
)
def test_validate_sees_where_data_is_not(lines: str, message: str, tmp_path: Path) -> None:
    world = world_of(tmp_path, {"t.yaml": f"include: b.yaml\ntask: t\n{lines}"})
    [problem] = [
        problem for problem in find_problems(world.manager, RunConfig(), ["t"]) if re.search(message, str(problem))
    ]
    assert problem.serious
    with pytest.raises(AssayError):
        assay.simple_evaluate(world.model(), tasks=["t"], **world.options)
    assert not world.asked


class NoModel:
    name, identity, can = "none", "none", assay.Can()

    def anwser(self, requests: Any) -> Any:
        return []


class Overrides(assay.Scripted):
    def generate(self, prompt: str, params: Any, repeat: int) -> str:
        return "y"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NoModel(), "has no max_length, chat_template, count_tokens, window, answer — define them"),
        (Overrides(generate=lambda *_: "x"), r"generate has no effect — give the function to `super\(\).__init__"),
    ],
)
def test_a_model_object_that_lacks_something_is_refused(model: Any, message: str, tmp_path: Path) -> None:
    world = world_of(tmp_path, {})
    with pytest.raises(AssayError, match=message):
        assay.simple_evaluate(model, tasks=["b"], **world.options)


def test_arguments_beside_a_model_object_are_seen_by_tasks_alone_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(tmp_path, {})
    asked: list[str] = []
    model = assay.Scripted(generate=lambda prompt, *_: asked.append(prompt) or "x")
    assay.simple_evaluate(model, model_args="word=y", tasks=["b"], **world.options)
    assert asked
    assert "model_args: the model is an object, so that only tasks see them" in caplog.messages


YIELDS = {
    "an aggregation": ("metric_list: [{metric: exact_match, aggregation: !function h.f}]\n", "def f(values): yield 1.0\n"),
    "a reduction": ("repeats: 2\nmetric_list: [{metric: exact_match, reduction: !function h.f}]\n", "def f(scores): yield 1.0\n"),
    "a registered aggregation": (
        "metric_list: [{metric: exact_match, aggregation: h_f}]\nprocess_docs: !function h.docs\n",
        "import assay\ndef docs(rows): return rows\n@assay.aggregation('h_f')\ndef f(values): yield 1.0\n"),
    "the score of a scorer": (
        "scorer: !function h.S\n", "from assay import GenerationScorer\nclass S(GenerationScorer):\n    def score(self, reference, predictions): yield 1.0\n"),
    "the metrics of a task": (
        "class: !function h.T\n", "from assay import GenerateTask\nclass T(GenerateTask):\n    def _compute_metric(self, result, metric): yield 1.0\n"),
}  # fmt: skip


@pytest.mark.parametrize("kind", YIELDS)
def test_what_must_return_a_number_and_yields_is_refused_before_the_first_request(kind: str, tmp_path: Path) -> None:
    keys, helper = YIELDS[kind]
    world = world_of(tmp_path, {"t.yaml": f"include: b.yaml\ntask: t\n{keys}", "h.py": helper})
    with pytest.raises(AssayError, match="yields, and must return its value"):
        assay.simple_evaluate(world.model(), tasks=["t"], **world.options)
    assert not world.asked
