"""Which members count (filters, conditions, missing metrics), and what is refused before anything is asked."""

import math
import re
from pathlib import Path

import pytest

import assay
from assay import ConfigError, Estimate, Scripted, TaskManager
from assay.catalog.conditions import ConditionError, holds
from assay.cli.output import exit_code
from assay.groups.task_results import EstimatedFloat
from assay.statistics.evidence import Evidence
from assay.tasks.validate import validate
from group_world import UNSURE, Plain, attempts, computed, group_file, group_of, group_row, scored
from run_world import rows_of
from small_runs import ANYTHING, noting, run

ACC: dict[str, object] = {"metric": "acc"}
FOUR: Plain = {f"t{n}": {"acc,none": value, "samples": 1} for n, value in enumerate((0.1, 0.9, 0.5, 0.7))}

# --- group filters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"only": ["t0", "t1"]}, 0.5),
        ({"only": "t[12]"}, 0.7),
        ({"exclude": ["t0"]}, 0.7),
        ({"only": ["t0", "t1", "t2"], "exclude": "t1"}, 0.3),
        ({"top_k": 2}, 0.8),
        ([{"function": "top_k", "k": 2}], 0.8),
        ([{"function": "only", "tasks": ["t0", "t1", "t2"]}, {"function": "top_k", "k": 2}], 0.7),
        ([{"function": "exclude", "tasks": ["t1"]}], 1.3 / 3),
        ({"top_k": 9}, 0.55),
    ],
)
def test_group_filters_choose_members(written: object, expected: float) -> None:
    assert computed(FOUR, ACC, group_filter=written) == {"acc,none": pytest.approx(expected, abs=1e-15)}


def test_the_best_members_have_no_standard_error_and_the_row_says_why(tmp_path: Path) -> None:
    for n, scores in enumerate([(0, 0, 1), (1, 1, 0), (1, 0, 1, 1)]):
        scored(tmp_path, f"t{n}", acc=scores)
    lines = "group: g\ntask: [t0, t1, t2]\naggregate_metric_list: [{metric: acc}]\n"
    row = group_row(tmp_path, lines + "group_filter:\n  - function: top_k\n    k: 2\n")
    assert (row["value"], row["stderr"], row["interval"]) == (pytest.approx(5 / 7), None, None)
    assert "chosen by their scores" in row["reason"]
    all_of_them = group_row(tmp_path, lines + "group_filter: {top_k: 3}\n")
    assert all_of_them["stderr"] is not None, "nothing was chosen"


def test_the_best_are_the_lowest_where_less_is_better(tmp_path: Path) -> None:
    reported = computed(FOUR, {**ACC, "higher_is_better": False}, group_filter={"top_k": 1})
    assert reported == {"acc,none": 0.1}
    scored(tmp_path, "low", error=[1, 1], better=False)
    scored(tmp_path, "high", error=[9, 9], better=False)
    lines = "group: g\ntask: [low, high]\naggregate_metric_list: [{metric: error}]\ngroup_filter: {top_k: 1}\n"
    assert group_row(tmp_path, lines, "error,none")["value"] == 1.0, "as the members say"


# --- conditions ---------------------------------------------------------------------------------------------------

FACTS = {"model": {"params": 8e9, "name": "big"}, "run": {"limit": None}, "metadata": {"langs": ["en", "de"]}}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("model.params >= 7e9", True),
        ("model.params < 7e9", False),
        ("7e9 <= model.params < 9e9", True),
        ("model.name == 'big' and not model.params > 1e10", True),
        ("model.name in ['small', 'tiny'] or 'de' in metadata.langs", True),
        ("run.limit == None", True),
        ("model.params > -1", True),
    ],
)
def test_conditions_of_members_are_evaluated(condition: str, expected: bool) -> None:
    assert holds(condition, FACTS) is expected


