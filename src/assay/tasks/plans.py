"""Plans of plain tasks: the requests about a question by output type, and the generators that yield them."""

from collections.abc import Callable, Generator, Sequence

from assay.config.option import YAMLValue
from assay.config.task import GenerationParams
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    Asking,
    Failed,
    Generate,
    Loglikelihood,
    Prompt,
    Request,
    Response,
    Rolling,
)
from assay.samples.fields import FieldValue

Further = Generator[Sequence[Request], Sequence[Response], object]
"""Requests that follow the responses, round by round."""


def ask(requests: Sequence[Request]) -> Asking:
    """Ask everything at once; the responses are the answer."""
    return (yield requests)


def ask_about(requests: Sequence[Request], more: Callable[[Sequence[Response]], Further]) -> Asking:
    """Ask everything at once, and then what follows from the responses; all responses together are the answer."""
    responses = yield requests
    if any(isinstance(response, Failed) for response in responses):
        return responses
    answer, plan = list(responses), more(responses)
    try:
        further = next(plan)
        while True:
            replies = yield further
            answer += replies
            further = plan.send(replies)
    except StopIteration:
        return answer


def choice_requests(context: Prompt, choices: Sequence[str], delimiter: str) -> list[Request]:
    """One request per choice."""
    return [Loglikelihood(context, f"{delimiter}{choice}") for choice in choices]


def context_requests(contexts: Sequence[Prompt], target: FieldValue, delimiter: str) -> list[Request]:
    """One request per context: the choice is in the context, and the same words follow each."""
    return [Loglikelihood(context, f"{delimiter}{target}") for context in contexts]


def likelihood_requests(context: Prompt, target: FieldValue) -> list[Request]:
    return [Loglikelihood(context, target if isinstance(target, str) else str(target))]


def rolling_requests(target: FieldValue) -> list[Request]:
    return [Rolling(target if isinstance(target, str) else str(target))]


def generation_requests(context: Prompt, params: GenerationParams, repeats: int) -> list[Request]:
    return [Generate(context, params, repeat) for repeat in range(repeats)]


def generation_params(
    task: GenerationParams | None, fewshot_delimiter: str, command: GenerationParams
) -> dict[str, YAMLValue]:
    """The parameters of generation: the task's, completed as lm-eval does, and over them the command line's."""
    if task is None:
        params: dict[str, object] = {
            "temperature": 0.0, "do_sample": False, "max_gen_toks": DEFAULT_MAX_GEN_TOKS, "until": [fewshot_delimiter],
        }  # fmt: skip
    else:
        params = dict(task)
        if "temperature" in params:
            params["temperature"] = float(str(params["temperature"]))
        params.setdefault("until", [fewshot_delimiter])
    return {**params, **command}
