"""Log-probabilities of servers: those that can be none fail their document in words, and those that real servers send are read."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.models.local.embedded import BUNDLED
from assay.models.tokenizer import FolderTokenizer
from assay.records import Failed, Likelihood, Loglikelihood, Rolling
from serving import Arrived, loopback
from small_runs import write_task
from test_protocols import ask

WORDS = FolderTokenizer(BUNDLED)
ASKED = Loglikelihood("A cat and a", " dog and a mouse")
BEFORE = len(WORDS.encode(ASKED.context))
AFTER = len(WORDS.encode(ASKED.context + ASKED.continuation)) - BEFORE
VALUE = -0.5
Change = Callable[[dict[str, Any]], object]


def pieces(prompt: str | list[int]) -> list[str]:
    """A token for each letter of a text; of tokens their texts."""
    return list(prompt) if isinstance(prompt, str) else [WORDS.tokenizer.decode([token]) for token in prompt]


def served(body: dict[str, Any]) -> dict[str, Any]:
    """The answer of a server at which every token has the same log-probability and is the likeliest."""
    if "input_ids" in body:
        tokens = body["input_ids"][body["logprob_start_len"] :]
        values = [[None, tokens[0], None], *([VALUE, token, None] for token in tokens[1:])]
        tops = [None, *([[VALUE, token, None]] for token in tokens[1:])]
        return {"meta_info": {"input_token_logprobs": values, "input_top_logprobs": tops}}
    if body.get("prompt_logprobs"):
        inside = [{str(token): {"logprob": VALUE, "rank": 1, "decoded_token": "x"}} for token in body["prompt"][1:]]
        return {"choices": [{"text": "!", "prompt_logprobs": [None, *inside]}]}
    if not body.get("echo"):
        top = {"dog": VALUE, " dog": VALUE, " cat": -1.5}
        listed = [{"token": token, "logprob": value} for token, value in top.items()]
        return {"choices": [{"text": "x", "logprobs": {"top_logprobs": [top], "content": [{"top_logprobs": listed}]}}]}
    tokens = [*pieces(body["prompt"]), "!"]
    offsets = [sum(map(len, tokens[:n])) for n in range(len(tokens))]
    values = [None, *[VALUE] * (len(tokens) - 1)]
    logprobs_body = {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": [None, *({"x": VALUE} for _ in tokens[1:])],
    }
    return {"choices": [{"text": "".join(tokens), "logprobs": {**logprobs_body, "text_offset": offsets}}]}


WAYS: dict[str, dict[str, Any]] = {
    "echo of text": {},
    "echo of tokens": {"tokenizer": str(BUNDLED)},
    "prompt": {"tokenizer": str(BUNDLED), "likelihoods": "prompt"},
    "sglang": {"tokenizer": str(BUNDLED), "likelihoods": "sglang"},
    "generated": {"likelihoods": "generated"},
}
ECHOES = ("echo of text", "echo of tokens")


def asked_with(way: str, change: Change, request: Any = ASKED, backend: str = "openai", **more: Any) -> Any:
    """The response where the server's answer was changed."""

    def answer(arrived: Arrived) -> Any:
        copied = copy.deepcopy(served(json.loads(arrived.body)))
        return change(copied) or copied

    if way == "generated":
        request = Loglikelihood(ASKED.context, " dog")
    with loopback(answer) as (url, _):
        return ask(backend, url, request, **WAYS[way], **more)


