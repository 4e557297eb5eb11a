"""Code beside task files that was written for lm-eval: it finds the names it imports, and no other code does.

What classes ask and score was made by lm-eval 0.4.13 on the same files; metrics are worked out by hand.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import assay
from assay import ConfigError
from assay.compat.modules import HelperCode
from assay.models import Scripted
from assay.report.table import results_table
from conftest import Write
from run_world import rows_of

BORROWED = ("lm_eval", "datasets", "evaluate", "transformers")


def helper(write: Write, source: str) -> ModuleType:
    """A helper module, loaded as a run loads it."""
    return HelperCode().load(write({"helper.py": source}) / "helper.py")


SQUAD = """
    guesses = [{"id": "1", "prediction_text": "The cat", "no_answer_probability": 0.0},
               {"id": "2", "prediction_text": "a red dog", "no_answer_probability": 0.0}]
    truths = [{"id": "1", "answers": {"text": ["cat"], "answer_start": [0]}},
              {"id": "2", "answers": {"text": ["dog"], "answer_start": [0]}}]
"""
# "a red dog" against "dog": precision 1/2 (articles do not count), recall 1, F1 2/3; over both documents (1 + 2/3) / 2.
METRICS = [
    ("evaluate.load('exact_match').compute(predictions=['a', 'b'], references=['a', 'c'])", {"exact_match": 0.5}),
    ("evaluate.load('exact_match').compute(predictions=['A!'], references=['a'], ignore_case=True, ignore_punctuation=True)", {"exact_match": 1.0}),
    ("evaluate.load('accuracy').compute(predictions=[1, 0, 1], references=[1, 1, 1])", {"accuracy": 2 / 3}),
    ("evaluate.load('f1').compute(predictions=[1, 1, 0, 0], references=[1, 0, 0, 0])", {"f1": 2 / 3}),
    ("evaluate.load('f1').compute(predictions=[1, 1, 0, 0], references=[1, 0, 0, 0], average='macro')", {"f1": (2 / 3 + 4 / 5) / 2}),
    ("evaluate.load('rouge').compute(predictions=['the cat'], references=['the cat sat'])", {"rouge1": 0.8, "rouge2": 2 / 3, "rougeL": 0.8, "rougeLsum": 0.8}),
    ("evaluate.load('squad_v2').compute(predictions=guesses, references=truths)", {"exact": 50.0, "f1": 100 * (1 + 2 / 3) / 2, "total": 2}),
    ("{'v': squad_metrics.compute_exact('The Cat!', 'cat')}", {"v": 1}),
    ("{'v': squad_metrics.compute_f1('cat sat down', 'the cat sat')}", {"v": 0.8}),
    ("{'v': squad_metrics.normalize_answer(' The  Cat, a dog! ')}", {"v": "cat dog"}),
    ("{'v': mean([1, 2, 6])}", {"v": 3.0}),
    ("{'v': weighted_f1_score([(0, 0), (1, 1), (1, 0)])}", {"v": 2 / 3}),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), METRICS, ids=[each[0] for each in METRICS])
def test_metrics_that_helper_code_imports_are_there_and_right(
    expression: str, expected: dict[str, Any], write: Write
) -> None:
    source = "import evaluate\nfrom lm_eval.api.metrics import mean\nfrom lm_eval.utils import weighted_f1_score\nfrom transformers.data.metrics import squad_metrics\n"
    module = helper(write, source)
    exec("".join(f"{line.strip()}\n" for line in SQUAD.replace(",\n", ", ").splitlines()), vars(module))
    result = eval(expression, vars(module))  # noqa: S307
    assert {key: result[key] for key in expected} == {key: pytest.approx(value) for key, value in expected.items()}


# Every name that a helper module of lm-eval 0.4.13's task folder imports or takes from `datasets` (found with `ast`; without its scripts).
OWN_IMPORTS = [
    "import datasets, evaluate, lm_eval",
    "from datasets import Dataset, Features, Sequence, Value, load_dataset, load_metric",
    "import datasets\ndatasets.Dataset.from_list([], split=datasets.Split.TEST), datasets.Image, datasets.__version__",
    "from evaluate import load",
    "from lm_eval.api.filter import Filter",
    "from lm_eval.api.instance import Instance",
    "from lm_eval.api.metrics import mean, metric_max_over_ground_truths",
    "from lm_eval.api.registry import register_filter",
    "from lm_eval.api.task import ConfigurableTask, Task",
    "from lm_eval.filters.extraction import Filter, RegexFilter",
    "from lm_eval.utils import general_detokenize, weighted_f1_score",
    "from transformers.data.metrics import squad_metrics",
    "import transformers.data.metrics.squad_metrics as squad\nsquad.compute_f1",
]
# More that 0.4.13 has (each line was run there): task folders of users may import it.
PUBLIC_IMPORTS = [
    "import lm_eval.api.metrics as metrics\nmetrics.mean([1])",
    "from lm_eval.api import metrics, task",
    "from lm_eval.api.task import ConfigurableTask, Task, TaskConfig, MultipleChoiceTask, PerplexityTask",
    "from lm_eval.api.filter import Filter, FilterEnsemble",
    "from lm_eval.api.registry import get_metric, get_aggregation, register_metric, register_aggregation",
    "from lm_eval.api.samplers import ContextSampler, FirstNSampler",
    "from lm_eval.api.metrics import median, perplexity, weighted_mean, exact_match_fn, mean_stderr, bootstrap_stderr, bits_per_byte",
    "from lm_eval.filters import build_filter_ensemble",
    "from lm_eval.filters.extraction import POSFilter, MultiChoiceRegexFilter, WhitespaceFilter",
    "from lm_eval.filters.selection import TakeFirstFilter, TakeKFilter, MajorityVoteFilter",
    "from lm_eval.filters.transformation import LowercaseFilter, UppercaseFilter, MapFilter",
    "from lm_eval.utils import simple_parse_args_string, pattern_match, apply_template, regex_replace, positional_deprecated",
    "from datasets import DatasetDict, concatenate_datasets, ClassLabel, Split",
]


@pytest.mark.parametrize("source", OWN_IMPORTS + PUBLIC_IMPORTS)
def test_helper_code_can_import_the_names_it_needs_from_lm_eval(source: str, write: Write) -> None:
    assert helper(write, source + "\n")


def test_one_module_of_lm_eval_s_tasks_finds_another(write: Write) -> None:
    folder = write(
        {
            "lm_eval/tasks/one/utils.py": "from lm_eval.tasks.two.inner.utils import word\nimport lm_eval.tasks.two.utils as two\n",
            "lm_eval/tasks/two/inner/utils.py": "from ..utils import word\n",
            "lm_eval/tasks/two/utils.py": "word = 'found'\n",
        }
    )
    module = HelperCode().load(folder / "lm_eval/tasks/one/utils.py")
    assert (module.word, module.two.word) == ("found", "found")


TASK = """
    task: t
    dataset_path: json
    dataset_kwargs: {data_files: {test: test.jsonl, train: train.jsonl}}
    test_split: test
    training_split: train
