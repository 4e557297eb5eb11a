"""The nodes of graphs that ask for log-likelihoods: of choices, of a continuation, of a whole text."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.config.braces import Braces
from assay.graphs.spec import ChoiceSpec, LikelihoodSpec, LoglikelihoodSpec, RollingSpec
from assay.graphs.walk import Asking, NodeFailed, State, Steps, Walk
from assay.records import JSONDict, Likelihood, Loglikelihood, Prompt, Request, Rolling
from assay.statistics.softmax import softmax


@dataclass(frozen=True, slots=True)
class LikelihoodNode:
    """The base of these nodes: the role of the model, the prompt before a text, and the texts that the node asks about."""

    name: str
    role: str
    spec: Any
    write_context: Callable[[State], Prompt]
    texts: Sequence[Braces]

    @property
    def key(self) -> str:
        """The key of the result; what belongs to it has keys that begin so."""
        return str(self.spec.output_keys)

    def ask(self, state: State, walk: Walk) -> Steps:
        raise NotImplementedError


class ChoiceNode(LikelihoodNode):
    """Asks about every choice at once. Normalised as the metrics of tasks do: by the letters or bytes of the choice alone."""

    def ask(self, state: State, walk: Walk) -> Steps:
        context, choices = self.write_context(state), self._choices(state)
        delimiter = self.spec.target_delimiter
        requests = [Loglikelihood(context, f"{delimiter}{choice}", self.role) for choice in choices]
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
        best = max(scored, key=lambda choice: choice[self.spec.choose_by])
        return {self.key: best["choice"], f"{self.key}_choices": scored}

    def _choices(self, state: State) -> list[str]:
        """The texts of the node, or those that the state has."""
        key = self.spec.choices
        if not isinstance(key, str):
            return [filled(choice, state) for choice in self.texts]
        choices = state.get(key)
        if not isinstance(choices, list | tuple) or len(choices) < 2:
            raise NodeFailed(f"{key!r} must be a list of two choices or more, got {choices!r:.60}")
        return [choice if isinstance(choice, str) else str(choice) for choice in choices]


class LoglikelihoodNode(LikelihoodNode):
    """Asks about one continuation."""

    def ask(self, state: State, walk: Walk) -> Steps:
        request = Loglikelihood(self.write_context(state), filled(self.texts[0], state), self.role)
        [likelihood] = yield from _likelihoods([request], walk)
        return {self.key: likelihood.value, f"{self.key}_is_greedy": likelihood.greedy}


class RollingNode(LikelihoodNode):
    """Asks about a whole text. Words and bytes are counted as `word_perplexity` and `byte_perplexity` count them."""

    def ask(self, state: State, walk: Walk) -> Steps:
        text = filled(self.texts[0], state)
        [likelihood] = yield from _likelihoods([Rolling(text, self.role)], walk)
        words, size = len(re.split(r"\s+", text)), len(text.encode())
        return {
            self.key: likelihood.value,
            f"{self.key}_per_word": _per(likelihood.value, words),
            f"{self.key}_per_byte": _per(likelihood.value, size),
        }


NODES: dict[type[LikelihoodSpec], type[LikelihoodNode]] = {
    ChoiceSpec: ChoiceNode,
    LoglikelihoodSpec: LoglikelihoodNode,
    RollingSpec: RollingNode,
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
