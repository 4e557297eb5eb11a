"""What is noted of a run: all that its results depend on, and what else one may want to know."""

import dataclasses
import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import assay
from assay.catalog.graphs import graph_file
from assay.config.arguments import parse_arguments
from assay.config.option import yaml_fields
from assay.config.run import RunConfig
from assay.config.source import digest
from assay.evaluation.models import UNDER_TEST, parse_role
from assay.evaluation.recognition import served_facts
from assay.models.protocol import AnyModel
from assay.registry import is_plugin_file
from assay.runs.folder import environment, git_state
from assay.runs.origin import signed
from assay.runs.redact import redacted
from assay.samples.rows import file_digest
from assay.tasks import TaskManager
from assay.tasks.runnable import Runnable

NOT_SPEC = ("output_path", "runs_dir", "force", "write_out", "show_config", "dry_run", "log_samples", "tasks",
            "model_args", "include_path", "data_dir", "use_cache", "verbosity", "batch_size", "max_batch_size",
            "device", "max_failed", "include_defaults", "cache_requests", "rewrite_requests_cache",
            "delete_requests_cache", "check_integrity", "model", "model_role", "max_cost", "max_time",
            "max_failures", "plugins", "run_name", "models_file", "model_named", "records_at_once")  # fmt: skip
"""Options that results do not depend on, or that are told by what they led to."""


def spec(
    config: RunConfig, models: Mapping[str, AnyModel], tasks: Iterable[Runnable], helpers: Iterable[Path]
) -> dict[str, Any]:
    """All that the results of a run depend on."""
    options = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in NOT_SPEC}
    given = {key: redacted(value, key) for key, value in options.items() if value is not None}
    code = digest("\n".join(sorted(file_digest(file) for file in helpers)).encode())
    named = {task.task.name: task_digest(task) for task in tasks}
    roles = {role: model.identity for role, model in models.items() if role != UNDER_TEST}
    who = {"model": models[UNDER_TEST].identity, **({"roles": roles} if roles else {})}
    return {**who, "tasks": named, "helper_code": code, **given}


def facts(config: RunConfig, models: Mapping[str, AnyModel]) -> dict[str, Any]:
    """What is noted about a run beside what it depends on."""
    told = {UNDER_TEST: parse_arguments(config.model_args, "model_args")}
    told |= {role: parse_role(written, role)[1] for role, written in (config.model_role or {}).items()}
    named = {
        role: {
            "name": model.name,
            "identity": model.identity,
            "args": redacted(told.get(role, {})),
            **served_facts(model),
        }
        for role, model in models.items()
    }
    return {"model": named.pop(UNDER_TEST), **({"roles": named} if named else {}), "environment": environment()}


def remembered(config: RunConfig, manager: TaskManager) -> dict[str, Any]:
    """What is needed to find the tasks of a run again: its options without secrets, and what conditions spoke of."""
    defaults = RunConfig()
    options = {f.name: getattr(config, f.name) for f in yaml_fields(RunConfig)}
    given = {name: value for name, value in options.items() if value != getattr(defaults, name)}
    roots = manager.catalog.roots
    given["tasks"] = [_named(each, [root.path for root in roots]) for each in config.tasks]
    given["include_path"] = [root.path for root in roots if root.origin == "include_path"]
    given["include_defaults"] = any(root.origin == "bundled" for root in roots)
    if config.plugins:
        given["plugins"] = [str(Path(each).resolve()) if is_plugin_file(each) else each for each in config.plugins]
    if config.data_dir is not None:
        given["data_dir"] = str(Path(config.data_dir).resolve())
    about = (manager.catalog.facts or {}).get("model")
    return {
        **signed(redacted(given)),
        **({"lenient": True} if manager.catalog.lenient else {}),
        **({"conditions": {"model": redacted(about)}} if about else {}),
    }


def helper_digests(files: Iterable[Path]) -> dict[str, str]:
    """Files of helper code, each with a name for its content."""
    return {str(file): file_digest(file) for file in sorted(files)}


