"""A row of the results is a metric and a filter: two of one name, and names that would be read otherwise, are refused, with both places."""

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from assay import TaskManager, simple_evaluate
from assay.errors import ConfigError
from assay.tasks.validate import validate
from graph_world import QUESTION_ANSWERING, RECORDS, write_graph
from run_world import rows_of
from small_runs import SAMPLED, generate, noting, run, write_task

OWN = """
    from assay import GenerationScorer

    def exact_match(references, predictions):
        return 0.25

    def m(references, predictions):
        return 0.5

    def also_named(references, predictions):
        return 0.75

    also_named.__name__ = "m"

    class Judge(GenerationScorer):
        name = "judged"
        gives = ("exact_match", "judged")
"""
REFUSED = {
    "two filters": ("""
        filter_list:
          - {name: f, filter: [{function: lowercase}, {function: take_first}]}
          - {name: f, filter: [{function: take_first}]}
        """, "two filters are named 'f'", (6, 7)),
    "one metric twice": ("""
        metric_list:
          - {metric: exact_match}
          - {metric: exact_match, ignore_case: true}
        """, "two rows are named 'exact_match'", (6, 7)),
    "one metric twice in a filter": ("""
        filter_list:
          - name: f
            filter: [{function: take_first}]
            metric_list:
              - {metric: exact_match}
              - {metric: exact_match, ignore_case: true}
        """, "two rows are named 'exact_match'", (9, 10)),
    "a function called as a metric is": ("""
        metric_list:
          - {metric: exact_match}
          - {metric: !function own.exact_match, aggregation: mean}
        """, "two rows are named 'exact_match'", (6, 7)),
    "a name that another metric gives": ("""
        metric_list:
          - {metric: rouge}
          - {metric: rougeL, aggregation: mean}
        """, "two rows are named 'rougeL'", (6, 7)),
    "one name declared twice for process_results": ("""
        process_results: !function own.m
        metric_list:
          - {metric: score, aggregation: mean}
          - {metric: score, aggregation: median}
        """, "two rows are named 'score'", (7, 8)),
    "a row of a scorer": ("""
        scorer: !function own.Judge
        metric_list:
          - {metric: exact_match}
        """, "two rows are named 'exact_match'", (7, 5)),
    "a comma in a metric": ("""
        process_results: !function own.m
        metric_list:
          - {metric: "f1,macro", aggregation: mean}
        """, "a row cannot be named 'f1,macro': a comma separates", (7,)),
    "a comma in a filter": ("""
        filter_list:
          - {name: "a,b", filter: [{function: take_first}]}
        """, "a filter cannot be named 'a,b'", (6,)),
    "an empty filter": ("""
        filter_list:
          - {name: "", filter: [{function: take_first}]}
        """, "a filter cannot be named ''", (6,)),
    "a comma in a reduction": (
        """
        generation_kwargs: {do_sample: true, temperature: 1.0, until: []}
        repeats: 2
        metric_list:
          - {metric: exact_match, reduction: {"best,worst": max}}
        """,
        "a row cannot be named 'best,worst'",
        (8,),
    ),
    "a reserved name": ("""
        process_results: !function own.m
        metric_list:
          - {metric: alias, aggregation: mean}
        """, "a row cannot be named 'alias'", (7,)),
    "a name of the samples": ("""
        process_results: !function own.m
        metric_list:
          - {metric: target, aggregation: mean}
        """, "a row cannot be named 'target'", (7,)),
    "a standard error": ("""
        process_results: !function own.m
        metric_list:
          - {metric: acc_stderr, aggregation: mean}
        """, "a row cannot be named 'acc_stderr'", (7,)),
    "two directions": ("""
        filter_list:
          - {name: a, filter: [{function: take_first}], metric_list: [{metric: exact_match}]}
          - {name: b, filter: [{function: take_first}], metric_list: [{metric: exact_match, higher_is_better: false}]}
        """, "higher_is_better of 'exact_match' is False, and True at", (6, 7)),
}  # fmt: skip


