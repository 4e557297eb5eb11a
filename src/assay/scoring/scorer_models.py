"""Models that the code of a scorer asks by a plain call, as seed 001 does: `self.judge_lm.evaluate(prompt)`.

Only the engine asks models, so that every request is journaled, limited and resumed, and a plain call cannot wait for it. So
the scorer's function is called again and again: a question without an answer ends the call, the engine asks it, and the next
call finds the answer. Such a function must ask the same things in the same order whenever it is called.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any, TypeVar

from assay.errors import ConfigError, SelfExplanatory
from assay.records import (
    Generate,
    JSONDict,
    Likelihood,
    Loglikelihood,
    Params,
    Request,
    Response,
    Text,
    UserValue,
    number,
)
from assay.scoring.results import ModelRoles, ModelSpec
from assay.user_code import call_user_code

T = TypeVar("T")
PARAMS: Mapping[str, object] = {"max_gen_toks": 1024, "do_sample": False, "temperature": 0.0, "until": []}
RUN = "run its task: `assay run --model_role ROLE=…`, or simple_evaluate(…, model_role={ROLE: …})"
"""The way to ask a model."""


class OnlyInRun(SelfExplanatory, RuntimeError):
    """Something that only a run can do was wanted of a scorer by itself."""


class Unscored(SelfExplanatory, ValueError):
    """Why a document has no score, in words that are shown as they are: a small number of them, so that they can be counted."""


class _Unanswered(BaseException):
    """Ends a function at a question without an answer."""


class _Responses:
    """The answers that one call of a function finds, in the order of its questions; and the question that ended it."""

    def __init__(self, known: Sequence[Sequence[Response]]) -> None:
        self.known, self.used = known, 0
        self.question: Sequence[Request] | None = None

    def next(self, requests: Sequence[Request]) -> Sequence[Response]:
        if self.question is None and self.used < len(self.known):
            self.used += 1
            return self.known[self.used - 1]
        self.question = self.question or requests
        raise _Unanswered


_RESPONSES: ContextVar[_Responses | None] = ContextVar("responses", default=None)


def ask_now(requests: Sequence[Request], who: str) -> Sequence[Response]:
    """The responses to requests, inside a function that is called by `asked_in_turn`."""
    responses = _RESPONSES.get()
    if responses is None:
        raise OnlyInRun(f"{who} asks another model, which only a run does — {RUN}")
    return responses.next(requests) if requests else ()


def asked_in_turn(place: str, function: Callable[[], T]) -> Generator[Sequence[Request], Sequence[Response], T]:
    """Yields what a function asks, one call of `ask_now` at a time, and returns its value."""
    known: list[Sequence[Response]] = []
    while True:
        responses = _Responses(known)
        before = _RESPONSES.set(responses)
        value: Any = call_user_code(place, function)
        _RESPONSES.reset(before)
        if responses.question is None:  # a function may catch the end of its call: what it returned then is nothing
            return value  # type: ignore[no-any-return]
        known.append((yield responses.question))


class ScorerModel:
    """A model that a scorer asks by plain calls. Make it in `__init__`: the run must know of it before the first request."""

    def __init__(self, role: str, model: ModelSpec | None, asks_for: str) -> None:
        self.role, self.model, self.asks_for = role, model, asks_for

    def generate(self, prompt: str, **gen_kwargs: UserValue) -> str:
        """The text that follows a prompt; greedily, unless the parameters say otherwise."""
        params: JSONDict = {**PARAMS, **gen_kwargs}
        responses = _RESPONSES.get()
        [response] = self._asked(
            [Generate(str(prompt), params, responses.used if responses is not None else 0, self.role)]
        )
        if not isinstance(response, Text):
            raise Unscored(f"{self.role}: there is no text")
        return response.text

    def evaluate(self, prompt: str) -> float:
        """The number that is the whole reply to a prompt; any other reply has no score."""
        reply = self.generate(prompt)
        try:
            value = number(float(reply))
        except ValueError:
            value = None
        if value is None:
            raise Unscored(f"{self.role}: unparsable verdict: the reply is not a number")
        return float(value)

    def loglikelihood(self, context: str, continuation: str) -> float:
        """The log-likelihood of a text after another; of a reward model, the reward."""
        return self.score([context], [continuation])[0]

    def score(self, prompts: Sequence[str], generations: Sequence[str]) -> list[float]:
        """A number for each generation after its prompt; one prompt alone is that of all."""
        shared = list(prompts) * len(generations) if len(prompts) == 1 else list(prompts)
        pairs = zip(shared, generations, strict=True)
        responses = self._asked([Loglikelihood(str(prompt), str(text), self.role) for prompt, text in pairs])
        if not all(isinstance(each, Likelihood) and not each.is_bound for each in responses):
            raise Unscored(f"{self.role}: there is no number")
        return [float(each.value) for each in responses if isinstance(each, Likelihood)]

    def _asked(self, requests: Sequence[Request]) -> Sequence[Response]:
        return ask_now(requests, f"the model of the role {self.role!r}")


def get_model(judge_model: ModelSpec | None = None, role: str = "judge") -> ScorerModel:
    """A model for a scorer to ask, as `--model_role` writes it, which overrides it; None where the run names it."""
    return ScorerModel(role, judge_model, "generate")


def load_reward_model(reward_model_path: str | None = None, role: str = "reward") -> ScorerModel:
    """A reward model for a scorer to ask: the folder of one; None where the run names it."""
    local: Params = {"model": "reward-hf", "model_args": {"path": reward_model_path}}
    return ScorerModel(role, local if reward_model_path is not None else None, "loglikelihood")


def globals_used(kind: type, but: str = "") -> Iterator[Any]:
    """The global values that the methods of a class name; those of the method `but` apart."""
    for owner in kind.__mro__:
        if owner.__module__.startswith("assay."):
            continue  # a class of ours has a hundred functions, and is asked for every task
        for name, each in vars(owner).items():
            if isinstance(each, FunctionType) and name != but and not each.__module__.startswith("assay."):
                yield from (each.__globals__[used] for used in each.__code__.co_names if used in each.__globals__)


def holds_model(scorer: object) -> bool:
    """Whether an attribute of a scorer, or of an object among them, is a model that is asked in a run's place."""
    held = list(vars(scorer).values())
    inner = [each for value in held for each in getattr(value, "__dict__", {}).values()]
    return any(_is_model(each) for each in (*held, *inner))


def _is_model(value: Any) -> bool:
    return hasattr(value, "identity") and hasattr(value, "can") and (hasattr(value, "answer") or hasattr(value, "ask"))


def makes_models(kind: type) -> bool:
    """Whether a method other than `__init__` makes models: too late for the run to know of them."""
    return any(each in (get_model, load_reward_model) for each in globals_used(kind, "__init__") if callable(each))


def models_of(roles: Iterable[ModelRoles]) -> dict[str, ModelSpec | None]:
    """The models that several scorers ask, by role: two that mean different models by one role are refused."""
    models: dict[str, Any] = {}
    for asked in roles:
        for role, model in asked.items():
            if models.get(role) not in (None, model) and model is not None:
                what = f"two scorers name different models for the role {role!r}"
                raise ConfigError.at("scorer", what, "give one of them another `role`")
            models[role] = models.get(role) if model is None else model
    return models
