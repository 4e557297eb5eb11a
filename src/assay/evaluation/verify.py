"""Ask two models the same requests: the flow twice, with the samples of the first run for the second."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.dispatch import Watch
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.models import ModelPool, model_under_test, parse_role, takes_messages
from assay.evaluation.options import task_manager
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.writing import MakeTaskRun, OutputOptions
from assay.models.protocol import AnyModel
from assay.records import Generate, Loglikelihood, Request, Response, Sample
from assay.runs.results import plain
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import Aggregation
from assay.statistics.board import Board
from assay.tasks.preflight import MEANING
from assay.tasks.run import Keep, TaskRun
from assay.tasks.runnable import Runnable

SIDES = ("a", "b")
KINDS = ("generate", "sampled", "loglikelihood", "rolling")
"""Kinds of requests; generation at a temperature above 0 is `sampled`."""


@dataclass(frozen=True, slots=True)
class AnsweredTwice:
    """A sample with the responses of both models."""

    task: str
    sample: Sample
    a: Sequence[Response]
    b: Sequence[Response]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A task that cannot be compared, with the reason and the number of its requests by kind."""

    task: str
    reason: str
    requests: Mapping[str, int]


class Scores(NamedTuple):
    """The scores of a task under both models, and the aggregation of each row."""

    a: Board
    b: Board
    aggregation: Callable[[ScoreKey], Aggregation | Callable[..., Any] | None]


@dataclass(frozen=True, slots=True)
class Verified:
    """The answers and scores of two models that were asked the same. `labels` are the names that the user gave them."""

    labels: tuple[str, str]
    identities: tuple[str, str]
    asked: Sequence[AnsweredTwice]
    scores: Mapping[str, Scores]
    left_out: Sequence[LeftOut]
    broken: Mapping[str, str]
    remarks: Sequence[str]
    count_tokens: Callable[[str], int] | None


Watching = Callable[[], AbstractContextManager[Watch | None]]
"""Opens a display of how far a run is."""


def verify(
    first: AnyModel | str, second: AnyModel | str, config: RunConfig, *, watching: Watching = nullcontext
) -> Verified:
    """Ask two models the same, one after the other. Each is an object or a spec: `openai,model=x,…`.

    Prompts are rendered once, with the first model's chat template; where one of the two takes messages, both get messages, and
    each applies its own template. With an output path each has the folder of a run there,
    `a` and `b`, which is resumed.
    """
    configs = [_config(config, each, side) for each, side in zip((first, second), SIDES, strict=True)]
    prepared = prepare_run(configs[0], task_manager(configs[0]), None if isinstance(first, str) else first)
    models = prepared.models.under_test(prepared.tasks), second if not isinstance(second, str) else _second(configs[1])
    as_messages = bool(config.apply_chat_template) and any(map(takes_messages, models))
    prepared.models.renders = not as_messages
    tasks, left_out = _comparable(prepared.tasks, models)
    one = replace(prepared, tasks=tasks)
    other = replace(one, config=configs[1], models=ModelPool(configs[1], models[1]), started=time.time())
    recorded = _execute(one, watching, RecordedTask)
    samples = {run.runnable.task.name: run.asked for run in recorded}
    repeated = _execute(other, watching, partial(_repeated, samples))
    return Verified(
        labels=tuple(_label(each) for each in (first, second)),  # type: ignore[arg-type]  # there are two
        identities=(models[0].identity, models[1].identity),
        asked=list(_answered(recorded, repeated)),
        scores={
            run.runnable.task.name: Scores(run.board, again.board, run.runnable.aggregation)
            for run, again in zip(recorded, repeated, strict=True)
        },
        left_out=left_out,
        broken=prepared.broken,
        remarks=list(_remarks(config, models, as_messages=as_messages)),
        count_tokens=_counter(models),
    )


@dataclass
class RecordedTask(TaskRun):
    """A task at work that records the responses to each sample; where samples are `asked_before`, those are asked again."""

    asked_before: Sequence[Sample] | None = None
    answers: dict[int, tuple[Sample, Sequence[Response]]] = field(default_factory=dict)

    def samples(self) -> Iterator[Sample]:
        return super().samples() if self.asked_before is None else iter(self.asked_before)

    def end(self, number: int, sample: Sample, responses: Sequence[Response]) -> None:
        self.answers[number] = (sample, responses[: len(sample.requests)])  # what follows are responses to scorers
        super().end(number, sample, responses)

    def _report(self, reason: str, *, is_lost: bool) -> None:  # noqa: ARG002  # the shape of its base
        """Report a document, never as lost: documents that can be scored of one model alone are a finding of a comparison, and
        must not stop the task after the first of them."""
        super()._report(reason, is_lost=False)

    @property
    def asked(self) -> list[Sample]:
        return [self.answers[number][0] for number in sorted(self.answers)]


