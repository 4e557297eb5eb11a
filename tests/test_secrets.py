"""A key, wherever it is given, gets into no file, no result and no line on the terminal."""

import json
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import run_world
from assay.exchange.exporters import export
from assay.exchange.inspect.log_file import member
from assay.exchange.trackers import tracked_settings
from assay.redaction import redact, redact_command, redact_text
from assay.report.write import report_text
from assay.runs.run import Run as RunReader
from assay.runs.run import model_with_arguments
from commands import Run
from exchange_world import HERE, INSPECT, as_json
from run_world import RecordingModel, everything, run

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
    """The files below a folder that contain the secret."""
    return [
        path for path, content in everything(folder).items() if CANARY.encode() in content + unpacked(folder / path)
    ]


def unpacked(path: Path) -> bytes:
    """What is packed in a file."""
    if path.suffix == ".parquet":
        return repr(pq.read_table(path).to_pylist()).encode()
    if not zipfile.is_zipfile(path):
        return b""
    with zipfile.ZipFile(path) as file:
        return b"".join(member(file, name) for name in file.namelist())


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
def test_a_secret_is_kept_however_the_command_ends(
    further: tuple[str, ...], tasks: Path, tmp_path: Path, run_assay: Run
) -> None:
    options = ("--include_path", tasks, "-o", tmp_path / "run", "--show_config", *further)
    ended = run_assay("run", "-t", "sums", "-a", SECRETS["a key"], SECRETS["a password in an address"], *options)
    assert CANARY not in ended.stdout + ended.stderr
    assert traces(tmp_path) == []


@pytest.mark.parametrize("arguments", SECRETS.values(), ids=SECRETS)
def test_a_secret_given_in_python_reaches_no_file_and_no_result(arguments: str, tasks: Path, tmp_path: Path) -> None:
    content = run(RecordingModel(), tasks, tmp_path / "run", model_args=arguments, log_samples=True)
    assert CANARY not in str(content)
    assert "model_args" in content["config"]
    assert traces(tmp_path) == []


def test_a_secret_in_a_configuration_file_stays_there(tasks: Path, tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "given.yaml").write_text(f"tasks: [sums]\nmodel: dummy\nmodel_args: {{api_key: {CANARY}}}\n")
    ended = run_assay("run", "--config", tmp_path / "given.yaml", "--include_path", tasks, "-o", tmp_path / "run")
    assert CANARY not in ended.stdout + ended.stderr
    assert traces(tmp_path) == ["given.yaml"]


def test_names_that_only_resemble_secrets_are_written() -> None:
    metric = {"name": "exact_match", "params": {"key": "text"}, "golden_key": "topic"}
    assert redact({"unit_metrics_map": [metric]}) == {"unit_metrics_map": [metric]}
    assert redact({"parameters": {"key": "abc"}, "key": "abc"}) == {"parameters": {"key": "***"}, "key": "***"}


def write_report(kind: str, folder: Path) -> Path:
    """What others wrote with a key in the arguments of the model: lm-eval as a text, Inspect as a mapping."""
    folder.mkdir()
    address = f"http://me:{CANARY}@host.example/v1"
    if kind == "lm-eval":
        for path in (HERE / "logged/synth_wino").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        [results] = folder.glob("results_*.json")
        loaded = json.loads(results.read_text())
        loaded["config"]["model_args"] = f"model=x,base_url={address},api_key={CANARY}"
        loaded["configs"] = {"synth_wino": {"metadata": {"base_url": address, "api_key": CANARY}}}
        results.write_text(json.dumps(loaded))
        return folder
    log = as_json(INSPECT / "colours.eval", folder / "colours.json")
    loaded = json.loads(log.read_text())
    loaded["eval"] |= {"model_args": {"api_key": CANARY, "base_url": address}, "task_args": {"url": address}}
    loaded["samples"][0]["error"] = {"message": f"wrong key {CANARY}"}
    log.write_text(json.dumps(loaded))
    return log


