"""Every block of the five seed documents is run: here what the tests of groups, benchmarks, graphs and scorers do not run."""

import __future__

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import make_seeds

import assay
import run_world
from assay import GenerateTask, Instance, StandardGroup, Task, TaskConfig, TaskManager
from assay.errors import ConfigError
from assay.graphs.collate import MetricCollatorPostProcessor
from graph_world import CLASSIFICATION, QUESTION_ANSWERING, the_file, write_graph
from group_world import config_of, group_file, scored
from seed_blocks import COPIES, DOCUMENTS, blocks, classes, copied
from small_runs import ANYTHING, generate, run, says, write_task
from test_seed_scorers import BY_FILTER

ROOT = Path(__file__).parent.parent


# --- the copies and the page -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="the seed documents are not beside this checkout")
def test_the_copies_are_the_blocks_of_the_documents() -> None:
    documents = {path.name[:3]: path.read_text(encoding="utf-8") for path in DOCUMENTS.glob("*.txt")}
    assert sorted(documents) == ["000", "001", "002", "003", "004"]
    expected = {block.file: block.text for name, text in documents.items() for block in blocks(name, text)}
    assert len(expected) == 57
    assert {str(path.relative_to(COPIES)): path.read_text() for path in COPIES.glob("0*/*")} == expected


def test_blocks_are_found_between_fences_and_in_pages_without_them() -> None:
    fenced = "Text\n\n```python\na = 1\n```\n1. One\n   ```yaml\n   - b\n   ```\n```\n→\n```\n"
    assert [(each.file, each.text) for each in blocks("901", fenced)] == [
        ("901/01.py", "a = 1\n"), ("901/02.yaml", "- b\n"), ("901/03.txt", "→\n"),
    ]  # fmt: skip
    page = (
        "Words here\n\ngroup: g\ntask:\n  - a\n\n  - b\n\nMore words\n\n# Why\nlm-eval run x\n\n# Or\nlm-eval run y\n"
    )
    assert [(each.file, each.text) for each in blocks("902", page)] == [
        ("902/01.yaml", "group: g\ntask:\n  - a\n\n  - b\n"),
        ("902/02.sh", "# Why\nlm-eval run x\n\n# Or\nlm-eval run y\n\n"),
    ]


def test_every_block_is_run_by_a_test_or_has_a_reason() -> None:
    files = {str(path.relative_to(COPIES)) for path in COPIES.glob("0*/*")}
    table = make_seeds.read_table(ROOT)
    assert set(table["not_run"]) <= files
    assert files - set(make_seeds.tests_of_blocks(ROOT)) == set(table["not_run"])
    assert all(len(reason.split()) > 3 for reason in table["not_run"].values())


def test_the_page_of_requirements_is_up_to_date() -> None:
    assert (ROOT / "docs/seeds.md").read_text(encoding="utf-8") == make_seeds.page(ROOT), (
        "run `python tools/make_seeds.py docs/seeds.md`"
    )


def test_the_page_names_only_tests_that_exist() -> None:
    assert make_seeds.missing_tests(ROOT, "`test_seed_groups.py::test_the_basic_group_by_hand`") == []
    assert make_seeds.missing_tests(ROOT, "`test_none.py::test_it`") == ["test_none.py::test_it"]
    assert make_seeds.missing_tests(ROOT, make_seeds.page(ROOT)) == []


# --- 000 -------------------------------------------------------------------------------------------------------------

GROUPS: dict[str, Any] = {
    "__name__": "seed", "List": list, "Dict": dict, "Callable": Callable, "GroupConfig": assay.GroupConfig, "TaskConfig": TaskConfig,
    "Task": Task, "AggregatorFactory": assay.AggregatorFactory, "NoOpAggregator": assay.NoOpAggregator,
}  # fmt: skip


def defined(*files: str, **names: Any) -> dict[str, Any]:
    """The names that blocks of 000 define, one after the other; annotations are text, since some name what follows later."""
    known = {**GROUPS, **names}
    for file in files:
        exec(compile(copied(file), file, "exec", __future__.annotations.compiler_flag, dont_inherit=True), known)
    return known


def entries(*, aggregation: str = "mean", by_size: bool = True) -> list[dict[str, Any]]:
    return [{"metric": "acc", "aggregation": aggregation, "weight_by_size": by_size, "filter_list": "none"}]


def group_config(name: str, *members: str, **keys: Any) -> assay.GroupConfig:
    return config_of({"group": name, "task": list(members), **keys})


def task(name: str) -> Task:
    return Task(TaskConfig(task=name))


NUMBERS = {"a": {"acc,none": 0.5, "samples": 1}, "b": {"acc,none": 1.0, "samples": 3}}


