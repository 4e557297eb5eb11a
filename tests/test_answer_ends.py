"""How an answer ends has one outcome, whatever the protocol and whether it is streamed: every row of the table in every backend."""

import asyncio
import json
import re
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import assay
from assay.models.endings import FAULTS, REASONS, end_for
from assay.models.load import load_model
from assay.models.protocol import RetryableError
from assay.records import USUAL_FINISHES, Failed, Generate, Loglikelihood, Text
from serving import loopback
from small_runs import write_task
from test_protocols import PLAIN, ask

Value = Any
TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
STREAM = {"Content-Type": "text/event-stream"}
EXTRA = "never part of the answer"


class Way(NamedTuple):
    """A backend, and the protocol that its server speaks."""

    backend: str
    protocol: str
    is_streamed: bool = False
    arguments: dict[str, Any] = {}  # noqa: RUF012  # never written to


WAYS = {
    "completions": Way("openai", "completions"),
    "completions, streamed": Way("openai", "completions", True),
    "chat": Way("openai-chat", "chat"),
    "chat, streamed": Way("openai-chat", "chat", True),
    "anthropic": Way("anthropic", "messages"),
    "anthropic, streamed": Way("anthropic", "messages", True),
    "litellm": Way("litellm", "chat", arguments={"model": "openai/m", "api_key": "sk-not-a-word"}),
}


# What servers send


def choice(protocol: str, text: str | None, reason: Value, **message: Value) -> dict[str, Value]:
    if protocol == "completions":
        return {"index": 0, "text": text, "finish_reason": reason, **message}
    return {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": reason}


def whole(way: Way, text: str | None, reason: Value, **message: Value) -> dict[str, Value]:
    if way.protocol == "messages":
        blocks = [{"type": "text", "text": text}, *message.pop("blocks", ())]
        return {
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": blocks,
            "stop_reason": reason,
            **message,
        }
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [choice(way.protocol, text, reason, **message)]}  # fmt: skip


def piece(way: Way, text: str | None, reason: Value = None, **delta: Value) -> dict[str, Value]:
    """A piece of a streamed answer; with a reason, its last one."""
    if way.protocol == "completions":
        return {"choices": [{"index": 0, "text": text, "finish_reason": reason, **delta}]}
    if way.protocol == "chat":
        return {"choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": reason}]}
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def end(way: Way, reason: Value) -> list[Value]:
    """The events that end a streamed answer for a reason."""
    if way.protocol == "messages":
        delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}
        return [delta, {"type": "message_stop"}]
    last = {"text": ""} if way.protocol == "completions" else {"delta": {}}
    return [{"choices": [{"index": 0, **last, "finish_reason": reason}]}, "[DONE]"]


START: dict[str, Value] = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}}


def started(way: Way) -> list[Value]:
    if way.protocol == "messages":
        return [START]
    return [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}] if way.protocol == "chat" else []


def answer_with(way: Way, text: str, reason: Value) -> Value:
    """An answer of this text that ends for a reason."""
    if not way.is_streamed:
        return whole(way, text, reason)
    return [*started(way), piece(way, text[:2]), piece(way, text[2:]), *end(way, reason)]


def no_text(way: Way) -> Value:
    if not way.is_streamed:
        return whole(way, None, good(way))
    if way.protocol == "messages":
        return [START, piece(way, None), *end(way, good(way))]
    return [piece(way, None, good(way)), "[DONE]"]


def refusal_text(way: Way) -> Value:
    if way.protocol != "chat":
        return None
    if not way.is_streamed:
        return whole(way, None, "stop", refusal="I will not")
    return [piece(way, None, refusal="I will not"), *end(way, "stop")]


def calls_not_offered(way: Way) -> Value:
    if way.protocol == "completions":
        return None
    use = {"type": "tool_use", "id": "1", "name": "look_up", "input": {}}
    if way.protocol == "messages":
        begin = {"type": "content_block_start", "index": 1, "content_block": use}
        text = piece(way, "four")
        return (
            [START, text, begin, *end(way, "end_turn")]
            if way.is_streamed
            else whole(way, "four", "end_turn", blocks=[use])
        )
    if not way.is_streamed:
        return whole(way, "four", "stop", tool_calls=[CALL])
    return [piece(way, "four"), piece(way, None, tool_calls=[CALL]), *end(way, "stop")]


