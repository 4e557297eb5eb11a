"""`assay merge`: the flow with the answers of all shards. Their journals are united, and every sample is scored once more."""

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.answers import StoredRun
from assay.evaluation.definitions import load_definitions
from assay.evaluation.flow import finish
from assay.evaluation.manifest import again, helper_digests
from assay.evaluation.prepare import Prepared, prepare_to_score
from assay.evaluation.score import changed_keys
from assay.evaluation.scoring import ScoredTasks, UsageSummary, replay, scorer_memories, scorer_processes
from assay.evaluation.writing import all_of, folder_sinks
from assay.graphs.output import GraphFiles
from assay.graphs.spec import Record
from assay.registry import load_plugins
from assay.results import Results
from assay.runs.folder import CHECKSUMS, WAS_CUT_OFF, RunFolder, difference, open_run
from assay.runs.journal import NAME, lines
from assay.runs.results import ManifestJSON, total_usage
from assay.runs.samples.reader import ReplayedSample
from assay.runs.signature import SIGNATURE, with_signature
from assay.tasks import TaskManager
from assay.tasks.documents import parse_shard
from assay.tasks.preflight import refuse_unsafe
from assay.tasks.rescore import StoredTask
from assay.tasks.run import TaskRun
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Shard

OWN = ("format", "created", "spec", "spec_digest", "status", "requests", "finished", "tasks", "options", "command",
       WAS_CUT_OFF, CHECKSUMS, SIGNATURE)  # fmt: skip
"""Keys of a manifest that belong to one shard alone, or that the merged run writes itself."""


@dataclass(frozen=True)
class Shards(StoredRun):
    """The answers of all shards of a run, in the order of its documents; all else is the first shard's."""

    parts: Sequence[StoredRun] = ()

    @cached_property
    def config(self) -> RunConfig:
        return replace(self.parts[0].config, shard=None)

    @cached_property
    def manager(self) -> TaskManager:
        return self.parts[0].manager

    def record(self, name: str) -> Record | None:
        records = (part.record(name) for part in self.parts)
        return next((record for record in records if record is not None), None)

    def stored(self, name: str) -> StoredTask:
        stored = [part.stored(name) for part in self.parts]
        return stored[0]._replace(size=sum(shard.size for shard in stored))

    def samples(self, task: Runnable) -> Iterator[ReplayedSample]:
        return heapq.merge(*(part.samples(task) for part in self.parts), key=lambda stored: stored.sample.doc_id)


def merge(
    output: str | Path,
    folders: Sequence[str | Path],
    *,
    include_path: Sequence[str] = (),
    force: bool = False,
    confirm_run_unsafe_code: bool = False,
) -> Results:
    """Merge the shards of a run into a new folder; returns the results of the whole run."""
    if Path(output).resolve() in [Path(folder).resolve() for folder in folders]:
        raise ConfigError.at(output, "is one of the shards", "name a new folder first: OUT RUN…")
    parts = _in_order([StoredRun.of(Path(folder), include_path) for folder in folders])
    shards = Shards(parts[0].run, include_path, parts)
    loaded = load_definitions(shards)
    if loaded.left_out:
        fix = "restore the definition that the shards were run with"
        raise ConfigError([Problem(Place(f"group {name!r}"), why, fix) for name, why in loaded.left_out.items()])
    refuse_unsafe(loaded.tasks.values(), confirmed=confirm_run_unsafe_code or shards.config.confirm_run_unsafe_code)
    prepared = prepare_to_score(shards, loaded, shards.config)
    _refuse_changed(shards, prepared.tasks, [*prepared.helper_files, *load_plugins(shards.config.plugins)])
    with (
        scorer_processes(prepared.scorers),
        open_run(Path(output), _spec(shards.parts[0]), _facts(shards), force=force) as folder,
        scorer_memories(prepared.scorers, folder.path),
    ):
        for part in shards.parts:
            folder.journal.add_lines(lines(part.folder / NAME))
        return finish(prepared, replay(shards.samples, _usage(shards)), MergedOutput(shards, prepared, folder))


@dataclass(frozen=True)
class MergedOutput:
    """The folder of the whole run."""

    shards: Shards
    prepared: Prepared
    folder: RunFolder

    def task_run(self, task: Runnable) -> TaskRun:
        sinks, end = folder_sinks(self.folder, self.prepared, task)
        return TaskRun(task, all_of(sinks), end)

    def write(self, results: Results, scored: ScoredTasks) -> Results:
        for files in self.folder.keepers:
            if isinstance(files, GraphFiles):
                files.write_copies()
        usage = scored.usage
        complete = replace(again(results, self.shards.results), usage=usage.account)
        self.folder.finish(complete, usage.requests)
        return complete


