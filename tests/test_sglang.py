"""SGLang through its server: OpenAI's protocol with its differences, and its own /generate for log-likelihoods."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from assay.comparison.verification import PRECISIONS, verification
from assay.errors import ConfigError
from assay.evaluation.options import run_config
from assay.evaluation.verify import verify
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED, Embedded
from assay.models.servers.likelihoods import NO_OFFSETS
from assay.records import Failed, Likelihood, Loglikelihood, Request, Response, Rolling
from assay.report.comparison_text import verification_text
from serving import TRUTH, Servers

REQUESTS: list[Request] = [
    Loglikelihood("Which is larger, 3 or 9? Answer:", " 9"),
    Loglikelihood("A cat and a", " dog and a mouse"),
    Loglikelihood("", "Once upon a time"),
    Rolling("Once upon a time there was a dog."),
]


@pytest.fixture(scope="module")
def sglang() -> Iterator[str]:
    servers = Servers()
    yield servers(BUNDLED, "sglang", script=TRUTH)
    servers.end()


def ask(url: str, *requests: Request, **arguments: Any) -> list[Response]:
    model: Any = load_model("openai", {"model": "m", "base_url": url, "timeout": 20, "max_length": 1024, **arguments})

    async def work() -> list[Response]:
        async with model:
            return [await model.ask(request) for request in requests]

    return asyncio.run(work())


def here(*requests: Request) -> list[Response]:
    async def work() -> dict[int, Response]:
        return {number: response async for answered in Embedded().answer(requests) for number, response in answered}

    result = asyncio.run(work())
    return [result[number] for number in range(len(requests))]


@pytest.mark.parametrize("way", ["sglang", "echo"])
def test_log_likelihoods_are_the_models_own(way: str, sglang: str) -> None:
    responses = ask(sglang, *REQUESTS, tokenizer=str(BUNDLED), likelihoods=way)
    for request, ours, theirs in zip(REQUESTS, here(*REQUESTS), responses, strict=True):
        assert isinstance(theirs, Likelihood)
        assert isinstance(ours, Likelihood)
        assert theirs.value == pytest.approx(ours.value, abs=2e-3)
        assert theirs.greedy == ours.greedy or isinstance(request, Rolling)


def test_only_the_continuation_is_asked_about_so_that_the_rest_can_come_from_the_cache(sglang: str) -> None:
    [response] = ask(sglang, REQUESTS[0], tokenizer=str(BUNDLED), likelihoods="sglang")
    assert isinstance(response, Likelihood)
    assert response.usage is not None
    assert response.usage.stored == len(Embedded()._encode("Which is larger, 3 or 9? Answer:")) - 1


def test_missing_text_offsets_fail_the_request_with_a_hint_to_pass_a_tokenizer(sglang: str) -> None:
    """Every token would seem to be within the text, the generated one too."""
    assert ask(sglang, REQUESTS[0], REQUESTS[3]) == [Failed(NO_OFFSETS), Failed(NO_OFFSETS)]


def test_its_own_way_needs_a_tokenizer() -> None:
    with pytest.raises(ConfigError, match="give tokenizer=FOLDER"):
        load_model("openai", {"model": "m", "base_url": "http://127.0.0.1:1/v1", "likelihoods": "sglang"})


def test_a_server_with_another_tokenizer_is_detected(sglang: str) -> None:
    model: Any = load_model(
        "openai", {"model": "m", "base_url": sglang, "tokenizer": str(BUNDLED), "likelihoods": "sglang"}
    )
    reported = {
        "input_token_logprobs": [[None, 5, None], [-1.0, 9, None]],
        "input_top_logprobs": [None, [[-1.0, 9, None]]],
    }

    async def other(body: object) -> Any:
        return {"meta_info": reported}

    model._likelihoods.post_native = other

    async def work() -> Response:
        response: Response = await model._likelihoods.of("a", " b")
        return response

    response = asyncio.run(work())
    assert isinstance(response, Failed)
    assert "other tokens than were sent" in response.reason


def test_a_run_through_it_is_the_same_as_on_the_embedded_model(sglang: str) -> None:
    server = f"openai,model=embedded,base_url={sglang},tokenizer={BUNDLED},max_length=1024,likelihoods=sglang"
    config = run_config({"tasks": ["first_steps_facts", "first_steps_stories", "first_steps_sums"], "limit": 4})
    verification_result = verification(verify("embedded", server, config), PRECISIONS["float32"])
    assert verification_result.verdict == "same", verification_text(verification_result)
