"""A faster way of computing that fails in the middle of a run: what plain transformers says is said, once, and the rest counted."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import simple_evaluate
from assay.models.local.attention import NAME
from assay.models.local.hf.backend import HF
from assay.models.local.hf.compiled import UNCOMPILED
from assay.models.local.hf.fallback import RETRIED, WITHOUT_FLASH, FallbackRunner
from assay.models.local.hf.ways import EAGER, PADDED, packed_ways
from assay.models.local.slots import WITHOUT_GRAPHS, GraphRecorder
from assay.models.protocol import ModelLost
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Text
from assay.runs.run import Run
from hf_world import (
    WORDS,
    answers,
    build,
    generated,
    likelihood,
    numbers,
    plain_generated,
    plain_likelihood,
    text,
    words,
)
from small_runs import write_task

SHARED = [5 + n % 50 for n in range(40)]
PAIRS = [([*SHARED, 60 + n, 7], [9, 11, 3 + n]) for n in range(12)]
PROMPTS = [[*SHARED[: 20 + n], 80 + n] for n in range(8)]
Fails = Callable[[int, str], bool]
"""By the number of the pass since it was loaded, and the attention of the model."""


def failing(model: Any, fails: Fails, error: Callable[[], Exception]) -> list[str]:
    """Let a model raise in some passes; returns the attention of every pass."""
    passes: list[str] = []

    def check(module: Any, arguments: Any) -> None:
        passes.append(model.config._attn_implementation)
        if fails(len(passes), passes[-1]):
            raise error()

    model.get_input_embeddings().register_forward_pre_hook(check)
    return passes


def broken_kernel() -> Exception:
    return RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`\nand more lines")


def failing_model(fails: Fails, error: Callable[[], Exception] = broken_kernel, kind: str = "llama") -> HF:
    model = build(kind)
    ready = HF(model, tokenizer=words(), batch_size=2)
    failing(model, fails, error)
    return ready


def check_answers(model: HF, kind: str = "llama") -> None:
    """Log-likelihoods and texts are those of plain transformers."""
    scored = answers(model, [Loglikelihood(text(context), " " + text(rest)) for context, rest in PAIRS])
    for (context, rest), response in zip(PAIRS, scored, strict=True):
        assert isinstance(response, Likelihood), response
        assert response.value == pytest.approx(plain_likelihood(kind, context, rest)[0], abs=1e-4)
    written = answers(model, [Generate(text(each), {"until": [], "max_gen_toks": 20}) for each in PROMPTS])
    for prompt, each in zip(PROMPTS, written, strict=True):
        assert isinstance(each, Text), each
        assert numbers(each.text) == [token for token in plain_generated(kind, prompt, 20) if token > 2]


def fallen(model: HF) -> list[str]:
    return [str(each["what"]) for each in model.fallbacks]


@pytest.mark.parametrize("number", [1, 2, 4, 30])
def test_a_pass_that_fails_once_is_computed_again_the_same_way(number: int) -> None:
    model = failing_model(lambda passes, attention: passes == number)
    check_answers(model)
    assert (model.way, fallen(model)) == ("packed", [RETRIED])


@pytest.mark.parametrize("first", [1, 2, 5, 9, 25])
def test_packed_attention_that_keeps_failing_is_left_for_padded_batches_and_that_is_logged_once(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = failing_model(lambda passes, attention: passes >= first and attention == NAME)
    with caplog.at_level(logging.WARNING, "assay"):
        check_answers(model)
        check_answers(model)
    assert model.way == "padded"
    [fallback] = model.fallbacks
    assert fallback["reason"] == "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"
    assert 0 < int(str(fallback["requests"])) <= len(PAIRS)
    assert [each.getMessage() for each in caplog.records] == [f"{PADDED}: {fallback['reason']}"]


@pytest.mark.parametrize(
    "error", [NotImplementedError, TypeError, ImportError, OSError, AssertionError, KeyError, Exception]
)
def test_whatever_a_kernel_raises_leads_to_the_plain_way(error: type[Exception]) -> None:
    model = failing_model(lambda passes, attention: passes > 3 and attention == NAME, error)
    check_answers(model)
    assert fallen(model) == [PADDED]


def test_copied_states_that_fail_are_left_for_padded_batches() -> None:
    model = build("mamba")
    ready = HF(model, tokenizer=words(), batch_size=2)
    assert ready.way == "states"
    model.register_forward_pre_hook(refuse_caches, with_kwargs=True)
    scored = answers(ready, [Loglikelihood(text(context), " " + text(rest)) for context, rest in PAIRS])
    for (context, rest), response in zip(PAIRS, scored, strict=True):
        assert isinstance(response, Likelihood), response
        assert response.value == pytest.approx(plain_likelihood("mamba", context, rest)[0], abs=5e-4)
    assert (ready.way, fallen(ready)) == ("padded", [PADDED])


def refuse_caches(module: Any, arguments: Any, options: dict[str, Any]) -> None:
    if options.get("use_cache"):
        raise RuntimeError("no kernel for states")


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
def test_a_compiler_that_is_missing_leaves_the_model_uncompiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(config.cpp, "cxx", (None, str(tmp_path / "no-compiler")))
    model = HF(build("llama"), tokenizer=words(), compile=True)
    with caplog.at_level(logging.WARNING, "assay"):
        check_answers(model)
    assert (model.way, fallen(model)) == ("packed", [UNCOMPILED])
    assert len([each for each in caplog.records if each.name == "assay"]) == 1


def test_a_flash_kernel_that_is_missing_is_left_out_on_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU has none: torch refuses the call."""
    monkeypatch.setattr("assay.models.local.hf.checks._is_flash", lambda model: True)
    model = HF(build("llama"), tokenizer=words())
    assert fallen(model) == [WITHOUT_FLASH]
    check_answers(model)
    assert (model.way, len(model.fallbacks)) == ("packed", 1)


