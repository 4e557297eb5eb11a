"""Log-likelihoods of the `hf` backend, next to plain forwards of transformers: whatever is shared, packed, kept or split."""

import random
import time
from typing import Any

import pytest
import torch
from bench.architectures import unique_tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.local.embedded import BUNDLED
from assay.models.local.hf.backend import HF
from assay.models.local.windows import Pair
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Rolling
from hf_world import BEGIN, LENGTH, WORDS, answers, build, ours, plain, plain_likelihood, text, words
from kinds import mostly_nightly

PACKED = ("llama", "gpt2", "gpt_neox", "qwen2", "qwen3", "opt", "phi", "olmo2", "gemma", "gemma2", "mistral")
STATEFUL = ("bloom", "mamba")
KINDS = pytest.mark.parametrize(
    "kind", mostly_nightly((*PACKED, *STATEFUL), kept=("llama", "gpt2", "gemma2", *STATEFUL))
)
Tokens = list[int]


def few_shot(questions: int = 8, shots: int = 60, seed: int = 0) -> list[tuple[Tokens, Tokens]]:
    """Questions behind the same examples; four choices of one token, then four of several."""
    draw = random.Random(seed)

    def some(count: int) -> Tokens:
        return [draw.randrange(3, WORDS) for _ in range(count)]

    examples, pairs = some(shots), []
    for _ in range(questions):
        context = examples + some(draw.randint(1, 12))
        pairs += [(context, some(1)) for _ in range(4)] + [(context, some(draw.randint(2, 6))) for _ in range(4)]
    return pairs


def asked(pairs: list[tuple[Tokens, Tokens]]) -> list[Any]:
    return [Loglikelihood(text(context), " " + text(continuation)) for context, continuation in pairs]


def check(model: HF, kind: str, pairs: list[tuple[Tokens, Tokens]]) -> None:
    for (context, continuation), response in zip(pairs, answers(model, asked(pairs)), strict=True):
        assert isinstance(response, Likelihood), response
        value, greedy = plain_likelihood(kind, context or [BEGIN], continuation)
        assert response.value == pytest.approx(value, abs=1e-4 * len(continuation))
        assert response.greedy is greedy


@KINDS
def test_shared_prefixes_give_the_numbers_of_a_plain_forward(kind: str) -> None:
    assert ours(kind).remarks == {}
    check(ours(kind), kind, few_shot())


@KINDS
def test_a_token_that_texts_share_is_computed_once(kind: str) -> None:
    pairs = few_shot()
    responses = answers(ours(kind), asked(pairs))
    computed = sum(each.usage.read - each.usage.stored for each in responses)
    assert computed <= unique_tokens(pairs)  # less where a model still holds the examples of the test before


def test_a_model_whose_states_cannot_be_copied_runs_in_padded_batches_with_a_remark() -> None:
    model = HF(build("rwkv"), tokenizer=words())
    assert "its layers have states; its states cannot be copied" in model.remarks["loglikelihood"]
    check(model, "rwkv", few_shot(3))


def test_prefixes_are_not_shared_where_that_is_not_wanted() -> None:
    model = HF(build("llama"), tokenizer=words(), share_prefixes=False)
    check(model, "llama", few_shot(3))
    computed = sum(each.usage.read - each.usage.stored for each in answers(model, asked(few_shot(3, seed=9))))  # type: ignore[union-attr]
    assert computed > 3 * unique(few_shot(3, seed=9))


# trees of contexts and continuations of all shapes


