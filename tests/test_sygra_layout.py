"""A folder laid out as SyGra's repository: its metrics, imports, names, flags, `.env` and models.yaml, and files that are broken."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

import assay
import run_world
from assay.cli import main
from assay.graphs.models import dotenv, find_models_file, read_models
from assay.models import Scripted
from serving import Arrived, loopback

GRAPH = """
    data_config: {source: {type: disk, file_path: tasks/mine/records.jsonl}}
    graph_config:
      nodes:
        measure: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, golden_key: golden, predicted_key: said,
                  unit_metrics_map: [{name: NAME}], output_keys: [NAME_result]}
      edges: [{from: START, to: measure}, {from: measure, to: END}]
"""
RECORDS = [{"golden": "abc", "said": "axx"}, {"golden": "abc", "said": "x"}]
"""Both begin alike in one of two, and are equally long in one of two."""
THEIR_METRIC = """
    from sygra.core.eval.metrics.base_metric_metadata import BaseMetricMetadata
    from sygra.core.eval.metrics.unit_metrics.base_unit_metric import BaseUnitMetric
    from sygra.core.eval.metrics.unit_metrics.unit_metric_registry import unit_metric
    from sygra.core.eval.metrics.unit_metrics.unit_metric_result import UnitMetricResult

    @unit_metric("starts_alike")
    class StartsAlike(BaseUnitMetric):
        def __init__(self, **config):
            super().__init__(**config)
            self.validate_config()
            self.metadata = self.get_metadata()

        def validate_config(self):
            pass

        def get_metadata(self):
            return BaseMetricMetadata(name="starts_alike", display_name="Starts alike", description="")

        def evaluate(self, golden, predicted):
            return [UnitMetricResult(correct=right["text"][0] == said["text"][0], golden=right, predicted=said)
                    for right, said in zip(golden, predicted)]
"""
THEIR_AGGREGATOR = """
    from sygra.core.eval.metrics.aggregator_metrics.aggregator_metric_registry import aggregator_metric
    from sygra.core.eval.metrics.aggregator_metrics.base_aggregator_metric import BaseAggregatorMetric

    @aggregator_metric("share_missed")
    class ShareWrong(BaseAggregatorMetric):
        def validate_config(self):
            pass

        def calculate(self, results):
            return {"share_missed": self._safe_divide(len(results) - self._count_correct(results), len(results))}
"""
OWN_METRIC = """
    from assay import unit_metric

    @unit_metric("as_long")
    def as_long(golden, predicted):
        return len(golden["text"]) == len(predicted["text"])
