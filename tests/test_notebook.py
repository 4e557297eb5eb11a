"""The notebook of the documentation runs from its first cell to its last."""

import re
import sys
import time
from pathlib import Path

import pytest

import assay
from assay import Scripted
from assay.report.progress import NOTEBOOK_WIDTH as WIDTH
from small_runs import write_task

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


def test_progress_in_a_notebook_is_one_line_with_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of eight documents, a third of a second each: a line a second at most, and as wide as the longest before it. The time left
    is known from the first answer on."""

    def slowly(prompt: str, params: object, repeat: int) -> str:
        time.sleep(0.33)
        return "x"

    monkeypatch.setitem(sys.modules, "ipykernel", nbclient)
    write_task(tmp_path, [{"q": f"q{n}", "gold": "x"} for n in range(8)], "doc_to_text: q\ndoc_to_target: gold\n")
    output = str(tmp_path / "run")
    begin = time.monotonic()
    run = assay.run(Scripted(generate=slowly), tasks="t", include_path=str(tmp_path), output_path=output)
    took = time.monotonic() - begin
    assert run.status == "complete"
    first, *lines = capsys.readouterr().err.split("\r")
    assert first == "" and 1 <= len(lines) <= took + 1
    assert lines[-1].endswith("\n") and {len(line.rstrip("\n")) for line in lines} == {WIDTH}
    assert all(re.search(r"^t .*(0 of 8 requests|[1-8] of 8 requests, .* left)", line) for line in lines)
