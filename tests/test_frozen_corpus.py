"""Small runs of every kind report what they reported before, bit for bit: a net under changes of the inside of the program.

A test that fails shows what changed. Where a change of numbers is intended, tools/freeze_corpus.py rewrites the files, and the
change is listed in CHANGELOG.md.
"""

import difflib
from itertools import islice
from pathlib import Path

import pytest

from frozen_corpus import FROZEN, LM_EVAL, Case, World, all_cases, outcome_of_case

CASES = all_cases()
pytestmark = pytest.mark.slow  # some hundred runs: too long for `make quick`


@pytest.mark.filterwarnings("ignore")  # helper code of lm-eval's tasks is not ours
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number_is_as_it_was(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for library in case.needs:
        if library != LM_EVAL:
            pytest.importorskip(library)
    lm_eval = request.getfixturevalue("lm_eval_folder") if LM_EVAL in case.needs else tmp_path
    expected = (FROZEN / f"{case.name}.json").read_text(encoding="utf-8")
    outcome = outcome_of_case(case, World(tmp_path / "world", lm_eval / "lm_eval/tasks"))
    changes = difflib.unified_diff(expected.splitlines(), outcome.splitlines(), "frozen", "now", lineterm="", n=0)
    assert list(islice(changes, 40)) == []


def test_every_expected_file_has_its_case_and_all_are_small() -> None:
    files = {path.stem: path.stat().st_size for path in FROZEN.iterdir()}
    assert files.keys() == CASES.keys()
    assert sum(files.values()) < 1_500_000
