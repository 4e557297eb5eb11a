"""One data set in every format: the documents have the same values with the same types, whatever reads them."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from assay import simple_evaluate
from assay.config.task import TaskConfig
from assay.dialect import dialect_of
from assay.graphs.sources import GraphSources
from assay.graphs.spec import SourceConfig
from assay.models import Scripted
from assay.samples.data import data_set
from assay.samples.rows import DataError, typed
from assay.scoring.metric_binding import NO_HELPERS
from assay.tasks.settings import Settings

Rows = Sequence[Mapping[str, Any]]

FLAT: Rows = [
    {"id": 1, "code": "007", "price": "1.50", "flag": "true", "land": "NA", "gap": None, "score": 0.5, "large": str(10**20), "day": "2020-01-31"},
    {"id": 2, "code": "12", "price": "2.25", "flag": "no", "land": "ZA", "gap": 3, "score": 2, "large": "1", "day": "2021-12-01"},
    {"id": 2**63, "code": "é", "price": "3", "flag": "x", "land": "None", "gap": None, "score": -1.25, "large": "2", "day": "none"},
]  # fmt: skip
"""What a csv file can say, too."""
DEEP: Rows = [
    {"choices": ["a", "b"], "right": True, "meta": {"n": 1, "of": [{"x": None}]}, "text": "", "ratio": 0.1},
    {"choices": [], "right": False, "meta": {"n": 2, "of": []}, "text": "NaN", "ratio": 1e300},
]
"""What a csv file cannot say."""


def as_jsonl(folder: Path, rows: Rows) -> dict[str, Any]:
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "d.jsonl"}}}


def as_json(folder: Path, rows: Rows) -> dict[str, Any]:
    (folder / "d.json").write_text(json.dumps(list(rows), ensure_ascii=False))
    return {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "d.json"}}}


def as_json_columns(folder: Path, rows: Rows) -> dict[str, Any]:
    (folder / "d.json").write_text(json.dumps({name: [row[name] for row in rows] for name in rows[0]}))
    return {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "d.json"}}}


def as_table(folder: Path, rows: Rows, name: str, delimiter: str) -> dict[str, Any]:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    (folder / name).write_text(text.getvalue())
    return {"dataset_path": "csv", "dataset_kwargs": {"data_files": {"test": name}}}


def as_csv(folder: Path, rows: Rows) -> dict[str, Any]:
    return as_table(folder, rows, "d.csv", ",")


def as_tsv(folder: Path, rows: Rows) -> dict[str, Any]:
    return as_table(folder, rows, "d.tsv", "\t")


def as_folder_of_tsv(folder: Path, rows: Rows) -> dict[str, Any]:
    as_table(folder, rows, "test.tsv", "\t")
    return {"dataset_path": "./"}


def as_parquet(folder: Path, rows: Rows) -> dict[str, Any]:
    def column(values: list[Any]) -> pa.Array:
        return pa.array(values, pa.uint64()) if 2**63 in values else pa.array(values)

    table = {name: column([row[name] for row in rows]) for name in rows[0]}
    parquet.write_table(pa.table(table), folder / "d.parquet")
    return {"dataset_path": "parquet", "dataset_kwargs": {"data_files": {"test": "d.parquet"}}}


def as_function(folder: Path, rows: Rows) -> dict[str, Any]:
    del folder
    return {"custom_dataset": lambda **_: {"test": [dict(row) for row in rows]}}


def as_numpy(folder: Path, rows: Rows) -> dict[str, Any]:
    """A function that takes its rows from a data frame: its numbers are numpy's, a gap among numbers is NaN."""
    del folder
    import pandas as pd

    return {"custom_dataset": lambda **_: {"test": pd.DataFrame(list(rows), dtype=object).to_dict("records")}}


def as_hub(folder: Path, rows: Rows) -> dict[str, Any]:
    """A data set of the hub's library, as `load_dataset` returns it."""
    datasets = pytest.importorskip("datasets")
    as_parquet(folder, rows)
    return {"custom_dataset": lambda **_: {"test": datasets.Dataset(parquet.read_table(folder / "d.parquet"))}}


