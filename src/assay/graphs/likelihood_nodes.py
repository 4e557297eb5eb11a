"""The nodes of graphs that ask for log-likelihoods: of choices, of a continuation, of a whole text."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.config.braces import Braces
from assay.graphs.nodes import PromptTemplate
from assay.graphs.walk import Asking, NodeFailed, State, Steps, Walk
from assay.records import JSONDict, Likelihood, Loglikelihood, Message, Prompt, Request, Rolling
from assay.statistics.softmax import softmax


@dataclass(frozen=True, slots=True)
class Context:
    """The prompt before a continuation: text as it is, or a conversation in the model's chat template."""

    written: Braces | PromptTemplate
    write: Callable[[tuple[Message, ...]], Prompt]

    def of(self, state: State) -> Prompt:
        if isinstance(self.written, PromptTemplate):
            return self.write(self.written.fill(state))
        return filled(self.written, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodNode:
    """The base of these nodes: the role of the model, and the key of the result."""

    name: str
    role: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceNode(LikelihoodNode):
    """Asks about every choice at once. Normalised as the metrics of tasks do: by the letters or bytes of the choice alone."""

    context: Context
    choices: Sequence[Braces] | str
    """Texts, or the key of the state that has them."""
    delimiter: str
    choose_by: str

    def ask(self, state: State, walk: Walk) -> Steps:
        context, choices = self.context.of(state), self._choices(state)
        requests = [Loglikelihood(context, f"{self.delimiter}{choice}", self.role) for choice in choices]
        likelihoods = yield from _likelihoods(requests, walk)
        probabilities = _shares([likelihood.value for likelihood in likelihoods])
        scored: list[JSONDict] = [
            {
                "choice": choice,
                "loglikelihood": likelihood.value,
                "is_greedy": likelihood.greedy,
                "per_character": _per(likelihood.value, len(choice)),
                "per_byte": _per(likelihood.value, len(choice.encode())),
                "probability": probability,
            }
            for choice, likelihood, probability in zip(choices, likelihoods, probabilities, strict=True)
        ]
        best = max(scored, key=lambda choice: choice[self.choose_by])
        return {self.key: best["choice"], f"{self.key}_choices": scored}

    def _choices(self, state: State) -> list[str]:
        if not isinstance(self.choices, str):
            return [filled(choice, state) for choice in self.choices]
        choices = state.get(self.choices)
        if not isinstance(choices, list | tuple) or len(choices) < 2:
            raise NodeFailed(f"{self.choices!r} must be a list of two choices or more, got {choices!r:.60}")
        return [choice if isinstance(choice, str) else str(choice) for choice in choices]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoglikelihoodNode(LikelihoodNode):
    """Asks about one continuation."""

    context: Context
    continuation: Braces

    def ask(self, state: State, walk: Walk) -> Steps:
        context, continuation = self.context.of(state), filled(self.continuation, state)
        request = Loglikelihood(context, continuation, self.role)
        [likelihood] = yield from _likelihoods([request], walk)
        return {self.key: likelihood.value, f"{self.key}_is_greedy": likelihood.greedy}


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingNode(LikelihoodNode):
    """Asks about a whole text. Words and bytes are counted as `word_perplexity` and `byte_perplexity` count them."""

    text: Braces

    def ask(self, state: State, walk: Walk) -> Steps:
        text = filled(self.text, state)
        [likelihood] = yield from _likelihoods([Rolling(text, self.role)], walk)
        words, size = len(re.split(r"\s+", text)), len(text.encode())
        return {
            self.key: likelihood.value,
            f"{self.key}_per_word": _per(likelihood.value, words),
            f"{self.key}_per_byte": _per(likelihood.value, size),
        }


def filled(text: Braces, state: State) -> str:
    try:
        return text.fill(state)
    except KeyError as missing:
        raise NodeFailed(f"a text needs {missing}, which is not in the state") from missing


def _likelihoods(requests: Sequence[Request], walk: Walk) -> Asking[Sequence[Likelihood]]:
    """Return the log-likelihoods of requests, all asked at once."""
    responses = yield requests
    walk.take(requests, responses)
    likelihoods = [
        response for response in responses if isinstance(response, Likelihood)
    ]  # the engine refuses any other
    if any(likelihood.is_bound for likelihood in likelihoods):
        raise NodeFailed("a text is not among the most likely next tokens that the server reports")
    return likelihoods


def _per(value: float, count: int) -> float:
    """A log-likelihood by length; one of nothing can only win with certainty."""
    return value / count if count else (-math.inf if value < 0 else 0.0)


def _shares(values: Sequence[float]) -> list[float]:
    """Return the softmax of log-likelihoods; equal shares where all are impossible."""
    most = max(values)
    if math.isinf(most):
        return [1 / len(values)] * len(values)
    return softmax(values)