EVIL = {
    "a call": "__import__('os').system('true')",
    "a dunder": "model.__class__ == 1",
    "a dunder of a literal": "().__class__.__bases__ == 1",
    "a function": "(lambda: True)()",
    "a comprehension": "[x for x in [True]]",
    "an index": "model['params'] > 1",
    "a power": "9**9**9 > 1",
    "a text with code in it": "f'{model}' == 'x'",
    "an assignment": "(x := True)",
    "statements": "import os",
    "nothing": "",
    "a number": "7",
    "a text and a number": "model.name > 7",
    "identity": "model.name is None",
    "an unknown fact": "model.size > 7",
    "long": "model.params > 1 and " * 500 + "True",
    "deep brackets": "(" * 400 + "True" + ")" * 400,
    "deep signs": "-" * 900 + "1 > 0",
    "deep attributes": "model" + ".a" * 480 + " == 1",
    "a zero byte": "True\0",
}


@pytest.mark.parametrize("name", EVIL)
def test_conditions_that_are_not_understood_are_refused_and_never_executed(name: str) -> None:
    with pytest.raises(ConditionError):
        holds(EVIL[name], FACTS)


def conditional(folder: Path, condition: str) -> None:
    scored(folder, "a", acc=[1, 0])
    scored(folder, "b", acc=[1, 1])
    lines = f'group: g\ntask:\n  - a\n  - {{task: b, if: "{condition}"}}\naggregate_metric_list: [{{metric: acc}}]\n'
    group_file(folder, lines)


@pytest.mark.parametrize(("params", "value"), [(8e9, 0.75), (1e9, 0.5)])
def test_a_member_with_a_condition_counts_where_it_holds(params: float, value: float, tmp_path: Path) -> None:
    conditional(tmp_path, "model.params >= 7e9")
    asked: list[str] = []
    model = noting(asked)
    model.facts = {"params": params}  # type: ignore[attr-defined]
    results = run(tmp_path, model, "g")
    assert rows_of(results, "g")["acc,none"]["value"] == value
    skipped = results["assay"]["groups"]["g"].get("skipped", {})
    assert (len(asked), list(skipped)) == ((4, []) if params > 7e9 else (2, ["b"]))
    assert all("model.params >= 7e9" in reason for reason in skipped.values())


def knowing(params: float, asked: list[str]) -> Scripted:
    model = noting(asked)
    model.facts = {"params": params}  # type: ignore[attr-defined]
    return model


def test_what_was_loaded_before_the_model_was_known_is_decided_by_evaluate_or_refused(tmp_path: Path) -> None:
    """`load` has no facts: it lists every member, and one whose condition is false may not count."""
    conditional(tmp_path, "model.params >= 7e9")
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    loaded, asked = manager.load("g"), list[str]()
    rows = assay.evaluate(knowing(8e9, []), loaded, task_manager=manager)["groups"]["g"]
    assert rows["acc,none"] == 0.75
    for given in (loaded, {"g": loaded["groups"]["g"]}):
        with pytest.raises(
            ConfigError, match=r"group_file.yaml:4:\d+: `if: model.params >= 7e9` is false.*'b' was loaded"
        ):
            assay.evaluate(knowing(1e9, asked), given, task_manager=manager)
    assert asked == []
    small = assay.simple_evaluate(
        knowing(1e9, asked), tasks=["g"], task_manager=manager
    )  # by name, the manager is told
    assert (small["groups"]["g"]["acc,none"], len(asked)) == (0.5, 2)


def test_the_best_of_a_row_without_direction_are_refused(tmp_path: Path) -> None:
    """Of a metric of which nobody says whether more is better, the largest may be the worst."""
    for name in ("a", "b"):
        scored(tmp_path, name, own=[1, 0], better=None)
    lines = "group: g\ntask: [a, b]\naggregate_metric_list: [{metric: own}]\ngroup_filter: {top_k: 1}\n"
    with pytest.raises(ConfigError, match=r"group_file.yaml:3:\d+: top_k takes the best.*'own' is better is not known"):
        group_row(tmp_path, lines, "own,none")
    said = lines.replace("{metric: own}", "{metric: own, higher_is_better: false}")
    assert group_row(tmp_path, said, "own,none")["value"] == 0.5


def test_a_slip_in_the_key_of_the_members_is_one_problem(tmp_path: Path) -> None:
    for name in ("a", "b"):
        scored(tmp_path, name, acc=[1, 0])
    group_file(tmp_path, "group: g\ntasks: [a, b]\naggregate_metric_list: [{metric: acc}]\n")
    [problem] = validate(TaskManager(include_path=str(tmp_path), include_defaults=False), ["g"])
    assert str(problem).endswith("group_file.yaml:2:1: unknown key 'tasks' — did you mean 'task'?")


