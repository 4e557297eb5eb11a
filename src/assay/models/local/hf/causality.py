"""Whether a model is causal: a pass over a context and its continuation reads both, and where the logits of a token depend on
later tokens (BERT, prefix LMs, diffusion LMs), the log-likelihood of a continuation is that of a text that was read before.
"""

from typing import TYPE_CHECKING

import torch

from assay.models.local.hf.checks import DEFAULT_TOLERANCE, FAILURES, first_layers
from assay.models.local.hf.loading import LoadedHFModel
from assay.models.local.scoring import uniform_memory_errors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 16
"""Length of a trial text: a power of two, so that its last token is not the first of a block where a model attends in both
directions within blocks of 2ⁿ tokens."""
TOLERANCE = 1e-4
"""Largest movement of a causal model's logits at float32, in standard deviations. Of 180 architectures of transformers those of
the causal ones did not move at all, but 2e-6 where two threads share the experts; those of the others, with fresh weights,
5e-4 to 3."""
TRIALS = 3
"""Texts that are tried: rounding may choose another expert in one of them, but later tokens are seen in all."""


def trial_texts(loaded: LoadedHFModel, trial: int = 0) -> torch.Tensor:
    """Two texts of ordinary tokens that differ in the last one."""
    size = loaded.model.config.get_text_config().vocab_size
    length = min(TOKENS, loaded.max_length())
    text = (size // 3 + trial + (7 + 2 * trial) * torch.arange(length, device=loaded.device)) % size
    other = text.clone()
    other[-1] = (text[-1] + size // 2) % size
    return torch.stack([text, other])


def why_not_causal(loaded: LoadedHFModel, logits: torch.Tensor) -> str:
    """The reason why a model cannot give log-likelihoods, from its logits of the first trial; empty where it can."""
    if loaded.is_seq2seq or _is_causal(loaded, logits):
        return ""
    return (
        f"the logits of {type(loaded.model).__name__} depend on later tokens, and a continuation would be scored after "
        "it has been read"
    )


def _is_causal(loaded: LoadedHFModel, logits: torch.Tensor) -> bool:
    moved = _movements(logits)
    if bool((moved <= TOLERANCE).all()):
        return True
    model: PreTrainedModel | None = loaded.model
    try:
        with uniform_memory_errors(), torch.inference_mode():
            if loaded.model.dtype.itemsize < torch.float32.itemsize:  # rounding moves logits, too
                model = first_layers(loaded.model)
                model = model.float() if model is not None else None  # type: ignore[no-untyped-call]
            if model is not None:
                return any(_is_unmoved(model, trial_texts(loaded, trial)) for trial in range(1, TRIALS + 1))
    except (torch.OutOfMemoryError, *FAILURES):
        pass  # a copy that does not run on its own, or does not fit
    return float(moved.median()) <= DEFAULT_TOLERANCE


def _is_unmoved(model: "PreTrainedModel", texts: torch.Tensor) -> bool:
    return bool((_movements(model(input_ids=texts).logits) <= TOLERANCE).all())


def _movements(logits: torch.Tensor) -> torch.Tensor:
    """How far another last token moves the logits of each earlier one, in standard deviations; 0 for NaN."""
    one, other = logits.float()
    apart: torch.Tensor = (one - other)[:-1].abs().amax(-1) / one.std()
    return apart.nan_to_num(nan=0.0)
