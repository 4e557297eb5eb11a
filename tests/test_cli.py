"""The command line, run as a user runs it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from commands import Run
from conftest import Write, a_task

FILES = {
    "a.yaml": a_task("alpha", tag="red", num_fewshot="3"),
    "b.yaml": "task: beta\ninclude: base.yaml\ntag: [red, blue]\n",
    "base.yaml": "dataset_path: some/data\ndoc_to_text: question\n",
    "g.yaml": "group: gamma\ngroup_alias: The third\ntask:\n  - alpha\n  - group: inner\n    task: [beta]\n"
    "aggregate_metric_list:\n  - {metric: acc, missing: skip}\nmetadata: {version: 2, description: What it measures}\n",
}


def test_help_names_every_command(run_assay: Run) -> None:
    said = run_assay("--help")
    assert said.returncode == 0
    for command in ("ls", "show", "validate", "new", "schema"):
        assert f"  {command} " in said.stdout


def test_ls_lists_names_one_a_line_when_piped(write: Write, run_assay: Run) -> None:
    folder = write(FILES)
    expected = {
        "tasks": ["alpha", "beta", "blue", "gamma", "red"],
        "subtasks": ["alpha", "beta"],
        "groups": ["gamma"],
        "tags": ["blue", "red"],
    }
    for kind, names in expected.items():
        assert run_assay("ls", kind, "--no_defaults", "--include_path", folder).stdout.splitlines() == names
    assert run_assay("ls", "--no_defaults", "--include_path", folder).stdout.splitlines() == expected["tasks"]
    matched = run_assay("ls", "--pattern", "[ab]*", "--no_defaults", "--include_path", folder)
    assert matched.stdout.split() == ["alpha", "beta", "blue"]


def test_ls_lists_graphs_without_a_name_as_they_are_run(write: Write, run_assay: Run) -> None:
    """By the name of their folder, or by path where no name finds them; a graph below another is its subgraph."""
    graph = "graph_config: {nodes: {a: {node_type: lambda, lambda: x.y}}, edges: [{from: START, to: a}, {from: a, to: END}]}\n"
    places = [
        "tasks/eval/one/graph_config.yaml",
        "tasks/eval/one/part/graph_config.yaml",
        "two/graph_config.yaml",
        "own.yaml",
    ]
    folder = Path(write({**dict.fromkeys(places, graph), "named.yaml": "task: named\n" + graph}))
    listed = run_assay("ls", "--no_defaults", "--include_path", str(folder)).stdout.splitlines()
    assert listed == ["named", str(folder / "own.yaml"), "eval.one", "two"]
    for name in listed:
        shown = run_assay("show", name, "--no_defaults", "--include_path", str(folder))
        assert shown.returncode == 0 and "START" in shown.stdout, shown
    [row] = json.loads(
        run_assay("ls", "--json", "--pattern", "eval*", "--no_defaults", "--include_path", str(folder)).stdout
    )
    assert (row["name"], row["kind"], row["path"]) == ("eval.one", "task", str(folder / places[0]))


def test_ls_gives_json(write: Write, run_assay: Run) -> None:
    folder = write(FILES)
    rows = json.loads(run_assay("ls", "--json", "--no_defaults", "--include_path", folder).stdout)
    assert [(row["name"], row["kind"], row["path"] and Path(row["path"]).name) for row in rows] == [
        ("alpha", "task", "a.yaml"), ("beta", "task", "b.yaml"), ("blue", "tag", None), ("gamma", "group", "g.yaml"),
        ("red", "tag", None),
    ]  # fmt: skip


def test_ls_knows_formats_and_every_other_kind(run_assay: Run) -> None:
    assert run_assay("ls", "formats").stdout.split() == ["cloze", "cot", "generate", "mcqa"]
    for kind in ("models", "metrics", "filters", "scorers"):
        assert run_assay("ls", kind).returncode == 0


def test_include_path_may_be_given_again_or_joined(write: Write, run_assay: Run) -> None:
    first = write({"a.yaml": a_task("a")})
    second = write({"../more/b.yaml": a_task("b")}).parent / "more"
    again = run_assay("ls", "--no_defaults", "--include_path", first, "--include_path", second)
    joined = run_assay("ls", "--no_defaults", "--include_path", f"{first}:{second}")
    assert again.stdout.split() == joined.stdout.split() == ["a", "b"]


def test_show_prints_each_key_with_its_source_line(write: Write, run_assay: Run) -> None:
    folder = write(FILES)
    shown = run_assay("show", "beta", "--include_path", folder).stdout
    assert "beta  ·  task, generate_until" in shown
    assert "tags: red, blue" in shown
    assert "in groups: gamma" in shown
    assert any(line.split() == ["dataset_path", "some/data", "base.yaml:1"] for line in shown.splitlines())
    assert any(line.split() == ["task", "beta", "b.yaml:1"] for line in shown.splitlines())
    described = json.loads(run_assay("show", "beta", "--json", "--include_path", folder).stdout)
    assert described["tasks"]["beta"]["config"]["doc_to_text"] == "question"
    assert described["tasks"]["beta"]["origin"]["doc_to_text"].endswith("base.yaml:2:1")


def test_show_draws_the_tree_of_a_group(write: Write, run_assay: Run) -> None:
    folder = write(FILES)
    shown = run_assay("show", "gamma", "--include_path", folder).stdout
    assert shown.splitlines()[:7] == [
        "gamma  ·  group, 2 tasks, 1 group below, version 2",
        "description: What it measures",
        "",
        "gamma (The third)  [acc]",
        "├─ alpha",
        "└─ gamma::inner (inner)",
        "   └─ beta",
    ]
    assert ["group_alias", "The", "third", "g.yaml:2"] in [line.split() for line in shown.splitlines()]
    shallow = run_assay("show", "gamma", "--depth", "1", "--include_path", folder).stdout
    assert "   └─ … 1 task" in shallow.splitlines()


def test_show_runs_no_helper_code_unless_asked_to(write: Write, run_assay: Run) -> None:
    trap = "from pathlib import Path\nPath(__file__).with_name('sprung').touch()\n\n\ndef f(x): return x\n"
    folder = write({"t.yaml": a_task("t", process_docs="!function utils.f"), "utils.py": trap})
    assert "!function utils.f" in run_assay("show", "t", "--include_path", folder).stdout
    assert run_assay("validate", folder).returncode == 0
    assert not (folder / "sprung").exists()
    assert "utils.py:5" in run_assay("show", "t", "--render", "--include_path", folder).stdout
    assert (folder / "sprung").exists()


def test_show_prints_how_a_format_changes_the_task(write: Write, run_assay: Run) -> None:
    shown = run_assay("show", "alpha@generate", "--include_path", write(FILES)).stdout
    assert "rewritten by the format" in shown
    assert "note: metric_list of 'alpha' is ignored: it is for multiple_choice" in shown


def test_a_name_that_is_not_there_ends_with_suggestions_and_code_2(write: Write, run_assay: Run) -> None:
    said = run_assay("show", "alpa", "--include_path", write(FILES))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("tasks: no task, group or tag named 'alpa' — did you mean alpha?")


def test_validate_ends_with_1_on_any_error_and_0_without(write: Write, run_assay: Run) -> None:
    folder = write(FILES)
    for asked in (
        [folder],
        ["alpha", "--include_path", folder],
        ["--no_defaults", "--include_path", folder],
        ["first_steps"],
    ):
        good = run_assay("validate", *asked)
        assert (good.returncode, good.stdout) == (0, "0 problems, 0 notes\n")
    write({"slip.yaml": "task: slip\nnum_fewshto: 3\ndataset_path: some/data\n"})
    bad = run_assay("validate", folder)
    assert bad.returncode == 1
    assert bad.stdout.splitlines() == [
        f"{folder}/slip.yaml:2:1: unknown key 'num_fewshto' — did you mean 'num_fewshot'?",
        "1 problem, 0 notes",
    ]
    assert run_assay("validate", "alpha", "--include_path", folder).returncode == 0
    assert run_assay("validate", "slip", "--include_path", folder).returncode == 1
    assert run_assay("validate", folder / "slip.yaml").returncode == 1
    assert run_assay("validate", "--tasks", "alpha,beta", "--include_path", folder).returncode == 0
    assert run_assay("validate", "nobody", "--include_path", folder).returncode == 1
    as_data = json.loads(run_assay("validate", folder, "--json").stdout)
    assert [(row["line"], row["column"], row["serious"]) for row in as_data] == [(2, 1, True)]


def test_validate_reads_templates(write: Write, run_assay: Run) -> None:
    folder = write({"t.yaml": 'task: t\ndataset_path: json\ndoc_to_text: "{{question"\n'})
    said = run_assay("validate", folder)
    assert said.returncode == 1
    assert "t.yaml:3:14: doc_to_text is not a valid template" in said.stdout


@pytest.mark.parametrize("kind", ["task", "group"])
def test_new_writes_a_starter_that_is_valid_and_is_never_overwritten(kind: str, run_assay: Run, tmp_path: Path) -> None:
    ended = run_assay("new", kind, "my_first", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    text = (tmp_path / "my_first.yaml").read_text()
    assert text.count("#") > 8
    assert run_assay("validate", "./my_first.yaml", cwd=tmp_path).stdout == "0 problems, 0 notes\n"
    assert run_assay("show", "./my_first.yaml", cwd=tmp_path).returncode == 0
    again = run_assay("new", kind, "my_first", cwd=tmp_path)
    assert (again.returncode, (tmp_path / "my_first.yaml").read_text()) == (2, text)
    elsewhere = run_assay("new", kind, "my_first", "--dir", tmp_path / "deep/er")
    assert (elsewhere.returncode, (tmp_path / "deep/er/my_first.yaml").exists()) == (0, True)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a b", "x@mcqa", ""])
def test_new_refuses_invalid_names(name: str, run_assay: Run, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert run_assay("new", "task", name).returncode == 2
    assert sorted(tmp_path.rglob("*")) == before


class _FunctionsAsText(yaml.SafeLoader):
    pass


_FunctionsAsText.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["task", "group", "format", "run"])
def test_schema_is_a_valid_json_schema(kind: str, run_assay: Run) -> None:
    schema = json.loads(run_assay("schema", kind).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert all(value["description"] for value in schema["properties"].values())


def test_the_schema_accepts_what_we_accept_and_refuses_what_we_refuse(run_assay: Run) -> None:
    schemas = {kind: json.loads(run_assay("schema", kind).stdout) for kind in ("task", "group", "graph")}
    bundled = Path(__file__).parent.parent / "src/assay/bundled"
    checked = 0
    for path in bundled.rglob("*.yaml"):
        value = yaml.load(path.read_text(), _FunctionsAsText)  # a safe loader
        for key, kind in (("graph_config", "graph"), ("group", "group"), ("task", "task")):
            if key in value:
                jsonschema.validate(value, schemas[kind])
                checked += 1
                break
    assert checked >= 4
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"graph_config": {"nodes": {}, "edges": [], "egdes": []}}, schemas["graph"])
    for wrong in ({"task": "t", "doc_to_txt": "q"}, {"task": "t", "num_fewshot": "five"}, {"doc_to_text": "q"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schemas["task"])


def test_escapes_in_names_and_texts_do_not_reach_the_terminal(write: Write, run_assay: Run) -> None:
    folder = write({"t.yaml": 'task: t\ndataset_path: json\ndescription: "a\\e[31mb\\e]0;title\\a"\nx\\e[2J: 1\n'})
    (folder / "e\x1b[31mvil.yaml").write_text("task: [", encoding="utf-8")
    for command in (("show", "t"), ("validate",), ("ls",), ("ls", "--json")):
        said = run_assay(*command, "--no_defaults", "--include_path", folder)
        assert "\x1b" not in said.stdout + said.stderr


def test_output_is_a_table_on_a_terminal(write: Write) -> None:
    folder = write(FILES)
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "assay", "ls", "--no_defaults", "--include_path", str(folder)]
    subprocess.run(command, stdout=theirs, check=True)
    os.close(theirs)
    shown = os.read(mine, 100_000).decode()
    os.close(mine)
    assert "\x1b[1mname" in shown
    assert any(line.split()[:2] == ["gamma", "group"] for line in shown.splitlines())


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m assay schema task | head -1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "{"
    assert ended.stderr == ""


def test_show_renders_the_first_sample_when_asked(run_assay: Run) -> None:
    shown = run_assay("show", "first_steps_sums", "--render").stdout
    assert "763 + 32 = 795" in shown
    assert "target: '90'" in shown
