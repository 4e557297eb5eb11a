"""lm-eval's functions `simple_evaluate`, `evaluate` and `get_task_dict`, and its TaskManager, over assay's."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import assay
from assay.config.arguments import parse_arguments
from assay.errors import did_you_mean
from assay.models.load import backend, parameters
from assay.tasks import Task
from lm_eval._models import HFLM, as_model
from lm_eval._utils import load_yaml_config

COMPAT = "lm-eval"


def simple_evaluate(
    model: Any,
    model_args: Any = None,
    tasks: Any = None,
    num_fewshot: int | None = None,
    batch_size: int | str | None = None,
    max_batch_size: int | None = None,
    device: Any = None,
    use_cache: str | None = None,
    cache_requests: bool = False,
    rewrite_requests_cache: bool = False,
    delete_requests_cache: bool = False,
    limit: float | None = None,
    samples: Mapping[str, Any] | None = None,
    bootstrap_iters: int = 100000,
    check_integrity: bool = False,
    write_out: bool = False,
    log_samples: bool = True,
    evaluation_tracker: Any = None,
    system_instruction: str | None = None,
    apply_chat_template: bool | str = False,
    fewshot_as_multiturn: bool = True,
    gen_kwargs: Any = None,
    task_manager: Any = None,
    verbosity: Any = None,
    predict_only: bool = False,
    random_seed: int | None = 0,
    numpy_random_seed: int | None = 1234,
    torch_random_seed: int | None = 1234,
    fewshot_random_seed: int | None = 1234,
    confirm_run_unsafe_code: bool = False,
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Evaluate a model on tasks with lm-eval's numbers; its parameters in its order, and any option of `assay run` by name."""
    options = {
        key: value
        for key, value in locals().items()
        if key not in ("model", "model_args", "more", "evaluation_tracker")
    }
    if (
        isinstance(model, str)
        and isinstance(model_args, Mapping)
        and not isinstance(model_args.get("pretrained", ""), str)
    ):
        model, model_args = HFLM(**model_args), None
    given = {**options, "device": None if device is None else str(device), **more}
    found = as_model(model)
    results = assay.simple_evaluate(found, model_args, **_with_lm_evals_numbers(found, given))
    _note(evaluation_tracker, results)
    return results


def evaluate(lm: Any, task_dict: Mapping[Any, Any], limit: float | None = None, **options: Any) -> dict[str, Any]:
    """Evaluate a model on tasks of `get_task_dict`, with lm-eval's numbers."""
    options.pop("evaluation_tracker", None)
    found = as_model(lm)
    return assay.evaluate(found, task_dict, **_with_lm_evals_numbers(found, {"limit": limit, **options}))


