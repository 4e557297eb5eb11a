"""Runners for transformers models in padded batches: any causal model, and those with an encoder and a decoder."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from assay.models.local.fallbacks import DeviceAttempt, reason_of
from assay.models.local.generation import NAN_LOGITS, NO_TOKEN, Generation
from assay.models.local.hf.fallback import check_usable
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.scoring import ScoredPair, uniform_memory_errors
from assay.models.local.slots import BLOCK, TokenSampler, is_bad
from assay.models.local.tokenizer import HFTokenizer
from assay.models.local.windows import Pair, Windows
from assay.records import Loglikelihood, Request, Response

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 64
TOKENS = 16_384
"""Tokens of a batch, padding included."""
LOGITS = 1 << 29
"""Maximum number of logits of a batch: every token has one for each token of the vocabulary."""
PADDING_TOLERANCE = 1e-2
"""Maximum difference of logits after padding from those without, in standard deviations."""

ModelInputs = dict[str, Any]
"""Keyword arguments of a model: tensors, and its key-value cache."""
Question = tuple[tuple[int, ...], tuple[int, ...]]
"""A context, and a continuation without its last token."""


class PaddedRunner:
    """Runs a causal model in padded batches. Equal contexts with equal continuations but for the last token are computed once."""

    def __init__(self, loaded: LoadedHFModel, tokenizer: HFTokenizer, max_batch: int | None) -> None:
        self.remarks: dict[str, str] = {}
        self._model, self._tokenizer, self._ends = loaded.model, tokenizer, end_tokens(loaded, tokenizer)
        self._device = loaded.device
        self._rows, self._length = max_batch or ROWS, loaded.max_length()
        vocab_size = getattr(loaded.model.config.get_text_config(), "vocab_size", 0) or 1
        self._tokens = max(512, min(TOKENS, LOGITS // vocab_size))
        self._alone_beyond = length_dependent_beyond(loaded.model)
        self._inputs: ModelInputs = {}
        self._pads, self._is_tried = True, loaded.is_seq2seq

    def try_texts(self) -> None:
        """Find the inputs of every step of a text, and whether texts may be padded: once, on a short one."""
        if self._is_tried:
            return
        self._is_tried = True
        with DeviceAttempt() as attempt:
            self._pads = _ignores_padding(self._model, self._device, {})
        if attempt.error is None:
            return
        check_usable(self._device, attempt.error)
        why = reason_of(attempt.error)
        self.remarks["generate"] = f"texts are computed again for every token: its cache failed: {why}"
        self._inputs = {"use_cache": False}
        self._pads = _ignores_padding(self._model, self._device, self._inputs)

    @property
    def way(self) -> str:
        return "padded"

    def forget(self) -> None:
        """Drop what is kept for later requests: nothing."""

    def expect(self, seconds: float) -> None:
        """Nothing is prepared for a long run."""

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    # log-likelihoods

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        for pairs in chunks:
            asked: dict[Question, list[Pair]] = {}
            for pair in pairs:
                asked.setdefault((tuple(pair[1]), tuple(pair[2][:-1])), []).append(pair)
            waiting = sorted(asked, key=lambda question: -len(question[0]) - len(question[1]))
            while waiting:
                some = self._some([len(context) + len(rest) for context, rest in waiting])
                try:
                    yield self._score(waiting[:some], [asked[question] for question in waiting[:some]])
                except torch.OutOfMemoryError:
                    if some > 1:
                        self._rows = some // 2
                        continue
                    yield [too_long(pair) for pair in asked[waiting[0]]]
                waiting = waiting[some:]

    def _some(self, lengths: Sequence[int], tokens: int | None = None) -> int:
        """Number of texts in the next batch, of at most that many tokens."""
        if self._alone_beyond is not None and lengths[0] > self._alone_beyond:
            return 1
        return max(1, min(len(lengths), self._rows, (tokens or self._tokens) // max(lengths[0], 1)))

    def _score(self, questions: Sequence[Question], pairs: Sequence[Sequence[Pair]]) -> list[ScoredPair]:
        started = time.perf_counter()
        with torch.inference_mode():
            logits = self._logits(questions)
            scored = [
                (pair, *_likelihood(row[: len(rest) + 1], pair[2]), index)
                for row, (_, rest), alike in zip(logits, questions, pairs, strict=True)
                for index, pair in enumerate(alike)
            ]
        seconds = (time.perf_counter() - started) / max(len(scored), 1)
        return [
            ScoredPair(pair[0], value, greedy, (read := len(pair[1]) + len(pair[2]) - 1), read if index else 0, seconds,
                  "" if value == value else NAN_LOGITS)
            for pair, value, greedy, index in scored
        ]  # fmt: skip

    def _logits(self, questions: Sequence[Question]) -> list[torch.Tensor]:
        """Return the logits of each question from the end of its context on."""
        tokens, mask = self._padded([context + rest for context, rest in questions])
        with uniform_memory_errors():
            logits = self._model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        return [row[len(context) - 1 :] for row, (context, _) in zip(logits, questions, strict=True)]

    def _padded(self, rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, rows))
        gaps = [longest - len(row) for row in rows]
        padded = [[0] * gap + list(row) if left else list(row) + [0] * gap for row, gap in zip(rows, gaps, strict=True)]
        seen = [
            [0] * gap + [1] * len(row) if left else [1] * len(row) + [0] * gap
            for row, gap in zip(rows, gaps, strict=True)
        ]
        return torch.tensor(padded, device=self._device), torch.tensor(seen, device=self._device)

    # texts

    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]:
        self.try_texts()
        waiting = sorted(generations, key=lambda each: (-each.size, -len(each.tokens)))
        while waiting:
            some = self._some([each.size for each in waiting])
            if not self._pads:
                some = next((n for n in range(some) if len(waiting[n].tokens) != len(waiting[0].tokens)), some)
            try:
                self._generate(waiting[:some])
            except torch.OutOfMemoryError:
                if some > 1:
                    self._rows = some // 2
                    for each in waiting[:some]:
                        each.restart()
                    continue
                waiting[0].problem = f"{waiting[0].size} tokens do not fit into device memory"
            yield waiting[:some]
            waiting = waiting[some:]

    def _generate(self, batch: Sequence[Generation]) -> None:
        started = time.perf_counter()
        with torch.inference_mode():
            draw = TokenSampler(len(batch), self._device)
            everyone = torch.arange(len(batch), device=self._device)
            draw.set(everyone, batch)
            text = self._started(batch)
            while ahead := max((each.left for each in batch if not (each.finish or each.problem)), default=0):
                draw.prepare([None if each.finish else each for each in batch], BLOCK)
                block = []
                for step in range(min(BLOCK, ahead)):
                    chosen = draw.choose(text.logits, everyone, draw.uniforms[step])
                    block.append(torch.where(text.is_bad, NO_TOKEN, chosen))
                    if step + 1 < ahead:
                        text.step(chosen)
                self._add_tokens(batch, torch.stack(block).cpu().T.tolist())
        for each in batch:
            each.seconds = (time.perf_counter() - started) / len(batch)

    def _add_tokens(self, batch: Sequence[Generation], written: Sequence[Sequence[int]]) -> None:
        for each, tokens in zip(batch, written, strict=True):
            if not (each.finish or each.problem):
                each.take(tokens, self._ends, self._tokenizer.decode)

    def _started(self, batch: Sequence[Generation]) -> "_PaddedBatch":
        tokens, mask = self._padded([each.tokens for each in batch], left=True)
        return _PaddedBatch(self._model, tokens, mask, self._length, **self._inputs)


class _PaddedBatch:
    """Rows in generation, with the model's key-value cache; without one every step computes the whole text again."""

    def __init__(self, model: Any, tokens: torch.Tensor, mask: torch.Tensor, length: int, **inputs: Any) -> None:
        """`length` is the number of positions; a finished text in a running batch stays at the last."""
        self._model, self._tokens, self._mask, self._length = model, tokens, mask, length
        self._inputs: ModelInputs = {"use_cache": True} | inputs
        self._cache: Any = None
        self.is_bad = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        self._forward(tokens)

    def step(self, chosen: torch.Tensor) -> None:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(chosen), 1)], dim=1)
        self._tokens = torch.cat([self._tokens, chosen[:, None]], dim=1)
        self._forward(chosen[:, None] if self._cache is not None else self._tokens)

    def _forward(self, tokens: torch.Tensor) -> None:
        with uniform_memory_errors():
            output = self._model(**self._model_inputs(tokens), **self._inputs)
        self._cache = getattr(output, "past_key_values", None)
        self.logits = output.logits[:, -1]
        self.is_bad |= is_bad(self.logits)

    def _model_inputs(self, tokens: torch.Tensor) -> ModelInputs:
        positions = (self._mask.cumsum(-1) - 1).clamp(0, self._length - 1)[:, -tokens.shape[1] :]
        asked = {"input_ids": tokens, "attention_mask": self._mask, "position_ids": positions}
        return asked | ({"past_key_values": self._cache} if self._cache is not None else {})


