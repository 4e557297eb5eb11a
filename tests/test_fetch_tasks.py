"""`assay fetch tasks`: lm-eval's task files without the package; and what is said about its names before."""

import base64
import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from assay import TaskManager
from assay.catalog.roots import fetched_tasks
from assay.cli import main
from assay.errors import ConfigError
from assay.exchange.lm_eval_tasks import NOTE, fetch_tasks, fetched_version

YAML = "task: gsm8k\ndataset_path: json\ntag: [maths]\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: a\n"
FILES = {
    "gsm8k/gsm8k.yaml": YAML,
    "gsm8k/utils.py": "from lm_eval.api.registry import register_filter\n",
    "README.md": "x",
}
MakeWheel = Callable[..., Path]


@pytest.fixture
def wheel(tmp_path: Path) -> MakeWheel:
    """Makes a wheel of lm_eval as a package index has it: with a list of its files and their checksums."""

    def make(files: Mapping[str, str] = FILES, version: str = "0.4.13", **listed: str) -> Path:
        path = tmp_path / f"lm_eval-{version}-py3-none-any.whl"
        dist = f"lm_eval-{version}.dist-info"
        inner = {f"lm_eval/tasks/{name}": text for name, text in files.items()} | {
            "lm_eval/api/model.py": "import torch\n"
        }
        inner |= {f"{dist}/METADATA": f"Metadata-Version: 2.1\nName: lm_eval\nVersion: {version}\n",
                  f"{dist}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}  # fmt: skip
        record = "".join(f"{name},{checksum(listed.get(name, text))},{len(text)}\n" for name, text in inner.items())
        with zipfile.ZipFile(path, "w") as file:
            for name, text in {**inner, f"{dist}/RECORD": record + f"{dist}/RECORD,,\n"}.items():
                file.writestr(name, text)
        return path

    return make


def checksum(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def what_is_wrong(*arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        fetch_tasks(*arguments)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"), [("gsm8k", "tasks"), ("mmlu", "groups"), ("tag:ai2_arc", "tags"), ("arc_easy@cloze", "tasks"), ("mmlu::mmlu_stem", "groups")]
)  # fmt: skip
def test_a_name_of_lm_evals_is_answered_with_the_way_to_get_it(name: str, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TaskManager().load(name)
    base = name.removeprefix("tag:").partition("@")[0].partition("::")[0]
    assert f"'{base}' is one of lm-eval's {kind}, which are not installed" in str(caught.value)
    assert "`assay fetch tasks`" in str(caught.value)


def test_a_pattern_that_only_lm_evals_names_match_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--pattern", "hellaswag*"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "'hellaswag*' matches only names of lm-eval's (hellaswag" in shown.err and "fetch tasks" in shown.err
    with pytest.raises(ConfigError, match="matches only names of lm-eval's"):
        TaskManager().load("hellaswag*")
    with pytest.raises(ConfigError, match="no name matches 'nosuch"):
        TaskManager().load("nosuch*")


def test_without_the_default_folders_they_are_not_to_be_fetched() -> None:
    with pytest.raises(ConfigError, match="leave out --no_defaults"):
        TaskManager(include_defaults=False).load("gsm8k")


def test_after_fetching_a_wheel_the_names_resolve_without_a_flag(wheel: MakeWheel) -> None:
    fetched = fetch_tasks(source=wheel())
    assert (fetched.version, fetched.files, fetched.were_there) == ("0.4.13", 3, False)
    assert TaskManager().load("gsm8k")["tasks"]["gsm8k"].config.output_type == "generate_until"
    assert "maths" in TaskManager().all_tags
    assert not (fetched.folder.parent / "api").exists()  # nothing but tasks


def test_the_doctor_says_which_version_was_fetched(wheel: MakeWheel) -> None:
    tasks = fetch_tasks(source=wheel(version="0.4.99")).folder
    assert fetched_version(tasks) == "0.4.99"
    assert fetched_version(tasks / "elsewhere") == ""


def test_fetching_again_changes_nothing_unless_a_file_has_changed(wheel: MakeWheel) -> None:
    source = wheel()
    fetch_tasks(source=source)
    note = fetched_tasks().parent / NOTE
    before = note.stat().st_mtime_ns
    assert fetch_tasks(source=source).were_there
    assert fetch_tasks().were_there  # and nothing is downloaded
    assert note.stat().st_mtime_ns == before
    (fetched_tasks() / "gsm8k/gsm8k.yaml").write_text("task: changed\n")
    assert not fetch_tasks(source=source).were_there
    assert (fetched_tasks() / "gsm8k/gsm8k.yaml").read_text() == YAML
    other = wheel({"new/new.yaml": YAML.replace("gsm8k", "new")}, version="0.5.0")
    assert fetch_tasks("0.5.0", other).version == "0.5.0"
    assert TaskManager().all_subtasks.count("new") == 1 and "gsm8k" not in TaskManager().all_subtasks
    assert [path.name for path in fetched_tasks().parent.parent.iterdir()] == ["lm_eval"]  # nothing is left behind


@pytest.mark.parametrize("level", ["above", "package", "tasks"])
def test_a_folder_serves_as_a_wheel_does(tmp_path: Path, level: str) -> None:
    above = tmp_path / "site-packages"
    (above / "lm_eval/tasks/gsm8k/__pycache__").mkdir(parents=True)
    (above / "lm_eval-0.4.13.dist-info").mkdir()
    (above / "lm_eval/tasks/gsm8k/gsm8k.yaml").write_text(YAML)
    (above / "lm_eval/tasks/gsm8k/__pycache__/utils.pyc").write_text("x")
    folder = {"above": above, "package": above / "lm_eval", "tasks": above / "lm_eval/tasks"}[level]
    assert fetch_tasks(source=folder)[1:] == ("0.4.13", 1, False)
    assert "gsm8k" in TaskManager().all_subtasks


def test_anything_but_a_wheel_of_lm_eval_is_refused_and_what_is_there_stays(tmp_path: Path, wheel: MakeWheel) -> None:
    fetch_tasks(source=wheel())
    damaged = tmp_path / "damaged.whl"
    damaged.write_bytes(wheel().read_bytes()[:-200])
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("other-1.dist-info/RECORD", "")
    text = tmp_path / "a.yaml"
    text.write_text(YAML)
    assert "is not a wheel, or damaged" in what_is_wrong(None, damaged)
    assert "is not a wheel of lm_eval" in what_is_wrong(None, other)
    assert "is not a wheel, or damaged" in what_is_wrong(None, text)
    assert "has no folder lm_eval/tasks" in what_is_wrong(None, tmp_path)  # not all that is below it
    assert "no file or folder" in what_is_wrong(None, tmp_path / "nothing")
    assert "is of version 0.4.13, not 0.4.9" in what_is_wrong("0.4.9", wheel())
    assert "'latest' is not a version" in what_is_wrong("latest")
    changed = wheel(FILES, "0.4.13", **{"lm_eval/tasks/gsm8k/gsm8k.yaml": "task: another\n"})
    assert "gsm8k.yaml is not as its list of files says" in what_is_wrong(None, changed)
    assert "is not as its list" in what_is_wrong(None, wheel({**FILES, "../../../evil.yaml": YAML}))
    assert "has no task files" in what_is_wrong(None, wheel({"README.md": "x"}))
    assert TaskManager().all_subtasks.count("gsm8k") == 1
    assert not list(tmp_path.rglob("evil.yaml"))


@pytest.mark.process
def test_it_is_downloaded_by_pip_from_the_configured_index(
    wheel: MakeWheel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real pip, whose index is a folder."""
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(wheel().parent), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    assert main(["show", "gsm8k"]) == 2
    assert main(["fetch", "tasks"]) == 0
    assert "lm-eval 0.4.13: 3 files fetched" in capsys.readouterr().out
    assert main(["show", "gsm8k"]) == 0
    assert main(["fetch", "tasks", "--version", "0.3.0"]) == 2
    said = capsys.readouterr().err
    assert "lm_eval==0.3.0: cannot be downloaded: No matching" in said and "--from FILE.whl" in said


def test_without_pip_and_uv_the_command_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # as in an environment that uv made
    monkeypatch.setenv("PATH", str(tmp_path))
    said = what_is_wrong()
    assert "needs pip or uv" in said and "pip download --no-deps lm_eval==0.4.13" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks", "gsm8k"], "assay fetch data gsm8k --data_dir DIR"),
        (["first_steps"], "assay fetch first_steps --data_dir DIR"),
        (["data", "first_steps"], "assay fetch first_steps --data_dir DIR"),
        (["first_steps", "--from", "x.whl"], "write `assay fetch tasks`"),
    ],
)
def test_fetching_tasks_and_fetching_data_are_not_mixed_up(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_data_is_fetched_with_and_without_the_word(tmp_path: Path) -> None:
    assert main(["fetch", "first_steps_sums", "--data_dir", str(tmp_path)]) == 0  # its data is on this machine
    assert main(["fetch", "data", "first_steps_sums", "--data_dir", str(tmp_path)]) == 0
