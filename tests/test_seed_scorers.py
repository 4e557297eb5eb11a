"""The Python of the seeds 001 and 004, word for word after one prelude: by itself, and as helper code of a task that is run."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import assay
from assay import GenerateTask, GenerationScorer, Instance, Scorer, TaskManager
from assay.errors import ConfigError
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.records import Failed
from assay.scoring.scorer_models import OnlyInRun
from seed_blocks import classes, copied
from small_runs import SAMPLED, choose, generate, run, says, write_task

PRELUDE = copied("prelude.py")
BASES = {
    "assay's": "",
    "the seed's": "\n\n".join(text for name, text in classes("001/02.py").items() if name != "Scorer"),
}
"""The classes that the examples are derived from: ours, or the bodies of the seed over our Scorer."""
TWO = {"answers": ["a", "x"], "golds": ["a", "b"]}


def loaded(*parts: str) -> dict[str, Any]:
    """The names that blocks define, after the prelude."""
    names: dict[str, Any] = {"__name__": "seed"}
    exec(compile("\n\n".join([PRELUDE, *parts]), "seed.py", "exec", dont_inherit=True), names)
    return names


def helper(folder: Path, *parts: str) -> None:
    (folder / "helpers.py").write_text("\n\n".join([PRELUDE, *parts]), encoding="utf-8")


def rows(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results["results"]["t"].items() if "," in key and "_stderr" not in key}


def config(**keys: Any) -> Any:
    return assay.Task.from_config({"task": "t", **keys}).config


def instance(answer: Any, target: Any, doc_id: int = 0, **filtered: Any) -> Instance:
    return Instance({"n": doc_id}, doc_id, ("question",), target, resps=[answer], filtered_resps=filtered)


def right_is_worth_more(prompt: str, params: Any, repeat: int) -> str:
    said, _, right = prompt.removesuffix(" is right").partition(", where ")
    return "1" if said == right else "0.25"


def judge(asked: list[str] | None = None) -> Scripted:
    def say(prompt: str, params: Any, repeat: int) -> str:
        if asked is not None:
            asked.append(prompt)
        return right_is_worth_more(prompt, params, repeat)

    return Scripted(generate=say, identity="judge")


REWARD = Scripted(loglikelihood=lambda context, answer: (10.0 * len(answer) + len(context), False), identity="reward")
JUDGED = "scorer: {type: !function helpers.LLMJudgeScorer, kwargs: {judge_model: 'openai-chat,model=x'}}\n"


# --- 001: every class as helper code of a run ------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
def test_the_seeds_generation_scorer_is_run(base: str, tmp_path: Path) -> None:
    helper(tmp_path, BASES[base])
    results = generate(tmp_path, **TWO, yaml="scorer: !function helpers.GenerationScorer\n")
    assert rows(results) == {"exact_match,none": 0.5}


def test_the_seeds_scorers_over_the_seeds_own_base_class_are_run(tmp_path: Path) -> None:
    """The whole block, with its Scorer instead of assay.Scorer."""
    helper(tmp_path, copied("001/02.py"))
    assert rows(generate(tmp_path, **TWO, yaml="scorer: !function helpers.GenerationScorer\n")) == {
        "exact_match,none": 0.5
    }


def test_the_seeds_loglikelihood_scorer_is_run(tmp_path: Path) -> None:
    helper(tmp_path, BASES["the seed's"])
    yaml = "scorer: !function helpers.LoglikelihoodScorer\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n"
    results = choose(tmp_path, [[-3.0, -2.0], [-1.0, -2.0]], [1, 1], ["long words", "x"], yaml)
    assert rows(results) == {"acc,none": 0.5, "acc_norm,none": 0.0}  # -3/10 > -2/1 and -1/10 > -2/1: the first, twice


def test_the_seeds_process_results_scorer_is_run(tmp_path: Path) -> None:
    helper(tmp_path, BASES["the seed's"], "def own(doc, results):\n    return {'said_a': float(results[0] == 'a')}\n")
    kwargs = "kwargs: {process_results_fn: !function helpers.own}"
    yaml = f"scorer: {{type: !function helpers.ProcessResultsScorer, {kwargs}}}\nmetric_list: []\n"
    assert rows(generate(tmp_path, **TWO, yaml=yaml)) == {"said_a,none": 0.5}


@pytest.mark.parametrize("base", BASES)
def test_the_seeds_beam_search_scorer_is_run(base: str, tmp_path: Path) -> None:
    helper(tmp_path, BASES[base], copied("001/05.py"))
    keep = "filter_list: [{name: none, filter: [{function: take_first_k, k: 3}]}]\nrepeats: 3\n"
    yaml = SAMPLED + keep + "scorer: !function helpers.BeamSearchScorer\n"
    results = generate(tmp_path, [["a", "a", "b"], ["c", "c", "c"]], ["a", "x"], yaml)
    assert rows(results) == {
        "exact_match,none": pytest.approx((2 / 3 + 0) / 2),
        "diversity,none": pytest.approx((2 / 3 + 1 / 3) / 2),
        "n_unique,none": pytest.approx(1.5),
    }


@pytest.mark.parametrize("base", BASES)
def test_the_seeds_judge_is_run_and_its_plain_calls_go_through_the_engine(base: str, tmp_path: Path) -> None:
    helper(tmp_path, BASES[base], copied("001/07.py"))
    asked: list[str] = []
    options = {"model_role": {"judge": judge(asked)}, "output_path": str(tmp_path / "out")}
    results = generate(tmp_path, **TWO, yaml=JUDGED, **options)
    assert rows(results) == {"exact_match,none": 0.5, "llm_judge,none": (1 + 0.25) / 2}
    assert sorted(asked) == ["a, where a is right", "x, where b is right"]
    journal = (tmp_path / "out/responses.jsonl").read_text(encoding="utf-8")
    assert all(f'"{reply}"' in journal for reply in ("a", "x", "1", "0.25"))
    again = generate(tmp_path, **TWO, yaml=JUDGED, **options)
    assert rows(again) == rows(results)
    assert len(asked) == 2, "a resumed run finds its verdicts in the journal"


@pytest.mark.parametrize("base", BASES)
def test_the_seeds_judge_scores_every_repeat(base: str, tmp_path: Path) -> None:
    helper(tmp_path, BASES[base], copied("001/07.py"))
    keep = "filter_list: [{name: none, filter: [{function: take_first_k, k: 3}]}]\nrepeats: 3\n"
    results = generate(
        tmp_path, [["a", "a", "b"], ["c", "c", "c"]], ["a", "x"], SAMPLED + keep + JUDGED, model_role={"judge": judge()}
    )
    assert rows(results)["llm_judge,none"] == pytest.approx((2.25 / 3 + 0.25) / 2)


@pytest.mark.parametrize("base", BASES)
def test_the_seeds_reward_model_scorer_is_run(base: str, tmp_path: Path) -> None:
    """The prompts are "0" and "1", the answers "a" and "xyz": 11 and 31."""
    helper(tmp_path, BASES[base], copied("001/08.py"))
    yaml = "scorer: {type: !function helpers.RewardModelScorer, kwargs: {reward_model_path: folder}}\n"
    results = generate(tmp_path, ["a", "xyz"], ["a", "b"], yaml, model_role={"reward": REWARD})
    assert rows(results) == {"exact_match,none": 0.5, "reward,none": 21.0}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("[generation, !function helpers.GenerationScorer]", 0.5),
        ("[!function helpers.GenerationScorer, !function helpers.Length]", (1 * 1 + 3 * 1 + 0 + 3 * 3) / 4 / 2),
        ("[!function helpers.Length, {type: !function helpers.LLMJudgeScorer, kwargs: {judge_model: x}}]", (1 + 3 + 3) / 8),
    ],
)  # fmt: skip
def test_the_seeds_ensemble_is_run(base: str, members: str, expected: float, tmp_path: Path) -> None:
    """Weights 1 and 3; its members are named as those of `ensemble`. The last row counts lengths and exact_match."""
    own = "class Length(GenerationScorer):\n    def _compute_metrics(self, result, metrics):\n        return {'n': [float(len(each)) for each in result.results]}\n"
    helper(tmp_path, BASES[base], copied("001/06.py"), copied("001/07.py"), own)
    yaml = f"scorer: {{type: !function helpers.EnsembleScorer, kwargs: {{scorers: {members}, weights: [1, 3]}}}}\n"
    results = generate(tmp_path, ["a", "xyz"], ["a", "b"], yaml, model_role={"judge": judge()})
    assert rows(results) == {"ensemble,none": pytest.approx(expected)}


def test_the_seeds_cross_filter_scorer_is_run(tmp_path: Path) -> None:
    helper(tmp_path, copied("001/09.py"))
    yaml = """
        scorer: !function helpers.CrossFilterScorer
        metric_list: []
        filter_list:
          - {name: plain, filter: [{function: take_first}]}
          - {name: loud, filter: [{function: uppercase}, {function: take_first}]}
          - {name: soft, filter: [{function: lowercase}, {function: take_first}]}
        """
    results = rows(generate(tmp_path, ["a", "A"], ["a", "b"], yaml))
    assert results["filter_agreement,plain"] == pytest.approx(1 / 3)
    assert results["filter_diversity,loud"] == pytest.approx(2 / 3)


def test_the_seeds_custom_scorer_is_registered_and_found_by_its_name(tmp_path: Path) -> None:
    """The block registers it; the one name that it leaves to the reader is a method."""
    own = "\n\nMyCustomScorer._my_custom_metric = lambda self, result: float(len(result.results[0]))\n"
    (tmp_path / "helpers.py").write_text(copied("001/11.py") + own, encoding="utf-8")
    try:
        results = generate(tmp_path, ["abc", "x"], ["abc", "y"], "scorer: my_custom\n")
    finally:
        assay.SCORER_REGISTRY.pop("my_custom", None)
    assert rows(results) == {"exact_match,none": 0.5, "custom_metric,none": 2.0}


# --- 001: by itself --------------------------------------------------------------------------------------------------

BY_FILTER = config(
    metric_list=[{"metric": "exact_match", "ignore_case": True}],
    filter_list=[
        {"name": "a", "filter": [{"function": "take_first"}]},
        {"name": "b", "filter": [{"function": "take_first"}], "metric_list": [{"metric": "token_f1"}]},
        {"name": "c", "filter": [{"function": "take_first"}], "metric_list": []},
    ],
)


@pytest.mark.parametrize("base", ["ours", "the seed's over ours", "the seed's"])
@pytest.mark.parametrize(("of", "expected"), [("a", {"exact_match": 1.0}), ("b", {"token_f1": 0.5}), ("c", {"exact_match": 1.0})])  # fmt: skip
def test_a_generation_scorer_by_itself_takes_its_metrics_from_the_configuration(
    base: str, of: str, expected: dict[str, float]
) -> None:
    """token_f1 of "x y z" and "x": precision 1/3, recall 1."""
    block = {"the seed's over ours": BASES["the seed's"], "the seed's": copied("001/02.py")}.get(base, "")
    kind = loaded(block)["GenerationScorer"]
    answer = "x y z" if of == "b" else "X"
    scores = kind(task_config=BY_FILTER).score_instances([instance(answer, "x", a="X", b="x y z", c="X")], of).scores
    assert {name: value if isinstance(value, float) else value[0] for name, value in scores.items()} == expected
    assert [metric.name for metric in kind(BY_FILTER).get_metrics(of)] == list(expected)


def test_the_seeds_factory_makes_scorers_by_itself() -> None:
    names = loaded(copied("001/02.py"))
    factory = names["ScorerFactory"]
    [items] = [[instance("a", "a", none="a")]]
    assert factory.create_scorer(config()).score_instances(items, "none").scores == {}  # no metrics are configured
    named = config(metric_list=[{"metric": "exact_match"}])
    assert factory.create_scorer(named).score_instances(items, "none").scores == {"exact_match": [1.0]}
    pairs = [
        Instance({}, 0, ("", text), 1, n, [(ll, False)], {"none": (ll, False)}, "t", "loglikelihood")
        for n, (text, ll) in enumerate(((" a", -1.0), (" b", -2.0)))
    ]
    choice = config(output_type="multiple_choice", metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}])
    assert factory.create_scorer(choice).score_instances(pairs, "none").scores == {"acc": 0.0, "acc_norm": 0.0}
    with pytest.raises(NotImplementedError):
        factory.create_scorer(config(output_type="loglikelihood_rolling"))


@pytest.mark.parametrize("kind", ["GenerateTask", "MultipleChoiceTask"])
def test_the_seeds_task_with_a_scorer_processes_instances(kind: str) -> None:
    """Its loop, over what it leaves to the rest of the class: sorting instances."""
    names = loaded(copied("001/03.py"))
    whole = type("Whole", (names[kind], getattr(assay, kind)), {})
    if kind == "GenerateTask":
        task = whole(BY_FILTER)
        items = [instance("x", "x", n, a="x", b="x", c="y") for n in range(2)]
        assert task.process_instances(items) == {
            ("exact_match", "a"): [[1.0], [1.0]], ("token_f1", "b"): [[1.0], [1.0]], ("exact_match", "c"): [[0.0], [0.0]],
        }  # fmt: skip
    else:
        task = whole(config(output_type="multiple_choice", metric_list=[{"metric": "acc"}]))
        items = [
            Instance({}, 0, ("", each), 1, n, [(-1.0 - n, False)], {"none": (-1.0 - n, False)}, "t", "loglikelihood")
            for n, each in enumerate((" a", " b"))
        ]
        assert task.process_instances(items) == {("acc", "none"): [0.0]}
    assert task.process_instances([]) == {}


def test_a_scorer_is_abstract_and_generic_and_one_method_is_enough() -> None:
    with pytest.raises(TypeError, match="score_instances"):
        Scorer(None)  # type: ignore[abstract]

    class Own(Scorer[assay.GenResult]):
        def score_instances(self, instances: Sequence[Instance], filter_name: str) -> Any:
            return {"n": float(len(instances))}

    assert Own().score_instances([instance("a", "a")], "none") == {"n": 1.0}
    assert Own.name == "Own"


class Ranks(GenerationScorer):
    def score_batch(self, results: Sequence[Any]) -> list[float]:
        return [float(len(results)) for _ in results]


class Busy(GenerationScorer):
    parallel = True

    def score(self, reference: Any, predictions: list[Any]) -> float:
        return float(len(predictions[0]))


def test_scorers_by_themselves_score_or_say_what_does() -> None:
    items = [instance("ab", "ab", a="ab")]
    assert Busy(BY_FILTER).score_instances(items, "a").scores == {"exact_match": [1.0], "Busy": [2.0]}
    both = assay.EnsembleScorer([GenerationScorer(BY_FILTER), Busy.__mro__[1](BY_FILTER)])
    assert both.score_instances(items, "a")["ensemble"] == 1.0
    with pytest.raises(OnlyInRun, match=r"'Ranks' scores all documents at once — give score_batch"):
        Ranks(BY_FILTER).score_instances(items, "a")
    for scorer in (assay.LLMJudgeScorer(BY_FILTER, "dummy"), assay.RewardModelScorer(BY_FILTER, "folder"),
                   assay.EnsembleScorer([GenerationScorer(BY_FILTER), assay.LLMJudgeScorer(BY_FILTER)])):  # fmt: skip
        with pytest.raises(OnlyInRun, match=r"asks other models, which only a run does — run its task"):
            scorer.score_instances(items, "a")
    with pytest.raises(TypeError, match="GenerationScorer has no metrics: hand it the configuration"):
        GenerationScorer().score_instances(items, "a")
    names = loaded(copied("001/07.py"))
    with pytest.raises(OnlyInRun, match="the model of the role 'judge' asks another model"):
        names["LLMJudgeScorer"](BY_FILTER, "dummy").score_instances(items, "a")


def test_tasks_by_themselves_score_batches_and_refuse_to_ask() -> None:
    def task(scorer: Any) -> GenerateTask:
        return GenerateTask({"task": "t", "scorer": scorer, "metric_list": [{"metric": "exact_match"}]})

    items = [instance("a", "a", n) for n in range(3)]
    batch = task({"type": Ranks}).process_instances(items)
    assert batch == {("exact_match", "none"): [1.0] * 3, ("Ranks", "none"): [3.0] * 3}
    assert task({"type": Busy}).process_instances(items)["Busy", "none"] == [1.0] * 3
    with pytest.raises(OnlyInRun, match="task 't' asks other models about answers"):
        task("llm_judge").process_instances(items)


def test_a_metric_of_python_code_has_its_function() -> None:
    def halves(references: list[str], predictions: list[str], scale: float = 1.0) -> dict[str, float]:
        return {"half": 0.5 * scale, "whole": 1.0 * scale}

    items = assay.MetricConfig(name="halves", fn=halves, kwargs={"scale": 2.0})
    assert items.fn is halves
    named = assay.TaskConfig(task="t", metric_list=(items,))
    assert GenerationScorer(named).score_instances([instance("a", "a")], "none").scores == {
        "half": [1.0],
        "whole": [2.0],
    }
    by_name = assay.MetricConfig(name="exact_match", kwargs={"ignore_case": True}).fn
    assert by_name is not None
    assert (by_name(references=["A"], predictions=["a"]), by_name(["A", "b"])) == (1.0, 0.0)
    with pytest.raises(ConfigError, match="did you mean 'exact_match'"):
        assay.MetricConfig(name="exact_mach").fn(references=["a"], predictions=["a"])  # type: ignore[misc]


# --- 001: what users do to it ----------------------------------------------------------------------------------------

OWN = {
    "its config under any name": ("def __init__(self, cfg, unit=1.0):\n        super().__init__(cfg)\n        self.unit = unit", "{unit: 2.0}"),
    "a parameter of the file first": ("def __init__(self, unit):\n        self.unit = unit", "{unit: 2.0}"),
    "no call of super": ("def __init__(self, task_config, unit):\n        self.unit = unit", "{unit: 2.0}"),
}  # fmt: skip


@pytest.mark.parametrize("how", OWN)
def test_the_configuration_fills_the_first_parameter_unless_the_file_does(how: str, tmp_path: Path) -> None:
    written, kwargs = OWN[how]
    body = f"class Own(GenerationScorer):\n    {written}\n\n    def score(self, reference, predictions):\n        return self.unit\n"
    helper(tmp_path, body)
    results = generate(tmp_path, **TWO, yaml=f"scorer: {{type: !function helpers.Own, kwargs: {kwargs}}}\n")
    assert rows(results) == {"Own,none": 2.0}


def test_rows_of_scorers_without_a_name_have_that_of_their_class(tmp_path: Path) -> None:
    body = "    def score(self, reference, predictions):\n        return 1.0\n"
    helper(tmp_path, f"class Polite(GenerationScorer):\n{body}", f"class Brief(GenerationScorer):\n{body}")
    yaml = """
        filter_list:
          - {name: a, filter: [{function: take_first}], scorer: !function helpers.Polite}
          - {name: b, filter: [{function: take_first}], scorer: !function helpers.Brief}
        """
    assert rows(generate(tmp_path, **TWO, yaml=yaml)) == {"Polite,a": 1.0, "Brief,b": 1.0}


@pytest.mark.parametrize("written", ["scorer: letter\n", "scorer: {type: letter}\n",
                                     "filter_list: [{name: none, filter: [{function: take_first}], scorer: letter}]\n",
                                     "scorer: {type: ensemble, kwargs: {scorers: [letter]}}\n"])  # fmt: skip
@pytest.mark.parametrize("decorator", ["register_scorer", "assay.scorer"])
def test_a_scorer_is_found_by_its_name_in_a_file_beside_the_task(written: str, decorator: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("register_scorer('letter'\n")
    (tmp_path / "own.py").write_text(
        f"import assay\nfrom assay import GenerationScorer, register_scorer\n\n\n@{decorator}('letter')\nclass Letter(GenerationScorer):\n"
        "    def score(self, reference, predictions):\n        return 0.75\n"
    )
    try:
        results = generate(tmp_path, **TWO, yaml=written)
    finally:
        assay.SCORER_REGISTRY.pop("letter", None)
    assert rows(results)["letter,none"] == 0.75


def test_a_scorer_that_no_file_has_is_refused_with_the_way_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no scorer named 'lettr'.*`!function file\.Class`"):
        generate(tmp_path, **TWO, yaml="scorer: lettr\n")


def test_an_ensemble_of_the_users_makes_its_members_itself(tmp_path: Path) -> None:
    own = """
