"""`--serve`: servers that a run starts, watches, restarts and stops. Real processes on loopback, and real Ray."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.config.serve_command import ServeCommand
from assay.errors import AssayError
from run_world import failed_in, start
from small_runs import write_task

SMALL = Path(__file__).with_name("small_server.py")
TASK = (
    "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {temperature: 0, until: []}\n"
)
DOCUMENTS = 40
ROWS = [{"q": f"question {number}.", "gold": f"you said question {number}."} for number in range(DOCUMENTS)]


class World:
    """A task, a run folder, and the log of every server that was started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output, self.log = folder, folder / "run", folder / "servers.log"
        write_task(folder, ROWS, TASK)

    def command(self, *options: object) -> str:
        return " ".join(map(str, [sys.executable, SMALL, "{port}", "--log", self.log, *options]))

    def run(self, command: str, **options: Any) -> dict[str, Any]:
        return assay.simple_evaluate(
            "openai", tasks=["t"], include_path=str(self.folder), include_defaults=False, output_path=str(self.output),
            serve=command, **options,
        )  # fmt: skip

    def logged(self, word: str) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{word} ")]

    @property
    def asked(self) -> list[str]:
        """The prompts that servers answered, without the probe."""
        return [prompt for prompt in self.logged("ask") if prompt.startswith("question")]

    @property
    def running(self) -> list[int]:
        """The processes of servers that are still there; one that ended and was not reaped is not."""
        return [pid for pid in map(int, self.logged("start")) if is_running(pid)]

    def journaled(self) -> list[str]:
        """The keys of the journal."""
        lines = (self.output / "responses.jsonl").read_bytes().splitlines()
        return [str(entry["k"]) for entry in map(json.loads, lines[1:])]

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self.output / "manifest.json").read_text())
        return manifest


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    built = World(tmp_path)
    yield built
    left = built.running
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], "every server was stopped"


COMMANDS = {
    "vllm serve m": "vllm serve m --host H --port P",
    "uv run vllm serve m --host 0.0.0.0": "uv run vllm serve m --host 0.0.0.0 --port P",
    "/opt/bin/vllm serve m": "/opt/bin/vllm serve m --host H --port P",
    "python -m sglang.launch_server --model-path m": "python -m sglang.launch_server --model-path m --host H --port P",
    "text-generation-launcher --model-id m": "text-generation-launcher --model-id m --hostname H --port P",
    "lmdeploy serve api_server m": "lmdeploy serve api_server m --server-name H --server-port P",
    "llama-server -m m.gguf --port {port}": "llama-server -m m.gguf --port P",
    "x --at={host}:{port}": "x --at=H:P",
    "sh -c 'sleep 1; exec x {port}'": "sh -c sleep 1; exec x P",
    """vllm serve m --override '{"top_p": 1}'""": """vllm serve m --override {"top_p": 1} --host H --port P""",
}


@pytest.mark.parametrize(("written", "started"), COMMANDS.items())
def test_the_port_goes_where_it_is_written_or_where_the_server_takes_it(written: str, started: str) -> None:
    words, _ = ServeCommand.parse(written).at("H", 9)
    assert " ".join(words) == started.replace(" P", " 9").replace(":P", ":9")


def test_variables_before_the_command_are_its_environment() -> None:
    command = ServeCommand.parse("OLLAMA_HOST={host}:{port} A='b c' ollama serve")
    assert command.at("H", 9) == (["ollama", "serve"], {"OLLAMA_HOST": "H:9", "A": "b c"})


GPUS = {
    "vllm serve m": None,
    "vllm serve m --tensor-parallel-size 4": 4,
    "vllm serve m --tensor_parallel_size=2 -pp 2": 4,
    "vllm serve m -tp 2 --data-parallel-size 3": 6,
    "python -m sglang.launch_server --tp-size 8 --dp-size 8 --enable-dp-attention": 8,
}


@pytest.mark.parametrize(("command", "gpus"), GPUS.items())
def test_the_gpus_of_a_server_are_those_that_its_flags_ask_for(command: str, gpus: int | None) -> None:
    assert ServeCommand.parse(command).gpus == gpus


WRONG = {
    "": ("must be a command", "vllm serve MODEL"),
    "A=b": ("must be a command", "vllm serve MODEL"),
    "vllm serve 'm": ("no closing quotation", "close its quotes"),
    "python server.py": ("must show where 'python' takes its port", "write {port}"),
    "vllm serve m --port 8000": ("has its own --port", "leave it out, or write --port {port}"),
    "python server.py --port=8000": ("has its own --port", "leave it out, or write --port {port}"),
    "cd x && vllm serve m": ("'&&'", "sh -c"),
    "no-such-program {port}": ("no program 'no-such-program'", "install it"),
}


@pytest.mark.parametrize("command", WRONG)
def test_a_command_that_cannot_be_started_is_refused_before_anything(command: str, world: World) -> None:
    with pytest.raises(AssayError) as refused:
        world.run(command)
    assert all(part in str(refused.value) for part in WRONG[command])
    assert not world.output.exists()


