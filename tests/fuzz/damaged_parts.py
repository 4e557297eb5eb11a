"""Damage of what `fuzz.damage` does not have: a graph with an agent whose tool calls are journaled, and shards that are merged.

usage: python -m fuzz.damaged_parts [--commands N]      (in tests/; `make damage` calls it)

Whatever is damaged, no command ends with an exception or prints another number without a word.
"""

import argparse
import itertools
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import run_world
from fuzz.damage import REPORTED, Findings, Warnings, difference, files_of, only_less, remove, said_by, without_paths
from fuzz.mutations import damages
from graph_world import AGENT, write_graph
from run_world import RecordingModel
from serving import Arrived, loopback

CODE = """
    from pathlib import Path

    def look_up(order: str):
        \"\"\"Where an order is.\"\"\"
        with (Path(__file__).parent / "calls.txt").open("a") as file:
            file.write(order + "\\\\n")
        if order == "B2":
            raise ValueError("no such order")
        return {"order": order, "state": "shipped"}
"""
GRAPH = (
    AGENT.replace("TOOLS", "code.look_up")
    + """\
    measured:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: expected
      predicted_key: said_tool_calls
      unit_metrics_map: [{name: tool_called}]
  edges: [{from: START, to: agent}, {from: agent, to: measured}, {from: measured, to: END}]
"""
)
RECORDS = [{"q": order, "expected": ["look_up"]} for order in ("A1", "A2", "B2", "none")]


def agent_says(arrived: Arrived) -> Any:
    """A call of the tool for every order but "none", and a text when its result is there."""
    messages = json.loads(arrived.body).get("messages", [])
    order, has_result = str(messages[0]["content"]), messages[-1]["role"] == "tool"
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": json.dumps({"order": order})}}
    said = {"role": "assistant", "content": f"{order} it is"}
    wants = order in ("A1", "A2", "B2") and not has_result
    message = {"role": "assistant", "content": None, "tool_calls": [call]} if wants else said
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return {"model": "m", "usage": usage, "choices": [{"message": message, "finish_reason": "stop"}]}


Commands = dict[str, Sequence[object]]


class Part:
    """Folders that are damaged, the commands over them, and what these say of whole folders."""

    def __init__(self, folder: Path, damaged: Path, commands: Commands, findings: Findings) -> None:
        self.folder, self.damaged, self.commands, self.findings = folder, damaged, commands, findings
        self._copy = folder.with_name(f"{folder.name}-whole")
        shutil.copytree(folder, self._copy)
        self._good = {name: said_by(*arguments) for name, arguments in commands.items()}
        self._restore()

    def _said_by(self, arguments: Sequence[object]) -> tuple[int, str, str]:
        """What a command says, with what it logs."""
        logger, warnings = logging.getLogger("assay"), Warnings()
        logger.addHandler(warnings)
        try:
            code, out, problems = said_by(*arguments)
        finally:
            logger.removeHandler(warnings)
        return code, out, "\n".join([problems, *warnings.said])

    def _restore(self) -> None:
        remove(self.folder)
        shutil.copytree(self._copy, self.folder)

    def try_all(self, name: str, words: str, damage: Callable[[Path], object]) -> None:
        self.findings.tried += 1
        for command, arguments in self.commands.items():
            damage(self.damaged / name)
            try:
                problem = self._problem(command, self._said_by(arguments), is_missing=words == "missing")
            except Exception as error:  # noqa: BLE001  # any is a finding
                problem = f"{type(error).__name__}: {error}"
            if problem:
                kind = f"{command} with {name} ({words.partition(' at ')[0]}): {problem[:60]}"
                self.findings.add(kind, f"{words}: {problem[:600]}")
            self._restore()

    def _problem(self, command: str, said: tuple[int, str, str], *, is_missing: bool) -> str:
        code, out, problems = said
        good = self._good[command]
        if "Traceback" in problems:
            return problems[-600:]
        if code == 2:
            self.findings.noticed += 1
            return "" if problems.strip() else "exit 2 without a word"
        is_reported = REPORTED.search(problems + out) is not None or "left out: " in problems
        self.findings.noticed += is_reported
        if numbers(out) == numbers(good[1]) and code == good[0]:
            return ""
        if is_reported:  # of a file that is gone, the numbers are gone, too
            is_less = only_less(good[1], out) or is_missing or command == "resume"
            return "" if is_less else f"another output: {difference(good[1], out)}"
        return f"another output without a word: {code} {difference(good[1], out)}"


