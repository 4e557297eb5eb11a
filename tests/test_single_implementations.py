"""Each statistic is written once, in `statistics/`: counted from the syntax trees by tools/house.py."""

import pytest
from tools import house

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
