"""Groups as objects, as seed 000 describes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import ConfigError, Group, GroupConfig, GroupManager, StandardGroup, TagGroup, Task, TaskConfig, TaskManager
from conftest import a_task
from group_world import group_file, scored


def task(name: str) -> Task:
    return Task(TaskConfig(task=name))


def group(name: str, *children: "Group[Task] | Task") -> StandardGroup[Task]:
    built_group: StandardGroup[Task] = StandardGroup(GroupConfig(group=name))
    for child in children:
        built_group.add_child(child)
    return built_group


def test_a_group_carries_its_configuration() -> None:
    config = GroupConfig(group="math", group_alias="Maths", metadata={"domain": "arithmetic", "version": 2.0})
    group: StandardGroup[Task] = StandardGroup(config)
    assert (group.config, group.name, group.alias, group.version) == (config, "math", "Maths", "2.0")
    assert group.metadata == {"domain": "arithmetic", "version": 2.0}
    assert StandardGroup(GroupConfig(group="plain")).alias == "plain"
    group.metadata = {"description": "Math word problems", "difficulty": "medium"}
    assert group.metadata["difficulty"] == "medium"


def test_a_group_is_abstract() -> None:
    with pytest.raises(TypeError):
        Group(GroupConfig(group="g"))  # type: ignore[abstract]


def test_adding_links_both_ways_and_twice_is_once() -> None:
    leaf, inner = task("t"), group("inner")
    outer = group("outer", leaf, inner, leaf, inner)
    assert outer.get_direct_children() == [leaf, inner]
    assert (leaf.groups, inner.parent, inner.parents) == ([outer], outer, [outer])


def test_a_task_may_join_several_groups_from_its_side() -> None:
    maths, hard, leaf = group("math"), group("hard"), task("gsm8k")
    leaf.add_to_group(maths)
    leaf.add_to_group(hard)
    leaf.add_to_group(maths)
    assert leaf.groups == [maths, hard]
    assert (maths.get_all_tasks(), hard.get_all_tasks()) == ([leaf], [leaf])


def test_a_group_may_have_several_parents() -> None:
    shared = group("shared")
    first, second = group("first", shared), group("second", shared)
    assert (shared.parents, shared.parent) == ([first, second], first)


def test_tasks_are_flattened_each_once_and_in_order() -> None:
    a, b, c = task("a"), task("b"), task("c")
    inner = group("inner", b, a)
    outer = group("outer", a, inner, c)
    assert outer.get_all_tasks() == [a, b, c]
    assert outer.get_direct_children() == [a, inner, c]


def test_subtasks_down_to_a_depth() -> None:
    a, b, c = task("a"), task("b"), task("c")
    top = group("top", a, group("one", b, group("two", c)))
    assert top.get_subtasks(0) == []
    assert top.get_subtasks(1) == [a]
    assert top.get_subtasks(2) == [a, b]
    assert top.get_subtasks() == [a, b, c]


def test_a_task_that_is_near_on_one_way_and_far_on_another_counts_as_near() -> None:
    deep = task("deep")
    near = group("near", group("mid", deep))
    top = group("top", group("x", near), near)
    assert top.get_subtasks(3) == [deep]


def test_depth_is_the_shortest_way_to_a_root() -> None:
    leaf = group("leaf")
    middle = group("middle", leaf)
    top = group("top", middle, leaf)
    assert (top.depth(), middle.depth(), leaf.depth()) == (0, 1, 1)


def test_a_leaf_group_holds_no_groups() -> None:
    inner = group("inner", task("a"))
    assert inner.is_leaf()
    assert not group("outer", inner).is_leaf()


def test_traversal_visits_each_node_once_parents_first() -> None:
    shared = task("shared")
    top = group("top", group("one", shared), group("two", shared, task("own")))
    seen: list[str] = []
    top.traverse(lambda node: seen.append(node.name))
    assert seen == ["top", "one", "shared", "two", "own"]
    assert shared.task_name == "shared"


def test_a_circle_is_refused() -> None:
    inner = group("inner")
    outer = group("outer", group("middle", inner))
    for child in (outer, inner):
        with pytest.raises(ConfigError, match="circle"):
            inner.add_child(child)


def test_a_tag_is_flat_and_a_task_may_carry_many() -> None:
    red: TagGroup[Task] = TagGroup("red", "Red things")
    small: TagGroup[Task] = TagGroup("small")
    leaf = task("t")
    for tag in (red, small, red):
        tag.add_child(leaf)
    assert (leaf.tags, leaf.groups) == (["red", "small"], [])
    assert (red.alias, small.alias, red.get_all_tasks()) == ("Red things", "small", [leaf])
    with pytest.raises(TypeError, match="cannot contain the group"):
        red.add_child(group("g"))


def test_custom_kinds_of_groups_are_groups() -> None:
    class DomainGroup(StandardGroup[Task]):
        def domain(self) -> object:
            return self.metadata["domain"]

    built = DomainGroup(GroupConfig(group="d", metadata={"domain": "law"}))
    built.add_child(task("t"))
    assert (built.domain(), built.get_all_tasks()[0].groups) == ("law", [built])


def manager_of(**members: list[str]) -> "GroupManager[Task]":
    manager: GroupManager[Task] = GroupManager()
    for name in ("gsm8k", "math_qa", "arc"):
        manager.register_task(task(name))
    manager.build_hierarchy({name: GroupConfig(group=name, task=list(tasks)) for name, tasks in members.items()})
    return manager


def test_a_hierarchy_is_built_from_configurations_in_any_order() -> None:
    for order in (["math", "all"], ["all", "math"]):
        members = {"math": ["gsm8k", "math_qa"], "all": ["math", "arc", "gsm8k"]}
        manager = manager_of(**{name: members[name] for name in order})
        assert [root.name for root in manager.root_groups] == ["all"]
        assert [t.name for t in manager.get_tasks_for_group("all")] == ["gsm8k", "math_qa", "arc"]
        assert sorted(g.name for g in manager.get_groups_for_task("gsm8k")) == ["all", "math"]
        assert manager.get_groups_for_task("nobody") == []
        assert manager.get_tasks_for_group("nobody") == []


def test_the_whole_hierarchy_is_traversed_each_node_once() -> None:
    manager = manager_of(math=["gsm8k"], hard=["gsm8k", "arc"])
    seen: list[str] = []
    manager.traverse_hierarchy(lambda node: seen.append(node.name))
    assert seen == ["math", "gsm8k", "hard", "arc"]
    seen.clear()
    manager.traverse_hierarchy(lambda node: seen.append(node.name), root=manager.groups["hard"])
    assert seen == ["hard", "gsm8k", "arc"]


def test_an_unknown_member_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no task or group named 'gsm8'.*did you mean 'gsm8k'"):
        manager_of(math=["gsm8"])


def test_a_hierarchy_may_list_the_configurations_of_its_tasks() -> None:
    """Seed 000 makes groups of GroupConfigs alone; tasks are registered."""
    configs = {"a": TaskConfig(task="a"), "g": GroupConfig(group="g", task=["a"])}
    manager: GroupManager[Task] = GroupManager()
    manager.register_task(task("a"))
    manager.build_hierarchy(configs)
    assert (list(manager.groups), [own.name for own in manager.get_tasks_for_group("g")]) == (["g"], ["a"])
    with pytest.raises(ConfigError, match=r"the task 'a' is not registered — call `register_task"):
        GroupManager[Task]().build_hierarchy(configs)


def test_a_hierarchy_may_be_given_as_plain_mappings() -> None:
    manager: GroupManager[Task] = GroupManager()
    manager.register_task(task("t"))
    manager.build_hierarchy({"g": {"task": [{"task": "t", "task_alias": "T"}], "metadata": {"version": 1}}})
    assert (manager.groups["g"].child_names, manager.groups["g"].member_aliases) == (["t"], {"t": "T"})
    with pytest.raises(ConfigError, match="did you mean 'task'"):
        manager.build_hierarchy({"g": {"tasks": ["t"]}})


def test_groups_written_within_groups_are_groups_of_the_hierarchy() -> None:
    manager: GroupManager[Task] = GroupManager()
    for name in ("a", "b", "c"):
        manager.register_task(task(name))
    deep = {"group": "deep", "task": ["c"], "if": "params > 7e9"}
    manager.build_hierarchy({"top": {"task": ["a", {"group": "mid", "group_alias": "M", "task": ["b", deep]}]}})
    assert list(manager.groups) == ["top", "top::mid", "top::mid::deep"]
    assert [below.name for below in manager.get_tasks_for_group("top")] == ["a", "b", "c"]
    assert manager.groups["top"].member_aliases == {"top::mid": "M"}
    assert manager.groups["top::mid::deep"].parent is manager.groups["top::mid"]


def test_a_task_is_built_from_a_mapping_as_strictly_as_from_a_file() -> None:
    task = Task.from_config({"task": "t", "num_fewshot": 2, "tag": "x"})
    assert (task.name, task.config.num_fewshot, task.tags, task.version) == ("t", 2, ["x"], "N/A")
    with pytest.raises(ConfigError, match="unknown key 'fewshots'"):
        Task.from_config({"task": "t", "fewshots": 2})


def test_group_metadata_and_tags_come_from_yaml(manage: "type[TaskManager]") -> None:
    loaded = manage(  # type: ignore[call-arg]
        {
            "t.yaml": a_task("t", tag="[x, y]"),
            "g.yaml": "group: g\ngroup_alias: G\ntask: [t]\nmetadata: {description: d, difficulty: hard, version: 2}\n",
        }
    ).load("g")
    assert loaded["tasks"]["t"].tags == ["x", "y"]
    assert loaded["groups"]["g"].metadata == {"description": "d", "difficulty": "hard", "version": 2}


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40))
def test_any_graph_of_groups_keeps_its_promises(edges: list[tuple[int, int]]) -> None:
    """Whatever is added, in any order: no circle, each task once, links both ways."""
    groups = [group(f"g{number}", task(f"t{number}")) for number in range(12)]
    for parent, child in edges:
        try:
            groups[parent].add_child(groups[child])
        except ConfigError:
            assert parent == child or groups[parent] in groups[child].get_all_groups()
    for each in groups:
        tasks = each.get_all_tasks()
        assert len(tasks) == len({t.name for t in tasks})
        assert {t.name[1:] for t in tasks} == {each.name[1:]} | {g.name[1:] for g in each.get_all_groups()}
        assert all(each in child.parents for child in each.children if isinstance(child, Group))
        assert each.get_subtasks(1) == [c for c in each.children if isinstance(c, Task)]


def test_metadata_of_the_manager_reach_groups_and_tasks(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[1])
    group_file(tmp_path, "group: g\ntask: [a]\nmetadata: {version: 2.0, size: 1}\n")
    manager = TaskManager(include_path=tmp_path, include_defaults=False, metadata={"size": 7, "site": "here"})
    loaded = manager.load("g")
    assert loaded["groups"]["g"].metadata == {"version": 2.0, "size": 7, "site": "here"}
    assert loaded["groups"]["g"].config.metadata == {"version": 2.0, "size": 7, "site": "here"}
    assert loaded["tasks"]["a"].config.metadata == {"size": 7, "site": "here"}
