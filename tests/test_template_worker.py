"""The process in which templates are rendered that could take all time or memory: what it is given, what it may do, and its end."""

import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from jinja2.sandbox import SandboxedEnvironment

from assay.samples.prompt import RenderError, template
from assay.template_worker import _PROCESS
from small_runs import run, says, write_task

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
HUGE = {
    "{{ 'x' * 10**10 }}": "takes more than 512 MB",
    "{{ q.center(9999999999) }}": "takes more than 512 MB",
    ENDLESS: r"took more than 0\.\d+ s",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "nested too deeply",
    "{% set x = 'a' * 70000000 %}{{ x }}": "more than 64 million characters",
}
HERE = Path(__file__).parent


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.templates.TIME_LIMIT", 0.5)


def process_id() -> int:
    assert _PROCESS._child is not None
    return _PROCESS._child.pid


def rendered_in_threads(texts: Sequence[str]) -> list[str]:
    """What the templates give, or say, each in a thread of its own at the same time."""
    said: dict[str, str] = {}

    def render(text: str) -> None:
        try:
            said[text] = template(text)({"q": "a"})
        except RenderError as error:
            said[text] = str(error)

    threads = [threading.Thread(target=render, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return [said[text] for text in texts]


@pytest.mark.usefixtures("limit")
def test_limits_hold_in_threads_with_4_gb_mapped_while_other_threads_map_more() -> None:
    """A limit on the memory of this process could not: 4 GB are beyond it, and the others would fail under it."""
    region = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ended, made, failed = threading.Event(), [0], list[MemoryError]()

    def allocate() -> None:
        try:
            while not ended.is_set():
                np.ones(100 << 20, dtype=np.uint8)  # mapped anew each time
                made[0] += 1
        except MemoryError as error:
            failed.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        for text, words in HUGE.items():
            with pytest.raises(RenderError, match=words):
                template(text)({"q": "a"})
        before = made[0]
        for (text, words), said in zip(HUGE.items(), rendered_in_threads(list(HUGE)), strict=True):
            with pytest.raises(RenderError, match=words):
                raise RenderError(said)
            assert text[:20] in said
        assert rendered_in_threads(["{{ 2 * 3 }}{{q}}"] * 4) == ["6a"] * 4
    finally:
        ended.set()
        thread.join()
        region.close()
    assert not failed and made[0] > before > 0


VALUES: dict[str, tuple[str, object]] = {
    "a date": ("{{ v.year * 1 }}", date(2026, 1, 2)),
    "an array": ("{{ (v * 2).sum() }}", np.arange(4)),
    "a NumPy number": ("{{ v * 2 }}", np.float64(0.5)),
    "bytes": ("{{ v * 2 }}", b"ab"),
    "sets and tuples": ("{{ (v[0] | list) * 2 }}{{ v[1] * 2 }}", ({1}, (2, None))),
    "half a character": ("{{ (v | length) * 2 }}", "\ud800"),
    "half of a pair in a list": ("{{ v[0] == v[0] * 1 }}", ["\udfff"]),
    "a function": ("{{ v('x') * 2 }}", "x".__class__),
}


@dataclass
class Own:
    """A class of a user, whose module no other process finds."""

    number: int

    def twice(self) -> int:
        return 2 * self.number


@pytest.mark.parametrize("case", [*VALUES, "a user's object", "a user's function"])
def test_values_of_every_kind_are_rendered_as_jinja_renders_them(case: str) -> None:
    own = {"a user's object": ("{{ v.twice() * 1 }}", Own(7)), "a user's function": ("{{ v(1) * 2 }}", lambda x: x + 1)}
    text, value = {**VALUES, **own}[case]  # type: ignore[dict-item]  # all are pairs
    unused = {"other": Own(1), "lock": threading.Lock()}  # what a template does not use need not travel
    assert template(text)({"v": value, **unused}) == SandboxedEnvironment().from_string(text).render(v=value)


def test_an_image_travels_and_its_template_has_the_limits() -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 3))
    assert template("{{ v.size[0] * v.size[1] }}")({"v": image}) == "12"
    with pytest.raises(RenderError, match="takes more than 512 MB"):
        template("{{ v.size[0] * 1 }}{{ 'x' * 10**10 }}")({"v": image})


@pytest.mark.parametrize("depth", [50, 5_000])
def test_data_nested_deeply_is_no_way_around_the_limits(depth: int) -> None:
    value: object = "a"
    for _ in range(depth):
        value = [value]
    with pytest.raises(RenderError, match=r"takes more than 512 MB|nested too deeply"):
        template("{{ v | length }}{{ 'x' * 10**10 }}")({"v": value})


