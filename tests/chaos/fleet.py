"""Histories of runs that a fleet of replicas answers: what disturbs the others, and replicas and nodes that are killed."""

import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from textwrap import dedent

from bench.ray_nodes import RayNodes

from chaos.worlds import Command, Kind

MODEL = """
    import json
    import urllib.request

    import assay
    from assay.models import Scripted


    @assay.model("asking")
    def asking(*, url):
        def ask(**body):
            data = json.dumps({"model": "m", **body}).encode()
            request = urllib.request.Request(url + "/completions", data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["choices"][0]

        def generate(prompt, params, repeat):
            return ask(prompt=prompt)["text"]

        def loglikelihood(context, continuation):
            logprobs = ask(prompt=context + continuation, echo=True)["logprobs"]
            return sum(chance for chance, at in zip(logprobs["token_logprobs"], logprobs["text_offset"]) if at >= len(context)), False

        return Scripted(generate=generate, loglikelihood=loglikelihood, identity="asking 1")
"""
REPLICAS = 4
STRIKES = ("replica", "node")
"""Disturbances of the cluster: the command goes on."""


def write_model(world: Path, done: Path) -> None:
    (world / "tasks/asking.py").write_text(dedent(MODEL).lstrip("\n"))


FLEET: Mapping[str, Kind] = {
    "fleet": Kind(
        lambda url: [("run", "--model", "asking", "--model_args", f"url={url}", "--plugin", "tasks/asking.py", "--tasks", "both",
                      "--include_path", "tasks", "--no_defaults", "--log_samples", "-o", "run")],
        write_model, fleet=True,
    ),
    "fleet local": Kind(
        lambda _: [("run", "--tasks", "first_steps_larger", "first_steps_stories", "first_steps_sums", "--log_samples", "-o", "run")],
        fleet=True,
    ),
}  # fmt: skip


class Machines:
    """Two nodes for the commands of a chaos, started when the first one needs them."""

    def __init__(self, stack: ExitStack, variables: Mapping[str, str]) -> None:
        self._stack, self._variables = stack, variables
        self._nodes: RayNodes | None = None

    @property
    def nodes(self) -> RayNodes:
        if self._nodes is None:
            self._nodes = self._stack.enter_context(RayNodes(variables=self._variables))
        return self._nodes

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables with which a command joins the cluster."""
        names = ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
        return {name: self._nodes.environment[name] for name in names} if self._nodes is not None else {}

    def spread(self, command: Command) -> Command:
        return (*command, "--replicas", str(REPLICAS), "--ray", self.nodes.address)

    def strike(self, how: str, draw: random.Random) -> None:
        """Kill a replica, or the node that is not the head: another one joins."""
        if how == "node":
            self.nodes.kill(self.nodes.nodes[-1])
            self.nodes.begin()
        elif living := self.nodes.replicas():
            with suppress(ProcessLookupError):
                os.kill(draw.choice(living), signal.SIGKILL)

    def outlive(self, seconds: float = 15.0) -> list[int]:
        """The replicas that do not end after their command has."""
        end = time.monotonic() + seconds
        while (living := self._nodes.replicas() if self._nodes is not None else []) and time.monotonic() < end:
            time.sleep(0.05)
        return living
