"""The folder of a run, opened to be handed on: its numbers, and the samples of each of its tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from assay.runs.folder import RunError, no_run, read_manifest, read_results
from assay.runs.redact import redacted
from assay.runs.stored import SampleFile, sample_file
from assay.runs.versions import NAME as SCORED

BY_NAME = frozenset(
    ("configs", "results", "groups", "group_subtasks", "versions", "n-shot", "n-samples", "higher_is_better", "tasks")
)
"""Parts of results and manifests by task or group, which may be called anything."""


@dataclass(frozen=True)
class Opened:
    """A run that has ended, or a scoring of one: what it found out, and what is known of how."""

    folder: Path
    results: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @cached_property
    def tasks(self) -> dict[str, Path]:
        """The samples files by task, in the order of the results."""
        found = {name: sample_file(self.folder, name) for name in self.results.get("n-samples", {})}
        return {name: path for name, path in found.items() if path is not None}

    def facts(self, task: str) -> Mapping[str, Any]:
        """What is noted of a task: how many documents, how often each was asked about, which data they are from."""
        found: Mapping[str, Any] = self.manifest.get("tasks", {}).get(task, {})
        return found

    def repeats(self, task: str) -> int:
        return int(self.facts(task).get("repeats") or 1)

    def samples(self, task: str) -> SampleFile:
        return SampleFile(self.tasks[task], self.repeats(task))

    def account(self, task: str) -> Mapping[str, Any]:
        """What lm-eval's layout has no place for, of a task."""
        found: Mapping[str, Any] = self.results.get("assay", {}).get("tasks", {}).get(task, {})
        return found

    @property
    def model(self) -> str:
        """What the model is called: how it was reached, and its name."""
        source, name = self.results.get("model_source"), self.results.get("model_name")
        parts = [str(part) for part in dict.fromkeys((source, name)) if part]
        return "/".join(parts) or str(self.results.get("config", {}).get("model"))


def opened(folder: str | Path) -> Opened:
    """The run in a folder; a scoring of it (RUN/scored/001) is told more by the folder of the run above."""
    path = Path(folder)
    results, manifest = read_results(path), read_manifest(path)
    if not results or not manifest:
        what = "the run has not come to its end" if manifest else "the folder holds no run"
        raise RunError([no_run(path, what)])
    if "tasks" not in manifest and path.resolve().parent.name == SCORED:
        whole = read_manifest(path.resolve().parent.parent)
        manifest = {**whole, **manifest}
    return Opened(path, without_secrets(results), without_secrets(manifest))


def without_secrets(value: Mapping[str, Any]) -> dict[str, Any]:
    """Results or a manifest without keys and passwords, whoever wrote them.

    >>> without_secrets({"config": {"model_args": {"api_key": "abc"}}, "results": {"key": {"alias": "key"}}})
    {'config': {'model_args': {'api_key': '***'}}, 'results': {'key': {'alias': 'key'}}}
    """
    return {key: _part(key, each) for key, each in value.items()}


def _part(key: str, value: Any) -> Any:
    if key == "assay":
        return _account(value)
    if key in BY_NAME and isinstance(value, Mapping):
        return {name: redacted(each, texts=key != "configs") for name, each in value.items()}
    return redacted(value, key, texts=key != "system_instruction")  # prompts may speak of keys


def _account(value: Any, name: str = "") -> Any:
    """What we tell ourselves, without secrets: its names are those of tasks, metrics, filters and models, which may be called
    anything; only what users wrote about a group is theirs."""
    if name == "metadata":
        return redacted(value, name)
    if isinstance(value, Mapping):
        return {key: _account(each, str(key)) for key, each in value.items()}
    return [_account(each) for each in value] if isinstance(value, list) else redacted(value)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file; an empty one where there is none."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
