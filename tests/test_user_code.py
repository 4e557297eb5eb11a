"""Helper code that raises, ends the process or returns nonsense: its document fails, or its task; everything else runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import assay
import run_world
from assay.models import Scripted
from commands import Run
from conftest import Write
from graph_world import write_graph

pytestmark = pytest.mark.slow  # many runs: too long for `make quick`


HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: test\n"
FINE = f'task: fine\n{HEAD}doc_to_text: "{{{{q}}}}"\ndoc_to_target: a\n'
GENERATE = {"doc_to_text": "q", "doc_to_target": "a"}
CHOICE = {"output_type": "multiple_choice", "doc_to_text": "q", "doc_to_target": "0", "doc_to_choice": "c"}
ROWS = "".join(json.dumps({"q": f"q{n}", "a": "x", "c": ["x", "y"], "n": n}) + "\n" for n in range(6))

RAISING = {
    "a missing key": "return doc['gold']",
    "an error": "raise RuntimeError('no luck')",
    "a user-defined error whose message raises": "raise Odd()",
    "the end of the process": "sys.exit(0)",
    "another end of the process": "raise SystemExit('enough')",
    "recursion": "return deep(doc)",
    "no memory": "raise MemoryError",
    "stop iteration": "raise StopIteration",
    "an assertion": "assert False",
    "a generator that is closed": "next(iter([]))",
}
HELPER = """
import sys

class Odd(Exception):
    def __str__(self):
        raise ValueError('no words')

def deep(doc):
    return deep(doc) + 'x'

def bad(doc):
    %s

def some(doc):
    if doc['n'] in (0, 3):
        return bad(doc)
    return %s
"""


def yaml(fields: dict[str, str]) -> str:
    return f"task: t\n{HEAD}" + "".join(f"{key}: {value}\n" for key, value in fields.items())


def both(folder: Path, **options: Any) -> dict[str, Any]:
    """The results of the task t and of a healthy one."""
    model = Scripted(generate=lambda *_: "x", loglikelihood=lambda context, continuation: (-1.0, False))
    fixed: dict[str, Any] = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    return assay.simple_evaluate(model, tasks=["t", "fine"], **(fixed | options))


def is_fine(data: dict[str, Any]) -> bool:
    return bool(data["results"]["fine"]["exact_match,none"] == 1.0)


FIELDS = {
    "doc_to_text": (GENERATE, "doc['q']"),
    "doc_to_target": (GENERATE, "doc['a']"),
    "doc_to_choice": (CHOICE, "doc['c']"),
}


@pytest.mark.parametrize("how", RAISING)
@pytest.mark.parametrize("key", FIELDS)
def test_a_field_that_raises_for_some_documents_fails_these_alone(
    key: str, how: str, write: Write, tmp_path: Path
) -> None:
    fields, right = FIELDS[key]
    helper = HELPER % (RAISING[how], right)
    folder = write(
        {"t.yaml": yaml(fields | {key: "!function h.some"}), "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS}
    )
    comparison = both(folder, output_path=str(tmp_path / "run"))
    assert is_fine(comparison)
    account = comparison["assay"]["tasks"]["t"]
    assert account["failed"] == 2
    assert all(reason.startswith(f"{key} (some, h.py:") for reason in account["reasons"])


@pytest.mark.parametrize("how", RAISING)
@pytest.mark.parametrize("key", FIELDS)
def test_a_field_that_raises_for_every_document_breaks_its_task_alone(key: str, how: str, write: Write) -> None:
    fields, right = FIELDS[key]
    helper = HELPER % (RAISING[how], right)
    folder = write(
        {"t.yaml": yaml(fields | {key: "!function h.bad"}), "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS}
    )
    comparison = both(folder)
    assert is_fine(comparison)
    assert f"{key} (bad, h.py:" in comparison["assay"]["broken"]["t"]


@pytest.mark.parametrize("format", ["mcqa", "cloze", "generate"])
@pytest.mark.parametrize("key", FIELDS)
def test_a_field_that_raises_is_named_in_every_format(key: str, format: str, write: Write) -> None:
    fields, right = FIELDS[key]
    helper = HELPER % ("raise RuntimeError('no luck')", right if key != "doc_to_target" else "0")
    changed = (
        CHOICE
        | fields
        | {key: "!function h.some", "formats": format}
        | ({} if key == "doc_to_target" else {"doc_to_target": "0"})
    )
    folder = write({"t.yaml": yaml(changed), "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS})
    comparison = both(folder)
    assert is_fine(comparison)
    assert [*comparison["assay"]["tasks"]["t"]["reasons"]] == [
        f"{key} (some, h.py:13): RuntimeError: no luck (h.py:11)"
    ]


NONSENSE = {
    "nothing": "None",
    "a number": "5",
    "a list": "[1]",
    "bytes": "b'x'",
    "an object": "object()",
    "a function": "print",
}


@pytest.mark.parametrize("what", NONSENSE)
@pytest.mark.parametrize("key", FIELDS)
def test_nonsense_from_a_field_fails_its_documents_and_nothing_else(
    key: str, what: str, write: Write, tmp_path: Path
) -> None:
    fields, right = FIELDS[key]
    helper = HELPER % (f"return {NONSENSE[what]}", right)
    folder = write(
        {"t.yaml": yaml(fields | {key: "!function h.some"}), "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS}
    )
    comparison = both(folder, output_path=str(tmp_path / "run"))
    assert is_fine(comparison)
    if key != "doc_to_target":  # of an answer, anything that has a text may be one
        assert comparison["assay"]["tasks"]["t"]["failed"] == 2


WHOLE = {
    "process_docs": "process_docs: !function h.whole\n",
    "process_docs of examples": "num_fewshot: 1\nfewshot_split: test\nfewshot_config: {process_docs: !function h.whole}\n",
    "examples": "num_fewshot: 1\nfewshot_config: {samples: !function h.nothing}\n",
    "a sampler": "num_fewshot: 1\nfewshot_config: {sampler: !function h.Sampler}\n",
    "custom_dataset": "custom_dataset: !function h.data\n",
}
WHOLE_HELPER = """
import sys
from lm_eval.api.samplers import ContextSampler

