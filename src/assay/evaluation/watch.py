"""Watch a folder for checkpoints: which are complete, in the order of their training steps, and which are tried again later."""

import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import AssayError, ConfigError
from assay.evaluation.options import training_step
from assay.evaluation.sweep import changed_at

STATE = "trainer_state.json"
MARKERS = (".complete", "COMPLETE", "_SUCCESS", ".metadata", STATE)
"""Files that trainers write last: those of the Trainer of transformers and of torch's distributed checkpoints are among them."""
UNFINISHED = re.compile(r"^(tmp[-_.]|\.)|[-_.](tmp|part|partial|incomplete)$", re.IGNORECASE)
"""Names that trainers rename when they are done."""
ATTEMPTS = 3
RETRY_SECONDS = 30.0
PAUSE_SECONDS = 2.0
INDEX = "model.safetensors.index.json"
HEADER = 8
"""Bytes of a safetensors file that say how long its header is."""


class CheckpointError(AssayError):
    """A checkpoint that cannot be evaluated now."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that a trainer writes, the step it is of, and the name of its run."""

    path: Path
    step: int
    name: str

    @classmethod
    def of(cls, path: Path) -> "Checkpoint | None":
        """The checkpoint in a folder; none where neither its name nor its trainer's state has a step."""
        if UNFINISHED.search(path.name) or not path.is_dir():
            return None
        step = training_step(path.name)
        if step is not None:
            return cls(path, step, path.name)
        step = _noted_step(path / STATE)
        return cls(path, step, f"{path.name}-step-{step}") if step is not None else None


