"""Each statistic is written once, in `statistics/`, and a number with its interval is one class: counted from the syntax trees."""

import ast
from pathlib import Path

import pytest
from tools import house

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "src", ROOT / "packages")
HOMES = {
    "pass@k": "statistics/pass_at_k.py:pass_at_k",
    "precision, recall, F1": "statistics/classes.py",
    "softmax": "statistics/softmax.py:softmax",
}


@pytest.fixture(scope="module")
def counted() -> dict[str, list[str]]:
    return house.statistics(house.ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("statistic", HOMES)
def test_a_statistic_has_one_implementation(counted: dict[str, list[str]], statistic: str) -> None:
    assert counted[statistic] == [HOMES[statistic]]


ENDS_OF_NO_NUMBER = {"Axis": "of a drawing", "Bin": "of a histogram", "IntervalCell": "of a column beside the number's",
                     "MetricKey": "a name that may be of a standard error"}  # fmt: skip
"""Records with two ends that are no interval of a number which they have, too."""


def has_own_interval(record: ast.ClassDef) -> bool:
    """Whether a class has a field for a standard error, or for an interval or the ends of one."""
    named = [
        item.target.id for item in record.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]
    joined = {name for name in named if name.endswith(("_low", "_high", "_stderr", "_interval"))}
    return bool({"stderr", "interval"} & {*named} or {"low", "high"} <= {*named} or joined)


def test_a_number_with_its_interval_is_an_estimate() -> None:
    """Other records hold an Estimate. A cell of a table and a point of a chart say which parts of a number are shown, and where."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for folder in FOLDERS for path in folder.rglob("*.py")]
    records = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = sorted(record.name for record in records if has_own_interval(record))
    assert [name for name in own if name not in ENDS_OF_NO_NUMBER] == ["Estimate", "NumberCell", "Point"]
