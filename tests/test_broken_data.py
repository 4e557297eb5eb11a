"""Data files that are damaged, empty or not what their names say: an error of their task, which names the file."""

import gzip
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import assay
from assay.models import Scripted
from conftest import Write
from graph_world import write_graph

pytestmark = pytest.mark.slow  # many runs: too long for `make quick`

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TASK = 'task: %s\ndataset_path: %s\ndataset_kwargs: {data_files: {test: %s}%s}\ntest_split: test\ndoc_to_text: "{{q}}"\ndoc_to_target: "{{a}}"\n'
FINE = {"fine.yaml": TASK % ("fine", "json", "fine.jsonl", ""), "fine.jsonl": '{"q": "q", "a": "x"}\n'}


def whole_parquet() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"q": [f"question {n}" * 50 for n in range(500)], "a": ["x"] * 500})
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def bad_utf8_parquet() -> bytes:
    sink = pa.BufferOutputStream()
    texts = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"q": texts, "a": ["x"]}), sink)
    return bytes(sink.getvalue())


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "an empty Parquet file": ("d.parquet", b"", ""),
    "junk called Parquet": ("d.parquet", b"this is no table at all, whatever its name says", ""),
    "Parquet with its end cut off": ("d.parquet", whole_parquet()[:-100], ""),
    "Parquet with junk inside": ("d.parquet", (lambda w: w[:200] + b"\xff" * 400 + w[600:])(whole_parquet()), ""),
    "Parquet with invalid UTF-8": ("d.parquet", bad_utf8_parquet(), ""),
    "a table in Latin-1": ("d.csv", "q,a\ncafé,x\n".encode("latin-1"), ""),
    "a table in UTF-16": ("d.csv", "q,a\ncafé,x\n".encode("utf-16"), ""),
    "an encoding that there is not": ("d.csv", b"q,a\nb,x\n", ", encoding: klingon"),
    "a delimiter of two characters": ("d.csv", b"q,a\nb,x\n", ", delimiter: ';;'"),
    "a line with too many cells": ("d.csv", b"q,a\nb,x,y\n", ""),
    "an empty table": ("d.csv", b"", ""),
    "lines of JSON with bad bytes": ("d.jsonl", b'{"q": "caf\xe9", "a": "x"}\n', ""),
    "JSON with bad bytes": ("d.json", b'[{"q": "caf\xe9", "a": "x"}]', ""),
    "JSON that ends too early": ("d.json", b'[{"q": "b", "a"', ""),
    "JSON that is a number": ("d.json", b"5", ""),
    "JSON that is a text": ("d.json", b'"text"', ""),
    "JSON with rows that are not mappings": ("d.json", b"[1, 2]", ""),
    "JSON with columns of two lengths": ("d.json", b'{"q": ["b", "c"], "a": ["x"]}', ""),
    "JSON without the field": ("d.json", b'{"rows": []}', ", field: data"),
    "JSON that is not a mapping, with a field": ("d.json", b"[1]", ", field: data"),
    "JSON that nests too deeply": ("d.jsonl", b'{"q": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ""),
    "a row that is a list": ("d.jsonl", b"[1, 2]\n", ""),
    "an empty file": ("d.jsonl", b"", ""),
    "gzip": ("d.jsonl.gz", gzip.compress(b'{"q": "b", "a": "x"}\n'), ""),
    "damaged gzip": ("d.jsonl.gz", gzip.compress(b'{"q": "b", "a": "x"}\n')[:-9], ""),
    "gzip called otherwise": ("d.jsonl", gzip.compress(b'{"q": "b", "a": "x"}\n'), ""),
    "zstd called a table": ("d.csv", b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00\xff\xfe\x99", ""),
}  # fmt: skip


def evaluated(folder: Path, *names: str, **options: Any) -> dict[str, Any]:
    model = Scripted(generate=lambda *_: "x")
    fixed: dict[str, Any] = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    return assay.simple_evaluate(model, tasks=list(names or ("t", "fine")), **fixed, **options)


def reader_of(file: str) -> str:
    return {"parquet": "parquet", "csv": "csv"}.get(file.partition(".")[2], "json")


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_breaks_its_task_alone_and_is_named(name: str, compat: str | None, write: Write) -> None:
    file, content, options = BROKEN[name]
    folder = write({**FINE, "t.yaml": TASK % ("t", reader_of(file), file, options)})
    (folder / file).write_bytes(content)
    results = evaluated(folder, compat=compat)
    assert results["results"]["fine"]["exact_match,none"] == 1.0
    reason = results["assay"]["broken"]["t"]
    assert file in reason or "is empty" in reason


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_breaks_its_graph_alone(name: str, tmp_path: Path, write: Write) -> None:
    file, content, options = BROKEN[name]
    if options and "encoding" not in options:
        pytest.skip("a graph has no such option")
    encoding = ", encoding: klingon" if options else ""
    source = f"data_config: {{source: {{type: disk, file_path: {file}{encoding}}}}}\n"
    nodes = "graph_config:\n  nodes: {a: {node_type: llm, prompt: [{user: hello}], output_keys: x, model: {name: m}}}\n"
    graph = write_graph(tmp_path, [], source + nodes + "  edges: [{from: START, to: a}, {from: a, to: END}]\n")
    (graph / file).write_bytes(content)
    results = evaluated(write(FINE), str(graph), "fine")
    assert results["results"]["fine"]["exact_match,none"] == 1.0
    assert len(results["assay"]["broken"]) == 1


def test_a_folder_in_place_of_a_file_and_a_file_that_may_not_be_read_are_named(write: Write) -> None:
    folder = write(
        {**FINE, "t.yaml": TASK % ("t", "json", "'*.json'", ""), "u.yaml": TASK % ("u", "json", "secret.jsonl", "")}
    )
    (folder / "d.json").mkdir()
    (folder / "secret.jsonl").write_text('{"q": "b", "a": "x"}\n')
    (folder / "secret.jsonl").chmod(0)
    results = evaluated(folder, "t", "u", "fine")
    assert results["results"]["fine"]["exact_match,none"] == 1.0
    assert "d.json: Is a directory" in results["assay"]["broken"]["t"]
    if os.geteuid():
        assert "secret.jsonl: Permission denied" in results["assay"]["broken"]["u"]


def test_a_cell_of_a_million_characters_is_read(write: Write) -> None:
    long = "word " * 200_000
    folder = write({**FINE, "t.yaml": TASK % ("t", "csv", "d.csv", ""), "d.csv": f"q,a\n{long},x\n"})
    results = evaluated(folder)
    assert results["assay"].get("broken", {}) == {}
    assert results["samples"]["t"][0]["arguments"][0][0] == long


def test_a_table_in_latin_1_is_read_where_the_task_says_so(write: Write) -> None:
    folder = write({**FINE, "t.yaml": TASK % ("t", "csv", "d.csv", ", encoding: latin-1")})
    (folder / "d.csv").write_bytes("q,a\ncafé,x\n".encode("latin-1"))
    assert evaluated(folder)["samples"]["t"][0]["doc"]["q"] == "café"


def test_broken_data_is_reported_with_the_remedy_and_exit_code_1(write: Write, run_assay: Run) -> None:
    folder = write({**FINE, "t.yaml": TASK % ("t", "csv", "d.csv", "")})
    (folder / "d.csv").write_bytes("q,a\ncafé,x\n".encode("latin-1"))
    ended = run_assay("run", "--model", "dummy", "--tasks", "t,fine", "--include_path", folder, "--no_defaults")
    assert ended.returncode == 1
    assert "d.csv" in ended.stderr
    assert "encoding: latin-1" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_samples_of_a_run_that_are_damaged_break_their_task_alone(write: Write, tmp_path: Path) -> None:
    folder = write(
        {
            **FINE,
            "t.yaml": TASK.replace("{data_files: {test: %s}%s}", "{run: %s%s}") % ("t", "assay", tmp_path / "run", ""),
        }
    )
    (tmp_path / "run" / "samples").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text('{"format": 2, "tasks": {"test": {}}}')
    for content in (b"junk", None):
        file = tmp_path / "run" / "samples" / "test.parquet"
        if content is None:
            parquet.write_table(pa.table({"doc": ["no JSON"], "doc_id": [0]}), file)
        else:
            file.write_bytes(content)
        results = evaluated(folder)
        assert results["results"]["fine"]["exact_match,none"] == 1.0
        assert "test.parquet" in results["assay"]["broken"]["t"]
