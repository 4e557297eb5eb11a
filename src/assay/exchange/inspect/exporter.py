"""Exports a run as Inspect logs, one for each task: for `inspect view` and `inspect_ai.log`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import orjson

from assay.config.source import digest
from assay.exchange.archive import write_archive
from assay.exchange.inspect.transcript import asked_messages, inspect_messages, is_walked, tool_events, transcript
from assay.records import AnyJSON, FilterScores, JSONDict, JSONObject, Loglikelihood
from assay.results import Estimate, TaskEntry
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord, StoredSample
from assay.runs.samples.turns import answer_message
from assay.runs.samples.writer import file_name
from assay.version import __version__

ASSAY_KEY = "assay"
"""Where a log keeps what is ours: in its metadata that of the task, in the store of a sample's first epoch the sample."""


BY_ROW = ("scores", "repeats", "failures")
"""Columns that are lists of metric, filter and value in a log."""
FLOAT = "$float"
"""The key of a number that JSON has no word for."""


def export_inspect(run: Run, target: Path) -> list[Path]:
    """Write DATE_TASK_ID.eval for each task of a run; the names are those that Inspect gives."""
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for task, samples in run.sample_files().items():
        spec = _spec(run, task)
        date = spec["created"].replace(":", "-").replace("+", "-")
        name = file_name(task).replace("_", "-")  # Inspect takes names apart at this sign
        path = target / f"{date}_{name}_{spec['task_id']}.eval"
        with TemporaryFile() as summaries:
            write_archive(path, _members(run, samples, spec, summaries))
        files.append(path)
    return files


def _members(
    run: Run, samples: SampleFile, spec: JSONObject, summaries: IO[bytes]
) -> Iterator[tuple[str, bytes | IO[bytes]]]:
    """The members of a log in the order that Inspect writes them: the start, the samples, what sums them up, the header.

    `summaries` is a file to hold those of all samples meanwhile.
    """
    task = spec["task"]
    plan = {"name": "plan", "steps": [{"solver": str(run.config(task).get("output_type", "assay")), "params": {}}]}
    yield "_journal/start.json", _json({"version": 2, "eval": spec, "plan": plan})
    repeats = run.repeats(task)
    summaries.write(b"[")
    reductions = EpochReductions(repeats)
    failed = total = 0
    for row, record in samples.rows_with_records():
        reductions.add(record.sample.doc_id, record.scores)
        total, failed = total + repeats, failed + (repeats if record.failed else 0)
        for number, sample in enumerate(epochs(record, spec)):
            sample = {**sample, "store": {ASSAY_KEY: marked_sample(row)}} if number == 0 else sample
            summaries.write((b"," if summaries.tell() > 1 else b"") + _json(summary(sample)))
            yield f"samples/{sample['id']}_epoch_{sample['epoch']}.json", _json(sample)
    summaries.write(b"]")
    yield "summaries.json", summaries
    yield "reductions.json", _json(reductions.as_json())
    entry, facts = run.results.tasks[task], run.results.facts
    lacking = entry.not_asked * repeats
    header = {
        "version": 2,
        **_ended(entry),
        "eval": spec,
        "plan": plan,
        "results": {"total_samples": total + lacking, "completed_samples": total - failed,
                    "scores": list(_scores(run, task, repeats))},
        "stats": {"started_at": spec["created"], "completed_at": moment(facts.get("end_time") or facts.get("date")),
                  "model_usage": {}},
    }  # fmt: skip
    yield "header.json", _json(header)


def _ended(task: TaskEntry) -> JSONDict:
    """Return Inspect's status of a task: an incomplete one is not a success."""
    if not task.is_incomplete:
        return {"status": "success"}
    counts = {"failed": task.failed, "were not asked": task.not_asked}
    whole = task.documents + task.not_asked
    failures = [f"{count} of {whole} documents {what}" for what, count in counts.items() if count]
    message = "; ".join(["the task is incomplete", *failures])
    return {"status": "error", "error": {"message": message, "traceback": "", "traceback_ansi": ""}}