def whole(kind: type) -> Any:
    """A group class of the seed with the method that its base leaves abstract although it has a body."""
    return type(kind.__name__, (kind,), {"get_direct_children": lambda self: self.children})


def test_the_seeds_own_groups_hold_tasks_and_delegate_their_numbers() -> None:
    names = defined("000/05.py", "000/06.py", "000/07.py")
    names |= {name: whole(names[name]) for name in ("StandardGroup", "TagGroup")}
    outer = names["StandardGroup"](group_config("outer", "inner", aggregate_metric_list=entries(by_size=False)))
    inner = names["StandardGroup"](group_config("inner", "a"))
    a, b = task("a"), task("b")
    for group, child in ((outer, inner), (inner, a), (outer, b)):
        group.add_child(child)
    assert outer.get_all_tasks() == [a, b]
    assert (outer.get_subtasks(0), outer.get_subtasks(1), outer.get_subtasks()) == ([], [b], [a, b])
    assert outer.get_direct_children() == [inner, b]
    assert (outer.depth(), inner.depth(), inner.is_leaf(), outer.is_leaf()) == (0, 1, True, False)
    seen: list[str] = []
    outer.traverse(lambda node: seen.append(node.name))
    assert seen == ["outer", "inner", "a", "b"]
    tag = names["TagGroup"]("hard", "hard ones")
    tag.add_child(a)
    assert (tag.get_all_tasks(), tag.alias, a.tags) == ([a], "hard ones", ["hard"])
    with pytest.raises(TypeError, match="cannot contain subgroups"):
        tag.add_child(inner)


@pytest.mark.parametrize(
    ("aggregation", "by_size", "expected"),
    [("mean", True, (0.5 + 3 * 1.0) / 4), ("mean", False, 0.75), ("harmonic_mean", False, 2 / (1 / 0.5 + 1))],
)
@pytest.mark.parametrize("base", ["the seed's", "assay's"])
def test_the_seeds_own_aggregators_give_the_numbers_of_their_formulas(
    base: str, aggregation: str, by_size: bool, expected: float
) -> None:
    """Over the seed's Aggregator, and each class pasted over assay.Aggregator; the factory is the seed's in both."""
    from abc import ABC, abstractmethod

    known = {
        **GROUPS,
        "ABC": ABC,
        "abstractmethod": abstractmethod,
        "Group": assay.Group,
        "Aggregator": assay.Aggregator,
    }
    own = [text for name, text in classes("000/08.py").items() if base == "the seed's" or name != "Aggregator"]
    exec(compile("\n\n".join(own), "000/08.py", "exec", dont_inherit=True), known)
    config = group_config("g", "a", "b", aggregate_metric_list=entries(aggregation=aggregation, by_size=by_size))
    group = StandardGroup[Task](config)
    for name in NUMBERS:
        group.add_child(task(name))
    aggregator = known["AggregatorFactory"].create_aggregator(config)
    assert aggregator.aggregate(group, NUMBERS) == {"acc,none": pytest.approx(expected)}


def test_the_seeds_own_task_and_manager_know_each_other() -> None:
    from abc import ABC

    names = defined("000/05.py", "000/06.py", "000/09.py", "000/10.py", ABC=ABC)
    own = names["Task"](TaskConfig(task="a"))
    group = whole(names["StandardGroup"])(group_config("g"))
    own.add_to_group(group)
    assert group in own.groups and group.get_all_tasks() == [own] and own.tags == []
    names = defined("000/05.py", "000/06.py", "000/10.py")
    names["StandardGroup"] = whole(names["StandardGroup"])
    manager = names["GroupManager"]()
    manager.register_task(task("a"))
    manager.build_hierarchy({"g": group_config("g", "a", "h"), "h": group_config("h")})
    assert [each.name for each in manager.get_tasks_for_group("g")] == ["a"]
    assert [each.name for each in manager.get_groups_for_task("a")] == ["g"]
    seen: list[str] = []
    manager.traverse_hierarchy(lambda node: seen.append(node.name), manager.groups["g"])
    assert seen == ["g", "a", "h"]
    assert manager.compute_all_group_metrics(NUMBERS) == {"g": {}, "h": {}}


def test_the_seeds_lines_about_tasks_and_groups_run(capsys: pytest.CaptureFixture[str]) -> None:
    math_group, hard_group = (StandardGroup[Task](group_config(name)) for name in ("math", "hard"))
    problem = task("gsm8k")
    defined("000/14.py", math_task=problem, math_group=math_group, hard_tasks_group=hard_group)
    assert problem.groups == [math_group, hard_group]
    defined("000/13.py", "000/15.py", task=problem, group=math_group)
    assert capsys.readouterr().out.splitlines() == ["math", "gsm8k"]
    defined("000/16.py", group=math_group)
    assert math_group.metadata["difficulty"] == "medium"
    names = defined("000/18.py", StandardGroup=StandardGroup, Aggregator=assay.Aggregator)
    assert isinstance(names["DomainGroup"](group_config("d")), assay.Group)
    assert names["GeometricMeanAggregator"](group_config("d")).aggregate(math_group, {}) is None  # its body is `...`


