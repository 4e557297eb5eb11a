#!/usr/bin/env python3
"""An OpenAI-compatible stub on loopback, to measure clients and to misbehave on request (needs aiohttp).

usage: openai_stub.py PORT [--latency MS] [--p500 F] [--p429 F] [--malformed N] [--truncate N] [--die N] [--fail-if SUBSTRING] [--answer TEXT]

POST /v1/completions (echo+logprobs too), POST /v1/chat/completions, GET /v1/models, GET /stats (requests, answered, errors, in flight, repeats of a body, CPU), GET /times (of each answer).
--die N: the process exits at the Nth request. --fail-if: requests whose body holds SUBSTRING always get HTTP 500.
"""

import argparse
import asyncio
import json
import os
import random
import time

from aiohttp import web

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--latency", type=float, default=0)
parser.add_argument("--p500", type=float, default=0)
parser.add_argument("--p429", type=float, default=0)
parser.add_argument("--malformed", type=int, default=0)
parser.add_argument("--truncate", type=int, default=0)
parser.add_argument("--die", type=int, default=0)
parser.add_argument("--fail-if", default="")
parser.add_argument("--answer", default="text 12\n#### 42")
args = parser.parse_args()
rng, bodies, times = random.Random(1), {}, []
stats = {"requests": 0, "answered": 0, "errors": 0, "in_flight": 0, "max_in_flight": 0}


def completion(body):
    if "messages" in body:
        return {
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": args.answer}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    prompts = body["prompt"]
    prompts = prompts if isinstance(prompts, list) and prompts and isinstance(prompts[0], (list, str)) else [prompts]
    if body.get("echo"):

        def choice(i, prompt):
            n = len(prompt if isinstance(prompt, list) else prompt.split()) + 1
            return {
                "index": i,
                "text": "",
                "finish_reason": "length",
                "logprobs": {
                    "tokens": ["x"] * n,
                    "token_logprobs": [None] + [-0.5] * (n - 1),
                    "top_logprobs": [None] + [{"x": -0.5}] * (n - 1),
                },
            }

        return {"choices": [choice(i, p) for i, p in enumerate(prompts)]}
    return {"choices": [{"index": i, "text": args.answer, "finish_reason": "stop"} for i in range(len(prompts))]}


async def answer(request):
    stats["requests"] += 1
    n = stats["requests"]
    stats["in_flight"] += 1
    stats["max_in_flight"] = max(stats["max_in_flight"], stats["in_flight"])
    try:
        raw = await request.read()
        if args.die and n >= args.die:
            os._exit(1)
        await asyncio.sleep(args.latency / 1000)
        x = rng.random()
        if x < args.p500 or (args.fail_if and args.fail_if.encode() in raw):
            stats["errors"] += 1
            return web.json_response({"error": {"message": "boom"}}, status=500)
        if x < args.p500 + args.p429:
            stats["errors"] += 1
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "1"})
        if n == args.malformed:
            return web.Response(text='{"choices": [{"text": "abc', content_type="application/json")
        if n == args.truncate:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"choices"')
            request.transport.close()
            return response
        bodies[hash(raw)] = bodies.get(hash(raw), 0) + 1
        stats["answered"] += 1
        times.append(time.time())
        return web.json_response(completion(json.loads(raw)))
    finally:
        stats["in_flight"] -= 1


async def report(_):
    return web.json_response(dict(stats, repeated=sum(v - 1 for v in bodies.values()), cpu_s=time.process_time()))


async def models(_):
    return web.json_response({"object": "list", "data": [{"id": "stub", "object": "model"}]})


app = web.Application(client_max_size=1 << 26)
app.add_routes(
    [
        web.post("/v1/completions", answer),
        web.post("/v1/chat/completions", answer),
        web.get("/v1/models", models),
        web.get("/stats", report),
        web.get("/times", lambda _: web.json_response(times)),
    ]
)
web.run_app(app, host="127.0.0.1", port=args.port, print=None, access_log=None)
