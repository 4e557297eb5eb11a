"""Cut the power of runs: the system calls of a command are replayed, and at every cut only what fsync guaranteed is left.

usage: python -m bench.power_cut [--cuts N] [HISTORY ...]      (default: a cut after every call that changes a file)

The model of the disk is the worst that POSIX allows. The content of a file is what its last fsync rebuilt; what was written since
is missing, or zeros, or half there. A name that was made, renamed or removed since the last fsync of its folder may be so or not.
Two folders are rebuilt at each cut: one with any of it, by lot, and in turn one with no names and no data since, with all names
and no data, or with all names and zeros. In each the readers must answer in words, the command must end with the numbers of the
undisturbed one, no journaled request may be sent again, and no answer may be lost that was journaled more than a second before
the cut. Needs strace.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.environments import ROOT
from bench.measure import Said
from bench.synced_disk import CALLS, Folder, Replay, calls, durable, rebuild, texts, ways

DOCUMENTS, AT_ONCE, DELAY = 72, 4, 0.3
LONG = 4000
"""Bytes from which on a journal is compressed, here."""
SECOND = 1.0


# ---- the model that is asked


class Server(ThreadingHTTPServer):
    """A server of OpenAI's kind. It counts what it is asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.delay = 0.0
        self.asked = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        number = re.search(rb"item (\d+)", body)
        if number is not None:
            time.sleep(self.server.delay)
        said = str(int(number[1]) % 3) if number is not None else "x"
        is_chat = self.path.endswith("/chat/completions")
        content: Any = {"message": {"role": "assistant", "content": said}} if is_chat else {"text": said}
        usage = {"prompt_tokens": 3, "completion_tokens": 1}
        choice = {"index": 0, "finish_reason": "stop", **content}
        answer = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.wfile.flush()
        if number is not None:
            self.server.asked += 1

    def log_message(self, *_: Any) -> None:
        pass


# ---- what is run

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: a
generation_kwargs: {{until: ["\\n"], max_gen_toks: 8}}
metric_list: [{{metric: exact_match}}]
"""
GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    answer:
      node_type: llm
      prompt: [{user: "{q}"}]
      output_keys: answer
      model: {name: eval_model, parameters: {temperature: 0.1}}
    unit_metrics:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: a
      predicted_key: answer
      unit_metrics_map: [{name: exact_match, params: {key: text}}]
      output_keys: [exact_match_result]
  edges: [{from: START, to: answer}, {from: answer, to: unit_metrics}, {from: unit_metrics, to: END}]
output_config:
  output_map: {id: {from: id}, q: {from: q}, a: {from: a}, answer: {from: answer}, exact_match_result: {from: exact_match_result}}
"""


def make_world(folder: Path) -> None:
    documents = [
        {"id": number, "q": f"item {number}", "a": str(number % 3 if number % 4 else 9)} for number in range(DOCUMENTS)
    ]
    lines = [json.dumps(each) + "\n" for each in documents]
    (folder / "tasks").mkdir(parents=True)
    (folder / "graph").mkdir()
    for name, own in (("even", lines[::2]), ("odd", lines[1::2])):
        (folder / f"tasks/{name}.yaml").write_text(TASK.format(name=name))
        (folder / f"tasks/{name}.jsonl").write_text("".join(own))
    (folder / "graph/graph_config.yaml").write_text(GRAPH)
    (folder / "graph/records.jsonl").write_text("".join(lines))


@dataclass(frozen=True)
class World:
    folder: Path
    server: Server

    def run(self, output: Path) -> list[str]:
        return ["run", "--tasks", "even,odd", "--include_path", f"{self.folder}/tasks", "--no_defaults", "--log_samples",
                *self._model("openai"), "-o", str(output)]  # fmt: skip

    def graph(self, output: Path) -> list[str]:
        return ["run", "--tasks", f"{self.folder}/graph", *self._model("openai-chat"), "-o", str(output)]

    def score(self, output: Path) -> list[str]:
        return ["score", str(output), "--include_path", f"{self.folder}/tasks"]

    def _model(self, backend: str) -> list[str]:
        arguments = {"model": "m", "base_url": self.server.url, "num_concurrent": AT_ONCE, "max_retries": 2}
        return ["--model", backend, "--model_args", json.dumps(arguments)]