def test_evaluate_says_what_it_takes_and_what_is_set_on_an_object_counts_or_is_refused(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[1, 0])
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    task = manager.load("a")["tasks"]["a"]
    with pytest.raises(
        ConfigError, match=r"task_dict: must be a mapping, got \[Task\('a'\)\] — give what TaskManager.load"
    ):
        assay.evaluate(noting([]), [task])  # type: ignore[arg-type]
    loaded = manager.load("a")
    loaded["tasks"]["a"].name = "renamed"
    assert "renamed" in assay.evaluate(noting([]), loaded, task_manager=manager)["results"]
    task.OUTPUT_TYPE = "loglikelihood"  # type: ignore[misc]
    with pytest.raises(ConfigError, match="OUTPUT_TYPE has no effect on an object"):
        assay.evaluate(noting([]), {"a": task}, task_manager=manager)


def test_an_option_that_no_run_has_is_a_slip_that_validate_sees(tmp_path: Path) -> None:
    conditional(tmp_path, "run.num_fewshots == 5")
    problems = validate(TaskManager(include_path=str(tmp_path), include_defaults=False), ["g"])
    assert "unknown name 'run.num_fewshots' — did you mean 'num_fewshot'?" in str(problems[0])


@pytest.mark.parametrize("condition", ["model.size > 7", "__import__('os')", "(lambda: 1)()"])
def test_a_condition_that_cannot_be_used_is_refused_with_its_place(condition: str, tmp_path: Path) -> None:
    conditional(tmp_path, condition)
    asked: list[str] = []
    with pytest.raises(ConfigError, match=r"group_file.yaml:4:\d+: invalid condition"):
        run(tmp_path, noting(asked), "g")
    assert asked == []


def test_the_documents_form_of_a_condition_is_refused_with_the_fix(tmp_path: Path) -> None:
    scored(tmp_path, "taskA", acc=[1, 0])
    scored(tmp_path, "taskB", acc=[1, 0])
    group_file(tmp_path, "group: g\ntask:\n  - taskA: if model_size > 7B\n  - taskB: always\n")
    with pytest.raises(ConfigError, match=r"group_file.yaml:3:5.*\{task: taskA, if: "):
        run(tmp_path, ANYTHING, "g")


# --- missing metrics ----------------------------------------------------------------------------------------------


def refused(folder: Path, yaml: str) -> str:
    """What a run is refused with, before anything is asked."""
    asked: list[str] = []
    group_file(folder, yaml)
    with pytest.raises(ConfigError) as caught:
        run(folder, noting(asked), "g")
    assert asked == []
    return str(caught.value)


RATE = "{metric: !function code.compilation_rate, aggregation: mean}"


@pytest.fixture
def partly(tmp_path: Path) -> Path:
    """a has exact_match and compilation_rate, b only exact_match; both say so before the run."""
    attempts(tmp_path, "a", [1, 0], 1, "{metric: exact_match}, " + RATE)
    attempts(tmp_path, "b", [1, 1], 1)
    return tmp_path


