"""Files of other programs in a folder of tasks, and files that say anything: at worst they are broken, and all others work."""

import contextlib
import copy
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import TaskManager
from assay.catalog import examine as examining
from assay.cli import main
from assay.errors import AssayError
from assay.tasks.validate import validate
from conftest import Write

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

FINE = """
    task: fine
    dataset_path: json
    dataset_kwargs: {data_files: {test: fine.jsonl}}
    test_split: test
    output_type: multiple_choice
    doc_to_text: q
    doc_to_choice: [a, b]
    doc_to_target: a
    metric_list: [{metric: acc}]
"""
ROWS = '{"q": "x", "a": 0}\n{"q": "y", "a": 1}\n'

BROKEN = {
    "a class without a name": "class: x.Y\n",
    "a class of !function without a name": "class: !function utils.Y\nnum_fewshot: 2\n",
    "a configuration of hydra": "task: {_target_: lib.Task, lr: 0.1}\nclass: lib.Model\n",
    "tasks of a playbook": "task: [{name: install}, {name: start}]\n",
    "a task that is a number": "task: 7\n",
    "a group that is a number": "group: 3\ntask: [fine]\n",
    "a group that is a mapping": "group: {a: 1}\n",
    "several documents": "apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Pod\n",
    "a Helm template": "name: {{ .Values.name }}\n{{- if .x }}\n",
    "nothing": "",
    "a comment": "# nothing here\n",
    "a list": "- hosts: all\n  tasks: []\n",
    "a text": "just words\n",
    "another program's tag": "Resources: !Ref Bucket\n",
    "a graph with a mapping for a type": """
        graph_config:
          nodes: {a: {node_type: {x: 1}}}
          edges: [{from: START, to: a}, {from: a, to: END}]
        output_config: {output_map: {x: {from: y}}}
    """,
}
"""What cannot be used, and is listed as such."""
IGNORED = {
    "docker-compose": "version: '3'\nservices:\n  db: {image: postgres, ports: ['1:1']}\n",
    "a GitHub workflow": "name: ci\non: [push]\njobs:\n  test: {runs-on: x, steps: [{uses: a/b@v4}, {run: make}]}\n",
    "a Kubernetes manifest": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 2}\n",
    "a model's settings": "model: gpt\nlayers: 12\noptimizer: {name: adam, betas: [0.9, 0.99]}\n",
    "keys that are not strings": "true: 1\n2: [3]\nnull: {4.5: x}\n",
    "pre-commit": "repos: [{repo: local, hooks: [{id: a}]}]\n",
}
"""Files that are clearly not tasks, which others may include."""


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["ls", "--json", "--include_path", str(folder), "--no_defaults"]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


def all_commands_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What concerns the other tasks works as if the file were not there."""
    catalog = ["--include_path", str(folder), "--no_defaults"]
    assert main(["ls", *catalog]) == 0
    assert "fine" in capsys.readouterr().out.splitlines()
    assert main(["validate", *catalog]) in (0, 1)
    assert main(["validate", "fine", *catalog]) == 0
    assert main(["show", "fine", *catalog]) == 0
    assert main(["run", "--model", "dummy", "--tasks", "fine", *catalog]) == 0
    assert "|fine" in capsys.readouterr().out


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_used_is_listed_as_broken_and_the_others_work(
    name: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS, "stray.yaml": BROKEN[name]})
    rows = listed(folder, capsys)
    by_name = str(folder / "stray.yaml") if "graph_config" in BROKEN[name] else "stray"  # a graph is run by its path
    assert set(rows) == {"fine", by_name}
    if "stray" in rows:
        assert rows["stray"]["kind"] == "broken"
        assert "stray.yaml" in rows["stray"]["error"]
    all_commands_work(folder, capsys)
    assert main(["validate", "--include_path", str(folder), "--no_defaults"]) == 1 or "graph_config" in BROKEN[name]
    assert main(["validate", str(folder / "stray.yaml"), "--no_defaults"]) == 1
    assert "cannot be checked" not in capsys.readouterr().out


@pytest.mark.parametrize("name", IGNORED)
def test_a_file_that_is_clearly_not_a_task_is_not_listed_and_the_others_work(
    name: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS, "stray.yaml": IGNORED[name]})
    assert set(listed(folder, capsys)) == {"fine"}
    all_commands_work(folder, capsys)
    assert [each for each in validate(TaskManager(include_path=folder, include_defaults=False)) if each.serious] == []


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\xff", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), b"\xff\xfe\xfd", b"\x80" * 99]
)
def test_a_binary_file_is_listed_as_broken_and_the_others_work(
    data: bytes, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS})
    (folder / "stray.yaml").write_bytes(data)
    assert listed(folder, capsys)["stray"]["kind"] == "broken"
    all_commands_work(folder, capsys)


def test_a_class_without_a_name_is_reported_with_the_missing_field(write: Write) -> None:
    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS, "stray.yaml": "class: x.Y\n"})
    manager = TaskManager(include_path=folder, include_defaults=False)
    assert any("stray.yaml" in str(each) and "key 'task' is missing" in str(each) for each in validate(manager))
    with pytest.raises(AssayError, match=r"'stray' is broken: .*stray.yaml:1:8: class must be a `!function`"):
        manager.load("stray")


def test_a_file_on_which_our_own_code_fails_is_broken_with_the_exception(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file is known: the fault is put in."""
    right = examining.declared_name

    def fails(fields: Any) -> str:
        if "odd" in fields:
            raise KeyError("odd")
        return right(fields)

    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS, "stray.yaml": "task: stray\nodd: 1\n"})
    monkeypatch.setattr(examining, "declared_name", fails)
    rows = listed(folder, capsys)
    assert rows["stray"]["kind"] == "broken"
    assert "stray.yaml:1:1: cannot be checked: KeyError: 'odd'" in rows["stray"]["error"]
    all_commands_work(folder, capsys)


