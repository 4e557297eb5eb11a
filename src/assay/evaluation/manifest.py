"""The manifest of a run: its spec, which is everything its results depend on, and the facts recorded beside it."""

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.catalog.selection import graph_file
from assay.config.arguments import parse_arguments
from assay.config.option import YAMLValue, yaml_fields
from assay.config.run import OPTIONS, RunConfig, identity_of
from assay.config.source import digest
from assay.evaluation.models import parse_role, served_facts
from assay.models.protocol import AnyModel
from assay.models.servers.server_model import ServerModel
from assay.records import JSONDict
from assay.redaction import is_header, is_secret, reveal
from assay.registry import is_plugin_file
from assay.results import Results
from assay.runs.folder import as_written, environment
from assay.runs.results import ManifestJSON, plain
from assay.runs.signature import with_signature
from assay.samples.rows import file_digest
from assay.tasks import TaskManager
from assay.tasks.runnable import UNDER_TEST, Runnable
from assay.user_code import named_code
from assay.version import __version__


def spec(
    config: RunConfig, models: Mapping[str, AnyModel], tasks: Iterable[Runnable], helpers: Iterable[Path]
) -> ManifestJSON:
    """Everything that the results of a run depend on."""
    options = {key: value for key, value in identity_of(config).items() if value is not None}
    code = digest("\n".join(sorted(file_digest(file) for file in helpers)).encode())
    digests = {task.task.name: task_digest(task) for task in tasks}
    roles = {role: model.identity for role, model in models.items() if role != UNDER_TEST}
    identities = {"model": models[UNDER_TEST].identity, **({"roles": roles} if roles else {})}
    return {**identities, "tasks": digests, "helper_code": code, **options}


def facts(config: RunConfig, models: Mapping[str, AnyModel]) -> ManifestJSON:
    """Facts of a run beside its spec: models and environment."""
    arguments = {UNDER_TEST: parse_arguments(config.model_args, "model_args")}
    arguments |= {role: parse_role(written, role)[1] for role, written in (config.model_role or {}).items()}
    named = {
        role: {
            "name": model.name,
            "identity": model.identity,
            "args": arguments.get(role, {}),
            **served_facts(model),
        }
        for role, model in models.items()
    }
    return {"model": named.pop(UNDER_TEST), **({"roles": named} if named else {}), "environment": environment()}


def remembered(config: RunConfig, manager: TaskManager) -> ManifestJSON:
    """Facts for loading the tasks of a run again: its options without secrets, and those of conditions."""
    defaults = RunConfig()
    options = {f.name: getattr(config, f.name) for f in yaml_fields(RunConfig)}
    changed = {name: value for name, value in options.items() if value != getattr(defaults, name)}
    roots = manager.catalog.roots
    changed["tasks"] = [_task_spec(task, [root.path for root in roots]) for task in config.tasks]
    changed["include_path"] = [root.path for root in roots if root.origin == "include_path"]
    changed["include_defaults"] = any(root.origin == "bundled" for root in roots)
    if config.plugins:
        changed["plugins"] = [str(Path(each).resolve()) if is_plugin_file(each) else each for each in config.plugins]
    if config.data_dir is not None:
        changed["data_dir"] = str(Path(config.data_dir).resolve())
    about = (manager.facts or {}).get("model")
    return {
        **with_signature(as_written(changed)),
        **({"task_compat": manager.compat} if manager.compat is not None else {}),
        **({"conditions": {"model": about}} if about else {}),
    }


def helper_digests(files: Iterable[Path]) -> dict[str, str]:
    """Files of helper code, each with the digest of its content."""
    return {str(file): file_digest(file) for file in sorted(files)}


def _task_spec(task: YAMLValue, folders: Sequence[str]) -> YAMLValue:
    """A task spec that works from any folder: a file by its absolute path, an object and code by their names."""
    if isinstance(task, str):
        graph = graph_file(task, folders)
        if graph is not None:
            return str(graph)
        is_file = task.endswith((".yaml", ".yml")) or "/" in task
        return str(Path(task).resolve()) if is_file and Path(task).exists() else task
    return named_code(getattr(task, "name", task))


