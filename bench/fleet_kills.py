"""Kills nodes, replicas and drivers of a fleet at random moments, lets nodes join, and compares each run with one of one process.

python -m bench.fleet_kills [--rounds 20] [--seed 1] [--kind node replica storm driver head join]

A lost answer is a key of the undisturbed run that the journal has not; a doubled one is there twice. What was in flight on a
replica that died is asked again: that is counted, too, by the model itself. Exits with 1 if a run is not byte-equal.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.outcome import leftovers, outcome, without_settings

from bench.ray_nodes import RayNodes

ROOT = Path(__file__).parent.parent
SUMS, CHOICES = 240, 120
REQUESTS = SUMS + 3 * CHOICES
SECONDS = 0.012
"""How long the model takes for a request; it answers one at a time."""
LONGEST = 120.0
"""Seconds after which a command hangs."""
MODEL = """
import hashlib
import os
import time

import assay
from assay.models import Scripted


def note(text):
    with open(os.environ["ASKED"], "ab", buffering=0) as file:
        file.write(f"{os.getpid()} {hashlib.sha256(text.encode()).hexdigest()}\\n".encode())
    with open(os.environ["ASKED"] + ".pace") as file:
        time.sleep(float(file.read()))
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


@assay.model("counted")
def counted():
    def generate(prompt, params, repeat):
        return f" {note(prompt) % 7}"

    def loglikelihood(context, continuation):
        return -(note(context + continuation) % 1000) / 100, False

    return Scripted(generate=generate, loglikelihood=loglikelihood, identity="counted 1")
"""
TASKS = {
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
    "choices.yaml": """
