"""Hooks of mkdocs: the pages at the root of the repository, and an index of decisions, become pages of the site."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "BENCHMARKS.md": "BENCHMARKS.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "src/assay/bundled/model/README.md": "backends/bundled-model.md",
}
"""Pages outside docs/, by their place in the site."""
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "decisions.md", content=decisions()))
    files.append(File.generated(config, "notebook.md", content=notebook()))
    return files


def notebook() -> str:
    """The notebook as a page: its text and its code."""
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]
    texts = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell in cells
        if (text := "".join(cell["source"]).strip())
    ]
    return "\n\n".join([*texts, "The notebook itself is docs/notebook.ipynb.\n"])


def decisions() -> str:
    titles = [
        (path.name, path.read_text().splitlines()[0].lstrip("# "))
        for path in sorted((ROOT / "docs/decisions").glob("*.md"))
    ]
    lines = [f"- [{title}](decisions/{name})" for name, title in titles]
    return "\n".join(
        ["# Decisions", "", "Choices that had an alternative, with the reasons of their day.", "", *lines, ""]
    )


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where pages are in the site."""
    source = {target: source for source, target in OUTSIDE.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if page.file.src_uri in ("decisions.md", "notebook.md"):
        return markdown
    return _LINK.sub(lambda match: match[1] + _moved(match[2], Path(source), page.file.src_uri), markdown)


def _moved(link: str, source: Path, page: str) -> str:
    target = (ROOT / source.parent / link).resolve()
    if not target.is_relative_to(ROOT):
        return link
    inside = target.relative_to(ROOT).as_posix()
    if inside == "docs/notebook.ipynb":
        inside = "docs/notebook.md"
    if inside in ("README.md", "docs"):
        inside = "docs/index.md"
    place = OUTSIDE.get(inside) or (inside.removeprefix("docs/") if inside.startswith("docs/") else None)
    if place is None:
        return link
    if place == "reference":
        place = "reference/commands.md"
    return "../" * page.count("/") + place