def task_facts(runnable: Runnable) -> ManifestJSON:
    """Facts of a task that scoring its samples needs when its data is not there."""
    facts = runnable.facts
    return {
        "size": facts.size,
        "original": facts.original,
        "repeats": facts.repeats,
        "num_fewshot": facts.num_fewshot,
        "multiple_targets": facts.multiple_targets,
        "source": facts.source,
    }


def config_section(config: RunConfig, model: AnyModel) -> JSONDict:
    """The section `config` of lm-eval's results."""
    return {
        "model": model.name,
        "model_args": plain(parse_arguments(config.model_args, "model_args")),
        **{use.results: getattr(config, name) for name, use in OPTIONS.items() if use.results},
        "batch_sizes": [],
        "gen_kwargs": plain(parse_arguments(config.gen_kwargs, "gen_kwargs")) or None,
    }


def model_name(config: RunConfig, model: AnyModel) -> str:
    """The name of the model: its weights, its name at a server, or its backend."""
    arguments = plain(parse_arguments(config.model_args, "model_args"))
    served = model.model if isinstance(model, ServerModel) else model.name
    return next((str(arguments[key]) for key in ("pretrained", "model", "path") if arguments.get(key)), served)


def run_section(config: RunConfig, model: AnyModel, started: float, git: JSONDict | None) -> JSONDict:
    """The other keys that lm-eval reports of a run. Times differ from run to run; nothing else does."""
    named = model_name(config, model)
    system, ended = config.system_instruction, time.time()
    return {
        "git_hash": git["commit"] if git is not None else None,
        "date": started,
        "lm_eval_version": None,
        "assay_version": __version__,
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


def again(results: Results, before: Results) -> Results:
    """Results with the facts of the run before, which a rescoring or a merge keeps."""
    kept = {key: before.facts[key] for key in RUN_KEYS if key in before.facts}
    return replace(results, config=before.config, facts={**kept, "date": time.time()})


RUN_KEYS = (
    "git_hash", "date", "lm_eval_version", "assay_version", "max_length", "model_source", "model_name", "model_name_sanitized",
    "system_instruction", "system_instruction_sha", "fewshot_as_multiturn", "start_time", "end_time",
    "total_evaluation_time_seconds",
)  # fmt: skip
"""The keys of `run_section`."""


def task_digest(runnable: Runnable) -> str:
    """Digest of a task: its settings and its data, whatever becomes of its tool calls when the run is resumed."""
    described = runnable.described()
    if runnable.task.definition is not None:
        described = _without_resume_rules(described)
    settings = {key: str(value) for key, value in _without_keys(described).items()}
    return digest("\n".join([repr(sorted(settings.items())), runnable.facts.fingerprint]).encode())


def _without_keys(value: YAMLValue, name: str = "") -> Any:
    """The settings without keys and headers, which may be renewed; what only has such a name identifies a task as all else does."""
    if is_header(name) or is_secret(name, certain=True):
        return None
    if isinstance(value, Mapping):
        return {key: _without_keys(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_keys(inner) for inner in value]
    return reveal(value)


def _without_resume_rules(value: YAMLValue) -> Any:
    """The settings of a graph without those that say which tool calls a resumed run makes again: they do not change what is
    measured."""
    if isinstance(value, Mapping):
        plain = {key: _without_resume_rules(inner) for key, inner in value.items()}
        return (
            {**plain, "tools": [*map(_without_rules, plain["tools"])]}
            if isinstance(plain.get("tools"), list)
            else plain
        )
    return [*map(_without_resume_rules, value)] if isinstance(value, list | tuple) else value


def _without_rules(tool: YAMLValue) -> YAMLValue:
    """A tool of a node, as its name where nothing else is left."""
    if not isinstance(tool, Mapping):
        return tool
    left = {key: value for key, value in tool.items() if key not in ("repeatable", "on_resume")}
    return left["name"] if left.keys() == {"name"} else left
