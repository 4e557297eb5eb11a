"""The same requests to two models: what each answered, request by request, and what its answers scored."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.flow import Run, Watch
from assay.evaluation.models import model_under_test, parse_role
from assay.evaluation.options import task_manager
from assay.models.protocol import AnyModel
from assay.records import Generate, Loglikelihood, Request, Response, Sample, ScoreKey
from assay.statistics.aggregations import Aggregation
from assay.statistics.board import Board
from assay.tasks.preflight import MEANING
from assay.tasks.run import TaskRun
from assay.tasks.runnable import Runnable

SIDES = ("a", "b")
KINDS = ("generate", "sampled", "loglikelihood", "rolling")
"""What requests are counted as; those of generation whose answer is drawn are `sampled`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A sample, and what both models answered to its requests."""

    task: str
    sample: Sample
    a: Sequence[Response]
    b: Sequence[Response]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A task of which nothing can be compared: why, and how many requests of which kind it has."""

    task: str
    reason: str
    requests: Mapping[str, int]


class Scores(NamedTuple):
    """The scores of a task under both models, and what makes numbers of them."""

    a: Board
    b: Board
    aggregation: Callable[[ScoreKey], Aggregation | Callable[..., Any] | None]


@dataclass(frozen=True, slots=True)
class Verified:
    """Two models that were asked the same. `labels` are what they were called, `remarks` what else is worth knowing."""

    labels: tuple[str, str]
    identities: tuple[str, str]
    asked: Sequence[Asked]
    scores: Mapping[str, Scores]
    left_out: Sequence[LeftOut]
    broken: Mapping[str, str]
    remarks: Sequence[str]
    count_tokens: Callable[[str], int] | None


Watching = Callable[[], AbstractContextManager[Watch | None]]
"""Makes what is told how far a run is."""


def verify(
    first: AnyModel | str, second: AnyModel | str, config: RunConfig, *, watching: Watching = nullcontext
) -> Verified:
    """Ask two models the same, one after the other. Each is an object, or written as a role's: `openai,model=x,…`.

    Prompts are made once, as the first model's templates have it. With an output path each has the folder of a run there,
    `a` and `b`, which goes on where it stopped.
    """
    configs = [_config(config, each, side) for each, side in zip((first, second), SIDES, strict=True)]
    one = Run(configs[0], task_manager(configs[0]), None if isinstance(first, str) else first)
    one.prepare()
    models = one.ready_model(), second if not isinstance(second, str) else _second(configs[1])
    one.tasks, left_out = _comparable([run.runnable for run in one.tasks], models)
    other = Run(configs[1], one.manager, models[1], loaded=one.loaded, broken=one.broken, helper_files=one.helper_files)
    recorded = _execute(one, watching)
    other.tasks = [_Recorded(run.runnable, given=run.asked) for run in recorded]
    repeated = _execute(other, watching)
    return Verified(
        labels=tuple(_label(each) for each in (first, second)),  # type: ignore[arg-type]  # there are two
        identities=(models[0].identity, models[1].identity),
        asked=list(_asked(recorded, repeated)),
        scores={
            run.runnable.task.name: Scores(run.board, again.board, run.runnable.aggregation)
            for run, again in zip(recorded, repeated, strict=True)
        },
        left_out=left_out,
        broken=one.broken,
        remarks=list(_remarks(config, models)),
        count_tokens=_counter(models),
    )


@dataclass
class _Recorded(TaskRun):
    """A task at work that remembers what was answered; where samples are `given`, those are asked about again."""

    given: Sequence[Sample] | None = None
    answers: dict[int, tuple[Sample, Sequence[Response]]] = field(default_factory=dict)

    def samples(self) -> Iterator[tuple[int, Sample]]:
        return super().samples() if self.given is None else iter(enumerate(self.given))

    def end(self, number: int, sample: Sample, responses: Sequence[Response]) -> None:
        self.answers[number] = (sample, responses[: len(sample.requests)])  # what follows are verdicts of scorers
        super().end(number, sample, responses)

    @property
    def asked(self) -> list[Sample]:
        return [self.answers[number][0] for number in sorted(self.answers)]


