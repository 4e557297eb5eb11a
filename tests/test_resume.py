"""Runs that are interrupted and resumed: nothing is lost, nothing is asked twice, the numbers are the same."""

import json
import random
import resource
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay import AssayError, simple_evaluate
from assay.models import Scripted
from assay.runs.samples.reader import is_whole
from commands import Run
from conftest import Write
from kinds import mostly_nightly
from run_world import (
    EXACT_MATCH,
    FILES,
    REQUESTS,
    SUMS,
    RecordingModel,
    differing,
    everything,
    failed_in,
    finish,
    journal,
    keys,
    manifest,
    outcome,
    results,
    run,
    start,
)

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`


def cut(output: Path, journaled: bytes) -> None:
    """Leave the folder as a run leaves it that ended when so much was journaled: the results are not there yet."""
    for path in (output / "results.json", *output.glob("samples*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (output / "responses.jsonl").write_bytes(journaled)


# Going on


def test_a_finished_run_asks_nothing_again_and_has_the_same_results(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    before, asked = outcome(output), RecordingModel()
    run(asked, tasks, output)
    assert asked.calls == []
    assert differing(output, before) == []


@pytest.mark.parametrize("known", range(REQUESTS + 1))
def test_only_what_is_not_journaled_is_asked(known: int, tasks: Path, output: Path) -> None:
    whole = RecordingModel()
    run(whole, tasks, output)
    uninterrupted, lines = outcome(output), (output / "responses.jsonl").read_bytes().splitlines(keepends=True)
    cut(output, b"".join(lines[: known + 1]))  # and the header
    asked = RecordingModel()
    run(asked, tasks, output)
    assert len(asked.calls) == REQUESTS - known
    assert sorted(keys(output)) == sorted(set(keys(output)))
    assert differing(output, uninterrupted) == []


@pytest.mark.slow
@pytest.mark.parametrize("every", mostly_nightly([1, 7], kept=[7]))
def test_the_last_line_may_be_torn_at_any_byte(every: int, tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, tasks=["sums"])
    uninterrupted, whole = outcome(output), (output / "responses.jsonl").read_bytes()
    start_of_last = whole.rindex(b"\n", 0, -1) + 1
    for end in (*range(start_of_last, len(whole) - 1, every), len(whole) - 1):
        cut(output, whole[:end])
        first, second = RecordingModel(), RecordingModel()
        run(first, tasks, output, tasks=["sums"])
        assert len(first.calls) == 1 or (first.calls == [] and end == len(whole) - 1), end
        assert differing(output, uninterrupted) == [], end
        run(second, tasks, output, tasks=["sums"])
        assert (second.calls, len(keys(output))) == ([], 5), end


DAMAGES = {
    "noise": lambda line: b"\x00\xff\xfe noise",
    "nothing but zeros, as after a power cut": lambda line: b"\x00" * len(line),
    "half of it": lambda line: line[: len(line) // 2],
    "the other half": lambda line: line[len(line) // 2 :],
    "an empty line": lambda line: b"",
    "a number": lambda line: b"17",
    "a list": lambda line: b"[]",
    "no response": lambda line: json.dumps({"k": json.loads(line)["k"]}).encode(),
    "a response of null": lambda line: json.dumps({"k": json.loads(line)["k"], "r": None}).encode(),
    "an empty response": lambda line: json.dumps({"k": json.loads(line)["k"], "r": {}}).encode(),
    "text that is a number": lambda line: json.dumps({"k": json.loads(line)["k"], "r": {"text": 2}}).encode(),
    "a likelihood where a text belongs": lambda line: json.dumps(
        {"k": json.loads(line)["k"], "r": [-1.0, True]}
    ).encode(),
    "an invalid likelihood": lambda line: json.dumps({"k": json.loads(line)["k"], "r": [None, True]}).encode(),
    "a key that is a number": lambda line: json.dumps({"k": 7, "r": json.loads(line)["r"]}).encode(),
    "bytes that are not UTF-8": lambda line: line.replace(b'"text":"', b'"text":"\xff'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_line_is_refused_or_asked_again_and_never_a_wrong_number(
    damage: Callable[[bytes], bytes], tasks: Path, output: Path
) -> None:
    run(RecordingModel(), tasks, output, tasks=["sums"])
    lines = (output / "responses.jsonl").read_bytes().splitlines()
    cut(output, b"\n".join([*lines[:2], damage(lines[2]), *lines[3:]]) + b"\n")
    asked = RecordingModel()
    try:
        content = run(asked, tasks, output, tasks=["sums"])
    except AssayError as refusal:
        assert "responses.jsonl" in str(refusal)  # a refusal that names the file is as good
        return
    assert asked.calls == [("2+3=", "0")]
    assert content["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)
    assert failed_in(content) == 0


def test_a_line_that_was_glued_to_the_next_costs_these_two_at_most(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output, tasks=["sums"])
    lines = (output / "responses.jsonl").read_bytes().splitlines()
    cut(output, b"\n".join([*lines[:2], lines[2][:-9] + lines[3], *lines[4:]]) + b"\n")
    asked = RecordingModel()
    content = run(asked, tasks, output, tasks=["sums"])
    assert [prompt for prompt, _ in asked.calls] == list(SUMS)[1:3]
    assert content["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)


MANIFESTS = {"torn": '{"format": 3, "spec', "empty": "", "a list": "[]", "nothing": "{}", "gone": None}


@pytest.mark.parametrize("left", MANIFESTS.values(), ids=MANIFESTS)
def test_a_lost_or_damaged_manifest_is_taken_from_the_journal(
    left: str | None, tasks: Path, output: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(RecordingModel(), tasks, output)
    before, spec = outcome(output), manifest(output)["spec"]
    (output / "manifest.json").unlink() if left is None else (output / "manifest.json").write_text(left)
    asked = RecordingModel()
    run(asked, tasks, output)
    assert asked.calls == []
    assert differing(output, before) == []
    assert (manifest(output)["spec"], manifest(output)["status"]) == (spec, "complete")
    assert "restored from the journal" in caplog.text


def test_another_run_is_refused_where_only_the_journal_identifies_the_first(tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    (output / "manifest.json").unlink()
    before, asked = everything(output), RecordingModel()
    with pytest.raises(AssayError, match="holds another run"):
        run(asked, tasks, output, num_fewshot=1)
    assert (asked.calls, everything(output)) == ([], before)


def test_damaged_lines_are_counted_and_asked_again(tasks: Path, output: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(RecordingModel(), tasks, output)
    before, lines = outcome(output), (output / "responses.jsonl").read_bytes().splitlines(keepends=True)
    lines[3], lines[5] = lines[3].replace(b'"r":', b'"r": '), b"\0" * 20 + b"\n"
    (output / "responses.jsonl").write_bytes(b"".join(lines))
    asked = RecordingModel()
    run(asked, tasks, output)
    assert len(asked.calls) == 2
    assert "responses.jsonl: 2 damaged lines were ignored; requests without an answer are sent again" in caplog.text
    assert manifest(output)["damaged_lines"] == 2
    assert differing(output, before) == ["responses.jsonl"]  # the damaged lines are still there


@pytest.mark.parametrize("other", [2, 4])
def test_a_run_of_another_format_is_refused_by_its_number(other: int, tasks: Path, output: Path) -> None:
    run(RecordingModel(), tasks, output)
    (output / "manifest.json").write_text(json.dumps({**manifest(output), "format": other}))
    with pytest.raises(
        AssayError, match=f"it has format {other}, and this version of assay reads format 3 — use the version"
    ):
        run(RecordingModel(), tasks, output)


@pytest.mark.slow
def test_a_long_journal_is_compressed_and_appended_to(write: Write, output: Path) -> None:
    """40 responses of a megabyte each, the last of which fails at first."""
    numbers = "".join(json.dumps({"q": str(n), "a": "x"}) + "\n" for n in range(40))
    arguments = {
        "include_path": str(write({**FILES, "sums.jsonl": numbers})),
        "include_defaults": False,
        "tasks": ["sums"],
    }
    calls: list[str] = []

    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        calls.append(prompt)
        if calls.count("39=") == 1 and prompt == "39=":
            raise TimeoutError
        return prompt + "a long answer " * 75_000

    for _ in range(2):
        content = simple_evaluate(Scripted(generate=generate), output_path=str(output), log_samples=False, **arguments)
    assert (len(calls), calls[-1]) == (41, "39=")
    assert failed_in(content) == 0
    assert sum(path.stat().st_size for path in output.glob("responses*")) < 20_000_000


# One folder, one run

SCRIPT = """
import os, signal, sys, time
sys.path.insert(0, {here!r})
from pathlib import Path
from kinds import mostly_nightly
from run_world import RecordingModel, run


def hold(asked):
    Path("busy").touch()
    while not Path("go").exists():
        time.sleep(0.01)


def die(asked):
    time.sleep(0.002)  # answers of one millisecond are written together
    if len(asked.calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)


run(RecordingModel(first={first}), Path({tasks!r}), Path({output!r}), tasks=["sums"])
"""


def script(first: str, tasks: Path, output: Path) -> str:
    """The code of a run that does something before each request: `hold` until there is a file `go`, or `die`."""
    return SCRIPT.format(here=str(Path(__file__).parent), first=first, tasks=str(tasks), output=str(output))


@pytest.fixture
def busy(tasks: Path, output: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that works in the folder until a file `go` is there."""
    owner = start("-c", script("hold", tasks, output), cwd=tmp_path)
    wait(lambda: (tmp_path / "busy").exists() or owner.poll() is not None)
    assert owner.poll() is None, owner.communicate()[1]
    yield owner
    owner.kill()
    owner.communicate()


def wait(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


@pytest.mark.parametrize("force", [False, True])
def test_a_second_run_into_one_folder_is_refused_and_the_first_is_not_disturbed(
    force: bool, busy: "subprocess.Popen[str]", tasks: Path, output: Path, tmp_path: Path
) -> None:
    before, asked = sorted(tmp_path.iterdir()), RecordingModel()
    with pytest.raises(AssayError) as refusal:
        run(asked, tasks, output, tasks=["sums"], force=force)
    assert str(output) in str(refusal.value)
    assert str(busy.pid) in str(refusal.value)
    assert asked.calls == []
    assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "go").touch()
    assert busy.wait(30) == 0
    assert results(output)["results"]["sums"]["exact_match,none"] == pytest.approx(EXACT_MATCH, abs=1e-12)
    assert len(keys(output)) == 5


def test_force_does_not_take_the_folder_from_a_run_of_another_spec(
    busy: "subprocess.Popen[str]", tasks: Path, output: Path, tmp_path: Path
) -> None:
    with pytest.raises(AssayError, match=str(busy.pid)):
        run(RecordingModel(), tasks, output, tasks=["colours"], force=True)
    (tmp_path / "go").touch()
    assert busy.wait(30) == 0
    assert list(results(output)["results"]) == ["sums"]


def test_the_second_command_ends_with_2_at_once(
    busy: "subprocess.Popen[str]", tasks: Path, output: Path, run_assay: Run
) -> None:
    ended = run_assay("run", "-t", "sums", "-M", "dummy", "--include_path", tasks, "-o", output)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert str(output) in ended.stderr


def test_the_lock_of_a_dead_owner_does_not_block(busy: "subprocess.Popen[str]", tasks: Path, output: Path) -> None:
    busy.kill()
    busy.wait()
    asked = RecordingModel()
    run(asked, tasks, output, tasks=["sums"])
    assert len(asked.calls) == len(keys(output)) == 5


def test_a_run_in_this_process_holds_its_folder_too(tasks: Path, output: Path) -> None:
    said: list[str] = []

    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        try:
            run(RecordingModel(), tasks, output, tasks=["colours"], force=True)
        except Exception as refusal:  # noqa: BLE001  # an engine may mind being run inside another, too
            said.append(type(refusal).__name__)
        return "2"

    simple_evaluate(Scripted(generate=generate), tasks=["sums"], include_path=str(tasks), output_path=str(output))
    assert len(said) == 5
    assert len(keys(output)) == 5


# kill -9, Ctrl-C, a full disk

EMBEDDED = ("first_steps_larger", "first_steps_stories", "first_steps_sums")
"""120 log-likelihoods, 60 rolling ones, 60 generations: about a second of work."""
ALL = 240


def command(output: Path) -> tuple[object, ...]:
    return ("-m", "assay", "run", "--tasks", *EMBEDDED, "--output_path", output, "--log_samples")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    process = start(*command(folder / "run"), cwd=folder, ASSAY_CACHE_DIR=str(folder / "cache"))
    said = process.communicate()
    assert process.returncode == 0, said
    return folder / "run"


def journaled(output: Path) -> list[bytes]:
    """The whole lines of the journal."""
    path = output / "responses.jsonl"
    return (
        [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")] if path.exists() else []
    )


def same(output: Path, uninterrupted: Path) -> None:
    assert len(keys(output)) == len(set(keys(output))) == ALL
    assert differing(output, outcome(uninterrupted)) == []


def test_kill_9_at_any_moment_loses_nothing_and_doubles_nothing(
    uninterrupted: Path, output: Path, tmp_path: Path
) -> None:
    """Killed five times in a row, each time when the journal has grown past some random size, then left alone."""
    draw, size = random.Random(20), (uninterrupted / "responses.jsonl").stat().st_size
    kept: list[bytes] = []
    for share in sorted(draw.uniform(0, 0.95) for _ in range(5)):
        process = start(*command(output), cwd=tmp_path)
        path = output / "responses.jsonl"
        wait(lambda: process.poll() is not None or (path.exists() and path.stat().st_size >= share * size))  # noqa: B023  # waited for here
        process.kill()
        process.communicate()
        assert journaled(output)[: len(kept)] == kept
        kept = journaled(output)
    assert finish(*command(output), cwd=tmp_path) == 0
    assert journaled(output)[: len(kept)] == kept
    same(output, uninterrupted)


@pytest.mark.parametrize("moment", mostly_nightly([0.3, 0.7], kept=[0.3]))
def test_kill_9_at_a_moment_of_the_clock_too(moment: float, uninterrupted: Path, output: Path, tmp_path: Path) -> None:
    process = start(*command(output), cwd=tmp_path)
    time.sleep(moment)
    process.kill()
    process.communicate()
    assert finish(*command(output), cwd=tmp_path) == 0
    same(output, uninterrupted)


@pytest.mark.parametrize("known", mostly_nightly([16, 33, 160], kept=[33]))
def test_the_embedded_model_has_the_same_results_wherever_it_was_interrupted(
    known: int, uninterrupted: Path, output: Path, tmp_path: Path
) -> None:
    """What a model is asked together with must not change what it says."""
    shutil.copytree(uninterrupted, output)
    cut(output, b"".join(journaled(output)[:known]))
    assert finish(*command(output), cwd=tmp_path) == 0
    same(output, uninterrupted)


def test_every_response_is_journaled_before_the_next_is_waited_for(tasks: Path, output: Path, tmp_path: Path) -> None:
    process = start("-c", script("die", tasks, output), cwd=tmp_path)
    said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    assert [line["r"]["text"] for line in journal(output)] == ["2", "5", "4"]


def interrupt(output: Path, cwd: Path, number: int = signal.SIGINT) -> tuple[int, str]:
    """Ctrl-C once something is journaled: the exit code, and what was said."""
    process = start(*command(output), cwd=cwd)
    wait(lambda: process.poll() is not None or len(journaled(output)) > 1)  # more than the header
    process.send_signal(number)
    said = "".join(process.communicate())
    return process.returncode, said


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_and_the_command_that_resumes_is_printed(
    number: int, expected: int, uninterrupted: Path, output: Path, tmp_path: Path
) -> None:
    code, said = interrupt(output, tmp_path, number)
    assert (code, "Traceback" in said) == (expected, False), said
    assert manifest(output)["status"] == "interrupted"
    assert not (output / "results.json").exists()
    known = journaled(output)
    assert known
    printed = next(line for line in said.splitlines() if "assay run" in line)
    resume = shlex.split(printed[printed.index("assay run") :])[1:]
    assert finish("-m", "assay", *resume, cwd=tmp_path) == 0
    assert journaled(output)[: len(known)] == known
    assert manifest(output)["status"] == "complete"
    assert "reason" not in manifest(output)  # that it was interrupted once
    same(output, uninterrupted)


@pytest.mark.parametrize("largest", [200, 5_000, 25_000])
def test_a_full_disk_is_reported_and_the_run_can_be_resumed(
    largest: int, uninterrupted: Path, output: Path, tmp_path: Path
) -> None:
    """No file may grow past some size: first the manifest cannot be written, then the journal, then the samples."""
    process = start(
        *command(output),
        cwd=tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest)),
        PYTHONDONTWRITEBYTECODE="1",  # Python 3.11 would keep the half of a compiled module, for all later processes
    )
    _, said = process.communicate()
    assert process.returncode not in (0, 1, 130, -signal.SIGXFSZ), said
    assert "Traceback" not in said
    assert str(output) in said
    assert any(way_out in said for way_out in ("again", "resume", "go on", "goes on", "--output_path")), said
    known = journaled(output)
    unfinished = [
        path for path in output.rglob("*.part") if path.suffixes[-2:] != [".parquet", ".part"] or not is_whole(path)
    ]
    assert unfinished == []  # whole samples of tasks that have ended may wait for the end of the run
    assert finish(*command(output), cwd=tmp_path) == 0
    assert journaled(output)[: len(known)] == known
    same(output, uninterrupted)


def test_a_long_journal_is_kept_compressed_and_read_again(
    tasks: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.runs import journal as journals

    monkeypatch.setattr(journals, "LONG", 1)
    run(RecordingModel(), tasks, output, tasks=["sums"])
    assert (output / "responses.jsonl.zst").exists()
    assert not (output / "responses.jsonl").exists()
    again = RecordingModel()
    run(again, tasks, output, tasks=["sums"])
    assert again.calls == []
