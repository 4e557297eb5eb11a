"""Strategies that damage a JSON or YAML value, a text or bytes in the ways that files and answers are damaged."""

import copy
import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

NAMES = ["a", "rows", "count", "task", "type", "0", "", "none", "é", "__class__", "n" * 300]
ODD = [
    None, True, False, 0, 1, -1, 7, 40, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e300, -1.5, float("nan"), float("inf"), float("-inf"),
    "", " ", "x", "1", "N/A", "null", "0.5", "\x00", "\n", "\ud800", "é四", "{{", "{{ q }}", "{% for x in y %}", "(a+)+$", "(", "[", "%s", "../..", "/dev/null",
    "x" * 5000, [], {}, [[]], [None], [1, "a"], {"a": 1}, {"": {}}, [{}], {"a": [1, {"b": None}]},
]  # fmt: skip
odd = st.sampled_from(ODD).map(copy.deepcopy)
anything = st.recursive(
    odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)
Path = tuple[Any, ...]


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """The way to everything in a value of mappings and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*before, key)
        yield from paths(each, (*before, key))


def _parent(value: Any, path: Path) -> Any:
    for step in path[:-1]:
        value = value[step]
    return value


@st.composite
def mutated(  # noqa: C901  # one branch for each change
    draw: st.DrawFn, value: Any, most: int = 3, keys: Sequence[str] = (), strange: Sequence[Any] = ()
) -> Any:
    """The value with some of its parts replaced, lost, renamed, doubled, wrapped, swapped, or copied to another place.

    `keys` are added and given to others, besides NAMES; `strange` are values that JSON has not.
    """
    names = st.sampled_from([*NAMES, *keys, *keys])
    values = st.one_of(anything, anything, st.sampled_from(strange).map(copy.deepcopy)) if strange else anything
    changed = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, most))):
        known = list(paths(changed))
        if not known:
            return draw(anything)
        path = draw(st.sampled_from(known))
        parent, last = _parent(changed, path), path[-1]
        change = draw(
            st.sampled_from(["replace", "replace", "lose", "rename", "double", "wrap", "swap", "nest", "add", "copy"])
        )
        if change == "replace":
            parent[last] = draw(values)
        elif change == "lose":
            del parent[last]
        elif change == "rename" and isinstance(parent, dict):
            parent[draw(names)] = parent.pop(last)
        elif change == "add" and isinstance(parent, dict):
            parent[draw(names)] = draw(values)
        elif change == "copy":
            other = draw(st.sampled_from(known))
            parent[last] = copy.deepcopy(_parent(changed, other)[other[-1]])
        elif change == "double" and isinstance(parent, list):
            parent.insert(last, copy.deepcopy(parent[last]))
        elif change == "swap":
            other = draw(st.sampled_from(known))
            place = _parent(changed, other)
            parent[last], place[other[-1]] = copy.deepcopy(place[other[-1]]), copy.deepcopy(parent[last])
        elif change == "nest":
            depth = draw(st.sampled_from([2, 20, 90]))
            for _ in range(depth):
                parent[last] = [parent[last]]
        else:
            parent[last] = draw(st.sampled_from([[parent[last]], {"a": parent[last]}]))
    return changed


@st.composite
def mutated_bytes(draw: st.DrawFn, content: bytes, most: int = 4) -> bytes:
    """The bytes with some flipped, lost, doubled, swapped or overwritten, or with another end."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, most))):
        if not changed:
            return bytes(changed)
        start = draw(st.integers(0, len(changed) - 1))
        end = min(start + draw(st.sampled_from([1, 1, 4, 16, 100, 1000])), len(changed))
        change = draw(st.sampled_from(["flip", "flip", "lose", "double", "blank", "end", "insert", "digits"]))
        if change == "flip":
            changed[start] ^= 1 << draw(st.integers(0, 7))
        elif change == "lose":
            del changed[start:end]
        elif change == "double":
            changed[end:end] = changed[start:end]
        elif change == "blank":
            changed[start:end] = bytes(end - start)
        elif change == "end":
            del changed[start:]
        elif change == "digits":
            changed[start:end] = bytes(48 + (each + 1) % 10 if 48 <= each < 58 else each for each in changed[start:end])
        else:
            changed[start:start] = draw(
                st.sampled_from([b"\n", b"{", b'"', b"\xff\xfe", b"\x00" * 9, b"[" * 3000, b"null", b"NaN"])
            )
    return bytes(changed)


