"""Runs for the tests of the viewer: numbers that can be worked out by hand, texts that attack, and a server over them."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import httpx

from assay import simple_evaluate
from assay.models import Scripted
from assay.records import FilterScores, Generate, Sample
from assay.redaction import redact
from assay.results import Results, Row, TaskEntry
from assay.runs.folder import write_json
from assay.runs.results_json import encode
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.intervals import with_interval
from assay.viewer.app import make_app

SUMS, COLOURS = 60, 20
"""Documents. In the first run every 5th sum is wrong, in the second the one after it, too; every 4th colour is."""
ROOT = Path(__file__).parent.parent

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"><svg onload=alert(3)>',
    "'-alert(4)-'",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(5)",
    "</pre></bdi></title></textarea><script>alert(6)</script>",
    "<a href='javascript:alert(7)'>x</a>",
    "\x00\x1b[31m\u202eevil\u202c",
    "../../../etc/passwd",
    "<iframe src='http://evil.example/'></iframe><link rel=stylesheet href=//evil.example/x.css>",
    '=HYPERLINK(1)|`x`|\r\n,"',
    "<details open ontoggle=alert(8)>",
    "&lt;script&gt;alert(9)&lt;/script&gt;",
)
"""Texts that would do something if a page took them for markup, for code, or for a path."""
SECRET = "sk-verysecretverysecret"

TASKS = {
    "sums.yaml": """
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl, train: train.jsonl}}
test_split: test
fewshot_split: train
num_fewshot: 2
doc_to_text: "{{a}} + 1 ="
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], do_sample: false, temperature: 0.0}
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: "^ ?([0-9]+)$"}, {function: take_first}]
  - name: flexible
    filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: take_first}]
metric_list: [{metric: exact_match}]
""",
    "colours.yaml": """
task: colours
dataset_path: json
dataset_kwargs: {data_files: {test: colours.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{thing}} is"
doc_to_choice: [green, red]
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "quiz.yaml": """
group: quiz
task: [sums, {group: seeing, task: [colours], aggregate_metric_list: [{metric: acc}]}]
aggregate_metric_list: [{metric: exact_match, filter_list: strict, missing: skip}]
""",
}


