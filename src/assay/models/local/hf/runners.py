"""Choose the runner of a transformers model: packed attention with shared prefixes, copied states, or padded batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
import transformers

from assay.models.local.attention import NAME, PackedPattern, PackedRow, UnsupportedAttention, register, using_pattern
from assay.models.local.fallbacks import Fallbacks
from assay.models.local.generation import Generation
from assay.models.local.hf.devices import spread_over
from assay.models.local.hf.fallback import FallbackRunner, Way, check_usable
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.hf.padded import PaddedRunner, Seq2SeqRunner, end_tokens, length_dependent_beyond
from assay.models.local.hf.states import StatefulModel, StateRunner, UnsupportedCache
from assay.models.local.hf.ways import (
    WITHOUT_FLASH,
    CompiledLayers,
    eager_experts,
    ensure_forward,
    packed_ways,
    plain_way,
)
from assay.models.local.scoring import CausalLM, PackedScorer, ScoredPair
from assay.models.local.slots import SlotGenerator
from assay.models.local.tokenizer import HFTokenizer
from assay.models.local.windows import Pair, Windows
from assay.records import Request, Response

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Maximum difference of logits with packed attention from the model's own, in standard deviations, by dtype;
else DEFAULT_TOLERANCE."""
DEFAULT_TOLERANCE = 0.2
FAILURES = (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError)
"""Raised by models that do not follow the interfaces of transformers that are used here."""
MOST_CHECKED = 1024
"""Windows up to this length are tried when a model is loaded."""
ROW_TOKENS = 512
"""`batch_size` counts rows; a pass has this many tokens for each."""


def choose_runner(
    loaded: LoadedHFModel, tokenizer: HFTokenizer, max_batch: int | None, *, share_prefixes: bool, compiled: bool
) -> FallbackRunner:
    """Return the ways in which the model can be run, the fastest first."""
    fallbacks = Fallbacks()
    ensure_forward(loaded, fallbacks)
    if loaded.is_seq2seq:
        return _runner(loaded, [Way(Seq2SeqRunner(loaded, tokenizer, max_batch))], fallbacks)
    plain = PaddedRunner(loaded, tokenizer, max_batch)
    if not share_prefixes:
        return _runner(loaded, [Way(plain)], fallbacks)
    attention = loaded.model.config._attn_implementation
    why = _length_dependence(loaded.model) or spread_over(loaded.model)
    net, reason = (None, why) if why else _packed(loaded, fallbacks)
    if net is not None:
        packed = PackedRunner(net, tokenizer, end_tokens(loaded, tokenizer), max_batch)
        ways = packed_ways(packed, net, CompiledLayers.of(loaded.model, fallbacks) if compiled else None)
        return _runner(loaded, [*ways, plain_way(plain, loaded.model, attention)], fallbacks)
    if not why:
        stateful, why = _stateful(loaded.model)
        if stateful is not None:
            ways = [Way(StateRunner(loaded, tokenizer, max_batch, stateful))]
            return _runner(loaded, [*ways, plain_way(plain, loaded.model, attention)], fallbacks)
        reason = f"{reason}; {why}"
    plain.remarks["loglikelihood"] = f"prefixes are not shared between requests: {reason}"
    return _runner(loaded, [Way(plain)], fallbacks)


def _runner(loaded: LoadedHFModel, ways: Sequence[Way], fallbacks: Fallbacks) -> FallbackRunner:
    return FallbackRunner([*ways, *eager_experts(ways[-1].runner, loaded.model)], loaded.device, fallbacks)


