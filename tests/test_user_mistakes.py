"""What a user writes wrongly is refused by `validate` and by a run before any request, with its place and a remedy."""

import json
from pathlib import Path

import pytest

import assay
from assay import ConfigError
from assay.cli import main
from assay.models import Scripted
from conftest import Write
from mistakes import DATA, GRAPHS, GROUPS, HELPERS, MISTAKES, ROWS, Mistake

pytestmark = pytest.mark.slow  # a hundred runs


def written(write: Write, mistake: Mistake) -> Path:
    few = "".join(json.dumps({**row, "question": f"few {row['question']}"}) + "\n" for row in ROWS[:2])
    return write({"d.jsonl": DATA, "few.jsonl": few, "helpers.py": HELPERS, **mistake.files})


def refused(mistake: Mistake, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `validate`, with place, problem and remedy on one line; by a run, before any request."""
    where = ["--include_path", str(folder), "--no_defaults"]
    asked_for = str(folder / mistake.asked) if "/" in mistake.asked else mistake.asked
    assert main(["validate", asked_for, *where, *(["--load"] if mistake.load else [])]) == 1
    said = capsys.readouterr().out
    matching = [
        line
        for line in said.splitlines()
        if mistake.at in line and not line.endswith("(note)") and mistake.what in line and mistake.fix in line
    ]
    assert matching, said
    asked: list[str] = []
    model = Scripted(
        generate=lambda prompt, *_: asked.append(str(prompt)) or "x",
        loglikelihood=lambda *_: asked.append("") or (0.0, True),
    )
    with pytest.raises(ConfigError) as error:
        assay.simple_evaluate(model, tasks=[asked_for], include_path=str(folder), include_defaults=False)
    assert mistake.what in str(error.value)
    assert asked == []


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_task_is_refused_by_validate_and_before_any_request(
    name: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(MISTAKES[name], written(write, MISTAKES[name]), capsys)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_mistake_in_a_graph_is_refused_by_validate_and_before_any_request(
    name: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(GRAPHS[name], written(write, GRAPHS[name]), capsys)


@pytest.mark.parametrize("name", GROUPS)
def test_a_mistake_in_a_group_is_refused_by_validate_and_before_any_request(
    name: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(GROUPS[name], written(write, GROUPS[name]), capsys)


def test_everything_that_is_wrong_is_reported_at_once_by_validate_and_by_a_run(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    first = MISTAKES["an unknown filter does not hide a metric"].files["t.yaml"] + "scorer: nosuch\nnum_fewshto: 1\n"
    second = MISTAKES["a target template"].files["t.yaml"].replace("task: t", "task: u").replace("test: d", "test: dd")
    third = MISTAKES["a variable without a column"].files["t.yaml"].replace("task: t", "task: v")
    folder = written(write, Mistake({"t.yaml": first, "u.yaml": second, "v.yaml": third}, "", "", ""))
    whats = ["no filter named 'lowercas'", "no metric named 'exact_mach'", "no scorer named 'nosuch'", "'num_fewshto'", "no data file 'dd.jsonl'", "no column 'quesion'"]  # fmt: skip
    assert main(["validate", "--include_path", str(folder), "--no_defaults"]) == 1
    said = capsys.readouterr().out
    assert [what for what in whats if what not in said] == []
    with pytest.raises(ConfigError) as error:
        assay.simple_evaluate("dummy", tasks=["t", "u", "v"], include_path=str(folder), include_defaults=False)
    assert [what for what in whats if what not in str(error.value)] == []