def bad():
    {body}

def whole(docs):
    return bad()

def nothing():
    return bad()

def data(**kwargs):
    return bad()

class Sampler(ContextSampler):
    def set_rnd(self, rnd):
        return bad()
"""


@pytest.mark.parametrize("way", WHOLE)
@pytest.mark.parametrize("body", ["raise KeyError('gold')", "sys.exit(0)", "raise MemoryError", "return bad()"])
def test_an_error_in_the_data_of_a_task_breaks_only_that_task(way: str, body: str, write: Write) -> None:
    helper = WHOLE_HELPER.format(body=body)
    folder = write({"t.yaml": yaml(GENERATE) + WHOLE[way], "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS})
    comparison = both(folder)
    assert is_fine(comparison)
    named = {"examples": "nothing, h.py", "a sampler": "Sampler", "custom_dataset": "data, h.py"}.get(
        way, "whole, h.py"
    )
    assert named in comparison["assay"]["broken"]["t"]


@pytest.mark.parametrize("way", [way for way in WHOLE if way != "a sampler"])
@pytest.mark.parametrize(
    "value",
    ["None", "5", "'text'", "[1, 2]", "[]", "{}", "['a']", "iter([3])", "object()", "{'test': 5}", "{'test': ['a']}"],
)
def test_nonsense_in_place_of_data_breaks_its_task_alone(way: str, value: str, write: Write) -> None:
    helper = WHOLE_HELPER.format(body=f"return {value}")
    folder = write({"t.yaml": yaml(GENERATE) + WHOLE[way], "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS})
    comparison = both(folder)
    assert is_fine(comparison)
    assert comparison["assay"]["broken"]["t"] or comparison["assay"]["tasks"]["t"]["failed"] == 6


def test_a_sampler_that_raises_for_some_documents_fails_these_alone(write: Write) -> None:
    helper = (
        "from lm_eval.api.samplers import ContextSampler\n"
        "class Sampler(ContextSampler):\n"
        "    def sample(self, n, eval_doc=None, df=None, **_):\n"
        "        if eval_doc['n'] == 4:\n            raise KeyError('gold')\n"
        "        return self.df[:n]\n"
    )
    task = yaml(GENERATE) + "num_fewshot: 1\nfewshot_split: test\nfewshot_config: {sampler: !function h.Sampler}\n"
    comparison = both(write({"t.yaml": task, "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS}))
    assert is_fine(comparison)
    assert [*comparison["assay"]["tasks"]["t"]["reasons"]] == [
        "fewshot_config.sampler (Sampler): KeyError: 'gold' (h.py:5)"
    ]


def test_a_class_that_ends_the_process_fails_its_documents_alone(write: Write) -> None:
    helper = (
        "import sys\nfrom lm_eval.api.task import ConfigurableTask\nclass Own(ConfigurableTask):\n"
        "    def doc_to_text(self, doc, doc_to_text=None):\n"
        "        return doc['q'] if doc['n'] not in (0, 4) else sys.exit(0)\n"
    )
    task = yaml({"class": "!function h.Own", **GENERATE})
    comparison = both(write({"t.yaml": task, "fine.yaml": FINE, "h.py": helper, "d.jsonl": ROWS}))
    assert is_fine(comparison)


def test_a_helper_that_ends_the_process_gives_exit_code_1_and_results(
    write: Write, run_assay: Run, tmp_path: Path
) -> None:
    helper = HELPER % ("sys.exit(0)", "doc['q']")
    folder = write(
        {
            "t.yaml": yaml(GENERATE | {"doc_to_text": "!function h.some"}),
            "fine.yaml": FINE,
            "h.py": helper,
            "d.jsonl": ROWS,
        }
    )
    run = ("run", "--model", "dummy", "--tasks", "t,fine", "--include_path", folder, "--no_defaults", "--output_path")
    ended = run_assay(*run, tmp_path / "run")
    assert ended.returncode == 1
    assert "2 of 6 documents failed" in ended.stderr
    assert "SystemExit: 0" in ended.stderr
    assert set(run_world.results(tmp_path / "run")["results"]) == {"t", "fine"}


def test_a_target_that_raises_when_answers_are_scored_again_fails_its_document_alone(
    write: Write, run_assay: Run, tmp_path: Path
) -> None:
    helper = HELPER % ("return 'x'", "doc['a']")
    folder = write({"t.yaml": yaml(GENERATE | {"doc_to_target": "!function h.some"}), "h.py": helper, "d.jsonl": ROWS})
    where = ("--tasks", "t", "--include_path", folder, "--no_defaults")
    run_assay("run", "--model", "dummy", *where, "--log_samples", "--output_path", tmp_path / "run")
    (folder / "h.py").write_text((HELPER % ("sys.exit(0)", "doc['a']")).replace("(0, 3)", "(2, 3)"))
    [logged] = (tmp_path / "run").glob("samples_t*.jsonl")
    ended = run_assay("score", logged, *where)
    assert ended.returncode == 1
    assert "2 of 6 documents failed" in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr


def test_an_interruption_in_helper_code_still_interrupts(write: Write) -> None:
    helper = HELPER % ("raise KeyboardInterrupt", "doc['q']")
    folder = write(
        {
            "t.yaml": yaml(GENERATE | {"doc_to_text": "!function h.some"}),
            "fine.yaml": FINE,
            "h.py": helper,
            "d.jsonl": ROWS,
        }
    )
    with pytest.raises(KeyboardInterrupt):
        both(folder)


TEMPLATES = {
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "too much memory": "{{ 'x' * 10 ** 17 }}",
    "an invalid pattern": "{{ q | regex_replace('(', '') }}",
}


@pytest.mark.parametrize("what", TEMPLATES)
def test_a_template_that_cannot_be_filled_fails_its_documents_alone(what: str, write: Write) -> None:
    template = f"{{% if n in (0, 3) %}}{TEMPLATES[what]}{{% endif %}}{{{{q}}}}"
    folder = write(
        {"t.yaml": yaml(GENERATE | {"doc_to_text": json.dumps(template)}), "fine.yaml": FINE, "d.jsonl": ROWS}
    )
    comparison = both(folder)
    assert is_fine(comparison)
    assert comparison["assay"]["tasks"]["t"]["failed"] == 2


GRAPH = """
data_config: {{source: {{type: disk, file_path: records.jsonl{transforms}}}}}
graph_config:
  nodes:
    only: {{node_type: lambda, lambda: steps.step, output_keys: [y]}}
    ask: {{node_type: llm, model: {{name: m}}, prompt: [{{user: "{{y}}"}}], output_keys: said}}
  edges: [{{from: START, to: only}}, {{from: only, to: ask}}, {{from: ask, to: END}}]
