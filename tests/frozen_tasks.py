"""Cases of the frozen corpus: tasks, their metrics, filters, repeats and failures, and groups of them. See frozen_corpus.py."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.instant import instant

import assay
from assay import TaskManager
from fake_models import golden_model
from frozen_corpus import HERE, LM_EVAL, Outcome, World, case, command, within
from group_world import UNSURE, attempts, by_filter, group_file, scored, twins
from run_world import COLOURS, FILES, SUMS, RecordingModel
from run_world import run as run_world
from small_runs import ANYTHING, SAMPLED, choose, continue_, generate, processed, roll, run, says, write_task

# --- tasks of lm-eval ------------------------------------------------------------------------------------------------

GOLDEN = {
    "choices": {
        "arc_challenge__chat_fs2": "arc",
        "belebele_eng_Latn": "belebele",
        "boolq__samples": "super_glue/boolq",
        "hellaswag": "hellaswag",
        "mc_taco__limit_share": "mc_taco",
        "truthfulqa_mc2": "truthfulqa",
        "truthfulqa_mc2__predict_only": "truthfulqa",
        "winogrande": "winogrande",
    },
    "texts": {
        "lambada_openai": "lambada",
        "wikitext": "wikitext",
        "arithmetic_2da": "arithmetic",
    },
    "answers": {
        "drop": "drop",
        "drop__predict_only": "drop",
        "gsm8k": "gsm8k",
        "gsm8k_cot_self_consistency": "gsm8k",
        "gsm8k__chat_sys_singleturn": "gsm8k",
        "mmlu_pro_biology": "mmlu_pro",
        "squad_completion": "squad_completion",
        "triviaqa": "triviaqa",
        "longproc_html_to_tsv_8k__gen": "longproc",
        "global_piqa_parallel_generation_arq_arab__limit_share": "global_piqa/parallel_generation",
    },
    "classes": {"cola": "glue/cola", "cb": "super_glue/cb", "afrisenti_amh_prompt_1": "afrobench/afrisenti/prompt_1"},
    "translations": {"wmt16-ro-en": "translation"},
    "summaries": {"cnn_dailymail_abisee__fs0": "cnn_dailymail"},
    "schemas": {"jsonschema_bench_hard__samples": "jsonschema_bench"},
    "group": {"aexams": "aexams"},
}
"""By case, expected files of tests/golden with the folder of lm-eval's tasks that has their task."""
OWN = ("golden_mc_all", "golden_gen_filters", "golden_gen_prefix__chat", "golden_group")
"""Expected files of tests/golden whose tasks are in its own folder."""


def golden_runs(world: World, tasks: Mapping[str, Path]) -> Outcome:
    """Runs of tests/golden with our rules, and with those of lm-eval."""
    outcome: dict[str, object] = {}
    for name, folder in tasks.items():
        expected = json.loads((HERE / f"golden/expected/{name}.json").read_text(encoding="utf-8"))
        manager = TaskManager(None, [str(folder)], False, compat="lm-eval")
        for compat in (None, "lm-eval"):
            output = world.folder / f"{name} {compat or 'ours'}"
            assay.simple_evaluate(
                golden_model(),
                tasks=[expected["task"]],
                task_manager=manager,
                data_dir=str(HERE / "golden/data"),
                output_path=str(output),
                compat=compat,  # type: ignore[arg-type]  # one of two texts
                **expected["kwargs"],
            )
            outcome[output.name] = output
    return outcome


def golden_of_lm_eval(kind: str) -> Callable[[World], Outcome]:
    def make(world: World) -> Outcome:
        return golden_runs(world, {name: world.lm_eval_tasks / folder for name, folder in GOLDEN[kind].items()})

    make.__name__ = f"golden_{kind}"
    return make


LIBRARIES = {
    "classes": ["sklearn"],
    "translations": ["sacrebleu"],
    "summaries": ["rouge_score"],
    "schemas": ["jsonschema"],
}
for _kind in GOLDEN:
    case(LM_EVAL, *LIBRARIES.get(_kind, []))(golden_of_lm_eval(_kind))


@case("sklearn")
def golden_own_tasks(world: World) -> Outcome:
    return golden_runs(world, dict.fromkeys(OWN, HERE / "golden/custom_tasks"))


DIFFERENCES = ("several_references", "wrong_label", "samples", "shuffled", "predicted_class", "numpy_target", "codes")


