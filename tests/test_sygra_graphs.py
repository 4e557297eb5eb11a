"""SyGra's 24 task graphs, unchanged, in its own repository: what docs/sygra.md says of each is so, and `--compat sygra` gives
what SyGra itself gave."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import run_world
from graph_world import the_file
from serving import loopback
from sygra_world import answer, write_data

ROOT = Path(__file__).parent.parent
REFERENCE = Path(os.environ.get("ASSAY_REFERENCE") or ROOT.parent / "shared/reference") / "sygra_repository.tar.xz"
FACTS: Mapping[str, Any] = json.loads((ROOT / "tests/sygra_facts.json").read_text())
OUTCOMES = dict(
    re.findall(r"^\| `((?:eval|examples)\.[\w.]+)` \| (.*?) \|$", (ROOT / "docs/sygra.md").read_text(), re.MULTILINE)
)
"""By graph what the page says of it: `runs`, with the library that it imports, or the reason why not."""
WITHOUT = "eval.question_answering.simpleqa!"
"""The graph without the metric that SyGra names and does not have."""
DRIVER = """
import contextlib, io, json, sys
from assay.cli import main

outcomes = {}
for name, arguments in json.load(open(sys.argv[1])).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
    outcomes[name] = code, said.getvalue()
json.dump(outcomes, open(sys.argv[2], "w"))
"""


class Outcome(NamedTuple):
    code: int
    said: str


class World(NamedTuple):
    top: Path
    outcomes: Mapping[str, Outcome]

    def written(self, name: str, kind: str) -> Any:
        return the_file(self.top / "out" / name, f"{kind}_*.json")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All graphs, run one after the other in one process: by default, and those with facts as SyGra does."""
    if not REFERENCE.is_file():
        pytest.skip(f"{REFERENCE} is not here")
    top = tmp_path_factory.mktemp("clone")
    with tarfile.open(REFERENCE) as packed:
        packed.extractall(top, filter="data")
    _without_fuzzy_match(top)
    for name in ("questions", "problems"):
        write_data(top, name)
        (top / "data").rename(top / f"data_{name}")
    with loopback(answer) as (url, _):
        model = ["--model", "openai-chat", "--model_args", f"model=m,base_url={url},max_retries=1"]
        runs = {
            f"{name}{' like SyGra' if flags else ''}": [
                "run", "--task", f"tasks.{name.replace('!', '_exact')}", *model, *flags,
                "--data_dir", "data_questions" if "question_answering" in name else "data_problems",
                "--output_dir", f"out/{name}{' like SyGra' if flags else ''}", "--num_records", "10",
            ]
            for flags, names in (([], [*OUTCOMES, WITHOUT]), (["--compat", "sygra"], [name for name in FACTS if name]))
            for name in names
        }  # fmt: skip
        (top / "runs.json").write_text(json.dumps(runs))
        command = [sys.executable, "-c", DRIVER, "runs.json", "outcomes.json"]
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
        ended = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False, env=environment)
        assert ended.returncode == 0, ended.stderr
    outcomes = {name: Outcome(*each) for name, each in json.loads((top / "outcomes.json").read_text()).items()}
    yield World(top, outcomes)


def _without_fuzzy_match(top: Path) -> None:
    import yaml

    folder = top / "tasks/eval/question_answering"
    graph = yaml.safe_load((folder / "simpleqa/graph_config.yaml").read_text())
    node = graph["graph_config"]["nodes"]["unit_metrics"]
    node["unit_metrics_map"], node["output_keys"] = node["unit_metrics_map"][:1], ["exact_match"]
    del graph["output_config"]["output_map"]["fuzzy_match"]
    graph["graph_post_process"][0]["params"]["aggregator_metrics_map"].pop()
    (folder / "simpleqa_exact").mkdir()
    (folder / "simpleqa_exact/graph_config.yaml").write_text(yaml.safe_dump(graph, sort_keys=False))


def lacking(name: str) -> str | None:
    """The library that a graph imports and that is not installed here."""
    needs = re.findall(r"`([\w-]+)`", OUTCOMES.get(name, "")) if OUTCOMES.get(name, "").startswith("runs") else []
    return next((each.replace("-", "_") for each in needs if find_spec(each.replace("-", "_")) is None), None)


