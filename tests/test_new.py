"""`assay new`: files that validate and run as they are. What the answers are worth is worked out by hand."""

from pathlib import Path
from typing import Any

import pytest

from assay import TaskManager, simple_evaluate
from assay.cli import main
from assay.models import Scripted
from assay.tasks.validate import validate
from run_world import failed_in

KINDS = ("task", "group", "metric", "filter", "scorer", "graph")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["my_first", "X", "_9"])
def test_new_files_have_no_problems(kind: str, name: str, tmp_path: Path) -> None:
    assert main(["new", kind, name, "--dir", str(tmp_path)]) == 0
    assert validate(TaskManager(include_path=str(tmp_path), include_defaults=False)) == []


def answered(kind: str, answers: dict[str, str], folder: Path, **options: Any) -> dict[str, Any]:
    """The results of the new file, with an answer for each of its questions."""
    assert main(["new", kind, "mine", "--dir", str(folder)]) == 0

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        return next(said for part, said in answers.items() if part in str(prompt))

    model = Scripted(answer, chat_template=lambda messages, _: str(messages[-1]["content"]), identity=repr(answers))
    results = simple_evaluate(model=model, tasks=["mine"], include_path=str(folder), include_defaults=False, **options)
    assert failed_in(results) == 0
    return dict(results["results"]["mine"])


NEAR = {"spider": "8.4", "6 times 7": "no idea", "February": " 29."}
"""Near 8 (0.4 away), wrong, and one of two right answers."""


def test_the_metric_of_a_new_file(tmp_path: Path) -> None:
    row = answered("metric", NEAR, tmp_path)
    assert (row["mine,none"], row["sample_len"]) == (pytest.approx(2 / 3), 3)


def test_the_metric_of_a_new_file_scores_every_repeat(tmp_path: Path) -> None:
    sampled = {"gen_kwargs": {"do_sample": True, "temperature": 1.0}, "repeats": 4}
    assert answered("metric", NEAR, tmp_path, **sampled)["mine,none"] == pytest.approx(2 / 3)


def test_the_scorer_of_a_new_file(tmp_path: Path) -> None:
    """The scale is 10: 0.4 away is 0.96, a text is 0, the second of two right answers is 1."""
    row = answered("scorer", NEAR, tmp_path)
    assert (row["mine,none"], row["sample_len"]) == (pytest.approx((0.96 + 0 + 1) / 3), 3)


def test_the_filter_of_a_new_file(tmp_path: Path) -> None:
    answers = {"spider": "2 times 4 is 8", "6 times 7": "no idea", "February": "28 or 29 days"}
    assert answered("filter", answers, tmp_path)["exact_match,mine"] == pytest.approx(2 / 3)


def test_the_graph_of_a_new_file(tmp_path: Path) -> None:
    answers = {"barks": "A Dog.\nOr a cat", "banana": "blue", "spider": "eight"}
    assert answered("graph", answers, tmp_path)["accuracy,none"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", ["metric", "filter", "scorer", "graph"])
@pytest.mark.parametrize("name", ["a-b", "9x", "class", "alias", "a.b", "", "json", "assay"])
def test_names_that_code_or_results_cannot_have_are_refused(
    kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", kind, name, "--dir", str(tmp_path)]) == 2
    assert "the name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_names_what_can_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["new", "--help"])
    printed = capsys.readouterr().out
    assert all(kind in printed for kind in KINDS)


def test_a_code_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("# mine\n")
    assert main(["new", "metric", "mine", "--dir", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