class Length(assay.GenerationScorer):
    def score(self, reference, predictions):
        return float(len(predictions[0]))


class Own(assay.EnsembleScorer):
    def __init__(self, task_config, weight=1.0):
        super().__init__([assay.GenerationScorer(task_config), Length(task_config)], [1.0, weight], config=task_config)
"""
    helper(tmp_path, own)
    yaml = "scorer: {type: !function helpers.Own, kwargs: {weight: 3}}\n"
    results = generate(tmp_path, ["a", "xyz"], ["a", "b"], yaml)
    assert rows(results)["Own,none"] == pytest.approx((1 + 3 * 1 + 0 + 3 * 3) / 4 / 2)


ASKS_WRONGLY = {
    "makes a model when it scores": "    def score(self, reference, predictions):\n        return get_model('x').evaluate('?')\n",
    "asks other models and scores all documents at once": "    def __init__(self, task_config):\n        self.judge = get_model('x')\n\n"
    "    def score_batch(self, results):\n        return [self.judge.evaluate('?') for _ in results]\n",
}  # fmt: skip


@pytest.mark.parametrize("what", ASKS_WRONGLY)
def test_models_that_cannot_be_asked_are_refused_before_the_run(what: str, tmp_path: Path) -> None:
    helper(tmp_path, f"class Own(GenerationScorer):\n{ASKS_WRONGLY[what]}")
    write_task(
        tmp_path, [{"q": "0", "gold": "a"}], "doc_to_text: q\ndoc_to_target: gold\nscorer: !function helpers.Own\n"
    )
    asked: list[str] = []
    model = Scripted(generate=lambda prompt, params, repeat: asked.append(prompt) or "x")  # type: ignore[func-returns-value]
    with pytest.raises(ConfigError, match=what):
        run(tmp_path, model)
    assert asked == []


NOT_CALLABLE = {
    "score must take 2 arguments — write `def score(self, reference, predictions)`": "def score(self, prediction):\n        return 1.0",
    "score is async": "async def score(self, reference, predictions):\n        return 1.0",
    "score_batch must take 1 argument ": "def score_batch(self, results, more):\n        return []",
    "score_instances must take 2 arguments": "def score_instances(self, instances):\n        return {}",
    "_compute_metrics must take 2 arguments": "def _compute_metrics(self, result):\n        return {}",
    "get_metrics must take 1 argument": "def get_metrics(self):\n        return []",
    "holds a model, whose answers": "def __init__(self, config):\n        self.judge = assay.Scripted(generate=str)\n\n    def score(self, r, p):\n        return 1.0",
    "division by zero (helpers.py:": "def __init__(self, config):\n        1 / 0",
    "does not say how it scores": "pass",
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_CALLABLE)
def test_a_scorer_that_cannot_be_called_is_refused_before_the_run_with_its_place(what: str, tmp_path: Path) -> None:
    base = "Scorer" if what.startswith("does not say") else "GenerationScorer"
    helper(tmp_path, f"class Own({base}):\n    {NOT_CALLABLE[what]}\n")
    with pytest.raises(ConfigError, match=rf"t\.yaml:\d+:\d+: .*{re.escape(what)}"):
        generate(tmp_path, **TWO, yaml="scorer: !function helpers.Own\n")


def test_a_result_that_has_no_rows_fails_its_document_with_what_is_wanted(tmp_path: Path) -> None:
    helper(
        tmp_path, "class Own(Scorer):\n    def score_instances(self, instances, filter_name):\n        return None\n"
    )
    results = generate(tmp_path, **TWO, yaml="scorer: !function helpers.Own\n")
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "score_instances returned None, and must return a result, or scores by name" in reason


SHAPES = {
    "no parameters": "def __init__(self):\n        self.unit = 2.0",
    "keywords alone": "def __init__(self, *, unit=2.0):\n        self.unit = unit",
    "any": "def __init__(self, *args, **kwargs):\n        super().__init__(*args)\n        self.unit = 2.0",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_scorer_need_not_take_the_configuration(shape: str, tmp_path: Path) -> None:
    body = "\n\n    def score(self, reference, predictions):\n        return self.unit * (self.config.task == 't')\n"
    helper(tmp_path, f"class Own(GenerationScorer):\n    {SHAPES[shape]}{body}")
    assert rows(generate(tmp_path, **TWO, yaml="scorer: !function helpers.Own\n")) == {"Own,none": 2.0}


def test_a_scorer_may_choose_its_metrics_itself(tmp_path: Path) -> None:
    own = "[MetricConfig(name='exact_match'), MetricConfig(name='two', fn=lambda references, predictions: 2.0)]"
    helper(tmp_path, f"class Own(GenerationScorer):\n    def get_metrics(self, filter_name):\n        return {own}\n")
    results = generate(tmp_path, **TWO, yaml="scorer: !function helpers.Own\nmetric_list: []\n")
    assert rows(results) == {"exact_match,none": 0.5, "two,none": 2.0}


class Answering(assay.GenerateTask):
    def process_instances(self, instances: Sequence[Instance] | None = None) -> Any:
        return {**super().process_instances(instances), ("n", "none"): [float(len(instances or ()))]}


def test_a_task_object_of_the_users_class_is_run_by_its_methods(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "0", "gold": "a"}, {"q": "1", "gold": "b"}], "")
    data = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "t.jsonl")}},
        "test_split": "test",
    }
    keys = {
        "task": "t",
        **data,
        "doc_to_text": "q",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "exact_match"}],
    }
    assert rows(assay.simple_evaluate(says(["a", "x"]), tasks=[Answering(keys)])) == {
        "exact_match,none": 0.5,
        "n,none": 1.0,
    }


def test_a_judged_run_is_scored_again_from_its_verdicts(tmp_path: Path) -> None:
    helper(tmp_path, copied("001/07.py"))
    results = generate(tmp_path, **TWO, yaml=JUDGED, model_role={"judge": judge()}, output_path=str(tmp_path / "out"))
    again = assay.score(str(tmp_path / "out"))
    assert rows(lm_eval_layout(again.results)) == rows(results)


def test_a_model_may_be_a_global_of_the_helper_file_and_is_asked_as_often_as_the_code_does(tmp_path: Path) -> None:
    """The second question depends on the answer to the first; what the code catches is not the end of it."""
    own = """