Command = Callable[[World, Path], list[str]]


@dataclass(frozen=True)
class History:
    """A command whose calls are logged; `before` are those that ended, and were synced, before it."""

    words: str
    command: Command
    before: Sequence[Command] = ()


HISTORIES: Mapping[str, History] = {
    "run": History("a run of two tasks", World.run),
    "graph": History("a graph run", World.graph),
    "again": History("a finished run again", World.run, [World.run]),
    "score": History("a scoring of it", World.score, [World.run]),
}


def quiet(arguments: Sequence[str]) -> tuple[int, str]:
    """The command line in this process; any exception comes out."""
    from assay.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            code = main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, said.getvalue()


def traced(arguments: Sequence[str], log: Path) -> None:
    command = ["strace", "-f", "-y", "-ttt", "-xx", "-s", "16777216", "-e", f"trace={CALLS}", "-o", str(log), sys.executable, "-m",
               "bench.power_cut", "traced", *arguments]  # fmt: skip
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr[-2000:])


def numbers(run: Path) -> dict[str, Any]:
    """All that two equal runs have in common: results but for times and usage, samples but for usage, a graph's output."""
    from assay.exchange.lm_eval_layout import lm_eval_layout
    from assay.runs.run import Run

    opened = Run.open(run).finished()
    timed = {"date", "start_time", "end_time", "total_evaluation_time_seconds", "git_hash"}
    results = {key: value for key, value in lm_eval_layout(opened.results).items() if key not in timed}
    results["assay"] = {
        key: value for key, value in results["assay"].items() if key not in ("usage", "rescored", "facts")
    }
    rows = [
        (task, row.doc_id, row.doc, row.prompt, row.responses, row.answers, row.scores, row.failed)
        for task, file in opened.sample_files().items()
        for row in file.rows()
    ]
    written = sorted(path.read_text() for path in run.glob("output_*.json*"))
    return {"results": json.loads(json.dumps(results)), "rows": repr(rows), "written": written}


