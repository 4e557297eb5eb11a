"""Graph evaluations: SyGra's own files, CPU and memory a record, kills, failures. SyGra's numbers are of reference/sygra.md."""

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.environments import HOME, ROOT, assay_python, bare_environment
from bench.measure import Said, cpu_seconds
from bench.servers import serving

WORLD = HOME / "graphs"
RECORDS, FEW, MANY, KILLS, TIMES, SEED = 3000, 500, 100_000, 20, 7, 7
ANSWER = json.dumps({"predicted_answer": "Paris"})
ALWAYS = '"problem": "fail '


def rows() -> Iterator[Said]:
    python = assay_python()
    yield from measured(python)


def measured(python: Path) -> Iterator[Said]:
    make_world()
    yield footprint(python)
    yield three_nodes(python)
    yield speed(python)
    yield blocking(python)
    yield many(python)
    yield failing(python)
    yield kills(python)


def make_world() -> None:
    """The question-answering graph with records of which every second is right; and a graph without a model."""
    shutil.rmtree(WORLD, ignore_errors=True)
    asked, alone = WORLD / "tasks/asked", WORLD / "tasks/alone"
    for folder in (asked, alone):
        folder.mkdir(parents=True)
    source = (ROOT / "tests/graph_world.py").read_text()
    names: dict[str, Any] = {}
    exec(compile(source, "graph_world", "exec"), names)  # the graph of the tests, with its post-processor
    graph = names["QUESTION_ANSWERING"].replace("tasks.eval.question_answering.simpleqa.", "")
    (asked / "graph_config.yaml").write_text(graph)
    (asked / "task_executor.py").write_text(_dedent(names["EXECUTOR"]))
    _records(asked, RECORDS, fail=0)
    (alone / "graph_config.yaml").write_text(ALONE + graph[graph.index("output_config:") :])
    _records(alone, MANY, fail=0)


ALONE = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    unit_metrics:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: answer
      predicted_key: predicted_answer
      unit_metrics_map: [{name: exact_match, params: {key: text}}]
      output_keys: [exact_match_result]
  edges: [{from: START, to: unit_metrics}, {from: unit_metrics, to: END}]