JUDGE = get_model(None, role="critic")


class Own(GenerationScorer):
    def score(self, reference, predictions):
        try:
            flaw = JUDGE.generate(f"flaw of {predictions[0]}", max_gen_toks=5)
        except BaseException:
            flaw = "none"
        return JUDGE.evaluate(f"how bad is {flaw}")
"""
    helper(tmp_path, own)
    asked: list[str] = []

    def say(prompt: str, params: Any, repeat: int) -> str:
        asked.append(prompt)
        return prompt[-1] * 2 if prompt.startswith("flaw") else str(len(prompt))

    critic = Scripted(generate=say, identity="critic")
    results = generate(tmp_path, **TWO, yaml="scorer: !function helpers.Own\n", model_role={"critic": critic})
    assert rows(results) == {"Own,none": 13.0}  # "how bad is aa"
    assert sorted(asked) == ["flaw of a", "flaw of x", "how bad is aa", "how bad is xx"]


def test_a_reply_that_is_not_a_number_fails_the_rows_of_its_document(tmp_path: Path) -> None:
    helper(tmp_path, copied("001/07.py"))
    vague = Scripted(generate=lambda prompt, params, repeat: "0.5" if prompt[0] == "a" else "so-so", identity="vague")
    results = generate(tmp_path, **TWO, yaml=JUDGED, model_role={"judge": vague})
    assert rows(results)["llm_judge,none"] == 0.5
    assert results["assay"]["tasks"]["t"]["failed"] == 1
    assert list(results["assay"]["tasks"]["t"]["reasons"]) == ["judge: unparsable verdict: the reply is not a number"]


@pytest.mark.parametrize(("target", "expected"), [(1, 1.0), (0, 0.0), (" b", 1.0), ("b", 1.0), ("c1", None), ("1", None), (None, None)])  # fmt: skip
def test_choices_asked_as_log_likelihoods_are_choices(target: Any, expected: float | None) -> None:
    items = [
        Instance({}, 0, ("", text), target, n, [(ll, False)], request_type="loglikelihood")
        for n, (text, ll) in enumerate(((" a", -3.0), (" b", -2.0)))
    ]
    task = assay.MultipleChoiceTask({"task": "t", "metric_list": [{"metric": "acc"}]})
    [score] = task.process_instances(items)["acc", "none"]
    if expected is None:
        assert isinstance(score, Failed) and f"the right answer, {target!r}, is none of the 2 choices" in score.reason
    else:
        assert score == expected
        assert task._scorer.score_instances(items, "none").scores == {"acc": expected}


# --- 004: the loop and its two steps ---------------------------------------------------------------------------------

LOOP = copied("004/01.py")
GENERATED = "from assay import Task\n\n\n" + copied("004/02.py")
CHOSEN = "from assay import Task\n\n\n" + copied("004/03.py")


def test_the_seeds_loop_and_its_two_steps_process_instances() -> None:
    names = loaded(LOOP, copied("004/02.py"), copied("004/03.py"))
    whole = type("Whole", (names["GenerateTask"], assay.GenerateTask), {})
    items = [instance(None, "x", n, a="X", b="x y z", c="y") for n in range(2)]
    assert whole(BY_FILTER).process_instances(items) == {
        ("exact_match", "a"): [[1.0], [1.0]], ("token_f1", "b"): [[0.5], [0.5]], ("exact_match", "c"): [[0.0], [0.0]],
    }  # fmt: skip
    choice = type("Whole", (names["MultipleChoiceTask"], assay.MultipleChoiceTask), {})
    pairs = [
        Instance({}, 0, ("", text), 1, n, [(-1.0, False)], {"none": (ll, False)}, "t", "loglikelihood", (" a", " b"))
        for n, (text, ll) in enumerate(((" a", -1.0), (" b", -2.0), ("", -9.0), ("", -3.0)))
    ]
    task = choice(config(output_type="multiple_choice", metric_list=[{"metric": "acc"}, {"metric": "acc_mutual_info"}]))
    assert task.process_instances([replace_resps(each) for each in pairs]) == {
        ("acc", "none"): [0.0], ("acc_mutual_info", "none"): [0.0],
    }  # fmt: skip


def replace_resps(each: Instance) -> Instance:
    from dataclasses import replace

    return replace(each, resps=[each.filtered_resps["none"]])


@pytest.mark.parametrize("blocks", [GENERATED, LOOP + "\n\n\n" + copied("004/02.py")], ids=["steps", "loop"])
def test_the_seeds_generate_task_is_the_class_of_a_task_that_is_run(blocks: str, tmp_path: Path) -> None:
    own = "\n\nclass Whole(GenerateTask, assay.GenerateTask):\n    pass\n"
    helper(tmp_path, blocks, own)
    yaml = """
        class: !function helpers.Whole
        filter_list:
          - {name: strict, filter: [{function: take_first}], metric_list: [{metric: exact_match}]}
          - {name: loose, filter: [{function: lowercase}, {function: take_first}], metric_list: [{metric: token_f1}]}
        """
    results = generate(tmp_path, ["k b", "X"], ["k", "x"], yaml)
    assert rows(results) == {"exact_match,strict": 0.0, "token_f1,loose": pytest.approx((2 / 3 + 1) / 2)}


def test_the_seeds_multiple_choice_task_is_the_class_of_a_task_that_is_run(tmp_path: Path) -> None:
    helper(tmp_path, CHOSEN, "class Whole(MultipleChoiceTask, assay.MultipleChoiceTask):\n    pass\n")
    yaml = "class: !function helpers.Whole\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n"
    results = choose(tmp_path, [[-3.0, -2.0], [-1.0, -2.0]], [1, 1], ["long words", "x"], yaml)
    assert rows(results) == {"acc,none": 0.5, "acc_norm,none": 0.0}


HOOKED = """
class Own(assay.GenerateTask):
    def _create_result(self, instances, filter_name):
        result = super()._create_result(instances, filter_name)
        result.answer = result.answer.upper()
        return result

    def _compute_metric(self, result, metric):
        return [super(Own, self)._compute_metric(result, metric) + len(result.answer)]


