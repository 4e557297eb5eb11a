"""Models of transformers, on this machine."""

import gc
import sys
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from assay.ahead import Ahead
from assay.models.conversations import answer_rendered
from assay.models.local.generation import GENERATION_PARAMETERS, Generation
from assay.models.local.hf.loading import (
    HFOptions,
    LoadedHFModel,
    begin_fingerprint,
    fingerprint_ahead,
    import_libraries,
    load_hf,
    load_hf_tokenizer,
    start_device,
)
from assay.models.local.loading import torch_threads, without_cudnn_attention
from assay.models.local.tokenizer import HFTokenizer, TokenizedModel
from assay.models.local.windows import Pair, Windows
from assay.models.protocol import Answered, Can
from assay.models.tokenizer import stops_of
from assay.records import Failed, Generate, JSONDict, Loglikelihood, Request, Response, Rolling, Usage

if TYPE_CHECKING:
    from assay.models.local.hf.fallback import HFRunner

IGNORED = {
    "logits_cache": "shared prefixes are always computed once",
    "softmax_dtype": "log-probabilities are always computed in float32",
    "truncation": "--over_length sets what happens to prompts that are too long",
}
"""Arguments of lm-eval's `hf` that have no effect here, with the reason."""

QUANTIZED = "use a checkpoint whose config declares its quantization"
MEMORY = "parallelize=true distributes a model by free memory; CUDA_VISIBLE_DEVICES selects the GPUs"
UNSUPPORTED = {
    "delta": "add the difference to the weights once, and save the sum",
    "autogptq": QUANTIZED,
    "gptqmodel": QUANTIZED,
    "load_in_8bit": QUANTIZED,
    "load_in_4bit": QUANTIZED,
    "quantization_config": QUANTIZED,
    "mixed_precision_dtype": "set the precision of all computation with dtype=bfloat16 or float16",
    "tp_plan": "parallelize=true spreads the layers over the GPUs, --model vllm has tensor_parallel_size",
    "max_memory_per_gpu": MEMORY,
    "max_cpu_memory": MEMORY,
    "offload_folder": MEMORY,
    "device_map": "write parallelize=true for device_map=auto",
    "torch_dtype": "write dtype=…",
}
"""Arguments of lm-eval's `hf` that are not supported, with the alternative."""


CHUNKS = (256, 2048)
"""Requests tokenized at a time, at first and at most: each has twice as many as the one before, which the device works on
while they are tokenized."""

TOKENIZED = 2
"""Chunks that are tokenized ahead."""

R = TypeVar("R", bound=Request)
Numbered = Sequence[tuple[int, R]]


class TokenizedChunk(NamedTuple):
    """Requests as the runner takes them: pairs of tokens or texts to generate, and the responses that need no pass."""

    pairs: list[Pair]
    generations: list[Generation]
    answered: list[tuple[int, Response]]


def _options(arguments: Mapping[str, Any]) -> HFOptions:
    """The arguments that loading takes."""
    names = {each.name for each in fields(HFOptions)}
    return HFOptions(**{key: value for key, value in arguments.items() if key in names})


