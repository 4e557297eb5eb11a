"""Kills agent runs, and counts calls of their tool, which may not be made twice.

First one run of 150 records with three calls each is killed 20 times, and completed with each --resume_calls. Then 20 runs of 300
records are killed once, after 7, 22, … 292 calls, resumed and repeated.

python -m bench.agent_kills [KILLS]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.runs.run import Run
from bench.measure import serving

RECORDS, KILLS = 300, 20
MANY_KILLS_RECORDS, CALLS_EACH = 150, 3
FEW = 1
"""Requests at once in a run that is killed often: with more, fewer kills would leave nothing to kill."""
CHOICES = ("fail", "skip", "retry")
SERVER = Path(__file__).parent.parent / "tests/talking_server.py"
REASON = "begun and not finished"
TOOL = """
import json
import os
import time


def refund(order: str) -> str:
    with open(os.environ["REFUNDS"], "a") as file:
        file.write(order + "\\n")
    time.sleep(0.005)
    number, _, left = order.partition("x")
    if left:
        return json.dumps({"calls": [["refund", {"order": number + "x" * len(left)}]]})
    return json.dumps({"say": "refunded " + order})
"""
GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    agent:
      node_type: agent
      prompt: [{user: "{q}"}]
      output_keys: said
      tools: [shop.refund]
      model: {name: m}
  edges: [{from: START, to: agent}, {from: agent, to: END}]
output_config: {output_map: {order: {from: order}, said: {from: said}}}
"""


class Kill(NamedTuple):
    """A run that was killed, resumed and run again: tool calls, orders that were called twice, records whose call was cut
    off, and whether the others are equal to those of an undisturbed run."""

    calls: int
    doubled: int
    cut: int
    is_equal: bool


class ManyKills(NamedTuple):
    """A run that was killed again and again: kills, tool calls that were made twice, and records that failed for good."""

    kills: int
    doubled: int
    lost: int


def write_world(folder: Path, records: int = RECORDS, calls: int = 1) -> None:
    """The graph and its records; an order with an `x` behind it is refunded once more for each."""
    folder.mkdir(parents=True)
    (folder / "shop.py").write_text(TOOL)
    (folder / "graph_config.yaml").write_text(GRAPH)
    orders = [f"A{number}{'x' * (calls - 1)}" for number in range(records)]
    lines = [{"order": order, "q": json.dumps({"calls": [["refund", {"order": order}]]})} for order in orders]
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def start(world: Path, output: Path, url: str, *more: str, at_once: int = 32) -> "subprocess.Popen[bytes]":
    model = f"model=m,base_url={url},num_concurrent={at_once}"
    arguments = ["--tasks", str(world), "--model", "openai-chat", "--model_args", model]
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "run", *arguments, "--output_path", str(output), *more],
        env={**os.environ, "REFUNDS": str(output.with_suffix(".calls"))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def outputs(output: Path) -> dict[str, bytes]:
    """The lines of the records by order."""
    [file] = output.glob("output_*.json")
    return {record["order"]: json.dumps(record).encode() for record in json.loads(file.read_text())}


def calls(output: Path) -> Counter[str]:
    path = output.with_suffix(".calls")
    return Counter(path.read_text().split() if path.exists() else ())


def killed(world: Path, whole: Path, output: Path, url: str, count: int) -> Kill:
    """Kill a run after so many tool calls."""
    process = start(world, output, url)
    while calls(output).total() < count and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.wait()
    start(world, output, url).wait()
    start(world, output, url).wait()
    results = lm_eval_layout(Run.open(output).results)
    [account] = results["assay"]["tasks"].values()
    cut = sum(count for reason, count in account.get("reasons", {}).items() if REASON in reason)
    expected, resumed = outputs(whole), outputs(output)
    missing = expected.keys() - resumed.keys()
    is_equal = all(expected[order] == line for order, line in resumed.items()) and len(missing) == cut
    if not cut:
        is_equal &= next(output.glob("output_*")).read_bytes() == next(whole.glob("output_*")).read_bytes()
    counted = calls(output)
    return Kill(counted.total(), sum(count - 1 for count in counted.values()), cut, is_equal)


def killed_often(world: Path, output: Path, url: str, kills: int, choice: str) -> ManyKills:
    """Kill one run again and again, each time after some tool calls, resume it with few records at a time, and complete it."""
    count, step, options = 0, MANY_KILLS_RECORDS * CALLS_EACH // (2 * kills), ("--resume_calls", choice)
    for _ in range(kills):
        before = calls(output).total()
        process = start(world, output, url, *options, at_once=FEW)
        while calls(output).total() < before + step and process.poll() is None:
            time.sleep(0.001)
        count += process.poll() is None
        process.kill()
        process.wait()
    start(world, output, url, *options).wait()
    results = lm_eval_layout(Run.open(output).results)
    [account] = results["assay"]["tasks"].values()
    return ManyKills(count, sum(count - 1 for count in calls(output).values()), account["failed"])


def many_kills(kills: int = KILLS) -> dict[str, ManyKills]:
    """Calls made twice and records lost, by what --resume_calls says."""
    with tempfile.TemporaryDirectory() as folder, serving(SERVER) as url:
        world = Path(folder) / "world"
        write_world(world, MANY_KILLS_RECORDS, CALLS_EACH)
        return {choice: killed_often(world, Path(folder) / choice, url, kills, choice) for choice in CHOICES}


def main(kills: int = KILLS, records: int = RECORDS) -> list[Kill]:
    with tempfile.TemporaryDirectory() as folder, serving(SERVER) as url:
        world, whole = Path(folder) / "world", Path(folder) / "whole"
        write_world(world, records)
        start(world, whole, url).wait()
        counts = [int(records * (number + 0.5) / kills) for number in range(kills)]
        return [killed(world, whole, Path(folder) / str(n), url, count) for n, count in enumerate(counts)]


if __name__ == "__main__":
    rows = many_kills(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS)
    done = rows["skip"]
    print(
        f"{done.kills} kills over {MANY_KILLS_RECORDS} records with non-idempotent tools:"
        f" calls twice {done.doubled} / records that cannot be completed {done.lost} (--resume_calls skip)"
    )
    for choice in ("fail", "retry"):
        row = rows[choice]
        print(f"--resume_calls {choice}: {row.kills} kills, calls twice {row.doubled}, records failed {row.lost}")
    outcomes = main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS)
    print(
        f"tool calls of {RECORDS} records after kill, resume and rerun: at most {max(each.calls for each in outcomes)}"
    )
    print(
        f"calls made twice: {sum(each.doubled for each in outcomes)}; records cut off: {sum(each.cut for each in outcomes)}"
    )
    print(
        f"all other records byte for byte as without a kill: {sum(each.is_equal for each in outcomes)} of {len(outcomes)}"
    )
