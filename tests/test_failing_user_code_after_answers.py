"""What user code does when the answers are there: whatever it raises or returns, the other tasks and rows keep their numbers."""

import json
import math
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from assay import simple_evaluate
from assay.models import Scripted
from run_world import rows_of

GOOD = """
    task: {name}
    dataset_path: json
    dataset_kwargs: {{data_files: {{test: rows.jsonl}}}}
    test_split: test
    output_type: generate_until
    doc_to_text: "{{{{q}}}}"
    doc_to_target: {target}
    {more}
"""
MEAN = "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]"
ENDS = {
    "sys.exit": "raise SystemExit(0)",
    "an exception that cannot be worded": "raise Unworded()",
    "a cancelled task": "raise asyncio.CancelledError()",
    "a generator's end": "raise GeneratorExit()",
    "an exception beside all others": "raise Beside('x')",
}
HELPERS = """
import asyncio
class Unworded(Exception):
    def __str__(self): raise ValueError('s')
class Beside(BaseException): pass
"""


def run(folder: Path, code: str, more: str, target: str = '"{{a}}"', extra: str = "", **options: Any) -> dict[str, Any]:
    """Two tasks, of which `bad` is as said, answered `x` each time."""
    rows = [{"q": f"q{n}", "a": "x", "n": 1} for n in range(3)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "h.py").write_text(HELPERS + dedent(code))
    (folder / "good.yaml").write_text(dedent(GOOD.format(name="good", more=MEAN, target='"{{a}}"')))
    (folder / "bad.yaml").write_text(dedent(GOOD.format(name="bad", more=more, target=target)))
    if extra:
        (folder / "extra.yaml").write_text(dedent(extra))
    options = {"tasks": ["good", "bad"], **options}
    answer = options.pop("answer", "x")
    return simple_evaluate(
        Scripted(generate=lambda *_: answer), include_path=str(folder), include_defaults=False, **options
    )


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize(
    "more",
    [
        "metric_list: [{metric: exact_match, aggregation: !function h.f, higher_is_better: true}]",
        "metric_list: [{metric: !function h.f, aggregation: mean, higher_is_better: true}]",
        "process_results: !function h.f\nmetric_list: [{metric: exact_match, aggregation: mean}]",
        f"filter_list: [{{name: c, filter: [{{function: custom, filter_fn: !function h.f}}]}}]\n{MEAN}",
    ],
    ids=["aggregation", "metric", "process_results", "filter"],
)
def test_code_that_ends_the_process_or_cannot_be_worded_costs_its_own_numbers(
    more: str, end: str, tmp_path: Path
) -> None:
    results = run(tmp_path, f"def f(*a, **k): {end}", more.replace("\n", "\n    "))
    assert results["results"]["good"]["exact_match,none"] == 1.0
    numbers = [value for key, value in results["results"]["bad"].items() if "," in key and "stderr" not in key]
    assert all(value is None or math.isnan(value) for value in numbers)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_aggregator_of_a_group_that_ends_the_process_costs_the_groups_number_alone(end: str, tmp_path: Path) -> None:
    group = "group: g\ntask: [good]\naggregate_metric_list: [{metric: exact_match, aggregation: !function h.f}]\n"
    results = run(tmp_path, f"def f(*a, **k): {end}", MEAN, extra=group, tasks=["g", "good"])
    assert results["results"]["good"]["exact_match,none"] == 1.0
    assert not any(
        isinstance(value, float) and value == value for key, value in results["results"]["g"].items() if "," in key
    )


def test_ctrl_c_within_user_code_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "def f(*a, **k): raise KeyboardInterrupt", MEAN.replace("mean", "!function h.f"))


@pytest.mark.parametrize(
    "built", ["[]", "''", "b'x'", "{1}", "(each for each in [1])", "{'a': 1}", "None", "5", "[['x']] * 99"]
)
def test_a_filter_that_returns_too_few_or_too_many_answers_fails_its_task_alone(built: str, tmp_path: Path) -> None:
    more = f"filter_list: [{{name: c, filter: [{{function: custom, filter_fn: !function h.f}}]}}]\n    {MEAN}"
    results = run(tmp_path, f"def f(*a, **k): return {built}", more)
    assert results["results"]["good"]["exact_match,none"] == 1.0
    assert results["assay"]["tasks"]["bad"]["failed"] == 3
    assert "filter 'c' returned" in next(iter(results["assay"]["tasks"]["bad"]["reasons"]))


@pytest.mark.parametrize("built", ["10**400", "object()", "[1]", "None", "Odd()"])
def test_an_aggregation_that_returns_no_number_costs_its_own_row(built: str, tmp_path: Path) -> None:
    code = f"class Odd:\n    def __repr__(self): raise ValueError\ndef f(values): return {built}"
    results = run(tmp_path, code, MEAN.replace("mean", "!function h.f"))
    assert results["results"]["good"]["exact_match,none"] == 1.0
    reason = rows_of(results, "bad")["exact_match,none"]["reason"]
    assert "which is not a number" in reason


@pytest.mark.parametrize("order", [0, 1])
def test_a_key_of_a_mapping_that_is_another_metrics_name_is_never_the_last_that_wins(
    order: int, tmp_path: Path
) -> None:
    entries = [
        "{metric: !function h.m, aggregation: mean}",
        "{metric: exact_match, aggregation: mean, ignore_case: true}",
    ]
    listed = ", ".join(entries if order == 0 else entries[::-1])
    results = run(tmp_path, "def m(references, predictions): return {'exact_match': 0.25}", f"metric_list: [{listed}]")
    assert "exact_match,none" not in {key for key, value in results["results"]["bad"].items() if value in (1.0, 0.25)}


