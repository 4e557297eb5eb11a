"""A model on more than one device, and devices that there are not. No machine of the suite has a GPU: what accelerate keeps in
memory and on disk stands for two of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.local.hf.backend import HF
from assay.models.local.hf.devices import input_device, spread_over
from assay.records import Generate, Likelihood, Loglikelihood, Text
from hf_world import answers, build, numbers, plain_generated, plain_likelihood, text, words

PAIRS = [([5, 9, 13] + [20 + n] * 12, [9, 30 + n]) for n in range(6)]
PARTS = ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path / "model")
    words().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def spread(folder: Path, on_disk: tuple[str, ...]) -> Any:
    places = {part: "disk" if part in on_disk else "cpu" for part in PARTS}
    options = {"device_map": places, "offload_folder": str(folder / "offloaded")}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def check_answers(model: HF) -> None:
    scored = answers(model, [Loglikelihood(text(context), " " + text(rest)) for context, rest in PAIRS])
    for (context, rest), each in zip(PAIRS, scored, strict=True):
        assert isinstance(each, Likelihood), each
        assert each.value == pytest.approx(plain_likelihood("llama", context, rest)[0], abs=1e-4)
    written = answers(model, [Generate(text(context), {"until": [], "max_gen_toks": 10}) for context, _ in PAIRS])
    for (context, _), one in zip(PAIRS, written, strict=True):
        assert isinstance(one, Text), one
        assert numbers(one.text) == [token for token in plain_generated("llama", context, 10) if token > 2]


@pytest.mark.parametrize("on_disk", [("model.layers.1",), ("model.embed_tokens", "lm_head"), PARTS[:4]])
@pytest.mark.filterwarnings("ignore")
def test_layers_in_two_places_are_run_in_padded_batches_with_the_same_numbers(
    folder: Path, on_disk: tuple[str, ...]
) -> None:
    model = HF(spread(folder, on_disk), tokenizer=words())
    assert "its layers are on several devices (cpu, disk)" in model.remarks["loglikelihood"]
    assert model.way == "padded"
    check_answers(model)
    with pytest.raises(ConfigError, match="has no fingerprint — give its folder"):
        model.identity  # noqa: B018


class Mapped:
    """What accelerate says of a model on two GPUs, whose first weights are not loaded."""

    def __init__(self, **places: int | str) -> None:
        self.hf_device_map, self.device = places, torch.device("meta")


def test_tokens_go_to_the_first_gpu_of_a_model_whose_first_weights_are_kept_elsewhere() -> None:
    model: Any = Mapped(embed="disk", first=1, second=0, last="cpu")
    on_disk: Any = Mapped(all="disk")
    on_one: Any = Mapped(all=0)
    assert input_device(model) == torch.device("cuda:0")
    assert spread_over(model) == "its layers are on several devices (cpu, cuda:0, cuda:1, disk)"
    assert (input_device(on_disk), spread_over(on_one)) == (torch.device("cpu"), "")


def test_a_model_that_accelerate_puts_on_one_device_shares_prefixes(folder: Path) -> None:
    model = HF(str(folder), parallelize=True)
    assert (model.way, model.remarks) == ("packed", {})
    check_answers(model)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cuda:1"}, "no device 'cuda:1' on this machine — use cpu, cuda:0, cuda:2"),
        ({"device": "cuda:7"}, "no device 'cuda:7' on this machine"),
        ({"device": "mps"}, "no device 'mps' on this machine"),
        ({"device": "meta"}, "no device 'meta' on this machine"),
        ({"device": "cuda:0", "parallelize": True}, "spreads the model over all GPUs, and device=cuda:0 is one — leave out device"),
        ({"tp_plan": "auto"}, "parallelize=true spreads the layers over the GPUs, --model vllm has tensor_parallel_size"),
        ({"device_map": "auto"}, "write parallelize=true for device_map=auto"),
        ({"max_memory_per_gpu": "20GB"}, "CUDA_VISIBLE_DEVICES selects the GPUs"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_was_never_tried_is_refused_with_the_way_to_do_it(
    options: dict[str, Any], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.models.local.hf.devices.available_devices", lambda: ["cpu", "cuda:0", "cuda:2"])
    with pytest.raises(ConfigError) as error:
        load_model("hf", {"pretrained": str(folder), **options})
    assert said in str(error.value)


def test_a_model_that_needs_accelerate_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.integrations.accelerate.is_accelerate_available", lambda *_: False)
    with pytest.raises(ConfigError, match="pip install accelerate"):
        HF(str(folder), parallelize=True)
