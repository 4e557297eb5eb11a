"""Attention of generation steps: each slot has one new token, which attends to the tokens of its slot and to a prefix that
all slots share."""

from dataclasses import dataclass, field
from typing import Any

import torch

from assay.models.local import slot_kernel
from assay.models.local.attention import (
    LayerAttention,
    Layers,
    Limits,
    PackedPattern,
    attention_weights,
    flash_window,
    masked_attention,
    visible,
    with_sinks,
)

KeysAndValues = tuple[torch.Tensor, torch.Tensor]


@dataclass(slots=True)
class SlotPattern:
    """The pattern of a generation step: one token per slot. Keys and values of the first `shared` tokens of all texts are in
    `prefix`, once; those of the others in `layers`."""

    count: int
    length: int
    device: torch.device
    flash: bool
    shared: int = 0
    prefix: Layers = field(default_factory=dict)
    kernel: bool = True
    lengths: torch.Tensor = field(init=False)
    """Number of tokens in each slot, without the shared ones."""
    layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    _starts: torch.Tensor = field(init=False)
    _place: torch.Tensor = field(init=False)
    _used: torch.Tensor = field(init=False)
    _ends: dict[int, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lengths = torch.zeros(self.count, dtype=torch.long, device=self.device)
        self._starts = torch.arange(self.count + 1, device=self.device) * self.length
        self._ends[0] = self._starts.int()
        self._place = self._starts[:-1].clone()
        self._used = torch.ones(self.count, dtype=torch.int32, device=self.device)

    def begin_step(self) -> None:
        """Place the new tokens behind those of their slots."""
        torch.add(self._starts[:-1], self.lengths, out=self._place)
        self._used.copy_(self.lengths).add_(1)

    def positions(self) -> torch.Tensor:
        return self.lengths + self.shared if self.shared else self.lengths

    def layer(self, number: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a layer, (slots × tokens, heads, size); allocated on first use."""
        if number not in self.layers:
            rows = self.count * self.length
            self.layers[number] = (key.new_zeros(rows, *key.shape[1:]), value.new_zeros(rows, *value.shape[1:]))
        return self.layers[number]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: LayerAttention
    ) -> torch.Tensor:
        keys, values = self.layer(layer, key, value)
        keys.index_copy_(0, self._place, key)
        values.index_copy_(0, self._place, value)
        window, chunk = how.limits(self.shared + self.length)
        prefix = self.prefix[layer] if self.shared else None
        is_cut = prefix is not None and window is not None
        if self.flash and chunk is None and how.softcap is None and not is_cut:
            by = self._kernel if self.kernel and slot_kernel.is_available() else self._flash
            return by(query, (keys, values), prefix, window, how)
        own = [each.view(self.count, self.length, *each.shape[1:]).transpose(1, 2) for each in (keys, values)]
        if prefix is not None:
            return self._masked(query, own, prefix, (window, chunk), how)
        mask = visible(self.lengths[:, None], torch.arange(self.length, device=self.device), (window, chunk))
        if how.softcap is None and how.sinks is None:  # heads of a group attend to the same keys, as tokens would
            query = query.view(self.count, key.shape[1], -1, key.shape[2])
        else:
            query = query[:, :, None]
        seen = masked_attention(query, own[0], own[1], mask[:, None, None], how)
        return seen.reshape(self.count, -1, value.shape[2])

    def _masked(
        self,
        query: torch.Tensor,
        own: list[torch.Tensor],
        prefix: tuple[torch.Tensor, torch.Tensor],
        limits: Limits,
        how: LayerAttention,
    ) -> torch.Tensor:
        """The scores with the prefix are one product of matrices for all slots."""
        heads, size = own[0].shape[1], own[0].shape[3]
        grouped = query.view(self.count, heads, -1, size)
        keys, values = (each.transpose(0, 1) for each in prefix)
        rows = grouped.transpose(0, 1).reshape(heads, -1, size)
        before = (rows @ keys.transpose(1, 2)).view(heads, self.count, -1, self.shared).transpose(0, 1)
        scores = torch.cat([before, grouped @ own[0].transpose(2, 3)], -1)
        to = torch.arange(self.shared + self.length, device=self.device)
        mask = visible(self.positions()[:, None], to, limits)[:, None, None]
        sinks = None if how.sinks is None else how.sinks.view(1, heads, -1, 1)
        weights = attention_weights(scores, mask, how, sinks).to(own[1].dtype)
        first = weights[..., : self.shared].transpose(0, 1).reshape(heads, -1, self.shared) @ values
        seen = first.view(heads, self.count, -1, values.shape[2]).transpose(0, 1)
        seen = seen + weights[..., self.shared :] @ own[1]
        return seen.reshape(self.count, -1, values.shape[2])

    def _kernel(
        self,
        query: torch.Tensor,
        own: KeysAndValues,
        prefix: KeysAndValues | None,
        window: int | None,
        how: LayerAttention,
    ) -> torch.Tensor:
        before = None
        if prefix is not None:
            seen, sums = torch.ops.aten._flash_attention_forward(
                query[None], prefix[0][None], prefix[1][None], None, None, self.count, self.shared, 0.0, False, False,
                scale=how.scale,
            )[:2]  # fmt: skip
            before = seen[0], sums[0]
        return slot_kernel.attend_slots(
            query, own, self._used, self.length, scale=how.scale, window=window, sinks=how.sinks, before=before
        )

    def _flash(
        self,
        query: torch.Tensor,
        own: KeysAndValues,
        prefix: KeysAndValues | None,
        window: int | None,
        how: LayerAttention,
    ) -> torch.Tensor:
        """Heads of a group attend to the same keys: they are treated as tokens, unless a window counts from a token."""
        heads, size = own[0].shape[1:]
        groups = query.shape[1] // heads if window is None else 1
        rows = query.view(self.count, -1, groups, size).transpose(1, 2).reshape(self.count * groups, -1, size)
        seen, sums = torch.ops.aten._flash_attention_forward(
            rows, *own, self._row_ends(groups), self._ends[0], groups, self.length, 0.0, False, False, scale=how.scale,
            seqused_k=self._used, **flash_window(window),
        )[:2]  # fmt: skip
        if prefix is not None:
            both = torch.ops.aten._flash_attention_forward(
                rows[None], prefix[0][None], prefix[1][None], None, None, len(rows), self.shared, 0.0, False, False,
                scale=how.scale,
            )[:2]  # fmt: skip
            seen, sums = joined(seen, sums, both[0][0], both[1][0])
        if how.sinks is not None:
            sinks = how.sinks.view(-1, groups).T.repeat(self.count, 1)  # of each row and head
            seen = with_sinks(seen, sums, sinks)
        return seen.view(self.count, groups, -1, seen.shape[2]).transpose(1, 2).reshape(self.count, query.shape[1], -1)  # type: ignore[no-any-return]

    def _row_ends(self, groups: int) -> torch.Tensor:
        """Ends of the rows of each slot."""
        if groups not in self._ends:
            self._ends[groups] = torch.arange(self.count + 1, device=self.device, dtype=torch.int32) * groups
        return self._ends[groups]


def joined(
    one: torch.Tensor, one_sums: torch.Tensor, other: torch.Tensor, other_sums: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of (rows, heads, size) over two sets of keys together, from that over each and its (heads, rows) log-sums."""
    share = torch.sigmoid(other_sums - one_sums).T[..., None]
    return torch.lerp(one.to(share.dtype), other.to(share.dtype), share).to(one.dtype), torch.logaddexp(
        one_sums, other_sums
    )


@dataclass(slots=True)
class PromptPattern(PackedPattern):
    """The pattern of prompts, whose keys and values are copied into slots."""

    slots: SlotPattern | None = None
    source: Any = None
    place: Any = None

    def on_gather(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        assert self.slots is not None
        for held, new in zip(self.slots.layer(layer, key, value), (key, value), strict=True):
            held.index_copy_(0, self.place, new.index_select(0, self.source))
