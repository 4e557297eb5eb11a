"""Requests that begin alike: what they share is computed once.

Sequences of tokens are put into families with a common prefix (few-shot examples). Inside one, those that go on from the
same context (the choices of a question) belong together: a trunk with its branches. `clusters` makes trees of them, for
a model that takes rows with a mask; `families` leaves them as pieces, for one that takes pieces as they are.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

MIN_SHARED = 8
"""A shared prefix shorter than this is not worth a pass of its own."""
WIDTH = array("I").itemsize

Tokens = Sequence[int]


@dataclass(slots=True)
class Tree:
    """Tokens with their parents (-1: the prefix of the cluster), in an order in which parents come first.

    `paths` says for each sequence, by its number, the nodes of its tokens behind the prefix.
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


@dataclass(slots=True)
class Bunch:
    """A context with what is asked after it: `branches` are the distinct continuations without their last token, which
    nothing comes after; `numbers` says which sequences end on each of them."""

    context: Tokens
    branches: list[Tokens]
    numbers: list[list[int]]


@dataclass(slots=True)
class Family:
    """Bunches whose contexts have their first `shared` tokens in common; each has at least one more of its own."""

    shared: int
    bunches: list[Bunch]

    @property
    def prefix(self) -> Tokens:
        return self.bunches[0].context[: self.shared]


def clusters(sequences: Sequence[Tokens], keep: Sequence[int]) -> list[Cluster]:
    """The sequences by number, in clusters. The last `keep[n]` tokens of sequence n are never part of a prefix.

    Those that have all but these last tokens in common (a question with its choices) go into one tree.
    """
    by_context: dict[bytes, list[int]] = {}
    for number, tokens in enumerate(sequences):
        by_context.setdefault(_written(tokens[: len(tokens) - keep[number]]), []).append(number)
    made: list[Cluster] = []
    for shared, contexts in beginnings(sorted(by_context)):
        trees = []
        for context in contexts:
            tree = Tree()
            for number in by_context[context]:
                tree.add(number, sequences[number][shared:])
            trees.append(tree)
        made.append(Cluster(sequences[by_context[contexts[0]][0]][:shared], trees))
    return made


def families(pairs: Sequence[tuple[Tokens, Tokens]]) -> list[Family]:
    """Contexts with their continuations, by number, in families."""
    by_context: dict[bytes, tuple[Bunch, dict[tuple[int, ...], int]]] = {}
    last: tuple[Tokens, bytes] = ((), b"")
    for number, (context, continuation) in enumerate(pairs):
        if context is not last[0]:  # the choices of a question come one after the other
            last = (context, _written(context))
        bunch, known = by_context.setdefault(last[1], (Bunch(context, [], []), {}))
        branch = tuple(continuation[:-1])
        at = known.setdefault(branch, len(known))
        if at == len(bunch.branches):
            bunch.branches.append(branch)
            bunch.numbers.append([])
        bunch.numbers[at].append(number)
    by_beginning = sorted(by_context)
    made: list[Family] = []
    start = 0
    for shared, run in beginnings([context[:-WIDTH] for context in by_beginning]):
        made.append(Family(shared, [by_context[key][0] for key in by_beginning[start : start + len(run)]]))
        start += len(run)
    return made


def _written(tokens: Tokens) -> bytes:
    """As bytes, which are compared and sorted at the speed of memory."""
    return array("I", tokens).tobytes()


def beginnings(contexts: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Sorted contexts in runs that begin alike, each with how many tokens (or letters, of four bytes) they share."""
    start = 0
    while start < len(contexts):
        end, shared = _extent(contexts, start)
        yield shared, contexts[start:end]
        start = end


def _extent(contexts: Sequence[bytes], start: int) -> tuple[int, int]:
    """How many contexts from here on share a prefix, and how long it is: as many as share most of what the first two do."""
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
    """How many tokens two contexts begin with alike. Equality of slices is fast, so the point where they part is found by
    halving."""
    low, high = 0, min(len(one), len(other)) // WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * WIDTH] == other[: middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def common_tokens(one: Tokens, other: Tokens) -> int:
    """How many tokens two sequences begin with alike."""
    return _common(_written(one), _written(other))