task: choices
dataset_path: json
dataset_kwargs: {data_files: {test: choices.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "Thing {{n}} is"
doc_to_choice: [green, red, blue]
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "counted.py": MODEL,
    "sums.jsonl": "".join(json.dumps({"q": f"{n}+{n % 9}", "a": str(n % 7)}) + "\n" for n in range(SUMS)),
    "choices.jsonl": "".join(json.dumps({"n": n, "gold": n % 3}) + "\n" for n in range(CHOICES)),
}


@dataclass
class Round:
    """What came of one disturbed run."""

    kind: str
    at: float
    """The share of the requests that the model had been asked; below 0, seconds before the first."""
    struck: bool = False
    """Whether the run was at work when it was struck."""
    problems: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    again: int = 0
    """Requests that the model was asked more than once."""
    seconds: float = 0.0


class FleetWorld:
    """A folder with tasks, a model that notes what it is asked, and a cluster. Runs are always in the same place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.asked = folder, folder / "work/run", folder / "asked"
        (folder / "work/tasks").mkdir(parents=True)
        (folder / "tmp").mkdir()
        for name, text in TASKS.items():
            (folder / "work/tasks" / name).write_text(text)
        paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.variables = {
            "ASKED": str(self.asked), "PYTHONPATH": paths, "ASSAY_CACHE_DIR": str(folder / "cache"), "HF_HUB_OFFLINE": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        self.expected: dict[str, bytes] = {}
        self.keys: set[str] = set()

    def start(self, nodes: RayNodes | None = None, replicas: object = 4) -> "subprocess.Popen[bytes]":
        """A run; with nodes, a run of a fleet on them."""
        command = ["run", "--model", "counted", "--plugin", "tasks/counted.py", "--tasks", "sums", "choices",
                   "--include_path", "tasks", "--no_defaults", "--log_samples", "-o", "run"]  # fmt: skip
        environment: Mapping[str, str] = {**os.environ, **self.variables}
        if nodes is not None:
            command += ["--replicas", str(replicas), "--ray", nodes.address]
            environment = nodes.environment
        with (self.folder / "said").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "assay", *command], cwd=self.folder / "work", stdin=subprocess.DEVNULL, stdout=said,
                stderr=said, env={**environment, "TMPDIR": str(self.folder / "tmp")},
            )  # fmt: skip

    def fresh(self, seconds: float = SECONDS) -> None:
        """Forget the last run; the model takes so many seconds for a request of the next."""
        self.set_pace(seconds)
        shutil.rmtree(self.run, ignore_errors=True)
        self.asked.write_bytes(b"")

    def set_pace(self, seconds: float) -> None:
        new = self.folder / "pace"
        new.write_text(str(seconds))
        new.replace(f"{self.asked}.pace")

    def undisturbed(self) -> None:
        """Run once in one process: the run that all others must be equal to."""
        self.fresh()
        code = ended(self.start())
        if code != 0:
            raise RuntimeError(f"the undisturbed run ends with {code}: {self.said()}")
        self.expected, self.keys = compared_run(self.folder / "work"), {*journaled(self.run)}
        if len(self.keys) != REQUESTS or self.counts().total() != REQUESTS:
            raise RuntimeError(f"{len(self.keys)} of {REQUESTS} are journaled, {self.counts().total()} were asked")

    def said(self) -> str:
        return (self.folder / "said").read_text(errors="replace")[-3000:]

    def counts(self) -> Counter[str]:
        """How often the model was asked each request."""
        return Counter(line.split()[1] for line in self._asked() if len(line.split()) == 2)

    def askers(self) -> Counter[int]:
        """How many requests each process was asked."""
        return Counter(int(line.split()[0]) for line in self._asked())

    def _asked(self) -> list[str]:
        return self.asked.read_text().splitlines()

    def judge(self, round_: Round, code: int) -> None:
        """Compare a run that has ended with the undisturbed one."""
        times, counts = journaled(self.run), self.counts()
        round_.lost = len(self.keys - times.keys())
        round_.doubled = sum(count - 1 for count in times.values())
        round_.again = sum(count - 1 for count in counts.values())
        if code != 0:
            round_.problems.append(f"exit code {code}: {self.said()}")
        if len(counts) != REQUESTS:
            round_.problems.append(f"{len(counts)} of {REQUESTS} requests were asked")
        now = compared_run(self.folder / "work")
        differing = sorted(name for name in {*now, *self.expected} if now.get(name) != self.expected.get(name))
        round_.problems += [f"{name} differs" for name in differing]
        round_.problems += [f"left over: {each}" for each in leftovers(self.folder / "work", self.folder / "tmp")]
        if "Traceback" in self.said():
            round_.problems.append(f"a traceback: {self.said()}")


def compared_run(work: Path) -> dict[str, bytes]:
    """Every file of the run, but for times and for the settings of the fleet."""
    return without_settings({name: content for name, content in outcome(work).items() if name.startswith("run/")})


def journaled(run: Path) -> Counter[str]:
    """How often each key is in the journal of a run."""
    path = run / "responses.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[1:] if path.is_file() else []
    return Counter(each["k"] for line in lines if line.endswith(b"\n") and "k" in (each := json.loads(line)))


def ended(process: "subprocess.Popen[bytes]") -> int:
    """The exit code of a command; one that hangs is ended."""
    try:
        return process.wait(LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -1000


def await_moment(world: FleetWorld, process: "subprocess.Popen[bytes]", at: float) -> bool:
    """Wait until a share of the requests was asked, or for seconds where it is below 0; whether the run is at work then."""
    end = time.monotonic() + (-at if at < 0 else LONGEST)
    while process.poll() is None and time.monotonic() < end and (at < 0 or _size(world.asked) < at * REQUESTS * LINE):
        time.sleep(0.002)
    return process.poll() is None


LINE = 71
"""Bytes of a line about a request, with a process id of five digits."""


def _size(path: Path) -> int:
    return path.stat().st_size


# ---- the kinds of rounds


def node_round(world: FleetWorld, nodes: RayNodes, draw: random.Random, round_: Round) -> None:
    """One of the two nodes is killed; the run continues on the other. A new one joins while it does, half of the times."""
    process = world.start(nodes)
    round_.struck = await_moment(world, process, round_.at)
    nodes.kill(nodes.nodes[-1])
    if joins := draw.random() < 0.5:
        nodes.begin()
    world.judge(round_, ended(process))
    if not joins:
        nodes.add()


def replica_round(world: FleetWorld, nodes: RayNodes, draw: random.Random, round_: Round) -> None:
    """One replica is killed, on either node."""
    process = world.start(nodes)
    await_moment(world, process, round_.at)
    while not (living := nodes.replicas()) and process.poll() is None:
        time.sleep(0.01)
    if living:
        os.kill(draw.choice(living), signal.SIGKILL)
        round_.struck = process.poll() is None
    world.judge(round_, ended(process))


def storm_round(world: FleetWorld, nodes: RayNodes, draw: random.Random, round_: Round) -> None:
    """Replicas and nodes are killed again and again in one run, a few requests apart: what died with one dies with the next."""
    process = world.start(nodes)
    for number in range(STORM):
        if not await_moment(world, process, round_.at + number * draw.uniform(0.01, 0.06)):
            break
        if draw.random() < 0.2:
            nodes.kill(nodes.nodes[-1])
            nodes.begin()
        elif living := nodes.replicas():
            os.kill(draw.choice(living), signal.SIGKILL)
        round_.struck = True
    world.judge(round_, ended(process))
    nodes.kill(nodes.nodes[-1])
    nodes.add()


def driver_round(world: FleetWorld, nodes: RayNodes, draw: random.Random, round_: Round) -> None:
    """The driver is killed, and the run resumed: with the fleet, or in one process. No replica outlives its driver for long."""
    process = world.start(nodes)
    round_.struck = await_moment(world, process, round_.at)
    process.kill()
    process.wait()
    known, asked = {*journaled(world.run)}, len(world.counts())
    end = time.monotonic() + 15
    while (living := nodes.replicas()) and time.monotonic() < end:
        time.sleep(0.1)
    if living:
        round_.problems.append(f"{len(living)} replicas outlive their driver")
    before = world.counts()
    world.judge(round_, ended(world.start(*([nodes] if draw.random() < 0.7 else []))))
    resumed = (world.counts() - before).total()
    if resumed != REQUESTS - len(known):
        round_.problems.append(f"resumed with {len(known)} of {REQUESTS} known ({asked} asked), and asked {resumed}")


def head_round(world: FleetWorld, nodes: RayNodes, _: random.Random, round_: Round) -> None:
    """The head node is killed, and the cluster with it: the run ends and says so, and is resumed on another cluster."""
    process = world.start(nodes)
    round_.struck = await_moment(world, process, round_.at)
    nodes.close()
    code = ended(process)
    if round_.struck and code in (0, -1000):
        round_.problems.append(f"exit code {code} after the cluster was lost: {world.said()}")
    if "Traceback" in world.said():
        round_.problems.append(f"a traceback when the cluster was lost: {world.said()}")
    with RayNodes(variables=world.variables) as others:
        world.judge(round_, ended(world.start(others)))


def join_round(world: FleetWorld, nodes: RayNodes, _: random.Random, round_: Round) -> None:
    """A node joins in mid-run, and gets replicas that are asked."""
    nodes.kill(nodes.nodes[-1])
    world.fresh(20 * SECONDS)  # until the node is there
    process = world.start(nodes, replicas="auto")
    round_.struck = await_moment(world, process, round_.at)
    node = nodes.begin(4)
    joined: set[int] = set()
    end = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < end:
        joined.update(node.replicas())
        if joined & world.askers().keys():
            world.set_pace(SECONDS)
        time.sleep(0.05)
    world.judge(round_, ended(process))
    if not joined & world.askers().keys():
        round_.problems.append("the node that joined was not asked")
    nodes.kill(node)
    nodes.add()


KINDS: Mapping[str, tuple[Callable[[FleetWorld, RayNodes, random.Random, Round], None], float]] = {
    "node": (node_round, 1.0), "replica": (replica_round, 1.0), "storm": (storm_round, 0.2),
    "driver": (driver_round, 0.5), "head": (head_round, 0.1),
    "join": (join_round, 0.15),
}  # fmt: skip
"""How each kind is done, and how many rounds of it for each of `--rounds`."""
JOIN_AT, STORM = 0.05, 6


def played(kinds: Sequence[str], rounds: int, seed: int, folder: Path, show: Callable[[Round], None]) -> list[Round]:
    """Play rounds of the kinds, on one cluster as long as it lives."""
    world = FleetWorld(folder)
    world.undisturbed()
    done: list[Round] = []
    nodes = RayNodes(variables=world.variables)
    try:
        nodes.__enter__()
        for kind in kinds:
            play, share = KINDS[kind]
            for number in range(max(1, round(rounds * share))):
                if not nodes.nodes:
                    nodes = RayNodes(variables=world.variables).__enter__()
                draw = random.Random(f"{seed} {kind} {number}")
                at = JOIN_AT if kind in ("join", "storm") else draw.uniform(-0.15, 0.95)
                round_ = Round(kind, at if at > 0 else at * 20)
                world.fresh()
                begun = time.monotonic()
                play(world, nodes, draw, round_)
                round_.seconds = time.monotonic() - begun
                done.append(round_)
                show(round_)
    finally:
        nodes.close()
    return done


def table(rounds: Sequence[Round]) -> str:
    rows = ["| kill | rounds | struck at work | lost | doubled | byte-equal | asked again, at most |", "|---" * 7 + "|"]
    for kind in dict.fromkeys(each.kind for each in rounds):
        mine = [each for each in rounds if each.kind == kind]
        struck, lost, doubled = (sum(getattr(each, name) for each in mine) for name in ("struck", "lost", "doubled"))
        equal, again = sum(not each.problems for each in mine), max(each.again for each in mine)
        rows.append(f"| {kind} | {len(mine)} | {struck} | {lost} | {doubled} | {equal} | {again} |")
    return "\n".join(rows)


def show(round_: Round) -> None:
    when = f"after {-round_.at:.1f} s" if round_.at < 0 else f"at {round_.at:.2f}"
    state = "; ".join(round_.problems) or "byte-equal"
    print(f"{round_.kind:8}{when:14}asked again {round_.again:3}  {round_.seconds:5.1f} s  {state}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fleet-kills-"))
    try:
        rounds = played(options.kind, options.rounds, options.seed, folder, show)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rounds))
    return 1 if any(each.problems or each.lost or each.doubled for each in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
