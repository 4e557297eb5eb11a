"""A judge: a model that is asked what an answer is worth, or which of two is better."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from assay.config.option import near_miss
from assay.config.task import GENERATION_KEYS, TaskConfig
from assay.records import LIMITS, UNFINISHED, Generate, Request, Response, Text
from assay.scoring.judges.prompt import PREFERENCE, RUBRIC, JudgePrompt
from assay.scoring.judges.verdicts import UNPARSABLE, fenced, mark_of, plain, read_score, read_winner
from assay.scoring.metrics.lm_eval import Repeated
from assay.scoring.results import Result
from assay.scoring.roles import checked_role
from assay.scoring.scorer import GenerationScorer, Unscored

PARAMS: Mapping[str, object] = {"max_gen_toks": 1024, "do_sample": False, "temperature": 0.0, "until": []}
ROLE = "judge"
WORTH = {"A": 1.0, "tie": 0.5, "B": 0.0}


class JudgeQuestion(NamedTuple):
    """A prompt for a judge, with the mark that its verdict must name."""

    prompt: str
    mark: str


class LLMJudgeScorer(GenerationScorer):
    """Asks another model, the judge, what every answer is worth, or whether it is better than another one."""

    name = "llm_judge"
    asks = True

    def __init__(  # noqa: PLR0913  # what a task file may say about a judge
        self, config: TaskConfig | None = None, judge_model: str | Mapping[str, Any] | None = None, *,
        role: str | None = None, roles: Sequence[str] | Mapping[str, Any] | None = None, prompt: str | None = None,
        rubric: str | None = None, scale: Sequence[float] = (1, 10), normalize: bool = True, pairwise: bool = False,
        baseline: str | None = None, gen_kwargs: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._models = _judges(judge_model, role, roles)
        self.low, self.high = _ends(scale)
        self.normalize, self.pairwise, self.baseline = normalize, pairwise, baseline
        if pairwise != (baseline is not None):
            raise ValueError("pairwise: true and baseline: COLUMN belong together")
        self.needs_columns = (baseline,) if baseline is not None else ()
        self.rubric = rubric if rubric is not None else (PREFERENCE if pairwise else RUBRIC)
        self._prompt = JudgePrompt(prompt, shown=("first", "second") if pairwise else ("answer",))
        self.params = _params(gen_kwargs or {})

    def models(self) -> Mapping[str, Any]:
        return self._models

    def rows(self) -> tuple[str, ...]:
        each = tuple(self._row(role) for role in self._models) if len(self._models) > 1 else ()
        consistent = (f"{self.name}_consistent",) if self.pairwise else ()
        return (self.name, *consistent, *each, *((f"{self.name}_alpha",) if each else ()))

    def aggregation(self, row: str) -> str | None:
        return "krippendorff_alpha" if row == f"{self.name}_alpha" and len(self._models) > 1 else None

    def questions(self, result: Result) -> Sequence[Request]:
        return [
            Generate(posed.prompt, self.params, number * len(self._models) + place, role)
            for number, answer in enumerate(self._answers(result))
            for place, role in enumerate(self._models)
            for posed in self._posed(result, answer)
        ]

    def verdict(self, result: Result, responses: Sequence[Response]) -> dict[str, Any]:
        replies = iter(responses)
        judged = [self._judged(result, answer, replies) for answer in self._answers(result)]
        scores = {row: _together([each[row] for each in judged]) for row in judged[0]}
        if len(self._models) > 1:
            scores[f"{self.name}_alpha"] = [[each[self._row(role)] for role in self._models] for each in judged]
        return scores

    def _judged(self, result: Result, answer: str, replies: Iterator[Response]) -> dict[str, float]:
        """What the judges say of one answer: their mean, and where there are several, what each says."""
        posed = self._posed(result, answer)
        said = {role: [self._said(next(replies), each.mark) for each in posed] for role in self._models}
        worth = {role: several[0] if _agrees(several) else 0.5 for role, several in said.items()}
        rows = {self.name: sum(worth.values()) / len(worth)}
        if self.pairwise:
            rows[f"{self.name}_consistent"] = sum(map(_agrees, said.values())) / len(said)
        if len(worth) > 1:
            rows |= {self._row(role): value for role, value in worth.items()}
        return rows

    def _said(self, response: Response, mark: str) -> float:
        """A verdict as a number: the score, or of two answers what the first is worth."""
        if not isinstance(response, Text):
            raise Unscored(f"{UNPARSABLE}there is no text")
        try:
            if self.pairwise:
                return WORTH[read_winner(response.text, mark)]
            score = read_score(response.text, mark, self.low, self.high)
        except Unscored:
            if response.finish in ("length", UNFINISHED):
                raise Unscored(f"{UNPARSABLE}it was cut off at the token limit (gen_kwargs: max_gen_toks)") from None
            raise
        return (score - self.low) / (self.high - self.low) if self.normalize else score

    def _posed(self, result: Result, answer: str) -> list[JudgeQuestion]:
        """What a judge is asked about an answer: one thing; or whether it is better than another, in both orders."""
        values = self._values(result)
        if self.baseline is None:
            mark = mark_of(result.doc, [answer])
            return [JudgeQuestion(self._prompt.filled(id=mark, answer=fenced(answer, mark), **values), mark)]
        other = plain(result.doc[self.baseline])
        return [self._pair(result, one, two, values) for one, two in ((answer, other), (other, answer))]

    def _pair(self, result: Result, one: str, two: str, values: Mapping[str, Any]) -> JudgeQuestion:
        mark = mark_of(result.doc, [one, two])
        first, second = fenced(one, mark, "answer A"), fenced(two, mark, "answer B")
        return JudgeQuestion(self._prompt.filled(id=mark, first=first, second=second, **values), mark)

    def _values(self, result: Result) -> dict[str, Any]:
        has_target = self.config is None or self.config.doc_to_target is not None
        several = result.target if isinstance(result.target, list) else [result.target]
        references = [plain(each) for each in several if each is not None] if has_target else []
        return {
            "question": plain(result.question),
            "reference": "\n".join(references),
            "references": references,
            "rubric": self.rubric,
            "doc": result.doc,
            "low": f"{self.low:g}",
            "high": f"{self.high:g}",
        }

    def _answers(self, result: Result) -> list[str]:
        if not result.results:
            raise Unscored("judge: the filter leaves no answer")
        return [plain(answer) for answer in result.results]

    def _row(self, role: str) -> str:
        return f"{self.name}[{role}]"


def _judges(judge_model: Any, role: str | None, roles: Any) -> dict[str, Any]:
    """The judges by role, each with the model it is, or None where the run says which."""
    if roles is None:
        found = {role or ROLE: judge_model}
    elif role is not None or judge_model is not None:
        raise ValueError("roles is for several judges: write roles: {a: MODEL, b: MODEL} without role and judge_model")
    else:
        found = dict(roles) if isinstance(roles, Mapping) else dict.fromkeys(map(str, roles))
        if len(found) < 2 or (not isinstance(roles, Mapping) and len(found) != len(roles)):
            raise ValueError("roles must name two judges or more, each once")
    for each, model in found.items():
        checked_role(each, model)
    return found


def _ends(scale: Sequence[float]) -> tuple[float, float]:
    numbers = list(scale) if isinstance(scale, Sequence) and not isinstance(scale, str) else []
    if len(numbers) != 2 or not all(isinstance(each, int | float) for each in numbers) or not numbers[0] < numbers[1]:
        raise ValueError(f"scale must be two numbers, the lower one first, and is {scale!r}")
    return float(numbers[0]), float(numbers[1])


def _params(given: Mapping[str, object]) -> dict[str, object]:
    """The parameters of generation; those that look like a slip are refused."""
    for key in given:
        near = near_miss(str(key), GENERATION_KEYS) if key not in GENERATION_KEYS else None
        if near:
            raise ValueError(f"gen_kwargs has no key {key!r}: did you mean {near!r}?")
    limits = LIMITS if any(key in given for key in LIMITS) else ()
    drawing = ("do_sample",) if "temperature" in given else ()
    return {**{key: value for key, value in PARAMS.items() if key not in (*limits, *drawing)}, **given}


def _agrees(said: Sequence[float]) -> bool:
    """Whether a judge says the same in both orders: what one answer is worth, the other is not. One verdict always does."""
    return len(said) == 1 or said[0] + said[1] == 1.0


def _together(values: Sequence[float]) -> Any:
    return Repeated(values) if len(values) > 1 else values[0]