TOKEN = st.integers(
    3, 9
)  # few words: contexts that begin alike, and some that are the beginning of others, come by themselves
BEGINNINGS = st.lists(st.lists(TOKEN, min_size=0, max_size=25), min_size=1, max_size=3)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[Tokens, Tokens]]:
    stems = draw(BEGINNINGS)
    contexts = [stem + draw(st.lists(TOKEN, max_size=12)) for stem in stems for _ in range(draw(st.integers(1, 3)))]
    contexts += [context[: len(context) // 2] for context in contexts[:1]]
    choices = st.one_of(st.lists(TOKEN, min_size=1, max_size=1), st.lists(TOKEN, min_size=2, max_size=15))
    pairs = [(context, draw(choices)) for context in contexts for _ in range(draw(st.integers(1, 4)))]
    return draw(st.permutations(pairs + pairs[:2]))


@settings(max_examples=60, deadline=None)
@given(trees(), st.sampled_from([1, 7, 40, 200, 10_000]), st.integers(1, 20))
def test_any_tree_at_any_budget_of_tokens_is_read_as_one_by_one(
    pairs: list[tuple[Tokens, Tokens]], budget: int, chunk: int
) -> None:
    """In chunks of any size, so that prefixes are kept for those that come later."""
    scorer = ours("llama")._runner.scorer  # type: ignore[attr-defined]
    scorer.budget.tokens = scorer.budget.most = budget
    named: list[Pair] = [(n, [BEGIN, *context], continuation) for n, (context, continuation) in enumerate(pairs)]
    chunks = [named[start : start + chunk] for start in range(0, len(named), chunk)]
    result = {each.number: each for items in scorer.score(chunks) for each in items}
    assert sorted(result) == list(range(len(pairs)))
    for number, (context, continuation) in enumerate(pairs):
        value, greedy = plain_likelihood("llama", [BEGIN, *context], continuation)
        assert result[number].value == pytest.approx(value, abs=1e-4 * len(continuation))
        assert result[number].greedy is greedy
        assert result[number].read == len(context) + len(continuation)
        assert 0 <= result[number].stored <= result[number].read


def unique(pairs: list[tuple[Tokens, Tokens]]) -> int:
    """The tokens that cannot be computed fewer: each beginning of a sequence, but for its last token, once."""
    return len({tuple((context + rest)[:n]) for context, rest in pairs for n in range(1, len(context + rest))})


def forwarded(model: Any, run: Any) -> int:
    """How many tokens a model embeds while something is done."""
    counted: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, outputs: counted.append(inputs[0].numel())
    )
    run()
    hook.remove()
    return sum(counted)


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_every_shared_token_of_a_few_shot_task_is_computed_once(batch_size: int | None) -> None:
    pairs = [pair for subject in range(3) for pair in few_shot(25, 150, seed=subject)]
    model = build("llama")
    loaded_model = HF(model, tokenizer=words(), batch_size=batch_size)
    collected: list[Any] = []
    computed = forwarded(model, lambda: collected.extend(answers(loaded_model, asked(pairs))))
    assert computed <= 1.05 * unique(pairs)
    assert computed == sum(each.usage.read - each.usage.stored for each in collected), (
        "the reported usage is what was computed"
    )
    assert sum(each.usage.read for each in collected) == sum(len(context) + len(rest) - 1 for context, rest in pairs)


def test_a_prefix_is_kept_for_requests_that_come_in_a_later_chunk() -> None:
    pairs = few_shot(60, 100)  # 480 requests: the first 256 go ahead
    model = build("llama")
    loaded_model = HF(model, tokenizer=words())
    assert forwarded(model, lambda: answers(loaded_model, asked(pairs))) <= 1.05 * unique(pairs)


@pytest.mark.parametrize("shared", [True, False])
def test_the_seconds_of_all_requests_are_those_of_the_device_and_none_counts_twice(shared: bool) -> None:
    model, busy = build("llama"), [0.0]

    def slow(module: Any, options: Any) -> None:
        time.sleep(0.02)
        busy[0] += 0.02

    loaded_model = HF(model, tokenizer=words(), share_prefixes=shared, batch_size=1)
    model.register_forward_pre_hook(slow)
    requests = [*asked(few_shot(40, 30)), *(Generate(f"w{n}", {"until": [], "max_gen_toks": 9}) for n in range(5, 9))]
    began = time.perf_counter()
    reported = sum(each.usage.seconds for each in answers(loaded_model, requests))  # type: ignore[union-attr]
    assert busy[0] <= reported <= time.perf_counter() - began


# texts as a whole


@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("length", [1, LENGTH, LENGTH + 1, 3 * LENGTH + 5])
def test_a_whole_text_is_scored_in_windows_each_token_once_after_one_bos_token(
    kind: str, begins: bool, length: int
) -> None:
    """Windows that do not overlap, the last a full one: lm-eval's definition, but with one BOS where it has two."""
    draw = random.Random(length)
    tokens = [draw.randrange(3, WORDS) for _ in range(length)]
    model = HF(build(kind), tokenizer=words(begins))
    [response] = answers(model, [Rolling(text(tokens))])
    assert isinstance(response, Likelihood)
    total, done, seen = 0.0, 0, [BEGIN, *tokens]
    while done < length:
        size = min(LENGTH, length - done)
        start = max(0, done + size - LENGTH)  # in `seen`, where every index is one higher
        total += plain_likelihood(kind, seen[start : done + 1], seen[done + 1 : done + size + 1])[0]
        done += size
    assert response.value == pytest.approx(total, abs=1e-4 * length)


def test_texts_without_a_token_are_certain_and_nothing_is_asked() -> None:
    assert answers(ours("llama"), [Rolling(""), Loglikelihood("w3 w4", "")]) == [Likelihood(0.0, True)] * 2


# what is too long


def test_a_context_that_is_too_long_fails_alone_or_loses_its_beginning_and_that_is_counted() -> None:
    draw = random.Random(1)
    long = [draw.randrange(3, WORDS) for _ in range(LENGTH + 10)]
    pairs = [(long, [5, 6]), ([7, 8], [9])]
    failed, short = answers(ours("llama"), asked(pairs))
    assert isinstance(failed, Failed)
    assert f"exceed the model's context length of {LENGTH}" in failed.reason
    assert isinstance(short, Likelihood)
    cut, short = answers(ours("llama", over_length="truncate"), asked(pairs))
    assert isinstance(cut, Likelihood)
    assert cut.usage is not None
    assert cut.usage.cut == 11
    value, _ = plain_likelihood("llama", long[11:], [5, 6])  # lm-eval keeps the last max_length + 1 tokens
    assert cut.value == pytest.approx(value, abs=2e-4)
    assert isinstance(short, Likelihood)
    assert short.usage is not None
    assert short.usage.cut == 0


# models that read one text and write another


def seq2seq_likelihood(context: Tokens, continuation: Tokens) -> float:
    start = plain("t5").config.decoder_start_token_id
    with torch.no_grad():
        logits = plain("t5")(
            input_ids=torch.tensor([context]), decoder_input_ids=torch.tensor([[start, *continuation[:-1]]])
        ).logits[0]
    return float(logits.log_softmax(-1).gather(1, torch.tensor(continuation)[:, None]).sum())


def test_a_model_that_reads_one_text_and_writes_another_gives_the_likelihood_of_the_second() -> None:
    pairs = few_shot(3, 20)
    for (context, continuation), response in zip(pairs, answers(ours("t5"), asked(pairs)), strict=True):
        assert isinstance(response, Likelihood)
        assert response.value == pytest.approx(seq2seq_likelihood(context, continuation), abs=1e-4 * len(continuation))
    assert not ours("t5").can.rolling


def test_both_texts_of_such_a_model_may_be_as_long_as_it_is() -> None:
    model = HF(build("t5"), tokenizer=words(), max_length=20)
    pairs = [(list(range(3, 23)), list(range(30, 50))), (list(range(3, 24)), [5])]
    whole, long = answers(model, asked(pairs))
    assert isinstance(whole, Likelihood)
    assert whole.value == pytest.approx(seq2seq_likelihood(*pairs[0]), abs=2e-3)
    assert isinstance(long, Failed)
    cutting = HF(build("t5"), tokenizer=words(), max_length=20, over_length="truncate")
    [_, cut] = answers(cutting, asked(pairs))
    assert isinstance(cut, Likelihood)
    assert cut.usage is not None
    assert cut.usage.cut == 1
    assert cut.value == pytest.approx(seq2seq_likelihood(pairs[1][0][1:], [5]), abs=1e-4)


def test_the_bundled_folder_read_by_transformers_gives_what_the_embedded_model_gives() -> None:
    from assay.models.local.embedded import Embedded

    draw = random.Random(2)
    shots = "2 + 3 = 5\n\nOne fox, two foxes\n\n"
    requests: list[Any] = [
        Loglikelihood(f"{shots}{draw.randint(1, 99)} + {draw.randint(1, 9)} =", f" {draw.randint(1, 120)}")
        for _ in range(60)
    ]
    requests += [Rolling("Anna went to the park. " * 5), Loglikelihood("", "One fish"), Loglikelihood("2 + ", "3")]
    model = HF(str(BUNDLED), dtype="float32")
    for mine, other in zip(answers(model, requests), answers(Embedded(), requests), strict=True):
        assert isinstance(mine, Likelihood)
        assert isinstance(other, Likelihood)
        assert mine.usage is not None
        assert mine.value == pytest.approx(other.value, abs=1e-4 * mine.usage.read)
        assert mine.greedy is other.greedy
