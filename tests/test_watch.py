"""`assay watch`: checkpoints are evaluated as they become complete, in the order of their steps, and worse ones alarm."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cli import main
from assay.comparison.compare import decide_next
from assay.evaluation.watch import Checkpoint, WatchOptions, find_checkpoints, why_not_ready
from checkpoint_world import NOISE, TASK, checkpoint, value
from compared_world import make_run, write_tasks
from run_world import start

SHORT = ("--model", "embedded", "--tasks", TASK, "--limit", "24", "--stable", "0.2s")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good model, another good one, and one that answers by chance."""
    folder = tmp_path_factory.mktemp("models")
    checkpoint(folder / "good")
    checkpoint(folder / "alike", 0.02)
    checkpoint(folder / "bad", NOISE)
    return folder


def train(out: Path, models: Path, **steps: str) -> Path:
    """A folder of a training with these checkpoints, each a copy of a model."""
    for step, model in steps.items():
        shutil.copytree(models / model, out / step.replace("_", "-"))
    return out


def watch(out: Path, *more: object) -> int:
    time.sleep(0.25)  # so that checkpoints have not changed for a while
    return main(["watch", str(out), *SHORT, *map(str, more)])


def noted(folder: Path) -> list[tuple[str, int, str]]:
    entries = json.loads((folder / "checkpoints.json").read_text())["checkpoints"]
    return [(each["name"], each["step"], each["status"]) for each in entries]


# --- which folders are checkpoints, and when they are complete


def test_the_step_is_that_of_the_name_else_of_the_trainers_state(tmp_path: Path) -> None:
    for name in (
        "step-1000",
        "checkpoint-500",
        "global_step70",
        "iter_0000002",
        "epoch=3",
        "logs",
        "tmp-checkpoint-9",
        "step-8.tmp",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "step-7").write_text("a file")
    (tmp_path / "best").mkdir()
    (tmp_path / "best/trainer_state.json").write_text('{"global_step": 400}')
    known = find_checkpoints(WatchOptions(tmp_path))
    assert [(each.name, each.step) for each in known] == [
        ("iter_0000002", 2), ("epoch=3", 3), ("global_step70", 70), ("best-step-400", 400), ("checkpoint-500", 500), ("step-1000", 1000)
    ]  # fmt: skip
    assert [each.name for each in find_checkpoints(WatchOptions(tmp_path, "step-*"))] == ["step-1000"]


def test_a_checkpoint_is_ready_by_a_marker_or_when_it_has_not_changed_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    now, plain = time.time() + 1, WatchOptions(tmp_path, stable=30)
    assert why_not_ready(folder, plain, now + 100) == "it is empty"
    (folder / "config.json").write_text("{}")
    assert why_not_ready(folder, plain, now).startswith("it changed ")
    assert why_not_ready(folder, plain, now + 31) == ""
    os.utime(folder / "config.json", (1, 1))  # as cp -a does while it copies
    assert why_not_ready(folder, plain, now).startswith("it changed ")
    (folder / "trainer_state.json").write_text('{"global_st')
    assert why_not_ready(folder, plain, now).startswith("it changed "), "the state is still written"
    (folder / "trainer_state.json").write_text('{"global_step": 1}')
    assert why_not_ready(folder, plain, now) == ""
    named = WatchOptions(tmp_path, ready="done.*")
    assert why_not_ready(folder, named, now + 1000) == "no done.*"
    (folder / "done.txt").touch()
    assert why_not_ready(folder, named, now) == ""
    assert why_not_ready(tmp_path / "step-2", plain, now).startswith("it cannot be read")


def test_weights_that_are_cut_off_or_lack_a_part_are_not_ready(tmp_path: Path) -> None:
    folder, later = checkpoint(tmp_path / "step-1"), time.time() + 100
    plain, weights = WatchOptions(tmp_path), folder / "model.safetensors"
    assert why_not_ready(folder, plain, later) == ""
    whole = weights.read_bytes()
    for size in (4, 1000, len(whole) - 1):
        weights.write_bytes(whole[:size])
        assert why_not_ready(folder, plain, later) == "model.safetensors is cut off"
    weights.write_bytes(whole)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "one.safetensors"}}')
    assert why_not_ready(folder, plain, later) == "no one.safetensors"


# --- evaluations and alarms


