"""What graphs do: nodes, ways, loops, states; and what is refused before the first request."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow.parquet as pq
import pytest

import assay
from assay.errors import ConfigError
from assay.evaluation.flow import prepare_run
from assay.evaluation.options import run_config
from assay.models import Scripted
from graph_world import QUESTION_ANSWERING, RECORDS, the_file, write_graph
from run_world import sample_rows

pytestmark = pytest.mark.slow  # many runs: too long for `make quick`


def scripted(
    answer: Callable[[list[dict[str, str]]], str], asked: list[Any] | None = None, identity: str = "one"
) -> Scripted:
    """A model that answers conversations."""

    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        messages = json.loads(prompt)
        if asked is not None:
            asked.append((messages, params, repeat))
        return answer(messages)

    return Scripted(generate, chat_template=lambda messages, _: json.dumps(messages), identity=identity)


def last(messages: list[dict[str, str]]) -> str:
    return messages[-1]["content"]


HEAD = """
data_config: {source: {type: disk, file_path: records.jsonl}}
"""


def run(
    tmp_path: Path, graph: str, records: list[dict[str, Any]], model: Any = None, code: str = "", **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The results of a graph, and its output."""
    folder = write_graph(tmp_path, records, HEAD + dedent(graph), code=code)
    asked = scripted(last) if "model:" in graph or "model_type" in graph else None
    results = assay.simple_evaluate(model or asked, tasks=[str(folder)], output_path=str(tmp_path / "run"), **options)
    return results, the_file(tmp_path / "run", "*output_*.json*")


def account(data: dict[str, Any]) -> dict[str, Any]:
    [own] = data["assay"]["tasks"].values()
    return dict(own)


NOTE = """
    def note(node, state):
        return {**state, node["writes"]: "".join(str(state.get(key, "")) for key in node.get("reads", []))}
    def raising(node, state):
        raise KeyError("of all things")
    async def slow(node, state):
        import asyncio
        await asyncio.sleep(0.01)
        return {"slept": state["x"] * 2}
    def far(state):
        return "END" if state["x"] > 2 else "again"
    def more(node, state):
        state["x"] = state["x"] + 1
        return state
"""


