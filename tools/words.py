"""Lists words that tests/house_words.txt bans, where they are, and what to write instead.

usage: python tools/words.py [ROOT] [package …]      (packages below src/assay; everything without one)

Prints one line per hit and the counts: by class (docs, messages, viewer, elsewhere, tests) and by package.
"""

import ast
import fnmatch
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = Path("tests/house_words.txt")
CLASSES = ("docs", "messages", "viewer", "docstrings", "elsewhere", "tests")
"""Pages; string literals of src/assay (help, messages); its templates and scripts; beginnings of its docstrings; its names,
docstrings and comments otherwise; tests, tools and bench."""
KINDS = ("word", "name", "typed", "phrase", "start", "name-ok", "phrase-ok", "file-ok")


class Hit(NamedTuple):
    """A banned word: its class, file, line, the passage and the word to use instead."""

    kind: str
    file: str
    line: int
    text: str
    instead: str

    @property
    def package(self) -> str:
        parts = Path(self.file).parts
        return parts[2].removesuffix(".py") if parts[:2] == ("src", "assay") else parts[0]


class Text(NamedTuple):
    """A piece of a file: `source` is "name", "typed", "docstring" or "prose"."""

    source: str
    line: int
    text: str
    is_message: bool = False


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    instead: str


class BanList:
    """The rules of a house_words.txt, by kind."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, list[Rule]] = {kind: [] for kind in KINDS}
        self.skipped_files: list[str] = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            columns = line.split("\t")
            if len(columns) != 3 or columns[0] not in KINDS or not columns[2].strip():
                raise ValueError(
                    f"{LIST}:{number}: expected kind, pattern and replacement or reason, separated by tabs"
                )
            kind, pattern, instead = columns
            if kind == "file-ok":
                self.skipped_files.append(pattern)
            else:
                flags = re.IGNORECASE if kind.startswith("phrase") else 0
                self.rules[kind].append(Rule(re.compile(pattern, flags), instead))

    @cached_property
    def _any_phrase(self) -> re.Pattern[str]:
        """One pattern for all phrases: nearly every text has none of them."""
        return re.compile("|".join(f"(?:{rule.pattern.pattern})" for rule in self.rules["phrase"]), re.IGNORECASE)

    def skips(self, file: str) -> bool:
        return any(fnmatch.fnmatch(file, pattern) for pattern in self.skipped_files)

    def in_name(self, name: str) -> Iterator[tuple[str, str]]:
        bare = name.strip("_")
        if any(rule.pattern.fullmatch(bare) for rule in self.rules["name-ok"]):
            return
        for rule in self.rules["name"]:
            if rule.pattern.fullmatch(bare):
                yield name, rule.instead
                return
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", bare):
            for rule in self.rules["word"]:
                if rule.pattern.fullmatch(word.lower()):
                    yield name, rule.instead
                    return

    def in_prose(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Position, match and replacement of each banned phrase."""
        if not self._any_phrase.search(text):
            return
        allowed = [match.span() for rule in self.rules["phrase-ok"] for match in rule.pattern.finditer(text)]
        for rule in self.rules["phrase"]:
            for match in rule.pattern.finditer(text):
                if not any(start <= match.start() and match.end() <= end for start, end in allowed):
                    yield match.start(), text[max(0, match.start() - 12) : match.end() + 16], rule.instead

    def begins_badly(self, text: Text) -> str:
        """The replacement for the beginning of a docstring, where that is banned; else nothing."""
        rules = self.rules["start"] if text.source == "docstring" else ()
        return next((rule.instead for rule in rules if rule.pattern.match(text.text.lstrip())), "")

    def hits(self, text: Text) -> Iterator[tuple[int, str, str]]:
        """Line, match and replacement."""
        if text.source == "name":
            for name, instead in self.in_name(text.text):
                yield text.line, name, instead
            return
        if text.source == "typed":
            for rule in self.rules["typed"]:
                if rule.pattern.fullmatch(text.text):
                    yield text.line, text.text, rule.instead
            return
        for start, match, instead in self.in_prose(text.text):
            yield text.line + text.text.count("\n", 0, start), " ".join(match.split()), instead


COMMENT = re.compile(r"""(?:[^"'#]|"[^"]*"|'[^']*')*(#.*)""")


