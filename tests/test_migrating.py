"""docs/migrating.md is complete: every flag, config key and model of lm-eval 0.4.13 has its row, and does what the row says."""

import argparse
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli import main
from assay.cli.flags import TRACKERS, define_run
from assay.config.run import OPTIONS
from assay.errors import ConfigError
from assay.models.lm_eval_names import OUR_WAY
from assay.models.load import BACKENDS, backend

PAGE = (Path(__file__).parent.parent / "docs/migrating.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """The rows of the first table below a heading, by the first code of their first cell."""
    below = PAGE[PAGE.index(f"\n## {heading}") :]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None
    return {match[1]: match[2] for match in re.finditer(r"^\| `([^`]+)`[^|]*\| (.*) \|$", table[0], re.MULTILINE)}


@pytest.fixture(scope="module")
def their_flags(lm_eval_folder: Path) -> dict[str, str]:
    """The flags of `lm_eval run` with their short forms, read from its parser."""
    tree = ast.parse((lm_eval_folder / "lm_eval/_cli/run.py").read_text())
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
    ]
    names = [[each.value for each in call.args if isinstance(each, ast.Constant)] for call in calls]
    return {str(own[0]): str(own[1]) if len(own) > 1 else "" for own in names}


def their_models(lm_eval_folder: Path) -> list[str]:
    text = (lm_eval_folder / "lm_eval/models/__init__.py").read_text()
    return re.findall(r'^    "([\w-]+)": "lm_eval\.', text, re.MULTILINE)


def test_every_flag_of_lm_eval_is_in_the_table_and_is_taken(their_flags: dict[str, str]) -> None:
    assert len(their_flags) > 30
    parser = argparse.ArgumentParser()
    define_run(parser)
    assert set(rows("Flags of `lm_eval run`")) == set(their_flags)
    for name, short in their_flags.items():
        assert name in parser._option_string_actions and (not short or short in parser._option_string_actions), name
        assert f"`{name}`" + (f", `{short}`" if short else "") + " |" in PAGE, f"{name}: with its short form"


def test_every_key_of_their_config_files_is_taken(lm_eval_folder: Path) -> None:
    tree = ast.parse((lm_eval_folder / "lm_eval/config/evaluate_config.py").read_text())
    kind = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    keys = {
        node.target.id for node in kind.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert "hf_hub_log_args" in keys and keys - {"config"} <= OPTIONS.keys() | TRACKERS.keys()


def test_every_model_of_lm_eval_works_or_is_answered_with_a_way(lm_eval_folder: Path) -> None:
    names, table = their_models(lm_eval_folder), rows("Models")
    assert len(names) == 37 and set(table) == set(names)
    for name in names:
        if name in OUR_WAY:
            assert name not in BACKENDS.names() and table[name] == OUR_WAY[name]
            with pytest.raises(ConfigError, match=re.escape(OUR_WAY[name])):
                backend(name)
        else:
            assert callable(backend(name)) and table[name] == "a backend: same name"
    assert set(OUR_WAY) <= set(names)


@pytest.mark.parametrize("name", ["sglang", "openvino", "gguf"])
def test_the_command_answers_a_model_of_lm_eval_without_a_wrong_suggestion(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", name, "--tasks", "first_steps_sums"]) == 2
    printed = capsys.readouterr().err
    assert "--model openai --model_args" in printed and "did you mean" not in printed


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["-M", "dummy", "-t", "first_steps_sums", "-L", "1", "--no_output"], 0, "|sums |"),
        (["--limit", "1", "--model", "dummy", "--no_output", "--tasks", "first_steps_sums"], 0, "|sums |"),
        (["--dry_run", "--tasks=first_steps_sums", "--limit=1"], 0, "first_steps_sums"),
    ],
)
def test_run_need_not_be_written(
    arguments: list[str], code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--help", "-h", "--version"])
def test_flags_of_the_program_stay_its_own(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([flag])
    assert ended.value.code == 0
    assert re.match(r"usage: assay COMMAND|assay \d", capsys.readouterr().out)


def test_metadata_is_taken_in_several_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--metadata", "tokenizer=gpt2", "max_seq_lengths=[4096,8192]"]
    parser = argparse.ArgumentParser()
    define_run(parser)
    from assay.cli.flags import run_options

    options = run_options(parser.parse_args(words))
    assert options["metadata"] == {"tokenizer": "gpt2", "max_seq_lengths": [4096, 8192]}


def test_the_names_of_the_python_table_can_be_imported() -> None:
    """In a separate process: the package has the name of lm-eval's."""
    section = PAGE[PAGE.index("\n## Python") : PAGE.index("\n## Models")]
    cells = re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE)
    paths = [path for cell in cells for path in re.findall(r"`([\w.]+)", cell)]
    assert len(paths) > 25
    lines = [f"from {f'lm_eval.{path}'.rpartition('.')[0]} import {path.rpartition('.')[2]}" for path in paths]
    source = Path(__file__).parent.parent / "packages/assay-lm-eval/src"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr
