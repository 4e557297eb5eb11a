"""Models in vLLM's engine, in this process."""

import hashlib
import inspect
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem
from assay.models.pretrained_words import PretrainedWords, folder_of
from assay.models.protocol import Answered, Can, Message
from assay.models.reasoning import START, Draft
from assay.models.tokens import encode_pair, rolling_windows, stops_of
from assay.models.vllm_scoring import Piece, Scores, score
from assay.records import LIMITS, Failed, Generate, Likelihood, Loglikelihood, Request, Response, Usage, limit_of

OWN = ("until", "do_sample", "temperature", *LIMITS)
"""Parameters of a generation that have another name here."""


class _Wanted(NamedTuple):
    """A generation as the engine is asked for it; `cut` tokens of the prompt were left out."""

    tokens: list[int]
    params: Mapping[str, Any]
    cut: int


class VLLM:
    """A model in vLLM's engine (`pip install 'assay[vllm]'`).

    One-token choices are read off the next token, with the prefix they share computed once; longer ones are read off the
    prompt. Each generation has its own stops, limit and seed.
    """

    name = "vllm"
    can = Can(chat=True)
    window = 4096

    def __init__(  # noqa: PLR0913  # lm-eval's arguments, by its names
        self, pretrained: str, *, dtype: str = "auto", revision: str | None = None, tokenizer: str | None = None,
        tokenizer_mode: str = "auto", tokenizer_revision: str | None = None, trust_remote_code: bool = False,
        add_bos_token: bool | None = None, prefix_token_id: int | None = None, tensor_parallel_size: int = 1,
        data_parallel_size: int = 1, quantization: str | None = None, gpu_memory_utilization: float = 0.9,
        max_model_len: int | None = None, max_length: int | None = None, max_gen_toks: int = 256,
        batch_size: int | str = "auto", max_batch_size: int | None = None, seed: int = 1234, enable_lora: bool = False,
        lora_local_path: str | None = None, max_lora_rank: int = 16, enforce_eager: bool = False,
        enable_thinking: bool | None = None, think_end_token: str | None = None,
        chat_template_args: Mapping[str, Any] | None = None, over_length: Literal["error", "truncate"] = "error",
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        _refuse(data_parallel_size, max_model_len, max_length, enable_lora=enable_lora, lora=lora_local_path)
        found = library()
        self.folder = folder_of(pretrained, revision)
        self.cuts = over_length == "truncate"
        self._tags = (START, think_end_token) if think_end_token else None
        thinks = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self._words = PretrainedWords(
            tokenizer or str(self.folder), revision=tokenizer_revision, trust_remote_code=trust_remote_code,
            is_fast=tokenizer_mode != "slow", add_bos_token=add_bos_token, prefix=prefix_token_id,
            template={**(chat_template_args or {}), **thinks},
        )  # fmt: skip
        self._lora, self._seed, self._limit = lora_local_path, seed, max_gen_toks
        most = batch_size if isinstance(batch_size, int) else max_batch_size
        told: dict[str, Any] = {
            "dtype": dtype, "tokenizer": tokenizer, "tokenizer_mode": tokenizer_mode, "tokenizer_revision": tokenizer_revision,
            "trust_remote_code": trust_remote_code, "tensor_parallel_size": tensor_parallel_size, "quantization": quantization,
            "gpu_memory_utilization": gpu_memory_utilization, "max_model_len": max_model_len or max_length, "seed": seed,
            "max_num_seqs": most, "enforce_eager": enforce_eager or None,
            **({"enable_lora": True, "max_lora_rank": max_lora_rank} if lora_local_path else {}), **(engine_args or {}),
        }  # fmt: skip
        self._told = {key: value for key, value in told.items() if value is not None}
        self._engine = start(found, str(self.folder), self._told)
        self._sampling, self._errors = found.sampling, found.errors
        self._known = frozenset(inspect.signature(self._sampling).parameters)
        self.max_length: int | None = int(self._engine.llm_engine.model_config.max_model_len)

    # who it is

    @cached_property
    def identity(self) -> str:
        """The content of the folders, and whatever else answers depend on."""
        idle = ("tensor_parallel_size", "gpu_memory_utilization", "max_num_seqs", "tokenizer", "tokenizer_revision")
        told = {key: repr(value) for key, value in self._told.items() if key not in idle}
        told |= {
            "words": self._words.identity,
            "cuts": str(self.cuts),
            "thinking": str(self._tags),
            "limit": str(self._limit),
        }
        folders = [self.folder, *([Path(self._lora)] if self._lora else [])]
        return f"vllm {_identity_of_folder(*folders)} {digest(repr(sorted(told.items())).encode())}"

    def chat_template(self, messages: list[Message], add_generation_prompt: bool) -> str:
        return self._words.chat_template(messages, add_generation_prompt)

    def count_tokens(self, text: str) -> int | None:
        return len(self._words.encode(text))

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

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        written = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        for answered in self._score(scored):
            yield answered
        if written:
            yield self._write(written)

    # log-likelihoods

    def _score(self, requests: Sequence[tuple[int, Request]]) -> Iterator[list[tuple[int, Response]]]:
        """Responses as they come. A text that is longer than the model is taken in windows."""
        pieces: list[Piece] = []
        owners: list[int] = []
        failed: dict[int, Response] = {}
        cuts: dict[int, int] = {}
        for number, request in requests:
            for context, continuation in self._windows(request):
                piece = self._piece(context, continuation)
                if isinstance(piece, Failed):
                    failed[number] = piece
                    break
                cuts[number] = len(context) + len(continuation) - len(piece.tokens)
                pieces.append(piece)
                owners.append(number)
        kept = [at for at, owner in enumerate(owners) if owner not in failed]
        open_windows = {number: 0 for number, _ in requests if number not in failed}
        for at in kept:
            open_windows[owners[at]] += 1
        yield [
            *failed.items(),
            *((number, Likelihood(0.0, True)) for number, count in open_windows.items() if not count),
        ]
        found: dict[int, Scores] = {}
        names_tokens = "logprob_token_ids" in self._known
        for several in score([pieces[at] for at in kept], self._generate, names_tokens=names_tokens):
            done: list[tuple[int, Response]] = []
            for index, (value, greedy) in several:
                number = owners[kept[index]]
                before, was_greedy = found.get(number, (0.0, True))
                found[number] = before + value, was_greedy and greedy
                open_windows[number] -= 1
                if not open_windows[number]:
                    done.append((number, Likelihood(*found[number], Usage(cut=cuts[number]) if cuts[number] else None)))
            yield done

    def _windows(self, request: Request) -> Iterator[tuple[list[int], list[int]]]:
        if isinstance(request, Loglikelihood):
            yield encode_pair(self._words.encode, request.context, request.continuation, self._words.prefix)
        elif not isinstance(request, Generate):
            yield from rolling_windows(self._words.bare(request.text), self._words.prefix, self._room - 1)

    @property
    def _room(self) -> int:
        """How many tokens a prompt may have: the engine always generates one more."""
        return (self.max_length or 2048) - 1

    def _piece(self, context: Sequence[int], continuation: Sequence[int]) -> Piece | Failed:
        tokens = (*context, *continuation)
        beyond = len(tokens) - self._room
        if beyond > 0 and not (self.cuts and beyond < len(context)):
            return Failed(f"{len(tokens)} tokens and one to come are more than the model's {self.max_length}")
        return Piece(tokens[max(beyond, 0) :], len(continuation))

    # generation

    def _write(self, requests: Sequence[tuple[int, Generate]]) -> list[tuple[int, Response]]:
        """Generations, all in one call: each with its own parameters."""
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

    def _wanted(self, request: Generate) -> "_Wanted | Failed":
        """A generation in the engine's words. What is to be generated becomes shorter before an answer is given up; where a
        model thinks, stops are for the answer alone."""
        params, most = request.params, self._room + 1
        tokens, limit = self._words.encode(request.prompt) or [self._words.prefix], limit_of(params) or self._limit
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


class Library(NamedTuple):
    """What is needed of vLLM: the engine, the parameters of sampling, and what is raised where either is told wrongly."""

    llm: Any
    sampling: Any
    errors: tuple[type[Exception], ...]


def library() -> Library:
    """vLLM, where it is installed."""
    try:
        from vllm import LLM, SamplingParams
    except ModuleNotFoundError:
        what, fix = "vllm is not installed", "pip install 'assay[vllm]', or ask its server: --model openai"
        raise ConfigError([Problem(Place("model"), what, fix)]) from None
    errors: tuple[type[Exception], ...] = (TypeError, ValueError)
    with suppress(ImportError):  # older ones raise ValueError
        from vllm.exceptions import VLLMError

        errors = (*errors, VLLMError)
    return Library(LLM, SamplingParams, errors)


def start(found: Library, model: str, told: Mapping[str, Any]) -> Any:
    """An engine at work; why it did not start is told in its words."""
    errors: tuple[type[Exception], ...] = (*found.errors, OSError, RuntimeError)
    try:
        return found.llm(model=model, **told)
    except errors as error:
        what = f"vllm does not start: {error}"
        raise ConfigError([Problem(Place("model_args"), what, "the lines above are vLLM's own account")]) from None


def seed_of(request: Generate, seed: int) -> int:
    """The seed of a generation: another for every prompt and repeat, and the same whatever else is asked with it."""
    text = f"{seed}\0{request.prompt}\0{request.repeat}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) >> 1


def _refuse(parallel: int, model_len: int | None, length: int | None, *, enable_lora: bool, lora: str | None) -> None:
    if parallel != 1:
        what = f"one process has one engine, not {parallel}"
        fix = "run the parts of --shard 1/N to N/N in processes of their own, and `assay merge` them; or use tensor_parallel_size"
        raise ConfigError([Problem(Place("model_args.data_parallel_size"), what, fix)])
    if None not in (model_len, length) and model_len != length:
        what = f"max_model_len and max_length are the same thing, and here {model_len} and {length}"
        raise ConfigError([Problem(Place("model_args.max_length"), what, "give one of them")])
    if enable_lora and lora is None:
        what = "there is no adapter to enable"
        raise ConfigError(
            [Problem(Place("model_args.enable_lora"), what, "give lora_local_path=DIR, which enables it")]
        )
    if lora is not None and not Path(lora).is_dir():
        raise ConfigError([Problem(Place("model_args.lora_local_path"), f"there is no folder {lora}", "correct it")])


def _identity_of_folder(*folders: Path) -> str:
    """Stands in for models/weights.py until that is here."""
    made = hashlib.blake2b(digest_size=16)
    for file in sorted(file for folder in folders for file in folder.iterdir() if file.is_file()):
        made.update(json.dumps(file.name).encode() + file.read_bytes())
    return made.hexdigest()
