"""Models of transformers asked plainly: a batch of padded rows at a time. For those whose attention is not to be had
otherwise, and for those that read a text before they write one."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from assay.models.local.generation import NO_TOKEN, NOT_NUMBERS, Writing
from assay.models.local.hf.loading import Loaded
from assay.models.local.hf.tokenizer import Words
from assay.models.local.memory import short_of_memory
from assay.models.local.scoring import Found
from assay.models.local.slots import BLOCK, Draw, is_bad
from assay.models.local.windows import Pair, Windows
from assay.records import Loglikelihood, Request, Response

ROWS = 64
TOKENS = 16_384
"""Of a batch, padding included."""
LOGITS = 1 << 29
"""Numbers of a batch that logits may be: every token has one for every word of the vocabulary."""
SAME = 1e-2
"""How far, in units of their spread, logits behind padding may be from those without."""

Question = tuple[tuple[int, ...], tuple[int, ...]]
"""A context, and a continuation without its last token."""


class PlainAsker:
    """Asks a model that goes on from a text. The same context with the same beginning of a continuation is read once."""

    def __init__(self, loaded: Loaded, words: Words, most: int | None) -> None:
        from assay.models.local.hf.asking import ends_of, stretches_beyond

        self.remarks: dict[str, str] = {}
        self._model, self._words, self._ends = loaded.model, words, ends_of(loaded, words)
        self._rows, self._length = most or ROWS, loaded.max_length()
        words_known = getattr(loaded.model.config.get_text_config(), "vocab_size", 0) or 1
        self._tokens = max(512, min(TOKENS, LOGITS // words_known))
        self._alone_beyond = stretches_beyond(loaded.model)
        self._pads = loaded.is_seq2seq or _ignores_padding(loaded.model)

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    # log-likelihoods

    def read(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[Found]]:
        for pairs in chunks:
            asked: dict[Question, list[Pair]] = {}
            for pair in pairs:
                asked.setdefault((tuple(pair[1]), tuple(pair[2][:-1])), []).append(pair)
            waiting = sorted(asked, key=lambda question: -len(question[0]) - len(question[1]))
            while waiting:
                some = self._some([len(context) + len(rest) for context, rest in waiting])
                try:
                    yield self._read(waiting[:some], [asked[question] for question in waiting[:some]])
                except torch.OutOfMemoryError:
                    if some > 1:
                        self._rows = some // 2
                        continue
                    yield [_too_long(pair) for pair in asked[waiting[0]]]
                waiting = waiting[some:]

    def _some(self, lengths: Sequence[int]) -> int:
        """How many of these go into the next batch."""
        if self._alone_beyond is not None and lengths[0] > self._alone_beyond:
            return 1
        return max(1, min(len(lengths), self._rows, self._tokens // max(lengths[0], 1)))

    def _read(self, questions: Sequence[Question], pairs: Sequence[Sequence[Pair]]) -> list[Found]:
        began = time.perf_counter()
        with torch.inference_mode():
            logits = self._logits(questions)
            found = [
                (pair, *_likelihood(row[: len(rest) + 1], pair[2]), index)
                for row, (_, rest), several in zip(logits, questions, pairs, strict=True)
                for index, pair in enumerate(several)
            ]
        seconds = (time.perf_counter() - began) / max(len(found), 1)
        return [
            Found(pair[0], value, greedy, (read := len(pair[1]) + len(pair[2]) - 1), read if index else 0, seconds,
                  "" if value == value else NOT_NUMBERS)
            for pair, value, greedy, index in found
        ]  # fmt: skip

    def _logits(self, questions: Sequence[Question]) -> list[torch.Tensor]:
        """Of each question the logits from the end of its context on."""
        tokens, mask = self._padded([context + rest for context, rest in questions])
        with short_of_memory():
            logits = self._model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        return [row[len(context) - 1 :] for row, (context, _) in zip(logits, questions, strict=True)]

    def _padded(self, rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, rows))
        gaps = [longest - len(row) for row in rows]
        made = [[0] * gap + list(row) if left else list(row) + [0] * gap for row, gap in zip(rows, gaps, strict=True)]
        seen = [
            [0] * gap + [1] * len(row) if left else [1] * len(row) + [0] * gap
            for row, gap in zip(rows, gaps, strict=True)
        ]
        device = self._model.device
        return torch.tensor(made, device=device), torch.tensor(seen, device=device)

    # texts

    def write(self, wanted: Sequence[Writing]) -> Iterator[list[Writing]]:
        waiting = sorted(wanted, key=lambda each: (-each.size, -len(each.tokens)))
        while waiting:
            some = self._some([each.size for each in waiting])
            if not self._pads:
                some = next((n for n in range(some) if len(waiting[n].tokens) != len(waiting[0].tokens)), some)
            try:
                self._write(waiting[:some])
            except torch.OutOfMemoryError:
                if some > 1:
                    self._rows = some // 2
                    for each in waiting[:some]:
                        each.restart()
                    continue
                waiting[0].problem = "more than the device has memory for"
            yield waiting[:some]
            waiting = waiting[some:]

    def _write(self, batch: Sequence[Writing]) -> None:
        began = time.perf_counter()
        with torch.inference_mode():
            draw = Draw(len(batch), self._model.device)
            everyone = torch.arange(len(batch), device=self._model.device)
            draw.set(everyone, batch)
            text = self._begun(batch)
            while ahead := max((each.left for each in batch if not (each.finish or each.problem)), default=0):
                draw.prepare([None if each.finish else each for each in batch], BLOCK)
                block = []
                for step in range(min(BLOCK, ahead)):
                    chosen = draw.choose(text.logits, everyone, draw.uniforms[step])
                    block.append(torch.where(text.is_bad, NO_TOKEN, chosen))
                    if step + 1 < ahead:
                        text.go_on(chosen)
                self._settle(batch, torch.stack(block).cpu().T.tolist())
        for each in batch:
            each.seconds = (time.perf_counter() - began) / len(batch)

    def _settle(self, batch: Sequence[Writing], written: Sequence[Sequence[int]]) -> None:
        for each, tokens in zip(batch, written, strict=True):
            if not (each.finish or each.problem):
                each.take(tokens, self._ends, self._words.decode)

    def _begun(self, batch: Sequence[Writing]) -> "_Text":
        tokens, mask = self._padded([each.tokens for each in batch], left=True)
        return _Text(self._model, tokens, mask, self._length)


class _Text:
    """Rows that are being written, with whatever the model keeps of what it has read; if it keeps nothing, it reads all
    of it again."""

    def __init__(self, model: Any, tokens: torch.Tensor, mask: torch.Tensor, length: int, **given: Any) -> None:
        """`length` is how far positions go; a text that has ended and stands beside others stays at the last."""
        self._model, self._tokens, self._mask, self._length, self._given = model, tokens, mask, length, given
        self._kept: Any = None
        self.is_bad = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        self._ask(tokens)

    def go_on(self, chosen: torch.Tensor) -> None:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(chosen), 1)], dim=1)
        self._tokens = torch.cat([self._tokens, chosen[:, None]], dim=1)
        self._ask(chosen[:, None] if self._kept is not None else self._tokens)

    def _ask(self, tokens: torch.Tensor) -> None:
        with short_of_memory():
            made = self._model(**self._asked(tokens), **self._given, use_cache=True)
        self._kept = getattr(made, "past_key_values", None)
        self.logits = made.logits[:, -1]
        self.is_bad |= is_bad(self.logits)

    def _asked(self, tokens: torch.Tensor) -> dict[str, Any]:
        positions = (self._mask.cumsum(-1) - 1).clamp(0, self._length - 1)[:, -tokens.shape[1] :]
        asked = {"input_ids": tokens, "attention_mask": self._mask, "position_ids": positions}
        return asked | ({"past_key_values": self._kept} if self._kept is not None else {})


class _Answer(_Text):
    """Answers to a text that was read before."""

    def _asked(self, tokens: torch.Tensor) -> dict[str, Any]:
        return {"decoder_input_ids": tokens} | ({"past_key_values": self._kept} if self._kept is not None else {})


class Seq2SeqAsker(PlainAsker):
    """Asks a model that reads one text and writes another."""

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        """A context and a continuation have nothing to do with each other's tokens here."""
        assert isinstance(request, Loglikelihood)
        whole = request.text
        context = whole.rstrip()
        continuation = whole[len(context) :] + request.continuation
        return windows.pairs_of(number, self._words.encode(context), self._words.encode_bare(continuation))

    def _logits(self, questions: Sequence[Question]) -> list[torch.Tensor]:
        tokens, mask = self._padded([context or (self._words.prefix,) for context, _ in questions])
        start = self._model.config.decoder_start_token_id
        written, seen = self._padded([(start, *rest) for _, rest in questions])
        with short_of_memory():
            logits = self._model(
                input_ids=tokens, attention_mask=mask, decoder_input_ids=written, decoder_attention_mask=seen
            ).logits
        return list(logits)

    def _begun(self, batch: Sequence[Writing]) -> _Text:
        tokens, mask = self._padded([each.tokens for each in batch])
        with short_of_memory():
            read = self._model.get_encoder()(input_ids=tokens, attention_mask=mask)
        first = torch.full((len(batch), 1), self._model.config.decoder_start_token_id, device=tokens.device)
        given = {"encoder_outputs": read, "attention_mask": mask}
        return _Answer(self._model, first, torch.ones_like(first), self._length, **given)