"""
METRICS = "sygra/core/eval/metrics"
UNIT = f"{METRICS}/unit_metrics/starts_alike.py"
AGGREGATOR = f"{METRICS}/aggregator_metrics/share_missed.py"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(cwd: Path, *arguments: object) -> Ended:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        try:
            code = main(["run", *map(str, arguments)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ended(code, *capsys.readouterr())

    return run


def lay_out(top: Path, graph: str = GRAPH, **files: str) -> Path:
    """A graph `tasks/mine` below a folder, and files by path."""
    records = "".join(json.dumps(each) + "\n" for each in RECORDS)
    for path, text in {"tasks/mine/graph_config.yaml": graph, "tasks/mine/records.jsonl": records, **files}.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(dedent(text))
    return top


def rows(folder: Path, name: str = "mine") -> dict[str, float]:
    results = run_world.results(folder)["results"][name]
    return {key.removesuffix(",none"): value for key, value in results.items() if key.endswith(",none")}


def test_metrics_that_a_user_adds_to_a_clone_are_found(tmp_path: Path, run: Run) -> None:
    graph = dedent(GRAPH).replace("NAME", "starts_alike") + dedent("""
        graph_post_process:
          - processor: tasks.eval.utils.MetricCollatorPostProcessor
            params: {aggregator_metrics_map: [{name: share_missed, unit_metrics_results: [starts_alike_result]}]}
    """)
    lay_out(tmp_path, graph, **{UNIT: THEIR_METRIC, AGGREGATOR: THEIR_AGGREGATOR})
    ended = run(tmp_path, "--task", "mine", "--output_dir", "out")
    assert ended.code == 0, ended.err
    assert (rows(tmp_path / "out")["starts_alike"], rows(tmp_path / "out")["share_missed"]) == (0.5, 0.5)
    assert main(["score", "out"]) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import no_such_library", "pip install no_such_library"),
        (f"from {METRICS.replace('/', '.')}.unit_metrics.bad import NAME", "cannot import name 'NAME'"),
    ],
)
def test_a_file_of_metrics_that_cannot_be_loaded_is_said_and_the_others_are_there(
    text: str, reason: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    files = {UNIT: THEIR_METRIC, f"{METRICS}/unit_metrics/bad.py": text, f"{METRICS}/unit_metrics/exact_match.py": text}
    lay_out(tmp_path, GRAPH.replace("NAME", "starts_alike"), **files)
    with caplog.at_level(logging.WARNING, "assay"):
        ended = run(tmp_path, "--task", "mine", "--output_dir", "out")
    assert ended.code == 0, ended.err
    assert rows(tmp_path / "out")["starts_alike"] == 0.5
    said = caplog.text + ended.err
    assert "bad.py" in said and reason in said and "exact_match.py" not in said


def test_imports_name_modules_with_metrics(tmp_path: Path, run: Run) -> None:
    graph = "imports: [my_metrics]\n" + dedent(GRAPH).replace("NAME", "as_long")
    lay_out(tmp_path, graph, **{"tasks/mine/my_metrics.py": OWN_METRIC})
    ended = run(tmp_path, "--task", "mine", "--output_dir", "out")
    assert ended.code == 0, ended.err
    assert rows(tmp_path / "out")["as_long"] == 0.5
    lay_out(tmp_path, graph.replace("[my_metrics]", "my_metric"))
    ended = run(tmp_path, "--task", "mine")
    assert (
        ended.code == 2
        and "graph_config.yaml:1:10: my_metric: no module named 'my_metric' — did you mean 'my_metrics'?" in ended.err
    )


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (".", "mine"),
        (".", "tasks.mine"),
        (".", "mine/"),
        ("tasks", "mine"),
        ("tasks/mine", "."),
        ("..", "clone/tasks/mine"),
    ],
)
def test_a_graph_is_found_from_every_folder_of_a_clone(where: str, name: str, tmp_path: Path, run: Run) -> None:
    clone = lay_out(tmp_path / "clone", GRAPH.replace("NAME", "starts_alike"), **{UNIT: THEIR_METRIC})
    lay_out(tmp_path / "clone", GRAPH.replace("NAME", "starts_alike"), **{"tasks/mine/inner/graph_config.yaml": GRAPH})
    ended = run(clone / where, "--task", name, "--output_dir", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert list(run_world.results(tmp_path / "out")["results"]) == ["mine"]
    assert rows(tmp_path / "out")["starts_alike"] == 0.5


def test_a_graph_is_found_in_an_include_path(tmp_path: Path, run: Run) -> None:
    clone = lay_out(tmp_path / "clone", GRAPH.replace("NAME", "starts_alike"), **{UNIT: THEIR_METRIC})
    (tmp_path / "away").mkdir()
    ended = run(tmp_path / "away", "--task", "mine", "--include_path", clone, "--output_dir", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert rows(tmp_path / "out")["starts_alike"] == 0.5


def test_sygras_flags_work_or_say_what_does(tmp_path: Path, run: Run) -> None:
    lay_out(tmp_path, GRAPH.replace("NAME", "exact_match"))
    flags = [
        "-t",
        "mine",
        "-si",
        "1",
        "-n",
        "1",
        "-rn",
        "mine",
        "-od",
        "out",
        "-ra",
        "{}",
        "-ost",
        "False",
        "-q",
        "False",
    ]
    ended = run(tmp_path, *flags, *["-ci", "100", "-d", "False", "-cl", "True", "-owt", "False", "-dm", "True"])
    assert ended.code == 0, ended.err
    assert [each["said"] for each in json.loads(next((tmp_path / "out").glob("mine_output_*.json")).read_text())] == [
        "x"
    ]
    for name in ("checkpoint_interval", "debug", "clear_logs", "output_with_ts", "disable_metadata"):
        assert ended.err.count(f"--{name} has no effect: ") == 1
    for flag, fix in (
        ('--run_args={"a": 1}', "write the values into the graph file"),
        ("--oasst=True", "output_config.generator"),
        ("--quality", "UnitMetrics"),
    ):
        ended = run(tmp_path, "--task", "mine", flag)
        assert ended.code == 2 and len(ended.err.strip().splitlines()) == 1
        assert ended.err.startswith(flag.partition("=")[0]) and fix in ended.err


NULLS = """
    task:
    data_config:
      source: {type: disk, file_path: tasks/mine/records.jsonl, transformations: , fields: , encoding: }
      sink:
    graph_config:
      graph_properties:
      nodes:
        measure: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, golden_key: golden, predicted_key: said,
                  unit_metrics_map: [{name: exact_match}], output_keys: [exact_match_result], node_state: }
      edges: [{from: START, to: measure, condition: , path_map: }, {from: measure, to: END}]
    output_config: {output_map: , generator: , oasst_mapper: }
    schema_config:
    graph_post_process:
"""


def test_keys_that_are_null_are_as_absent_ones(tmp_path: Path, run: Run) -> None:
    ended = run(lay_out(tmp_path, NULLS), "--task", "mine", "--output_dir", "out")
    assert ended.code == 0, ended.err
    assert rows(tmp_path / "out")["exact_match"] == 0.0
    ended = run(lay_out(tmp_path, NULLS.replace("node_type: lambda, lambda: tasks.eval.utils.UnitMetrics", "node_type: lambda, lambda: ")),
                "--task", "mine")  # fmt: skip
    assert ended.code == 2 and "key 'lambda' is missing" in ended.err


def test_one_aggregator_over_two_columns_has_two_rows(tmp_path: Path, run: Run) -> None:
    graph = (
        dedent(GRAPH)
        .replace("{name: NAME}", "{name: exact_match}, {name: fuzzy_match}")
        .replace("[NAME_result]", "[exact_match, fuzzy_match]")
    )
    entries = (
        "[{name: accuracy, unit_metrics_results: [exact_match]}, {name: accuracy, unit_metrics_results: [COLUMN]}]"
    )
    report = "graph_post_process:\n  - processor: tasks.eval.utils.MetricCollatorPostProcessor\n    params: {aggregator_metrics_map: ENTRIES}\n"
    for flags in ((), ("--compat", "sygra")):
        lay_out(tmp_path, graph + report.replace("ENTRIES", entries.replace("COLUMN", "fuzzy_match")))
        out = tmp_path / f"out{len(flags)}"
        assert run(tmp_path, "--task", "mine", "--output_dir", out, *flags).code == 0
        assert {"exact_match-accuracy", "fuzzy_match-accuracy"} <= set(rows(out))
        [report_written] = json.loads(next(out.glob("MetricCollator*.json")).read_text())
        assert list(report_written["results"]) == ["exact_match-accuracy", "fuzzy_match-accuracy"]
        [directions] = run_world.results(out)["higher_is_better"].values()
        assert directions["exact_match-accuracy"] is True and directions["fuzzy_match-accuracy"] is True
    lay_out(tmp_path, graph + report.replace("ENTRIES", entries.replace("COLUMN", "exact_match")))
    ended = run(tmp_path, "--task", "mine")
    assert ended.code == 2 and "give one another name with `as:`" in ended.err


UNDECORATED = """
    from sygra.core.graph.functions.lambda_function import LambdaFunction
    from sygra.utils import utils

    class Do(LambdaFunction):
        def apply(ARGUMENTS):
            assert utils.get_graph_properties(utils.current_task) == {"mood": "good"}
            assert utils.get_graph_property("mood", "bad") == "good" and utils.get_graph_property("age", 3) == 3
            return {**state, "own_result": {"correct": utils.extract_and_load_json("so: {\\"a\\": 1}") == {"a": 1}}}
