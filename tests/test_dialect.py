"""Each rule of a dialect: what it does in the program that has it, and that without this one rule assay does otherwise."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import assay
from assay import ConfigError, TaskManager, UnitMetricResult, UnitMetrics
from assay.config.run import RunConfig
from assay.config.task import MetricConfig, TaskConfig
from assay.dialect import (
    COMPAT_LM_EVAL,
    DIALECTS,
    LM_EVAL_FILES,
    OURS,
    Dialect,
    dialect_of,
    dialect_of_files,
    join,
)
from assay.errors import Place
from assay.evaluation.writing import logged_id
from assay.graphs.aggregator_registry import make_aggregator
from assay.graphs.collate import MetricCollatorPostProcessor, RecordCounts
from assay.graphs.transforms import CombineRecords
from assay.models import Scripted
from assay.records import Failed, Generate, Sample
from assay.samples.prompt import Prompter, RenderError
from assay.samples.rows import Rows
from assay.scoring.metric_binding import NO_HELPERS, MetricBinder
from assay.scoring.named import FirstToken
from assay.scoring.results import GENERATE, ResultBuilder
from assay.scoring.scores import RowRule, ScoreRules, check_scores
from assay.tasks.prepare import with_settings
from assay.tasks.prompt_checks import equal_prompts
from assay.tasks.settings import Settings
from assay.tasks.task import Task
from assay.tasks.validate import validate
from graph_world import CLASSIFICATION, the_file, write_graph
from run_world import rows_of
from serving import TALKING, Servers
from small_runs import SAMPLED, choose, generate, noting, processed, run, write_task
from test_graph_keys import CODE, edge, graph
from test_graphs import run as run_graph
from test_unfinished_agents import CODE as AGENT_CODE
from test_unfinished_agents import GRAPH as AGENT_GRAPH
from test_unfinished_agents import RECORDS as AGENT_RECORDS

ROOT = Path(__file__).parent.parent
REJECTED = "rejected"


@dataclass
class World:
    """Where a case is tried: an empty folder, and the `--compat` of its run."""

    folder: Path
    compat: str
    serve: Callable[[], str]

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self.compat)

    @property
    def manager(self) -> TaskManager:
        return TaskManager(include_path=self.folder, include_defaults=False, compat=self.compat)

    def outcome(self, act: Callable[[], Any]) -> Any:
        """What a function returns, or that it is rejected."""
        try:
            return act()
        except ConfigError:
            return REJECTED

    def load(self) -> Task:
        return self.manager.load("t")["tasks"]["t"]

    def generate(self, answers: Sequence[Any], golds: Sequence[object], yaml: str, **options: Any) -> Any:
        """The results of a task that generates, or that it is rejected."""
        return self.outcome(lambda: generate(self.folder, answers, golds, yaml, compat=self.compat, **options))

    def choose(self, golds: Sequence[object], yaml: str = "", **options: Any) -> Any:
        """The results of choices between x and y, of which x is always the likelier one, or that the task is rejected."""
        lls = [[-1.0, -2.0]] * len(golds)
        return self.outcome(lambda: choose(self.folder, lls, golds, ["x", "y"], yaml, compat=self.compat, **options))

    def asked(self, rows: Sequence[Mapping[str, object]], yaml: str, **options: Any) -> Any:
        """The prompts of a task, or that it is rejected."""
        prompts: list[str] = []
        write_task(self.folder, rows, yaml)
        ended = self.outcome(lambda: run(self.folder, noting(prompts), compat=self.compat, **options))
        return ended if ended == REJECTED else prompts


@dataclass(frozen=True)
class Case:
    """What a world shows where a rule holds, and where it does not."""

    observe: Callable[[World], Any]
    theirs: Any
    ours: Any


CASES: dict[str, Case] = {}


def case(rule: str, *, theirs: Any, ours: Any) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    """Declare the case of a rule: the function observes a world."""

    def declare(observe: Callable[[World], Any]) -> Callable[[World], Any]:
        assert rule not in CASES
        CASES[rule] = Case(observe, theirs, ours)
        return observe

    return declare


def row_of(results: dict[str, Any], metric: str, filter_name: str = "none") -> dict[str, Any]:
    row: dict[str, Any] = rows_of(results, "t")[f"{metric},{filter_name}"]
    return row


def number_of(results: Any, key: str) -> Any:
    return results if results == REJECTED else results["results"]["t"][key]


# --- files -----------------------------------------------------------------------------------------------------------

PLAIN = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
ROWS = [{"q": "1", "gold": "a"}, {"q": "2", "gold": "b"}]


@case("keeps_last_of_equal_keys", theirs="two", ours=REJECTED)
def _(world: World) -> Any:
    write_task(world.folder, ROWS, PLAIN + "description: one\ndescription: two\n")
    return world.outcome(lambda: world.load().config.description)


@case("takes_misspelled_keys_for_parameters", theirs=[False], ours=[True])
def _(world: World) -> Any:
    write_task(world.folder, ROWS, PLAIN + "metric_list: [{metric: exact_match, agregation: mean}]\n")
    problems = validate(world.manager)
    return [problem.serious for problem in problems if problem.what == "unknown key 'agregation'"]


@case("accepts_invalid_values", theirs=1, ours=REJECTED)
def _(world: World) -> Any:
    write_task(world.folder, ROWS, PLAIN + "repeats: null\n")
    return world.outcome(lambda: world.load().config.repeats)


@case("takes_name_from_include", theirs=["task", "task"], ours=["task", "template"])
def _(world: World) -> Any:
    write_task(world.folder, ROWS, PLAIN)
    (world.folder / "u.yaml").write_text("include: t.yaml\ndescription: one\n")
    [(_, snapshot)] = world.manager.catalog.index.parts
    return sorted(entry.kind for entry in snapshot.entries)


@case("accepts_spaces_in_names", theirs=["a b"], ours=[])
def _(world: World) -> Any:
    (world.folder / "t.yaml").write_text("task: a b\ndataset_path: x\n" + PLAIN)
    return [name for name in world.manager.all_tasks if world.manager.catalog.index.named[name].error == ""]


@case("accepts_misplaced_keys", theirs="one", ours=REJECTED)
def _(world: World) -> Any:
    write_task(world.folder, ROWS, PLAIN + "description: one\ngroup: g\n")
    return world.outcome(lambda: world.load().config.description)


@case("keeps_first_of_equal_files", theirs="one", ours=REJECTED)
def _(world: World) -> Any:
    for name, description in (("a", "one"), ("b", "two")):
        (world.folder / f"{name}.yaml").write_text(f"task: t\ndataset_path: x\ndescription: {description}\n{PLAIN}")
    return world.outcome(lambda: world.load().config.description)


@case("notes_what_cannot_run", theirs=[False], ours=[True])
def _(world: World) -> Any:
    (world.folder / "t.yaml").write_text("task: t\n" + PLAIN)
    return [problem.serious for problem in validate(world.manager) if "names no data" in problem.what]


@case("has_lm_evals_generate_format", theirs=32, ours=256)
def _(world: World) -> Any:
    return (world.manager.formats["generate"].generation_kwargs or {})["max_gen_toks"]


# --- data ------------------------------------------------------------------------------------------------------------


def read(world: World, name: str, text: str) -> list[Any]:
    """The column x of a file."""
    file = world.folder / name
    file.write_text(text)
    return [repr(row["x"]) for row in Rows([file], dialect=world.dialect)]


@case("gives_columns_one_type", theirs=["2.0", "0.5"], ours=["2", "0.5"])
def _(world: World) -> Any:
    return read(world, "d.jsonl", '{"x": 2}\n{"x": 0.5}\n')


@case("rounds_large_integers", theirs=["1.2345678901234569e+23"], ours=["'123456789012345678912345'"])
def _(world: World) -> Any:
    return read(world, "d.jsonl", '{"x": 123456789012345678912345}\n')


@case("reads_csv_as_pandas", theirs=["7", "8"], ours=["'007'", "'8'"])
def _(world: World) -> Any:
    return read(world, "d.csv", "x\n007\n8\n")


@case("keeps_python_objects", theirs=["datetime.date(1970, 1, 3)"], ours=["'1970-01-03'"])
def _(world: World) -> Any:
    file = world.folder / "d.parquet"
    pq.write_table(pa.table({"x": pa.array([2], pa.date32())}), file)
    return [repr(row["x"]) for row in Rows([file], dialect=world.dialect)]


@case("drops_last_window", theirs=[{"n": "0-1"}], ours=[{"n": "0-1"}, {"n": "1-2"}])
def _(world: World) -> Any:
    transform = CombineRecords()
    transform.run_dialect = world.dialect
    return transform.transform([{"n": n} for n in range(3)], {"combine": 2, "shift": 1, "join_column": {"n": "$1-$2"}})


# --- prompts ---------------------------------------------------------------------------------------------------------

SHOTS = "output_type: generate_until\ndoc_to_text: 'Q{{q}}'\ndoc_to_target: gold\n"


def numbered(count: int) -> list[dict[str, str]]:
    return [{"q": f"<{number}>", "gold": "a"} for number in range(count)]


def with_train(world: World, count: int) -> str:
    """Write examples to draw from, and return what a task says of its data."""
    (world.folder / "train.jsonl").write_text(
        "".join(json.dumps({"q": f"[{number}]", "gold": "a"}) + "\n" for number in range(count))
    )
    files = f"{{test: {world.folder / 't.jsonl'}, train: {world.folder / 'train.jsonl'}}}"
    return f"dataset_kwargs: {{data_files: {files}}}\nfewshot_split: train\n"


def overwrite(world: World, rows: Sequence[Mapping[str, object]], yaml: str) -> None:
    """Write the task t with all of its keys in `yaml`."""
    write_task(world.folder, rows, "")
    (world.folder / "t.yaml").write_text("task: t\ndataset_path: json\n" + yaml)


def prompts_of(world: World, **options: Any) -> list[str]:
    prompts: list[str] = []
    run(world.folder, noting(prompts), compat=world.compat, **options)
    return prompts


@case("draws_examples_from_evaluated_split", theirs=True, ours=False)
def _(world: World) -> Any:
    """Two examples of a split of three: each document but those drawn for others may be shown with its own answer."""
    files = f"dataset_kwargs: {{data_files: {{val: {world.folder / 't.jsonl'}}}}}\nvalidation_split: val\n"
    overwrite(world, numbered(3), files + "fewshot_split: val\nnum_fewshot: 2\n" + SHOTS)
    return any(prompt.count(prompt.rpartition("Q")[2]) > 1 for prompt in prompts_of(world))


@case("draws_examples_for_selection_alone", theirs=False, ours=True)
def _(world: World) -> Any:
    overwrite(world, numbered(9), with_train(world, 20) + "test_split: test\nnum_fewshot: 3\n" + SHOTS)
    whole = prompts_of(world)
    [alone] = prompts_of(world, samples={"t": [8]})
    return alone == whole[8]


@case("ignores_fewshot_indices", theirs=False, ours=True)
def _(world: World) -> Any:
    indices = "test_split: test\nnum_fewshot: 1\nfewshot_config: {fewshot_indices: [1]}\n"
    overwrite(world, numbered(9), with_train(world, 9) + indices + SHOTS)
    return all("Q[1]" in prompt for prompt in prompts_of(world))


@case("zero_shots_block_num_fewshot", theirs=0, ours=1)
def _(world: World) -> Any:
    overwrite(world, numbered(3), with_train(world, 9) + "test_split: test\nnum_fewshot: 0\n" + SHOTS)
    return sum(prompt.count("Q[") for prompt in prompts_of(world, num_fewshot=1)) // 3


@case("counts_shots_of_rolling_tasks", theirs=3, ours=0)
def _(world: World) -> Any:
    config = TaskConfig(task="t", output_type="loglikelihood_rolling")
    return with_settings(config, Settings(RunConfig(compat=world.compat, num_fewshot=3))).num_fewshot


NOTING = """
    from pathlib import Path
    import random

    def note(text):
        with Path(__file__).with_name("noted").open("a") as file:
            file.write(text + " ")

    def count(docs):
        note(str(len(docs)))
        return docs

    def draw(docs):
        note(str(random.random()))
        return docs