def _named(task: object, folders: Sequence[str]) -> object:
    """A task as it can be asked for again, from any folder: a file by its whole path, an object by its name."""
    if isinstance(task, str):
        graph = graph_file(task, folders)
        if graph is not None:
            return str(graph)
        is_file = task.endswith((".yaml", ".yml")) or "/" in task
        return str(Path(task).resolve()) if is_file and Path(task).exists() else task
    return getattr(task, "name", task)


def task_facts(runnable: Runnable) -> dict[str, Any]:
    """What is noted of a task, so that its samples can be scored without its data."""
    return {
        "size": runnable.size,
        "original": runnable.original,
        "repeats": runnable.repeats,
        "num_fewshot": runnable.num_fewshot,
        "multiple_targets": runnable.multiple_targets,
        "source": runnable.source,
    }


def config_section(config: RunConfig, model: AnyModel) -> dict[str, Any]:
    """The section `config` of lm-eval's results."""
    return {
        "model": model.name,
        "model_args": redacted(parse_arguments(config.model_args, "model_args")),
        "batch_size": config.batch_size,
        "batch_sizes": [],
        "device": config.device,
        "use_cache": config.use_cache,
        "limit": config.limit,
        "sample": config.sample,
        "num_fewshot": config.num_fewshot,
        "repeats": config.repeats,
        "apply_chat_template": config.apply_chat_template,
        "system_instruction": config.system_instruction,
        "bootstrap_iters": config.bootstrap_iters,
        "gen_kwargs": redacted(parse_arguments(config.gen_kwargs, "gen_kwargs"), texts=False) or None,
        "random_seed": config.random_seed,
        "numpy_seed": config.numpy_random_seed,
        "torch_seed": config.torch_random_seed,
        "fewshot_seed": config.fewshot_random_seed,
    }


def model_name(config: RunConfig, model: AnyModel) -> str:
    """What the model is called: its weights or its name at a server, else its backend."""
    told = parse_arguments(config.model_args, "model_args")
    return next((str(told[key]) for key in ("pretrained", "model", "path") if told.get(key)), model.name)


def run_section(config: RunConfig, model: AnyModel, started: float) -> dict[str, Any]:
    """What else lm-eval tells of a run, under its names. Times differ from run to run; nothing else does."""
    named = model_name(config, model)
    system, ended = config.system_instruction, time.time()
    git = git_state()
    return {
        "git_hash": git["commit"] if git is not None else None,
        "date": started,
        "lm_eval_version": None,
        "assay_version": assay.__version__,
        "max_length": model.max_length,
        "model_source": config.model,
        "model_name": named,
        "model_name_sanitized": re.sub(r"[\"<>:/|\\?*\[\]]+", "__", named),
        "system_instruction": system,
        "system_instruction_sha": hashlib.sha256(system.encode()).hexdigest() if system is not None else None,
        "fewshot_as_multiturn": config.fewshot_as_multiturn,
        "start_time": started,
        "end_time": ended,
        "total_evaluation_time_seconds": str(ended - started),
    }


def again(results: Mapping[str, Any]) -> dict[str, Any]:
    """What results tell of a run, for results that are made of its answers now."""
    now = time.time()
    told = {key: results[key] for key in RUN_KEYS if key in results}
    return {"config": results.get("config", {}), **told, "date": now}


RUN_KEYS = (
    "git_hash", "date", "lm_eval_version", "assay_version", "max_length", "model_source", "model_name", "model_name_sanitized",
    "system_instruction", "system_instruction_sha", "fewshot_as_multiturn", "start_time", "end_time",
    "total_evaluation_time_seconds",
)  # fmt: skip
"""What `run_section` tells."""


def task_digest(runnable: Runnable) -> str:
    """A name for all that a task is: its settings and its data."""
    settings = {key: str(value) for key, value in runnable.described().items()}
    return digest("\n".join([repr(sorted(settings.items())), runnable.fingerprint]).encode())