def _ignores_padding(model: Any) -> bool:
    """Whether what stands before a text, and is not to be seen, changes nothing."""
    tokens = torch.arange(3, 9, device=model.device) % model.config.get_text_config().vocab_size
    padded = torch.cat([tokens.new_zeros(5), tokens])
    mask = torch.cat([tokens.new_zeros(5), torch.ones_like(tokens)])
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        alone = model(input_ids=tokens[None], use_cache=False).logits[0, -1].float()
        behind = model(
            input_ids=padded[None], attention_mask=mask[None], position_ids=places[None], use_cache=False
        ).logits[0, -1].float()  # fmt: skip
    coarse = SAME if model.dtype == torch.float32 else 20 * SAME
    return bool((alone - behind).abs().max() <= coarse * alone.std())


def _likelihood(logits: torch.Tensor, continuation: Sequence[int]) -> tuple[float, bool]:
    scores = logits.float().log_softmax(-1)
    if not bool((logits.amax(-1) < torch.inf).all()):
        return float("nan"), False
    wanted = torch.tensor(continuation, device=logits.device)
    value = scores.gather(-1, wanted[:, None]).sum()
    return float(value), bool((scores.argmax(-1) == wanted).all())


def _too_long(pair: Pair) -> Found:
    reason = f"{len(pair[1]) + len(pair[2]) - 1} tokens are more than the device has memory for"
    return Found(pair[0], 0.0, False, 0, 0, 0.0, reason)
