"""Removal of right answers from samples, as far as their places are known, and the list of the removed parts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import orjson

from assay.errors import some
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.runs.run import Run
from assay.runs.samples.decode import decode_samples
from assay.runs.samples.encode import from_json, sample_arrays
from assay.runs.samples.records import ROLLING, StoredRequest, StoredSample
from assay.runs.samples.writer import GroupWriter
from assay.score_keys import ScoreKey

T = TypeVar("T")

REMOVED = "[removed]"
WITHOUT_GOLD = "without_gold"
"""The key in the manifest of such a run: it cannot be scored again."""
WORDS = frozenset((
    "answer", "answers", "answerkey", "correct", "gold", "golden", "golds", "label", "labels", "reference", "references",
    "solution", "solutions", "target", "targets", "explanation", "explanations", "rationale", "rationales", "reasoning", "cot",
    "justification", "proof",
))  # fmt: skip
"""Words in the names of columns that hold the right answer or lead to it, in small letters."""


class GoldRemoval:
    """Removes right answers from the samples of a run, task by task; `summary` lists the removed parts."""

    def __init__(self, run: Run, scratch: Path) -> None:
        self._run, self._scratch = run, scratch
        self._removed: dict[str, dict[str, None]] = {}

    def summary(self) -> list[str]:
        """List the removed parts, a line for each kind, with its tasks."""
        return [f"{what} ({some(list(tasks))})" for what, tasks in self._removed.items()]

    def _record(self, task: str, what: str) -> None:
        self._removed.setdefault(what, {})[task] = None

    def without(self, value: JSONObject, *, is_manifest: bool) -> JSONObject:
        """Results or a manifest without examples that have their answers, marked as what they are."""
        if is_manifest:
            return {**value, WITHOUT_GOLD: True}
        tasks = {
            name: {**task, "config": self._config(name, task["config"])} if "config" in task else task
            for name, task in value["tasks"].items()
        }
        return {**value, "tasks": tasks}

    def _config(self, task: str, config: JSONObject) -> JSONObject:
        fewshot = config.get("fewshot_config")
        if not isinstance(fewshot, Mapping) or not fewshot.get("samples"):
            return config
        self._record(task, "the examples in the configuration")
        return {**config, "fewshot_config": {**fewshot, "samples": REMOVED}}

    def rewritten(self, run: Run, task: str, inner: str) -> Path:
        """The samples of a task in a new file, without right answers."""
        entry = run.results.tasks.get(task)
        config = run.config(task) or self._run.config(task)
        shots = entry.num_fewshot or 0 if entry is not None else 0
        removal = TaskRemoval(config, shots, is_chat=bool(run.results.config.get("apply_chat_template")))
        target = self._scratch / inner.replace("/", "-")
        samples = run.sample_file(task)
        assert samples is not None, "who packs a run has looked"
        writer = GroupWriter(target)
        for table in samples.tables():
            writer.write(*sample_arrays([removal.row(row) for row in decode_samples(table)]))
        writer.end()
        for what in removal.summary():
            self._record(task, what)
        return target


class TaskRemoval:
    """Takes the right answers out of the rows of one task."""

    def __init__(self, config: JSONObject, shots: int, *, is_chat: bool = False) -> None:
        self._asked = template_columns(config.get("doc_to_target"))
        self._delimiter = str(config.get("fewshot_delimiter") or "\n\n")
        self._shots, self._is_chat = shots, is_chat
        self._columns: dict[str, None] = {}
        self._whole = self._prompts = self._continuations = self._scores = False
        self._records = self._verdicts = self._prompted = False

    def summary(self) -> list[str]:
        """List the removed parts, in a few lines."""
        columns = [f"the columns {', '.join(self._columns)} of documents"] if self._columns else []
        said = {
            "whole documents: which column has the right answer is not known": self._whole,
            "examples before the question": self._prompts,
            "continuations that are the right answer": self._continuations,
            "scores that hold the right answer": self._scores,
            "outputs of graphs": self._records,
            "responses of judges": self._verdicts,
            "further prompts with the right answer in them": self._prompted,
        }
        return ["target and gold", *columns, *(what for what, happened in said.items() if happened)]

    def row(self, row: StoredSample) -> StoredSample:
        """A row without right answers."""
        golds = [from_json(text) for text in (row.target, row.gold) if text is not None]
        return row._replace(
            target="null",
            gold=None,
            doc=self._doc(from_json(row.doc), golds),
            prefix=self._shared(row.prefix),
            prompt=self._question(row.prompt, has_prefix=bool(row.prefix)),
            requests=self._requests(row.requests, golds),
            answers=self._answers(row.answers),
            replies=self._replies(row.replies),
            scores=self._numbers(row.scores),
            repeats=self._numbers(row.repeats),
        )

    def _doc(self, doc: AnyJSON, golds: Sequence[AnyJSON]) -> str:
        """A document without the columns of the right answer; where none is known to be it, without all of them."""
        if not isinstance(doc, Mapping):
            return "{}"
        texts = _texts(golds)
        sure = [key for key, value in doc.items() if key in self._asked or (isinstance(value, str) and value in texts)]
        if not sure:
            self._whole = self._whole or bool(doc)
            return "{}"
        said = [re.compile(rf"(?<!\w){re.escape(text.strip())}(?!\w)", re.IGNORECASE) for text in texts]
        removed = [
            key
            for key, value in doc.items()
            if key in sure or sounds_like_gold(key, value) or _contains_gold(value, said)
        ]
        self._columns.update(dict.fromkeys(removed))
        return orjson.dumps({key: value for key, value in doc.items() if key not in removed}).decode()

    def _shared(self, prefix: str) -> str:
        if not prefix or not self._shots:
            return prefix
        self._prompts = True
        return f"{REMOVED}{self._delimiter}"

    def _question(self, prompt: str, *, has_prefix: bool) -> str:
        """Return the last part of a prompt: the parts before it are examples.

        Where they end is unknown for a conversation, and for a prompt that has more or fewer parts than there are examples.
        """
        if not self._shots or has_prefix or not prompt:
            return prompt
        self._prompts = True
        *examples, last = prompt.split(self._delimiter)
        return last if len(examples) == self._shots and not self._is_chat else REMOVED

    def _answers(self, answers: JSONObject) -> JSONDict:
        """Return the answers after filters: texts and likelihoods; a whole record may contain the right answer."""
        answers_left = {
            name: [each if _is_answer(each) else REMOVED for each in filtered] for name, filtered in answers.items()
        }
        self._records = self._records or answers_left != dict(answers)
        return answers_left

    def _replies(self, replies: Sequence[JSONObject] | None) -> list[JSONObject] | None:
        """Return the metadata of the responses without judges' responses: judges were shown the right answer."""
        if replies is None:
            return None
        self._verdicts = self._verdicts or any(
            isinstance(each.get("verdict"), str) or "question" in each for each in replies
        )
        shown = [{**each, "question": REMOVED} if "question" in each else each for each in replies]
        return [{**each, "verdict": REMOVED} if isinstance(each.get("verdict"), str) else each for each in shown]

    def _requests(self, requests: Sequence[StoredRequest], golds: Sequence[AnyJSON]) -> list[StoredRequest]:
        """Return the requests without contexts that have examples; a single continuation is the right answer.

        A further prompt of a graph with a right answer in it was written for a judge.
        """
        alone = len(requests) == 1
        texts = [gold for gold in golds if isinstance(gold, str) and gold.strip()]
        requests_left: list[StoredRequest] = []
        for request in requests:
            if request.prompt is not None and request.kind != ROLLING:
                shown = request.params is not None and any(text in request.prompt for text in texts)
                prompt = REMOVED if shown else self._question(request.prompt, has_prefix=False)
                same = prompt == request.prompt
                request = request._replace(prompt=prompt, messages=request.messages if same else None)
                self._prompted = self._prompted or shown
            if alone and request.continuation is not None:
                self._continuations = True
                request = request._replace(continuation=REMOVED)
            requests_left.append(request)
        return requests_left

    def _numbers(self, scores: Mapping[ScoreKey, T]) -> dict[ScoreKey, T]:
        numbers = {row: value for row, value in scores.items() if _is_plain(value)}
        self._scores = self._scores or len(numbers) < len(scores)
        return numbers


