"""A Triton kernel for generation steps: the new token of every slot attends to its slot, and is joined with a shared prefix.

The flash kernel computes tiles of 128 queries, of which a slot has only those of one token.
"""

from functools import cache
from typing import Any

import torch


@cache
def is_available() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def slot_attention(  # type: ignore[no-untyped-def]  # noqa: PLR0913
        query, keys, values, used, before, before_sums, sinks, out, scale, length, window, query_token, query_head,
        slots, size: tl.constexpr, heads: tl.constexpr, groups: tl.constexpr, rows: tl.constexpr, width: tl.constexpr,
        block: tl.constexpr, has_window: tl.constexpr, has_prefix: tl.constexpr, has_sinks: tl.constexpr,
    ):  # fmt: skip
        slot, head = tl.program_id(0), tl.program_id(1)
        row, dim = tl.arange(0, rows), tl.arange(0, width)
        own_head = head * groups + row
        is_cell = (row < groups)[:, None] & (dim < size)[None, :]
        asked = tl.load(
            query + slot * query_token + own_head[:, None] * query_head + dim[None, :], mask=is_cell, other=0.0
        )
        end = tl.load(used + slot)
        first = 0
        if has_window:
            first = tl.maximum(end - window, 0)
        base = (slot.to(tl.int64) * length * heads + head) * size
        highest = tl.full([rows], -float("inf"), tl.float32)
        total = tl.zeros([rows], tl.float32)
        sums = tl.zeros([rows, width], tl.float32)
        for start in range(first // block * block, end, block):
            at = start + tl.arange(0, block)
            is_seen = (at >= first) & (at < end)
            place = base + at[:, None] * (heads * size) + dim[None, :]
            is_there = is_seen[:, None] & (dim < size)[None, :]
            key = tl.load(keys + place, mask=is_there, other=0.0)
            score = tl.dot(asked, tl.trans(key)) * scale
            score = tl.where(is_seen[None, :], score, -float("inf"))
            higher = tl.maximum(highest, tl.max(score, 1))
            weight = tl.exp(score - higher[:, None])
            shrink = tl.exp(highest - higher)
            value = tl.load(values + place, mask=is_there, other=0.0)
            sums = sums * shrink[:, None] + tl.dot(weight.to(value.dtype), value)
            total = total * shrink + tl.sum(weight, 1)
            highest = higher
        seen = sums / total[:, None]
        log_sum = highest + tl.log(total)
        cell = (slot * heads * groups + own_head)[:, None] * size + dim[None, :]
        if has_prefix:
            other = tl.load(before + cell, mask=is_cell, other=0.0).to(tl.float32)
            other_sum = tl.load(before_sums + own_head * slots + slot, mask=row < groups, other=0.0)
            share = 1 / (1 + tl.exp(log_sum - other_sum))
            seen = seen + (other - seen) * share[:, None]
            top = tl.maximum(log_sum, other_sum)
            log_sum = top + tl.log(tl.exp(log_sum - top) + tl.exp(other_sum - top))
        if has_sinks:
            sink = tl.load(sinks + own_head, mask=row < groups, other=0.0).to(tl.float32)
            seen = seen / (1 + tl.exp(sink - log_sum))[:, None]
        tl.store(out + cell, seen.to(out.dtype.element_ty), mask=is_cell)

    return slot_attention


def attend_slots(  # noqa: PLR0913  # what a step has
    query: torch.Tensor, own: tuple[torch.Tensor, torch.Tensor], used: torch.Tensor, length: int, *, scale: float,
    window: int | None, sinks: torch.Tensor | None, before: tuple[torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:  # fmt: skip
    """Attention of (slots, heads, size) over keys and values of (slots × length, heads, size), `used` of them in each slot.

    `before` is the attention over a shared prefix and its (heads, slots) log-sums.
    """
    slots, query_heads, size = query.shape
    heads = own[0].shape[1]
    if query.stride(2) != 1:
        query = query.contiguous()
    out = torch.empty(slots, query_heads, size, dtype=query.dtype, device=query.device)
    groups = query_heads // heads
    width = max(1 << (size - 1).bit_length(), 16)
    _kernel()[slots, heads](
        query, *own, used, *(before or (query, used)), used if sinks is None else sinks, out, scale, length, window or 0,
        query.stride(0), query.stride(1), slots, size=size, heads=heads, groups=groups,
        rows=max(1 << (groups - 1).bit_length(), 16), width=width, block=64 if width > 64 else 128,
        has_window=window is not None, has_prefix=before is not None, has_sinks=sinks is not None,
    )  # fmt: skip
    return out
