"""The help of the command line, `assay ls` on a terminal, completion in real shells, `assay doctor`."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
import tomllib
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.cli import COMMANDS, main
from assay.cli.doctor import EXTRAS, _hub, _server
from assay.cli.help import EXAMPLES
from serving import free_port, loopback
from terminal_world import STYLE, on_terminal, widest

DECLARED = (
    "metrics", "filters", "scorers", "aggregations", "reductions", "aggregators", "unit_metrics", "aggregator_metrics",
)  # fmt: skip

# --- help -------------------------------------------------------------------------------------------------------------


def test_the_help_fits_one_screen_and_lists_every_command_in_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert text == alone
    assert len(lines) <= 40 and widest(text) <= 80
    assert [line for line in lines if re.fullmatch(r"[a-z-]+:", line)] == [
        "evaluate:", "look:", "compare:", "exchange:", "tasks:", "set-up:", "examples:"
    ]  # fmt: skip
    assert {line.split()[0] for line in lines if re.match(r"  [a-z-]+ {2,}[^ ]", line)} == set(COMMANDS)
    assert sum(line.startswith("  assay ") for line in lines) >= 3


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_whose_flags_exist(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert f"example:\n  {EXAMPLES[name]}\n" in text
    assert EXAMPLES[name].startswith(f"assay {name}")
    flags = re.findall(r" (--?\w+)", EXAMPLES[name])
    assert all(re.search(rf"{flag}\b", text) for flag in flags), flags


# --- ls ---------------------------------------------------------------------------------------------------------------

TASK = """
task: {name}
task_alias: {title}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: a
process_docs: !function trap.spring
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Tasks whose data are 3 rows, with an empty line between, and 2 rows of a table with a line break in a cell."""
    folder = tmp_path / "catalog"
    folder.mkdir()
    (folder / "trap.py").write_text("raise SystemExit('imported')\n")
    (folder / "three.jsonl").write_text('{"q": "1"}\n{"q": "2"}\n\n{"q": "3"}')
    (folder / "two.csv").write_text('q,a\n1,"x\ny"\n2,z\n')
    for name, title, data in (("t_lines", "three of them", "three.jsonl"), ("t_missing", "not there", "none.jsonl")):
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, title=title, data=data))
    table = TASK.format(name="t_table", title="a table", data="two.csv").replace("path: json", "path: csv")
    (folder / "table.yaml").write_text(table)
    (folder / "g.yaml").write_text("group: t_group\ngroup_alias: All of it\ntask: [t_lines, t_table]\n")
    return folder


def shown(arguments: list[object], columns: int = 80) -> dict[str, list[str]]:
    _, text = on_terminal(arguments, columns)
    rows = [re.split(r" {2,}", line.strip()) for line in STYLE.sub("", text).splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_names_have_kind_title_and_size_on_a_terminal_and_no_code_is_run(
    catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--no_defaults", "--include_path", str(catalog)]
    assert shown(["ls", *flags]) == {
        "name": ["kind", "title", "documents"],
        "t_group": ["group", "All of it, 2 members"],
        "t_lines": ["task", "three of them", "3"],
        "t_missing": ["task", "not there"],
        "t_table": ["task", "a table", "2"],
    }
    assert main(["ls", *flags]) == 0
    assert capsys.readouterr().out == "t_group\nt_lines\nt_missing\nt_table\n"
    wide = shown(["ls", *flags, "--wide"], 60)
    assert wide["t_lines"][-1] == str(catalog / "t_lines.yaml")


def test_names_of_python_have_their_sentence_and_aliases_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    models = shown(["ls", "models"], 200)
    assert models["huggingface"] == ["model", "same as hf"]
    assert models["local-completions"] == ["model", "same as openai"]
    assert models["hf"][1].startswith("A transformers model")
    assert main(["ls", "models", "--json"]) == 0
    aliases = {each["name"]: each.get("alias_of") for each in json.loads(capsys.readouterr().out)}
    assert (aliases["hf-auto"], aliases["hf"]) == ("hf", None)
    for kind in DECLARED:
        assert main(["ls", kind, "--json"]) == 0
        sentences = {each["name"]: each["description"] for each in json.loads(capsys.readouterr().out)}
        silent = [name for name, about in sentences.items() if not about or "partial" in about]
        assert not silent, f"{kind} without a sentence: {silent}"
    metrics = {name: row[1] for name, row in shown(["ls", "metrics"], 300).items()}
    assert metrics["macro_f1"] != metrics["micro_f1"], "the sentence is of the metric, where several share a function"
    assert "BLEU" in metrics["bleu"] and "kappa" in metrics["kappa"] and "characters" in metrics["acc_norm"]


def test_runs_are_listed_where_names_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "--model", "dummy", "--tasks", "first_steps_sums", "--limit", "2"]
    assert main([*run, "-o", str(tmp_path / "runs/one")]) == 0
    capsys.readouterr()
    assert main(["ls", "runs", str(tmp_path / "runs")]) == 0
    listed = capsys.readouterr().out
    assert main(["runs", "list", "--runs_dir", str(tmp_path / "runs")]) == 0
    assert listed == capsys.readouterr().out
    assert listed.splitlines()[1].startswith("one ")
    assert main(["ls", "runs", str(tmp_path / "runs"), "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)
    assert (one["name"], one["kind"], one["status"], one["tasks"]) == ("one", "run", "complete", ["first_steps_sums"])
    assert main(["ls", "runs", str(tmp_path / "runs"), "--pattern", "two*", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["ls", "tasks", "somewhere"]) == 0
    assert "no name matches '*somewhere*'" in capsys.readouterr().err


# --- completion -------------------------------------------------------------------------------------------------------

CASES = {
    "assay com": {"compare", "completion"},
    "assay run --num_f": {"--num_fewshot"},
    "assay run --model hf": {"hf", "hf-auto"},
    "assay run --tasks first_steps_so": {"first_steps_sorting"},
    "assay run --limit 2 --compat lm": {"lm-eval"},
    "assay show first_steps_so": {"first_steps_sorting"},
    "assay runs l": {"list"},
    "assay runs list --format m": {"md"},
    "assay ls met": {"metrics"},
    "assay completion z": {"zsh"},
}
BASH_CASES = CASES | {
    "assay run --num-f": {"--num-fewshot"},
    "assay run -M emb": {"embedded"},
    "assay run --tasks first_steps_sums first_steps_so": {"first_steps_sorting"},
    "assay run --tasks first_steps_sums,first_steps_so": {"first_steps_sums,first_steps_sorting"},
    "assay run --tasks = first_steps_so": {"first_steps_sorting"},
    "assay verify_backend --prec": {"--precision"},
    "assay run --limit 2": set(),
}
BASH = """source "$1"
while IFS= read -r line; do
  IFS=' ' read -r -a COMP_WORDS <<< "$line"; COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _assay
  echo "${COMPREPLY[*]}"
