"""Whether a model gives the same logits in the fast ways: both ways are computed when it is loaded.

In half precision a mixture of experts may choose another expert for the same token, because of rounding alone. Its logits then
say nothing. Such a model is tried again on a copy of its first layers: in float32, where all logits must agree, and in its own
precision, where most must.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import transformers

from assay.models.local.attention import NAME, PackedPattern, PackedRow, UnsupportedAttention, register, using_pattern
from assay.models.local.fallbacks import Fallbacks, reason_of
from assay.models.local.hf.fallback import WITHOUT_FLASH, check_usable
from assay.models.local.hf.states import StatefulModel, UnsupportedCache
from assay.models.local.scoring import CausalLM, head_size, uniform_memory_errors
from assay.number_text import format_figures

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Maximum difference of logits with packed attention from the model's own, in standard deviations, by dtype;
else DEFAULT_TOLERANCE."""
DEFAULT_TOLERANCE = 0.2
FAILURES = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError)
"""Raised by models that do not follow the interfaces of transformers that are used here."""
MOST_CHECKED = 1024
"""Windows up to this length are tried when a model is loaded."""

LogitsOf = Callable[["PreTrainedModel"], torch.Tensor]
"""Logits of a few positions, by one of the ways."""


def packed_model(model: "PreTrainedModel", fallbacks: Fallbacks) -> tuple[CausalLM | None, str]:
    """Return the model with packed attention if its logits stay the same; else the reason."""
    why = _layers_with_states(model) or _without_interface(model)
    if why:
        return None, why
    flash = _is_flash(model)
    why, failure = _tried(model, flash)
    if failure is not None and flash:
        flash = False
        why, _ = _tried(model, flash)
        if not why:
            fallbacks.note(WITHOUT_FLASH, failure)
    return (None, why) if why else (CausalLM(model, model.device, flash, fallbacks=fallbacks), "")


def _tried(model: "PreTrainedModel", flash: bool) -> tuple[str, Exception | None]:
    """Set packed attention if its logits are those of the model; else return the reason, and what the model raised."""
    before = model.config._attn_implementation
    tokens = torch.arange(3, 3 + _check_length(model), device=model.device) % model.config.get_text_config().vocab_size
    register()

    def plain(some: "PreTrainedModel") -> torch.Tensor:
        some.set_attn_implementation(before)
        return some(input_ids=tokens[None], use_cache=False).logits[0, -4:].float()  # type: ignore[no-any-return]

    def packed(some: "PreTrainedModel") -> torch.Tensor:
        some.set_attn_implementation(NAME)
        if some.config._attn_implementation != NAME:
            raise UnsupportedAttention(f"the code of {type(some).__name__}")
        return _packed_logits(CausalLM(some, some.device, flash and _is_flash(some)), tokens)

    failure = None
    try:
        why = _difference(model, plain, packed)
    except UnsupportedAttention as error:
        why = f"its attention needs {error}"
    except FAILURES as error:
        check_usable(model.device, error)
        why, failure = f"packed attention failed: {reason_of(error)}", error
    model.set_attn_implementation(before if why else NAME)
    return why, failure


def _without_interface(model: "PreTrainedModel") -> str:
    if hasattr(model, "set_attn_implementation"):
        return ""
    return f"transformers {transformers.__version__} cannot change the attention of a model, which 4.54 and later can"


def stateful_model(model: "PreTrainedModel") -> tuple[StatefulModel | None, str]:
    """Return the model with states that can be copied if its logits stay the same; else the reason."""
    size = model.config.get_text_config().vocab_size
    tokens = [(3 + 7 * number) % size for number in range(40)]
    texts = [tokens[:12] + tokens[at : at + length] for at, length in ((12, 13), (20, 6), (25, 4))]

    def plain(some: "PreTrainedModel") -> torch.Tensor:
        return torch.cat([_plain_logits(some, text) for text in (*texts, tokens[:16])])

    why = ""
    for options in ({}, {"by_token": True}, {"with_gaps": False}):

        def copied(some: "PreTrainedModel", options: dict[str, bool] = options) -> torch.Tensor:
            return _copied_logits(StatefulModel(some, **options), tokens, texts)

        try:
            why = _difference(model, plain, copied)
        except (UnsupportedCache, *FAILURES) as error:
            check_usable(model.device, error)
            return None, f"its states cannot be copied: {reason_of(error)}"
        if not why:
            return StatefulModel(model, **options), ""
    return None, why


def _difference(model: "PreTrainedModel", plain: LogitsOf, other: LogitsOf) -> str:
    """How the logits of the two ways differ, if they do."""
    with torch.inference_mode():
        far = float(_distances(other(model), plain(model)).max())
    if far <= TOLERANCE.get(model.dtype, DEFAULT_TOLERANCE):
        return ""
    why = f"its logits differ by {format_figures(far, 2)} standard deviations"
    if model.dtype in TOLERANCE or not math.isfinite(far):
        return why
    try:
        with uniform_memory_errors():
            return "" if _first_layers_agree(model, plain, other) else why
    except torch.OutOfMemoryError:
        return f"{why}, and there is no memory to look closer"