@pytest.mark.process
def test_checkpoints_are_evaluated_in_order_and_a_worse_one_alarms(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tmp_path / "out", models, step_10="bad", step_9="alike", step_2="good")
    alarmed = tmp_path / "alarm.txt"
    alarm = f"{sys.executable} -c \"import sys; open('{alarmed}', 'a').write('|'.join(sys.argv[1:]) + chr(10))\" {{step}} {{run}} {{message}}"
    more = ("-o", tmp_path / "runs", "--once", "--gate", "acc > -1pp", "--on_alarm", alarm)
    assert watch(out, *more) == 1
    ended = capsys.readouterr()
    steps = [line.split()[1].rstrip(":") for line in ended.out.splitlines() if line.startswith("step ")]
    assert steps == ["2", "9", "10"]
    assert [line.split(":")[0] for line in ended.out.splitlines() if "ALARM" in line] == ["ALARM at step 10"] * 2
    assert "against step-2" in ended.out
    assert "against step-9" in ended.out
    step, run, message = alarmed.read_text().strip().split("|")
    assert (step, run) == ("10", str(tmp_path / "runs/step-10"))
    assert message.startswith("✗ acc > -1pp: ")
    assert noted(tmp_path / "runs") == [
        ("step-2", 2, "complete"),
        ("step-9", 9, "complete"),
        ("step-10", 10, "complete"),
    ]
    header = next(line for line in ended.out.splitlines() if line.startswith("|Tasks"))
    assert [cell.strip() for cell in header.strip("|").split("|")][4:] == ["step-2", "step-9", "step-10"]
    assert value(tmp_path / "runs/step-2") > 0.7 > 0.5 > value(tmp_path / "runs/step-10")

    assert watch(out, *more) == 0, "what is evaluated and said is not said again"
    again = capsys.readouterr()
    assert "evaluated before: 3 checkpoints, up to step 10" in again.err
    assert "ALARM" not in again.out
    assert "run folder" not in again.err
    assert len(alarmed.read_text().splitlines()) == 1
    shutil.rmtree(out / "step-2")  # as trainers do that keep the last
    train(out, models, step_11="good")
    assert watch(out, *more) == 0
    assert [name for name, *_ in noted(tmp_path / "runs")] == ["step-2", "step-9", "step-10", "step-11"]
    (tmp_path / "runs/checkpoints.json").unlink()
    assert watch(out, *more) == 1, "an alarm that is nowhere recorded is given again"
    assert len(alarmed.read_text().splitlines()) == 2


def test_a_broken_checkpoint_is_tried_again_a_few_times_and_does_not_stop_the_watch(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tmp_path / "out", models, step_1="good", step_3="good")
    (out / "step-1/config.json").write_text("{}")
    assert watch(out, "-o", tmp_path / "runs", "--until", 3) == 2
    ended = capsys.readouterr()
    assert ended.err.count("step-1: model_args.path: ") == 2
    assert ended.err.count("tried again in") == 2
    assert "step-1: could not be evaluated: model_args.path: " in ended.err
    assert noted(tmp_path / "runs") == [("step-3", 3, "complete")]
    shutil.copy(models / "good/config.json", out / "step-1")
    assert watch(out, "-o", tmp_path / "runs", "--once") == 0
    assert noted(tmp_path / "runs") == [("step-1", 1, "complete"), ("step-3", 3, "complete")]


@pytest.mark.process
def test_a_checkpoint_is_converted_by_a_command_and_the_result_removed(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "step-5").mkdir(parents=True)
    (out / "step-5/weights.bin").write_bytes((models / "good/model.safetensors").read_bytes())
    (out / "step-6").mkdir()
    (out / "step-6/weights.txt").touch()
    script = tmp_path / "convert.py"
    script.write_text(
        "import shutil, sys\nfrom pathlib import Path\nsource, target = map(Path, sys.argv[1:])\n"
        f"shutil.copytree({str(models / 'good')!r}, target)\n"
        "shutil.copy(source / 'weights.bin', target / 'model.safetensors')\n"
    )
    more = ("-o", tmp_path / "runs", "--once", "--convert", f"{sys.executable} {script} {{checkpoint}} {{out}}")
    assert watch(out, *more) == 2
    said = capsys.readouterr().err
    assert "step-6: could not be evaluated: --convert: " in said
    assert "ended with exit code 1: FileNotFoundError" in said
    assert noted(tmp_path / "runs") == [("step-5", 5, "complete")]
    assert not list((tmp_path / "runs/converted").iterdir())
    assert main(["run", "--tasks", TASK, "--limit", "24", "-o", str(tmp_path / "alone")]) == 0
    assert value(tmp_path / "runs/step-5") == value(tmp_path / "alone"), "the weights of the bundled model"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gate", "accc > -1pp"], "no metric named 'accc' — did you mean 'acc'?"),
        (["--gate", "acc"], "invalid gate 'acc'"),
        (["--on_alarm", "echo {step}"], "--on_alarm: is for gates, and there is none"),
        (["--gate", "acc > 0", "--on_alarm", "echo {stp}"], "--on_alarm: there is no {stp}"),
        (["--convert", "convert.py {checkpoint}"], "--convert: has no {out}"),
        (["--convert", "'convert.py {checkpoint} {out}"], "is not a command: No closing quotation"),
        (["--model_args", "path=x"], "path is the checkpoint that is evaluated"),
        (["--model", "dummy"], "model 'dummy' has no argument 'pretrained'"),
        (["--last", "0"], "--last: must be at least 1"),
        (["--level", "95"], "--level: must be between 0.5 and 1"),
        (["--tasks", "nosuch"], "nosuch"),
        (["--dry_run"], "a watch has no dry run"),
    ],
)
def test_what_is_wrong_is_refused_before_the_first_checkpoint(
    tmp_path: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path), *SHORT, "--once", *more]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "nosuch"), *SHORT]) == 2
    assert "DIR: no folder " in capsys.readouterr().err