@case()
def differences_from_lm_eval(world: World) -> Outcome:
    """Where lm-eval errs: with our rules and with its own."""
    outcome: dict[str, object] = {}
    with within(HERE / "differences"):
        for name in DIFFERENCES:
            options = json.loads((HERE / f"differences/{name}.json").read_text(encoding="utf-8"))["options"]
            manager = TaskManager(include_path="tasks", include_defaults=False, compat="lm-eval")
            for compat in (None, "lm-eval"):
                output = world.folder / f"{name} {compat or 'ours'}"
                assay.simple_evaluate(
                    instant(),
                    task_manager=manager,
                    bootstrap_iters=100,
                    output_path=str(output),
                    compat=compat,  # type: ignore[arg-type]  # one of two texts
                    **options,
                )
                outcome[output.name] = output
    return outcome


SYNTHETIC = {"choices": ["synth_mmlu5", "synth_hellaswag", "synth_wino"], "texts": ["synth_lambada", "synth_wiki"],
             "answers": ["synth_gsm8k", "synth_gsm8k_r8"], "translations": ["synth_translate"]}  # fmt: skip


@case("sacrebleu")
def synthetic_benchmarks(world: World) -> Outcome:
    """The first documents of the generated benchmarks, with our rules and with lm-eval's."""
    script, target = HERE.parent / "bench/make_benchmark.py", world.folder / "bench"
    subprocess.run([sys.executable, str(script), str(target)], check=True)
    outcome: dict[str, object] = {}
    for kind, names in SYNTHETIC.items():
        for compat in (None, "lm-eval"):
            output = world.folder / f"{kind} {compat or 'ours'}"
            manager = TaskManager(include_path=world.folder / "bench/tasks", include_defaults=False, compat=compat)
            assay.simple_evaluate(
                instant(),
                tasks=names,
                task_manager=manager,
                limit=12,
                bootstrap_iters=100,
                output_path=str(output),
                compat=compat,  # type: ignore[arg-type]  # one of two texts
            )
            outcome[output.name] = output
    return outcome


# --- metrics ---------------------------------------------------------------------------------------------------------


def metrics(*entries: str) -> str:
    listed = ", ".join(entry if entry.startswith("{") else f"{{metric: {entry}}}" for entry in entries)
    return f"metric_list: [{listed}]\n"


CHOICE_LLS = [[-1.0, -2.5, -3.0], [-4.0, -0.5, -6.0], [-2.0, -2.0, -1.0], [-0.25, -7.0, -3.5], [-3.0, -1.5, -2.75]]
CHOICE_GOLDS, CHOICES = [0, 1, 0, 2, 1], ["yes", "no way", "pérhaps"]


@case()
def metrics_of_choices(world: World) -> Outcome:
    names = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "brier_score", "{metric: likelihood, aggregation: mean}", "logprob",
             "bpb", "choice_logprob", "choice_prob_norm", "choice_logprob_norm", "macro_f1", "micro_f1", "f1_by_class",
             "weighted_f1", "{metric: precision, label: 'yes'}", "{metric: recall, label: 'yes'}", "mrr", "ndcg")  # fmt: skip
    options = {"greedy": lambda row, choice: (row + choice) % 2 == 0, "alone": [-1.0, -2.0, -0.5]}
    choose(
        world.folder,
        CHOICE_LLS,
        CHOICE_GOLDS,
        CHOICES,
        metrics(*names),
        output_path=str(world.folder / "run"),
        **options,
    )
    choose(
        world.folder,
        CHOICE_LLS,
        [[0, 1], 1, [2], 0, 1],
        CHOICES,
        metrics("acc"),
        output_path=str(world.folder / "several"),
    )
    return {"all": world.folder / "run", "several_right": world.folder / "several"}


@case("sklearn")
def metrics_of_two_choices(world: World) -> Outcome:
    """f1, mcc and acc_all, with bootstraps; and one of a model that is right about all."""
    outcome: dict[str, object] = {}
    lls = [[-1.0, -2.0], [-3.0, -0.5], [-2.5, -0.75], [-0.5, -1.0], [-1.0, -4.0], [-2.0, -1.0]]
    for name, golds in {"some": [0, 1, 0, 0, 1, 1], "all": [0, 1, 1, 0, 0, 1]}.items():
        for compat in (None, "lm-eval"):
            output = world.folder / f"{name} {compat or 'ours'}"
            choose(
                world.folder,
                lls,
                golds,
                ["no", "yes"],
                metrics("f1", "mcc", "acc"),
                bootstrap_iters=200,
                output_path=str(output),
                compat=compat,
            )
            outcome[output.name] = output
    return outcome