class EpochReductions:
    """The reduced scores of each sample's epochs, scorer by scorer, in Inspect's layout."""

    def __init__(self, repeats: int) -> None:
        self._reducer = "mean" if repeats > 1 else None
        self._samples: dict[str, list[dict[str, Any]]] = {}

    def add(self, doc_id: int, scores: Sequence[AnyJSON]) -> None:
        for each in scores:
            for metric, value in each.values.items():
                if _is_value(value):
                    self._samples.setdefault(scorer_name(metric, each.filter), []).append(
                        {"value": value, "sample_id": doc_id}
                    )

    def as_json(self) -> list[JSONDict]:
        return [
            {"scorer": name, "reducer": self._reducer, "samples": samples} for name, samples in self._samples.items()
        ]


def _spec(run: Run, task: str) -> JSONDict:
    entry, facts, manifest = run.results.tasks[task], run.results.facts, run.manifest
    config, about = run.results.config, run.facts(task)
    own = digest(f"{manifest.get('spec_digest')} {manifest.get('created')} {task}".encode())
    limit = config.get("limit")
    git = (manifest.get("environment") or {}).get("git") or {}
    return {
        "eval_id": own[:22],
        "run_id": digest(f"{manifest.get('spec_digest')} {manifest.get('created')}".encode())[:22],
        "created": moment(facts.get("start_time") or facts.get("date")),
        "task": task,
        "task_id": own[-22:],
        "task_version": _version(entry.version),
        "task_display_name": run.alias(task),
        "dataset": {"name": str(entry.config.get("dataset_path") or task), "samples": about.get("size"),
                    "shuffled": False},
        "model": run.model_name,
        "model_args": dict(config.get("model_args") or {}),
        "config": {"limit": int(limit) if isinstance(limit, int | float) and limit >= 1 else None, "epochs": run.repeats(task),
                   **({"epochs_reducer": ["mean"]} if run.repeats(task) > 1 else {})},
        **({"revision": {"type": "git", "origin": "", "commit": git["commit"], "dirty": git.get("dirty")}} if git else {}),
        "packages": {"assay": __version__},
        "metadata": {ASSAY_KEY: _ours(run, task)},
        "scorers": [{"name": scorer_name(*key)} for key in run.rows(task)],
    }  # fmt: skip


def _ours(run: Run, task: str) -> JSONDict:
    """All that is known of a task, so that nothing is lost on the way back."""
    entry = run.results.tasks[task]
    numbers = {key: row.estimate for key, row in run.rows(task).items()}
    return {
        "rows": [[[*key], [own.value, own.stderr]] for key, own in numbers.items() if _is_value(own.value)],
        "task": {
            "name": task,
            "alias": entry.alias,
            "original": entry.original,
            "num_fewshot": entry.num_fewshot or 0,
            "version": entry.version,
            "source": run.facts(task).get("source") or "",
            "higher_is_better": entry.directions,
            "config": entry.config,
            "multiple_targets": bool(run.facts(task).get("multiple_targets")),
        },
    }


def _scores(run: Run, task: str, repeats: int) -> Iterator[JSONDict]:
    """The numbers of a task: each row a score, with its value under the metric's name and its standard error."""
    entry = run.results.tasks[task]
    for key, row in run.rows(task).items():
        number = row.estimate
        name = scorer_name(*key)
        values = {key.metric: number.value, "stderr": number.stderr}
        yield {
            "name": name,
            "scorer": name,
            **({"reducer": "mean"} if repeats > 1 else {}),
            "scored_samples": number.n,
            "unscored_samples": max(entry.documents - number.n, 0),
            "params": {},
            "metrics": {
                each: {"name": each, "value": value, "params": {}} for each, value in values.items() if _is_value(value)
            },
            "metadata": {"interval": _interval(number), "metric": key.metric, "filter": key.filter},
        }


def _interval(number: Estimate) -> list[float] | None:
    return [number.low, number.high] if number.low is not None and number.high is not None else None


def _version(version: AnyJSON) -> int | str:
    return version if isinstance(version, int) else str(version)


