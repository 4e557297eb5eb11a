"""`validate` with files that are changed at random: it lists problems, and never raises or calls a file uncheckable."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay import TaskManager
from assay.config.run import RunConfig
from assay.errors import Problem
from assay.evaluation.prepare import find_problems
from conftest import Write

pytestmark = pytest.mark.slow
BUNDLED = sorted((Path(__file__).parent.parent / "src/assay/bundled").rglob("*.yaml"))
TASK: dict[str, Any] = {
    "task": "t", "tag": ["a"], "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "d.jsonl", "few": "d.jsonl"}}, "test_split": "test", "fewshot_split": "few",
    "num_fewshot": 1, "output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": "answer",
    "doc_to_choice": "choices", "description": "D {{topic}}", "gen_prefix": "topic", "process_docs": "!function h.keep",
    "process_results": "!function h.score", "fewshot_config": {"sampler": "first_n", "doc_to_text": "{{question}}", "split": "few"},
    "generation_kwargs": {"until": ["."], "temperature": 0.5}, "repeats": 2,
    "filter_list": [{
        "name": "f", "filter": [{"function": "regex", "regex_pattern": "x"}, {"function": "take_first"}],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "reduction": ["max"]}],
        "scorer": {"type": "generation", "kwargs": {}},
    }],
    "metric_list": [{"metric": "!function h.close", "aggregation": "mean", "higher_is_better": True, "width": 1}],
    "formats": {"type": "mcqa", "instruction": "x"}, "metadata": {"version": 1.0}, "cluster_by": "topic",
}  # fmt: skip
GROUP: dict[str, Any] = {
    "group": "g", "task": ["t", {"task": "t", "num_fewshot": 2}, {"group": "i", "task": ["t"]}],
    "aggregate_metric_list": [{"metric": "exact_match", "aggregation": "mean", "weight_by_size": True, "filter_list": ["f"], "kwargs": {}, "name": "n"}],
    "group_alias": "G", "group_filter": {"top_k": 1}, "metadata": {"version": 1}, "type": "StandardGroup",
}  # fmt: skip
HELPERS = "def keep(rows): return rows\ndef score(doc, results): return {'exact_match': 1.0}\ndef close(references, prediction, *, width: int = 1): return 1.0\n"
ROWS = "".join(
    json.dumps({"question": f"q{n}", "answer": "x", "choices": ["x", "y"], "topic": "t"}) + "\n" for n in range(3)
)
VALUES = [
    None, True, 0, -1, 3.5, float("nan"), 10**30, "", "x", "question", "{{", "{{ x | y }}", "!function h.nope", "!function q.z", "\x00",
    "é\u2028", "t", [], {}, [[]], [{}], {"": 1}, {"a": {"b": [1]}}, {1: 2}, {"function": "regex"}, [{"metric": 5}], [None], {None: None},
    "take_first", "ensemble", {"type": "ensemble", "kwargs": {"scorers": [1]}}, {"type": "llm_judge", "kwargs": {"scale": "x"}},
    {"data_files": 5}, {"data_files": {"test": [1]}}, {"data_files": {"test": "d.jsonl"}, "field": 3}, {"run": "."}, "assay", "csv", "./", "~",
]  # fmt: skip
KEYS = ["x", "nam", "task", "metric", "function", "kwargs", 5, "include", "class", "use_prompt"]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from paths(each, (*path, key))


@st.composite
def changed(draw: st.DrawFn, whole: dict[str, Any]) -> dict[str, Any]:
    """The same mapping with some values, keys or entries replaced, renamed, added or removed."""
    value = copy.deepcopy(whole)
    for _ in range(draw(st.integers(0, 3))):
        every = list(paths(value))
        if not every:
            break
        *before, last = draw(st.sampled_from(every))
        inner = value
        for step in before:
            inner = inner[step]
        change = draw(st.sampled_from(["replace", "replace", "rename", "add", "remove"]))
        if change == "replace":
            inner[last] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif change == "remove":
            del inner[last]
        elif isinstance(inner, dict) and change == "rename":
            inner[f"{last}x"] = inner.pop(last)
        elif isinstance(inner, dict):
            inner[draw(st.sampled_from(KEYS))] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return value


def written(value: dict[str, Any]) -> str:
    return re.sub(r"'(!function [^']*)'", r"\1", yaml.safe_dump(value, sort_keys=False))


def problems(folder: Path, *, load: bool) -> list[Problem]:
    manager = TaskManager(include_path=folder, include_defaults=False)
    every = find_problems(manager, RunConfig(), None, load=load)
    assert [str(each) for each in every if "report this as a bug" in each.fix] == []
    return every


quietly = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quietly
@given(task=changed(TASK), group=changed(GROUP), load=st.booleans())
def test_a_changed_task_or_group_is_listed_with_its_problems(
    task: dict[str, Any], group: dict[str, Any], load: bool, write: Write
) -> None:
    folder = write({"t.yaml": written(task), "g.yaml": written(group), "h.py": HELPERS, "d.jsonl": ROWS})
    problems(folder, load=load)


@quietly
@given(data=st.data())
def test_a_bundled_file_with_a_piece_replaced_is_listed_with_its_problems(data: st.DataObject, write: Write) -> None:
    text = data.draw(st.sampled_from(BUNDLED)).read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    piece = data.draw(
        st.sampled_from(["", ":", "{{", "}}", "[", "- ", "\t", "'", "!function a.b", "0", "\n", "&a", "*a", "é"])
    )
    problems(write({"t.yaml": text[:start] + piece + text[start + data.draw(st.integers(0, 9)) :]}), load=False)


MODULES = {
    "a syntax error": "def keep(rows:\n",
    "an exit": "import sys\nsys.exit(0)\ndef keep(rows): return rows\n",
    "an exit without a message": "raise SystemExit\ndef keep(rows): return rows\n",
    "recursion without end": "def f(): return f()\nf()\ndef keep(rows): return rows\n",
    "a circle of imports": "import other\ndef keep(rows): return rows\n",
    "an import of itself": "import h\ndef keep(rows): return rows\n",
    "an error that cannot be printed": "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd\ndef keep(rows): return rows\n",
    "a keep that is a number": "keep = 5\n",
    "a keep that returns nothing": "def keep(rows): return None\n",
    "a keep that returns numbers": "def keep(rows): return [1, 2]\n",
    "a keep that returns other columns": "def keep(rows): return [{'q': 1}, {'z': 2}]\n",
    "a keep that exits": "def keep(rows): raise SystemExit(2)\n",
    "deep nesting": "keep = " + "(" * 3000 + "1" + ")" * 3000 + "\n",
    "a null byte": "keep = 1\x00\n",
    "other bytes": "keep = '\udcff'\n",
    "nothing": "",
    "a deleted name": "def keep(rows): return rows\ndel keep\n",
    "a name made while running": "globals()['keep'] = lambda rows: rows\n",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_any_helper_module_is_read_and_loaded_without_a_traceback(name: str, write: Write) -> None:
    task = {
        key: value
        for key, value in TASK.items()
        if key not in ("process_results", "filter_list", "metric_list", "formats")
    }
    folder = write({"t.yaml": written(task), "other.py": "import h\n", "d.jsonl": ROWS})
    (folder / "h.py").write_bytes(MODULES[name].encode("utf-8", "surrogateescape"))
    problems(folder, load=False)
    is_right = name in ("a name made while running", "a circle of imports", "an import of itself")
    assert any(each.serious for each in problems(folder, load=True)) is not is_right
