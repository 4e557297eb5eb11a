"""What a step must not do while it is recorded as a CUDA graph, done in another way: copies between the memories of CPU and GPU."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

COPIES = ("to", "cuda", "tensor", "as_tensor")
"""Functions that copy their first argument, a tensor of the CPU or numbers, to a device."""
GROUPED = ("grouped_mm", "_grouped_mm")
"""Products of groups of rows, one group for each expert; but for bfloat16, torch reads the ends of the groups on the CPU."""
MOST_BYTES = 1 << 30
"""Of the experts' weights, gathered for each row: reading more takes longer than launching kernels one by one."""


class WithoutHostCopies(TorchFunctionMode):
    """A context for a step, first run as it is and then recorded: what it copied to the device when it ran is given to it again.

    PhiMoE computes its frequencies on the CPU in every step. What is copied must be the same in every step.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._copies: list[tuple[Any, torch.Tensor]] = []
        self._given: int | None = None
        self.graph: Callable[[], None] = lambda: None
        """The recorded step, which reads the copies that are kept here."""

    def replay(self) -> None:
        self.graph()

    def begin(self) -> None:
        """Forget the copies of the run before."""
        self._copies.clear()

    def record(self) -> None:
        """Give the copies of the last run from now on."""
        self._given = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in GROUPED and args[0].dtype != torch.bfloat16:
            return _product_of_groups(*args, **options)
        if name not in COPIES or (isinstance(args[0], torch.Tensor) and args[0].device.type != "cpu"):
            return func(*args, **options)
        if self._given is not None and self._given < len(self._copies):
            source, copy = self._copies[self._given]
            if _is_same(source, args[0]):
                self._given += 1
                return copy.clone()
        result = func(*args, **options)
        if result.device.type != self._device.type:
            return result
        if self._given is not None:
            raise RuntimeError("a tensor that the step copies from the CPU is another one in every step")
        self._copies.append((args[0].clone() if isinstance(args[0], torch.Tensor) else args[0], result))
        return result


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _product_of_groups(rows: torch.Tensor, weights: torch.Tensor, *, offs: torch.Tensor, **_: Any) -> torch.Tensor:
    """The product of each row and the weights of its group, (groups, in, out), of which `offs` has the ends."""
    size = rows.shape[0] * weights.shape[1] * weights.shape[2] * weights.element_size()
    if size > MOST_BYTES:
        raise RuntimeError(f"the experts of {rows.shape[0]} rows have {size / 1e9:.0f} GB of weights")
    group = torch.searchsorted(offs, torch.arange(rows.shape[0], device=rows.device, dtype=offs.dtype), right=True)
    gathered = weights.index_select(0, group.clamp_(max=weights.shape[0] - 1))
    return torch.bmm(rows[:, None], gathered)[:, 0]