HERE = r"group_file.yaml:4:\d+: "
LIST = "group: g\ntask: [a, b]\naggregate_metric_list:\n  - "


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        ("metric: exact_mach", "no task of the group has the metric 'exact_mach'.*did you mean 'exact_match'.*compilation_rate"),
        ("metric: compilation_rate", "b: no metric 'compilation_rate'.*missing: skip"),
        ("{metric: compilation_rate, missing: error}", "b: no metric 'compilation_rate'"),
        ("{metric: exact_match, filter_list: strict}", "no task of the group has 'exact_match' of filter 'strict'"),
        ("{metric: exact_match, filter_list: {a: strict}}", "strict"),
        ("{metric: exact_match, filter_list: {z: none}}", "'z'"),
        ("{metric: exact_mach, levels: children}", "exact_mach"),
        ("{metric: pass@1, aggregation: pass@k, kwargs: {of: exact_mach}}", "exact_mach"),
        ("{metric: exact_match, aggregation: maen}", "no aggregator named 'maen'.*did you mean 'mean'"),
        ("{metric: exact_match, kwargs: {k: 1}}", "aggregator 'mean' has no parameter 'k'"),
        ("{metric: exact_match, aggregation: median, kwargs: {drawz: 1}}", "no parameter 'drawz'.*did you mean 'draws'"),
        ("{metric: p, aggregation: pass@k, kwargs: {k: 0}}", "k must be an integer of at least 1"),
        ("{metric: p, aggregation: pass@k, kwargs: {k: 1.5}}", "'k' cannot be 1.5"),
        ("{metric: exact_match, aggregation: weighted_sum}", "weights"),
        ("{metric: exact_match, aggregation: weighted_sum, kwargs: {weights: {a: 1}}}", "no weight is given for b"),
        ("{metric: exact_match, aggregation: difference, kwargs: {of: [a]}}", "two members"),
        ("{metric: exact_match, aggregation: difference, kwargs: {of: [a, z]}}", "'z'"),
        ("{metric: exact_match, agregation: mean}", "unknown key 'agregation'.*did you mean 'aggregation'"),
        ("{metric: exact_match, levels: leafs}", "leaves"),
    ],
)  # fmt: skip
def test_entries_that_cannot_be_computed_are_refused_with_their_place(entry: str, reported: str, partly: Path) -> None:
    assert re.search(HERE + f".*({reported})", refused(partly, LIST + entry + "\n"))


def test_a_member_that_lacks_the_filter_is_refused_before_the_run(partly: Path) -> None:
    both = "none, filter: [{function: take_first}]}, {name: strict"
    file = partly / "a.yaml"
    file.write_text(file.read_text().replace("{name: none", "{name: " + both))
    message = refused(partly, LIST + "{metric: exact_match, filter_list: strict}\n")
    assert re.search(HERE + "b: ", message)


def test_a_member_that_is_filtered_out_need_not_have_the_metric(partly: Path) -> None:
    group_file(partly, LIST + "metric: compilation_rate\ngroup_filter: {exclude: [b]}\n")
    assert rows_of(run(partly, UNSURE, "g"), "g")["compilation_rate,none"]["value"] == 0.5


def test_members_without_the_metric_may_be_skipped_and_are_named(partly: Path) -> None:
    group_file(partly, LIST + "{metric: compilation_rate, missing: skip}\n")
    row = rows_of(run(partly, UNSURE, "g"), "g")["compilation_rate,none"]
    assert (row["value"], row["n"], row["missing"]) == (0.5, 2, ["b"])


@pytest.mark.parametrize("aggregation", ["mean", "harmonic_mean"])
def test_lm_evals_way_skips_members_without_the_metric(aggregation: str, partly: Path) -> None:
    group_file(partly, LIST + f"{{metric: compilation_rate, aggregation: {aggregation}}}\n")
    row = rows_of(run(partly, UNSURE, "g", compat="lm-eval"), "g")["compilation_rate,none"]
    assert (row["value"], row["missing"]) == (0.5, ["b"])


@pytest.mark.parametrize("metric", ["accc", "f1"])
def test_a_metric_that_only_scoring_shows_to_be_missing_is_null_with_the_reason(metric: str, tmp_path: Path) -> None:
    """A task with process_results has no rows known before the run: no task has accc, and b has no f1."""
    scored(tmp_path, "a", acc=[1, 0], f1=[0.5, 0.7])
    scored(tmp_path, "b", acc=[1, 1])
    row = group_row(tmp_path, LIST + f"metric: {metric}\n", f"{metric},none")
    assert (row["value"], row["stderr"]) == (None, None)
    assert metric in row["reason"]


def test_two_entries_for_one_row_are_refused(partly: Path) -> None:
    """One number would be lost without a word; `name` tells them apart."""
    entries = "{metric: exact_match}\n  - {metric: exact_match, aggregation: harmonic_mean}\n"
    group_file(partly, LIST + entries.replace("harmonic_mean", "harmonic_mean, name: h"))
    assert rows_of(run(partly, UNSURE, "g"), "g")["h,none"]["value"] == pytest.approx(2 / 3)
    assert "name" in refused(partly, LIST + entries)