def read(folder: Path, written: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
    config = TaskConfig(task="t", test_split="test", **written)
    data = data_set(config, folder=str(folder), data_dir=None, **options)
    return [dict(row) for row in data.split("test")]


Writer = Callable[[Path, Rows], dict[str, Any]]
DEEP_FORMATS: list[Writer] = [as_jsonl, as_json, as_json_columns, as_parquet, as_function, as_hub]


def with_types(rows: Rows) -> list[dict[str, tuple[type, Any]]]:
    """The values with their types: 1, 1.0 and True are three things."""
    return [{name: (type(value), value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("write", [*DEEP_FORMATS, as_csv, as_tsv, as_folder_of_tsv])
def test_flat_data_is_the_same_in_every_format(write: Writer, tmp_path: Path) -> None:
    rows = read(tmp_path, write(tmp_path, FLAT))
    if write in (as_parquet, as_hub):  # a column of Arrow has one type
        assert [type(row["score"]) for row in rows] == [float] * 3
        assert rows == list(FLAT)
    else:
        assert with_types(rows) == with_types(FLAT)


@pytest.mark.parametrize("write", DEEP_FORMATS)
def test_nested_data_is_the_same_in_every_format_but_csv(write: Writer, tmp_path: Path) -> None:
    assert with_types(read(tmp_path, write(tmp_path, DEEP))) == with_types(DEEP)


def test_numbers_of_a_data_frame_are_plain_ones(tmp_path: Path) -> None:
    assert with_types(read(tmp_path, as_numpy(tmp_path, FLAT))) == with_types(FLAT)


ARROW: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "NaN is missing": (pa.float64(), [0.5, math.nan, None], [0.5, None, None]),
    "NaN below double precision": (pa.float32(), [0.5, math.nan, None], [0.5, None, None]),
    "NaN within lists": (pa.list_(pa.float64()), [[0.5, math.nan], [], None], [[0.5, None], [], None]),
    "dates": (pa.date32(), [date(2020, 1, 31), None], ["2020-01-31", None]),
    "times": (pa.time64("us"), [time(12, 30), None], ["12:30:00", None]),
    "timestamps": (pa.timestamp("s"), [datetime(2020, 1, 31, 12), None], ["2020-01-31 12:00:00", None]),
    "timestamps with a zone": (pa.timestamp("ms", "UTC"), [0, None], ["1970-01-01 00:00:00+00:00", None]),
    "timestamps of nanoseconds": (pa.timestamp("ns"), [1, None], ["1970-01-01 00:00:00.000000001", None]),
    "durations": (pa.duration("s"), [timedelta(hours=1), None], ["1:00:00", None]),
    "decimals with places": (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("7.00"), None], ["1.50", "7.00", None]),
    "decimals without": (pa.decimal128(5, 0), [Decimal(7), None], [7, None]),
    "decimals beyond 64 bits": (pa.decimal128(38, 0), [Decimal(10**20), Decimal(7)], [str(10**20), 7]),
    "bytes that are text": (pa.binary(), ["é".encode(), b"", None], ["é", "", None]),
    "bytes that are not": (pa.binary(), [b"\xff\xfe"], [b"\xff\xfe"]),
    "truths": (pa.bool_(), [True, None], [True, None]),
    "categories": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"], ["a", None, "a"]),
    "dates in structures": (pa.struct([("d", pa.date32())]), [{"d": date(2020, 1, 1)}], [{"d": "2020-01-01"}]),
}  # fmt: skip


@pytest.mark.parametrize("case", ARROW)
@pytest.mark.parametrize("hub", [False, True])
def test_types_that_json_does_not_have(case: str, hub: bool, tmp_path: Path) -> None:
    kind, values, expected = ARROW[case]
    table = pa.table({"c": pa.array(values).cast(kind) if case == "categories" else pa.array(values, kind)})
    parquet.write_table(table, tmp_path / "d.parquet")
    written: dict[str, Any] = {"dataset_path": "parquet", "dataset_kwargs": {"data_files": {"test": "d.parquet"}}}
    if hub:
        datasets = pytest.importorskip("datasets")
        written = {"custom_dataset": lambda **_: {"test": datasets.Dataset(table)}}
    values = [row["c"] for row in read(tmp_path, written)]
    assert [(type(value), value) for value in values] == [(type(value), value) for value in expected]


@pytest.mark.parametrize("case", ["NaN is missing", "timestamps", "decimals with places", "bytes that are text"])
def test_compat_leaves_the_values_of_the_data_library(case: str, tmp_path: Path) -> None:
    kind, values, _ = ARROW[case]
    parquet.write_table(pa.table({"c": pa.array(values, kind)}), tmp_path / "d.parquet")
    written = {"dataset_path": "parquet", "dataset_kwargs": {"data_files": {"test": "d.parquet"}}}
    assert repr([row["c"] for row in read(tmp_path, written, dialect=dialect_of("lm-eval"))]) == repr(values)


JSON: dict[str, tuple[str, Any]] = {
    "NaN, as Python writes it": ("NaN", None),
    "Infinity": ("-Infinity", -math.inf),
    "an integer beyond 64 bits": (str(10**30), str(10**30)),
    "a negative one": (str(-(10**20)), str(-(10**20))),
    "an integer of 64 bits": (str(2**64 - 1), 2**64 - 1),
    "a large number": ("1e300", 1e300),
    "a number of so many digits": ("1" * 5000, "1" * 5000),
    "zeros behind": ("1.50", 1.5),
    "a list": ("[1, NaN]", [1, None]),
}


@pytest.mark.parametrize("case", JSON)
@pytest.mark.parametrize("name", ["d.json", "d.jsonl"])
def test_numbers_in_json(case: str, name: str, tmp_path: Path) -> None:
    text, expected = JSON[case]
    row = f'{{"c": {text}, "k": 1}}'
    (tmp_path / name).write_text(f"[{row}]" if name == "d.json" else f"{row}\n\n{row}\n")
    written = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": name}}}
    rows = read(tmp_path, written)
    assert {(type(row["c"]), repr(row["c"]), row["k"]) for row in rows} == {(type(expected), repr(expected), 1)}


def test_a_column_of_json_may_mix_types_and_lack_values(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"c": 1}\n{"c": "1"}\n{"c": 1.0, "d": true}\n{"c": null}\n')
    rows = read(tmp_path, {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "d.jsonl"}}})
    assert with_types(rows) == with_types(
        [{"c": 1, "d": None}, {"c": "1", "d": None}, {"c": 1.0, "d": True}, {"c": None, "d": None}]
    )