def moment(seconds: AnyJSON) -> str:
    """A point in time as Inspect writes it."""
    return datetime.fromtimestamp(float(str(seconds or 0)), UTC).isoformat(timespec="seconds")


def _is_value(value: AnyJSON) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _json(value: AnyJSON) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


THIN = 1000
"""Characters of a text in a summary."""


def epochs(record: SampleRecord, spec: JSONObject) -> Iterator[JSONDict]:
    """Yield the sample once for each epoch."""
    sample = record.sample
    prompt = sample.requests[0][0] if sample.requests else ""
    asked = inspect_messages(asked_messages(sample.requests[0] if sample.requests else None), spec["model"])
    table = _table(record)
    for epoch in range(record.repeats):
        said = _output_text(record, epoch, table)
        entry: dict[str, Any] = {
            "id": sample.doc_id,
            "epoch": epoch + 1,
            "input": prompt if isinstance(prompt, str) else asked,
            **({"choices": list(map(str, sample.choices))} if sample.choices is not None else {}),
            "target": _target(record),
            "messages": transcript(record, spec["model"])
            if is_walked(record.replies)
            else [*asked, *([] if said is None else [_assistant(said, spec, _reply(record, epoch))])],
            "output": _output(record, said, epoch, spec),
            **_sample_usage(record, epoch, spec),
            "scores": scores_of(record, epoch),
            "metadata": dict(sample.doc),
            "events": [_info({"log-likelihoods": table}, spec)] if table else tool_events(record, _stamp(spec)),
            "uuid": digest(f"{spec['eval_id']} {sample.doc_id} {epoch}".encode())[:22],
        }
        if record.failed:
            entry["error"] = {"message": record.failed, "traceback": "", "traceback_ansi": ""}
        yield entry