# --- membership that cannot be ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"g": "group: g\ntask: [a, g]\n"}, r"g_file.yaml:2:\d+: .*circle: g → g"),
        ({"g": "group: g\ntask: [h]\n", "h": "group: h\ntask: [a, g]\n"}, r"h_file.yaml:2:\d+: .*circle: g → h → g"),
        ({"g": "group: g\ntask: [a, bb]\n"}, r"g_file.yaml:2:\d+: .*'bb'.*did you mean"),
        ({"g": "group: g\ntask: [a]\ngroup_filter: {top: 1}\n"}, r"g_file.yaml:3:\d+: no group filter named 'top'"),
        ({"g": "group: g\ntask: [a]\ngroup_filter: {top: 1, best: 2}\n"}, r"g_file.yaml:3:\d+: no group filter named 'top'"),
        ({"g": "group: g\ntask: [a]\ngroup_filter: {top_k: 0}\n"}, r"g_file.yaml:3:\d+: top_k must be at least 1"),
        ({"g": "group: g\ntask: [a]\ngroup_filter: [{function: top_k}]\n"}, r"g_file.yaml:3:\d+: .*top_k"),
        ({"g": "group: g\ntask: [a]\ngroup_filter: {only: [z]}\naggregate_metric_list: [{metric: exact_match}]\n"}, "'z'"),
    ],
)  # fmt: skip
def test_invalid_groups_are_refused_with_their_place(files: dict[str, str], message: str, partly: Path) -> None:
    asked: list[str] = []
    for name, text in files.items():
        group_file(partly, text, name)
    with pytest.raises(ConfigError, match=message):
        run(partly, noting(asked), "g")
    assert asked == []


# --- missing and invalid numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["harmonic_mean", "geometric_mean"])
@pytest.mark.parametrize("low", [0, -0.5])
def test_means_that_need_numbers_above_0_are_null_with_the_reason(kind: str, low: float, tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[low, low])
    scored(tmp_path, "b", acc=[1, 0])
    row = group_row(
        tmp_path, f"group: g\ntask: [a, b]\naggregate_metric_list: [{{metric: acc, aggregation: {kind}}}]\n"
    )
    assert (row["value"], row["stderr"], row["interval"]) == (None, None, None)
    assert "above 0" in row["reason"]


def test_more_attempts_than_there_are_are_refused_before_the_run(tmp_path: Path) -> None:
    attempts(tmp_path, "a", [1, 2], 3)
    entry = "{metric: pass@4, aggregation: pass@k, kwargs: {k: 4}}"
    group_file(tmp_path, f"group: g\ntask: [a]\naggregate_metric_list: [{entry}]\n")
    with pytest.raises(ConfigError, match=r"a: filter 'none' leaves 3 of 3 answers, and pass@4 needs 4"):
        run(tmp_path, UNSURE, "g")
    few = {"a": {"exact_match,none": Estimate(0.5, 0.1, 2, evidence=Evidence(repeats=[[1, 0, 0], [1, 1, 0]]))}}
    [row] = computed(few, {"metric": "pass@4", "aggregation": "pass@k", "kwargs": {"k": 4}}).values()
    assert isinstance(row, EstimatedFloat)
    assert re.search("^a: 3 answers to a problem, and pass@4 needs 4", row.estimate.reason)


def test_one_answer_to_a_problem_is_not_enough_for_two() -> None:
    entry = {"metric": "pass@2", "aggregation": "pass@k", "kwargs": {"k": 2}}
    [row] = computed({"a": {"exact_match,none": 0.5, "samples": 2}}, entry).values()
    assert isinstance(row, EstimatedFloat)
    assert row.estimate.reason == "a: 1 answer to a problem, and pass@2 needs 2"


EVERY = ["mean", "harmonic_mean", "geometric_mean", "median", "min", "max", "difference", "pass@k"]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("missing", ["error", "skip"])
def test_an_empty_group_has_no_number_and_no_accident(kind: str, missing: str) -> None:
    result = computed({}, {**ACC, "aggregation": kind, "filter_list": "none", "missing": missing})
    assert all(math.isnan(value) for value in result.values())


