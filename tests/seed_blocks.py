"""The code blocks of the seed documents: how they are extracted, and the committed copies in tests/seeds.

A block is the text between two lines of three backquotes. The document 002 was copied from a web page without them: there a
block is a run of paragraphs that begin as YAML, Python or a command do.
"""

import ast
import re
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

COPIES = Path(__file__).parent / "seeds"
DOCUMENTS = Path(__file__).parent.parent.parent / "shared/seeds"
ENDINGS = {"python": "py", "yaml": "yaml", "bash": "sh", "json": "json"}
FENCE = re.compile(r"\s*```(\w*)\s*$")
STARTS = {
    "yaml": re.compile(r"(?:# \S+\.yaml\n)?(?:group|task|tag): "),
    "bash": re.compile(r"(?:# .*\n)?lm-eval "),
    "python": re.compile(r"from \w+|tm = "),
}


class Block(NamedTuple):
    """The n-th block of a document; a block without a language is a drawing."""

    document: str
    number: int
    language: str
    text: str

    @property
    def file(self) -> str:
        return f"{self.document}/{self.number:02}.{ENDINGS.get(self.language, 'txt')}"


def blocks(document: str, text: str) -> list[Block]:
    """The blocks of a document, in their order."""
    listed = list(_fenced(text)) or list(_paragraphs(text))
    return [Block(document, number, language, body) for number, (language, body) in enumerate(listed, 1)]


def _fenced(text: str) -> list[tuple[str, str]]:
    listed: list[tuple[str, str]] = []
    inside: list[str] | None = None
    language = ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence is None:
            if inside is not None:
                inside.append(line)
        elif inside is None:
            inside, language = [], fence[1]
        else:
            listed.append((language, dedent("\n".join(inside)) + "\n"))
            inside = None
    return listed


def _paragraphs(text: str) -> list[tuple[str, str]]:
    listed: list[tuple[str, str]] = []
    before = False
    for paragraph in re.split(r"\n\n+", text):
        language = next((each for each, start in STARTS.items() if start.match(paragraph)), "")
        goes_on = before and (paragraph.startswith(" ") or (language == listed[-1][0] != "yaml"))
        if goes_on:
            listed[-1] = (listed[-1][0], f"{listed[-1][1]}\n{paragraph}\n")
        elif language:
            listed.append((language, f"{paragraph}\n"))
        before = goes_on or bool(language)
    return listed


def copied(file: str) -> str:
    """The committed copy of a block."""
    return (COPIES / file).read_text(encoding="utf-8")


def classes(file: str) -> dict[str, str]:
    """The text of each class in a Python block, by name."""
    text = copied(file)
    listed = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return {node.name: f"{ast.get_source_segment(text, node)}\n" for node in listed}


def write_copies() -> None:
    """Copy every block of the documents, where they are."""
    for path in sorted(DOCUMENTS.glob("*.txt")):
        for block in blocks(path.name[:3], path.read_text(encoding="utf-8")):
            target = COPIES / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")


if __name__ == "__main__":
    write_copies()
