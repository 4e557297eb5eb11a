"""Answers of servers have a maximum size, and are decoded strictly: whatever exceeds that fails its document, in words."""

import asyncio
import gc
import gzip
import json
import socketserver
import threading
import weakref
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from assay.engine.retry import Retrier, RetryLimits
from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED
from assay.models.protocol import PermanentError, RetryableError
from assay.models.servers.bodies import MB, BodyReader, SharedMemory
from assay.models.servers.http import _retry_after
from assay.models.servers.litellm import AnswerRules
from assay.models.servers.reading import is_same_model, refuse_other_text
from assay.models.servers.server_model import Connection, ServerModel
from assay.records import Failed, Generate, Loglikelihood, Text
from commands import Run
from run_world import failed_in
from serving import Arrived, loopback
from small_runs import write_task
from test_malformed_answers import CLAUDE, LIKELIHOODS, REWARD, TASK, WHOLE, run
from test_protocols import PLAIN, ask

SHORT = Generate("q", {**PLAIN, "max_gen_toks": 32})
BACKENDS: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "completions": ("openai", SHORT, WHOLE, {}),
    "chat": ("openai-chat", SHORT, WHOLE, {}),
    "anthropic": ("anthropic", SHORT, CLAUDE, {}),
    "log-likelihoods": ("openai", Loglikelihood("a", "b"), LIKELIHOODS, {}),
    "reward": ("reward-http", Loglikelihood("a", "b"), REWARD, {}),
    "litellm": ("litellm", SHORT, WHOLE, {"model": "openai/m", "api_key": "k"}),
}
STREAM = {"Content-Type": "text/event-stream"}


def padded(answer: Any, size: int) -> bytes:
    """An answer with a key that makes it so long."""
    return json.dumps({**answer, "padding": "x" * size}).encode()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_packed", [True, False])
def test_an_answer_above_the_limit_fails(backend: str, is_packed: bool) -> None:
    name, request, answer, own = BACKENDS[backend]
    data = padded(answer, 3_000_000)
    said = (200, {"Content-Encoding": "gzip"}, gzip.compress(data)) if is_packed else data
    with loopback(lambda _: said) as (url, _):
        response = ask(name, url, request, max_response_mb=2, **own)
        assert isinstance(response, Failed)
        assert "the limit is 2 MB" in response.reason
        assert not isinstance(ask(name, url, request, max_response_mb=4, **own), Failed)


def packed_twice(data: bytes) -> bytes:
    return gzip.compress(data[:9]) + gzip.compress(data[9:])


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("gzip", packed_twice),
        ("deflate", zlib.compress),
        ("deflate", raw),
        ("identity", bytes),
    ],
    ids=["gzip", "two gzips", "deflate", "deflate without a header", "identity"],
)
@pytest.mark.parametrize("size", [0, 700_000])
def test_compressed_answers_are_read(encoding: str, pack: Any, size: int) -> None:
    data = pack(padded(WHOLE, size))
    with loopback(lambda _: (200, {"Content-Encoding": encoding}, data)) as (url, arrived):
        assert ask("openai", url, SHORT).text == "x"
        assert arrived[-1].headers["Accept-Encoding"] == "gzip, deflate"


def test_a_compressed_stream_is_read() -> None:
    events = b'data: {"choices": [{"index": 0, "text": "x", "finish_reason": null}]}\n\n' * 2
    events += b'data: {"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}\n\n'
    with loopback(lambda _: (200, {**STREAM, "Content-Encoding": "gzip"}, gzip.compress(events))) as (url, _):
        assert ask("openai", url, SHORT, stream=True).text == "xxx"


@pytest.mark.parametrize(
    ("encoding", "data", "words"),
    [
        (
            "gzip",
            gzip.compress(padded(WHOLE, 9), mtime=0)[:-9],
            "ended early",
        ),  # or each worker has a name of its own for it
        ("gzip", b"\x1f\x8bnonsense", "cannot be decompressed"),
        ("gzip", b"", "not JSON"),
    ],
)
def test_a_damaged_compressed_answer_is_retried(encoding: str, data: bytes, words: str) -> None:
    with (
        loopback(lambda _: (200, {"Content-Encoding": encoding}, data)) as (url, _),
        pytest.raises(RetryableError, match=words),
    ):
        ask("openai", url, SHORT)


