"""What is trusted and when: the rows of decision 26 that have no other test, and that each row has one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from assay.config.source import Source
from canary_world import said_by
from small_runs import noting, run, write_task

ROOT = Path(__file__).parent.parent
DECISION = ROOT / "docs/decisions/0026-threat-model.md"
TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


def test_every_row_of_the_decision_has_a_test_that_exists() -> None:
    rows = [line for line in DECISION.read_text().splitlines() if line.startswith("| ")][1:]
    for row in rows:
        named = re.findall(r"`(\w+\.py)::(\w+)`", row.rpartition(" | ")[2])
        assert named, row
        for file, name in named:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), (file, name)
    assert len(rows) >= 15


FUNCTION = "!function helper.f"
FILES = {
    "a.yaml": f"task: a\ntest_split: test\ndataset_path: json\ndoc_to_text: {FUNCTION}\ndoc_to_target: gold\n"
    "dataset_kwargs: {data_files: {test: t.jsonl}}\n"
    f"process_results: {FUNCTION}\nmetric_list: [{{metric: {FUNCTION}, aggregation: {FUNCTION}}}]\n",
    "b.yaml": "task: b\nclass: !function helper.T\n",
    "c.yaml": f"task: c\ncustom_dataset: {FUNCTION}\ntest_split: test\ndoc_to_text: q\ndoc_to_target: gold\nscorer: {FUNCTION}\n",
    "g.yaml": "group: g\ntask: [a, b]\n",
    "graph_config.yaml": json.dumps({
        "data_config": {"source": {"type": "disk", "file_path": "t.jsonl"}},
        "graph_config": {
            "nodes": {"n": {"node_type": "lambda", "lambda": "helper.f", "output_keys": "x"}},
            "edges": [{"from": "START", "to": "n"}, {"from": "n", "to": "END"}],
        },
    }),
}  # fmt: skip


def test_listing_showing_and_checking_run_no_code(tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace", tmp_path / "tasks"
    folder.mkdir()
    traced = f"open({str(trace)!r}, 'w').close()"
    (folder / "helper.py").write_text(
        f"{traced}\n\n\nclass T:\n    def __init__(self, a=[{traced}], *_, **__):\n        {traced}\n\n\n"
        f"def f(*_, a: [{traced}] = [{traced}], **__) -> [{traced}]:\n    {traced}\n    return 'x'\n"
    )
    for name in ("__init__.py", "conftest.py", "task_executor.py"):
        (folder / name).write_text((folder / "helper.py").read_text())
    (folder / "t.jsonl").write_text('{"q": "a", "gold": "x"}\n')
    for name, text in FILES.items():
        (folder / name).write_text(text)
    catalog = ["--include_path", folder, "--no_defaults"]
    for name in ("a", "b", "c", "g", folder / "graph_config.yaml"):
        for further in ([], ["--json"]):
            assert said_by("show", name, *further, *catalog).code == 0
    said_by("show", folder / "graph_config.yaml", "--mermaid", *catalog)
    said_by("ls", *catalog)
    said_by("validate", *catalog)
    said_by("validate", folder)
    said_by("validate", folder / "graph_config.yaml")
    assert not trace.exists()
    said_by("show", "a", "--render", *catalog)
    assert trace.exists()  # the trace would have shown


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ q.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.environ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '%s' | attr('__class__') }}",
        "{{ '{0.__class__}'.format(q) }}",
    ],
)
def test_templates_reach_no_python(template: str, tmp_path: Path) -> None:
    write_task(
        tmp_path, [{"q": "a", "gold": "x"}], TASK.replace("doc_to_text: q", f"doc_to_text: {json.dumps(template)}")
    )
    prompts: list[str] = []
    try:
        run(tmp_path, noting(prompts))
    except ValueError as refused:
        assert "Traceback" not in str(refused)
    assert not re.search("class|builtin|environ|HOME", " ".join(prompts))


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system [true]", "!!python/name:os.system", "!!python/module:os"]
)
def test_yaml_makes_no_objects(tag: str) -> None:
    source = Source("t.yaml", f"task: {tag}\n".encode())
    value: Any = source.value
    assert source.problems or isinstance(value["task"], str | list)


def test_a_terminal_gets_no_control_characters(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "a\x1b]0;title\x07\x1b[2J", "gold": "\u202ex"}], TASK)
    run(tmp_path, noting([]), output_path=str(tmp_path / "run"))
    catalog = ["--include_path", tmp_path, "--no_defaults"]
    said = said_by("samples", tmp_path / "run", "--full"), said_by("run", "-t", "t", *catalog, "--dry_run")
    for each in said:
        assert each.code == 0 and "title" in each.printed
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", each.printed)
