"""Histories drawn from a seed: a world is made, its commands are disturbed and repeated until done, and the end is compared."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.fleet import FLEET, REPLICAS, STRIKES, Machines
from chaos.outcome import answers, leftovers, outcome, without_settings
from chaos.worlds import AT_ONCE, KINDS, Command, Kind, Server, write_tasks
from serving import loopback

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
LONGEST = 120.0
"""Seconds after which a command hangs."""
DISK = 24 << 20
IMPORTING = re.compile(r"assay/cli/__init__\.py\", line \d+, in <module>")
"""A signal in the first milliseconds, before `main`: Python itself answers it."""
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "stop": signal.SIGSTOP,
    "twice": signal.SIGTERM,
}
CODES = {
    "kill": (-9,),
    "term": (143, -15),
    "int": (130, -2),
    "stop": (),
    "twice": (143, -15),
    "disk": (2,),
    "replica": (),
    "node": (),
}
"""What a disturbed command may exit with, besides 0 and 1; before Python has begun a signal ends it by its number."""


@dataclass(frozen=True)
class Disturbance:
    """What happens to a command, and where in it: at a share of its time, of its requests, or of its changes to files."""

    how: str
    when: str
    share: float

    def __str__(self) -> str:
        return f"{self.how} at {self.share:.3f} of its {self.when}"


@dataclass(frozen=True)
class History:
    """One history: everything in it follows from the seed and the number."""

    seed: int
    number: int
    kind: str
    faults: float
    disturbances: Mapping[int, list[Disturbance]]

    def __str__(self) -> str:
        steps = [f"command {at}: {', '.join(map(str, each))}" for at, each in sorted(self.disturbances.items())]
        return f"seed {self.seed}, history {self.number} ({self.kind}, faults {self.faults}): {'; '.join(steps)}"


def drawn(seed: int, number: int, kinds: Mapping[str, Kind] = KINDS) -> History:
    """Draw a history. Kinds take turns; three of five disturbances are kills."""
    draw, names = random.Random(f"{seed} {number}"), list(kinds)
    kind = names[number % len(names)]
    commands = len(kinds[kind].commands(""))
    disturbances: dict[int, list[Disturbance]] = {}
    for _ in range(draw.randint(2, 8)):
        how = draw.choice(["kill"] * 9 + ["term", "int", "twice", "stop", "disk", "disk"])
        if kinds[kind].fleet and how == "kill":
            how = draw.choice(["kill", *STRIKES])
        when = draw.choice(["time", "requests"] if how in STRIKES else ["time", "requests", "changes", "changes"])
        disturbances.setdefault(draw.randrange(commands), []).append(Disturbance(how, when, draw.uniform(0, 1.02)))
    faults = draw.choice([0.0, 0.0, 0.03, 0.15])
    return History(seed, number, kind, 0.0 if kinds[kind].fleet else faults, disturbances)


@dataclass
class Measured:
    """An undisturbed command: its seconds, its requests, its changes to files."""

    seconds: float
    requests: int
    changes: int


@dataclass
class Reference:
    """A kind of world that nothing disturbed."""

    commands: list[Measured]
    outcome: dict[str, bytes]


@dataclass
class Report:
    """What came of a history. `kills` counts the processes that were alive when they were killed, by command and phase."""

    history: History
    problems: list[str] = field(default_factory=list)
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    needed: int = 0


ALL = {**KINDS, **FLEET}


class Ended(Exception):
    """A command hangs, or does not come to its end."""


class Chaos:
    """A place for histories, one after the other: always the same folder and address, so that the ends are equal to the byte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work, self.done, self.tmp = folder / "work", folder / "done", folder / "tmp"
        for each in (self.work, self.done, self.tmp):
            each.mkdir()
        self._stack = ExitStack()
        self.small_disk = self._stack.enter_context(_small_disk(self.work))
        self.server = Server()
        self.url, _ = self._stack.enter_context(loopback(self.server))
        self.machines = Machines(self._stack, {"PYTHONPATH": _path(), "ASSAY_CACHE_DIR": str(folder / "cache")})
        self._references: dict[str, Reference] = {}

    def close(self) -> None:
        self._stack.close()

    def reference(self, kind: str) -> Reference:
        """Run a kind undisturbed, once; its world stays in done/KIND for the kinds that need it."""
        if kind not in self._references:
            after, self.server.faults = ALL[kind].after, 0.0
            if after is not None:
                self.reference(after)
            measured = [self._measured(command) for command in self._fresh(kind)]
            done = self._outcome(kind)
            if ALL[kind].fleet:  # it takes longer, and has to come to the same
                spread = [self.machines.spread(command) for command in self._fresh(kind)]
                measured = [self._measured(command) for command in spread]
            self._references[kind] = Reference(measured, done)
            shutil.copytree(self.work, self.done / kind)
        return self._references[kind]

    def _outcome(self, kind: str) -> dict[str, bytes]:
        return without_settings(outcome(self.work)) if ALL[kind].fleet else outcome(self.work)

    def _measured(self, command: Command) -> Measured:
        counted = self.folder / "counted"
        self.server.begin()
        attempt = Attempt(self, command, counted=counted)
        attempt.wait()
        if attempt.code != 0:
            raise Ended(f"`assay {' '.join(command)}` ends with {attempt.code} undisturbed: {attempt.said}")
        return Measured(attempt.seconds, len(self.server.asked), int(counted.read_text()))

    def _fresh(self, kind: str) -> list[Command]:
        """An empty world of a kind."""
        for folder in (self.work, self.tmp):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_tasks(self.work / "tasks")
        ALL[kind].prepare(self.work, self.done)
        return ALL[kind].commands(self.url)

    def told(self, history: History) -> Report:
        """Let a history happen."""
        report, reference = Report(history), self.reference(history.kind)
        commands = self._fresh(history.kind)
        if ALL[history.kind].fleet:
            commands = [self.machines.spread(command) for command in commands]
        self.server.seed = f"{history.seed} {history.number}"
        try:
            for number, command in enumerate(commands):
                one = CommandUnderFire(self, command, reference.commands[number], report)
                for disturbance in history.disturbances.get(number, ()):
                    self.server.faults = history.faults
                    one.disturbed(disturbance)
                one.completed()
        except Ended as ended:
            report.problems.append(str(ended))
            return report
        after = self._outcome(history.kind)
        names = sorted(name for name in {*after, *reference.outcome} if after.get(name) != reference.outcome.get(name))
        report.problems += [
            f"{name} differs: {_difference(after.get(name), reference.outcome.get(name))}" for name in names
        ]
        report.problems += [f"left over: {name}" for name in leftovers(self.work, self.tmp)]
        return report