FRAGMENTS = {
    "000/12.yaml": {"f1,none", "pass@1,none"},
    "000/17.py": {"exact_match,flexible-extract", "exact_match,strict-match"},
}


@pytest.mark.parametrize("file", FRAGMENTS)
def test_the_seeds_parts_of_group_files_are_keys_of_a_group(file: str, tmp_path: Path) -> None:
    """The second is YAML that the document calls Python; its metric has two filters."""
    filters = "filter_list: [{name: strict-match, filter: [{function: take_first}]}, {name: flexible-extract, filter: [{function: take_first}]}]\n"
    metrics: dict[str, list[float | None]] = {"f1": [0.5, 1.0], "pass@1": [1.0, 0.0], "exact_match": [1.0, 1.0]}
    for name in "ab":
        scored(tmp_path, name, more=filters if file.endswith("py") else "", **metrics)  # type: ignore[arg-type]
    group_file(tmp_path, f"group: g\ntask: [a, b]\n{copied(file)}")
    groups = run(tmp_path, ANYTHING, "g")["groups"]["g"]
    assert FRAGMENTS[file] <= set(groups)
    assert groups.get("f1,none", 0.75) == pytest.approx(0.75)
    assert groups.get("exact_match,strict-match", 1.0) == 1.0


def test_the_seeds_open_questions_have_an_answer(tmp_path: Path) -> None:
    for name, value in (("taskA", 1.0), ("taskB", 0.0)):
        scored(tmp_path, name, acc=[value, value])
    group_file(tmp_path, f"group: g\n{copied('000/23.yaml')}")
    with pytest.raises(ConfigError, match="if"):  # the form that works is in the message
        run(tmp_path, ANYTHING, "g")
    group_file(
        tmp_path, f"group: g\ntask: [taskA, taskB]\naggregate_metric_list: [{{metric: acc}}]\n{copied('000/24.yaml')}"
    )
    assert run(tmp_path, ANYTHING, "g")["groups"]["g"]["acc,none"] == 0.5  # the best 5 of 2


# --- 001, 004: the YAML ----------------------------------------------------------------------------------------------


def test_the_seeds_task_with_three_filters_is_run(tmp_path: Path) -> None:
    """`group_select: 1` asks for a second match, which no answer has: the strict filter gives no credit."""
    rows = [{"q": "0", "gold": "blue"}, {"q": "1", "gold": "green"}]
    write_task(tmp_path, rows, "doc_to_text: q\ndoc_to_target: gold\n", "my_custom_task")
    own = (tmp_path / "my_custom_task.yaml").read_text().split("\n", 1)[1]
    (tmp_path / "my_custom_task.yaml").write_text(copied("001/10.yaml") + own)
    results = run(tmp_path, says(["Blue. Answer: Blue", "red"]), "my_custom_task")["results"]["my_custom_task"]
    assert results["exact_match,flexible-extract"] == 0.5
    assert results.get("exact_match,strict-match", 0.0) == 0.0
    assert 0 < results["rouge1,no-filter"] < 1
    assert results["bleu,flexible-extract"] > 0


@pytest.mark.parametrize("file", ["004/05.yaml", "004/06.yaml"])
def test_the_seeds_two_ways_to_say_metrics_are_run(file: str, tmp_path: Path) -> None:
    text = copied(file).replace("[...]", "[{function: take_first}]")  # what the document leaves out
    results = generate(tmp_path, ["k b", "x"], ["k", "x"], text)["results"]["t"]
    assert results["exact_match,strict-match"] == results["exact_match,flexible-extract"] == 0.5
    assert results["f1_score,flexible-extract"] == pytest.approx((2 / 3 + 1) / 2)
    assert ("f1_score,strict-match" in results) is (file == "004/06.yaml")


def test_the_seeds_fallback_to_the_tasks_metrics_runs() -> None:
    names = {"self": GenerateTask(BY_FILTER)}
    exec(compile(copied("004/07.py"), "004/07.py", "exec"), names)
    assert [metric.name for metric in names["metrics"]] == ["exact_match"]  # type: ignore[attr-defined]  # of the filter `c`
    [one] = names["self"].process_instances([Instance({}, target="x", resps=["x"])])["exact_match", "c"]
    assert one == 1.0


# --- 002, 003: commands, and parts of graphs -------------------------------------------------------------------------


def commands(file: str) -> list[list[str]]:
    joined = copied(file).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in joined.splitlines() if shlex.split(line, comments=True)]


