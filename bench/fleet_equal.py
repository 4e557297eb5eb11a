"""Runs the bundled benchmark and a graph with a judge in one process and on a fleet, and names every byte in which they differ.

python -m bench.fleet_equal [--limit N]

Four replicas on two Ray nodes. Times are left out, and of results.json and manifest.json the settings of the fleet; the
lines of journals may be in any order.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.fleet_kills import ROOT, compared_run, journaled
from bench.ray_nodes import RayNodes

RECORDS = 48
GRAPH = """
task: capitals
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    hint:
      node_type: llm
      prompt: [{user: "hint {country}"}]
      output_keys: hint
      model: {name: m}
    answer:
      node_type: llm
      prompt: [{user: "{country} {hint}"}]
      output_keys: predicted
      model: {name: m}
    measure:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: capital
      predicted_key: predicted
      unit_metrics_map: [{name: exact_match}, {name: llm_judge, params: {role: judge, question: country, threshold: 0.5}}]
  edges: [{from: START, to: hint}, {from: hint, to: answer}, {from: answer, to: measure}, {from: measure, to: END}]
output_config:
  output_map:
    country: {from: country}
    predicted: {from: predicted}
    exact_match_result: {from: exact_match_result}
    llm_judge_result: {from: llm_judge_result}
graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params:
      aggregator_metrics_map: [{name: accuracy, params: {key: text}, unit_metrics_results: [exact_match_result]}]
"""
MODELS = """
import hashlib
import json
import os
import re

import assay
from assay.models import Scripted

FENCED = re.compile(r"<<<answer ([0-9a-f]{32})>>>")


def note(name):
    with open("askers", "a") as file:
        file.write(f"{name} {os.getpid()}\\n")


def rendered(messages, add_generation_prompt):
    return "\\n".join(f"{each['role']}: {each['content']}" for each in messages)


@assay.model("speaker")
def speaker():
    def generate(prompt, params, repeat):
        note("speaker")
        return "the capital " + hashlib.sha256(prompt.encode()).hexdigest()[0]

    return Scripted(generate=generate, chat_template=rendered, identity="speaker 1")


@assay.model("verdicts")
def verdicts():
    def generate(prompt, params, repeat):
        note("verdicts")
        mark = FENCED.search(prompt)[1]
        return json.dumps({"id": mark, "reason": "so", "score": 1 + int(mark[:4], 16) % 10})

    return Scripted(generate=generate, chat_template=rendered, identity="verdicts 1")
"""
CAPITAL = "the capital 5"
"""What every record wants: the model says it one time in sixteen."""


def write_graph(work: Path) -> None:
    (work / "graph").mkdir(parents=True)
    (work / "graph/capitals.yaml").write_text(GRAPH)
    (work / "graph/models.py").write_text(MODELS)
    rows = [{"country": f"country {n}", "capital": CAPITAL} for n in range(RECORDS)]
    (work / "graph/records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


BUNDLED = ("--tasks", "first_steps")
GRAPH_RUN = ("--tasks", "graph/capitals.yaml", "--model", "speaker", "--plugin", "graph/models.py")
JUDGED = (*GRAPH_RUN, "--model_role", "judge=verdicts")
BOTH = ("--replicas", "2", "--model_role", "judge=verdicts,replicas=2")
"""The model and the judge of the graph have two replicas each."""


class Pairs:
    """Commands that are run twice in the same folder: in one process, and on a fleet."""

    def __init__(self, work: Path, nodes: RayNodes) -> None:
        self.work, self.nodes = work, nodes
        write_graph(work)

    def run(self, *options: str) -> dict[str, bytes]:
        """The files of a run; its journal's keys are each there once."""
        shutil.rmtree(self.work / "run", ignore_errors=True)
        command = [sys.executable, "-m", "assay", "run", *options, "--log_samples", "-o", "run"]
        done = subprocess.run(
            command, cwd=self.work, env=self.nodes.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(options)} ends with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
            )
        doubled = [key for key, times in journaled(self.work / "run").items() if times > 1]
        if doubled:
            raise RuntimeError(f"{len(doubled)} answers are in the journal twice")
        return compared_run(self.work)

    def differing(
        self, options: Sequence[str], spread_options: Sequence[str] = (), fleet: Sequence[str] = ("--replicas", "4")
    ) -> list[str]:
        """The files that differ; `responses` is how many answers are in the journal. `spread_options` replace the options
        of the fleet's run."""
        alone = self.run(*options)
        (self.work / "askers").unlink(missing_ok=True)
        spread = self.run(*(spread_options or options), *fleet, "--ray", self.nodes.address)
        self.responses = len(journaled(self.work / "run"))
        return sorted(name for name in {*alone, *spread} if alone.get(name) != spread.get(name))

    responses = 0

    @property
    def askers(self) -> dict[str, set[int]]:
        """The processes that answered in the fleet's run of the graph, by the name of the model."""
        lines = [line.split() for line in (self.work / "askers").read_text().splitlines()]
        return {name: {int(process) for each, process in lines if each == name} for name, _ in lines}


def variables() -> Mapping[str, str]:
    """The environment of nodes and commands: assay as it is here."""
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int)
    limit = parser.parse_args().limit
    failed = False
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-equal-")))
        pairs = Pairs(work, stack.enter_context(RayNodes(variables=variables())))
        limited = ("--limit", str(limit)) if limit else ()
        cases: dict[str, tuple[Sequence[str], ...]] = {
            "bundled benchmark": ((*BUNDLED, *limited),),
            "graph with a judge": ((*JUDGED, *limited),),
            "graph with a judge of two replicas": ((*JUDGED, *limited), (*GRAPH_RUN, *limited), BOTH),
        }
        for name, case in cases.items():
            begun = time.monotonic()
            differing = pairs.differing(*case)
            failed |= bool(differing)
            state = ", ".join(differing) or "all files byte-equal, journals equal as sets"
            print(f"{name}: {pairs.responses} answers, {time.monotonic() - begun:.0f} s for both: {state}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