def written(folder: Path, yaml: str) -> None:
    (folder / "own.py").write_text(dedent(OWN), encoding="utf-8")
    write_task(folder, [{"q": "0", "gold": "a"}], f"{dedent(yaml).lstrip()}\ndoc_to_text: q\ndoc_to_target: gold\n")


@pytest.mark.parametrize("case", REFUSED)
def test_rows_of_the_same_name_are_refused_before_any_request_with_both_places(case: str, tmp_path: Path) -> None:
    yaml, said, lines = REFUSED[case]
    written(tmp_path, yaml)
    asked: list[str] = []
    with pytest.raises(ConfigError) as error:
        run(tmp_path, noting(asked))
    assert asked == []
    [problem] = error.value.problems
    assert said in problem.what and problem.fix
    assert (problem.place.file, problem.place.line) == (str(tmp_path / "t.yaml"), lines[-1])
    assert len(lines) == 1 or f"t.yaml:{lines[0]}:" in problem.what
    if case != "a row of a scorer":  # of a class that only a run loads
        manager = TaskManager(include_path=tmp_path, include_defaults=False)
        assert [each.what for each in validate(manager, ["t"]) if each.serious] == [problem.what]


def test_two_functions_of_one_name_are_refused_when_they_are_loaded(tmp_path: Path) -> None:
    written(
        tmp_path,
        "metric_list: [{metric: !function own.m, aggregation: mean}, {metric: !function own.also_named, aggregation: mean}]\n",
    )
    asked: list[str] = []
    with pytest.raises(ConfigError, match="two rows are named 'm'"):
        run(tmp_path, noting(asked))
    assert asked == []


@pytest.mark.parametrize("yaml", [
    "filter_list: [{name: a, filter: [{function: take_first}]}, {name: b, filter: [{function: take_first}]}]\n",
    "filter_list: [{name: a, filter: [{function: take_first}], metric_list: [{metric: exact_match}]}, {name: b, filter: [{function: take_first}], metric_list: [{metric: exact_match, ignore_case: true}]}]\n",
    "metric_list: [{metric: exact_match}, {metric: !function own.m, aggregation: mean}]\n",
    "metric_list: [{metric: precision_by_class, labels: [a]}, {metric: recall_by_class, labels: [a]}]\n",
    SAMPLED + "repeats: 2\nmetric_list: [{metric: exact_match, reduction: pass@2}, {metric: token_f1, reduction: pass@2}]\nfilter_list: [{name: a, filter: [{function: take_first_k, k: 2}]}]\n",
])  # fmt: skip
def test_rows_of_different_names_or_filters_are_not_refused(yaml: str, tmp_path: Path) -> None:
    written(tmp_path, yaml)
    assert run(tmp_path, noting([]))["results"]["t"]
    assert [
        each for each in validate(TaskManager(include_path=tmp_path, include_defaults=False), ["t"]) if each.serious
    ] == []


def test_one_metric_in_two_filters_is_aggregated_as_each_filter_says(tmp_path: Path) -> None:
    yaml = """
        filter_list:
          - {name: a, filter: [{function: take_first}], metric_list: [{metric: exact_match, aggregation: median}]}
          - {name: b, filter: [{function: take_first}], metric_list: [{metric: exact_match, aggregation: mean}]}
        """
    row = generate(tmp_path, ["a", "a", "x"], ["a", "a", "a"], yaml)["results"]["t"]
    assert (row["exact_match,a"], row["exact_match,b"]) == (1.0, pytest.approx(2 / 3))


# --- names known only during the run -----------------------------------------------------------------------------------

KEYS = {
    "a comma": ("{'f1,macro': 0.5, 'fine': 1.0}", "'f1,macro'"),
    "a standard error": ("{'fine_stderr': 0.5, 'fine': 1.0}", "'fine_stderr'"),
    "a reserved name": ("{'alias': 0.5, 'fine': 1.0}", "'alias'"),
    "a name of the samples": ("{'target': 0.5, 'fine': 1.0}", "'target'"),
    "an empty name": ("{'': 0.5, 'fine': 1.0}", "''"),
    "a pair": ("{('a', 'b'): 0.5, 'fine': 1.0}", "('a', 'b')"),
    "two of one name": ("{1: 0.5, '1': 0.25, 'fine': 1.0}", "'1'"),
}


