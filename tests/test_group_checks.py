"""Mistakes in groups: `validate` and `run`, before any request, refuse each with the same place and remedy."""

from pathlib import Path

import pytest

from assay import ConfigError, TaskManager
from assay.tasks.validate import validate
from group_world import group_file
from small_runs import ANYTHING, noting, run, write_task

CHOICE = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [a, b]\ndoc_to_target: gold\nmetric_list: [{metric: acc}]\n"
WRITTEN = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: exact_match}]\n"
SAMPLED = "generation_kwargs: {do_sample: true, temperature: 1.0, until: []}\n"
FILTERS = (
    "filter_list:\n  - {name: first, filter: [{function: take_first}]}\n"
    "  - {name: some, filter: [{function: take_first_k, k: 4}]}\n"
)


def world(folder: Path) -> None:
    rows = [{"q": "one", "gold": "a"}, {"q": "two", "gold": "b"}]
    for name in ("ta", "tb"):
        write_task(folder, rows, CHOICE, name)
    write_task(folder, rows, WRITTEN + SAMPLED + "repeats: 10\n" + FILTERS, "often")
    write_task(folder, rows, WRITTEN, "once")
    (folder / "own.py").write_text("def number(group):\n    return 1.0\n\nclass Other:\n    pass\n")


MEMBERS = "task: [ta, tb]\naggregate_metric_list:\n"
MISTAKES = {
    # the group without its first line; line and column; the problem; the remedy
    "aggregator": (MEMBERS + "  - metric: acc\n    aggregation: harmonicmean\n", "5:18",
                   "no aggregator named 'harmonicmean'", "did you mean 'harmonic_mean'?"),
    "parameter": ("task: often\naggregate_metric_list:\n  - {metric: pass@4, aggregation: pass@k, kwargs: {kk: 4}}\n",
                  "4:56", "aggregator 'pass@k' has no parameter 'kk'", "did you mean 'k'?"),
    "value of a parameter": ("task: often\naggregate_metric_list:\n  - {metric: p, aggregation: pass@k, kwargs: {k: x}}\n",
                             "4:50", "aggregator 'pass@k': 'k' cannot be 'x'", "it must be of type int"),
    "function": (MEMBERS + "  - metric: acc\n    aggregation: !function own.number\n", "5:18",
                 "aggregator 'number' must take 2 arguments by position", "correct its signature"),
    "missing function": (MEMBERS + "  - metric: acc\n    aggregation: !function own.numbr\n", "5:18",
                         "own.py has no 'numbr'", "did you mean 'number'?"),
    "group scorer": ("task: ta\ngroup_scorer: !function own.number\n", "3:15",
                     "group_scorer 'number' must take 2 arguments by position", "correct its signature"),
    "metric": (MEMBERS + "  - metric: f1\n", "4:13", "no task of the group has the metric 'f1'", "use one of: acc"),
    "metric of some": ("task: [ta, once]\naggregate_metric_list:\n  - metric: acc\n", "4:13",
                       "once: no metric 'acc'", "add `missing: skip`"),
    "filter": (MEMBERS + "  - metric: acc\n    filter_list: [strict]\n", "5:18",
               "no task of the group has 'acc' of filter 'strict'", "use one of: none"),
    "member of a filter": (MEMBERS + "  - metric: acc\n    filter_list: {tc: none}\n", "5:18",
                           "no member named 'tc'", "use one of: ta, tb"),
    "member of a difference": (MEMBERS + "  - {metric: acc, aggregation: difference, kwargs: {of: [ta, tc]}}\n", "4:52",
                               "no member named 'tc'", "use one of: ta, tb"),
    "difference of one": ("task: ta\naggregate_metric_list: [{metric: acc, aggregation: difference}]\n", "3:25",
                          "a difference takes two members, and the group has 1", "add `kwargs: {of: [ta, b]}`"),
    "weights": (MEMBERS + "  - {metric: acc, aggregation: weighted_sum, kwargs: {weights: {ta: 1.0}}}\n", "4:54",
                "no weight is given for tb", "add `tb: 1.0` to its weights"),
    "weights of a stranger": (MEMBERS + "  - {metric: acc, aggregation: weighted_sum, kwargs: {weights: {ta: 1, tb: 1, x: 1}}}\n",
                          "4:54", "weights: no member named 'x'", "use one of: ta, tb"),
    "two rows": (MEMBERS + "  - metric: acc\n  - metric: acc\n    weight_by_size: false\n", "5:5",
                 "two entries make the row 'acc'", "give one of them a `name`"),
    "group filter": ("task: [ta, tb]\ngroup_filter: {topk: 1}\n", "3:15",
                     "no group filter named 'topk'; use one of: only, exclude, top_k", 'top_k: 5}`'),
    "top_k": ("task: [ta, tb]\ngroup_filter: {top_k: many}\n", "3:15", "top_k must be a whole number, got 'many'", "top_k: 5}`"),
    "filter of all members": ("task: [ta, tb]\ngroup_filter: {only: tz*}\naggregate_metric_list: [{metric: acc}]\n", "3:15",
                    "leaves no member", "there are: ta, tb"),
    "condition": ("task:\n  - {task: ta, if: 'model.size >> 7'}\n", "3:20",
                  "invalid condition: 'model.size >> 7' is not supported", "use names, numbers, texts, comparisons"),
    "condition in words": ("task:\n  - {task: ta, if: 'model_size > 7B'}\n", "3:20",
                           "invalid condition: 'model_size > 7B' cannot be read", "write numbers out: 7B is 7e9"),
    "condition without a subject": ("task:\n  - {task: ta, if: 'params > 7'}\n", "3:20",
                                    "unknown name 'params'", "a name begins with model., run., metadata."),
    "assignment": ("task:\n  - {task: ta, if: 'model.name = 1'}\n", "3:20", "cannot be read", "compare with =="),
    "no members": ("metadata: {version: 1}\n", "1:8", "the group 'g' has no members", "list them under `task:`"),
    "one answer": ("task: often\naggregate_metric_list:\n"
                   "  - {metric: pass@10, aggregation: pass@k, kwargs: {k: 10}, filter_list: first}\n", "4:36",
                   "often: filter 'first' leaves 1 of 10 answers, and pass@10 needs 10",
                   "filter_list: [{name: all, filter: [{function: take_first_k, k: 10}]}]` to the task"),
    "one answer of several filters": ("task: often\naggregate_metric_list:\n  - {metric: p, aggregation: pass@k, kwargs: {k: 4}}\n",
                                      "4:30", "often: filter 'first' leaves 1 of 10 answers", "add `filter_list: some` to this entry"),
    "one repeat": ("task: once\naggregate_metric_list:\n  - {metric: p, aggregation: pass@k, kwargs: {k: 3}}\n", "4:30",
                   "once: filter 'none' leaves 1 of 1 answers, and pass@3 needs 3", "add `repeats: 3` and `filter_list:"),
    "kind of group": ("task: ta\ntype: Domian\n", "3:7", "no kind of group named 'Domian'", "!function module.Class"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_group_is_refused_by_validate_and_by_run(name: str, tmp_path: Path) -> None:
    text, place, what, fix = MISTAKES[name]
    world(tmp_path)
    group_file(tmp_path, f"group: g\n{text}")
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    reported = [str(problem) for problem in validate(manager, ["g"]) if problem.serious]
    assert len(reported) == 1, reported
    assert f"group_file.yaml:{place}: " in reported[0]
    assert what in reported[0].partition(" — ")[0]
    assert fix in reported[0].partition(" — ")[2]
    asked: list[str] = []
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, noting(asked), "g")
    assert str(refused.value) == reported[0], "the same message"
    assert not asked


RIGHT = {
    "pass@4 of the filter that leaves four": (
        "task: often\naggregate_metric_list:\n  - {metric: p, aggregation: pass@k, kwargs: {k: 4}, filter_list: some}\n"
    ),
    "rows of one name by filters that differ": (
        "task: often\naggregate_metric_list:\n"
        "  - {metric: exact_match, filter_list: some}\n  - {metric: exact_match, filter_list: first}\n"
    ),
    "rows of one name by filters of each member": (
        "task: often\naggregate_metric_list:\n"
        "  - {metric: exact_match, filter_list: {often: some}}\n  - {metric: exact_match, filter_list: {often: first}}\n"
    ),
    "pass@1 of one answer": "task: once\naggregate_metric_list: [{metric: pass@1, aggregation: pass@k}]\n",
    "some members without the metric": "task: [ta, once]\naggregate_metric_list: [{metric: acc, missing: skip}]\n",
    "a condition": "task: [{task: ta, if: 'model.params >= 7e9 and not run.limit == 5'}]\n",
    "a function of two": "task: ta\naggregate_metric_list: [{metric: acc, aggregation: !function right.best}]\n",
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_groups_have_no_problem(name: str, tmp_path: Path) -> None:
    world(tmp_path)
    (tmp_path / "right.py").write_text("def best(group, results):\n    return 1.0\n")
    group_file(tmp_path, f"group: g\n{RIGHT[name]}")
    assert validate(TaskManager(include_path=tmp_path, include_defaults=False), ["g"]) == []


def test_members_that_only_helper_code_names_are_not_refused(tmp_path: Path) -> None:
    """The rows of a task with process_results are known when it runs."""
    (tmp_path / "own.py").write_text("def rows(doc, results):\n    return {'mine': 1.0}\n")
    write_task(tmp_path, [{"q": "one", "gold": "a"}], WRITTEN + "process_results: !function own.rows\n", "t")
    group_file(tmp_path, "group: g\ntask: t\naggregate_metric_list: [{metric: mine}]\n")
    assert validate(TaskManager(include_path=tmp_path, include_defaults=False), ["g"]) == []


INLINE = """
  - task: fresh
    dataset_path: json
    dataset_kwargs: {data_files: {test: ta.jsonl}}
    test_splt: test
    output_type: multiple_choice
    doc_to_text: q
    doc_to_choice: [a, b]
    doc_to_target: gold
    metric_list: [{metirc: accc, aggregation: meen}]
"""
SEVERAL = {
    # the file without its first line; all that is wrong with it
    "an aggregator and a filter": (
        MEMBERS + "  - {metric: acc, aggregation: meen}\n  - {metric: acc, name: x, filter_list: strikt}\n",
        ["4:32: no aggregator named 'meen'", "5:41: no task of the group has 'acc' of filter 'strikt'"],
    ),
    "a member, an aggregator and a filter": (
        MEMBERS.replace("tb", "tc") + "  - {metric: acc, aggregation: meen}\n  - {metric: acc, name: x, filter_list: strikt}\n",
        ["2:12: no task, group or tag named 'tc'", "4:32: no aggregator named 'meen'",
         "5:41: no task of the group has 'acc' of filter 'strikt'"],
    ),
    "a key of an entry and a filter": (
        MEMBERS + "  - {metric: acc, agregation: mean}\n  - {metric: acc, name: x, filter_list: strikt}\n",
        ["4:19: unknown key 'agregation'", "5:41: no task of the group has 'acc' of filter 'strikt'"],
    ),
    "an entry of pass@k with a misspelled key": (
        "task: often\naggregate_metric_list: [{metric: p, agregation: pass@k, kwargs: {k: 4}, filter_list: some}]\n",
        ["3:37: unknown key 'agregation'"],
    ),
    "two functions, a group filter and a parameter": (
        "task: [ta]\ngroup_filter: {top: 1}\ngroup_scorer: !function own.nmber\naggregate_metric_list:\n"
        "  - {metric: acc, name: x, aggregation: !function own.numbr}\n  - {metric: acc, aggregation: median, kwargs: {drawz: 1}}\n",
        ["3:15: no group filter named 'top'", "4:15: own.py has no 'nmber'", "6:41: own.py has no 'numbr'",
         "7:56: aggregator 'median' has no parameter 'drawz'"],
    ),
    "an inline task and a number": (
        "task:" + INLINE + "  - {task: ta, num_fewshot: many, metric_list: [{metric: acc_nrom}]}\n",
        ["6:5: unknown key 'test_splt'", "11:20: unknown key 'metirc'", "11:19: no metric named 'accc'",
         "11:47: no aggregation named 'meen'", "12:29: num_fewshot must be a whole number",
         "12:58: no metric named 'acc_nrom'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_no_mistake_in_a_file_hides_another(name: str, tmp_path: Path) -> None:
    text, expected = SEVERAL[name]
    world(tmp_path)
    group_file(tmp_path, f"group: g\n{text}")
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    reported = [str(problem) for problem in validate(manager, ["g"]) if problem.serious]
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, ANYTHING, "g")
    for lines in (reported, str(refused.value).splitlines()):
        short = [line.partition("group_file.yaml:")[2].partition(" — ")[0] for line in lines]
        assert sorted(part for line in short for part in expected if line.startswith(part)) == sorted(expected), lines
        assert len(lines) == len(expected), lines


def test_no_mistake_in_a_task_hides_another_and_a_misspelled_key_is_not_missing(tmp_path: Path) -> None:
    keys = {"test_split": "test_splt", "doc_to_text": "doc_to_txt", "dataset_path": "dataset_pth"}
    world(tmp_path)
    text = (tmp_path / "ta.yaml").read_text().replace("metric: acc", "metric: accc")
    for key, slip in keys.items():
        text = text.replace(key, slip)
    text += "filter_list: [{name: f, filter: [{function: tak_first}]}]\nscorer: nope\nnum_fewshot: many\n"
    text += "formats: {one: {type: mcqq}}\nfewshot_config: {sampler: frist_n}\n"
    (tmp_path / "ta.yaml").write_text(text)
    expected = [f"unknown key {slip!r}" for slip in keys.values()] + [
        "no metric named 'accc'", "no filter named 'tak_first'", "no scorer named 'nope'", "no sampler named 'frist_n'",
        "num_fewshot must be a whole number", "no format named 'mcqq'",
    ]  # fmt: skip
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    reported = [str(problem) for problem in validate(manager, ["ta"]) if problem.serious]
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, ANYTHING, "ta")
    for lines in (reported, str(refused.value).splitlines()):
        assert sorted(part for line in lines for part in expected if part in line) == sorted(expected), lines
        assert len(lines) == len(expected), lines
