"""An OpenAI-compatible server over real `transformers`, for tests. usage: truth_server.py PORT FOLDER [sglang] [host=ADDRESS]

With `sglang` it differs from the protocol as SGLang does: it does not say where tokens begin, and has a /generate.
"""

import sys
from typing import Any

from aiohttp import web


class Truth:
    """The model of a folder, answering completions as the protocol has it."""

    def __init__(self, folder: str, is_sglang: bool = False, has_no_bos: bool = False) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.torch: Any = torch
        self.is_sglang, self.has_no_bos = is_sglang, has_no_bos
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.words: Any = AutoTokenizer.from_pretrained(folder)

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = body["prompt"]
        tokens = prompt if isinstance(prompt, list) else self.words.encode(prompt, add_special_tokens=False)
        arguments, most = self.torch.tensor([tokens]), body["max_tokens"]
        with self.torch.no_grad():
            whole = self.model.generate(arguments, max_new_tokens=most, do_sample=False, pad_token_id=0)[0].tolist()
        built = whole[len(tokens) :]
        text = self.words.decode([token for token in built if token not in (0, 4)])
        for stop in body.get("stop") or []:
            text = text.split(stop)[0]
        ended = any(token in (0, 4) for token in built)
        choice = {"index": 0, "text": text, "finish_reason": "stop" if ended else "length"}
        if body.get("echo"):
            choice["logprobs"] = self.logprobs(whole)
        elif body.get("logprobs"):
            choice["logprobs"] = {"top_logprobs": [self.likeliest(tokens, body["logprobs"])]}
        if body.get("prompt_logprobs"):
            choice["prompt_logprobs"] = self.prompt_logprobs(tokens)
        used = {"prompt_tokens": len(tokens), "completion_tokens": len(built)}
        return web.json_response({"choices": [choice], "usage": used})

    def scores(self, tokens: list[int]) -> Any:
        with self.torch.no_grad():
            return self.torch.log_softmax(self.model(self.torch.tensor([tokens])).logits[0], dim=-1)

    def likeliest(self, tokens: list[int], count: int) -> dict[str, float]:
        """The likeliest next tokens, as texts."""
        values, which = self.scores(tokens)[-1].topk(count)
        return {self.words.decode([token]): float(value) for value, token in zip(values, which, strict=True)}

    def prompt_logprobs(self, tokens: list[int]) -> list[Any]:
        """As vLLM has it: for every position its token and the likeliest, with their ranks."""
        collected: list[Any] = [None]
        for row, token in zip(self.scores(tokens[:-1]), tokens[1:], strict=True):
            rank = int((row > row[token]).sum()) + 1
            top = int(row.argmax())
            collected.append({
                str(top): {"logprob": float(row[top]), "rank": 1},
                str(token): {"logprob": float(row[token]), "rank": rank},
            })  # fmt: skip
        return collected

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        before = [self.words.bos_token_id] if body["add_special_tokens"] and not self.has_no_bos else []
        tokens = before + self.words.encode(body["prompt"], add_special_tokens=False)
        return web.json_response({"tokens": tokens, "count": len(tokens), "max_model_len": 1024})

    def logprobs(self, tokens: list[int]) -> dict[str, object]:
        with self.torch.no_grad():
            scores = self.torch.log_softmax(self.model(self.torch.tensor([tokens[:-1]])).logits[0], dim=-1)
        pieces = [self.words.decode([token]) for token in tokens]
        return {
            "tokens": pieces,
            "token_logprobs": [None, *(float(scores[n, token]) for n, token in enumerate(tokens[1:]))],
            "top_logprobs": [None, *({"top": float(row.max())} for row in scores)],
            "text_offset": [-1 if self.is_sglang else sum(map(len, pieces[:n])) for n in range(len(pieces))],
        }

    async def generate(self, request: web.Request) -> web.Response:
        """SGLang's own: log-probabilities from `logprob_start_len` on, of which the first is never known."""
        body = await request.json()
        tokens, start = body["input_ids"], body["logprob_start_len"]
        rows = self.scores(tokens[:-1])[start:]
        collected: list[Any] = [[None, tokens[start], None]]
        collected += [[float(row[token]), token, None] for row, token in zip(rows, tokens[start + 1 :], strict=True)]
        tops = [None, *([[float(row.max()), int(row.argmax()), None]] for row in rows)]
        used = {"prompt_tokens": len(tokens), "completion_tokens": 1, "cached_tokens": start}
        return web.json_response(
            {"text": "", "meta_info": {"input_token_logprobs": collected, "input_top_logprobs": tops, **used}}
        )


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "embedded", "max_model_len": 1024}]})


if __name__ == "__main__":
    app = web.Application(client_max_size=1 << 26)
    truth = Truth(sys.argv[2], "sglang" in sys.argv[3:], "no_bos" in sys.argv[3:])
    if truth.is_sglang:
        app.add_routes([web.post("/generate", truth.generate)])
    app.add_routes([web.post("/v1/completions", truth.complete), web.post("/tokenize", truth.tokenize)])
    app.add_routes([web.get("/v1/models", models)])
    host = next((each[5:] for each in sys.argv[3:] if each.startswith("host=")), "127.0.0.1")
    web.run_app(app, host=host, port=int(sys.argv[1]), print=None, access_log=None)