def test_later_looks_need_more_evidence(tmp_path: Path) -> None:
    """8 of 100 documents that become wrong: 1/2⁸ by chance, below the 5 %/2 of the first look, above the 5 %/(20 · 21) of the 20th."""
    tasks = write_tasks(tmp_path / "tasks", {"t": [{}] * 100})
    first, slightly, much = (
        make_run(tasks, tmp_path / name, {"t": [1.0] * (100 - wrong) + [0.0] * wrong})
        for name, wrong in (("first", 0), ("slightly", 8), ("much", 40))
    )

    def decided(run: Path, number: int) -> list[str]:
        return [each.verdict.decision for each in decide_next(run, ["x >= baseline"], [first], number)]

    assert [decided(slightly, 1), decided(slightly, 20)] == [["fail"], ["inconclusive"]]
    assert [decided(much, 1), decided(much, 20)] == [["fail"], ["fail"]]
    both = decide_next(much, ["x >= baseline", "failed <= 1%", "x >= 0.9"], [first, slightly], 1)
    assert sorted((each.verdict.gate, each.baseline.name if each.baseline else "", each.verdict.decision) for each in both) == [
        ("failed <= 1%", "", "pass"), ("x >= 0.9", "", "fail"), ("x >= baseline", "first", "fail"), ("x >= baseline", "slightly", "fail")
    ]  # fmt: skip


# --- as a process, while a trainer writes


@pytest.mark.process
def test_a_watch_that_is_killed_continues_while_checkpoints_are_written(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    arguments = [
        sys.executable,
        "-m",
        "assay",
        "watch",
        str(out),
        *SHORT,
        "-o",
        str(tmp_path / "runs"),
        "--until",
        "4",
        "--last",
        "1",
    ]
    arguments += ["--gate", "acc > -1pp", "--stable", "0.5s"]
    first = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        write_slowly(models / "good", out / "step-1")
        write_slowly(models / "good", out / "step-2")
        until(lambda: (tmp_path / "runs/step-1/results.json").exists())
        second = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        assert second.returncode == 2, "one watch at a time"
        assert "another run uses this folder" in second.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    write_slowly(models / "bad", out / "step-4")
    again = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert again.returncode == 1, again.stderr
    assert "ALARM at step 4" in again.stdout
    assert "step 1:" not in again.stdout, "it was evaluated before"
    assert noted(tmp_path / "runs") == [(f"step-{n}", n, "complete") for n in (1, 2, 4)]


@pytest.mark.process
def test_ctrl_c_ends_a_watch_with_its_table(models: Path, tmp_path: Path) -> None:
    out = train(tmp_path / "out", models, step_1="good")
    started = start("-m", "assay", "watch", out, *SHORT, "-o", tmp_path / "runs", cwd=tmp_path)
    until(lambda: (tmp_path / "runs/checkpoints.json").exists())
    started.send_signal(signal.SIGINT)
    said, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert re.search(r"\| *step-1 *\|", said)
    assert "stopped; continue with: " in err


def write_slowly(model: Path, target: Path) -> None:
    """Write a checkpoint as a trainer does: file by file, the weights in parts."""
    target.mkdir()
    for file in sorted(model.iterdir()):
        content = file.read_bytes()
        with (target / file.name).open("wb") as opened:
            for start in range(0, len(content), max(len(content) // 4, 1)):
                opened.write(content[start : start + max(len(content) // 4, 1)])
                opened.flush()
                time.sleep(0.02)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.process
def test_a_checkpoint_that_is_removed_while_it_is_evaluated_is_said_to_be(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The conversion stands for the trainer that removes it: the folder is not there any more when the model is read."""
    out = train(tmp_path / "out", models, step_1="good", step_2="good")
    removes = f"{sys.executable} -c \"import shutil, sys; c, o = sys.argv[1:]; shutil.copytree(c, o); 'step-1' in c and (shutil.rmtree(c), shutil.rmtree(o))\" {{checkpoint}} {{out}}"
    assert watch(out, "-o", tmp_path / "runs", "--once", "--convert", removes) == 2
    said = capsys.readouterr().err
    assert "step-1: could not be evaluated: it was removed while it was evaluated" in said
    assert noted(tmp_path / "runs") == [("step-2", 2, "complete")]
    assert Checkpoint.of(out / "step-1") is None