TASK = FINE.replace("task: fine", "task: t")
ODD_TASKS: dict[str, tuple[str, str]] = {
    "a split that is true": (TASK.replace("{test: fine.jsonl}", "{true: 2}"), "data_files"),
    "a mapping for a file": (TASK.replace("{test: fine.jsonl}", "{test: {1: 2}}"), "data_files"),
    "a list of lists": (TASK.replace("{test: fine.jsonl}", "[[fine.jsonl]]"), "data_files"),
    "a number": (TASK.replace("{test: fine.jsonl}", "3"), "data_files"),
    "an invalid regular expression": (
        "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: fine.jsonl}}\ntest_split: test\ndoc_to_text: q\n"
        "doc_to_target: a\nmetric_list: [{metric: exact_match, regexes_to_ignore: ['(']}]\n",
        "regexes_to_ignore: '(' is not a regular expression",
    ),
    "a list for a regular expression": (
        "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: fine.jsonl}}\ntest_split: test\ndoc_to_text: q\n"
        "doc_to_target: a\nmetric_list: [{metric: exact_match, regexes_to_ignore: [[a]]}]\n",
        "is not a regular expression",
    ),
    "a list for a format": (TASK + "    formats: {exam: {type: [mcqa]}}\n", "no format named ['mcqa']"),
}


@pytest.mark.parametrize("name", ODD_TASKS)
def test_validate_says_what_is_wrong_with_odd_values_and_checks_the_others(name: str, write: Write) -> None:
    text, said = ODD_TASKS[name]
    slip = FINE.replace("task: fine", "task: z").replace("fine.jsonl", "gone.jsonl")
    folder = write({"t.yaml": dedent(text), "fine.jsonl": ROWS, "z.yaml": slip})
    result = [str(each) for each in validate(TaskManager(include_path=folder, include_defaults=False))]
    assert any("t.yaml:" in each and said in each for each in result), result
    assert any("z.yaml" in each and "gone.jsonl" in each for each in result)
    assert not any("cannot be checked" in each for each in result)


