"""What an inventive user plugs in: cases that an acceptance test of step 4 found."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import assay
from assay import ConfigError, ScoreOptions, score
from assay.cli import main
from assay.scoring.metrics.registry import METRICS
from assay.signatures import is_async
from run_world import failed_in
from small_runs import SAMPLED, generate, noting, run, says, write_task

TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


def helper(folder: Path, code: str, name: str = "own") -> None:
    (folder / f"{name}.py").write_text(dedent(code), encoding="utf-8")


def values(results: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return {key: value for key, value in results["results"][name].items() if "," in key and "stderr" not in key}


def test_a_registered_function_keeps_its_direction_and_aggregation_when_a_file_names_it(tmp_path: Path) -> None:
    """Distances 3 and 0, and 1 and 5: the nearest reference counts, (0 + 1) / 2."""
    code = """
        import assay
        @assay.metric("distance_of_step_4", aggregation="mean", higher_is_better=False)
        def f(reference, prediction): return abs(len(reference) - len(prediction))
    """
    helper(tmp_path, code)
    references = [["aaaa", "b"], ["cc", "dddddd"]]
    try:
        results = generate(tmp_path, ["4", "4"], references, "metric_list: [{metric: !function own.f}]\n")
    finally:
        METRICS.pop("distance_of_step_4", None)  # registered for the whole process
    assert values(results) == {"f,none": 0.5}


def test_references_annotated_as_lists_come_as_a_list_for_each_answer(tmp_path: Path) -> None:
    code = "def f(references: list[list[str]], predictions: list[str]): return float(predictions[0] in references[0])\n"
    helper(tmp_path, code)
    yaml = "metric_list: [{metric: !function own.f, aggregation: mean}]\n"
    assert values(generate(tmp_path, ["x", "xyz"], ["xyz", "xyz"], yaml)) == {"f,none": 0.5}


def test_a_default_of_a_reduction_is_not_given_the_answers(tmp_path: Path) -> None:
    """The best of 1 and 0."""
    helper(tmp_path, "def r(scores, strict=False): return 0.0 if strict else max(scores)\n")
    yaml = f"{SAMPLED}repeats: 2\nmetric_list: [{{metric: exact_match, reduction: !function own.r}}]\n"
    assert values(generate(tmp_path, [["a", "b"]], ["a"], yaml)) == {"exact_match,none": 0.5, "r,none": 1.0}


def test_score_instances_without_scores_is_a_failure(tmp_path: Path) -> None:
    code = "import assay\nclass S(assay.Scorer):\n    def score_instances(self, instances, filter_name): return {}\n"
    helper(tmp_path, code)
    results = generate(tmp_path, ["a"], ["a"], "scorer: !function own.S\n")
    assert failed_in(results) == 1
    assert "returned no scores" in str(results["assay"]["tasks"]["t"]["reasons"])


@pytest.mark.parametrize("returned", ["0.125", "None", "[1.0]"])
def test_an_aggregator_that_returns_no_rows_loses_the_group_alone(returned: str, tmp_path: Path) -> None:
    code = f"import assay\nclass A(assay.Aggregator):\n    def aggregate(self, group, results): return {returned}\n"
    helper(tmp_path, code)
    group = "group: g\ntask: [t]\naggregate_metric_list: [{metric: exact_match, aggregation: !function own.A}]\n"
    (tmp_path / "g.yaml").write_text(group)
    write_task(tmp_path, [{"q": "0", "gold": "a"}], TASK)
    results = run(tmp_path, says(["a"]), "g")
    assert values(results) == {"exact_match,none": 1.0}
    assert results["assay"]["status"] == "incomplete"
    assert "must return a mapping" in str(results["assay"]["groups"]["g"])


def test_objects_whose_call_is_async_are_refused() -> None:
    class Called:
        async def __call__(self, references: list[str], prediction: str) -> float:
            return 1.0

    assert is_async(Called())
    assert not is_async(dict.get)


def test_validate_with_helper_code_takes_task_classes_as_a_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
        import assay
        class T(assay.GenerateTask):
            def _compute_metric(self, result, metric): return 0.25
    """
    helper(tmp_path, code)
    write_task(tmp_path, [{"q": "0", "gold": "a"}], TASK + "class: !function own.T\n")
    assert main(["validate", "--include_path", str(tmp_path), "--no_defaults", "--load"]) == 0, capsys.readouterr().out
    assert values(run(tmp_path, says(["a"]))) == {"exact_match,none": 0.25}
    slip = (tmp_path / "t.yaml").read_text() + "metric_list: [{metric: exact_mtch}]\n"
    (tmp_path / "t.yaml").write_text(slip)
    assert main(["validate", "--include_path", str(tmp_path), "--no_defaults", "--load"]) == 1
    assert "no metric named 'exact_mtch'" in capsys.readouterr().out


def test_a_class_derived_from_a_scorer_of_assay_has_its_own_name() -> None:
    class Strict(assay.EnsembleScorer):
        pass

    class Named(assay.EnsembleScorer):
        name = "mine"

    class Derived(Named):
        pass

    assert (Strict.name, Named.name, Derived.name) == ("Strict", "mine", "mine")


def test_cached_scores_depend_on_the_plain_values_that_a_helper_imports(tmp_path: Path) -> None:
    code = """
        import assay
        from constants_of_step_4 import VALUE
        class S(assay.GenerationScorer):
            cached = True
            def score(self, reference, predictions): return VALUE
    """
    helper(tmp_path, code)
    helper(tmp_path, "VALUE = 0.5\n", "constants_of_step_4")
    write_task(tmp_path, [{"q": "0", "gold": "a"}], TASK + "scorer: !function own.S\nmetric_list: []\n")
    folder = tmp_path / "run"
    assert values(run(tmp_path, says(["a"]), output_path=str(folder))) == {"S,none": 0.5}
    helper(tmp_path, "VALUE = 0.25\n", "constants_of_step_4")
    again = score(folder, ScoreOptions(include_path=[str(tmp_path)]))
    [row] = again.results.tasks["t"].rows
    assert (row.metric, row.filter, row.estimate.value) == ("S", "none", 0.25)


def test_a_configuration_error_is_a_value_error_that_nothing_swallows(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "0", "gold": "a"}], TASK + "metric_list: [{metric: exact_mtch}]\n")
    with pytest.raises(ValueError, match="did you mean 'exact_match'") as error:
        run(tmp_path, says(["a"]))
    assert isinstance(error.value, ConfigError)


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        ("def _compute_metric(self, result): return 1.0", "_compute_metric(self, result, metric)"),
        ("async def _compute_metric(self, result, metric): return 1.0", "def _compute_metric"),
        ("def _create_result(self, instances): return None", "_create_result(self, instances, filter_name)"),
    ],
)
def test_methods_of_a_task_class_are_checked_before_any_request(method: str, remedy: str, tmp_path: Path) -> None:
    helper(tmp_path, f"import assay\nclass T(assay.GenerateTask):\n    {method}\n")
    write_task(tmp_path, [{"q": "0", "gold": "a"}], TASK + "class: !function own.T\n")
    asked: list[str] = []
    with pytest.raises(ConfigError, match=r"t\.yaml:\d+:\d+: class 'T': _") as error:
        run(tmp_path, noting(asked))
    assert remedy in str(error.value)
    assert asked == []
