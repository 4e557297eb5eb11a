"""Models in vLLM's engine, in this process.

Log-likelihoods come from an engine made to generate. vLLM does not use its prefix cache for a prompt whose log-probabilities
are requested. A one-token continuation is therefore read off the next generated token: the prompt is the context alone,
shared by all choices of a question.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from assay.config.option import YAMLMapping
from assay.config.source import digest
from assay.errors import ConfigError, installing
from assay.models.conversations import answer_rendered
from assay.models.local.loading import fingerprint_folder
from assay.models.local.tokenizer import HFTokenizer, TokenizedModel
from assay.models.local.windows import Windows
from assay.models.protocol import Answered, Can
from assay.models.reasoning import START, Draft
from assay.models.tokenizer import stops_of
from assay.records import LIMITS, Failed, Generate, Loglikelihood, Request, Response, Rolling, Usage, limit_of
from assay.signatures import argument_names

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class VLLMLibrary(NamedTuple):
    """Names from vLLM: the engine, the sampling parameters, and the errors for invalid arguments of either."""

    llm: Any
    sampling: Any
    errors: tuple[type[Exception], ...]


def load_library() -> VLLMLibrary:
    """Import vLLM; raise a ConfigError if it is not installed."""
    try:
        from vllm import LLM, SamplingParams
    except ModuleNotFoundError:
        what, fix = "vllm is not installed", f"{installing('vllm')}, or ask its server: --model openai"
        raise ConfigError.at("model", what, fix) from None
    errors: tuple[type[Exception], ...] = (TypeError, ValueError)
    with suppress(ImportError):  # older ones raise ValueError
        from vllm.exceptions import VLLMError

        errors = (*errors, VLLMError)
    return VLLMLibrary(LLM, SamplingParams, errors)


def start_engine(library: VLLMLibrary, model: str, arguments: YAMLMapping) -> Any:
    """Start an engine; raise a ConfigError with vLLM's message if it does not start."""
    errors: tuple[type[Exception], ...] = (*library.errors, OSError, RuntimeError)
    try:
        return library.llm(model=model, **arguments)
    except errors as error:
        what = f"vllm does not start: {error}"
        raise ConfigError.at("model_args", what, "see vLLM's log above") from None


def load_transformers_tokenizer(name: str, arguments: YAMLMapping) -> "PreTrainedTokenizerBase":
    """Load a transformers tokenizer."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            name, **{key: value for key, value in arguments.items() if value is not None}
        )
    except (OSError, ValueError) as error:
        what = f"no tokenizer in {name}: {str(error).strip().splitlines()[0]}"
        raise ConfigError.at("model_args.tokenizer", what, "give a folder or a hub name") from None


def folder_of(name: str, revision: str | None, what_for: str = "pretrained") -> Path:
    """Return the folder of a model, downloaded from the hub if it is not a local folder."""
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=["*.pth", "original/*", "*.gguf"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        what = f"{name!r} is not a local folder, and the hub does not provide it: {str(error).strip().splitlines()[0]}"
        raise ConfigError.at(f"model_args.{what_for}", what, "check the name, or give a folder") from None


def check_arguments(
    parallel: int, model_len: int | None, length: int | None, *, enable_lora: bool, lora: str | None
) -> None:
    """Raise a ConfigError for invalid arguments and combinations."""
    if parallel != 1:
        what = f"one engine has data_parallel_size=1, got {parallel}"
        fix = f"give the run --replicas {parallel}, or assay.Fleet('vllm', {{…}}, replicas={parallel})"
        raise ConfigError.at("model_args.data_parallel_size", what, fix)
    if None not in (model_len, length) and model_len != length:
        what = f"max_model_len and max_length must be equal, got {model_len} and {length}"
        raise ConfigError.at("model_args.max_length", what, "give one of them")
    if enable_lora and lora is None:
        what = "enable_lora needs an adapter"
        raise ConfigError.at("model_args.enable_lora", what, "give lora_local_path=DIR, which enables it")
    if lora is not None and not Path(lora).is_dir():
        raise ConfigError.at("model_args.lora_local_path", f"no folder named {lora!r}", "give the folder of an adapter")


TokenScore = tuple[float, bool]
"""A log-likelihood, and whether each of its tokens was the most likely."""
SamplingArguments = Mapping[str, Any]
"""Keyword arguments of vLLM's SamplingParams."""
EngineOutput = Any
"""An output of vLLM's engine, whose class is known where vLLM is installed."""
EngineCall = Callable[[Sequence[Sequence[int]], Sequence[SamplingArguments]], Sequence[EngineOutput]]
"""Takes prompts in tokens with their sampling parameters; returns the engine's outputs in that order."""