def _in_order(parts: Sequence[StoredRun]) -> list[StoredRun]:
    """The shards by their number; everything that keeps them from being one run is raised at once."""
    numbered: dict[int, StoredRun] = {}
    problems: list[Problem] = []
    for part in parts:
        shard = _shard(part)
        first = next(iter(numbered.values()), None)
        fault = _fault(part, shard, first)
        if fault is None and shard is not None and shard.number in numbered:
            what = f"shard {shard.number}/{shard.of} is named twice: here and in {numbered[shard.number].folder}"
            fault = (what, "name each shard once")
        if fault is not None:
            problems.append(Problem(Place(str(part.folder)), *fault))
        elif shard is not None:
            numbered[shard.number] = part
    if not parts:
        problems = [Problem(Place("merge"), "no shards were named", "name the folder of each")]
    if not problems:
        problems = _missing(numbered)
    if problems:
        raise ConfigError(problems)
    return [numbered[number] for number in sorted(numbered)]


def _refuse_changed(shards: Shards, tasks: Sequence[Runnable], code: Sequence[Path]) -> None:
    """Refuse tasks that changed since the shards were run: the merged results would differ from the shards'."""
    fix = "restore the old version and merge; then score the merged run with the new one: `assay score`"
    problems = [
        Problem(Place(f"task {task.task.name!r}"), f"changed since the shards were run: {', '.join(keys)}", fix)
        for task in tasks
        if (keys := changed_keys(shards, task))
    ]
    known = shards.parts[0].manifest.get("helper_files", {})
    for file, now in helper_digests(code).items():
        if known.get(file, now) != now:
            problems.append(Problem(Place(file), "changed since the shards were run", fix))
    if problems:
        raise ConfigError(problems)


def _shard(part: StoredRun) -> Shard | None:
    return parse_shard(part.manifest["options"].get("shard"))


def _fault(part: StoredRun, shard: Shard | None, first: StoredRun | None) -> tuple[str, str] | None:
    """Why a folder is not a shard, or not of the same run as the first."""
    if shard is None:
        return "is a whole run, not a shard", "name folders of runs with --shard I/N"
    ended = part.results.ended
    if "finished" not in part.manifest or part.results.is_empty or part.absent:
        return f"shard {shard.number}/{shard.of} has not finished", "run its command again to resume it"
    if ended:
        return f"shard {shard.number}/{shard.of} ended early: {ended}", "run its command again to resume it"
    if first is None:
        return None
    of = _shard(first)
    if of is not None and of.of != shard.of:
        return f"is one of {shard.of} shards, and {first.folder} one of {of.of}", "name shards of one run"
    differing = difference(_without_addresses(_spec(first)), _without_addresses(_spec(part)))
    what = f"is a shard of another run than {first.folder} ({differing})"
    return (what, "name shards of one run") if differing else None


def _missing(numbered: Mapping[int, StoredRun]) -> list[Problem]:
    shard = _shard(next(iter(numbered.values())))
    assert shard is not None, "looked at before"
    absent = [f"{number}/{shard.of}" for number in range(1, shard.of + 1) if number not in numbered]
    fix = "run what is missing, and name its folder, too"
    what = f"shard{'s' if len(absent) > 1 else ''} missing: {', '.join(absent)}"
    return [Problem(Place("merge"), what, fix)] if absent else []


def _spec(part: StoredRun) -> ManifestJSON:
    """The spec of the whole run: the same command without --shard resumes in the merged folder."""
    return {key: value for key, value in part.manifest["spec"].items() if key != "shard"}


def _without_addresses(spec: ManifestJSON) -> ManifestJSON:
    """A spec without server addresses: each shard may ask another server of the same model."""
    return {**spec, "model": re.sub(r"https?://\S+", "", str(spec.get("model")))}


def _facts(shards: Shards) -> ManifestJSON:
    first = shards.parts[0].manifest
    options = {key: value for key, value in shards.parts[0].options.items() if key != "shard" and value is not None}
    options["include_path"] = list(dict.fromkeys(str(Path(path).resolve()) for path in options.get("include_path", ())))
    return {
        **{key: value for key, value in first.items() if key not in OWN},
        **with_signature(options),
        "tasks": {name: shards.stored(name)._asdict() for name in first["tasks"]},
        "merged": [str(part.folder.resolve()) for part in shards.parts],
        **({WAS_CUT_OFF: True} if any(part.manifest.get(WAS_CUT_OFF) for part in shards.parts) else {}),
    }


def _usage(shards: Shards) -> UsageSummary:
    accounts = [part.results.usage for part in shards.parts if part.results.usage]
    requests: Counter[str] = Counter()
    for part in shards.parts:
        requests.update(part.manifest.get("requests", {}))
    return UsageSummary(total_usage(accounts) if accounts else {}, dict(requests))
