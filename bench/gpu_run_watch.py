"""The plug-in of gpu_run.py: notes when a run of `hf` imports, loads, gets its first request and gives its last answer, and how
long the device worked in between."""

import atexit
import functools
import json
import sys
import threading
import time
from pathlib import Path

from assay.models.local.hf import backend
from assay.models.local.hf.backend import HF


class Watched:
    """Times of the run, and the intervals in which the device worked: pairs of CUDA events, or of times on a CPU."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.passes: list[tuple] = []
        self.open: list = []
        self.zero = None
        self.zero_time = 0.0
        self.is_cuda = False
        self.busy = 0.0

    def mark(self):
        """The present: on the device's own clock, where it has one; None while a graph is recorded."""
        import torch

        if torch.compiler.is_compiling():
            return None
        if not self.is_cuda:
            return time.time()
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def start_clock(self, device) -> None:
        import torch

        self.is_cuda = device.type == "cuda"
        if self.is_cuda:
            torch.cuda.synchronize(device)
            self.zero = self.mark()
            self.zero.synchronize()
            self.zero_time = time.time()

    def begin(self, *_: object) -> None:
        self.open.append(self.mark())

    def end(self, *_: object) -> None:
        begun, ended = self.open.pop(), self.mark()
        if begun is not None and ended is not None:
            self.passes.append((begun, ended))

    def measure(self) -> None:
        """Sum the union of the intervals that began after the first request."""
        if self.is_cuda:
            import torch

            torch.cuda.synchronize()
        at = [tuple(self.time_of(each) for each in pair) for pair in self.passes]
        until = self.times["first_request"]
        for begun, ended in sorted(at):
            self.busy += max(0.0, ended - max(begun, until))
            until = max(until, ended)

    def time_of(self, mark) -> float:
        return self.zero_time + self.zero.elapsed_time(mark) / 1000 if self.is_cuda else mark


def install(out: str) -> None:
    """Watch the model of this process; `out` is written when it ends."""
    watched = Watched()
    load = backend.load_hf
    answer = HF.answer
    threading.Thread(target=note_import, args=(watched,), daemon=True).start()

    @functools.wraps(load)
    def load_watched(*arguments, **named):
        watched.times["load"] = time.time()
        loaded = load(*arguments, **named)
        watched.times["loaded"] = time.time()
        watched.start_clock(loaded.device)
        loaded.model.register_forward_pre_hook(watched.begin)
        loaded.model.register_forward_hook(watched.end)
        if watched.is_cuda:
            watch_graphs(watched)
        return loaded

    async def answer_watched(self, requests):
        watched.times.setdefault("first_request", time.time())
        async for answered in answer(self, requests):
            watched.times["last_answer"] = time.time()
            yield answered

    def write() -> None:
        watched.measure()
        Path(out).write_text(json.dumps({**watched.times, "busy": watched.busy, "passes": len(watched.passes)}))

    backend.load_hf = load_watched
    HF.answer = answer_watched
    atexit.register(write)


def note_import(watched: Watched) -> None:
    """Note when torch and transformers have been imported, whoever does it."""
    while not all(hasattr(sys.modules.get(name), "__version__") for name in ("torch", "transformers")):
        time.sleep(0.02)
    while sys.modules["torch"].__spec__._initializing or sys.modules["transformers"].__spec__._initializing:
        time.sleep(0.02)
    watched.times["imported"] = time.time()


def watch_graphs(watched: Watched) -> None:
    import torch

    replay = torch.cuda.CUDAGraph.replay

    def replay_watched(self):
        watched.begin()
        replay(self)
        watched.end()

    torch.cuda.CUDAGraph.replay = replay_watched
