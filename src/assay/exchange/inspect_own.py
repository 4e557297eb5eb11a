"""Logs for Inspect that we wrote ourselves: they keep each sample as it was, so that nothing is lost on the way there and back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from assay.exchange.brought import BroughtTask, Told, is_number
from assay.exchange.inspect_file import InspectLog
from assay.exchange.inspect_sample import scorer, scores_of
from assay.records import ScoreKey
from assay.runs.samples import Kept
from assay.runs.stored import Row, as_kept

KEPT = "assay"
"""Where a log keeps what is ours: in its metadata that of the task, in the store of a sample's first epoch the sample."""


def written(row: Row) -> dict[str, Any]:
    """A row as our logs keep it."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(row._asdict()))
    return found


def own_task(log: InspectLog, repeats: int, expected: int) -> BroughtTask | None:
    """The task of a log of ours as it was; None where it is none, or where somebody scored it again or changed its scores."""
    ours = (log.header["eval"].get("metadata") or {}).get(KEPT)
    if not isinstance(ours, Mapping):
        return None
    told = {ScoreKey(*key): Told(*numbers) for key, numbers in ours["rows"]}
    if _header_numbers(log.header) != _own_numbers(told):
        return None
    if not all(_is_as_it_was(epochs, repeats) for epochs in log.samples()):
        return None

    def samples() -> Iterator[Kept]:
        for epochs in log.samples():
            yield _kept(epochs, repeats)

    return BroughtTask(samples=samples, told=told, repeats=repeats, expected=expected, **ours["task"])


def _kept(epochs: Sequence[Mapping[str, Any]], repeats: int) -> Kept:
    return as_kept(Row(**(epochs[0].get("store") or {})[KEPT]), repeats)


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


def _own_numbers(told: Mapping[ScoreKey, Told]) -> Numbers:
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