def with_ways(model: HF, change: Callable[[Any], None]) -> HF:
    """The model with ways as they would be on another device."""
    runner, plain_way = model._runner, model._ways._ways[-1]
    change(runner)
    ways = packed_ways(runner, runner.scorer._net)  # type: ignore[attr-defined,arg-type]
    model._ways = FallbackRunner([*ways, plain_way], torch.device("cpu"), model._ways.fallbacks)
    return model


def test_a_flash_kernel_that_refuses_a_shape_in_the_middle_of_a_run_is_left_out() -> None:
    def use_flash(runner: Any) -> None:
        runner.scorer._net.flash = True

    model = with_ways(HF(build("llama"), tokenizer=words()), use_flash)
    check_answers(model)
    assert (model.way, fallen(model)) == ("packed", [WITHOUT_FLASH])


class Breaking(GraphRecorder):
    """Records steps whose replay fails after some."""

    def __init__(self, works: int) -> None:
        super().__init__(torch.device("cpu"))
        self.is_able, self.works, self.replays = True, works, 0

    def captured(self, step: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.replays += 1
            if self.replays > self.works:
                raise RuntimeError("CUDA error: operation not permitted when replaying")
            step()

        return replay


@pytest.mark.parametrize("works", [0, 1, 17])
def test_a_recorded_step_that_fails_later_is_left_for_unrecorded_ones(works: int) -> None:
    def record(runner: Any) -> None:
        runner.generator._recorder = Breaking(works)

    model = with_ways(HF(build("llama"), tokenizer=words()), record)
    check_answers(model)
    assert (model.way, fallen(model)) == ("packed", [WITHOUT_GRAPHS])


def test_experts_that_fail_together_run_one_by_one() -> None:
    from bench import architectures

    expected = [architectures.likelihood(architectures.build("mixtral"), *pair) for pair in PAIRS]
    model = architectures.build("mixtral")
    if model.config._experts_implementation == "eager":
        pytest.skip("this transformers has no other code for experts")
    refuse_experts(model)
    ready = HF(model, tokenizer=words())  # refused at the first pass: on loading
    scored = answers(ready, [Loglikelihood(text(context), " " + text(rest)) for context, rest in PAIRS])
    assert [each.value for each in scored if isinstance(each, Likelihood)] == pytest.approx(expected, abs=1e-3)
    assert (ready.way, fallen(ready)) == ("packed", [EAGER])


def refuse_experts(model: Any) -> None:
    def refuse(module: Any, arguments: Any) -> None:
        if module.config._experts_implementation != "eager":
            raise RuntimeError("grouped_mm takes bfloat16 alone")

    layers = [each for each in model.modules() if type(each).__name__.endswith("Experts")]
    assert layers
    for each in layers:
        each.register_forward_pre_hook(refuse)


@pytest.mark.parametrize("is_sent_back", [True, False])
def test_texts_of_a_model_whose_cache_fails_are_written_without_one(is_sent_back: bool) -> None:
    model = build("llama")

    def refuse(module: Any, arguments: Any, options: dict[str, Any]) -> None:
        if options.get("past_key_values" if is_sent_back else "use_cache"):
            raise RuntimeError("the cache has no place for another token")

    model.register_forward_pre_hook(refuse, with_kwargs=True)
    ready = HF(model, tokenizer=words(), share_prefixes=False)
    assert ready.remarks == {
        "generate": "texts are computed again for every token: its cache failed: the cache has no place for another token"
    }
    check_answers(ready)


# requests and models that fail whatever the way


def test_a_request_that_plain_transformers_refuses_fails_alone_and_the_way_stays() -> None:
    small = build("llama")
    small.resize_token_embeddings(WORDS - 1)
    expected = build("llama")
    expected.resize_token_embeddings(WORDS - 1)
    pairs = list(PAIRS)
    pairs[5] = (pairs[5][0], [WORDS - 1, 8])  # no such row in the embedding: an IndexError
    ready = HF(small, tokenizer=words())
    responses = answers(ready, [Loglikelihood(text(context), " " + text(rest)) for context, rest in pairs])
    assert [n for n, each in enumerate(responses) if isinstance(each, Failed)] == [5]
    assert "the model failed: IndexError" in responses[5].reason  # type: ignore[union-attr]
    for (context, rest), each in zip(pairs, responses, strict=True):
        if isinstance(each, Likelihood):
            assert each.value == pytest.approx(likelihood(expected, context, rest)[0], abs=1e-4)
    prompts = [*PROMPTS[:3], [9, WORDS - 1], *PROMPTS[3:]]
    written = answers(ready, [Generate(text(each), {"until": [], "max_gen_toks": 8}) for each in prompts])
    assert [n for n, each in enumerate(written) if isinstance(each, Failed)] == [3]
    for prompt, one in zip(prompts, written, strict=True):
        if isinstance(one, Text):
            assert numbers(one.text) == [token for token in generated(expected, prompt, 8) if token > 2]
    assert (ready.way, ready.fallbacks) == ("packed", [])


def test_a_model_that_always_fails_is_not_asked_for_every_request() -> None:
    model = build("llama")
    ready = HF(model, tokenizer=words())
    passes = failing(model, lambda passes, attention: True, broken_kernel)
    pairs = [([*SHARED, 3 + n % 100, 3 + n // 100], [9]) for n in range(500)]
    with pytest.raises(RuntimeError, match="CUBLAS"):
        answers(ready, [Loglikelihood(text(context), " " + text(rest)) for context, rest in pairs])
    assert len(passes) < 40


def test_an_error_of_the_tokenizer_does_not_count_as_a_failure_of_the_device() -> None:
    model = HF(build("llama"), tokenizer=words())

    def raises(*_: Any) -> Iterator[Any]:
        raise ValueError("a broken tokenizer")

    model._chunks = raises  # type: ignore[assignment]
    with pytest.raises(ValueError, match="a broken tokenizer"):
        answers(model, [Loglikelihood("w5", " w6")])
    assert model.fallbacks == []


def test_a_model_that_cannot_compute_at_all_is_refused_in_words() -> None:
    model = build("llama")
    failing(
        model, lambda passes, attention: True, lambda: NotImplementedError("\"addmm\" not implemented for 'Float8'")
    )
    with pytest.raises(
        ValueError, match=r"LlamaForCausalLM cannot compute in float32 on cpu: \"addmm\" not impl.*dtype="
    ):
        HF(model, tokenizer=words())


# runs


@pytest.fixture
def world(tmp_path: Path) -> dict[str, Any]:
    rows = [{"q": f"w{n} w{n + 1} w8 w9", "choices": ["w40", "w41 w42"], "gold": n % 2} for n in range(10, 40)]
    layout = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: gold\nmetric_list: [{metric: acc}]\n"
    write_task(tmp_path / "tasks", rows, layout)
    return {"tasks": ["t"], "include_path": str(tmp_path / "tasks"), "include_defaults": False}


def test_the_remarks_of_a_run_say_what_was_computed_in_another_way(world: dict[str, Any], tmp_path: Path) -> None:
    expected = simple_evaluate(HF(build("llama"), tokenizer=words(), max_length=64), **world)
    model = failing_model(lambda passes, attention: attention == NAME)
    results = simple_evaluate(model, **world, output_path=str(tmp_path / "run"))
    assert results["results"] == expected["results"]
    [fallback] = results["assay"]["fallbacks"]
    assert fallback == {"what": PADDED, "reason": str(broken_kernel()).splitlines()[0], "times": 1, "requests": 60}
    line = f"{PADDED}: {fallback['reason']}; 60 requests were computed again"
    assert line in Run.open(tmp_path / "run").remarks


def test_a_device_that_is_lost_ends_the_run_and_the_same_command_resumes_it(
    world: dict[str, Any], tmp_path: Path
) -> None:
    expected = simple_evaluate(HF(build("llama"), tokenizer=words()), **world)
    options = {**world, "output_path": str(tmp_path / "run")}
    model = build("llama")
    ready = HF(model, tokenizer=words(), batch_size=1)
    ready._runner.scorer.budget.tokens = ready._runner.scorer.budget.most = 20  # type: ignore[attr-defined]
    passes = failing(
        model, lambda passes, _: passes >= 3, lambda: RuntimeError("CUDA error: device-side assert triggered")
    )
    with pytest.raises(ModelLost, match=r"can compute nothing more in this process.*run the same command to resume"):
        simple_evaluate(ready, **options)
    assert len(passes) == 3
    results = simple_evaluate(HF(build("llama"), tokenizer=words()), **options)
    assert results["assay"]["tasks"]["t"]["failed"] == 0
    assert results["results"] == expected["results"]
