"""An OpenAI-compatible server over real `transformers`, for tests. usage: truth_server.py PORT FOLDER"""

import sys
from typing import Any

from aiohttp import web


class Truth:
    """The model of a folder, answering completions as the protocol has it."""

    def __init__(self, folder: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.torch: Any = torch
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.words: Any = AutoTokenizer.from_pretrained(folder)

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = body["prompt"]
        tokens = prompt if isinstance(prompt, list) else self.words.encode(prompt, add_special_tokens=False)
        given, most = self.torch.tensor([tokens]), body["max_tokens"]
        with self.torch.no_grad():
            whole = self.model.generate(given, max_new_tokens=most, do_sample=False, pad_token_id=0)[0].tolist()
        made = whole[len(tokens) :]
        text = self.words.decode([token for token in made if token not in (0, 4)])
        for stop in body.get("stop") or []:
            text = text.split(stop)[0]
        ended = any(token in (0, 4) for token in made)
        choice = {"index": 0, "text": text, "finish_reason": "stop" if ended else "length"}
        if body.get("echo"):
            choice["logprobs"] = self.logprobs(whole)
        used = {"prompt_tokens": len(tokens), "completion_tokens": len(made)}
        return web.json_response({"choices": [choice], "usage": used})

    def logprobs(self, tokens: list[int]) -> dict[str, object]:
        with self.torch.no_grad():
            scores = self.torch.log_softmax(self.model(self.torch.tensor([tokens[:-1]])).logits[0], dim=-1)
        pieces = [self.words.decode([token]) for token in tokens]
        return {
            "tokens": pieces,
            "token_logprobs": [None, *(float(scores[n, token]) for n, token in enumerate(tokens[1:]))],
            "top_logprobs": [None, *({"top": float(row.max())} for row in scores)],
            "text_offset": [sum(map(len, pieces[:n])) for n in range(len(pieces))],
        }


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "embedded"}]})


if __name__ == "__main__":
    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post("/v1/completions", Truth(sys.argv[2]).complete), web.get("/v1/models", models)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
