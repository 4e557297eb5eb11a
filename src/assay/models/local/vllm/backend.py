"""Models in vLLM's engine, in this process."""

import hashlib
import inspect
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from assay.config.source import digest
from assay.models.conversations import in_text
from assay.models.local.fingerprint import identity_of_folder
from assay.models.local.hf.tokenizer import Spoken, Words
from assay.models.local.vllm.loading import folder_of, library, refuse, start, tokenizer_of
from assay.models.local.vllm.scoring import Piece, score
from assay.models.local.windows import Windows
from assay.models.protocol import Answered, Can
from assay.models.reasoning import START, Draft
from assay.models.tokens import stops_of
from assay.records import LIMITS, Failed, Generate, Loglikelihood, Request, Response, Rolling, Usage, limit_of

OWN = ("until", "do_sample", "temperature", *LIMITS)
"""Parameters of a generation that have another name here."""
IDLE = ("tensor_parallel_size", "gpu_memory_utilization", "max_num_seqs", "tokenizer", "tokenizer_revision")
"""What an engine is told that answers do not depend on; a tokenizer counts by its content."""


class _Wanted(NamedTuple):
    """A generation as the engine is asked for it; `cut` tokens of the prompt were left out."""

    tokens: list[int]
    params: Mapping[str, Any]
    cut: int


