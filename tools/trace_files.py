"""Counts the files of src/assay whose functions are called: for one multiple-choice document, and for a whole command.

usage: python tools/trace_files.py

A task of one document is run with the dummy model. "Sample to score" begins when the engine asks for the sample and ends when
its scores are on the board; what is computed before that, as the trial sample of the checks, or is written later does not count.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = f"{ROOT / 'src/assay'}/"
TASK = """
task: one
output_type: multiple_choice
test_split: test
dataset_path: json
dataset_kwargs: {data_files: {test: one.jsonl}}
doc_to_text: "{{question}}"
doc_to_choice: ["yes", "no"]
doc_to_target: "{{answer}}"
"""
ENGINE, PLANS, BOARD = "engine/", ("evaluation/", "tasks/"), "statistics/board.py"


class Trace:
    """The files whose functions were called, and those between the first sample and its scores."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.document: set[str] = set()
        self._state = "before"

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE) or frame.f_code.co_name == "<module>":
            return
        name = file.removeprefix(PACKAGE)
        self.files.add(name)
        caller = frame.f_back.f_code.co_filename.removeprefix(PACKAGE) if frame.f_back is not None else ""
        if self._state == "before" and name.startswith(PLANS) and caller.startswith(ENGINE):
            self._state = "within"
        if self._state == "within":
            self.document.add(name)
            if name == BOARD and frame.f_code.co_name == "add":
                self._state = "after"


@contextlib.contextmanager
def traced(trace: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    sys.setprofile(trace)
    try:
        yield
    finally:
        sys.setprofile(None)


def trace_run(folder: Path) -> Trace:
    """Run the command for a task of one document."""
    (folder / "one.yaml").write_text(TASK)
    (folder / "one.jsonl").write_text(json.dumps({"question": "Is it?", "answer": "yes"}) + "\n")
    trace = Trace()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), traced(trace):
        from assay.cli import main

        with contextlib.suppress(SystemExit):
            main(
                ["run", "--tasks", "one", "--include_path", str(folder), "--model", "dummy", "-o", str(folder / "run")]
            )
    return trace


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = trace_run(Path(folder))
    print(f"one document, sample to score: {len(trace.document)} files; whole command: {len(trace.files)} files")
    print("  " + ", ".join(sorted(trace.document)))


if __name__ == "__main__":
    main()