def _with_lm_evals_numbers(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with lm-eval's numbers: prompts that are too long lose their beginning, where the model can do that."""
    return {
        "compat": COMPAT,
        "over_length": over_length(model),
        **{k: v for k, v in options.items() if k != "verbosity"},
    }


def over_length(model: Any) -> str:
    """As lm-eval treats prompts that are too long for a model."""
    cuts = (
        "over_length" in parameters(backend(model)) if isinstance(model, str) else bool(getattr(model, "cuts", False))
    )
    return "truncate" if cuts else "error"


def _note(tracker: Any, results: Mapping[str, Any]) -> None:
    if tracker is not None and hasattr(tracker, "general_config_tracker"):
        about = tracker.general_config_tracker
        for key in ("model_source", "model_name", "model_name_sanitized", "system_instruction"):
            setattr(about, key, results.get(key))


def get_sample_size(task: Any, limit: float | None) -> int | None:  # noqa: ARG001  # lm-eval's signature
    """The number of documents that a limit means."""
    if limit is None or limit >= 1:
        return None if limit is None else int(limit)
    raise ImportError("a share of the documents is computed by the run: pass limit to simple_evaluate")


class ScriptTask(Task):
    """A task with lm-eval's methods that scripts call on it."""

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Change a setting; with `update`, some keys of it."""
        before = getattr(self.config, key)
        self.config = replace(self.config, **{key: {**(before or {}), **value} if update else value})

    def get_config(self, key: str) -> Any:
        return getattr(self.config, key)

    def dump_config(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self.config).items() if value is not None}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in IN_A_RUN:
            raise AttributeError(name)
        raise AttributeError(
            f"tasks of assay have no {name}: documents and requests are made by a run — `assay run --dry_run` prints the prompts,"
            " simple_evaluate(...)['samples'] has every document with its requests"
        )


IN_A_RUN = frozenset((
    "build_all_requests", "construct_requests", "doc_iterator", "doc_to_choice", "doc_to_target", "doc_to_text", "eval_docs",
    "fewshot_context", "fewshot_docs", "has_test_docs", "has_training_docs", "has_validation_docs", "instances", "process_results",
    "test_docs", "training_docs", "validation_docs", "dataset", "sampler", "apply_filters", "aggregation", "higher_is_better",
))  # fmt: skip
"""What lm-eval's tasks have and ours do in a run."""


class TaskManager(assay.TaskManager):
    """Finds tasks by name, reading every file as lm-eval reads its own."""

    def __init__(
        self,
        verbosity: Any = None,  # lm-eval's first parameter, without effect there, too
        include_path: Any = None,
        include_defaults: bool = True,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(None, include_path, include_defaults, metadata, COMPAT)

    def load_task_or_group(self, task_list: Any = None) -> dict[str, Any]:
        """Tasks and groups by name: those that were asked for, not the members of groups."""
        loaded = self.load(task_list)
        asked = {task_list} if isinstance(task_list, str) else {each for each in task_list if isinstance(each, str)}
        members = {name for names in loaded["group_map"].values() for name in names} - asked
        for task in loaded["tasks"].values():
            if type(task) is Task:
                task.__class__ = ScriptTask
        return {name: item for name, item in {**loaded["groups"], **loaded["tasks"]}.items() if name not in members}

    def initialize_tasks(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The index of names; it needs no initialization."""
        return dict(self.task_index)

    @property
    def task_index(self) -> Mapping[str, Any]:
        return self.catalog.index.named


def get_task_dict(task_name_list: Any, task_manager: Any = None, *_: Any) -> dict[str, Any]:
    """Tasks and groups by name, for `evaluate`."""
    manager = task_manager if isinstance(task_manager, TaskManager) else TaskManager()
    return manager.load_task_or_group(task_name_list)


def initialize_tasks(*_: Any, **__: Any) -> None:
    """Do nothing: names are indexed when they are first asked for."""


def get_task_name_from_config(task_config: Mapping[str, str]) -> str:
    if "task" in task_config:
        return task_config["task"]
    return "_".join(str(task_config[key]) for key in ("dataset_path", "dataset_name") if key in task_config)


def get_task_name_from_object(task_object: Any) -> str:
    return str(
        getattr(task_object, "name", None) or getattr(task_object, "task_name", None) or type(task_object).__name__
    )


class EvaluatorConfig(SimpleNamespace):
    """The settings of a run as lm-eval's class has them: keywords, or the keys of a YAML file, over its defaults."""

    def __init__(self, **settings: Any) -> None:
        unknown = [key for key in settings if key not in SETTINGS]
        if unknown:
            raise TypeError(f"lm-eval has no setting {unknown[0]!r} — {did_you_mean(unknown[0], SETTINGS)}")
        super().__init__(**{**SETTINGS, **settings})
        for key in (key for key in SETTINGS if key.endswith("_args") or key in ("gen_kwargs", "metadata")):
            setattr(self, key, parse_arguments(getattr(self, key) or None, key))
        self.tasks = self.tasks.split(",") if isinstance(self.tasks, str) else list(self.tasks)

    @classmethod
    def from_config(cls, config_path: Any) -> "EvaluatorConfig":
        return cls(**load_yaml_config(config_path))

    def process_tasks(self, metadata: Mapping[str, Any] | None = None) -> TaskManager:
        """The manager that finds the tasks."""
        return TaskManager(include_path=self.include_path, metadata=metadata)


SETTINGS: Mapping[str, Any] = {
    "config": None, "model": "hf", "model_args": {}, "tasks": [], "num_fewshot": None, "batch_size": 1, "max_batch_size": None,
    "device": None, "limit": None, "samples": None, "use_cache": None, "cache_requests": {}, "check_integrity": False,
    "write_out": False, "log_samples": False, "output_path": None, "predict_only": False, "system_instruction": None,
    "apply_chat_template": False, "fewshot_as_multiturn": None, "show_config": False, "include_path": None, "gen_kwargs": {},
    "verbosity": None, "wandb_args": {}, "wandb_config_args": {}, "hf_hub_log_args": {}, "trackio_args": {},
    "seed": [0, 1234, 1234, 1234], "trust_remote_code": False, "confirm_run_unsafe_code": False, "metadata": {},
}  # fmt: skip
"""lm-eval's settings with their defaults; the device is chosen by the backend."""
