"""The doors that are fuzzed, but for servers (`answers`) and texts (`scoring`)."""

import contextlib
import io
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

import run_world
from assay import ScoreOptions, score
from assay.comparison.compare import compare
from assay.errors import AssayError
from assay.exchange.archive import pack
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from assay.exchange.inspect.log_file import member
from assay.report.write import report_text
from assay.runs.journal import NAME, Journal
from assay.runs.run import Run
from assay.runs.samples.writer import CHECKSUM_KEY, NO_CHECKSUM, write_checksum
from assay.viewer.app import PAGES, Viewer
from assay.viewer.pages import MissingPage
from chaos.worlds import TASKS as CHAOS_TASKS
from fuzz import answers, scoring
from fuzz.doors import BUNDLED, TESTS, Files, Target, command, placed, refused, silent, watched
from fuzz.mutations import mutated, mutated_bytes, mutated_text, mutated_yaml, one_of_files
from run_world import RecordingModel

# ---- task files

GROUP = """
group: all
group_alias: All of it
task:
  - sums
  - {task: colours, task_alias: C, num_fewshot: 1}
  - {group: inner, task: [colours@mcqa], aggregate_metric_list: [{metric: acc, aggregation: mean}]}
aggregate_metric_list:
  - {metric: exact_match, aggregation: mean, weight_by_size: true, filter_list: [none], missing: skip}
  - {metric: acc, aggregation: harmonic_mean, missing: skip}
metadata: {version: 1.0}
"""
RICH = """
task: rich
tag: [a, b]
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl, dev: sums.jsonl}}
test_split: test
fewshot_split: dev
num_fewshot: 2
fewshot_config: {sampler: first_n}
fewshot_delimiter: "\\n\\n"
description: "Compute."
doc_to_text: "{{q}}="
doc_to_target: "{{a}}"
process_docs: !function tools.same
repeats: 4
generation_kwargs: {until: ["\\n"], do_sample: true, temperature: 0.7, max_gen_toks: 12}
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: "(\\\\d+)", group_select: -1}, {function: take_first_k, k: 4}]
    metric_list: [{metric: exact_match, reduction: [pass@2, max]}]
  - {name: loose, filter: [{function: lowercase}, {function: majority_vote}, {function: take_first}]}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, regexes_to_ignore: [","]}
  - {metric: token_f1}
metadata: {version: 2.0}
"""


@cache
def task_files() -> dict[str, bytes]:
    """A folder of tasks of every kind."""
    files = {name: dedent(text).lstrip("\n").encode() for name, text in run_world.FILES.items()}
    files |= {"all.yaml": GROUP.encode(), "rich.yaml": RICH.encode()}
    for path in BUNDLED.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            files[f"bundled/{path.relative_to(BUNDLED)}"] = (
                _head(path.read_bytes()) if path.suffix == ".jsonl" else path.read_bytes()
            )
    return files


def _head(lines: bytes) -> bytes:
    return b"".join(lines.splitlines(keepends=True)[:6])


def _mutable() -> dict[str, bytes]:
    return {name: content for name, content in task_files().items() if name.endswith(".yaml")}


def _beside(files: Files) -> dict[str, bytes]:
    """The files, and those of the same family: fewer are read faster."""
    [name] = files
    is_bundled = name.startswith("bundled/")
    return {
        **{each: content for each, content in task_files().items() if each.startswith("bundled/") == is_bundled},
        **files,
    }


def check_tasks(files: Files, folder: Path) -> None:
    placed(_beside(files), folder)
    command("ls", "--include_path", folder, "--no_defaults")
    command("ls", "--include_path", folder, "--no_defaults", "--json")
    command("validate", "--include_path", folder, "--no_defaults")
    [name] = files
    command("show", folder / name)


def check_runs_of_tasks(files: Files, folder: Path) -> None:
    """A run of the damaged file."""
    placed(_beside(files), folder)
    [name] = files
    command(
        "run", "--model", "dummy", "--tasks", f"{folder / name}", "--include_path", folder, "--no_defaults", "--limit", 2,
        "--output_path", folder / "run", "--confirm_run_unsafe_code",
    )  # fmt: skip


def yaml_inputs() -> st.SearchStrategy[Files]:
    files = _mutable()
    keys = sorted({key for content in files.values() for key in re.findall(r"(\w+):", content.decode())})
    return one_of_files(files, lambda _, content: mutated_yaml(content.decode(), keys))