"""


def _dedent(text: str) -> str:
    from textwrap import dedent

    return dedent(text)


def _records(folder: Path, count: int, *, fail: int) -> None:
    """Records; every `fail`th has a question that the server always refuses."""
    with (folder / "records.jsonl").open("w") as out:
        for number in range(count):
            word = "fail" if fail and number % fail == 0 else "Which city is this,"
            record = {
                "task_id": number,
                "original_index": number,
                "problem": f"{word} number {number}?",
                "answer": "paris" if number % 2 else "Rome",
                "predicted_answer": "Paris",
            }
            out.write(json.dumps(record) + "\n")


def client(python: Path, *arguments: object) -> dict[str, float]:
    command = [str(python), "-m", "bench.graph_client", *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, env=bare_environment(), check=True, capture_output=True, text=True)
    data: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return data


def footprint(python: Path) -> Said:
    """What a fresh environment with the wheel holds, and what importing costs: alone, and with all that a graph run needs."""
    fresh = HOME / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    [wheel] = (HOME / "dist").glob("*.whl")
    begin = time.monotonic()
    for command in ([python, "-m", "venv", fresh], [fresh / "bin/python", "-m", "pip", "install", "--quiet", wheel]):
        subprocess.run(list(map(str, command)), check=True, env=bare_environment(), capture_output=True)
    took = time.monotonic() - begin
    own = {"pip", "setuptools"}
    [packages] = fresh.glob("lib/python*/site-packages")
    result = [path for path in packages.rglob("*") if path.is_file()]
    held = sum(
        path.stat().st_size for path in result if path.relative_to(packages).parts[0].partition("-")[0] not in own
    )
    alone, whole = (cpu_seconds([fresh / "bin/python", "-c", each], runs=7) for each in ("import assay", GRAPH_PATH))
    text = f"{held / 1e6:.0f} MB, {took:.0f} s / {alone:.3f} s; with all that a graph over HTTP needs {whole:.2f} s"
    return Said("install / import (SyGra 6.8 GB, 877 s / 17.8 s)", text, "the core / ≤ 0.15 s")


GRAPH_PATH = "import assay.evaluation.flow, assay.graphs.task, assay.models.servers.openai, aiohttp, pyarrow.parquet"


def three_nodes(python: Path) -> Said:
    [cpu] = per_record(python, {"three_nodes": ("three_nodes", WORLD)}, MANY // 10, MANY, times=3).values()
    text = f"{cpu * 1e6:.1f} µs (SyGra 2,700 µs, LangGraph alone 1,100 µs)"
    return Said("three nodes that do nothing, CPU a record", text, "≤ 30 µs")


def per_record(
    python: Path, clients: dict[str, tuple[object, ...]], few: int, many: int, *, times: int
) -> dict[str, float]:
    """CPU seconds that each client takes for one more record: its least for many of them less its least for few.

    All that is paid once, from imports to the report, drops out; all that a record costs is in it, wherever it is spent.
    Clients run in turn, since other work on the machine makes all of them slower.
    """
    least: dict[tuple[str, int], float] = {}
    for _ in range(times):
        for count in (few, many):
            for name, arguments in clients.items():
                shutil.rmtree(WORLD / "run", ignore_errors=True)
                measured = client(python, *arguments, "--out", WORLD / "run", "--limit", count)
                assert measured["records"] == count, measured
                least[name, count] = min(measured["cpu_s"], least.get((name, count), float("inf")))
    return {name: (least[name, many] - least[name, few]) / (many - few) for name in clients}


def speed(python: Path) -> Said:
    with serving("--answer", ANSWER) as url:
        clients = {name: (name, WORLD / "tasks/asked", url) for name in ("loop", "assay")}
        cpu = per_record(python, clients, FEW, RECORDS, times=TIMES)
    loop, ours = cpu["loop"] * 1000, cpu["assay"] * 1000
    text = f"a loop written by hand {loop:.3f} ms, assay {ours:.3f} ms: + {ours - loop:.3f} ms (SyGra 17–20 ms)"
    return Said(f"question answering, {FEW} to {RECORDS:,} records, CPU a record", text, "the loop + 0.2 ms")


BLOCKING = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    retrieve: {node_type: lambda, lambda: retriever.retrieve, output_keys: [passages]}
    answer: {node_type: llm, prompt: [{user: "{passages} {problem}"}], output_keys: said, model: {name: m}}
  edges: [{from: START, to: retrieve}, {from: retrieve, to: answer}, {from: answer, to: END}]
"""
RETRIEVER = """
import time


def retrieve(node, state):
    time.sleep(0.05)
    return {"passages": [state["problem"]]}
"""


def blocking(python: Path) -> Said:
    """A retriever that blocks for 50 ms, and a model that answers after 50 ms: the whole command, the best of three."""
    folder, out = WORLD / "tasks/blocking", WORLD / "blocking"
    folder.mkdir(exist_ok=True)
    (folder / "graph_config.yaml").write_text(BLOCKING)
    (folder / "retriever.py").write_text(RETRIEVER)
    _records(folder, 200, fail=0)
    took = []
    with serving("--answer", ANSWER, "--latency", "50") as url:
        for _ in range(3):
            shutil.rmtree(out, ignore_errors=True)
            begin = time.monotonic()
            ended = _run(python, folder, out, url, "num_concurrent=64")
            took.append(time.monotonic() - begin)
            assert ended.returncode == 0, ended.stderr
    text = f"{min(took):.2f} s (the calls one after the other: 10 s)"
    return Said("a blocking retriever (50 ms) and a model (50 ms), 200 records, 64 at once", text, "≤ 2.5 s")


