"""Attention for transformers' models over packed rows: many segments of text in a row, or one token per generation slot.

A model that follows transformers' attention interface calls `attention_forward` in every layer; the AttentionPattern in
use decides which tokens attend to which. Keys and values are gathered per segment, so that any tree of segments is one
call of a variable-length kernel, and shared segments are computed once.

A segment is some tokens with the segments before them, of this row or cached from an earlier one. A few-shot prefix, a
question behind it and a choice behind that are three segments; no token is in the row twice.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

Integers = npt.NDArray[np.int64]
Array = npt.NDArray[np.generic]
Span = tuple[int, int]
"""Start and end of a segment in a row; tokens cached from earlier rows are numbered from CACHED on."""
CACHED = 1 << 40


@dataclass(slots=True)
class PackedRow:
    """The tokens of one forward pass, and which segments each of them attends to. `cached` tokens of earlier passes come
    before the new ones."""

    tokens: list[int] = field(default_factory=list)
    cached: int = 0
    _first: list[int] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)
    _seen: list[list[Span]] = field(default_factory=list)

    def add(self, tokens: Sequence[int], seen: Sequence[Span]) -> Span:
        """Append a segment after the spans it attends to; return its own span."""
        own = (len(self.tokens), len(self.tokens) + len(tokens))
        self.tokens.extend(tokens)
        self._first.append(sum(stop - begin for begin, stop in seen))
        self._lengths.append(len(tokens))
        self._seen.append([*seen, own])
        return own

    def attend_cached(self, length: int) -> Span:
        """Put cached tokens before the row; return their span."""
        self.cached += length
        return CACHED + self.cached - length, CACHED + self.cached

    def place(self, span: Span) -> Span:
        """Return the final position of a span, with the cached tokens in front."""
        return (
            (span[0] - CACHED, span[1] - CACHED)
            if span[0] >= CACHED
            else (span[0] + self.cached, span[1] + self.cached)
        )

    @property
    def attended(self) -> int:
        """Number of keys gathered for all segments, their own tokens included."""
        return sum(self._first) + len(self.tokens)

    def positions(self) -> Integers:
        """Return each token's position in its text."""
        return np.repeat(self._first, self._lengths) + _counted(self._lengths)

    def lengths(self) -> tuple[Integers, Integers]:
        """Return for each segment its number of tokens, and of tokens it attends to."""
        own = np.asarray(self._lengths)
        return own, own + np.asarray(self._first)

    def lookup(self) -> Integers | None:
        """Return the keys of every segment, one after the other; None if each attends to itself alone."""
        if not self.cached and not any(self._first):
            return None
        spans = [self.place(span) for seen in self._seen for span in seen]
        starts = np.asarray([start for start, _ in spans])
        lengths = [stop - start for start, stop in spans]
        return np.repeat(starts, lengths) + _counted(lengths)


def _counted(lengths: Sequence[int]) -> Integers:
    """Return 0, 1, 2 … for each of the lengths.

    >>> _counted([2, 3]).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    counts: Integers = np.arange(total) - np.repeat(ends - np.asarray(lengths), lengths)
    return counts


NAME = "assay_pieces"
"""Name of the attention in a model's config."""
BAND_RATIO = 1.1
"""Segments share a rectangle if the longest is at most this many times the shortest. With 1.5 a fifth of the scores of an
MMLU-shaped run were padding, and attention on a CPU took 8 % longer."""

Layers = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Keys and values by layer, (tokens, heads, size)."""


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """How a layer attends. `window`: a token sees this many, itself included; `chunk`: only those between the same multiples
    of this; `softcap` bounds the scores; `sinks`: a score of each head that takes part in the softmax and has no value."""

    scale: float
    window: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    def limits(self, length: int) -> "Limits":
        """Window and chunk, where texts of this length notice them."""
        window = self.window if self.window is not None and self.window < length else None
        return window, self.chunk if self.chunk is not None and self.chunk < length else None


Limits = tuple[int | None, int | None]
"""Window and chunk of a mask."""


class AttentionPattern(Protocol):
    """Who attends to whom in a forward pass; called in every layer, tokens first."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: LayerAttention
    ) -> torch.Tensor: ...


class UnsupportedAttention(Exception):
    """The model needs an attention feature that this implementation does not have."""


_patterns: list[AttentionPattern] = []