def write_tasks(folder: Path) -> Path:
    """The files of the tasks."""
    folder.mkdir(parents=True)
    for name, text in TASKS.items():
        (folder / name).write_text(text)
    sums = [{"a": a, "answer": str(a + 1), "level": a % 3} for a in range(SUMS)]
    things = [{"thing": f"thing {number}", "gold": number % 2} for number in range(COLOURS)]
    train = [{"a": 100, "answer": "101", "level": 0}, {"a": 200, "answer": "201", "level": 1}]
    for name, rows in (("sums", sums), ("train", train), ("colours", things)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def model(is_wrong: Callable[[int], bool]) -> Scripted:
    """A model that gives the wrong sum where the question asks for it, and the wrong colour every 4th time."""

    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        a = int(prompt.rpartition("\n\n")[2].split(" + ")[0])
        return f" {a + (3 if is_wrong(a) else 1)}"

    def likelihood(context: str, continuation: str) -> tuple[float, bool]:
        number = int(context.split()[-2])
        right = ("green", "red")[number % 2] == continuation.strip()
        return (-1.0 if right is (number % 4 != 0) else -2.0), False

    return Scripted(generate=generate, loglikelihood=likelihood, identity=repr([is_wrong(a) for a in range(SUMS)]))


def write_runs(folder: Path) -> Path:
    """A folder of runs: first, second, hostile ones, and graphs in a separate folder."""
    tasks = write_tasks(folder / "tasks")
    runs = folder / "runs"
    arguments = {"tasks": ["quiz"], "include_path": str(tasks), "include_defaults": False}
    simple_evaluate(model(lambda a: a % 5 == 0), output_path=str(runs / "first"), **arguments)
    simple_evaluate(model(lambda a: a % 5 in (0, 1)), output_path=str(runs / "second"), **arguments)
    graph = {"tasks": ["first_steps_graph_tries"], "limit": 6}
    simple_evaluate("embedded", output_path=str(runs / "more/graphs"), **graph)
    write_hostile_run(runs / "<img src=x onerror=alert(0)>")
    return runs


def write_hostile_run(folder: Path, names: Sequence[str] = HOSTILE[:3]) -> None:
    """A run in which every text from outside attacks: documents, answers, names, reasons, settings."""
    tasks = {}
    for name in names:
        writer = SampleWriter(folder / "samples", name)
        for number, text in enumerate(HOSTILE):
            asked = [Generate(text * 2, {"until": [text], "api_key": SECRET})]
            sample = Sample(number, {text: text, "level": text}, asked, text, text, prefix=f"{text}\n\n{text}\n\n")
            scores = [
                FilterScores(text, [text], {"exact_match": 0.0}),
                FilterScores("none", [text], {"exact_match": 0.0}),
            ]
            reported = [{"finish": text, "reasoning": text}, {"verdict": text}]
            failed = f"{text} api_key={SECRET}" if number == 5 else ""
            writer.add(
                SampleRecord(
                    sample, [[text]], () if failed else scores, failed=failed, replies=reported, audit=("empty",)
                )
            )
        writer.end()
        writer.place()
        bounds = (0.0, 1 / 14)  # of 13 wrong answers and one that failed
        rows = [
            Row(
                name,
                "exact_match",
                "none",
                with_interval(Estimate(0.0, 0.0, 13, evidence=Evidence(is_rate=True))),
                failed=1,
                is_incomplete=True,
                higher_is_better=True,
                failure_bounds=bounds,
            ),
            Row(
                name,
                name,
                name,
                with_interval(Estimate(0.5, 0.1, 13)),
                failed=1,
                is_incomplete=True,
                failure_bounds=(6.5 / 14, 7.5 / 14),
            ),
        ]
        settings = {"task": name, "description": name, "metadata": {"auth_token": SECRET}, "filter_list": [{"name": name}],
                    "graph_config": {"nodes": {name: {"node_type": name}}, "edges": [{"from": "START", "to": name}]}}  # fmt: skip
        tasks[name] = TaskEntry(
            name,
            names[1],
            rows,
            14,
            13,
            1,
            {name: 1},
            is_incomplete=True,
            original=14,
            noticed={name: 2},
            num_fewshot=0,
            version=name,
            directions={"exact_match": True},
            config=redact(settings, texts=False),
        )
    about = {"config": {"model": names[0], "model_args": {"model": names[1], "api_key": SECRET}}}
    results = Results(tasks, status="incomplete", broken={names[2]: names[2]}, **about)
    write_json(folder / "results.json", encode(results))
    reported = {
        "command": ["assay", f"--model_args=api_key={SECRET}", names[0]],
        "environment": {"token": SECRET, names[0]: names[1]},
    }
    manifest = {
        "format": 3,
        "created": 1.0,
        "status": names[0],
        "tasks": {name: {"size": 14} for name in names},
        **reported,
    }
    write_json(folder / "manifest.json", manifest)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of a viewer over a folder, as a separate process."""
    command = [sys.executable, "-m", "assay", "view", str(folder), "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        assert address.startswith("http://"), server.communicate()
        yield address.rstrip("/")
    finally:
        server.terminate()
        server.communicate(timeout=20)


def read_pages(folder: Path, pages: Sequence[str]) -> dict[str, httpx.Response]:
    """The answers of a viewer over a folder, in this process, to one request after the other."""

    async def read() -> dict[str, httpx.Response]:
        transport = httpx.ASGITransport(make_app(folder), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            return {page: await client.get(page) for page in pages}

    return asyncio.run(read())


def fetched(
    address: str, page: str = "/", method: str = "GET", headers: dict[str, str] | None = None, **query: str
) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of a page."""
    asked = f"{address}{page}" + (f"?{urlencode(query)}" if query else "")
    try:
        with urlopen(Request(asked, method=method, headers=headers or {}), timeout=60) as answer:
            return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.headers.items()}
    except HTTPError as error:
        return error.code, error.read().decode(), {k.lower(): v for k, v in error.headers.items()}
