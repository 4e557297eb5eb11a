"""Messages that name the right place and a remedy that works; commands that say something."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli import main
from assay.cli.flags import _without_capital
from conftest import Write
from small_runs import write_task

SHIM = Path(__file__).parent.parent / "packages/assay-lm-eval/src"


def said(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capfd.readouterr()
    try:
        code = main([str(each) for each in arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, *capfd.readouterr()


def test_a_task_without_its_flag_is_told_the_flag(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, error = said(capfd, "run", "first_steps_sums")
    assert (code, "`assay run --tasks first_steps_sums`" in error) == (2, True)


def test_too_many_examples_are_blamed_on_the_command_line_that_asked_for_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, error = said(capfd, "run", "--tasks", "first_steps_sums", "--num_fewshot", 500, "--no_output")
    assert (code, error.startswith("--num_fewshot: 500 examples are asked for")) == (2, True)
    yaml = "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{gold}}'\nnum_fewshot: 7\n"
    write_task(tmp_path, [{"q": "1", "gold": "1"}], yaml)
    _, _, error = said(capfd, "run", "--tasks", tmp_path / "t.yaml", "--model", "dummy", "--no_output")
    assert re.search(r"t\.yaml:\d+:\d+: 7 examples", error)


def test_a_document_that_no_task_has_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said(capfd, "run", "--tasks", "first_steps_sums", "--limit", 3, "--output_path", tmp_path / "run")
    code, shown, _ = said(capfd, "samples", tmp_path / "run", "--doc", 2)
    assert (code, "document 2" in shown) == (0, True)
    code, _, error = said(capfd, "samples", tmp_path / "run", "--doc", 2, 9999)
    assert (code, "no document 9999 — there are 3, from 0 to 2" in error) == (2, True)


@pytest.mark.parametrize("first", ["", "task: qa\n"])
@pytest.mark.parametrize("second", ["", "data_config: {source: {type: disk, file_path: x.jsonl}}\n"])
@pytest.mark.parametrize("command", [["validate"], ["run", "--model", "dummy", "--no_output", "--tasks"]])
def test_a_misspelled_graph_config_is_the_only_problem_of_its_file(
    first: str, second: str, command: list[str], write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write({"g.yaml": f"{first}{second}graph_confg:\n  nodes: {{}}\n  edges: []\n"})
    code, shown, error = said(capfd, *command, folder / "g.yaml")
    problems = [line for line in (shown + error).splitlines() if "g.yaml" in line]
    assert code != 0
    assert [line.partition(": ")[2] for line in problems] == [
        "unknown key 'graph_confg' — did you mean 'graph_config'?"
    ]


@pytest.mark.parametrize("prompt", ["'Q: {q}'", "['Q: {q}']"])
def test_the_remedy_for_a_prompt_that_is_a_text_is_accepted(
    prompt: str, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = """
        data_config: {source: {type: disk, file_path: data.jsonl, file_format: jsonl}}
        graph_config:
          nodes:
            a: {node_type: llm, output_keys: a, prompt: PROMPT, model: {name: m}}
          edges: [{from: START, to: a}, {from: a, to: END}]
    """
    folder = write({"g.yaml": graph.replace("PROMPT", prompt), "data.jsonl": '{"q": "x"}\n'})
    _, shown, _ = said(capfd, "validate", folder / "g.yaml")
    [first, *_] = re.findall(r"write `(?:prompt: )?(.*?)`", shown)
    fixed = first if first.startswith("[") else f"[{{{first.removeprefix('- ')}}}]"
    folder = write({"g.yaml": graph.replace("PROMPT", fixed)})
    code, shown, _ = said(capfd, "validate", folder / "g.yaml")
    assert (code, shown.splitlines()[-1].partition(",")[0]) == (0, "0 problems")


def test_a_first_word_in_capitals_keeps_them_in_help() -> None:
    assert (_without_capital("GPUs of each"), _without_capital("A name")) == ("GPUs of each", "a name")


def test_the_same_failure_of_many_tasks_is_one_line_with_the_command_that_gets_their_data(
    write: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    task = "task: t{n}\ndataset_path: org/none\ndataset_name: part{n}\ntest_split: test\noutput_type: generate_until\ndoc_to_text: '{{{{q}}}}'\ndoc_to_target: '{{{{a}}}}'\n"
    folder = write(
        {f"t{n}.yaml": task.format(n=n) for n in range(9)} | {"g.yaml": "group: many\ntask: [tag:none, t0]\n"}
    )
    (folder / "g.yaml").write_text(f"group: many\ntask: [{', '.join(f't{n}' for n in range(9))}]\n")
    code, _, error = said(capfd, "run", "--tasks", "many", "--model", "dummy", "--include_path", folder, "--no_output")
    lines = [line for line in error.splitlines() if "org/none" in line]
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith("9 tasks (t0, t1, t2 and 6 more): ")
    command = f"assay fetch many --data_dir data --include_path {folder}"
    assert f"`{command}`" in lines[0]
    monkeypatch.chdir(folder)
    _, _, fetched = said(capfd, *command.split()[1:])
    assert "no task, group or tag" not in fetched and "org/none" in fetched
    _, _, of_file = said(capfd, "run", "--tasks", "./t0.yaml", "--model", "dummy", "--no_output")
    assert "`assay fetch ./t0.yaml --data_dir data`" in of_file


def test_a_check_of_everything_says_how_many_and_how_far(
    write: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.tasks.validate.BEAT", 0.0)
    task = "task: t{n}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: x.jsonl}}}}\ntest_split: test\noutput_type: generate_until\ndoc_to_text: a\ndoc_to_target: b\n"
    folder = write({f"t{n}.yaml": task.format(n=n) for n in range(3)})
    _, shown, error = said(capfd, "validate", "--include_path", folder, "--no_defaults")
    assert "checked: 3 tasks and groups" in error
    assert "3 of 3 tasks are checked" in error
    assert "checked" not in shown


def test_older_lm_evals_tasks_list_lists(tmp_path: Path) -> None:
    yaml = (
        "task: own\ndataset_path: json\noutput_type: generate_until\ntag: own_tag\ndoc_to_text: a\ndoc_to_target: b\n"
    )
    (tmp_path / "own.yaml").write_text(yaml)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SHIM), *sys.path])}
    for word, shown, hidden in (("list", "own", "?"), ("list_tags", "own_tag", "|own|")):
        ended = subprocess.run(
            [sys.executable, "-m", "lm_eval", "--model", "hf", "--tasks", word, "--include_path", str(tmp_path)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (0, "")
        assert shown in ended.stdout
        assert hidden not in ended.stdout.replace(" ", "")


def test_a_missing_gguf_file_names_no_page_that_does_not_exist(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    import assay

    model = Path(assay.__file__).parent / "bundled/model"
    shutil.copytree(model, tmp_path / "model")
    arguments = f"pretrained={tmp_path}/model,gguf_file=x.gguf"
    code, _, error = said(
        capfd, "run", "--model", "hf", "--model_args", arguments, "--tasks", "first_steps_sums", "--no_output"
    )
    assert (code, "x.gguf" in error, "huggingface.co" in error) == (2, True, False)
