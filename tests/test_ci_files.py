"""The files for CI fit their schemas, and every command in them and in docs/ci.md runs; what cannot be run says so."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.install_test import uv_variables

from assay.cli import main

ROOT = Path(__file__).parent.parent
CI = ROOT / "docs/ci"
PAGE = (ROOT / "docs/ci.md").read_text()
NOT_RUN = "not run by tests"
HOOKS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id", "name", "entry", "language"],
        "properties": {
            **{key: {"type": "string"} for key in ("id", "name", "entry", "description", "files", "exclude")},
            "language": {"enum": ["python", "system", "node", "docker_image", "script"]},
            "types": {"type": "array", "items": {"type": "string"}},
        },
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-actions", ROOT / "action.yml"),
        ("vendor.github-workflows", CI / "github.yml"),
        ("vendor.github-workflows", CI / "github-action.yml"),
        ("vendor.gitlab-ci", CI / "gitlab.yml"),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_the_files_fit_their_schemas(schema: str, file: Path) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_hooks_of_pre_commit_have_what_it_needs() -> None:
    from jsonschema import validate

    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    validate(hooks, HOOKS)
    [hook] = hooks
    assert re.search(hook["files"], "my/tasks/quiz.yaml")
    assert not re.search(hook["files"], "settings.yaml")


def test_the_page_has_the_files_themselves() -> None:
    for file in CI.glob("*.yml"):
        assert f"```yml\n{file.read_text()}```" in PAGE, file.name


def steps(document: Any) -> list[dict[str, Any]]:
    """All parts of a document with commands."""
    if isinstance(document, dict):
        own = [document] if isinstance(document.get("run"), str) else []
        return own + [step for value in document.values() for step in steps(value)]
    return [step for each in document for step in steps(each)] if isinstance(document, list) else []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the baseline of docs/ci.md, made by its own commands, all of which are run here."""
    folder = tmp_path_factory.mktemp("project")
    commands = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(commands) == 4
    for each in commands:
        assert run(each, folder) == [0] * len(each.splitlines()), each
    return folder


def run(commands: str, folder: Path, **variables: str) -> list[int]:
    """Run lines of `assay` commands in a folder; the exit code of each."""
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        os.chdir(folder)
        try:
            lines = [shlex.split(line) for line in commands.replace("\\\n", " ").splitlines()]
            assert all(program == "assay" for program, *_ in lines), "only commands of assay can be run here"
            return [main(arguments) for _, *arguments in lines]
        finally:
            os.chdir(before)


def test_every_command_of_the_workflow_runs(project: Path) -> None:
    summary = project / "summary.md"
    ran = 0
    for step in steps(yaml.safe_load((CI / "github.yml").read_text())):
        if NOT_RUN not in step.get("name", ""):
            ran += 1
            assert run(step["run"], project, GITHUB_STEP_SUMMARY=str(summary)) == [0]
    assert ran == 1
    assert summary.read_text().startswith("### ✅ PASS: ")
    assert (project / "gates.xml").is_file()


def test_every_command_of_the_gitlab_job_runs(project: Path) -> None:
    job = yaml.safe_load((CI / "gitlab.yml").read_text())["model-gate"]
    assert [line for line in job["before_script"] if not line.startswith("pip install")] == []
    assert f"# {NOT_RUN}: it needs a network\n    - pip install" in (CI / "gitlab.yml").read_text()
    for line in job["script"]:
        assert run(line, project) == [0]


def action(project: Path, **inputs: str) -> tuple[int, str]:
    """Run the steps of action.yml with its defaults and these inputs; the exit code, and the outputs. Its `assay` notes its
    arguments, with which the command is run here, and then again with the exit code that it had."""
    described = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {name: str(each.get("default", "")) for name, each in described["inputs"].items()} | inputs
    output, noted, bin_folder = project / "output.txt", project / "arguments", project / "bin"
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / "assay").write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > "{noted}"\nexit "$CODE"\n')
    (bin_folder / "assay").chmod(0o755)
    code = 0
    for step in described["runs"]["steps"]:
        assert "${{" not in step["run"], "values reach a shell as variables only"
        if NOT_RUN in step["run"]:
            continue
        own = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: values[match[1]], text)
               for name, text in step["env"].items()}  # fmt: skip
        for _ in range(2):
            output.write_text("")
            environment = {**os.environ, **own, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
                           "GITHUB_OUTPUT": str(output), "CODE": str(code)}  # fmt: skip
            ended = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=project, env=environment, check=False
            )
            [code] = run(shlex.join(["assay", *noted.read_text().split("\0")[:-1]]), project)
    assert ended.returncode == code
    return code, output.read_text()


def test_the_action_runs_and_has_the_exit_code_of_the_gates(project: Path) -> None:
    common = {"tasks": "first_steps_facts", "args": "--limit 10", "output_path": "runs/action"}
    assert action(project, **common, gates="acc >= 20%\n\nfailed <= 1%\n") == (0, "exit_code=0\n")
    assert action(project, **common, gates="acc > 90%") == (4, "exit_code=4\n")
    hostile = "acc >= 0.1'; touch hacked; '$(touch hacked)"
    assert action(project, **common, gates=hostile) == (2, "exit_code=2\n")
    assert not (project / "hacked").exists()


def test_the_hook_checks_the_files_that_it_is_given(project: Path) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    tasks = project / "tasks"
    tasks.mkdir()
    (tasks / "quiz.jsonl").write_text('{"q": "1 + 1", "a": "2"}\n')
    text = "task: quiz\ndataset_path: json\ndataset_kwargs: {data_files: {test: quiz.jsonl}}\ntest_split: test\n"
    (tasks / "quiz.yaml").write_text(text + "doc_to_text: q\ndoc_to_target: a\noutput_type: generate_until\n")
    assert run(f"{hook['entry']} tasks/quiz.yaml", project) == [0]
    (tasks / "quiz.yaml").write_text(text + "doc_to_txt: q\n")
    assert run(f"{hook['entry']} tasks/quiz.yaml", project) == [1]


def test_uv_installs_from_where_pip_is_told_to() -> None:
    listed = (
        ":env:.find-links='/a /b'\n:env:.no-input='1'\nglobal.extra-index-url='\\nhttps://one/simple\\nfile:///two'\n"
    )
    assert uv_variables(listed) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INDEX": "https://one/simple file:///two",
    }


def test_a_setting_of_pip_that_uv_does_not_have_leaves_all_to_pip() -> None:
    assert uv_variables("install.use-feature='truststore'\n") is None
