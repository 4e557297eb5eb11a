"""Attention for transformers' models where a row holds many pieces of text, or a row of slots writes a token each.

A model that follows transformers' attention interface calls `attend` in every layer; what is seen is said by the Sight that
is being looked through. Keys and values are looked up for each piece, so that any tree of pieces is one call of a kernel
for sequences of various lengths, and what pieces share is computed once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import torch

from assay.models.local.packing import Row, Span

NAME = "assay_pieces"
"""What the attention is called in a model's config."""
BANDS = 1.5
"""Pieces go into one rectangle when the longest is not longer than so many times the shortest."""

Layers = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Keys and values by layer, (tokens, heads, size)."""


class Sight(Protocol):
    """What the tokens of a pass see: called in every layer with what it has, tokens first."""

    def look(self, layer: int, query: Any, key: Any, value: Any, scale: float) -> torch.Tensor: ...


class Unsupported(Exception):
    """The model wants of its attention what this one does not do."""


_through: list[Sight] = []


@contextmanager
def looking(sight: Sight) -> Iterator[None]:
    _through.append(sight)
    try:
        yield
    finally:
        _through.pop()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend(  # noqa: PLR0913  # transformers' own signature
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
    softcap: float | None = None, s_aux: Any = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention in the way transformers calls it, for a batch of one row."""
    if softcap is not None or s_aux is not None or attention_mask is not None:
        raise Unsupported("a soft cap, a sink or a mask of its own")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer: int = module.layer_idx
    tokens = [each[0].transpose(0, 1) for each in (query, key, value)]
    seen = _through[-1].look(layer, tokens[0], tokens[1], tokens[2], scale)
    return seen[None], None


def register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)


@dataclass(slots=True)
class Pieces:
    """The sight of a row of pieces. The keys and values of some `wanted` tokens are kept for later passes."""

    lookup: torch.Tensor | None
    ends: torch.Tensor
    seen_ends: torch.Tensor
    longest: int
    longest_seen: int
    bands: "list[Band]"
    before: Layers | None
    wanted: Sequence[Sequence[Span]]
    kept: list[Layers] = field(default_factory=list)

    @classmethod
    def of(
        cls, row: Row, device: Any, *, flash: bool, before: Layers | None = None, wanted: Sequence[Sequence[Span]] = ()
    ) -> Self:
        own, seen = row.lengths()
        lookup = row.lookup()
        bands = [] if flash else _bands(own, seen)
        return cls(
            lookup=None if lookup is None else on_device(lookup, device),
            ends=on_device(np.concatenate([[0], np.cumsum(own)]).astype(np.int32), device),
            seen_ends=on_device(np.concatenate([[0], np.cumsum(seen)]).astype(np.int32), device),
            longest=int(own.max()),
            longest_seen=int(seen.max()),
            bands=[band.on(device) for band in bands],
            before=before,
            wanted=[[row.place(span) for span in spans] for spans in wanted],
            kept=[{} for _ in wanted],
        )

    def look(self, layer: int, query: Any, key: Any, value: Any, scale: float) -> torch.Tensor:
        if self.before is not None:
            key, value = (torch.cat(both) for both in zip(self.before[layer], (key, value), strict=True))
        for spans, kept in zip(self.wanted, self.kept, strict=True):
            kept[layer] = tuple(torch.cat([each[start:stop] for start, stop in spans]) for each in (key, value))  # type: ignore[assignment]
        if self.lookup is not None:
            key, value = key.index_select(0, self.lookup), value.index_select(0, self.lookup)
        self.looked_up(layer, key, value)
        if self.bands:
            return self._in_bands(query, key, value, scale)
        seen: torch.Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, self.ends, self.seen_ends, self.longest, self.longest_seen, 0.0, True, False, scale=scale
        )[0]
        return seen

    def looked_up(self, layer: int, key: Any, value: Any) -> None:
        """What the pieces see is there, piece by piece."""

    def _in_bands(self, query: Any, key: Any, value: Any, scale: float) -> torch.Tensor:
        made = torch.empty(query.shape[0], query.shape[1], value.shape[2], dtype=query.dtype, device=query.device)
        for band in self.bands:
            rows = torch.nn.functional.scaled_dot_product_attention(
                _rectangle(query, band.own), _rectangle(key, band.seen), _rectangle(value, band.seen), band.mask,
                scale=scale, enable_gqa=query.shape[1] != key.shape[1],
            )  # fmt: skip
            made[band.own.flatten()[band.real]] = rows.transpose(1, 2).flatten(0, 1)[band.real]
        return made


@dataclass(slots=True)
class Band:
    """Pieces of about one length, as a rectangle: the numbers of their own tokens and of those they see, and who sees whom."""

    own: Any
    seen: Any
    mask: Any
    real: Any

    def on(self, device: Any) -> "Band":
        return Band(*(on_device(each, device) for each in (self.own, self.seen, self.mask, self.real)))


def _bands(own: Any, seen: Any) -> list[Band]:
    """Pieces in rectangles: those of about one length go into one."""
    order = np.lexsort((seen, own))
    own_starts, seen_starts = np.cumsum(own) - own, np.cumsum(seen) - seen
    made: list[Band] = []
    start = 0
    while start < len(order):
        end = start + 1
        first = order[start]
        while end < len(order) and own[order[end]] <= max(BANDS * own[first], 8) and _near(seen, first, order[end]):
            end += 1
        made.append(_band(order[start:end], own, seen, own_starts, seen_starts))
        start = end
    return made


def _near(lengths: Any, one: int, other: int) -> bool:
    low, high = sorted((lengths[one], lengths[other]))
    return bool(high <= max(BANDS * low, 32))


def _band(members: Any, own: Any, seen: Any, own_starts: Any, seen_starts: Any) -> Band:
    wide, deep = int(own[members].max()), int(seen[members].max())
    at, to = np.arange(wide)[None], np.arange(deep)[None]
    is_real = at < own[members][:, None]
    is_there = to < seen[members][:, None]
    sees = (
        to[:, None, :] <= (at + (seen - own)[members][:, None])[:, :, None]
    )  # all before the piece, and itself up to here
    mask = sees & is_there[:, None, :]
    return Band(
        own=np.where(is_real, own_starts[members][:, None] + at, own_starts[members][:, None]),
        seen=np.where(is_there, seen_starts[members][:, None] + to, seen_starts[members][:, None]),
        mask=mask[:, None],
        real=is_real.flatten(),
    )


def _rectangle(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """(pieces, heads, tokens, size) of the tokens that an index of (pieces, tokens) names."""
    return values[index].transpose(1, 2)


def on_device(array: Any, device: Any) -> torch.Tensor:
    """Numbers on a device, without waiting for what it is doing."""
    made = torch.from_numpy(np.ascontiguousarray(array))
    return made.pin_memory().to(device, non_blocking=True) if torch.device(device).type == "cuda" else made.to(device)