@pytest.mark.parametrize("case", KEYS)
@pytest.mark.parametrize("entry_point", ["process_results", "metric", "score"])
def test_an_invalid_row_name_that_appears_only_during_the_run_fails_its_row(
    entry_point: str, case: str, tmp_path: Path
) -> None:
    keys, said = KEYS[case]
    (tmp_path / "own.py").write_text(dedent(f"""
        from assay import GenerationScorer

        def process_results(doc, results):
            return {keys}

        def metric(references, predictions):
            return {keys}

        class Own(GenerationScorer):
            def score(self, reference, predictions):
                return {keys}
        """))  # fmt: skip
    yaml = {
        "process_results": "process_results: !function own.process_results",
        "metric": "metric_list: [{metric: !function own.metric, aggregation: mean}]",
        "score": "scorer: !function own.Own",
    }[entry_point]
    results = generate(tmp_path, ["a", "b"], ["a", "b"], yaml)
    rows = results["results"]["t"]
    assert rows["fine,none"] == 1.0
    assert {key for key in rows if "," in key} == {"fine,none", "fine_stderr,none"}
    account = results["assay"]["tasks"]["t"]
    assert account["failed"] == 2
    [reason] = account["reasons"]
    assert said in reason.replace('"', "'") or said in reason


def test_a_key_that_is_another_metrics_name_fails_that_row(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def several(references, predictions):\n    return {'exact_match': 0.25, 'more': 0.5}\n"
    )
    yaml = "metric_list: [{metric: exact_match}, {metric: !function own.several, aggregation: mean}]\n"
    results = generate(tmp_path, ["a"], ["a"], yaml)
    assert results["results"]["t"]["more,none"] == 0.5
    assert "exact_match,none" not in results["results"]["t"]
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "'several' returns 'exact_match'" in reason


def test_with_compat_the_later_of_two_wins_as_in_lm_eval(tmp_path: Path) -> None:
    yaml = """
        metric_list: [{metric: exact_match, aggregation: median}, {metric: exact_match, ignore_case: true, aggregation: mean}]
        filter_list:
          - {name: f, filter: [{function: regex, regex_pattern: "(nothing)"}, {function: take_first}]}
          - {name: g, filter: [{function: take_first}]}
          - {name: f, filter: [{function: take_first}]}
        """
    results = generate(tmp_path, ["A", "b", "x"], ["a", "b", "c"], yaml, compat="lm-eval")
    rows = {key: value for key, value in results["results"]["t"].items() if "," in key and "stderr" not in key}
    assert rows == {"exact_match,f": pytest.approx(2 / 3), "exact_match,g": pytest.approx(2 / 3)}
    assert rows_of(results, "t")["exact_match,f"]["n"] == 3


# --- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("entries", "said", "lines"), [
    ("- {metric: exact_match}\n- {metric: exact_match, aggregation: min}", "two entries make the row 'exact_match': the other one is at", (4, 5)),
    ("- {metric: exact_match, filter_list: [none, x]}\n- {metric: exact_match, filter_list: [none]}", "two entries make the row 'exact_match'", (4, 5)),
    ("- {metric: exact_match, filter_list: none}\n- {metric: exact_match}", "two entries make the row 'exact_match'", (4, 5)),
    ("- {metric: exact_match}\n- {metric: exact_match, filter_list: none}", "two entries make the row 'exact_match'", (4, 5)),
    ("- {metric: exact_match, name: 'a,b'}", "a row cannot be named 'a,b'", (4,)),
    ("- {metric: exact_match, name: alias}", "a row cannot be named 'alias'", (4,)),
    ("- {metric: exact_match, name: all_stderr}", "a row cannot be named 'all_stderr'", (4,)),
])  # fmt: skip
def test_group_rows_of_the_same_name_are_refused(entries: str, said: str, lines: Any, tmp_path: Path) -> None:
    written(tmp_path, "")
    text = f"group: g\ntask: [t]\naggregate_metric_list:\n{indent(entries, '  ')}\n"
    (tmp_path / "g.yaml").write_text(text)
    asked: list[str] = []
    with pytest.raises(ConfigError) as error:
        run(tmp_path, noting(asked), "g")
    assert asked == []
    problem = next(each for each in error.value.problems if said in each.what)
    assert problem.place.line == lines[-1]
    assert len(lines) == 1 or f"g.yaml:{lines[0]}:" in problem.what
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    assert problem.what in [each.what for each in validate(manager, ["g"])]


