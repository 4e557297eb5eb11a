"""Choose the runner of a transformers model: packed attention with shared prefixes, copied states, or padded batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from assay.models.local.fallbacks import Fallbacks
from assay.models.local.generation import Generation
from assay.models.local.hf.causality import why_not_causal
from assay.models.local.hf.checks import packed_model, stateful_model
from assay.models.local.hf.compiled import CompiledLayers
from assay.models.local.hf.devices import spread_over
from assay.models.local.hf.fallback import FallbackRunner, Way
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.hf.padded import PaddedRunner, Seq2SeqRunner, end_tokens, length_dependent_beyond
from assay.models.local.hf.states import StateRunner
from assay.models.local.hf.ways import eager_experts, ensure_forward, packed_ways, plain_way
from assay.models.local.scoring import CausalLM, PackedScorer, ScoredPair
from assay.models.local.slots import SlotGenerator
from assay.models.local.tokenizer import HFTokenizer
from assay.models.local.windows import Pair, Windows
from assay.records import Request, Response

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROW_TOKENS = 512
"""`batch_size` counts rows; a pass has this many tokens for each."""


def choose_runner(
    loaded: LoadedHFModel, tokenizer: HFTokenizer, max_batch: int | None, *, share_prefixes: bool, compiled: bool | None
) -> FallbackRunner:
    """Return the ways in which the model can be run, the fastest first."""
    fallbacks = Fallbacks()
    logits = ensure_forward(loaded, fallbacks)
    if loaded.is_seq2seq:
        return _runner(loaded, [Way(Seq2SeqRunner(loaded, tokenizer, max_batch))], fallbacks)
    plain = PaddedRunner(loaded, tokenizer, max_batch)
    unscorable = why_not_causal(loaded, logits)
    if unscorable or not share_prefixes:
        plain.try_texts()
        return _runner(loaded, [Way(plain)], fallbacks, unscorable)
    last = plain_way(plain, loaded.model)
    why = _length_dependence(loaded.model) or spread_over(loaded.model)
    net, reason = (None, why) if why else packed_model(loaded.model, fallbacks)
    if net is not None:
        layers = CompiledLayers(loaded.model, compiled, fallbacks)
        packed = PackedRunner(net, tokenizer, end_tokens(loaded, tokenizer), max_batch, layers)
        return _runner(loaded, [*packed_ways(packed, net), last], fallbacks)
    if not why:
        stateful, why = stateful_model(loaded.model)
        if stateful is not None:
            return _runner(loaded, [Way(StateRunner(loaded, tokenizer, max_batch, stateful)), last], fallbacks)
        reason = f"{reason}; {why}"
    plain.try_texts()
    plain.remarks["loglikelihood"] = f"prefixes are not shared between requests: {reason}"
    return _runner(loaded, [Way(plain)], fallbacks)


def _runner(loaded: LoadedHFModel, ways: Sequence[Way], fallbacks: Fallbacks, unscorable: str = "") -> FallbackRunner:
    every = [*ways, *eager_experts(ways[-1].runner, loaded.model)]
    return FallbackRunner(every, loaded.device, fallbacks, unscorable)


class PackedRunner:
    """Runs a model with packed attention."""

    def __init__(
        self, net: CausalLM, tokenizer: HFTokenizer, ends: frozenset[int], max_batch: int | None, layers: CompiledLayers
    ) -> None:
        self.remarks: dict[str, str] = {}
        self.layers = layers
        self.scorer = PackedScorer(net, max_batch * ROW_TOKENS if max_batch else None)
        self.generator = SlotGenerator(net, ends, tokenizer.decode, most_slots=max_batch)

    @property
    def way(self) -> str:
        return "packed"

    def forget(self) -> None:
        """Drop the cached prefixes."""
        self.scorer.forget()

    def expect(self, seconds: float) -> None:
        self.layers.expect(seconds)

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        self.layers.compile_if_due()
        for scored in self.scorer.score(chunks):
            yield scored
            self.layers.compile_if_due()

    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]:
        if generations:
            self.scorer.forget()  # slots get the memory
            self.layers.compile_if_due()
        return self.generator.generate(generations, self.scorer.budget.tokens)


def _length_dependence(model: "PreTrainedModel") -> str:
    length = length_dependent_beyond(model)
    return f"above {length} tokens, its positions depend on the longest text of a batch" if length is not None else ""
