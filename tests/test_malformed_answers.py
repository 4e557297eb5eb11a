"""Answers of servers that are not as they should be: a number is read as what it is, or its document fails in words."""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import assay
from assay.engine.drive import checked
from assay.engine.usage import RunUsage
from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED
from assay.models.protocol import RetryableError
from assay.models.servers.server_model import Connection, ServerModel
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Request, Response, Rolling, Text, Usage
from assay.runs.cache import Cache
from assay.runs.journal import NAME, Journal, sealed
from assay.runs.journal import lines as read_lines
from serving import Arrived, loopback
from small_runs import write_task
from test_protocols import PLAIN, ask

TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
ODD = ["12", "many", [12], [], {"a": 1}, {}, -5, True, 1e300, 10**30, math.nan, math.inf, -math.inf, None]
MESSAGE = {"role": "assistant", "content": "x", "reasoning_content": None, "tool_calls": None}
USED = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
WHOLE = {"choices": [{"index": 0, "text": "x", "message": MESSAGE, "finish_reason": "stop"}], "usage": USED,
         "model": "m"}  # fmt: skip
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CLAUDE = {
    "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "model": "m",
    "usage": {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1},
}  # fmt: skip


def run(folder: Path, url: str, backend: str = "openai", **options: Any) -> dict[str, Any]:
    return assay.simple_evaluate(
        backend, {"model": "m", "base_url": url, "max_retries": 1, **options}, tasks=["t"], include_path=str(folder),
        include_defaults=False, output_path=str(folder / "run"),
    )  # fmt: skip


