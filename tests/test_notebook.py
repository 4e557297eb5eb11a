"""The notebook of the documentation runs from its first cell to its last."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parent.parent / "docs/notebook.ipynb"


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
