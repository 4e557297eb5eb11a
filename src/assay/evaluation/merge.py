"""Shards of a run put together: a union of journals, and one scoring of all samples."""

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.answers import StoredRun
from assay.evaluation.conduct import fewer_collections
from assay.evaluation.definitions import definitions
from assay.evaluation.graphs import graph_files
from assay.evaluation.outcome import outcome
from assay.evaluation.record import again, helper_digests
from assay.evaluation.score import changed_keys, feed, ready
from assay.registry import load_plugins
from assay.runs.folder import RunFolder, difference, open_run
from assay.runs.journal import NAME, lines
from assay.runs.results import total_usage
from assay.runs.samples.reader import AnsweredSample
from assay.runs.samples.records import SampleRecord
from assay.runs.signature import SIGNATURE, with_signature
from assay.tasks import TaskManager
from assay.tasks.documents import parse_shard
from assay.tasks.preflight import refuse_unsafe
from assay.tasks.rescore import TaskFacts
from assay.tasks.run import TaskRun
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Shard

OWN = ("format", "created", "spec", "spec_digest", "status", "requests", "finished", "tasks", "options", "command",
       SIGNATURE)  # fmt: skip
"""What a manifest says of one shard alone, or what is made anew."""


@dataclass(frozen=True)
class Shards:
    """The answers of all shards of a run, in the order of its documents."""

    parts: Sequence[StoredRun]

    @property
    def folder(self) -> Path:
        return self.parts[0].folder

    @cached_property
    def config(self) -> RunConfig:
        return replace(self.parts[0].config, shard=None)

    @property
    def names(self) -> Sequence[str]:
        return self.parts[0].names

    @property
    def absent(self) -> Sequence[str]:
        return ()

    @property
    def broken(self) -> Mapping[str, str]:
        return self.parts[0].broken

    @property
    def left_out(self) -> Sequence[str]:
        return self.parts[0].left_out

    @property
    def results(self) -> Mapping[str, Any]:
        return self.parts[0].results

    @property
    def manager(self) -> TaskManager:
        return self.parts[0].manager

    @property
    def created(self) -> float:
        return self.parts[0].created

    def record(self, name: str) -> Mapping[str, Any] | None:
        found = (part.record(name) for part in self.parts)
        return next((record for record in found if record is not None), None)

    def facts(self, name: str) -> TaskFacts:
        several = [part.facts(name) for part in self.parts]
        return several[0]._replace(size=sum(each.size for each in several))

    def samples(self, task: Runnable) -> Iterator[AnsweredSample]:
        return heapq.merge(*(part.samples(task) for part in self.parts), key=lambda stored: stored.sample.doc_id)


def merge(
    output: str | Path,
    folders: Sequence[str | Path],
    *,
    include_path: Sequence[str] = (),
    force: bool = False,
    confirm_run_unsafe_code: bool = False,
) -> dict[str, Any]:
    """Put the shards of a run together in a new folder; the result is the content of its results.json."""
    if Path(output).resolve() in [Path(folder).resolve() for folder in folders]:
        raise ConfigError([Problem(Place(str(output)), "is one of the shards", "name a new folder first: OUT RUN…")])
    shards = Shards(_in_order([StoredRun.of(Path(folder), include_path) for folder in folders]))
    found = definitions(shards)
    refuse_unsafe(found.tasks.values(), confirmed=confirm_run_unsafe_code or shards.config.confirm_run_unsafe_code)
    runs, broken, code = ready(shards, found, shards.config)
    _refuse_changed(shards, runs, [*code, *load_plugins(shards.config.plugins)])
    folder = open_run(Path(output), _spec(shards.parts[0]), _facts(shards), force=force)
    with folder:
        _union(folder, shards)
        files = graph_files(shards, runs, folder.path, folder.manifest["created"])
        folder.keepers += files
        with fewer_collections():
            for run in runs:
                _score(folder, shards, run)
        results = outcome(runs, found.groups.values(), shards.config, broken)
        for each in files:
            each.write_copies()
        account = {**results.pop("assay"), **_account(shards)}
        whole = {**results, **again(shards.results), "assay": account}
        folder.finish(whole, account["status"], _counts(shards))
    return whole


