"""A small world to run in: two tasks whose numbers can be worked out by hand, and a model that notes what it is asked."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay import simple_evaluate
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile
from assay.runs.validation import FORMAT
from assay.score_keys import join_scores

SUMS = {"1+1=": ("2", "2"), "2+3=": ("5", "5"), "7-4=": ("3", "4"), "3*3=": ("9", "9"), "8/2=": ("4", "none")}
"""Question: the right answer, what the model says. 3 of 5 are right: 0.6, standard error √(0.6·0.4/4) = √0.06."""

COLOURS = {"grass": (0, -1.0, -2.0), "blood": (1, -3.0, -0.5), "sky": (0, -0.25, -4.0), "snow": (1, -1.0, -1.5)}
"""Thing: the right choice, the log-likelihoods of both. 3 of 4 are right: 0.75, standard error √(0.75·0.25/3) = 0.25."""

CHOICES = ["green", "red"]
EXACT_MATCH, EXACT_MATCH_STDERR = 0.6, 0.06**0.5
ACC, ACC_STDERR = 0.75, 0.25
REQUESTS = len(SUMS) + 2 * len(COLOURS)

FILES = {
    "sums.yaml": """
        task: sums
        dataset_path: json
        dataset_kwargs: {data_files: {test: sums.jsonl}}
        test_split: test
        doc_to_text: "{{q}}="
        doc_to_target: a
        generation_kwargs: {until: ["\\n"], do_sample: false, temperature: 0.0}
        metric_list: [{metric: exact_match}]
    """,
    "colours.yaml": """
        task: colours
        dataset_path: json
        dataset_kwargs: {data_files: {test: colours.jsonl}}
        test_split: test
        output_type: multiple_choice
        process_docs: !function tools.same
        doc_to_text: "{{thing}} is"
        doc_to_choice: [green, red]
        doc_to_target: gold
        metric_list: [{metric: acc}]
    """,
    "tools.py": "def same(docs):\n    return docs\n",
    "sums.jsonl": "".join(json.dumps({"q": q[:-1], "a": right}) + "\n" for q, (right, _) in SUMS.items()),
    "colours.jsonl": "".join(json.dumps({"thing": t, "gold": gold}) + "\n" for t, (gold, _, _) in COLOURS.items()),
}

TIMES = {"date", "start_time", "end_time", "total_evaluation_time_seconds", "crc32"}
"""What two equal runs may differ in: these keys of results.json, at its top, and nothing else."""


@dataclass
class RecordingModel:
    """A scripted model, and every call of it. It fails on the prompts in `failing`; `first` is done before each call.

    Its identity is its code: whatever it notes, fails on or does first, it is the same model.
    """

    calls: list[tuple[str, ...]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    first: Callable[["RecordingModel"], None] = lambda asked: None

    @property
    def model(self) -> Scripted:
        return Scripted(generate=self._generate, loglikelihood=self._loglikelihood)

    def _generate(self, prompt: str, params: dict[str, object], repeat: int) -> str:
        self.first(self)
        self.calls.append((prompt, str(repeat)))
        if prompt in self.failing:
            raise TimeoutError(f"no answer to {prompt}")
        return SUMS[prompt][1]

    def _loglikelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        self.first(self)
        self.calls.append((context, continuation))
        if context in self.failing:
            raise TimeoutError(f"no answer to {context}")
        return COLOURS[context.removesuffix(" is")][1 + CHOICES.index(continuation.strip())], False


def run(asked: RecordingModel, folder: Path, output: Path | None = None, **options: object) -> dict[str, Any]:
    """Both tasks of the folder, or those asked for, run with a scripted model."""
    arguments = {"tasks": ["sums", "colours"], "include_path": str(folder), "include_defaults": False, **options}
    return simple_evaluate(asked.model, output_path=None if output is None else str(output), **arguments)


def journal(output: Path) -> list[dict[str, Any]]:
    """The lines of the journal behind its header."""
    header, *lines = [json.loads(line) for line in (output / "responses.jsonl").read_text().splitlines()]
    assert header["format"] == FORMAT
    return lines


def keys(output: Path) -> list[str]:
    return [line["k"] for line in journal(output)]


def results(output: Path) -> dict[str, Any]:
    """The results of a run as lm-eval writes them, with what its layout lacks under `assay`."""
    return lm_eval_layout(Run.open(output).results)


def rows_of(results: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The rows of a task or group by metric and filter, with two fields that results.json leaves out where they say nothing."""
    entries = {**results["assay"]["tasks"], **results["assay"].get("groups", {})}
    rows = entries[owner].get("rows") or ()
    silent = {"failed": 0, "method": None}
    return {f"{row['metric']},{row['filter']}": {**silent, **row} for row in rows}


def failed_in(results: Mapping[str, Any]) -> int:
    """How many documents failed, of all tasks."""
    return sum(task["failed"] for task in results["assay"]["tasks"].values())


def change_results(output: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write results.json with a change, as another program would."""
    content = stored_results(output)
    change(content)
    (output / "results.json").write_text(json.dumps(content))


def stored_results(output: Path) -> dict[str, Any]:
    """The content of results.json, without its checksum."""
    content: dict[str, Any] = json.loads((output / "results.json").read_text())
    content.pop("crc32", None)
    return content


def manifest(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return content


def samples(output: Path, task: str) -> list[dict[str, Any]]:
    """The rows of a task's Parquet file."""
    return sorted(sample_rows(output / f"samples/{task}.parquet"), key=lambda row: row["doc_id"])


def sample_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a samples file, in the order of the file."""
    rows = SampleFile(path).rows()
    return [{**row._asdict(), "scores": join_scores(row.scores, row.repeats)} for row in rows]


def outcome(output: Path) -> dict[str, bytes]:
    """The outcome of a run, byte by byte but for times: results.json, the samples, and the journal's lines in any order."""
    text = (output / "results.json").read_text()
    for key in TIMES:
        text = re.sub(rf'^( +)"{key}": [^\n]*$', rf'\1"{key}": masked', text, flags=re.MULTILINE)
    counts = "".join(re.findall(r'"requests": \{[^}]*\}', text))  # compared apart, to distinguish a count from a score
    _, *lines = (output / "responses.jsonl").read_bytes().splitlines()  # the header has times in it
    written = {str(p.relative_to(output)): p.read_bytes() for p in sorted(output.glob("samples*/*.parquet"))}
    logged = {p.name: p.read_bytes() for p in sorted(output.glob("samples_*.jsonl"))}
    rest = text.replace(counts, "")
    return {
        "results.json": rest.encode(),
        "counts in results.json": counts.encode(),
        "responses.jsonl": b"\n".join(sorted(lines)),
        **written,
        **logged,
    }


def differing(output: Path, expected: Mapping[str, bytes]) -> list[str]:
    """The files in which the outcome of a run differs from the expected one."""
    message = outcome(output)
    return sorted(name for name in {*message, *expected} if message.get(name) != expected.get(name))


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def start(
    *arguments: object, cwd: Path, preexec: Callable[[], None] | None = None, **variables: str
) -> "subprocess.Popen[str]":
    """A process of Python at work: `-m assay run …`, or a file. One thread of BLAS: two runs at once would wait in turn."""
    environment: Mapping[str, str] = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables}

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background has it ignored
        if preexec is not None:
            preexec()

    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=cwd, env=environment, text=True, preexec_fn=prepare,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(*arguments: object, cwd: Path) -> int:
    """The exit code of such a process, left alone."""
    process = start(*arguments, cwd=cwd)
    process.communicate()
    return process.returncode
