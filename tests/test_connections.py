"""Connections to servers: an answer belongs to its document, an idle connection that ended is replaced, and every answer ends."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from bench.fault_runs import DOCUMENTS, run_against
from bench.fault_server import FaultServer, fault_server
from bench.faults import CONNECTIONS

from assay.engine.retry import ConcurrencyWindow
from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.protocol import RetryableError
from assay.models.servers import connections, http
from assay.records import Failed, Generate

UNASKED = ("late response", "late response, sooner", "late response, now and then", "half a response behind it")
LIMITED = {"max_gen_toks": 16, "until": [], "do_sample": False}


@pytest.fixture(scope="module")
def faults() -> Iterator[tuple[str, FaultServer]]:
    with fault_server() as server:
        yield server


@pytest.mark.parametrize("way", ["chat", "completions, streamed", "log-likelihoods", "anthropic", "judge", "graph"])
@pytest.mark.parametrize("kind", UNASKED)
def test_a_response_that_nobody_asked_for_answers_no_document(
    kind: str, way: str, faults: tuple[str, FaultServer], tmp_path: Path
) -> None:
    outcome = run_against(faults[0], kind, way, tmp_path)
    assert (outcome.right, outcome.wrong) == (DOCUMENTS, [])


def test_a_response_that_nobody_asked_for_answers_no_document_through_litellm(
    faults: tuple[str, FaultServer], tmp_path: Path
) -> None:
    outcome = run_against(faults[0], "late response", "litellm", tmp_path)
    assert (outcome.right, outcome.wrong) == (DOCUMENTS, [])


@pytest.mark.parametrize(
    "kind", [name for name, kind in CONNECTIONS.items() if kind.expected == "right" and name not in UNASKED]
)
def test_a_connection_that_ends_early_or_brings_junk_costs_no_document_and_no_attempt(
    kind: str, faults: tuple[str, FaultServer], tmp_path: Path
) -> None:
    outcome = run_against(faults[0], kind, "chat", tmp_path, max_retries=1)
    assert (outcome.right, outcome.failed) == (DOCUMENTS, 0), outcome


# one connection, request by request

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def said(text: str, *headers: str) -> bytes:
    body = b'{"choices": [{"message": {"content": "%s"}, "text": "%s", "finish_reason": "stop"}]}' % (
        (text.encode(),) * 2
    )
    lines = "".join(f"{header}\r\n" for header in (*headers, f"Content-Length: {len(body)}"))
    return OK + lines.encode() + b"\r\n" + body


Talk = Callable[[socket.socket, int], None]
"""What a server does with a connection, and the number of the connection."""


@contextmanager
def speaking(talk: Talk) -> Iterator[str]:
    """A server that does with each connection what a function does."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)

    def accept() -> None:
        for number in range(1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=attend, args=(connection, number), daemon=True).start()

    def attend(connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            talk(connection, number)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def received(connection: socket.socket) -> bytes:
    """One request."""
    data = b""
    while b"\r\n\r\n" not in data or not data.rstrip().endswith(b"}"):
        more = connection.recv(2**16)
        if not more:
            raise ConnectionError
        data += more
    return data


def asked(url: str, *prompts: str, rest: float = 0.0, **arguments: Any) -> list[Any]:
    """The answers to prompts that are sent one after another, without a rest of connections."""
    model: Any = load_model("openai", {"model": "m", "base_url": url, "timeout": 5, "num_concurrent": 2, **arguments})

    async def work() -> list[Any]:
        answers = []
        async with model:
            for prompt in prompts:
                answers.append(await model.ask(Generate(prompt, LIMITED)))
                await asyncio.sleep(rest)
        return answers

    return [answer.reason if isinstance(answer, Failed) else answer.text for answer in asyncio.run(work())]


@pytest.fixture
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 0.0)
    monkeypatch.setattr(connections, "MIN_REST_SECONDS", 0.0)


def test_a_connection_is_used_again_after_its_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 0.05)

    def talk(connection: socket.socket, number: int) -> None:
        while True:
            received(connection)
            connection.sendall(said(str(number)))

    with speaking(talk) as url:
        assert asked(url, "a", "b", "c", rest=0.1) == ["0", "0", "0"]
        assert asked(url, "a", "b", "c", rest=0.001) == ["1", "2", "3"]