def _repeated(
    samples: Mapping[str, Sequence[Sample]], task: Runnable, keep: Keep | None, ended: Callable[[], None] | None
) -> RecordedTask:
    return RecordedTask(task, keep, ended, asked_before=samples[task.task.name])


def _execute(prepared: PreparedRun, watching: Watching, task_run: MakeTaskRun) -> list[RecordedTask]:
    with watching() as watch:
        evaluation = execute(prepared, watch, OutputOptions(task_run=task_run))
    return [run for run in evaluation.tasks if isinstance(run, RecordedTask)]


def _config(config: RunConfig, model: AnyModel | str, side: str) -> RunConfig:
    """The configuration of one side's run."""
    output = str(Path(config.output_path) / side) if config.output_path is not None else None
    if not isinstance(model, str):
        return replace(config, output_path=output)
    name, arguments = parse_role(model, side)
    return replace(config, model=name, model_args=arguments, model_named=True, output_path=output)


def _second(config: RunConfig) -> AnyModel:
    """The second model. A chat template that is named is the first model's, which renders the prompts."""
    return model_under_test(replace(config, apply_chat_template=bool(config.apply_chat_template)))


def _label(model: AnyModel | str) -> str:
    if not isinstance(model, str):
        return model.name
    name, arguments = parse_role(model, "model")
    return ",".join([name, *(f"{key}={value}" for key, value in plain(arguments).items())])


def _comparable(
    tasks: Sequence[Runnable], models: tuple[AnyModel, AnyModel]
) -> tuple[list[Runnable], Sequence[LeftOut]]:
    """The tasks that both models can be asked, and the others."""
    reasons = {task.task.name: _obstacle(task, models) for task in tasks}
    kept = [task for task in tasks if not reasons[task.task.name]]
    if not kept:
        problems = [Problem(Place(f"task {name!r}"), reason, "name another task") for name, reason in reasons.items()]
        raise ConfigError(problems)
    others = [task for task in tasks if reasons[task.task.name]]
    return kept, [LeftOut(task.task.name, reasons[task.task.name], _counts(task, models[0])) for task in others]


def _obstacle(task: Runnable, models: tuple[AnyModel, AnyModel]) -> str:
    """Why a task cannot be compared; empty where it can."""
    if task.task.definition is not None:
        return "a graph asks in steps: what it asks next depends on the answers"
    for side, model in zip(SIDES, models, strict=True):
        for need in sorted(task.needs()):
            if not getattr(model.can, need):
                return f"{side.upper()} ({model.name}) cannot {MEANING[need]}{model.can.why_not(need)}"
    return ""


def _counts(task: Runnable, model: AnyModel) -> Mapping[str, int]:
    if task.task.definition is not None or ("chat" in task.needs() and not model.can.chat):
        return {}  # its requests are not known
    return Counter(kind_of(request) for sample in task.samples() for request in sample.requests)


def kind_of(request: Request) -> str:
    """The kind of a request: one of KINDS."""
    if isinstance(request, Generate):
        return "sampled" if request.is_sampled else "generate"
    return "loglikelihood" if isinstance(request, Loglikelihood) else "rolling"


def _answered(recorded: Sequence[RecordedTask], repeated: Sequence[RecordedTask]) -> Iterator[AnsweredTwice]:
    for one, other in zip(recorded, repeated, strict=True):
        for number in sorted(one.answers):
            sample, answers = one.answers[number]
            if number in other.answers:
                yield AnsweredTwice(one.runnable.task.name, sample, answers, other.answers[number][1])


def _remarks(config: RunConfig, models: tuple[AnyModel, AnyModel], *, as_messages: bool) -> Iterator[str]:
    if models[0].identity == models[1].identity and getattr(models[0], "urls", None) == getattr(
        models[1], "urls", None
    ):
        yield "A and B are the same model by their identity: this only shows that its answers repeat"
    precisions = [str(getattr(model, "precision", "")) for model in models]
    if all(precisions):
        yield f"A computes in {precisions[0]}, B in {precisions[1]}"
    for half in {"float16", "bfloat16"} & set(precisions):
        yield f"{half} is coarse: give dtype=float32 (by default hf takes the dtype of config.json), or --precision {half}"
    if as_messages:
        yield "both were sent the same messages, and each applied its own chat template"
    elif config.apply_chat_template:
        yield "prompts were made with A's chat template, and B was sent the same text"


def _counter(models: tuple[AnyModel, AnyModel]) -> Callable[[str], int] | None:
    """The token counter of the first of the two models that has one."""
    for model in models:
        if model.count_tokens("a") is not None:
            return lambda text, count=model.count_tokens: count(text) or 0  # type: ignore[misc]
    return None