@contextmanager
def using_pattern(pattern: AttentionPattern) -> Iterator[None]:
    _patterns.append(pattern)
    try:
        yield
    finally:
        _patterns.pop()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attention_forward(  # noqa: PLR0913  # transformers' own signature
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
    softcap: float | None = None, s_aux: Any = None, sliding_window: int | None = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention with transformers' signature, for a batch of one row."""
    if attention_mask is not None:
        raise UnsupportedAttention("a custom mask")
    layer: int = module.layer_idx
    window, chunk = layer_limits(module.config, layer)
    if sliding_window != window:
        raise UnsupportedAttention("a sliding window that its configuration does not state")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    how = LayerAttention(scale, window, chunk, softcap, s_aux)
    size = value.shape[-1]
    if size < key.shape[-1]:  # of latent attention: the flash kernel wants keys and values of one size
        value = torch.nn.functional.pad(value, (0, key.shape[-1] - size))
    tokens = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
    seen = _patterns[-1].attend(layer, tokens[0], tokens[1], tokens[2], how)
    return seen[None, ..., :size], None


def layer_limits(config: Any, layer: int) -> Limits:
    """Window and chunk of a layer, as a model's configuration states them."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return (window if getattr(config, "use_sliding_window", True) else None), None
    if kinds[layer] == "chunked_attention":
        return None, config.attention_chunk_size
    if kinds[layer] not in ("full_attention", "sliding_attention"):
        raise UnsupportedAttention(f"layers of type {kinds[layer]}")
    return (window if kinds[layer] == "sliding_attention" else None), None


def register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention_forward)


@dataclass(slots=True)
class PackedPattern:
    """The pattern of a packed row. Keys and values of the spans in `to_cache` are kept in `cached` for later passes."""

    device: torch.device
    flash: bool
    own: Integers
    seen: Integers
    lookup: torch.Tensor | None
    ends: torch.Tensor
    seen_ends: torch.Tensor
    longest: int
    longest_seen: int
    before: Layers | None
    to_cache: Sequence[Sequence[Span]]
    cached: list[Layers] = field(default_factory=list)
    _bands: "list[Band] | None" = None

    @classmethod
    def of(
        cls,
        row: PackedRow,
        device: torch.device,
        *,
        flash: bool,
        before: Layers | None = None,
        to_cache: Sequence[Sequence[Span]] = (),
    ) -> Self:
        own, seen = row.lengths()
        lookup = row.lookup()
        return cls(
            device=device,
            flash=flash,
            own=own,
            seen=seen,
            lookup=None if lookup is None else on_device(lookup, device),
            ends=on_device(np.concatenate([[0], np.cumsum(own)]).astype(np.int32), device),
            seen_ends=on_device(np.concatenate([[0], np.cumsum(seen)]).astype(np.int32), device),
            longest=int(own.max()),
            longest_seen=int(seen.max()),
            before=before,
            to_cache=[[row.place(span) for span in spans] for spans in to_cache],
            cached=[{} for _ in to_cache],
        )

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: LayerAttention
    ) -> torch.Tensor:
        if self.before is not None:
            key, value = (torch.cat(both) for both in zip(self.before[layer], (key, value), strict=True))
        for spans, cached in zip(self.to_cache, self.cached, strict=True):
            cached[layer] = tuple(torch.cat([each[start:stop] for start, stop in spans]) for each in (key, value))  # type: ignore[assignment]
        if self.lookup is not None:
            key, value = key.index_select(0, self.lookup), value.index_select(0, self.lookup)
        self.on_gather(layer, key, value)
        window, chunk = how.limits(self.longest_seen)
        if not self.flash or chunk is not None or how.softcap is not None:
            return self._in_bands(query, key, value, how, (window, chunk))
        seen, sums = torch.ops.aten._flash_attention_forward(
            query, key, value, self.ends, self.seen_ends, self.longest, self.longest_seen, 0.0, True, False,
            scale=how.scale, **flash_window(window),
        )[:2]  # fmt: skip
        return seen if how.sinks is None else with_sinks(seen, sums, how.sinks)

    def on_gather(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Called with the gathered keys and values of all segments."""

    def _in_bands(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: LayerAttention, limits: Limits
    ) -> torch.Tensor:
        if self._bands is None:
            self._bands = [band.on(self.device) for band in _bands(self.own, self.seen)]
        out = torch.empty(query.shape[0], query.shape[1], value.shape[2], dtype=query.dtype, device=query.device)
        for band in self._bands:
            rectangles = _rectangle(query, band.own), _rectangle(key, band.seen), _rectangle(value, band.seen)
            if how.softcap is not None or how.sinks is not None:
                rows = masked_attention(*rectangles, band.mask(limits), how)
            else:
                mask = None if band.is_causal and limits == (None, None) else band.bias(limits, query.dtype)
                rows = fused_attention(*rectangles, mask, how)
            out[band.own.flatten()[band.real]] = rows.transpose(1, 2).flatten(0, 1)[band.real]
        return out


def flash_window(window: int | None) -> dict[str, int]:
    """The arguments of the flash kernel for a window, none for all tokens."""
    return {} if window is None else {"window_size_left": window - 1, "window_size_right": 0}


def with_sinks(seen: torch.Tensor, sums: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Attention of (tokens, heads, size) with a sink in every head, from that without and its (heads, tokens) log-sums."""
    if sums.shape != (seen.shape[1], seen.shape[0]):
        raise UnsupportedAttention("sinks, which this version of torch has no sums for")
    return seen * torch.sigmoid(sums.T - sinks.float())[..., None].to(seen.dtype)


def masked_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, how: LayerAttention
) -> torch.Tensor:
    """Attention of (rows, heads, tokens, size) where the mask is true."""
    if how.softcap is None and how.sinks is None:
        return fused_attention(query, key, value, mask, how)
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, 1) if groups > 1 else each for each in (key, value))
    sinks = None if how.sinks is None else how.sinks.view(1, -1, 1, 1)
    return attention_weights(query @ key.transpose(2, 3), mask, how, sinks).to(value.dtype) @ value


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, how: LayerAttention
) -> torch.Tensor:
    """The same by torch's own function, of layers without soft caps and sinks. Without a mask, each token attends to those before
    it."""
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=mask is None, scale=how.scale, enable_gqa=query.shape[1] != key.shape[1]
    )


def attention_weights(
    scores: torch.Tensor, mask: torch.Tensor, how: LayerAttention, sinks: torch.Tensor | None
) -> torch.Tensor:
    """Weights of the keys where the mask is true, in float32. `sinks` has one score for each row of scores."""
    scores = scores.float() * how.scale
    if how.softcap is not None:
        scores = torch.tanh(scores / how.softcap) * how.softcap
    scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is None:
        return scores.softmax(-1)
    return torch.cat([scores, sinks.float().expand(*scores.shape[:3], 1)], -1).softmax(-1)[..., :-1]


@dataclass(slots=True)
class Band:
    """Segments of similar length as a rectangle: indices of their tokens and of those they attend to, and the position of
    each token in its text. `is_causal`: they attend to nothing before themselves."""

    own: Any
    seen: Any
    positions: Any
    real: Any
    is_causal: bool
    _masks: dict[Limits, torch.Tensor] = field(default_factory=dict)
    _biases: dict[Limits, torch.Tensor] = field(default_factory=dict)

    def on(self, device: torch.device) -> "Band":
        own, seen, positions, real = (
            on_device(each, device) for each in (self.own, self.seen, self.positions, self.real)
        )
        return Band(own, seen, positions, real, self.is_causal)

    def mask(self, limits: Limits) -> torch.Tensor:
        """All before a token and itself, as far as window and chunk reach: (segments, 1, tokens, attended tokens)."""
        if limits not in self._masks:
            to = torch.arange(self.seen.shape[1], device=self.seen.device)
            self._masks[limits] = visible(self.positions[:, None, :, None], to, limits)
        return self._masks[limits]

    def bias(self, limits: Limits, dtype: torch.dtype) -> torch.Tensor:
        """The mask as numbers that are added to the scores: torch makes them of a mask anew in every layer."""
        if limits not in self._biases:
            mask = self.mask(limits)
            self._biases[limits] = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
                ~mask, -torch.inf
            )
        return self._biases[limits]


def visible(at: torch.Tensor, to: torch.Tensor, limits: Limits) -> torch.Tensor:
    """Whether a token at one position sees that at another."""
    window, chunk = limits
    mask = to <= at
    if window is not None:
        mask = mask & (to > at - window)
    return mask if chunk is None else mask & (to // chunk == at // chunk)


def _bands(own: Integers, seen: Integers) -> list[Band]:
    """Group segments of similar length into rectangles."""
    order = np.lexsort((seen, own))
    own_starts, seen_starts = np.cumsum(own) - own, np.cumsum(seen) - seen
    out: list[Band] = []
    start = 0
    while start < len(order):
        end = start + 1
        first = order[start]
        while (
            end < len(order) and own[order[end]] <= max(BAND_RATIO * own[first], 8) and _near(seen, first, order[end])
        ):
            end += 1
        out.append(_band(order[start:end], own, seen, own_starts, seen_starts))
        start = end
    return out


def _near(lengths: Integers, one: int, other: int) -> bool:
    low, high = sorted((lengths[one], lengths[other]))
    return bool(high <= max(BAND_RATIO * low, 32))


def _band(members: Integers, own: Integers, seen: Integers, own_starts: Integers, seen_starts: Integers) -> Band:
    wide, deep = int(own[members].max()), int(seen[members].max())
    at, to = np.arange(wide)[None], np.arange(deep)[None]
    is_real = at < own[members][:, None]
    is_there = to < seen[members][:, None]
    return Band(
        own=np.where(is_real, own_starts[members][:, None] + at, own_starts[members][:, None]),
        seen=np.where(is_there, seen_starts[members][:, None] + to, seen_starts[members][:, None]),
        positions=np.minimum(at + (seen - own)[members][:, None], seen[members][:, None] - 1),  # of padding: the last
        real=is_real.flatten(),
        is_causal=bool((own[members] == seen[members]).all()),
    )


def _rectangle(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return (segments, heads, tokens, size) for an index of (segments, tokens)."""
    return values[index].transpose(1, 2)


class HostCopy:
    """A copy of a tensor in the host's memory, made without waiting for the device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copy.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._copy = tensor.cpu().clone()

    def array(self) -> Array:
        """The values, once the device has computed them."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy.numpy()


def on_device(array: Array, device: torch.device) -> torch.Tensor:
    """Copy an array to a device without waiting for the device."""
    out = torch.from_numpy(np.ascontiguousarray(array))
    return out.pin_memory().to(device, non_blocking=True) if torch.device(device).type == "cuda" else out.to(device)