"""


def noted(world: World) -> list[str]:
    return (world.folder / "noted").read_text().split()


@case("prepares_unused_examples", theirs=True, ours=False)
def _(world: World) -> Any:
    (world.folder / "utils.py").write_text(dedent(NOTING))
    counted = "test_split: test\nprocess_docs: !function utils.count\n"
    overwrite(world, numbered(3), with_train(world, 7) + counted + SHOTS)
    prompts_of(world)
    return "7" in noted(world)


@case("keeps_one_random_stream", theirs=2, ours=1)
def _(world: World) -> Any:
    """Two tasks draw a number each, which are the same number where each begins anew."""
    (world.folder / "utils.py").write_text(dedent(NOTING))
    for name in ("t", "u"):
        write_task(world.folder, numbered(2), SHOTS + "process_docs: !function utils.draw\n", name)
    prompts_of(world, tasks=["t", "u"])
    return len(set(noted(world)))


@case("puts_system_instruction_before_question", theirs="Be brief.Q<0>", ours="Be brief.\n\nQ<0>")
def _(world: World) -> Any:
    [prompt] = world.asked(numbered(1), SHOTS, system_instruction="Be brief.")
    return prompt


@case("sends_mistakes_as_written", theirs=["questoin"], ours=REJECTED)
def _(world: World) -> Any:
    rows = [{"question": "1", "gold": "a"}, {"question": "2", "gold": "b"}]
    return world.asked(rows, "output_type: generate_until\ndoc_to_text: questoin\ndoc_to_target: gold\n")


def prompter(world: World, **keys: Any) -> Prompter:
    return Prompter(TaskConfig(task="t", **keys), ("q", "gold"), dialect=world.dialect)


@case("sends_templates_in_lists", theirs=["{{q}}", "no"], ours=["x", "no"])
def _(world: World) -> Any:
    return prompter(world, doc_to_text="q", doc_to_choice=["{{q}}", "no"]).choices({"q": "x"})


@case("writes_none_for_null", theirs="Q: None", ours="failed")
def _(world: World) -> Any:
    try:
        return prompter(world, doc_to_text="Q: {{q}}").text({"q": None, "gold": "a"})
    except RenderError:
        return "failed"


@case("takes_digits_for_text", theirs="1", ours=1)
def _(world: World) -> Any:
    keys = {"output_type": "multiple_choice", "doc_to_choice": ["x", "y"], "doc_to_target": "gold"}
    return prompter(world, doc_to_text="q", **keys).target({"q": "", "gold": "1"})


@case("breaks_unaskable_tasks", theirs="the other task is run", ours=REJECTED)
def _(world: World) -> Any:
    write_task(world.folder, ROWS, "output_type: generate_until\ndoc_to_text: '{{nowhere}}'\ndoc_to_target: gold\n")
    write_task(world.folder, ROWS, PLAIN, "u")
    ended = world.outcome(lambda: run(world.folder, noting([]), tasks=["t", "u"], compat=world.compat))
    return ended if ended == REJECTED else "the other task is run" if list(ended["results"]) == ["u"] else ended


@case("accepts_equal_prompts", theirs=False, ours=True)
def _(world: World) -> Any:
    same = [Sample(number, {}, (Generate("again", {}, 0),), "a", "a") for number in range(2)]
    problem = equal_prompts(Task.from_config({"task": "t", "dataset_path": "x"}), same, world.dialect)
    assert problem is not None
    return problem.serious


@case("numbers_documents_by_request", theirs=5, ours=2)
def _(world: World) -> Any:
    return logged_id(RunConfig(compat=world.compat, samples={"t": [5, 2]}), "t", 0, 2)


# --- scores ----------------------------------------------------------------------------------------------------------

REPEATED = SAMPLED + "repeats: 2\n"


def metric(world: World, body: str, yaml: str, answers: Sequence[Any] = ("a", "b"), **options: Any) -> Any:
    """The results of a task with a metric of the user's; the right answers are a and a."""
    (world.folder / "utils.py").write_text(dedent(body))
    golds = options.pop("golds", ("a", "a"))
    return world.generate(answers, golds, yaml, **options)