def numbers(text: str) -> str:
    """What a command says, without paths, times and what resuming adds."""
    lines = without_paths(text).splitlines()
    return "\n".join(line for line in lines if "already answered" not in line and "resum" not in line)


@contextmanager
def graph_part(findings: Findings) -> Iterator[Part]:
    """A run of a graph, with one of other answers beside it."""
    top = Path(tempfile.mkdtemp(prefix="damage-"))
    task = write_graph(top / "work/tasks", RECORDS, GRAPH, code=CODE)
    with loopback(agent_says) as (url, _):
        run, out = top / "work/runs/damaged", top / "work/out"
        asked = ["--model", "openai-chat", "--model_args", f"model=m,base_url={url},max_retries=1", "--tasks", task]
        resume = ("run", *asked, "-o", run, "--log_samples")
        assert said_by(*resume)[0] in (0, 1)
        assert said_by("run", *asked, "-o", top / "work/runs/good", "--limit", 2)[0] in (0, 1)
        commands: Commands = {
            "report": ("report", run, "--format", "csv"),
            "samples": ("samples", run, "-n", 0),
            "compare": ("compare", run.with_name("good"), run, "--allow_different_prompts"),
            "inspect": ("export", run, "--to", "inspect", "-o", out / "in"),
            "pack": ("pack", run, "-o", out / "p.zip"),
            "score": ("score", run),
            "resume": resume,
        }
        yield Part(top / "work", run, commands, findings)


@contextmanager
def shard_part(findings: Findings) -> Iterator[Part]:
    """Two shards of a run; the second one is damaged."""
    top = Path(tempfile.mkdtemp(prefix="damage-"))
    tasks = top / "work/tasks"
    tasks.mkdir(parents=True)
    for name, text in run_world.FILES.items():
        (tasks / name).write_text(text)
    shards = [top / f"work/runs/{number}" for number in (1, 2)]
    for number, shard in enumerate(shards, 1):
        run_world.run(RecordingModel(), tasks, shard, shard=f"{number}/2")
    merged = top / "work/merged"
    commands: Commands = {"merge": ("merge", merged, *shards), "report": ("report", *shards, "--format", "csv")}
    yield Part(top / "work", shards[1], commands, findings)


def try_part(part: Part, count: int) -> None:
    """`count` damages of bytes, evenly drawn over all files; and each file empty, missing, or that of the other run."""
    contents = {name: data for name, data in files_of(part.damaged).items() if not name.startswith("samples_")}
    for name, content in contents.items():
        size = sum(1 for _ in damages(content))
        step = max(size * len(contents) // count, 1)
        for words, data in itertools.islice(damages(content), step // 2, None, step):
            part.try_all(name, words, lambda path, data=data: path.write_bytes(data))
        part.try_all(name, "empty", lambda path: path.write_bytes(b""))
        part.try_all(name, "missing", remove)
        other = next(each for each in sorted(part.damaged.parent.iterdir()) if each != part.damaged)
        if (other / name).is_file():
            part.try_all(name, "another run's", lambda path, other=other, name=name: shutil.copy(other / name, path))


def run_parts(count: int) -> Findings:
    findings, fsync = Findings(), os.fsync
    os.fsync = lambda _: None  # type: ignore[assignment]  # nothing here is about the disk
    try:
        for build in (graph_part, shard_part):
            with build(findings) as part:
                try_part(part, count)
    finally:
        os.fsync = fsync
    return findings


def main_() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", type=int, default=100)
    options = parser.parse_args()
    began = time.process_time()
    findings = run_parts(options.commands)
    took = time.process_time() - began
    print(f"{findings.tried} damages, {findings.noticed} noticed, {len(findings.wrong)} kinds wrong, {took:.0f} s")
    return int(bool(findings.wrong))


if __name__ == "__main__":
    sys.exit(main_())
