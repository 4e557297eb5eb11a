"""Log-probabilities of servers: those that can be none fail their document in words, and those that real servers send are read."""

import asyncio
import copy
import itertools
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED
from assay.models.tokenizer import FolderTokenizer
from assay.records import Failed, Likelihood, Loglikelihood, Rolling
from assay.scoring.metrics.registry import METRICS, READ_EVERY_LIKELIHOOD
from assay.scoring.results import CHOICE, MCResult
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


SENT = ASKED.context + ASKED.continuation
OTHERS = {
    "within a chat template": f"<|user|>\n{SENT}\n<|assistant|>\n!",
    "behind a system prompt": f"Be brief. {SENT}!",
    "another word": SENT.replace("dog", "dot") + "!",
    "another letter case": SENT.casefold() + "!",
    "without its beginning": SENT[5:] + "!",
    "without its end": SENT[:-5],
    "words joined": SENT.replace("a dog", "adog") + "!",
    "a word more": SENT.replace("dog", "dog cat") + "!",
    "a word less": SENT.replace("dog and ", "") + "!",
    "a character lost for a word": SENT.replace("dog", "\ufffd") + "!",
    "a special token within it": SENT.replace("dog", "<|dog|>") + "!",
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("way", ECHOES)
@pytest.mark.parametrize("spelled", [True, False])
def test_an_echo_that_differs_in_anything_but_its_spelling_is_refused(way: str, name: str, spelled: bool) -> None:
    response = asked_with(way, echoing(OTHERS[name], spelled))
    assert isinstance(response, Failed), response
    assert "a different text than was sent" in response.reason


@pytest.mark.parametrize("name", OTHERS)
def test_neither_does_the_text_excuse_other_tokens_nor_the_tokens_another_text(name: str) -> None:
    def other_text(answer: dict[str, Any]) -> None:
        answer["choices"][0]["text"] = OTHERS[name]

    def other_tokens(answer: dict[str, Any]) -> None:
        whole, count = OTHERS[name], len(answer["choices"][0]["logprobs"]["tokens"])
        letters = (list(whole) + ["!"] * count)[:count]
        answer["choices"][0]["logprobs"]["tokens"] = letters

    for change in (other_text, other_tokens):
        response = asked_with("echo of text", change)
        assert isinstance(response, Failed), change
        assert "a different text than was sent" in response.reason


def one_by_one(tokens: list[str], offsets: list[int], text: str | None = None) -> dict[str, Any]:
    """An answer whose n-th token has the log-probability -2^n."""
    values = [None, *(-float(2**n) for n in range(1, len(tokens)))]
    body = {
        "tokens": tokens,
        "token_logprobs": values,
        "text_offset": offsets,
        "top_logprobs": [None, *[{"x": -0.1}] * (len(tokens) - 1)],
    }
    return {"choices": [{"text": "".join(tokens) if text is None else text, "logprobs": body}]}  # fmt: skip


SPELLINGS: dict[str, tuple[list[str], list[int], float]] = {
    "as it was sent": (["A", " cat", " dog", " ran", "!"], [0, 1, 5, 9, 13], -4 - 8),
    "behind a BOS token that is counted": (["<bos>", "A", " cat", " dog", " ran", "!"], [0, 5, 6, 10, 14, 18], -8 - 16),
    "behind a BOS token that is not counted": (["<|begin_of_text|>", "A", " cat", " dog", " ran", "!"], [0, 0, 1, 5, 9, 13], -8 - 16),
    "with SentencePiece's marks and its space before the text": (["\u2581A", "\u2581cat", "\u2581dog", "\u2581ran", "!"], [0, 2, 6, 10, 14], -4 - 8),
    "with its marks, by offsets in the text": (["\u2581A", "\u2581cat", "\u2581dog", "\u2581ran", "!"], [0, 1, 5, 9, 13], -4 - 8),
    "behind both": (["<s>", "\u2581A", "\u2581cat", "\u2581dog", "\u2581ran", "!"], [0, 3, 5, 9, 13, 17], -8 - 16),
    "with the marks of bytes": (["A", "\u0120cat", "\u0120dog", "\u0120ran", "!"], [0, 1, 5, 9, 13], -4 - 8),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_tokens_of_a_continuation_are_found_however_a_server_spells_and_counts_them(name: str) -> None:
    tokens, offsets, expected = SPELLINGS[name]
    text = None if name == "as it was sent" else ""
    with loopback(lambda _: one_by_one(tokens, offsets, text)) as (url, _):
        assert ask("openai", url, Loglikelihood("A cat", " dog ran"))[0] == expected


@pytest.mark.parametrize(
    "offsets",
    [[0, 1, 5, 6, 13], [0, 1, 4, 8, 12], [1, 2, 5, 9, 13], [0, 1, 9, 9, 13], [0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [5, 6, 10, 14, 18]],
    ids=str,
)  # fmt: skip
def test_offsets_at_which_the_tokens_are_not_found_fail_the_document(offsets: list[int]) -> None:
    with loopback(lambda _: one_by_one(["A", " cat", " dog", " ran", "!"], offsets)) as (url, _):
        response = ask("openai", url, Loglikelihood("A cat", " dog ran"))
    if offsets == [5, 6, 10, 14, 18]:  # all by the same: the server counts from before the text
        assert response[0] == -4 - 8
        return
    assert isinstance(response, Failed), response


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


# the next token


LETTERS = (
    "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: gold\ntarget_delimiter: ' '\n"
)
NEXT = {" a": -0.7, " b": -1.6, " c": -2.3, " ab": -3.0, " ": -4.0}


def next_tokens(most: int, top: dict[str, float], asked: list[int]) -> Callable[[Arrived], Any]:
    """A server that knows these next tokens, and refuses more than `most` candidates."""

    def answer(arrived: Arrived) -> Any:
        body = json.loads(arrived.body or b"{}")
        if "logprobs" not in body:
            return {"choices": [{"text": "x", "message": {"content": "x"}, "finish_reason": "stop"}]}
        count = body.get("top_logprobs", body["logprobs"])
        asked.append(count)
        if count > most:
            return (
                400,
                {},
                {
                    "error": {
                        "message": f"Requested sample logprobs of {count}, which is greater than max allowed: {most}"
                    }
                },
            )
        listed = [{"token": token, "logprob": value} for token, value in list(top.items())[:count]]
        logprobs = (
            {"content": [{"top_logprobs": listed}]}
            if "messages" in body
            else {"top_logprobs": [dict(list(top.items())[:count])]}
        )
        return {
            "choices": [{"text": "x", "message": {"content": "x"}, "logprobs": logprobs, "finish_reason": "length"}]
        }

    return answer


@pytest.mark.parametrize("most", [5000, 1000, 100, 20, 5])
@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_as_many_candidates_are_asked_for_as_the_server_allows(backend: str, most: int) -> None:
    asked: list[int] = []
    requests = [Loglikelihood(f"question {n}", " b") for n in range(3)]
    with loopback(next_tokens(most, NEXT, asked)) as (url, _):
        responses = ask(backend, url, *requests, likelihoods="generated")
    assert [response.value for response in responses] == [-1.6] * 3
    allowed = [count for count in (1000, 100, 20, 5) if count <= most]
    assert asked == [*(count for count in (1000, 100, 20, 5) if count > most), *[allowed[0]] * 3]


def test_requests_that_find_out_together_how_many_candidates_are_allowed_all_have_an_answer() -> None:
    served_by = next_tokens(20, NEXT, [])
    numbers = itertools.count()

    def answer(arrived: Arrived) -> Any:
        if b'"logprobs":1000' in arrived.body and next(numbers) % 2:
            time.sleep(0.1)  # every other refusal comes when others were answered
        return served_by(arrived)

    async def work(url: str) -> list[Any]:
        model: Any = load_model("openai", {"model": "m", "base_url": url, "likelihoods": "generated"})
        async with model:
            return await asyncio.gather(*(model.ask(Loglikelihood(f"{number}", " a")) for number in range(16)))

    with loopback(answer) as (url, _):
        assert [response[0] for response in asyncio.run(work(url))] == [-0.7] * 16


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_a_choice_that_is_not_among_the_candidates_has_an_upper_bound(backend: str) -> None:
    """' abc' may begin with ' a', which is likelier than the last candidate; a space alone is how every choice begins."""
    asked: list[int] = []
    with loopback(next_tokens(100, NEXT, asked)) as (url, _):
        found, other, begun = ask(
            backend, url, Loglikelihood("q", " a"), Loglikelihood("q", " z"), Loglikelihood("q", " abc"),
            likelihoods="generated",
        )  # fmt: skip
    assert (found.value, found.greedy, found.is_bound) == (-0.7, True, False)
    assert (other.greedy, other.is_bound) == (False, True)
    assert -4.001 < other.value < -4.0
    assert (begun.value, begun.greedy, begun.is_bound) == (-0.7, False, True)
    assert len(asked) == 2  # one refused, one for all choices


def test_a_document_fails_only_where_its_likeliest_choice_may_be_one_that_is_bounded(tmp_path: Path) -> None:
    """The task's own choices decide, in the trial before the run, too: its first document has none of them."""
    rows = [
        {"q": "0", "choices": ["x", "y"], "gold": 0},  # none is a candidate
        {"q": "1", "choices": ["a", "z"], "gold": 0},  # right, and z is bounded
        {"q": "2", "choices": ["z", "c"], "gold": 0},  # wrong, and z is bounded
        {"q": "3", "choices": ["b", "c"], "gold": 0},  # right
        {"q": "4", "choices": ["abc", "c"], "gold": 1},  # it may begin with ' a', which is likelier than c
    ]
    write_task(tmp_path, rows, LETTERS)
    with loopback(next_tokens(20, NEXT, [])) as (url, _):
        options: dict[str, Any] = {"tasks": ["t"], "include_path": str(tmp_path), "include_defaults": False}
        arguments = {"model": "m", "base_url": url, "likelihoods": "generated"}
        results = assay.simple_evaluate("openai", arguments, output_path=str(tmp_path / "run"), **options)
        again = assay.simple_evaluate("openai", arguments, output_path=str(tmp_path / "run"), **options)
    for each in (results, again):  # the second one from the journal
        task = each["assay"]["tasks"]["t"]
        assert each["results"]["t"]["acc,none"] == pytest.approx(2 / 3)
        assert (task["failed"], task["scored"]) == (2, 3)
        [reason] = task["reasons"]
        assert "the likeliest choice is not known" in reason
        assert task["noticed"] == {"with a choice of which only an upper bound is known": 2}


def test_a_metric_of_every_likelihood_has_no_value_where_one_is_only_bounded(tmp_path: Path) -> None:
    rows = [
        {"q": "1", "choices": ["a", "z"], "gold": 0},  # z is bounded
        {"q": "2", "choices": ["a", "b"], "gold": 0},
    ]
    write_task(tmp_path, rows, f"{LETTERS}metric_list: [{{metric: acc}}, {{metric: brier_score}}]\n")
    with loopback(next_tokens(20, NEXT, [])) as (url, _):
        arguments = {"model": "m", "base_url": url, "likelihoods": "generated"}
        results = assay.simple_evaluate(
            "openai", arguments, tasks=["t"], include_path=str(tmp_path), include_defaults=False
        )
    assert results["results"]["t"]["acc,none"] == 1
    share = 1 / (1 + math.exp(-1.6 + 0.7))
    assert results["results"]["t"]["brier_score,none"] == pytest.approx(2 * (1 - share) ** 2)
    assert [sample.get("brier_score") is None for sample in results["samples"]["t"]] == [True, False]


def test_metrics_that_read_every_likelihood_are_known() -> None:
    found = set()
    for name in METRICS:
        metric = METRICS[name]
        compute = metric.functions.get(CHOICE)
        if compute is None or name == "acc_mutual_info":  # its second half is never bounded
            continue
        values = [
            [repr(compute(MCResult({}, target, "abcdefghijkl", lls, [True, *[False] * 11]))) for target in range(12)]
            for lls in ([-0.2, *range(-13, -2)], [-0.2, *range(-20, -42, -2)])
        ]
        found |= {name} if values[0] != values[1] else set()
    assert found == READ_EVERY_LIKELIHOOD


# llama.cpp


def llama_cpp(change: Change = nothing, special: list[int] | None = None) -> Callable[[Arrived], Any]:
    """llama.cpp's server: token t behind n others has the log-probability -t/100 - n; the likeliest one has -2.5."""

    def answer(arrived: Arrived) -> Any:
        if arrived.method == "GET":
            is_props = arrived.path.endswith("/props")
            return {"bos_token": "<|end|>", "default_generation_settings": {"n_ctx": 64}} if is_props else {"data": []}
        body = json.loads(arrived.body)
        if arrived.path.endswith("/tokenize"):
            return {"tokens": [*(special or [] if body["add_special"] else []), *WORDS.encode(body["content"])]}
        if not arrived.path.endswith("/completion"):
            return {"choices": [{"text": "x", "finish_reason": "stop"}]}
        [[token, _]] = body["logit_bias"]
        value = -token / 100 - len(body["prompt"])
        entry = {"id": token, "logprob": value, "top_logprobs": [{"id": 9, "logprob": max(value, -2.5)}]}
        said = {"completion_probabilities": [entry], "tokens_evaluated": len(body["prompt"]), "tokens_predicted": 1,
                "truncated": False, "timings": {"cache_n": len(body["prompt"]) - 1}}  # fmt: skip
        return change(said) or said

    return answer


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_llama_cpp_is_made_to_generate_each_token_of_a_continuation(with_tokenizer: bool) -> None:
    context, continuation = WORDS.encode("A cat and a"), WORDS.encode("A cat and a dog")[-2:]
    own = {"tokenizer": str(BUNDLED)} if with_tokenizer else {}
    with loopback(llama_cpp()) as (url, arrived):
        response = ask("openai", url, Loglikelihood("A cat and a", " dog"), likelihoods="llamacpp", **own)
    n = len(context)
    assert response.value == pytest.approx(-sum(continuation) / 100 - n - (n + 1))
    assert not response.greedy
    assert response.usage[:2] == (2 * n + 1, 2)
    assert response.usage.stored == 2 * n - 1
    bodies = [json.loads(each.body) for each in arrived if each.path.endswith("/completion")]
    assert [body["prompt"] for body in bodies] == [context, [*context, continuation[0]]]
    assert [body["logit_bias"][0][0] for body in bodies] == continuation
    assert all((body["n_predict"], body["temperature"], body["cache_prompt"]) == (1, 0, True) for body in bodies)


@pytest.mark.parametrize("special", [[7], []])
def test_a_whole_text_at_llama_cpp_begins_behind_bos_which_the_model_may_not_put_there_itself(
    special: list[int],
) -> None:
    with loopback(llama_cpp(special=special)) as (url, arrived):
        response = ask("openai", url, Rolling("A cat"), likelihoods="llamacpp")
    first = json.loads(next(each.body for each in arrived if each.path.endswith("/completion")))["prompt"]
    tokens = WORDS.encode("A cat")
    assert first == (special or WORDS.encode("<|end|>"))
    assert response.value == pytest.approx(sum(-token / 100 - number for number, token in enumerate(tokens, 1)))


def test_the_likeliest_token_of_llama_cpp_is_greedy_and_one_without_a_probability_impossible() -> None:
    def likely(said: dict[str, Any]) -> None:
        said["completion_probabilities"][0]["logprob"] = -2.5

    def impossible(said: dict[str, Any]) -> None:
        said["completion_probabilities"][0]["logprob"] = -3.4028234663852886e38

    for change, expected in ((likely, (-5.0, True)), (impossible, (-math.inf, False))):
        with loopback(llama_cpp(change)) as (url, _):
            assert ask("openai", url, Loglikelihood("A cat and a", " dog"), likelihoods="llamacpp")[:2] == expected


LLAMA_FAULTS: dict[str, tuple[Change, str]] = {
    "another token": (lambda said: said["completion_probabilities"][0].update(id=1), "another token|was forced"),
    "a prompt that was cut": (lambda said: said.update(truncated=True), "tokens"),
    "a prompt of other tokens": (lambda said: said.update(tokens_evaluated=said["tokens_evaluated"] + 1), "tokens for"),
    "no log-probabilities": (
        lambda said: said.pop("completion_probabilities") and None,
        "reports no log-probabilities",
    ),
    "no likeliest token": (lambda said: said["completion_probabilities"][0].update(top_logprobs=[]), "most likely"),
    "a log-probability above 0": (lambda said: said["completion_probabilities"][0].update(logprob=3.0), "at most 0"),
}


@pytest.mark.parametrize("name", LLAMA_FAULTS)
def test_log_probabilities_of_llama_cpp_that_cannot_be_right_fail_the_document(name: str) -> None:
    change, words = LLAMA_FAULTS[name]
    with loopback(llama_cpp(change)) as (url, _):
        response = ask("openai", url, Loglikelihood("A cat and a", " dog"), likelihoods="llamacpp")
    assert isinstance(response, Failed)
    assert re.search(words, response.reason)
