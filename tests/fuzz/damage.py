"""Every byte of a run's folder, damaged one by one: what a reader does not notice must be without effect.

usage: python -m fuzz.damage [--every N] [--commands N]      (in tests/; `make damage` calls it)

First every damage goes through the reader of its file: it is refused, or ignored in words, or nothing that was read differs. Then
`--commands` of them, evenly drawn, and all that is no damage of bytes (a file that is missing, a folder, a FIFO, a loop of links,
another run's) go through every command: none fails with an exception or prints another number, and the run resumes to its numbers.
"""

import argparse
import contextlib
import difflib
import io
import itertools
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import run_world
from assay import ScoreOptions, score
from assay.cli import main
from assay.errors import AssayError
from assay.runs import journal
from assay.runs.journal import NAME
from assay.runs.lease import Lease, is_held
from assay.runs.run import Run
from fuzz.mutations import damages
from fuzz.targets import pages, placed, task_files
from run_world import RecordingModel

PACKED = f"{NAME}.zst"
HANG = 30


# ---- the run that is damaged


@dataclass(frozen=True)
class World:
    """Two runs of different answers beside each other, the first with a scoring; and its tasks."""

    tasks: Path
    run: Path
    other: Path

    def resume(self, run: Path) -> int:
        """Run it again; returns how many requests were sent."""
        model = RecordingModel(failing={"7-4="})
        run_world.run(model, self.tasks, run, tasks=["both"], log_samples=True)
        return len(model.calls)

    def score(self, run: Path) -> Mapping[str, Any]:
        return score(run, ScoreOptions(include_path=[str(self.tasks)])).results


def make_world(*, packed: bool) -> World:
    folder = Path(tempfile.mkdtemp(prefix="damage-"))
    world = World(folder / "tasks", folder / "runs/damaged", folder / "runs/good")
    group = {
        "group": "both",
        "task": ["sums", "colours"],
        "aggregate_metric_list": [{"metric": "exact_match", "missing": "skip"}],
    }
    files = {
        name: text for name, text in task_files().items() if "/" not in name and name not in ("all.yaml", "rich.yaml")
    }
    placed({**files, "both.yaml": json.dumps(group).encode()}, world.tasks)
    journal.LONG = 0 if packed else 1 << 24
    world.resume(world.run)
    model = RecordingModel(failing={"1+1="})
    run_world.run(model, world.tasks, world.other, tasks=["both"], limit=3)
    world.score(world.run)
    return world


def files_of(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


# ---- readers


@dataclass
class Findings:
    """Damages that were tried, and were noticed; what is wrong, each kind once with its first example."""

    tried: int = 0
    noticed: int = 0
    wrong: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, example: str) -> None:
        if kind not in self.wrong:
            self.wrong[kind] = example
            print(f"{kind}\n    {example}", file=sys.__stdout__, flush=True)