def test_a_response_that_comes_seconds_late_answers_no_later_request() -> None:
    """The second request is on its way by then: on the same connection, its answer would be this one."""

    def talk(connection: socket.socket, number: int) -> None:
        received(connection)
        connection.sendall(said(str(number)))
        time.sleep(1.8)
        connection.sendall(said("junk"))
        received(connection)

    with speaking(talk) as url:
        assert asked(url, "a", "b", rest=1.3) == ["0", "1"]


@pytest.mark.usefixtures("without_rest")
@pytest.mark.parametrize("junk", [said("junk"), b"GARBAGE", said("junk")[:50]])
def test_a_connection_with_waiting_bytes_is_not_used_again(junk: bytes, caplog: pytest.LogCaptureFixture) -> None:
    def talk(connection: socket.socket, number: int) -> None:
        while True:
            received(connection)
            connection.sendall(said(str(number)))
            time.sleep(0.01)
            connection.sendall(junk)

    with speaking(talk) as url:
        assert asked(url, "a", "b", "c", rest=0.05) == ["0", "1", "2"]
    assert "nobody asked for" in caplog.text


@pytest.mark.usefixtures("without_rest")
def test_bytes_that_wait_in_the_kernel_alone_keep_a_connection_from_being_used_again() -> None:
    """The event loop has not seen them: it was busy until the next request was sent."""

    def talk(connection: socket.socket, number: int) -> None:
        while True:
            received(connection)
            connection.sendall(said(str(number)))
            time.sleep(0.01)
            connection.sendall(said("junk"))

    model: Any

    async def work() -> list[str]:
        async with model:
            answers = [(await model.ask(Generate("a", LIMITED))).text]
            time.sleep(0.1)  # the loop must be busy
            return [*answers, (await model.ask(Generate("b", LIMITED))).text]

    with speaking(talk) as url:
        model = load_model("openai", {"model": "m", "base_url": url, "num_concurrent": 2})
        assert asyncio.run(work()) == ["0", "1"]


@pytest.mark.usefixtures("without_rest")
def test_an_answer_that_comes_before_its_request_was_received_is_thrown_away() -> None:
    def talk(connection: socket.socket, number: int) -> None:
        received(connection)
        connection.sendall(said(str(number)))
        if number == 0:
            connection.recv(10)  # the next request has begun, and is larger than what is received of it
            connection.sendall(said("junk"))
            time.sleep(5)

    with speaking(talk) as url:
        assert asked(url, "a", "b" * 900_000) == ["0", "1"]


@pytest.mark.usefixtures("without_rest")
@pytest.mark.parametrize("stream", [True, False])
def test_a_used_connection_that_the_server_closes_at_the_next_request_is_replaced_at_once_and_uncounted(
    stream: bool,
) -> None:
    requests: list[int] = []

    def talk(connection: socket.socket, number: int) -> None:
        received(connection)
        connection.sendall(said(str(number)))
        received(connection)
        requests.append(number)

    with speaking(talk) as url:
        assert asked(url, "a", "b", "c", rest=0.01, max_retries=1, stream=stream) == ["0", "1", "2"]
    assert requests == [0, 1]


@pytest.mark.usefixtures("without_rest")
def test_a_connection_is_not_used_beyond_the_keep_alive_that_the_server_announces() -> None:
    def talk(connection: socket.socket, number: int) -> None:
        while True:
            received(connection)
            connection.sendall(said(str(number), "Keep-Alive: timeout=1, max=9"))

    with speaking(talk) as url:
        assert asked(url, "a", "b") == ["0", "1"]  # a second, less the margin


def test_a_server_that_is_asked_one_request_at_a_time_needs_to_serve_one_connection_at_a_time() -> None:
    turn = threading.Lock()

    def talk(connection: socket.socket, number: int) -> None:
        with turn:
            while True:
                received(connection)
                connection.sendall(said("x"))

    with speaking(talk) as url:
        assert asked(url, "a", "b", "c", num_concurrent=1, timeout=2) == ["x", "x", "x"]


