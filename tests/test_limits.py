"""What a run may take and what it took: money, time, failures, and the account of all that."""

import json
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.engine.lanes import Budget
from assay.engine.usage import RunUsage, percentile
from assay.errors import ConfigError
from assay.models import Scripted
from assay.models.local.embedded import BUNDLED, Embedded
from assay.models.servers.server_model import Price
from assay.records import LIMITS, FilterScores, Text, Usage
from assay.runs.key_index import KeyIndex
from assay.statistics.board import Board
from commands import Run
from run_world import failed_in
from serving import TALKING, Servers, fetched
from small_runs import write_task

TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {until: [], max_gen_toks: 50}\n"


@pytest.fixture
def serve() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.end()


def rows(count: int, **options: Any) -> list[dict[str, Any]]:
    """Different questions that instruct the server."""
    return [{"q": json.dumps({"say": "yes", "n": number, **options}), "gold": "yes"} for number in range(count)]


def evaluate(folder: Path, url: str, documents: list[dict[str, Any]], args: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:  # fmt: skip
    write_task(folder, documents, TASK)
    arguments = {"model": "m", "base_url": url, "num_concurrent": 4, **(args or {})}
    return assay.simple_evaluate(
        "local-chat-completions", arguments, tasks=["t"], include_path=str(folder), include_defaults=False, **options
    )


def test_usage_is_what_the_server_reported(serve: Servers, tmp_path: Path) -> None:
    url = serve(script=TALKING)
    documents = [*rows(3, usage=[100, 10, 0]), {"q": json.dumps({"say": "no", "usage": [50, 5, 20]}), "gold": "yes"}]
    result = evaluate(tmp_path, url, documents, {"price_in": 2.0, "price_out": 10.0})["assay"]["usage"]
    assert result["requests"] == 4
    assert result["tokens"] == {"in": 350, "out": 35, "in_from_cache": 20}
    assert result["cost"] == pytest.approx((350 * 2 + 35 * 10) / 1e6)
    assert result["tasks"]["t"]["tokens"] == result["tokens"]
    assert 0 < result["seconds"]["p50"] <= result["seconds"]["p99"] < 60


def test_prices_are_read_from_a_file(serve: Servers, tmp_path: Path) -> None:
    url = serve(script=TALKING)
    (tmp_path / "prices.yaml").write_text("m: {in: 2, out: 10, stored: 1}\n")
    results = evaluate(tmp_path, url, rows(2, usage=[50, 5, 20]), {"prices": str(tmp_path / "prices.yaml")})
    assert results["assay"]["usage"]["cost"] == pytest.approx(2 * (30 * 2 + 20 * 1 + 5 * 10) / 1e6)
    (tmp_path / "prices.yaml").write_text("n: {in: 2, out: 10}\n")
    with pytest.raises(ConfigError, match="no price for 'm'"):
        evaluate(tmp_path, url, rows(2), {"prices": str(tmp_path / "prices.yaml")})
    (tmp_path / "prices.yaml").write_text("m: {in: 2, aut: 10}\n")
    with pytest.raises(ConfigError, match="invalid price"):
        evaluate(tmp_path, url, rows(2), {"prices": str(tmp_path / "prices.yaml")})


def test_requests_asked_again_are_counted(serve: Servers, tmp_path: Path) -> None:
    results = evaluate(tmp_path, serve(script=TALKING), rows(3, fail_first=2))
    assert results["assay"]["usage"]["retries"] == 6
    assert failed_in(results) == 0


def test_money_has_a_limit_that_is_kept(serve: Servers, tmp_path: Path) -> None:
    """A request costs 50 output tokens at most and 10 in fact: 0.0005 and 0.0001. So the limit of 0.0031 is never passed,
    and nearly reached."""
    url = serve(script=TALKING)
    prices = {"price_in": 0.0, "price_out": 10.0}
    results = evaluate(
        tmp_path, url, rows(100, usage=[0, 10, 0]), prices, max_cost=0.0031, output_path=str(tmp_path / "run")
    )
    own = results["assay"]
    assert own["status"] == "partial"
    assert own["ended"].startswith("max_cost")
    assert 0.0026 <= own["usage"]["cost"] <= 0.0031
    assert own["tasks"]["t"]["not_asked"] == 100 - own["tasks"]["t"]["documents"] > 60
    more = evaluate(tmp_path, url, rows(100, usage=[0, 10, 0]), prices, max_cost=1.0, output_path=str(tmp_path / "run"))
    assert more["assay"]["status"] == "complete"
    assert more["assay"]["usage"]["cost"] == pytest.approx(100 * 10 * 10 / 1e6)  # of both parts together
    asked = [each["body"]["messages"][-1]["content"] for each in fetched(url, "/log")]
    assert len(asked) == 100 + 4  # two greetings each time; nothing answered was asked again


def test_a_limit_of_money_needs_prices(serve: Servers, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="price_in"):
        evaluate(tmp_path, serve(script=TALKING), rows(2), max_cost=1.0)


def test_time_has_a_limit(serve: Servers, tmp_path: Path) -> None:
    results = evaluate(tmp_path, serve(script=TALKING), rows(400, pieces=3, pause=0.1), {"stream": True}, max_time=1.0)
    assert results["assay"]["status"] == "partial"
    assert 4 <= results["assay"]["tasks"]["t"]["documents"] < 400
    assert failed_in(results) == 0


def test_time_has_a_limit_for_local_models_too(tmp_path: Path) -> None:
    def slow(prompt: str, params: dict[str, object], repeat: int) -> str:
        time.sleep(0.01)
        return "yes"

    write_task(tmp_path, rows(300), TASK)
    model = Scripted(generate=slow)
    model.window = 16
    results = assay.simple_evaluate(
        model, tasks=["t"], include_path=str(tmp_path), include_defaults=False, max_time=0.5
    )
    assert results["assay"]["status"] == "partial"
    assert 16 <= results["assay"]["tasks"]["t"]["documents"] < 300
    assert results["results"]["t"]["exact_match,none"] == 1.0


def test_failures_have_a_limit(serve: Servers, tmp_path: Path) -> None:
    documents = rows(50, status=400)
    results = evaluate(tmp_path, serve(script=TALKING), documents, max_failures=5)
    assert results["assay"]["ended"] == "max_failures: 5 requests failed"
    assert 5 <= results["assay"]["tasks"]["t"]["failed"] <= 5 + 2 * 4  # and what had left by then


def test_a_partial_run_says_so_and_has_its_own_exit_code(serve: Servers, tmp_path: Path, run_assay: Run) -> None:
    url = serve(script=TALKING)
    write_task(tmp_path, rows(50, status=400), TASK)
    command = [
        "run", "--tasks", "t", "--include_path", tmp_path, "--no_defaults", "--model", "openai-chat", "--model_args",
        f"model=m,base_url={url}", "--max_failures", "5", "-o", tmp_path / "run",
    ]  # fmt: skip
    done = run_assay(*command)
    assert done.returncode == 3, done.stderr
    assert "ended early: max_failures" in done.stderr
    assert "documents were not asked" in done.stderr
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["status"] == "partial"
    for flags in (["--max_time", "soon"], ["--max_cost", "1"], ["--model_role", "judge"], ["--max_failures", "0"]):
        assert run_assay(*command, *flags).returncode == 2


def test_the_foot_of_the_table_shows_time_tokens_and_cost(serve: Servers, tmp_path: Path, run_assay: Run) -> None:
    url = serve(script=TALKING)
    write_task(tmp_path, rows(4, usage=[1000, 10, 0], finish="length"), TASK)
    model_args = f"model=m,base_url={url},price_in=2,price_out=10"
    command = ["run", "--tasks", "t", "--include_path", tmp_path, "--no_defaults", "--model", "openai-chat"]
    shown = run_assay(*command, "--model_args", model_args)
    assert "requests: 4 answered; tokens: 4,000 in, 40 out; cost: 0.008400" in shown.stderr
    assert "cut off at the token limit: 4 of 4 documents (100.0 %)" in shown.stderr


def test_reserved_cost_is_released() -> None:
    budget = Budget(cost=1.0)
    assert budget.reserve(0.6)
    assert not budget.reserve(0.6)  # there is another under way: it may cost less
    assert not budget.is_over
    budget.settle(0.6, 0.1)
    assert budget.reserve(0.6)
    budget.settle(0.6, 0.5)
    assert not budget.reserve(0.6)
    assert budget.is_over


def test_prices_are_for_a_million_tokens() -> None:
    assert Price(2.0, 10.0, 0.5).of(Usage(read=1_000_000, written=100_000, stored=400_000)) == pytest.approx(
        1.2 + 0.2 + 1.0
    )


# prompts that are too long

LONG = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: gold\ndoc_to_choice: [' a', ' b']\nnum_fewshot: 5\nfewshot_split: test\n"


def long_run(folder: Path, **options: Any) -> dict[str, Any]:
    """Questions of about 300 tokens each: with five examples more than the model's 1,024."""
    documents = [{"q": f"{n}: " + "red dog " * 100, "gold": 0} for n in range(8)]
    write_task(folder, documents, LONG)
    return assay.simple_evaluate(
        "embedded", tasks=["t"], include_path=str(folder), include_defaults=False, limit=3, **options
    )


def test_a_prompt_that_is_too_long_fails_by_default(tmp_path: Path) -> None:
    own = long_run(tmp_path)["assay"]["tasks"]["t"]
    assert own["failed"] == 3
    assert "exceed the model's context length of 1024" in next(iter(own["reasons"]))


@pytest.mark.slow
def test_examples_are_dropped_until_it_fits(tmp_path: Path) -> None:
    from assay.models.tokenizer import FolderTokenizer

    words = FolderTokenizer(BUNDLED)
    results = long_run(tmp_path, over_length="drop_shots")
    own = results["assay"]["tasks"]["t"]
    assert (own["failed"], own["noticed"]) == (0, {"to a prompt with fewer examples": 3})
    for sample in results["samples"]["t"]:
        context = sample["arguments"][0][0]
        assert len(words.encode(context + " a")) <= 1024
        shots = context.count(" a\n\n")
        assert 1 <= shots < 5
        assert context.endswith(sample["doc"]["q"])
        one_more = len(words.encode(context)) + len(words.encode(sample["doc"]["q"] + " a\n\n"))
        assert one_more > 1024  # no more were dropped than had to be


@pytest.mark.slow
def test_truncation_is_lm_evals_and_counted(tmp_path: Path) -> None:
    own = long_run(tmp_path, over_length="truncate")["assay"]["tasks"]["t"]
    assert own["failed"] == 0
    assert own["noticed"] == {"to a prompt that lost its beginning": 3}  # documents, of two choices each


def test_a_model_that_cannot_truncate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot cut"):
        assay.simple_evaluate("dummy", tasks=["first_steps_larger"], over_length="truncate")
    with pytest.raises(ConfigError, match="does not cut"):  # a model object was not given the option by the run
        assay.simple_evaluate(Embedded(), tasks=["first_steps_larger"], over_length="truncate", limit=1)
    results = assay.simple_evaluate(
        Embedded(over_length="truncate"), tasks=["first_steps_larger"], over_length="truncate", limit=1
    )
    assert failed_in(results) == 0
    assert Embedded().identity != Embedded(over_length="truncate").identity


def test_every_name_of_the_limit_is_known_to_the_embedded_model(tmp_path: Path) -> None:
    for name in LIMITS:
        yaml = f"output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {{until: [], {name}: 3}}\n"
        write_task(tmp_path, [{"q": "Once upon a time", "gold": "x"}], yaml)
        results = assay.simple_evaluate("embedded", tasks=["t"], include_path=str(tmp_path), include_defaults=False)
        assert results["assay"]["tasks"]["t"]["noticed"] == {"cut off at the token limit": 1}, name


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([50, 90, 99]))
def test_percentiles_of_seconds_are_those_of_numpy(seconds: list[float], percent: int) -> None:
    assert percentile(sorted(seconds), percent) == pytest.approx(float(np.percentile(seconds, percent)))


def test_each_request_of_a_long_run_takes_at_most_60_bytes() -> None:
    """Of a request stay the place of its line in the journal, its latency, its document and its score."""
    index, usage, board = KeyIndex(), RunUsage(), Board()
    held: list[int] = []
    tracemalloc.start()
    try:
        for number in range(98_304):
            index.put((number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8) * 2, number * 200)
            usage.add("t", "model", Text("x", usage=Usage(3, 4, seconds=number / 7)), None)
            board.add(number, FilterScores("none", ["x"], {"exact_match": number / 3}))
            if number in (65_535, 98_303):
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert (held[1] - held[0]) / 32_768 <= 60
    assert index.get((7 * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8) * 2) == 1400
    assert usage.to_json()["requests"] == 98_304
