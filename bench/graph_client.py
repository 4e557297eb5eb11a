"""One client on one server, for `bench.graphs`: prints records, CPU seconds and memory as JSON.

usage: python -m bench.graph_client loop|assay|three_nodes WORLD [URL] [--limit N] [--out DIR]

The CPU is that of the whole process, imports included: `bench.graphs` takes the difference of two runs, so that only what
every record costs is left. `loop` is what one would write by hand for the same work: it reads the records, asks the server
with aiohttp, parses the structured answer, compares it, and writes each record with its verdict and the accuracy of all. It
cannot be resumed, and keeps neither requests nor usage. `three_nodes` walks a graph of three nodes that do nothing.
"""

import argparse
import asyncio
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

CONCURRENCY = 25


def run_loop(options: argparse.Namespace) -> int:
    import aiohttp

    out = Path(options.out)
    out.mkdir(parents=True)
    right = asked = 0

    async def worker(session: Any, left: Any, output: Any) -> None:
        nonlocal right, asked
        for line in left:
            record = json.loads(line)
            body = json.dumps(body_of(record)).encode()
            async with session.post(f"{options.url}/chat/completions", data=body) as answer:
                said = json.loads(await answer.read())["choices"][0]["message"]["content"]
            record["predicted_answer"] = json.loads(said)["predicted_answer"]
            record["correct"] = _compared(record["predicted_answer"]) == _compared(record["answer"])
            output.write(json.dumps(record) + "\n")
            asked, right = asked + 1, right + record["correct"]

    async def work() -> None:
        headers = {"Content-Type": "application/json"}
        with Path(options.world, "records.jsonl").open() as records, (out / "output.jsonl").open("w") as output:
            left = islice(records, options.limit)
            async with aiohttp.ClientSession(headers=headers) as session:
                await asyncio.gather(*(worker(session, left, output) for _ in range(CONCURRENCY)))

    asyncio.run(work())
    (out / "report.json").write_text(json.dumps({"accuracy": right / asked}))
    return asked


def _compared(text: str) -> str:
    return " ".join(text.split()).lower()


SCHEMA = {
    "type": "object",
    "properties": {"predicted_answer": {"type": "string", "description": "What the model takes for the answer"}},
    "required": ["predicted_answer"],
    "additionalProperties": False,
}
PARAMETERS = {
    "temperature": 0.1,
    "max_tokens": 2048,
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
}


def body_of(record: dict[str, Any]) -> dict[str, Any]:
    """The request of the graph about a record."""
    messages = [
        {"role": "system", "content": "You answer questions.\n"},
        {"role": "user", "content": record["problem"] + "\n"},
    ]
    return {"model": "stub", "messages": messages, **PARAMETERS}


def run_assay(options: argparse.Namespace) -> int:
    from assay.evaluation.flow import execute, prepare_run
    from assay.evaluation.options import run_config, task_manager

    model_args = {"model": "stub", "base_url": options.url, "num_concurrent": CONCURRENCY}
    asks = {"model": "openai-chat", "model_args": model_args} if options.url else {}
    arguments = {"tasks": [options.world], "limit": options.limit, "output_path": options.out, **asks}
    config = run_config(arguments)
    prepared = prepare_run(config, task_manager(config))
    [account] = execute(prepared).results.tasks.values()
    return account.documents


def run_three_nodes(options: argparse.Namespace) -> int:
    from assay.graphs.nodes import LambdaNode
    from assay.graphs.walk import Graph

    nodes = {name: LambdaNode(name, lambda _, state: state, {}) for name in "abc"}
    ways = {"a": ["b"], "b": ["c"], "c": ["END"], "START": ["a"]}
    graph = Graph(nodes, ways)
    for number in range(options.limit):
        for _ in graph.plan({"number": number}, "x"):
            raise AssertionError("it sends no requests")
    return int(options.limit)


RUNS = {"loop": run_loop, "assay": run_assay, "three_nodes": run_three_nodes}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=RUNS)
    parser.add_argument("world")
    parser.add_argument("url", nargs="?")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out")
    options = parser.parse_args()
    done = RUNS[options.client](options)
    from bench.measure import peak_memory

    print(json.dumps({"records": done, "cpu_s": time.process_time(), "mb": peak_memory()}))


if __name__ == "__main__":
    main()