"""
CHOICE = (
    TASK
    + """
    output_type: multiple_choice
    doc_to_text: "Q {{q}}"
    doc_to_choice: c
    doc_to_target: a
    metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
)
DATA = {
    "test.jsonl": "".join(json.dumps({"q": f"e{n}", "c": ["one", "three"][:: 1 if n else -1], "a": n % 2}) + "\n" for n in range(3)),
    "train.jsonl": "".join(json.dumps({"q": f"t{n}", "c": ["one", "three"], "a": n % 2}) + "\n" for n in range(5)),
}  # fmt: skip


def run(folder: Path, answer: str = "2", **options: Any) -> dict[str, Any]:
    model = Scripted(
        generate=lambda prompt, params, repeat: answer,
        loglikelihood=lambda context, continuation: (-1.0 * len(continuation), False),
        chat_template=lambda messages, opened: (
            "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<open>" * opened
        ),
    )
    fixed = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    return assay.simple_evaluate(model, tasks=["t"], **(fixed | options))


def contexts(data: dict[str, Any]) -> list[Any]:
    return [[tuple(each) for each in sample["arguments"]] for sample in data["samples"]["t"]]


SUMS = """
    import datasets
    from lm_eval.api.instance import Instance
    from lm_eval.api.metrics import mean
    from lm_eval.api.task import ConfigurableTask

    class Sums(ConfigurableTask):
        def __init__(self, config=None):
            super().__init__(config={"metadata": {"version": 3}, "task": "t", "output_type": "generate_until", "test_split": "test"})
        def download(self, dataset_kwargs=None, **kwargs):
            rows = {x: [{"q": f"{x}{n}", "a": n} for n in range(k)] for x, k in (("e", 3), ("t", 6))}
            self.dataset = {name: datasets.Dataset.from_list(rows[x]) for name, x in (("test", "e"), ("train", "t"))}
        has_training_docs, has_validation_docs, has_test_docs = (lambda self: True), (lambda self: False), (lambda self: True)
        training_docs = fewshot_docs = lambda self: self.dataset["train"]
        test_docs = lambda self: self.dataset["test"]
        def doc_to_text(self, doc, *args): return "Q " + doc["q"]
        def doc_to_target(self, doc, *args): return str(doc["a"])
        def construct_requests(self, doc, ctx, **kwargs):
            kwargs.pop("apply_chat_template", False); kwargs.pop("chat_template", False)
            return Instance(request_type="generate_until", doc=doc, arguments=(ctx + "?", {"until": ["."]}), idx=0, **kwargs)
        def process_results(self, doc, results):
            return {"right": float(results[0] == str(doc["a"])), "length": len(results[0])}
        def aggregation(self): return {"right": mean, "length": max}
        def higher_is_better(self): return {"right": True, "length": False}
"""


