"""Servers that answer strangely, models with other arguments, judges that differ: nothing is invented, mixed up or given away."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import assay
from assay import GenerationScorer, register_scorer
from assay.engine import lanes, retry
from assay.engine.retry import ModelUnreachable
from assay.errors import ConfigError
from assay.models import Scripted
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED
from assay.models.protocol import RetryableError
from assay.records import UNFINISHED, Failed, Generate, Loglikelihood, Request, Response, Text
from assay.scoring.named import SCORER_REGISTRY
from run_world import failed_in
from serving import TALKING, Servers, fetched, free_port
from small_runs import SAMPLED, generate, run, write_task
from test_protocols import PLAIN, ask, repeats, wanting

KEY = "sk-canary-4711"
TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


@pytest.fixture
def own_registry() -> Iterator[None]:
    before = dict(SCORER_REGISTRY)
    yield
    for name in [name for name in SCORER_REGISTRY if name not in before]:
        del SCORER_REGISTRY[name]


# invalid answers


def test_an_answer_without_choices_is_retried(talking: str) -> None:
    with pytest.raises(RetryableError, match="no choices"):
        ask("openai-chat", talking, wanting(raw={"choices": []}))


@pytest.mark.parametrize("stream", [True, False])
def test_a_filtered_answer_is_a_failure_and_not_an_empty_answer(stream: bool, talking: str) -> None:
    events = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]}]
    whole = {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}
    assert isinstance(ask("openai-chat", talking, wanting(events=events, raw=whole), stream=stream), Failed)
    refusal = {"choices": [{"index": 0, "delta": {"refusal": "I will not"}, "finish_reason": None}]}
    whole = {"choices": [{"message": {"content": None, "refusal": "I will not"}, "finish_reason": "stop"}]}
    said = ask("openai-chat", talking, wanting(events=[refusal], raw=whole), stream=stream)
    assert "I will not" in said.reason


def test_thinking_in_hiding_that_never_ends_is_counted(talking: str) -> None:
    said = ask(
        "openai-chat", talking, wanting(raw={"choices": [{"message": {"content": None}, "finish_reason": "length"}]})
    )
    assert (said.text, said.finish) == ("", UNFINISHED)


def test_a_null_error_is_not_an_error(talking: str) -> None:
    events = [{"error": None, "choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}]
    assert ask("openai-chat", talking, wanting(events=events), stream=True).text == "yes"


def test_invalid_http_is_retried(talking: str) -> None:
    with pytest.raises(RetryableError):
        ask("openai-chat", talking, wanting(garbage=True))


def echoed(logprobs: dict[str, Any]) -> Loglikelihood:
    """A question that contains the server's answer: its last letter is the continuation, and `END` is where that begins."""
    length = 0
    for _ in range(9):  # the number is part of the text whose length it is
        loaded = json.loads(
            json.dumps({"raw": {"choices": [{"text": "", "logprobs": logprobs}]}}).replace('"END"', str(length))
        )
        text = json.dumps(loaded)
        if length == len(text) - 1:
            break
        length = len(text) - 1
    assert length == len(text) - 1
    return Loglikelihood(text[:-1], text[-1:])


def test_a_log_likelihood_sums_the_tokens_after_the_context(talking: str) -> None:
    logprobs = {
        "token_logprobs": [None, -1.0, -2.0],
        "top_logprobs": [None, {"a": -1.0}, {"b": -1.5}],
        "text_offset": [0, 1, "END"],
    }
    response = ask("openai", talking, echoed(logprobs))
    assert (response.value, response.greedy) == (-2.0, False)


@pytest.mark.parametrize(
    ("logprobs", "said"),
    [
        ({"token_logprobs": [None, -1.0], "text_offset": [0, "END"]}, "top_logprobs"),
        ({"token_logprobs": [None, -1.0], "top_logprobs": [None, None], "text_offset": [0, "END"]}, "top_logprobs"),
        (
            {"token_logprobs": [None, -1.0], "top_logprobs": [None, {"a": -1.0}], "text_offset": [0, 1]},
            "no token begins",
        ),
        ({"token_logprobs": [None, -1.0], "top_logprobs": [None, {"a": -1.0}]}, "no text offsets"),
    ],
)
def test_log_likelihoods_are_not_invented(logprobs: dict[str, Any], said: str, talking: str) -> None:
    response = ask("openai", talking, echoed(logprobs))
    assert isinstance(response, Failed)
    assert said in response.reason


