"""One client on one server, for `bench.graphs`: prints records, CPU a record and memory as JSON.

usage: python -m bench.graph_client bare|assay|three_nodes|aggregated WORLD [URL] [--limit N] [--out DIR]

`bare` posts the bodies that the graph would, in a loop of aiohttp's, and reads the structured answers: what no client can
beat by far. `three_nodes` walks a graph of three nodes that do nothing; `aggregated` runs one without a model.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

CONCURRENCY = 25
start = cpu = 0.0


def start_clock() -> None:
    global start, cpu
    start, cpu = time.perf_counter(), time.process_time()


def run_bare(options: argparse.Namespace) -> int:
    import aiohttp

    records = [json.loads(line) for line in Path(options.world, "records.jsonl").read_text().splitlines()][
        : options.limit
    ]
    bodies = [json.dumps(body_of(record)).encode() for record in records]
    done = []

    async def worker(session: Any, left: Any) -> None:
        for number, body in left:
            async with session.post(f"{options.url}/chat/completions", data=body) as answer:
                said = json.loads(await answer.read())["choices"][0]["message"]["content"]
            done.append(json.loads(said)["predicted_answer"].strip().lower() == records[number]["answer"].lower())

    async def work() -> None:
        left = iter(enumerate(bodies))
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(headers=headers) as session:
            await asyncio.gather(*(worker(session, left) for _ in range(CONCURRENCY)))

    start_clock()
    asyncio.run(work())
    return len(done)


def body_of(record: dict[str, Any]) -> dict[str, Any]:
    """What the graph asks about a record."""
    schema = {
        "type": "object",
        "properties": {"predicted_answer": {"type": "string"}},
        "required": ["predicted_answer"],
    }
    response_format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": record["problem"] + "\n"}]
    return {
        "model": "stub",
        "messages": messages,
        "temperature": 0.1,
        "max_tokens": 2048,
        "response_format": response_format,
    }


def run_assay(options: argparse.Namespace) -> int:
    """The graph is bound before the clock starts, as the bare loop's bodies are made; all else is not."""
    import aiohttp  # noqa: F401
    import pyarrow.parquet  # noqa: F401  # imports are not measured

    from assay.evaluation.flow import execute, prepare_run
    from assay.evaluation.options import run_config, task_manager

    model_args = {"model": "stub", "base_url": options.url, "num_concurrent": CONCURRENCY}
    asks = {"model": "openai-chat", "model_args": model_args} if options.url else {}
    arguments = {"tasks": [options.world], "limit": options.limit, "output_path": options.out, **asks}
    config = run_config(arguments)
    prepared = prepare_run(config, task_manager(config))
    prepared.models.under_test(prepared.tasks)
    start_clock()
    [account] = execute(prepared).results["assay"]["tasks"].values()
    return int(account["documents"])


def run_three_nodes(options: argparse.Namespace) -> int:
    from assay.graphs.nodes import LambdaNode
    from assay.graphs.walk import Graph, OutgoingEdges

    nodes = {name: LambdaNode(name, lambda _, state: state, {}) for name in "abc"}
    ways = {"a": OutgoingEdges(("b",)), "b": OutgoingEdges(("c",)), "c": OutgoingEdges(("END",))}
    graph, records = Graph(nodes, ways, OutgoingEdges(("a",))), options.limit or 100_000
    start_clock()
    for number in range(records):
        for _ in graph.plan({"number": number}, "x"):
            raise AssertionError("it sends no requests")
    return records


RUNS = {"bare": run_bare, "assay": run_assay, "aggregated": run_assay, "three_nodes": run_three_nodes}


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

    spent, passed = time.process_time() - cpu, time.perf_counter() - start
    print(json.dumps({"records": done, "cpu_ms": spent / done * 1000, "rate": done / passed, "mb": peak_memory()}))


if __name__ == "__main__":
    main()
