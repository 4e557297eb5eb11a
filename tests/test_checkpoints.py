"""Several checkpoints in one command: each on the same samples, in a separate folder, and one table of all."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import run_world
from assay.cli import main
from assay.config.run import RunConfig
from assay.errors import ConfigError
from assay.evaluation.options import checkpoint_runs
from hf_world import build, likelihood, words
from small_runs import write_task

QUESTIONS = [(n, n + 1, gold) for n, gold in ((10, 0), (20, 1), (30, 0), (40, 1), (50, 0), (60, 1), (70, 1))]
CHOICES = (80, 81)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Checkpoints step-2 and step-10 of different weights, and a task for them."""
    for step, seed in ((2, 0), (10, 1)):
        build("llama", seed).save_pretrained(tmp_path / f"steps/step-{step}")
        words().save_pretrained(tmp_path / f"steps/step-{step}")
    rows = [{"q": f"w{a} w{b}", "gold": gold} for a, b, gold in QUESTIONS]
    yaml = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [w80, w81]\ndoc_to_target: gold\nmetric_list: [{metric: acc}]\n"
    write_task(tmp_path / "tasks", rows, yaml)
    return tmp_path


def accuracy(seed: int) -> float:
    """By plain forwards."""
    right = 0
    for a, b, gold in QUESTIONS:
        values = [likelihood(build("llama", seed), [a, b], [choice])[0] for choice in CHOICES]
        right += values[gold] == max(values)
    return right / len(QUESTIONS)


def run(world: Path, *more: object) -> int:
    command = ["run", "--model", "hf", "--tasks", "t", "--include_path", world / "tasks", "--no_defaults", *more]
    return main([str(part) for part in command])


def test_a_pattern_evaluates_each_checkpoint_and_prints_one_table(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(world, "--model_args", f"pretrained={world}/steps/step-*", "--output_path", world / "out") == 0
    said = capsys.readouterr().out
    header, _, row = [line for line in said.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in header.strip("|").split("|")][4:] == ["step-2", "step-10"], "2 before 10"
    result = [cell.strip() for cell in row.strip("|").split("|")]
    expected = [accuracy(0), accuracy(1)]
    assert expected[0] != expected[1]
    errors = [(p * (1 - p) / (len(QUESTIONS) - 1)) ** 0.5 for p in expected]
    assert result[4:] == [f"{p:.4f} ± {e:.4f}" for p, e in zip(expected, errors, strict=True)]
    for step, p in zip((2, 10), expected, strict=True):
        own = run_world.results(world / f"out/step-{step}")
        assert own["results"]["t"]["acc,none"] == p
    both = json.loads((world / "out/checkpoints.json").read_text())["checkpoints"]
    assert [(each["name"], each["status"], each["tasks"]["t"]["rows"][0]["value"]) for each in both] == [
        ("step-2", "complete", expected[0]), ("step-10", "complete", expected[1])
    ]  # fmt: skip


def test_the_same_command_resumes_and_asks_nothing_again(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model_args", f"pretrained={world}/steps/step-*", "--output_path", world / "out")
    assert run(world, *arguments) == 0
    first = capsys.readouterr().out
    written = (world / "out/step-2/responses.jsonl").read_bytes()
    assert run(world, *arguments) == 0
    assert capsys.readouterr().out == first
    assert (world / "out/step-2/responses.jsonl").read_bytes() == written


def test_a_checkpoint_that_cannot_be_loaded_does_not_stop_the_others(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (world / "steps/step-2/model.safetensors").write_bytes(b"\0" * 64)
    arguments = (
        "--model_args",
        f"pretrained=[{world}/steps/step-2,{world}/steps/step-10]",
        "--output_path",
        world / "out",
    )
    assert run(world, *arguments) == 2
    ended = capsys.readouterr()
    assert "step-2: " in ended.err
    assert "cannot be loaded" in ended.err
    row = ended.out.splitlines()[2].strip("|").split("|")
    assert [cell.strip().partition(" ")[0] for cell in row[4:]] == ["–", f"{accuracy(1):.4f}"]
    both = json.loads((world / "out/checkpoints.json").read_text())["checkpoints"]
    assert [each["status"] for each in both] == ["failed", "complete"]


def test_a_checkpoint_with_failures_gives_the_exit_code_of_failures(world: Path) -> None:
    broken = build("llama")
    with torch.no_grad():
        broken.get_input_embeddings().weight[10] = float("nan")
    broken.save_pretrained(world / "steps/step-2")
    assert run(world, "--model_args", f"pretrained={world}/steps/step-*") == 1


def test_problems_of_the_tasks_are_reported_once(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world, "--model_args", f"pretrained={world}/steps/step-*", "--tasks", "nosuch") == 2
    assert capsys.readouterr().err.count("nosuch") == 1


def runs(pretrained: Any, output: str | None = None) -> dict[str, RunConfig]:
    return checkpoint_runs(RunConfig(model="hf", model_args={"pretrained": pretrained}, output_path=output))


def test_numbers_in_names_are_sorted_as_numbers_and_a_list_keeps_its_order(tmp_path: Path) -> None:
    for name in ("step-10", "step-9", "step-100", "final"):
        (tmp_path / name).mkdir()
    assert list(runs(f"{tmp_path}/*")) == ["final", "step-9", "step-10", "step-100"]
    assert list(runs([f"{tmp_path}/step-10", f"{tmp_path}/step-9"])) == ["step-10", "step-9"]
    assert list(runs([f"{tmp_path}/step-1*", "org/model"])) == ["step-10", "step-100", "model"]


def test_one_model_is_one_run_and_a_pattern_without_any_is_refused(tmp_path: Path) -> None:
    assert runs("org/model") == {}
    (tmp_path / "with[brackets]").mkdir()
    assert runs(str(tmp_path / "with[brackets]")) == {}
    with pytest.raises(ConfigError, match="no checkpoint matches"):
        runs(f"{tmp_path}/step-*")


def test_checkpoints_of_one_name_are_distinguished_by_their_folders() -> None:
    built = runs(["a/step-1", "b/step-1"], "out")
    assert {label: each.output_path for label, each in built.items()} == {
        "a__step-1": "out/a__step-1", "b__step-1": "out/b__step-1"
    }  # fmt: skip
    assert list(runs(["a/b", "a/b"])) == ["1__a__b", "2__a__b"]


def test_the_foot_of_a_table_shows_requested_and_computed_tokens(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seven contexts of two tokens with two choices of one: 28 tokens are read, 14 of them computed."""
    assert run(world, "--model_args", f"pretrained={world}/steps/step-2", "--output_path", world / "one") == 0
    said = capsys.readouterr().err
    assert "requests: 14 answered; asked 28 tokens, computed 14 (2.0 × fewer), " in said
    assert " on the device" in said
    account = run_world.results(world / "one")["assay"]["usage"]
    assert account["tokens"] == {"in": 28, "out": 0, "in_from_cache": 14, "computed": 14}
    assert account["device_seconds"] > 0
    assert "seconds" not in account