GRAPH = """
    task: g
    data_config: {source: {type: disk, file_path: fine.jsonl}}
    graph_config:
      nodes:
        measure:
          node_type: lambda
          lambda: sygra.core.eval.metrics.unit_metrics.unit_metrics.UnitMetrics
          golden_key: a
          predicted_key: q
          output_keys: [exact_match_result]
          unit_metrics_map: [{name: exact_match, params: {key: text}}]
      edges: [{from: START, to: measure}, {from: measure, to: END}]
    output_config: {output_map: {x: {from: q}}}
    graph_post_process:
      - processor: sygra.core.eval.metrics.aggregator_metrics.MetricCollatorPostProcessor
        params:
          aggregator_metrics_map: [{name: accuracy, unit_metrics_results: [x]}]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[{name: exact_match, params: {key: text}}]", "[exact_match]"),
        ("[{name: exact_match, params: {key: text}}]", "[[exact_match]]"),
        ("[{name: exact_match, params: {key: text}}]", "exact_match"),
        ("[{name: accuracy, unit_metrics_results: [x]}]", "[accuracy]"),
        ("[{name: accuracy, unit_metrics_results: [x]}]", "[{name: accuracy, unit_metrics_results: [[x]]}]"),
        ("    data_config: {source: {type: disk, file_path: fine.jsonl}}\n", ""),
        ("node_type: lambda", "node_type: [lambda]"),
        ("node_type: lambda", "node_type: {lambda: 1}"),
    ],
)
def test_graphs_with_odd_values_are_checked(
    old: str, new: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in GRAPH
    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS, "g.yaml": GRAPH.replace(old, new)})
    assert main(["validate", "--include_path", str(folder), "--no_defaults"]) in (0, 1)
    assert "cannot be checked" not in capsys.readouterr().out
    all_commands_work(folder, capsys)


# --- any file at all -------------------------------------------------------------------------------------------------


class _Tagged:
    """A `!function` while a file is taken apart."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Loader.add_constructor("!function", lambda _, node: _Tagged(node.value))
_Dumper.add_representer(_Tagged, lambda dumper, tagged: dumper.represent_scalar("!function", tagged.name))

ODD: list[Any] = [
    None, True, 0, -1, 3.5, 10**30, "", "x", "{{q}}", "(", "a.b", "../x", "x@y", "@", "\x00", "é\u202e", [], {}, [None],
    [[]], [{}], {"a": 1}, {1: 2}, {True: 2}, {None: None}, [1, "a"], ["("], {"task": "t"}, {"x": {"y": [1]}},
    _Tagged("utils.f"), {"function": _Tagged("m.n")}, [{"metric": []}], {"if": 3, "task": "fine"},
]  # fmt: skip
KEYS: list[Any] = [
    "task", "group", "tag", "class", "include", "format", "formats", "graph_config", "data_config", "output_config",
    "metric_list", "filter_list", "doc_to_text", "dataset_kwargs", "data_files", "fewshot_config", "node_type", "if", "type",
    "aggregate_metric_list", "group_filter", "scorer", "repeats", "graph_post_process", "metadata", True, 1, None,
]  # fmt: skip
REAL = ("mmlu/default/_mmlu.yaml", "gsm8k/gsm8k.yaml", "hellaswag/hellaswag.yaml", "wikitext/wikitext.yaml", "ifeval/ifeval.yaml",
        "leaderboard/leaderboard.yaml", "humaneval/humaneval.yaml", "glue/cola/default.yaml", "ruler/niah_single_1.yaml")  # fmt: skip


@pytest.fixture(scope="session")
def real_files(lm_eval_folder: Path) -> list[Any]:
    """Files of lm-eval, those in our own pages, and a graph, as values."""
    texts = [(lm_eval_folder / "lm_eval/tasks" / name).read_text() for name in REAL]
    docs = Path(__file__).parent.parent / "docs"
    for page in ("groups.md", "tasks.md", "graphs.md", "scorers.md"):
        texts += re.findall(r"```yaml\n(.*?)```", (docs / page).read_text(), re.DOTALL)
    result = [yaml.load(text, _Loader) for text in [*texts, dedent(GRAPH)]]  # a safe loader
    return [each for each in result if isinstance(each, dict)]


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from ways(each, (*way, key))


