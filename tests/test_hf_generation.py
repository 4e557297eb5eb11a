"""Texts of the `hf` backend, next to `generate` of transformers: at any number of slots, with stops, limits and random numbers."""

import random
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.local.embedded import BUNDLED
from assay.models.local.generation import NAN_LOGITS, Generation
from assay.models.local.hf.backend import HF
from assay.models.local.recording import WithoutHostCopies
from assay.models.local.slots import LEADS, TokenSampler
from assay.records import Failed, Generate, Text
from hf_world import BEGIN, END, LENGTH, WORDS, answers, build, generated, numbers, ours, plain_generated, text, words
from kinds import mostly_nightly

EVERY = ("llama", "gpt2", "gpt_neox", "qwen2", "opt", "gemma", "gemma2", "mistral", "bloom", "mamba", "t5")


def prompts(count: int, seed: int = 0, shared: int = 20) -> list[list[int]]:
    draw = random.Random(seed)
    examples = [draw.randrange(3, WORDS) for _ in range(shared)]
    return [examples + [draw.randrange(3, WORDS) for _ in range(draw.randint(1, 30))] for _ in range(count)]


def greedy(tokens: list[int], **params: Any) -> Generate:
    return Generate(text(tokens), {"until": [], "do_sample": False, **params})


def written(response: Any) -> list[int]:
    """The tokens of a text; special ones are not in it."""
    assert isinstance(response, Text), response
    return numbers(response.text)


def ordinary(tokens: list[int]) -> list[int]:
    return [token for token in tokens if token > 2]


@pytest.mark.parametrize("kind", mostly_nightly(EVERY, kept=("llama", "gpt2", "gemma2", "mamba", "t5")))
def test_greedy_texts_are_those_of_generate(kind: str) -> None:
    token_lists = prompts(7)
    for tokens, response in zip(
        token_lists, answers(ours(kind), [greedy(each, max_gen_toks=20) for each in token_lists]), strict=True
    ):
        assert written(response) == ordinary(plain_generated(kind, tokens, 20))


@cache
def expected_texts() -> tuple[list[list[int]], list[int], list[list[int]]]:
    items = [*prompts(20, seed=1), *prompts(10, seed=2, shared=0), *prompts(3, seed=1)]
    limits = [random.Random(n).choice([1, 2, 15, 16, 17, 40]) for n in range(len(items))]
    return (
        items,
        limits,
        [plain_generated("llama", each, limit) for each, limit in zip(items, limits, strict=True)],
    )


