"""Inspect logs as runs: one task, its samples with all epochs, its scores as numbers, its reported results."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from assay.exchange.imported import ImportedRun, ImportedTask, is_number
from assay.exchange.inspect.exporter import ASSAY_KEY, BY_ROW, FLOAT, scorer_name, scores_of
from assay.exchange.inspect.log_file import InspectLog, read_log
from assay.records import AnyJSON, FilterScores, Generate, JSONDict, JSONObject, Request, Sample
from assay.redaction import redact_text
from assay.results import Estimate
from assay.runs.samples.reader import sample_record
from assay.runs.samples.records import SampleRecord, StoredRequest, StoredSample
from assay.score_keys import ScoreKey

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""The letters of Inspect's scorers: correct, partly, incorrect, no answer."""
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def from_inspect(path: Path) -> ImportedRun:
    """The task of a log. A scorer is a filter with us, and each of its values a metric: `accuracy,match`."""
    log = read_log(path)
    about = log.header["eval"]
    repeats = int((about.get("config") or {}).get("epochs") or 1)
    task = own_task(log, repeats, _expected(about))
    if task is None:
        names = _names(log)
        task = ImportedTask(
            name=str(about["task"]).rpartition("/")[2],
            samples=partial(_samples, log, names, repeats),
            reported=_reported(log, names),
            alias=str(about.get("task_display_name") or about["task"]),
            repeats=repeats,
            original=(about.get("dataset") or {}).get("samples"),
            expected=_expected(about),
            ended=_ended(log.header),
            version=about.get("task_version", "N/A"),
            higher_is_better={row.metric: True for row in names.values()},
            config=_config(log.header),
        )
    return ImportedRun(format="inspect", tasks=[task], facts=_facts(log.header), files=[path])


def _expected(about: JSONObject) -> int:
    """Count the expected samples, by the ids listed in the log, else by the data set and the limit."""
    dataset, config = about.get("dataset") or {}, about.get("config") or {}
    size, limit = dataset.get("samples"), config.get("limit")
    if not isinstance(size, int) or dataset.get("sample_ids") or config.get("sample_id"):
        return 0
    start, stop = limit if isinstance(limit, list) else (0, limit or size)
    return max(min(int(stop), size) - int(start), 0)


def _ended(header: JSONObject) -> str:
    """How an unsuccessful evaluation ended: `cancelled`, `error: …`."""
    status = header.get("status") or "success"
    error = _error(header) if header.get("error") else ""
    return "" if status == "success" else ": ".join(filter(None, (str(status), error)))


def _config(header: JSONObject) -> JSONDict:
    """Return the settings of the task as far as the log has them."""
    about, steps = header["eval"], (header.get("plan") or {}).get("steps") or ()
    settings = {key: about.get(key) for key in ("task", "scorers", "dataset", "task_args")}
    return {**settings, "doc_to_target": "target", "solver": [step.get("solver") for step in steps]}


def number(value: AnyJSON) -> float | None:
    """Convert a score by Inspect's rule. None where it is not a number, or nothing was scored.

    >>> number("C"), number("P"), number("0.25"), number(True), number("maybe"), number(float("nan"))
    (1.0, 0.5, 0.25, 1.0, None, None)
    """
    if isinstance(value, str):
        known = LETTERS.get(value, WORDS.get(value.lower()))
        try:
            result = known if known is not None else float(value)
        except ValueError:
            return None
        return result if math.isfinite(result) else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


Names = Mapping[tuple[str, str | None], ScoreKey]
"""By scorer, and where it gives several values their key, what the row is called with us."""


def _names(log: InspectLog) -> dict[tuple[str, str | None], ScoreKey]:
    """Name the rows: by the metric that averages them where the results have one, else by the value's key."""
    keys: dict[tuple[str, str | None], ScoreKey] = {}
    for score in (log.header.get("results") or {}).get("scores") or ():
        scorer_name, name = str(score["scorer"]), str(score["name"])
        if name != scorer_name and (scorer_name, None) not in keys:
            keys.setdefault((scorer_name, name), ScoreKey(name, scorer_name))
        else:
            keys.setdefault((scorer_name, None), ScoreKey(_average(score) or scorer_name, scorer_name))
    return keys