TOKENS = ["\t", ":", "- ", "{{", "}}", "!function x.y", "!include z", "&a ", "*a", "<<: *a", "|", ">", "#", "'", '"', "{", "}", "[", "]", "? ", "---\n", "...", "\ufeff", "\x85", "%YAML 9", "~", "0o7", "1e999", "!!python/object:os.system x", "\x00"]  # fmt: skip


@st.composite
def mutated_text(draw: st.DrawFn, text: str, most: int = 3) -> str:
    """The text with lines lost, doubled, moved or indented, or with signs of YAML where they do not belong."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(["lose", "double", "move", "indent", "token", "token", "cut"]))
        if change == "lose" and len(lines) > 1:
            del lines[at]
        elif change == "double":
            lines.insert(at, lines[at])
        elif change == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif change == "indent":
            lines[at] = draw(st.sampled_from(["  ", "\t", "", "      "])) + lines[at].lstrip()
        else:
            place = draw(st.integers(0, len(lines[at])))
            token = draw(st.sampled_from(TOKENS)) if change == "token" else ""
            lines[at] = lines[at][:place] + token + ("" if change == "cut" else lines[at][place:])
    return "\n".join(lines)


class Tagged(str):
    """A scalar with a tag of its own, such as `!function utils.f`."""

    tag: str


class _Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        return None
    scalar = Tagged(loader.construct_scalar(node))
    scalar.tag = "!" + suffix
    return scalar


_Loader.add_multi_constructor("!", _tagged)
_Dumper.add_representer(Tagged, lambda dumper, scalar: dumper.represent_scalar(scalar.tag, str(scalar)))


STRANGE = [
    datetime.date(2026, 2, 3),
    datetime.datetime(2026, 2, 3, 4, 5, tzinfo=datetime.UTC),
    b"\xff\x00",
    {1: 2},
    {None: 1},
    {1.5: {True: 0}},
]
"""Values of YAML that JSON has not: dates, bytes, keys that are no texts."""


def mutated_yaml(text: str, keys: Sequence[str] = ()) -> st.SearchStrategy[bytes]:
    """A YAML file whose values, or whose text, are damaged."""
    loaded = yaml.load(text, _Loader)
    values = mutated(loaded, keys=keys, strange=STRANGE).map(
        lambda value: yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False)
    )
    return st.one_of(values, values, mutated_text(text)).map(lambda written: written.encode("utf-8", "surrogatepass"))


def one_of_files(files: dict[str, bytes], change: Any) -> st.SearchStrategy[dict[str, bytes]]:
    """One of the files, changed: `change(name, content)` is a strategy for its new content."""
    names: Sequence[str] = sorted(files)
    return st.sampled_from(names).flatmap(lambda name: change(name, files[name]).map(lambda new: {name: new}))


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Every byte flipped, blanked and replaced, every length, every line and block doubled, lost and swapped; each with its name."""
    for at, byte in enumerate(content):
        others = {
            "flipped": byte ^ 1 << at % 8,
            "blank": 0,
            "full": 255,
            "a quote": 34,
            "another digit": 48 + (byte + 1) % 10,
        }
        for words, other in others.items():
            if other != byte and (words != "another digit" or chr(byte).isdigit()):
                yield f"{words} at {at}", content[:at] + bytes([other]) + content[at + 1 :]
    for length in range(len(content)):
        yield f"cut at {length}", content[:length]
    lines = content.splitlines(keepends=True)
    blocks = [content[at : at + 64] for at in range(0, len(content), 64)]
    for kind, parts in (("line", lines), ("block", blocks)):
        for number in range(len(parts)):
            yield f"{kind} doubled at {number}", b"".join([*parts[: number + 1], *parts[number:]])
            yield f"{kind} lost at {number}", b"".join([*parts[:number], *parts[number + 1 :]])
            if number and parts[number] != parts[number - 1]:
                swapped = [*parts[: number - 1], parts[number], parts[number - 1], *parts[number + 1 :]]
                yield f"{kind} swapped at {number}", b"".join(swapped)
