"""A few inputs for each reader, and all that once broke one. `make fuzz` tries more."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fuzz.targets import TARGETS, check

pytestmark = pytest.mark.slow
CASES = Path(__file__).parent / "fuzz/cases"
EXAMPLES = {
    "tasks": 15, "runs_of_tasks": 15, "graphs": 12, "configs": 12, "templates": 12, "data": 20, "texts": 10, "runs": 10, "queries": 15,
    "journals": 15, "archives": 20, "lm_eval_logs": 20, "answers": 60,
}  # fmt: skip
"""Inputs for each target in `make test`: about two seconds each."""


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_its_reader(target: str) -> None:
    few = settings(
        max_examples=EXAMPLES[target], deadline=None, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    @few
    @given(files=TARGETS[target].inputs())
    def tried(files: dict[str, bytes]) -> None:
        check(target, files)

    tried()


@pytest.mark.parametrize("case", sorted(CASES.glob("*/*")), ids=lambda case: f"{case.parent.name}/{case.name}")
def test_what_once_broke_a_reader_is_refused_in_words(case: Path) -> None:
    files = {str(path.relative_to(case)): path.read_bytes() for path in sorted(case.rglob("*")) if path.is_file()}
    check(case.parent.name, files)


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_different_from_each_other(target: str) -> None:
    inputs: set[tuple[tuple[str, bytes], ...]] = set()

    @settings(max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(files=TARGETS[target].inputs())
    def collect(files: dict[str, bytes]) -> None:
        inputs.add(tuple(sorted(files.items())))

    collect()
    assert len(inputs) >= 4
