"""Laws that any groups keep, whatever their members and numbers."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import GroupConfig, GroupManager, Task, TaskConfig
from group_world import Plain, computed, config_of

score = st.floats(0.01, 1.0)
tasks = st.lists(st.lists(score, min_size=1, max_size=8), min_size=1, max_size=6)
MICRO: dict[str, object] = {"metric": "acc"}
KINDS = ["mean", "harmonic_mean", "geometric_mean", "median", "min", "max"]


def results_of(documents: Sequence[Sequence[float]]) -> Plain:
    return {f"t{n}": {"acc,none": sum(own) / len(own), "samples": len(own)} for n, own in enumerate(documents)}


def one(results: Plain, **entry: object) -> float:
    [result] = computed(results, {**MICRO, **entry}).values()
    return result


@given(tasks)
def test_a_mean_by_size_is_the_mean_of_all_documents(documents: list[list[float]]) -> None:
    every = [each for own in documents for each in own]
    assert one(results_of(documents)) == pytest.approx(sum(every) / len(every), rel=1e-12)


@pytest.mark.slow
@given(tasks, st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(documents: list[list[float]], random: object) -> None:
    results = results_of(documents)
    names = list(results)
    random.shuffle(names)  # type: ignore[attr-defined]
    for kind in KINDS:
        for by_size in (True, False):
            options = {"aggregation": kind, "weight_by_size": by_size}
            assert one({name: results[name] for name in names}, **options) == pytest.approx(
                one(results, **options), rel=1e-12
            )


@given(tasks, st.integers(0, 5))
def test_means_by_size_of_means_by_size_are_those_of_all(documents: list[list[float]], cut: int) -> None:
    results = results_of(documents)
    names = list(results)
    manager: GroupManager[Task] = GroupManager()
    for name in names:
        manager.register_task(Task(TaskConfig(task=name)))
    entries = {"aggregate_metric_list": [{**MICRO, "levels": "children"}]}
    parts = {"left": names[:cut], "right": names[cut:]}
    inner = {key: config_of({"group": key, "task": own, **entries}) for key, own in parts.items() if own}
    outer = config_of({"group": "outer", "task": list(inner), **entries})
    manager.build_hierarchy({"outer": outer, **inner})
    result = manager.compute_all_group_metrics(results)["outer"]["acc,none"]
    assert result == pytest.approx(one(results), rel=1e-12)


@given(tasks, st.data())
def test_a_task_listed_twice_counts_once(documents: list[list[float]], data: st.DataObject) -> None:
    results = results_of(documents)
    names = list(results)
    again = data.draw(st.lists(st.sampled_from(names)))
    manager: GroupManager[Task] = GroupManager()
    for name in names:
        manager.register_task(Task(TaskConfig(task=name)))
    entries = config_of({"aggregate_metric_list": [MICRO]}).aggregate_metric_list
    inner = GroupConfig(group="inner", task=tuple(again))
    manager.build_hierarchy(
        {"inner": inner, "g": GroupConfig(group="g", task=[*names, *again, "inner"], aggregate_metric_list=entries)}
    )
    assert manager.compute_all_group_metrics(results)["g"]["acc,none"] == one(results)


@given(tasks)
def test_means_are_ordered(documents: list[list[float]]) -> None:
    results = results_of(documents)
    kinds = ["min", "harmonic_mean", "geometric_mean", "mean", "max"]
    for by_size in (True, False):
        result = [one(results, aggregation=kind, weight_by_size=by_size) for kind in kinds]
        assert all(low <= high * (1 + 1e-12) for low, high in pairwise(result))
