"""Selection: names, globs, tags, groups, paths, formats, files and folders; and what comes down to the tasks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import run_world
from assay import ConfigError, GroupConfig, StandardGroup, TaskManager
from assay.catalog.catalog import Catalog
from assay.catalog.expand import TaskNode
from assay.tasks.validate import validate
from commands import Run
from conftest import Write, a_task

Manage = Callable[..., TaskManager]

WORLD = {
    "a.yaml": a_task("a", tag="[red, small]"),
    "b.yaml": a_task("b", tag="red"),
    "c.yaml": a_task("c", num_fewshot="1"),
    "nli.yaml": """
        group: nli
        task: [a, b]
    """,
    "top.yaml": """
        group: top
        num_fewshot: 7
        task:
          - nli
          - group: inner
            task:
              - c
              - task: fresh
                dataset_path: some/data
                doc_to_text: question
          - task: red
            repeats: 2
    """,
}


def keys(manager: TaskManager, *specs: object) -> list[str]:
    return sorted(manager.load(list(specs))["tasks"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "collected"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a, b  c", ["a", "b", "c"]),
        ("[ab]", ["a", "b"]),
        ("n*", ["a", "b"]),
        ("red", ["a", "b"]),
        ("tag:red", ["a", "b"]),
        ("tag:sm*", ["a"]),
        ("nli", ["a", "b"]),
        ("nli::a", ["a"]),
        ("nli::*", ["a", "b"]),
        ("top::inner::c", ["c"]),
        ("top::inner::fresh", ["top::inner::fresh"]),
        ("top::nli::b", ["b"]),
        ("top::inner", ["c", "top::inner::fresh"]),
        ("a,nli,red,tag:red,nli::a", ["a", "b"]),
        ("a@cloze", ["a@cloze"]),
        ("a@cloze,a@mcqa,a", ["a", "a@cloze", "a@mcqa"]),
        ("nli@cloze", ["a@cloze", "b@cloze"]),
        ("nli::a@cloze", ["a@cloze"]),
        ("red@mcqa", ["a@mcqa", "b@mcqa"]),
        ("[ab]@mcqa", ["a@mcqa", "b@mcqa"]),
    ],
)
def test_names_globs_paths_and_files_select_tasks(asked: str, collected: list[str], manage: Manage) -> None:
    assert keys(manage(WORLD), asked) == collected


def test_a_task_reached_in_several_ways_is_one_object_that_knows_its_groups(manage: Manage) -> None:
    manager = manage({**WORLD, "other.yaml": "group: other\ntask: [a, nli]\n"})
    loaded = manager.load(["a", "nli", "other", "red"])
    assert sorted(loaded["tasks"]) == ["a", "b"]
    assert [group.name for group in loaded["tasks"]["a"].groups] == ["nli", "other"]
    assert loaded["group_map"] == {"nli": ["a", "b"], "other": ["a", "nli"]}
    assert loaded["groups"]["other"].get_all_tasks() == [loaded["tasks"]["a"], loaded["tasks"]["b"]]


def test_files_and_folders_can_be_asked_for_by_path(manage: Manage, write: Write, tmp_path: Path) -> None:
    folder = write(WORLD)
    manager = TaskManager(include_defaults=False)
    assert keys(manager, str(folder / "c.yaml")) == ["c"]
    assert keys(manager, str(folder / "nli.yaml")) == ["a", "b"]  # its members are beside it
    assert sorted(manager.load(str(folder))["groups"]) == ["nli", "top", "top::inner"]
    assert keys(manager, str(folder / "[ab].yaml")) == ["a", "b"]
    assert keys(manager, str(folder / "c.yaml") + "@cloze") == ["c@cloze"]
    assert keys(manager, folder / "c.yaml") == ["c"]


def test_a_whole_configuration_can_be_asked_for(manage: Manage) -> None:
    manager = manage(WORLD)
    inline = {"task": "mine", "dataset_path": "json", "doc_to_text": "question", "num_fewshot": 4}
    assert manager.load(inline)["tasks"]["mine"].config.num_fewshot == 4
    assert manager.load({"task": "c", "num_fewshot": 4})["tasks"]["c"].config.num_fewshot == 4
    group = manager.load({"group": "ours", "task": ["a", inline], "num_fewshot": 2})
    assert sorted(group["tasks"]) == ["a", "ours::mine"]
    assert (group["tasks"]["a"].config.num_fewshot, group["tasks"]["ours::mine"].config.num_fewshot) == (2, 4)
    with pytest.raises(ConfigError, match="did you mean 'num_fewshot'"):
        manager.load({"task": "mine", "dataset_path": "json", "num_fewshots": 4})


def test_a_python_function_is_accepted_where_yaml_has_a_function(manage: Manage) -> None:
    inline = {"task": "mine", "dataset_path": "json", "doc_to_text": lambda row: row["q"], "process_docs": sorted}
    assert manage(WORLD).load(inline)["tasks"]["mine"].config.process_docs is sorted


def test_an_unknown_name_is_refused_with_the_five_nearest_names(manage: Manage) -> None:
    files = {f"t{n}.yaml": a_task(f"anatomy_{n}") for n in range(9)}
    with pytest.raises(ConfigError) as error:
        manage(files).load("anatmy_3")
    [problem] = error.value.problems
    assert problem.what == "no task, group or tag named 'anatmy_3'"
    assert problem.fix.startswith("did you mean anatomy_3, anatomy_")
    assert len(problem.fix.split(",")) == 5


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ("nli::x", "'nli' has no member 'x'"),
        ("a::b", "'a' is a task, not a group"),
        ("top::inner::c::d", "'c' is a task and has no members"),
        ("zzz*", "no name matches 'zzz*'"),
        ("tag:rad", "no tag named 'rad'"),
        ("a@clooze", "no format named 'clooze'"),
        ("./nowhere.yaml", "there is no such file"),
        ("../evil", "there is no such file"),
        ("/no/such/folder/", "there is no such file"),
    ],
)
def test_unavailable_tasks_are_reported(asked: str, what: str, manage: Manage) -> None:
    with pytest.raises(ConfigError) as error:
        manage(WORLD).load(asked)
    assert what in str(error.value)


def test_all_wrong_names_are_reported_at_once(manage: Manage) -> None:
    with pytest.raises(ConfigError) as error:
        manage(WORLD).load("aa,bb,a")
    assert len(error.value.problems) == 2


def test_match_tasks_gives_names_that_exist(manage: Manage) -> None:
    assert manage(WORLD).match_tasks(["[ab]", "nli", "nowhere"]) == ["a", "b", "nli"]


@pytest.mark.parametrize(
    "mapping",
    [
        {"task": "c", "doc_to_text": "Again: {{question}}"},  # c has num_fewshot 1, and a data set
        {"task": "c", "dataset_path": "other/data", "doc_to_target": "{{other}}"},
        {"task": "fresh", "dataset_path": "some/data", "doc_to_text": "question"},
    ],
    ids=["a key that new tasks have", "several", "a new task"],
)
def test_a_mapping_means_the_same_in_a_run_and_in_a_list(manage: Manage, mapping: dict[str, str]) -> None:
    """Over a registered name it changes that task; keys that could define a new one change nothing about that."""
    manager, name = manage(WORLD), mapping["task"]
    alone = manager.load(mapping)["tasks"][name].config
    [in_list] = manager.load({"group": "own", "task": [mapping]})["tasks"].values()
    assert alone == replace(in_list.config, task=name)
    assert alone.num_fewshot == (1 if name == "c" else None)
    assert {key: getattr(alone, key) for key in mapping} == mapping


def test_an_unknown_name_with_changes_alone_is_refused_in_a_run_as_in_a_list(manage: Manage) -> None:
    mapping = {"task": "cc", "num_fewshot": 2}
    for spec in (mapping, {"group": "own", "task": [mapping]}):
        with pytest.raises(ConfigError, match=r"no task, group or tag named 'cc' — did you mean c\?"):
            manage(WORLD).load(spec)


def settings(manager: TaskManager, spec: str, task: str, **overrides: object) -> tuple[object, object]:
    chosen = {spec: overrides} if overrides else None
    config = manager.load(spec, overrides=chosen)["tasks"][task].config
    return config.num_fewshot, config.repeats


def test_precedence_task_then_group_defaults_then_member_overrides_then_command_line(manage: Manage) -> None:
    manager = manage(
        {
            "t.yaml": a_task("t", num_fewshot="1", repeats="1"),
            "inner.yaml": "group: inner\nnum_fewshot: 2\ntask: [t]\n",
            "outer.yaml": "group: outer\nnum_fewshot: 3\nrepeats: 3\ntask: [inner]\n",
            "member.yaml": "group: member\nnum_fewshot: 4\ntask:\n  - task: outer\n    num_fewshot: 5\n",
            "far.yaml": "group: far\ntask:\n  - task: member\n    num_fewshot: 6\n    repeats: 6\n",
        }
    )
    assert settings(manager, "t", "t") == (1, 1)
    assert settings(manager, "inner", "t") == (2, 1)
    assert settings(manager, "outer", "t") == (2, 3)  # of defaults, the nearest to the task wins
    assert settings(manager, "member", "t") == (5, 3)  # a list that mentions it wins over every default
    assert settings(manager, "far", "t") == (5, 6)  # of lists, the nearest wins
    assert settings(manager, "far", "t", num_fewshot=9) == (9, 6)  # the command line wins over all


def test_overrides_propagate_through_a_group_to_all_its_children(manage: Manage) -> None:
    manager = manage({**WORLD, "bench.yaml": "group: bench\ntask:\n  - task: top\n    num_fewshot: 5\n"})
    loaded = manager.load("bench")
    assert {task.config.num_fewshot for task in loaded["tasks"].values()} == {5}


def test_keys_of_a_list_that_belong_to_the_group_stay_with_the_group(manage: Manage) -> None:
    manager = manage(
        {
            **WORLD,
            "bench.yaml": """
                group: bench
                task:
                  - group: nli
                    group_alias: NLI here
                    metadata: {version: 9}
                    num_fewshot: 5
            """,
        }
    )
    loaded = manager.load("bench")
    assert (loaded["groups"]["nli"].alias, loaded["groups"]["nli"].version) == ("NLI here", "9")
    assert loaded["tasks"]["a"].config.num_fewshot == 5
    assert loaded["tasks"]["a"].config.metadata is None


def test_one_name_with_two_configurations_becomes_two_tasks(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t"), "g.yaml": "group: g\ntask:\n  - task: t\n    num_fewshot: 5\n"})
    assert list(manager.load("g")["tasks"]) == ["t"]  # alone it keeps its name
    loaded = manager.load(["g", "t"])
    assert {key: task.config.num_fewshot for key, task in loaded["tasks"].items()} == {"t": None, "g::t": 5}
    assert loaded["group_map"] == {"g": ["g::t"]}


def test_one_task_listed_twice_with_different_settings_is_two_tasks(manage: Manage) -> None:
    members = "".join(f"  - task: t\n    num_fewshot: {n}\n" for n in (0, 5))
    loaded = manage({"t.yaml": a_task("t"), "g.yaml": f"group: g\ntask:\n{members}"}).load("g")
    assert {key: task.config.num_fewshot for key, task in loaded["tasks"].items()} == {"g::t": 0, "g::t#2": 5}


def test_a_group_reached_through_two_parents_with_different_overrides_is_two_groups(manage: Manage) -> None:
    manager = manage(
        {
            "t.yaml": a_task("t"),
            "g.yaml": "group: g\ntask: [t]\n",
            "p.yaml": "group: p\ntask:\n  - task: g\n    num_fewshot: 1\n",
            "q.yaml": "group: q\ntask:\n  - task: g\n    num_fewshot: 2\n",
        }
    )
    loaded = manager.load(["p", "q", "g"])
    assert sorted(loaded["groups"]) == ["g", "p", "p::g", "q", "q::g"]
    assert {key: task.config.num_fewshot for key, task in loaded["tasks"].items()} == {
        "t": None, "p::g::t": 1, "q::g::t": 2,
    }  # fmt: skip


def test_an_alias_is_a_matter_of_display_and_makes_no_second_task(manage: Manage) -> None:
    manager = manage(
        {
            "t.yaml": a_task("t", task_alias="plain"),
            "g.yaml": "group: g\ntask:\n  - task: t\n    task_alias: here\n",
            "h.yaml": "group: h\ntask: [t]\n",
        }
    )
    assert manager.load("g")["tasks"]["t"].alias == "here"
    loaded = manager.load(["g", "h"])
    assert list(loaded["tasks"]) == ["t"]
    assert loaded["groups"]["g"].member_aliases == {"t": "here"}
    assert loaded["groups"]["h"].member_aliases == {"t": "plain"}


def test_inline_groups_and_tasks_may_include_files(manage: Manage) -> None:
    manager = manage(
        {
            "g.yaml": """
                group: g
                task:
                  - group: h
                    task:
                      - task: x
                        include: base_yaml
                        num_fewshot: 3
            """,
            "base_yaml": "dataset_path: json\ndoc_to_text: question\nnum_fewshot: 1\nrepeats: 4\n",
        }
    )
    config = manager.load("g")["tasks"]["g::h::x"].config
    assert (config.dataset_path, config.num_fewshot, config.repeats) == ("json", 3, 4)


def test_a_group_may_include_defaults_for_its_members(manage: Manage) -> None:
    manager = manage(
        {"t.yaml": a_task("t"), "g.yaml": "group: g\ninclude: base.yaml\ntask: [t]\n", "base.yaml": "num_fewshot: 4\n"}
    )
    assert manager.load("g")["tasks"]["t"].config.num_fewshot == 4


def test_class_based_members_are_loaded_by_name(manage: Manage) -> None:
    manager = manage(
        {
            "scrolls.yaml": """
                group: scrolls
                task:
                  - task: scrolls_qasper
                    class: !function task.Qasper
                  - task: scrolls_quality
                    class: !function task.QuALITY
            """,
        }
    )
    loaded = manager.load("scrolls")
    classes = {key: str(task.config.class_) for key, task in loaded["tasks"].items()}
    assert classes == {
        "scrolls::scrolls_qasper": "!function task.Qasper", "scrolls::scrolls_quality": "!function task.QuALITY",
    }  # fmt: skip


def test_a_group_named_like_a_task_may_be_defined_inline(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t"), "g.yaml": "group: g\ntask:\n  - group: t\n    task: [t]\n"})
    assert manager.load("g")["group_map"] == {"g": ["g::t"], "g::t": ["t"]}


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"a.yaml": "group: a\ntask: [a]\n"}, "a → a"),
        ({"a.yaml": "group: a\ntask: [b]\n", "b.yaml": "group: b\ntask: [c]\n", "c.yaml": "group: c\ntask:\n  - task: a\n"},
         "a → b → c → a"),
        ({"a.yaml": "group: a\ntask:\n  - group: x\n    task: [a]\n"}, "a → a::x → a"),
    ],
)  # fmt: skip
def test_a_circle_of_groups_is_refused_and_printed_with_its_place(
    files: dict[str, str], circle: str, manage: Manage
) -> None:
    with pytest.raises(ConfigError) as error:
        manage(files).load("a")
    [problem] = error.value.problems
    assert problem.what.endswith(circle)
    assert problem.place.line > 0


def test_groups_nested_too_deep_are_refused(manage: Manage) -> None:
    files = {f"g{n}.yaml": f"group: g{n}\ntask: [g{n + 1}]\n" for n in range(200)}
    with pytest.raises(ConfigError, match="nested more than 64 deep"):
        manage({**files, "t.yaml": a_task("g200")}).load("g0")


@pytest.mark.slow
def test_a_group_of_ten_thousand_members_loads(manage: Manage) -> None:
    text = "group: g\ntask:\n" + "".join(
        f"  - {{task: t{n}, dataset_path: json, doc_to_text: q}}\n" for n in range(10_000)
    )
    loaded = manage({"g.yaml": text}).load("g")
    assert len(loaded["tasks"]) == 10_000
    assert len(loaded["groups"]["g"].get_all_tasks()) == 10_000


def test_groups_that_share_groups_do_not_grow_without_bound(manage: Manage) -> None:
    files = {f"g{n}.yaml": f"group: g{n}\ntask: [g{n + 1}, h{n + 1}]\n" for n in range(40)}
    files |= {f"h{n}.yaml": f"group: h{n}\ntask: [g{n + 1}, h{n + 1}]\n" for n in range(40)}
    manager = manage({**files, "g40.yaml": a_task("g40"), "h40.yaml": a_task("h40")})
    loaded = manager.load("g0")
    assert (len(loaded["tasks"]), len(loaded["groups"])) == (2, 79)
    assert len(loaded["groups"]["g0"].get_all_tasks()) == 2


def test_a_group_whose_members_are_one_name_is_a_group_of_one(manage: Manage) -> None:
    assert manage({"t.yaml": a_task("t"), "g.yaml": "group: g\ntask: t\n"}).load("g")["group_map"] == {"g": ["t"]}


def shots(manager: TaskManager, spec: object) -> dict[str, int | None]:
    return {name: task.config.num_fewshot for name, task in manager.load([spec])["tasks"].items()}  # type: ignore[list-item]


def test_a_mapping_with_group_and_no_task_is_the_registered_group_with_changes(manage: Manage) -> None:
    manager = manage(WORLD)
    assert shots(manager, {"group": "nli", "num_fewshot": 2}) == {"a": 2, "b": 2}
    loaded = manager.load([{"group": "nli", "num_fewshot": 0, "group_alias": "N"}, {"task": "c"}])
    assert loaded["group_map"] == {"nli": ["a", "b"]}
    assert (loaded["groups"]["nli"].alias, loaded["tasks"]["a"].config.num_fewshot) == ("N", 0)
    assert shots(manager, {"group": "top", "num_fewshot": 3})["top::inner::fresh"] == 3
    assert shots(manager, {"task": "nli", "num_fewshot": 2}) == {"a": 2, "b": 2}
    assert list(manager.load([{"group": "new", "task": ["a"]}])["tasks"]) == ["a"]  # with `task` it is a new one


def test_a_mapping_may_include_the_members_of_its_group(manage: Manage, tmp_path: Path) -> None:
    manager = manage(WORLD)
    members = tmp_path / "members.yaml"
    members.write_text("task: [a, c]\n")
    assert keys(manager, {"group": "from_file", "include": str(members)}) == ["a", "c"]


def test_a_registered_group_that_is_misspelt_in_a_mapping_is_refused_with_the_nearest_name(manage: Manage) -> None:
    with pytest.raises(ConfigError, match=r"no task, group or tag named 'nly' — did you mean nli.* under `task:`"):
        manage(WORLD).load([{"group": "nly", "num_fewshot": 2}])


EMPTY: dict[str, object] = {
    "no list": {"group": "e", "task": []},
    "nothing": {"group": "e", "task": None},
    "an inner group": {"group": "e", "task": ["a", {"group": "inner", "task": []}]},
    "a tuple": {"group": "e", "task": ()},
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_group_without_members_is_refused(name: str, manage: Manage) -> None:
    with pytest.raises(ConfigError, match=r"configuration\.task.*: the group '(e|inner)' has no members"):
        manage(WORLD).load([EMPTY[name], "a"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "place"),
    [("group: e\n", "1:8"), ("group: e\ntask:\n", "2:6"), ("group: e\ntask: []\n", "2:7"),
     ("group: e\ntask:\n  - a\n  - group: i\n    task: []\n", "5:11")],
)  # fmt: skip
def test_a_file_of_a_group_without_members_is_refused_and_found_by_validate(
    text: str, place: str, manage: Manage
) -> None:
    manager = manage({**WORLD, "e.yaml": text})
    with pytest.raises(ConfigError, match=rf"e\.yaml:{place}: the group '[ei]' has no members"):
        manager.load(["e", "a"])
    assert [str(each).partition("e.yaml:")[2].partition(": ")[0] for each in validate(manager) if each.serious] == [
        place
    ]
    assert keys(manager, "nli") == ["a", "b"]


def test_a_group_that_conditions_leave_without_a_member_is_refused_with_the_conditions(manage: Manage) -> None:
    text = "group: e\ntask:\n  - {task: a, if: 'metadata.x > 1'}\n"
    files = {**WORLD, "e.yaml": text, "f.yaml": text.replace("e\n", "f\n", 1) + "  - b\n"}
    manager = manage(files, facts={"metadata": {"x": 1}})
    with pytest.raises(ConfigError, match=r"e\.yaml:3:3: .*without a member: a: `if: metadata.x > 1` is false"):
        manager.load("e")
    assert keys(manager, "f") == ["b"]
    assert keys(manage(files, facts={"metadata": {"x": 2}}), "e") == ["a"]


def test_a_group_object_without_members_is_refused(manage: Manage) -> None:
    with pytest.raises(ConfigError, match="group 'bare': the group has no members"):
        manage(WORLD).load(["a", StandardGroup(GroupConfig(group="bare"))])


@pytest.mark.parametrize("spec", [{"tag": "red"}, {"group": "e", "task": [{"tag": "red"}]}])
def test_a_tag_in_a_mapping_is_refused_with_how_to_select_it(spec: object, manage: Manage) -> None:
    with pytest.raises(ConfigError, match="write 'tag:NAME' for the tasks of a tag"):
        manage(WORLD).load([spec])  # type: ignore[list-item]


@pytest.mark.parametrize("member", ["z*", "tag:nothing", "tag:z*", "nothing"])
def test_a_member_that_nothing_is_called_is_refused(member: str, manage: Manage) -> None:
    with pytest.raises(ConfigError, match="named"):
        manage(WORLD).load([{"group": "e", "task": [member]}])


def test_a_run_of_a_registered_group_with_changes_asks_its_tasks(tasks: Path, run_assay: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"model: dummy\ninclude_path: {tasks}\ninclude_defaults: false\ntasks:\n  - group: both\n    num_fewshot: 1\n"
    )
    (tasks / "both.yaml").write_text("group: both\ntask: [t]\n")
    (tasks / "t.yaml").write_text(
        "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: t.jsonl}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [x, y]\ndoc_to_target: a\n"
    )
    (tasks / "t.jsonl").write_text('{"q": "p", "a": 0}\n{"q": "r", "a": 1}\n')
    ended = run_assay("run", "--config", tmp_path / "run.yaml", "--output_path", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    loaded = run_world.results(tmp_path / "out")
    assert (loaded["n-shot"]["t"], loaded["group_subtasks"]) == (1, {"both": ["t"]})
    (tmp_path / "run.yaml").write_text((tmp_path / "run.yaml").read_text().replace("both", "bath"))
    ended = run_assay("run", "--config", tmp_path / "run.yaml")
    assert (ended.returncode, "did you mean both" in ended.stderr) == (2, True)


def test_metadata_given_to_the_manager_reaches_every_task(manage: Manage) -> None:
    manager = manage({"t.yaml": a_task("t", metadata="{version: 3, x: 1}")}, metadata={"x": 2, "y": 3})
    assert manager.load("t")["tasks"]["t"].config.metadata == {"version": 3, "x": 2, "y": 3}


def test_a_registered_task_that_a_list_changes_is_shown_by_its_whole_name(manage: Manage) -> None:
    """Beside the one as it is in its file it would be another row of the same name; an inline one has no other."""
    members = "- {task: a, num_fewshot: 3}\n  - {group: nli, num_fewshot: 3}\n  - {task: fresh, dataset_path: d, doc_to_text: q}"
    manager = manage({**WORLD, "own.yaml": f"group: own\ntask:\n  {members}\n"})
    loaded = manager.load(["a", "nli", "own"])
    assert {name: task.alias for name, task in loaded["tasks"].items()} == {
        "a": "a",
        "b": "b",
        "own::nli::a": "own::nli::a",
        "own::nli::b": "own::nli::b",
        "own::fresh": "fresh",
    }
    assert {name: group.alias for name, group in loaded["groups"].items()} == {
        "nli": "nli",
        "own": "own",
        "own::nli": "own::nli",
    }


def test_a_folder_gives_a_task_that_its_groups_hold_within_these_alone(write: Write) -> None:
    group = "group: g\ntask: [{task: a, repeats: 2}, b]\n"
    folder = write({"x/a.yaml": a_task("a"), "x/b.yaml": a_task("b"), "x/g.yaml": group})
    loaded = TaskManager(include_path=folder, include_defaults=False).load(str(folder / "x"))
    assert (list(loaded["groups"]), list(loaded["tasks"])) == (["g"], ["a", "b"])
    assert loaded["tasks"]["a"].config.repeats == 2


def test_a_format_that_is_not_there_is_reported_where_it_is_asked_for(manage: Manage) -> None:
    """The list below changes the task, and asks for no format."""
    inner = "group: mid\ntask:\n  - task: a\n    repeats: 2\n"
    manager = manage({**WORLD, "mid.yaml": inner, "outer.yaml": "group: outer\ntask:\n  - task: mid@nope\n"})
    with pytest.raises(ConfigError, match=r"outer.yaml:3:\d+: .*'nope'"):
        manager.load("outer")


@pytest.mark.parametrize(
    ("spec", "formats"),
    [
        ("g", {"own": "fast", "plain": None, "t": "near"}),
        ("h", {"own": "fast", "plain": "slow", "t": "near"}),
        ("g@asked", dict.fromkeys(("own", "plain", "t"), "asked")),
        ("h@asked", dict.fromkeys(("own", "plain", "t"), "asked")),
    ],
)
def test_of_formats_that_of_the_command_counts_then_the_nearest(
    spec: str, formats: dict[str, str | None], write: Write
) -> None:
    keys = "dataset_path: json, doc_to_text: q, doc_to_target: a"
    folder = write(
        {
            "g.yaml": f"group: g\ntask: [{{task: own@fast, {keys}}}, {{task: plain, {keys}}}, t@near]\n",
            "h.yaml": "group: h\ntask: [g@slow]\n",
            "t.yaml": a_task("t"),
        }
    )
    [node] = Catalog(folder, include_defaults=False).select([spec]).nodes
    while not isinstance(node.children[0], TaskNode):  # type: ignore[union-attr]
        [node] = node.children  # type: ignore[union-attr]
    chosen = {task.name.rpartition("::")[2]: task.chosen_format for task in node.children}  # type: ignore[union-attr]
    assert chosen == formats