@pytest.mark.parametrize("kind", ["lm-eval", "inspect"])
def test_a_secret_that_others_wrote_down_stays_with_them(kind: str, tmp_path: Path, run_assay: Run) -> None:
    (built := tmp_path / "made").mkdir()
    report_path = write_report(kind, tmp_path / "told")
    for name in ("one", "two"):
        ended = run_assay("import", report_path, "-o", built / name)
        assert (ended.returncode, CANARY in ended.stdout + ended.stderr) == (0 if kind == "lm-eval" else 1, False)
    assert run_world.results(built / "one")["config"]["model_args"]["api_key"] == "***"
    compared = run_assay("compare", built / "one", built / "two")
    assert "api_key=***" in compared.stdout and CANARY not in compared.stdout + compared.stderr
    for to in ("lm-eval", "inspect", "parquet"):
        assert export(built / "one", to, built / to)
    for form in ("html", "json", "csv", "md"):
        (built / f"report.{form}").write_text(report_text([built / "one", built / "two"], form))
    assert traces(built) == []


def test_a_run_that_holds_a_secret_does_not_hand_it_on(tasks: Path, tmp_path: Path) -> None:
    """As one does that was imported before this was seen to."""
    run(RecordingModel(), tasks, tmp_path / "run")
    for file in ("results.json", "manifest.json"):
        held = json.loads((tmp_path / "run" / file).read_text())
        written = {"config": {**held.get("config", {}), "model_args": {"api_key": CANARY}}, "model": {"token": CANARY}}
        (tmp_path / "run" / file).write_text(json.dumps({**held, **written}))
    for to in ("lm-eval", "inspect"):
        assert export(tmp_path / "run", to, tmp_path / "made" / to)
    assert traces(tmp_path / "made") == []
    assert model_with_arguments(RunReader.open(tmp_path / "run").results).endswith("(api_key=***)")
    assert tracked_settings(run_world.results(tmp_path / "run")["config"])["model_args.api_key"] == "***"


WRITTEN = {
    "quotes around blanks and commas": "api_key='abc CANARY1, CANARY2'",
    "other quotes": 'api_key="ab CANARY"',
    "a comma in quotes": "api_key='ab,CANARY'",
    "an ampersand": "api_key=ab&CANARY",
    "a semicolon": "api_key=ab;CANARY",
    "a bracket": "api_key=ab}CANARY",
    "a bracket and blanks": "api_key=ab]CANARY1, CANARY2",
    "a list": "api_key=[CANARY1, CANARY2]",
    "text behind quotes": "api_key='ab'CANARY",
    "quotes within": "api_key=ab'c CANARY'",
    "an escaped quote": "api_key='ab\\'c CANARY'",
    "quotes without an end": "api_key='ab CANARY1, CANARY2",
    "a mapping": "more={'api_key': 'ab CANARY', 'n': 1}",
    "JSON": '{"api_key": "ab \\"c\\" CANARY", "n": 1}',
    "JSON within JSON": '{\\"api_key\\": \\"ab CANARY\\"}',
    "a scheme": "auth=Bearer CANARY",
    "an apostrophe before": "don't send api_key='ab CANARY', please",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_key_is_hidden_up_to_where_its_value_ends(text: str) -> None:
    for whole in (text, f"model=m,{text}", f"{text},n=1"):
        assert "CANARY" not in redact_text(whole) and "***" in redact_text(whole)
        assert redact_text(redact_text(whole)) == redact_text(whole)
        assert "CANARY" not in str(redact_command(["assay", "run", "-a", whole, "-t", "x"]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model=m,api_key='a, b',n=1", "model=m,api_key='***',n=1"),
        ("model=m,api_key=a&b;c,n=1", "model=m,api_key=***,n=1"),
        ('{"api_key": "a b", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("x={'token': a},n=1", "x={'token': ***},n=1"),
        ('-a "model=m,api_key=a" -t x', '-a "model=m,api_key=***" -t x'),
        ("api_key=,model=m", "api_key=,model=m"),
    ],
)
def test_text_after_a_key_is_shown(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_a_word_of_the_shell_is_one_argument() -> None:
    assert redact_command(["--api_key=ab CANARY, x=CANARY", "-t", "x"]) == ["--api_key=***", "-t", "x"]
    assert redact_command(["-a", "api_key=ab CANARY,n=1"]) == ["-a", "api_key=***,n=1"]
    cut = ["-a", "api_key='ab", "CANARY1", "CANARY2',n=1", "m=2"]
    assert redact_command(cut) == ["-a", "api_key=***", "***", "***", "m=2"]
    assert redact_command(["--model_args", "n=1", "--tasks", "a,b"]) == ["--model_args", "n=1", "--tasks", "a,b"]