def called_as_before_tools(way: Way) -> Value:
    if way.protocol != "chat":
        return None
    if not way.is_streamed:
        return whole(way, "four", "stop", function_call=CALL["function"])
    return [piece(way, "four"), piece(way, None, function_call=CALL["function"]), *end(way, "stop")]


def text_after_the_reason(way: Way) -> Value:
    return (
        [*started(way), piece(way, "four"), end(way, good(way))[0], piece(way, EXTRA), end(way, None)[1]]
        if way.is_streamed
        else None
    )


def text_after_the_last_event(way: Way) -> Value:
    return [*answer_with(way, "four", good(way)), piece(way, EXTRA)] if way.is_streamed else None


def two_answers(way: Way) -> Value:
    if way.protocol == "messages":
        return (
            [START, piece(way, "four"), START, piece(way, "five"), *end(way, "end_turn")] if way.is_streamed else None
        )
    first, second = piece(way, "four")["choices"], piece(way, "five")["choices"]
    if way.is_streamed:
        return [{"choices": [*first, *second]}, *end(way, "stop")]
    answer = whole(way, "four", "stop")
    return {**answer, "choices": answer["choices"] * 2}


def whole_in_a_stream_that_began(way: Way) -> Value:
    if not way.is_streamed or way.protocol == "completions":  # a whole completion is like a piece
        return None
    return [*started(way), piece(way, "junk "), whole(way, "four", good(way)), "[DONE]"]


def error_beside(way: Way) -> Value:
    error = {"error": {"type": "api_error", "message": "out of memory"}}
    if not way.is_streamed:
        return {**whole(way, "four", good(way)), **error}
    return [*started(way), {**piece(way, "four"), **error}, *end(way, good(way))]


