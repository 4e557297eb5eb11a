"""Choose the runner of a transformers model: packed attention with shared prefixes, copied states, or padded batches."""

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

ROW_TOKENS = 512
"""`batch_size` counts rows; a pass has this many tokens for each."""


class HFRunner(Protocol):
    """Score pairs of tokens and generate texts. `remarks` are notes for the user."""

    remarks: dict[str, str]

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response: ...
    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]: ...
    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]: ...


def choose_runner(
    loaded: LoadedHFModel, tokenizer: HFTokenizer, max_batch: int | None, *, share_prefixes: bool, compiled: bool
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
        if compiled:
            compile_layers(loaded.model)
        return PackedRunner(net, tokenizer, end_tokens(loaded, tokenizer), max_batch)
    if not why:
        stateful, why = stateful_model(loaded.model)
        if stateful is not None:
            return StateRunner(loaded, tokenizer, max_batch, stateful)
        reason = f"{reason}; {why}"
    plain.remarks["loglikelihood"] = f"prefixes are not shared between requests: {reason}"
    return plain


class PackedRunner:
    """Runs a model with packed attention."""

    def __init__(self, net: CausalLM, tokenizer: HFTokenizer, ends: frozenset[int], max_batch: int | None) -> None:
        self.remarks: dict[str, str] = {}
        self.scorer = PackedScorer(net, max_batch * ROW_TOKENS if max_batch else None)
        self.generator = SlotGenerator(net, ends, tokenizer.decode, most_slots=max_batch)

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        return self.scorer.score(chunks)

    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]:
        if generations:
            self.scorer.forget()  # slots get the memory
        return self.generator.generate(generations, self.scorer.budget.tokens)


def compile_layers(model: "PreTrainedModel") -> None:
    """Compile the model's layers: they are alike, so torch compiles one."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__ in names:
            module.compile(dynamic=True)


def _length_dependence(model: "PreTrainedModel") -> str:
    length = length_dependent_beyond(model)
    return f"above {length} tokens, its positions depend on the longest text of a batch" if length is not None else ""
