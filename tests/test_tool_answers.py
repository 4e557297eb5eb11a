"""Answers that are calls of tools: no empty text, and never a score of a task, whose metrics look at text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.test_agent_backends import BACKENDS, TALKING

import assay
from assay import ConfigError
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models import Scripted
from assay.records import Request, Response, Text
from run_world import rows_of
from serving import Servers
from small_runs import generate, write_task

CALLS = {"calls": [["add", {"a": 2}]]}
TOOLS = """
generation_kwargs:
  until: []
  tools: [{type: function, function: {name: add, parameters: {type: object, properties: {a: {type: integer}}}}}]
"""
ALL_KINDS = {
    "metric": "metric_list: [{metric: exact_match}, {metric: bleu}]\n",
    "filter": "filter_list: [{name: first, filter: [{function: regex, regex_pattern: '(\\\\d+)'}, {function: take_first}]}]\n",
    "process_results": "process_results: !function own.results\nmetric_list: [{metric: empty, aggregation: mean}]\n",
    "scorer": "scorer: !function own.Empty\n",
    "judge": "scorer: {type: llm_judge, kwargs: {judge_model: judge, scale: [0, 1]}}\n",
}
CODE = """
from assay import Scorer

def results(doc, results):
    return {"empty": float(results[0] == "")}

class Empty(Scorer):
    def score(self, reference, predictions):
        return float(predictions[0] == "")
"""


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def account(results: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = results["assay"]["tasks"]["t"]
    return own


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*ReadOnly.*:UserWarning")  # of litellm's types
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tool_call_fails_its_document_on_every_backend(tmp_path: Path, talking: str, backend: str) -> None:
    name, arguments = BACKENDS[backend]
    if name == "litellm":
        pytest.importorskip("litellm")
    asked = [CALLS, {"say": "4"}, {"say": "5"}]
    rows = [{"q": json.dumps(each), "gold": "4"} for each in asked]
    write_task(tmp_path, rows, f"{TEXT}metric_list: [{{metric: exact_match}}]\n{TOOLS}")
    model_args = arguments.format(url=talking, root=talking.removesuffix("/v1")) + ",max_retries=1"
    results = assay.simple_evaluate(
        model=name, model_args=model_args, apply_chat_template=True, tasks=["t"], include_path=str(tmp_path),
        include_defaults=False, output_path=str(tmp_path / "run"),
    )  # fmt: skip
    own = account(results)
    assert (
        own["failed"],
        rows_of(results, "t")["exact_match,none"]["n"],
        results["results"]["t"]["exact_match,none"],
    ) == (
        1,
        2,
        0.5,
    )
    [reason] = own["reasons"]
    assert "the answer is a call of a tool without text (add), and metrics of a task score text" in reason
    assert own["audit"]["empty"]["count"] == 0


TEXT = "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{gold}}'\n"


class Calling(Scripted):
    """Says "call" as a call of a tool, and "call a" as text beside one."""

    def _scripted(self, request: Request) -> Response:
        response = super()._scripted(request)
        called, _, text = getattr(response, "text", "").partition(" ")
        return CALL._replace(text=text) if called == "call" else response


def answers(said: list[str]) -> Scripted:
    replies = iter(said)
    return Calling(generate=lambda *_: next(replies))


CALL = Text("", "tool_calls", calls=[{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}])


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_no_metric_filter_function_scorer_or_judge_sees_a_tool_call_as_an_empty_text(kind: str, tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "1", "gold": "a"}, {"q": "2", "gold": ""}], TEXT + ALL_KINDS[kind])
    (tmp_path / "own.py").write_text(CODE)
    judge = Scripted(generate=lambda *_: pytest.fail("a judge is asked about a tool call"))
    results = assay.simple_evaluate(
        answers(["call", "call"]), tasks=["t"], include_path=str(tmp_path), include_defaults=False,
        **({"model_role": {"judge": judge}} if kind == "judge" else {}), output_path=str(tmp_path / "run"),
    )  # fmt: skip
    assert (account(results)["scored"], account(results)["failed"]) == (0, 2)
    assert all("a call of a tool without text" in reason for reason in account(results)["reasons"])
    again = lm_eval_layout(assay.score(tmp_path / "run").results) if kind == "metric" else results
    assert account(again)["failed"] == 2


def test_a_tool_call_among_repeats_fails_the_document_and_text_beside_a_call_is_scored(tmp_path: Path) -> None:
    yaml = TEXT + "repeats: 2\ngeneration_kwargs: {do_sample: true, temperature: 1}\n"
    yaml += (
        "metric_list: [{metric: exact_match}]\nfilter_list: [{name: none, filter: [{function: take_first_k, k: 2}]}]\n"
    )
    write_task(tmp_path, [{"q": "1", "gold": "a"}, {"q": "2", "gold": "a"}], yaml)
    said = ["a", "call", "a", "call a"]
    results = assay.simple_evaluate(
        answers(said), tasks=["t"], include_path=str(tmp_path), include_defaults=False, batch_size=1
    )
    assert (account(results)["failed"], results["results"]["t"]["exact_match,none"]) == (1, 1.0)
    assert "1 of 2 answers are a call of a tool" in str(account(results)["reasons"])


def test_predict_only_keeps_tool_calls_without_a_failure(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "1", "gold": "a"}], TEXT + "metric_list: [{metric: exact_match}]\n")
    results = assay.simple_evaluate(
        answers(["call"]), tasks=["t"], include_path=str(tmp_path), include_defaults=False, predict_only=True
    )
    assert account(results)["failed"] == 0


# --- templates in parameters of generation ---------------------------------------------------------------------------

TEMPLATES = {
    "a value": '{tools: "{{tools}}"}',
    "in a list": '{tools: [{type: function, function: "{{ f }}"}]}',
    "in a schema": "{response_format: {json_schema: {schema: '{% if x %}{}{% endif %}'}}}",
    "a limit": '{max_gen_toks: "{{limit}}"}',
    "a stop": '{until: ["\\n", "{{stop}}"]}',
    "a key": '{response_format: {"{{key}}": 1}}',
}


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("written", TEMPLATES)
def test_templates_in_generation_kwargs_are_refused_with_their_place(
    written: str, compat: str | None, tmp_path: Path
) -> None:
    place = r"t\.yaml:\d+:\d+" if compat is None else "generation_kwargs"
    with pytest.raises(ConfigError, match=f"{place}.*: .*sent as it is written"):
        generate(tmp_path, ["a"], ["a"], f"generation_kwargs: {TEMPLATES[written]}\n", compat=compat)


@pytest.mark.parametrize("params", ["tools={{tools}}", {"a": {"b": ["{% x %}"]}}, '{"stop": "{{x}}"}'])
def test_templates_in_gen_kwargs_are_refused_from_the_command_line_and_python(params: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--gen_kwargs: .*sent as it is written"):
        generate(tmp_path, ["a"], ["a"], gen_kwargs=params)


def test_templates_in_overrides_and_formats_are_refused(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "1", "gold": "a"}], TEXT)
    wrong = {"generation_kwargs": {"tools": "{{tools}}"}}
    for task in ({"task": "t", **wrong}, {"task": "t", "formats": {"generate": wrong}}):
        with pytest.raises(ConfigError, match="sent as it is written"):
            assay.simple_evaluate(answers(["a"]), tasks=[task], include_path=str(tmp_path), include_defaults=False)


def test_lone_braces_are_no_template(tmp_path: Path) -> None:
    results = generate(tmp_path, ["a"], ["a"], 'generation_kwargs: {until: ["}}", "{{", "{ x }", "%}"]}\n')
    assert account(results)["failed"] == 0
