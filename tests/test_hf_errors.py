"""Errors under the `hf` backend: out of memory, NaN logits, a model that raises. No result is lost."""

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from assay import simple_evaluate
from assay.models.local.generation import NAN_LOGITS
from assay.models.local.hf.backend import HF
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Text
from hf_world import BEGIN, WORDS, answers, build, numbers, plain_generated, plain_likelihood, text, words
from kinds import mostly_nightly
from small_runs import write_task

PACKED_AND_PLAIN = pytest.mark.parametrize("shared", [True, False])


def pairs(count: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    draw = random.Random(seed)
    shots = [draw.randrange(3, WORDS) for _ in range(40)]
    contexts = [shots + [draw.randrange(3, WORDS) for _ in range(draw.randint(1, 20))] for _ in range(count)]
    return [(each, [draw.randrange(3, WORDS) for _ in range(size)]) for each in contexts for size in (1, 3)]


def asked(items: list[tuple[list[int], list[int]]]) -> list[Any]:
    return [Loglikelihood(text(context), " " + text(rest)) for context, rest in items]


def limited(model: Any, is_too_much: Callable[[int, int], bool], error: Callable[[str], Exception]) -> Any:
    """A model that runs out of memory in some passes: by their tokens and the number of the pass."""
    passes = [0]

    def check(module: Any, options: Any) -> None:
        passes[0] += 1
        if is_too_much(options[0].numel(), passes[0]):
            raise error("tried to allocate 20.00 GiB")

    model.get_input_embeddings().register_forward_pre_hook(check)
    return model


def limited_model(
    is_too_much: Callable[[int, int], bool], shared: bool, error: Any = torch.OutOfMemoryError, **options: Any
) -> HF:
    model = build("llama")
    ready = HF(model, tokenizer=words(), share_prefixes=shared, **options)
    limited(model, is_too_much, error)  # from now on: that it fits at all was seen on loading
    return ready


ERRORS = {
    "of torch": torch.OutOfMemoryError,
    "of the processor": lambda said: RuntimeError(f"[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: {said}"),
    "of a library": lambda said: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "of a Mac": lambda said: RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
    "of Python": MemoryError,
}  # fmt: skip
CASES: dict[str, Callable[[int, int], bool]] = {
    "at the first": lambda tokens, number: tokens > 100,
    "at the first, very much": lambda tokens, number: tokens > 65,
    "in between": lambda tokens, number: number in (4, 5, 9),
    "at the second": lambda tokens, number: number == 2,
    "at the third": lambda tokens, number: number == 3,
}


@PACKED_AND_PLAIN
@pytest.mark.parametrize(
    ("case", "error"), mostly_nightly(product(CASES, ERRORS), kept=list(zip(CASES, ERRORS, strict=True)))
)
def test_likelihoods_are_all_there_after_memory_was_short(case: str, error: str, shared: bool) -> None:
    text_pairs = pairs(30)
    model = limited_model(CASES[case], shared, ERRORS[error], batch_size=1 if shared and case == "in between" else None)
    for (context, rest), response in zip(text_pairs, answers(model, asked(text_pairs)), strict=True):
        assert isinstance(response, Likelihood), response
        assert response.value == pytest.approx(plain_likelihood("llama", context, rest)[0], abs=1e-4 * len(rest))


def test_memory_that_is_short_at_the_hundredth_pass_loses_nothing() -> None:
    text_pairs = pairs(150)
    model = limited_model(lambda tokens, number: number == 100, True)
    model._runner.scorer.budget.tokens = model._runner.scorer.budget.most = 60  # type: ignore[attr-defined]
    for (context, rest), response in zip(text_pairs, answers(model, asked(text_pairs)), strict=True):
        assert isinstance(response, Likelihood), response
        assert response.value == pytest.approx(plain_likelihood("llama", context, rest)[0], abs=1e-4 * len(rest))


@PACKED_AND_PLAIN
def test_a_request_for_which_there_is_never_memory_fails_and_the_others_do_not(shared: bool) -> None:
    text_pairs = pairs(20)
    text_pairs[7] = (text_pairs[7][0] + list(range(3, 83)), [5])
    model = limited_model(lambda tokens, number: tokens > 90, shared)
    responses = answers(model, asked(text_pairs))
    [failed] = [each for each in responses if isinstance(each, Failed)]
    assert responses.index(failed) == 7
    assert "do not fit into device memory" in failed.reason
    [again] = answers(model, asked([text_pairs[3]]))
    assert isinstance(again, Likelihood), "later requests are answered"


@PACKED_AND_PLAIN
@pytest.mark.parametrize("case", CASES)
def test_texts_are_all_there_after_memory_was_short(case: str, shared: bool) -> None:
    items = [context for context, _ in pairs(6, seed=3)] + [
        context[n:] for n, (context, _) in enumerate(pairs(6, seed=5))
    ]
    model = limited_model(CASES[case], shared)
    responses = answers(model, [Generate(text(each), {"until": [], "max_gen_toks": 20}) for each in items])
    for tokens, each in zip(items, responses, strict=True):
        assert isinstance(each, Text), each
        assert numbers(each.text) == [token for token in plain_generated("llama", tokens, 20) if token > 2]


def test_a_drawn_text_that_had_to_begin_again_is_the_same() -> None:
    requests = [
        Generate(text(context), {"until": [], "max_gen_toks": 40, "temperature": 0.8}, n)
        for n, (context, _) in enumerate(pairs(10, seed=4))
    ]
    undisturbed = answers(limited_model(lambda tokens, number: False, True), requests)
    disturbed = answers(limited_model(lambda tokens, number: number in (25, 50), True), requests)
    assert [each.text for each in disturbed] == [each.text for each in undisturbed]  # type: ignore[union-attr]


@PACKED_AND_PLAIN
def test_a_text_for_which_there_is_never_memory_fails_and_the_others_do_not(shared: bool) -> None:
    items = [context for context, _ in pairs(12, seed=3)]
    items[5] = items[5] + list(range(3, 63))
    model = limited_model(lambda tokens, number: tokens > 80, shared)
    responses = answers(model, [Generate(text(each), {"until": [], "max_gen_toks": 20}) for each in items])
    assert [n for n, each in enumerate(responses) if isinstance(each, Failed)] == [5]
    assert "memory" in responses[5].reason  # type: ignore[union-attr]
    for tokens, each in zip(items, responses, strict=True):
        if isinstance(each, Text):
            assert numbers(each.text) == [token for token in plain_generated("llama", tokens, 20) if token > 2]


# NaN and infinite logits


@PACKED_AND_PLAIN
def test_nan_logits_fail_their_own_requests_only(shared: bool) -> None:
    text_pairs = pairs(10)
    bad = next(token for token in range(30, WORDS) if all(token not in context + rest for context, rest in text_pairs))
    text_pairs[4] = ([*text_pairs[4][0][:-1], bad], text_pairs[4][1])
    text_pairs[9] = (text_pairs[9][0], [5, bad, 6])  # its own choice alone: what its context gives is a number
    model = build("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[bad] = float("nan")
    responses = answers(HF(model, tokenizer=words(), share_prefixes=shared), asked(text_pairs))
    assert [n for n, each in enumerate(responses) if isinstance(each, Failed)] == [4, 9]
    assert responses[4] == Failed(NAN_LOGITS)
    for (context, rest), each in zip(text_pairs, responses, strict=True):
        if isinstance(each, Likelihood):
            assert each.value == pytest.approx(plain_likelihood("llama", context, rest)[0], abs=1e-4 * len(rest))


def test_a_model_of_nothing_but_nans_fails_every_request_and_says_why() -> None:
    model = build("llama")
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    ready = HF(model, tokenizer=words())
    requests = [*asked(pairs(2)), Generate("w3", {"until": [], "max_gen_toks": 3})]
    assert set(answers(ready, requests)) == {Failed(NAN_LOGITS)}


def test_a_run_counts_what_failed_and_scores_the_rest(tmp_path: Any) -> None:
    """A NaN for one of three documents; and a model that raises on the second task does not end the run."""
    rows = [{"q": f"w{n} w{n + 1}", "choices": ["w40", "w41"], "gold": 0} for n in (10, 20, 30)]
    write_task(
        tmp_path, rows, "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: gold\nmetric_list: [{metric: acc}]\n"
    )  # fmt: skip
    model = build("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[20] = float("nan")
    ready = HF(model, tokenizer=words(), max_length=64)
    options: dict[str, Any] = {"tasks": ["t"], "include_path": str(tmp_path), "include_defaults": False}
    results = simple_evaluate(ready, **options)
    task_facts = results["assay"]["tasks"]["t"]
    assert (task_facts["failed"], results["results"]["t"]["sample_len"]) == (1, 2)
    scores = [
        plain_likelihood("llama", [n, n + 1], [40])[0] > plain_likelihood("llama", [n, n + 1], [41])[0]
        for n in (10, 30)
    ]
    assert results["results"]["t"]["acc,none"] == sum(scores) / 2

    def raises(module: Any, arguments: Any) -> None:
        raise ValueError("a broken layer")

    hook = model.get_input_embeddings().register_forward_pre_hook(raises)
    broken = simple_evaluate(ready, **options)
    assert broken["assay"]["tasks"]["t"]["failed"] == 3
    assert "a broken layer" in str(broken["assay"])
    hook.remove()
    assert simple_evaluate(ready, **options)["results"]["t"]["sample_len"] == 2


def test_the_bos_token_is_the_context_of_a_document_without_one() -> None:
    [response] = answers(HF(build("llama"), tokenizer=words()), [Loglikelihood("", "w5 w6")])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(plain_likelihood("llama", [BEGIN], [5, 6])[0], abs=2e-4)