# ---- graphs

LIKELY = """
task: likely
data_config: {source: {type: disk, file_path: records.jsonl}, id_column: q, sink: {type: csv, file_path: copy.csv}}
graph_config:
  nodes:
    draw: {node_type: weighted_sampler, attributes: {tone: {values: [kind, rude], weights: [0.5, 0.5]}}}
    pick: {node_type: multiple_choice, prompt: "{q} {tone}", choices: [yes, "no"], choose_by: per_character, output_keys: picked, model: {name: m}}
    doubt: {node_type: loglikelihood, prompt: "{q}", continuation: " no", output_keys: doubt, model: {name: m}}
    talk:
      node_type: llm
      prompt: [{system: "You are {tone}."}, {user: "{q}"}]
      output_keys: predicted
      model: {name: m, parameters: {temperature: 0.5, max_tokens: 8}, structured_output: {schema: {fields: {a: {type: str}}}}}
    check: {node_type: lambda, lambda: steps.check, output_keys: [match_result]}
  edges:
    - {from: START, to: draw}
    - {from: draw, to: [pick, doubt]}
    - {from: [pick, doubt], to: talk}
    - {from: talk, condition: steps.way, path_map: {again: talk, done: check}}
    - {from: check, to: END}
  graph_properties: {max_steps: 12}
schema_config: {fields: {q: {type: str}}}
output_config: {output_map: {q: {from: q}, picked: {from: picked}, fixed: {value: 7}, match_result: {from: match_result}}}
graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params: {aggregator_metrics_map: [{name: accuracy, unit_metrics_results: [match_result]}]}
"""


def graph_files() -> dict[str, bytes]:
    """A graph of nearly every kind of node, one with an agent, and their code and records."""
    way = "\n\ndef way(state):\n    return 'done'\n"
    steps = dedent(CHAOS_TASKS["steps.py"]) + way
    records = [{"q": f"city {number}"} for number in range(3)]
    return {
        "likely.yaml": LIKELY.encode(), "agent.yaml": dedent(CHAOS_TASKS["graph_config.yaml"]).encode(), "steps.py": steps.encode(),
        "records.jsonl": "".join(json.dumps(each) + "\n" for each in records).encode(),
    }  # fmt: skip


def graph_inputs() -> st.SearchStrategy[Files]:
    files = {name: content for name, content in graph_files().items() if name.endswith(".yaml")}
    keys = sorted({key for content in files.values() for key in re.findall(r"(\w+):", content.decode())})
    return one_of_files(files, lambda _, content: mutated_yaml(content.decode(), keys))


def check_graphs(files: Files, folder: Path) -> None:
    placed({**graph_files(), **files}, folder)
    [name] = files
    known = ("--include_path", folder, "--no_defaults")
    command("validate", *known)
    command("show", folder / name)
    command("run", "--model", "dummy", "--tasks", folder / name, *known, "--output_path", folder / "run")
    command("score", folder / "run")


# ---- data files


def data_inputs() -> st.SearchStrategy[Files]:
    csv = b'q,a\n1+1,2\n2+3,5\n"7,4",3\n'
    lines = task_files()["sums.jsonl"]
    rows = [json.loads(line) for line in lines.splitlines()]
    table = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), table)
    values = mutated(rows).map(lambda new: {"sums.json": json.dumps(new).encode()})
    return st.one_of(
        values,
        mutated_bytes(lines).map(lambda new: {"sums.jsonl": new}),
        mutated_bytes(csv).map(lambda new: {"sums.csv": new}),
        mutated_text(csv.decode()).map(lambda new: {"sums.csv": new.encode("utf-8", "surrogatepass")}),
        mutated_bytes(table.getvalue()).map(lambda new: {"sums.parquet": new}),
    )


def check_data(files: Files, folder: Path) -> None:
    [name] = files
    kind = {"jsonl": "json"}.get(name.split(".")[1], name.split(".")[1])
    task = yaml.safe_load(dedent(run_world.FILES["sums.yaml"]))
    task |= {"dataset_path": kind, "dataset_kwargs": {"data_files": {"test": name}}}
    placed({"sums.yaml": yaml.safe_dump(task).encode(), **files}, folder)
    arguments = ("--include_path", folder, "--no_defaults")
    command("validate", *arguments)
    command("run", "--model", "dummy", "--tasks", "sums", *arguments, "--output_path", folder / "run")


