"""How right the time left is: a mixed run against a server with declared latencies, read when 25, 50 and 75 % of it are over.

Four tasks in this order: choices (log-likelihoods), short texts, long texts, and texts with a judge. Latencies are drawn from
declared distributions, seeded. `python -m bench eta`; `python -m bench.eta` prints twenty estimates of each run.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from assay.evaluation.dispatch import RunProgress
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.options import run_config, task_manager
from assay.evaluation.time_left import TimeEstimator
from bench.measure import Said, serving

CONCURRENT = 16
LATENCIES = {"choice": 0.05, "short": 0.1, "long": 0.8, "judged": 0.2, "judge": 0.25}
"""Mean seconds of an answer; the latencies of one kind are between 0.5 and 1.5 times that."""
TASKS = {"choice": 600, "short": 400, "long": 100, "judged": 240}
ORDERS = {
    "short first": ("choice", "short", "long", "judged"),
    "long first": ("long", "judged", "short", "choice"),
    "judge first": ("judged", "long", "choice", "short"),
}
SHARES = (0.25, 0.5, 0.75)


class Seen(NamedTuple):
    """The time left as it was shown at a moment, and the kinds that were unknown."""

    at: float
    seconds: float | None
    unknown: tuple[str, ...]


def app(seed: int = 0) -> web.Application:
    """A server with log-likelihoods, texts and a judge, each with its latencies."""
    draw = random.Random(seed)

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        text = json.dumps(body.get("messages") or body.get("prompt"))
        kind = next((each for each in TASKS if f"{each} " in text), "")
        kind = "judge" if "<<<answer" in text else kind
        await asyncio.sleep(LATENCIES.get(kind, 0.0) * (0.5 + draw.random()))
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        if body.get("echo"):
            return web.json_response({**_echoed(body["prompt"]), "usage": usage})
        if "messages" in body:
            said = _verdict(text) if kind == "judge" else "yes"
            choice = {"message": {"content": said}, "finish_reason": "stop"}
            return web.json_response({"choices": [choice], "usage": usage})
        return web.json_response({"choices": [{"text": "yes", "finish_reason": "stop"}], "usage": usage})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": []})

    server = web.Application()
    server.router.add_post("/v1/completions", answer)
    server.router.add_post("/v1/chat/completions", answer)
    server.router.add_get("/v1/models", models)
    return server


def _verdict(text: str) -> str:
    mark = text.partition("<<<answer ")[2][:32]
    return json.dumps({"id": mark, "reason": "so", "score": 5})


def _echoed(prompt: str) -> dict[str, object]:
    words = prompt.split(" ")
    pieces = [words[0], *(f" {word}" for word in words[1:]), "!"]
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    top = [None, *({piece: -0.5} for piece in pieces[1:])]
    values = [None, *(-0.5 for _ in pieces[1:])]
    logprobs = {"tokens": pieces, "token_logprobs": values, "top_logprobs": top, "text_offset": starts}
    return {"choices": [{"text": "".join(pieces), "finish_reason": "length", "logprobs": logprobs}]}


def write_tasks(folder: Path, order: tuple[str, ...], scale: float) -> None:
    yaml = {
        "choice": "output_type: multiple_choice\ndoc_to_choice: ['yes', 'no']\ndoc_to_target: 0\n",
        "short": "output_type: generate_until\ndoc_to_target: gold\ngeneration_kwargs: {until: ['.'], max_gen_toks: 32}\n",
        "long": "output_type: generate_until\ndoc_to_target: gold\ngeneration_kwargs: {until: [], max_gen_toks: 1024}\n",
        "judged": "output_type: generate_until\ndoc_to_target: gold\nscorer: llm_judge\n"
        "generation_kwargs: {until: [], max_gen_toks: 128}\n",
    }
    for place, kind in enumerate(order):
        rows = [{"q": f"{kind} {number} of these?", "gold": "yes"} for number in range(int(TASKS[kind] * scale))]
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
        data = f"dataset_path: json\ntest_split: test\ndataset_kwargs: {{data_files: {{test: {folder / f'{kind}.jsonl'}}}}}\n"
        (folder / f"{kind}.yaml").write_text(f"task: t{place}_{kind}\n{data}doc_to_text: q\n{yaml[kind]}")


def estimates(order: tuple[str, ...], scale: float = 1.0, seed: int = 0) -> tuple[list[Seen], float]:
    """Every time that a run showed, and when it ended; both since its first request."""
    with tempfile.TemporaryDirectory() as name, serving("-m", "bench.eta", "serve", str(seed)) as url:
        write_tasks(Path(name), order, scale)
        arguments = f"model=m,base_url={url},num_concurrent={CONCURRENT}"
        options = {
            "model": "openai",
            "model_args": arguments,
            "model_role": {"judge": f"openai-chat,{arguments}"},
            "tasks": [f"t{place}_{kind}" for place, kind in enumerate(order)],
            "include_path": name,
            "include_defaults": False,
        }
        config = run_config(options)
        estimator, seen = TimeEstimator(), list[Seen]()

        def watch(progress: RunProgress) -> None:
            left = estimator(progress)
            seen.append(Seen(time.monotonic(), left.seconds, left.unknown))

        execute(prepare_run(config, task_manager(config)), watch)
        begun, ended = seen[0].at, seen[-1].at
        return [each._replace(at=each.at - begun) for each in seen], ended - begun


def errors(
    order: tuple[str, ...], scale: float = 1.0, seed: int = 0
) -> list[tuple[float, float | None, tuple[str, ...]]]:
    """By share of the run the ratio of the time shown to the time that was left, and the kinds that were unknown."""
    seen, whole = estimates(order, scale, seed)
    ratios = []
    for share in SHARES:
        at = min(seen, key=lambda each: abs(each.at - share * whole))
        real = whole - at.at
        ratios.append((share, None if at.seconds is None else at.seconds / real, at.unknown))
    return ratios


def rows() -> Iterator[Said]:
    for name, order in ORDERS.items():
        for share, ratio, unknown in errors(order):
            shown = "unknown" if ratio is None else f"{ratio:.2f}×"
            note = f" at least ({', '.join(unknown)} not yet seen)" if unknown else ""
            yield Said(f"{name}: time shown ÷ time left at {share:.0%}", shown + note, "0.75–1.25× where all was seen")


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        web.run_app(app(int(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[3]), print=None)
        return
    for name, order in ORDERS.items():
        seen, whole = estimates(order)
        print(f"{name}: {whole:.1f} s")
        for number in range(1, 20):
            each = min(seen, key=lambda one: abs(one.at - number / 20 * whole))
            shown = "?" if each.seconds is None else f"{each.seconds:.1f}"
            print(f"  {number * 5} %: shown {shown} s, left {whole - each.at:.1f} s {', '.join(each.unknown)}")


if __name__ == "__main__":
    main()
