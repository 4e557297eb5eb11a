"""Models of transformers, on this machine."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from assay.models.conversations import in_text
from assay.models.local.generation import KNOWN, Writing
from assay.models.local.hf.loading import HFOptions, Loaded, libraries, load
from assay.models.local.hf.tokenizer import Spoken, Words
from assay.models.local.hf.unsupported import IDLE, REFUSED
from assay.models.local.threads import of_torch
from assay.models.local.windows import Pair, Windows
from assay.models.protocol import Answered, Can
from assay.models.tokens import stops_of
from assay.records import Generate, Loglikelihood, Request, Response, Rolling, Usage

CHUNKS = (256, 2048)
"""So many requests are turned into tokens at a time, the first time and then: the device is to have work soon."""


class HF(Spoken):
    """A model of transformers, from a folder or the hub, in lm-eval's words."""

    name = "hf"
    window = 16_384
    idle, refused = IDLE, REFUSED
    generation = KNOWN

    def __init__(  # noqa: PLR0913  # what lm-eval's has
        self, pretrained: str, *, tokenizer: str | None = None, revision: str | None = None, subfolder: str = "",
        dtype: str = "auto", device: str | None = None, backend: Literal["default", "causal", "seq2seq"] = "default",
        batch_size: int | str | None = None, max_batch_size: int | None = None, max_length: int | None = None,
        add_bos_token: bool | None = None, prefix_token_id: int | None = None, peft: str | None = None,
        parallelize: bool = False, attn_implementation: str | None = None, trust_remote_code: bool = False,
        allow_pickle: bool = False, gguf_file: str | None = None, use_fast_tokenizer: bool = True,
        think_end_token: str | int | None = None, enable_thinking: bool | None = None,
        chat_template: str | None = None, chat_template_args: Mapping[str, Any] | None = None,
        share_prefixes: bool = True, compile: bool = False, threads: int | None = None,
        over_length: Literal["error", "truncate"] = "error",
    ) -> None:  # fmt: skip
        libraries()
        from assay.models.local.hf.asking import asker

        wanted = HFOptions(
            pretrained, tokenizer, revision, subfolder, dtype, device, backend, peft, parallelize, attn_implementation,
            trust_remote_code, allow_pickle, gguf_file, use_fast_tokenizer, add_bos_token,
        )  # fmt: skip
        self._loaded: Loaded = load(wanted)
        self._words = Words(self._loaded.tokenizer, add_bos_token, prefix_token_id, ends=self._loaded.is_seq2seq)
        self.max_length: int | None = max_length or self._loaded.max_length()
        self.cuts = over_length == "truncate"
        has_chat = bool(self._loaded.tokenizer.chat_template)
        self.can = Can(rolling=not self._loaded.is_seq2seq, chat=has_chat, named_templates=has_chat)
        self._template, self._template_args = chat_template, dict(chat_template_args or {})
        if enable_thinking is not None:
            self._template_args["enable_thinking"] = enable_thinking
        self._think_end = None if think_end_token is None else self._words.show(think_end_token)
        self._told = {
            "add_bos_token": add_bos_token, "prefix_token_id": prefix_token_id, "max_length": max_length,
            "think_end_token": think_end_token, "backend": None if backend == "default" else backend,
            "use_fast_tokenizer": None if use_fast_tokenizer else False, "gguf_file": gguf_file,
        }  # fmt: skip
        self._threads = self._loaded.threads(threads)
        most = batch_size if isinstance(batch_size, int) else max_batch_size
        with of_torch(self._threads):
            self._asker = asker(self._loaded, self._words, most, share_prefixes=share_prefixes, compiled=compile)
        self.remarks: dict[str, str] = dict(self._asker.remarks)

    @cached_property
    def identity(self) -> str:
        """The content of weights, configuration and tokenizer, in which numbers they are computed, and what was said."""
        told = "".join(f" {key}={value}" for key, value in self._told.items() if value is not None)
        cut = " of cut prompts" if self.cuts else ""
        return f"hf {self._loaded.model.dtype}{told}{cut} {self._loaded.identity}"

    @property
    def precision(self) -> str:
        """What it computes in."""
        return str(self._loaded.model.dtype).removeprefix("torch.")

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return in_text(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """The likelihoods, then the texts, each as it comes."""
        scored = [(n, r) for n, r in enumerate(requests) if not isinstance(r, Generate)]
        written = [(n, r) for n, r in enumerate(requests) if isinstance(r, Generate)]
        with of_torch(self._threads):
            for answered in self._score(scored):
                yield answered
            for answered in self._write(written):
                yield answered

    def _score(self, requests: Sequence[tuple[int, Request]]) -> Iterator[list[tuple[int, Response]]]:
        assert self.max_length is not None
        windows = Windows(self._words.encode_whole, self._words.pair, self._words.prefix, self.max_length, self.cuts)
        known: list[tuple[int, Response]] = []
        for found in self._asker.read(self._chunks(requests, windows, known)):
            landed = (
                windows.land(
                    each.number, each.value, each.greedy, problem=each.reason,
                    usage=Usage(each.read, 0, each.seconds, stored=each.stored),
                )
                for each in found
            )  # fmt: skip
            yield [*known, *(each for several in landed for each in several)]
            known.clear()
        yield known

    def _chunks(
        self, requests: Sequence[tuple[int, Request]], windows: Windows, known: list[tuple[int, Response]]
    ) -> Iterator[list[Pair]]:
        """Requests as pairs of tokens, some at a time; those that have an answer already are put among the known."""
        start = 0
        while start < len(requests):
            some = requests[start : start + CHUNKS[start > 0]]
            start += len(some)
            self._words.prime(
                (request.text for _, request in some if isinstance(request, Rolling)),
                ((request.text, request.continuation) for _, request in some if isinstance(request, Loglikelihood)),
            )
            pairs: list[Pair] = []
            for number, request in some:
                made = self._asker.pairs(windows, number, request)
                if isinstance(made, list):
                    pairs += made
                else:
                    known.append((number, made))
            yield pairs

    def _write(self, requests: Sequence[tuple[int, Generate]]) -> Iterator[list[tuple[int, Response]]]:
        assert self.max_length is not None
        self._words.prime(request.text for _, request in requests)
        writings: list[Writing] = []
        failed: list[Writing] = []
        for number, request in requests:
            tokens = self._words.encode(request.text) or [self._words.prefix]
            made = Writing(number, request, tokens, self._think_end, self._words.special(stops_of(request.params)))
            (made.fit_apart if self._loaded.is_seq2seq else made.fit)(self.max_length, self.cuts)
            (failed if made.problem else writings).append(made)
        yield [(each.number, each.response()) for each in failed]
        for ended in self._asker.write(writings):
            yield [(each.number, each.response()) for each in ended]