ALREADY = ("holds another run", "the folder is not empty")
"""Messages of a command whose output is there already: it was killed after it had put it in place."""


class CommandUnderFire:
    """One command of a history: disturbed some times, then left alone until it is done."""

    def __init__(self, chaos: Chaos, command: Command, measured: Measured, report: Report) -> None:
        self.chaos, self.command, self.measured, self.report = chaos, command, measured, report
        self.output = chaos.work / (
            command[1] if command[0] == "merge" else command[command.index("-o") + 1] if "-o" in command else "."
        )
        report.needed += measured.requests

    def disturbed(self, disturbance: Disturbance) -> None:
        known = answers(self.output)
        left = replace(self.measured, requests=max(0, self.measured.requests - len(known)))
        attempt = Attempt(self.chaos, self.command, disturbance=disturbance, measured=left)
        attempt.wait()
        self._judge(attempt, known, disturbance)
        if disturbance.how == "kill" and attempt.code == -signal.SIGKILL:
            self.report.kills[self.command[0], self._phase(attempt.began)] += 1
        elif disturbance.how in STRIKES:
            self.report.others[disturbance.how] += attempt.was_struck
        elif attempt.code not in (0, 1) or disturbance.how == "stop":
            self.report.others[disturbance.how] += 1

    def completed(self) -> None:
        """Repeat the command without faults until it is done; documents that failed by a fault are asked again."""
        self.chaos.server.faults = 0.0
        for _ in range(3):
            known = answers(self.output)
            attempt = Attempt(self.chaos, self.command)
            attempt.wait()
            self._judge(attempt, known, None)
            if attempt.code == 0 or (attempt.code == 2 and any(each in attempt.said for each in ALREADY)):
                return
        raise Ended(
            f"`assay {self.command[0]}` ends with {attempt.code} after it was disturbed: {attempt.said[-2000:]}"
        )

    def _judge(self, attempt: "Attempt", known: Mapping[str, bytes], disturbance: Disturbance | None) -> None:
        """Whether a process ended as it may, kept what was known, and asked nothing that was known."""
        problems, server, after = self.report.problems, self.chaos.server, answers(self.output)
        self.report.asked += server.asked.total()
        what = f"`assay {self.command[0]}`, {disturbance or 'undisturbed'}"
        allowed = (0, 1, *(CODES[disturbance.how] if disturbance else (2,)))
        if attempt.code not in allowed:
            problems.append(f"{what}: exit code {attempt.code}: {attempt.said[-1500:]}")
        if "Traceback" in attempt.said and str(SOURCE / "assay") in attempt.said and not IMPORTING.search(attempt.said):
            problems.append(f"{what}: a traceback: {attempt.said[-3000:]}")
        if attempt.children:
            problems.append(f"{what}: processes outlive it: {attempt.children}")
        if any(after.get(key) != line for key, line in known.items()):
            problems.append(f"{what}: journaled answers are lost")
        if len(server.asked) > max(0, self.measured.requests - len(known)):
            problems.append(
                f"{what}: asked {len(server.asked)} of {self.measured.requests} with {len(known)} journaled"
            )
        again = [times for times in server.answered.values() if times > 1]
        in_flight = AT_ONCE * (REPLICAS if "--ray" in self.command else 1)
        struck = attempt.code not in (0, 1) or (disturbance is not None and disturbance.how in STRIKES)
        if len(again) > (in_flight if struck else 0):  # what was in flight when it was struck may be asked once more
            problems.append(f"{what}: answered and asked again at once: {len(again)}")
        lost = len(server.answered) - (len(after) - len(known))
        if lost > 2 * in_flight:
            problems.append(f"{what}: {lost} answers were given and not journaled")

    def _phase(self, began: float) -> str:
        """Where the command was, by what it wrote."""
        new = {path.name for path in self.chaos.work.rglob("*") if _changed(path) >= began - 0.01}
        if self.command[0] != "run":
            return "writing" if any(".part" in name for name in new) else "end" if new - {"work"} else "start"
        if self.chaos.server.asked and len(answers(self.output)) < self.measured.requests:
            return "asking"
        if not {"responses.jsonl", "manifest.json"} & new:
            return "start"
        placed = any(name.endswith(".parquet") for name in new)
        return (
            "results"
            if "results.json" in new
            else "samples"
            if placed
            else "asking"
            if not self.measured.requests
            else "scoring"
        )