CONFLICTS: dict[str, tuple[dict[str, Any], str]] = {
    "a local model": ({"model": "hf"}, "model 'hf' does not ask a server"),
    "an address": ({"model": "openai", "model_args": {"base_url": "http://127.0.0.1:1/v1"}}, "base_url names a server"),
    "no time": ({"model": "openai", "serve_timeout": 0}, "must be above 0"),
    "an object": ({"model": assay.models.Scripted()}, "a model object has its own server"),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_options_that_exclude_each_other_are_refused(conflict: str, world: World) -> None:
    options, message = CONFLICTS[conflict]
    with pytest.raises(AssayError, match=message):
        assay.simple_evaluate(
            options.pop("model"), tasks=["t"], include_path=str(world.folder), serve=world.command(), **options
        )


def test_a_run_starts_its_server_asks_it_and_stops_it(world: World) -> None:
    results = world.run(world.command("--spawn"))
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert sorted(world.asked) == sorted(row["q"] for row in ROWS)
    assert (results["model_name"], results["assay"]["servers"]) == ("small", {"count": 1})
    assert len(world.logged("start")) == 2, "the server, and a process that it started in another session"
    assert world.manifest()["model"]["serve"] == world.command("--spawn")


def test_a_server_that_ends_in_the_middle_is_started_again_and_nothing_is_lost_or_doubled(world: World) -> None:
    results = world.run(world.command("--die", 30))
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert (failed_in(results), results["assay"]["servers"]) == (
        0, {"count": 1, "restarts": 1, "reasons": ["it ended with exit code 3"]},
    )  # fmt: skip
    assert set(world.asked) == {row["q"] for row in ROWS}
    keys = world.journaled()
    assert (len(keys), len(set(keys))) == (DOCUMENTS, DOCUMENTS)


def test_a_server_that_ends_again_and_again_ends_the_run_which_can_be_resumed(world: World) -> None:
    with pytest.raises(AssayError) as ended:
        world.run(world.command("--die", 8))  # five documents each time, after the probe
    message = str(ended.value)
    assert "every server ended 4 times; the last time it ended with exit code 3" in message
    assert "resume" in message
    before, answered = len(world.asked), len(world.journaled())
    assert 0 < answered < DOCUMENTS
    results = world.run(world.command())
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert len(world.asked) - before == DOCUMENTS - answered, (
        "what was answered is not asked again, though port and command are others"
    )
    assert len(world.manifest()["model"]["addresses"]) == 2


def test_another_model_behind_the_same_command_is_not_mixed_in(world: World) -> None:
    world.run(world.command("--say", "one"), limit=2)
    with pytest.raises(AssayError, match="another model"):
        world.run(world.command("--say", "two"), limit=2)


FAILURES = {
    "it ends with a message": (
        [sys.executable, "-c", "'import sys; sys.exit(\"no weights in /m --api-key geheim1\")'", "{port}"],
        ("a server did not start: it ended with exit code 1", "no weights in /m --api-key ***", "server-1.log"),
    ),
    "it never answers": (
        [sys.executable, "-c", "'import time; print(\"loading\", flush=True); time.sleep(60)'", "{port}"],
        ("does not answer after 1.5 s", "--serve_timeout", "  loading"),
    ),
    "it speaks another protocol": (
        [sys.executable, "-m", "http.server", "{port}", "--bind", "{host}"],
        ("does not answer after 1.5 s", "/v1/models has status 404"),
    ),
    "it cannot be executed": ([str(SMALL), "{port}"], ("no program",)),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(failure: str, world: World) -> None:
    words, parts = FAILURES[failure]
    with pytest.raises(AssayError) as refused:
        world.run(" ".join(words), serve_timeout=1.5)
    assert all(part in str(refused.value) for part in parts), str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_port_that_another_process_takes_meanwhile_is_replaced(world: World) -> None:
    results = world.run(world.command("--taken", world.folder / "taken"), limit=3)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert len(world.logged("start")) == 2
    assert results["assay"]["servers"] == {"count": 1}


def test_the_key_of_the_command_is_sent_and_written_nowhere(world: World, tmp_path: Path) -> None:
    script = tmp_path / "keyed.py"  # takes the flag of the known servers
    script.write_text(
        "import sys, runpy\n"
        "assert sys.argv[1] == '--api-key'\n"
        f"sys.argv = [{str(SMALL)!r}, sys.argv[3], '--key', sys.argv[2]]\n"
        f"runpy.run_path({str(SMALL)!r}, run_name='__main__')\n"
    )
    results = world.run(f"{sys.executable} {script} --api-key sehr-geheim {{port}}", limit=3)
    assert failed_in(results) == 0
    written = [path for path in world.output.rglob("*") if path.is_file() and b"sehr-geheim" in path.read_bytes()]
    assert written == []
    assert "--api-key ***" in world.manifest()["model"]["serve"]


def driver(world: World, *options: object) -> "subprocess.Popen[str]":
    command = [
        "-m",
        "assay",
        "run",
        "--tasks",
        "t",
        "--include_path",
        world.folder,
        "--no_defaults",
        "-o",
        world.output,
    ]
    return start(*command, *options, cwd=world.folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_server_survives_its_run(number: signal.Signals, world: World) -> None:
    """Not even one that ignores SIGTERM, nor what it started in another session; Ctrl-C while it still answers slowly."""
    stubborn = ["--stubborn"] if number == signal.SIGKILL else []
    process = driver(world, "--serve", world.command("--wait", 0.5, "--spawn", *stubborn))
    until(lambda: len(world.asked) > 2)
    assert len(world.running) == 2
    process.send_signal(number)
    process.communicate()
    until(lambda: not world.running, 10.0)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