def error_object(way: Way) -> Value:
    """vLLM's form before 0.10: beside an answer, and as an event behind a part of it."""
    error = {"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500}
    if not way.is_streamed:
        return {**whole(way, "four", good(way)), **error}
    return [*started(way), piece(way, "four"), error, *end(way, good(way))]


def errors_beside(way: Way) -> Value:
    errors = {"errors": [{"message": "out of memory"}]}
    if not way.is_streamed:
        return {**whole(way, "four", good(way)), **errors}
    return [*started(way), {**piece(way, "four"), **errors}, *end(way, good(way))]


def error_of_the_choice(way: Way) -> Value:
    if way.protocol == "messages":
        return None
    answer = whole(way, "four", "stop") if not way.is_streamed else piece(way, "four", "stop")
    answer["choices"][0]["error"] = {"message": "out of memory"}
    return [answer, "[DONE]"] if way.is_streamed else answer


def error_of_the_message(way: Way) -> Value:
    if way.protocol != "messages" or not way.is_streamed:
        return None
    error = {"error": {"type": "api_error", "message": "out of memory"}}
    return [{**START, "message": {**START["message"], **error}}, piece(way, "four"), *end(way, "end_turn")]


def broken_off(way: Way) -> Value:
    return [*started(way), piece(way, "four")] if way.is_streamed else None


def good(way: Way) -> str:
    return "end_turn" if way.protocol == "messages" else "stop"


CASES: dict[str, tuple[str, Callable[[Way], Value]]] = {
    "no reason": ("no reason", lambda way: answer_with(way, "four", None)),
    "an empty reason": ("no reason", lambda way: answer_with(way, "four", "")),
    "no text": ("no text", no_text),
    "refusal text": ("refusal text", refusal_text),
    "calls not offered": ("calls not offered", calls_not_offered),
    "function_call": ("calls not offered", called_as_before_tools),
    "calls missing": ("calls missing", lambda way: answer_with(way, "four", "tool_use" if way.protocol == "messages" else "tool_calls")),
    "text after the reason": ("text after the end", text_after_the_reason),
    "text after the last event": ("text after the end", text_after_the_last_event),
    "two choices with one index": ("two answers in one", two_answers),
    "a whole answer after a piece": ("two answers in one", whole_in_a_stream_that_began),
    "error beside the answer": ("error beside the answer", error_beside),
    "error as an object": ("error beside the answer", error_object),
    "errors beside the answer": ("error beside the answer", errors_beside),
    "error of the choice": ("error beside the answer", error_of_the_choice),
    "error of the message": ("error beside the answer", error_of_the_message),
    "broken off": ("broken off", broken_off),
}  # fmt: skip
"""Kinds of faults: the row of the table, and what a server sends; None where its protocol cannot."""


NOW: list[Value] = [None]
"""What the server answers now."""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    def said(_: object) -> Value:
        answer = NOW[0]
        if not isinstance(answer, list):
            return answer
        lines = [event if isinstance(event, str) else json.dumps(event) for event in answer]
        return 200, STREAM, "".join(f"data: {line}\n\n" for line in lines).encode()

    with loopback(said) as (url, _):
        URL[0] = url
        yield


URL = [""]
LOOP = asyncio.new_event_loop()
"""One for all: a model that is opened again in one loop must not find clients that it closed (litellm keeps them)."""


def outcome_of(way: Way, answer: Value) -> tuple[str, Value]:
    """The outcome of an answer, and its response or the message of its error."""
    NOW[0] = answer
    arguments = {"timeout": 60, **way.arguments, **({} if way.backend == "litellm" else {"stream": way.is_streamed})}
    model: Any = load_model(way.backend, {"model": "m", "base_url": URL[0], **arguments})

    async def asked() -> Any:
        async with model:
            return await model.ask(Generate("q", PLAIN))

    try:
        response = LOOP.run_until_complete(asked())
    except RetryableError as error:
        return "retried", str(error)
    if isinstance(response, Failed):
        return "failed", response.reason
    assert isinstance(response, Text)
    is_noticed = response.finish == "length" or response.finish not in USUAL_FINISHES
    return "noticed" if is_noticed else "good", response


# The table, row by row


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_reason_for_an_end_has_the_outcome_of_the_table(way: Way) -> None:
    for reason, row in {**REASONS, "banana": None}.items():
        outcome, response = outcome_of(way, answer_with(way, "four", reason))
        if row is not None and row.finish == "tool_calls":
            assert (outcome, "does not have" in response) == ("failed", True), reason
            continue
        expected = "noticed" if row is None else row.outcome
        assert outcome == expected, (reason, response)
        if expected in ("failed", "retried"):
            assert row is not None
            assert row.sentence in response, reason
        else:
            assert response.text == "four", reason
            assert response.finish == (row.finish if row is not None else "banana")


def test_reasons_are_read_without_regard_to_case_and_hyphens() -> None:
    for reason in ("content-filter", "Content_Filter", "CONTENT-FILTER"):
        assert end_for(reason) is REASONS["content_filter"], reason


def left_out(written: int) -> Value:
    """A streamed completion whose pieces have no text, as LiteLLM's proxy sends an empty one."""
    last = {"choices": [{"index": 0}], "usage": {"prompt_tokens": 9, "completion_tokens": written}}
    return [{"choices": [{"index": 0, "finish_reason": "stop"}]}, last, "[DONE]"]


def test_an_answer_without_text_is_empty_where_the_server_counts_only_its_end() -> None:
    outcome, response = outcome_of(WAYS["completions, streamed"], left_out(1))
    assert (outcome, response.text, response.finish) == ("good", "", "stop")
    outcome, response = outcome_of(WAYS["completions, streamed"], left_out(2))
    assert outcome == "failed"
    assert FAULTS["no text"].sentence in response


@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for way in WAYS for name, (_, build) in CASES.items() if build(WAYS[way]) is not None]
)
def test_every_fault_of_an_answer_has_the_outcome_of_the_table(way: str, name: str) -> None:
    row, build = CASES[name]
    outcome, response = outcome_of(WAYS[way], build(WAYS[way]))
    if row == "no text":  # a malformed block of Anthropic's is asked again before it fails
        assert outcome in ("failed", "retried")
        assert "no text" in response
        return
    assert outcome == FAULTS[row].outcome, response
    if outcome == "noticed":
        assert (response.text, response.finish) == ("four", FAULTS[row].finish)
    else:
        assert FAULTS[row].sentence in response


