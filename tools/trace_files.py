"""Counts what one document costs: the files, functions and calls of src/assay that one more adds to a run, in all threads.

usage: python tools/trace_files.py

Tasks of five to eight documents are run with the dummy model, from the command to the written samples. What is called more often
in every run than in the one before is the journey of a document; the steps of intervals, which differ from run to run, are not.
"""

import contextlib
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from functools import reduce
from itertools import pairwise
from operator import and_
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
DOCUMENTS = (5, 6, 7, 8, 9, 10, 11, 12)


def count_calls(folder: Path, documents: int) -> Counter[tuple[str, str]]:
    """The calls of a command for so many documents, by file and function."""
    folder.mkdir()
    rows = [{"question": f"Is it {number}?", "answer": "yes"} for number in range(documents)]
    (folder / "one.yaml").write_text(TASK)
    (folder / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    calls: Counter[tuple[str, str]] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            calls[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1

    from assay.cli import main

    command = ["run", "--tasks", "one", "--include_path", str(folder), "--model", "dummy", "-o", str(folder / "run")]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        threading.setprofile(trace)
        sys.setprofile(trace)
        with contextlib.suppress(SystemExit):
            main(command)
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it
    return calls


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        count_calls(Path(folder) / "warm", DOCUMENTS[0])  # imports, and what is made once in a process
        runs = [count_calls(Path(folder) / str(count), count) for count in DOCUMENTS]
    steps = [more - fewer for fewer, more in pairwise(runs)]
    added = reduce(and_, steps)  # of counters: the least of every function
    files = {file for file, _ in added}
    print(f"one document: {len(files)} files, {len(added)} functions, {added.total()} calls")
    print(f"a command of {DOCUMENTS[0]}: {len({file for file, _ in runs[0]})} files, {runs[0].total()} calls")
    for (file, function), count in sorted(added.items()):
        print(f"  {file}: {function} {count}")


if __name__ == "__main__":
    main()
