"""The notebook of the documentation runs from its first cell to its last."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.cli.notebook import NotebookProgress, shown_progress

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parent.parent / "docs/notebook.ipynb"


@pytest.mark.process
@pytest.mark.server
@pytest.mark.filterwarnings("default")  # those of the kernel's client are not ours
def test_the_notebook_runs_and_shows_tables_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs")], "outputs are stripped"
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "image/svg+xml", "text/plain"} <= shown
    assert sum(len(str(output)) for output in outputs) < 100_000, "a notebook stays small"
    assert {"runs", "scores.svg", "report.html"} <= {path.name for path in tmp_path.iterdir()}


def test_progress_in_a_notebook_is_one_line_that_becomes_rarer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setitem(sys.modules, "ipykernel", nbclient)
    board = SimpleNamespace(documents=5, failed={"timeout": 2})
    progress = shown_progress()
    assert isinstance(progress, NotebookProgress)
    with progress:
        for now[0] in range(2000):
            progress(SimpleNamespace(tasks=[SimpleNamespace(board=board, runnable=SimpleNamespace(size=9))]))  # type: ignore[arg-type]
    written = capsys.readouterr().err
    assert (
        written.startswith("\r5 of 9 documents, 2 failed, 1 s\r")
        and written.endswith("\n")
        and written.count("\n") == 1
    )
    assert written.count("\r") < 500, "a second each at first, then a hundredth of the time that has passed"