def many(python: Path) -> Said:
    shutil.rmtree(WORLD / "run", ignore_errors=True)
    measured = client(python, "assay", WORLD / "tasks/alone", "--out", WORLD / "run")
    [output] = (WORLD / "run").glob("output_*.jsonl")
    [report] = (WORLD / "run").glob("MetricCollatorPostProcessor_*.json")
    lines = sum(1 for _ in output.open())
    reported = json.loads(report.read_text())[0]
    text = f"{lines:,} lines, {reported['results']}, {measured['mb']:.0f} MB (SyGra: no report)"
    return Said(f"{MANY:,} records, jsonl, aggregated", text, "works, ≤ 200 MB")


def failing(python: Path) -> Said:
    """Every tenth record is always answered with HTTP 500."""
    folder = WORLD / "tasks/failing"
    shutil.copytree(WORLD / "tasks/asked", folder, dirs_exist_ok=True)
    _records(folder, 500, fail=10)
    with serving("--answer", ANSWER, "--fail-if", "fail number") as url:
        ended = _run(python, folder, WORLD / "failing", url, "max_retries=1")
    account = json.loads((WORLD / "failing/results.json").read_text())
    [report] = (WORLD / "failing").glob("MetricCollatorPostProcessor_*.json")
    summary = json.loads(report.read_text())[0]["evaluation_summary"]
    line = f"{summary['status']}, {summary['ok']} ok, {summary['failed']} failed"
    text = f"exit {ended.returncode}, {account['status']}; report: {line}"
    return Said("10 % of 500 records always HTTP 500", text, "finishes, counted, exit 1 (SyGra: success over 100 rows)")


def _command(python: Path, folder: Path, out: Path, url: str, more: str) -> list[str]:
    model_args = f"model=stub,base_url={url},{'' if 'num_concurrent' in more else 'num_concurrent=25,'}{more}"
    return [
        str(python), "-m", "assay", "run", "--tasks", str(folder), "--output_path", str(out), "--model", "openai-chat",
        "--model_args", model_args,
    ]  # fmt: skip


def _run(python: Path, folder: Path, out: Path, url: str, more: str) -> "subprocess.CompletedProcess[bytes]":
    command = _command(python, folder, out, url, more)
    return subprocess.run(command, cwd=WORLD, env=bare_environment(), check=False, capture_output=True)


def kills(python: Path) -> Said:
    """Kill runs at random moments, resume, and compare output and report with those of an undisturbed run."""
    draw, lost, doubled, equal, at_work = random.Random(SEED), 0, 0, 0, 0
    with serving("--answer", ANSWER, "--latency", "5") as url:
        begin = time.monotonic()
        _run(python, WORLD / "tasks/asked", WORLD / "whole", url, "seed=1")
        took = time.monotonic() - begin
        expected = _left(WORLD / "whole")
        for number in range(KILLS):
            out = WORLD / f"killed{number}"
            process = subprocess.Popen(
                _command(python, WORLD / "tasks/asked", out, url, "seed=1"), cwd=WORLD,
                env=bare_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(draw.uniform(0.3, 0.98) * took)
            process.send_signal(signal.SIGKILL)
            process.wait()
            at_work += (out / "responses.jsonl").exists() and (out / "responses.jsonl").stat().st_size > 0
            _run(python, WORLD / "tasks/asked", out, url, "seed=1")
            records, report = _left(out)
            indices = [record["original_index"] for record in records]
            lost += len({record["original_index"] for record in expected[0]} - set(indices))
            doubled += len(indices) - len(set(indices))
            equal += (records, report) == expected
            shutil.rmtree(out)
    text = f"{lost} lost, {doubled} doubled, {equal} of {KILLS} equal ({at_work} killed with responses journaled)"
    return Said(f"kill -9 at {KILLS} random moments, then the same command", text, "0 lost, 0 doubled, same report")


def _left(folder: Path) -> tuple[list[dict[str, Any]], Any]:
    """Output and report of a run; there is one file of each."""
    [output], [report] = folder.glob("output_*.json"), folder.glob("MetricCollatorPostProcessor_*.json")
    return json.loads(output.read_text()), json.loads(report.read_text())
