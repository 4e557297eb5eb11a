"""One client on one server, for `bench.servers`: prints requests a second, CPU a request and memory.

usage: python -m bench.server_clients bare|assay|lm_eval WORLD_DIR TASK URL CONCURRENCY [--limit N] [--tokenizer DIR] [--stream]

`bare` posts the bodies that assay would, in a loop of aiohttp's, and reads the answers as JSON: what no client can beat by far.
"""

import argparse
import asyncio
import json
import logging
import os
import resource
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")
start, cpu = time.perf_counter(), time.process_time()


def run_bare(options: argparse.Namespace) -> int:
    """The loop. Bodies are made before the clock starts."""
    global start, cpu  # the clock
    import aiohttp

    bodies = [line.encode() for line in Path(options.world, f"{options.task}.bodies").read_text().splitlines()]
    bodies = bodies[: options.limit or None]

    async def work() -> int:
        left = iter(bodies)
        done = 0

        async def worker(session: Any) -> None:
            nonlocal done
            for body in left:
                async with session.post(f"{options.url}/completions", data=body) as answer:
                    json.loads(await answer.read())
                done += 1

        connector = aiohttp.TCPConnector(limit=options.concurrency)
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            await asyncio.gather(*(worker(session) for _ in range(options.concurrency)))
        return done

    start, cpu = time.perf_counter(), time.process_time()
    return asyncio.run(work())


def run_assay(options: argparse.Namespace) -> int:
    """Tasks are loaded before the clock starts, as the bare loop's bodies are made; prompts, journal, scores and files are not."""
    global start, cpu  # the clock
    import aiohttp  # noqa: F401
    import pyarrow.parquet  # noqa: F401  # imports are not measured

    from assay.evaluation.flow import execute, prepare_run
    from assay.evaluation.options import run_config, task_manager

    model_args = {"model": "stub", "base_url": options.url, "num_concurrent": options.concurrency}
    more = {"tokenizer": options.tokenizer, "max_length": 8192} if options.tokenizer else {}
    arguments = {
        "model": "local-completions", "model_args": {**model_args, **more}, "tasks": [options.task], "include_path": options.world,
        "include_defaults": False, "limit": options.limit, "output_path": options.out, "bootstrap_iters": 0,
    }  # fmt: skip
    config = run_config(arguments)
    prepared = prepare_run(config, task_manager(config))
    prepared.models.under_test(prepared.tasks)
    start, cpu = time.perf_counter(), time.process_time()
    return int(execute(prepared).results.usage["requests"])


def run_lm_eval(options: argparse.Namespace) -> int:
    global start, cpu  # the clock
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    start, cpu = time.perf_counter(), time.process_time()
    kind = (
        f"tokenizer={options.tokenizer},tokenizer_backend=huggingface,max_length=8192"
        if options.tokenizer
        else "tokenizer_backend=None"
    )
    arguments = f"model=stub,base_url={options.url}/completions,num_concurrent={options.concurrency},tokenized_requests={bool(options.tokenizer)},{kind}"
    results = simple_evaluate(
        "local-completions", model_args=arguments, tasks=[options.task], limit=options.limit, log_samples=True,
        task_manager=TaskManager(include_path=options.world, include_defaults=False), bootstrap_iters=0, batch_size=1,
    )  # fmt: skip
    return sum(len(sample["resps"]) for sample in results["samples"][options.task])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=["bare", "assay", "lm_eval"])
    parser.add_argument("world")
    parser.add_argument("task")
    parser.add_argument("url")
    parser.add_argument("concurrency", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--tokenizer")
    parser.add_argument("--out")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.client == "assay":
        import assay.evaluation  # noqa: F401
    elif options.client == "lm_eval":
        import lm_eval.models.openai_completions  # noqa: F401
    done = {"bare": run_bare, "assay": run_assay, "lm_eval": run_lm_eval}[options.client](options)
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    status = Path("/proc/self/status")
    if status.exists():
        memory = next(
            int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM")
        )
    print(json.dumps({"requests": done, "rate": done / wall, "cpu_ms": 1000 * used / done, "wall": wall, "mb": memory}))


if __name__ == "__main__":
    main()