def _is_answer(value: AnyJSON) -> bool:
    """Whether it is a text, a likelihood, or several of those."""
    return (
        all(map(_is_answer, value))
        if isinstance(value, list | tuple)
        else value is None or isinstance(value, str | int | float)
    )


def sounds_like_gold(key: str, value: AnyJSON) -> bool:
    """Whether a column, or something in it, is called as right answers are, or what explains them.

    >>> sounds_like_gold("mc1_targets", {"choices": ["a", "b"], "labels": [1, 0]}), sounds_like_gold("question", "a?")
    (True, False)
    >>> sounds_like_gold("answer_idx", 2), sounds_like_gold("answerKey", "A"), sounds_like_gold("unanswered", 1)
    (True, True, False)
    """
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", key)
    if WORDS.intersection((key.lower(), *(part.lower() for part in parts))):
        return True
    inner = (
        value.items()
        if isinstance(value, Mapping)
        else [("", each) for each in value]
        if isinstance(value, list)
        else ()
    )
    return any(sounds_like_gold(str(name), each) for name, each in inner)


def _texts(golds: Sequence[AnyJSON]) -> set[str]:
    """Return the texts of right answers, also of lists; a single letter occurs anywhere."""
    every = [each for gold in golds for each in (gold if isinstance(gold, list) else [gold])]
    return {each for each in every if isinstance(each, str) and len(each.strip()) > 1}


def _contains_gold(value: AnyJSON, said: Sequence["re.Pattern[str]"]) -> bool:
    """Whether a text in a value has a right answer in it. Of several texts all must have one: else they may be the choices."""
    if isinstance(value, str):
        return any(pattern.search(value) for pattern in said)
    if isinstance(value, Mapping):
        return any(_contains_gold(each, said) for each in value.values())
    if isinstance(value, list) and len(value) > 1 and all(isinstance(each, str) for each in value):
        return all(_contains_gold(each, said) for each in value)
    return isinstance(value, list) and any(_contains_gold(each, said) for each in value)


def _is_plain(value: AnyJSON) -> bool:
    """Whether a score is a number, or those of several answers: a pair may hold what is right."""
    values = value if isinstance(value, list) else [value]
    return all(each is None or isinstance(each, int | float) for each in values) and (
        not isinstance(value, list) or len(value) != 2
    )


def template_columns(template: AnyJSON) -> frozenset[str]:
    """The columns that a target is made of: the name of one, or those that a template uses.

    >>> sorted(template_columns("{{ answer.split('#')[-1] }} {{unit}}")), sorted(template_columns("label"))
    (['answer', 'unit'], ['label'])
    """
    if not isinstance(template, str):
        return frozenset()
    if "{{" not in template and "{%" not in template:
        return frozenset((template,))
    from assay.templates import COMPILE_ERRORS, Sandbox

    try:
        return frozenset(Sandbox().variables(template))
    except COMPILE_ERRORS:
        return frozenset()
