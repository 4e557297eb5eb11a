"""What a server's refusal means: an address without /v1, a key that is missing or wrong, a request that is too large."""

import asyncio
import json
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.servers.reading import is_same_model
from assay.models.servers.remedies import request_remedy
from assay.records import Generate
from serving import Answer, Arrived, loopback
from test_malformed_answers import CLAUDE, WHOLE
from test_protocols import ask


def refused(answer: Answer, backend: str = "openai-chat", end: str = "/v1", **arguments: Any) -> tuple[str, int]:
    """The problem that a server which answers like this is before a run, and the number of requests."""
    with loopback(answer) as (url, arrived):
        model: Any = load_model(backend, {"model": "m", "base_url": url.removesuffix("/v1") + end, **arguments})
        with pytest.raises(ConfigError) as problem:
            asyncio.run(model.greet())
        return str(problem.value).replace(url.removesuffix("/v1"), "URL"), len(arrived)


def below_v1(arrived: Arrived) -> Any:
    return WHOLE if arrived.path.startswith("/v1/") else (404, {}, {"error": {"message": "Not Found"}})


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
@pytest.mark.parametrize("end", ["", "/"])
def test_an_address_without_v1_is_tried_with_it_and_named(backend: str, end: str) -> None:
    said, requests = refused(below_v1, backend, end)
    assert said.endswith("did you mean base_url=URL/v1?")
    assert requests == 2


def test_another_address_without_v1_is_not_said_to_have_one() -> None:
    said, _ = refused(lambda _: (404, {}, {"error": {"message": "Not Found"}}), end="/api")
    assert "did you mean" not in said
    said, requests = refused(lambda _: (404, {}, {"error": {"message": "no model 'm'"}}))
    assert "check the name" in said
    assert requests == 2  # the greeting, and the list of models


def test_anthropics_address_may_be_the_sdks_without_v1() -> None:
    with loopback(lambda arrived: CLAUDE if arrived.path == "/v1/messages" else (404, {}, {})) as (url, _):
        for address in (url, url.removesuffix("/v1"), url.removesuffix("v1"), f"{url}/messages"):
            assert ask("anthropic", address, Generate("q", {"max_gen_toks": 9})).text == "x"


def unauthorized(_: Arrived) -> Any:
    return 401, {}, {"error": {"message": "no"}}


def test_a_401_says_which_variable_is_read_and_whether_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OTHER", "sk-canary-4711")
    assert "OPENAI_API_KEY is read, and is not set" in refused(unauthorized)[0]
    assert "ANTHROPIC_API_KEY is read, and is not set" in refused(unauthorized, "anthropic")[0]
    assert "(api_key=env:OTHER)" in refused(unauthorized, api_key="env:OTHER")[0]
    assert "the one in api_key" in refused(unauthorized, api_key="sk-canary-4712")[0]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-4713")
    said = refused(unauthorized)[0]
    assert "OPENAI_API_KEY is set, and was sent" in said
    assert "canary" not in said


def test_a_wrong_key_at_litellms_proxy_is_a_wrong_key() -> None:
    said, _ = refused(
        lambda _: (400, {}, {"error": {"message": "No connected db.", "type": "no_db_connection", "code": "400"}})
    )
    assert "check the key" in said and "check the name" not in said


def test_a_request_that_is_too_large_is_about_its_size() -> None:
    assert "for the size of requests" in refused(lambda _: (413, {}, b"<html>Request Entity Too Large</html>"))[0]
    assert "for the size of requests" in request_remedy(
        "HTTP 413: too large", Generate("q", {"temperature": 0}), "t", "openai"
    )


@pytest.mark.parametrize(
    ("named", "is_same"),
    [("m@main", True), ("folder/m@main", True), ("m@8f0c2a1", True), ("m2@main", False), ("m-main", False)],
)
def test_a_revision_behind_a_models_name_is_no_other_model(named: str, is_same: bool) -> None:
    assert is_same_model("m", named) is is_same


def test_enable_thinking_is_an_argument_of_chat_servers_and_part_of_what_identifies_the_model() -> None:
    with loopback(lambda _: WHOLE) as (url, arrived):
        for arguments in ({"enable_thinking": False}, {}):
            ask("openai-chat", url, Generate("q", {"max_gen_toks": 9}), **arguments)
        bodies = [json.loads(each.body) for each in arrived]
        models: list[Any] = [
            load_model("openai-chat", {"model": "m", "base_url": url, **given})
            for given in ({"enable_thinking": False}, {"enable_thinking": True}, {})
        ]
    assert [body.get("chat_template_kwargs") for body in bodies] == [{"enable_thinking": False}, None]
    assert len({model.identity for model in models}) == 3
