"""Messages of conversations: how they are written down, what keys they have, and who takes them."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.engine.keys import Keys
from assay.models.conversations import sent_messages
from assay.models.load import load_model
from assay.models.local.embedded import Embedded
from assay.models.protocol import PermanentError
from assay.models.scripted import Dummy, Scripted
from assay.records import (
    AudioPart,
    Failed,
    Generate,
    ImagePart,
    Loglikelihood,
    Message,
    ProtocolPart,
    Request,
    Response,
    Text,
    TextPart,
    ToolCall,
    arguments,
    messages_to_plain,
    plain_to_messages,
    prompt_text,
)
from serving import TALKING, Servers, fetched

TALK = (Message("system", "Be brief."), Message("user", "2 + 2"))
PLAIN = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2"}]
CALL = {"id": "c0", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Oslo"}'}}
AGENT = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c0", "content": "north"},
]
"""In the order of the keys of messages, which the key of a request depends on."""


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def answers(model: Any, requests: list[Request]) -> list[Response]:
    async def all_of() -> dict[int, Response]:
        return {number: each async for items in model.answer(requests) for number, each in items}

    result = asyncio.run(all_of())
    return [result[number] for number in range(len(requests))]


def ask(name: str, url: str, request: Request, **args: Any) -> Response:
    model: Any = load_model(name, {"model": "m", "base_url": url, **args})

    async def plan() -> Response:
        async with model:
            response: Response = await model.ask(request)
            return response

    return asyncio.run(plan())


# the key of a request, written down here from its description: every part behind its length in 8 bytes


def described_key(kind: str, identity: str, *parts: bytes) -> bytes:
    digest = blake2b(digest_size=16)
    for part in (kind.encode(), identity.encode(), *parts):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


WORDS = st.text(st.characters(exclude_categories=("Cs",)))
CALLS = st.builds(ToolCall, WORDS, WORDS, WORDS, st.just(""))
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant"]),
    st.one_of(WORDS, st.lists(st.builds(TextPart, WORDS), min_size=1).map(tuple)),
    st.just(()), st.none(), st.none(), st.just(""),
)  # fmt: skip


@given(st.lists(MESSAGES, min_size=1).map(tuple), WORDS, st.dictionaries(WORDS, st.integers(-9, 9), max_size=3))
def test_the_key_of_a_conversation_is_that_of_its_json(
    talk: tuple[Message, ...], continuation: str, params: Mapping[str, object]
) -> None:
    written: list[dict[str, Any]] = [
        {"role": each.role, "content": each.content}
        if isinstance(each.content, str)
        else {"role": each.role, "content": [{"type": "text", "text": part.text} for part in each.content]}  # type: ignore[union-attr]
        for each in talk
    ]
    as_json = json.dumps(written, ensure_ascii=False).encode()
    settings = orjson.dumps(dict(params), option=orjson.OPT_SORT_KEYS)
    keys = Keys("m")
    assert keys.key(Generate(talk, params)) == described_key("generate", "m", settings, as_json)
    assert keys.key(Loglikelihood(talk, continuation)) == described_key(
        "loglikelihood", "m", as_json, continuation.encode()
    )


@given(st.one_of(WORDS, WORDS.map('[{{"role"{}'.format)), WORDS)
def test_the_key_of_a_text_that_looks_like_a_conversation_is_not_the_conversation_s(
    text: str, continuation: str
) -> None:
    mark = [b"text"] if text.startswith('[{"role"') else []
    keys = Keys("m")
    assert keys.key(Generate(text, {})) == described_key("generate", "m", b"{}", text.encode(), *mark)
    asked = described_key("loglikelihood", "m", text.encode(), *mark, continuation.encode())
    assert keys.key(Loglikelihood(text, continuation)) == asked


@pytest.mark.slow
@given(
    st.lists(
        st.builds(
            Message,
            st.sampled_from(["system", "user", "assistant", "tool"]),
            st.one_of(
                WORDS,
                st.lists(
                    st.one_of(
                        st.builds(TextPart, WORDS),
                        st.builds(ImagePart, WORDS, WORDS),
                        st.builds(AudioPart, WORDS, WORDS),
                        WORDS.map(
                            lambda url: ProtocolPart(json.dumps({"image_url": {"url": url}}, ensure_ascii=False))
                        ),
                    ),
                    min_size=1,
                ).map(tuple),
            ),
            st.lists(CALLS).map(tuple),
            st.one_of(st.none(), WORDS),
            st.one_of(st.none(), WORDS),
            st.sampled_from(["", '{"prefix": true}']),
        )
    ).map(tuple)
)
def test_messages_come_back_from_json_as_they_were(talk: tuple[Message, ...]) -> None:
    assert plain_to_messages(json.loads(json.dumps(messages_to_plain(talk)))) == talk


def test_an_agent_s_messages_are_json_with_their_keys_in_one_order() -> None:
    talk = plain_to_messages(AGENT)
    assert talk[1] == Message("assistant", "", (ToolCall("c0", "look_up", '{"city": "Oslo"}'),))
    assert talk[2] == Message("tool", "north", tool_call_id="c0")
    assert prompt_text(talk) == json.dumps(AGENT, ensure_ascii=False)


def test_a_tool_call_is_sent_back_as_the_server_wrote_it() -> None:
    own = {"function": {"arguments": "{}", "name": "look_up"}, "id": "c0", "extra_content": {"signature": "ü"}}
    [message] = plain_to_messages([{"role": "assistant", "content": "", "tool_calls": [own]}])
    [call] = message.tool_calls
    assert (call.id, call.name, call.arguments) == ("c0", "look_up", "{}")
    assert json.dumps(messages_to_plain([message])[0]["tool_calls"]) == json.dumps([own])
    [as_object] = plain_to_messages(
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}]
    )
    assert as_object.tool_calls[0].arguments == '{"a": 1}'


def test_lm_eval_s_code_is_shown_a_conversation_as_json() -> None:
    assert arguments(Generate(TALK, {"until": []})) == (json.dumps(PLAIN), {"until": []})
    assert arguments(Loglikelihood(TALK, " 4")) == (json.dumps(PLAIN), " 4")


def test_images_and_recordings_are_refused_until_they_can_be_sent() -> None:
    for part in (ImagePart("ab", "image/png"), AudioPart("ab", "audio/wav")):
        with pytest.raises(PermanentError, match="not supported yet"):
            sent_messages((Message("user", (part,)),))


# who takes them


@pytest.mark.parametrize("model", [Dummy(), Embedded()], ids=["dummy", "embedded"])
def test_a_model_that_reads_text_has_its_template_write_the_conversation(model: Any) -> None:
    opened, begun = (*TALK,), (*TALK, Message("assistant", "It is"))
    texts = [model.chat_template(opened, True), model.chat_template(begun, False)]
    assert all(isinstance(text, str) for text in texts)
    params = {"max_gen_toks": 4, "until": [], "do_sample": False}
    typed: list[Request] = [Generate(opened, params), Loglikelihood(begun, " 4"), Generate("x", params)]
    plain: list[Request] = [Generate(texts[0], params), Loglikelihood(texts[1], " 4"), Generate("x", params)]
    assert answers(model, typed) == answers(model, plain)


def test_a_template_that_refuses_a_conversation_fails_that_request_only(tmp_path: Path) -> None:
    from assay.models.local.embedded import BUNDLED

    for file in BUNDLED.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    loaded = json.loads((tmp_path / "tokenizer_config.json").read_text())
    loaded["chat_template"] = (
        "{% if messages|length > 1 %}{{ messages[5].role.no }}{% endif %}{{ messages[0].content }}"
    )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(loaded))
    refused, said = answers(Embedded(str(tmp_path)), [Generate(TALK, {}), Generate(TALK[1:], {"max_gen_toks": 2})])
    assert isinstance(refused, Failed) and "the chat template failed" in refused.reason
    assert isinstance(said, Text)


def test_a_script_without_a_template_is_given_the_messages() -> None:
    seen: list[Any] = []
    plain = Scripted(generate=lambda prompt, *_: seen.append(prompt) or "x")
    answers(plain, [Generate(TALK, {})])
    templated = Scripted(
        generate=lambda prompt, *_: seen.append(prompt) or "x", chat_template=lambda m, _: m[1]["content"]
    )
    answers(templated, [Generate(TALK, {})])
    assert seen == [TALK, "2 + 2"]


def test_servers_are_sent_messages_and_completions_need_a_tokenizer(talking: str) -> None:
    params = {"max_gen_toks": 4, "until": [], "do_sample": False}
    talk = plain_to_messages(AGENT)
    ask("openai-chat", talking, Generate(talk, params))
    assert fetched(talking, "/log")[-1]["body"]["messages"] == AGENT
    refused = ask("openai", talking, Generate(TALK, params))
    assert isinstance(refused, Failed) and "tokenizer" in refused.reason
    refused = ask("openai", talking, Loglikelihood(TALK, " 4"))
    assert isinstance(refused, Failed) and "tokenizer" in refused.reason
    from assay.models.local.embedded import BUNDLED

    ask("openai", talking, Generate(TALK, params), tokenizer=str(BUNDLED))
    assert fetched(talking, "/log")[-1]["body"]["prompt"] == Embedded().chat_template(TALK, True)
    image = ask("openai-chat", talking, Generate((Message("user", (ImagePart("ab", "image/png"),)),), params))
    assert isinstance(image, Failed) and "not supported yet" in image.reason