@pytest.mark.parametrize("text", ['{"c": NaN', '{"c": nan}', '{"c": 1} NaN'])
def test_broken_json_is_still_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(f'{{"c": 1}}\n{text}\n')
    with pytest.raises(DataError, match=r"d\.jsonl:2: not valid JSON"):
        read(tmp_path, {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "d.jsonl"}}})


def test_a_value_of_an_unknown_type_stays_as_it_is() -> None:
    thing = object()
    assert typed({"a": (thing, 1)}) == {"a": (thing, 1)}


@pytest.mark.parametrize("write", [as_jsonl, as_json, as_csv, as_tsv, as_parquet])
def test_sources_of_graphs_give_the_same_records(write: Writer, tmp_path: Path) -> None:
    write(tmp_path, FLAT)
    [file] = tmp_path.iterdir()
    source = SourceConfig(type="disk", file_path=file.name)
    records, _ = GraphSources(Settings(), NO_HELPERS).open(source, str(tmp_path))
    assert [dict(record) for record in records] == list(FLAT)


def test_a_date_of_parquet_is_text_in_prompt_target_example_and_run(tmp_path: Path) -> None:
    days = [date(2020, 1, 31), date(2021, 2, 28), date(2022, 3, 31)]
    for split, values in (("test", days[:2]), ("train", days[2:])):
        parquet.write_table(pa.table({"day": values}), tmp_path / f"{split}.parquet")
    files = "{test: test.parquet, train: train.parquet}"
    text = f"task: t\ndataset_path: parquet\ndataset_kwargs: {{data_files: {files}}}\ntest_split: test\nfewshot_split: train\n"
    (tmp_path / "t.yaml").write_text(text + 'num_fewshot: 1\ndoc_to_text: "Q: {{day}}\\nA:"\ndoc_to_target: day\n')
    model = Scripted(generate=lambda prompt, params, repeat: prompt.split("Q: ")[-1].split("\n")[0])
    results = simple_evaluate(model=model, tasks=["t"], include_path=str(tmp_path), include_defaults=False)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    [first, _] = results["samples"]["t"]
    assert (first["doc"], first["target"]) == ({"day": "2020-01-31"}, "2020-01-31")
    assert first["arguments"][0][0] == "Q: 2022-03-31\nA: 2022-03-31\n\nQ: 2020-01-31\nA:"