@case("sklearn", "scipy")
def metrics_of_confidence(world: World) -> Outcome:
    names = ("ece", "{metric: ece, bins: 4, equal_mass: true, name: ece_of_mass}", "brier_score", "brier_reliability",
             "brier_resolution", "brier_uncertainty", "roc_auc", "pr_auc", "selective_accuracy", "risk_coverage_area",
             "{metric: selective_accuracy, coverage: 0.5, name: half}", "kappa", "spearman", "ndcg", "mrr")  # fmt: skip
    shares = [(7 * number % 23 + 1) / 25 for number in range(24)]
    golds = [int(share * 1.3 + number % 3 / 7 > 0.7) for number, share in enumerate(shares)]
    lls = [[math.log(1 - share), math.log(share)] for share in shares]
    choose(
        world.folder,
        lls,
        golds,
        ["no", "yes"],
        metrics(*names),
        bootstrap_iters=100,
        output_path=str(world.folder / "run"),
    )
    return {"run": world.folder / "run"}


@case()
def metrics_of_continuations_and_texts(world: World) -> Outcome:
    values = [(-1.5, True), (-4.25, False), (-0.125, True), (-9.0, False)]
    continue_(
        world.folder / "a", values, metrics("acc", "perplexity"), [" x", " yz", " w", " v v"], bootstrap_iters=50,
        output_path=str(world.folder / "continuations"),
    )  # fmt: skip
    continue_(
        world.folder / "b", [*values, (-math.inf, False)], metrics("acc", "perplexity"), bootstrap_iters=50,
        output_path=str(world.folder / "impossible"),
    )  # fmt: skip
    texts = {"one two three": -12.5, "vier fünf": -8.75, "a much longer text, with a comma": -41.0, "x": -2.0}
    rates = metrics("word_perplexity", "byte_perplexity", "bits_per_byte")
    roll(world.folder / "c", texts, rates, bootstrap_iters=50, output_path=str(world.folder / "texts"))
    roll(world.folder / "c", texts, rates, bootstrap_iters=50, output_path=str(world.folder / "like"), compat="lm-eval")
    return {name: world.folder / name for name in ("continuations", "impossible", "texts", "like")}


SAID = ["The cat sat on the mat", "hello, world!", "", "It was a test", "42", "naïve café"]
MEANT = ["the cat sat on a mat", "Hello world", "nothing", "it is a test", "42.0", "naive café"]


@case("sacrebleu", "rouge_score")
def metrics_of_text(world: World) -> Outcome:
    names = ("exact_match", "{metric: exact_match, ignore_case: true, ignore_punctuation: true, name: loose}",
             "token_f1", "f1_score", "rouge", "bleu", "chrf", "chrf++", "ter", "edit_distance", "edit_similarity",
             "wer", "cer", "{metric: bleu, aggregation: mean, higher_is_better: true, name: sentence_bleu}")  # fmt: skip
    listed = metrics(*names)
    generate(world.folder, SAID, MEANT, listed, bootstrap_iters=50, output_path=str(world.folder / "run"))
    references = [[meant, meant.lower(), "x"] for meant in MEANT]
    several = metrics("bleu", "chrf", "rouge1", "wer", "exact_match")
    generate(world.folder, SAID, references, several, bootstrap_iters=50, output_path=str(world.folder / "several"))
    return {"run": world.folder / "run", "several_references": world.folder / "several"}


@case("jsonschema")
def metrics_of_structures(world: World) -> Outcome:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    answers = ['{"a": 1}', '{"a": "x"}', "not json", '```json\n{"a": 2}\n```', "{}"]
    schemas = [json.dumps(schema)] * len(answers)
    generate(world.folder / "a", answers, schemas, metrics("json_schema"), output_path=str(world.folder / "json"))
    ranked = ['["a", "b", "c"]', '["c", "d"]', "b\na", "", '["d", "a", "b", "c"]']
    golds = [["a", "c"], ["c"], ["a", "b"], ["a"], ["b"]]
    names = metrics("ndcg", "mrr", "{metric: recall_at_k, k: 2}", "{metric: precision_at_k, k: 2}")
    generate(world.folder / "b", ranked, golds, names, output_path=str(world.folder / "ranked"))
    return {"json": world.folder / "json", "ranked": world.folder / "ranked"}


@case()
def metrics_of_classes(world: World) -> Outcome:
    golds, said = [*"aaabbcccd", "a"], [*"aabbbcacd", "z"]
    names = ("{metric: f1_by_class, labels: [a, b, c, d]}", "{metric: precision_by_class, labels: [a, b]}",
             "{metric: recall_by_class, labels: [c, d]}", "macro_f1",
             "micro_f1", "weighted_f1", "macro_precision", "macro_recall", "micro_precision", "weighted_recall",
             "{metric: precision, label: a}", "kappa")  # fmt: skip
    generate(world.folder, said, golds, metrics(*names), bootstrap_iters=50, output_path=str(world.folder / "run"))
    return {"run": world.folder / "run"}