def test_a_server_that_counts_other_tokens_than_were_sent_is_not_believed(talking: str) -> None:
    logprobs = {"token_logprobs": [None] + [-1.0] * 29, "top_logprobs": [None] + [{"a": -1.0}] * 29}
    context = json.dumps({"raw": {"choices": [{"text": "", "logprobs": logprobs}]}})
    model: Any = load_model("openai", {"model": "m", "base_url": talking, "tokenizer": str(BUNDLED)})

    async def asked() -> Any:
        async with model:
            model._likelihoods.post = lambda body: model.http.post("/completions", {"model": "m", "prompt": context})
            return await model.ask(Loglikelihood("a dog and a", " cat"))

    assert "reports 30 tokens" in asyncio.run(asked()).reason


def test_a_text_without_a_context_needs_a_tokenizer(talking: str) -> None:
    continuation = json.dumps(
        {"raw": {"choices": [{"text": "", "logprobs": {"token_logprobs": [None], "text_offset": [0]}}]}}
    )
    assert "give tokenizer" in ask("openai", talking, Loglikelihood("", continuation)).reason


# several answers at once


@pytest.mark.parametrize("query", [{"refuses_n": True}, {"ignores_n": True}])
@pytest.mark.parametrize("stream", [True, False])
def test_repeats_are_asked_one_by_one_where_the_server_wants_it_so(
    query: dict[str, Any], stream: bool, talking: str
) -> None:
    model: Any = load_model("openai-chat", {"model": "m", "base_url": talking, "stream": stream})
    prompt = json.dumps({"say": "x", **query})
    result = asyncio.run(repeats(model, [Generate(prompt, {**PLAIN, "do_sample": True}, n) for n in range(3)]))
    assert [each.text for each in result] == ["x", "x", "x"]
    assert model.answers_repeats is False


# keys


@pytest.mark.parametrize("stream", [True, False])
def test_keys_that_a_server_gives_back_reach_no_file(stream: bool, talking: str, tmp_path: Path) -> None:
    queries = [
        {"raw_text": f"not JSON, and KEY in it {'x' * 20}"},
        {"status": 400, "message": "x" * 290 + "KEY"},
        {"events": [{"error": {"message": "bad KEY"}}], "raw_text": "KEY"},
    ]
    write_task(tmp_path, [{"q": json.dumps(query), "gold": "x"} for query in queries], TASK)
    arguments = {"model": "m", "base_url": talking, "api_key": KEY, "stream": stream, "max_retries": 1}
    results = assay.simple_evaluate(
        "openai-chat",
        arguments,
        tasks=["t"],
        include_path=str(tmp_path),
        include_defaults=False,
        output_path=str(tmp_path / "run"),
    )
    assert failed_in(results) == 3
    assert "canary" not in json.dumps(results, default=str)
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"canary" not in file.read_bytes(), file
        assert not file.is_file() or b"sk-can" not in file.read_bytes(), file


def test_the_key_of_a_tasks_judge_is_not_in_the_results(tmp_path: Path) -> None:
    yaml = TASK + "metadata: {judge: {api_key: sk-canary-0815}}\n"
    write_task(tmp_path, [{"q": "a", "gold": "a"}], yaml)
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a"))
    assert "canary" not in json.dumps(results["configs"])


# who answers


@pytest.mark.parametrize(
    "arguments",
    [{"max_gen_toks": 20}, {"seed": 1}, {"reasoning": True}, {"header": {"X-Variant": "b"}}, {"max_length": 99}],
)
def test_arguments_that_change_responses_change_the_identity(arguments: dict[str, Any], talking: str) -> None:
    common = {"model": "m", "base_url": talking}
    one, other = load_model("openai", common), load_model("openai", {**common, **arguments})
    assert one.identity != other.identity
    assert load_model("openai", {**common, "timeout": 7, "num_concurrent": 3, "price_in": 1.0}).identity == one.identity


def test_anthropics_thinking_and_the_way_to_likelihoods_count_too(talking: str) -> None:
    common = {"model": "m", "base_url": talking}
    assert load_model("anthropic", common).identity != load_model("anthropic", {**common, "thinking": 9}).identity
    for arguments in ({"likelihoods": "prompt"}, {"custom_prefix_token_id": 5}, {"truncate": True}):
        assert load_model("openai", common).identity != load_model("openai", {**common, **arguments}).identity