def entries(answer: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Where the log-probability of the token asked about before the last is written: its holder, and its place in that."""
    if "meta_info" in answer:
        meta_info = answer["meta_info"]
        return [(meta_info["input_token_logprobs"][-2], 0), (meta_info["input_top_logprobs"][-2][0], 0)]
    choice = answer["choices"][0]
    if "prompt_logprobs" in choice:
        [entry] = choice["prompt_logprobs"][-2].values()
        return [(entry, "logprob")]
    logprobs = choice["logprobs"]
    if "content" in logprobs:
        return [(logprobs["top_logprobs"][0], " dog"), (logprobs["content"][0]["top_logprobs"][1], "logprob")]
    return [(logprobs["token_logprobs"], -3), (logprobs["top_logprobs"][-3], "x")]


def with_value(value: Any) -> Change:
    def change(answer: dict[str, Any]) -> None:
        for holder, place in entries(answer):
            holder[place] = value

    return change


def nothing(_: dict[str, Any]) -> None:
    """The answer as it is."""


@pytest.mark.parametrize("way", WAYS)
def test_log_probabilities_as_they_should_be_are_added_up(way: str) -> None:
    responses = asked_with(way, nothing)
    count = {"echo of text": len(ASKED.continuation), "generated": 1}.get(way, AFTER)
    assert responses[:2] == (VALUE * count, True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [5.0, 0.01, True, False, "-0.5", None, [], {}, [-0.5], math.nan, math.inf], ids=repr)
def test_an_invalid_log_probability_fails_its_document(way: str, value: Any) -> None:
    response = asked_with(way, with_value(value))
    assert isinstance(response, Failed)
    assert "log-probability" in response.reason


@pytest.mark.parametrize("value", [5.0, True, "-0.5", None, math.nan], ids=repr)
def test_an_invalid_log_probability_fails_its_document_in_a_conversation_too(value: Any) -> None:
    response = asked_with("generated", with_value(value), backend="openai-chat")
    assert isinstance(response, Failed) and "log-probability" in response.reason
    assert asked_with("generated", nothing, backend="openai-chat")[:2] == (VALUE, True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [0, 0.0, 1e-4, -3, -9999.0], ids=repr)
def test_zero_whole_numbers_and_rounding_are_log_probabilities(way: str, value: Any) -> None:
    others = {"echo of text": len(ASKED.continuation), "generated": 1}.get(way, AFTER) - 1
    assert asked_with(way, with_value(value)).value == pytest.approx(VALUE * others + value)


@pytest.mark.parametrize("way", WAYS)
def test_an_impossible_token_is_one(way: str) -> None:
    """Python's servers write -Infinity, which is not JSON."""
    assert asked_with(way, with_value(-math.inf)).value == -math.inf


def holder_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """What a list of this name is in."""
    places = [
        answer.get("meta_info"),
        *(place for choice in answer.get("choices", ()) for place in (choice, choice.get("logprobs"))),
    ]
    return next(place for place in places if place and name in place)


def cut_list(name: str) -> Change:
    def change(answer: dict[str, Any]) -> None:
        holder = holder_of(answer, name)
        holder[name] = holder[name][:-2]

    return change


def stretched(name: str) -> Change:
    def change(answer: dict[str, Any]) -> None:
        holder = holder_of(answer, name)
        holder[name] = [*holder[name], *holder[name][-2:]]

    return change


LISTS = [
    *((way, name) for way in ECHOES for name in ("token_logprobs", "top_logprobs", "tokens", "text_offset")),
    ("prompt", "prompt_logprobs"),
    ("sglang", "input_token_logprobs"),
    ("sglang", "input_top_logprobs"),
]


@pytest.mark.parametrize(("way", "name"), LISTS)
@pytest.mark.parametrize("how", [cut_list, stretched])
def test_lists_that_are_too_short_or_too_long_fail_their_document(how: Any, way: str, name: str) -> None:
    response = asked_with(way, how(name))
    assert isinstance(response, Failed)
    assert "different lengths" in response.reason or "tokens" in response.reason


@pytest.mark.parametrize(("way", "count"), [("echo of text", -3), ("echo of tokens", -3), ("echo of tokens", 3)])
def test_so_do_lists_that_are_too_short_or_too_long_all_together(way: str, count: int) -> None:
    def change(answer: dict[str, Any]) -> None:
        logprobs = answer["choices"][0]["logprobs"]
        for name, values in logprobs.items():
            logprobs[name] = values[:count] if count < 0 else [*values[:1], *[values[1]] * count, *values[1:]]

    logprobs = asked_with(way, change)
    assert isinstance(logprobs, Failed)


@pytest.mark.parametrize("way", ["echo of text", "echo of tokens", "sglang"])
@pytest.mark.parametrize("value", [{}, None, [], 5, "x", True], ids=repr)
def test_without_the_most_likely_tokens_the_document_fails(way: str, value: Any) -> None:
    def change(answer: dict[str, Any]) -> None:
        tops = (
            answer["meta_info"]["input_top_logprobs"]
            if "meta_info" in answer
            else answer["choices"][0]["logprobs"]["top_logprobs"]
        )
        tops[-2] = value

    response = asked_with(way, change)
    assert isinstance(response, Failed)
    assert "most likely tokens" in response.reason


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [None, 5, "x", [], True], ids=repr)
def test_without_log_probabilities_the_document_fails(way: str, value: Any) -> None:
    def change(answer: dict[str, Any]) -> None:
        if "meta_info" in answer:
            answer["meta_info"]["input_token_logprobs"] = value
        else:
            answer["choices"][0].update(logprobs=value, prompt_logprobs=value)

    assert isinstance(asked_with(way, change), Failed)


