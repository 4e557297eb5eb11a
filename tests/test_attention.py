"""Packed attention over random trees of segments, next to attention computed token by token in float64."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.local.attention import LayerAttention, PackedPattern, PackedRow, Span
from assay.models.local.slot_attention import SlotPattern, joined

HEADS, KEY_HEADS, SIZE = 4, 2, 8
Floats = npt.NDArray[np.float64]
limits = st.none() | st.integers(1, 12)
hows = st.builds(
    lambda window, chunk, softcap, with_sinks: LayerAttention(
        0.3, window, None if window else chunk, softcap, torch.randn(HEADS) if with_sinks else None
    ),
    limits,
    limits,
    st.none() | st.sampled_from([0.5, 3.0]),
    st.booleans(),
)
trees = st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 7)), min_size=1, max_size=7)
"""Segments: the one before (-1: none; only earlier ones count), and the number of tokens."""


def attended(query: Floats, keys: Floats, values: Floats, how: LayerAttention) -> Floats:
    """What the last of some tokens sees: every head by itself, (heads, size)."""
    here = len(keys) - 1
    seen = [
        at
        for at in range(len(keys))
        if (how.window is None or here - at < how.window)
        and (how.chunk is None or at // how.chunk == here // how.chunk)
    ]
    out = []
    for head in range(HEADS):
        shared = head // (HEADS // KEY_HEADS)
        scores = np.array([query[head] @ keys[at][shared] * how.scale for at in seen])
        if how.softcap is not None:
            scores = np.tanh(scores / how.softcap) * how.softcap
        weights = np.exp(scores)
        total = weights.sum() + (0.0 if how.sinks is None else np.exp(how.sinks[head].double().item()))
        out.append(sum(weight * values[at][shared] for weight, at in zip(weights, seen, strict=True)) / total)
    return np.array(out)


def tensors(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((count, HEADS, SIZE), (count, KEY_HEADS, SIZE), (count, KEY_HEADS, SIZE))
    query, key, value = (torch.randn(shape, generator=generator) for shape in shapes)
    return query, key, value


def doubles(*tensors: torch.Tensor) -> list[Floats]:
    return [each.double().numpy() for each in tensors]


@settings(max_examples=60, deadline=None)
@given(trees, hows, st.integers(0, 99))
def test_a_tree_of_segments_attends_as_its_texts_do_one_by_one(
    tree: list[tuple[int, int]], how: LayerAttention, seed: int
) -> None:
    row, paths, own = PackedRow(), list[list[Span]](), list[Span]()
    for before, length in tree:
        path = paths[before] if 0 <= before < len(paths) else []
        own.append(row.add([0] * length, path))
        paths.append([*path, own[-1]])
    query, key, value = tensors(len(row.tokens), seed)
    seen = PackedPattern.of(row, torch.device("cpu"), flash=False).attend(0, query, key, value, how).double().numpy()
    queries, keys, values = doubles(query, key, value)
    for path, (start, stop) in zip(paths, own, strict=True):
        text = [at for begin, end in path for at in range(begin, end)]
        for token in range(start, stop):
            past = text[: text.index(token) + 1]
            expected = attended(queries[token], keys[past], values[past], how)
            np.testing.assert_allclose(seen[token], expected, atol=2e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), hows, st.integers(0, 99))
def test_a_token_in_a_slot_attends_to_those_before_it(lengths: list[int], how: LayerAttention, seed: int) -> None:
    slots = SlotPattern(len(lengths), 24, torch.device("cpu"), flash=False)
    query, key, value = tensors(len(lengths) * 24, seed)
    slots.layers[0] = (key.clone(), value.clone())
    slots.lengths.copy_(torch.tensor(lengths) - 1)
    slots.begin_step()
    last = [number * 24 + length - 1 for number, length in enumerate(lengths)]
    seen = slots.attend(0, query[last], key[last], value[last], how).double().numpy()
    queries, keys, values = doubles(query, key, value)
    for number, length in enumerate(lengths):
        past = slice(number * 24, number * 24 + length)
        expected = attended(queries[last[number]], keys[past], values[past], how)
        np.testing.assert_allclose(seen[number], expected, atol=2e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 30), hows, st.integers(0, 99))
def test_a_token_in_a_slot_attends_to_the_shared_prefix_and_to_those_before_it(
    lengths: list[int], shared: int, how: LayerAttention, seed: int
) -> None:
    slots = SlotPattern(len(lengths), 24, torch.device("cpu"), flash=False, shared=shared)
    query, key, value = tensors(shared + len(lengths) * 24, seed)
    slots.prefix = {0: (key[:shared], value[:shared])}
    slots.layers[0] = (key[shared:].clone(), value[shared:].clone())
    slots.lengths.copy_(torch.tensor(lengths) - 1)
    slots.begin_step()
    last = [shared + number * 24 + length - 1 for number, length in enumerate(lengths)]
    seen = slots.attend(0, query[last], key[last], value[last], how).double().numpy()
    queries, keys, values = doubles(query, key, value)
    for number, length in enumerate(lengths):
        past = [*range(shared), *range(shared + number * 24, shared + number * 24 + length)]
        expected = attended(queries[last[number]], keys[past], values[past], how)
        np.testing.assert_allclose(seen[number], expected, atol=2e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_attention_over_two_sets_of_keys_is_joined_from_both(first: int, second: int, seed: int) -> None:
    """Against the softmax over all keys at once, in float64."""
    query, key, value = tensors(first + second, seed)
    groups = query.shape[1] // key.shape[1]
    keys, values = (each.repeat_interleave(groups, 1).double() for each in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.double(), keys)

    def over(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        some = scores[:, :, part]
        return torch.einsum("hqk,khd->qhd", some.softmax(-1), values[part]), some.logsumexp(-1)

    whole, sums = over(slice(None))
    seen, both = joined(*over(slice(None, first)), *over(slice(first, None)))
    torch.testing.assert_close(seen, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(both, sums)


def called_with(row: PackedRow, layers: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, torch.Tensor | None]]:
    """For each call of torch's attention in some layers of a pass: the number of scores, and the mask."""
    calls: list[tuple[int, torch.Tensor | None]] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def noted(query: Any, key: Any, value: Any, mask: Any = None, **options: Any) -> torch.Tensor:
        calls.append((query.shape[0] * query.shape[2] * key.shape[2], mask))
        return fused(query, key, value, mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    pattern = PackedPattern.of(row, torch.device("cpu"), flash=False)
    for layer in range(layers):
        pattern.attend(layer, *tensors(len(row.tokens), layer), LayerAttention(0.3))
    return calls


def test_few_scores_of_questions_after_a_shared_prefix_are_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, row = random.Random(0), PackedRow()
    prefix = row.add([0] * 600, [])
    lengths = [draw.randint(100, 145) for _ in range(50)]
    for length in lengths:
        row.add([0] * length, [prefix])
    needed = 600 * 600 / 2 + sum(length * (600 + length / 2) for length in lengths)
    computed = sum(count for count, _ in called_with(row, 1, monkeypatch))
    assert computed <= 1.2 * needed  # 600 × 600 / 2 of them are the half of the prefix that nothing attends to


def test_a_mask_is_made_once_for_all_layers_and_none_for_texts_without_a_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = PackedRow()
    prefix = row.add([0] * 9, [])
    row.add([0] * 4, [prefix])
    masks = [mask for _, mask in called_with(row, 3, monkeypatch)]
    given = [mask for mask in masks if mask is not None]
    assert (len(masks), len(given)) == (6, 3)
    assert len({mask.data_ptr() for mask in given}) == 1
    assert {mask.dtype for mask in given} == {torch.float32}
