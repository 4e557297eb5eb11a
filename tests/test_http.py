"""Models behind servers: a real server on loopback that misbehaves on request, and one over `transformers` for the truth."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import AssayError, ConfigError
from assay.models import Scripted
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED
from assay.models.servers.openai import OpenAIServer
from run_world import failed_in
from serving import RESET, TRUTH, Answer, Arrived, Servers, fetched, free_port, loopback
from small_runs import write_task

GENERATE = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {until: []}\n"
Serve = Servers


@pytest.fixture
def serve() -> Iterator[Servers]:
    """Starts a server and gives its address; ended by process id when the test is over."""
    servers = Servers()
    yield servers
    servers.end()


def stats(url: str) -> dict[str, Any]:
    data: dict[str, Any] = fetched(url, "/stats")
    return data


def evaluate(
    folder: Path, url: Any, rows: int = 40, reported: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    write_task(folder, [{"q": f"question {n}", "gold": "text 12\n#### 42"} for n in range(rows)], GENERATE)
    arguments = {"model": "stub", "base_url": url, "num_concurrent": 16, **(reported or {})}
    return assay.simple_evaluate(
        "local-completions", arguments, tasks=["t"], include_path=str(folder), include_defaults=False, **options
    )


def test_a_server_is_asked_once_for_each_document(serve: Serve, tmp_path: Path) -> None:
    url = serve()
    results = evaluate(tmp_path, url)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert stats(url)["requests"] == 42  # and the greeting, twice


def test_the_address_may_be_the_endpoint_as_in_lm_eval(serve: Serve, tmp_path: Path) -> None:
    assert evaluate(tmp_path, serve() + "/completions", rows=3)["results"]["t"]["exact_match,none"] == 1.0


def test_several_servers_share_the_work(serve: Serve, tmp_path: Path) -> None:
    urls = [serve("--latency", 5), serve("--latency", 5)]
    evaluate(tmp_path, urls)
    assert all(stats(url)["requests"] > 5 for url in urls)


def test_a_server_that_only_fails_is_set_aside_where_there_are_others(serve: Serve, tmp_path: Path) -> None:
    """It fails at once, and so would always be the least loaded."""
    good, bad = serve("--latency", 5), serve("--latency", 5, "--fail-if", "question")
    results = evaluate(tmp_path, [good, bad], rows=200)
    assert failed_in(results) == 0
    assert stats(bad)["errors"] < 50


def test_servers_that_are_not_one_model_are_refused(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="different models"):
        evaluate(tmp_path, [serve("--answer", "one"), serve("--answer", "two")])


def test_retry_after_may_be_a_date() -> None:
    from email.utils import formatdate

    from assay.models.servers.http import _retry_after

    assert 5 < (_retry_after(formatdate(time.time() + 10, usegmt=True)) or 0) <= 10
    assert (_retry_after("3"), _retry_after("soon"), _retry_after("-1"), _retry_after(None)) == (3.0, None, 0.0, None)


@pytest.mark.parametrize(
    "fault", [("--p500", 0.3), ("--malformed", 7), ("--truncate", 9)], ids=["500", "malformed", "truncated"]
)
def test_every_document_is_answered_through_faults(fault: tuple[object, ...], serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    quick(monkeypatch)
    results = evaluate(tmp_path, serve(*fault))
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert failed_in(results) == 0


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter waits, so that the suite is not spent on them."""
    from assay.engine import lanes, retry

    limits = retry.RetryLimits(first_wait=0.02, max_wait=0.1)
    monkeypatch.setattr(lanes, "RetryLimits", lambda: limits)
    monkeypatch.setattr(retry, "RetryLimits", lambda: limits)


def test_retry_after_is_honoured(serve: Serve, tmp_path: Path) -> None:
    """A quarter of all answers says to come back in a second: a document waits at least that long, and none is lost."""
    url = serve("--p429", 0.25)
    start = time.monotonic()
    results = evaluate(tmp_path, url, rows=20)
    assert failed_in(results) == 0
    assert time.monotonic() - start >= 1.0
    assert stats(url)["answered"] == 22


