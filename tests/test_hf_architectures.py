"""Models of many architectures say the same here as with plain transformers; on a GPU: `python bench/gpu.py --parts archs`."""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from bench import architectures
from bench.architectures import ARCHITECTURES, LENGTH, SAMPLE, TOLERANCE, WAYS, Plain, Warnings, outcome, tokenizer

from assay.comparison.verification import PRECISIONS, SAME, verification
from assay.evaluation.options import run_config
from assay.evaluation.verify import verify
from assay.models.local.attention import NAME
from assay.models.local.hf.backend import HF
from assay.models.local.hf.fallback import RETRIED
from assay.models.local.hf.ways import PADDED
from assay.models.local.slots import GraphRecorder
from assay.records import Generate, Text
from hf_world import answers, build, numbers, plain_generated, text, words
from kinds import mostly_nightly
from small_runs import write_task

EVERY = pytest.mark.parametrize("name", mostly_nightly(ARCHITECTURES, kept=SAMPLE))
pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers, about its own fields


@cache
def expected(name: str) -> Plain:
    return architectures.plain_answers(architectures.build(name), every=5)


def opened(model: Any, **options: Any) -> HF:
    return HF(model, tokenizer=tokenizer(), max_length=LENGTH, **options)


@EVERY
def test_log_likelihoods_and_greedy_texts_equal_those_of_plain_transformers(name: str) -> None:
    with Warnings() as warned:
        result = outcome(opened(architectures.build(name)), expected(name), warned)
    assert result.largest <= TOLERANCE
    assert result.equal_texts == result.texts
    assert result.way == WAYS[name]
    assert result.computed <= 1.05 or result.way in ("padded", "encoder-decoder")
    shares = "prefixes are not shared" not in " ".join(result.remarks)
    assert shares == (result.way != "padded"), "a causal model that does not share says so"


@EVERY
def test_what_fails_in_the_middle_is_computed_in_another_way_with_the_same_numbers(name: str) -> None:
    """Packed attention and copied states fail from the second pass on; padded batches, once."""
    model = architectures.build(name)
    ours = opened(model)
    passes: list[int] = []

    def fail(module: Any, arguments: Any, options: dict[str, Any]) -> None:
        passes.append(1)
        is_fast = model.config._attn_implementation == NAME or (WAYS[name] == "states" and options.get("use_cache"))
        if not ours.fallbacks and ((is_fast and len(passes) > 1) or len(passes) == 2):
            raise NotImplementedError("no kernel for this shape")

    model.register_forward_pre_hook(fail, with_kwargs=True)
    ours._runner.forget()
    if WAYS[name] == "packed":
        ours._runner.scorer.budget.tokens = ours._runner.scorer.budget.most = 100  # type: ignore[attr-defined]  # several passes
    with Warnings() as warned:
        result = outcome(ours, expected(name), warned)
    assert result.is_equal, result
    way = {"packed": "padded", "states": "padded"}.get(WAYS[name], WAYS[name])
    assert (result.way, [each["what"] for each in ours.fallbacks]) == (way, [PADDED if way != WAYS[name] else RETRIED])
    assert len(warned.lines) == 1


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task of choices and one of texts, with contexts that begin alike."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = [{"q": text(context), "a": f" {text(rest)}"} for context, rest in architectures.questions()[::3]]
    for name, more in {
        "choices": "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [w5 w6, w7, w8 w9 w10]\ndoc_to_target: 0\nmetric_list: [{metric: acc}]\n",
        "texts": "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: a\ngeneration_kwargs: {until: [], max_gen_toks: 8}\nmetric_list: [{metric: exact_match}]\n",
    }.items():
        write_task(folder / name, rows, more, name=name)
    return folder


@EVERY
def test_verify_backend_finds_the_shared_and_the_plain_way_the_same(name: str, questions: Path) -> None:
    config = run_config(
        {"tasks": ["choices", "texts"], "include_path": str(questions), "include_defaults": False, "limit": 6}
    )
    ways = [opened(architectures.build(name), share_prefixes=shared) for shared in (False, True)]
    result = verification(verify(ways[0], ways[1], config), PRECISIONS["float32"])
    assert result.verdict == SAME
    assert (result.answers.compared["loglikelihood"], result.answers.compared["generate"]) == (18, 6)
    assert [each.way for each in ways] == ["encoder-decoder" if name == "t5" else "padded", WAYS[name]]


def test_the_command_compares_the_two_ways_of_a_folder(
    questions: Path, tmp_path: Path, run_assay: Callable[..., Any]
) -> None:
    architectures.build("olmo3").save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    model = f"hf,pretrained={tmp_path / 'model'},max_length={LENGTH}"
    tasks = ["--tasks", "choices", "texts", "--include_path", questions, "--no_defaults", "--limit", 6]
    ended = run_assay("verify-backend", f"{model},share_prefixes=false", model, *tasks)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "same" in ended.stdout


class Unrecordable(GraphRecorder):
    """A device that runs a step and then refuses to record it, as CUDA does for mixtures of experts."""

    def __init__(self, error: type[RuntimeError]) -> None:
        super().__init__(torch.device("cpu"))
        self.is_able, self._error, self.tries = True, error, 0

    def captured(self, step: Callable[[], None]) -> Callable[[], None]:
        self.tries += 1
        step()
        step()
        raise self._error("Cannot copy between CPU and CUDA tensors during CUDA graph capture\nand more lines")


def test_texts_of_a_model_whose_step_cannot_be_recorded_are_generated_without_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = HF(build("llama"), tokenizer=words())
    recorder = model._runner.generator._recorder = Unrecordable(RuntimeError)
    prompts = [[5, 9, 13, 40 + n] for n in range(5)] + [[7] * n for n in range(30, 34)]
    asked = [Generate(text(each), {"until": [], "max_gen_toks": 20, "do_sample": False}) for each in prompts]
    with caplog.at_level(logging.WARNING, "assay"):
        result = [*answers(model, asked), *answers(model, asked)]
    expected = [[token for token in plain_generated("llama", each, 20) if token > 2] for each in prompts]
    assert [numbers(each.text) for each in result if isinstance(each, Text)] == expected * 2
    assert recorder.tries == 1
    assert [each.getMessage() for each in caplog.records] == [
        "texts are generated without CUDA graphs, which is slower: "
        "Cannot copy between CPU and CUDA tensors during CUDA graph capture"
    ]


def test_running_out_of_memory_while_recording_does_not_count_as_an_unrecordable_step() -> None:
    recorder = Unrecordable(torch.OutOfMemoryError)
    counter = torch.zeros(1)
    with pytest.raises(torch.OutOfMemoryError):
        recorder.record(lambda: counter.add_(1) and None, [counter])
    assert recorder.is_able and counter.item() == 0