OWN = "metric_list: [{metric: !function utils.m, aggregation: mean, higher_is_better: true}]\n"


@case("scores_first_repeat", theirs=1.0, ours=0.5)
def _(world: World) -> Any:
    results = world.generate([("a", "b")], ["a"], REPEATED + "metric_list: [{metric: exact_match}]\n")
    return number_of(results, "exact_match,none")


BOTH_REPEATS = REPEATED + "filter_list: [{name: all, filter: [{function: take_first_k, k: 2}]}]\n"


@case("aggregates_repeats_together", theirs=2.0, ours=1.0)
def _(world: World) -> Any:
    """The aggregation sees one pair, with the list of both answers; or twice a pair with an answer of one letter."""
    yaml = "metric_list: [{metric: f1, aggregation: !function utils.size, higher_is_better: true}]\n"
    body = "def size(pairs):\n    return float(len(pairs[0][1]))\n"
    return number_of(metric(world, body, BOTH_REPEATS + yaml, [("a", "b")], golds=["a"]), "f1,all")


@case("calls_metrics_as_lm_eval", theirs=0.5, ours=REJECTED)
def _(world: World) -> Any:
    """A single parameter called `prediction` is given the pair, and not refused for want of a reference."""
    return number_of(
        metric(world, "def m(prediction):\n    return float(prediction[0] == prediction[1])\n", OWN), "m,none"
    )