@dataclass
class Outcome:
    """Cuts and folders that were tried; the greatest age of a lost answer; all that was wrong."""

    cuts: int = 0
    folders: int = 0
    oldest_lost: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Cutting:
    """One history: recorded once, cut many times."""

    def __init__(self, world: World, history: History) -> None:
        self.world, self.history = world, history
        self.outcome = Outcome()
        self._draw = random.Random(7)
        self._parent = world.folder / "runs"
        shutil.rmtree(self._parent, ignore_errors=True)
        self._parent.mkdir()

    def record(self) -> tuple[Folder, Path]:
        """Log the calls of the command; returns the disk before it, and the log."""
        output, server, log = self._parent / "run", self.world.server, self.world.folder / "strace.log"
        for command in self.history.before:
            assert quiet(command(self.world, output))[0] == 0
        disk, self._before = durable(self._parent), durable(self._parent)
        server.delay = DELAY
        traced(self.history.command(self.world, output), log)
        server.delay = 0.0
        return disk, log

    def cut(self, most: int | None) -> Outcome:
        disk, log = self.record()
        self.expected = self._numbers(self._parent / "run")
        replay, moments = Replay(self._parent, disk), []
        for number, call in enumerate(calls(log)):
            if replay.play(call):
                moments.append(number)
        kept = {*moments[:: max(len(moments) // most, 1)]} if most else {*moments}
        disk = self._before
        replay, journaled = Replay(self._parent, disk), []
        for number, call in enumerate(calls(log)):
            if call.name == "pwrite64" and call.result and b"/responses.jsonl" in texts(call.arguments)[0]:
                journaled += [call.time] * texts(call.arguments)[1].count(b'{"k":')
            if replay.play(call) and number in kept:
                self.outcome.cuts += 1
                print(f"\r{self.outcome.cuts} of {len(kept)} cuts", end="", file=sys.stderr, flush=True)
                for way, (names, data) in ways(self._draw, self.outcome.cuts).items():
                    rebuilt = self.world.folder / "rebuilt"
                    shutil.rmtree(rebuilt, ignore_errors=True)
                    rebuild(disk, rebuilt, names, data)
                    self._try(rebuilt / "run", f"call {number}, {way}", [call.time - each for each in journaled])
        return self.outcome

    def _numbers(self, run: Path) -> dict[str, Any]:
        rebuilt = {"run": numbers(run)}
        if self.history.command is World.score:
            rebuilt["scored"] = numbers(run / "scored/001")
        return rebuilt

    def _try(self, run: Path, words: str, ages: Sequence[float]) -> None:
        self.outcome.folders += 1
        try:
            for problem in self._problems(run, ages):
                self.outcome.wrong.append(f"{words}: {problem}")
        except Exception as error:  # noqa: BLE001  # any is a finding
            self.outcome.wrong.append(f"{words}: {type(error).__name__}: {error}")

    def _problems(self, run: Path, ages: Sequence[float]) -> Iterator[str]:
        from assay.runs.journal import NAME, responses

        answers = {each.key for each in responses(run / NAME)} if run.is_dir() else set()
        total = DOCUMENTS
        lost = ages[len(answers) :] if not self.history.before else [9.9] * (total - len(answers))
        self.outcome.oldest_lost = max([self.outcome.oldest_lost, *lost])
        if lost and lost[0] > SECOND:
            yield f"{len(lost)} answers lost, the oldest {lost[0]:.2f} s old"
        if run.is_dir():
            quiet(["report", str(run), "--format", "md"])
            quiet(["samples", str(run)])
            quiet(["runs", "list", str(run.parent)])
        self.world.server.asked = 0
        again = [*self.history.before[-1:], self.history.command]
        for command in again:
            code, said = quiet(command(self.world, run))
            if code != 0:
                yield f"{command.__name__} again: exit {code}: {said.strip()[-300:]}"
                return
        asked = self.world.server.asked
        if asked != total - len(answers):
            yield f"{asked} requests, {total - len(answers)} answers were missing"
        rebuilt = self._numbers(run)
        for name, expected in self.expected.items():
            yield from (f"other {part} of the {name}" for part in expected if rebuilt[name][part] != expected[part])


def rows(names: Sequence[str] = tuple(HISTORIES), most: int | None = None) -> Iterator[Said]:
    import assay.runs.journal

    assay.runs.journal.LONG = LONG
    os.fsync = lambda _: None  # type: ignore[assignment]  # in this process, which only looks at what is left
    os.environ["ASSAY_CACHE_DIR"] = tempfile.mkdtemp(prefix="power-cut-")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            world = World(Path(folder).resolve(), Server())
            make_world(world.folder)
            outcome = Cutting(world, HISTORIES[name]).cut(most)
            world.server.shutdown()
        for each in outcome.wrong[:20]:
            print(each, file=sys.stderr)
        text = (
            f"{outcome.cuts} cuts, {outcome.folders} folders, {len(outcome.wrong)} wrong; the oldest answer lost was"
            f" {outcome.oldest_lost:.2f} s old"
        )
        yield Said(f"power cut: {HISTORIES[name].words}", text, f"0 wrong, ≤ {SECOND:.0f} s")


def main() -> None:
    if sys.argv[1:2] == ["traced"]:
        import assay.runs.journal
        from assay.cli import main as assay_main

        assay.runs.journal.LONG = LONG
        sys.exit(assay_main(sys.argv[2:]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuts", type=int)
    parser.add_argument("histories", nargs="*", choices=[*HISTORIES, []])
    options = parser.parse_args()
    for row in rows(options.histories or tuple(HISTORIES), options.cuts):
        print(row, flush=True)


if __name__ == "__main__":
    main()