def test_every_fault_of_the_table_is_tried() -> None:
    assert {row for row, _ in CASES.values()} == set(FAULTS)


# The same by hand


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_partial_text_that_a_filter_ended_is_a_failure(way: Way) -> None:
    outcome, reason = outcome_of(way, answer_with(way, "the ans", "content_filter"))
    assert (outcome, reason) == ("failed", "the provider's filter ended the answer (finish_reason: content_filter)")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_answer_as_it_should_be_is_good_streamed_or_whole(way: Way) -> None:
    outcome, response = outcome_of(way, answer_with(way, "four", good(way)))
    assert (outcome, response.text, response.finish) == ("good", "four", "stop")


@pytest.mark.parametrize("name", ["completions", "chat", "anthropic"])
@pytest.mark.parametrize("form", ["a body", "an event"])
def test_a_whole_answer_is_the_answer_where_a_stream_was_asked_for(name: str, form: str) -> None:
    streamed, answer = WAYS[f"{name}, streamed"], whole(WAYS[name], "four", good(WAYS[name]))
    outcome, response = outcome_of(streamed, answer if form == "a body" else [answer])
    assert (outcome, response.text) == ("good", "four")


def test_an_empty_answer_of_a_stream_that_began_with_null_is_empty_as_it_is_whole() -> None:
    """llama.cpp begins every stream with `content: null`."""
    way = WAYS["chat, streamed"]
    begin = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]}
    outcome, response = outcome_of(way, [begin, *end(way, "stop")])
    assert (outcome, response.text) == ("good", "")
    assert outcome_of(WAYS["chat"], whole(WAYS["chat"], "", "stop"))[1].text == ""


@pytest.mark.parametrize("name", ["completions, streamed", "chat, streamed", "anthropic, streamed"])
def test_a_server_that_keeps_the_body_open_behind_its_end_is_left_after_a_moment(name: str) -> None:
    way = WAYS[name]
    lines = [event if isinstance(event, str) else json.dumps(event) for event in answer_with(way, "four", good(way))]
    data = "".join(f"data: {line}\n\n" for line in lines).encode()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            for line in iter(self.rfile.readline, b"\r\n"):
                length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length:") else length
            self.rfile.read(length)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.wfile.write(b"%s%x\r\n%s\r\n" % (head, len(data), data))
            self.rfile.read(1)  # until the client leaves

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        began = time.monotonic()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        response = ask(way.backend, url, Generate("q", PLAIN), stream=True, timeout=60)
        server.shutdown()
    assert (response.text, response.finish) == ("four", "stop")
    assert time.monotonic() - began < 30


def test_a_server_that_sends_the_text_so_far_beside_each_piece_is_read_to_the_end() -> None:
    way = WAYS["chat, streamed"]
    events = [piece(way, "fo"), piece(way, "ur"), *end(way, "stop")]
    for event, so_far in zip(events, ("fo", "four", "four"), strict=False):
        event["choices"][0]["message"] = {"role": "assistant", "content": so_far}
    events[2]["choices"][0]["delta"] = {"content": ""}
    assert outcome_of(way, events)[1].text == "four"


def test_log_likelihoods_of_an_answer_that_did_not_end_well_are_not_read() -> None:
    logprobs = {"tokens": ["a", "b", "c"], "token_logprobs": [None, -1.0, -1.0], "text_offset": [0, 1, 2],
                "top_logprobs": [None, {"b": -1.0}, {"c": -1.0}]}  # fmt: skip
    answer = {"choices": [{"text": "abc", "logprobs": logprobs, "finish_reason": "length"}]}
    for change, outcome in (
        ({}, "likelihood"), ({"error": {"message": "no"}}, "retried"),
        ({"choices": [{**answer["choices"][0], "finish_reason": "abort"}]}, "retried"),
        ({"choices": [{**answer["choices"][0], "finish_reason": "content_filter"}]}, "failed"),
    ):  # fmt: skip
        with loopback(lambda _, change=change: {**answer, **change}) as (url, _):  # type: ignore[misc]
            try:
                response = ask("openai", url, Loglikelihood("a", "b"))
            except RetryableError:
                assert outcome == "retried"
                continue
        assert isinstance(response, Failed) == (outcome == "failed"), response