class VLLM(Spoken):
    """A model in vLLM's engine (`pip install 'assay[vllm]'`).

    One-token choices are read off the next token, with the prefix they share computed once; longer ones are read off the
    prompt. Each generation has its own stops, limit and seed.
    """

    name = "vllm"
    window = 4096

    def __init__(  # noqa: PLR0913  # lm-eval's arguments, by its names
        self, pretrained: str, *, dtype: str = "auto", revision: str | None = None, tokenizer: str | None = None,
        tokenizer_mode: str = "auto", tokenizer_revision: str | None = None, trust_remote_code: bool = False,
        add_bos_token: bool | None = None, prefix_token_id: int | None = None, tensor_parallel_size: int = 1,
        data_parallel_size: int = 1, quantization: str | None = None, gpu_memory_utilization: float = 0.9,
        max_model_len: int | None = None, max_length: int | None = None, max_gen_toks: int = 256,
        batch_size: int | str = "auto", max_batch_size: int | None = None, seed: int = 1234, enable_lora: bool = False,
        lora_local_path: str | None = None, max_lora_rank: int = 16, enforce_eager: bool = False,
        enable_thinking: bool | None = None, think_end_token: str | None = None, chat_template: str | None = None,
        chat_template_args: Mapping[str, Any] | None = None, over_length: Literal["error", "truncate"] = "error",
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        refuse(data_parallel_size, max_model_len, max_length, enable_lora=enable_lora, lora=lora_local_path)
        found = library()
        self.folder = folder_of(pretrained, revision)
        of_words = {
            "revision": tokenizer_revision,
            "trust_remote_code": trust_remote_code,
            "add_bos_token": add_bos_token,
        }
        words = tokenizer_of(tokenizer or str(self.folder), {**of_words, "use_fast": tokenizer_mode != "slow"})
        self._words = Words(words, add_bos_token, prefix_token_id)
        has_chat = bool(words.chat_template)
        self.can, self.cuts = Can(chat=has_chat, named_templates=has_chat), over_length == "truncate"
        self._tags = (START, think_end_token) if think_end_token else None
        thinks = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self._template, self._template_args = chat_template, {**(chat_template_args or {}), **thinks}
        self._lora, self._seed, self._limit = lora_local_path, seed, max_gen_toks
        self._own_words = folder_of(tokenizer, tokenizer_revision, "tokenizer") if tokenizer is not None else None
        most = batch_size if isinstance(batch_size, int) else max_batch_size
        told: dict[str, Any] = {
            "dtype": dtype, "tokenizer": tokenizer, "tokenizer_mode": tokenizer_mode, "tokenizer_revision": tokenizer_revision,
            "trust_remote_code": trust_remote_code, "tensor_parallel_size": tensor_parallel_size, "quantization": quantization,
            "gpu_memory_utilization": gpu_memory_utilization, "max_model_len": max_model_len or max_length, "seed": seed,
            "max_num_seqs": most, "enforce_eager": enforce_eager or None,
            **({"enable_lora": True, "max_lora_rank": max_lora_rank} if lora_local_path else {}), **(engine_args or {}),
        }  # fmt: skip
        self._told = {key: value for key, value in told.items() if value is not None}
        self._told_words = (add_bos_token, prefix_token_id, think_end_token, max_gen_toks)
        self._engine = start(found, str(self.folder), self._told)
        self._sampling, self._errors = found.sampling, found.errors
        self._known = frozenset(inspect.signature(self._sampling).parameters)
        self.max_length: int | None = int(self._engine.llm_engine.model_config.max_model_len)

    # who it is

    @cached_property
    def identity(self) -> str:
        """The content of the folders, and whatever else answers depend on."""
        told = sorted((key, repr(value)) for key, value in self._told.items() if key not in IDLE)
        others = [self._own_words, Path(self._lora) if self._lora else None]
        content = identity_of_folder(self.folder, *(folder for folder in others if folder is not None))
        return f"vllm {content} {digest(repr((told, self._told_words, self.cuts)).encode())}"

    # the engine

    def _generate(self, prompts: Sequence[Sequence[int]], params: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """One call of the engine."""
        made = [self._sampling(**each) for each in params]
        several = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        lora: dict[str, Any] = {"lora_request": self._adapter} if self._lora else {}
        outputs: Sequence[Any] = self._engine.generate(several, made, use_tqdm=False, **lora)
        return outputs

    @cached_property
    def _adapter(self) -> Any:
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, str(self._lora))

    @property
    def _room(self) -> int:
        """How many tokens a prompt may have: the engine always generates one more."""
        return (self.max_length or 2048) - 1

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return in_text(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """The likelihoods, then the texts."""
        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        written = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        for answered in self._score(scored):
            yield answered
        if written:
            yield self._write(written)

    # log-likelihoods

    def _score(self, requests: Sequence[tuple[int, Request]]) -> Iterator[list[tuple[int, Response]]]:
        """Responses as they come. A text that is longer than the model is taken in windows."""
        self._words.prime(
            (request.text for _, request in requests if isinstance(request, Rolling)),
            ((request.text, request.continuation) for _, request in requests if isinstance(request, Loglikelihood)),
        )
        words = self._words
        windows = Windows(words.encode, words.pair, words.prefix, self._room - 1, self.cuts, is_counted=False)
        pieces: list[Piece] = []
        known: list[tuple[int, Response]] = []
        for number, request in requests:
            made = windows.pairs(number, request)
            if isinstance(made, list):
                pieces += [Piece((*context, *continuation), len(continuation)) for _, context, continuation in made]
            elif isinstance(made, Failed):
                known.append(
                    (number, Failed(f"its tokens and one to come are more than the model's {self.max_length}"))
                )
            else:
                known.append((number, made))
        yield known
        for several in score(pieces, self._generate, names_tokens="logprob_token_ids" in self._known):
            yield [each for pair, scores in several for each in windows.land(pair, *scores)]

    # generation

    def _write(self, requests: Sequence[tuple[int, Generate]]) -> list[tuple[int, Response]]:
        """Generations, all in one call: each with its own parameters."""
        self._words.prime(request.text for _, request in requests)
        wanted = [(number, request, self._wanted(request)) for number, request in requests]
        failed: list[tuple[int, Response]] = [(number, each) for number, _, each in wanted if isinstance(each, Failed)]
        asked = [(number, request, each) for number, request, each in wanted if not isinstance(each, Failed)]
        if not asked:
            return failed
        outputs = self._generate([each.tokens for _, _, each in asked], [each.params for _, _, each in asked])
        return failed + [
            (number, self._text(request, output.outputs[0], each.cut))
            for (number, request, each), output in zip(asked, outputs, strict=True)
        ]

    def _wanted(self, request: Generate) -> _Wanted | Failed:
        """A generation in the engine's words. What is to be generated becomes shorter before an answer is given up; where a
        model thinks, stops are for the answer alone."""
        params, most = request.params, self._room + 1
        tokens, limit = self._words.encode(request.text) or [self._words.prefix], limit_of(params) or self._limit
        cut = len(tokens) + limit - most if self.cuts and 0 < most - limit < len(tokens) else 0
        if len(tokens) - cut >= most:
            return Failed(f"{len(tokens)} tokens are more than the model's {most}")
        more = {key: value for key, value in params.items() if key not in OWN and value is not None}
        unknown = sorted(set(more) - self._known)
        if unknown:
            return Failed(f"vllm does not know the parameter {unknown[0]!r}")
        made = {
            **more, "max_tokens": min(limit, most - len(tokens) + cut), "stop": [] if self._tags else stops_of(params),
            "temperature": 0.0, "skip_special_tokens": False, "spaces_between_special_tokens": False,
        }  # fmt: skip
        if request.is_sampled:
            drawn = float(str(params.get("temperature") or 1.0))
            made |= {"temperature": drawn, "seed": seed_of(request, self._seed)}
        try:
            self._sampling(**made)
        except self._errors as error:
            return Failed(f"vllm refuses the parameters: {error}")
        return _Wanted(tokens[cut:], made, cut)

    def _text(self, request: Generate, output: Any, cut: int) -> Response:
        if output.finish_reason not in ("stop", "length"):
            return Failed(f"vllm gave up (finish_reason: {output.finish_reason})")
        draft = Draft(stops_of(request.params), self._tags)
        draft.add(output.text)
        draft.finish = output.finish_reason
        draft.usage = Usage(cut=cut) if cut else None
        return draft.whole()


def seed_of(request: Generate, seed: int) -> int:
    """The seed of a generation: another for every prompt, repeat and draw, the same whatever else is asked with it."""
    text = f"{seed}\0".encode() + request.seed_bytes
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) >> 1