"""


def test_undecorated_functions_of_a_class_are_called_on_it(tmp_path: Path, run: Run) -> None:
    graph = """
    data_config: {source: {type: disk, file_path: tasks/mine/records.jsonl}}
    graph_config:
      graph_properties: {mood: good}
      nodes: {do: {node_type: lambda, lambda: tasks.mine.own.Do, output_keys: [own_result]}}
      edges: [{from: START, to: do}, {from: do, to: END}]
    """
    for arguments in ("node, state", "self, node, state"):
        lay_out(tmp_path, graph, **{"tasks/mine/own.py": UNDECORATED.replace("ARGUMENTS", arguments)})
        ended = run(tmp_path, "--task", "mine", "--output_dir", tmp_path / f"out{len(arguments)}")
        assert ended.code == 0, ended.err
        assert rows(tmp_path / f"out{len(arguments)}")["own"] == 1.0
    lay_out(tmp_path, graph, **{"tasks/mine/own.py": UNDECORATED.replace("ARGUMENTS", "self")})
    ended = run(tmp_path, "--task", "mine")
    assert ended.code == 2 and "takes 0 arguments, but is given (node, state)" in ended.err


def test_an_installed_sygra_does_not_complete_a_module_on_disk(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "sygra/recipes/more.py": "", "sygra/core/nothing.py": "",
        "tasks/mine/own.py": "from sygra.recipes.more import WHO\ndef do(node, state):\n    return state\n",
        "installed/sygra/__init__.py": "", "installed/sygra/recipes/__init__.py": "",
        "installed/sygra/recipes/more.py": "WHO = 'installed'",
    }  # fmt: skip
    graph = GRAPH.replace("tasks.eval.utils.UnitMetrics", "tasks.mine.own.do").replace("NAME", "x")
    lay_out(tmp_path, graph, **files)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    ended = run(tmp_path, "--task", "mine")
    assert ended.code == 2 and "cannot import name 'WHO'" in ended.err


def test_dotenv_is_read_for_sygras_names_and_below_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(
        "OPENAI_API_KEY=other\n# SYGRA_A_URL=no\nexport SYGRA_GPT-4O_URL='http://a # b'  # so\nSYGRA_GPT_4O_TOKEN=weak\n"
        "SYGRA_GPT_4O_MINI_URL=http://mini # note\nSYGRA_EMPTY=\nSYGRA_BROKEN\n= \xff\n"
    )
    assert dotenv() == {
        "SYGRA_GPT-4O_URL": "http://a # b", "SYGRA_GPT_4O_TOKEN": "weak", "SYGRA_GPT_4O_MINI_URL": "http://mini",
        "SYGRA_EMPTY": "",
    }  # fmt: skip
    monkeypatch.setenv("SYGRA_GPT_4O_TOKEN", "strong")
    (tmp_path / "models.yaml").write_text("gpt-4o: {model_type: openai}\ngpt-4o-mini: {model_type: openai}\n")
    models = read_models(find_models_file(None, None))
    assert models["gpt-4o"].backend()["model_args"] == {
        "model": "gpt-4o",
        "base_url": "http://a # b",
        "api_key": "strong",
    }
    assert models["gpt-4o-mini"].backend()["model_args"] == {"model": "gpt-4o-mini", "base_url": "http://mini"}
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").mkdir()
    assert dotenv() == {}


ENTRY = """
    own-model:
      {model_type: vllm, model: m, parameters: {temperature: 0}, multi_modal: false, image_capabilities: {max_edit_images: 16},
       special_tokens: ["<end>"], post_process: sygra.core.models.model_postprocessor.RemoveThinkData}
    azure-one: {model_type: azure_openai, model: gpt, url: http://a, api_version: 2024-02-15-preview}
    azure-two: {model_type: azure_openai, model: gpt, url: http://a, api_version: 2024-02-15}
    vllm-one: {model_type: vllm, model: gpt, url: http://a, api_version: 2024-02-15-preview}
"""


def test_an_entry_says_how_answers_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = """
    data_config: {source: {type: disk, file_path: tasks/mine/records.jsonl}}
    graph_config:
      nodes:
        ask: {node_type: llm, output_keys: answer, prompt: [{user: "{said}"}], model: {name: own-model}}
        measure: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, golden_key: golden, predicted_key: answer,
                  unit_metrics_map: [{name: exact_match}], output_keys: [exact_match_result]}
      edges: [{from: START, to: ask}, {from: ask, to: measure}, {from: measure, to: END}]
    """

    def answer(_: Arrived) -> Any:
        message = {"role": "assistant", "content": "a<think>hm</think>bc<end>"}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "data": [{"id": "m"}]}

    monkeypatch.chdir(tmp_path)
    with loopback(answer) as (url, log), caplog.at_level(logging.WARNING, "assay"):
        env = f"SYGRA_OWN-MODEL_URL={url}\nSYGRA_OWN-MODEL_TOKEN=secret-of-env\n"
        lay_out(tmp_path, graph, **{"sygra/config/models.yaml": ENTRY, ".env": env})
        assert main(["run", "--task", "mine", "--output_dir", "out"]) == 0
        assert {each.headers.get("Authorization") for each in log if each.method == "POST"} == {"Bearer secret-of-env"}
    assert rows(tmp_path / "out")["exact_match"] == 1.0
    assert caplog.text.count("image_capabilities of the model 'own-model' has no effect") == 1
    assert not any(b"secret-of-env" in file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())


def test_the_version_of_an_azure_entry_goes_to_its_backend(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(dedent(ENTRY))
    entries = read_models([tmp_path / "models.yaml"])
    assert entries["azure-one"].backend()["model_args"]["api_version"] == "2024-02-15-preview"
    assert entries["azure-two"].backend()["model_args"]["api_version"] == "2024-02-15"
    assert "api_version" not in entries["vllm-one"].backend()["model_args"]


TALK = """
    data_config: {source: {type: disk, file_path: tasks/mine/records.jsonl}}
    graph_config:
      graph_properties: {chat_conversation: singleturn}
      nodes:
        ann: {node_type: agent, chat_history: true, pre_process: tasks.mine.own.as_ann, output_keys: hers,
              inject_system_messages: [{0: begin}], prompt: [{user: "about {said}"}], model: {name: m}}
        bob: {node_type: agent, chat_history: true, output_keys: his, prompt: [{system: be Bob}, {user: "{hers}"}], model: {name: m}}
      edges: [{from: START, to: ann}, {from: ann, to: bob}, {from: bob, to: END}]
"""


def test_agents_without_tools_talk_to_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "def as_ann(state):\n    state['_agent_prompt'] = 'be Ann'\n    return state\n"
    lay_out(tmp_path, TALK, **{"tasks/mine/own.py": own})
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []

    def generate(prompt: str, params: Any, repeat: int) -> str:  # the shape of a script
        asked.append([(each["role"], each["content"]) for each in json.loads(prompt)])
        return f"answer {len(asked)}"

    model = Scripted(
        generate,
        chat_template=lambda messages, _: json.dumps(messages),
    )
    assay.simple_evaluate(model, tasks=["mine"], limit=1)
    first, second = asked
    assert first == [("system", "be Ann"), ("system", "begin"), ("user", "about axx")]
    assert second[0] == ("system", "be Bob") and len(second) == 2
    for part in ("Organizer: about axx", "ann: answer 1", "what bob says next"):
        assert part in second[1][1]