@case("math_verify")
def metrics_of_mathematics(world: World) -> Outcome:
    yaml = "filter_list: [{name: none, filter: [{function: math}, {function: take_first}]}]\n" + metrics("math_equal")
    answers = [r"so \boxed{\frac{1}{2}}", "The answer is 0.5.", "it is 2", "no idea", "50%"]
    generate(world.folder, answers, ["1/2"] * 5, yaml, output_path=str(world.folder / "run"))
    return {"run": world.folder / "run"}


@case()
def metrics_of_users(world: World) -> Outcome:
    """A metric that is a function, one with several values, an aggregation of their own, values without a metric."""
    folder = world.folder
    helper = """
        def length(predictions, references, **kwargs):
            return len(predictions[0])

        def two(predictions, references, **kwargs):
            return {"first": float(predictions[0][:1] == references[0][:1]), "last": float(predictions[0][-1:] == references[0][-1:])}

        def spread(items):
            return max(items) - min(items)

        def broken(items):
            raise KeyError("nothing here")
    """
    (folder / "own.py").write_text("\n".join(line[8:] for line in helper.splitlines()))
    yaml = (
        "metric_list:\n"
        "  - {metric: !function own.length, aggregation: mean, higher_is_better: false}\n"
        "  - {metric: !function own.two, aggregation: mean, higher_is_better: true}\n"
        "  - {metric: exact_match, aggregation: !function own.spread, higher_is_better: true}\n"
    )
    generate(folder, ["ab", "abc", "x"], ["ab", "b", "x"], yaml, bootstrap_iters=50, output_path=str(folder / "run"))
    values = [{"a": 1.0, "b": [2, 4], "c": 3}, {"a": 0.0, "b": [1, 5], "c": None}, {"a": 0.5, "b": [3, 3], "c": 1}]
    listed = (
        "metric_list: [{metric: a, aggregation: mean}, {metric: b, aggregation: weighted_perplexity}, "
        "{metric: c, aggregation: !function helper.broken}]\n"
    )
    code = "def broken(items):\n    raise KeyError('nothing here')\n"
    processed(folder / "p", values, listed, helper=code)
    run(folder / "p", ANYTHING, bootstrap_iters=50, output_path=str(folder / "processed"))
    return {"functions": folder / "run", "processed": folder / "processed"}


@case()
def bounds_and_directions(world: World) -> Outcome:
    """Scores with bounds, some outside of them, a constant, a single document, NaN and infinities."""
    folder = world.folder
    values: list[Mapping[str, object]] = [
        {"style": 1, "far": 0.5, "same": 1, "huge": 1e300, "odd": math.nan},
        {"style": 4, "far": 7.0, "same": 1, "huge": -1e300, "odd": 1.0},
        {"style": 5, "far": 0.25, "same": 1, "huge": 3.0, "odd": 2.0},
    ]
    yaml = (
        "metric_list:\n"
        "  - {metric: style, aggregation: mean, bounds: [1, 5]}\n"
        "  - {metric: far, aggregation: mean, bounds: [0, 1]}\n"
        "  - {metric: same, aggregation: mean, higher_is_better: false}\n"
        "  - {metric: huge, aggregation: mean}\n"
        "  - {metric: odd, aggregation: mean}\n"
    )
    processed(folder / "p", values, yaml)
    run(folder / "p", ANYTHING, output_path=str(folder / "run"))
    scored(folder / "one", "single", acc=[1])
    run(folder / "one", ANYTHING, "single", output_path=str(folder / "alone"))
    return {"run": folder / "run", "one_document": folder / "alone"}


# --- filters, repeats, clusters --------------------------------------------------------------------------------------


@case()
def several_filters(world: World) -> Outcome:
    yaml = """
        filter_list:
          - {name: strict, filter: [{function: regex, regex_pattern: "#### (\\\\d+)"}, {function: take_first}]}
          - {name: flexible, filter: [{function: regex, regex_pattern: "(\\\\d+)", group_select: -1}, {function: take_first}]}
          - {name: upper, filter: [{function: uppercase}, {function: take_first}]}
        metric_list: [{metric: exact_match}, {metric: edit_distance}]
    """
    answers = ["so 3\n#### 4", "the answer is 5", "six", "#### 7 or 8", "9"]
    generate(world.folder, answers, ["4", "5", "SIX", "8", "10"], yaml, output_path=str(world.folder / "run"))
    return {"run": world.folder / "run"}


