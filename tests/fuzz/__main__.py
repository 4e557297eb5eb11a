"""Fuzz for some CPU time and list the distinct places where an exception came out.

usage: python -m fuzz [--seconds 60] [--seed 0] [TARGET …]      (in tests/; `make fuzz SECONDS=600` calls it)

The smallest input of each place is written to tests/fuzz/cases/TARGET/…, where `make test` tries it again. Exits with 1 if there is any.
"""

import argparse
import faulthandler
import hashlib
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from fuzz.targets import TARGETS, Files, check

CASES = Path(__file__).parent / "cases"
HANG = 120
"""Seconds after which an input is a hang: its files stay in the folder that is printed, and the process ends."""


def site(error: BaseException) -> str:
    """Where an exception came out of assay: its type, and the last line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/assay/" in frame.filename] or frames
    return f"{type(error).__name__} {ours[-1].filename.rpartition('/assay/')[2]}:{ours[-1].lineno}"


class Fuzzing:
    """The smallest input for each place at which one target failed."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.tried = 0
        self.smallest: dict[str, Files] = {}
        self.last = Path(tempfile.mkdtemp(prefix="fuzz-last-"))

    def one(self, files: Files) -> None:
        self.tried += 1
        write(files, self.last)
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            check(self.target, files)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the places where any comes out are what is looked for
            place = site(error)
            known = self.smallest.get(place)
            if known is None or size(files) < size(known):
                self.smallest[place] = files
        finally:
            faulthandler.cancel_dump_traceback_later()

    def spend(self, seconds: float, seed: int) -> None:
        """Try inputs until so much CPU time is spent."""
        end = time.process_time() + seconds
        while time.process_time() < end:
            batch = given(TARGETS[self.target].inputs())(self.one)
            quiet = settings(
                max_examples=200,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            hypothesis.seed(seed)(quiet(batch))()
            seed += 1


def size(files: Files) -> int:
    return sum(map(len, files.values()))


def write(files: Files, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time for each target")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["ASSAY_CACHE_DIR"] = tempfile.mkdtemp(prefix="fuzz-cache-")
    os.environ["HF_HUB_OFFLINE"] = "1"
    total = 0
    for target in options.targets or TARGETS:
        fuzzing = Fuzzing(target)
        print(f"{target}: hangs leave their input in {fuzzing.last}", file=sys.stderr)
        fuzzing.spend(options.seconds, options.seed)
        print(f"{target}: {fuzzing.tried} inputs, {len(fuzzing.smallest)} places with an exception")
        for place, files in fuzzing.smallest.items():
            name = hashlib.sha256(place.encode()).hexdigest()[:8]
            write(files, CASES / target / name)
            print(f"  {place}  (cases/{target}/{name})")
        total += len(fuzzing.smallest)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