@case("ignores_kwargs_of_pairs", theirs=0.5, ours=REJECTED)
def _(world: World) -> Any:
    body = "def m(items):\n    return float(items[0] == items[1])\n"
    return number_of(metric(world, body, OWN.replace("true}", "true, bonus: 1}")), "m,none")


@case("ignores_kwargs_of_likelihoods", theirs=0.5, ours=REJECTED)
def _(world: World) -> Any:
    return number_of(world.choose([0, 1], "metric_list: [{metric: acc, bonus: 1}]\n"), "acc,none")


@case("accepts_kwargs_of_other_types", theirs=0.5, ours=REJECTED)
def _(world: World) -> Any:
    yaml = 'metric_list: [{metric: exact_match, ignore_case: "no"}]\n'
    return number_of(world.generate(["a", "b"], ["a", "a"], yaml), "exact_match,none")


@case("computes_f1_of_texts", theirs="f1", ours=REJECTED)
def _(world: World) -> Any:
    binder = MetricBinder(GENERATE, lambda *_: Place("here"), NO_HELPERS, dialect=world.dialect, of_text=True)
    return world.outcome(lambda: binder.bind((MetricConfig(name="f1"),), processed=False)[0].name)


@case("applies_text_filters_to_likelihoods", theirs="run", ours=REJECTED)
def _(world: World) -> Any:
    yaml = "filter_list: [{name: f, filter: [{function: lowercase}, {function: take_first}]}]\n"
    return "run" if world.choose([0, 1], yaml) != REJECTED else REJECTED


