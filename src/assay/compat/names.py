"""The modules that helper code finds under the names of lm_eval, datasets, evaluate and transformers' SQuAD metrics."""

import logging
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from assay.aggregate import estimate, functions
from assay.catalog.roots import is_lm_eval
from assay.compat import evaluate_names, squad
from assay.compat.class_task import Instance, task_classes
from assay.compat.dataset import Dataset, DatasetDict, concatenate_datasets
from assay.compat.filter_classes import Filter, MultiChoiceRegexFilter, RegexFilter, TakeFirstFilter, WhitespaceFilter
from assay.compat.samplers import ContextSampler, FirstNSampler
from assay.config.source import Source
from assay.config.task import TaskConfig
from assay.samples.data import data_set
from assay.samples.templates import template


def provided_modules(registered: dict[str, Callable[..., Any]], data_dir: str | None) -> dict[str, ModuleType]:
    """Module objects by dotted name; `registered` takes the filters that helper code registers."""
    contents = {
        **_lm_eval(registered, data_dir),
        "datasets": _datasets(data_dir),
        "evaluate": {"load": evaluate_names.load},
        "transformers.data.metrics.squad_metrics": vars(squad),
        "transformers.data.metrics": {},
        "transformers.data": {},
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


def _lm_eval(registered: dict[str, Callable[..., Any]], data_dir: str | None) -> dict[str, dict[str, Any]]:
    def register_filter(name: str) -> Callable[[Any], Any]:
        return lambda made: registered.setdefault(name, made)

    def ignored(*_: Any, **__: Any) -> Callable[[Any], Any]:
        return lambda made: made

    task, configurable = task_classes(data_dir)
    utils = {
        "weighted_f1_score": weighted_f1_score, "general_detokenize": general_detokenize, "logging": logging,
        "eval_logger": logging.getLogger("lm_eval"), "regex_replace": lambda text, p, r, count=0: re.sub(p, r, text, count=count),
        "apply_template": lambda text, doc: template(text)(doc), "make_table": str, "handle_non_serializable": str,
    }  # fmt: skip
    metrics = {name: value for name, value in vars(functions).items() if callable(value) and not name.startswith("_")}
    metrics |= {
        "f1_score": functions.f1, "mean_stderr": estimate.mean_stderr, "sample_stddev": estimate.sample_deviation,
        "metric_max_over_ground_truths": _max_over_ground_truths,
    }  # fmt: skip
    return {
        "lm_eval": {"__version__": "0.4.13"},
        "lm_eval.utils": utils,
        "lm_eval.api": {},
        "lm_eval.api.task": {"Task": task, "ConfigurableTask": configurable, "TaskConfig": TaskConfig},
        "lm_eval.api.instance": {"Instance": Instance},
        "lm_eval.api.filter": {"Filter": Filter},
        "lm_eval.api.metrics": metrics,
        "lm_eval.api.samplers": {"ContextSampler": ContextSampler, "FirstNSampler": FirstNSampler},
        "lm_eval.api.registry": {
            "register_filter": register_filter, "register_metric": ignored, "register_aggregation": ignored,
            "register_model": ignored, "register_task": ignored,
        },
        "lm_eval.filters": {},
        "lm_eval.filters.extraction": {
            "Filter": Filter, "RegexFilter": RegexFilter, "MultiChoiceRegexFilter": MultiChoiceRegexFilter,
            "WhitespaceFilter": WhitespaceFilter, "register_filter": register_filter,
        },
        "lm_eval.filters.selection": {"TakeFirstFilter": TakeFirstFilter},
        "lm_eval.tasks": {},
        "lm_eval.tasks._yaml_loader": {"load_yaml": _load_yaml},
    }  # fmt: skip


def _datasets(data_dir: str | None) -> dict[str, Any]:
    def load_dataset(path: str, name: str | None = None, split: str | None = None, **kwargs: Any) -> Any:
        """A data set as a task would get it: from the data folder, from files, or from the hub."""
        config = TaskConfig(task=path, dataset_path=path, dataset_name=name, dataset_kwargs=kwargs)
        found = data_set(config, folder=None, data_dir=data_dir)
        if split is not None:
            return Dataset(found.split(split))
        return DatasetDict({each: Dataset(found.split(each)) for each in found.available()})

    return {
        "__version__": "4.0.0", "Dataset": Dataset, "DatasetDict": DatasetDict, "load_dataset": load_dataset,
        "load_metric": evaluate_names.load, "concatenate_datasets": concatenate_datasets,
        "Features": dict, "Value": Anything, "Sequence": Anything,
        "ClassLabel": Anything, "Image": Anything, "Audio": Anything, "IterableDataset": Dataset,
        "disable_progress_bars": lambda *_: None, "enable_progress_bars": lambda *_: None,
    }  # fmt: skip


class Anything:
    """A feature of a data set: only its being there matters."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


def weighted_f1_score(items: Sequence[tuple[Any, Any]]) -> float:
    """F1 of pairs (right, given), each class weighed by how often it is right."""
    from sklearn.metrics import f1_score

    golds, given = zip(*items, strict=True)
    return float(f1_score(golds, given, average="weighted"))


def general_detokenize(text: str) -> str:
    """Text without the spaces that a tokenizer puts around signs."""
    for split, whole in ((" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"')):
        text = text.replace(split, whole)
    return re.sub(r" (['.,])", r"\1", text)


def _max_over_ground_truths(
    metric_fn: Callable[[Any, Any], float], prediction: Any, ground_truths: Sequence[Any]
) -> float:
    return max(metric_fn(prediction, truth) for truth in ground_truths)


def _load_yaml(path: Any, **_: Any) -> Any:
    """What a YAML file says, for helper code that reads one of its own."""
    from pathlib import Path

    file = Path(path)
    return Source(str(file), file.read_bytes(), lenient=is_lm_eval(str(file))).value