def test_a_request_that_fails_for_good_fails_its_document_and_not_the_run(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    quick(monkeypatch)
    results = evaluate(tmp_path, serve("--fail-if", 'question 3"'), rows=6)
    assert results["assay"]["tasks"]["t"]["failed"] == 1
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "HTTP 500: boom (after 8 attempts)" in reason
    assert results["results"]["t"]["sample_len"] == 5


def test_an_unreachable_server_is_an_error_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unreachable"):
        evaluate(tmp_path, f"http://127.0.0.1:{free_port()}/v1")


def is_up(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_that_dies_is_waited_for_and_nothing_answered_is_asked_again(serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    url = serve("--latency", 10, "--die", 30, port=port)
    write_task(tmp_path, [{"q": f"question {n}", "gold": "x"} for n in range(60)], GENERATE)
    command = [
        sys.executable, "-m", "assay", "run", "--tasks", "t", "--include_path", str(tmp_path), "--no_defaults", "--model",
        "local-completions", "--model_args", f"model=stub,base_url={url},num_concurrent=8", "-o", str(tmp_path / "run"),
    ]  # fmt: skip
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while is_up(port):
        assert time.monotonic() < end, "the server never died"
        time.sleep(0.05)
    serve("--latency", 10, port=port)
    assert run.wait(60) == 0
    _, *lines = [json.loads(line) for line in (tmp_path / "run/responses.jsonl").read_text().splitlines()]
    answered = [line["k"] for line in lines if "text" in line["r"]]
    assert len(answered) == len(set(answered)) == 60


def test_another_model_at_the_same_address_is_refused(serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    url = serve("--answer", "one", port=port)
    evaluate(tmp_path, url, rows=3, output_path=str(tmp_path / "run"))
    serve.end()
    serve("--answer", "two", port=port)
    with pytest.raises(AssayError, match="another run"):
        evaluate(tmp_path, url, rows=3, output_path=str(tmp_path / "run"))


def test_a_chat_model_is_asked_in_messages_and_refused_likelihoods(serve: Serve, tmp_path: Path) -> None:
    url = serve()
    arguments = {"model": "stub", "base_url": url}
    write_task(tmp_path, [{"q": "a", "gold": "text 12\n#### 42"}], GENERATE)
    results = assay.simple_evaluate(
        "local-chat-completions", arguments, tasks=["t"], include_path=str(tmp_path), include_defaults=False,
        apply_chat_template=True, system_instruction="Be brief.",
    )  # fmt: skip
    assert results["results"]["t"]["exact_match,none"] == 1.0
    sent = json.loads(results["samples"]["t"][0]["arguments"][0][0])
    assert sent == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]
    with pytest.raises(ConfigError, match=r"first_steps_larger@generate"):
        assay.simple_evaluate("local-chat-completions", arguments, tasks=["first_steps_larger"])


def test_a_key_reaches_the_server_and_no_file(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-4711")
    evaluate(tmp_path, serve(), rows=2, output_path=str(tmp_path / "run"))
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"canary" not in file.read_bytes()


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_a_real_server_gives_the_same_answers_as_the_local_model(with_tokenizer: bool, serve: Serve) -> None:
    url = serve(BUNDLED, script=TRUTH)
    tasks = ["first_steps_larger", "first_steps_plurals", "first_steps_sums", "first_steps_stories"]
    more = {"tokenizer": str(BUNDLED), "max_length": 1024} if with_tokenizer else {}
    arguments = {"model": "embedded", "base_url": url, **more}
    there = assay.simple_evaluate("local-completions", arguments, tasks=tasks, limit=6)
    here = assay.simple_evaluate("embedded", tasks=tasks, limit=6)
    for task in tasks:
        for ours, theirs in zip(here["samples"][task], there["samples"][task], strict=True):
            if (
                task != "first_steps_stories" or with_tokenizer
            ):  # without one, a text's first token has no log-likelihood
                assert same(ours["resps"], theirs["resps"]), (task, ours["resps"], theirs["resps"])


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float):
        return bool(ours == pytest.approx(theirs, abs=2e-3))
    if isinstance(ours, list | tuple):
        return all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


def test_names_and_arguments_of_lm_eval_are_known() -> None:
    for name in (
        "openai",
        "local-completions",
        "local-chat-completions",
        "openai-completions",
        "openai-chat-completions",
    ):
        model = load_model(name, {"model": "m", "base_url": "http://127.0.0.1:1/v1", "num_concurrent": 4})
        assert isinstance(model, OpenAIServer)
    with pytest.raises(ConfigError, match="num_concurrent"):
        load_model("openai", {"model": "m", "num_concurent": 4})
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        load_model("openai", {"model": "m", "tokenizer": "nowhere"})


def test_a_notebook_may_evaluate_inside_its_loop() -> None:
    import asyncio

    async def cell() -> dict[str, Any]:
        model = Scripted(loglikelihood=lambda context, text: (-1.0, True))
        return assay.simple_evaluate(model, tasks=["first_steps_larger"], limit=2)

    assert asyncio.run(cell())["n-samples"]["first_steps_larger"]["effective"] == 2


def poisoned(down: float = 0.0) -> tuple[Answer, list[str]]:
    """A server that resets the connection at one prompt, and for a while all others, too; and what was asked."""
    asked: list[str] = []
    until = [0.0]

    def answer(arrived: Arrived) -> Any:
        prompt = json.loads(arrived.body or b"{}").get("prompt", "")
        asked.append(prompt)
        if "question 3" in prompt:
            until[0] = time.monotonic() + down
            return RESET
        if time.monotonic() < until[0]:
            return RESET
        return {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}

    return answer, asked


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_prompt_at_which_the_server_resets_the_connection_is_asked_so_often_and_fails(
    at_once: int, attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    answer, asked = poisoned()
    with loopback(answer) as (url, _):
        results = evaluate(tmp_path, url, rows=8, reported={"num_concurrent": at_once, "max_retries": attempts})
    assert results["assay"]["tasks"]["t"]["failed"] == 1
    assert f"after {attempts} attempts" in str(results["assay"]["tasks"]["t"]["reasons"])
    assert results["results"]["t"]["sample_len"] == 7
    assert asked.count("question 3") == attempts
    assert all(asked.count(f"question {n}") == 1 for n in range(8) if n != 3)


@pytest.mark.parametrize("at_once", [1, 8])
def test_a_prompt_that_takes_the_server_down_each_time_is_not_asked_for_ever(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    answer, asked = poisoned(down=0.15)
    with loopback(answer) as (url, _):
        results = evaluate(tmp_path, url, rows=8, reported={"num_concurrent": at_once, "max_retries": 3})
    assert asked.count("question 3") <= 3 * at_once
    assert "question 3" not in str([sample["doc"] for sample in results["samples"]["t"]])
    if at_once == 1:  # else others were under way with it each time
        assert results["results"]["t"]["sample_len"] == 7


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("attempts", [1, 2, 8])
def test_a_server_that_is_unreachable_for_a_while_loses_nothing(
    at_once: int, attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    seen: list[float] = []
    down: list[float] = []

    def answer(arrived: Arrived) -> Any:
        seen.append(time.monotonic())
        if len(seen) == 10:  # the first three greet
            down.append(time.monotonic() + 0.4)
        return RESET if down and time.monotonic() < down[0] else {"choices": [{"text": "x", "finish_reason": "stop"}]}

    with loopback(answer) as (url, _):
        results = evaluate(tmp_path, url, rows=20, reported={"num_concurrent": at_once, "max_retries": attempts})
    assert failed_in(results) == 0
    assert results["results"]["t"]["sample_len"] == 20


def test_a_server_that_is_not_there_costs_no_document_where_there_is_another(serve: Serve, tmp_path: Path) -> None:
    good, port = serve(), free_port()
    missing = serve(port=port)
    model: Any = load_model(
        "openai", {"model": "stub", "base_url": [missing, good], "max_retries": 1, "num_concurrent": 1}
    )
    asyncio.run(model.greet())
    serve._started[-1].kill()
    serve._started[-1].wait()

    async def nothing() -> None:
        """It was greeted when both were there."""

    model.greet = nothing
    write_task(tmp_path, [{"q": f"question {n}", "gold": "x"} for n in range(30)], GENERATE)
    results = assay.simple_evaluate(model, tasks=["t"], include_path=str(tmp_path), include_defaults=False)
    assert failed_in(results) == 0
