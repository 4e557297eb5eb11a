"""Stands in for vLLM in the suite: its documented LLM and SamplingParams over the embedded model's arithmetic.

It is slow and small, and what it computes is real: tokens in, log-probabilities and texts out, with vLLM's limits (one token
of room, 20 log-probabilities, what a stop leaves in the text). `make test-vllm` runs the same tests against vLLM itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from assay.models.local.embedded import REAL, Llama
from assay.models.tokenizer import FolderTokenizer
from assay.statistics.softmax import log_softmax

ENDS = (0, 4)


@dataclass
class OldSamplingParams:
    """As of 0.8."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: Sequence[str] = ()
    max_tokens: int = 16
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}.")
        if self.max_tokens < 1 or max(self.logprobs or 0, self.prompt_logprobs or 0) > 20:
            raise ValueError("out of range")


@dataclass
class SamplingParams(OldSamplingParams):
    """As of 0.20: tokens can be asked about by number."""

    logprob_token_ids: Sequence[int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.logprob_token_ids or ()) > 20:
            raise ValueError("too many tokens by number")


class Logprob(NamedTuple):
    logprob: float
    rank: int


class LLM:
    """`calls` notes what every call was asked: prompts and parameters."""

    def __init__(
        self, model: str, *, tokenizer: str | None = None, dtype: str = "auto", max_model_len: int | None = None,
        seed: int = 0, **others: Any,
    ) -> None:  # fmt: skip
        if dtype not in ("auto", "float32"):
            raise ValueError(f"Unknown dtype: {dtype}")
        self._llama, self._words = Llama(Path(model)), FolderTokenizer(Path(tokenizer or model))
        self.others = others
        self._most = max_model_len or self._llama.max_length
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=self._most))
        self.calls: list[tuple[list[list[int]], list[OldSamplingParams]]] = []
        self.lora: Any = None

    def generate(
        self, prompts: Sequence[Mapping[str, Any]], sampling_params: Sequence[OldSamplingParams], *,
        use_tqdm: bool = True, lora_request: Any = None,
    ) -> list[Any]:  # fmt: skip
        assert not use_tqdm
        tokens = [list(prompt["prompt_token_ids"]) for prompt in prompts]
        self.calls.append((tokens, list(sampling_params)))
        self.lora = lora_request
        for each in tokens:
            if not 0 < len(each) < self._most:
                raise ValueError(f"The decoder prompt (length {len(each)}) is longer than {self._most}")
        with threadpool_limits(1, user_api="blas"):  # threads would wait for each other
            return [self._one(each, params) for each, params in zip(tokens, sampling_params, strict=True)]

    def _one(self, tokens: list[int], params: OldSamplingParams) -> Any:
        prompt = None
        if params.prompt_logprobs is not None:
            rows = self._scores(tokens)[:-1]
            prompt = [None, *(_told(row, [t], params.prompt_logprobs) for row, t in zip(rows, tokens[1:], strict=True))]
        return SimpleNamespace(prompt_token_ids=tokens, prompt_logprobs=prompt, outputs=[self._write(tokens, params)])

    def _write(self, tokens: list[int], params: OldSamplingParams) -> Any:
        random, built, logprobs, text = np.random.default_rng(params.seed), list[int](), list[Any](), ""
        while len(built) < params.max_tokens and len(tokens) + len(built) < self._most:
            row = self._scores([*tokens, *built])[-1]
            token = int(row.argmax()) if params.temperature == 0 else _drawn(row, params, random)
            built.append(token)
            named = getattr(params, "logprob_token_ids", None)
            if named is not None:
                logprobs.append(_told(row, [*named, token], 0))
            elif params.logprobs is not None:
                logprobs.append(_told(row, [token], params.logprobs))
            if token in ENDS:
                return _output(text, built, logprobs, "stop")
            text = self._words.tokenizer.decode(built, skip_special_tokens=False) if params.detokenize else ""
            stops = [at for stop in params.stop if (at := text.find(stop)) >= 0]
            if stops:
                return _output(text[: min(stops)], built, logprobs, "stop")
        return _output(text, built, logprobs, "length")

    def _scores(self, tokens: list[int]) -> Any:
        count = len(tokens)
        mask = np.triu(np.full((count, count), REAL(-1e30), dtype=REAL), 1)[None]
        hidden, _ = self._llama.forward(np.asarray([tokens]), np.arange(count)[None], mask, None)
        return log_softmax(self._llama.logits(hidden[0]))


def _told(row: Any, tokens: Sequence[int], top: int) -> dict[int, Logprob]:
    """Some tokens and the likeliest, each with its rank."""
    expected = dict.fromkeys([*tokens, *np.argsort(-row, kind="stable")[:top].tolist()])
    return {token: Logprob(float(row[token]), int((row > row[token]).sum()) + 1) for token in expected}


def _drawn(row: Any, params: OldSamplingParams, random: Any) -> int:
    chances = np.exp(row.astype(np.float64) / params.temperature)
    return int(random.choice(len(chances), p=chances / math.fsum(chances)))


def _output(text: str, tokens: list[int], logprobs: list[Any], why: str) -> Any:
    return SimpleNamespace(text=text, token_ids=tokens, logprobs=logprobs or None, finish_reason=why, stop_reason=None)
