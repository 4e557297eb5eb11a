"""Tasks that send images, sound or video: assay sends text only, so they are refused and never scored by their texts."""

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay import ConfigError, TaskManager
from assay.models import Scripted
from assay.tasks.validate import validate
from commands import Run
from conftest import Write

DATA = "dataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: test\n"
TEXT = DATA + 'doc_to_text: "{{q}}"\ndoc_to_target: "{{a}}"\n'
ROWS = "".join(json.dumps({"q": f"q{n}", "a": "x", "picture": "p.png"}) + "\n" for n in range(3))


def evaluated(folder: Path, *tasks: Any) -> tuple[dict[str, Any], list[str]]:
    """The results of tasks, and all that was asked."""
    asked: list[str] = []

    def answer(prompt: str, params: Any, repeat: int) -> str:
        asked.append(prompt)
        return "x"

    options: dict[str, Any] = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    return assay.simple_evaluate(Scripted(generate=answer), tasks=list(tasks), **options), asked


WAYS = {
    "an image": {"t.yaml": f"task: t\n{TEXT}doc_to_image: picture\n"},
    "several images": {"t.yaml": f"task: t\n{TEXT}doc_to_image: [picture, picture]\n"},
    "sound": {"t.yaml": f"task: t\n{TEXT}doc_to_audio: picture\n"},
    "video": {"t.yaml": f"task: t\n{TEXT}doc_to_video: picture\n"},
    "a function": {"t.yaml": f"task: t\n{TEXT}doc_to_image: !function h.image\n", "h.py": "def image(doc): return 1\n"},
    "by include": {"base.yaml": f"{TEXT}doc_to_image: picture\n", "t.yaml": "include: base.yaml\ntask: t\n"},
    "of a class": {
        "t.yaml": f"task: t\nclass: !function h.Own\n{TEXT}",
        "h.py": "from lm_eval.api.task import ConfigurableTask\nclass Own(ConfigurableTask):\n    MULTIMODAL = True\n",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_sends_more_than_text_is_refused_and_the_others_run(way: str, write: Write) -> None:
    folder = write({**WAYS[way], "fine.yaml": f"task: fine\n{TEXT}", "d.jsonl": ROWS})
    results, asked = evaluated(folder, "t", "fine")
    assert "does not send" in results["assay"]["broken"]["t"]
    assert ".yaml:" in results["assay"]["broken"]["t"], "with its place"
    assert set(results["results"]) == {"fine"}
    assert asked == ["q0", "q1", "q2"]


@pytest.mark.parametrize("way", WAYS)
def test_alone_such_a_task_is_an_error_before_any_request(way: str, write: Write) -> None:
    with pytest.raises(ConfigError, match="does not send"):
        evaluated(write({**WAYS[way], "d.jsonl": ROWS}), "t")


MEMBERS = {
    "the group's own defaults": "group: g\ntask: [fine]\ndoc_to_image: picture\n",
    "a member's change": "group: g\ntask: [{task: fine, doc_to_image: picture}]\n",
    "a task written in the group": "group: g\ntask:\n  - task: inner\n    doc_to_image: picture\n"
    + "".join(f"    {line}\n" for line in TEXT.splitlines()),
}


@pytest.mark.parametrize("way", MEMBERS)
def test_members_of_groups_are_refused_wherever_the_key_comes_from(way: str, write: Write) -> None:
    folder = write({"g.yaml": MEMBERS[way], "fine.yaml": f"task: fine\n{TEXT}", "d.jsonl": ROWS})
    with pytest.raises(ConfigError, match=r"g\.yaml:\d+:\d+: doc_to_image: assay does not send images"):
        evaluated(folder, "g")


@pytest.mark.parametrize("value", ["null", '""', "[]"])
def test_a_key_without_a_value_sends_nothing(value: str, write: Write) -> None:
    folder = write({"t.yaml": f"task: t\n{TEXT}doc_to_image: {value}\n", "d.jsonl": ROWS})
    assert evaluated(folder, "t")[0]["results"]["t"]["exact_match,none"] == 1.0


def test_a_task_that_takes_the_key_of_its_template_back_runs(write: Write) -> None:
    files = {
        "base.yaml": f"{TEXT}doc_to_image: picture\n",
        "t.yaml": "include: base.yaml\ntask: t\ndoc_to_image: null\n",
    }
    assert evaluated(write({**files, "d.jsonl": ROWS}), "t")[1] == ["q0", "q1", "q2"]


def test_listing_validating_and_showing_say_so(write: Write, run_assay: Run) -> None:
    folder = write({**WAYS["an image"], "fine.yaml": f"task: fine\n{TEXT}", "d.jsonl": ROWS})
    where = ("--include_path", str(folder), "--no_defaults")
    listed = run_assay("ls", *where).stdout.splitlines()
    assert "fine" in listed
    assert [line for line in listed if line.startswith("t\tbroken: ") and "does not send images" in line]
    checked = run_assay("validate", "t", *where)
    assert (checked.returncode, "t.yaml:7:15: doc_to_image: assay does not send images" in checked.stdout) == (1, True)
    assert "cannot be run" in run_assay("show", "t", *where).stdout
    assert "cannot_be_run" in json.loads(run_assay("show", "t", "--json", *where).stdout)["tasks"]["t"]


def test_a_run_with_such_a_task_and_another_ends_with_code_1(write: Write, run_assay: Run) -> None:
    folder = write({**WAYS["sound"], "fine.yaml": f"task: fine\n{TEXT}", "d.jsonl": ROWS})
    ended = run_assay("run", "--model", "dummy", "--tasks", "t,fine", "--include_path", str(folder), "--no_defaults")
    assert ended.returncode == 1
    assert "does not send audio" in ended.stderr


def test_lm_evals_own_files_are_noted_and_load(lm_eval_folder: Path) -> None:
    manager = TaskManager(include_path=lm_eval_folder / "lm_eval/tasks", include_defaults=False, compat="lm-eval")
    loaded, problems = manager.attempt(["mmmu_val", "chartqa"])
    assert not [problem for problem in problems if problem.serious]
    assert all(task.unsent for task in loaded["tasks"].values())
    assert [problem.serious for problem in validate(manager, ["chartqa"])] == [False]
