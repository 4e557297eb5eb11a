"""Other requests of a batch change nothing, and NaN fails a request: faults a reviewer found."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from assay.models.local.hf.backend import HF
from assay.models.local.scoring import PackedScorer
from assay.models.local.tokenizer import HFTokenizer
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Rolling, Text
from hf_world import BEGIN, CONFIGS, END, GQA, UNKNOWN, WORDS, answers, build, generated, likelihood, text, words

draw = random.Random()


@pytest.fixture(autouse=True)
def draws_of_each_test() -> None:
    """Each test draws what it draws alone, whichever a worker has run before it."""
    draw.seed(1)


def some(count: int) -> list[int]:
    return [draw.randrange(3, WORDS) for _ in range(count)]


def asked(pair: tuple[list[int], list[int]]) -> Loglikelihood:
    return Loglikelihood(text(pair[0]), " " + text(pair[1]))


ROPES: dict[str, dict[str, Any]] = {
    "longrope": {
        "rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "short_factor": [1.0] * 4, "long_factor": [3.0] * 4,
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32},
}  # fmt: skip


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("kind", ROPES)
def test_positions_that_stretch_do_so_with_their_own_text_alone(
    kind: str, share: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**GQA, "max_position_embeddings": 128, "rope_parameters": ROPES[kind]}
    monkeypatch.setitem(CONFIGS, kind, lambda: transformers.LlamaConfig(**config))
    model = HF(build(kind), tokenizer=words(), max_length=120, share_prefixes=share)
    short, long = (some(10), some(4)), (some(60), some(3))
    alone = [likelihood(build(kind), *pair)[0] for pair in (short, long)]
    together = answers(model, [asked(short), asked(long)])
    assert [each.value for each in together if isinstance(each, Likelihood)] == pytest.approx(alone, abs=1e-4)
    prompts = [Generate(text(some(10)), {"max_gen_toks": 14}), Generate(text(long[0]), {"max_gen_toks": 14})]
    both = answers(model, prompts)
    assert [one for prompt in prompts for one in _texts(answers(model, [prompt]))] == _texts(both)
    if share:
        assert "positions depend on the longest text" in model.remarks["loglikelihood"]


def _texts(items: Any) -> list[str]:
    return [each.text for each in items if isinstance(each, Text)]


def test_a_model_that_sees_padding_is_asked_without(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}
    ends = {"bos_token_id": BEGIN, "eos_token_id": END}
    monkeypatch.setitem(CONFIGS, "rwkv", lambda: transformers.RwkvConfig(**small, intermediate_size=48, **ends))
    model = HF(build("rwkv"), tokenizer=words(), max_length=200)
    prompts = [some(length) for length in (4, 9, 9, 15, 4)]
    values = _texts(answers(model, [Generate(text(each), {"max_gen_toks": 8}) for each in prompts]))
    expected = [generated(build("rwkv"), each, 8) for each in prompts]
    special = (BEGIN, UNKNOWN)  # not shown
    assert values == [text([token for token in each if token not in special]) for each in expected]


@pytest.mark.parametrize("share", [True, False])
def test_infinite_logits_fail_the_request(share: bool) -> None:
    torn = build("llama")
    model = HF(torn, tokenizer=words(), share_prefixes=share)
    hook = torn.lm_head.register_forward_hook(
        lambda _module, _inputs, outputs: outputs.index_fill(-1, torch.tensor([50]), float("inf"))
    )
    drawn = {"max_gen_toks": 3, "do_sample": True, "temperature": 1.0}
    responses = answers(
        model, [asked(([5, 6], [9, 10])), Generate("w5 w6", {"max_gen_toks": 3}), Generate("w5", drawn)]
    )
    hook.remove()
    assert all(isinstance(each, Failed) for each in responses), responses


def test_the_prefix_token_of_a_text_is_not_scored() -> None:
    begun = HFTokenizer(words(True), prefix_token=7)
    assert begun.encode("w7 w8") == [BEGIN, 7, 8]
    assert begun.encode_whole("w9 w8") == [9, 8]
    model = HF(build("llama"), tokenizer=words(True), prefix_token_id=7)
    [response] = answers(model, [Rolling("w9 w8")])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(likelihood(build("llama"), [7], [9, 8])[0], abs=1e-4)


def _ending() -> Any:
    """A tokenizer that begins and ends every text."""
    tokenizer = words.__wrapped__(True)
    backend = tokenizer.backend_tokenizer
    template = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", BEGIN), ("</s>", END)])
    backend.post_processor = template
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def test_no_eos_token_is_added_to_a_context() -> None:
    tokenizer = _ending()
    assert tokenizer.encode("w9") == [BEGIN, 9, END]
    built_tokenizer = HFTokenizer(tokenizer)
    assert built_tokenizer.encode("w9 w8") == [BEGIN, 9, 8]
    assert built_tokenizer.pair("w9 w8", " w7 w6") == ([BEGIN, 9, 8], [7, 6])
    built_tokenizer.prime([], [("w9 w8", " w7 w6")])
    assert built_tokenizer.pair("w9 w8", " w7 w6") == ([BEGIN, 9, 8], [7, 6])
    assert HFTokenizer(tokenizer, ends=True).encode("w9") == [
        BEGIN,
        9,
        END,
    ]  # one that is read before another is written


def test_a_repeat_is_not_read_again() -> None:
    model = HF(build("llama"), tokenizer=words())
    shared = some(30)
    prompts = [shared + some(5) for _ in range(2)]
    drawn = {"max_gen_toks": 1, "temperature": 1.0}
    responses = answers(model, [Generate(text(each), drawn, repeat) for each in prompts for repeat in range(3)])
    used = [each.usage for each in responses if isinstance(each, Text)]
    computed = sum(usage.read - usage.stored for usage in used if usage is not None)
    assert computed == 30 + 5 + 5


def test_the_size_of_kept_prefixes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.models.local.scoring.CACHED_TOKENS", 70)
    model = HF(build("llama"), tokenizer=words())
    for _ in range(4):
        shared = some(40)
        answers(model, [asked((shared + some(6), [9])) for _ in range(2)])
    scorer: PackedScorer = model._runner.scorer  # type: ignore[attr-defined]
    assert [len(each.tokens) for each in scorer._cached.values()] == [40]
    answers(model, [Generate("w5", {"max_gen_toks": 1})])
    assert not scorer._cached  # texts have the memory


def test_one_token_takes_one_step() -> None:
    steps: list[int] = []
    torn = build("llama")
    model = HF(torn, tokenizer=words())
    torn.get_input_embeddings().register_forward_hook(lambda *_: steps.append(1))
    answers(model, [Generate("w5 w6", {"max_gen_toks": 1})])
    assert len(steps) <= 2


def test_weights_and_a_tokenizer_in_subfolders_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path / "model/inside")
    words(False).save_pretrained(tmp_path / "model/inside")
    words(False).save_pretrained(tmp_path / "words/inside")

    def identity() -> str:
        return HF(str(tmp_path / "model"), subfolder="inside", tokenizer=str(tmp_path / "words")).identity

    before = identity()
    assert identity() == before
    words(True).save_pretrained(tmp_path / "words/inside")
    assert identity() != before


def test_settings_of_generation_config_are_ignored() -> None:
    penalized = build("llama")
    penalized.generation_config.repetition_penalty = 50.0
    prompts = [some(6) for _ in range(6)]
    plain = [generated(build("llama"), each, 12) for each in prompts]
    assert [generated(penalized, each, 12) for each in prompts] != plain  # where it counts, it changes something
    values = _texts(
        answers(HF(penalized, tokenizer=words()), [Generate(text(each), {"max_gen_toks": 12}) for each in prompts])
    )
    assert values == [text([token for token in each if token not in (BEGIN, UNKNOWN)]) for each in plain]