class Warnings(logging.Handler):
    """Counts what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def read_all(run: Path, name: str) -> Any:
    """All that the reader of a file finds in it."""
    folder = (run / name).parent
    if name.endswith(".parquet"):
        opened = Run.open(folder.parent)
        file = opened.sample_file(Path(name).stem)
        return None if file is None else [*file.rows()]
    if Path(name).name in (NAME, PACKED):
        answers = {each.key: each for each in journal.responses(run / NAME)}
        is_torn = (
            not (run / name).read_bytes().endswith(b"\n") and name == NAME
        )  # as after a kill: that line is asked again
        return answers, sum(line.lost for line in journal.lines(run / NAME)) + is_torn
    if Path(name).name == "run.lock":
        is_held(run)
        Lease(run).release()
        return None
    opened = Run.open(folder)
    return {**opened.manifest, "results": opened.results}


UNNOTICED = ("cut at", "line lost")
"""Damages of a journal that leave whole lines: what is missing is asked again, as after a kill."""


def is_harmless(file: tuple[str, str], before: Any, after: Any, said: Sequence[str]) -> bool:
    """Whether what was read is what there was; or less, with a word."""
    if before == after:
        return True
    name, words = file
    if Path(name).name in (NAME, PACKED):
        is_less = all(before[0].get(key) == each for key, each in after[0].items())
        return is_less and (len(before[0]) == len(after[0]) or after[1] > 0 or words.startswith(UNNOTICED))
    if Path(name).name == "manifest.json":
        rest = {key: value for key, value in before.items() if key in after}
        return bool(said) and rest == after
    return False


def through_readers(world: World, every: int, findings: Findings) -> None:
    warnings = Warnings()
    logger = logging.getLogger("assay")
    logger.addHandler(warnings)
    logger.propagate = False
    contents = files_of(world.run)
    contents["run.lock"] = json.dumps({"host": "elsewhere", "pid": 3, "time": 5.0, "documents": {"sums": 1}}).encode()
    for name, content in contents.items():
        if name.startswith("samples_"):
            continue  # lm-eval's lines: written for others, and read by no command
        placed({name: content}, world.run)
        before = read_all(world.run, name)
        for words, damaged in itertools.islice(damages(content), every // 2, None, every):
            findings.tried += 1
            warnings.said.clear()
            placed({name: damaged}, world.run)
            kind = f"{name} {words.partition(' at ')[0]}"
            try:
                after = read_all(world.run, name)
            except AssayError:
                findings.noticed += 1
            except Exception as error:  # noqa: BLE001  # any is a finding
                findings.add(f"{kind}: {type(error).__name__}", f"{name}: {words}: {error}")
            else:
                findings.noticed += bool(warnings.said) or before != after
                if not is_harmless((name, words), before, after, warnings.said):
                    findings.add(f"{kind}: read otherwise", f"{name}: {words}")
        placed({name: content}, world.run)
        (world.run / "run.lock").unlink(missing_ok=True)
    logger.removeHandler(warnings)
    logger.propagate = True


# ---- commands


def said_by(*arguments: object) -> tuple[int, str, str]:
    out, problems = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(problems):
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), problems.getvalue()


def commands(world: World, run: Path) -> dict[str, Sequence[object]]:
    out = run.parent.parent / "out"
    return {
        "report": ("report", run, "--format", "csv"), "page": ("report", world.other, run, "-o", out / "r.html"),
        "samples": ("samples", run, "-n", 0), "scored": ("samples", run / "scored/001", "-n", 0),
        "scored report": ("report", run / "scored/001", "--format", "csv"),
        "compare": ("compare", world.other, run, "--allow_different_prompts"),
        "lm-eval": ("export", run, "--to", "lm-eval", "-o", out / "lm"), "inspect": ("export", run, "--to", "inspect", "-o", out / "in"),
        "parquet": ("export", run, "--to", "parquet", "-o", out / "pq"), "pack": ("pack", run, "-o", out / "p.zip"),
        "import": ("import", run, "-o", out / "im"), "list": ("runs", "list", run.parent), "show": ("runs", "show", run),
        "score": ("score", run, "--include_path", world.tasks),
    }  # fmt: skip


class Commands:
    """The commands over a run that is damaged."""

    def __init__(self, world: World, findings: Findings) -> None:
        self.world, self.findings = world, findings
        self._good = {name: said_by(*arguments) for name, arguments in commands(world, world.run).items()}
        shutil.rmtree(world.run.parent.parent / "out", ignore_errors=True)
        for extra in [*(world.run / "scored").glob("*")][1:]:
            shutil.rmtree(extra)
        self._copy = Path(tempfile.mkdtemp(prefix="damage-")) / "whole"
        shutil.copytree(world.run, self._copy)
        self._results = run_world.results(world.run)["results"]
        self._total = 13

    def try_all(self, name: str, words: str, damage: Callable[[Path], object]) -> None:
        self.findings.tried += 1
        damage(self.world.run / name)
        signal.alarm(HANG)
        try:
            for command, arguments in commands(self.world, self.world.run).items():
                self._try(
                    f"{command} with {name}",
                    words,
                    lambda arguments=arguments, command=command: self._command(command, arguments),
                )
            self._try(f"viewer with {name}", words, lambda: self._view(name))
            self._try(f"resume with {name}", words, self._resume)
        finally:
            signal.alarm(0)
            self._restore()

    def _try(self, what: str, words: str, do: Callable[[], str]) -> None:
        try:
            problem = do()
            if words.startswith("missing") and problem.startswith("another output with a word"):
                problem = ""  # of a file that is gone: its numbers are gone, and those of all tasks together are others
        except TimeoutError:
            problem = "hangs"
        except Exception as error:  # noqa: BLE001  # any is a finding
            frame = [each for each in traceback.extract_tb(error.__traceback__) if "/assay/" in each.filename][-1:]
            place = f" {Path(frame[0].filename).name}:{frame[0].lineno}" if frame else ""
            problem = f"{type(error).__name__}{place}: {error}"[:300]
        if problem:
            self.findings.add(f"{what} ({words.partition(' at ')[0]}): {problem[:60]}", f"{words}: {problem}")

    def _command(self, command: str, arguments: Sequence[object]) -> str:
        code, out, problems = said_by(*arguments)
        good = self._good[command]
        if "Traceback" in problems:
            return problems[-300:]
        if code == 2:
            self.findings.noticed += 1
            return "" if problems.strip() else "exit 2 without a word"
        if (code, without_paths(out)) == (good[0], without_paths(good[1])):
            return ""
        if REPORTED.search(problems + out):
            return "" if only_less(good[1], out) else f"another output with a word: {difference(good[1], out)}"
        return f"another output: {code} {difference(good[1], out)}"

    def _view(self, name: str) -> str:
        pages(self.world.run.parent)
        return ""

    def _resume(self) -> str:
        run = self.world.run
        try:
            self.world.resume(run)
        except AssayError as error:
            self.findings.noticed += 1
            return "" if str(error) else "refused without a word"
        return "" if run_world.results(run)["results"] == self._results else "another number"

    def _restore(self) -> None:
        remove(self.world.run)
        remove(self.world.run.parent.parent / "out")
        for left in self.world.run.parent.glob("damaged.old*"):
            shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(self._copy, self.world.run)


REPORTED = re.compile("damaged|cannot be read|missing|restored")


def only_less(before: str, after: str) -> bool:
    """Whether a text has no line that the other has not, but for lines that report damage."""
    known = {*_squeezed(before)}
    return all(line in known or REPORTED.search(line) for line in _squeezed(after))


def _squeezed(text: str) -> list[str]:
    """The lines of a text whatever the width of its columns is, which are as wide as their longest cell."""
    return re.sub(r"[ \-─:]+", " ", without_paths(text)).splitlines()


def without_paths(text: str) -> str:
    return re.sub(
        r"\S*/(?:tmp|dev/shm)\S*|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?|\d+(\.\d+)? s(econds)?( ago)?|scored/\d+|[\d,]+ bytes",
        "…",
        text,
    )


def difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(
        without_paths(before).splitlines(), without_paths(after).splitlines(), n=0, lineterm=""
    )
    return " | ".join([*lines][2:8])[:300]


def remove(path: Path) -> None:
    if path.is_symlink() or path.is_file() or path.is_fifo():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def other_kinds(world: World, name: str) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """What a file may be instead of damaged."""

    def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
        return lambda path: (remove(path), make(path))

    yield "missing", remove
    yield "a folder", instead(lambda path: path.mkdir())
    yield "a full folder", instead(lambda path: (path.mkdir(), (path / "x").write_text("x")))
    yield "a FIFO", instead(lambda path: os.mkfifo(path))
    yield "a loop", instead(lambda path: path.symlink_to(path.name))
    yield "a link to nothing", instead(lambda path: path.symlink_to("nothing"))
    yield "a link to a device", instead(lambda path: path.symlink_to("/dev/zero"))
    yield "empty", lambda path: path.write_bytes(b"")
    inner = Path(name)
    theirs = world.other / (inner.relative_to("scored/001") if name.startswith("scored/001") else inner)
    if theirs.is_file():
        yield "another run's", lambda path: shutil.copy(theirs, path)
    if name.startswith("samples/"):
        beside = next(each for each in ("sums", "colours") if each != inner.stem)
        yield "another task's", lambda path: shutil.copy(path.with_name(f"{beside}.parquet"), path)
    if name.startswith("scored/001/") and (world.run / inner.relative_to("scored/001")).is_file():
        yield "the run's", lambda path: shutil.copy(world.run / inner.relative_to("scored/001"), path)


def through_commands(world: World, count: int, findings: Findings, kinds: Sequence[str] | None = None) -> None:
    """Try what a file may be instead, of these kinds or all; and `count` damages of bytes, evenly drawn."""

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    tried = Commands(world, findings)
    contents = files_of(world.run)
    for name in contents:
        for words, damage in other_kinds(world, name):
            if kinds is None or f"{name}: {words}" in kinds:
                tried.try_all(name, words, damage)
    sizes = {
        name: sum(1 for _ in damages(content)) for name, content in contents.items() if not name.startswith("samples_")
    }
    for name, size in sizes.items() if count else ():
        step = max(size * len(sizes) // count, 1)
        for words, damaged in itertools.islice(damages(contents[name]), step // 2, None, step):
            tried.try_all(name, words, lambda path, damaged=damaged: path.write_bytes(damaged))


def run_all(*, packed: bool, every: int, commands: int, kinds: Sequence[str] | None = None) -> Findings:
    """Damage a run; `every` is the share of damages that go through the readers."""
    fsync, long = os.fsync, journal.LONG
    os.fsync = lambda _: None  # type: ignore[assignment]  # thousands of folders: nothing here is about the disk
    findings = Findings()
    try:
        world = make_world(packed=packed)
        if every:
            through_readers(world, every, findings)
        through_commands(world, commands, findings, kinds)
    finally:
        os.fsync, journal.LONG = fsync, long
    return findings


def main_() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--commands", type=int, default=200)
    options = parser.parse_args()
    wrong = False
    for packed in (False, True):
        began = time.process_time()
        findings = run_all(packed=packed, every=options.every, commands=options.commands)
        took, wrong = time.process_time() - began, wrong or bool(findings.wrong)
        print(f"{findings.tried} damages, {findings.noticed} noticed, {len(findings.wrong)} kinds wrong, {took:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main_())