# ---- runs


@cache
def good_run() -> Path:
    """A run with a group, a document that failed, usage and a further scoring; its tasks beside it."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    group = {
        "group": "both",
        "task": ["sums", "colours"],
        "aggregate_metric_list": [{"metric": "exact_match", "missing": "skip"}],
    }
    placed({**{n: c for n, c in task_files().items() if "/" not in n and n not in ("all.yaml", "rich.yaml")},
            "both.yaml": yaml.safe_dump(group).encode()}, folder / "tasks")  # fmt: skip
    run = folder / "runs/good"
    run_world.run(RecordingModel(failing={"7-4="}), folder / "tasks", run, tasks=["both"])
    spent = {
        "requests": 9,
        "failed": 1,
        "retries": 2,
        "tokens": {"in": 12, "out": 30},
        "cost": 0.25,
        "seconds": {"p50": 0.1},
    }
    usage = {**spent, "roles": {"judge": spent}, "tasks": {"sums": spent}}
    run_world.change_results(run, lambda content: content.update(usage=usage))
    score(run, ScoreOptions(include_path=[str(folder / "tasks")]))
    return run


def run_inputs() -> st.SearchStrategy[Files]:
    run = good_run()
    texts = {name: (run / name).read_bytes() for name in ("results.json", "manifest.json")}
    samples = {
        f"samples/{name}.parquet": (run / f"samples/{name}.parquet").read_bytes() for name in ("sums", "colours")
    }
    values = one_of_files(
        texts, lambda _, content: mutated(json.loads(content)).map(lambda new: json.dumps(new).encode())
    )
    damaged = one_of_files(texts | samples, lambda _, content: mutated_bytes(content))
    return st.one_of(values, values, damaged, one_of_files(samples, lambda _, content: _table(content)))


@st.composite
def _table(draw: st.DrawFn, content: bytes) -> bytes:
    """A samples file with right checksums and a value, or a column, that does not belong there."""
    table = pq.read_table(io.BytesIO(content))
    name = draw(st.sampled_from(table.column_names))
    place = table.column_names.index(name)
    values = draw(mutated(table.column(name).to_pylist(), 1))
    changed = table.remove_column(place)
    if draw(st.integers(0, 5)) and len(values) == len(table):
        changed = changed.add_column(place, name, _array(values, table.column(name).type))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        try:
            with pq.ParquetWriter(path, changed.schema, write_page_checksum=True) as writer:
                writer.write_table(changed)
                writer.add_key_value_metadata({CHECKSUM_KEY: NO_CHECKSUM})
        except pa.ArrowException:  # Parquet has no such column
            return b""
        write_checksum(path)
        return path.read_bytes()


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of that type, of whatever type they are, or as text."""
    for column_type in (kind.value_type if pa.types.is_dictionary(kind) else kind, None):
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return pa.array(values, column_type)
    return pa.array([str(value).encode("utf-8", "replace").decode() for value in values])


def check_run(files: Files, folder: Path) -> None:
    runs = folder / "runs"
    shutil.copytree(good_run(), runs / "good")
    shutil.copytree(good_run(), runs / "damaged")
    run, good, out = runs / "damaged", runs / "good", folder / "out"
    placed(files, run)
    for kind in ("html", "md", "json", "csv"):
        refused(lambda kind=kind: report_text([good, run], kind))
    for kind in ("lm-eval", "inspect", "parquet"):
        refused(lambda kind=kind: export(run, kind, out / kind))
    refused(lambda: compare([good, run], allow_different_prompts=True, flips=2))
    refused(lambda: compare([run, good], gates=["exact_match > -1pp"], allow_different_prompts=True))
    refused(lambda: import_runs([pack(run, out / "p.zip").path], out / "unpacked"))
    refused(lambda: import_runs([pack(run, out / "q.zip", no_gold=True).path], out / "without"))
    refused(lambda: import_runs([run], out / "brought"))
    refused(lambda: score(run, ScoreOptions(include_path=[str(good_run().parent.parent / "tasks")])))
    refused(lambda: [Run.open(run).rows, Run.open(run).samples("sums"), Run.open(run).usage])
    command("samples", run, "-n", 0, "--full")
    command("runs", "list", runs)
    command("runs", "show", run)
    pages(runs)