def changed(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The value with something in it replaced, taken out, put in, wrapped, or called otherwise."""
    [*before, last] = draw(st.sampled_from(list(ways(value)))) or (None,)
    odd = copy.deepcopy(draw(st.sampled_from(ODD)))
    around = value
    for step in before:
        around = around[step]
    what = draw(st.sampled_from(["replace", "replace", "replace", "delete", "add", "wrap", "rename"]))
    if last is None or (what == "add" and isinstance(around, dict)):
        return {**value, draw(st.sampled_from(KEYS)): odd} if around is value else _put(value, around, draw, odd)
    if what == "delete":
        del around[last]
    elif what == "wrap":
        around[last] = [around[last]]
    elif what == "rename" and isinstance(around, dict):
        around[draw(st.sampled_from(KEYS))] = around.pop(last)
    else:
        around[last] = odd
    return value


def _put(value: Any, around: dict[Any, Any], draw: Callable[[Any], Any], odd: Any) -> Any:
    around[draw(st.sampled_from(KEYS))] = odd
    return value


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_content_of_task_files_makes_listing_or_checking_raise(data: st.DataObject, real_files: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(5):
            value = copy.deepcopy(data.draw(st.sampled_from(real_files)))
            for _ in range(data.draw(st.integers(1, 3))):
                value = changed(value, data.draw) if isinstance(value, dict) and value else {"task": 1}
            text = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False)
            (Path(folder) / f"m{number}.yaml").write_text(text, encoding="utf-8")
        (Path(folder) / "fine.yaml").write_text(dedent(FINE))
        (Path(folder) / "fine.jsonl").write_text(ROWS)
        catalog = ["--include_path", folder, "--no_defaults"]
        for command in (["ls"], ["validate"], ["validate", "--compat", "lm-eval"], ["show", "fine"]):
            assert main([*command, *catalog]) in (0, 1)


# --- many files at once, each bad in another way ---------------------------------------------------------------------

BAD = FINE.replace("task: fine", "task: %s")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):  # the path of a socket must be short
        server.bind(path.name)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


def _written(text: str | bytes) -> Callable[[Path], object]:
    data = text if isinstance(text, bytes) else dedent(text).encode()
    return lambda path: path.write_bytes(data.replace(b"%s", path.stem.encode()))


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a_pipe": (os.mkfifo, "folder, pipe or device"),
    "a_socket": (_socket, "folder, pipe or device"),
    "a_device": (lambda path: path.symlink_to("/dev/zero"), "folder, pipe or device"),
    "a_terminal": (lambda path: path.symlink_to("/dev/tty"), "folder, pipe or device"),
    "a_loop": (lambda path: path.symlink_to(path.name), "cannot be read: it is a link to a missing file"),
    "a_dangling_link": (lambda path: path.symlink_to("nowhere"), "cannot be read: it is a link to a missing file"),
    "of_3_gigabytes": (_sparse, "larger than 64 MiB"),
    "of_too_many_values": (_written(b"task: %s\nx: [" + b"a," * 600_000 + b"]\n"), "more than 500,000 values"),
    "nested": (_written(b"task: %s\nx: " + b"[" * 20_000), "nested more than 100 levels deep"),
    "nested_blocks": (_written(b"".join(b" " * n + b"a:\n" for n in range(300))), "nested more than 100 levels deep"),
    "latin_1": (_written((BAD + "    description: caf\xe9\n").encode("latin-1")), "save the file as UTF-8"),
    "utf_16_without_a_mark": (_written(BAD.encode("utf-16-be")), "save the file as UTF-8"),
    "a_nul": (_written(BAD.encode() + b'    description: "a\0b"\n'), "save the file as UTF-8"),
    "code_in_a_tag": (_written("task: %s\nx: !!python/object/apply:os.system [echo]\n"), "unknown tag"),
    "a_name_in_a_tag": (_written("task: %s\nx: !!python/name:os.system\n"), "unknown tag"),
    "a_tag": (_written("task: !mine %s\n"), "unknown tag"),
    "key_twice": (_written("task: %s\ntask: %s\n"), "written twice"),
    "a_list_as_a_key": (_written("task: %s\n? [a, b]\n: 1\n"), "unhashable key"),
    "a_bomb": (_written("task: %s\na: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True))), "values"),
    "an_alias_of_itself": (_written("task: %s\na: &a [*a]\n"), "refers to itself"),
    "a_date": (_written("task: %s\nversion: 2020-13-45\n"), "month must be in 1..12"),
    "digits": (_written("task: %s\nnum_fewshot: " + "9" * 6000 + "\n"), "cannot be read"),
    "half_a_character": (_written('task: %s\ndescription: "\\ud800"\n'), "correct the YAML here"),
    "open_list": (_written("task: %s\ndoc_to_choice: [a, b\n"), "is not closed"),
    "control_characters": (_written('task: "x\\e[31m"\n'), "contains"),
    "includes_itself": (_written("include: includes_itself.yaml\ntask: %s\n"), "in a circle"),
    "includes_nothing": (_written("include: gone.txt\ntask: %s\n"), "no file"),
    "includes_a_folder": (_written("include: .\ntask: %s\n"), "folder, pipe or device"),
    "includes_a_pipe": (_written("include: a_pipe.yaml\ntask: %s\n"), "folder, pipe or device"),
    "includes_a_device": (_written("include: /dev/zero\ntask: %s\n"), "folder, pipe or device"),
    "includes_a_giant": (_written("include: of_3_gigabytes.yaml\ntask: %s\n"), "larger than 64 MiB"),
    "includes_json": (_written("include: broken.json\ntask: %s\n"), "correct the YAML here"),
    "includes_bytes": (_written("include: picture.png\ntask: %s\n"), "save the file as UTF-8"),
    "includes_data": (_written("include: fine.jsonl\ntask: %s\n"), ""),
    "includes_an_address": (_written("include: http://127.0.0.1:1/x.yaml\ntask: %s\n"), "no file"),
    "repeats_for_ever": (_written(BAD + "    repeats: 99999999999\n"), "must be at most 100000"),
    "infinite_examples": (_written(BAD + "    num_fewshot: .inf\n"), "num_fewshot must be"),
    "class_without_a_name": (_written("class: x.Y\n"), "key 'task' is missing"),
}  # fmt: skip
"""Files by name, each with a part of the message that `validate` prints about it."""
CHECKED: dict[str, tuple[str, str]] = {
    "helper_is_a_pipe": ("process_docs: !function pipe.f", "pipe.py is not a regular file"),
    "helper_is_a_device": ("process_docs: !function device.f", "device.py is not a regular file"),
    "helper_is_a_folder": ("process_docs: !function folder.f", "folder.py is not a regular file"),
    "helper_with_a_slip": ("process_docs: !function slip.f", "slip.py cannot be read: SyntaxError: invalid syntax"),
    "helper_with_a_nul": ("process_docs: !function nul.f", "null bytes"),
    "helper_too_deep": ("process_docs: !function deep.f", "deep.py cannot be read: SyntaxError: too many nested"),
    "helper_missing": ("process_docs: !function absent.f", "no module 'absent'"),
    "helper_without_it": ("process_docs: !function good.g", "good.py has no 'g'"),
    "group_of_itself": ("", "in a circle"),
    "group_of_none": ("", "no task, group or tag named 'missing'"),
    "group_of_a_broken_file": ("", "'open_list' is broken"),
}
"""Tasks and groups that are listed, and of which `validate` prints this."""


ELSEWHERE = {"includes_json": "broken.json", "includes_bytes": "picture.png", "includes_data": "fine.jsonl",
             "includes_a_giant": "of_3_gigabytes.yaml"}  # fmt: skip
"""Files whose problem is that of the file they include."""


def bad_world(folder: Path) -> None:
    for name, (make, _) in FILES.items():
        make(folder / f"{name}.yaml")
    for name, (line, _) in CHECKED.items():
        text = dedent(BAD % name) + line + "\n"
        if name.startswith("group_"):
            member = {"group_of_itself": name, "group_of_none": "missing"}.get(name, "open_list")
            text = f"group: {name}\ntask: [{member}]\n"
        (folder / f"{name}.yaml").write_text(text)
    (folder / "broken.json").write_text('{"a": [1,}')
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (folder / "named.yaml").mkdir()
    (folder / "around").symlink_to(".")
    os.mkfifo(folder / "pipe.py")
    (folder / "device.py").symlink_to("/dev/zero")
    (folder / "folder.py").mkdir()
    (folder / "slip.py").write_text("def f(:\n")
    (folder / "nul.py").write_bytes(b"def f(d): return d\n\0")
    (folder / "deep.py").write_text(f"x = {'(' * 5000}{')' * 5000}\ndef f(d): return d\n")
    (folder / "good.py").write_text("def f(d): return d\n")


def test_a_good_task_among_fifty_bad_files_works_and_each_of_them_is_reported(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write({"fine.yaml": FINE, "fine.jsonl": ROWS})
    bad_world(folder)
    began = time.monotonic()
    all_commands_work(folder, capsys)
    assert main(["validate", "--include_path", str(folder), "--no_defaults"]) == 1
    lines = capsys.readouterr().out.splitlines()
    for name, said in {name: said for table in (FILES, CHECKED) for name, (_, said) in table.items()}.items():
        about = [line for line in lines if f"/{ELSEWHERE.get(name, f'{name}.yaml')}:" in line]
        assert any(said in line for line in about), (name, about)
        assert all(" — " in line or "must be a whole number" in line for line in about), about
    assert not any("cannot be checked" in line for line in lines)
    everything = ["fine", *FILES, *CHECKED]
    assert (
        main(["run", "--model", "dummy", "--tasks", *everything, "--include_path", str(folder), "--no_defaults"]) == 2
    )
    said = capsys.readouterr().err
    assert [name for name in everything[1:] if name not in said] == []
    assert "fine.yaml" not in said
    assert time.monotonic() - began < 100
