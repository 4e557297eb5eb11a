"""The check of a model's fast ways when it is loaded, and the closer look at half precision."""

import copy
from typing import Any

import pytest
import torch
import transformers
from bench import architectures

from assay.models.local.fallbacks import Fallbacks
from assay.models.local.hf.backend import HF
from assay.models.local.hf.checks import _difference, first_layers, packed_model
from assay.models.local.hf.compiled import CompiledLayers
from assay.models.local.hf.norms import fuse_norms
from hf_world import LENGTH, build

SHAPE: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def half(kind: str = "Llama", **fields: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SHAPE | fields)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


TOKENS = torch.arange(3, 40)[None]


def plain(model: Any) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=TOKENS, use_cache=False).logits[0, -4:]
    return logits


def other_expert(model: Any) -> torch.Tensor:
    """One of four rows is different at half precision, as after another choice of experts."""
    logits = plain(model).clone()
    if model.dtype == torch.bfloat16:
        rows = slice(None) if model.config.num_hidden_layers == 6 else slice(0, 1)
        logits[rows] += logits.float().std().to(logits.dtype)
    return logits


def shifted(model: Any) -> torch.Tensor:
    """Wrong at every precision."""
    return plain(model) + plain(model).float().std().to(model.dtype) / 10


def wrong_where_it_counts(model: Any) -> torch.Tensor:
    """Right at float32, wrong in every row at half precision: as a kernel for half precision could be."""
    return plain(model) if model.dtype == torch.float32 else plain(model).roll(1, -1)


def test_rounding_of_single_rows_at_half_precision_is_looked_at_more_closely() -> None:
    model = half()
    assert _difference(model, plain, other_expert) == ""
    assert "differ by" in _difference(model.float(), plain, shifted)


@pytest.mark.parametrize("wrong", [wrong_where_it_counts, lambda model: plain(model) * torch.nan])
def test_a_way_that_is_wrong_is_refused_at_half_precision(wrong: Any) -> None:
    assert "differ by" in _difference(half(), plain, wrong)


def test_a_shift_that_half_precision_would_not_show_is_not_missed_by_the_closer_look() -> None:
    """0.1 standard deviations pass at half precision; where one row forces a closer look, float32 must agree."""

    def both(model: Any) -> torch.Tensor:
        return other_expert(model) + (shifted(model) - plain(model))

    assert "differ by" in _difference(half(), plain, both)


def test_the_copy_of_first_layers_has_every_type_of_layer_and_leaves_the_model_alone() -> None:
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] + [
        "sliding_attention"
    ] * 2
    model = half("Qwen2", layer_types=kinds, use_sliding_window=True, sliding_window=8)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    some = first_layers(model)
    assert some is not None
    assert len(some.model.layers) == some.config.num_hidden_layers == 4
    assert some.config.layer_types == kinds[:4]
    some.float()
    assert len(model.model.layers) == model.config.num_hidden_layers == 6
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert model.dtype == torch.bfloat16
    expected = half("Qwen2", layer_types=kinds[:4], num_hidden_layers=4, use_sliding_window=True, sliding_window=8)
    expected.load_state_dict(
        {name: each for name, each in before.items() if ".layers.4" not in name and ".layers.5" not in name}
    )
    torch.testing.assert_close(plain(some), plain(expected.float()))


@pytest.mark.parametrize("kind", ["GptOss", "Qwen3Moe", "DeepseekV3"])
def test_mixtures_of_experts_are_packed_at_half_precision(kind: str) -> None:
    experts: dict[str, Any] = {
        "GptOss": {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 16, "rope_parameters": None},
        "Qwen3Moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8},
        "DeepseekV3": {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "q_lora_rank": 16,
                       "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_group": 2,
                       "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4},
    }[kind]  # fmt: skip
    net, why = packed_model(half(kind, **experts), Fallbacks())
    assert net is not None, why


def test_a_model_with_two_lists_of_layers_has_no_copy() -> None:
    assert first_layers(build("t5")) is None


class OnGPU:
    """What the choice to compile looks at: where the model is, and its layers."""

    device = torch.device("cuda")
    _no_split_modules = ("Layer",)

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def modules(self) -> list[Any]:
        outer = self

        class Layer:
            def compile(self, dynamic: bool) -> None:
                outer.compiled.append(f"dynamic={dynamic}")

        class Head(Layer):
            pass

        return [Layer(), Layer(), Head()]


@pytest.mark.parametrize(
    ("chosen", "rests", "expected"),
    [
        (None, [(0, 500), (5, 480), (12, 470)], 2),  # long for longer than ten seconds
        (None, [(0, 500), (5, 480)], 0),
        (None, [(0, 500), (5, 100), (12, 470), (15, 460)], 0),  # a first guess that was far off
        (None, [(0, 200), (60, 140)], 0),
        (False, [(0, 5000), (60, 4940)], 0),
        (True, [], 2),
    ],
)
def test_layers_are_compiled_in_long_runs_alone(
    chosen: bool | None, rests: list[tuple[int, int]], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OnGPU()
    layers = CompiledLayers(model, chosen, Fallbacks())  # type: ignore[arg-type]
    for at, seconds in rests:
        monkeypatch.setattr("assay.models.local.hf.compiled.time.monotonic", lambda at=at: float(at))
        layers.expect(seconds)
    for _ in range(2):
        layers.compile_if_due()
    assert model.compiled == ["dynamic=True"] * expected


def test_norms_of_torch_replace_those_of_models_that_compute_the_same() -> None:
    llama, gemma = half(), half("Gemma", head_dim=8)
    with torch.inference_mode():
        before = plain(llama.float())
    assert (fuse_norms(llama), fuse_norms(gemma)) == (13, 0)  # Gemma scales by one plus the weights
    with torch.inference_mode():
        torch.testing.assert_close(plain(llama), before)
    other = copy.deepcopy(llama)
    with torch.no_grad():
        other.model.norm.weight.mul_(2)
        expected = plain(other)
    with torch.inference_mode():
        torch.testing.assert_close(plain(other), expected)  # a copy has its own weights
        assert not torch.allclose(plain(other), plain(llama))


@pytest.mark.parametrize("name", ["mamba", "falcon_mamba", "mamba2", "jamba"])
def test_states_are_shared_at_half_precision_where_the_types_of_layers_follow_from_their_number(name: str) -> None:
    """Their configurations have `layer_types` as a property, which a shorter copy cannot set."""
    model = HF(architectures.build(name, dtype=torch.bfloat16), tokenizer=architectures.tokenizer(), max_length=LENGTH)
    assert (model.way, model.remarks) == ("states", {})
    shorter = first_layers(architectures.build(name))
    assert shorter is not None and len(shorter.config.layer_types) == shorter.config.num_hidden_layers