# In a run


def run(folder: Path, url: str, backend: str, roles: Value = None) -> dict[str, Value]:
    return assay.simple_evaluate(
        backend, {"model": "m", "base_url": url, "max_retries": 1}, tasks=["t"], include_path=str(folder),
        include_defaults=False, model_role=roles,
    )  # fmt: skip


def test_what_failed_is_no_zero_and_what_was_noticed_is_counted(tmp_path: Path) -> None:
    """Of four documents one is filtered, one ends for no reason, one for an unknown one: 1/3 of three are right."""
    ends = {"0": ("right", "stop"), "1": ("rig", "content_filter"), "2": ("no", None), "3": ("no", "banana")}

    def said(arrived: Value) -> Value:
        text, reason = ends.get(json.loads(arrived.body or b"{}").get("prompt", ""), ("right", "stop"))
        return whole(WAYS["completions"], text, reason)

    write_task(tmp_path, [{"q": number, "gold": "right"} for number in ends], TASK)
    with loopback(said) as (url, _):
        results = run(tmp_path, url, "openai")
    assert results["results"]["t"]["exact_match,none"] == pytest.approx(1 / 3)
    [account] = results["assay"]["tasks"].values()
    assert account["reasons"] == {"the provider's filter ended the answer (finish_reason: content_filter)": 1}
    assert account["audit"]["unusual_end"] == {"count": 2, "ids": [2, 3]}
    assert account["noticed"] == {"with an unknown finish reason, or none": 2}


def test_repeats_are_still_asked_together_when_one_of_them_failed(tmp_path: Path) -> None:
    """Two of four draws are filtered; asking each alone would pay twice."""
    yaml = TASK + "repeats: 4\ngeneration_kwargs: {do_sample: true, temperature: 1.0}\n"
    write_task(tmp_path, [{"q": f"{n}", "gold": "right"} for n in range(3)], yaml)

    def said(arrived: Value) -> Value:
        body = json.loads(arrived.body or b"{}")
        answer = whole(WAYS["chat"], "right", "stop")
        reasons = (["stop", "content_filter"] * 2)[: body.get("n", 1)]
        return {
            **answer,
            "choices": [{**answer["choices"][0], "index": n, "finish_reason": r} for n, r in enumerate(reasons)],
        }

    with loopback(said) as (url, arrived):
        results = run(tmp_path, url, "openai-chat")
    [account] = results["assay"]["tasks"].values()
    assert account["failed"] == 3
    bodies = [json.loads(each.body) for each in arrived if each.body]
    asked = [(body["messages"][-1]["content"], body.get("n", 1)) for body in bodies]
    assert sorted(each for each in asked if each[0] in "012") == [
        ("0", 1),
        ("0", 3),
        ("1", 4),
        ("2", 4),
    ]  # one is a trial


def test_a_verdict_that_a_filter_ended_fails_its_document(tmp_path: Path) -> None:
    """The judge's answer would be a verdict, and is one only where it ended well."""
    write_task(tmp_path, [{"q": "hello", "gold": "x"}], TASK + "scorer: llm_judge\n")

    def said(arrived: Value) -> Value:
        body = json.loads(arrived.body or b"{}")
        marked = re.search(r"<<<answer ([0-9a-f]{32})>>>", str(body.get("messages")))
        verdict = json.dumps({"id": marked[1], "reason": "so", "score": 10}) if marked else "hello"
        return whole(WAYS["chat"], verdict, "content_filter" if marked and is_filtered else "stop")

    for is_filtered in (False, True):
        with loopback(said) as (url, _):
            judge = f"openai-chat,model=j,base_url={url},max_retries=1"
            results = run(tmp_path, url, "openai-chat", roles={"judge": judge})
        [account] = results["assay"]["tasks"].values()
        assert account["failed"] == int(is_filtered), account
    assert "the provider's filter ended the answer" in str(account["reasons"])