def _execute(run: Run, watching: Watching) -> list[_Recorded]:
    with watching() as run.watch:
        run.execute()
    return [each for each in run.tasks if isinstance(each, _Recorded)]


def _config(config: RunConfig, model: AnyModel | str, side: str) -> RunConfig:
    """The configuration of one side's run."""
    output = str(Path(config.output_path) / side) if config.output_path is not None else None
    if not isinstance(model, str):
        return replace(config, output_path=output)
    name, arguments = parse_role(model, side)
    return replace(config, model=name, model_args=arguments, model_named=True, output_path=output)


def _second(config: RunConfig) -> AnyModel:
    """The second model. A template that is named is one of the first's, who makes the prompts."""
    return model_under_test(replace(config, apply_chat_template=bool(config.apply_chat_template)))


def _label(model: AnyModel | str) -> str:
    from assay.runs.redaction import redacted

    if not isinstance(model, str):
        return model.name
    name, arguments = parse_role(model, "model")
    return ",".join([name, *(f"{key}={value}" for key, value in dict(redacted(arguments)).items())])


def _comparable(
    tasks: Sequence[Runnable], models: tuple[AnyModel, AnyModel]
) -> tuple[list[TaskRun], Sequence[LeftOut]]:
    """The tasks that both models can be asked, and the others."""
    reasons = {task.task.name: _obstacle(task, models) for task in tasks}
    kept: list[TaskRun] = [_Recorded(task) for task in tasks if not reasons[task.task.name]]
    if not kept:
        problems = [Problem(Place(f"task {name!r}"), reason, "name another task") for name, reason in reasons.items()]
        raise ConfigError(problems)
    others = [task for task in tasks if reasons[task.task.name]]
    return kept, [LeftOut(task.task.name, reasons[task.task.name], _counts(task, models[0])) for task in others]


def _obstacle(task: Runnable, models: tuple[AnyModel, AnyModel]) -> str:
    """Why a task cannot be compared; nothing where it can."""
    if task.task.graph is not None:
        return "a graph asks in steps: what it asks next depends on the answers"
    for side, model in zip(SIDES, models, strict=True):
        for need in sorted(task.needs):
            if not getattr(model.can, need):
                return f"{side.upper()} ({model.name}) cannot {MEANING[need]}"
    return ""


def _counts(task: Runnable, model: AnyModel) -> Mapping[str, int]:
    if task.task.graph is not None or ("chat" in task.needs and not model.can.chat):
        return {}  # nobody can say what it would ask
    return Counter(kind_of(request) for sample in task.samples() for request in sample.requests)


def kind_of(request: Request) -> str:
    """One of KINDS."""
    if isinstance(request, Generate):
        return "sampled" if request.is_sampled else "generate"
    return "loglikelihood" if isinstance(request, Loglikelihood) else "rolling"


def _asked(recorded: Sequence[_Recorded], repeated: Sequence[_Recorded]) -> Iterator[Asked]:
    for one, other in zip(recorded, repeated, strict=True):
        for number in sorted(one.answers):
            sample, answers = one.answers[number]
            if number in other.answers:
                yield Asked(one.runnable.task.name, sample, answers, other.answers[number][1])


def _remarks(config: RunConfig, models: tuple[AnyModel, AnyModel]) -> Iterator[str]:
    if models[0].identity == models[1].identity and getattr(models[0], "urls", None) == getattr(
        models[1], "urls", None
    ):
        yield "A and B are the same model by their identity: this shows only that it says the same twice"
    precisions = [str(getattr(model, "precision", "")) for model in models]
    if all(precisions):
        yield f"A computes in {precisions[0]}, B in {precisions[1]}"
    for half in {"float16", "bfloat16"} & set(precisions):
        yield f"{half} is coarse: give dtype=float32 (without dtype hf takes what config.json says), or say --precision {half}"
    if config.apply_chat_template:
        yield "prompts were made with A's chat template, and B was sent the same text"


def _counter(models: tuple[AnyModel, AnyModel]) -> Callable[[str], int] | None:
    """What counts tokens: the first of the two that can."""
    for model in models:
        if model.count_tokens("a") is not None:
            return lambda text, count=model.count_tokens: count(text) or 0  # type: ignore[misc]
    return None
