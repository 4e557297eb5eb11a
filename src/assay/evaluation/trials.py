"""One request of every kind that the tasks send to a server, before the run: a server that lacks what they need is reported then,
not after thousands of requests. The answers are part of the run, so that none is paid twice."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from assay.config.run import RunConfig
from assay.engine.drive import TriedRequest, answer_to, first_key
from assay.errors import ConfigError
from assay.evaluation.dispatch import run_async
from assay.models.protocol import AnyModel, RetryableError
from assay.models.servers.remedies import is_about_every_text, malformed_remedy, request_remedy, status_of
from assay.models.servers.server_model import ServerModel
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    LIMITS,
    UNFINISHED,
    Call,
    Failed,
    Generate,
    Loglikelihood,
    Part,
    Prompt,
    Request,
    Response,
    Rolling,
    Sample,
    Text,
    TextPart,
    limit_of,
    prompt_text,
)
from assay.runs.cache import Cache
from assay.tasks.preflight import warn_thinking
from assay.tasks.runnable import Runnable
from assay.tasks.settings import preserved_random

SECONDS = 30.0
"""Time for the answer to a trial: a refusal takes less, a long answer belongs to the run."""
ATTEMPTS, FIRST_WAIT = 3, 0.5
"""Number of attempts of a trial, and the seconds after the first."""
MAX_TASKS = 500
"""Number of tasks whose first document is read."""
MAX_TRIALS = 4
"""Number of requests of one kind that are tried for a model."""
SHORT = 1000
"""Characters of a prompt that no server finds too long."""
ANY_TEXT = "The quick brown fox"
LIMIT_STEPS = (512, 2048, 8192, 32768)
MALFORMED = "malformed answer: "


class Trial(NamedTuple):
    """A request that represents those with the same features, and the task and sample it is from."""

    request: Request
    features: frozenset[str]
    task: str
    sample: bytes


def try_requests(config: RunConfig, tasks: Sequence[Runnable], models: Mapping[str, AnyModel]) -> list[TriedRequest]:
    """Try one request of every kind for each server; a ConfigError where a server refuses a kind. Returns the answers."""
    servers = {role: model for role, model in models.items() if isinstance(model, ServerModel)}
    if not servers:
        return []
    with preserved_random():
        trials = list(_selected(_candidates(tasks, servers)))
    if config.use_cache is None:
        return run_async(_try_all(trials, servers, config, tasks, lambda _: False))
    with closing(Cache(Path(config.use_cache))) as cache:
        return run_async(_try_all(trials, servers, config, tasks, lambda key: cache.get(key) is not None))


def _candidates(tasks: Sequence[Runnable], roles: Iterable[str]) -> Iterator[Trial]:
    """The first requests of the tasks, one of each kind; of tasks that send log-likelihoods alone, of the first three."""
    asked = frozenset(roles)
    alike: dict[frozenset[str], int] = {}
    for task in islice(tasks, MAX_TASKS):
        if "generate" not in task.needs():
            alike[task.needs()] = alike.get(task.needs(), 0) + 1
            if alike[task.needs()] > 3:
                continue
        sample = next(iter(task.samples()), None)
        if sample is None or sample.problem:
            continue
        name, key = task.task.name, f"{task.task.name}\0{sample.doc_id}".encode()
        requests = sample.requests or _first_step(task, sample)
        kinds: set[tuple[type, frozenset[str]]] = set()
        for request in requests:
            features = _features(request)
            if request.role in asked and (type(request), features) not in kinds:
                kinds.add((type(request), features))
                yield Trial(request, features, name, key)


def _first_step(task: Runnable, sample: Sample) -> Sequence[Request]:
    """The requests of a graph's first step; none where reaching it may run code of users that should run once."""
    if task.facts.keeps_records and "tools" not in task.needs():
        return ()
    step = next(task.plan(sample), ())
    return [request for request in step if not isinstance(request, Call)]


def _features(request: Request) -> frozenset[str]:
    """Features that a server must support for a request, beside its kind."""
    prompt = _prompt(request)
    features = {request.role, "text" if isinstance(prompt, str) else "messages"}
    if not isinstance(prompt, str):
        features |= {f"role {message.role}" for message in prompt}
        parts = [part for message in prompt if not isinstance(message.content, str) for part in message.content]
        features |= {type(part).__name__ for part in parts}
    if isinstance(request, Generate):
        features |= {f"parameter {name}" for name in request.params if name not in LIMITS}
        limit, stops = limit_of(request.params) or DEFAULT_MAX_GEN_TOKS, request.params.get("until")
        features |= {f"limit above {step}" for step in LIMIT_STEPS if limit > step}
        features |= {
            f"more than {step} stops" for step in (1, 4) if isinstance(stops, list | tuple) and len(stops) > step
        }
    return frozenset(features)