def _average(score: JSONObject) -> str | None:
    return next((str(name) for name in score.get("metrics") or {} if name in ("accuracy", "mean")), None)


def _reported(log: InspectLog, names: Names) -> dict[ScoreKey, Estimate]:
    """Read the numbers of the results; a metric beside the average is listed under its own name."""
    reported: dict[ScoreKey, Estimate] = {}
    for score in (log.header.get("results") or {}).get("scores") or ():
        scorer_name, name = str(score["scorer"]), str(score["name"])
        row = names.get((scorer_name, name)) or names[(scorer_name, None)]
        metrics = {str(key): each.get("value") for key, each in (score.get("metrics") or {}).items()}
        error = metrics.pop("stderr", None)
        average = _average(score)
        for key, value in metrics.items():
            if is_number(value):
                own = (
                    row
                    if key == average
                    else ScoreKey(key if row.metric in (average, scorer_name) else f"{row.metric}_{key}", row.filter)
                )
                own = (
                    own if own not in reported else ScoreKey(f"{own.metric}_{score.get('reducer') or name}", own.filter)
                )
                reported[own] = Estimate(float(value), float(error) if key == average and is_number(error) else None)
    return reported


def _samples(log: InspectLog, names: Names, repeats: int) -> Iterator[SampleRecord]:
    reduced, ids, ended = _reduced(log), log.sample_ids, _ended(log.header)
    for doc_id, epochs in enumerate(log.samples()):
        if epochs:
            yield _record(doc_id, _with_unscored(epochs, ended), names, repeats, reduced)
        else:
            failed = "the sample is not in the log" + (f", which ended with {ended}" if ended else "")
            yield SampleRecord(
                Sample(doc_id, {"id": ids[doc_id]}, [], None, None), (), (), repeats, failed, [{"failed": failed}]
            )


def _with_unscored(epochs: Sequence[JSONObject], ended: str) -> Sequence[JSONObject]:
    """The epochs of a sample; where an evaluation ended before one was scored, that is an error of the epoch."""
    return [
        each if each.get("error") or each.get("scores") or not ended else {**each, "error": f"not scored: {ended}"}
        for each in epochs
    ]


Reduced = Mapping[tuple[str, str], Mapping[str, Any]]
"""Return by scorer and sample the reduced scores of its epochs, for every reducer: the first of them counts."""


def _reduced(log: InspectLog) -> dict[tuple[str, str], JSONDict]:
    reduced: dict[tuple[str, str], dict[str, Any]] = {}
    for reduction in log.reductions:
        for sample in reduction.get("samples") or ():
            own = reduced.setdefault((str(reduction["scorer"]), str(sample.get("sample_id"))), {})
            own[str(reduction.get("reducer"))] = sample.get("value")
    return reduced


def _record(doc_id: int, epochs: Sequence[JSONObject], names: Names, repeats: int, reduced: Reduced) -> SampleRecord:
    first = epochs[0]
    target, choices = first.get("target"), first.get("choices")
    asked = {"id": first.get("id"), "input": as_text(first.get("input")), "target": target}
    doc = {**asked, **({"choices": choices} if choices else {}), **(first.get("metadata") or {})}
    requests: list[Request] = [Generate(_prompt(first), {}, repeat) for repeat in range(repeats)]
    sample = Sample(doc_id, doc, requests, target, _gold(target, choices), choices)
    failed = next((_error(each) for each in epochs if each.get("error")), "")
    if not failed and len(epochs) < repeats:
        failed = f"{repeats - len(epochs)} of {repeats} epochs are not in the log"
    if failed:
        return SampleRecord(sample, (), (), repeats, failed, [{"failed": failed}])
    responses = [[str((each.get("output") or {}).get("completion") or "") for each in epochs]]
    return SampleRecord(
        sample, responses, _scores(epochs, names, reduced), repeats, replies=[_reply(each) for each in epochs]
    )


