"""A key, wherever it is given, gets into no file, no result and no line on the terminal."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.runs.redact import redacted
from run_world import Asked, everything, run

Run = Callable[..., "subprocess.CompletedProcess[str]"]


CANARY = "sk-canary-1234567890abcdef"
SECRETS = {
    "a key": f"api_key={CANARY}",
    "a password in an address": f"base_url=https://user:{CANARY}@host.example/v1",
    "a token in an address": f"base_url=https://host.example/v1?api_key={CANARY}",
    "a header": json.dumps({"headers": {"Authorization": f"Bearer {CANARY}"}}),
    "a header as text": json.dumps({"header": f"Authorization: Bearer {CANARY}"}),
    "a token": f"token={CANARY},name=x",
}


SLIPS = {"a slip before a key": f"api_key {CANARY}", "a header with a blank": f"Authorization=Bearer {CANARY}"}


def traces(folder: Path) -> list[str]:
    """The files below a folder that tell the secret."""
    return [path for path, content in everything(folder).items() if CANARY.encode() in content]


@pytest.mark.parametrize("arguments", [*SECRETS.values(), *SLIPS.values()], ids=[*SECRETS, *SLIPS])
def test_a_secret_in_a_command_reaches_no_file_and_no_terminal(
    arguments: str, tasks: Path, tmp_path: Path, run_assay: Run
) -> None:
    """The models that are there so far take none of these, and say so."""
    ended = run_assay(
        "run", "-t", "sums", "-M", "dummy", "-a", arguments, "--include_path", tasks, "-o", tmp_path / "run"
    )
    assert CANARY not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert traces(tmp_path) == []


@pytest.mark.parametrize(
    "further", [("-M", "dummy", "--dry_run"), ("-M", "embedded"), ("-M", "no_such_model")], ids=str
)
def test_a_secret_is_kept_whatever_becomes_of_the_command(
    further: tuple[str, ...], tasks: Path, tmp_path: Path, run_assay: Run
) -> None:
    options = ("--include_path", tasks, "-o", tmp_path / "run", "--show_config", *further)
    ended = run_assay("run", "-t", "sums", "-a", SECRETS["a key"], SECRETS["a password in an address"], *options)
    assert CANARY not in ended.stdout + ended.stderr
    assert traces(tmp_path) == []


@pytest.mark.parametrize("arguments", SECRETS.values(), ids=SECRETS)
def test_a_secret_given_in_python_reaches_no_file_and_no_result(arguments: str, tasks: Path, tmp_path: Path) -> None:
    content = run(Asked(), tasks, tmp_path / "run", model_args=arguments, log_samples=True)
    assert CANARY not in str(content)
    assert "model_args" in content["config"]
    assert traces(tmp_path) == []


def test_a_secret_in_a_configuration_file_stays_there(tasks: Path, tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "given.yaml").write_text(f"tasks: [sums]\nmodel: dummy\nmodel_args: {{api_key: {CANARY}}}\n")
    ended = run_assay("run", "--config", tmp_path / "given.yaml", "--include_path", tasks, "-o", tmp_path / "run")
    assert CANARY not in ended.stdout + ended.stderr
    assert traces(tmp_path) == ["given.yaml"]


def test_what_only_sounds_like_a_secret_is_written_down() -> None:
    metric = {"name": "exact_match", "params": {"key": "text"}, "golden_key": "topic"}
    assert redacted({"unit_metrics_map": [metric]}) == {"unit_metrics_map": [metric]}
    assert redacted({"parameters": {"key": "abc"}, "key": "abc"}) == {"parameters": {"key": "***"}, "key": "***"}