def test_a_class_task_builds_its_requests_and_scores_itself(write: Write) -> None:
    results = run(write({"t.yaml": "task: t\nclass: !function made.Sums\n", "made.py": SUMS}))
    assert contexts(results) == [[(f"Q e{n}?", {"until": ["."]})] for n in range(3)]
    assert results["results"]["t"]["right,none"] == pytest.approx(1 / 3)
    assert results["results"]["t"]["length,none"] == 1
    assert results["versions"]["t"] == 3
    assert results["higher_is_better"]["t"] == {"right": True, "length": False}


@pytest.mark.parametrize(
    ("options", "prompts"),
    [
        ({"num_fewshot": 2}, ["Q t3 3\n\nQ t0 0\n\nQ e0?", "Q t0 0\n\nQ t5 5\n\nQ e1?", "Q t4 4\n\nQ t0 0\n\nQ e2?"]),
        (
            {"num_fewshot": 1, "apply_chat_template": True, "system_instruction": "S"},
            ["<system>S<user>Q t3<assistant>3<user>Q e0<open>?", "<system>S<user>Q t0<assistant>0<user>Q e1<open>?", "<system>S<user>Q t0<assistant>0<user>Q e2<open>?"],
        ),
    ],
)  # fmt: skip
def test_examples_of_a_class_are_drawn_as_lm_eval_draws_them(
    options: dict[str, Any], prompts: list[str], write: Write
) -> None:
    results = run(
        write({"t.yaml": "task: t\nclass: !function made.Sums\n", "made.py": SUMS}), compat="lm-eval", **options
    )
    assert [requests[0][0] for requests in contexts(results)] == prompts


PAIRS = """
    from lm_eval.api.instance import Instance
    from lm_eval.api.metrics import mean
    from lm_eval.api.task import Task

    class Pairs(Task):
        VERSION = 1
        DATASET_PATH = "none"
        def download(self, *args, **kwargs): self.dataset = [{"q": "e0"}, {"q": "e1"}]
        has_training_docs, has_validation_docs, has_test_docs = (lambda self: False), (lambda self: True), (lambda self: False)
        def validation_docs(self): return self.dataset
        def doc_to_text(self, doc): return doc["q"]
        def doc_to_target(self, doc): return ""
        def construct_requests(self, doc, ctx, **kwargs):
            kwargs.pop("apply_chat_template", False); kwargs.pop("chat_template", False)
            return [Instance(request_type="loglikelihood", doc=doc, arguments=(ctx, word), idx=number, **kwargs)
                    for number, word in enumerate((" yes", " no"))]
        def process_results(self, doc, results):
            (yes, _), (no, _) = results
            return {"gap": yes - no}
        def aggregation(self): return {"gap": mean}
        def higher_is_better(self): return {"gap": True}
"""


def test_a_plain_task_class_may_ask_several_things_about_a_document(write: Write) -> None:
    results = run(write({"t.yaml": "task: t\nclass: !function made.Pairs\n", "made.py": PAIRS}))
    assert contexts(results) == [[(f"e{n}", " yes"), (f"e{n}", " no")] for n in range(2)]
    assert results["results"]["t"]["gap,none"] == -1.0  # four letters against three


HALF = """
    from lm_eval.api.metrics import mean
    from lm_eval.api.task import ConfigurableTask

    class Half(ConfigurableTask):
        def __init__(self, config=None):
            super().__init__(config={key: value for key, value in config.items() if key != "class"})
        def process_results(self, doc, results):
            return {"best": max(range(2), key=lambda n: results[n][0]), **super().process_results(doc, results)}
        def aggregation(self): return {"best": sum, "acc": mean}
        def higher_is_better(self): return {"best": True, "acc": True}

    class Thinking(ConfigurableTask):
        def __init__(self, config=None):
            super().__init__(config={key: value for key, value in config.items() if key != "class"})
        def construct_requests(self, doc, ctx, **kwargs):
            return super().construct_requests(doc, ctx + " (think)", **kwargs)
"""


def test_a_class_may_add_to_the_results_that_its_yaml_gives(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write({"t.yaml": CHOICE + "    class: !function made.Half\n", "made.py": HALF, **DATA})
    monkeypatch.chdir(folder)
    row = run(folder)["results"]["t"]
    assert (row["best,none"], row["acc,none"]) == (1, pytest.approx(1 / 3))


def test_a_class_may_change_only_the_requests_of_its_yaml(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write({"t.yaml": CHOICE + "    class: !function made.Thinking\n", "made.py": HALF, **DATA})
    monkeypatch.chdir(folder)
    results = run(folder)
    assert results["results"]["t"]["acc,none"] == pytest.approx(1 / 3)
    assert contexts(results)[0] == [("Q e0 (think)", " three"), ("Q e0 (think)", " one")]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"num_fewshot": 1}, [("Q t3 three\n\nQ e0", " three"), ("Q t3 three\n\nQ e0", " one")]),
        ({"num_fewshot": 1, "apply_chat_template": True}, [("<user>Q t3<assistant>three<user>Q e0<open>", "three"), ("<user>Q t3<assistant>three<user>Q e0<open>", "one")]),
    ],
)  # fmt: skip
def test_a_class_with_choices_shows_and_asks_them_as_its_yaml_would(
    options: dict[str, Any], first: list[Any], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = HALF.replace("**super().process_results(doc, results)", "'acc': 0.0")
    folder = write({"t.yaml": CHOICE + "    class: !function made.Half\n", "made.py": scored, **DATA})
    monkeypatch.chdir(folder)
    assert contexts(run(folder, **options))[0] == first


GENERATE = (
    TASK
    + """
    doc_to_text: !function made.text
    doc_to_target: a
    metric_list: [{metric: exact_match}]
"""
)


REGISTERING = """
    from lm_eval.api.filter import Filter
    from lm_eval.api.registry import register_aggregation, register_filter, register_metric

    @register_filter("backwards")
    class Backwards(Filter):
        def apply(self, resps, docs): return [[text[::-1] for text in several] for several in resps]

    @register_aggregation("second")
    def second(items): return sorted(items)[1]

    @register_metric(metric="letters", higher_is_better=True, output_type="generate_until", aggregation="second")
    def letters(references, predictions, **kwargs): return len(predictions[0]) + len(references[0])

    def text(doc): return doc["q"]
"""


def test_a_filter_that_helper_code_registers_is_known_by_its_name(write: Write) -> None:
    own = "filter_list: [{name: back, filter: [{function: backwards}, {function: take_first}]}]"
    results = run(write({"t.yaml": GENERATE + f"    {own}\n", "made.py": REGISTERING, **DATA}), answer="ab")
    assert [sample["filtered_resps"] for sample in results["samples"]["t"]] == [["ba"]] * 3


def test_a_metric_that_helper_code_registers_is_known_by_its_name(write: Write) -> None:
    task = GENERATE.replace("exact_match", "letters").replace("doc_to_target: a", 'doc_to_target: "{{c[a]}}"')
    results = run(write({"t.yaml": task, "made.py": REGISTERING, **DATA}), answer="ab")
    # two letters and those of three, three and one: 7, 7, 5, of which the second is 7
    assert results["results"]["t"]["letters,none"] == 7


BY_QUESTION = """
    def text(doc): return doc["q"]
    def result(doc, results): return {"found": (doc["q"], results[0] == doc["c"][doc["a"]])}
    def by_question(items): return {name: int(right) for name, right in items}
"""


@pytest.mark.parametrize("compat", ["lm-eval", None])
def test_an_aggregation_may_give_several_numbers_by_name(compat: str | None, write: Write) -> None:
    """lm-eval reports whatever an aggregation gives; its LIBRA tasks give a number for every length of text."""
    metric = "{metric: found, aggregation: !function made.by_question, higher_is_better: true}"
    task = GENERATE.replace("{metric: exact_match}", metric) + "    process_results: !function made.result\n"
    results = run(write({"t.yaml": task, "made.py": BY_QUESTION, **DATA}), answer="three", compat=compat)
    # the right ones are three, three and one
    assert results["results"]["t"]["found,none"] == {"e0": 1, "e1": 1, "e2": 0}
    assert results["results"]["t"]["found_stderr,none"] == "N/A"
    assert results["assay"]["status"] == "complete"
    assert rows_of(results, "t")["found,none"]["named_values"] == {"e0": 1, "e1": 1, "e2": 0}
    table = str(results_table(results.results))
    assert all(f"found[e{n}]|↑ |{value}.0000|" in table for n, value in enumerate((1, 1, 0)))


def test_nothing_that_helper_code_borrows_is_seen_by_others(write: Write) -> None:
    before = {name for name in sys.modules if name.partition(".")[0] in BORROWED}
    path = list(sys.path)
    source = "import datasets, evaluate, lm_eval.api.task\nfrom transformers.data.metrics import squad_metrics\ndef text(doc): return lm_eval.__version__ + ' ' + doc['q']\n"
    results = run(write({"t.yaml": GENERATE, "made.py": source, **DATA}))
    assert contexts(results)[0][0][0].split()[0] == "0.4.13"
    assert {name for name in sys.modules if name.partition(".")[0] in BORROWED} <= before
    assert sys.path == path
    assert "made" not in sys.modules


def test_a_module_of_that_name_that_the_caller_has_stays_his_own(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ModuleType("lm_eval")
    monkeypatch.setitem(sys.modules, "lm_eval", own)
    results = run(
        write(
            {
                "t.yaml": GENERATE,
                "made.py": "import lm_eval\ndef text(doc): return lm_eval.__version__ + ' ' + doc['q']\n",
                **DATA,
            }
        )
    )
    assert contexts(results)[0][0][0].split()[0] == "0.4.13"
    assert sys.modules["lm_eval"] is own
    assert not hasattr(own, "api")


def test_edited_helper_code_is_reloaded_by_the_next_run(write: Write) -> None:
    folder = write({"t.yaml": GENERATE, "made.py": "def text(doc): return 'one ' + doc['q']\n", **DATA})
    assert contexts(run(folder))[0][0][0].split()[0] == "one"
    stamp = (folder / "made.py").stat()
    write({"made.py": "def text(doc): return 'two ' + doc['q']\n"})
    os.utime(folder / "made.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # same size, same time
    assert contexts(run(folder))[0][0][0].split()[0] == "two"


def test_a_run_starts_from_modules_that_no_other_run_has_touched(write: Write) -> None:
    source = "seen = []\ndef text(doc):\n    seen.append(doc['q'])\n    return str(len(seen))\n"
    folder = write({"t.yaml": GENERATE, "made.py": source, **DATA})
    assert contexts(run(folder, samples={"t": [0]}))[0][0][0] == contexts(run(folder, samples={"t": [0]}))[0][0][0]


def test_a_module_that_is_nowhere_is_an_error_that_names_it_and_the_line(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"(?s)t\.yaml:\d+.*no_such_module"):
        run(write({"t.yaml": GENERATE, "made.py": "import no_such_module\ndef text(doc): return ''\n", **DATA}))


@pytest.mark.parametrize(
    "line", ["assert False, 'antlr4 4.11'", "raise RuntimeError('antlr4 4.11')", "raise SystemExit('antlr4 4.11')"]
)
def test_a_module_that_refuses_to_be_loaded_is_an_error_with_its_words_and_the_line(line: str, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"(?s)t\.yaml:\d+.*made\.py cannot be loaded.*antlr4 4\.11"):
        run(write({"t.yaml": GENERATE, "made.py": f"{line}\ndef text(doc): return ''\n", **DATA}))


def test_the_dicts_of_lm_evals_registry_are_views_of_what_is_registered(write: Write) -> None:
    source = """
        from lm_eval.api import registry
        from lm_eval.api.registry import AGGREGATION_REGISTRY, FILTER_REGISTRY, HIGHER_IS_BETTER_REGISTRY, METRIC_REGISTRY


        @registry.register_filter("mine")
        class Mine: ...


        METRIC_REGISTRY["gap"] = lambda items: abs(items[0] - items[1])
        HIGHER_IS_BETTER_REGISTRY["gap"] = False
        AGGREGATION_REGISTRY["top"] = max
        known = FILTER_REGISTRY["mine"] is Mine, "take_first" in FILTER_REGISTRY, "nothing" in METRIC_REGISTRY
    """
    code = HelperCode()
    module = code.load(write({"helper.py": source}) / "helper.py")
    assert module.known == (True, True, False)
    assert code.registered.get_metric("gap")([3, 1]) == 2
    assert code.registered.is_higher_better("gap") is False
    assert code.registered.get_aggregation("top") is max
    assert module.METRIC_REGISTRY["acc"] is not None
    with pytest.raises(KeyError):
        module.AGGREGATION_REGISTRY["nothing"]
    assert "gap" not in HelperCode().registered.metrics  # another run does not have it