def _gold(target: AnyJSON, choices: Sequence[str] | None) -> AnyJSON:
    """The right choice by its number, where a letter names it."""
    is_letter = choices and isinstance(target, str) and len(target) == 1 and target.isascii() and target.isupper()
    return ord(target) - 65 if is_letter and ord(target) - 65 < len(choices or ()) else target


def _error(sample: JSONObject) -> str:
    error = sample.get("error")
    return redact_text(str(error.get("message") if isinstance(error, Mapping) else error)) or "failed"


def _scores(epochs: Sequence[JSONObject], names: Names, reduced: Reduced) -> list[FilterScores]:
    """Convert the scores of each scorer to a filter with its answers."""
    filters = []
    for scorer in epochs[0].get("scores") or {}:
        scores = [(each.get("scores") or {}).get(scorer) or {} for each in epochs]
        answers = [each.get("answer") for each in scores]
        whole = reduced.get((scorer, str(epochs[0].get("id"))), {})
        values: dict[str, Any] = {}
        repeats: dict[str, Any] = {}
        for key in _keys([each.get("value") for each in scores]):
            metric = (names.get((scorer, key)) or ScoreKey(key or scorer, scorer)).metric
            own = [_at(each.get("value"), key) for each in scores]
            values |= _values(metric, own, {reducer: _at(value, key) for reducer, value in whole.items()})
            if len(epochs) > 1 and metric in values:
                repeats[metric] = own
        filters.append(FilterScores(scorer, [answers] if len(epochs) > 1 else answers, values, repeats))
    return filters


def _values(metric: str, own: Sequence[float | None], whole: Mapping[str, float | None]) -> dict[str, float]:
    """Return the reduced value of the epochs, else their mean. Further reducers have their own names."""
    counted = [each for each in own if each is not None]
    if not counted:
        return {}
    first, *further = whole.items() or [("", None)]
    reduced = {metric: first[1] if first[1] is not None else sum(counted) / len(counted)}
    return reduced | {f"{metric}_{reducer}": value for reducer, value in further if value is not None}


def _at(value: AnyJSON, key: str | None) -> float | None:
    """A value as a number; of several the one under a key."""
    return number(value.get(key) if isinstance(value, Mapping) and key is not None else value)


def _keys(values: Sequence[AnyJSON]) -> list[str | None]:
    """Return the keys of a scorer's values; None for a plain value."""
    keys = dict.fromkeys(str(key) for value in values if isinstance(value, Mapping) for key in value)
    return list(keys) if keys else [None]


def _prompt(sample: JSONObject) -> str:
    """Return the prompt: the conversation up to its last answer."""
    messages = list(sample.get("messages") or ())
    while messages and messages[-1].get("role") == "assistant":
        messages.pop()
    return as_text(messages) if messages else as_text(sample.get("input"))


def as_text(content: AnyJSON) -> str:
    """Convert a conversation, a message's content, or a text to one text; a single user message is returned without its role."""
    if isinstance(content, str) or content is None:
        return content or ""
    if len(content) == 1 and content[0].get("role") in (None, "user"):
        return _content(content[0])
    return "\n\n".join(f"[{each['role']}]\n{_content(each)}" if "role" in each else _content(each) for each in content)


def _content(message: JSONObject) -> str:
    if "text" in message:
        return str(message["text"])
    content = message.get("content")
    return as_text(content) if "role" in message or content else f"[{message.get('type', '?')}]"


def _reply(sample: JSONObject) -> JSONDict:
    output = sample.get("output") or {}
    reason = next((each.get("stop_reason") for each in output.get("choices") or ()), None)
    usage = output.get("usage") or {}
    metadata: dict[str, Any] = (
        {"finish": "length" if reason in ("max_tokens", "model_length") else reason} if reason else {}
    )
    if usage:
        spent = (usage.get("input_tokens", 0), usage.get("output_tokens", 0), float(output.get("time") or 0))
        metadata["usage"] = (*spent, 1, 0, usage.get("input_tokens_cache_read") or 0)
    return metadata


