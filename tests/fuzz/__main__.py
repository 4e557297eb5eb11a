"""Fuzz for some CPU time and list the distinct places where an exception came out, an input hung or a process died.

usage: python -m fuzz [--seconds 60] [--seed 0] [--jobs 1] [--out FOLDER] [TARGET …]      (in tests/; `make fuzz SECONDS=600 JOBS=16` calls it)

A process for each target, `--jobs` of them at once. The smallest input of each place is written to FOLDER/cases/TARGET/…; put there in tests/fuzz/cases it is
tried again by `make test`. FOLDER/fuzz.md is a table. Exits with 1 if there is any finding.
"""

import argparse
import faulthandler
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent.parent / "src")
)  # a checkout will do: nothing needs to be installed but the dependencies
HANG, BUSY = 300, 30
"""Seconds, and seconds of CPU time, after which an input is a hang: that is a finding, and the rest of the time goes to a new process."""
BATCH = 20


class Fuzzing:
    """The smallest input for each place at which one target failed; all of it is in `folder`."""

    def __init__(self, target: str, folder: Path) -> None:
        self.target, self.folder = target, folder
        self.tried = 0
        self.smallest: dict[str, int] = {}

    def one(self, files: Any) -> None:
        from fuzz.targets import check

        self.tried += 1
        write(files, self.folder / "last")
        faulthandler.dump_traceback_later(HANG, exit=True)
        signal.setitimer(signal.ITIMER_PROF, BUSY)
        try:
            check(self.target, files)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the places where any comes out are what is looked for
            self.found(site(error), files, "".join(traceback.format_exception(error)))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()

    def found(self, place: str, files: Any, words: str) -> None:
        size = sum(map(len, files.values()))
        if size < self.smallest.get(place, size + 1):
            self.smallest[place] = size
            record(self.folder, place, files, words)

    def spend(self, seconds: float, seed: int) -> None:
        """Try inputs until so much CPU time is spent."""
        import hypothesis
        from hypothesis import HealthCheck, Phase, given, settings

        from fuzz.targets import TARGETS

        quiet = settings(
            max_examples=BATCH, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )  # fmt: skip
        end = time.process_time() + seconds
        while time.process_time() < end:
            hypothesis.seed(seed)(quiet(given(TARGETS[self.target].inputs())(self.one)))()
            seed += 1
            state = {"tried": self.tried, "cpu": time.process_time(), "seed": seed}
            (self.folder / "state.json").write_text(json.dumps(state))


def site(error: BaseException) -> str:
    """Where an exception came out of assay: its type, and the last line of ours."""
    import assay

    root = str(Path(str(assay.__file__)).parent) + os.sep
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if frame.filename.startswith(root)] or frames)[-1]
    return f"{type(error).__name__} {last.filename.removeprefix(root)}:{last.lineno}"


def record(folder: Path, place: str, files: Any, words: str) -> None:
    case = folder / "cases" / hashlib.sha256(place.encode()).hexdigest()[:8]
    write(files, case / "files")
    (case / "place").write_text(place)
    (case / "traceback").write_text(words, encoding="utf-8", errors="replace")


def write(files: Any, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def work(target: str, folder: Path, seconds: float, seed: int) -> None:
    """What one process does."""
    os.environ["ASSAY_CACHE_DIR"] = str(folder / "cache")
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder / "tmp")
    faulthandler.register(signal.SIGPROF, chain=True)  # prints where it is, and dies of it
    Fuzzing(target, folder).spend(seconds, seed)


def supervised(target: str, folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Fuzz a target in processes of its own until its time is spent: one that hangs or dies is a finding, and another begins."""
    tried, spent = 0, 0.0
    while spent < seconds:
        shutil.rmtree(folder / "tmp", ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        (folder / "state.json").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "fuzz",
            "--work",
            str(folder),
            "--seconds",
            str(seconds - spent),
            "--seed",
            str(seed),
            target,
        ]
        with (folder / "stderr").open("wb") as errors:
            code = subprocess.run(command, cwd=HERE.parent, stderr=errors, check=False).returncode
        state = json.loads((folder / "state.json").read_text()) if (folder / "state.json").exists() else {}
        tried, spent, seed = (
            tried + state.get("tried", 0),
            spent + state.get("cpu", 0.0),
            state.get("seed", seed) + 1000,
        )
        if code == 0:
            break
        spent += 5.0  # what came after the last whole batch is not counted
        words = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
        last = folder / "last"
        files = {str(path.relative_to(last)): path.read_bytes() for path in last.rglob("*") if path.is_file()}
        record(
            folder,
            f"{'hangs' if 'Timeout' in words or code == -signal.SIGPROF else f'dies with {code}'}: {_innermost(words)}",
            files,
            words,
        )
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    places = sorted((case.parent.name, case.read_text()) for case in folder.glob("cases/*/place"))
    return {"target": target, "tried": tried, "cpu": spent, "places": places}


def _innermost(words: str) -> str:
    """The innermost line of ours in what faulthandler writes."""
    ours = [line.strip() for line in words.splitlines() if "/assay/" in line and "/tests/" not in line]
    return ours[0] if ours else words[-200:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="targets at once")
    parser.add_argument("--out", type=Path, help="folder for findings and the table (default: a new one)")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.targets[0], options.work.resolve(), options.seconds, options.seed)
        return 0
    from fuzz.targets import TARGETS

    out = (options.out or Path(tempfile.mkdtemp(prefix="fuzz-"))).resolve()
    names = options.targets or list(TARGETS)
    with ThreadPoolExecutor(options.jobs) as pool:
        told = list(pool.map(lambda name: supervised(name, out / name, options.seconds, options.seed), names))
    rows = [f"| {each['target']} | {each['tried']} | {each['cpu']:.0f} | {len(each['places'])} |" for each in told]
    table = "\n".join(
        ["| target | inputs | CPU seconds | distinct places with a finding |", "|---|---|---|---|", *rows]
    )
    (out / "fuzz.md").write_text(table + "\n")
    print(table)
    for each in told:
        for case, place in each["places"]:
            print(f"{each['target']}: {place}  ({out / each['target'] / 'cases' / case})")
    return 1 if any(each["places"] for each in told) else 0


if __name__ == "__main__":
    sys.exit(main())
