"""The modules below `lm_eval` that scripts import, each with its names. What is not here is answered with assay's way."""

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "lm_eval.api.model": ("_models", ("LM", "TemplateLM", "CacheHook", "CachingLM")),
    "lm_eval.config": ("_evaluation", ()),
    "lm_eval.config.evaluate_config": ("_evaluation", ("EvaluatorConfig",)),
    "lm_eval.evaluator": ("_evaluation", ("simple_evaluate", "evaluate")),
    "lm_eval.evaluator_utils": ("_evaluation", ("get_sample_size",)),
    "lm_eval.loggers": ("_tracking", ("EvaluationTracker", "WandbLogger", "TrackioLogger")),
    "lm_eval.loggers.evaluation_tracker": ("_tracking", ("EvaluationTracker", "GeneralConfigTracker")),
    "lm_eval.loggers.trackio_logger": ("_tracking", ("TrackioLogger",)),
    "lm_eval.loggers.utils": ("_utils", ("remove_none_pattern",)),
    "lm_eval.loggers.wandb_logger": ("_tracking", ("WandbLogger",)),
    "lm_eval.logging_utils": ("_tracking", ("WandbLogger",)),
    "lm_eval.models": ("_models", ("MODEL_MAPPING",)),
    "lm_eval.models.anthropic_llms": ("_models", ("AnthropicChat",)),
    "lm_eval.models.dummy": ("_models", ("DummyLM",)),
    "lm_eval.models.huggingface": ("_models", ("HFLM",)),
    "lm_eval.models.litellm_llms": ("_models", ("LiteLLMChatCompletion",)),
    "lm_eval.models.openai_completions": (
        "_models",
        ("LocalCompletionsAPI", "LocalChatCompletion", "OpenAICompletionsAPI", "OpenAIChatCompletion"),
    ),
    "lm_eval.models.utils": ("_utils", ("chunks", "clear_torch_cache", "get_dtype", "handle_stop_sequences", "undistribute")),
    "lm_eval.models.vllm_causallms": ("_models", ("VLLM",)),
    "lm_eval.tasks": (
        "_evaluation",
        ("TaskManager", "get_task_dict", "initialize_tasks", "get_task_name_from_config", "get_task_name_from_object"),
    ),
    "lm_eval.tasks.manager": ("_evaluation", ("TaskManager",)),
    "lm_eval.utils": (
        "_utils",
        (
            "make_table", "setup_logging", "handle_non_serializable", "hash_string", "sanitize_model_name",
            "sanitize_task_name", "sanitize_list", "get_file_task_name", "get_file_datetime", "get_latest_filename",
            "get_results_filenames", "get_sample_results_filenames", "get_rolling_token_windows", "make_disjoint_window",
            "escaped_split", "join_iters", "create_iterator", "EnhancedJSONEncoder", "warning_once", "info_once",
            "random_name_id", "is_torch_available", "is_transformers_available", "wrap_text", "set_torch_seed",
            "load_yaml_config", "request_caching_arg_to_dict",
        ),
    ),
}  # fmt: skip
"""Modules with the file here that has their names; those of assay's `compat` are added to them."""

WAYS = {
    "lm_eval.models": "derive from lm_eval.api.model.LM, or write a backend (docs/backends.md); `assay ls models` lists all",
    "lm_eval.models.utils": "copy it into your script: it is a helper of lm-eval's models, which are not here",
    "lm_eval.decontamination": "assay has no search for contaminated documents",
    "lm_eval.caching": "--use_cache DIR keeps responses; `assay cache` lists and removes them",
    "lm_eval.prompts": "write prompts with doc_to_text, or as formats (docs/formats.md)",
    "lm_eval.config": "assay.RunConfig has the options of a run, assay.TaskConfig those of a task",
    "lm_eval.evaluator_utils": "assay.simple_evaluate returns everything; assay.Run opens a stored run",
    "lm_eval.loggers": "assay.export(RUN, 'wandb'), 'mlflow', 'trackio' or 'hf-hub' logs a stored run",
    "lm_eval._cli": "run `lm_eval` as a command, or assay.simple_evaluate in Python",
    "lm_eval.tasks": "assay.TaskManager finds and loads tasks",
}
GENERAL = (
    "docs/migrating.md of assay lists every name; for lm-eval itself: pip uninstall assay-lm-eval, pip install lm_eval"
)


def _way(name: str) -> str:
    parts = name.split(".")
    known = next((WAYS[key] for size in range(len(parts), 1, -1) if (key := ".".join(parts[:size])) in WAYS), None)
    return f"{known}; {GENERAL}" if known else GENERAL


def missing(module: str, name: str) -> Any:
    """Answer for a name that a module does not have."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{module}.{name}":
            raise
    raise ImportError(f"assay-lm-eval has no {module}.{name} — {_way(f'{module}.{name}')}", name=module)


def _compat() -> dict[str, ModuleType]:
    """The modules that assay supplies to helper code of tasks; one set of them, so that what is registered is found again."""
    from lm_eval import _registry

    return _registry.MODULES


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules below `lm_eval` that are not files."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("lm_eval.") or fullname.rpartition(".")[2].startswith("_"):
            return None
        if fullname in OWN or fullname in _compat():
            return ModuleSpec(fullname, self, is_package=True)
        raise ModuleNotFoundError(f"assay-lm-eval has no module {fullname} — {_way(fullname)}", name=fullname)

    def create_module(self, spec: ModuleSpec) -> None:  # the usual one
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        supplied = _compat().get(name)
        if supplied is not None:
            module.__dict__.update({key: value for key, value in vars(supplied).items() if not key.startswith("__")})
            for key in [key for key, value in vars(module).items() if isinstance(value, ModuleType)]:
                if f"{name}.{key}" in _compat():
                    del module.__dict__[key]  # imported as a module when it is asked for
        file, names = OWN.get(name, ("", ()))
        if names:
            source = importlib.import_module(f"lm_eval.{file}")
            module.__dict__.update({each: getattr(source, each) for each in names})
        module.__getattr__ = _getter(name)  # type: ignore[method-assign]


def _getter(module: str) -> Callable[[str], Any]:
    return lambda name: missing(module, name)


def install() -> None:
    """Add the finder, once, behind that of files."""
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        sys.meta_path.append(Finder())