PROCESSING = (
    "process_results: !function helper.values\nmetric_list: [{metric: x, aggregation: mean, higher_is_better: true}]\n"
)


def processed_results(world: World, values: Sequence[Mapping[str, object]], yaml: str = "", helper: str = "") -> Any:
    metrics = "metric_list: [{metric: x, aggregation: mean, higher_is_better: true}]\n"
    processed(world.folder, values, metrics + yaml, helper=helper)
    return world.outcome(lambda: run(world.folder, noting([]), compat=world.compat))


@case("accepts_what_is_not_computed", theirs=1.0, ours=REJECTED)
def _(world: World) -> Any:
    return number_of(processed_results(world, [{"x": 1.0}, {"x": 1.0}], "scorer: exact\n"), "x,none")


@case("takes_whole_answer_for_first_token", theirs="remove_whitespace", ours="think")
def _(world: World) -> Any:
    scorer = FirstToken()
    scorer.task_dialect = world.dialect
    return scorer.steps()[0].function


def two_filters(*names: str) -> str:
    steps = "filter: [{function: take_first}]"
    return f"filter_list: [{{name: {names[0]}, {steps}, ONE}}, {{name: {names[1]}, {steps}, TWO}}]\n"


@case("keeps_last_of_equal_rows", theirs=["exact_match,f", "exact_match_stderr,f"], ours=REJECTED)
def _(world: World) -> Any:
    yaml = two_filters("f", "f").replace(", ONE", "").replace(", TWO", "")
    results = world.generate(["a", "b"], ["a", "a"], yaml)
    return results if results == REJECTED else sorted(key for key in results["results"]["t"] if "," in key)


@case("accepts_two_directions", theirs=0.5, ours=REJECTED)
def _(world: World) -> Any:
    yaml = two_filters("f", "g")
    for name, better in (("ONE", "true"), ("TWO", "false")):
        yaml = yaml.replace(name, f"metric_list: [{{metric: exact_match, higher_is_better: {better}}}]")
    return number_of(world.generate(["a", "b"], ["a", "a"], yaml), "exact_match,g")


@case("accepts_any_row_name", theirs=1.0, ours="failed")
def _(world: World) -> Any:
    rules = ScoreRules(lambda metric, filter_name: RowRule(is_averaged=True), world.dialect)
    [score] = check_scores({"a,b": 1.0}, ["answer"], "none", rules).values()
    return "failed" if isinstance(score, Failed) else score


@case("leaves_out_missing_scores", theirs=(1, 0), ours=(1, 1))
def _(world: World) -> Any:
    row = row_of(processed_results(world, [{"x": 1.0}, {"x": None}]), "x")
    return row["n"], row["failed"]


@case("scores_nan", theirs=(2, 0), ours=(1, 1))
def _(world: World) -> Any:
    helper = "\ndef values(doc, results):\n    return {'x': float(doc['values']['x'])}\n"
    row = row_of(processed_results(world, [{"x": 1.0}, {"x": "nan"}], helper=helper), "x")
    return row["n"], row["failed"]


@case("scores_zero_without_right_choice", theirs=(0.5, 2), ours=(1.0, 1))
def _(world: World) -> Any:
    """The second of three documents has no such choice; the third is not selected, and shows that others are right."""
    row = row_of(world.choose([0, "z"], "metric_list: [{metric: acc}]\n"), "acc")
    return row["value"], row["n"]


@case("takes_empty_target_list_for_one_target", theirs=(0.5, 2), ours=(0.0, 2))
def _(world: World) -> Any:
    """The right answer is the empty list, as text; or there is none."""
    results = world.generate(["[]", "b"], [[], []], "metric_list: [{metric: exact_match}]\n")
    row = row_of(results, "exact_match")
    return row["value"], row["n"]


@case("compares_numbers_with_texts", theirs=[1, 2.5], ours=["1", "2.5"])
def _(world: World) -> Any:
    builder = ResultBuilder(GENERATE, multiple_targets=True, dialect=world.dialect)
    return builder.target(Sample(0, {}, (), [1, 2.5], [1, 2.5]), ["1"])


@case("counts_any_right_reference", theirs=1.0, ours=0.5)
def _(world: World) -> Any:
    body = "def m(items):\n    return 0.5\n"
    return number_of(metric(world, body, OWN, golds=[["a", "b"], ["a", "b"]]), "m,none")


@case("counts_only_generated_predictions", theirs=0, ours=2)
def _(world: World) -> Any:
    results = world.choose([0, 1], predict_only=True)
    return results["assay"]["tasks"]["t"]["scored"]