@pytest.mark.parametrize("kind", EVERY[:-2])
def test_a_member_that_is_not_a_number_is_named_and_never_counted(kind: str) -> None:
    results: Plain = {"a": {"acc,none": math.nan, "samples": 2}, "b": {"acc,none": 0.5, "samples": 2}}
    [strict] = computed(results, {**ACC, "aggregation": kind, "missing": "error"}).values()
    [lenient] = computed(results, {**ACC, "aggregation": kind, "missing": "skip"}).values()
    assert isinstance(strict, EstimatedFloat)
    assert isinstance(lenient, EstimatedFloat)
    assert math.isnan(strict)
    assert "a" in strict.estimate.reason
    assert (lenient, list(lenient.estimate.evidence.missing)) == (0.5, ["a"])


@pytest.mark.parametrize("kind", EVERY[:3])
def test_members_without_documents_have_no_weight(kind: str) -> None:
    results: Plain = {"a": {"acc,none": 0.5, "samples": 0}, "b": {"acc,none": 0.5, "samples": 0}}
    [result] = computed(results, {**ACC, "aggregation": kind, "weight_by_size": True}).values()
    assert math.isnan(result)


FAILING = {
    "raises": ("return 1 / 0", "ZeroDivisionError: division by zero (own.py:2)"),
    "raises in lines": ("raise ValueError('one\\n  two')", "ValueError: one two (own.py:2)"),
    "returns text": ("return {'acc,none': 'good'}", "ValueError: could not convert string to float: 'good'"),
    "returns nothing": ("return None", "float() argument must be a string or a real number, not 'NoneType'"),
    "returns NaN": ("return float('nan')", "NaN"),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("key", ["aggregation", "group_scorer"])
def test_code_of_a_group_that_fails_makes_the_run_incomplete_with_the_reason(
    key: str, name: str, tmp_path: Path
) -> None:
    body, reason = FAILING[name]
    scored(tmp_path, "a", acc=[1, 0])
    (tmp_path / "own.py").write_text(f"def own(group, results):\n    {body}\n")
    entry = "{metric: acc, name: worst, aggregation: !function own.own}, " if key == "aggregation" else ""
    scorer = "group_scorer: !function own.own\n" if key == "group_scorer" else ""
    group_file(tmp_path, f"group: g\ntask: [a]\n{scorer}aggregate_metric_list: [{entry}{{metric: acc, name: mean}}]\n")
    results = run(tmp_path, ANYTHING, "g")
    lost = {row: about for row, about in rows_of(results, "g").items() if about["value"] is None}
    assert [about["n"] for about in lost.values()] == [0]
    assert reason in next(iter(lost.values()))["reason"] or key == "group_scorer"
    assert results["assay"]["status"] == "incomplete"
    assert exit_code(results.results) == 1
    assert {row for row, about in rows_of(results, "g").items() if about.get("lacks_number")} == lost.keys()
    assert rows_of(results, "g")["mean,none"]["value"] == 0.5, "the other row"


def test_a_number_that_does_not_exist_leaves_the_run_complete(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 0])
    group_file(tmp_path, "group: g\ntask: [a]\naggregate_metric_list: [{metric: acc, aggregation: harmonic_mean}]\n")
    assert run(tmp_path, ANYTHING, "g")["assay"]["status"] == "complete"


# --- what user code returns -----------------------------------------------------------------------------------------

OWN = """
from dataclasses import replace

from assay import Aggregator, Estimate, RowAggregator


def best(group, results):
    return max(own["acc,none"] for own in results.values())


def best_row(group, results):
    return {"best,none": best(group, results)}


class Best(Aggregator):
    def aggregate(self, group, task_results):
        return best_row(group, task_results)


class BestMember(RowAggregator):
    def combine(self, members, weights):
        return max(members, key=lambda member: float(member.estimate)).estimate


class Half(RowAggregator):
    def combine(self, members, weights):
        return replace(members[0].estimate, value=0.75)


def half(group, results):
    return replace(results["a"]["acc,none"].estimate, value=0.75)


def given(group, results):
    return Estimate(0.75, 0.25, 4, interval=(0.5, 0.875))


def open_end(group, results):
    return Estimate(0.75, None, 4, interval=[0.5, None])


def upside_down(group, results):
    return Estimate(0.75, 0.25, 4, interval=(0.875, 0.5))
def elsewhere(group, results):
    return Estimate(0.75, 0.25, 4, interval=[0.8, 0.9])
def no_reason(group, results):
    return Estimate(0.5, 0.1, 20, reason=None)
def odd_note(group, results):
    return Estimate(0.5, 0.1, 20, note=5)
def odd_scale(group, results):
    return Estimate(0.5, 0.1, 20, scale="0 to 1")
"""