def summary(sample: JSONObject) -> JSONDict:
    """Summarize a sample for the list of samples."""
    own = {key: sample[key] for key in ("id", "epoch", "choices", "uuid", "scores") if key in sample}
    return {
        **own,
        "input": _thin(sample["input"]),
        "target": sample["target"],
        "metadata": {
            key: value
            for key, value in sample["metadata"].items()
            if isinstance(value, int | float | None) or len(str(value)) < THIN
        },
        **({"error": sample["error"]["message"]} if "error" in sample else {}),
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _thin(asked: str | Sequence[JSONObject]) -> str:
    """The beginning of a prompt; of a conversation that of its last message that is not the model's."""
    if isinstance(asked, str):
        return asked[:THIN]
    said = [each for each in asked if each["role"] != "assistant"] or asked
    return str(said[-1]["content"])[:THIN] if said else ""


def _sample_usage(record: SampleRecord, epoch: int, spec: JSONObject) -> JSONDict:
    """The tokens and the seconds of a sample, where the run has them; of a graph's record those of all its requests."""
    replies = record.replies or () if is_walked(record.replies) else [_reply(record, epoch)]
    usages = [reply["usage"] for reply in replies if reply.get("usage")]
    if not usages:
        return {}
    read, written, seconds = (sum(each[place] for each in usages) for place in range(3))
    spent = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return {"model_usage": {spec["model"]: spent}, "total_time": seconds, "working_time": seconds}


def scorer_name(metric: str, filter_name: str) -> str:
    """Name a row for Inspect: the metric, with the filter unless it is the default one."""
    return metric if filter_name == "none" else f"{metric} ({filter_name})"


def letter(index: int) -> str:
    """Return Inspect's letter for a choice."""
    return chr(ord("A") + index) if index < 26 else str(index - 25)


def _target(record: SampleRecord) -> str | list[str]:
    gold, choices = record.sample.gold, record.sample.choices
    if choices is not None and isinstance(gold, int) and 0 <= gold < len(choices):
        return letter(gold)
    target = record.sample.target
    return [_text(each) for each in target] if isinstance(target, list | tuple) else _text(target)


def _text(value: AnyJSON) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _table(record: SampleRecord) -> list[JSONDict]:
    """Return the log-likelihood of every continuation, if there are any."""
    requests = record.sample.requests[:: record.repeats]
    if not requests or len(requests) != len(record.responses) or not isinstance(requests[0], Loglikelihood):
        return []
    return [
        {"continuation": request.continuation, "loglikelihood": _finite(responses[0][0]), "greedy": responses[0][1]}
        for request, responses in zip(requests, record.responses, strict=True)
        if isinstance(request, Loglikelihood)
    ]


def _output_text(record: SampleRecord, epoch: int, table: Sequence[JSONObject]) -> str | None:
    """Return the model's text, or the continuation it found the likeliest."""
    if table:
        return str(
            max(table, key=lambda each: -math.inf if each["loglikelihood"] is None else each["loglikelihood"])[
                "continuation"
            ]
        )
    texts = [str(each) for responses in record.responses for each in responses[epoch : epoch + 1]]
    if is_walked(record.replies):
        texts = texts[-1:]
    return "\n".join(texts) if texts else None


def _reply(record: SampleRecord, number: int) -> JSONObject:
    return record.replies[number] if record.replies is not None and number < len(record.replies) else {}


def _assistant(said: str, spec: JSONObject, reply: JSONObject) -> JSONDict:
    """The answer as a message: its reasoning apart, and its tool calls."""
    answer = answer_message(said, reply.get("calls"))
    [message] = inspect_messages([answer] if answer is not None else [], spec["model"])
    if reply.get("reasoning"):
        parts = [{"type": "reasoning", "reasoning": str(reply["reasoning"])}, {"type": "text", "text": said}]
        message = {**message, "content": parts}
    return message


def _output(record: SampleRecord, said: str | None, epoch: int, spec: JSONObject) -> JSONDict:
    if said is None:
        return {"model": spec["model"], "choices": [], "completion": ""}
    reply = _reply(record, epoch)
    reason = {"length": "max_tokens", "content_filter": "content_filter"}.get(str(reply.get("finish")), "stop")
    usage = reply.get("usage")
    spent = (
        {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": usage[0] + usage[1]} if usage else None
    )
    return {
        "model": spec["model"],
        "choices": [{"message": _assistant(said, spec, reply), "stop_reason": reason}],
        "completion": said,
        **({"usage": spent, "time": usage[2]} if usage else {}),
    }


def scores_of(record: SampleRecord, epoch: int) -> JSONDict:
    """Every value of every filter, with the answer that the filter left; what only all repeats have together is in each."""
    scores = {}
    for each in record.scores:
        for metric, whole in each.values.items():
            repeats = each.repeats.get(metric)
            value = repeats[epoch] if repeats is not None and epoch < len(repeats) else whole
            if value is not None:
                scores[scorer_name(metric, each.filter)] = {
                    "value": value if isinstance(value, int | float | str) else _text(value),
                    "answer": _answer(each, epoch),
                    "metadata": {"metric": metric, "filter": each.filter},
                }
    return scores


def _answer(scores: FilterScores, epoch: int) -> str | None:
    answers: Any = scores.answers
    if len(answers) == 1 and isinstance(answers[0], list | tuple) and all(isinstance(each, str) for each in answers[0]):
        answers = answers[0][epoch : epoch + 1]
    return answers[0] if len(answers) == 1 and isinstance(answers[0], str) else None


def _info(value: JSONObject, spec: JSONObject) -> JSONDict:
    return {"event": "info", **_stamp(spec), "source": "assay", "data": value}


def _stamp(spec: JSONObject) -> JSONDict:
    return {"timestamp": spec["created"], "working_start": 0.0}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def marked_sample(row: StoredSample) -> JSONDict:
    """A row as our logs keep it."""
    by_row = {name: [[*key, value] for key, value in getattr(row, name).items()] for name in BY_ROW}
    marked: dict[str, Any] = orjson.loads(orjson.dumps(_marked({**row._asdict(), **by_row})))
    return marked


def _marked(value: AnyJSON) -> AnyJSON:
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: str(value)}
    if isinstance(value, Mapping):
        return {key: _marked(each) for key, each in value.items()}
    return [_marked(each) for each in value] if isinstance(value, list | tuple) else value