class HF(TokenizedModel):
    """A transformers model, from a folder or the hub, with lm-eval's argument names."""

    name = "hf"
    window = 16_384
    ignored_arguments, unsupported_arguments = IGNORED, UNSUPPORTED
    generation = GENERATION_PARAMETERS
    loads_ahead = True

    def __init__(  # noqa: PLR0913  # lm-eval's arguments
        self, pretrained: str, *, tokenizer: str | None = None, revision: str | None = None, subfolder: str = "",
        dtype: str = "auto", device: str | None = None, backend: Literal["default", "causal", "seq2seq"] = "default",
        batch_size: int | str | None = None, max_batch_size: int | None = None, max_length: int | None = None,
        add_bos_token: bool | None = None, prefix_token_id: int | None = None, peft: str | None = None,
        parallelize: bool = False, attn_implementation: str | None = None, trust_remote_code: bool = False,
        allow_pickle: bool = False, gguf_file: str | None = None, use_fast_tokenizer: bool = True,
        think_end_token: str | int | None = None, enable_thinking: bool | None = None,
        chat_template: str | None = None, chat_template_args: Mapping[str, Any] | None = None,
        share_prefixes: bool = True, compile: bool | None = None, threads: int | None = None,
        over_length: Literal["error", "truncate"] = "error",
    ) -> None:  # fmt: skip
        options = HFOptions(
            pretrained, tokenizer, revision, subfolder, dtype, device, backend, peft, parallelize, attn_implementation,
            trust_remote_code, allow_pickle, gguf_file, use_fast_tokenizer, add_bos_token,
        )  # fmt: skip
        fingerprint = fingerprint_ahead(options)
        is_first = "transformers" not in sys.modules
        import_libraries(begin=lambda: start_device(options))
        from assay.models.local.hf.runners import choose_runner

        if is_first:  # a full collection of garbage looks through 330,000 objects of modules, for 0.2 seconds of a run
            gc.freeze()  # not where a user imported them: the user's models would be kept, too
        self._loaded: LoadedHFModel = load_hf(options, fingerprint)
        tokenizer_ = HFTokenizer(self._loaded.tokenizer, add_bos_token, prefix_token_id, ends=self._loaded.is_seq2seq)
        self._set_tokenizer(tokenizer_, chat_template, chat_template_args, enable_thinking)
        self.max_length: int | None = max_length or self._loaded.max_length()
        self.cuts = over_length == "truncate"
        has_chat = bool(self._loaded.tokenizer.chat_template)
        self.can = Can(
            rolling=not self._loaded.is_seq2seq, chat=has_chat, named_templates=has_chat, answer_in_thread=True
        )
        self._think_end = None if think_end_token is None else self._tokenizer.show(think_end_token)
        self._identity_fields = {
            "add_bos_token": add_bos_token, "prefix_token_id": prefix_token_id, "max_length": max_length,
            "think_end_token": think_end_token, "backend": None if backend == "default" else backend,
            "use_fast_tokenizer": None if use_fast_tokenizer else False, "gguf_file": gguf_file,
        }  # fmt: skip
        self._threads = self._loaded.threads(threads)
        max_batch = batch_size if isinstance(batch_size, int) else max_batch_size
        with torch_threads(self._threads), without_cudnn_attention():
            self._ways = choose_runner(
                self._loaded, self._tokenizer, max_batch, share_prefixes=share_prefixes, compiled=compile
            )
        if why := self._ways.unscorable:
            reasons = {"loglikelihood": why, "rolling": why}
            self.can = replace(self.can, loglikelihood=False, rolling=False, reasons=reasons)
        self.remarks: dict[str, str] = dict(self._runner.remarks)
        self.facts = {"params": self._loaded.model.num_parameters()}

    @property
    def _runner(self) -> "HFRunner":
        return self._ways.runner

    @property
    def way(self) -> str:
        """How it is run: with packed attention, copied states, in padded batches, or as encoder and decoder."""
        return self._runner.way

    @property
    def fallbacks(self) -> list[JSONDict]:
        """Failures of faster ways since it was loaded, with the ways used instead."""
        return self._ways.fallbacks.as_json()

    @classmethod
    def begin_loading(cls, **arguments: Any) -> None:
        """Begin with what takes long and needs no library: the digest of the weights."""
        if isinstance(arguments.get("pretrained"), str):
            begin_fingerprint(_options(arguments))

    @classmethod
    def tokenizer_alone(cls, **arguments: Any) -> TokenizedModel:
        """The tokenizer without the weights, from files of this machine."""
        options = _options(arguments)
        loaded, is_seq2seq = load_hf_tokenizer(options)
        return cls._alone(HFTokenizer(loaded, options.add_bos_token, ends=is_seq2seq), arguments)

    @cached_property
    def identity(self) -> str:
        """Digest of weights, configuration and tokenizer, with the precision and the arguments that matter."""
        options = "".join(f" {key}={value}" for key, value in self._identity_fields.items() if value is not None)
        cut = " of cut prompts" if self.cuts else ""
        return f"hf {self._loaded.model.dtype}{options}{cut} {self._loaded.identity}"

    @property
    def precision(self) -> str:
        """The dtype of the computation."""
        return str(self._loaded.model.dtype).removeprefix("torch.")

    def expect(self, seconds: float) -> None:
        """Prepare for a long run, if the rest of it takes that many seconds."""
        self._runner.expect(seconds)

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return answer_rendered(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """Yield log-likelihoods, then texts, each as it comes."""
        assert self.max_length is not None
        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        generated = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        windows = Windows(
            self._tokenizer.encode_whole, self._tokenizer.pair, self._tokenizer.prefix, self.max_length, self.cuts
        )
        with (
            torch_threads(self._threads),
            without_cudnn_attention(),
            Ahead(self._tokenized(scored, generated, windows), TOKENIZED) as tokenized,
        ):
            for answered in self._score(tokenized, windows):
                yield answered
            for answered in self._generate(next(tokenized)):
                yield answered

    def _tokenized(
        self, scored: Numbered[Request], generated: Numbered[Generate], windows: Windows
    ) -> Generator[TokenizedChunk]:
        """Yield the log-likelihood requests in chunks, then an empty one, then all texts; a thread runs ahead with this."""
        yield from self._chunks(scored, windows)
        yield TokenizedChunk([], [], [])
        yield self._generations(generated)

    def _score(self, tokenized: Iterator[TokenizedChunk], windows: Windows) -> Iterator[list[tuple[int, Response]]]:
        known: list[tuple[int, Response]] = []

        def pairs() -> Iterator[Sequence[Pair]]:
            for chunk in tokenized:
                if not chunk.pairs and not chunk.answered:
                    return
                known.extend(chunk.answered)
                yield chunk.pairs

        for scores in self._ways.score(pairs()):
            complete = (
                windows.add(
                    each.number, each.value, each.greedy, problem=each.reason,
                    usage=Usage(each.read, 0, each.seconds, stored=each.stored),
                )
                for each in scores
            )  # fmt: skip
            yield [*known, *(each for responses in complete for each in responses)]
            known.clear()
        yield known

    def _chunks(self, requests: Numbered[Request], windows: Windows) -> Iterator[TokenizedChunk]:
        start, (size, most) = 0, CHUNKS
        while start < len(requests):
            some = requests[start : start + size]
            start, size = start + len(some), min(2 * size, most)
            self._tokenizer.prime(
                (request.text for _, request in some if isinstance(request, Rolling)),
                ((request.text, request.continuation) for _, request in some if isinstance(request, Loglikelihood)),
            )
            chunk = TokenizedChunk([], [], [])
            for number, request in some:
                if self._ways.unscorable:  # by a plan that did not declare what it needs
                    answer: list[Pair] | Response = Failed(self._ways.unscorable)
                else:
                    answer = self._runner.pairs(windows, number, request)
                if isinstance(answer, list):
                    chunk.pairs.extend(answer)
                else:
                    chunk.answered.append((number, answer))
            yield chunk

    def _generations(self, requests: Numbered[Generate]) -> TokenizedChunk:
        assert self.max_length is not None
        chunk = TokenizedChunk([], [], [])
        self._tokenizer.prime(request.text for _, request in requests)
        for number, request in requests:
            tokens = self._tokenizer.encode(request.text) or [self._tokenizer.prefix]
            generation = Generation(
                number, request, tokens, self._think_end, self._tokenizer.special(stops_of(request.params))
            )
            (generation.fit_apart if self._loaded.is_seq2seq else generation.fit)(self.max_length, self.cuts)
            if generation.problem:
                chunk.answered.append((number, generation.response()))
            else:
                chunk.generations.append(generation)
        return chunk

    def _generate(self, chunk: TokenizedChunk) -> Iterator[list[tuple[int, Response]]]:
        yield chunk.answered
        for ended in self._ways.generate(chunk.generations):
            yield [(each.number, each.response()) for each in ended]
