"""Graphs run inside a clone of SyGra: with its `sygra/` package and its `tasks/eval/utils.py` beside them, the numbers are
those without them."""

import json
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

import run_world
from commands import run_command
from graph_world import CLASSIFICATION, EXECUTOR, the_file
from serving import TALKING, Servers, fetched

Run = Callable[..., Any]
ROOT = Path(__file__).parent.parent
REFERENCE = Path(os.environ.get("ASSAY_REFERENCE") or ROOT.parent / "shared/reference") / "sygra_repository.tar.xz"
TASK = "tasks.eval.classification.simpleqa"
FOLDER = "tasks/eval/classification/simpleqa"
TOPICS = ["Music", "Art", "Sports", "History", "Other"] * 2
"""Ten topics of five classes, all answered with Music: precision, recall and F1 are 0.2 to SyGra, 0.04, 0.2 and a fifteenth by the book."""


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


@pytest.fixture
def run(run_assay: Run, talking: str) -> Run:
    def with_model(top: Path, *arguments: object) -> Any:
        model_args = f"model=m,base_url={talking},max_retries=1"
        return run_assay(*arguments, "--model", "openai-chat", "--model_args", model_args, cwd=top)

    return with_model


def record(number: int, topic: str, **options: object) -> dict[str, Any]:
    said = options or {"say": json.dumps({"predicted_topic": "Music"})}
    return {"task_id": number, "problem": json.dumps(said), "topic": topic}


RECORDS = [record(number, topic) for number, topic in enumerate(TOPICS)]


