"""Lm-eval's flags for trackers: a finished run is logged, and a tracker that fails costs neither the run nor its numbers."""

import base64
import importlib.util
import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests import run_world
from tests.run_world import ACC, EXACT_MATCH, RecordingModel

from assay.cli import main
from assay.exchange.exporters import export

Run = Callable[..., Any]
RUN = ("run", "--model", "dummy", "--tasks", "sums")


def command(tasks: Path, *more: str) -> list[str]:
    return [*RUN, "--include_path", str(tasks), "--output_path", str(tasks.parent / "run"), *more]


def test_a_tracker_that_is_not_installed_changes_nothing_and_the_command_is_printed(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.setattr("assay.cli.trackers.find_spec", lambda name: None)
    assert main(command(tasks)) == 0
    before = run_world.results(tasks.parent / "run")["results"]
    code = main([*command(tasks), "--trackio_args", "project=mine,token=abcdefgh1234", "--force"])
    printed = capsys.readouterr()
    assert code == 0
    assert run_world.results(tasks.parent / "run")["results"] == before
    assert "trackio is not installed, so this run will not be logged there" in printed.err  # before the run
    assert f"to log it: assay export {tasks.parent / 'run'} --to trackio --args project=mine 'token=***'" in printed.err
    assert "abcdefgh1234" not in printed.out + printed.err


class Tracker:
    """A stand-in for a tracker's module: notes what it is passed, or fails."""

    def __init__(self, broken: bool = False) -> None:
        self.broken, self.calls = broken, list[tuple[str, Any]]()

    def init(self, **passed: Any) -> None:
        if self.broken:
            raise RuntimeError("no route to https://me:secret@host?key=abc")
        self.calls.append(("init", passed))

    def log(self, values: Any, **more: Any) -> None:
        self.calls.append(("log", values))

    def finish(self) -> None:
        self.calls.append(("finish", None))


def test_trackio_is_given_the_numbers_and_its_arguments(
    tasks: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "trackio", tracker)  # type: ignore[arg-type]
    run_world.run(RecordingModel(), tasks, output)
    [where] = export(output, "trackio", args={"project": "mine", "group": "g"})
    assert where.startswith("trackio project mine, run ")
    (_, passed), (_, values), (last, _) = tracker.calls
    assert (passed["project"], passed["group"], last) == ("mine", "g", "finish")
    assert values["sums/exact_match/none"] == EXACT_MATCH and values["colours/acc/none"] == ACC


def test_a_tracker_that_raises_is_reported_without_its_secrets_and_the_run_is_stored(
    tasks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", Tracker(broken=True))  # type: ignore[arg-type]
    monkeypatch.setattr("assay.cli.trackers.find_spec", lambda name: True)
    assert main(command(tasks, "--trackio_args", "project=mine")) == 0
    printed = capsys.readouterr().err
    assert "not logged: trackio: RuntimeError: no route to" in printed and "secret" not in printed
    assert (tasks.parent / "run/results.json").is_file()
    line = next(line for line in printed.splitlines() if "to log it: " in line)
    monkeypatch.setitem(sys.modules, "trackio", Tracker())  # type: ignore[arg-type]
    assert main(shlex.split(line.partition("to log it: assay ")[2])) == 0  # the command works as it is


def test_keys_of_a_config_file_are_the_flags(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "trackio", tracker)  # type: ignore[arg-type]
    monkeypatch.setattr("assay.cli.trackers.find_spec", lambda name: True)
    file = tmp_path / "run.yaml"
    keys = "wandb_args: {}\nwandb_config_args:\nhf_hub_log_args: {hub_results_org: me}\n"
    file.write_text(f"model: dummy\ntasks: [sums]\nlimit: 1\n{keys}trackio_args: {{project: file}}\n")
    more = ["--include_path", str(tasks), "--runs_dir", str(tmp_path / "runs")]
    assert main(["run", "--config", str(file), *more]) == 0
    assert main(["run", "--config", str(file), *more, "--trackio_args", "project=flag"]) == 0
    assert [passed["project"] for kind, passed in tracker.calls if kind == "init"] == ["file", "flag"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--hf_hub_log_args", "push_result_to_hub=True"), "did you mean 'push_results_to_hub'?"),
        (("--wandb_args", "project"), "wandb_args: expected key=value"),
        (("--wandb_args", "{"), "wandb_args: is not valid JSON"),
    ],
)
def test_wrong_arguments_are_refused_before_the_run(
    tasks: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    assert main(command(tasks, *flags)) == 2
    assert message in capsys.readouterr().err
    assert not (tasks.parent / "run").exists()


def test_a_tracker_needs_a_stored_run(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--include_path", str(tasks), "--no_output", "--wandb_args", "project=p"]) == 2
    assert "leave --no_output out" in capsys.readouterr().err


def test_wandb_offline_takes_the_arguments_of_the_flags(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is an extra: pip install 'assay[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    more = ["--wandb_args", f"project=p,job_type=eval,dir={tmp_path}", "--wandb_config_args", "lr=0.5"]
    assert main(command(tasks, *more)) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wandb: ")]
    folder = Path(line.removeprefix("wandb: ")).parent
    assert any(b"job_type" in file.read_bytes() or b"eval" in file.read_bytes() for file in folder.glob("*.wandb"))


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's API as pushing small files needs; keeps what was committed."""

    pushed: dict[str, dict[str, bytes]]

    def do_GET(self) -> None:
        self._answer({"name": "me", "type": "user", "auth": {"accessToken": {"role": "write"}}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        assert self.headers["Authorization"] == "Bearer hf_test_token_1234", "every request has the token"
        if self.path.endswith("/preupload/main"):
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif self.path.endswith("/commit/main"):
            repository = self.path.removeprefix("/api/datasets/").removesuffix("/commit/main")
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    own = self.pushed.setdefault(repository, {})
                    own[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._answer(
                {
                    "commitUrl": f"http://{self.headers['Host']}/datasets/{repository}/commit/{'0' * 40}",
                    "commitOid": "0" * 40,
                }
            )
        else:
            asked = json.loads(body)
            is_private = (
                asked.get("private") or asked.get("visibility") == "private"
            )  # before huggingface_hub 1, and now
            self.pushed.setdefault("created", {})[asked["name"]] = b"private" if is_private else b"public"
            self._answer({"url": f"http://{self.headers['Host']}/datasets/me/{asked['name']}"})

    def _answer(self, value: object) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[str, dict[str, dict[str, bytes]]]]:
    pushed: dict[str, dict[str, bytes]] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Hub,), {"pushed": pushed}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", pushed
    server.shutdown()
    server.server_close()


def test_results_and_samples_are_pushed_to_data_sets_of_the_hub_as_lm_eval_names_them(
    tasks: Path, run_assay_process: Run, hub: tuple[str, dict[str, dict[str, bytes]]]
) -> None:
    if importlib.util.find_spec("huggingface_hub") is None:
        pytest.skip("huggingface_hub is an extra: pip install 'assay[hub]'")
    address, pushed = hub
    arguments = "results_repo_name=numbers,push_results_to_hub=True,push_samples_to_hub=True,token=hf_test_token_1234"
    ended = run_assay_process(*command(tasks, "--hf_hub_log_args", arguments), HF_ENDPOINT=address, HF_HUB_OFFLINE="0")
    assert ended.returncode == 0 and "not logged" not in ended.stderr, ended.stderr
    assert f"hf-hub: {address}/datasets/me/numbers-private" in ended.stdout
    assert pushed["created"] == {"numbers-private": b"private", "lm-eval-results-private": b"private"}
    [(name, content)] = pushed["me/numbers-private"].items()
    assert name.startswith("dummy/results_") and json.loads(content)["results"]["sums"]["exact_match,none"] == 0.0
    [(name, content)] = pushed["me/lm-eval-results-private"].items()
    assert name.startswith("dummy/samples_sums_") and len(content.splitlines()) == len(run_world.SUMS)
    assert "hf_test_token" not in ended.stdout + ended.stderr + (tasks.parent / "run/manifest.json").read_text()


def test_a_hub_that_does_not_answer_is_reported_and_the_exit_code_is_that_of_the_run(
    tasks: Path, run_assay_process: Run
) -> None:
    if importlib.util.find_spec("huggingface_hub") is None:
        pytest.skip("huggingface_hub is an extra: pip install 'assay[hub]'")
    arguments = "hub_results_org=me,push_results_to_hub=True,token=hf_test_token_1234"
    offline = run_assay_process(
        *command(tasks, "--hf_hub_log_args", arguments), HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="0"
    )
    assert offline.returncode == 0
    assert "not logged: hf-hub: " in offline.stderr and "--to hf-hub --args hub_results_org=me" in offline.stderr
    assert "hf_test_token" not in offline.stderr