@case()
def metrics_of_one_filter(world: World) -> Outcome:
    yaml = """
        filter_list:
          - {name: words, filter: [{function: lowercase}, {function: take_first}], metric_list: [{metric: token_f1}]}
          - {name: number, filter: [{function: regex, regex_pattern: "(\\\\d+)"}, {function: take_first}]}
        metric_list: [{metric: exact_match}, {metric: cer}]
    """
    answers = ["It is 4", "five or 5", "nothing"]
    generate(world.folder, answers, ["4", "5", "6"], yaml, output_path=str(world.folder / "run"))
    return {"run": world.folder / "run"}


@case()
def repeats_and_reductions(world: World) -> Outcome:
    reductions = "[mean, pass@1, pass@2, pass^2, maj@3, max, min, median]"
    attempts(world.folder, "drawn", [0, 1, 2, 3, 4, 4, 1], 4, f"{{metric: exact_match, reduction: {reductions}}}")
    run(world.folder, UNSURE, "drawn", output_path=str(world.folder / "run"))
    return {"run": world.folder / "run"}


@case()
def repeats_as_lm_eval_asks_them(world: World) -> Outcome:
    """Majority vote, first of several, all of them without a filter; with our rules and with lm-eval's."""
    rows = [["4", "4", "5", "6"], ["1", "2", "2", "2"], ["x", "y", "z", "w"], ["7", "7", "7", "7"]]
    yaml = f"""
        repeats: 4
        {SAMPLED.strip()}
        filter_list:
          - {{name: first, filter: [{{function: take_first}}]}}
          - {{name: maj@4, filter: [{{function: majority_vote}}, {{function: take_first}}]}}
          - {{name: maj@2, filter: [{{function: take_first_k, k: 2}}, {{function: majority_vote}}, {{function: take_first}}]}}
        metric_list: [{{metric: exact_match}}]
    """
    outcome: dict[str, object] = {}
    for compat in (None, "lm-eval"):
        output = world.folder / f"run {compat or 'ours'}"
        generate(world.folder, rows, ["4", "2", "x", "7"], yaml, output_path=str(output), compat=compat)
        outcome[output.name] = output
    return outcome


@case()
def clusters(world: World) -> Outcome:
    """Documents of a passage are one draw: of a mean, of a ratio, with few clusters, and in a group."""
    folder = world.folder
    columns = {"a": [1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0], "b": [0.5, 1.25, 3.0, 0.75, 2.0, 1.5, 0.25, 4.0]}
    for name, scores in columns.items():
        rows = [
            {"q": f"{name} {number}", "score": score, "passage": "aaabbccccdde"[number]}
            for number, score in enumerate(scores)
        ]
        folder.mkdir(exist_ok=True)
        (folder / f"of_{name}.py").write_text("def values(doc, results):\n    return {'x': doc['score']}\n")
        yaml = (
            "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: q\n"
            f"process_results: !function of_{name}.values\nmetric_list: [{{metric: x, aggregation: mean}}]\n"
            "cluster_by: passage\n"
        )
        write_task(folder, rows, yaml, name)
    group_file(folder, "group: g\ntask: [a, b]\naggregate_metric_list: [{metric: x, aggregation: mean}]\n")
    run(folder, ANYTHING, "g", output_path=str(folder / "run"))
    return {"run": folder / "run"}


# --- groups ----------------------------------------------------------------------------------------------------------

SCORES = {"a": (0.8, 0.6, 0.7, 0.9), "b": (0.3, 0.5), "c": (0.5, 0.9, 0.7)}


def three_tasks(folder: Path) -> None:
    for name, scores in SCORES.items():
        scored(folder, name, acc=scores, f1=[round(score**2, 3) for score in scores])


def grouped(world: World, *entries: str, task: str = "[a, b, c]", more: str = "") -> Outcome:
    """A run of a group of three tasks with these entries of `aggregate_metric_list`."""
    three_tasks(world.folder)
    listed = ", ".join(f"{{{entry}}}" for entry in entries)
    group_file(world.folder, f"group: g\ntask: {task}\naggregate_metric_list: [{listed}]\n{more}")
    run(world.folder, ANYTHING, "g", output_path=str(world.folder / "run"))
    return {"run": world.folder / "run"}


@case()
def group_of_means(world: World) -> Outcome:
    """By size, of tasks, of several metrics, with names and directions of their own."""
    return grouped(
        world,
        "metric: acc, weight_by_size: true",
        "metric: acc, weight_by_size: false, name: of_tasks",
        "metric: f1, aggregation: mean, higher_is_better: false",
    )


@case()
def group_of_other_means(world: World) -> Outcome:
    return grouped(
        world,
        "metric: acc, aggregation: harmonic_mean, name: harmonic",
        "metric: acc, aggregation: harmonic_mean, weight_by_size: true, name: harmonic_by_size",
        "metric: acc, aggregation: geometric_mean, name: geometric",
        "metric: acc, aggregation: median, name: middle",
        "metric: acc, aggregation: min, name: least",
        "metric: acc, aggregation: max, name: greatest",
    )