@pytest.mark.parametrize("way", ["prompt", "sglang"])
def test_other_tokens_than_were_sent_fail_their_document(way: str) -> None:
    def change(answer: dict[str, Any]) -> None:
        if "meta_info" in answer:
            answer["meta_info"]["input_token_logprobs"][-2][1] += 1
        else:
            answer["choices"][0]["prompt_logprobs"][-2] = {"1": {"logprob": VALUE, "rank": 1}}

    response = asked_with(way, change)
    assert isinstance(response, Failed) and "other tokens than were sent" in response.reason


def echoing(text: str, spelled: bool = False) -> Change:
    def change(answer: dict[str, Any]) -> None:
        answer["choices"][0]["text"] = text
        if not spelled:
            del answer["choices"][0]["logprobs"]["tokens"]
        else:
            count = len(answer["choices"][0]["logprobs"]["tokens"])
            answer["choices"][0]["logprobs"]["tokens"] = (list(text) + ["z"] * count)[:count]

    return change


@pytest.mark.parametrize("way", ECHOES)
@pytest.mark.parametrize("spelled", [True, False])
def test_another_text_than_was_sent_fails_its_document(way: str, spelled: bool) -> None:
    for text in (
        "Something that is quite another text",
        "esuom a dna god a dna tac A",
        "Paris is the capital of France!",
    ):
        response = asked_with(way, echoing(text, spelled))
        assert isinstance(response, Failed)
        assert "a different text than was sent" in response.reason


@pytest.mark.parametrize("request_", [ASKED, Rolling("Once upon a time there was a dog.")])
@pytest.mark.parametrize("way", ECHOES)
def test_echoes_with_other_white_space_or_half_a_character_are_accepted(way: str, request_: Any) -> None:
    for change in (
        lambda text: "<s> " + text,
        lambda text: " " + text,
        lambda text: text.replace(" ", "  "),
        lambda text: text[:-3] + "\ufffd\ufffd" + text[-1:],
        lambda text: text[:3] + "\ufffd" + text[4:],
        lambda text: "",
        lambda text: "!",
        lambda text: None,
    ):

        def changed(answer: dict[str, Any], change: Any = change) -> None:
            choice = answer["choices"][0]
            choice["text"] = change(choice["text"])

        assert isinstance(asked_with(way, changed, request_), Likelihood), change("A cat and a dog")