"""
STEPS = """
import sys
class Change:
    def transform(self, data, params):
        {change}
def step(config, state):
    if state["q"] == "q1":
        {step}
    state["y"] = 1
    return state
"""


def chatting() -> Scripted:
    return Scripted(generate=lambda *_: "x", chat_template=lambda messages, _: json.dumps(messages, ensure_ascii=False))


def graph_beside(tmp_path: Path, write: Write, *, change: str = "return data", step: str = "pass") -> dict[str, Any]:
    """The results of a graph with helper code, and of a healthy task."""
    transforms = ", transformations: [{transform: steps.Change, params: {}}]"
    rows = [json.loads(line) for line in ROWS.splitlines()]
    graph = write_graph(tmp_path, rows, GRAPH.format(transforms=transforms))
    (graph / "steps.py").write_text(STEPS.format(change=change, step=step))
    folder = write({"fine.yaml": FINE, "d.jsonl": ROWS})
    return assay.simple_evaluate(
        chatting(), tasks=[str(graph), "fine"], include_path=str(folder), include_defaults=False, bootstrap_iters=0
    )


@pytest.mark.parametrize("body", ["raise KeyError('gold')", "sys.exit(0)", "return None", "return [1, 2]", "return {}"])
def test_a_transform_that_fails_breaks_its_graph_alone(body: str, tmp_path: Path, write: Write) -> None:
    result = graph_beside(tmp_path, write, change=body)
    assert is_fine(result)
    [reason] = result["assay"]["broken"].values()
    assert "transform" in reason


@pytest.mark.parametrize("body", ["raise KeyError('gold')", "sys.exit(0)", "raise MemoryError"])
def test_a_node_that_raises_or_ends_the_process_fails_its_record_alone(body: str, tmp_path: Path, write: Write) -> None:
    result = graph_beside(tmp_path, write, step=body)
    assert is_fine(result)
    [account] = [each for name, each in result["assay"]["tasks"].items() if name != "fine"]
    assert account["failed"] == 1


# half a character

HALVES = {
    "doc_to_text": (GENERATE, "doc['q']", "return 'x\\ud800'"),
    "doc_to_target": (GENERATE, "doc['a']", "return 'x\\ud800'"),
    "doc_to_target, a list": (GENERATE, "doc['a']", "return ['x', 'y\\udfff']"),
    "doc_to_choice": (CHOICE, "doc['c']", "return ['x', '\\ud800']"),
    "doc_to_text, raised": (GENERATE, "doc['q']", "raise ValueError('\\ud800')"),
}


@pytest.mark.parametrize("how", HALVES)
def test_half_a_character_that_a_field_returns_fails_its_document_alone(how: str, tmp_path: Path, write: Write) -> None:
    fields, healthy, body = HALVES[how]
    key = how.partition(",")[0]
    helper = HELPER % (body, healthy)
    folder = write({
        "t.yaml": yaml({**fields, key: "!function u.some"}), "fine.yaml": FINE, "d.jsonl": ROWS, "u.py": helper,
    })  # fmt: skip
    comparison = both(folder, log_samples=True, output_path=str(tmp_path / "run"))
    assert is_fine(comparison)
    assert comparison["assay"]["tasks"]["t"]["failed"] == 2
    reasons = (tmp_path / "run").rglob("*.parquet")
    printed = str([row for path in reasons for row in pq.read_table(path).to_pylist()])
    assert "half a character" in printed or ": ValueError" in printed


def test_half_a_character_in_every_example_breaks_its_task_alone(tmp_path: Path, write: Write) -> None:
    more = {
        "num_fewshot": "1",
        "fewshot_split": "test",
        "fewshot_config": "{doc_to_text: !function u.bad, sampler: first_n}",
    }
    helper = HELPER % ("return 'x\\ud800'", "doc['q']")
    folder = write({"t.yaml": yaml({**GENERATE, **more}), "fine.yaml": FINE, "d.jsonl": ROWS, "u.py": helper})
    comparison = both(folder, log_samples=True, output_path=str(tmp_path / "run"))
    assert is_fine(comparison)
    assert "half a character" in comparison["assay"]["broken"]["t"]


def half_answer(prompt: str, *_: Any) -> str:
    return "x\ud800" if prompt == "q1" else "é"


def half_error(prompt: str, *_: Any) -> str:
    if prompt == "q1":
        raise ValueError("\ud800")
    return "é"


@pytest.mark.parametrize("answer", [half_answer, half_error])
def test_half_a_character_of_a_model_fails_its_document_alone(
    answer: Callable[..., str], tmp_path: Path, write: Write
) -> None:
    folder = write({"fine.yaml": FINE, "d.jsonl": ROWS.replace('"a": "x"', '"a": "é"')})
    results = assay.simple_evaluate(
        Scripted(generate=answer), tasks=["fine"], include_path=str(folder), include_defaults=False, log_samples=True,
        output_path=str(tmp_path / "run"),
    )  # fmt: skip
    assert results["assay"]["tasks"]["fine"]["failed"] == 1
    assert results["results"]["fine"]["exact_match,none"] == 1.0


def test_half_a_character_in_a_prompt_of_a_graph_fails_its_record_alone(tmp_path: Path) -> None:
    graph = """
    data_config: {source: {type: disk, file_path: records.jsonl, file_format: jsonl}}
    graph_config:
      nodes:
        odd: {node_type: lambda, lambda: steps.odd, output_keys: [y]}
        ask: {node_type: llm, model: {name: m}, prompt: [{user: "{y}"}], output_keys: answer}
      edges: [{from: START, to: odd}, {from: odd, to: ask}, {from: ask, to: END}]
    """
    steps = "def odd(config, state):\n    return {**state, 'y': 'x\\ud800' if state['x'] == 1 else 'x'}\n"
    folder = write_graph(tmp_path, [{"x": n} for n in range(3)], graph, steps=steps)
    results = assay.simple_evaluate(
        chatting(),
        tasks=[str(folder)],
        output_path=str(tmp_path / "run"),
    )
    [account] = results["assay"]["tasks"].values()
    assert account["failed"] == 1


def test_half_a_character_in_a_report_is_written_as_its_number(tmp_path: Path) -> None:
    steps = """
    from sygra.core.graph.graph_postprocessor import GraphPostProcessor
    def step(config, state):
        return {**state, "y": 1}
    class Half(GraphPostProcessor):
        def process(self, data, metadata):
            return [{"n": len(data), "é": "x\\ud800"}]
    class Raises(GraphPostProcessor):
        def process(self, data, metadata):
            raise ValueError("\\ud800")
    """
    post = "graph_post_process: [{processor: steps.Half}, {processor: steps.Raises}]\n"
    folder = write_graph(tmp_path, [{"q": "a"}], GRAPH.format(transforms="") + post, steps=steps)
    results = assay.simple_evaluate(
        chatting(),
        tasks=[str(folder)],
        output_path=str(tmp_path / "run"),
    )
    assert "Raises" in str(results["results"])
    [report] = (tmp_path / "run").rglob("Half_*.json")
    assert json.loads(report.read_bytes()) == [{"n": 1, "é": "x\ud800"}]


DOCS = "def docs(rows):\n    return [{**row, %r: 'x\\ud800'} if row['n'] == 1 else row for row in rows]\n"
CUSTOM = "[{name: f, filter: [{function: custom, filter_fn: !function u.f}]}]"
ELSEWHERE = {
    "a question of process_docs": ({**GENERATE, "process_docs": "!function u.docs"}, DOCS % "q", "broken"),
    "an answer of process_docs": ({**GENERATE, "process_docs": "!function u.docs"}, DOCS % "a", "broken"),
    "another column of process_docs": ({**GENERATE, "process_docs": "!function u.docs"}, DOCS % "z", "broken"),
    "a template": ({**GENERATE, "doc_to_text": "\"{{q}}{{'\\\\ud800' if n == 1 else ''}}\""}, "", "failed"),
    "a template of targets": ({**GENERATE, "doc_to_target": "\"{{a}}{{'\\\\ud800' if n == 1 else ''}}\""}, "", "failed"),
    "a filter": (
        {**GENERATE, "filter_list": CUSTOM},
        "def f(resps, docs):\n    return [['x\\ud800' if doc['n'] == 1 else 'x'] for doc in docs]\n",
        "failed",
    ),
    "what a filter raises": (
        {**GENERATE, "filter_list": CUSTOM}, "def f(resps, docs):\n    raise ValueError('\\ud800')\n", "all failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ELSEWHERE)
def test_half_a_character_from_elsewhere_harms_its_task_alone(how: str, tmp_path: Path, write: Write) -> None:
    fields, helper, outcome = ELSEWHERE[how]
    folder = write({"t.yaml": yaml(fields), "fine.yaml": FINE, "d.jsonl": ROWS, "u.py": helper})
    comparison = both(folder, log_samples=True, output_path=str(tmp_path / "run"))
    assert is_fine(comparison)
    if outcome == "broken":
        assert "half a character" in comparison["assay"]["broken"]["t"]
    else:
        assert comparison["assay"]["tasks"]["t"]["failed"] == (1 if outcome == "failed" else 6)