CLASS = """
    from lm_eval.api.task import ConfigurableTask

    class Own(ConfigurableTask):
        def __init__(self, config=None):
            super().__init__(config={key: value for key, value in config.items() if key != "class"})

        def process_results(self, doc, results):
            return {"length": len(results[0])}

        def aggregation(self):
            return {"length": lambda values: sum(values) / len(values)}

        def higher_is_better(self):
            return {"length": True}
"""


@case("scores_classes_in_predict_only", theirs=True, ours=False)
def _(world: World) -> Any:
    (world.folder / "classes.py").write_text(dedent(CLASS))
    write_task(world.folder, ROWS, PLAIN + "class: !function classes.Own\n")
    results = run(world.folder, noting([]), compat=world.compat, predict_only=True)
    return "length,none" in results["results"]["t"]


# --- numbers ---------------------------------------------------------------------------------------------------------


@case("takes_upper_median", theirs=4.0, ours=3.0)
def _(world: World) -> Any:
    values = [{"x": value} for value in (5.0, 1.0, 2.0, 4.0)]
    return number_of(processed_results(world, values, "metric_list: [{metric: x, aggregation: median}]\n"), "x,none")


@case("has_lm_evals_standard_errors", theirs="N/A", ours=True)
def _(world: World) -> Any:
    results = world.choose([0, 1], "metric_list: [{metric: brier_score}]\n")
    error = number_of(results, "brier_score_stderr,none")
    return error if error == "N/A" else math.isfinite(error)


def group_of(world: World, entries: str) -> Any:
    """The results of a group of tasks with the scores 1, 0 and 1, 1, 1, 0; the second has another metric, too."""
    for name, answers, more in (("t", "ab", ""), ("u", "aaab", ", {metric: bleu}")):
        rows = [{"q": answer, "gold": "a"} for answer in answers]
        write_task(world.folder, rows, PLAIN + f"metric_list: [{{metric: exact_match}}{more}]\n", name)
    (world.folder / "g.yaml").write_text(f"group: g\ntask: [t, u]\naggregate_metric_list: [{entries}]\n")
    model = Scripted(generate=lambda prompt, params, repeat: prompt, identity="says what it is asked")
    return world.outcome(lambda: run(world.folder, model, tasks="g", compat=world.compat)["results"]["g"])


@case("averages_groups_as_lm_eval", theirs=0.22822, ours=0.23570)
def _(world: World) -> Any:
    """The errors are 0.5 of two and 0.25 of four. Pooled: √(((1·0.25·2) + (3·0.0625·4))/(6 − 2)/6); by strata:
    √((2/6)²·0.25 + (4/6)²·0.0625)."""
    return round(group_of(world, "{metric: exact_match, aggregation: mean}")["exact_match_stderr,none"], 5)


@case("drops_members_without_metric", theirs=True, ours=REJECTED)
def _(world: World) -> Any:
    ended = group_of(world, "{metric: bleu, aggregation: mean}")
    return ended if ended == REJECTED else "bleu,none" in ended


# --- unit metrics ----------------------------------------------------------------------------------------------------


def unit(world: World, name: str, golden: Any, predicted: Any, **params: Any) -> Any:
    """The result of a unit metric, or that the record fails."""
    node = {
        "golden_key": "golden",
        "predicted_key": "predicted",
        "unit_metrics_map": [{"name": name, "params": params, "as": "found"}],
        "compat": world.compat,
    }
    try:
        return UnitMetrics.apply(node, {"golden": golden, "predicted": predicted})["found"]
    except ValueError:
        return {"correct": "the record fails"}


@case("wraps_mappings_as_text", theirs=False, ours=True)
def _(world: World) -> Any:
    box = {"bbox": {"x": 0, "y": 0, "width": 2, "height": 2}}
    return unit(world, "action_within_bbox", box, {"x": 1, "y": 1})["correct"]


@case("reads_missing_values_as_text", theirs=True, ours=False)
def _(world: World) -> Any:
    return unit(world, "exact_match", "None", None, key="text")["correct"]


@case("takes_errors_for_wrong_answers", theirs=False, ours="the record fails")
def _(world: World) -> Any:
    return unit(world, "scroll_amount", "far", "3")["correct"]


@case("ignores_frequent_letters", theirs=True, ours=False)
def _(world: World) -> Any:
    """All letters of 300 are frequent: nothing is alike. Letter by letter, all but the first and the last are."""
    return unit(world, "typed_value_match", "ab" * 150, "ba" * 150)["score"] < 0.5


@case("compares_whole_mappings", theirs="{'text': 'a'}", ours="a")
def _(world: World) -> Any:
    return unit(world, "exact_match", "a", "a")["metadata"]["golden_text"]