@case()
def group_of_differences(world: World) -> Outcome:
    return grouped(
        world,
        "metric: acc, aggregation: difference, kwargs: {of: [a, c]}, name: gap",
        "metric: acc, aggregation: weighted_sum, kwargs: {weights: {a: 2, b: -1, c: 0.5}}, name: weighted",
        "metric: f1, aggregation: weighted_sum, kwargs: {weights: {a: 1, b: 1, c: 2}, normalize: true}, name: share",
    )


@case()
def groups_like_lm_eval(world: World) -> Outcome:
    """The same means with lm-eval's errors, and a group with an aggregation that it does not have."""
    folder = world.folder
    three_tasks(folder)
    entries = "[{metric: acc, weight_by_size: true}, {metric: f1, weight_by_size: false}]"
    group_file(folder, f"group: g\ntask: [a, b, c]\naggregate_metric_list: {entries}\n", "g")
    group_file(folder, "group: h\ntask: [a, b]\naggregate_metric_list: [{metric: acc, aggregation: max}]\n", "h")
    run(folder, ANYTHING, ["g", "h"], output_path=str(folder / "run"), compat="lm-eval")
    return {"run": folder / "run"}


@case()
def nested_groups(world: World) -> Outcome:
    """A task in two groups of a group of groups; levels; a group within a file; a tag; a path to a member."""
    folder = world.folder
    three_tasks(folder)
    entry = "aggregate_metric_list: [{metric: acc, weight_by_size: false%s}]\n"
    group_file(folder, "group: one\ngroup_alias: The first\ntask: [a, b]\n" + entry % "", "one")
    group_file(folder, "group: two\ntask: [b, c]\n" + entry % "", "two")
    group_file(folder, "group: g\ntask: [one, two]\n" + entry % ", levels: children", "top")
    inline = (
        "group: outer\ntask:\n  - c\n  - {group: inner, task: [a, b], "
        "aggregate_metric_list: [{metric: f1, aggregation: mean}]}\n"
    )
    group_file(folder, inline + "aggregate_metric_list: [{metric: f1, levels: leaves}]\n", "outer")
    for name, tasks in {"graph": "g", "inline": "outer", "member": "g::two"}.items():
        run(folder, ANYTHING, tasks, output_path=str(folder / f"run_{name}"))
    return {name: folder / f"run_{name}" for name in ("graph", "inline", "member")}


@case()
def tags(world: World) -> Outcome:
    folder = world.folder
    scored(folder, "a", more="tag: [even, all]\n", acc=[1, 0, 1])
    scored(folder, "b", more="tag: all\n", acc=[0, 0, 1, 1])
    scored(folder, "c", more="tag: [even]\n", acc=[0.5])
    run(folder, ANYTHING, ["even", "all", "c"], output_path=str(folder / "run"))
    return {"run": folder / "run"}


@case()
def directions_of_groups(world: World) -> Outcome:
    """Members that disagree on which way is better, one that cannot say, and a number of examples that differs."""
    folder = world.folder
    scored(folder, "a", acc=[1, 0, 1], cost=[3, 4, 5])
    scored(folder, "b", better=False, more="num_fewshot: 1\n", acc=[0, 1], cost=[1, 2])
    group_file(folder, "group: g\ntask: [a, b]\naggregate_metric_list: [{metric: acc}, {metric: cost}]\n", "g")
    group_file(folder, "group: h\ntask: [g, a]\naggregate_metric_list: [{metric: acc, higher_is_better: true}]\n", "h")
    run(folder, ANYTHING, "h", output_path=str(folder / "run"))
    return {"run": folder / "run"}


@case()
def shared_documents(world: World) -> Outcome:
    """Two tasks of the same documents are one draw of their group."""
    folder = world.folder
    twins(folder, x=(1, 0, 1, 1, 0), y=(1, 0, 0, 1, 0.5))
    entries = "[{metric: acc}, {metric: acc, aggregation: difference, name: gap}]"
    group_file(folder, f"group: g\ntask: [x, y]\naggregate_metric_list: {entries}\n")
    run(folder, ANYTHING, "g", output_path=str(folder / "run"))
    return {"run": folder / "run"}


@case()
def filters_of_groups(world: World) -> Outcome:
    folder = world.folder
    by_filter(folder, "a", strict=(0.0, 1.0), lenient=(1.0, 1.0))
    by_filter(folder, "b", strict=(0.5, 0.5), lenient=(0.5, 0.7))
    entries = (
        "[{metric: f1}, {metric: f1, filter_list: [strict, lenient], combine: true, name: both}, "
        "{metric: f1, filter_list: {a: strict, '*': lenient}, name: chosen}]"
    )
    group_file(folder, f"group: g\ntask: [a, b]\naggregate_metric_list: {entries}\n")
    run(folder, ANYTHING, "g", output_path=str(folder / "run"))
    return {"run": folder / "run"}


