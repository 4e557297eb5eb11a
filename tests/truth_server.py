"""An OpenAI-compatible server over real `transformers`, for tests: usage: truth_server.py PORT FOLDER"""

import sys

import torch
from aiohttp import web
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])


async def complete(request: web.Request) -> web.Response:
    body = await request.json()
    prompt = body["prompt"]
    tokens = prompt if isinstance(prompt, list) else tokenizer.encode(prompt, add_special_tokens=False)
    with torch.no_grad():
        made = model.generate(
            torch.tensor([tokens]), max_new_tokens=body["max_tokens"], do_sample=False, pad_token_id=0
        )[0, len(tokens) :].tolist()  # fmt: skip
    ended = any(token in (0, 4) for token in made)
    text = tokenizer.decode([token for token in made if token not in (0, 4)])
    for stop in body.get("stop") or []:
        text = text.split(stop)[0]
    choice = {"index": 0, "text": text, "finish_reason": "stop" if ended else "length"}
    if body.get("echo"):
        choice["logprobs"] = logprobs([*tokens, *made], tokenizer)
    return web.json_response(
        {"choices": [choice], "usage": {"prompt_tokens": len(tokens), "completion_tokens": len(made)}}
    )


def logprobs(tokens: list[int], words: object) -> dict[str, object]:
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([tokens[:-1]])).logits[0], dim=-1)
    pieces = [words.decode([token]) for token in tokens]  # type: ignore[attr-defined]
    offsets, place = [], 0
    for piece in pieces:
        offsets.append(place)
        place += len(piece)
    values = [float(scores[n, token]) for n, token in enumerate(tokens[1:])]
    return {
        "tokens": pieces,
        "token_logprobs": [None, *values],
        "top_logprobs": [None, *({"top": float(row.max())} for row in scores)],
        "text_offset": offsets,
    }


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "embedded"}]})


app = web.Application(client_max_size=1 << 26)
app.add_routes([web.post("/v1/completions", complete), web.get("/v1/models", models)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