def test_an_encoding_that_was_not_asked_for_fails() -> None:
    with loopback(lambda _: (200, {"Content-Encoding": "br"}, b"x")) as (url, _):
        assert "Content-Encoding 'br'" in ask("openai", url, SHORT).reason


# streams and texts, by the tokens that were asked for


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("openai", {"choices": [{"index": 0, "text": "word "}]}),
        ("openai", {"choices": []}),
        ("openai-chat", {"choices": [{"index": 0, "delta": {"reasoning_content": "hm "}}]}),
        ("anthropic", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word "}}),
        ("anthropic", {"type": "ping"}),
    ],
)
def test_an_endless_stream_fails(name: str, event: Any) -> None:
    line = b"data: %s\n\n" % json.dumps(event).encode()
    data = line * (1000 + 16 * 32 + 1)  # so many events are more than 32 tokens may take
    with loopback(lambda _: (200, STREAM, data)) as (url, _):
        response = ask(name, url, SHORT, stream=True)
    assert isinstance(response, Failed)
    assert "tokens that were asked for" in response.reason


def test_an_endless_line_of_a_stream_fails() -> None:
    with loopback(lambda _: (200, STREAM, b"data: " + b"x" * 3_000_000)) as (url, _):
        assert "did not end" in ask("openai", url, SHORT, stream=True).reason


def test_a_stream_of_long_events_fails() -> None:
    line = b"data: %s\n\n" % json.dumps({"choices": [], "padding": "x" * 100_000}).encode()
    with loopback(lambda _: (200, STREAM, line * 12)) as (url, _):  # 32 tokens may take 2**20 + 32 * 4096 bytes
        assert "did not end" in ask("openai", url, SHORT, stream=True).reason


def test_a_stream_of_an_event_for_each_letter_is_read() -> None:
    line = b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "text": "x"}]}).encode()
    end = b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}).encode()
    with loopback(lambda _: (200, STREAM, line * 1500 + end)) as (url, _):
        assert len(ask("openai", url, SHORT, stream=True).text) == 1500


