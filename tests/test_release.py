"""What a release needs: one version everywhere, a site whose links lead somewhere, files that build tools read."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools.site import OUTSIDE
from tools.versions import versions

ROOT = Path(__file__).parent.parent


def test_every_file_that_names_the_version_names_the_same() -> None:
    named = versions()
    assert {"src/assay/version.py", "CITATION.cff", "CHANGELOG.md"} <= named.keys()
    assert len({version.removesuffix(".dev0") for version in named.values()}) == 1, named


@pytest.mark.process
def test_the_site_builds_with_every_page_and_link_and_asks_no_other_host(tmp_path: Path) -> None:
    """`strict` ends the build at a page without a place in the nav, and at a link or anchor that leads nowhere."""
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {target.replace(".md", ".html") for target in OUTSIDE.values()} | {"index.html", "tutorial.html"} <= pages
    for page in pages:
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', (tmp_path / page).read_text())
        assert loaded == [], page
    index = (tmp_path / "search/search_index.json").read_text().lower()
    for word in (
        "throughput",
        "leaderboard",
        "notebook",
        "dataframe",
        "regression",
        "migrat",
        "resume",
        "rag",
        "gates in ci",
    ):
        assert word in index, f"a search for {word!r} has no result"


def test_the_dockerfile_names_files_and_extras_that_exist() -> None:
    """The image itself is not built by the tests: there is no Docker here."""
    text = (ROOT / "Dockerfile").read_text()
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for name in line.split()}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [named] = re.findall(r"whl\)\[([\w,]+)\]", text)
    assert set(named.split(",")) <= extras.keys()


@pytest.mark.process
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-issue-forms", ["bug.yml", "wish.yml", "wrong-number.yml"]),
        ("vendor.github-issue-config", ["config.yml"]),
        ("vendor.citation-file-format", ["../../CITATION.cff"]),
    ],
)
def test_files_for_github_and_citations_follow_their_schemas(schema: str, files: list[str]) -> None:
    pytest.importorskip("check_jsonschema")
    paths = [str(ROOT / ".github/ISSUE_TEMPLATE" / name) for name in files]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *paths]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_folder_of_the_bundled_model_holds_the_model_alone() -> None:
    """Commands that write beside a model must not write here: the wheel would have it."""
    names = {path.name for path in (ROOT / "src/assay/bundled/model").iterdir()}
    assert names == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
