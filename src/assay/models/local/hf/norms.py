"""RMS norms of transformers models by torch's own kernel: theirs are six kernels each."""

from types import MethodType
from typing import Any

import torch
from torch.nn import functional

from assay.signatures import argument_names

CLOSE = {torch.bfloat16: 2**-6, torch.float16: 2**-9}
"""Largest difference from the model's own norm, relative to its largest value: two steps of each type; else CLOSE_DEFAULT."""
CLOSE_DEFAULT = 1e-5


def fuse_norms(model: torch.nn.Module) -> int:
    """Replace the RMS norms that torch computes the same way, for inference only; returns their number."""
    checked: dict[type, bool] = {}
    count = 0
    for module in model.modules():
        if not type(module).__name__.endswith("RMSNorm") or "forward" in vars(module):
            continue
        if type(module) not in checked:
            checked[type(module)] = _is_plain(module)
        if checked[type(module)]:
            module.forward = MethodType(_forward, module)
            count += 1
    return count


def restore_norms(model: torch.nn.Module) -> None:
    """Give the model its own norms back."""
    for module in model.modules():
        if getattr(vars(module).get("forward"), "__func__", None) is _forward:
            del module.forward


def _forward(self: Any, hidden: torch.Tensor) -> torch.Tensor:
    if torch.is_inference_mode_enabled():
        return functional.rms_norm(hidden, self.weight.shape, self.weight, _epsilon(self))
    return type(self).forward(self, hidden)  # type: ignore[no-any-return]


def _epsilon(module: Any) -> float:
    epsilon = getattr(module, "variance_epsilon", None)
    return float(module.eps if epsilon is None else epsilon)


def _is_plain(module: Any) -> bool:
    """Whether a norm is that of torch, by trying it: some scale by one plus the weights, or take a gate."""
    weight = getattr(module, "weight", None)
    takes = len(argument_names(module.forward))
    if not isinstance(weight, torch.nn.Parameter) or weight.dim() != 1 or takes != 1:
        return False
    with torch.inference_mode():
        hidden = torch.linspace(-3, 3, 4 * len(weight), device=weight.device).view(4, -1).to(weight.dtype)
        try:
            expected, fused = module(hidden), _forward(module, hidden)
        except (AttributeError, RuntimeError, TypeError):
            return False
    if expected.dtype != fused.dtype:
        return False
    return bool((expected - fused).abs().max() <= CLOSE.get(fused.dtype, CLOSE_DEFAULT) * expected.abs().max())
