"""The event loop that the asynchronous part of a run has to itself, and how Ctrl-C reaches it."""

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; where a loop is running already, as in a notebook, in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with _prompt_interrupts():
            return asyncio.run(work)
    return _run_in_thread(work)


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread. Ctrl-C reaches the main thread, which cancels it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run_loop() -> T:
        try:
            return loop.run_until_complete(task)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run_loop)
        try:
            return running.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            raise


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _prompt_interrupts() -> Iterator[None]:
    """Let Ctrl-C stop whatever is running, a long regex match too: asyncio would wait for the next await."""
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