def _selected(candidates: Iterable[Trial]) -> Iterator[Trial]:
    """Of every kind of request the ones with the most features, log-likelihoods first; one whose features another has is left
    out."""
    order = (Loglikelihood, Rolling, Generate)
    ranked = sorted(candidates, key=lambda each: (order.index(type(each.request)), -len(each.features)))
    kept: list[Trial] = []
    for trial in ranked:
        same = [each for each in kept if type(each.request) is type(trial.request)]
        if len(same) < MAX_TRIALS and not any(trial.features <= each.features for each in same):
            kept.append(trial)
            yield trial


async def _try_all(
    trials: Sequence[Trial],
    servers: Mapping[str, ServerModel],
    config: RunConfig,
    tasks: Sequence[Runnable],
    is_known: Callable[[bytes], bool],
) -> list[TriedRequest]:
    tried: list[TriedRequest] = []
    spent = 0.0
    thinking: ServerModel | None = None
    for role, model in servers.items():
        own = [trial for trial in trials if trial.request.role == role]
        if not own:
            continue
        async with model:
            for trial in own:
                keyed = first_key(trial.request, trial.sample, model)
                if keyed is None:
                    continue  # the engine says why
                key, sent = keyed
                estimate = model.estimate(sent)
                if is_known(key) or (config.max_cost is not None and spent + estimate > config.max_cost):
                    continue
                response = await _answer(model, sent)
                if isinstance(response, Failed):
                    await _refuse(model, trial, response)
                elif response is not None:
                    _warn_without_usage(model, role, response)
                    if isinstance(response, Text) and (response.reasoning or response.finish == UNFINISHED):
                        thinking = thinking or model
                    known = model.cost(response)
                    spent += estimate if known is None else known
                    tried.append(TriedRequest(key, role, trial.task, response, estimate))
    if thinking is not None:
        warn_thinking(tasks, thinking)
    return tried


async def _answer(model: ServerModel, request: Request) -> Response | None:
    """The response to a trial, with few retries; None where there is none yet, for a reason that may pass."""
    try:
        async with asyncio.timeout(SECONDS):
            for attempt in range(1, ATTEMPTS + 1):
                started = time.monotonic()
                try:
                    response = await model.ask(request)
                    return answer_to(request, response, time.monotonic() - started, attempt)
                except RetryableError as error:
                    if error.malformed:
                        return Failed(f"{MALFORMED}{error}")
                    if attempt < ATTEMPTS:
                        await asyncio.sleep(FIRST_WAIT * attempt if error.retry_after is None else error.retry_after)
    except TimeoutError:
        pass
    return None


async def _refuse(model: ServerModel, trial: Trial, failed: Failed) -> None:
    """Refuse the run where a server refuses every such request; warn where it refuses this text only."""
    reason, request = failed.reason, trial.request
    if isinstance(request, Generate) and status_of(reason) is None:
        return  # the model refused to answer, or said nothing: that is a result
    if not is_about_every_text(reason, is_short=len(prompt_text(_prompt(request))) < SHORT):
        second = await _answer(model, with_any_text(request))
        if not isinstance(second, Failed):
            logging.getLogger("assay").warning(
                "the first document of task %r is refused: %s; another text is not", trial.task, reason
            )
            return
        reason = second.reason
    is_malformed = reason.startswith(MALFORMED)
    fix = malformed_remedy(reason) if is_malformed else request_remedy(reason, request, trial.task, model.name)
    raise _problem(trial, reason, fix)


def _problem(trial: Trial, reason: str, fix: str) -> ConfigError:
    kind = {Loglikelihood: "log-likelihoods", Rolling: "log-likelihoods of whole texts"}.get(
        type(trial.request), "text"
    )
    what = f"the server cannot answer requests for {kind} as task {trial.task!r} sends them: {reason}"
    role = trial.request.role
    return ConfigError.at("model" if role == "model" else f"model_role.{role}", what, fix)


def _warn_without_usage(model: ServerModel, role: str, response: Response) -> None:
    if model.price is not None and model.cost(response) is None:
        logging.getLogger("assay").warning(
            "the model in the role %r has a price, and its server reports no usage: its cost stays unknown", role
        )


def with_any_text(request: Request) -> Request:
    """The same request about another, short text: with the same parameters, roles and media."""
    if isinstance(request, Rolling):
        return request._replace(text=ANY_TEXT)
    if isinstance(request, Loglikelihood):
        return request._replace(context=_any_prompt(request.context), continuation=" jumps")
    return request._replace(prompt=_any_prompt(request.prompt))


def _prompt(request: Request) -> Prompt:
    if isinstance(request, Generate):
        return request.prompt
    return request.context if isinstance(request, Loglikelihood) else request.text


def _any_prompt(prompt: Prompt) -> Prompt:
    if isinstance(prompt, str):
        return ANY_TEXT
    return tuple(message._replace(content=_any_content(message.content)) for message in prompt)


def _any_content(content: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return ANY_TEXT
    return tuple(TextPart(ANY_TEXT) if isinstance(part, TextPart) else part for part in content)
