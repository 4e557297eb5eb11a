"""A reward model: a model that gives a number for an answer to a question."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.config.task import TaskConfig
from assay.records import Likelihood, Loglikelihood, Request, Response
from assay.scoring.judges.verdicts import plain
from assay.scoring.metrics.lm_eval import Repeated
from assay.scoring.results import Result
from assay.scoring.roles import checked_role
from assay.scoring.scorer import GenerationScorer, Unscored

ROLE = "reward"


class RewardModelScorer(GenerationScorer):
    """Asks a reward model for a number for every answer; as it is, on the model's own scale.

    It is asked as for a log-likelihood: what was said first, what follows, and a number comes back.
    """

    name = "reward"
    asks = True
    asks_for = "loglikelihood"
    gives = ("reward",)

    def __init__(
        self, config: TaskConfig | None = None, reward_model_path: str | None = None, *,
        reward_model: str | Mapping[str, Any] | None = None, role: str = ROLE,
    ) -> None:  # fmt: skip
        super().__init__(config)
        if reward_model_path is not None and reward_model is not None:
            raise ValueError("reward_model_path is a folder, reward_model names any model: give one of them")
        checked_role(role, reward_model)
        local = {"model": "reward-hf", "model_args": {"path": reward_model_path}}
        self._role, self._model = role, local if reward_model_path is not None else reward_model

    def models(self) -> Mapping[str, Any]:
        return {self._role: self._model}

    def questions(self, result: Result) -> Sequence[Request]:
        if not result.results:
            raise Unscored("reward: the filter leaves no answer")
        return [Loglikelihood(plain(result.question), plain(answer), self._role) for answer in result.results]

    def verdict(self, result: Result, responses: Sequence[Response]) -> Any:  # noqa: ARG002  # numbers need no reading
        rewards = [_number(response) for response in responses]
        return Repeated(rewards) if len(rewards) > 1 else rewards[0]


def _number(response: Response) -> float:
    if not isinstance(response, Likelihood):
        raise Unscored("reward: there is no number")
    return float(response.value)