@case()
def pass_at_k_of_a_group(world: World) -> Outcome:
    folder = world.folder
    attempts(folder, "p", [0, 1, 2, 4], 4)
    attempts(folder, "r", [3, 3, 1], 4)
    entries = "[{metric: exact_match, aggregation: pass@k, kwargs: {k: 2}}]"
    group_file(folder, f"group: g\ntask: [p, r]\naggregate_metric_list: {entries}\n")
    run(folder, UNSURE, "g", output_path=str(folder / "run"))
    return {"run": folder / "run"}


@case()
def groups_with_code(world: World) -> Outcome:
    """Aggregations that are functions, one that fails, a scorer of a group, an aggregator of a class."""
    folder = world.folder
    three_tasks(folder)
    (folder / "own.py").write_text(
        "def best(group, results, by=1):\n    return by * max(results[name]['acc,none'] for name in 'abc')\n\n\n"
        "def bad(group, results):\n    return 1 / 0\n\n\n"
        "def gap(group, results):\n    asked = sum(results[task.name]['samples'] for task in group.get_all_tasks())\n"
        "    return {'gap,none': 1 - results['a']['acc,none'], 'members': len(group.children), 'asked': asked}\n"
    )
    entries = (
        "[{metric: best, aggregation: !function own.best, kwargs: {by: 2}}, "
        "{metric: bad, aggregation: !function own.bad}, {metric: acc}]"
    )
    group_file(
        folder,
        f"group: g\ntask: [a, b, c]\ngroup_scorer: !function own.gap\naggregate_metric_list: {entries}\n",
    )
    run(folder, ANYTHING, "g", output_path=str(folder / "run"))
    return {"run": folder / "run"}


# --- formats, selections, shards -------------------------------------------------------------------------------------

QUESTIONS = [
    {"question": "What is green?", "choices": ["grass", "snow", "blood"], "answer": 0},
    {"question": "What is white?", "choices": ["grass", "snow", "blood"], "answer": 1},
    {"question": "What is red?", "choices": ["sky", "sea", "blood"], "answer": 2},
    {"question": "What is blue?", "choices": ["sky", "coal", "blood"], "answer": 0},
]


@case()
def formats_of_a_task(world: World) -> Outcome:
    folder = world.folder
    yaml = (
        "output_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: choices\ndoc_to_target: answer\n"
        "metric_list: [{metric: acc}]\n"
    )
    write_task(folder, QUESTIONS, yaml)
    names = ["t", "t@mcqa", "t@cloze", "t@generate", "t@cot"]
    run(folder, golden_model(), names, output_path=str(folder / "run"))
    group_file(folder, "group: g\ntask: [t@mcqa, t@cloze]\naggregate_metric_list: [{metric: acc}]\n")
    run(folder, golden_model(), "g", output_path=str(folder / "group"))
    return {"run": folder / "run", "group": folder / "group"}


@case()
def few_shots_and_chat(world: World) -> Outcome:
    folder = world.folder
    rows = [{"q": f"{a}+{b}", "gold": str(a + b)} for a in range(1, 5) for b in range(1, 4)]
    yaml = (
        "output_type: generate_until\ndoc_to_text: 'Q: {{q}}'\ndoc_to_target: gold\nfewshot_split: test\n"
        "num_fewshot: 2\ndescription: Add.\nmetric_list: [{metric: exact_match}, {metric: token_f1}]\n"
    )
    write_task(folder, rows, yaml)
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "chat": {"apply_chat_template": True, "system_instruction": "Be brief.", "num_fewshot": 1},
        "like": {"compat": "lm-eval", "apply_chat_template": True, "fewshot_as_multiturn": False},
        "seed": {"fewshot_random_seed": 7, "num_fewshot": 3},
    }
    for name, options in variants.items():
        run(folder, golden_model(), output_path=str(folder / f"run_{name}"), **options)
    return {name: folder / f"run_{name}" for name in variants}


def sums_and_colours(world: World, tasks: str = "tasks") -> Path:
    folder = world.folder / tasks
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text("\n".join(line.removeprefix("        ") for line in text.strip("\n").splitlines()))
    return folder


