"""Data files that are damaged, empty or not what their names say: an error of their task, which names the file."""

import gzip
import os
import re
import resource
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import assay
import run_world
from assay.cli import main
from assay.models import Scripted
from assay.samples.rows import Rows
from commands import Run
from conftest import Write
from graph_world import write_graph

pytestmark = pytest.mark.slow  # many runs: too long for `make quick`


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


def parquet_of(*tables: pa.Table, **options: Any) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with parquet.ParquetWriter(path, tables[0].schema, compression="zstd", **options) as file:
            for table in tables:
                file.write_table(table)

    return make


def bomb(path: Path) -> None:
    long = pa.table({"q": pa.array(["x" * 3_000_000] * 130, pa.large_string()), "a": ["x"] * 130})
    parquet_of(long, use_dictionary=False)(path)


def text(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


A = pa.array(["x"])
ODD: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "pipe": ("d.jsonl", os.mkfifo, "", "pipe, socket or device"),
    "pipe_table": ("d.csv", os.mkfifo, "", "pipe, socket or device"),
    "pipe_parquet": ("d.parquet", os.mkfifo, "", "pipe, socket or device"),
    "device": ("d.jsonl", lambda path: path.symlink_to("/dev/zero"), "", "pipe, socket or device"),
    "random": ("d.csv", lambda path: path.symlink_to("/dev/urandom"), "", "pipe, socket or device"),
    "terminal": ("d.json", lambda path: path.symlink_to("/dev/tty"), "", "pipe, socket or device"),
    "loop": ("d.jsonl", lambda path: path.symlink_to(path.name), "", "Too many levels"),
    "dangling": ("d.parquet", lambda path: path.symlink_to("nowhere"), "", "No such file"),
    "folder_parquet": ("d.parquet", lambda path: path.mkdir(), "", "d.parquet"),
    "giant": ("d.jsonl", sparse, "", "a binary file"),
    "giant_json": ("d.json", sparse, "", "a binary file"),
    "giant_table": ("d.csv", sparse, "", "a binary file"),
    "giant_parquet": ("d.parquet", sparse, "", "not a readable Parquet file"),
    "utf_16": ("d.jsonl", text('{"q": "b", "a": "x"}\n'.encode("utf-16")), "", "give its encoding"),
    "nul": ("d.jsonl", text(b"\0\0\n"), "", "a binary file"),
    "twice": ("d.csv", text(b"q,q,a\nb,c,x\n"), "", "two columns are named 'q'"),
    "ragged": ("d.csv", text(b"q,a\nb,x\nb,x,y,z\n"), "", "row 2 has more cells"),
    "header": ("d.csv", text(b"q,a\n"), "", "is empty"),
    "delimiter": ("d.csv", text(b"q,a\n"), ", delimiter: 5", "delimiter must be text, got 5"),
    "encoding": ("d.csv", text(b"q,a\n"), ", encoding: 5", "encoding must be text, got 5"),
    "bytes_encoding": ("d.csv", text(b"q,a\n"), ", encoding: base64", "is not a text encoding"),
    "names_number": ("d.csv", text(b"b,x\n"), ", column_names: 5", "column_names must be a list of texts"),
    "names_mixed": ("d.csv", text(b"b,x\n"), ", column_names: [q, 1]", "column_names must be a list of texts"),
    "names_lists": ("d.csv", text(b"b,x\n"), ", names: [[q], {}]", "column_names must be a list of texts"),
    "field_list": ("d.json", text(b'{"a": 1}'), ", field: [a]", "field must be text"),
    "nothing": ("d.json", text(b"null"), "", "must hold a list of objects"),
    "null_line": ("d.jsonl", text(b"null\n"), "", "d.jsonl:1: a row must be an object"),
    "bad_line": ("d.jsonl", text(b'{"q": "b", "a": "x"}\n' * 100 + b'{"q"\n'), "", "d.jsonl:101: not valid JSON"),
    "deep_nan": ("d.jsonl", text(b'{"q": ' + b"[" * 9000 + b"NaN" + b"]" * 9000 + b"}\n"), "", "d.jsonl:1: not valid JSON"),
    "surrogate": ("d.jsonl", text(b'{"q": "\\ud800", "a": "x"}\n'), "", "d.jsonl:1: not valid JSON"),
    "bomb": ("d.parquet", bomb, "", "would unpack to 0.4 GB"),
    "no_rows": ("d.parquet", parquet_of(pa.table({"q": A, "a": A}).slice(1)), "", "is empty"),
    "no_columns": ("d.parquet", parquet_of(pa.table({})), "", "is empty"),
    "two_columns": ("d.parquet", parquet_of(pa.table([A, A, A], names=["q", "q", "a"])), "", "two columns are named 'q'"),
    "feather": ("d.feather", text(b"ARROW1"), "", "cannot read files of this kind"),
    "xz": ("d.jsonl.xz", text(b"\xfd7zXZ"), "", "cannot read files of this kind"),
    "zip": ("d.zip", text(b"PK\x03\x04"), "", "cannot read files of this kind"),
}  # fmt: skip
"""Data by the name of its task: file, content, reader options, and a part of the message."""
FOUND_NOWHERE = {
    "pattern": ("nothing*.jsonl", "no data file"), "address": ("http://127.0.0.1:1/d.jsonl", "is an address: download it"),
    "bucket": ("s3://b/d.jsonl", "is an address: download it"), "hub_file": ("hf://datasets/a/b.jsonl", "Hugging Face hub"),
    "long_path": ("d" * 5000 + ".jsonl", "no data file"), "one_of_many": ("*/d.jsonl", "not valid JSON"),
}  # fmt: skip


