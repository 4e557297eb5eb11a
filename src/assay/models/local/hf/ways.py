"""The ways in which a transformers model can be run, each without something that may have failed in the one before."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from assay.errors import ConfigError
from assay.models.local.attention import NAME
from assay.models.local.fallbacks import DeviceAttempt, Fallbacks, reason_of
from assay.models.local.hf.causality import trial_texts
from assay.models.local.hf.compiled import UNCOMPILED, CompiledLayers
from assay.models.local.hf.fallback import WITHOUT_FLASH, HFRunner, Way, check_usable
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.hf.norms import fuse_norms, restore_norms
from assay.models.local.scoring import CausalLM
from assay.models.local.slots import WITHOUT_GRAPHS, SlotGenerator

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WITHOUT_KERNEL = "the tokens of texts attend without the Triton kernel, which is slower"
PADDED = "prefixes are not shared between requests, and batches are padded, which is slower"
EAGER = "experts run one by one, which is slower"


class _Packed(HFRunner, Protocol):
    """A runner with packed attention."""

    generator: SlotGenerator
    layers: CompiledLayers


def packed_ways(runner: _Packed, net: CausalLM) -> list[Way]:
    """With everything; without compilation; without CUDA graphs; without kernels for attention."""
    is_gpu = net.device.type == "cuda"

    def begin(is_compiled: bool, is_kernel: bool, is_recorded: bool, is_flash: bool) -> None:
        if net.model.config._attn_implementation != NAME:
            net.model.set_attn_implementation(NAME)
        if is_gpu:
            fuse_norms(net.model)
        runner.layers.use(is_compiled)
        runner.generator.record(is_recorded)
        net.kernel, net.flash = is_kernel, is_flash

    options = [runner.layers.may_compile, is_gpu and net.flash, runner.generator.records, net.flash]
    begin(*options)
    ways = [Way(runner, partial(begin, *options))]
    for number, loss in enumerate((UNCOMPILED, WITHOUT_KERNEL, WITHOUT_GRAPHS, WITHOUT_FLASH)):
        if options[number]:
            options[number] = False
            ways.append(Way(runner, partial(begin, *options), loss))
    return ways


def plain_way(runner: HFRunner, model: "PreTrainedModel") -> Way:
    """Padded batches of the model as it is now."""
    attention = model.config._attn_implementation

    def begin() -> None:
        if model.config._attn_implementation != attention:
            model.set_attn_implementation(attention)
        restore_norms(model)
        for module in model.modules():
            module._compiled_call_impl = None

    return Way(runner, begin, PADDED)


def eager_experts(runner: HFRunner, model: "PreTrainedModel") -> list[Way]:
    """The last way again, with the experts' plain code; none where that is used, or there are no experts."""
    use = _use_experts(model)
    return [] if use is None else [Way(runner, partial(use, "eager"), EAGER, partial(use, _experts(model)))]


def _experts(model: "PreTrainedModel") -> str | None:
    """The code of its experts, by transformers' name; that of a model without experts is never run."""
    name: str | None = getattr(model.config.get_text_config(), "_experts_implementation", None)
    return name


def _use_experts(model: Any) -> Callable[[str | None], None] | None:
    is_able = _experts(model) not in (None, "eager") and hasattr(model, "set_experts_implementation")
    return model.set_experts_implementation if is_able and type(model)._can_set_experts_implementation() else None


def ensure_forward(loaded: LoadedHFModel, fallbacks: Fallbacks) -> torch.Tensor:
    """Run the model once, plainly, and return its logits of two texts; refuse one that cannot compute at all on its device and
    in its dtype."""
    logits, failure = _trial(loaded)
    if failure is None:
        return logits
    use = _use_experts(loaded.model)
    if use is not None:
        use("eager")
        logits, again = _trial(loaded)
        if again is None:
            fallbacks.note(EAGER, failure)
            return logits
    dtype = str(loaded.model.dtype).removeprefix("torch.")
    what = f"{type(loaded.model).__name__} cannot compute in {dtype} on {loaded.device}: {reason_of(failure)}"
    fix = "try dtype=float32, attn_implementation=eager or another device"
    raise ConfigError.at("model_args", what, fix) from failure


def _trial(loaded: LoadedHFModel) -> tuple[torch.Tensor, Exception | None]:
    texts = trial_texts(loaded)
    decoder = {"decoder_input_ids": texts} if loaded.is_seq2seq else {}
    logits = torch.empty(0)
    with DeviceAttempt() as attempt, torch.inference_mode():
        logits = loaded.model(input_ids=texts, **decoder).logits
        logits.sum().item()  # a device reports its failures when it is waited for
    if attempt.error is not None:
        check_usable(loaded.device, attempt.error)
    return logits, attempt.error