def run_agent(world: World, text: str) -> list[dict[str, Any]]:
    """The output of agents, of which the second and the third still call tools at their last turn."""
    folder = write_graph(world.folder, AGENT_RECORDS, text, code=AGENT_CODE)
    assay.simple_evaluate(
        "openai-chat",
        model_args=f"model=m,base_url={world.serve()}",
        tasks=[str(folder)],
        output_path=str(world.folder / "run"),
        compat=world.compat,
    )
    output: list[dict[str, Any]] = the_file(world.folder / "run", "*output_*.json*")
    return output


@case("loses_unfinished_records", theirs=2, ours=4)
def _(world: World) -> Any:
    text = AGENT_GRAPH
    for name in ("RIGHT", "CALLS", "TURNS"):
        text = text.replace(name, "")
    return len(run_agent(world, text))


@case("hides_trajectories", theirs=False, ours=True)
def _(world: World) -> Any:
    text = AGENT_GRAPH
    for name in ("RIGHT", "CALLS", "TURNS"):
        text = text.replace(name, "")
    return "said_tool_calls" in run_agent(world, text)[0]


# --- aggregators and reports -----------------------------------------------------------------------------------------

COLUMN = "exact_match_result"
HERE = Place("here")


def here(*path: str | int) -> Place:  # the shape of what finds places
    return HERE


def result(golden: str, predicted: str, **metadata: Any) -> UnitMetricResult:
    return UnitMetricResult(golden == predicted, {"text": golden}, {"text": predicted}, metadata)


def aggregated(world: World, name: str, results: Sequence[UnitMetricResult], **params: Any) -> Any:
    try:
        return make_aggregator(name, params, HERE, world.dialect).calculate(list(results))
    except ValueError:
        return "an error"


@case("averages_classes_as_sygra", theirs=1.0, ours=0.5)
def _(world: World) -> Any:
    """a is right, and b is never predicted: precision over the predicted class a alone, or over both."""
    results = [result("a", "a"), UnitMetricResult(False, {"text": "b"}, {}, {})]
    return aggregated(world, "precision", results, predicted_key="text")["average_precision"]


@case("pools_attempts", theirs={"success_rate": 0.5, "pass^1": 0.5, "pass^2": 0.25}, ours="an error")
def _(world: World) -> Any:
    """One of two is right: the rate 1/2, whose square is 1/4; without ids, it is unknown what an attempt is at."""
    return aggregated(world, "pass^k", [result("a", "a"), result("a", "b")], k=2)


@case("takes_unnamed_steps_for_one", theirs=1, ours="an error")
def _(world: World) -> Any:
    ended = aggregated(world, "step_efficiency", [result("a", "a"), result("a", "a")])
    return ended if ended == "an error" else ended["total_steps"]


@case("scores_nothing_as_zero", theirs={"accuracy": 0.0}, ours="an error")
def _(world: World) -> Any:
    return aggregated(world, "accuracy", [])


def collated(
    rows: Any, entries: Any, counts: RecordCounts | None = None, compat: str | None = None, **rules: Any
) -> list[dict[str, Any]]:
    """The report as it is written."""
    return MetricCollatorPostProcessor([*entries], **rules).process(rows, {"counts": counts, "compat": compat})


def records(*results: UnitMetricResult) -> list[dict[str, Any]]:
    return [{COLUMN: each.to_dict()} for each in results]


def entry(name: str, column: Any = COLUMN) -> dict[str, Any]:
    return {"name": name, "unit_metrics_results": column}


def report(world: World, rows: Sequence[dict[str, Any]], *entries: dict[str, Any]) -> dict[str, Any]:
    [written] = collated(rows, entries, compat=world.compat)
    return written


@case("aggregates_first_column_alone", theirs=["accuracy"], ours=["exact_match_result-accuracy", "other-accuracy"])
def _(world: World) -> Any:
    rows = [{**row, "other": row[COLUMN]} for row in records(result("a", "a"))]
    return sorted(report(world, rows, entry("accuracy", [COLUMN, "other"]))["results"])


@case("accepts_lambdas_without_declared_keys", theirs=[None, 2], ours=[2])
def _(world: World) -> Any:
    shape = graph({"work": ("half", "[one, two]")}, edge("START", "work", "END"))
    shape += "\n    output_config: {output_map: {two: {from: two}}}\n"
    _, output = run_graph(world.folder, shape, [{"x": 1}, {"x": 2}], code=CODE, compat=world.compat)
    return [record["two"] for record in output]


@case("writes_null_for_unknown_keys", theirs=[{"lost": None}], ours=REJECTED)
def _(world: World) -> Any:
    shape = graph({"work": ("half", "[one]")}, edge("START", "work", "END"))
    shape += "\n    output_config: {output_map: {lost: {from: nowhere}}}\n"
    return world.outcome(lambda: run_graph(world.folder, shape, [{"x": 2}], code=CODE, compat=world.compat)[1])


