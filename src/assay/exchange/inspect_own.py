"""Logs for Inspect that we wrote ourselves: they keep each sample as it was, so that nothing is lost on the way there and back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from assay.exchange.brought import ImportedTask, ReportedValue, is_number
from assay.exchange.inspect.log_file import InspectLog
from assay.exchange.inspect_sample import scorer, scores_of
from assay.records import ScoreKey
from assay.runs.rows import StoredRequest, StoredSample
from assay.runs.samples import format_1
from assay.runs.samples.reader import sample_record
from assay.runs.samples.records import SampleRecord

KEPT = "assay"
"""Where a log keeps what is ours: in its metadata that of the task, in the store of a sample's first epoch the sample."""


FLOAT = "$float"
"""The key of a number that JSON has no word for."""


def written(row: StoredSample) -> dict[str, Any]:
    """A row as our logs keep it."""
    failures = [[*key, reason] for key, reason in row.failures.items()]
    found: dict[str, Any] = orjson.loads(orjson.dumps(_marked({**row._asdict(), "failures": failures})))
    return found


def read(kept: Mapping[str, Any]) -> StoredSample:
    """The row that a log keeps. Logs of version 0.1 keep rows of format 1."""
    if "kind" not in kept:
        return format_1.row_of(kept)
    told = _unmarked(kept)
    own = {
        "requests": [StoredRequest(*each) for each in told["requests"]],
        "responses": [[_said(each) for each in several] for several in told["responses"]],
        "answers": {name: [_said(each) for each in several] for name, several in told["answers"].items()},
        "failures": {ScoreKey(metric, name): reason for metric, name, reason in told["failures"]},
    }
    return StoredSample(**{**told, **own})


def _said(value: Any) -> Any:
    """A pair of log-likelihood and greediness, which JSON makes a list of; anything else as it is."""
    is_pair = isinstance(value, list) and len(value) == 2 and isinstance(value[0], float) and isinstance(value[1], bool)
    return tuple(value) if is_pair else value


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: str(value)}
    if isinstance(value, Mapping):
        return {key: _marked(each) for key, each in value.items()}
    return [_marked(each) for each in value] if isinstance(value, list | tuple) else value


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return float(value[FLOAT]) if [*value] == [FLOAT] else {key: _unmarked(each) for key, each in value.items()}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value


def own_task(log: InspectLog, repeats: int, expected: int) -> ImportedTask | None:
    """The task of a log of ours as it was; None where it is none, or where somebody scored it again or changed its scores."""
    ours = (log.header["eval"].get("metadata") or {}).get(KEPT)
    if not isinstance(ours, Mapping):
        return None
    told = {ScoreKey(*key): ReportedValue(*numbers) for key, numbers in ours["rows"]}
    if _header_numbers(log.header) != _own_numbers(told):
        return None
    if not all(_is_as_it_was(epochs, repeats) for epochs in log.samples()):
        return None

    def samples() -> Iterator[SampleRecord]:
        for epochs in log.samples():
            yield _kept(epochs, repeats)

    return ImportedTask(samples=samples, told=told, repeats=repeats, expected=expected, **ours["task"])


def _kept(epochs: Sequence[Mapping[str, Any]], repeats: int) -> SampleRecord:
    return sample_record(read((epochs[0].get("store") or {})[KEPT]), repeats)


Numbers = dict[str, dict[str, float]]
"""By scorer the values of its metrics."""


def _header_numbers(header: Mapping[str, Any]) -> Numbers:
    """What the results of a log say now."""
    found = {}
    for score in (header.get("results") or {}).get("scores") or ():
        values = {str(key): each.get("value") for key, each in (score.get("metrics") or {}).items()}
        if values:
            found[str(score["name"])] = values
    return found


def _own_numbers(told: Mapping[ScoreKey, ReportedValue]) -> Numbers:
    """What we wrote into the results of the log."""
    return {
        scorer(*key): {key.metric: each.value, **({"stderr": each.stderr} if is_number(each.stderr) else {})}
        for key, each in told.items()
    }


def _is_as_it_was(epochs: Sequence[Mapping[str, Any]], repeats: int) -> bool:
    """Whether each epoch of a sample has the scores that we gave it."""
    if not epochs or KEPT not in (epochs[0].get("store") or {}):
        return False
    kept = _kept(epochs, repeats)
    now = [_values(each.get("scores") or {}) for each in epochs]
    return now == [_values(orjson.loads(orjson.dumps(scores_of(kept, number)))) for number in range(repeats)]


def _values(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): each.get("value") for name, each in scores.items()}