def test_the_table_has_every_graph_and_enough_of_them_run(world: World) -> None:
    files = (world.top / "tasks").glob("**/graph_config.yaml")
    names = {".".join(file.parent.relative_to(world.top / "tasks").parts) for file in files}
    assert set(OUTCOMES) == names - {WITHOUT.replace("!", "_exact")}
    assert len(OUTCOMES) == 24
    assert sum(outcome.startswith("runs") for outcome in OUTCOMES.values()) >= 15


@pytest.mark.parametrize("name", OUTCOMES)
def test_each_graph_does_what_the_table_says(name: str, world: World) -> None:
    outcome, expected = world.outcomes[name], OUTCOMES[name]
    missing = lacking(name)
    if missing is not None:
        assert outcome.code == 2 and f"pip install {missing}" in outcome.said
    elif expected.startswith("runs"):
        assert outcome.code == 0, outcome.said
        assert world.written(name, "output")
    else:
        problems = [line for line in outcome.said.splitlines() if " — " in line]
        assert outcome.code == 2 and len(problems) == 1 and expected in problems[0], outcome.said


NUMBERS = {
    "eval.classification.simpleqa": [
        "accuracy", "average_f1_score", "average_precision", "average_recall", "exact_match",
    ],
    "eval.question_answering.simpleqa": ["exact_match", "exact_match-accuracy", "fuzzy_match", "fuzzy_match-accuracy"],
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("like", ["", " like SyGra"], ids=["ours", "like SyGra"])
def test_the_evaluations_have_their_full_table(name: str, like: str, world: World) -> None:
    results = run_world.results(world.top / "out" / f"{name}{like}")["results"][name]
    assert (
        sorted(key.removesuffix(",none") for key in results if key.endswith(",none") and "_stderr" not in key)
        == NUMBERS[name]
    )


@pytest.mark.parametrize("name", [name for name, fact in FACTS.items() if "output" in fact])
def test_the_records_are_those_that_sygra_wrote(name: str, world: World) -> None:
    if lacking(name):
        pytest.skip(f"{lacking(name)} is not installed")
    records = world.written(f"{name} like SyGra", "output")
    expected = FACTS[name]["output"]
    assert len(records) == len(expected)
    for record, theirs in zip(records, expected, strict=True):
        if "ratings" in theirs:
            rated = [each for message in record["conversation"][1:] for each in message["content"]]
            record = {"ratings": [[each["model"], each["judge_rating"]] for each in rated]}
        assert {key: _plain(record[key]) for key in theirs} == _plain(theirs)


def _plain(value: Any) -> Any:
    """A value without the scores that our unit results have beside SyGra's verdicts, and without their metadata."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {
            key: _plain(each)
            for key, each in value.items()
            if "correct" not in value or key not in ("score", "metadata")
        }
    return value


@pytest.mark.parametrize("name", [name for name, fact in FACTS.items() if "report" in fact])
def test_the_reports_have_sygras_numbers(name: str, world: World) -> None:
    if lacking(name):
        pytest.skip(f"{lacking(name)} is not installed")
    [report] = world.written(f"{name} like SyGra", "MetricCollatorPostProcessor")
    theirs = FACTS[name]["report"]
    if name == "eval.question_answering.simpleqa":  # of records that all failed there, for want of fuzzy_match
        assert list(report["results"]) == list(theirs["results"])
        return
    assert report["evaluation_summary"] == theirs["evaluation_summary"]
    named = {key.rpartition("-")[2]: value for key, value in theirs["results"].items()}
    for key, numbers in report["results"].items():
        expected = theirs["results"].get(key) or named[key]
        assert {number: pytest.approx(value) for number, value in expected.items()} == numbers
    assert len(report["results"]) == len(theirs["results"])


def test_two_agents_talk_until_one_has_its_answer(world: World) -> None:
    [record] = world.written("examples.agent_simulation", "output")
    said = [text for turn in record["conversation"][1:] for text in turn.values()]
    assert said == FACTS["examples.agent_simulation"]["said"]
    speakers = [name for turn in record["conversation"][1:] for name in turn]
    assert set(speakers) == {"agent_1", "agent_2"} and all(a != b for a, b in pairwise(speakers))