def test_braces_in_prompts_are_filled_and_doubled_ones_are_braces(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        ask: {node_type: llm, output_keys: said, prompt: [{user: "{x} in {{braces}} and {y z}"}], model: {name: m}}
      edges: [{from: START, to: ask}, {from: ask, to: END}]
    """
    _, [record] = run(tmp_path, graph, [{"x": 1, "y z": "two"}])
    assert record["said"] == "1 in {braces} and two"


def test_branches_ask_together_and_join_in_one_state(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        left: {node_type: llm, output_keys: l, prompt: [{user: "left {x}"}], model: {name: m}}
        right: {node_type: llm, output_keys: r, prompt: [{user: "right {x}"}], model: {name: m}}
        join: {node_type: lambda, lambda: code.note, reads: [l, r], writes: both, output_keys: [both]}
      edges:
        - {from: START, to: left}
        - {from: START, to: right}
        - {from: left, to: join}
        - {from: right, to: join}
        - {from: join, to: END}
    """
    asked: list[Any] = []
    _, [record] = run(tmp_path, graph, [{"x": 1}], scripted(last, asked), NOTE)
    assert record["both"] == "left 1right 1"
    assert len(asked) == 2


def test_two_branches_that_write_one_key_fail_the_record(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        a: {node_type: lambda, lambda: code.note, reads: [x], writes: k}
        b: {node_type: lambda, lambda: code.note, reads: [y], writes: k}
      edges: [{from: START, to: a}, {from: START, to: b}, {from: a, to: END}, {from: b, to: END}]
    """
    results, output = run(tmp_path, graph, [{"x": 1, "y": 2}], code=NOTE)
    assert output == []
    assert account(results)["reasons"] == {"the nodes 'a' and 'b' wrote 'k' in the same step": 1}


LOOP = """
    graph_config:
      nodes:
        more: {node_type: lambda, lambda: code.more, output_keys: [x]}
      edges:
        - {from: START, to: more}
        - {from: more, condition: code.far, path_map: {END: END, again: more}}
"""


@pytest.mark.parametrize("arguments", ["{'n': made}", "in_place(state, made)"])
@pytest.mark.parametrize(("value", "plain"), [
    ("numpy.int32(5)", 5), ("numpy.array(5)", 5), ("numpy.float32(0.1)", 0.1), ("numpy.bool_(True)", True),
    ("numpy.str_('a')", "a"), ("[numpy.int64(1), {'a': numpy.array([1, 2])}]", [1, {"a": [1, 2]}]),
])  # fmt: skip
def test_lambdas_and_conditions_may_return_numpy_values(
    value: str, plain: object, arguments: str, tmp_path: Path
) -> None:
    if isinstance(plain, list) and "in_place" in arguments:
        return  # what a node writes deep inside the state is its own; the output has plain numbers all the same
    code = f"""
        import numpy
        def in_place(state, made):
            state["n"] = made
            return state
        def make(node, state):
            made = {value}
            return {arguments}
        def look(node, state):
            return {{"kind": type(state["n"]).__module__}}
        def which(state):
            return numpy.array("END") if state["x"] > 1 else numpy.str_("look")
        """
    graph = """
        graph_config:
          nodes:
            make: {node_type: lambda, lambda: code.make, output_keys: [n]}
            look: {node_type: lambda, lambda: code.look, output_keys: [kind]}
          edges:
            - {from: START, to: make}
            - {from: make, condition: code.which, path_map: {END: END, look: look}}
            - {from: look, to: END}
        """
    results, output = run(tmp_path, graph, [{"x": 1}, {"x": 2}], code=dedent(code))
    assert account(results)["failed"] == 0
    assert [record["n"] for record in output] == [plain, plain]
    assert output[0]["kind"] == "builtins"


def test_a_loop_runs_until_its_condition_ends_it(tmp_path: Path) -> None:
    _, output = run(tmp_path, LOOP, [{"x": 0}, {"x": 2}, {"x": 7}], code=NOTE)
    assert [record["x"] for record in output] == [3, 3, 8]


def test_an_endless_loop_fails_its_record_after_max_steps_or_a_hundred_steps(tmp_path: Path) -> None:
    results, output = run(tmp_path, LOOP, [{"x": -98}, {"x": -96}], code=NOTE)
    assert [record["x"] for record in output] == [3]
    [reason] = account(results)["reasons"]
    assert "after 100 steps" in reason
    limited = LOOP + "      graph_properties: {max_steps: 2}\n"
    results, output = run(tmp_path / "more", limited, [{"x": 0}, {"x": 1}], code=NOTE)
    assert [record["x"] for record in output] == [3]


def test_a_node_that_raises_fails_its_record_with_the_reason(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        bad: {node_type: lambda, lambda: code.raising}
      edges: [{from: START, to: bad}, {from: bad, to: END}]
    """
    results, output = run(tmp_path, graph, [{"x": 1}], code=NOTE)
    assert output == []
    assert account(results)["reasons"] == {"the node 'bad': KeyError: 'of all things' (code.py:5)": 1}
    assert results["assay"]["status"] == "incomplete"


def test_the_result_of_a_condition_must_be_in_the_path_map(tmp_path: Path) -> None:
    graph = LOOP.replace("again: more", "forward: more")
    results, _ = run(tmp_path, graph, [{"x": 0}], code=NOTE)
    assert account(results)["reasons"] == {
        "the condition code.far after 'more' returned 'again', and path_map has: END, forward": 1
    }


def test_yes_and_no_in_a_path_map_are_words_although_yaml_makes_truths_of_them(tmp_path: Path) -> None:
    graph = LOOP.replace("code.far", "code.is_far").replace("{END: END, again: more}", "{yes: END, no: more}")
    code = NOTE + '    def is_far(state):\n        return "yes" if state["x"] > 2 else "no"\n'
    _, output = run(tmp_path, graph, [{"x": 0}, {"x": 5}], code=code)
    assert [record["x"] for record in output] == [3, 6]


def test_async_lambdas_are_awaited_beside_each_other(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        slow: {node_type: lambda, lambda: code.slow, output_keys: [slept]}
      edges: [{from: START, to: slow}, {from: slow, to: END}]
    """
    _, output = run(tmp_path, graph, [{"x": n} for n in range(20)], code=NOTE)
    assert [record["slept"] for record in output] == [2 * n for n in range(20)]


SAMPLER = """
    graph_config:
      nodes:
        draw: {node_type: weighted_sampler, attributes: {tone: {values: [a, b, c]}, odd: {values: [x, y], weights: [0, 1]}}}
        ask: {node_type: llm, output_keys: said, prompt: [{user: "{tone}"}], model: {name: m}}
      edges: [{from: START, to: draw}, {from: draw, to: ask}, {from: ask, to: END}]
"""


def test_a_sampler_draws_the_same_for_a_record_every_time(tmp_path: Path) -> None:
    records = [{"x": n} for n in range(60)]
    _, first = run(tmp_path, SAMPLER, records)
    _, second = run(tmp_path / "again", SAMPLER, records)
    _, fewer = run(tmp_path / "fewer", SAMPLER, records, samples={"eval.question_answering.simpleqa": [7, 30]})
    tones = [record["said"] for record in first]
    assert tones == [record["said"] for record in second]
    assert [record["said"] for record in fewer] == [tones[7], tones[30]]
    assert set(tones) == {"a", "b", "c"}
    assert {record["odd"] for record in first} == {"y"}


def test_several_models_are_asked_the_same_at_once(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        ask:
          node_type: multi_llm
          output_keys: said
          prompt: [{user: "{x}"}]
          models: {one: {name: first}, two: {name: second}}
      edges: [{from: START, to: ask}, {from: ask, to: END}]
    """
    roles = {"first": scripted(lambda m: last(m) + "!"), "second": scripted(lambda m: last(m) + "?", identity="two")}
    _, [record] = run(tmp_path, graph, [{"x": "so"}], model_role=roles)
    assert record["said"] == [{"one": "so!", "two": "so?"}]


@pytest.mark.parametrize(("name", "as_changed"), [("ask", "ask"), ("1", "1"), ("1", "'1'"), ("'1'", "1")])
def test_a_graph_within_a_graph_reads_and_writes_the_same_state(name: str, as_changed: str, tmp_path: Path) -> None:
    inner = f"""
    graph_config:
      nodes:
        {name}: {{node_type: llm, output_keys: said, prompt: [{{user: "inner {{question}}"}}], model: {{name: m}}}}
      edges: [{{from: START, to: '{name.strip("'")}'}}, {{from: '{name.strip("'")}', to: END}}]
    """
    outer = """
    graph_config:
      nodes:
        all:
          node_type: subgraph
          subgraph: inner
          node_config_map: {<name>: {prompt_placeholder_map: {question: x}, output_keys: answer}}
        note: {node_type: lambda, lambda: code.note, reads: [answer], writes: noted}
      edges: [{from: START, to: all}, {from: all, to: note}, {from: note, to: END}]
    """
    folder = write_graph(tmp_path, [])
    (folder / "inner").mkdir()
    (folder / "inner/graph_config.yaml").write_text(dedent(inner))
    _, [record] = run(tmp_path, outer.replace("<name>", as_changed), [{"x": "y"}], scripted(last), NOTE)
    assert record["noted"] == "inner y"


@pytest.mark.parametrize("written", ["[x]", "{question: [x]}", "5"])
def test_new_names_of_placeholders_must_be_a_mapping(written: str, tmp_path: Path) -> None:
    inner = """
    graph_config:
      nodes: {ask: {node_type: llm, output_keys: said, prompt: [{user: "{question}"}], model: {name: m}}}
      edges: [{from: START, to: ask}, {from: ask, to: END}]
    """
    changes = f"{{ask: {{prompt_placeholder_map: {written}}}}}"
    outer = f"""
    graph_config:
      nodes: {{all: {{node_type: subgraph, subgraph: inner, node_config_map: {changes}}}}}
      edges: [{{from: START, to: all}}, {{from: all, to: END}}]
    """
    folder = write_graph(tmp_path, [])
    (folder / "inner").mkdir()
    (folder / "inner/graph_config.yaml").write_text(dedent(inner))
    with pytest.raises(ConfigError, match="prompt_placeholder_map of 'ask' must be a mapping"):
        run(tmp_path, outer, [{"x": "y"}])


def test_earlier_turns_are_asked_along_where_a_node_wants_them(tmp_path: Path) -> None:
    graph = """
    graph_config:
      graph_properties: {chat_conversation: multiturn, chat_history_window_size: 1}
      nodes:
        one: {node_type: llm, chat_history: true, output_keys: a, prompt: [{system: be}, {user: "1 {x}"}], model: {name: m}}
        two: {node_type: llm, chat_history: true, output_keys: b, prompt: [{system: be}, {user: "2 {x}"}], model: {name: m}}
        three: {node_type: llm, chat_history: true, output_keys: c, prompt: [{user: "3 {x}"}], model: {name: m}}
      edges: [{from: START, to: one}, {from: one, to: two}, {from: two, to: three}, {from: three, to: END}]
    """
    asked: list[Any] = []
    run(tmp_path, graph, [{"x": "q"}], scripted(lambda m: f"to {last(m)}", asked))
    second, third = ([(m["role"], m["content"]) for m in messages] for messages, _, _ in asked[1:])
    assert second == [("system", "be"), ("user", "1 q"), ("assistant", "to 1 q"), ("user", "2 q")]
    assert third == [("user", "2 q"), ("assistant", "to 2 q"), ("user", "3 q")]


def test_every_prompt_and_answer_of_a_record_is_kept_in_the_samples(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        one: {node_type: llm, output_keys: a, prompt: [{user: "1 {x}"}], model: {name: m}}
        two: {node_type: llm, output_keys: b, prompt: [{user: "2 {a}"}], model: {name: m}}
      edges: [{from: START, to: one}, {from: one, to: two}, {from: two, to: END}]
    """
    run(tmp_path, graph, [{"x": "q"}])
    [row] = sample_rows(tmp_path / "run/samples/eval.question_answering.simpleqa.parquet")
    assert json.loads(row["prompt"]) == [{"role": "user", "content": "1 q"}]
    assert json.loads(row["requests"][1].prompt) == [{"role": "user", "content": "2 1 q"}]
    assert row["responses"] == [["1 q"], ["2 1 q"]]
    assert row["answers"]["none"][0]["b"] == "2 1 q"


def test_processors_are_called_as_they_are_declared(tmp_path: Path) -> None:
    code = """
    def before(state):
        state["x"] = state["x"] + "+"
        return state
    def text_only(message):
        return {"said": message.content.upper()}
    def with_state(message, state):
        raise TypeError("inside")
    """
    graph = """
    graph_config:
      nodes:
        ask:
          node_type: llm
          prompt: [{user: "{x}"}]
          output_keys: [said]
          pre_process: code.before
          post_process: code.text_only
          model: {name: m}
      edges: [{from: START, to: ask}, {from: ask, to: END}]
    """
    _, [record] = run(tmp_path, graph, [{"x": "so"}], code=code)
    assert record["said"] == "SO+"
    asked: list[Any] = []
    wrong = graph.replace("text_only", "with_state")
    results, _ = run(tmp_path / "wrong", wrong, [{"x": "so"}], scripted(last, asked), code)
    assert account(results)["reasons"] == {"the node 'ask': TypeError: inside (code.py:8)": 1}
    assert len(asked) == 1


def test_the_output_is_mapped_with_constants_paths_and_a_generator(tmp_path: Path) -> None:
    code = """
    from sygra.processors.output_record_generator import BaseOutputGenerator
    class Mine(BaseOutputGenerator):
        def shout(self, data, state):
            return data.upper() + str(state["n"])
    """
    graph = """
    graph_config:
      nodes:
        same: {node_type: lambda, lambda: code.same}
      edges: [{from: START, to: same}, {from: same, to: END}]
    output_config:
      generator: code.Mine
      output_map:
        word: {from: x, transform: shout}
        file: {value: $data_config.source.file_path}
        fixed: {value: 3}
        gone: {from: n}
    """
    same = "\n    def same(node, state):\n        return state\n"
    _, [record] = run(tmp_path, graph, [{"x": "so", "n": 4}], code=code + same)
    assert record == {"word": "SO4", "file": "records.jsonl", "fixed": 3, "gone": 4}


def test_a_record_that_does_not_fit_the_schema_has_failed(tmp_path: Path) -> None:
    graph = LOOP + "    schema_config: {fields: [{name: x, type: int, is_greater_than: 3}]}\n"
    results, output = run(tmp_path, graph, [{"x": 0}, {"x": 5}], code=NOTE)
    assert [record["x"] for record in output] == [6]
    assert account(results)["reasons"] == {"the record does not fit the schema: x is 3 (is_greater_than)": 1}


def test_a_loop_that_asks_the_same_again_gets_another_draw(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        ask: {node_type: llm, output_keys: said, prompt: [{user: same}], model: {name: m, parameters: {temperature: 1}}}
        more: {node_type: lambda, lambda: code.more, output_keys: [x]}
      edges:
        - {from: START, to: ask}
        - {from: ask, to: more}
        - {from: more, condition: code.far, path_map: {END: END, again: ask}}
    """
    asked: list[Any] = []
    run(tmp_path, graph, [{"x": 0}], scripted(last, asked), NOTE)
    assert [repeat for _, _, repeat in asked] == [0, 1, 2]


def test_jsonl_is_written_where_it_is_asked_for_and_post_processed_too(tmp_path: Path) -> None:
    graph = QUESTION_ANSWERING.replace("output_config:\n", "output_config:\n  format: jsonl\n")
    folder = write_graph(tmp_path, RECORDS, graph)
    model = scripted(lambda messages: json.loads(messages[1]["content"].partition("\n")[0])["say"])
    assay.simple_evaluate(model, tasks=[str(folder)], output_path=str(tmp_path / "run"))
    assert len(the_file(tmp_path / "run", "output_*.jsonl")) == 4
    [report] = the_file(tmp_path / "run", "MetricCollatorPostProcessor_*.json")
    assert report["results"]["accuracy"]["accuracy"] == 0.75


def test_a_record_may_hold_what_json_is_not_made_for(tmp_path: Path) -> None:
    code = """
    def odd(node, state):
        return {**state, "large": 2**70, "kinds": {3, 1}, "nothing": float("nan"), 5: "five"}
    """
    graph = """
    graph_config:
      nodes: {odd: {node_type: lambda, lambda: code.odd, output_keys: [large, kinds]}}
      edges: [{from: START, to: odd}, {from: odd, to: END}]
    output_config: {output_map: {large: {from: large}, kinds: {from: kinds}}}
    """
    results, [record] = run(tmp_path, graph, [{"x": 1}], code=code)
    assert results["assay"]["status"] == "complete"
    assert record == {"large": 2**70, "kinds": [1, 3]}


def test_user_post_processors_write_separate_files_and_can_be_chained(tmp_path: Path) -> None:
    code = """
    from sygra.core.graph.graph_postprocessor import GraphPostProcessor
    class Count(GraphPostProcessor):
        def __init__(self, by):
            self.by = by
        def process(self, data, metadata):
            return [{"n": len(data) * self.by, "first": data[0]["x"], "all": [each["x"] for each in data]}]
    class Further(GraphPostProcessor):
        def process(self, data, metadata):
            return [{"was": data[0]["n"]}]
    class Broken(GraphPostProcessor):
        def process(self, data, metadata):
            raise ValueError("no")
    """
    graph = (
        LOOP
        + """
    graph_post_process:
      - {processor: code.Count, params: {by: 10}}
      - {processor: code.Further, params: {use_previous_output: true}}
      - code.Broken
    """
    )
    results, _ = run(tmp_path, graph, [{"x": 5}, {"x": 6}], code=NOTE + code)
    assert the_file(tmp_path / "run", "Count_*.json") == [{"n": 20, "first": 6, "all": [6, 7]}]
    assert the_file(tmp_path / "run", "Further_*.json") == [{"was": 20}]
    assert results["assay"]["status"] == "incomplete"
    assert [row["reason"] for row in account(results)["rows"] if row.get("lacks_number")] == [
        "Broken: ValueError: no (code.py:27)"
    ]


def test_further_copies_of_the_output_are_written_where_sinks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = ("json", "jsonl", "csv", "parquet")
    sinks = ", ".join(f"{{type: {kind}, file_path: copies/all.{kind}}}" for kind in kinds)
    graph = LOOP.replace(
        "    graph_config:",
        f"    data_config: {{source: {{type: disk, file_path: records.jsonl}}, sink: [{sinks}]}}\n    graph_config:",
        1,
    )
    folder = write_graph(tmp_path, [{"x": 5, "more": {"a": [1, "ü"]}}, {"x": 6, "more": {}}], dedent(graph), code=NOTE)
    assay.simple_evaluate(None, tasks=[str(folder)], output_path=str(tmp_path / "run"))
    expected = [{"x": 6, "more": {"a": [1, "ü"]}, "id": 0}, {"x": 7, "more": {}, "id": 1}]
    copies = tmp_path / "copies"
    assert json.loads((copies / "all.json").read_text()) == expected
    assert [json.loads(line) for line in (copies / "all.jsonl").read_text().splitlines()] == expected
    plain = [{**record, "more": json.loads(json.dumps(record["more"]))} for record in expected]
    with (copies / "all.csv").open() as text:
        rows = [
            {"x": int(row["x"]), "more": json.loads(row["more"]), "id": int(row["id"])} for row in csv.DictReader(text)
        ]
    assert rows == plain
    table = pq.read_table(copies / "all.parquet").to_pylist()
    assert [{**row, "more": json.loads(row["more"])} for row in table] == plain


TYPOS = {
    "node_type: llm": ("node_type: lmm", "no node type named 'lmm' — did you mean 'llm'?"),
    "to: unit_metrics": ("to: unit_metric", "there is no node 'unit_metric' — did you mean 'unit_metrics'?"),
    "{problem}": ("{problm}", "nothing produces 'problm'"),
    '- name: "exact_match"': ('- name: "exact_mtch"', "exact_mtch"),
    "output_map:": ("output_mpa:", "unknown key 'output_mpa' — did you mean 'output_map'?"),
    'predicted_key: "predicted_answer"': ('predicted_key: "predicted"', "nothing produces 'predicted'"),
    'key: "text"\n          unit_metrics_results:\n            - "exact_match_result"': (
        'key: "text"\n          unit_metrics_results:\n            - "exact_match"', "'exact_match'",
    ),
    "UnitMetrics\n": ("UnitMetric\n", "did you mean 'UnitMetrics'?"),
    "overwrite: false": ("overwrit: false", "overwrit"),
    "GenerateAnswerPostProcessor\n": ("GenerateAnswrPostProcessor\n", "GenerateAnswerPostProcessor"),
    "structured_output:": ("structured_outptu:", "structured_output"),
    "type: str\n": ("type: string\n", "'string'"),
    "from: unit_metrics\n      to: END": ("from: unit_metrics\n      condition: a.b", "a condition needs a path_map"),
    "from: START\n      to: predict_answer": ("from: START\n      to: unit_metrics", "no way leads from START"),
}  # fmt: skip


@pytest.mark.parametrize("right", TYPOS, ids=[typo.strip()[:30] for typo, _ in TYPOS.values()])
def test_a_typo_in_a_graph_is_refused_before_any_request_with_place_and_remedy(tmp_path: Path, right: str) -> None:
    typo, message = TYPOS[right]
    assert right in QUESTION_ANSWERING
    folder = write_graph(tmp_path, RECORDS, QUESTION_ANSWERING.replace(right, typo, 1))
    asked: list[Any] = []
    with pytest.raises(ConfigError) as caught:
        assay.simple_evaluate(scripted(last, asked), tasks=[str(folder)])
    assert message in str(caught.value)
    assert all(problem.place.line > 0 and problem.place.file.endswith(".yaml") for problem in caught.value.problems)
    assert all(problem.fix for problem in caught.value.problems)
    assert asked == []


PLACES = {
    '- name: "exact_match"': ('- name: "exact_mach"', '- name: "exact_mach"', "did you mean 'exact_match'?"),
    'name: "accuracy"': ('name: "acuracy"', 'name: "acuracy"', "did you mean 'accuracy'?"),
    "temperature: 0.1": ("temprature: 0.1", "temprature", "did you mean 'temperature'?"),
    'predicted_key: "': ('predictd_key: "', "predictd_key", "did you mean 'predicted_key'?"),
}


@pytest.mark.parametrize("right", PLACES)
def test_a_typo_in_a_list_or_a_parameter_is_reported_on_its_own_line(tmp_path: Path, right: str) -> None:
    typo, misspelled, fix = PLACES[right]
    folder = write_graph(tmp_path, RECORDS, QUESTION_ANSWERING.replace(right, typo, 1))
    lines = (folder / "graph_config.yaml").read_text().splitlines()
    [line] = [number for number, text in enumerate(lines, 1) if misspelled in text]
    with pytest.raises(ConfigError) as caught:
        assay.simple_evaluate(scripted(last), tasks=[str(folder)])
    [problem] = [each for each in caught.value.problems if each.fix == fix]
    assert problem.place.line == line


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("node_type: llm\n      tools: [tasks.eval.utils.parse_response_as_json]", "needs a model that can call tools"),
        ("node_type: llm\n      chat_history: true", "chat_history needs a chat_conversation"),
    ],
)
def test_unsupported_features_are_reported(tmp_path: Path, graph: str, message: str) -> None:
    folder = write_graph(tmp_path, RECORDS, QUESTION_ANSWERING.replace("node_type: llm", graph, 1))
    with pytest.raises(ConfigError, match=message):
        assay.simple_evaluate(scripted(last), tasks=[str(folder)])


def test_unnamed_models_are_refused_where_there_is_more_than_one(tmp_path: Path) -> None:
    graph = """
    graph_config:
      nodes:
        a: {node_type: llm, output_keys: p, prompt: [{user: "{x}"}], model: {name: one}}
        b: {node_type: llm, output_keys: q, prompt: [{user: "{x}"}], model: {name: two}}
      edges: [{from: START, to: a}, {from: a, to: b}, {from: b, to: END}]
    """
    folder = write_graph(tmp_path, [{"x": 1}], HEAD + dedent(graph))
    with pytest.raises(ConfigError, match=r"the graph asks several models \(one, two\)"):
        prepare_run(run_config({"tasks": [str(folder)]}), assay.TaskManager())
