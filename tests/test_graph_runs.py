"""Graph evaluations over HTTP: SyGra's files, run unchanged, with every record accounted for."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import assay
from assay.runs.samples.reader import SampleFile
from graph_world import RECORDS, said, the_file, write_graph
from serving import TALKING, Servers, fetched


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def model(url: str) -> dict[str, object]:
    return {"model": "openai-chat", "model_args": f"model=m,base_url={url},max_retries=1"}


def test_a_graph_of_sygra_runs_and_leaves_its_output_and_its_report(tmp_path: Path, talking: str) -> None:
    folder = write_graph(tmp_path, RECORDS)
    results = assay.simple_evaluate(**model(talking), tasks=[str(folder)], output_path=str(tmp_path / "run"))
    row = results["results"]["eval.question_answering.simpleqa"]
    assert row["exact_match,none"] == 0.75
    assert row["exact_match_stderr,none"] == pytest.approx(0.25)
    assert row["accuracy,none"] == 0.75
    assert results["assay"]["status"] == "complete"
    unit_node = results["configs"]["eval.question_answering.simpleqa"]["graph_config"]["nodes"]["unit_metrics"]
    assert unit_node["golden_key"] == "answer"
    output = the_file(tmp_path / "run", "output_*.json")
    assert [record["original_index"] for record in output] == [7, 8, 9, 10]
    assert [record["exact_match_result"]["correct"] for record in output] == [True, True, False, True]
    assert list(output[0]) == ["original_index", "problem", "answer", "predicted_answer", "exact_match_result"]
    [report] = the_file(tmp_path / "run", "MetricCollatorPostProcessor_*.json")
    assert report["evaluation_summary"] == {
        "total_records": 4, "status": "success", "requested": 4, "ok": 4, "failed": 0, "skipped": 0,
    }  # fmt: skip
    assert report["results"] == {"accuracy": {"accuracy": 0.75}}
    bodies = [each["body"] for each in fetched(talking, "/log")][2:]  # the first are the greeting, which is said twice
    assert [message["role"] for message in bodies[0]["messages"]] == ["system", "user"]
    assert bodies[0]["temperature"] == 0.1
    assert bodies[0]["response_format"]["json_schema"]["schema"]["required"] == ["predicted_answer"]
    assert len(bodies) == 4


def test_samples_contain_the_path_of_every_record_and_the_request_of_every_node(tmp_path: Path, talking: str) -> None:
    failing = {"task_id": 11, "problem": '{"status": 500}', "answer": "x"}
    folder = write_graph(tmp_path, [RECORDS[0], failing])
    assay.simple_evaluate(**model(talking), tasks=[str(folder)], output_path=str(tmp_path / "run"))
    [file] = (tmp_path / "run/samples").glob("*.parquet")
    well, badly = (row.replies or [] for row in SampleFile(file).rows())
    assert well[-1]["trace"] == [["predict_answer", [0]], ["unit_metrics", []]]
    assert badly[-1]["trace"] == [["predict_answer", [0]]]


def test_a_record_whose_request_fails_permanently_is_counted_and_not_scored_as_wrong(
    tmp_path: Path, talking: str
) -> None:
    failing = {"task_id": 11, "problem": '{"status": 500}', "answer": "x"}
    folder = write_graph(tmp_path, [*RECORDS[:2], failing, *RECORDS[2:]])
    results = assay.simple_evaluate(**model(talking), tasks=[str(folder)], output_path=str(tmp_path / "run"))
    assert results["results"]["eval.question_answering.simpleqa"]["exact_match,none"] == 0.75
    account = results["assay"]["tasks"]["eval.question_answering.simpleqa"]
    assert results["assay"]["status"] == "incomplete"
    assert account["failed"] == 1
    assert [record["original_index"] for record in the_file(tmp_path / "run", "output_*.json")] == [7, 8, 9, 10]
    [report] = the_file(tmp_path / "run", "MetricCollatorPostProcessor_*.json")
    assert report["evaluation_summary"]["status"] == "incomplete"
    assert report["evaluation_summary"]["failed"] == 1


def test_an_answer_without_its_fields_is_asked_for_once_more_and_counted(tmp_path: Path, talking: str) -> None:
    folder = write_graph(tmp_path, [{"task_id": 1, "problem": '{"say": "just words"}', "answer": "x"}, *RECORDS])
    results = assay.simple_evaluate(**model(talking), tasks=[str(folder)])
    assert len(fetched(talking, "/log")) == 2 + 5 + 1
    noticed = results["assay"]["tasks"]["eval.question_answering.simpleqa"]["noticed"]
    assert noticed["asked again for structured output"] == 1
    assert noticed["without the structured output asked for"] == 1
    assert results["results"]["eval.question_answering.simpleqa"]["exact_match,none"] == pytest.approx(0.6)


def test_a_second_run_asks_nothing_and_leaves_the_same_files(tmp_path: Path, talking: str) -> None:
    folder = write_graph(tmp_path, [*RECORDS, {"task_id": 3, "problem": said("Rom"), "answer": "Rom"}])
    options = {**model(talking), "tasks": [str(folder)], "output_path": str(tmp_path / "run")}
    assay.simple_evaluate(**options)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*_20*")}
    asked = len(fetched(talking, "/log"))
    assay.simple_evaluate(**options)
    assert len(fetched(talking, "/log")) == asked + 2  # the greeting
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*_20*")} == before
    assert len(before) == 2


@pytest.mark.slow
def test_the_bundled_graphs_run_on_the_embedded_model(tmp_path: Path) -> None:
    results = assay.simple_evaluate("embedded", tasks=["tag:first_steps_graphs"], output_path=str(tmp_path / "run"))
    assert results["assay"]["status"] == "complete"
    assert len(results["results"]) == 3
    tries = the_file(tmp_path / "run", "first_steps_graph_tries_output_*.json")
    assert {record["tries"] for record in tries} >= {1, 3}  # some went through the loop
    for record in tries:
        assert record["exact_match_result"]["correct"] == (record["answer"] == record["predicted"])
    [report] = the_file(tmp_path / "run", "first_steps_graph_classes_MetricCollatorPostProcessor_*.json")
    assert set(report["results"]["f1_score"]["f1_score_per_class"]) >= {"noun", "verb", "adjective"}


TOOLS = """
    async def look_up(city: str, times: int = 1) -> str:
        \"\"\"What is known of a city.\"\"\"
        import json
        return json.dumps({"say": f"{city} is known" * times})
    def broken(x: float):
        raise ValueError("out of order")
    def note(message, state):
        return {"said": message.content, "wanted": [call["name"] for call in message.tool_calls]}
