"""Judges in graphs: a unit metric that asks another model what an answer is worth, as the scorer `llm_judge` of tasks does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.graphs.nodes import LambdaNode
from assay.graphs.output import timeless
from assay.graphs.spec import Record, Value
from assay.graphs.sygra_classes import lost_result
from assay.graphs.unit_metrics import JUDGED, judged
from assay.graphs.walk import NodeFailed, State, Steps, Walk
from assay.records import Generate, Request, UserValue
from assay.scoring.declarations import Metric, prepared
from assay.scoring.judges import LLMJudgeScorer
from assay.scoring.results import GenResult, Result
from assay.scoring.scorer_models import Unscored
from assay.signatures import accepted

QUESTION = "question"


class JudgeMetric:
    """The score that a judge gives an answer; correct if it reaches `threshold`.

    `question` is the key of the state that has the question. The other parameters are those of the scorer `llm_judge`:
    `role` names the judge's model, `rubric` or a whole `prompt` says how to judge.
    """

    def __init__(self, *, question: str = QUESTION, threshold: float = 0.5, **params: UserValue) -> None:
        self.key, self.threshold = question, threshold
        self.scorer = LLMJudgeScorer(None, **params)  # type: ignore[arg-type]  # its constructor checks them

    def result_of(self, state: Record, golden: Value, predicted: Value) -> Result:
        """The answer as the scorer takes it."""
        doc = {key: timeless(value) for key, value in state.items() if not str(key).startswith("__")}
        return GenResult(doc, golden, _text(predicted), question=_text(state.get(self.key, "")))


TAKES = [replace(accepted(JudgeMetric), takes_any=False), accepted(LLMJudgeScorer, 1)]
LLM_JUDGE = Metric({JUDGED: prepared(JudgeMetric, TAKES, supplied=())}, needs_golden=False)


def _text(value: Value) -> str:
    return value if isinstance(value, str) else "" if value is None else str(timeless(value))


@dataclass(slots=True)
class JudgedNode(LambdaNode):
    """A UnitMetrics node some of whose metrics are judges, by the field of the result."""

    judges: Mapping[str, JudgeMetric] = ()  # type: ignore[assignment]  # always given

    def ask(self, state: State, walk: Walk) -> Steps:
        golden, predicted = (state.get(str(self.settings.get(key))) for key in ("golden_key", "predicted_key"))
        results = {field: metric.result_of(state, golden, predicted) for field, metric in self.judges.items()}
        updates: State = dict(self.function(self.settings, state))
        asked = {field: self._questions(metric, results[field], walk) for field, metric in self.judges.items()}
        requests = [request for posed in asked.values() if not isinstance(posed, Unscored) for request in posed]
        responses = list((yield requests)) if requests else []
        walk.take(requests, responses)
        replies = iter(responses)
        lost: list[str] = []
        for field, metric in self.judges.items():
            posed = asked[field]
            try:
                if isinstance(posed, Unscored):
                    raise posed
                said = dict(metric.scorer.verdict(results[field], [next(replies) for _ in posed]))
            except Unscored as error:
                updates[field] = lost_result(str(error))
                lost.append(str(error))
                continue
            worth = said.pop(metric.scorer.name)
            about = {"threshold": metric.threshold, **said}
            result = judged("llm_judge", golden, predicted, worth >= metric.threshold, worth, **about)
            updates[field] = result.to_dict()
        if len(lost) == len(self.settings.get("unit_metrics_map") or ()):
            raise NodeFailed("; ".join(dict.fromkeys(lost)))
        return updates

    def _questions(self, metric: JudgeMetric, result: Result, walk: Walk) -> Sequence[Request] | Unscored:
        try:
            asked = metric.scorer.questions(result)
        except Unscored as error:
            return error
        return [request._replace(node=walk.node) if isinstance(request, Generate) else request for request in asked]
