"""The modules that helper code finds under the names of lm_eval, datasets, evaluate, transformers' SQuAD metrics and sygra."""

import fnmatch
import logging
import re
from collections.abc import Callable, Sequence
from os import PathLike
from types import ModuleType
from typing import TypeVar

from assay.compat import evaluate_names, filter_classes, lm_eval_metrics
from assay.compat.configurable_task import MULTIPLE_CHOICE, PERPLEXITY, ContextSampler, FirstNSampler, task_classes
from assay.compat.dataset import Dataset, DatasetDict, NamedSplit, Split, concatenate_datasets
from assay.compat.evaluate_names import Label
from assay.compat.features import Anything, ClassLabel, Features, Ignored, List, Value, sequence
from assay.compat.lm_eval_scorers import NAMES
from assay.compat.registered import Registered, identity, register_scorers
from assay.compat.sygra_names import ModuleContents, sygra_modules
from assay.compat.task_base import Instance
from assay.config.option import YAMLValue
from assay.config.source import Source
from assay.config.task import TaskConfig
from assay.samples.data import data_set
from assay.samples.prompt import template
from assay.scoring.named import SCORER_REGISTRY, register_scorer
from assay.scoring.results import GenResult, MCResult, Results
from assay.scoring.scorer import (
    GenerationScorer,
    LoglikelihoodScorer,
    PerplexityScorer,
    ProcessResultsScorer,
    Scorer,
)
from assay.scoring.scorer_models import get_model, load_reward_model
from assay.statistics import aggregations as functions
from assay.statistics import estimates as estimate
from assay.statistics.softmax import softmax
from assay.tasks.documents import read_run
from assay.tasks.scoring import ScorerFactory

T = TypeVar("T")


def provided_modules(registered: Registered, data_dir: str | None) -> dict[str, ModuleType]:
    """Module objects by dotted name; `registered` takes what helper code registers."""
    contents = {
        **_lm_eval(registered, data_dir),
        "datasets": _datasets(data_dir),
        "evaluate": {"load": evaluate_names.load},
        "transformers.data.metrics.squad_metrics": evaluate_names.SQUAD_METRICS,
        "transformers.data.metrics": {},
        "transformers.data": {},
        **sygra_modules(),
    }
    modules = {}
    for name, values in contents.items():
        module = ModuleType(name)
        module.__dict__.update(
            {key: value for key, value in values.items() if not key.startswith("__") or key == "__version__"}
        )
        modules[name] = module
    for name, module in modules.items():
        outer, _, inner = name.rpartition(".")
        if outer in modules:
            setattr(modules[outer], inner, module)
    return modules


def _lm_eval(registered: Registered, data_dir: str | None) -> dict[str, ModuleContents]:
    task, configurable = task_classes(data_dir)
    return {
        "lm_eval": {"__version__": "0.4.13"},
        "lm_eval.utils": _utils(),
        "lm_eval.api": {},
        "lm_eval.api.task": {
            "Task": task, "ConfigurableTask": configurable, "TaskConfig": TaskConfig, "Instance": Instance,
            "MultipleChoiceTask": type("MultipleChoiceTask", (task,), MULTIPLE_CHOICE),
            "PerplexityTask": type("PerplexityTask", (task,), PERPLEXITY),
        },
        "lm_eval.api.instance": {"Instance": Instance},
        "lm_eval.api.filter": {"Filter": filter_classes.Filter, "FilterEnsemble": filter_classes.FilterEnsemble},
        "lm_eval.api.metrics": _metrics(registered),
        "lm_eval.api.samplers": {"ContextSampler": ContextSampler, "FirstNSampler": FirstNSampler},
        "lm_eval.api.registry": {**registered.names(), "get_model": get_model},
        "lm_eval.api.scorer": _scorers(),
        "lm_eval.scorers": {**{kind.__name__: kind for kind in NAMES}, "register_scorer": register_scorers},
        **_filters(registered),
        "lm_eval.tasks": {},
        "lm_eval.tasks._yaml_loader": {"load_yaml": _load_yaml},
    }  # fmt: skip


def _utils() -> ModuleContents:
    return {
        "weighted_f1_score": weighted_f1_score, "general_detokenize": general_detokenize, "logging": logging,
        "eval_logger": logging.getLogger("lm_eval"), "regex_replace": regex_replace, "softmax": softmax,
        "apply_template": lambda template_, doc: template(template_)(doc), "make_table": str,
        "handle_non_serializable": str, "simple_parse_args_string": simple_parse_args_string,
        "pattern_match": pattern_match, "positional_deprecated": lambda fn: fn,
    }  # fmt: skip


def _scorers() -> ModuleContents:
    """Contents of `lm_eval.api.scorer`: classes to derive from, and their registry."""
    kinds = (Scorer, GenerationScorer, LoglikelihoodScorer, PerplexityScorer, ProcessResultsScorer, ScorerFactory)
    more = {"SCORER_REGISTRY": SCORER_REGISTRY, "register_scorer": register_scorer, "Results": Results}
    models = {"get_model": get_model, "load_reward_model": load_reward_model}
    return {**{kind.__name__: kind for kind in kinds}, **more, **models, "GenResult": GenResult, "MCResult": MCResult}


