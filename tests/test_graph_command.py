"""`assay run` with graphs: SyGra's names, flags and files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import run_world
from graph_world import RECORDS, the_file, write_graph
from serving import TALKING, Servers, fetched

Run = Callable[..., "object"]


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def flags(url: str) -> tuple[str, ...]:
    return ("--model", "openai-chat", "--model_args", f"model=m,base_url={url},max_retries=1")


@pytest.mark.parametrize("name", ["tasks.eval.question_answering.simpleqa", "eval/question_answering/simpleqa"])
def test_the_commands_of_the_seed_document_run(tmp_path: Path, talking: str, run_assay: Run, name: str) -> None:
    write_graph(tmp_path, RECORDS)
    ended = run_assay(
        "run", "--task", name, "--num_records", 2, "--output_dir", tmp_path / "out", "--batch_size", 1, *flags(talking)
    )
    assert ended.returncode == 0, ended.stderr
    assert "exact_match" in ended.stdout
    assert "accuracy" in ended.stdout
    assert [record["original_index"] for record in the_file(tmp_path / "out", "output_*.json")] == [7, 8]


def test_a_run_with_failed_records_says_so_and_exits_with_1(tmp_path: Path, talking: str, run_assay: Run) -> None:
    write_graph(tmp_path, [*RECORDS, {"task_id": 1, "problem": '{"status": 500}', "answer": "x"}])
    ended = run_assay("run", "--task", "eval.question_answering.simpleqa", *flags(talking), "--output_dir", "out")
    assert ended.returncode == 1
    assert "1 of 5 documents failed" in ended.stderr


def test_records_from_an_index_on_under_a_name(tmp_path: Path, talking: str, run_assay: Run) -> None:
    write_graph(tmp_path, RECORDS)
    ended = run_assay(
        "run", "--task", "eval/question_answering/simpleqa", "--start_index", 3, "--num_records", 100,
        "--run_name", "my_output_run", "--output_dir", "out", "--resume", "True", *flags(talking),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [record] = the_file(tmp_path / "out", "my_output_run_output_*.json")
    assert record["original_index"] == 10
    [report] = the_file(tmp_path / "out", "my_output_run_MetricCollatorPostProcessor_*.json")
    assert report["evaluation_summary"]["total_records"] == 1


def test_models_of_a_models_file_are_asked_and_their_tokens_are_written_nowhere(
    tmp_path: Path, talking: str, run_assay: Run
) -> None:
    folder = write_graph(tmp_path, RECORDS)
    (tmp_path / "models.yaml").write_text(
        f"eval_model:\n  model_type: vllm\n  url: {talking}\n  auth_token: sesame-open-now\n  model: m\n"
        "  parameters: {max_tokens: 77, temperature: 0.9}\n"
    )
    ended = run_assay("run", "--tasks", folder, "--output_path", "out")
    assert ended.returncode == 0, ended.stderr
    asked = fetched(talking, "/log")
    assert {each["headers"]["Authorization"] for each in asked} == {"Bearer sesame-open-now"}
    assert asked[-1]["body"]["max_tokens"] == 77
    assert asked[-1]["body"]["temperature"] == 0.1  # the node's own
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"sesame" not in path.read_bytes(), path


def test_passwords_and_queries_of_a_models_address_are_written_nowhere(
    tmp_path: Path, talking: str, run_assay: Run
) -> None:
    failing = {"task_id": 1, "problem": '{"status": 400, "message": "KEY"}', "answer": "x"}
    folder = write_graph(tmp_path, [*RECORDS, failing])
    url = talking.replace("://", "://me:sesame-password@")
    role = f"judge=openai-chat,model=m,base_url={talking}?key=sesame-role,header={{'X-Tenant': 'sesame-tenant'}}"
    (tmp_path / "models.yaml").write_text(
        f"eval_model:\n  model_type: vllm\n  url: {url}?sig=sesame-query\n  model: m\n  parameters: {{max_tokens: 77}}\n"
    )
    ended = run_assay("run", "--tasks", folder, "--output_path", "out", "--model_role", role)
    assert ended.returncode == 1, ended.stderr
    assert "sesame" not in ended.stdout + ended.stderr
    assert "Basic" in fetched(talking, "/log")[-1]["headers"]["Authorization"]
    secrets = (b"sesame", fetched(talking, "/log")[-1]["headers"]["Authorization"].removeprefix("Basic ").encode())
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or not any(secret in path.read_bytes() for secret in secrets), path


def test_the_environment_overrides_the_address_of_a_model(tmp_path: Path, talking: str, run_assay: Run) -> None:
    folder = write_graph(tmp_path, RECORDS)
    (tmp_path / "models.yaml").write_text("eval_model: {model_type: vllm, parameters: {}}\n")
    refused = run_assay("run", "--tasks", folder)
    assert refused.returncode == 2
    assert "models.yaml:1:1: the model 'eval_model' has no url" in refused.stderr
    ended = run_assay("run", "--tasks", folder, SYGRA_EVAL_MODEL_URL=talking, SYGRA_EVAL_MODEL_TOKEN="abc")
    assert ended.returncode == 0, ended.stderr
    assert fetched(talking, "/log")[-1]["headers"]["Authorization"] == "Bearer abc"


def test_a_role_of_the_run_replaces_one_model_of_a_graph(tmp_path: Path, talking: str, run_assay: Run) -> None:
    folder = write_graph(tmp_path, RECORDS)
    role = f"eval_model=openai-chat,model=other,base_url={talking}"
    ended = run_assay("run", "--tasks", folder, "--model_role", role)
    assert ended.returncode == 0, ended.stderr
    assert {each["body"]["model"] for each in fetched(talking, "/log")} == {"other"}


def test_with_compat_sygra_the_report_is_in_its_words(tmp_path: Path, talking: str, run_assay: Run) -> None:
    write_graph(tmp_path, RECORDS)
    name = "eval.question_answering.simpleqa"
    ended = run_assay("run", "--task", name, "--compat", "sygra", "--output_dir", "out", *flags(talking))
    assert ended.returncode == 0, ended.stderr
    assert the_file(tmp_path / "out", "MetricCollatorPostProcessor_*.json") == [
        {"evaluation_summary": {"total_records": 4, "status": "success"}, "results": {"accuracy": {"accuracy": 0.75}}}
    ]


def test_a_graph_is_a_member_of_a_group_beside_another_task(tmp_path: Path, talking: str, run_assay: Run) -> None:
    folder = write_graph(tmp_path, RECORDS)
    text = (folder / "graph_config.yaml").read_text()
    (folder / "graph_config.yaml").write_text("task: my_graph\ntag: graphs\n" + text)
    (folder / "other.yaml").write_text(
        "task: other\ndataset_path: json\ndataset_kwargs: {data_files: {test: records.jsonl}}\ntest_split: test\n"
        "doc_to_text: problem\ndoc_to_target: answer\nmetric_list: [{metric: exact_match}]\nnum_fewshot: 0\n"
    )
    (folder / "group.yaml").write_text(
        "group: both\ntask: [my_graph, other]\naggregate_metric_list: [{metric: exact_match}]\n"
    )
    ended = run_assay("run", "--tasks", "both", "--include_path", folder, "--output_path", "out", *flags(talking))
    assert ended.returncode == 0, ended.stderr
    loaded = run_world.results(tmp_path / "out")
    # the other task compares whole JSON answers with bare words: all four are wrong
    assert loaded["results"]["my_graph"]["exact_match,none"] == 0.75
    assert loaded["results"]["other"]["exact_match,none"] == 0.0
    assert loaded["results"]["both"]["exact_match,none"] == pytest.approx(0.375)
    shown = run_assay("show", "tag:graphs", "--include_path", folder)
    assert "my_graph" in shown.stdout


def test_show_draws_a_graph_for_the_terminal_and_for_mermaid(run_assay: Run) -> None:
    drawn = run_assay("show", "first_steps_graph_tries").stdout
    lines = drawn.splitlines()
    start = lines.index("START")
    assert lines[start : start + 13] == [
        "START",
        "  └─► begin",
        "begin  lambda begin → examples, tries",
        "  └─► answer",
        "answer  llm model_under_test → predicted",
        "  └─► look",
        "look  lambda look → is_done",
        "  ├─ done ─► verdict",
        "  └─ again ─► answer  ↺",
        "verdict  lambda UnitMetrics → exact_match_result",
        "  └─► END",
        "END",
        "",
    ]
    mermaid = run_assay("show", "first_steps_graph_tries", "--mermaid").stdout.splitlines()
    assert mermaid[0] == "flowchart TD"
    assert "    n0([START])" in mermaid
    assert '    n3 -->|"again"| n2' in mermaid
    refused = run_assay("show", "first_steps_sums", "--mermaid")
    assert refused.returncode == 2
    assert "--mermaid is for graphs" in refused.stderr