def quick(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    limits = retry.RetryLimits(first_wait=0.02, max_wait=0.1, **changes)
    monkeypatch.setattr(lanes, "RetryLimits", lambda: limits)


def test_an_unreachable_model_ends_the_run_which_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch, max_downtime=1.0)
    servers, port = Servers(), free_port()
    url = servers(script=TALKING, port=port)
    queries = [{"q": json.dumps({"say": "x", "n": n, "pause": 0.0}), "gold": "x"} for n in range(30)]
    write_task(tmp_path, queries, TASK)
    options: dict[str, Any] = {
        "tasks": ["t"], "include_path": str(tmp_path), "include_defaults": False, "output_path": str(tmp_path / "run"),
    }  # fmt: skip
    arguments = {"model": "m", "base_url": url, "num_concurrent": 2}
    missing = load_model("openai-chat", arguments)
    asyncio.run(missing.greet())  # type: ignore[union-attr]
    servers.end()

    async def nothing() -> None:
        """It was greeted when it was there."""

    missing.greet = nothing  # type: ignore[union-attr,method-assign]
    with pytest.raises(ModelUnreachable, match=r"unreachable for 1\.0 s; stopped"):
        assay.simple_evaluate(missing, **options)
    again = Servers()
    try:
        again(script=TALKING, port=port)
        results = assay.simple_evaluate("openai-chat", arguments, **options)
        assert results["results"]["t"]["exact_match,none"] == 1.0
    finally:
        again.end()


# money


def test_earlier_cost_counts_from_the_beginning(talking: str, tmp_path: Path) -> None:
    """The second part asks other documents first: what the first part cost must be known all the same."""
    rows = [{"q": json.dumps({"say": "x", "n": n, "usage": [0, 10, 0]}), "gold": "x"} for n in range(20)]
    write_task(tmp_path, rows, TASK)
    model_args = {"model": "m", "base_url": talking, "price_in": 0.0, "price_out": 1e6 / 10}  # one for each answer
    options: dict[str, Any] = {
        "tasks": ["t"], "include_path": str(tmp_path), "include_defaults": False, "output_path": str(tmp_path / "run"),
        "gen_kwargs": {"max_gen_toks": 10},
    }  # fmt: skip
    first = assay.simple_evaluate("openai-chat", model_args, max_cost=8.5, **options)
    assert first["assay"]["usage"]["cost"] == pytest.approx(8.0)
    journal = tmp_path / "run/responses.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    before = len(fetched(talking, "/log"))
    second = assay.simple_evaluate("openai-chat", model_args, max_cost=8.5, **options)
    assert second["assay"]["status"] == "partial"
    asked = [each for each in fetched(talking, "/log")[before:] if "usage" in each["body"]["messages"][-1]["content"]]
    assert asked == []
    assert len(journal.read_text().splitlines()) == len(lines)


def test_requests_that_are_tried_before_a_run_stay_below_its_cost(talking: str, tmp_path: Path) -> None:
    """Two kinds of requests, one for each task, of which a first one is tried; each answer costs 1."""
    rows = [{"q": json.dumps({"say": "x", "usage": [0, 10, 0]}), "gold": "x"}]
    write_task(tmp_path, rows, TASK + "generation_kwargs: {max_gen_toks: 10, temperature: 0.5, do_sample: true}\n", "t")
    write_task(tmp_path, rows, TASK + "generation_kwargs: {max_gen_toks: 10, top_p: 0.5, do_sample: true}\n", "u")
    model_args = {"model": "m", "base_url": talking, "price_in": 0.0, "price_out": 1e6 / 10}
    options: dict[str, Any] = {"tasks": ["t", "u"], "include_path": str(tmp_path), "include_defaults": False}
    for most, spent in ((1.5, 1.0), (2.5, 2.0)):
        results = assay.simple_evaluate("openai-chat", model_args, max_cost=most, **options)
        assert results["assay"]["usage"]["cost"] == pytest.approx(spent)


def test_a_server_without_usage_is_charged_the_reserved_cost(talking: str, tmp_path: Path) -> None:
    rows = [{"q": json.dumps({"say": "x", "n": n, "usage": [0, 0, 0]}), "gold": "x"} for n in range(20)]
    write_task(tmp_path, rows, TASK)
    model_args = {"model": "m", "base_url": talking, "price_in": 0.0, "price_out": 1e6 / 10}
    results = assay.simple_evaluate(
        "openai-chat",
        model_args,
        tasks=["t"],
        include_path=str(tmp_path),
        include_defaults=False,
        max_cost=5.5,
        gen_kwargs={"max_gen_toks": 10},
    )
    assert results["assay"]["tasks"]["t"]["documents"] == 5


def test_thinking_is_set_aside_too(talking: str) -> None:
    model_args = {"model": "m", "base_url": talking, "price_in": 0.0, "price_out": 1e6}
    model: Any = load_model("anthropic", {**model_args, "thinking": 1000})
    assert model.estimate(Generate("x", {"max_gen_toks": 24})) == pytest.approx(1024)


# scorers that ask