@pytest.mark.parametrize("lead", [0, 2, 16])
@pytest.mark.parametrize("slots", [1, 3, 8, 64])
def test_texts_are_the_same_at_any_number_of_slots(slots: int, lead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lead`: steps that a GPU computes before the block before them is collected."""
    monkeypatch.setitem(LEADS, "cpu", lead)
    items, limits, expected = expected_texts()
    requests = [greedy(each, max_gen_toks=limit) for each, limit in zip(items, limits, strict=True)]
    responses = answers(ours("llama", batch_size=slots), requests)
    assert [written(each) for each in responses] == [ordinary(each) for each in expected]
    ends = ["length" if len(each) == limit else "stop" for each, limit in zip(expected, limits, strict=True)]
    assert [each.finish for each in responses] == ends  # type: ignore[union-attr]
    assert {"length"} <= set(ends)


def test_a_text_ends_with_the_token_that_ends_texts() -> None:
    model, prompted = build("llama"), prompts(12, seed=4)
    common = Counter(token for each in prompted for token in set(plain_generated("llama", each, 30))).most_common(1)[0][
        0
    ]
    with torch.no_grad():
        model.lm_head.weight[END] = 1.01 * model.lm_head.weight[common]
    expected = [generated(model, each, 30) for each in prompted]
    assert sum(len(each) < 30 for each in expected) > 0, "some end by themselves"
    responses = answers(HF(model, tokenizer=words()), [greedy(each, max_gen_toks=30) for each in prompted])
    assert [written(each) for each in responses] == [ordinary(each) for each in expected]
    assert [each.finish for each in responses] == ["stop" if len(each) < 30 else "length" for each in expected]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"])
def test_a_limit_may_be_given_by_any_of_its_names(name: str) -> None:
    [response] = answers(ours("llama"), [greedy([5, 6, 7], **{name: 3})])
    assert len(written(response)) == 3


# where a text must end: positions that a model does not have


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama"])
@pytest.mark.parametrize("shared", [True, False])
def test_texts_are_generated_up_to_the_last_position_of_a_model(kind: str, shared: bool) -> None:
    """GPT-2 and OPT look positions up in a table: one beyond it is an error."""
    model = HF(build(kind), tokenizer=words(), share_prefixes=shared)
    long, short = prompts(1, seed=3, shared=LENGTH - 40)[0], [5, 6]
    responses = answers(
        model, [greedy(long, max_gen_toks=300), greedy(short, max_gen_toks=250), greedy(long[1:], max_gen_toks=1)]
    )
    room = LENGTH - len(long)
    assert written(responses[0]) == ordinary(plain_generated(kind, long, room))
    assert written(responses[1]) == ordinary(plain_generated(kind, short, 250))
    assert responses[0].usage.written == room  # type: ignore[union-attr]


def test_a_prompt_that_is_too_long_fails_alone_or_loses_its_beginning_and_that_is_counted() -> None:
    long, short = prompts(1, seed=3, shared=LENGTH + 20)[0], [5, 6]
    failed, fine = answers(ours("llama"), [greedy(long, max_gen_toks=8), greedy(short, max_gen_toks=8)])
    assert isinstance(failed, Failed)
    assert f"{len(long)} tokens exceed the model's context length of {LENGTH}" in failed.reason
    assert written(fine)
    cut, fine = answers(
        ours("llama", over_length="truncate"), [greedy(long, max_gen_toks=8), greedy(short, max_gen_toks=8)]
    )
    assert written(cut) == ordinary(plain_generated("llama", long[len(long) - (LENGTH - 8) :], 8))  # as lm-eval cuts
    assert (cut.usage.cut, fine.usage.cut) == (len(long) - (LENGTH - 8), 0)  # type: ignore[union-attr]


def test_a_model_that_reads_one_text_and_writes_another_may_read_and_write_as_much_as_it_can_hold() -> None:
    model = HF(build("t5"), tokenizer=words(), max_length=20)
    items = [list(range(3, 23)), list(range(3, 24))]
    whole, long = answers(model, [greedy(each, max_gen_toks=20) for each in items])
    assert written(whole) == ordinary(plain_generated("t5", items[0], 20))
    assert isinstance(long, Failed)


# stops


@cache
def bundled() -> HF:
    return HF(str(BUNDLED), dtype="float32")


def test_a_text_ends_at_the_first_token_that_completes_a_stop_and_is_cut_exactly_before_it() -> None:
    """Stops that begin or end within a token, span several, overlap, or never come."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(BUNDLED), AutoTokenizer.from_pretrained(BUNDLED)
    prompt, draw = "Anna went to the", random.Random(0)
    input_ids = torch.tensor([tokenizer.encode(prompt)])
    tokens = model.float().generate(input_ids, max_new_tokens=40, do_sample=False)[0, input_ids.shape[1] :].tolist()
    texts = [tokenizer.decode(tokens[:count], skip_special_tokens=True) for count in range(1, 41)]
    requests, expected = [], []
    for _ in range(150):
        starts = [draw.randrange(len(texts[-1]) - 2) for _ in range(draw.randint(1, 3))]
        stops = [texts[-1][start : start + draw.randint(1, 9)] for start in starts] + ["never in it"]
        ended = next(each for each in texts if any(stop in each for stop in stops))
        requests.append(Generate(prompt, {"until": stops, "max_gen_toks": 40, "do_sample": False}))
        expected.append((ended[: min(ended.find(stop) for stop in stops if stop in ended)], "stop"))
    responses = answers(bundled(), requests)
    assert [(each.text, each.finish) for each in responses] == expected  # type: ignore[union-attr]
    assert len({text for text, _ in expected}) > 20


def test_a_stop_that_is_a_special_token_ends_a_text_though_it_is_not_in_it() -> None:
    token_lists = prompts(30, seed=6)
    texts = [plain_generated("llama", each, 25) for each in token_lists]
    model = build("llama")
    tokenizer = words().__class__(tokenizer_object=words().backend_tokenizer, bos_token="<s>", eos_token="</s>")
    with_stop, stop = next((each, token) for each in texts for token in each[3:] if each.index(token) > 2)
    tokenizer.add_special_tokens({"additional_special_tokens": [f"w{stop}"]})
    [response] = answers(
        HF(model, tokenizer=tokenizer),
        [greedy(token_lists[texts.index(with_stop)], max_gen_toks=25, until=["no", f"w{stop}"])],
    )
    assert isinstance(response, Text)
    assert numbers(response.text) == with_stop[: with_stop.index(stop)]
    assert response.finish == "stop"


# random numbers


def sampled(tokens: list[int], repeat: int = 0, **params: Any) -> Generate:
    return Generate(text(tokens), {"until": [], "do_sample": True, "max_gen_toks": 20, **params}, repeat)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_sampled_texts_depend_on_prompt_and_repeat_alone(kind: str) -> None:
    """Not on the order, the slots, or who is written beside it."""
    items = [sampled(each, repeat, temperature=0.9) for each in prompts(6, seed=5) for repeat in range(3)]
    expected = [written(each) for each in answers(ours(kind), items)]
    assert len({tuple(each) for each in expected}) == len(items), "repeats differ"
    shuffled = list(range(len(items)))
    random.Random(0).shuffle(shuffled)
    for slots in (1, 4, 64):
        mixed = [items[number] for number in shuffled] + [greedy(each, max_gen_toks=30) for each in prompts(3, seed=8)]
        responses = answers(ours(kind, batch_size=slots), mixed)
        assert [written(each) for each in responses[: len(items)]] == [expected[number] for number in shuffled]
    [alone] = answers(ours(kind), items[4:5])
    assert written(alone) == expected[4]


def test_repeats_of_a_prompt_share_its_reading() -> None:
    tokens = prompts(1, seed=5, shared=80)[0]
    model = build("llama")
    built, counted = HF(model, tokenizer=words()), list[int]()
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, built: counted.append(inputs[0].numel()))
    responses = answers(built, [sampled(tokens, repeat, max_gen_toks=1) for repeat in range(8)])
    assert counted[0] == len(tokens), "the prompt is read once"
    assert [each.usage.read - each.usage.stored for each in responses] == [len(tokens)] + [0] * 7  # type: ignore[union-attr]


def warped(logits: Any, temperature: float, top_p: float, top_k: int) -> Any:
    """Probabilities by transformers' own rules, in the order in which `generate` applies them."""
    from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores.softmax(-1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-32, 32), min_size=2, max_size=12, unique=True), st.floats(0.2, 3.0), st.floats(0.05, 1.0),
    st.integers(0, 6),
)  # fmt: skip
def test_tokens_are_drawn_with_the_probabilities_that_temperature_top_k_and_top_p_leave(
    values: list[int], temperature: float, top_p: float, top_k: int
) -> None:
    logits = torch.tensor([values]) / 4
    params = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": top_k}
    draw, steps = TokenSampler(1, torch.device("cpu")), 2000
    draw.set([0], [Generation(0, Generate("a", params), [1])])
    even = (torch.arange(steps) + 0.5) / steps
    slots = torch.zeros(steps, dtype=torch.long)
    chosen = draw.choose(logits.expand(steps, -1), slots, even)
    shares = np.bincount(chosen.numpy(), minlength=len(values)) / steps
    expected = warped(logits, temperature, top_p, top_k)[0].numpy()
    near_edge = np.isclose(
        np.cumsum(np.sort(warped(logits, temperature, 1.0, top_k)[0].numpy())[::-1]), top_p, atol=1e-5
    )
    if not near_edge.any():  # where a sum is just top_p, rounding decides
        assert shares == pytest.approx(expected, abs=2 / steps)


def test_drawing_at_temperature_nought_takes_the_likeliest() -> None:
    token_lists = prompts(3, seed=7)
    cold = answers(ours("llama"), [sampled(each, temperature=0.0) for each in token_lists])
    assert [written(each) for each in cold] == [ordinary(plain_generated("llama", each, 20)) for each in token_lists]


def test_a_parameter_that_is_not_known_fails_its_request_and_no_other() -> None:
    odd, fine = answers(ours("llama"), [greedy([5], num_beams=4), greedy([5], max_gen_toks=2)])
    assert odd == Failed("unsupported generation parameter 'num_beams'")
    assert written(fine)


# thinking


class Spelled:
    """Tokens by number, decoded as letters."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def __call__(self, tokens: Any) -> str:
        return "".join(self.letters[token] for token in tokens)


def thought(said: str, *, limit: int = 200, until: tuple[str, ...] = ("\n",), at_once: int = 16) -> Text:
    """What is made of a text that a model wrote by itself, a letter a token, and ended."""
    letters = sorted(set(said))
    writing = Generation(0, Generate("p", {"until": list(until), "max_gen_toks": limit}), [1], "</think>")
    tokens = [letters.index(letter) for letter in said] + [len(letters)] * at_once
    for start in range(0, len(tokens), at_once):
        if not writing.finish:
            writing.take(tokens[start : start + at_once], frozenset([len(letters)]), Spelled("".join(letters)))
    response = writing.response()
    assert isinstance(response, Text)
    return response


@pytest.mark.parametrize("at_once", [1, 16, 500])
def test_stop_sequences_apply_to_the_answer_and_reasoning_is_separate(at_once: int) -> None:
    response = thought("<think>one\ntwo</think> four\nfive", at_once=at_once)
    assert (response.text, response.reasoning, response.finish) == ("four", "one\ntwo", "stop")


def test_reasoning_that_never_ends_fails_the_request() -> None:
    response = thought("one\ntwo and three", limit=10)
    assert (response.text, response.reasoning, response.finish) == ("", "one\ntwo an", "thinking")


def test_a_model_that_does_not_think_answers_up_to_its_stop() -> None:
    response = thought("four\nfive")
    assert (response.text, response.reasoning, response.finish) == ("four", None, "stop")


@pytest.mark.parametrize("named", ["number", "text"])
def test_the_end_of_thinking_may_be_a_special_token(named: str) -> None:
    token_lists = prompts(30, seed=6)
    texts = [plain_generated("llama", each, 25) for each in token_lists]
    chosen, token = next((each, token) for each in texts for token in each[3:] if 2 < each.index(token) < 20)
    tokenizer = words().__class__(tokenizer_object=words().backend_tokenizer, bos_token="<s>", eos_token="</s>")
    tokenizer.add_special_tokens({"additional_special_tokens": [f"w{token}"]})
    model = HF(build("llama"), tokenizer=tokenizer, think_end_token=token if named == "number" else f"w{token}")
    [response] = answers(model, [greedy(token_lists[texts.index(chosen)], max_gen_toks=25)])
    assert isinstance(response, Text)
    last = len(chosen) - 1 - chosen[::-1].index(token)
    assert numbers(response.text) == chosen[last + 1 :]


# NaN and infinite logits


@pytest.mark.parametrize("shared", [True, False])
def test_nan_logits_fail_their_own_text_only(shared: bool) -> None:
    token_lists = prompts(6, seed=9)
    expected = [plain_generated("llama", each, 12) for each in token_lists]
    bad = next(token for token in range(30, WORDS) if all(token not in each for each in token_lists + expected))
    token_lists[2][-1] = bad
    model = build("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[bad] = float("nan")
    responses = answers(
        HF(model, tokenizer=words(), share_prefixes=shared), [greedy(each, max_gen_toks=12) for each in token_lists]
    )
    assert responses[2] == Failed(NAN_LOGITS)
    assert [written(each) for n, each in enumerate(responses) if n != 2] == [
        ordinary(each) for n, each in enumerate(expected) if n != 2
    ]


def test_nan_logits_after_the_end_of_a_text_are_ignored() -> None:
    writing = Generation(0, Generate("p", {"until": ["c"], "max_gen_toks": 9}), [1])
    writing.take([0, 1, 2, -1, -1], frozenset(), Spelled("abc"))
    assert writing.response() == Text("ab", "stop", usage=writing.response().usage)  # type: ignore[union-attr]
    writing = Generation(0, Generate("p", {"until": ["c"], "max_gen_toks": 9}), [1])
    writing.take([0, 1, -1, -1], frozenset(), Spelled("abc"))
    assert writing.response() == Failed(NAN_LOGITS)


def test_an_empty_prompt_starts_from_the_prefix_token() -> None:
    [response] = answers(ours("llama"), [Generate("", {"until": [], "max_gen_toks": 9, "do_sample": False})])
    assert written(response) == ordinary(plain_generated("llama", [BEGIN], 9))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "mistral"])
@pytest.mark.parametrize("slots", [3, 16])
def test_slots_share_the_keys_of_a_long_common_prefix(kind: str, slots: int) -> None:
    """Against `generate` of transformers; with fewer slots than texts, so that later texts find the prefix computed."""
    items = [*prompts(9, seed=5, shared=70), *prompts(2, seed=6, shared=0)]
    items.append(items[3])
    limits = [random.Random(n).choice([1, 5, 17, 30]) for n in range(len(items))]
    requests = [greedy(each, max_gen_toks=limit) for each, limit in zip(items, limits, strict=True)]
    responses = answers(ours(kind, batch_size=slots), requests)
    expected = [ordinary(plain_generated(kind, each, limit)) for each, limit in zip(items, limits, strict=True)]
    assert [written(each) for each in responses] == expected
    if kind in ("llama", "gpt2"):  # the others have windows that are shorter than the texts
        unique = sum(len(each) for each in items[:11]) - 8 * 70
        computed = [each.usage.read - each.usage.stored for each in responses]  # type: ignore[union-attr]
        assert unique <= sum(computed) <= unique + len(items[3])


# what a step copies between CPU and GPU while it is recorded; a device without memory stands for the GPU


META = torch.device("meta")


def test_what_a_step_copies_to_the_device_is_copied_before_it_is_recorded() -> None:
    numbers, copied = torch.arange(4.0), []

    def step() -> torch.Tensor:
        copied.append(numbers.to("cpu", torch.float64))  # stays here
        return (numbers + 1).to(META)

    with WithoutHostCopies(META) as mode:
        for _ in range(2):
            mode.begin()
            step()
        mode.record()
        assert step().shape == (4,)
        with pytest.raises(RuntimeError, match="another one in every step"):
            (numbers + 2).to(META)
    assert len(copied) == 3


def test_a_step_whose_copies_change_is_not_recorded() -> None:
    count = [0]

    def step() -> torch.Tensor:
        count[0] += 1
        return torch.tensor([count[0]], device=META)

    with WithoutHostCopies(META) as mode:
        step()
        mode.record()
        with pytest.raises(RuntimeError, match="another one in every step"):
            step()


def test_products_of_groups_need_no_ends_on_the_cpu() -> None:
    rows, weights = torch.randn(7, 4), torch.randn(3, 4, 5)
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)  # the second group is empty
    expected = torch.cat([rows[:2] @ weights[0], rows[2:] @ weights[2]])
    with WithoutHostCopies(META):
        result = torch._grouped_mm(rows, weights, offs=ends)
    torch.testing.assert_close(result, expected)
    with WithoutHostCopies(META), pytest.raises(RuntimeError, match="of weights"):
        torch._grouped_mm(torch.empty(1 << 12, 1 << 10), torch.empty(2, 1 << 10, 1 << 10), offs=ends[:2])