def python_texts(source: str, path: Path) -> Iterator[Text]:
    """Names, docstrings, string literals and comments of a Python file."""
    yield Text("name", 1, path.parent.name if path.stem == "__init__" else path.stem)
    seen: set[int] = set()  # string constants that were read as part of something larger; a walk comes to that first
    inside: set[int] = set()  # lines that begin within a string
    for node in ast.walk(ast.parse(source)):
        for string in _docstrings(node):
            seen.add(id(string))
            yield Text("docstring", string.lineno, str(string.value))
        if isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
            yield from _message(node, "".join(map(_part, node.values)))
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                if node.end_lineno != node.lineno:
                    inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
                if id(node) not in seen:
                    yield from _message(node, node.value)
        else:
            yield from _names(node)
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line and number not in inside and (match := COMMENT.match(line)):
            yield Text("prose", number, match[1])


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{}"


def _docstrings(node: ast.AST) -> Iterator[ast.Constant]:
    """Strings that are statements: docstrings, and those below a constant or a field."""
    body = getattr(node, "body", None)
    for statement in body if isinstance(body, list) else ():
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value


def _names(node: ast.AST) -> Iterator[Text]:
    """The names that a node gives to something."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield Text("name", node.lineno, node.id)
    elif isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            yield Text("name", node.lineno, node.attr)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        is_test = node.name.startswith("test_")  # a sentence of the specification
        yield Text("prose" if is_test else "name", node.lineno, node.name.replace("_", " ") if is_test else node.name)
    elif isinstance(node, ast.arg):
        yield Text("name", node.lineno, node.arg)
        if node.annotation is not None:
            yield Text("typed", node.lineno, f"{node.arg}: {ast.unparse(node.annotation)}")
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name | ast.Attribute):
        name = node.target.id if isinstance(node.target, ast.Name) else node.target.attr
        yield Text("typed", node.lineno, f"{name}: {ast.unparse(node.annotation)}")
    elif isinstance(node, ast.alias) and node.asname is not None:
        yield Text("name", node.lineno, node.asname)


def _message(node: ast.expr, text: str) -> Iterator[Text]:
    """A literal with a space in it, on its first line unless it has as many lines itself as its source."""
    if " " in text and text.strip():
        has_lines = text.count("\n") <= (node.end_lineno or 0) - node.lineno
        yield Text("prose", node.lineno, text if has_lines else " ".join(text.split()), True)


def page_texts(source: str) -> Iterator[Text]:
    """The prose of a page, without what is written as `code` in a line: names on disk and in YAML are not prose."""
    yield Text("prose", 1, re.sub(r"`[^`\n]+`", lambda match: "`" * len(match[0]), source))


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Class and path of each file that is read."""
    for path in sorted((root / "src/assay").rglob("*")):
        if path.suffix == ".py":
            yield "elsewhere", path
        elif path.suffix in (".html", ".jinja", ".js", ".css", ".svg"):
            yield "viewer", path
        elif path.suffix in (".yaml", ".md"):
            yield "messages", path
    yield from (("docs", path) for path in sorted((root / "docs").rglob("*.md")))
    pages = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")
    yield from (("docs", root / name) for name in pages if (root / name).exists())
    for folder in ("tests", "tools", "bench"):
        yield from (("tests", path) for path in sorted((root / folder).glob("*.py")))
    yield from (("tests", path) for path in sorted((root / "tools").glob("*.sh")))


def hits(root: Path, ban: BanList | None = None, packages: Iterable[str] = ()) -> Iterator[Hit]:
    """The hits of a tree; of some packages of src/assay where they are named."""
    ban = ban or BanList((root / LIST).read_text(encoding="utf-8"))
    only = set(packages)
    for kind, path in files(root):
        file = str(path.relative_to(root))
        if ban.skips(file) or (only and Hit(kind, file, 0, "", "").package not in only):
            continue
        source = path.read_text(encoding="utf-8")
        is_python = path.suffix == ".py"
        for text in python_texts(source, path) if is_python else page_texts(source):
            of_kind = "messages" if kind == "elsewhere" and text.is_message else kind
            if (instead := ban.begins_badly(text)) and kind != "tests":
                yield Hit("docstrings", file, text.line, text.text.strip()[:30].splitlines()[0], instead)
            for line, match, instead in ban.hits(text):
                yield Hit(of_kind, file, line, match, instead)


def main() -> None:
    root, *packages = sys.argv[1:] or [str(ROOT)]
    ban = BanList((ROOT / LIST if (ROOT / LIST).exists() else Path(root) / LIST).read_text(encoding="utf-8"))
    every = list(hits(Path(root).resolve(), ban, packages))
    for hit in every:
        print(f"{hit.file}:{hit.line}: [{hit.kind}] {hit.text} → {hit.instead}")
    print()
    for title, counts in (
        ("class", Counter(hit.kind for hit in every)),
        ("package", Counter(hit.package for hit in every)),
    ):
        print(f"by {title}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    print(f"{len(every)} hits")


if __name__ == "__main__":
    main()