def _first_layers_agree(model: "PreTrainedModel", plain: LogitsOf, other: LogitsOf) -> bool:
    some = first_layers(model)
    if some is None:
        return False
    with torch.inference_mode():
        half = _distances(other(some), plain(some))
    some = some.float()  # type: ignore[no-untyped-call]
    with torch.inference_mode():
        single = _distances(other(some), plain(some))
    return float(half.median()) <= DEFAULT_TOLERANCE and float(single.max()) <= TOLERANCE[torch.float32]


def first_layers(model: "PreTrainedModel") -> "PreTrainedModel | None":
    """A copy of a model with as many of its first layers as have all types; None if its layers are not found."""
    config = model.config.get_text_config()
    total = config.num_hidden_layers
    lists = [
        name for name, each in model.named_modules() if isinstance(each, torch.nn.ModuleList) and len(each) == total
    ]
    if len(lists) != 1:
        return None
    kinds = list(getattr(config, "layer_types", None) or ())
    count = min(max([2, *(kinds.index(kind) + 1 for kind in set(kinds))]), total)
    left_out = {id(layer): torch.nn.Identity() for layer in list(model.get_submodule(lists[0]).children())[count:]}
    some = copy.deepcopy(model, left_out)
    shorter = some.get_submodule(lists[0])
    del shorter[count:]  # type: ignore[operator]
    own = some.config.get_text_config()
    own.num_hidden_layers = count
    if kinds and not isinstance(getattr(type(own), "layer_types", None), property):  # Mamba's follows from the number
        own.layer_types = kinds[:count]
    return some


def _distances(some: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The largest difference of logits in each row, in standard deviations of the expected ones; infinite for NaN."""
    apart = (some.float() - expected.float()).abs().amax(-1) / expected.float().std()
    return apart.nan_to_num(nan=math.inf)


def _layers_with_states(model: "PreTrainedModel") -> str:
    """The kinds of layers that keep a state in place of attending to earlier tokens."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    others = kinds - {"full_attention", "sliding_attention", "chunked_attention"}
    if others:
        return f"it has layers of type {', '.join(sorted(others))}"
    return "its layers have states" if getattr(model, "_is_stateful", False) else ""


def _plain_logits(model: "PreTrainedModel", tokens: Sequence[int]) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.tensor([tokens], device=model.device), use_cache=False).logits[:, -1]
    return logits


def _copied_logits(net: StatefulModel, tokens: Sequence[int], texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after texts that are read from copies of one state, the first step by step, and after a text without it."""
    prefix = net.empty(1)
    net.read(prefix, [tokens[:12]])
    if not net.with_gaps:
        after = [net.read(prefix.take([0]), [text[12:]]) for text in texts]
        return torch.cat([*after, net.read(net.empty(1), [tokens[:16]])])
    states = prefix.take([0] * len(texts))
    net.read(states, [text[12:-3] for text in texts])
    net.forward(states, [text[-3:-1] for text in texts], last=False)
    last = net.forward(states, [text[-1:] for text in texts], last=True)[:, 0]
    return torch.cat([last, net.read(net.empty(2), [tokens[:16], tokens[:9]])[:1]])


def _check_length(model: "PreTrainedModel") -> int:
    """Length of the text that is computed both ways: beyond a window or a chunk, unless those are long."""
    config = model.config.get_text_config()
    limits = (getattr(config, key, None) for key in ("sliding_window", "attention_chunk_size"))
    beyond = max((limit + 16 for limit in limits if limit and limit <= MOST_CHECKED), default=16)
    return min(beyond, getattr(config, "max_position_embeddings", None) or beyond)


def _packed_logits(net: CausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Return the last four logits of a text in three segments, with others between them that it does not attend to."""
    row = PackedRow()
    listed = tokens.tolist()
    first = row.add(listed[:7], [])
    row.add(listed[9:13], [first])
    second = row.add(listed[7:-4], [first])
    row.add(listed[1:4], [first, second])
    last = row.add(listed[-4:], [first, second])
    pattern = PackedPattern.of(row, net.device, flash=net.flash)
    with torch.inference_mode(), using_pattern(pattern):
        read = torch.tensor(row.tokens, device=net.device), torch.from_numpy(row.positions()).to(net.device)
        return net.logits(*read, torch.arange(*last, device=net.device)).float()


def _is_flash(model: "PreTrainedModel") -> bool:
    """Whether the variable-length flash kernel supports the model."""
    config = model.config.get_text_config()
    size = head_size(config)
    is_half = model.dtype in (torch.bfloat16, torch.float16)
    if model.device.type != "cuda" or not is_half or size % 8 or size > 256:
        return False
    return torch.cuda.get_device_capability(model.device) >= (8, 0)