@case()
def limits_and_samples(world: World) -> Outcome:
    tasks = sums_and_colours(world)
    variants: dict[str, dict[str, Any]] = {
        "limit": {"limit": 2},
        "share": {"limit": 0.5},
        "start": {"start_index": 1, "limit": 3},
        "sample": {"sample": 3},
        "samples": {"samples": {"sums": [4, 0, 2], "colours": [1, 3]}},
        "like": {"samples": {"sums": [4, 0, 2], "colours": [1, 3]}, "compat": "lm-eval"},
    }
    for name, options in variants.items():
        run_world(RecordingModel(), tasks, world.folder / name, **options)
    return {name: world.folder / name for name in variants}


@case()
def shards_and_their_merge(world: World) -> Outcome:
    tasks = sums_and_colours(world)
    shards = [world.folder / f"shard{number}" for number in (1, 2)]
    for number, shard in enumerate(shards, 1):
        run_world(RecordingModel(failing={"3*3="}), tasks, shard, shard=f"{number}/2")
    merged = world.folder / "merged"
    merging = command("merge", merged, *shards)
    return {"shard1": shards[0], "shard2": shards[1], "merged": merged, "exit": merging["code"]}


# --- failures --------------------------------------------------------------------------------------------------------


@case()
def failed_documents(world: World) -> Outcome:
    """Some fail, all of a task fail; with more of them allowed; a group over them."""
    tasks = sums_and_colours(world)
    (tasks / "g.yaml").write_text("group: g\ntask: [colours]\naggregate_metric_list: [{metric: acc}]\n")
    variants: dict[str, tuple[set[str], dict[str, Any]]] = {
        "some": ({"3*3=", "sky is"}, {"tasks": ["sums", "g"]}),
        "all_of_one": ({*SUMS}, {}),
        "all": ({*SUMS, *(f"{thing} is" for thing in COLOURS)}, {"tasks": ["sums", "g"]}),
        "allowed": ({"3*3="}, {"max_failed": 0.5}),
    }
    for name, (failing, options) in variants.items():
        run_world(RecordingModel(failing=failing), tasks, world.folder / name, **options)
    return {name: world.folder / name for name in variants}


@case()
def failed_metrics(world: World) -> Outcome:
    """User code that fails for some documents, in one metric, in all, or says something that is no number."""
    folder = world.folder
    (folder / "own.py").write_text(
        "def short(predictions, references, **kwargs):\n"
        "    if len(predictions[0]) > 2:\n        raise ValueError(f'{predictions[0]!r} is long')\n"
        "    return 1.0\n\n\n"
        "def text(predictions, references, **kwargs):\n    return 'very good'\n\n\n"
        "def never(predictions, references, **kwargs):\n    return 1 / 0\n"
    )
    yaml = (
        "metric_list:\n"
        "  - {metric: exact_match}\n"
        "  - {metric: !function own.short, aggregation: mean, higher_is_better: true, bounds: [0, 1]}\n"
        "  - {metric: !function own.text, aggregation: mean, higher_is_better: true}\n"
        "  - {metric: !function own.never, aggregation: mean, higher_is_better: true}\n"
    )
    generate(folder, ["a", "long", "b", "longer"], ["a", "long", "c", "x"], yaml, output_path=str(folder / "run"))
    (folder / "group.yaml").write_text("group: g\ntask: [t]\naggregate_metric_list: [{metric: exact_match}]\n")
    unanswered = says(["a", "long", "b"])  # and nothing to the last question
    run(folder, unanswered, "g", output_path=str(folder / "both"), max_failed=0.3)
    return {"run": folder / "run", "of_requests_too": folder / "both"}


@case()
def audited_answers(world: World) -> Outcome:
    """Empty answers, answers without a match, ties between choices."""
    yaml = """
        filter_list: [{name: number, filter: [{function: regex, regex_pattern: "(\\\\d+)"}, {function: take_first}]}]
        metric_list: [{metric: exact_match}]
    """
    generate(world.folder / "a", ["1", "", "none", "4 5", " "], [*"12345"], yaml, output_path=str(world.folder / "run"))
    lls = [[-1.0, -1.0], [-2.0, -1.0], [-3.0, -3.0]]
    choose(world.folder / "b", lls, [0, 1, 1], ["x", "y"], metrics("acc"), output_path=str(world.folder / "ties"))
    return {"texts": world.folder / "run", "ties": world.folder / "ties"}


@case()
def returned_results(world: World) -> Outcome:
    """What `simple_evaluate` returns to Python code that was written for lm-eval: its dict with samples."""
    results = run_world(RecordingModel(failing={"3*3="}), sums_and_colours(world))
    about = ("config", "results", "n-samples", "samples")
    return {key: results[key] for key in about}


@case()
def predict_only(world: World) -> Outcome:
    run_world(RecordingModel(), sums_and_colours(world), world.folder / "run", predict_only=True)
    return {"run": world.folder / "run"}