"""
AGENT = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    agent:
      node_type: agent
      prompt: [{user: "{q}"}]
      output_keys: [said, wanted]
      post_process: code.note
      tools: [code.look_up, code.broken]
      inject_system_messages: [{2: hurry}]
      model: {name: m}
  edges: [{from: START, to: agent}, {from: agent, to: END}]
"""


def test_an_agent_calls_tools_until_the_model_wants_none(tmp_path: Path, talking: str) -> None:
    records = [{"q": json.dumps({"calls": [["look_up", {"city": "Oslo"}]]})}, {"q": json.dumps({"say": "none"})}]
    folder = write_graph(tmp_path, records, AGENT, code=TOOLS)
    options = {**model(talking), "tasks": [str(folder)], "output_path": str(tmp_path / "run")}
    results = assay.simple_evaluate(**options)
    output = the_file(tmp_path / "run", "output_*.json")
    # a system message comes before the second turn, so the server gets no instruction, and says hello
    assert [record["said"] for record in output] == ["hello", "none"]
    bodies = [each["body"] for each in fetched(talking, "/log")]
    [second] = [body["messages"] for body in bodies if len(body["messages"]) == 4]
    assert [message["role"] for message in second] == ["user", "assistant", "tool", "system"]
    assert second[2] == {"role": "tool", "tool_call_id": "c0", "content": '{"say": "Oslo is known"}'}
    assert bodies[-1]["tools"][0] == {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "What is known of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "times": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
    assert results["assay"]["status"] == "complete"
    asked = len(bodies)
    assay.simple_evaluate(**options)  # calls of tools are in the journal, too
    assert len(fetched(talking, "/log")) == asked + 2


def test_a_failing_tool_sends_its_error_to_the_model_and_is_counted(tmp_path: Path, talking: str) -> None:
    records = [{"q": json.dumps({"calls": [["broken", {"x": 1}], ["lacking", {}]]})}]
    folder = write_graph(tmp_path, records, AGENT.replace("{2: hurry}", "{9: hurry}"), code=TOOLS)
    results = assay.simple_evaluate(**model(talking), tasks=[str(folder)])
    [last] = [each["body"]["messages"] for each in fetched(talking, "/log") if len(each["body"]["messages"]) == 4]
    assert last[2]["content"] == "Error: ValueError: out of order"
    assert last[3]["content"].startswith("Error: there is no such tool")
    [account] = results["assay"]["tasks"].values()
    assert account["noticed"]["with calls of tools that failed"] == 1  # a document, with two such calls


def test_an_agent_that_never_ends_fails_its_record_where_nothing_scores_it(tmp_path: Path, talking: str) -> None:
    again = {"say": "", "calls": [["again", {}]]}
    code = (
        TOOLS
        + f"""
    def again():
        return {json.dumps(again)}
    """
    )
    graph = AGENT.replace("code.broken", "code.again").replace(
        "model: {name: m}", "model: {name: m}\n      max_turns: 3"
    )
    folder = write_graph(tmp_path, [{"q": json.dumps(again)}], graph.replace("{2: hurry}", "{9: hurry}"), code=code)
    results = assay.simple_evaluate(**model(talking), tasks=[str(folder)])
    [account] = results["assay"]["tasks"].values()
    assert account["reasons"] == {"the agent 'agent' still called tools after 3 turns": 1}


def test_an_llm_node_with_tools_puts_what_the_model_wants_into_the_state(tmp_path: Path, talking: str) -> None:
    graph = AGENT.replace("node_type: agent", "node_type: llm").replace(
        "      inject_system_messages: [{2: hurry}]\n", ""
    )
    records = [{"q": json.dumps({"calls": [["look_up", {"city": "Oslo"}]]})}]
    folder = write_graph(tmp_path, records, graph, code=TOOLS)
    assay.simple_evaluate(**model(talking), tasks=[str(folder)], output_path=str(tmp_path / "run"))
    [record] = the_file(tmp_path / "run", "output_*.json")
    assert record["wanted"] == ["look_up"]
    assert record["tool_calls"] == [{"name": "look_up", "args": {"city": "Oslo"}, "id": "c0", "type": "tool_call"}]
