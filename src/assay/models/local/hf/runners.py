"""Choose the runner of a transformers model: packed attention with shared prefixes, copied states, or padded batches."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from assay.models.local.generation import Generation
from assay.models.local.hf.checks import packed_model, stateful_model
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.hf.norms import fuse_norms
from assay.models.local.hf.padded import PaddedRunner, Seq2SeqRunner, end_tokens, length_dependent_beyond
from assay.models.local.hf.states import StateRunner
from assay.models.local.scoring import CausalLM, PackedScorer, ScoredPair
from assay.models.local.slots import SlotGenerator
from assay.models.local.tokenizer import HFTokenizer
from assay.models.local.windows import Pair, Windows
from assay.records import Request, Response

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LONG_SECONDS, SURE_SECONDS = 240, 10
"""A run whose rest takes this long gains more from compiled layers than the 10 seconds that compiling takes; and the seconds for
which that must be expected."""
ROW_TOKENS = 512
"""`batch_size` counts rows; a pass has this many tokens for each."""


class HFRunner(Protocol):
    """Score pairs of tokens and generate texts. `remarks` are notes for the user."""

    remarks: dict[str, str]

    def expect(self, seconds: float) -> None: ...
    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response: ...
    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]: ...
    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]: ...


def choose_runner(
    loaded: LoadedHFModel, tokenizer: HFTokenizer, max_batch: int | None, *, share_prefixes: bool, compiled: bool | None
) -> HFRunner:
    """Return the fastest runner that the model supports."""
    if loaded.is_seq2seq:
        return Seq2SeqRunner(loaded, tokenizer, max_batch)
    plain = PaddedRunner(loaded, tokenizer, max_batch)
    if not share_prefixes:
        return plain
    why = _length_dependence(loaded.model)
    net, reason = (None, why) if why else packed_model(loaded.model)
    if net is not None:
        if net.device.type == "cuda":
            fuse_norms(loaded.model)
        layers = CompiledLayers(loaded.model, compiled)
        return PackedRunner(net, tokenizer, end_tokens(loaded, tokenizer), max_batch, layers)
    if not why:
        stateful, why = stateful_model(loaded.model)
        if stateful is not None:
            return StateRunner(loaded, tokenizer, max_batch, stateful)
        reason = f"{reason}; {why}"
    plain.remarks["loglikelihood"] = f"prefixes are not shared between requests: {reason}"
    return plain


class PackedRunner:
    """Runs a model with packed attention."""

    def __init__(
        self,
        net: CausalLM,
        tokenizer: HFTokenizer,
        ends: frozenset[int],
        max_batch: int | None,
        layers: "CompiledLayers",
    ) -> None:
        self.remarks: dict[str, str] = {}
        self._layers = layers
        self.scorer = PackedScorer(net, max_batch * ROW_TOKENS if max_batch else None)
        self.generator = SlotGenerator(net, ends, tokenizer.decode, most_slots=max_batch)

    def expect(self, seconds: float) -> None:
        self._layers.expect(seconds)

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        self._layers.compile_if_due()
        for scored in self.scorer.score(chunks):
            yield scored
            self._layers.compile_if_due()

    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]:
        if generations:
            self.scorer.forget()  # slots get the memory
            self._layers.compile_if_due()
        return self.generator.generate(generations, self.scorer.budget.tokens)


class CompiledLayers:
    """Compiles a model's layers where that pays. They are alike, so torch compiles one."""

    def __init__(self, model: "PreTrainedModel", wanted: bool | None) -> None:
        """`wanted`: at once, never, or (None) on a GPU in a long run."""
        self._model, self._wanted = model, wanted
        self.is_due = bool(wanted)
        self._long_since: float | None = None

    def expect(self, seconds: float) -> None:
        """Take the time that the rest of the run needs. First guesses can be far off: it must be long for a while."""
        if self._wanted is not None or self._model.device.type != "cuda":
            return
        now = time.monotonic()
        if seconds < LONG_SECONDS:
            self._long_since = None
        elif self._long_since is None:
            self._long_since = now
        elif now - self._long_since > SURE_SECONDS:
            self.is_due, self._wanted = True, True

    def compile_if_due(self) -> None:
        if not self.is_due:
            return
        self.is_due = False
        names = set(getattr(self._model, "_no_split_modules", None) or ())
        for module in self._model.modules():
            if type(module).__name__ in names:
                module.compile(dynamic=True)


def _length_dependence(model: "PreTrainedModel") -> str:
    length = length_dependent_beyond(model)
    return f"above {length} tokens, its positions depend on the longest text of a batch" if length is not None else ""
