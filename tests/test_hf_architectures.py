"""Models of many architectures say the same here as with plain transformers; on a GPU: `python bench/gpu.py --parts archs`."""

import logging
from collections.abc import Callable

import pytest
import torch
from bench.architectures import ARCHITECTURES, TOLERANCE, compare

from assay.models.local.hf.backend import HF
from assay.models.local.slots import GraphRecorder
from assay.records import Generate, Text
from hf_world import answers, build, generated, numbers, plain, text, words

ELSEWHERE = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "phi",
    "olmo2",
    "gpt2",
    "gpt_neox",
    "opt",
    "bloom",
    "mamba",
    "t5",
)
"""Tried more thoroughly in test_hf_scoring.py and test_hf_generation.py; jamba takes seconds."""


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in (*ELSEWHERE, "jamba")])
@pytest.mark.filterwarnings("ignore")  # of transformers, about its own fields
def test_log_likelihoods_and_greedy_texts_equal_those_of_plain_transformers(name: str) -> None:
    outcome = compare(name)
    assert outcome.largest <= TOLERANCE
    assert outcome.equal_texts == outcome.texts


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
    expected = [[token for token in generated(plain("llama"), each, 20) if token > 2] for each in prompts]
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
