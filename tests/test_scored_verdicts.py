"""`assay score` of a judged run: verdicts are found in the journal by request, so that no judge is asked twice."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.exchange.importers import score
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from small_runs import run, says, write_task

ANSWERS = ["a", "B", "cc"]
"""The judge gives 1 + 3 for each letter, from 1 to 10: 3/9, 3/9 and 6/9."""
JUDGED = "{name: judged, filter: [{function: take_first}], SCORER, metric_list: [{metric: exact_match}]}"
OTHER = "{name: other, filter: [{function: lowercase}, {function: take_first}], metric_list: [{metric: exact_match}]}"
NUMBERS = {"exact_match,judged": 1 / 3, "llm_judge,judged": 4 / 9, "exact_match,other": 2 / 3}


def judge(prompt: str, params: dict[str, object], repeat: int) -> str:
    [mark] = set(re.findall(r"mark ([0-9a-f]{32})", prompt))
    [answer] = re.findall(r">>>\n(.*)\n<<<", prompt)
    return json.dumps({"id": mark, "reason": "r", "score": 1 + 3 * len(answer)})


def write(folder: Path, *filters: str, scorer: str = "scorer: llm_judge") -> None:
    rows = [{"q": str(number), "gold": gold} for number, gold in enumerate("abx")]
    entries = ", ".join(filters).replace("SCORER", scorer)
    fields = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    write_task(folder, rows, f"{fields}filter_list: [{entries}]\n")


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    write(tmp_path / "tasks", JUDGED, OTHER)
    roles = {"judge": Scripted(generate=judge)}
    results = run(tmp_path / "tasks", says(ANSWERS), model_role=roles, output_path=str(tmp_path / "run"))
    assert numbers(results) == pytest.approx({**NUMBERS, "exact_match,other": 2 / 3})
    return tmp_path


def numbers(results: Any) -> dict[str, float]:
    row = results["results"]["t"]
    return {name: value for name, value in row.items() if "," in name and "_stderr" not in name}


def test_a_filter_that_the_judge_never_sees_may_change(judged: Path) -> None:
    write(judged / "tasks", JUDGED, OTHER.replace("lowercase", "uppercase"))
    assert numbers(lm_eval_layout(score([judged / "run"]).results)) == pytest.approx(
        {**NUMBERS, "exact_match,other": 0.0}
    )


def test_filters_may_change_their_order_and_their_number(judged: Path) -> None:
    write(judged / "tasks", OTHER, JUDGED, OTHER.replace("name: other", "name: more"))
    expected = {**NUMBERS, "exact_match,more": 2 / 3}
    assert numbers(lm_eval_layout(score([judged / "run"]).results)) == pytest.approx(expected)
    write(judged / "tasks", JUDGED)
    expected = {name: value for name, value in NUMBERS.items() if name.endswith("judged")}
    assert numbers(lm_eval_layout(score([judged / "run"]).results)) == pytest.approx(expected)


def test_verdicts_are_read_anew_where_the_question_to_the_judge_is_the_same(judged: Path) -> None:
    write(judged / "tasks", JUDGED, OTHER, scorer="scorer: {type: llm_judge, kwargs: {normalize: false}}")
    assert numbers(lm_eval_layout(score([judged / "run"]).results))["llm_judge,judged"] == pytest.approx(
        5.0
    )  # (4 + 4 + 7) / 3


@pytest.mark.parametrize(
    ("entry", "scorer"),
    [
        (JUDGED.replace("take_first", "uppercase", 1), "scorer: llm_judge"),
        (JUDGED, "scorer: {type: llm_judge, kwargs: {rubric: Is it short?}}"),
        (JUDGED, "scorer: {type: llm_judge, kwargs: {judge_model: dummy}}"),
        (JUDGED, "scorer: {type: llm_judge, kwargs: {role: stranger}}"),
    ],
    ids=["another answer", "another question", "another model", "another role"],
)
def test_what_no_judge_has_seen_is_refused(entry: str, scorer: str, judged: Path) -> None:
    write(judged / "tasks", entry, OTHER, scorer=scorer)
    with pytest.raises(ConfigError, match=r"have not seen these answers: filter_list changed.*--use_cache"):
        score([judged / "run"])
    assert not list((judged / "run").glob("scored/*"))


def test_without_its_journal_a_run_is_scored_with_the_verdicts_of_its_samples(judged: Path) -> None:
    (judged / "run/responses.jsonl").unlink()
    assert numbers(lm_eval_layout(score([judged / "run"]).results)) == pytest.approx(NUMBERS)
    write(judged / "tasks", JUDGED, OTHER.replace("lowercase", "uppercase"))
    with pytest.raises(ConfigError, match="have not seen these answers: filter_list changed"):
        score([judged / "run"])
