"""The verdicts of judges on a sample: who judged, the score, the reason, and the question that was asked."""

from collections.abc import Sequence
from typing import NamedTuple

from assay.comparison.labelling import judge_rows
from assay.errors import AssayError
from assay.records import AnyJSON, mapping
from assay.runs.labels import TaskLabels
from assay.runs.run import Run, model_text
from assay.runs.samples.records import StoredSample, shown_texts
from assay.scoring.judges import ROLE, json_objects
from assay.viewer.trajectory import judge_questions, nodes_of_responses


class VerdictView(NamedTuple):
    """One verdict. `score` is as the judge wrote it."""

    role: str
    model: str
    score: float | str | None
    reason: str
    question: str
    text: str
    about: str
    scale: str = ""
    node: str = ""
    """The node of a graph that asked."""


def verdict_views(run: Run, task: str, row: StoredSample) -> list[VerdictView]:
    """The verdicts of a sample, in the order in which they were asked for; of a graph those of its judge nodes."""
    replies = row.replies or ()
    own = sum(map(len, row.responses))
    views = [
        _view(
            run,
            str(reply.get("role") or ""),
            str(reply.get("question") or ""),
            reply.get("verdict"),
            reply.get("usage"),
        )
        for reply in replies[own:]
        if "verdict" in reply
    ]
    in_graph = _of_graph(run, row) if row.trace else []
    scale = _scale(run, task) if not in_graph else ""
    return [each._replace(scale=scale if isinstance(each.score, int | float) else "") for each in views] + in_graph


def _of_graph(run: Run, row: StoredSample) -> list[VerdictView]:
    """The verdicts of the judges that nodes of a graph asked."""
    texts, replies, nodes = shown_texts(row.responses, row.replies), row.replies or (), nodes_of_responses(row)
    role = ROLE if ROLE in mapping(run.manifest.get("roles")) else ""
    return [
        _view(run, role, question, texts[number], replies[number].get("usage") if number < len(replies) else None)
        ._replace(node=nodes.get(number, ""))
        for number, question in judge_questions(row).items()
        if number < len(texts)
    ]  # fmt: skip


def _scale(run: Run, task: str) -> str:
    """The scale that the judge of a task was asked to use, in words."""
    try:
        [rows] = judge_rows(run.finished(), [task])
    except AssayError:  # it has no judge, or is in progress
        return ""
    return "" if rows.other else f"from {rows.scale[0]:g} to {rows.scale[1]:g}"


def _view(run: Run, role: str, question: str, said: AnyJSON, usage: AnyJSON) -> VerdictView:
    roles = mapping(run.manifest.get("roles"))
    role = role or (next(iter(roles)) if len(roles) == 1 else "")
    known = mapping(roles.get(role))
    model = model_text(known.get("name") or "", known.get("args"))
    about = f"{usage[0]:,} tokens in, {usage[1]:,} out" if isinstance(usage, Sequence) and len(usage) > 1 else ""
    if not isinstance(said, str):  # the number of a reward model
        return VerdictView(role, model, said if isinstance(said, int | float) else None, "", question, "", about)
    score, reason = read_reply(said)
    return VerdictView(role, model, score, reason, question, said, about)


def read_reply(text: str) -> tuple[float | str | None, str]:
    """The score and the reason in a judge's reply, as it gave them; None where it gave no score.

    >>> read_reply('So: {"id": "ab", "reason": "It is right.", "score": 8}')
    (8, 'It is right.')
    >>> read_reply("I cannot say.")
    (None, '')
    """
    objects = [each for each in json_objects(text) if "score" in each or "winner" in each]
    if not objects:
        return None, ""
    verdict = objects[-1]
    score = verdict.get("score", verdict.get("winner"))
    is_plain = isinstance(score, int | float | str) and not isinstance(score, bool)
    return score if is_plain else None, str(verdict.get("reason") or "")


def label_lines(labels: TaskLabels | None, doc: int) -> list[tuple[str, float]]:
    """The labels that people gave to a document: name and label."""
    if labels is None:
        return []
    return [(name or "no name", own[doc]) for name, own in labels.people.items() if doc in own]
