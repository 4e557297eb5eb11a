"""Verdicts of an earlier run, found in its journal by the keys of their requests: a filter that no judge sees may change."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, NoReturn

from assay.engine.keys import Keys, nth_key
from assay.errors import ConfigError
from assay.evaluation.answers import StoredAnswers, StoredRun
from assay.records import Call, Failed, Generate, Request, Response, mapping
from assay.runs.journal import NAME
from assay.runs.run import Run
from assay.runs.samples.reader import ReplayedSample
from assay.tasks.runnable import Runnable

FIX = "run it again, with --use_cache DIR to reuse earlier responses"


class _SampleRequest(NamedTuple):
    """A request that was sent, by the sample it is about."""

    request: Request | Call
    sample: bytes


class JournaledVerdicts:
    """The responses of a run's judges. `identities` are those of their models, by role."""

    def __init__(self, run: Run, identities: Mapping[str, str]) -> None:
        self._run = run
        self._keys = {role: Keys(identity) for role, identity in identities.items()}

    @classmethod
    def of(cls, answers: StoredAnswers) -> "JournaledVerdicts | None":
        """None where there is no journal, or none that says which models were asked."""
        if not isinstance(answers, StoredRun) or not any(answers.folder.glob(f"{NAME}*")):
            return None
        roles = mapping(mapping(answers.manifest.get("spec")).get("roles"))
        identities = {role: each for role, each in roles.items() if isinstance(each, str)}
        return cls(answers.run, identities) if identities else None

    @cached_property
    def _responses(self) -> dict[bytes, Response]:
        """By key the responses of judges; a failure where there is no answer."""
        known: dict[bytes, Response] = {}
        for key, role, response in self._run.responses():
            if role in self._keys and (key not in known or not isinstance(response, Failed)):
                known[key] = response
        return known

    def completed(self, task: Runnable, stored: ReplayedSample, changed: Sequence[str]) -> ReplayedSample:
        """The sample with the verdicts that its plan asks for now. One that was never given is a ConfigError where keys of
        the task `changed`; else the verdicts are taken that are stored with the sample."""
        sample = stored.sample
        own = stored.responses[: len(sample.requests)]
        if sample.problem or any(isinstance(response, Failed) for response in own):
            return stored
        name, drawn = f"{task.task.name}\0{sample.doc_id}".encode(), dict[bytes, int]()
        plan = task.plan(sample)
        next(plan)
        try:
            requests = plan.send(own)
            while True:
                known = [self._response(_SampleRequest(each, name), drawn) for each in requests]
                if None in known and changed:
                    why = f"{' and '.join(changed)} changed, and the journal has no verdict on document {sample.doc_id}"
                    refuse_unseen(task, why)
                if None in known:
                    return stored
                requests = plan.send(known)  # type: ignore[arg-type]  # none of them is None
        except StopIteration as stop:
            return stored._replace(responses=stop.value)

    def _response(self, asked: _SampleRequest, drawn: dict[bytes, int]) -> Response | None:
        keys = self._candidates(asked, drawn)
        return next((self._responses[key] for key in keys if key in self._responses), None)

    def _candidates(self, asked: _SampleRequest, drawn: dict[bytes, int]) -> list[bytes]:
        """The keys that a request may have had: whether a model samples is not noted."""
        request = asked.request
        keys = self._keys.get(getattr(request, "role", ""))
        if keys is None or isinstance(request, Call):
            return []
        if not isinstance(request, Generate):
            return [keys.key(request)]
        sampled = keys.sampled_key(request, asked.sample)
        drawn[sampled] = drawn.get(sampled, -1) + 1
        draw = nth_key(sampled, drawn[sampled])
        return [draw] if request.is_sampled else [keys.key(request), draw]


def refuse_unseen(task: Runnable, why: str) -> NoReturn:
    """Refuse to score answers that judges have not seen."""
    what = f"its scorer asks other models, and they have not seen these answers: {why}"
    raise ConfigError.at(f"task {task.task.name!r}", what, FIX)


def names_other_models(task: Runnable, before: Mapping[str, object]) -> bool:
    """Whether a scorer names a model itself, and is not described as in the run: its verdicts are those of another model."""
    if not any(model is not None for model in task.facts.models.values()):
        return False
    return any(scorer not in _scorers(before) for scorer in _scorers(task.described()))


def _scorers(described: Mapping[str, object]) -> Sequence[object]:
    filters = described.get("filter_list")
    entries = [each for each in filters if isinstance(each, Mapping)] if isinstance(filters, list | tuple) else []
    return [each["scorer"] for each in (described, *entries) if each.get("scorer") is not None]