class Custom(assay.GenerateTask):
    def _process_with_custom_fn(self, instances_by_doc):
        scores = super()._process_with_custom_fn(instances_by_doc)
        return {**scores, ("n", "none"): [float(len(each)) for each in instances_by_doc.values()]}


def said(doc, results):
    return {"said": float(len(results[0]))}


def own_metric(reference, prediction):
    return 0.5
"""


def test_what_a_task_class_overrides_is_called_by_runs_and_for_instances(tmp_path: Path) -> None:
    """Upper-case answers "AB" and "X" against "AB" and "b": 1 and 0, each with its length: 3 and 1."""
    helper(tmp_path, HOOKED)
    results = generate(tmp_path, ["ab", "x"], ["AB", "b"], "class: !function helpers.Own\n")
    assert rows(results) == {"exact_match,none": 2.0}
    task = TaskManager(include_path=tmp_path, include_defaults=False).load("t")["tasks"]["t"]
    items = [instance("ab", "AB", 0), instance("x", "b", 1)]
    assert task.process_instances(items) == {("exact_match", "none"): [[3.0], [1.0]]}
    own = loaded(HOOKED)["Own"]({"task": "t", "metric_list": [{"metric": "exact_match"}]})
    assert own.process_instances(items) == {("exact_match", "none"): [[3.0], [1.0]]}


def test_a_task_class_may_process_its_own_function_in_its_own_way(tmp_path: Path) -> None:
    helper(tmp_path, HOOKED)
    yaml = "class: !function helpers.Custom\nprocess_results: !function helpers.said\n"
    results = generate(tmp_path, ["ab", "x"], ["AB", "b"], yaml)
    assert rows(results) == {"said,none": 1.5, "n,none": 1.0}
    task = TaskManager(include_path=tmp_path, include_defaults=False).load("t")["tasks"]["t"]
    items = [instance("ab", "AB", 0), instance("x", "b", 1)]
    assert task.process_instances(items) == {("said", "none"): [2.0, 1.0], ("n", "none"): [1.0, 1.0]}


def test_a_loaded_task_scores_instances_with_its_helper_code(tmp_path: Path) -> None:
    helper(tmp_path, HOOKED)
    yaml = "metric_list: [{metric: exact_match}, {metric: !function helpers.own_metric, aggregation: mean}]\n"
    generate(tmp_path, ["ab"], ["ab"], yaml)
    task = TaskManager(include_path=tmp_path, include_defaults=False).load("t")["tasks"]["t"]
    scores = task.process_instances([instance("ab", "ab"), instance("x", "ab", 1)])
    assert scores == {("exact_match", "none"): [1.0, 0.0], ("own_metric", "none"): [0.5, 0.5]}
    assert task.compute_aggregations() == {("exact_match", "none"): 0.5, ("own_metric", "none"): 0.5}


NO_TASKS = {
    "is not a task class": "class Own:\n    pass\n",
    "cannot be made": "class Own(assay.GenerateTask):\n    def __init__(self):\n        pass\n\n    def _compute_metric(self, r, m):\n        return 1.0\n",
}


@pytest.mark.parametrize("what", NO_TASKS)
def test_classes_that_are_not_tasks_are_refused_with_their_place(what: str, tmp_path: Path) -> None:
    helper(tmp_path, NO_TASKS[what])
    with pytest.raises(ConfigError, match=rf"t\.yaml:\d+:\d+: .*{what}"):
        generate(tmp_path, **TWO, yaml="class: !function helpers.Own\n")


def test_a_task_class_that_fails_loses_its_document_and_no_other(tmp_path: Path) -> None:
    helper(
        tmp_path,
        "class Own(assay.GenerateTask):\n    def _compute_metric(self, result, metric):\n        return 1 / (result.answer != 'x')\n",
    )
    results = generate(tmp_path, **TWO, yaml="class: !function helpers.Own\n")
    assert rows(results) == {"exact_match,none": 1.0}
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert reason.startswith("scoring: metric 'exact_match' of filter 'none': ZeroDivisionError")


def test_a_filter_without_metrics_has_those_of_the_task(tmp_path: Path) -> None:
    yaml = """
        metric_list: [{metric: exact_match}]
        filter_list: [{name: a, filter: [{function: take_first}], metric_list: []}]
        """
    assert rows(generate(tmp_path, **TWO, yaml=yaml)) == {"exact_match,a": 0.5}


@pytest.mark.parametrize("roles", [["judge=dummy"], "judge=dummy", 3])
def test_roles_that_are_not_a_mapping_are_refused_with_the_form_that_works(roles: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model_role.* — write .*\{"):
        assay.simple_evaluate(says(["a"]), tasks=["t"], model_role=roles, include_path=str(tmp_path))


def test_the_function_of_a_metric_is_there_where_nothing_else_is_imported() -> None:
    code = """
import assay
exact = assay.MetricConfig(name="exact_match")
print(exact.fn(references=["a", "b"], predictions=["b"]), exact.fn(references=["a"], predictions=["b"]))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1.0 0.0\n"