def test_random_choices_are_those_of_this_process() -> None:
    letters = list("abcdefghij")
    random.seed(3)
    expected = [random.choice(letters) for _ in range(4)], random.random()
    random.seed(3)
    assert ([template("{{ '' * 1 }}{{ v | random }}")({"v": letters}) for _ in range(4)], random.random()) == expected


def test_the_process_has_none_of_the_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    _PROCESS.end()
    assert template("{{ 1 * 1 }}")({}) == "1"
    environment = Path(f"/proc/{process_id()}/environ").read_bytes()
    assert b"secret" not in environment and b"KEY" not in environment


def test_a_process_that_somebody_ended_is_started_again() -> None:
    assert template("{{ 2 * 1 }}")({}) == "2"
    first = process_id()
    os.kill(first, signal.SIGKILL)
    assert template("{{ 2 * 1 }}")({}) == "2"
    assert process_id() != first


@pytest.mark.usefixtures("limit")
def test_no_files_are_left_open_by_templates_that_reach_their_limits() -> None:
    assert template("{{ 3 * 1 }}")({}) == "3"
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(RenderError):
            template("{{ 'x' * 10**10 }}")({})
    assert template("{{ 3 * 1 }}")({}) == "3"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_process_that_was_forked_starts_its_own() -> None:
    assert template("{{ 4 * 1 }}")({}) == "4"
    mine = process_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = f"{template('{{ 4 * 1 }}')({})} {process_id() != mine}"
        os.write(write, said.encode())
        _PROCESS.end()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"4 True"
    assert (template("{{ 4 * 1 }}")({}), process_id()) == ("4", mine)
    os.close(read)
    os.close(write)


SCRIPT = """
    import sys, threading, time
    from assay.samples.prompt import template
    from assay.template_worker import _PROCESS
    assert template("{{ 5 * 1 }}")({}) == "5"
    print(_PROCESS._child.pid, flush=True)
"""


def started(more: str, **options: object) -> "subprocess.Popen[str]":
    code = dedent(SCRIPT) + dedent(more)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )  # type: ignore[call-overload, no-any-return]


def ends(pid: int) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None], ids=["killed", "terminated", "at its end"])
def test_the_process_ends_with_the_one_that_started_it(how: signal.Signals | None) -> None:
    with started("time.sleep(60)" if how else "") as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if how is not None:
            parent.send_signal(how)
        assert parent.wait(30) == (-how if how else 0)
        assert ends(pid)


def test_a_thread_that_waits_for_a_template_does_not_keep_a_process_from_ending() -> None:
    more = f"""
    threading.Thread(target=lambda: template({ENDLESS!r})({{}}), daemon=True).start()
    time.sleep(0.5)
    """
    begun = time.monotonic()
    with started(more) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.wait(30) == 0
        assert time.monotonic() - begun < 9  # a template may take 10 s
        assert ends(pid)


def test_control_c_interrupts_a_template_and_the_next_one_is_rendered() -> None:
    more = f"""
    try:
        template({ENDLESS!r})({{}})
    except KeyboardInterrupt:
        print("interrupted", template("{{{{ 6 * 1 }}}}")({{}}), flush=True)
    """
    with started(more, start_new_session=True) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        parent.stdout.readline()
        time.sleep(0.5)
        os.killpg(parent.pid, signal.SIGINT)  # to both, as a terminal sends it
        assert parent.stdout.read() == "interrupted 6\n"
        assert (parent.wait(30), parent.stderr.read()) == (0, "")


def test_templates_are_rendered_under_a_limit_on_the_memory_of_the_shell() -> None:
    code = dedent(SCRIPT) + "\nprint(template('{{ q * 2 }}')({'q': 'ab'}))"
    command = ["bash", "-c", 'ulimit -v 2000000; exec "$@"', "bash", sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout.split()[1:], ended.stderr) == (["abab"], "")


def test_documents_with_objects_of_helper_code_are_rendered(tmp_path: Path) -> None:
    helper = """
        class Item:
            def __init__(self, text):
                self.text = text

        def with_items(rows):
            return [{**row, "item": Item(row["q"])} for row in rows]
    """
    (tmp_path / "tools.py").write_text(dedent(helper))
    yaml = 'output_type: generate_until\nprocess_docs: !function tools.with_items\ndoc_to_text: "{{ item.text * 1 }}"\ndoc_to_target: gold\n'
    write_task(tmp_path, [{"q": "0", "gold": "a"}, {"q": "1", "gold": "b"}], yaml)
    assert run(tmp_path, says(["a", "b"]))["results"]["t"]["exact_match,none"] == 1.0
