"""Adapters of peft: merged here, and as peft itself computes them, unmerged."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.local.hf.backend import HF
from assay.records import Generate, Likelihood, Loglikelihood, Text
from hf_world import WORDS, answers, build, generated, likelihood, numbers, text, words

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")
ATTENTION = ["q_proj", "v_proj"]
PAIRS = [([5, 9, 13] + [20 + n] * 12, [9, 30 + n, 7]) for n in range(6)]
KINDS: dict[str, Any] = {
    "LoRA": lambda: peft.LoraConfig(r=4, lora_alpha=16, target_modules=ATTENTION),
    "LoRA of every layer": lambda: peft.LoraConfig(r=2, target_modules="all-linear", use_rslora=True),
    "LoRA with its head": lambda: peft.LoraConfig(r=2, target_modules=ATTENTION, modules_to_save=["lm_head"]),
    "DoRA": lambda: peft.LoraConfig(r=4, target_modules=ATTENTION, use_dora=True),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "LoHa": lambda: peft.LoHaConfig(r=4, target_modules=ATTENTION),
    "OFT": lambda: peft.OFTConfig(oft_block_size=4, target_modules=ATTENTION),
}
PROMPTS: dict[str, Any] = {
    "PROMPT_TUNING": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "PREFIX_TUNING": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "P_TUNING": lambda: peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16),
}


def adapted(config: Any, model: Any = None, seed: int = 3) -> Any:
    """A model with an adapter whose weights are as after a training: none is zero."""
    model = model or build("llama")
    torch.manual_seed(seed)
    with_adapter = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, weights in with_adapter.named_parameters():
            if weights.requires_grad:
                weights.add_(0.3 * torch.randn_like(weights) if "prompt" not in name else 0)
    return with_adapter.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "base"
    build("llama").save_pretrained(path)
    words().save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_adapter_gives_the_numbers_of_the_unmerged_one(kind: str, folder: Path, tmp_path: Path) -> None:
    unmerged = adapted(KINDS[kind]())
    unmerged.save_pretrained(tmp_path)
    model = HF(str(folder), peft=str(tmp_path))
    assert model.way == "packed"
    scored = answers(model, [Loglikelihood(text(context), " " + text(rest)) for context, rest in PAIRS])
    for (context, rest), each in zip(PAIRS, scored, strict=True):
        assert isinstance(each, Likelihood), each
        assert each.value == pytest.approx(likelihood(unmerged, context, rest)[0], abs=5e-4)
    far = [likelihood(build("llama"), *pair)[0] - likelihood(unmerged, *pair)[0] for pair in PAIRS]
    assert max(map(abs, far)) > 0.02, "the adapter changes something"
    written = answers(model, [Generate(text(context), {"until": [], "max_gen_toks": 8}) for context, _ in PAIRS])
    expected_texts = [generated(unmerged.base_model.model, context, 8) for context, _ in PAIRS]
    texts = [numbers(each.text) for each in written if isinstance(each, Text)]
    assert texts == [[token for token in tokens if token > 2] for tokens in expected_texts]


def test_the_adapter_is_part_of_the_fingerprint(folder: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        adapted(KINDS["LoRA"](), seed=seed).save_pretrained(tmp_path / f"{seed}")
    names = [None, str(tmp_path / "1"), str(tmp_path / "2"), str(tmp_path / "1")]
    identities = [HF(str(folder), peft=name).identity for name in names]
    assert len(set(identities)) == 3 and identities[1] == identities[3]


def refused(folder: Path, adapter: object, **options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load_model("hf", {"pretrained": str(folder), "peft": str(adapter), **options})
    return str(error.value)


@pytest.mark.parametrize("kind", PROMPTS)
def test_an_adapter_of_prompts_cannot_be_merged_and_is_refused(kind: str, folder: Path, tmp_path: Path) -> None:
    adapted(PROMPTS[kind]()).save_pretrained(tmp_path)
    message = refused(folder, tmp_path)
    assert f"of type {kind} changes no weights, and cannot be merged" in message
    assert "serve it" in message


def test_an_adapter_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    wider = build("llama").config
    wider.hidden_size, wider.head_dim = 48, 12
    adapted(KINDS["LoRA"](), type(build("llama"))(wider)).save_pretrained(tmp_path / "wider")
    message = refused(folder, tmp_path / "wider")
    assert "does not fit" in message and "size mismatch" in message
    assert "give the model that it was trained on as pretrained=" in message
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    adapted(config, build("gpt2")).save_pretrained(tmp_path / "gpt2")
    assert "Target modules" in refused(folder, tmp_path / "gpt2")


def test_an_adapter_of_a_model_with_more_layers_or_fewer_is_refused(folder: Path, tmp_path: Path) -> None:
    """peft itself leaves such weights out, or untrained, and warns."""
    for layers in (1, 4):
        config = build("llama").config
        config.num_hidden_layers = layers
        adapted(KINDS["LoRA"](), type(build("llama"))(config)).save_pretrained(tmp_path / f"{layers}")
    assert "has no weights for base_model.model.model.layers.1" in refused(folder, tmp_path / "1")
    assert "has weights for layers without it: base_model.model.model.layers.2" in refused(folder, tmp_path / "4")


def test_an_adapter_with_a_larger_vocabulary_is_refused(folder: Path, tmp_path: Path) -> None:
    larger = build("llama")
    larger.resize_token_embeddings(WORDS + 8)
    config = peft.LoraConfig(r=2, target_modules=ATTENTION, modules_to_save=["embed_tokens", "lm_head"])
    adapted(config, larger).save_pretrained(tmp_path)
    message = refused(folder, tmp_path)
    assert "has another vocabulary than" in message
    assert "merge the adapter with the script that trained it, save the whole model" in message


def test_missing_and_broken_files_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "adapter_config.json is missing" in refused(folder, tmp_path / "empty")
    assert "no adapter" in refused(folder, tmp_path / "nowhere")
    adapted(KINDS["LoRA"]()).save_pretrained(tmp_path / "whole")
    weights = tmp_path / "whole/adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    assert "cannot be read" in refused(folder, tmp_path / "whole")
    weights.unlink()
    assert "adapter_model.safetensors is missing" in refused(folder, tmp_path / "whole")
    (tmp_path / "whole/adapter_config.json").write_text("[1]")
    assert "must be a JSON object" in refused(folder, tmp_path / "whole")
    (tmp_path / "whole/adapter_config.json").write_text(json.dumps({"peft_type": "NEW"}))
    weights.write_bytes(content)
    assert "does not fit" in refused(folder, tmp_path / "whole")


def test_pickled_weights_of_an_adapter_are_refused_unless_they_are_trusted(folder: Path, tmp_path: Path) -> None:
    unmerged = adapted(KINDS["LoRA"]())
    unmerged.save_pretrained(tmp_path, safe_serialization=False)
    if not (tmp_path / "adapter_model.bin").exists():  # a peft that writes no pickles any more
        torch.save(peft.get_peft_model_state_dict(unmerged), tmp_path / "adapter_model.bin")
        (tmp_path / "adapter_model.safetensors").unlink()
    assert "are pickled, and loading them can run code" in refused(folder, tmp_path)
    [response] = answers(HF(str(folder), peft=str(tmp_path), allow_pickle=True), [Loglikelihood("w5 w6", " w7")])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(likelihood(unmerged, [5, 6], [7])[0], abs=2e-3)


def test_an_adapter_of_a_model_with_another_name_on_the_hub_is_merged_with_a_warning(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from assay.models.local.hf.adapters import merge_adapter

    adapted(KINDS["LoRA"]()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "someone/base"}))
    with caplog.at_level(logging.WARNING, "assay"):
        for base in ("someone/chat", str(folder)):
            merge_adapter(build("llama"), str(tmp_path), base, allow_pickle=False)
    [record] = caplog.records
    assert record.getMessage() == (
        f"the adapter {str(tmp_path)!r} was trained on 'someone/base', and is merged into 'someone/chat'"
    )


def test_an_adapter_without_peft_says_what_to_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "pip install peft" in refused(folder, tmp_path)