def _metrics(registered: Registered) -> ModuleContents:
    """Contents of `lm_eval.api.metrics`: aggregations, and metric functions that return their argument."""
    own = {name: value for name, value in vars(functions).items() if callable(value) and not name.startswith("_")}
    handing = ("acc", "acc_norm", "acc_mutual_info", "acc_bytes", "brier_score", "perplexity", "likelihood", "mcc", "f1",
               "word_perplexity", "byte_perplexity", "bits_per_byte", "bleu", "chrf", "chrfpp", "ter")  # fmt: skip
    return {
        **own, **{f"{name}_fn": identity for name in handing}, "median": functions.median_high,
        "f1_score": functions.f1, "chrfpp": functions.chrf_with_words, "bypass_agg": functions.bypass,
        "mean_stderr": estimate.mean_stderr, "sample_stddev": estimate.sample_deviation,
        "bootstrap_stderr": bootstrap_stderr, "metric_max_over_ground_truths": _max_over_ground_truths,
        "exact_match_fn": evaluate_names.exact_match, "exact_match_hf_evaluate": evaluate_names.exact_match,
        "CorpusMetric": lm_eval_metrics.CorpusMetric, "Metric": lm_eval_metrics.Metric, "LLResults": lm_eval_metrics.LLResults,
        "register_metric": registered.register_metric, "register_aggregation": registered.register_aggregation,
    }  # fmt: skip


def _filters(registered: Registered) -> dict[str, ModuleContents]:
    shared = {"Filter": filter_classes.Filter, "register_filter": registered.register_filter}
    folders = {
        "custom": ("CustomFilter",),
        "extraction": ("RegexFilter", "POSFilter", "WhitespaceFilter", "MultiChoiceRegexFilter"),
        "selection": ("TakeFirstFilter", "TakeKFilter", "MajorityVoteFilter"),
        "transformation": ("LowercaseFilter", "UppercaseFilter", "MapFilter", "SPANFilter"),
    }
    classes = vars(filter_classes)
    outer = {"build_filter_ensemble": registered.build_filter_ensemble, "get_filter": registered.get_filter}
    inner = {
        f"lm_eval.filters.{folder}": {**shared, **{name: classes[name] for name in names}}
        for folder, names in folders.items()
    }
    return {"lm_eval.filters": outer, **inner}


def _datasets(data_dir: str | None) -> ModuleContents:
    def load_dataset(
        path: str, name: str | None = None, split: str | None = None, **kwargs: YAMLValue
    ) -> Dataset | DatasetDict:
        """A data set as a task would get it: from the data folder, from files, or from the hub."""
        config = TaskConfig(task=path, dataset_path=path, dataset_name=name, dataset_kwargs=kwargs)
        data = data_set(config, folder=None, data_dir=data_dir, read_run=read_run)
        if split is not None:
            return Dataset(data.split(split))
        return DatasetDict({name: Dataset(data.split(name)) for name in data.available()})

    return {
        "__version__": "4.0.0", "Dataset": Dataset, "DatasetDict": DatasetDict, "load_dataset": load_dataset,
        "load_metric": evaluate_names.load, "concatenate_datasets": concatenate_datasets,
        "Features": Features, "Value": Value, "Sequence": sequence, "List": List, "ClassLabel": ClassLabel,
        "Image": Anything, "Audio": Anything, "IterableDataset": Dataset, "Split": Split, "NamedSplit": NamedSplit,
        "disable_progress_bars": lambda *_: None, "enable_progress_bars": lambda *_: None,
    }  # fmt: skip


def weighted_f1_score(items: Sequence[tuple[Label, Label]]) -> float:
    """F1 of pairs (gold, prediction), weighted by the frequency of each gold class."""
    from sklearn.metrics import f1_score

    golds, predictions = zip(*items, strict=True)
    return float(f1_score(golds, predictions, average="weighted"))


def general_detokenize(text: str) -> str:
    """Text without the spaces that a tokenizer puts around signs."""
    for split, whole in ((" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"')):
        text = text.replace(split, whole)
    return re.sub(r" (['.,])", r"\1", text)


def regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


def pattern_match(patterns: str | Sequence[str], source_list: Sequence[str]) -> list[str]:
    """The names that one of the patterns fits, in their order."""
    each = [patterns] if isinstance(patterns, str) else patterns
    return sorted({name for pattern in each for name in fnmatch.filter(source_list, pattern)})


def simple_parse_args_string(args_string: str | None) -> dict[str, str | int | float | None]:
    """Parse `a=1,b=text`.

    >>> simple_parse_args_string("a=1, b='2',c=1e3,d=None,e=x=y")
    {'a': 1, ' b': '2', 'c': 1000.0, 'd': None, 'e': 'x=y'}
    """
    parts = [part.partition("=") for part in (args_string or "").strip().split(",") if part]
    return {key: _meant(value.strip()) for key, _, value in parts}


def _meant(text: str) -> str | int | float | None:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def bootstrap_stderr(f: Callable[[Sequence[T]], float], xs: Sequence[T], iters: int) -> float:
    """The spread of a number over resamples, drawn as lm-eval draws them."""
    return estimate.bootstrap(functions.Aggregation("custom", f), xs, iters)


def _max_over_ground_truths(metric_fn: Callable[[T, T], float], prediction: T, ground_truths: Sequence[T]) -> float:
    return max(metric_fn(prediction, truth) for truth in ground_truths)


def _load_yaml(path: str | PathLike[str], **_: Ignored) -> YAMLValue:
    """Load a YAML file for helper code."""
    from pathlib import Path

    file = Path(path)
    return Source(str(file), file.read_bytes()).value