class AskingScorer(GenerationScorer):
    """Asks a model in a role and takes what it says as a number."""

    asks = True

    def __init__(self, config: Any = None, role: str = "judge", role_config: Any = None) -> None:
        super().__init__(config)
        self.role, self.model_roles = role, {role: role_config}

    def questions(self, result: Any) -> Sequence[Request]:
        return [Generate(f"{self.role}: {answer}", PLAIN, role=self.role) for answer in result.results]

    def verdict(self, result: Any, responses: Sequence[Response]) -> Any:
        assert all(isinstance(each, Text) for each in responses)
        return [float(each.text) for each in responses]  # type: ignore[union-attr]


def judge(value: str) -> Scripted:
    return Scripted(generate=lambda prompt, params, repeat: value, identity=f"judge {value}")


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("beside", ["", "  - {name: c, filter: [{function: take_first}], scorer: ranks}\n"])
def test_each_scorer_gets_its_own_verdicts(beside: str, tmp_path: Path) -> None:
    class First(AskingScorer):
        """The first judge."""

    class Second(AskingScorer):
        """The second."""

    @register_scorer("ranks")
    class Ranks(GenerationScorer):
        def score_batch(self, results: Sequence[Any]) -> Sequence[float]:
            return [0.0 for _ in results]

    SCORER_REGISTRY["first"], SCORER_REGISTRY["second"] = First, Second
    yaml = (
        "filter_list:\n"
        "  - {name: a, filter: [{function: take_first}], scorer: {type: first, kwargs: {role: one}}}\n"
        "  - {name: b, filter: [{function: take_first}], scorer: {type: second, kwargs: {role: two}}}\n" + beside
    )
    run_results = generate(tmp_path, ["x", "y"], ["x", "y"], yaml, model_role={"one": judge("1"), "two": judge("2")})
    assert (run_results["results"]["t"]["first,a"], run_results["results"]["t"]["second,b"]) == (1.0, 2.0)


@pytest.mark.usefixtures("own_registry")
def test_an_unknown_role_is_refused_before_any_request(tmp_path: Path) -> None:
    SCORER_REGISTRY["asking"] = AskingScorer
    with pytest.raises(ConfigError, match="--model_role judge="):
        generate(tmp_path, ["x"], ["x"], "scorer: asking\n")


@pytest.mark.usefixtures("own_registry")
def test_two_tasks_with_different_judges_in_one_role_are_refused(tmp_path: Path) -> None:
    SCORER_REGISTRY["asking"] = AskingScorer
    for name in ("a", "b"):
        yaml = (
            TASK + f"scorer: {{type: asking, kwargs: {{role_config: {{model: dummy, model_args: {{x: {name}}}}}}}}}\n"
        )
        write_task(tmp_path, [{"q": "a", "gold": "a"}], yaml, name=name)
    with pytest.raises(ConfigError, match="different models for the role 'judge'"):
        run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a"), ["a", "b"])


@pytest.mark.usefixtures("own_registry")
def test_metrics_may_come_from_a_hook(tmp_path: Path) -> None:
    @register_scorer("hooked")
    class Hooked(GenerationScorer):
        def get_metrics(self, filter_name: str) -> Any:
            import dataclasses

            return [dataclasses.replace(metric, name="mine") for metric in super().get_metrics(filter_name)]

    row = generate(tmp_path, ["x", "y"], ["x", "z"], "scorer: hooked\n")["results"]["t"]
    assert row["mine,none"] == 0.5


def test_reductions_see_all_answers_where_no_filter_is_named(tmp_path: Path) -> None:
    yaml = SAMPLED + "repeats: 4\nmetric_list: [{metric: exact_match, reduction: pass@2}]\n"
    row = generate(tmp_path, [["a", "b", "b", "b"]], ["a"], yaml)["results"]["t"]
    assert (row["exact_match,none"], row["pass@2,none"]) == (0.25, 0.5)
    named = yaml + "filter_list: [{name: first, filter: [{function: take_first}]}]\n"
    with pytest.raises(ConfigError, match="take_first_k"):
        generate(tmp_path, [["a"] * 4], ["a"], named)


def test_dropping_examples_needs_a_model_that_counts(talking: str) -> None:
    arguments = {"model": "m", "base_url": talking}
    with pytest.raises(ConfigError, match="give tokenizer"):
        assay.simple_evaluate("openai-chat", arguments, tasks=["first_steps_sums"], over_length="drop_shots")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("openai", {"likelihoods": "ecoh"}, "did you mean 'echo'"),
        ("openai", {"timeout": "5m"}, "timeout must be a number"),
        ("openai", {"num_concurrent": "many"}, "num_concurrent must be a whole number"),
        ("openai", {"header": "x"}, "header must be a mapping"),
        ("anthropic", {"seed": 5}, "no argument 'seed'"),
        ("openai", {"base_url": ["http://a:b@x", "http://c:d@y"]}, "different credentials"),
    ],
)
def test_values_of_arguments_are_validated(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_model(name, {"model": "m", **arguments})
