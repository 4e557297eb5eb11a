"""Requests that begin alike: what they share is computed once.

Sequences of tokens are put into clusters with a common prefix (few-shot examples), and inside a cluster each is packed
with those that branch off from it (the choices of a question) into one row: a tree, in which a token sees its ancestors
alone. Every token of the tree is one position to compute, however many sequences go through it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MIN_SHARED = 8
"""A shared prefix shorter than this is not worth a pass of its own."""

Tokens = tuple[int, ...]


@dataclass(slots=True)
class Tree:
    """Tokens with their parents (-1: the prefix of the cluster), in an order in which parents come first.

    `ends` says for each sequence, by its number, the nodes of its tokens behind the prefix.
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
class Cluster:
    """Sequences with a common prefix; a tree for each bunch of them that belong together."""

    prefix: Tokens
    trees: list[Tree]


def clusters(sequences: Sequence[Tokens], keep: Sequence[int]) -> list[Cluster]:
    """The sequences by number, in clusters. The last `keep[n]` tokens of sequence n are never part of a prefix.

    Those that have all but these last tokens in common (a question with its choices) go into one tree.
    """
    order = sorted(range(len(sequences)), key=lambda number: sequences[number])
    bunches = _bunches(order, sequences, keep)
    made: list[Cluster] = []
    start = 0
    while start < len(bunches):
        end, shared = _extent(bunches, start, sequences, keep)
        trees = []
        for bunch in bunches[start:end]:
            tree = Tree()
            for number in bunch:
                tree.add(number, sequences[number][shared:])
            trees.append(tree)
        made.append(Cluster(sequences[bunches[start][0]][:shared], trees))
        start = end
    return made


def _bunches(order: Sequence[int], sequences: Sequence[Tokens], keep: Sequence[int]) -> list[list[int]]:
    by_context: dict[Tokens, list[int]] = {}
    for number in order:
        tokens = sequences[number]
        by_context.setdefault(tokens[: len(tokens) - keep[number]], []).append(number)
    return list(by_context.values())


def _extent(
    bunches: Sequence[Sequence[int]], start: int, sequences: Sequence[Tokens], keep: Sequence[int]
) -> tuple[int, int]:
    """How many bunches from here on share a prefix, and how long it is: as many as share most of what the first two do."""
    shared = _limit(bunches[start], sequences, keep)
    if start + 1 >= len(bunches):
        return start + 1, 0
    least = shared = min(shared, _common(bunches[start], bunches[start + 1], sequences))
    if shared < MIN_SHARED:
        return start + 1, 0
    end = start + 1
    while end < len(bunches):
        common = min(shared, _common(bunches[start], bunches[end], sequences), _limit(bunches[end], sequences, keep))
        if common < max(MIN_SHARED, least * 3 // 4):
            break
        shared, end = common, end + 1
    return end, shared


def _limit(bunch: Sequence[int], sequences: Sequence[Tokens], keep: Sequence[int]) -> int:
    return min(len(sequences[number]) - keep[number] for number in bunch)


def _common(one: Sequence[int], other: Sequence[int], sequences: Sequence[Tokens]) -> int:
    first, second = sequences[one[0]], sequences[other[0]]
    length = min(len(first), len(second))
    low, high = 0, length  # equality of slices is fast, so the point where they part is found by halving
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