# usage


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize(
    "usage",
    [
        lambda value: value,
        lambda value: {"prompt_tokens": value, "completion_tokens": 2},
        lambda value: {"prompt_tokens": 7, "completion_tokens": value},
        lambda value: {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": value},
        lambda value: {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": value}},
    ],
    ids=["usage", "read", "written", "details", "stored"],
)
def test_counts_of_tokens_are_numbers_or_nothing(usage: Callable[[Any], Any], value: Any) -> None:
    with loopback(lambda _: {**WHOLE, "usage": usage(value)}) as (url, _):
        said = ask("openai", url, Generate("q", PLAIN))
    assert said.text == "x"
    reported = usage(value) if isinstance(usage(value), dict) else {}
    read, written = (7 if reported.get("prompt_tokens") == 7 else 0, 2 if reported.get("completion_tokens") == 2 else 0)
    assert said.usage[:2] + said.usage[5:] == (read, written, 0)
    assert all(type(count) is int for count in said.usage[:2] + said.usage[5:])


@pytest.mark.parametrize(
    "name", ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_counts_of_anthropic_are_numbers_or_nothing(name: str, value: Any) -> None:
    with loopback(lambda _: {**CLAUDE, "usage": {**CLAUDE["usage"], name: value}}) as (url, _):  # type: ignore[dict-item]
        said = ask("anthropic", url, Generate("q", PLAIN))
    assert said.text == "x"
    assert all(
        type(count) is int and 0 <= count <= 11 for count in (said.usage.read, said.usage.written, said.usage.stored)
    )


@pytest.mark.parametrize("value", [12, 12.0, 0])
def test_counts_that_are_numbers_are_counted(value: Any) -> None:
    with loopback(lambda _: {**WHOLE, "usage": {"prompt_tokens": value, "completion_tokens": 2}}) as (url, _):
        assert ask("openai", url, Generate("q", PLAIN)).usage[:2] == (value, 2)


def test_a_run_with_odd_counts_ends_and_asks_nothing_again(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": f"{n}", "gold": "x"} for n in range(len(ODD))], TASK)

    def answer(arrived: Arrived) -> Any:
        prompt = json.loads(arrived.body or b"{}").get("prompt", "")
        odd = ODD[int(prompt)] if prompt.isdigit() else 1
        return {**WHOLE, "usage": {"prompt_tokens": odd, "completion_tokens": 5}}

    with loopback(answer) as (url, arrived):
        results = run(tmp_path, url, price_in=1.0, price_out=1.0)
        assert results["results"]["t"]["exact_match,none"] == 1.0
        assert results["assay"]["usage"]["tokens"] == {"in": 0, "out": 5 * len(ODD)}
        before = len(arrived)
        again = run(tmp_path, url, price_in=1.0, price_out=1.0)
        assert sum(b"quick brown" not in each.body for each in arrived[before:] if each.method == "POST") == 0
    assert again["assay"]["usage"]["tokens"] == results["assay"]["usage"]["tokens"]


def test_a_backend_of_ones_own_that_hands_odd_counts_on_does_no_harm() -> None:
    class Careless(ServerModel):
        async def generate(self, request: Generate) -> Text:
            reported = (await self.http.post("/x", {}))["usage"]
            return Text("x", usage=Usage(reported["a"], reported["b"], cut=reported["c"]))

    async def work() -> Any:
        async with Careless("m", Connection(base_url=(url,))) as model:
            return await model.ask(Generate("q", PLAIN))

    with loopback(lambda _: {"usage": {"a": "12", "b": 5, "c": [1]}}) as (url, _):
        assert asyncio.run(work()).usage == Usage(0, 5)


# reasons and calls


@pytest.mark.parametrize("value", [["stop"], {"type": "stop"}, 5, True, 1.5], ids=repr)
@pytest.mark.parametrize("name", ["finish_reason", "tool_calls"])
def test_finish_reasons_and_tool_calls_of_the_wrong_type_fail_the_request(name: str, value: Any) -> None:
    change = {"finish_reason": value} if name == "finish_reason" else {"message": {**MESSAGE, "tool_calls": value}}
    with (
        loopback(lambda _: {"choices": [{"finish_reason": "stop", "message": MESSAGE, **change}]}) as (url, _),
        pytest.raises(RetryableError, match=name),
    ):
        ask("openai-chat", url, Generate("q", PLAIN))


@pytest.mark.parametrize("value", ["what", [5], ["f"], [{}], [{"function": 5}], [{"function": {"name": 5}}]], ids=repr)
def test_invalid_tool_calls_fail_the_request(value: Any) -> None:
    with (
        loopback(lambda _: {"choices": [{"message": {**MESSAGE, "tool_calls": value}}]}) as (url, _),
        pytest.raises(RetryableError, match="tool_calls"),
    ):
        ask("openai-chat", url, Generate("q", PLAIN))


@pytest.mark.parametrize("value", [0, [], {}, False, ["x"], {"a": "x"}, 5, True], ids=repr)
def test_a_text_of_the_wrong_type_is_not_an_empty_answer(value: Any) -> None:
    with (
        loopback(lambda _: {"choices": [{"message": {"content": value}, "finish_reason": "stop"}]}) as (url, _),
        pytest.raises(RetryableError, match="must be text"),
    ):
        ask("openai-chat", url, Generate("q", PLAIN))


def test_calls_and_reasons_as_they_should_be_are_kept() -> None:
    body = {"choices": [{"message": {"content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    with loopback(lambda _: body) as (url, _):
        said = ask("openai-chat", url, Generate("q", {**PLAIN, "tools": [tool]}))
    assert (said.text, said.finish, said.calls) == ("", "tool_calls", [CALL])


# a line of a journal with a right checksum that holds no response

DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "usage of strings": lambda line: line.update(u=["12", "5", 0.1, 1, 0, 0]),
    "usage null": lambda line: line.update(u=None),
    "usage a number": lambda line: line.update(u=5),
    "usage a mapping": lambda line: line.update(u={"read": 5}),
    "usage a text": lambda line: line.update(u="abc"),
    "usage empty": lambda line: line.update(u=[]),
    "usage too long": lambda line: line.update(u=[1] * 40),
    "usage below zero": lambda line: line.update(u=[-5, 1, 0.1, 1, 0, 0]),
    "usage true": lambda line: line.update(u=[True, 1, 0.1, 1, 0, 0]),
    "usage of lists": lambda line: line.update(u=[[1], 1, 0.1, 1, 0, 0]),
    "usage too large": lambda line: line.update(u=[1e300, 1, 0.1, 1, 0, 0]),
    "calls a number": lambda line: line["r"].update(calls=5),
    "calls a text": lambda line: line["r"].update(calls="f"),
    "calls of numbers": lambda line: line["r"].update(calls=[5]),
    "finish a list": lambda line: line["r"].update(finish=["stop"]),
    "finish a number": lambda line: line["r"].update(finish=5),
    "reasoning a mapping": lambda line: line["r"].update(reasoning={"a": 1}),
    "text a number": lambda line: line["r"].update(text=5),
    "no response": lambda line: line.pop("r"),
    "a response null": lambda line: line.update(r=None),
    "a likelihood of text": lambda line: line.update(r=["1", True]),
    "a likelihood true": lambda line: line.update(r=[True, True]),
    "a role of lists": lambda line: line.update(m=["judge"]),
    "no key": lambda line: line.pop("k"),
    "a key that is a number": lambda line: line.update(k=5),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_of_a_journal_is_asked_again_and_reported(
    damage: Callable[[dict[str, Any]], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path, [{"q": f"q{n}", "gold": "x"} for n in range(4)], TASK)
    with loopback(lambda _: WHOLE) as (url, arrived):
        first = run(tmp_path, url, price_in=1.0, price_out=1.0)
        path = tmp_path / "run" / NAME
        header, *lines = path.read_bytes().splitlines(keepends=True)
        line = json.loads(lines[1])
        line.pop("c")
        damage(line)
        lines[1] = sealed(json.dumps(line).encode()[:-1])
        path.write_bytes(b"".join([header, *lines]))
        before = len(arrived)
        caplog.set_level(logging.WARNING, "assay")
        again = assay.simple_evaluate(
            "openai", {"model": "m", "base_url": url, "price_in": 1.0, "price_out": 1.0}, tasks=["t"],
            include_path=str(tmp_path), include_defaults=False, output_path=str(tmp_path / "run"), max_cost=9.0,
        )  # fmt: skip
        asked = [each for each in arrived[before:] if each.method == "POST" and b"quick brown" not in each.body]
    assert len(asked) == 1
    assert "1 damaged line was ignored" in caplog.text
    assert again["results"]["t"] == first["results"]["t"]
    assert again["assay"]["usage"]["tokens"] == first["assay"]["usage"]["tokens"]


def test_a_journal_without_damage_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / NAME
    journal = Journal(path)
    responses = [Text("x", "stop", "hm", Usage(5, 2, 0.5), [CALL]), Likelihood(-math.inf, True), Failed("no"), Text("")]
    journal.add([(bytes([n]) * 16, response) for n, response in enumerate(responses)])
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"k":"05","r":{"te')  # torn: of a process that was killed
    again = Journal(path)
    assert [again.get(bytes([n]) * 16) for n in range(4)] == [responses[0], responses[1], None, responses[3]]
    again.close()
    assert caplog.text == ""


def test_a_damaged_response_of_the_cache_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(tmp_path)
    cache.add("m", [(b"1", Text("x", "stop", None, Usage(5))), (b"2", Text("y"))])
    cache.flush()
    cache._file.execute("update responses set response = ? where key = ?", (b'"r":{"text":"x"},"u":["5"]', b"1"))
    assert (cache.get(b"1"), cache.get(b"2")) == (None, Text("y"))
    cache.add("m", [(b"1", Text("again"))])
    cache.flush()
    assert cache.get(b"1") == Text("again")
    cache.close()
    assert "1 damaged response" in caplog.text


# whatever comes, it is a response or a failure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "text", "content", "message", "logprob"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
LOGPROBS = {
    "tokens": ["a", "b", "!"], "token_logprobs": [None, -1.0, -2.0], "text_offset": [0, 1, 2],
    "top_logprobs": [None, {"b": -1.0}, {"!": -2.0}], "content": [{"top_logprobs": [{"token": "b", "logprob": -1.0}]}],
}  # fmt: skip
LIKELIHOODS = {
    "choices": [{"text": "ab!", "logprobs": LOGPROBS, "prompt_logprobs": [None, {"5": {"logprob": -1.0, "rank": 1}}]}],
    "meta_info": {"input_token_logprobs": [[None, 1, None], [-1.0, 5, None]], "input_top_logprobs": [None, [[-1.0, 5, None]]],
                  "prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 1},
    "usage": USED, "model": "m",
}  # fmt: skip
REWARD = {"model": "m", "data": [{"index": 0, "data": [0.5], "score": 0.5}], "usage": USED}
DELTA = {
    "choices": [{"index": 0, "delta": {"content": "x", "refusal": None}, "text": "x", "finish_reason": "stop"}],
    "usage": USED,
    "model": "m",
}
EVENTS = [
    {"type": "message_start", "message": {"usage": CLAUDE["usage"]}},
    {"type": "content_block_delta", "delta": {"text": "x"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": CLAUDE["usage"]},
    {"type": "error", "error": {"type": "api_error", "message": "no"}},
]
CHAT_CALLS = {"choices": [{"message": {**MESSAGE, "tool_calls": [CALL]}, "finish_reason": "stop"}], "usage": USED}
WAYS: dict[str, tuple[str, Request, Any, dict[str, Any]]] = {
    "completions": ("openai", Generate("q", PLAIN), WHOLE, {}),
    "chat": ("openai-chat", Generate("q", PLAIN), CHAT_CALLS, {}),
    "anthropic": ("anthropic", Generate("q", PLAIN), CLAUDE, {}),
    "completions, streamed": ("openai", Generate("q", PLAIN), [DELTA], {"stream": True}),
    "chat, streamed": ("openai-chat", Generate("q", PLAIN), [DELTA], {"stream": True}),
    "anthropic, streamed": ("anthropic", Generate("q", PLAIN), EVENTS, {"stream": True}),
    "echo": ("openai", Loglikelihood("a", "b"), LIKELIHOODS, {}),
    "echo of a text": ("openai", Rolling("ab"), LIKELIHOODS, {}),
    "generated": ("openai", Loglikelihood("a", "b"), LIKELIHOODS, {"likelihoods": "generated"}),
    "generated in a chat": ("openai-chat", Loglikelihood("a", "b"), LIKELIHOODS, {"likelihoods": "generated"}),
    "tokens": ("openai", Loglikelihood("a", "b"), LIKELIHOODS, {"tokenizer": str(BUNDLED)}),
    "prompt": ("openai", Loglikelihood("a", "b"), LIKELIHOODS, {"tokenizer": str(BUNDLED), "likelihoods": "prompt"}),
    "sglang": ("openai", Loglikelihood("a", "b"), LIKELIHOODS, {"tokenizer": str(BUNDLED), "likelihoods": "sglang"}),
    "remote tokens": ("openai", Loglikelihood("a", "b"), {**LIKELIHOODS, "tokens": [1, 5]}, {"tokenizer_backend": "remote"}),
    "litellm": ("litellm", Generate("q", PLAIN), CHAT_CALLS, {"model": "openai/m", "api_key": "k"}),
    "pooling": ("reward-http", Loglikelihood("a", "b"), REWARD, {}),
    "score": ("reward-http", Loglikelihood("a", "b"), REWARD, {"way": "score"}),
}  # fmt: skip


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from paths(each, (*before, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: put(value[path[0]], path[1:], new)}
    return [put(each, path[1:], new) if n == path[0] else each for n, each in enumerate(value)]


@pytest.mark.parametrize("way", WAYS)
def test_any_answer_of_a_server_is_a_response_or_a_failure(way: str) -> None:
    name, request, template, reported = WAYS[way]
    now: list[Any] = [template]

    def answer(_: Arrived) -> Any:
        if not reported.get("stream"):
            return now[0]
        events = now[0] if isinstance(now[0], list) else [now[0]]
        data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
        return 200, {"Content-Type": "text/event-stream"}, data

    with loopback(answer) as (url, _):

        @settings(
            max_examples=40 if name == "litellm" else 120,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        )
        @given(st.sampled_from(list(paths(template))), JSON)
        def hold(path: tuple[Any, ...], odd: Any) -> None:
            now[0] = put(template, path, odd)
            try:
                said = ask(name, url, request, **reported)
            except (RetryableError, ConfigError):  # the latter of a tokenizer, before the run
                return
            assert isinstance(said, (Text if isinstance(request, Generate) else Likelihood, Failed))
            journal = Journal(None)
            journal.add([(b"1", said)])
            assert journal.get(b"1") == (None if isinstance(said, Failed) else said)
            journal.close()
            usage = RunUsage()
            usage.add("t", "model", said, None)
            orjson.dumps(usage.to_json())

        hold()


def greets(way: str, url: str) -> Any:
    model: Any = load_model(WAYS[way][0], {"model": "m", "base_url": url, **WAYS[way][3]})
    return asyncio.run(model.greet())


@pytest.mark.parametrize("way", ["completions", "chat", "anthropic", "remote tokens", "pooling", "score"])
@pytest.mark.parametrize(
    "odd", [5, [], {}, None, {"choices": [[]]}, {"data": [1, 2]}, {"tokens": ["a"]}, {"content": 5}], ids=repr
)
def test_any_invalid_answer_to_the_probe_is_a_retryable_error(way: str, odd: Any) -> None:
    with loopback(lambda _: odd) as (url, _), pytest.raises(RetryableError):
        greets(way, url)


LINE = {
    "k": "0a0b" * 8,
    "r": {"text": "x", "finish": "stop", "reasoning": "r", "calls": [{"a": 1}]},
    "u": [1, 2, 0.5, 1, 0, 0],
    "m": "judge",
}


@pytest.mark.slow
@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from([LINE, {**LINE, "r": [-1.0, True]}]), st.sampled_from(list(paths(LINE))), JSON),
        max_size=5,
    ),
    st.binary(max_size=30),
)
@example([], b',"c":"00000000"}')
@example([], b'{,"c":"15d54739"}')
def test_any_line_of_a_journal_is_read_as_a_response_or_ignored(changes: list[Any], junk: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        lines = []
        for number, (start, place, odd) in enumerate(changes):
            line = {**start, "k": f"{number:032x}"}
            fits = place[:1] != ("r",) or isinstance(line["r"], dict) or len(place) == 1
            lines.append(sealed(orjson.dumps(put(line, place, odd) if fits else line, default=str)[:-1]))
        path.write_bytes(b"".join([*lines, junk + b"\n", sealed(junk), sealed(orjson.dumps(LINE)[:-1])]))
        journal = Journal(path)
        for line in read_lines(path):
            result = journal.get(bytes.fromhex(line.entry["k"])) if line.entry is not None else None
            if result is None:
                continue
            assert isinstance(result, Text | Likelihood)
            assert isinstance(result, Likelihood) or result.finish is None or isinstance(result.finish, str)
        usage = RunUsage()
        for role, response in journal.paid():
            usage.add("t", role, response, None)
        orjson.dumps(usage.to_json())
        assert journal.get(b"\x0a\x0b" * 8) is not None
        other = Journal(None)
        other.add_lines(read_lines(path))
        journal.close()
        other.close()


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


CALLS = b'{"choices": [{"message": {"content": null, "tool_calls": [{"function": {"name": "f", "arguments": %s}}]}}]}'


@pytest.mark.parametrize("data", [b'{"error": %s}' % deep(1000), CALLS % deep(400)], ids=["error", "calls"])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_nested_too_deeply_is_an_error(data: bytes, stream: bool) -> None:
    kind = {"Content-Type": "text/event-stream"} if stream else {}
    with (
        loopback(lambda _: (200, kind, b"data: %s\n\n" % data if stream else data)) as (url, _),
        pytest.raises(RetryableError),
    ):
        ask("openai-chat", url, Generate("q", PLAIN), stream=stream)


def test_a_deeply_nested_refusal_is_an_error() -> None:
    with loopback(lambda _: (400, {}, deep(1000))) as (url, _):
        try:
            assert isinstance(ask("openai-chat", url, Generate("q", PLAIN)), Failed)
        except RetryableError:
            return


# answers that look empty


def streamed(*events: Any) -> Any:
    data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    return 200, {"Content-Type": "text/event-stream"}, data


@pytest.mark.parametrize(
    "content",
    ["", {}, 0, False, None, "x", [{}], [""], [{"type": "text", "text": None}], [{"type": "text"}],
     [{"type": "text", "text": []}], [{"type": "thinking"}], [{"type": ["text"], "text": "x"}],
     [{"type": "text", "text": "x"}, {}]],
    ids=repr,
)  # fmt: skip
def test_invalid_content_of_anthropic_is_not_an_empty_answer(content: Any) -> None:
    with (
        loopback(lambda _: {**CLAUDE, "content": content}) as (url, _),
        pytest.raises(RetryableError, match="protocol"),
    ):
        ask("anthropic", url, Generate("q", PLAIN))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], ""),
        ([{"type": "text", "text": ""}], ""),
        ([{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "x"}], "x"),
        ([{"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": "x"}], "x"),
        ([{"type": "server_tool_use", "id": "1", "name": "f", "input": {}}, {"text": "x"}], "x"),
    ],
)
def test_content_of_anthropic_may_be_empty_or_of_other_kinds(content: Any, text: str) -> None:
    with loopback(lambda _: {**CLAUDE, "content": content}) as (url, _):
        assert ask("anthropic", url, Generate("q", PLAIN)).text == text


END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}


@pytest.mark.parametrize(
    "delta",
    [{}, {"type": "text_delta"}, {"type": "text_delta", "text": None}, {"type": "text_delta", "text": 0}, {"text": {}},
     {"type": "thinking_delta", "thinking": False}, {"type": "input_json_delta"}, {"other": "x"}, [], "", None],
    ids=repr,
)  # fmt: skip
def test_a_chunk_of_anthropic_without_text_is_not_an_empty_chunk(delta: Any) -> None:
    answer = streamed({"type": "content_block_delta", "delta": delta}, END)
    with loopback(lambda _: answer) as (url, _), pytest.raises(RetryableError, match="protocol"):
        ask("anthropic", url, Generate("q", PLAIN), stream=True)


def test_anthropic_events_without_text_are_skipped() -> None:
    pieces = [
        {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"},
        {"type": "text_delta", "text": ""}, {"type": "text_delta", "text": "x"},
        {"type": "citations_delta", "citation": {}}, {"type": "input_json_delta", "partial_json": ""},
    ]  # fmt: skip
    answer = streamed(*({"type": "content_block_delta", "delta": piece} for piece in pieces), END)
    with loopback(lambda _: answer) as (url, _):
        said = ask("anthropic", url, Generate("q", PLAIN), stream=True)
    assert (said.text, said.reasoning) == ("x", "hm")


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
@pytest.mark.parametrize(
    "event",
    [*({"choices": odd} for odd in (False, 0, "", {}, "x", 5)),
     *({"choices": [{"index": 0, "delta": {"content": odd}}]} for odd in (False, 0, [], {}, 5, ["x"])),
     *({"choices": [{"index": 0, "text": odd}]} for odd in (False, 0, [], {})),
     *({"choices": [{"index": 0, "delta": odd}]} for odd in (False, 0, [], ""))],
    ids=repr,
)  # fmt: skip
def test_an_invalid_chunk_of_a_stream_is_not_an_empty_chunk(event: Any, name: str) -> None:
    end = {"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "stop"}]}
    with loopback(lambda _: streamed(event, end)) as (url, _), pytest.raises(RetryableError, match="protocol"):
        ask(name, url, Generate("q", PLAIN), stream=True)


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
def test_pieces_of_a_stream_may_be_null_or_absent(name: str) -> None:
    events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]}, {"choices": None}, {"choices": []},
        {"choices": [{"index": 0, "delta": None, "text": "a"}]}, {"choices": [{"index": 0, "delta": {"content": "b"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": USED}, {"usage": None},
    ]  # fmt: skip
    with loopback(lambda _: streamed(*events)) as (url, _):
        assert ask(name, url, Generate("q", PLAIN), stream=True).text == "ab"


def test_a_malformed_answer_fails_its_document(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "fine", "gold": "x"}, {"q": "odd", "gold": "x"}], TASK)

    def answer(arrived: Arrived) -> Any:
        return {**CLAUDE, "content": ""} if b'"odd"' in arrived.body else CLAUDE

    with loopback(answer) as (url, _):
        results = run(tmp_path, url, "anthropic")
    assert results["assay"]["tasks"]["t"]["failed"] == 1
    assert results["results"]["t"]["exact_match,none"] == 1.0


ASKED = Generate("q", {})
CHOICE, ALL_OF_IT = Loglikelihood("q", "a"), Rolling("a")
HALF_A_LETTER = "\ud800"


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (ASKED, Text("é")),
        (ASKED, Text("x", reasoning="é")),
        *[(asked, Likelihood(value)) for asked in (CHOICE, ALL_OF_IT) for value in (-1.5, -2, 0.0, -math.inf)],
    ],
)
def test_what_a_model_may_answer_is_passed_on_as_it_is(request_: Request, response: Response) -> None:
    assert checked(request_, response) == response


@pytest.mark.parametrize(
    ("request_", "response", "reason"),
    [
        (ASKED, Likelihood(-1.5), "the model answered Generate with Likelihood("),
        (CHOICE, Text("a"), "the model answered Loglikelihood with Text("),
        (ASKED, Text(None), "the model gave None instead of text"),  # type: ignore[arg-type]
        (ASKED, Text(HALF_A_LETTER), "the model gave "),
        (ASKED, Text("x", reasoning=HALF_A_LETTER), "the model gave "),
        *[
            (asked, Likelihood(value), f"the model gave the log-likelihood {value!r}")  # type: ignore[arg-type]
            for asked in (CHOICE, ALL_OF_IT)
            for value in (math.nan, math.inf, True, None, "-1")
        ],
    ],
)
def test_what_a_model_cannot_mean_is_a_failure_with_the_reason(
    request_: Request, response: Response, reason: str
) -> None:
    answer = checked(request_, response)
    assert isinstance(answer, Failed)
    assert answer.reason.startswith(reason)