def test_the_seeds_paths_are_taken_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As written, but for a program called lm-eval and a model that is there."""
    from assay.cli import main

    for name in ("mmlu_abstract_algebra", "mmlu_anatomy", "cb", "anli_r1", "rte"):
        scored(tmp_path, name, acc=[1.0, 0.0])
    group_file(tmp_path, copied("002/09.yaml"), "mmlu")
    group_file(tmp_path, copied("002/01.yaml"), "nli")
    group_file(tmp_path, "group: my_benchmark\ntask: [nli_tasks, mmlu]\n", "benchmark")
    written = commands("002/06.sh")
    assert len(written) == 2
    for number, words in enumerate(written):
        assert words[0] == "lm-eval" and words[-4:] == ["--model", "hf", "--model_args", "pretrained=gpt2"]
        out = tmp_path / f"out{number}"
        assert main([*words[1:-4], "--model", "dummy", "--include_path", str(tmp_path), "--output_path", str(out)]) == 0
        ran = run_world.results(out)["configs"]
        assert list(ran) == [["mmlu_anatomy"], ["cb"]][number]
    loading = copied("002/07.py").replace("from lm_eval.tasks import TaskManager\n", "")  # comes with step 8
    names: dict[str, Any] = {"TaskManager": lambda: TaskManager(include_path=tmp_path, include_defaults=False)}
    exec(compile(loading, "002/07.py", "exec"), names)
    assert list(names["loaded"]["tasks"]) == ["mmlu_anatomy"]


@pytest.mark.parametrize("file", ["003/01.sh", "003/02.sh", "003/03.sh"])
def test_the_seeds_commands_for_graphs_run(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows `main.py`, as written but for the folder, and with a model that is there and says nothing useful."""
    from assay.cli import main

    monkeypatch.chdir(tmp_path)
    records = [{"task_id": n, "problem": "?", "answer": "x", "topic": "Music"} for n in range(60)]
    write_graph(tmp_path, records)
    write_graph(tmp_path, records, CLASSIFICATION, kind="classification")
    [words] = commands(file)
    assert words[:4] == ["uv", "run", "python", "main.py"]
    out = tmp_path / "out"
    own = ["" if each == "/abs/path/to/my_eval_outputs" else each for each in words[4:]]
    flags = [str(out) if each == "" else each for each in own]
    more = [] if "--output_dir" in flags else ["--output_dir", str(out)]
    assert main(["run", *flags, *more, "--model", "dummy"]) == 0
    assert len(the_file(out, "output_*.json")) == 50
    [report] = the_file(out, "MetricCollatorPostProcessor_*.json")
    assert report["evaluation_summary"]["total_records"] == 50
    assert report["results"]["accuracy"] == {"accuracy": 0.0}


def test_the_seeds_parts_of_graphs_are_those_of_the_graphs_that_the_tests_run() -> None:
    nodes = yaml.safe_load(QUESTION_ANSWERING)["graph_config"]["nodes"]
    assert nodes["unit_metrics"] == yaml.safe_load(copied("003/05.yaml"))["unit_metrics"]
    ours, seeds = (yaml.safe_load(each)["graph_post_process"][0] for each in (CLASSIFICATION, copied("003/06.yaml")))
    assert ours["processor"] == seeds["processor"]
    named = {each["name"]: each for each in ours["params"]["aggregator_metrics_map"]}
    assert all(named[each["name"]] == each for each in seeds["params"]["aggregator_metrics_map"])


def test_the_report_has_the_keys_of_the_seeds() -> None:
    names = ("accuracy", "precision", "recall", "f1_score")
    records = [
        {"exact_match_result": {"correct": said == right, "golden": {"text": right}, "predicted": {"text": said}}}
        for said, right in (("Music", "Music"), ("Politics", "Music"), ("Other", "Other"), ("Politics", "Politics"))
    ]
    params = (
        {"key": "text"},
        {"predicted_key": "text"},
        {"golden_key": "text"},
        {"predicted_key": "text", "golden_key": "text"},
    )
    metrics_map = [
        {"name": name, "params": keys, "unit_metrics_results": ["exact_match_result"]}
        for name, keys in zip(names, params, strict=True)
    ]
    [ours] = MetricCollatorPostProcessor(metrics_map).process(records, {"compat": "sygra"})
    [seeds] = json.loads(copied("003/04.json"))
    assert list(ours) == list(seeds)
    assert list(ours["evaluation_summary"]) == list(seeds["evaluation_summary"])
    assert {name: set(each) for name, each in ours["results"].items()} == {name: set(each) for name, each in seeds["results"].items()}  # fmt: skip
    assert set(ours["results"]["precision"]["precision_per_class"]) == {"Music", "Politics", "Other"}