@pytest.mark.parametrize("name", ["openai", "openai-chat", "anthropic"])
def test_a_text_that_is_longer_than_its_tokens_can_be_fails(name: str) -> None:
    text = "x" * (2**20 + 32 * 256 + 1)
    choice = {"text": text, "message": {"content": text}, "finish_reason": "stop"}
    answer = {"choices": [choice], "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    with loopback(lambda _: answer) as (url, _):
        assert "cannot be so long" in ask(name, url, SHORT).reason
        assert len(ask(name, url, Generate("q", {**PLAIN, "max_gen_toks": 33})).text) == len(text)


def test_an_answer_of_too_many_values_fails() -> None:
    data = b'{"choices": [' + b"[]," * (2**20 + 1) + b"[]]}"
    with loopback(lambda _: data) as (url, _):
        assert "values" in ask("openai", url, SHORT).reason


def test_only_the_beginning_of_an_error_is_read() -> None:
    with loopback(lambda _: (400, {}, b"no! " * 10**6)) as (url, _):
        assert ask("openai", url, SHORT).reason.startswith("HTTP 400: no! no!")


def test_large_bodies_wait_for_their_part_of_the_memory() -> None:
    async def work() -> list[str]:
        memory, log = SharedMemory(), list[str]()
        memory.grow_to(96)

        async def body(name: str, size: int) -> None:
            await memory.take(size)
            log.append(name)
            await asyncio.sleep(0.01)
            memory.give(size)

        first, second, third = (
            asyncio.create_task(body(*each)) for each in (("first", 64), ("second", 64), ("third", 32))
        )
        await asyncio.sleep(0)
        assert log == ["first"]  # the third would fit, and waits its turn
        second.cancel()
        await asyncio.gather(first, third)
        assert (memory.free, memory.size) == (96, 96)
        return log

    assert asyncio.run(work()) == ["first", "third"]


def test_large_bodies_at_once_are_all_read(tmp_path: Path) -> None:
    """40 answers of 1.2 MB, of which each reserves 2 of 3 MB: they are read one after another."""
    write_task(tmp_path, [{"q": f"{n}", "gold": "x"} for n in range(40)], TASK)
    data = gzip.compress(padded(WHOLE, 1_200_000), 1)
    with loopback(lambda _: (200, {"Content-Encoding": "gzip"}, data)) as (url, _):
        results = run(tmp_path, url, max_response_mb=2)
    assert failed_in(results) == 0


def test_memory_that_is_not_there_fails_the_document() -> None:
    class Large(ServerModel):
        async def generate(self, request: Generate) -> Text:
            raise MemoryError

    model = Large("m", Connection(base_url=("http://127.0.0.1:1",)))
    assert "memory" in asyncio.run(model.ask(SHORT)).reason  # type: ignore[union-attr]


# names, reasons, numbers


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_name_of_another_model_is_noted(backend: str) -> None:
    name, request, answer, own = BACKENDS[backend]
    for said, noted in (
        ("m", ""),
        (None, ""),
        ("hub/m-20250101", ""),
        ("other", "other"),
        ("o\x1b[2J" * 90, ("o?[2J" * 20)),
    ):
        with loopback(lambda _, said=said: {**answer, "model": said}) as (url, _):
            assert ask(name, url, request, **own).model == noted
    with (
        loopback(lambda _: {**answer, "model": 5}) as (url, _),
        pytest.raises(RetryableError, match="model"),
    ):
        ask(name, url, request, **own)


def test_the_name_of_another_model_is_noted_in_streams() -> None:
    choice = {"index": 0, "text": "x", "finish_reason": "stop"}
    claude = [
        {"type": "message_start", "message": {"model": "other"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ]
    for name, events in (("openai", [{"model": "other", "choices": [choice]}]), ("anthropic", claude)):
        data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
        with loopback(lambda _, data=data: (200, STREAM, data)) as (url, _):
            assert ask(name, url, SHORT, stream=True).model == "other"


def test_responses_of_another_model_are_counted_and_shown(tmp_path: Path, run_assay: Run) -> None:
    write_task(tmp_path, [{"q": f"{n}", "gold": "x"} for n in range(5)], TASK)

    def answer(arrived: Arrived) -> Any:
        prompt = json.loads(arrived.body or b"{}").get("prompt", "")
        return {**WHOLE, "model": "other" if prompt in ("1", "3") else "m"}

    with loopback(answer) as (url, arrived):
        results = run(tmp_path, url)
        assert results["assay"]["usage"]["other_models"] == {"other": 2}
        before = len(arrived)
        again = run_assay(
            "run", "--tasks", "t", "--include_path", tmp_path, "--no_defaults", "--model", "openai",
            "--model_args", f"model=m,base_url={url},max_retries=1", "-o", tmp_path / "run",
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
        assert sum(b"quick brown" not in each.body for each in arrived[before:] if each.method == "POST") == 0
    assert "another model answered ('other': 2)" in again.stderr


@pytest.mark.parametrize(
    ("asked", "named", "is_same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True), ("gpt-4", "gpt-4-0613", True), ("gpt-4", "gpt-4-turbo", False),
        ("gpt-4", "gpt-4o", False), ("gpt-4", "gpt-4.1", False), ("llama-3", "llama-3-70b", False),
        ("openai/gpt-4o", "gpt-4o", True), ("Qwen/Qwen2-7B", "/models/qwen2-7b/", True), ("llama3", "llama3:latest", True),
        ("claude-x-latest", "claude-x-20241022", True), ("claude-x", "claude-x@20240620", True), ("m", "", False),
    ],
)  # fmt: skip
def test_a_date_or_a_folder_does_not_make_another_model(asked: str, named: str, is_same: bool) -> None:
    assert is_same_model(asked, named) is is_same


@pytest.mark.parametrize("reason", ["abort", "error", "x" * 101])
def test_an_answer_that_was_broken_off_is_retried(reason: str) -> None:
    answer = {"choices": [{"text": "x", "finish_reason": reason}]}
    with loopback(lambda _: answer) as (url, _), pytest.raises(RetryableError, match="finish_reason"):
        ask("openai", url, SHORT)


def test_more_answers_than_were_asked_for_are_retried() -> None:
    with (
        loopback(lambda _: {"choices": WHOLE["choices"] * 2}) as (url, _),
        pytest.raises(RetryableError, match="2 answers"),
    ):
        ask("openai", url, SHORT)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_that_is_not_text_is_retried(field: str) -> None:
    answer = {"choices": [{"message": {"content": "x", field: ["hm"]}, "finish_reason": "stop"}]}
    with loopback(lambda _: answer) as (url, _), pytest.raises(RetryableError, match="reasoning"):
        ask("openai-chat", url, SHORT)


@pytest.mark.parametrize("rank", [True, "1", 1.0, []])
def test_an_invalid_rank_fails(rank: Any) -> None:
    def answer(arrived: Arrived) -> Any:
        sent = json.loads(arrived.body)["prompt"]
        listed = [None, *({str(token): {"logprob": -1.0, "rank": rank}} for token in sent[1:])]
        return {"choices": [{"prompt_logprobs": listed}]}

    with loopback(answer) as (url, _):
        said = ask("openai", url, Loglikelihood("a", "b"), tokenizer=str(BUNDLED), likelihoods="prompt")
    assert isinstance(said, Failed)
    assert "rank" in said.reason


@pytest.mark.parametrize("written", ["nan", "NaN", "-nan", "soon", "Mon, 01 Jan 0001 00:00:00 GMT"])
def test_an_invalid_retry_after_is_ignored(written: str) -> None:
    assert _retry_after(written) in (None, 0.0)


# addresses


def test_a_file_without_certificates_is_a_problem_of_its_argument(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    for path in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=r"ca_cert_path: .*\.pem cannot be read as certificates"):
            ask("openai", "https://127.0.0.1:9/v1", SHORT, ca_cert_path=str(path))


@pytest.mark.parametrize(
    "url",
    ["notaurl", "ftp://a/v1", "http:///v1", "http://h:99999/v1", "http://h:0/v1", "http://h:8o/v1", "http://[::1:80/v1",
     "http://exa mple.com/v1", "http://a..b/v1", "http://-x/v1", f"http://{'a' * 64}.com/v1", "http://h:80 /v1",
     "http://h/v 1", "http://h\n/v1", "http://h/v1\r\nX: y", "http://%zz/v1", "http://\x00/v1", "http://999.1.1.1/v1",
     "http://h/v1#part", " http://h/v1", "http://.", "http://*/v1", "http://h\\x/v1", "http://h,i/v1", "http://<host>/v1",
     "http://${HOST}/v1", f"http://{'a.' * 130}com", "http://1.2.3/v1", "//h/v1"],
)  # fmt: skip
def test_an_invalid_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="invalid server address"):
        load_model("openai", {"model": "m", "base_url": [url]})


@pytest.mark.parametrize(
    "url",
    ["http://h/v1", "HTTPS://h.example:8443/v1?sig=a%20b", "http://127.0.0.1:8000", "http://[::1]:80/v1", "http://a_b-c/v1",
     "http://user:p%40ss@h/v1", "http://exämple.com/v1", "http://h./v1", "http://localhost/a/b/v1/", "http://[fe80::1%25eth0]/"],
)  # fmt: skip
def test_valid_addresses_are_accepted(url: str) -> None:
    load_model("openai", {"model": "m", "base_url": [url]})


# answers that never end, a few bytes at a time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
EMPTY_BLOCK = b"5\r\n\0\0\0\xff\xff\r\n"
"""Of a compressed stream: it gives nothing."""
PACKED = gzip.compress(b"", mtime=0)[:10]
DRIPS = {
    "headers": (HEAD % b"application/json", b"X: y\r\n"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "an error": (b"HTTP/1.1 500 Oops\r\n" + CHUNKED, b"1\r\nx\r\n"),
    "JSON": (HEAD % b"application/json" + CHUNKED, b"1\r\n \r\n"),
    "trailers": (HEAD % b"text/event-stream" + CHUNKED + b"0\r\n", b"X: y\r\n"),
    "empty blocks": (
        HEAD % b"text/event-stream" + b"Content-Encoding: gzip\r\n" + CHUNKED + b"a\r\n" + PACKED + b"\r\n",
        EMPTY_BLOCK,
    ),
}


@contextmanager
def dripping(first: bytes, drop: bytes) -> Iterator[str]:
    """A server that sends the first bytes, and then a few more each 20 ms for ever."""
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(2**16)
            with suppress(OSError):
                self.request.sendall(first)
                while not ended.wait(0.02):
                    self.request.sendall(drop)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        ended.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("backend", ["openai", "openai-chat", "anthropic"])
@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.server
def test_a_streamed_answer_that_comes_byte_by_byte_without_end_has_a_time_limit(drip: str, backend: str) -> None:
    with dripping(*DRIPS[drip]) as url, pytest.raises(RetryableError, match=r"no answer within"):
        ask(backend, url, SHORT, timeout=0.2, stream=True)


@pytest.mark.server
def test_litellm_has_a_time_limit_for_a_whole_answer() -> None:
    with dripping(*DRIPS["JSON"]) as url, pytest.raises(RetryableError, match=r"no answer within"):
        ask("litellm", url, SHORT, timeout=0.5, model="openai/m", api_key="key")


def test_bodies_of_litellm_share_their_memory_with_others() -> None:
    """Those of 1 MB and more reserve the limit of 2 MB; 3 MB are shared, so that there is one at a time."""
    held: list[int] = []

    async def work() -> None:
        rules = [AnswerRules(BodyReader(2 * MB, 4), 60.0) for _ in range(3)]
        memory = rules[0]._bodies._memory

        class Answer:
            async def aiter_bytes(self) -> AsyncIterator[bytes]:
                for _ in range(15):
                    held.append(memory.size - memory.free)
                    await asyncio.sleep(0)
                    yield b"x" * 10**5

            async def aclose(self) -> None:
                return None

        async def answer(rule: AnswerRules) -> None:
            await rule.read(Answer())
            rule.release()

        await asyncio.gather(*map(answer, rules))
        assert memory.free == memory.size == 3 * MB

    asyncio.run(work())
    assert max(held) == 2 * MB


def test_a_long_text_is_not_taken_for_a_short_one_because_it_has_all_pieces_of_it() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    long = "".join(one + other for one in letters for other in letters) * 3000  # 4 million characters: all pairs
    with pytest.raises(PermanentError, match="a different text"):
        refuse_other_text({"choices": [{"text": long}]}, {"tokens": [1]}, "yes or no?", is_exact=False)


def test_an_error_that_waits_for_its_next_attempt_does_not_keep_the_answer() -> None:
    kept: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    class Body(bytearray):
        """One that can be seen to be gone."""

    async def send(requests: Any) -> Any:
        alive.extend(ref() is not None for ref in kept)
        body = Body(b"x")
        kept.append(weakref.ref(body))
        try:
            raise KeyError("choices")
        except KeyError:
            raise RetryableError("not of the protocol") from None

    gc.disable()
    try:
        asyncio.run(Retrier(send, limits=RetryLimits(attempts=3, first_wait=0.001)).answer([SHORT]))
    finally:
        gc.enable()
    assert alive == [False, False, False]  # at the second attempt one, at the third two
