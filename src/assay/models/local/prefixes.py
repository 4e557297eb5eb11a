"""Prefix groups: requests with a common prefix, which is computed once.

Token sequences with a common prefix (few-shot examples) form a group. Inside one, the continuations of the same context
(the choices of a question) belong together. `prefix_trees` makes token trees of them, for a model that takes rows with a
mask; `prefix_groups` leaves them as segments, for a model with packed attention.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

MIN_SHARED = 8
"""Shorter shared prefixes are not worth a separate pass."""
WIDTH = array("I").itemsize

Tokens = Sequence[int]


@dataclass(slots=True)
class TokenTree:
    """Tokens with their parents (-1: the common prefix), parents first.

    `paths` maps the number of each sequence to the nodes of its tokens after the prefix.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    paths: dict[int, list[int]] = field(default_factory=dict)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, number: int, tokens: Iterable[int]) -> None:
        node, path = -1, []
        for token in tokens:
            known = self._children.get((node, token))
            if known is None:
                known = len(self.tokens)
                self._children[(node, token)] = known
                self.tokens.append(token)
                self.parents.append(node)
                self.depths.append(self.depths[node] + 1 if node >= 0 else 0)
            node = known
            path.append(node)
        self.paths[number] = path


@dataclass(slots=True)
class PrefixTrees:
    """Sequences with a common prefix; one tree per context."""

    prefix: Tokens
    trees: list[TokenTree]


@dataclass(slots=True)
class ContextGroup:
    """A context with its continuations. `branches` are the distinct continuations without their last token, which is
    never an input; `numbers` lists the sequences that end on each."""

    context: Tokens
    branches: list[Tokens]
    numbers: list[list[int]]


@dataclass(slots=True)
class PrefixGroup:
    """Contexts with their first `shared` tokens in common; each has at least one token more."""

    shared: int
    contexts: list[ContextGroup]

    @property
    def prefix(self) -> Tokens:
        return self.contexts[0].context[: self.shared]


def prefix_trees(sequences: Sequence[Tokens], keep: Sequence[int]) -> list[PrefixTrees]:
    """Group sequences by prefix into trees. The last `keep[n]` tokens of sequence n are never part of a prefix.

    Sequences that differ only in these last tokens (a question with its choices) share a tree.
    """
    by_context: dict[bytes, list[int]] = {}
    for number, tokens in enumerate(sequences):
        by_context.setdefault(_as_bytes(tokens[: len(tokens) - keep[number]]), []).append(number)
    groups: list[PrefixTrees] = []
    for shared, contexts in shared_prefixes(sorted(by_context)):
        trees = []
        for context in contexts:
            tree = TokenTree()
            for number in by_context[context]:
                tree.add(number, sequences[number][shared:])
            trees.append(tree)
        groups.append(PrefixTrees(sequences[by_context[contexts[0]][0]][:shared], trees))
    return groups


def prefix_groups(pairs: Sequence[tuple[Tokens, Tokens]]) -> list[PrefixGroup]:
    """Group pairs of context and continuation by prefix."""
    by_context: dict[bytes, tuple[ContextGroup, dict[tuple[int, ...], int]]] = {}
    last: tuple[Tokens, bytes] = ((), b"")
    for number, (context, continuation) in enumerate(pairs):
        if context is not last[0]:  # the choices of a question come one after the other
            last = (context, _as_bytes(context))
        group, known = by_context.setdefault(last[1], (ContextGroup(context, [], []), {}))
        branch = tuple(continuation[:-1])
        at = known.setdefault(branch, len(known))
        if at == len(group.branches):
            group.branches.append(branch)
            group.numbers.append([])
        group.numbers[at].append(number)
    by_prefix = sorted(by_context)
    groups: list[PrefixGroup] = []
    start = 0
    for shared, run in shared_prefixes([context[:-WIDTH] for context in by_prefix]):
        groups.append(PrefixGroup(shared, [by_context[key][0] for key in by_prefix[start : start + len(run)]]))
        start += len(run)
    return groups


def _as_bytes(tokens: Tokens) -> bytes:
    """Return tokens as bytes, which compare and sort at the speed of memory."""
    return array("I", tokens).tobytes()


def shared_prefixes(contexts: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield runs of sorted contexts with the length of their common prefix, in tokens (or letters of four bytes)."""
    start = 0
    while start < len(contexts):
        end, shared = _extent(contexts, start)
        yield shared, contexts[start:end]
        start = end


def _extent(contexts: Sequence[bytes], start: int) -> tuple[int, int]:
    """Return the end of the run with a common prefix, and its length: all that share most of the first two's prefix."""
    if start + 1 >= len(contexts):
        return start + 1, 0
    least = shared = _common(contexts[start], contexts[start + 1])
    if shared < MIN_SHARED:
        return start + 1, 0
    end = start + 1
    while end < len(contexts):
        common = min(shared, _common(contexts[start], contexts[end]))
        if common < max(MIN_SHARED, least * 3 // 4):
            break
        shared, end = common, end + 1
    return end, shared


def _common(one: bytes, other: bytes) -> int:
    """Length of the common prefix, in tokens.

    >>> _common(_as_bytes([1, 2, 3]), _as_bytes([1, 2, 4, 5])), _common(_as_bytes([1]), _as_bytes([1, 2])), _common(b"", b"")
    (2, 1, 0)
    """
    length = min(len(one), len(other)) // WIDTH
    if one[: length * WIDTH] == other[: length * WIDTH]:
        return length
    differs = np.frombuffer(one, np.uint32, length) != np.frombuffer(other, np.uint32, length)
    return int(differs.argmax())


def common_tokens(one: Tokens, other: Tokens) -> int:
    """Length of the common prefix of two sequences."""
    return _common(_as_bytes(one), _as_bytes(other))
