"""How the asynchronous part of a run is conducted from ordinary code: its loop, its interruption, its garbage."""

import asyncio
import gc
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Do something asynchronous and wait for it; beside a loop that runs already, as in a notebook, in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with _prompt_interrupts():
            asyncio.run(work)
        return
    _run_beside(work)


def _run_beside(work: Coroutine[Any, Any, None]) -> None:
    """The same in a thread. Ctrl-C reaches the main thread, which hands it on."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def conduct() -> None:
        try:
            loop.run_until_complete(task)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(conduct)
        try:
            running.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            raise


@contextmanager
def fewer_collections() -> Iterator[None]:
    """A run makes many small objects and hardly any garbage in cycles: looking for it less often saves a tenth."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _prompt_interrupts() -> Iterator[None]:
    """Have Ctrl-C stop whatever is going on, a long match of a pattern too: asyncio would wait for the next pause."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