def pages(folder: Path) -> None:
    """Show the pages of a viewer: each is built, or fails with an error that has a page for itself."""
    from starlette.requests import Request

    viewer = Viewer(folder)
    sample = {"run": "damaged", "task": "sums", "doc": "0"}
    asked: Mapping[str, Any] = {
        "/": {},
        "/run": {"run": "damaged"},
        "/task": {"run": "damaged", "task": "sums"},
        "/sample": sample,
        "/compare": [("run", "good"), ("run", "damaged")],
        "/flips": [("run", "good"), ("run", "damaged"), ("task", "sums")],
    }
    for page, query in asked.items():
        scope = {
            "type": "http",
            "method": "GET",
            "path": page,
            "query_string": urlencode(query).encode(),
            "headers": [],
        }
        with contextlib.suppress(AssayError, MissingPage, *((duckdb.Error,) if page != "/" else ())):
            viewer.page(*PAGES[page], Request(scope))


QUERIES = {
    "run": ["good"], "task": ["sums"], "doc": ["0"], "sort": ["-exact_match"], "page": ["1"], "f": ["exact_match,none = 1"], "row": ["exact_match,none"],
    "filter": ["none"], "q": ["x"], "size": ["10"], "tag": ["a"], "model": ["m"],
}  # fmt: skip


def query_inputs() -> st.SearchStrategy[Files]:
    return mutated(QUERIES, keys=["column", "op", "value", "order", "metric", "flip", "direction"]).map(
        lambda query: {"query.json": json.dumps(query).encode()}
    )


def check_query(files: Files, folder: Path) -> None:
    """Every page of the viewer for one address."""
    from starlette.requests import Request

    query = json.loads(files["query.json"])
    pairs = [(str(key), str(each)) for key, values in (query.items() if isinstance(query, dict) else ())
             for each in (values if isinstance(values, list) else [values])]  # fmt: skip
    asked = urlencode(pairs, errors="replace").encode()
    viewer = Viewer(good_run().parent)
    for page in ("/", "/run", "/task", "/sample", "/compare", "/flips", "/graph"):
        scope = {"type": "http", "method": "GET", "path": "/x", "query_string": asked, "headers": []}
        with contextlib.suppress(AssayError, MissingPage, duckdb.Error):
            viewer.page(*PAGES[page], Request(scope))
    with contextlib.suppress(AssayError, MissingPage):
        viewer.filter(
            Request({"type": "http", "method": "GET", "path": "/filter", "query_string": asked, "headers": []})
        )


# ---- options in files

CONFIG = {
    "model": "dummy", "model_args": {}, "tasks": ["sums"], "limit": 2, "num_fewshot": 0, "gen_kwargs": {"max_gen_toks": 3}, "seed": [0, 1, 2, 3],
    "apply_chat_template": False, "samples": None, "repeats": 1, "max_failed": 0.5, "bootstrap_iters": 10, "metadata": {"a": 1}, "shard": "1/2",
    "model_role": {"judge": {"model": "dummy", "model_args": {}}}, "system_instruction": "Be kind.", "max_time": "1h", "log_samples": True,
}  # fmt: skip


def config_inputs() -> st.SearchStrategy[Files]:
    return mutated_yaml(
        yaml.safe_dump(CONFIG, sort_keys=False), ["predict_only", "compat", "batch_size", "sample", "start_index"]
    ).map(lambda text: {"config.yaml": text})


def check_config(files: Files, folder: Path) -> None:
    placed({**{name: content for name, content in task_files().items() if "/" not in name}, **files}, folder)
    command(
        "run",
        "--config",
        folder / "config.yaml",
        "--include_path",
        folder,
        "--no_defaults",
        "--output_path",
        folder / "run",
    )


# ---- journals


def journal_inputs() -> st.SearchStrategy[Files]:
    content = (good_run() / NAME).read_bytes()
    lines = content.splitlines()
    one = st.integers(0, len(lines) - 1).flatmap(
        lambda n: mutated(json.loads(lines[n])).map(
            lambda new: b"\n".join([*lines[:n], json.dumps(new).encode(), *lines[n + 1 :], b""])
        )
    )
    return st.one_of(one, mutated_bytes(content)).map(lambda new: {NAME: new})