class _DecoderBatch(_PaddedBatch):
    """Rows of a decoder, after the encoder has run."""

    def _model_inputs(self, tokens: torch.Tensor) -> ModelInputs:
        return {"decoder_input_ids": tokens} | ({"past_key_values": self._cache} if self._cache is not None else {})


class Seq2SeqRunner(PaddedRunner):
    """Runs an encoder-decoder model."""

    @property
    def way(self) -> str:
        return "encoder-decoder"

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        """Return the pair of a request: context and continuation are tokenized separately."""
        assert isinstance(request, Loglikelihood)
        whole = request.text
        context = whole.rstrip()
        continuation = whole[len(context) :] + request.continuation
        return windows.pairs_of(number, self._tokenizer.encode(context), self._tokenizer.encode_bare(continuation))

    def _logits(self, questions: Sequence[Question]) -> list[torch.Tensor]:
        tokens, mask = self._padded([context or (self._tokenizer.prefix,) for context, _ in questions])
        start = self._model.config.decoder_start_token_id
        written, seen = self._padded([(start, *rest) for _, rest in questions])
        with uniform_memory_errors():
            logits = self._model(
                input_ids=tokens, attention_mask=mask, decoder_input_ids=written, decoder_attention_mask=seen
            ).logits
        return list(logits)

    def _started(self, batch: Sequence[Generation]) -> _PaddedBatch:
        tokens, mask = self._padded([each.tokens for each in batch])
        with uniform_memory_errors():
            read = self._model.get_encoder()(input_ids=tokens, attention_mask=mask)
        first = torch.full((len(batch), 1), self._model.config.decoder_start_token_id, device=tokens.device)
        inputs = {"encoder_outputs": read, "attention_mask": mask}
        return _DecoderBatch(self._model, first, torch.ones_like(first), self._length, **inputs)