def test_a_text_of_several_bytes_a_letter_is_read() -> None:
    """A letter of three bytes may be three tokens, of which none is a letter."""

    def answer(arrived: Arrived) -> Any:
        prompt = json.loads(arrived.body)["prompt"]
        tokens: list[str] = []
        offsets: list[int] = []
        for at, letter in enumerate(prompt + "!"):
            items = ["\ufffd"] * len(letter.encode()) if not letter.isascii() else [letter]
            tokens += items
            offsets += [at] * len(items)
        result = {"tokens": tokens, "token_logprobs": [None, *[VALUE] * (len(tokens) - 1)], "text_offset": offsets}
        return {"choices": [{"text": prompt + "!", "logprobs": {**result, "top_logprobs": [None, *[{"x": -0.1}] * (len(tokens) - 1)]}}]}  # fmt: skip

    with loopback(answer) as (url, _):
        assert ask("openai", url, Loglikelihood("2 + 2 =", " 四"))[:2] == (VALUE * 4, False)


def test_special_tokens_that_a_server_omits_do_not_count_as_another_text() -> None:
    asked = Loglikelihood("<|im_start|>user\nWhat does the dog say to the cat?<|im_end|>", " It says nothing at all")

    def change(answer: dict[str, Any]) -> None:
        choice = answer["choices"][0]
        choice["text"] = choice["text"].replace("<|im_start|>", "").replace("<|im_end|>", "")
        del choice["logprobs"]["tokens"]

    assert isinstance(asked_with("echo of tokens", change, asked), Likelihood)


def test_older_lists_of_vllm_show_the_most_likely_token_by_their_values() -> None:
    def change(answer: dict[str, Any]) -> None:
        logprobs = answer["choices"][0]["prompt_logprobs"]
        logprobs[-1] = {**dict.fromkeys(logprobs[-1], -2.0), "1": -0.1}
        logprobs[-2] = {**{key: {"logprob": -2.0} for key in logprobs[-2]}, "1": {"logprob": -2.5}}

    assert asked_with("prompt", change)[:2] == (VALUE * (AFTER - 2) - 4.0, False)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, True, "1", None, [], [1.0, 2.0], {}, [[True]]], ids=repr
)
@pytest.mark.parametrize("way", ["pooling", "score"])
def test_an_invalid_reward_fails_its_document(way: str, value: Any) -> None:
    with loopback(lambda _: {"data": [{"data": value, "score": value}]}) as (url, _):
        response = ask("reward-http", url, ASKED, way=way)
    assert isinstance(response, Failed)
    assert "one number" in response.reason


@pytest.mark.parametrize("value", [5.0, -3, [0.5], [[0.5]]], ids=repr)
def test_a_reward_may_be_any_number(value: Any) -> None:
    with loopback(lambda _: {"data": [{"data": value, "score": value}]}) as (url, _):
        assert ask("reward-http", url, ASKED).value in (5.0, -3.0, 0.5)


def test_documents_with_invalid_log_probabilities_fail_and_the_others_are_scored(tmp_path: Path) -> None:
    """One document of each fault, and one that is well: it alone is scored."""
    faults: list[Change] = [
        nothing, with_value(5.0), with_value(True), with_value(math.nan), with_value(None), cut_list("token_logprobs"),
        stretched("token_logprobs"), echoing("Something that is quite another text"),
    ]  # fmt: skip
    yaml = (
        "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [some words, other words]\ndoc_to_target: gold\n"
    )
    write_task(tmp_path, [{"q": f"{n}. What is it?", "gold": 1} for n in range(len(faults))], yaml)

    def answer(arrived: Arrived) -> Any:
        body = json.loads(arrived.body or b"{}")
        if "logprobs" not in body:
            return {"choices": [{"text": "x", "finish_reason": "stop"}]}
        copied = copy.deepcopy(served(body))
        if "other words" in body["prompt"]:
            faults[int(body["prompt"][0])](copied)
        return copied

    with loopback(answer) as (url, _):
        results = assay.simple_evaluate(
            "openai", {"model": "m", "base_url": url}, tasks=["t"], include_path=str(tmp_path), include_defaults=False
        )
    assert results["assay"]["tasks"]["t"]["failed"] == len(faults) - 1
    assert results["results"]["t"]["sample_len"] == 1