@case("reports_without_records", theirs="no_data", ours=REJECTED)
def _(world: World) -> Any:
    folder = write_graph(world.folder, [], CLASSIFICATION, kind="classification")
    path = world.folder / "run"
    ended = world.outcome(
        lambda: assay.simple_evaluate("dummy", tasks=[str(folder)], compat=world.compat, output_path=str(path))
    )
    if ended == REJECTED:
        return REJECTED
    [written] = the_file(path, "MetricCollatorPostProcessor_*.json")
    return written["evaluation_summary"]["status"]


@case("counts_records_alone", theirs=["status", "total_records"], ours=["failed", "ok", "requested", "skipped", "status", "total_records"])  # fmt: skip
def _(world: World) -> Any:
    return sorted(report(world, records(result("a", "a")), entry("accuracy"))["evaluation_summary"])


@case("reports_success_despite_failures", theirs="success", ours="incomplete")
def _(world: World) -> Any:
    [written] = collated(records(result("a", "a")), [entry("accuracy")], RecordCounts(2, 1, 1), compat=world.compat)
    return written["evaluation_summary"]["status"]


@case("loses_report_to_one_error", theirs={}, ours=0.5)
def _(world: World) -> Any:
    rows = records(result("a", "a"), result("a", "b"))
    found = report(world, rows, entry("accuracy"), entry("no_such_metric"))["results"]
    return found and found["accuracy"]["accuracy"]


@case("keeps_last_of_equal_results", theirs=0, ours=1)
def _(world: World) -> Any:
    return len(MetricCollatorPostProcessor([entry("accuracy")] * 2).problems([COLUMN], here, dialect=world.dialect))


# --- the tests -------------------------------------------------------------------------------------------------------

RULES = {field.name: field.metadata for field in dataclasses.fields(Dialect)}


def flip(monkeypatch: pytest.MonkeyPatch, rule: str, compat: str) -> None:
    """Take one rule out of the dialects of a `--compat`, where they are decided."""
    for is_lm_evals_file in (False, True):
        dialect = dialect_of(compat, is_lm_evals_file=is_lm_evals_file)
        assert getattr(dialect, rule)
        names = {f"--compat {compat}", *([LM_EVAL_FILES] if is_lm_evals_file else [])}
        monkeypatch.setitem(DIALECTS, frozenset(names), dataclasses.replace(dialect, **{rule: False}))


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[], str]]:
    servers, url = Servers(), list[str]()

    def started() -> str:
        if not url:
            url.append(servers(script=TALKING))
        return url[0]

    yield started
    servers.end()


def test_every_rule_has_a_case() -> None:
    assert sorted(CASES) == sorted(RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_alone_makes_its_difference(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[], str]
) -> None:
    compat = "lm-eval" if COMPAT_LM_EVAL in RULES[rule]["holds_in"] else "sygra"
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    assert CASES[rule].observe(World(tmp_path / "theirs", compat, serve)) == CASES[rule].theirs
    flip(monkeypatch, rule, compat)
    assert CASES[rule].observe(World(tmp_path / "ours", compat, serve)) == CASES[rule].ours


def test_rules_of_lm_evals_files_hold_with_compat_lm_eval_too() -> None:
    """Else `--compat lm-eval` would read lm-eval's own files otherwise than a run without it."""
    files, compat = dialect_of(None, is_lm_evals_file=True), dialect_of("lm-eval")
    assert set(files.rules()) < set(compat.rules())
    assert set(dialect_of_files("lm-eval").rules()) == set(files.rules())
    assert dialect_of_files("sygra") is OURS
    assert list(OURS.rules()) == []


def test_a_task_of_several_files_has_the_rules_of_each() -> None:
    files, sygra = dialect_of(None, is_lm_evals_file=True), dialect_of("sygra")
    assert set(join(files, sygra).rules()) == {*files.rules(), *sygra.rules()}
    assert join(OURS, files) is join(files, OURS) is files


@pytest.mark.parametrize("rule", RULES)
def test_each_row_of_a_table_has_its_three_cells(rule: str) -> None:
    assert RULES[rule]["rows"]
    for row in RULES[rule]["rows"]:
        assert all(cell and "|" not in cell and "\n" not in cell for cell in row)


SOURCES = [*ROOT.glob("src/assay/**/*.py"), *ROOT.glob("packages/**/*.py")]


def test_code_asks_for_rules_and_never_for_the_program_that_has_them() -> None:
    old = re.compile(r"like_lm_eval|like_sygra|like_pandas|lenient|\bcompat [!=]= ")
    assert [str(file) for file in SOURCES if old.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("package", ["statistics", "groups"])
def test_statistics_and_groups_know_no_dialect(package: str) -> None:
    """The loader writes what they need into their configuration."""
    files = [file for file in SOURCES if file.parent.name == package]
    assert files
    assert [file.name for file in files if "dialect" in file.read_text(encoding="utf-8").lower()] == []