def check_journal(files: Files, folder: Path) -> None:
    """The journal opens, pays what it holds, and the run resumes to the numbers of the undisturbed one."""
    run = folder / "run"
    shutil.copytree(good_run(), run)
    placed(files, run)
    (run / "results.json").unlink()
    shutil.rmtree(run / "scored", ignore_errors=True)

    def read() -> None:
        journal = Journal(run / NAME)
        for _, response in journal.paid():
            json.dumps(str(response))
        journal.close()

    refused(read)
    model = RecordingModel(failing={"7-4="})
    refused(lambda: run_world.run(model, good_run().parent.parent / "tasks", run, tasks=["both"]))
    if (run / "results.json").exists():
        before, after = run_world.results(good_run())["results"], run_world.results(run)["results"]
        assert before == after, "a damaged journal changed a number"


# ---- archives and logs of others


def archive_inputs() -> st.SearchStrategy[Files]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    content = pack(good_run(), folder / "p.zip").path.read_bytes()
    logs = {path.name: path.read_bytes() for path in sorted((TESTS / "inspect_logs").glob("*.eval"))}
    return one_of_files(
        {"p.zip": content, **logs}, lambda name, content: st.one_of(mutated_bytes(content), _members(content))
    )


def _members(content: bytes) -> st.SearchStrategy[bytes]:
    """The archive with the JSON of one of its members damaged."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: member(archive, name) for name in archive.namelist() if not name.endswith("/")}
    loaded = {name: json.loads(text) for name, text in members.items() if name.endswith(".json")}

    def written(name: str, value: Any) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for each, text in members.items():
                archive.writestr(each, json.dumps(value).encode() if each == name else text)
        return file.getvalue()

    return st.sampled_from(sorted(loaded)).flatmap(
        lambda name: mutated(loaded[name]).map(lambda value: written(name, value))
    )


def check_import(files: Files, folder: Path) -> None:
    placed(files, folder)
    [name] = files
    command("import", folder / name, "-o", folder / "brought")
    if (folder / "brought").exists():
        command("samples", folder / "brought", "-n", 0)
        refused(lambda: report_text([folder / "brought"], "md"))


def logged_inputs() -> st.SearchStrategy[Files]:
    files = {f"synth_wino/{path.name}": path.read_bytes() for path in sorted((TESTS / "logged/synth_wino").iterdir())}

    def change(name: str, content: bytes) -> st.SearchStrategy[bytes]:
        if name.endswith(".jsonl"):
            lines = content.splitlines()
            return st.integers(0, len(lines) - 1).flatmap(
                lambda n: mutated(json.loads(lines[n])).map(
                    lambda new: b"\n".join([*lines[:n], json.dumps(new).encode(), *lines[n + 1 :]])
                )
            )
        return mutated(json.loads(content)).map(lambda new: json.dumps(new).encode())

    return one_of_files(files, lambda name, content: st.one_of(change(name, content), mutated_bytes(content)))


def check_logged(files: Files, folder: Path) -> None:
    shutil.copytree(TESTS / "logged/synth_wino", folder / "synth_wino")
    placed(files, folder)
    command("import", folder / "synth_wino", "-o", folder / "brought")


TARGETS: Mapping[str, Target] = {
    "tasks": Target(yaml_inputs, check_tasks),
    "runs_of_tasks": Target(yaml_inputs, check_runs_of_tasks),
    "graphs": Target(graph_inputs, check_graphs),
    "configs": Target(config_inputs, check_config),
    "templates": Target(scoring.template_inputs, scoring.check_template),
    "data": Target(data_inputs, check_data),
    "texts": Target(scoring.answer_inputs, scoring.check_answers),
    "runs": Target(run_inputs, check_run),
    "queries": Target(query_inputs, check_query),
    "journals": Target(journal_inputs, check_journal),
    "archives": Target(archive_inputs, check_import),
    "lm_eval_logs": Target(logged_inputs, check_logged),
    "answers": Target(answers.inputs, answers.check_answer),
}


def check(target: str, files: Files) -> None:
    """Send files through a door; what is written on the way goes to a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        with silent(), watched():
            TARGETS[target].check(files, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