def write(top: Path, graph: str = CLASSIFICATION, records: Any = RECORDS, **files: str) -> Path:
    """A graph below `top`, and further files by path with __ for /."""
    folder = top / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph_config.yaml").write_text(dedent(graph))
    (folder / "task_executor.py").write_text(dedent(EXECUTOR))
    (folder / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    for name, text in files.items():
        path = top / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return top


def numbers(top: Path, run: Run, *flags: str) -> tuple[dict[str, Any], Any]:
    """The rows of the table and the report of a run in a folder."""
    ended = run(top, "run", "--task", TASK, "--output_dir", "-".join(["out", *flags]), *flags)
    assert ended.returncode == 0, ended.stderr
    out = top / "-".join(["out", *flags])
    rows = run_world.results(out)["results"]["eval.classification.simpleqa"]
    return rows, the_file(out, "MetricCollatorPostProcessor_*.json")


FAULTY = "raise RuntimeError('this file is not to be run')\n"
THEIR_UTILITIES = """
    from sygra.core.graph.functions.lambda_function import LambdaFunction
    from sygra.core.graph.graph_postprocessor import GraphPostProcessor

    def helper(text):
        return text.upper()

    def parse_response_as_json(s):
        return {"predicted_topic": "wrong"}

    class UnitMetrics(LambdaFunction):
        @staticmethod
        def apply(lambda_node_dict, state):
            state["exact_match_result"] = {"correct": True}
            return state

    class MetricCollatorPostProcessor(GraphPostProcessor):
        def __init__(self, aggregator_metrics_map=None, **kwargs):
            pass
        def process(self, data, metadata):
            return [{"evaluation_summary": {"status": "success"}, "results": {}}]
"""
LAYOUTS: Mapping[str, Mapping[str, str]] = {
    "its utilities": {"tasks__eval__utils": THEIR_UTILITIES},
    "utilities that cannot be run": {"tasks__eval__utils": FAULTY, "tasks__eval____init__": ""},
    "its package": {
        "sygra____init__": FAULTY,
        "sygra__processors__data_transform": "from sygra.utils.audio_utils import load_audio\n" + FAULTY,
        "sygra__core__graph__sygra_message": FAULTY,
        "sygra__core__graph__functions____init__": FAULTY,
        "sygra__core__graph__functions__node_processor": FAULTY,
        "sygra__core__eval__metrics__unit_metrics__exact_match": FAULTY,
    },
}


@pytest.mark.parametrize("flags", [(), ("--compat", "sygra")], ids=["ours", "like SyGra"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_are_those_without_sygras_files(layout: str, flags: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    alone = numbers(write(tmp_path / "alone"), run, *flags)
    assert numbers(write(tmp_path / "clone", **LAYOUTS[layout]), run, *flags) == alone
    rows, [report] = alone
    assert rows["exact_match,none"] == 0.2
    assert report["results"]["precision"]["average_precision"] == pytest.approx(0.2 if flags else 0.04)
    assert rows["average_precision,none"] == pytest.approx(0.2 if flags else 0.04)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """SyGra's repository, with our records for its two evaluation graphs."""
    if not REFERENCE.is_file():
        pytest.skip(f"{REFERENCE} is not here")
    with tarfile.open(REFERENCE) as packed:
        packed.extractall(tmp_path / "clone", filter="data")
    return swapped(tmp_path / "clone")


def swapped(top: Path) -> Path:
    for file in (top / "tasks/eval").glob("*/simpleqa/graph_config.yaml"):
        written = yaml.safe_load(file.read_text())
        source = written["data_config"]["source"]
        own = {"type": "disk", "file_path": "records.jsonl", "transformations": source["transformations"]}
        file.write_text(yaml.safe_dump({**written, "data_config": {"source": own}}, sort_keys=False))
        answers = [{**each, "answer": each["topic"]} for each in RECORDS]
        (file.parent / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in answers))
    return top


@pytest.mark.parametrize("flags", [(), ("--compat", "sygra")], ids=["ours", "like SyGra"])
@pytest.mark.parametrize("name", [TASK, "eval/classification/simpleqa"])
def test_in_sygras_own_repository_the_numbers_are_those_without_it(
    name: str, flags: tuple[str, ...], clone: Path, tmp_path: Path, run: Run
) -> None:
    bare = tmp_path / "bare"
    (bare / FOLDER).mkdir(parents=True)
    for file in (clone / FOLDER).iterdir():
        (bare / FOLDER / file.name).write_bytes(file.read_bytes())
    result, [report] = numbers(clone, run, *flags)
    expected = numbers(bare, run, *flags)
    assert (result, [report]) == expected
    assert report["results"]["precision"]["average_precision"] == pytest.approx(0.2 if flags else 0.04)
    ended = run(clone, "run", "--task", name, "--output_dir", "again", *flags)
    assert ended.returncode == 0, ended.stderr
    if not flags:
        scored = run_score(clone, run)
        assert scored["results"]["precision"]["average_precision"] == pytest.approx(0.2)


def run_score(clone: Path, run: Run) -> Any:
    ended = run(clone, "run", "--task", TASK, "--output_dir", "kept")
    assert ended.returncode == 0, ended.stderr
    ended = run_command("score", "kept", "--compat", "sygra", cwd=clone)
    assert ended.returncode == 0, ended.stderr
    [report] = the_file(clone / "kept/scored/001", "MetricCollatorPostProcessor_*.json")
    return report


def test_a_metric_that_is_misspelt_is_refused_in_a_clone_before_any_request(
    clone: Path, run: Run, run_assay: Run, talking: str
) -> None:
    file = clone / FOLDER / "graph_config.yaml"
    file.write_text(file.read_text().replace("- name: exact_match", "- name: exact_mtch"))
    before = len(fetched(talking, "/log"))
    ended = run(clone, "run", "--task", TASK, "--output_dir", "out")
    assert ended.returncode == 2
    assert "exact_mtch" in ended.stderr and "did you mean 'exact_match'?" in ended.stderr
    assert len(fetched(talking, "/log")) == before
    ended = run_assay("validate", str(file), cwd=clone)
    assert "did you mean 'exact_match'?" in ended.stdout


def test_records_that_fail_are_counted_in_a_clone(clone: Path, run: Run) -> None:
    failing = [*RECORDS[:9], record(9, "Art", status=400)]
    (clone / FOLDER / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in failing))
    ended = run(clone, "run", "--task", TASK, "--output_dir", "out")
    assert ended.returncode == 1
    [report] = the_file(clone / "out", "MetricCollatorPostProcessor_*.json")
    reported = report["evaluation_summary"]
    assert (reported["status"], reported["requested"], reported["ok"], reported["failed"]) == ("incomplete", 10, 9, 1)


OWN_CODE = """
    from tasks.eval.utils import helper, parse_response_as_json
    from tasks.eval import utils
    import tasks.eval.utils

    def shout(node, state):
        assert utils.UnitMetrics is tasks.eval.utils.UnitMetrics
        assert tasks.eval.utils.helper is helper
        return {**state, "loud": helper(state["predicted_topic"])}
"""
SHOUTING = CLASSIFICATION.replace(
    "    unit_metrics:\n      node_type: lambda\n",
    "    shout: {node_type: lambda, lambda: NAME, output_keys: [loud]}\n    unit_metrics:\n      node_type: lambda\n",
).replace("to: unit_metrics", "to: shout\n    - from: shout\n      to: unit_metrics")


def test_utilities_of_ones_own_keep_their_helpers(tmp_path: Path, run: Run) -> None:
    only_helper = "def helper(text):\n    return text.upper()\n"
    graph = SHOUTING.replace("NAME", f"{TASK}.own.shout").replace(
        "output_map:\n", 'output_map:\n    loud:\n      from: "loud"\n'
    )
    for number, utilities in enumerate((only_helper, THEIR_UTILITIES)):
        top = write(
            tmp_path / f"{number}",
            graph,
            tasks__eval__utils=utilities,
            **{f"{FOLDER.replace('/', '__')}__own": OWN_CODE},
        )
        rows, _ = numbers(top, run)
        assert rows["exact_match,none"] == 0.2
        assert [each["loud"] for each in the_file(top / "out", "output_*.json")] == ["MUSIC"] * 10
    ended = run(write(tmp_path / "2", SHOUTING.replace("NAME", "tasks.eval.utils.hlper"), tasks__eval__utils=only_helper),
                "run", "--task", TASK)  # fmt: skip
    assert ended.returncode == 2
    assert "module 'tasks.eval.utils' has no 'hlper'" in ended.stderr and "did you mean 'helper'?" in ended.stderr


RECIPE = """
    from sygra.core.graph.functions.lambda_function import LambdaFunction
    from sygra.processors.data_transform import RenameFieldsTransform
    from sygra.recipes.shouting.words import loud
    from sygra.utils import own
    from .words import loud as again
    from . import words

    class Shout(LambdaFunction):
        @staticmethod
        def apply(node, state):
            assert loud is again and words.loud is loud and own.WHO == "own"
            assert RenameFieldsTransform().name
            return {**state, "loud": loud(state["predicted_topic"])}
"""


def test_other_modules_of_a_sygra_on_disk_are_taken_from_there(tmp_path: Path, run: Run) -> None:
    files = {
        **LAYOUTS["its package"],
        "sygra__recipes__shouting__manager": RECIPE,
        "sygra__recipes__shouting__words": "def loud(text):\n    return text.upper()\n",
        "sygra__utils__own": "WHO = 'own'\n",
        f"{FOLDER.replace('/', '__')}__own": "from sygra.recipes.shouting.manager import Shout\nimport sygra.utils.own\n"
        "assert sygra.utils.own.WHO == 'own'\n",
    }
    for number, name in enumerate(("sygra.recipes.shouting.manager.Shout", f"{TASK}.own.Shout")):
        rows, _ = numbers(write(tmp_path / f"{number}", SHOUTING.replace("NAME", name), **files), run)
        assert rows["exact_match,none"] == 0.2


def test_names_that_only_the_users_module_has_come_from_its_file(tmp_path: Path, run: Run) -> None:
    more = (
        "from sygra.processors.data_transform import DataTransform\nclass Shout:\n    @staticmethod\n"
        "    def apply(node, state):\n        return {**state, 'loud': 1}\n"
    )
    graph = SHOUTING.replace("NAME", "sygra.processors.data_transform.Shout")
    rows, _ = numbers(write(tmp_path / "a", graph, sygra__processors__data_transform=more), run)
    assert rows["exact_match,none"] == 0.2
    lacking = "from not_there_at_all import something\n"
    ended = run(write(tmp_path / "b", graph, sygra__processors__data_transform=lacking), "run", "--task", TASK)
    assert ended.returncode == 2
    assert "pip install not_there_at_all" in ended.stderr
    ended = run(write(tmp_path / "c", graph), "run", "--task", TASK)
    assert ended.returncode == 2
    assert "module 'sygra.processors.data_transform' has no 'Shout'" in ended.stderr


OWN_METRIC = """
    def measure(node, state):
        right = state["topic"] == state["predicted_topic"]
        return {**state, "mine_result": {"correct": right, "golden": {}, "predicted": {}, "metadata": {}},
                "share_result": {"correct": right, "score": 0.25}, "said_result": "no unit result"}
"""


def test_result_columns_are_measured_whoever_wrote_them(tmp_path: Path, run: Run) -> None:
    graph = """
    data_config: {source: {type: disk, file_path: records.jsonl}}
    graph_config:
      nodes:
        ask: {node_type: llm, output_keys: said, prompt: [{user: "{problem}"}], model: {name: m},
              post_process: tasks.eval.classification.simpleqa.task_executor.GenerateTopicPostProcessor}
        measure: {node_type: lambda, lambda: CODE.measure, output_keys: [mine_result, share_result, said_result]}
      edges: [{from: START, to: ask}, {from: ask, to: measure}, {from: measure, to: END}]
    """
    top = write(tmp_path, graph.replace("CODE", f"{TASK}.own"), **{f"{FOLDER.replace('/', '__')}__own": OWN_METRIC})
    ended = run(top, "run", "--task", TASK, "--output_dir", "out")
    assert ended.returncode == 0, ended.stderr
    rows = run_world.results(top / "out")["results"]["eval.classification.simpleqa"]
    assert (rows["mine,none"], rows["share,none"]) == (0.2, 0.25)
    assert rows["mine_stderr,none"] == pytest.approx((0.2 * 0.8 / 9) ** 0.5)
    assert not any(name.startswith("said") for name in rows)
    assert "mine" in ended.stdout and "nothing is measured" not in ended.stderr