def test_a_good_task_among_forty_with_bad_data_is_run_and_each_of_them_is_reported(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None is read whole, or waited for: giants and bombs have 3 GB and more."""
    folder = write(FINE)
    for name, (file, make, options, _) in ODD.items():
        make(folder / f"{name}_{file}")
        written = TASK % (name, reader_of(file), f"{name}_{file}", options)
        (folder / f"{name}.yaml").write_text(written)
    for name, (path, _) in FOUND_NOWHERE.items():
        (folder / f"{name}.yaml").write_text(TASK % (name, "json", f'"{path}"', ""))
    (folder / "many").mkdir()
    (folder / "many" / "d.jsonl").write_text('{"q":')
    said = {name: each[-1] for name, each in (ODD | FOUND_NOWHERE).items()}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(["run", "--model", "dummy", "--tasks", "fine", *said, "--include_path", str(folder), "--no_defaults",
                 "--limit", "2", "--output_path", str(tmp_path / "run")]) == 1  # fmt: skip
    assert time.monotonic() - began < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 800_000
    printed = capsys.readouterr().err
    results = run_world.results(tmp_path / "run")
    assert list(results["results"]) == ["fine"]
    broken = results["assay"]["broken"]
    assert [(name, broken[name]) for name in said if said[name] not in broken[name]] == []
    alone = [name for name in said if f"task '{name}' cannot be run: " in printed]
    together = [
        int(count) for count in re.findall(r"^(\d+) of \d+ tasks \(.*\) cannot be run: ", printed, re.MULTILINE)
    ]
    assert alone and together and len(alone) + sum(together) == len(said)


TYPES = {
    "dictionary": A.dictionary_encode(), "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "decimal": pa.array([Decimal("1.50")]), "time": pa.array([5], pa.timestamp("us")), "day": pa.array([5], pa.date32()),
    "nanoseconds": pa.array([1], pa.timestamp("ns")), "bytes": pa.array([b"\xff\x00"]), "half": pa.array([1.5]).cast(pa.float16()),
    "struct": pa.array([{"a": [{"b": None}]}]), "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
    "far": pa.array([2**62], pa.timestamp("us")), "long": pa.array([2**62], pa.duration("s")), "late": pa.array([2**30], pa.date32()),
    "mars": pa.array([5], pa.timestamp("us", tz="Mars/Olympus")),
}  # fmt: skip
UNREADABLE = ("far", "long", "late", "mars")
"""Values that Python has no date, time or zone for."""


def test_every_type_of_parquet_is_read_or_refused(write: Write) -> None:
    folder = write(FINE)
    for name, column in TYPES.items():
        parquet.write_table(pa.table({"q": column, "a": ["x"]}), folder / f"{name}.parquet")
        (folder / f"{name}.yaml").write_text(TASK % (name, "parquet", f"{name}.parquet", ""))
    results = evaluated(folder, "fine", *TYPES)
    assert sorted(results["assay"]["broken"]) == sorted(UNREADABLE)
    assert all(f"{name}.parquet" in reason for name, reason in results["assay"]["broken"].items())
    assert set(results["results"]) == {"fine", *TYPES} - set(UNREADABLE)


def test_the_first_documents_of_a_small_file_that_unpacks_to_gigabytes_are_read(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["x" * 900_000])
    parquet.write_table(pa.table({"q": repeated, "a": ["x"] * 3000}), tmp_path / "d.parquet")  # 2.7 GB
    parts = [pa.table({"q": [f"{n}" + "x" * 3_000_000 for n in range(10)], "a": ["x"] * 10})] * 40  # 1.2 GB
    parquet_of(*parts)(tmp_path / "e.parquet")
    assert (tmp_path / "d.parquet").stat().st_size + (tmp_path / "e.parquet").stat().st_size < 300_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, size, length in (("d", 3000, 900_000), ("e", 400, 3_000_001)):
        rows = Rows([tmp_path / f"{name}.parquet"])
        assert (len(rows), rows.columns[:2]) == (size, ("q", "a"))
        assert [len(row["q"]) for row in islice(rows, 2)] == [length] * 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


def test_data_that_is_damaged_while_a_run_asks_fails_the_documents_that_cannot_be_read(write: Write) -> None:
    helper = """
        from pathlib import Path

        def text(doc):
            if doc["q"] == 1500:
                file = Path(__file__).with_name("d.jsonl")
                lines = file.read_text().splitlines(keepends=True)
                file.write_text("".join(lines[:2900]) + "{\\n" * 100)
            return str(doc["q"])
    """
    task = (TASK % ("t", "json", "d.jsonl", "")).replace('"{{q}}"', "!function h.text")
    folder = write({**FINE, "t.yaml": task, "h.py": helper})
    lines = [f'{{"q": {n}, "a": "x", "long": "{"x" * 900}"}}\n' for n in range(3000)]
    (folder / "d.jsonl").write_text("".join(lines))
    results = evaluated(folder)
    assert results["results"]["fine"]["exact_match,none"] == 1.0
    assert results["results"]["t"]["exact_match,none"] == 1.0
    summary = results["assay"]["tasks"]["t"]
    assert (summary["failed"], summary["documents"]) == (100, 3000)
    assert "d.jsonl:2901: not valid JSON" in str(summary["reasons"])


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
    (tmp_path / "run" / "manifest.json").write_text('{"format": 3, "tasks": {"test": {}}}')
    for content in (b"junk", None):
        file = tmp_path / "run" / "samples" / "test.parquet"
        if content is None:
            parquet.write_table(pa.table({"doc": ["no JSON"], "doc_id": [0]}), file)
        else:
            file.write_bytes(content)
        results = evaluated(folder)
        assert results["results"]["fine"]["exact_match,none"] == 1.0
        assert "test.parquet" in results["assay"]["broken"]["t"]