TOP_LOGPROBS = 20
"""Number of top log-probabilities requested: the engine's default maximum."""
MAX_CALL_TOKENS = 1 << 18
"""Maximum number of prompt tokens of one call: vLLM creates an object for each."""
ONE_TOKEN = {"temperature": 0.0, "max_tokens": 1, "detokenize": False}


class TokenQuery(NamedTuple):
    """Tokens whose last `length` are scored."""

    tokens: tuple[int, ...]
    length: int


def score_queries(
    queries: Sequence[TokenQuery], generate: EngineCall, *, names_tokens: bool
) -> Iterator[list[tuple[int, TokenScore]]]:
    """Yield the numbered scores of queries, one engine call at a time.

    `names_tokens`: the engine returns log-probabilities of given tokens. Otherwise tokens that are not among the most
    likely are scored like longer continuations: no value is invented.
    """
    short = [number for number, piece in enumerate(queries) if piece.length == 1 and len(piece.tokens) > 1]
    left: list[int] = []
    for scores, missed in _score_next_tokens(queries, short, generate, names_tokens=names_tokens):
        left += missed
        yield scores
    known = set(short) - set(left)
    yield from _score_prompts(queries, [number for number in range(len(queries)) if number not in known], generate)


def _score_next_tokens(
    queries: Sequence[TokenQuery], numbers: Sequence[int], generate: EngineCall, *, names_tokens: bool
) -> Iterator[tuple[list[tuple[int, TokenScore]], list[int]]]:
    """Score one-token continuations by the next token's log-probabilities; yield scores, and the numbers without one."""
    contexts: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        contexts.setdefault(queries[number].tokens[:-1], []).append(number)
    for batch in _calls(sorted(contexts, key=lambda context: (-len(context), context))):
        targets = [sorted({queries[number].tokens[-1] for number in contexts[context]}) for context in batch]
        asked = [_next_token(tokens, names_tokens=names_tokens) for tokens in targets]
        scores: list[tuple[int, TokenScore]] = []
        missed: list[int] = []
        for context, output in zip(batch, generate(batch, asked), strict=True):
            chosen, values = output.outputs[0].token_ids[0], output.outputs[0].logprobs[0]
            for number in contexts[context]:
                token = queries[number].tokens[-1]
                if token in values:
                    scores.append((number, (float(values[token].logprob), token == chosen)))
                else:
                    missed.append(number)
        yield scores, missed


def _next_token(tokens: Sequence[int], *, names_tokens: bool) -> SamplingArguments:
    if names_tokens and len(tokens) <= TOP_LOGPROBS:
        return {**ONE_TOKEN, "logprob_token_ids": tokens}
    return {**ONE_TOKEN, "logprobs": TOP_LOGPROBS}


def _score_prompts(
    queries: Sequence[TokenQuery], numbers: Sequence[int], generate: EngineCall
) -> Iterator[list[tuple[int, TokenScore]]]:
    """Score queries by the log-probabilities of prompts; equal prompts are sent once."""
    prompts: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        prompts.setdefault(queries[number].tokens, []).append(number)
    for batch in _calls(sorted(prompts, key=lambda prompt: (-len(prompt), prompt))):
        outputs = generate(batch, [{**ONE_TOKEN, "prompt_logprobs": 1}] * len(batch))
        yield [
            (number, _sum_logprobs(tokens, output.prompt_logprobs, queries[number].length))
            for tokens, output in zip(batch, outputs, strict=True)
            for number in prompts[tokens]
        ]


def _sum_logprobs(tokens: Sequence[int], logprobs: Sequence[EngineOutput], length: int) -> TokenScore:
    total, greedy = 0.0, True
    for at in range(len(tokens) - length, len(tokens)):
        values = logprobs[at]
        value = float(values[tokens[at]].logprob)
        total += value
        greedy = greedy and value >= max(each.logprob for each in values.values())
    return total, greedy