class Attempt:
    """A process of assay, and what is done to it."""

    def __init__(
        self, chaos: Chaos, command: Command, *, disturbance: Disturbance | None = None, measured: Measured | None = None,
        counted: Path | None = None,
    ) -> None:  # fmt: skip
        self.chaos, self.disturbance, self.measured = chaos, disturbance, measured
        self.mark, self.was_struck = f"{os.getpid()}-{time.monotonic_ns()}", False
        self._started = threading.Event()
        step, number, at = 0, 0, {}
        how, when = (disturbance.how, disturbance.when) if disturbance is not None else ("", "")
        if disturbance is not None and measured is not None and how != "disk":
            if when == "changes":
                step, number = 1 + int(disturbance.share * measured.changes), SIGNALS[how]
            elif when == "requests" and measured.requests:
                at = {1 + int(disturbance.share * measured.requests): self._strike}
        chaos.server.begin(at)
        if disturbance is not None and how == "disk":
            self._fill(disturbance)
        arguments = [chaos.work, step, int(number), counted or os.devnull, *command]
        self.began, self._begun = time.time(), time.monotonic()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the process has ended
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "disturbed.py"), *map(str, arguments)], cwd=chaos.work, env=self._environment(),
            stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=self._limit if how == "disk" and not chaos.small_disk else None,
        )  # fmt: skip
        self._started.set()
        if disturbance is not None and measured is not None and how != "disk" and not step and not at:
            timer = threading.Timer(disturbance.share * measured.seconds, self._strike)
            timer.daemon = True
            timer.start()

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ, **self.chaos.machines.environment, "PYTHONPATH": _path(), "TMPDIR": str(self.chaos.tmp),
            "ASSAY_CACHE_DIR": str(self.chaos.folder / "cache"), "OPENBLAS_NUM_THREADS": "1", "CHAOS_MARK": self.mark,
            "HF_HUB_OFFLINE": "1", **self._kept_bytecode(),
        }  # fmt: skip

    def _kept_bytecode(self) -> dict[str, str]:
        """Python 3.11 keeps the half of a compiled module where a disk is full, and all later processes would read it."""
        is_full = self.disturbance is not None and self.disturbance.how == "disk"
        return {"PYTHONDONTWRITEBYTECODE": "1"} if is_full else {}

    def _strike(self) -> None:
        self._started.wait()
        assert self.disturbance is not None
        if self.disturbance.how in STRIKES:
            self.was_struck = self._process.poll() is None
            return self.chaos.machines.strike(self.disturbance.how, random.Random(str(self.disturbance)))
        with suppress(ProcessLookupError):
            self._process.send_signal(SIGNALS[self.disturbance.how])
            if self.disturbance.how == "twice":
                time.sleep(0.02)
                self._process.send_signal(SIGNALS["twice"])

    def _fill(self, disturbance: Disturbance) -> None:
        """Leave little of the small disk; without one, `_limit` limits the size of each file."""
        if self.chaos.small_disk:
            free = shutil.disk_usage(self.chaos.work).free
            left = int(disturbance.share**2 * 300_000)
            with suppress(OSError), (self.chaos.work / "ballast").open("wb") as ballast:
                for _ in range(max(0, free - left) // 4096):
                    ballast.write(bytes(4096))

    def _limit(self) -> None:
        import resource

        assert self.disturbance is not None
        largest = int(100 + self.disturbance.share**2 * 60_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    def wait(self) -> None:
        """Wait for the end; a process that was stopped goes on."""
        how = self.disturbance.how if self.disturbance is not None else ""
        end = time.monotonic() + LONGEST
        while self._process.poll() is None:
            if time.monotonic() > end:
                self._process.kill()
                self._process.wait()
                raise Ended(f"`assay {self.disturbance}` hangs: {self.said}")
            if how == "stop" and _state(self._process.pid) == "T":
                time.sleep(0.3)
                self._process.send_signal(signal.SIGCONT)
                how = ""
            time.sleep(0.004)
        self.seconds = time.monotonic() - self._begun
        (self.chaos.work / "ballast").unlink(missing_ok=True)
        self.code = self._process.returncode
        self._said.seek(0)
        self.said = self._said.read().decode("utf-8", "replace")
        self._said.close()
        self.children = _alive(self.mark) + self.chaos.machines.outlive()

    said: str = ""


def _path() -> str:
    """The source, before what else the path of Python has."""
    return os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])