@pytest.mark.parametrize("built", ["{n: 0.5 for n in range(len(results))}", "'abc'"])
def test_a_batch_of_scores_must_be_a_list(built: str, tmp_path: Path) -> None:
    code = f"""
    from assay import GenerationScorer
    class S(GenerationScorer):
        def score_batch(self, results): return {built}
    """
    results = run(tmp_path, code, "scorer: !function h.S")
    assert results["assay"]["tasks"]["bad"]["failed"] == 3
    assert "must return a list" in next(iter(results["assay"]["tasks"]["bad"]["reasons"]))


@pytest.mark.parametrize("kind", ["[v]", "(v,)", "np.array([v])"])
def test_the_best_of_multiple_references_counts_for_any_container_of_scores(kind: str, tmp_path: Path) -> None:
    code = f"""
    import numpy as np
    def m(reference, predictions):
        v = {{'a': 0.25, 'b': 0.75}}[reference]
        return {kind}
    """
    more = "metric_list: [{metric: !function h.m, aggregation: mean, higher_is_better: true}]"
    results = run(tmp_path, code, more, target="[a, b]")
    assert results["results"]["bad"]["m,none"] == 0.75


@pytest.mark.parametrize("target", ["[1]", "[1, 2]"])
def test_numbers_in_a_list_of_references_are_compared_as_the_number_alone_is(target: str, tmp_path: Path) -> None:
    assert run(tmp_path, "", MEAN, target=target, answer="1")["results"]["bad"]["exact_match,none"] == 1.0


def test_metrics_of_one_right_choice_fail_their_own_row_where_there_are_several(tmp_path: Path) -> None:
    task = """
        task: choices
        dataset_path: json
        dataset_kwargs: {data_files: {test: rows.jsonl}}
        test_split: test
        output_type: multiple_choice
        doc_to_text: "{{q}}"
        doc_to_choice: [a, b, c]
        doc_to_target: [0, 1]
        metric_list: [{metric: acc_norm}, {metric: choice_logprob}, {metric: bpb}]
    """
    (tmp_path / "rows.jsonl").write_text("")
    (tmp_path / "c.yaml").write_text(dedent(task))
    (tmp_path / "rows.jsonl").write_text('{"q": "x"}\n{"q": "y"}\n')
    model = Scripted(loglikelihood=lambda context, continuation: (-1.0 if "b" in continuation else -2.0, False))
    results = simple_evaluate(model, tasks=["choices"], include_path=str(tmp_path), include_defaults=False)
    assert results["results"]["choices"]["acc_norm,none"] == 1.0
    assert not any(key.startswith(("choice_logprob,", "bpb,")) and value == value and value is not None
                   for key, value in results["results"]["choices"].items())  # fmt: skip


GRAPH = """
    task: gg
    data_config: {source: {type: disk, file_path: d.jsonl}}
    graph_config:
      nodes:
        ask: {node_type: llm, prompt: [{user: "{q}"}], output_keys: ans, model: {name: m, parameters: {temperature: 0}}}
        sc: {node_type: lambda, lambda: gh.measured, output_keys: [m_result]}
      edges: [{from: START, to: ask}, {from: ask, to: sc}, {from: sc, to: END}]
"""


@pytest.mark.parametrize(
    "odd",
    [
        "{'correct': True, 'score': [1, 2]}",
        "{'correct': None}",
        "{'correct': 'yes'}",
        "{'correct': True, 'score': '0.5'}",
        "{'correct': 2}",
    ],
)
def test_a_unit_result_of_user_code_that_is_not_a_number_fails_its_record_in_that_row(odd: str, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"q": "q0"}\n{"q": "q1"}\n')
    (tmp_path / "graph_config.yaml").write_text(dedent(GRAPH))
    code = f"def measured(config, state):\n    state['m_result'] = {odd} if state['q'] == 'q0' else {{'correct': True, 'score': 1.0}}\n    return state\n"
    (tmp_path / "gh.py").write_text(code)
    results = simple_evaluate(
        Scripted(generate=lambda *_: "x", chat_template=lambda messages, _: str(messages)),
        tasks=[str(tmp_path / "graph_config.yaml")],
        include_defaults=False,
    )
    row = rows_of(results, "gg")["m,none"]
    assert (results["results"]["gg"]["m,none"], row["n"]) == (1.0, 1)
    assert results["assay"]["tasks"]["gg"]["failed"] == 1
    assert "'m_result' has no score that is a number" in str(results["assay"]["tasks"]["gg"]["reasons"])


@pytest.mark.parametrize("missing", ["", ", missing: skip"])
def test_a_group_with_a_member_whose_number_has_no_value_has_none_either(missing: str, tmp_path: Path) -> None:
    group = f"group: g\ntask: [good, bad]\naggregate_metric_list: [{{metric: exact_match{missing}}}]\n"
    more = "metric_list: [{metric: !function h.exact_match, aggregation: mean, higher_is_better: true}]"
    code = "def exact_match(references, predictions): return float('nan')"
    results = run(tmp_path, code, more, extra=group, tasks=["g"])
    assert not any(
        isinstance(value, float) and value == value for key, value in results["results"]["g"].items() if "," in key
    )
    assert results["results"]["good"]["exact_match,none"] == 1.0