def test_a_greeting_that_a_connection_breaks_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.engine import retry

    limits = retry.RetryLimits(first_wait=0.01)
    monkeypatch.setattr(retry, "RetryLimits", lambda: limits)

    def talk(connection: socket.socket, number: int) -> None:
        received(connection)
        if number > 1:
            connection.sendall(said("x"))

    with speaking(talk) as url:
        model: Any = load_model("openai-chat", {"model": "m", "base_url": url})
        asyncio.run(retry.retry_before_run(model.greet))
    with pytest.raises(ConfigError, match="unreachable"):  # nobody is there: refused at once
        asyncio.run(retry.retry_before_run(load_model("openai-chat", {"model": "m", "base_url": url}).greet))  # type: ignore[union-attr]


# every answer ends


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("drip of the answer", "chat, streamed"),
        ("drip of the answer", "anthropic, streamed"),
        ("drip of the answer", "litellm"),
        ("signs of life", "completions, streamed"),
        ("signs of life", "chat"),
        ("bytes of a head", "graph, streamed"),
        ("informational responses", "anthropic, streamed"),
    ],
)
def test_a_steady_drip_does_not_keep_an_answer_from_ending(
    kind: str, way: str, faults: tuple[str, FaultServer], tmp_path: Path
) -> None:
    began = time.monotonic()
    outcome = run_against(faults[0], kind, way, tmp_path, timeout=0.3, max_retries=1, num_concurrent=12)
    assert outcome.failed == DOCUMENTS
    assert (
        time.monotonic() - began < 120
    )  # three limits of 0.3 s; the rest is the machine's: litellm alone imports for 20 s on a busy one


def test_the_limit_of_a_streamed_answer_follows_from_the_timeout_and_its_tokens() -> None:
    model: Any = load_model("openai", {"model": "m", "base_url": "http://127.0.0.1:1/v1", "timeout": 10})
    assert [model.max_stream(tokens).seconds for tokens in (0, 256, 2560)] == [10, 20, 110]
    assert model.max_stream(None).seconds == 10 * (1 + 32_768 / 256)


def test_a_tls_handshake_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.2)
    with speaking(lambda connection, number: time.sleep(9)) as url:
        began = time.monotonic()
        with pytest.raises(RetryableError) as hung:
            asked(url.replace("http:", "https:"), "a")
    assert hung.value.unreachable
    assert time.monotonic() - began < 4


# how many at once


def test_a_run_begins_with_as_many_requests_as_llama_cpp_has_slots_and_a_connection_for_each() -> None:
    paths: list[str] = []

    def talk(connection: socket.socket, number: int) -> None:
        while True:
            head = connection.recv(2**16).decode()
            if not head:
                return
            paths.append(f"{number} {head.split(' ')[1]}")
            if "/props" in head:
                connection.sendall(OK + b"Server: llama.cpp\r\nContent-Length: 18\r\n\r\n" + b'{"total_slots": 3}')
            else:
                connection.sendall(said("x", "Server: llama.cpp", "Keep-Alive: timeout=5, max=100"))

    async def work() -> int:
        await model.greet()
        async with model:
            for prompt in "abc":
                await model.ask(Generate(prompt, LIMITED))
        return int(model.first_concurrency)

    with speaking(talk) as url:
        model: Any = load_model("openai-chat", {"model": "m", "base_url": url})
        assert asyncio.run(work()) == 3
    assert not model.answers_repeats, "it counts the tokens of one answer of several"
    assert [path for path in paths if "/props" in path] == [path for path in paths if path.endswith(" /props")]
    assert len({path.split()[0] for path in paths[-3:]}) == 3


def test_a_run_begins_with_few_requests_at_once_where_a_server_says_nothing() -> None:
    model: Any = load_model("openai-chat", {"model": "m", "base_url": "http://127.0.0.1:1/v1"})
    window = ConcurrencyWindow(model.concurrency, model.first_concurrency)
    assert window.size == 4
    for _ in range(64):
        window.on_answer(0.1)
    assert window.size == 32