def _calls(prompts: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Split prompts into engine calls of limited size."""
    call: list[tuple[int, ...]] = []
    held = 0
    for prompt in prompts:
        if call and held + len(prompt) > MAX_CALL_TOKENS:
            yield call
            call, held = [], 0
        call.append(prompt)
        held += len(prompt)
    if call:
        yield call


OWN = ("until", "do_sample", "temperature", *LIMITS)
"""Generation parameters with another name in vLLM."""
NOT_IN_IDENTITY = ("tensor_parallel_size", "gpu_memory_utilization", "max_num_seqs", "tokenizer", "tokenizer_revision")
"""Engine arguments that are not part of the identity; a tokenizer counts by its content."""


class VLLMRequest(NamedTuple):
    """A generation request for the engine; `cut` tokens of the prompt were truncated."""

    tokens: list[int]
    params: Mapping[str, Any]
    cut: int


class VLLM(TokenizedModel):
    """A model in vLLM's engine, which the extra `vllm` installs.

    One-token choices are scored by the next token, with their shared prefix computed once; longer ones by the prompt's
    log-probabilities. Each generation has its own stop strings, limit and seed.
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
        check_arguments(data_parallel_size, max_model_len, max_length, enable_lora=enable_lora, lora=lora_local_path)
        library = load_library()
        self.folder = folder_of(pretrained, revision)
        tokenizer_args = {
            "revision": tokenizer_revision,
            "trust_remote_code": trust_remote_code,
            "add_bos_token": add_bos_token,
        }
        loaded = load_transformers_tokenizer(
            tokenizer or str(self.folder), {**tokenizer_args, "use_fast": tokenizer_mode != "slow"}
        )
        own = HFTokenizer(loaded, add_bos_token, prefix_token_id)
        self._set_tokenizer(own, chat_template, chat_template_args, enable_thinking)
        has_chat = bool(loaded.chat_template)
        self.can, self.cuts = Can(chat=has_chat, named_templates=has_chat), over_length == "truncate"
        self._tags = (START, think_end_token) if think_end_token else None
        self._lora, self._seed, self._limit = lora_local_path, seed, max_gen_toks
        self._tokenizer_folder = (
            folder_of(tokenizer, tokenizer_revision, "tokenizer") if tokenizer is not None else None
        )
        max_batch = batch_size if isinstance(batch_size, int) else max_batch_size
        arguments: dict[str, Any] = {
            "dtype": dtype, "tokenizer": tokenizer, "tokenizer_mode": tokenizer_mode, "tokenizer_revision": tokenizer_revision,
            "trust_remote_code": trust_remote_code, "tensor_parallel_size": tensor_parallel_size, "quantization": quantization,
            "gpu_memory_utilization": gpu_memory_utilization, "max_model_len": max_model_len or max_length, "seed": seed,
            "max_num_seqs": max_batch, "enforce_eager": enforce_eager or None,
            **({"enable_lora": True, "max_lora_rank": max_lora_rank} if lora_local_path else {}), **(engine_args or {}),
        }  # fmt: skip
        self._engine_args = {key: value for key, value in arguments.items() if value is not None}
        self._tokenizer_options = (add_bos_token, prefix_token_id, think_end_token, max_gen_toks)
        self._engine = start_engine(library, str(self.folder), self._engine_args)
        self._sampling, self._errors = library.sampling, library.errors
        self._known = argument_names(self._sampling)
        self.max_length: int | None = int(self._engine.llm_engine.model_config.max_model_len)

    @classmethod
    def tokenizer_alone(cls, **arguments: Any) -> TokenizedModel:
        """The tokenizer without the engine, from files of this machine."""
        named, begins = arguments.get("tokenizer"), arguments.get("add_bos_token")
        loaded = load_transformers_tokenizer(
            named or str(Path(arguments["pretrained"]).expanduser()),
            {
                "revision": arguments.get("tokenizer_revision" if named else "revision"),
                "trust_remote_code": arguments.get("trust_remote_code"),
                "add_bos_token": begins,
                "use_fast": arguments.get("tokenizer_mode") != "slow",
                "local_files_only": True,
            },
        )
        return cls._alone(HFTokenizer(loaded, begins), arguments)

    # identity

    @cached_property
    def identity(self) -> str:
        """Digest of the folders and of all arguments that responses depend on."""
        fields = sorted((key, repr(value)) for key, value in self._engine_args.items() if key not in NOT_IN_IDENTITY)
        others = [self._tokenizer_folder, Path(self._lora) if self._lora else None]
        content = fingerprint_folder(self.folder, *(folder for folder in others if folder is not None))
        return f"vllm {content} {digest(repr((fields, self._tokenizer_options, self.cuts)).encode())}"

    # the engine

    def _generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingArguments]
    ) -> Sequence[EngineOutput]:
        """Call the engine once."""
        sampling = [self._sampling(**each) for each in params]
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        lora: dict[str, Any] = {"lora_request": self._adapter} if self._lora else {}
        outputs: Sequence[Any] = self._engine.generate(inputs, sampling, use_tqdm=False, **lora)
        return outputs

    @cached_property
    def _adapter(self) -> Any:
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, str(self._lora))

    @property
    def _max_prompt(self) -> int:
        """Maximum prompt length: the engine always generates one token more."""
        return (self.max_length or 2048) - 1

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return answer_rendered(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """Yield log-likelihoods, then texts."""
        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        written = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        for answered in self._score(scored):
            yield answered
        if written:
            yield self._generate_texts(written)

    # log-likelihoods

    def _score(self, requests: Sequence[tuple[int, Request]]) -> Iterator[list[tuple[int, Response]]]:
        """Yield responses as they come. A text longer than the context length is scored in windows."""
        self._tokenizer.prime(
            (request.text for _, request in requests if isinstance(request, Rolling)),
            ((request.text, request.continuation) for _, request in requests if isinstance(request, Loglikelihood)),
        )
        tokenizer = self._tokenizer
        windows = Windows(
            tokenizer.encode, tokenizer.pair, tokenizer.prefix, self._max_prompt - 1, self.cuts, is_counted=False
        )
        queries: list[TokenQuery] = []
        known: list[tuple[int, Response]] = []
        for number, request in requests:
            pairs = windows.pairs(number, request)
            if isinstance(pairs, list):
                queries += [
                    TokenQuery((*context, *continuation), len(continuation)) for _, context, continuation in pairs
                ]
            elif isinstance(pairs, Failed):
                known.append(
                    (
                        number,
                        Failed(
                            f"its tokens plus one generated token exceed the model's context length of {self.max_length}"
                        ),
                    )
                )
            else:
                known.append((number, pairs))
        yield known
        for scored in score_queries(queries, self._generate, names_tokens="logprob_token_ids" in self._known):
            yield [numbered for pair, scores in scored for numbered in windows.add(pair, *scores)]

    # generation

    def _generate_texts(self, requests: Sequence[tuple[int, Generate]]) -> list[tuple[int, Response]]:
        """Generate all texts in one call, each with its own parameters."""
        self._tokenizer.prime(request.text for _, request in requests)
        built = [(number, request, self._build(request)) for number, request in requests]
        failed: list[tuple[int, Response]] = [(number, each) for number, _, each in built if isinstance(each, Failed)]
        asked = [(number, request, each) for number, request, each in built if not isinstance(each, Failed)]
        if not asked:
            return failed
        outputs = self._generate([each.tokens for _, _, each in asked], [each.params for _, _, each in asked])
        return failed + [
            (number, self._text(request, output.outputs[0], each.cut))
            for (number, request, each), output in zip(asked, outputs, strict=True)
        ]

    def _build(self, request: Generate) -> VLLMRequest | Failed:
        """Build the engine request of a generation. The limit is reduced before a long prompt fails; for a model that thinks,
        stop strings apply to the answer alone."""
        params, length = request.params, self._max_prompt + 1
        tokens, limit = (
            self._tokenizer.encode(request.text) or [self._tokenizer.prefix],
            limit_of(params) or self._limit,
        )
        cut = len(tokens) + limit - length if self.cuts and 0 < length - limit < len(tokens) else 0
        if len(tokens) - cut >= length:
            return Failed(f"{len(tokens)} tokens exceed the model's context length of {length}")
        more = {key: value for key, value in params.items() if key not in OWN and value is not None}
        unknown = sorted(set(more) - self._known)
        if unknown:
            return Failed(f"unsupported generation parameter {unknown[0]!r}")
        sampling = {
            **more, "max_tokens": min(limit, length - len(tokens) + cut), "stop": [] if self._tags else stops_of(params),
            "temperature": 0.0, "skip_special_tokens": False, "spaces_between_special_tokens": False,
        }  # fmt: skip
        if request.is_sampled:
            drawn = float(str(params.get("temperature") or 1.0))
            sampling |= {"temperature": drawn, "seed": seed_of(request, self._seed)}
        try:
            self._sampling(**sampling)
        except self._errors as error:
            return Failed(f"invalid generation parameters: {error}")
        return VLLMRequest(tokens[cut:], sampling, cut)

    def _text(self, request: Generate, output: EngineOutput, cut: int) -> Response:
        if output.finish_reason not in ("stop", "length"):
            return Failed(f"vllm aborted the generation (finish_reason: {output.finish_reason})")
        draft = Draft(stops_of(request.params), self._tags)
        draft.add(output.text)
        draft.finish = output.finish_reason
        draft.usage = Usage(cut=cut) if cut else None
        return draft.whole()


def seed_of(request: Generate, seed: int) -> int:
    """Seed of a generation: distinct for every prompt, repeat and draw, independent of the batch."""
    text = f"{seed}\0".encode() + request.seed_bytes
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) >> 1
