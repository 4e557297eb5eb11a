"""Parse YAML into values: the only module that imports the YAML library.

YAML 1.1 as PyYAML's safe loader reads it (so `no` is false and `1_000` a number, as in lm-eval), plus `!function`.
"""

import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import yaml

from assay.config.arguments import is_too_large
from assay.config.option import YAMLValue
from assay.config.source import MAX_BYTES
from assay.config.yaml_slips import Mark, find_slip
from assay.dialect import OURS, Dialect
from assay.errors import Place, Problem, nearest
from assay.records import Function

MAX_DEPTH = 100
"""libyaml composes by recursion in C: ten thousand levels crash the process instead of raising."""
MAX_VALUES = 1_000_000
"""Maximum number of values that the aliases of one file expand to."""
MAX_EVENTS = 500_000
"""Maximum number of values that one file lists: the parser takes 10 µs for each."""

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(data: bytes, file: str, dialect: Dialect) -> tuple[YAMLValue, tuple[Problem, ...]]:
    """Parse a text into a value and its problems."""
    problem = _too_much(data, file)
    if problem is not None:
        return None, (problem,)
    loader = _Loader(data, file, dialect)
    value: object = None
    try:
        node = loader.get_single_node()
        if b"&" in data:
            _bound_aliases(node)
        value = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        loader.problems.append(_unreadable(error, data, file))
    except (ValueError, RecursionError) as error:
        place = _culprit(data, file) or Place(file, 1, 1)
        loader.problems.append(Problem(place, f"a value cannot be read: {error}", "quote it if it is meant as text"))
    finally:
        loader.dispose()
    return value, tuple(loader.problems)


def compose(data: bytes) -> yaml.Node | None:
    """Parse a text into a tree with the place of every node, or None if it cannot be read."""
    if _too_much(data, "") is not None:
        return None
    try:
        root: yaml.Node | None = _BaseLoader(data).get_single_node()
        return root
    except yaml.YAMLError:
        return None


def locate(root: yaml.Node | None, path: Sequence[str | int], *, key: bool) -> tuple[int, int]:
    """Return line and column, from 1, of the node at `path`; of the nearest one around it where there is none."""
    node, mark = root, getattr(root, "start_mark", None)
    for step in path:
        pair = _descend(node, step)
        if pair is None:
            break
        at, node = pair
        mark = (at if key else node).start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def locate_word(root: yaml.Node | None, data: bytes, path: Sequence[str | int], word: str) -> tuple[int, int]:
    """Return line and column of a word inside the text at `path`; of the text where it is not written as it is read."""
    line, column = locate(root, path, key=False)
    node: yaml.Node | None = root
    for step in path:
        pair = _descend(node, step)
        node = pair[1] if pair is not None else None
    if not isinstance(node, yaml.ScalarNode):
        return line, column
    lines = data.decode("utf-8-sig", "replace").split("\n")[line - 1 : node.end_mark.line + 1]
    for number, text in enumerate(lines):
        start = column - 1 if number == 0 else 0
        match = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)").search(text, start)
        if match is not None:
            return line + number, match.start() + 1
    return line, column


_NO_NAMES = {"!function": "a function", "tag:yaml.org,2002:binary": "binary data"}
"""Tags that a key cannot have."""


