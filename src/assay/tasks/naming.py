"""Names of the tasks and groups of a selection in results.

A registered name stays bare, an inline one is `parent::name`, a format that was asked for is added as `@format`. Where
one name means more than one thing — overrides differ — the registered version keeps the name, and the others are
named by their path: `group::task`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from assay.catalog.expand import ALIASES, CatalogNode, GroupNode


@dataclass(slots=True, eq=False)
class Meaning:
    """Nodes that are the same task or group, wherever they are listed, and the group they were first met in."""

    label: str
    nodes: list[CatalogNode]
    parent: "Meaning | None" = None
    children: "tuple[Meaning, ...]" = field(default=())
    key: str = ""
    way: str = ""


def meanings(nodes: Iterable[CatalogNode], ways: Mapping[int, str] | None = None) -> dict[int, Meaning]:
    """For every node of a selection, by id, what it means. Each meaning has a key that no other has.

    `ways` says of nodes that were asked for by a path which group they were reached through.
    """
    finder = _Finder()
    for node in nodes:
        finder.visit(node).way = (ways or {}).get(id(node), "")
    same_label: dict[str, list[Meaning]] = {}
    for meaning in finder.meanings:
        same_label.setdefault(meaning.label, []).append(meaning)
    plain = {id(_plain(same)) for same in same_label.values()}
    taken: set[str] = set()
    for meaning in sorted(finder.meanings, key=lambda meaning: id(meaning) not in plain):
        if not meaning.key:
            _assign(meaning, plain, taken)
    return finder.by_node


class _Finder:
    """Walks a selection and puts nodes that are the same thing together."""

    def __init__(self) -> None:
        self.by_node: dict[int, Meaning] = {}
        self.meanings: list[Meaning] = []
        self._by_label: dict[str, list[Meaning]] = {}

    def visit(self, node: CatalogNode) -> Meaning:
        known = self.by_node.get(id(node))
        if known is not None:
            return known
        children = tuple(self.visit(child) for child in node.children) if isinstance(node, GroupNode) else ()
        meaning = self._meaning(node, children)
        for child in children:
            child.parent = child.parent or meaning
        self.by_node[id(node)] = meaning
        return meaning

    def _meaning(self, node: CatalogNode, children: tuple[Meaning, ...]) -> Meaning:
        label = f"{node.name}@{node.chosen_format}" if node.chosen_format else node.name
        candidates = self._by_label.setdefault(label, [])
        for meaning in candidates:
            if meaning.children == children and _is_same(meaning.nodes[0], node):
                meaning.nodes.append(node)
                return meaning
        candidates.append(Meaning(label, [node], children=children))
        self.meanings.append(candidates[-1])
        return candidates[-1]


def _is_same(one: CatalogNode, other: CatalogNode) -> bool:
    return type(one) is type(other) and dict(one.fields.without(*ALIASES)) == dict(other.fields.without(*ALIASES))


def _plain(same: list[Meaning]) -> Meaning | None:
    """The meaning that keeps a bare name: the only one, or the one that is as registered."""
    return same[0] if len(same) == 1 else next((meaning for meaning in same if _is_pristine(meaning)), None)


def _is_pristine(meaning: Meaning) -> bool:
    if meaning.children:
        return all(map(_is_pristine, meaning.children))
    return any(not isinstance(node, GroupNode) and node.pristine for node in meaning.nodes)


def _assign(meaning: Meaning, plain: set[int], taken: set[str]) -> None:
    name = meaning.label
    if id(meaning) not in plain and meaning.parent is not None:
        if not meaning.parent.key:
            _assign(meaning.parent, plain, taken)
        bare = meaning.label if meaning.nodes[0].registered else meaning.label.rpartition("::")[2]
        name = f"{meaning.parent.key}::{bare}"
    elif id(meaning) not in plain and meaning.way:
        name = f"{meaning.way}::{meaning.label}"
    meaning.key = name
    for number in count(2):
        if meaning.key not in taken:
            break
        meaning.key = f"{name}#{number}"
    taken.add(meaning.key)
