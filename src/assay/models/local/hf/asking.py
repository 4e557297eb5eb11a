"""How a model of transformers is asked: by pieces that share what they have in common, where it can; else plainly."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from assay.models.local.attention import NAME, Pieces, Unsupported, looking, register
from assay.models.local.generation import Writing
from assay.models.local.hf.loading import Loaded
from assay.models.local.hf.tokenizer import Words
from assay.models.local.packing import Row
from assay.models.local.scoring import Found, Net, PackedReader
from assay.models.local.slots import SlotWriter
from assay.models.local.windows import Pair, Windows
from assay.records import Request, Response

CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""How far logits may be from those of the model as it is, in units of their spread; other numbers are coarser."""
CLOSE_ELSE = 0.2
ROW_TOKENS = 512
"""`batch_size` counts rows; a pass has so many tokens for each."""


class Asker(Protocol):
    """Reads pairs of tokens and writes texts. `remarks` is what a person should know about how."""

    remarks: dict[str, str]

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response: ...
    def read(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[Found]]: ...
    def write(self, wanted: Sequence[Writing]) -> Iterator[list[Writing]]: ...


def asker(loaded: Loaded, words: Words, most: int | None, *, share_prefixes: bool, compiled: bool) -> Asker:
    """The best way to ask a model."""
    from assay.models.local.hf.padded import PlainAsker, Seq2SeqAsker

    if loaded.is_seq2seq:
        return Seq2SeqAsker(loaded, words, most)
    plain = PlainAsker(loaded, words, most)
    if not share_prefixes:
        return plain
    net, why = _packed(loaded)
    if net is None:
        plain.remarks["loglikelihood"] = f"prefixes are not shared between requests: {why}"
        return plain
    if compiled:
        compile_layers(loaded.model)
    return PackedAsker(net, words, ends_of(loaded, words), most)


class PackedAsker:
    """Asks by pieces."""

    def __init__(self, net: Net, words: Words, ends: frozenset[int], most: int | None) -> None:
        self.remarks: dict[str, str] = {}
        self.reader = PackedReader(net, most * ROW_TOKENS if most else None)
        self.writer = SlotWriter(net, ends, words.decode, most_slots=most)

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    def read(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[Found]]:
        return self.reader.read(chunks)

    def write(self, wanted: Sequence[Writing]) -> Iterator[list[Writing]]:
        if wanted:
            self.reader.forget()  # slots are to have the memory
        return self.writer.write(wanted, self.reader.memory.tokens)


def ends_of(loaded: Loaded, words: Words) -> frozenset[int]:
    """The tokens that end a text: the tokenizer's, and those the model is generated with."""
    config = getattr(loaded.model, "generation_config", None)
    told = getattr(config, "eos_token_id", None)
    more = told if isinstance(told, list) else [told]
    return frozenset(token for token in (words.end, *more) if token is not None)


def compile_layers(model: Any) -> None:
    """Let torch put small operations together, layer by layer: they are alike, so it is done once."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__ in names:
            module.compile(dynamic=True)


def _packed(loaded: Loaded) -> tuple[Net | None, str]:
    """The model with our attention in it, if it then says what it said before; else why not."""
    model = loaded.model
    why = _sliding(model) or _stretching(model)
    if why:
        return None, why
    before = model.config._attn_implementation
    tokens = torch.arange(3, 19, device=model.device) % model.config.get_text_config().vocab_size
    with torch.inference_mode():
        expected = model(input_ids=tokens[None], use_cache=False).logits[0, -4:].float()
    register()
    try:
        model.set_attn_implementation(NAME)
        if model.config._attn_implementation != NAME:
            return None, f"{type(model).__name__} has an attention of its own"
        net = Net(model, model.device, _is_flash(model))
        found = _try_pieces(net, tokens)
    except (Unsupported, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        model.set_attn_implementation(before)
        return None, f"its attention wants {error}" if isinstance(error, Unsupported) else f"it said {error}"
    far = float((found - expected).abs().max() / expected.std())
    if not far <= CLOSE.get(model.dtype, CLOSE_ELSE):
        model.set_attn_implementation(before)
        return None, f"its logits were {far:.2g} spreads from those it gives alone"
    return net, ""


def _try_pieces(net: Net, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of the last tokens of a text that is read in three pieces, with others between them that it does not see."""
    row = Row()
    listed = tokens.tolist()
    first = row.add(listed[:7], [])
    row.add(listed[9:13], [first])
    second = row.add(listed[7:12], [first])
    row.add(listed[1:4], [first, second])
    last = row.add(listed[12:], [first, second])
    sight = Pieces.of(row, net.device, flash=net.flash)
    with torch.inference_mode(), looking(sight):
        read = torch.tensor(row.tokens, device=net.device), torch.from_numpy(row.positions()).to(net.device)
        return net.logits(*read, torch.arange(*last, device=net.device)).float()


def _sliding(model: Any) -> str:
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    slides = "sliding_attention" in kinds if kinds else bool(window) and getattr(config, "use_sliding_window", True)
    if slides and window:
        return f"its attention slides over {window} tokens"
    others = set(kinds or ()) - {"full_attention", "sliding_attention"}
    return f"it has layers of {', '.join(sorted(others))}" if others else ""


def stretches_beyond(model: Any) -> int | None:
    """The length from which on the positions of a text depend on how long the longest beside it is."""
    config = model.config.get_text_config()
    told = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [told, *(each for each in told.values() if isinstance(each, Mapping))]
    found = next((each for each in kinds if each.get("rope_type", each.get("type")) in ("dynamic", "longrope")), None)
    if found is None:
        return None
    first = found.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    return int(first or config.max_position_embeddings)


def _stretching(model: Any) -> str:
    length = stretches_beyond(model)
    return f"its positions stretch with the longest text, beyond {length} tokens" if length is not None else ""


def _is_flash(model: Any) -> bool:
    """Whether there is a kernel for pieces of various lengths."""
    config = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    is_half = model.dtype in (torch.bfloat16, torch.float16)
    if model.device.type != "cuda" or not is_half or size % 8 or size > 256:
        return False
    return torch.cuda.get_device_capability(model.device) >= (8, 0)