class _Loader(_BaseLoader):  # type: ignore[misc]  # which loader there is depends on how PyYAML was built
    """The safe loader, with `!function` and a check for duplicate keys."""

    def __init__(self, data: bytes, file: str, dialect: Dialect) -> None:
        super().__init__(data)
        self.file = file
        self.folder = file.rpartition("/")[0]
        self.dialect = dialect
        self.problems: list[Problem] = []

    def place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            self._report_duplicates(node)
            self._report_unnamed(node)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping

    def _report_duplicates(self, node: yaml.MappingNode) -> None:
        scalars = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len({(key.tag, key.value) for key in scalars}) == len(scalars):
            return
        first: dict[tuple[str, str], Any] = {}
        for key in scalars:
            earlier = first.setdefault((key.tag, key.value), key)
            if earlier is not key:
                what = f"key {key.value!r} is written twice; the first is on line {earlier.start_mark.line + 1}"
                keeps_last = self.dialect.keeps_last_of_equal_keys
                fix = "the last value counts, as in lm-eval" if keeps_last else "delete one of them"
                self.problems.append(Problem(self.place(key), what, fix, serious=not keeps_last))

    def _report_unnamed(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag in _NO_NAMES:
                what = f"the key is {_NO_NAMES[key.tag]}, and keys are names"
                self.problems.append(Problem(self.place(key), what, "write a name in its place"))

    def construct_function(self, node: yaml.Node) -> Function | None:
        written = node.value if isinstance(node, yaml.ScalarNode) else None
        parts = written.split(".") if isinstance(written, str) else []
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            what = f"malformed !function {written!r}" if written else "malformed !function"
            fix = "write `!function module.name`, as in `!function utils.process_docs`"
            self.problems.append(Problem(self.place(node), what, fix))
            return None
        return Function(self.folder, ".".join(parts[:-1]), parts[-1], self.place(node))

    def construct_whole(self, node: yaml.Node) -> int:
        value: int = self.construct_yaml_int(node)
        if is_too_large(value):
            raise ValueError("a whole number of more than 64 bits")
        return value


_Loader.add_constructor("!function", _Loader.construct_function)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def _culprit(data: bytes, file: str) -> Place | None:
    """Locate the first scalar that cannot be read: an invalid date, a number with letters."""
    loader, waiting = _Loader(data, file, OURS), [compose(data)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            try:
                loader.construct_object(node)
            except (ValueError, yaml.YAMLError):
                return loader.place(node)
        elif isinstance(node, yaml.CollectionNode):
            parts = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
            waiting += reversed(parts)
    return None


def _too_much(data: bytes, file: str) -> Problem | None:
    if len(data) > MAX_BYTES:
        return Problem(Place(file), f"larger than {MAX_BYTES >> 20} MiB", "keep data in jsonl or parquet files")
    if sum(map(data.count, (b"[", b"{", b"-", b":", b"?"))) <= MAX_DEPTH and data.count(b",") <= MAX_EVENTS:
        return None
    excess = _excess(data)
    if excess is None:
        return None
    what, fix, mark = excess
    return Problem(Place(file, mark.line + 1, mark.column + 1), what, fix)


def _excess(data: bytes) -> tuple[str, str, Any] | None:
    """Find nesting that is too deep, or values that are too many, event by event, without recursion."""
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(data, _BaseLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    return f"nested more than {MAX_DEPTH} levels deep", "flatten the file", event.start_mark
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if number > MAX_EVENTS:
                return f"more than {MAX_EVENTS:,} values", "keep data in jsonl or parquet files", event.start_mark
    except yaml.YAMLError:
        pass  # the loader reports it, with its place
    return None


def _bound_aliases(root: yaml.Node | None) -> None:
    """Refuse aliases that form a loop, or that expand to too many values."""
    sizes: dict[int, int | None] = {}

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node), 0)
        if known is None:
            raise yaml.constructor.ConstructorError(None, None, "an alias refers to itself", node.start_mark)
        if known:
            return known
        sizes[id(node)] = None
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        total = 1 + sum(size(part) for child in children for part in (child if isinstance(child, tuple) else (child,)))
        if total > MAX_VALUES:
            what = f"the aliases expand to more than {MAX_VALUES:,} values"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        sizes[id(node)] = total
        return total

    if root is not None:
        size(root)


def _descend(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the key node and the value node at `step`; for a list, the value twice."""
    if isinstance(node, yaml.MappingNode):
        pairs, merged = _pairs_of(node)
        found = pairs.get(str(step))
        return found or next((pair for each in merged if (pair := _descend_merged(each, step)) is not None), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _pairs_of(node: yaml.MappingNode) -> "tuple[dict[str, tuple[yaml.Node, yaml.Node]], list[yaml.Node]]":
    """The keys and values of a mapping by the spellings of the key, and what it merges; made once for each mapping: a file
    with thousands of unknown keys asks for the place of every one of them."""
    if node not in _PAIRS:
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:  # the last of two equal keys is the one that counts
            if isinstance(key, yaml.ScalarNode):
                pairs[key.value] = pairs[_spelt(key)] = (key, value)
        _PAIRS[node] = pairs, [value for key, value in node.value if getattr(key, "value", None) == "<<"]
    return _PAIRS[node]


_PAIRS: "WeakKeyDictionary[yaml.MappingNode, tuple[dict[str, tuple[yaml.Node, yaml.Node]], list[yaml.Node]]]" = (
    WeakKeyDictionary()
)


def _descend_merged(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return next((pair for each in nodes if (pair := _descend(each, step)) is not None), None)


def _spelt(key: yaml.ScalarNode) -> str:
    """Spell a key as Python does: `on` is True, `~` is None."""
    if key.tag.endswith(":bool"):
        return str(key.value.lower() in ("yes", "on", "true"))
    return "None" if key.tag.endswith(":null") else str(key.value)


def _point(mark: yaml.Mark | None) -> Mark:
    return Mark(mark.line, mark.column) if mark is not None else Mark(0, 0)


def _unreadable(error: yaml.YAMLError, data: bytes, file: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        before = data[: error.position] if isinstance(error.position, int) else b""
        place = Place(file, before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        return Problem(place, f"not readable as text: {error.reason}", "save the file as UTF-8")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        what = " ".join(part for part in (error.context, error.problem) if part)
        tag = re.search(r"constructor for the tag '([^']*)'", what)
        if tag:
            written = tag.group(1).replace("tag:yaml.org,2002:", "!!")
            fix = "did you mean `!function`?" if nearest(written, ["!function"]) else "only `!function` is supported"
            return Problem(place, f"unknown tag {written!r}", fix)
        slip = find_slip(what, _point(mark), _point(error.context_mark), data.decode(errors="replace").splitlines())
        if slip is not None:
            return Problem(Place(file, slip.at.line + 1, slip.at.column + 1), slip.what, slip.fix)
        return Problem(place, what or "not valid YAML", "correct the YAML here")
    return Problem(Place(file), f"not valid YAML: {error}", "correct the YAML")