def _difference(one: bytes | None, other: bytes | None) -> str:
    """The first place where two files differ."""
    if one is None or other is None:
        return "not there" if one is None else "not there in the undisturbed world"
    at = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return f"{one[max(0, at - 80) : at + 80]!r} and not {other[max(0, at - 80) : at + 80]!r}"


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _alive(mark: str, seconds: float = 3.0) -> list[int]:
    """The processes that carry a mark in their environment and do not end by themselves; nothing where there is no /proc."""
    end = time.monotonic() + seconds
    while found := [pid for pid in _processes() if _carries(pid, mark)]:
        if time.monotonic() > end:
            return found
        time.sleep(0.05)
    return []


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")] if Path("/proc").is_dir() else []


def _carries(process: int, mark: str) -> bool:
    try:
        return f"CHAOS_MARK={mark}".encode() in Path(f"/proc/{process}/environ").read_bytes() and _state(process) != "Z"
    except OSError:
        return False


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """A small file system in memory, where that is allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def as_json(report: Report) -> dict[str, Any]:
    return {
        "history": str(report.history), "kind": report.history.kind, "problems": report.problems,
        "kills": {f"{command} {phase}": count for (command, phase), count in report.kills.items()},
        "others": dict(report.others), "asked": report.asked, "needed": report.needed,
    }  # fmt: skip


def line(report: Report) -> str:
    return json.dumps(as_json(report), ensure_ascii=False)