@pytest.mark.parametrize(("built", "row", "said"), [
    ("{'exact_match': 0.5}", "exact_match,none", "two numbers of the group have this name"),
    ("{'a': [1.0]}", "a,none", "a value of type 'list', not a number"),
    ("{'a': None}", "a,none", "a value of type 'NoneType', not a number"),
    ("{'a': '0.5'}", "a,none", "a value of type 'str', not a number"),
    ("{'a_stderr': 0.5}", "a,none", "standard error"),
    ("{'a,b,c': 0.5}", "a,b,none", "a comma"),
])  # fmt: skip
def test_an_invalid_result_of_a_group_scorer_is_reported_in_its_row(
    built: str, row: str, said: str, tmp_path: Path
) -> None:
    written(tmp_path, "")
    (tmp_path / "own.py").write_text(f"def scorer(group, results):\n    return {{**{built}, 'fine': 0.25}}\n")
    (tmp_path / "g.yaml").write_text(
        "group: g\ntask: [t]\ngroup_scorer: !function own.scorer\naggregate_metric_list: [{metric: exact_match}]\n"
    )
    results = run(tmp_path, noting([]), "g")
    assert results["results"]["g"]["fine,none"] == 0.25
    known = rows_of(results, "g")[row]
    assert known["value"] is None and said in known["reason"]


def test_numbers_of_numpys_from_a_group_scorer_are_numbers(tmp_path: Path) -> None:
    written(tmp_path, "")
    (tmp_path / "own.py").write_text(
        "import numpy\n\n\ndef scorer(group, results):\n    return {'a': numpy.float32(0.5), 'b': numpy.array(2), 'c,x': numpy.int64(3)}\n"
    )
    (tmp_path / "g.yaml").write_text("group: g\ntask: [t]\ngroup_scorer: !function own.scorer\n")
    row = run(tmp_path, noting([]), "g")["results"]["g"]
    assert (row["a,none"], row["b,none"], row["c,x"]) == (0.5, 2.0, 3.0)


# --- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new", "said"), [
    ('- name: "exact_match"\n', '- name: "exact_match"\n          as: "a,b_result"\n', "a unit metric cannot write 'a,b_result': a comma"),
    ('- name: "exact_match"\n', '- name: "exact_match"\n          as: alias\n', "a unit metric cannot write 'alias'"),
    ('- name: "accuracy"\n', '- name: "accuracy"\n          as: "a,b"\n', "an aggregator cannot be called 'a,b': a comma"),
    ("exact_match_result", "accuracy_result", "two rows are named 'accuracy': the other one is of the unit metric at"),
])  # fmt: skip
def test_graph_rows_of_the_same_name_are_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    graph = dedent(QUESTION_ANSWERING)
    if old == "exact_match_result":  # the field of a unit metric, called as a number of the report is
        graph = graph.replace('- name: "exact_match"\n', f'- name: "exact_match"\n          as: {new}\n')
    folder = write_graph(tmp_path, RECORDS, graph.replace(old, new))
    asked: list[str] = []
    with pytest.raises(ConfigError) as error:
        simple_evaluate(noting(asked), tasks=[str(folder)])
    assert asked == []
    problem = next(each for each in error.value.problems if said in each.what)
    assert problem.place.line > 0 and problem.fix