def _noted_step(file: Path) -> int | None:
    try:
        step = json.loads(file.read_bytes())["global_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Where checkpoints appear, when one is complete, and when the watch ends."""

    folder: Path
    pattern: str = "*"
    ready: str | None = None
    stable: float = 30.0
    once: bool = False
    until: int | None = None


def find_checkpoints(options: WatchOptions) -> list[Checkpoint]:
    """The checkpoints that are there now, in the order of their steps."""
    known = (Checkpoint.of(path) for path in options.folder.glob(options.pattern))
    return sorted((each for each in known if each is not None), key=lambda each: (each.step, each.name))


def why_not_ready(path: Path, options: WatchOptions, now: float) -> str:
    """Why a checkpoint cannot be read yet; empty if it is complete: it has its marker, or has not changed for a while."""
    try:
        if options.ready is not None:
            return "" if any(path.glob(options.ready)) else f"no {options.ready}"
        age = now - changed_at(path)
        if not any(path.iterdir()):
            return "it is empty"
        if not any(_is_written(path / name) for name in MARKERS) and age < options.stable:
            return f"it changed {max(age, 0):.0f} s ago"
        return next(_incomplete(path), "")
    except OSError as error:  # removed, or renamed, while it is looked at
        return f"it cannot be read: {error.strerror}"


def _is_written(marker: Path) -> bool:
    """Whether a marker is there, and whole if it has content that can say so."""
    return marker.is_file() and (marker.name != STATE or _noted_step(marker) is not None)


def _incomplete(path: Path) -> Iterator[str]:
    """Weights that are not all there, by what their files say about themselves."""
    index = path / INDEX
    if index.is_file():
        try:
            files = {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
        except (ValueError, KeyError, TypeError, AttributeError):
            yield f"{INDEX} cannot be read"
            return
        yield from (f"no {name}" for name in sorted(files) if not (path / name).is_file())
    for file in sorted(path.glob("*.safetensors")):
        if not _is_whole(file):
            yield f"{file.name} is cut off"


def _is_whole(file: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(HEADER), "little")
        if length > file.stat().st_size:
            return False
        try:
            header = json.loads(opened.read(length))
            ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return True  # not cut off, but something else: the model reports it
    return bool(file.stat().st_size >= HEADER + length + max(ends, default=0))


@dataclass
class CheckpointWatch:
    """A watch: evaluates checkpoints as they become ready, and tries one that fails again later.

    `evaluate` raises an error for a checkpoint that cannot be evaluated; `say` prints a line.
    """

    options: WatchOptions
    evaluate: Callable[[Checkpoint], None]
    say: Callable[[str], None]
    done: dict[str, int] = field(default_factory=dict)
    """The steps of checkpoints that need no more work, by name."""
    failed: dict[str, str] = field(default_factory=dict)
    """The reasons of those that could not be evaluated."""
    _attempts: dict[str, int] = field(default_factory=dict)
    _next_try: dict[str, float] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Watch until the last step is evaluated; with `once`, until nothing is left that is ready."""
        while True:
            checkpoint = self._next()
            if checkpoint is not None:
                self._try(checkpoint)
            elif self.options.once or self._has_ended():
                return
            else:
                time.sleep(min(PAUSE_SECONDS, max(self.options.stable / 4, 0.1)))

    def _has_ended(self) -> bool:
        is_last = self.options.until is not None and any(step >= self.options.until for step in self.done.values())
        return is_last and self._next_try.keys() <= self.done.keys()

    def _next(self) -> Checkpoint | None:
        """The first checkpoint that is ready. Those that are not are said, with `once`, as no one looks at them again."""
        now = time.time()
        for each in find_checkpoints(self.options):
            beyond = self.options.until is not None and each.step > self.options.until
            if each.name in self.done or beyond or now < self._next_try.get(each.name, 0):
                continue
            reason = why_not_ready(each.path, self.options, now)
            if not reason:
                return each
            if self.options.once and self._waiting.get(each.name) != reason:
                self.say(f"{each.name}: not ready: {reason}")
                self._waiting[each.name] = reason
        return None

    def _try(self, checkpoint: Checkpoint) -> None:
        name = checkpoint.name
        try:
            self.evaluate(checkpoint)
            self.done[name] = checkpoint.step
            self.failed.pop(name, None)
        except (AssayError, OSError) as error:
            self._failed(checkpoint, "; ".join(map(str, getattr(error, "problems", (error,)))))

    def _failed(self, checkpoint: Checkpoint, reason: str) -> None:
        name = checkpoint.name
        attempts = self._attempts[name] = self._attempts.get(name, 0) + 1
        if not checkpoint.path.exists():
            reason = "it was removed while it was evaluated — let the trainer keep more checkpoints (save_total_limit)"
            attempts = ATTEMPTS
        self.failed[name] = reason
        if attempts >= ATTEMPTS or self.options.once:
            self.done[name] = checkpoint.step
            self.say(f"{name}: could not be evaluated: {reason}")
            return
        pause = min(RETRY_SECONDS, max(self.options.stable, 0.1)) * attempts
        self._next_try[name] = time.time() + pause
        self.say(f"{name}: {reason}; tried again in {pause:.0f} s ({attempts} of {ATTEMPTS} attempts)")


@dataclass(frozen=True, slots=True)
class CommandTemplate:
    """A command of the user with names in braces, which is run without a shell."""

    written: str
    flag: str

    def check(self, known: Mapping[str, object], required: tuple[str, ...] = ()) -> None:
        """Refuse a command that names something else, or lacks what it needs."""
        names = re.findall(r"\{(\w*)\}", self.written)
        unknown = [name for name in names if name not in known]
        missing = [name for name in required if name not in names]
        listed = ", ".join(f"{{{name}}}" for name in known)
        if unknown or missing:
            what = f"has no {{{missing[0]}}}" if missing else f"there is no {{{unknown[0]}}}"
            raise ConfigError.at(self.flag, what, f"there are: {listed}")
        try:
            if not shlex.split(self.written):
                raise ValueError("it is empty")
        except ValueError as error:
            what = f"{self.written!r} is not a command: {error}"
            raise ConfigError.at(self.flag, what, "close its quotes") from None

    def run(self, values: Mapping[str, object]) -> None:
        """Run it with these values; a CheckpointError has the last line of what it said."""
        words = [re.sub(r"\{(\w+)\}", lambda name: str(values[name[1]]), word) for word in shlex.split(self.written)]
        try:
            ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CheckpointError.at(self.flag, f"{words[0]}: {error.strerror}", "check it") from None
        if ended.returncode:
            said = [line for line in f"{ended.stdout}\n{ended.stderr}".splitlines() if line.strip()]
            what = f"{words[0]} ended with exit code {ended.returncode}" + (f": {said[-1].strip()}" if said else "")
            raise CheckpointError.at(self.flag, what)


def convert(command: CommandTemplate, checkpoint: Checkpoint, out: Path) -> Path:
    """A checkpoint in the layout that the backend reads, made by a command of the user."""
    shutil.rmtree(out, ignore_errors=True)  # of a conversion that was interrupted
    out.parent.mkdir(parents=True, exist_ok=True)
    command.run({"checkpoint": checkpoint.path, "out": out})
    if not out.exists():
        raise CheckpointError.at(command.flag, f"the command did not write {out}", "let it write {out}")
    return out