def _ignores_padding(model: "PreTrainedModel", device: torch.device, inputs: ModelInputs) -> bool:
    """Whether masked padding before a text leaves its logits unchanged, and those after one more token."""
    size = model.config.get_text_config().vocab_size
    tokens = torch.arange(3, 12, device=device) % size
    padded = torch.cat([tokens.new_zeros(5), tokens])
    mask = torch.cat([tokens.new_zeros(5), torch.ones_like(tokens)])
    with torch.inference_mode():
        alone = _PaddedBatch(model, tokens[None], torch.ones_like(tokens)[None], len(padded) + 1, **inputs)
        behind = _PaddedBatch(model, padded[None], mask[None], len(padded) + 1, **inputs)
        is_same = _is_near(alone.logits, behind.logits)
        for batch in (alone, behind):
            batch.step(tokens[:1])
    return is_same and _is_near(alone.logits, behind.logits)


def _is_near(some: torch.Tensor, expected: torch.Tensor) -> bool:
    coarse = PADDING_TOLERANCE if expected.dtype == torch.float32 else 20 * PADDING_TOLERANCE
    return bool((some.float() - expected.float()).abs().max() <= coarse * expected.float().std())


def _likelihood(logits: torch.Tensor, continuation: Sequence[int]) -> tuple[float, bool]:
    scores = logits.float().log_softmax(-1)
    if not bool((logits.amax(-1) < torch.inf).all()):
        return float("nan"), False
    targets = torch.tensor(continuation, device=logits.device)
    value = scores.gather(-1, targets[:, None]).sum()
    return float(value), bool((scores.argmax(-1) == targets).all())


def too_long(pair: Pair) -> ScoredPair:
    reason = f"{len(pair[1]) + len(pair[2]) - 1} tokens do not fit into device memory"
    return ScoredPair(pair[0], 0.0, False, 0, 0, 0.0, reason)


def end_tokens(loaded: LoadedHFModel, tokenizer: HFTokenizer) -> frozenset[int]:
    """Return the EOS tokens of the tokenizer and of the generation config."""
    config = getattr(loaded.model, "generation_config", None)
    eos = getattr(config, "eos_token_id", None)
    more = eos if isinstance(eos, list) else [eos]
    return frozenset(token for token in (tokenizer.end, *more) if token is not None)


def length_dependent_beyond(model: "PreTrainedModel") -> int | None:
    """Length above which the positions of a text depend on the longest text of the batch."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [rope, *(each for each in rope.values() if isinstance(each, Mapping))]
    scaling = next((each for each in kinds if each.get("rope_type", each.get("type")) in ("dynamic", "longrope")), None)
    if scaling is None:
        return None
    first = scaling.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    return int(first or config.max_position_embeddings)