def _facts(header: JSONObject) -> JSONDict:
    """Return the facts of the run, under lm-eval's names."""
    about = header["eval"]
    stats = header.get("stats") or {}
    source, _, name = str(about.get("model", "")).partition("/")
    moments = {
        key: _moment(stats.get(inspect_key))
        for key, inspect_key in (("start_time", "started_at"), ("end_time", "completed_at"))
    }
    return {
        "config": {"model": about.get("model"), "model_args": about.get("model_args") or {},
                   "limit": (about.get("config") or {}).get("limit")},
        "model_source": source,
        "model_name": name or source,
        "model_name_sanitized": (name or source).replace("/", "__"),
        **{key: moment for key, moment in moments.items() if moment is not None},
    }  # fmt: skip


def _moment(text: AnyJSON) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def unmarked_sample(stored: JSONObject) -> StoredSample:
    """The row that a log of ours keeps."""
    values = _unmarked(stored)
    own = {
        "requests": [StoredRequest(*each) for each in values["requests"]],
        "responses": [[_likelihood_pair(each) for each in items] for items in values["responses"]],
        "answers": {name: [_likelihood_pair(each) for each in items] for name, items in values["answers"].items()},
    }
    own |= {
        name: {ScoreKey(metric, filter_name): value for metric, filter_name, value in values[name]} for name in BY_ROW
    }
    return StoredSample(**{**values, **own})


def _likelihood_pair(value: AnyJSON) -> AnyJSON:
    """A pair of log-likelihood and greediness, which JSON makes a list of; anything else as it is."""
    is_pair = isinstance(value, list) and len(value) == 2 and isinstance(value[0], float) and isinstance(value[1], bool)
    return tuple(value) if is_pair else value


def _unmarked(value: AnyJSON) -> AnyJSON:
    if isinstance(value, Mapping):
        return float(value[FLOAT]) if [*value] == [FLOAT] else {key: _unmarked(each) for key, each in value.items()}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value


def own_task(log: InspectLog, repeats: int, expected: int) -> ImportedTask | None:
    """Read back the task of a log that assay exported; None where it is another's, was scored again, or has changed scores."""
    ours = (log.header["eval"].get("metadata") or {}).get(ASSAY_KEY)
    if not isinstance(ours, Mapping):
        return None
    reported = {ScoreKey(*key): Estimate(value, error) for key, (value, error) in ours["rows"]}
    if _header_values(log.header) != _written_values(reported):
        return None
    if not all(_is_unchanged(epochs, repeats) for epochs in log.samples()):
        return None

    def samples() -> Iterator[SampleRecord]:
        for epochs in log.samples():
            yield _original_sample(epochs, repeats)

    return ImportedTask(samples=samples, reported=reported, repeats=repeats, expected=expected, **ours["task"])


def _original_sample(epochs: Sequence[JSONObject], repeats: int) -> SampleRecord:
    return sample_record(unmarked_sample((epochs[0].get("store") or {})[ASSAY_KEY]), repeats)


ScorerValues = dict[str, dict[str, float]]
"""By scorer the values of its metrics."""


def _header_values(header: JSONObject) -> ScorerValues:
    """Return the values in the results of a log."""
    scorers = {}
    for score in (header.get("results") or {}).get("scores") or ():
        values = {str(key): each.get("value") for key, each in (score.get("metrics") or {}).items()}
        if values:
            scorers[str(score["name"])] = values
    return scorers


def _written_values(reported: Mapping[ScoreKey, Estimate]) -> ScorerValues:
    """Return the values that assay wrote into the results of a log."""
    return {
        scorer_name(*key): {key.metric: float(each), **({"stderr": each.stderr} if is_number(each.stderr) else {})}
        for key, each in reported.items()
    }


def _is_unchanged(epochs: Sequence[JSONObject], repeats: int) -> bool:
    """Whether each epoch of a sample has the scores that we gave it."""
    if not epochs or ASSAY_KEY not in (epochs[0].get("store") or {}):
        return False
    record = _original_sample(epochs, repeats)
    now = [_score_values(each.get("scores") or {}) for each in epochs]
    return now == [_score_values(orjson.loads(orjson.dumps(scores_of(record, number)))) for number in range(repeats)]


def _score_values(scores: JSONObject) -> JSONDict:
    return {str(name): each.get("value") for name, each in scores.items()}