def user_row(folder: Path, aggregation: str, more: str = "") -> dict[str, object]:
    """The row that a user's function makes of two tasks, of which the second has 0.75 and an interval."""
    scored(folder, "a", acc=[1, 0, 0, 0])
    scored(folder, "b", acc=[1, 1, 1, 0])
    (folder / "own.py").write_text(OWN)
    entry = f"aggregate_metric_list: [{{metric: acc, name: best, aggregation: !function own.{aggregation}}}]\n"
    return group_row(folder, f"group: g\ntask: [a, b]\n{more or entry}", "best,none")


@pytest.mark.parametrize("aggregation", ["best", "best_row", "Best", "BestMember", "Half", "half", "group_scorer"])
def test_a_members_number_that_user_code_returns_has_no_error_as_the_groups(aggregation: str, tmp_path: Path) -> None:
    row = user_row(tmp_path, aggregation, "group_scorer: !function own.best_row\n" * (aggregation == "group_scorer"))
    assert (row["value"], row["stderr"], row["interval"]) == (0.75, None, None)
    assert row["n"] == (8 if aggregation in ("BestMember", "Half") else 0), "other code may use any documents"
    member = "a" if aggregation in ("Half", "half") else "b"
    assert row["reason"] == f"user code returned the number of {member}, whose error is not the group's"


def test_an_interval_that_user_code_gives_is_kept(tmp_path: Path) -> None:
    row = user_row(tmp_path, "given")
    assert (row["stderr"], row["interval"], row["method"], row["n"]) == (0.25, [0.5, 0.875], "user", 4)
    row = user_row(tmp_path, "open_end")
    assert (row["stderr"], row["interval"], row["method"]) == (None, [0.5, None], "user")


@pytest.mark.parametrize(("function", "ends"), [("upside_down", "(0.875, 0.5)"), ("elsewhere", "[0.8, 0.9]")])
def test_an_interval_of_user_code_that_is_none_is_left_out_with_the_reason(
    function: str, ends: str, tmp_path: Path
) -> None:
    row = user_row(tmp_path, function)
    assert (row["value"], row["stderr"], row["interval"]) == (0.75, None, None)
    assert row["reason"] == f"a user function returned {ends} as the interval of 0.75"


@pytest.mark.parametrize(
    ("function", "field"),
    [("no_reason", "`reason` is None"), ("odd_note", "`note` is 5"), ("odd_scale", "`scale` is '0 to 1'")],
)
def test_what_results_could_not_be_read_with_again_is_no_number(function: str, field: str, tmp_path: Path) -> None:
    row = user_row(tmp_path, function)
    assert (row["value"], row["reason"]) == (None, f"a user function returned an Estimate whose {field}")


@pytest.mark.parametrize("kind", ["mean", "harmonic_mean", "max"])
@pytest.mark.parametrize("value", [math.nan, "good", None])
def test_compute_metrics_leaves_out_no_member_without_a_word(
    value: object, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = group_of(["a", "b"], {**ACC, "aggregation": kind})
    results = {"a": {"acc,none": value, "samples": 2}, "b": {"acc,none": 0.5, "samples": 2}}
    assert group.compute_metrics(results) == {}  # type: ignore[arg-type]
    assert caplog.messages == [f"g: acc,none: no number: a: {value!r} is not a number"]
    skipping = group_of(["a", "b"], {**ACC, "aggregation": kind, "missing": "skip"})
    assert skipping.compute_metrics(results) == {"acc,none": 0.5}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (5, "got 5 "),
        (Estimate, "got the class Estimate "),
        ("x" * 58, f"got '{'x' * 58}' "),
        ("x" * 59, "got a value of type 'str' "),
        ([1] * 99, "got a value of type 'list' "),
    ],
)
def test_what_is_no_aggregator_is_refused_by_what_it_is(wrong: object, named: str) -> None:
    with pytest.raises(ConfigError, match="must be an instance of a subclass") as refused:
        group_of(["a"], ACC).aggregator = wrong  # type: ignore[assignment]
    assert named in str(refused.value)