def _in_order(parts: Sequence[StoredRun]) -> list[StoredRun]:
    """The shards by their number; or what keeps them from being one run, all of it at once."""
    numbered: dict[int, StoredRun] = {}
    problems: list[Problem] = []
    for part in parts:
        shard = _shard(part)
        first = next(iter(numbered.values()), None)
        fault = _fault(part, shard, first)
        if fault is None and shard is not None and shard.number in numbered:
            what = f"shard {shard.number}/{shard.of} is there twice: here and in {numbered[shard.number].folder}"
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


def _refuse_changed(shards: Shards, runs: Sequence[TaskRun], code: Sequence[Path]) -> None:
    """Tasks that are not what they were when the shards were run would make another result than those of the shards."""
    fix = "put it back, merge, and score the whole with what is new: `assay score`"
    problems = [
        Problem(Place(f"task {run.runnable.task.name!r}"), f"changed since the shards were run: {', '.join(keys)}", fix)
        for run in runs
        if (keys := changed_keys(shards, run))
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
    """Why a folder is no shard, or not of the same run as another."""
    if shard is None:
        return "is a whole run, no shard", "name folders of runs with --shard I/N"
    account = part.results.get("assay", {})
    if "finished" not in part.manifest or not account or part.absent:
        return f"shard {shard.number}/{shard.of} has not finished", "give its command again: it goes on"
    if account.get("ended"):
        return f"shard {shard.number}/{shard.of} ended early: {account['ended']}", "give its command again: it goes on"
    if first is None:
        return None
    of = _shard(first)
    if of is not None and of.of != shard.of:
        return f"is one of {shard.of} shards, and {first.folder} one of {of.of}", "name shards of one run"
    told = difference(_without_addresses(_spec(first)), _without_addresses(_spec(part)))
    return (f"is a shard of another run than {first.folder} ({told})", "name shards of one run") if told else None


def _missing(numbered: Mapping[int, StoredRun]) -> list[Problem]:
    shard = _shard(next(iter(numbered.values())))
    assert shard is not None, "looked at before"
    absent = [f"{number}/{shard.of}" for number in range(1, shard.of + 1) if number not in numbered]
    fix = "run what is missing, and name its folder, too"
    what = f"shard{'s' if len(absent) > 1 else ''} missing: {', '.join(absent)}"
    return [Problem(Place("merge"), what, fix)] if absent else []


def _spec(part: StoredRun) -> dict[str, Any]:
    """What the whole run depends on: the same command without --shard goes on in the merged folder."""
    return {key: value for key, value in part.manifest["spec"].items() if key != "shard"}


def _without_addresses(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Each shard may ask a server of its own: the same model is there if it has the name and greets the same."""
    return {**spec, "model": re.sub(r"https?://\S+", "", str(spec.get("model")))}


def _facts(shards: Shards) -> dict[str, Any]:
    first = shards.parts[0].manifest
    options = {key: value for key, value in shards.parts[0].options.items() if key != "shard" and value is not None}
    options["include_path"] = list(dict.fromkeys(str(Path(each).resolve()) for each in options.get("include_path", ())))
    return {
        **{key: value for key, value in first.items() if key not in OWN},
        **with_signature(options),
        "tasks": {name: shards.facts(name)._asdict() for name in first["tasks"]},
        "merged": [str(part.folder.resolve()) for part in shards.parts],
    }


def _union(folder: RunFolder, shards: Shards) -> None:
    """Every answer of every journal, once."""
    for part in shards.parts:
        folder.journal.add_lines(lines(part.folder / NAME))


def _score(folder: RunFolder, shards: Shards, run: TaskRun) -> None:
    name = run.runnable.task.name
    keeper = folder.keeper(name, shards.config.log_samples, partial(_logged_id, shards.config, name))
    records = run.keep

    def keep(kept: SampleRecord) -> None:
        keeper.add(kept)
        if records is not None:
            records(kept)

    run.keep, run.ended = keep, keeper.end
    feed(shards.samples(run.runnable), run)


def _logged_id(config: RunConfig, name: str, number: int, doc_id: int) -> int:
    asked: Any = (config.samples or {}).get(name)
    return int(asked[number]) if config.compat == "lm-eval" and asked else doc_id


def _account(shards: Shards) -> dict[str, Any]:
    told = [part.results["assay"]["account"] for part in shards.parts if "account" in part.results["assay"]]
    return {"account": total_usage(told)} if told else {}


def _counts(shards: Shards) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for part in shards.parts:
        counts.update(part.manifest.get("requests", {}))
    return dict(counts)
