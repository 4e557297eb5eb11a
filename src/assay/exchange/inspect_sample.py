"""One sample as Inspect keeps it: a conversation, an output, scores; once for each time it was asked about."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from assay.config.source import digest
from assay.records import FilterScores, Loglikelihood
from assay.runs.samples.records import SampleRecord, arguments

THIN = 1000
"""Characters of a text in a summary."""


def epochs(kept: SampleRecord, spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The sample, once for each time it was asked about."""
    sample = kept.sample
    prompt = str(arguments(sample.requests[0])[0]) if sample.requests else ""
    table = _table(kept)
    for epoch in range(kept.repeats):
        said = _said(kept, epoch, table)
        made: dict[str, Any] = {
            "id": sample.doc_id,
            "epoch": epoch + 1,
            "input": prompt,
            **({"choices": list(map(str, sample.choices))} if sample.choices is not None else {}),
            "target": _target(kept),
            "messages": [{"role": "user", "content": prompt}] + ([] if said is None else [_assistant(said, spec)]),
            "output": _output(kept, said, epoch, spec),
            "scores": scores_of(kept, epoch),
            "metadata": dict(sample.doc),
            "events": [_info({"log-likelihoods": table}, spec)] if table else [],
            "uuid": digest(f"{spec['eval_id']} {sample.doc_id} {epoch}".encode())[:22],
        }
        if kept.failed:
            made["error"] = {"message": kept.failed, "traceback": "", "traceback_ansi": ""}
        yield made


def summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What the list of samples shows of one."""
    own = {key: sample[key] for key in ("id", "epoch", "choices", "uuid", "scores") if key in sample}
    return {
        **own,
        "input": sample["input"][:THIN],
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


def scorer(metric: str, filter_name: str) -> str:
    """What a row is called there: the metric, with the filter where it is not the one that every task has."""
    return metric if filter_name == "none" else f"{metric} ({filter_name})"


def letter(index: int) -> str:
    """What Inspect calls a choice."""
    return chr(ord("A") + index) if index < 26 else str(index - 25)


def _target(kept: SampleRecord) -> str | list[str]:
    gold, choices = kept.sample.gold, kept.sample.choices
    if choices is not None and isinstance(gold, int) and 0 <= gold < len(choices):
        return letter(gold)
    target = kept.sample.target
    return [_text(each) for each in target] if isinstance(target, list | tuple) else _text(target)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _table(kept: SampleRecord) -> list[dict[str, Any]]:
    """The log-likelihood of every continuation, where those were asked for."""
    requests = kept.sample.requests[:: kept.repeats]
    if not requests or len(requests) != len(kept.responses) or not isinstance(requests[0], Loglikelihood):
        return []
    return [
        {"continuation": request.continuation, "loglikelihood": _finite(several[0][0]), "greedy": several[0][1]}
        for request, several in zip(requests, kept.responses, strict=True)
        if isinstance(request, Loglikelihood)
    ]


def _said(kept: SampleRecord, epoch: int, table: Sequence[Mapping[str, Any]]) -> str | None:
    """What the model said: its text, or the continuation that it found the likeliest."""
    if table:
        return str(
            max(table, key=lambda each: -math.inf if each["loglikelihood"] is None else each["loglikelihood"])[
                "continuation"
            ]
        )
    texts = [str(each) for several in kept.responses for each in several[epoch : epoch + 1]]
    return "\n".join(texts) if texts else None


def _assistant(said: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": said, "source": "generate", "model": spec["model"]}


def _output(kept: SampleRecord, said: str | None, epoch: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    if said is None:
        return {"model": spec["model"], "choices": [], "completion": ""}
    reply = kept.replies[epoch] if kept.replies is not None and epoch < len(kept.replies) else {}
    reason = {"length": "max_tokens", "content_filter": "content_filter"}.get(str(reply.get("finish")), "stop")
    usage = reply.get("usage")
    spent = (
        {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": usage[0] + usage[1]} if usage else None
    )
    return {
        "model": spec["model"],
        "choices": [{"message": _assistant(said, spec), "stop_reason": reason}],
        "completion": said,
        **({"usage": spent, "time": usage[2]} if usage else {}),
    }


def scores_of(kept: SampleRecord, epoch: int) -> dict[str, Any]:
    """Every value of every filter, with the answer that the filter left; what only all repeats have together is in each."""
    found = {}
    for each in kept.scores:
        for metric, whole in each.values.items():
            several = each.repeats.get(metric)
            value = several[epoch] if several is not None and epoch < len(several) else whole
            if value is not None:
                found[scorer(metric, each.filter)] = {
                    "value": value if isinstance(value, int | float | str) else _text(value),
                    "answer": _answer(each, epoch),
                    "metadata": {"metric": metric, "filter": each.filter},
                }
    return found


def _answer(scores: FilterScores, epoch: int) -> str | None:
    answers: Any = scores.answers
    if len(answers) == 1 and isinstance(answers[0], list | tuple) and all(isinstance(each, str) for each in answers[0]):
        answers = answers[0][epoch : epoch + 1]
    return answers[0] if len(answers) == 1 and isinstance(answers[0], str) else None


def _info(value: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"event": "info", "timestamp": spec["created"], "working_start": 0.0, "source": "assay", "data": value}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