done"""


@pytest.fixture
def path_with_assay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs with `assay` in it, first in the path."""
    program = tmp_path / "bin/assay"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m assay "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def script(folder: Path, shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    file = folder / f"completion.{shell}"
    file.write_text(capsys.readouterr().out)
    return str(file)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_words_are_completed_in_bash_and_zsh(
    shell: str, path_with_assay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = script(path_with_assay, shell, capsys)
    if shell == "zsh":
        return check_in_zsh(file)
    lines = "".join(f"{line}\n" for line in BASH_CASES)
    done = subprocess.run(["bash", "-c", BASH, "bash", file], input=lines, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    answers = [set(line.split()) for line in done.stdout.split("\n")[:-1]]
    assert dict(zip(BASH_CASES, answers, strict=True)) == BASH_CASES


def check_in_zsh(file: str) -> None:
    """The line that the shell's editor makes of a beginning and a tab, in a pty of zsh's own."""
    test = f"""zmodload zsh/zpty; zpty shell zsh -f -i
    zpty -w shell 'PS1=; PS2=; source {file}; print ready'
    zpty -r shell seen '*ready*ready*'
    zpty -w -n shell $'assay run --num_f\\t'; zpty -r shell seen '*--num_fewshot*' && print one
    zpty -w -n shell $'\\x15assay run --tasks first_steps_so\\t'; zpty -r shell seen '*first_steps_sorting*' && print two
    zpty -d shell"""
    done = subprocess.run(["zsh", "-f", "-c", test], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "one\ntwo\n", done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_words_are_completed_in_fish(path_with_assay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = script(path_with_assay, "fish", capsys)
    asked = "\n".join(f"complete -C '{line}'; echo '##'" for line in CASES)
    done = subprocess.run(["fish", "-N", "-c", f"source {file}\n{asked}"], capture_output=True, text=True, check=True)
    answers = re.split(r"^##\n", done.stdout, flags=re.MULTILINE)[:-1]
    parts = [{line.split("\t")[0] for line in part.split("\n") if line} for part in answers]
    assert dict(zip(CASES, parts, strict=True)) == CASES


def test_names_of_the_users_folder_are_completed(catalog: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "bash", "run", "--include-path", str(catalog), "--tasks", "t_l"]) == 0
    assert capsys.readouterr().out == "t_lines\n"
    assert main(["__complete", "bash", "run", "--include-path", str(catalog / "none"), "--tasks", "t_l"]) == 0
    assert main(["__complete", "fish", "com"]) == 0
    assert "completion\tprint the completion of commands" in capsys.readouterr().out
    assert main(["__complete", "bash", "show", "fi"]) == 0
    assert "first_steps_sums\n" in capsys.readouterr().out


# --- doctor -----------------------------------------------------------------------------------------------------------


def checks(text: str) -> dict[str, dict[str, str]]:
    return {each["name"]: each for each in json.loads(text)["checks"]}


def test_the_doctor_knows_every_extra_that_users_install() -> None:
    written = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert {*EXTRAS} == {*written["project"]["optional-dependencies"]} - {"quick", "mutants", "test"}


@pytest.mark.process
def test_the_doctor_reports_versions_extras_disk_and_more_in_three_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    begun = time.monotonic()
    assert main(["doctor", "--format", "json", "--runs_dir", str(tmp_path / "new/runs")]) == 0
    took = time.monotonic() - begun
    text = capsys.readouterr().out
    known = checks(text)
    assert took < 6  # three seconds on a machine that does nothing else
    assert {"python", "assay", "libraries", "GPU", "hub", "lm_eval", "runs folder", "cache folder", "terminal"} <= set(
        known
    )
    assert known["python"]["text"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    absent = next(name for name in ("mlflow", "wandb", "ray") if find_spec(name) is None)
    assert known[f"extra {absent}"]["state"] == "note" and absent in known[f"extra {absent}"]["fix"]
    assert "$HF_HUB_OFFLINE" in known["hub"]["text"]
    assert re.search(r"[\d.]+ GB free, [\d,]+ MB/s", known["runs folder"]["text"])
    assert "abcdefgh" not in text
    assert not (tmp_path / "new").exists()


@pytest.mark.process
def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["doctor", "--format", "json", "--runs_dir", str(tmp_path / "file")]) == 1
    fault = checks(capsys.readouterr().out)["runs folder"]
    assert fault["state"] == "broken" and "--runs_dir" in fault["fix"]


def test_the_hub_is_tried_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv("HF_ENDPOINT", f"http://me:secret@127.0.0.1:{port}")
        [reached] = _hub()
    [refused] = _hub()
    assert (reached.state, refused.state) == ("ok", "note")
    assert "secret" not in f"{reached} {refused}" and "--data_dir" in refused.fix


def test_a_server_is_greeted_and_its_key_is_not_printed() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}], "model": "m"}

    arguments = "model=m,api_key=sk-very-secret-key-1234,base_url="
    with loopback(lambda request: body) as (url, arrived):
        greeted = _server(Namespace(model="openai-chat", model_args=[f"{arguments}{url}"]))
        assert len(arrived) >= 2
    assert (greeted.state, greeted.text.partition(": m answers")[0]) == ("ok", url)
    unreachable = _server(Namespace(model="openai-chat", model_args=[f"{arguments}http://127.0.0.1:{free_port()}/v1"]))
    assert unreachable.state == "broken" and "does not answer" in unreachable.text and "base_url" in unreachable.fix
    mistyped = _server(Namespace(model="openai-chat", model_args=["modle=m"]))
    assert mistyped.state == "broken" and "did you mean" in mistyped.fix
    assert _server(Namespace(model="dummy", model_args=None)).state == "note"
    assert "very-secret" not in f"{greeted} {unreachable} {mistyped}"
