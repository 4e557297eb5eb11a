"""Compilation of a model's layers, where that pays and works."""

import time
from typing import TYPE_CHECKING, Any

from assay.models.local.fallbacks import DeviceAttempt, Fallbacks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LONG_SECONDS, SURE_SECONDS = 240, 10
"""A run whose rest takes this long gains more from compiled layers than the 10 seconds that compiling takes; and the seconds for
which that must be expected."""
UNCOMPILED = "the model runs without torch.compile"


class CompiledLayers:
    """Compiles a model's layers where that pays. They are alike, so torch compiles one."""

    def __init__(self, model: "PreTrainedModel", chosen: bool | None, fallbacks: Fallbacks) -> None:
        """`chosen`: at once, never, or (None) on a GPU in a long run."""
        self._model, self._chosen, self._fallbacks = model, chosen, fallbacks
        self.is_due = bool(chosen)
        self._long_since: float | None = None
        self._is_used = True
        self._calls: list[tuple[Any, Any]] = []

    @property
    def may_compile(self) -> bool:
        return self._chosen or (self._chosen is None and self._model.device.type == "cuda")

    def expect(self, seconds: float) -> None:
        """Take the time that the rest of the run needs. First guesses can be far off: it must be long for a while."""
        if self._chosen is not None or self._model.device.type != "cuda":
            return
        now = time.monotonic()
        if seconds < LONG_SECONDS:
            self._long_since = None
        elif self._long_since is None:
            self._long_since = now
        elif now - self._long_since > SURE_SECONDS:
            self.is_due, self._chosen = True, True

    def compile_if_due(self) -> None:
        if not (self.is_due and self._is_used):
            return
        self.is_due = False
        names = set(getattr(self._model, "_no_split_modules", None) or ())
        layers = [module for module in self._model.modules() if type(module).__name__ in names]
        with DeviceAttempt() as attempt:
            for layer in layers:
                layer.compile(dynamic=True)
                self._calls.append((layer, getattr(layer, "_compiled_call_impl", None)))
        if attempt.error is not None:
            self._fallbacks.note(UNCOMPILED, attempt.error)
            self.use(False)

    def use(self, is_used: bool) -> None:
        """Set whether compiled layers are used, now and later."""
        self._is_used = is_used
        for layer, call in self._calls:
            layer._compiled_call_impl = call if is_used else None