class PackedRunner:
    """Runs a model with packed attention."""

    def __init__(self, net: CausalLM, tokenizer: HFTokenizer, ends: frozenset[int], max_batch: int | None) -> None:
        self.remarks: dict[str, str] = {}
        self.scorer = PackedScorer(net, max_batch * ROW_TOKENS if max_batch else None)
        self.generator = SlotGenerator(net, ends, tokenizer.decode, most_slots=max_batch)

    @property
    def way(self) -> str:
        return "packed"

    def forget(self) -> None:
        """Drop the cached prefixes."""
        self.scorer.forget()

    def pairs(self, windows: Windows, number: int, request: Request) -> list[Pair] | Response:
        return windows.pairs(number, request)

    def score(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[list[ScoredPair]]:
        return self.scorer.score(chunks)

    def generate(self, generations: Sequence[Generation]) -> Iterator[list[Generation]]:
        if generations:
            self.scorer.forget()  # slots get the memory
        return self.generator.generate(generations, self.scorer.budget.tokens)


def _packed(loaded: LoadedHFModel, fallbacks: Fallbacks) -> tuple[CausalLM | None, str]:
    """Return the model with packed attention if its logits stay the same; else the reason."""
    model = loaded.model
    why = _layers_with_states(model) or _without_interface(model)
    if why:
        return None, why
    before = model.config._attn_implementation
    tokens = torch.arange(3, 3 + _check_length(model), device=model.device) % model.config.get_text_config().vocab_size
    with torch.inference_mode():
        expected = model(input_ids=tokens[None], use_cache=False).logits[0, -4:].float()
    register()
    try:
        model.set_attn_implementation(NAME)
        if model.config._attn_implementation != NAME:
            return None, f"{type(model).__name__} has a custom attention"
        net = CausalLM(model, model.device, _is_flash(model), fallbacks)
        packed = _checked_logits(net, tokens)
    except (UnsupportedAttention, *FAILURES) as error:
        model.set_attn_implementation(before)
        return None, f"its attention needs {error}" if isinstance(
            error, UnsupportedAttention
        ) else f"packed attention failed: {error}"
    far = _distance(packed, expected)
    if not far <= TOLERANCE.get(model.dtype, DEFAULT_TOLERANCE):
        model.set_attn_implementation(before)
        return None, f"its logits with packed attention differ by {far:.2g} standard deviations"
    return net, ""


def _distance(some: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference of logits, in standard deviations of the expected ones."""
    return float((some.float() - expected.float()).abs().max() / expected.float().std())


def _layers_with_states(model: "PreTrainedModel") -> str:
    """The kinds of layers that keep a state in place of attending to earlier tokens."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    others = kinds - {"full_attention", "sliding_attention", "chunked_attention"}
    if others:
        return f"it has layers of type {', '.join(sorted(others))}"
    return "its layers have states" if getattr(model, "_is_stateful", False) else ""


def _without_interface(model: "PreTrainedModel") -> str:
    if hasattr(model, "set_attn_implementation"):
        return ""
    return f"transformers {transformers.__version__} cannot change the attention of a model, which 4.54 and later can"


def _stateful(model: "PreTrainedModel") -> tuple[StatefulModel | None, str]:
    """Return the model with states that can be copied if its logits stay the same; else the reason."""
    size = model.config.get_text_config().vocab_size
    tokens = [(3 + 7 * number) % size for number in range(40)]
    texts = [tokens[:12] + tokens[at : at + length] for at, length in ((12, 13), (20, 6), (25, 4))]
    reason = ""
    try:
        with torch.inference_mode():
            expected = torch.cat([_plain_logits(model, text) for text in (*texts, tokens[:16])])
            for net in (
                StatefulModel(model),
                StatefulModel(model, by_token=True),
                StatefulModel(model, with_gaps=False),
            ):
                far = _distance(_copied_logits(net, tokens, texts), expected)
                if far <= TOLERANCE.get(model.dtype, DEFAULT_TOLERANCE):
                    return net, ""
                reason = f"its logits after copied states differ by {far:.2g} standard deviations"
    except (UnsupportedCache, *FAILURES) as error:
        reason = f"its states cannot be copied: {str(error).partition(chr(10))[0]:.200}"
    return None, reason


def _plain_logits(model: "PreTrainedModel", tokens: Sequence[int]) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.tensor([tokens], device=model.device), use_cache=False).logits[:, -1]
    return logits


def _copied_logits(net: StatefulModel, tokens: Sequence[int], texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after texts that are read from copies of one state, the first step by step, and after a text without it."""
    prefix = net.empty(1)
    net.read(prefix, [tokens[:12]])
    if not net.with_gaps:
        after = [net.read(prefix.take([0]), [text[12:]]) for text in texts]
        return torch.cat([*after, net.read(net.empty(1), [tokens[:16]])])
    states = prefix.take([0] * len(texts))
    net.read(states, [text[12:-3] for text in texts])
    net.forward(states, [text[-3:-1] for text in texts], last=False)
    last = net.forward(states, [text[-1:] for text in texts], last=True)[:, 0]
    return torch.cat([last, net.read(net.empty(2), [tokens[:16], tokens[:9]])[:1]])


def _check_length(model: "PreTrainedModel") -> int:
    """Length of the text that is computed both ways: beyond a window or a chunk, unless those are long."""
    config = model.config.get_text_config()
    limits = (getattr(config, key, None) for key in ("sliding_window", "attention_chunk_size"))
    beyond = max((limit + 16 for limit in limits if limit and limit <= MOST_CHECKED), default=16)
    return min(beyond, getattr(config, "max_position_embeddings", None) or beyond)


def _packed_logits(net: CausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Return the last four logits of a text in three segments, with others between them that it does not attend to."""
    row = PackedRow()
    listed = tokens.tolist()
    first = row.add(listed[:7], [])
    row.add(listed[9:13], [first])
    second = row.add(listed[7:-4], [first])
    row.add(listed[1:4], [first, second])
    last = row.add(listed[-4:], [first, second])
    pattern = PackedPattern.of(row, net.device, flash=net.flash)
    with torch.inference_mode(), using_pattern(pattern):
        read = torch.tensor(row.tokens, device=net.device), torch.from_numpy(row.positions()).to(net.device)
        return net.logits(*read, torch.arange(*last, device=net.device)).float()


def _checked_logits(net: CausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """The same, without the flash kernel if that refuses the model."""
    try:
        return _packed_logits(net, tokens)
    except FAILURES as error:
        check_usable(net.device, error)
        if not net.flash:
            raise
        net.flash = False
        logits = _packed_logits(net, tokens)
        net.fallbacks.note(WITHOUT_FLASH, error)
        return logits


def _length_dependence(model: "PreTrainedModel") -> str:
    length = length_dependent_beyond(model)
    return f"above {length} tokens, its positions depend on the longest text of a batch" if length is not None else ""


def _is_flash(model: "PreTrainedModel") -> bool:
    """Whether the variable-length flash kernel supports the model."""
    config = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    is_half = model.dtype in (torch.bfloat16, torch.float16)
    if model.device.type != "cuda" or not is_half or size % 8 or size > 256:
        return False
    return torch.cuda.get_device_capability(model.device) >= (8, 0)
