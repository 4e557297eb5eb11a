"""Cells of csv files: what is a number, and what stays the text that is written there.

What `--compat lm-eval` must give was read with `datasets.load_dataset` 5.2.0 on pandas 3.1.1, through which lm-eval 0.4.13
reads the same files.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay.models import Scripted
from assay.samples.rows import MISSING, column_names_as_pandas, csv_values, csv_values_as_pandas
from conftest import Write
from graph_world import write_graph

TASK = "task: t\ndataset_path: csv\ndataset_kwargs: {data_files: {test: %s}}\ntest_split: test\ndoc_to_text: k\ndoc_to_target: k\n"


def column(folder: Path, content: str, **options: Any) -> list[Any]:
    """The column c of a csv file as the task t has it."""
    (folder / "d.csv").write_text(content)
    model = Scripted(generate=lambda prompt, params, repeat: prompt)
    fixed = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    samples = assay.simple_evaluate(model, tasks=["t"], **fixed, **options)["samples"]["t"]
    return [sample["doc"]["c"] for sample in samples]


def a_table(*cells: str) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([["c", "k"], *([cell, f"k{n}"] for n, cell in enumerate(cells))])
    return text.getvalue()


TEXTS: dict[str, tuple[list[str], Any]] = {
    # what is written: as it is by default, and as lm-eval's data library has it
    "zeros in front": (["007", "12"], [7, 12]),
    "a plus": (["+5", "6"], [5, 6]),
    "space before": ([" 7", "8"], [7, 8]),
    "space behind": (["7 ", "8"], [7, 8]),
    "underscores": (["1_000", "2"], ["1_000", "2"]),
    "zeros behind": (["1.50", "2.25"], [1.5, 2.25]),
    "a trailing point": (["1.", "2"], [1.0, 2.0]),
    "a leading point": ([".5", "2"], [0.5, 2.0]),
    "an exponent": (["1e3", "2"], [1000.0, 2.0]),
    "a minus before zero": (["-0", "1"], [0, 1]),
    "infinity": (["inf", "1"], [float("inf"), 1.0]),
    "more digits than a float holds": (["0.1234567890123456789", "1"], [0.12345678901234568, 1.0]),
    "beyond 64 bits": (["123456789012345678901234567890", "1"], ["123456789012345678901234567890", "1"]),
    "digits of another script": (["١٢", "1"], ["١٢", "1"]),
    "a number and a word": (["1", "x"], ["1", "x"]),
    "a date": (["2020-01-01", "2020-01-02"], ["2020-01-01", "2020-01-02"]),
    "a version": (["1.2.3", "4"], ["1.2.3", "4"]),
    "hexadecimal": (["0x10", "1"], ["0x10", "1"]),
    "a truth and a number": (["true", "1"], ["true", "1"]),
    "truths": (["True", "False"], [True, False]),
    "truths in small letters": (["true", "false"], [True, False]),
    "truths in capitals": (["TRUE", "TRUE"], [True, True]),
    "a country": (["NA", "ZA"], [None, "ZA"]),
    "a choice written None": (["None", "All", "null", "n/a"], [None, "All", None, None]),
    "nothing but words for nothing": (["NA", "nan"], [None, None]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_csv_column_that_would_print_differently_as_numbers_stays_text(name: str, write: Write) -> None:
    cells, as_lm_eval = TEXTS[name]
    folder = write({"t.yaml": TASK % "d.csv"})
    assert column(folder, a_table(*cells)) == cells
    values = column(folder, a_table(*cells), compat="lm-eval")
    assert values == as_lm_eval
    assert list(map(type, values)) == list(map(type, as_lm_eval))


NUMBERS: dict[str, tuple[list[str], list[Any], list[Any]]] = {
    "whole numbers": (["7", "-12", "0"], [7, -12, 0], [7, -12, 0]),
    "numbers": (["1.5", "-0.25"], [1.5, -0.25], [1.5, -0.25]),
    "both": (["1", "2.5"], [1, 2.5], [1.0, 2.5]),
    "whole numbers with a gap": (["1", "", "3"], [1, None, 3], [1.0, None, 3.0]),
    "the largest of 64 bits": (["18446744073709551615", "1"], [2**64 - 1, 1], [2**64 - 1, 1]),
    "nothing at all": (["", ""], [None, None], [None, None]),
    "what says it is nothing": (["nan", "1", "NA"], [None, 1, None], [None, 1.0, None]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_csv_column_of_plain_numbers_is_one_of_numbers(name: str, write: Write) -> None:
    cells, expected, as_lm_eval = NUMBERS[name]
    folder = write({"t.yaml": TASK % "d.csv"})
    for compat, options in ((None, expected), ("lm-eval", as_lm_eval)):
        values = column(folder, a_table(*cells), compat=compat)
        assert values == options
        assert list(map(type, values)) == list(map(type, options))


ODD = [
    *sorted(MISSING), "007", "+5", " 7", "7 ", "1_000", "1.50", "1e3", "1.", ".5", "-0", "0", "inf", "-Infinity", "x", "١",
    "0x1", "--1", "1e", "1e400", "\t7", "2.5", "-2", "1d5", " true", "\u00a07", "9223372036854775807", "1-2", "e5", ".", "+", "- 5",
]  # fmt: skip
CELLS = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["true", "false", "True", "FALSE"]),
)


@pytest.mark.slow
@given(st.lists(CELLS, min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_under_compat_every_csv_column_is_read_as_pandas_reads_it(cells: list[str]) -> None:
    read = pd.read_csv(io.StringIO(a_table(*cells)))["c"]
    expected = [None if pd.isna(value) else value for value in read.tolist()]
    assert csv_values_as_pandas(cells) == expected
    assert list(map(type, csv_values_as_pandas(cells))) == list(map(type, expected))


@pytest.mark.slow
@given(st.lists(st.one_of(CELLS, st.text(max_size=5)), min_size=1, max_size=5))
def test_every_number_of_a_csv_column_prints_as_what_is_written(cells: list[str]) -> None:
    for cell, value in zip(cells, csv_values(cells), strict=True):
        if value is None:
            assert cell in MISSING
        else:
            assert str(value) == cell


def test_a_csv_column_that_is_text_in_one_file_of_a_split_is_text_in_all(write: Write) -> None:
    folder = write({"t.yaml": TASK % "[a.csv, b.csv]", "a.csv": a_table("7", "8"), "b.csv": a_table("007")})
    assert column(folder, "") == ["7", "8", "007"]


def test_words_for_nothing_in_one_file_are_null_where_another_file_has_numbers_and_text_where_it_has_text(
    write: Write,
) -> None:
    folder = write({"t.yaml": TASK % "[a.csv, b.csv]", "a.csv": a_table("NA", ""), "b.csv": a_table("7", "nan")})
    assert column(folder, "") == [None, None, 7, None]
    (folder / "b.csv").write_text(a_table("ZA", "nan"))
    assert column(folder, "") == ["NA", None, "ZA", "nan"]


def test_an_empty_cell_of_a_text_column_is_null(write: Write) -> None:
    assert column(write({"t.yaml": TASK % "d.csv"}), a_table("NA", "", "true")) == ["NA", None, "true"]


CHOICES = TASK % "d.csv" + "output_type: multiple_choice\ndoc_to_choice: %s\n"


@pytest.mark.parametrize(
    ("choices", "cells"),
    [('["true", "false"]', ["true", "true"]), ('["None", "All"]', ["None", "None"]), ("[NA, ZA]", ["NA", "NA"])],
)
def test_a_right_choice_in_a_table_is_the_text_that_is_written(choices: str, cells: list[str], write: Write) -> None:
    task = (CHOICES % choices).replace("target: k", "target: c")
    folder = write({"t.yaml": task, "d.csv": a_table(*cells)})
    first = choices.strip("[]").split(",")[0].strip('"')
    model = Scripted(loglikelihood=lambda context, continuation: (-1.0 if first in continuation else -9.0, False))
    results = assay.simple_evaluate(model, tasks=["t"], include_path=str(folder), include_defaults=False)
    assert results["results"]["t"]["acc,none"] == 1.0


def test_a_table_with_two_columns_of_one_name_is_refused_and_is_as_pandas_has_it_under_compat(write: Write) -> None:
    folder = write({"t.yaml": TASK % "d.csv"})
    with pytest.raises(assay.ConfigError, match=r"d\.csv: two columns are named 'c' — give each column a unique name"):
        column(folder, "c,k,c\n1,k,2\n")
    assert column(folder, "c,k,c\n1,k,2\n", compat="lm-eval") == [1]


@pytest.mark.parametrize("header", ["a,a", "a,a,a.1", "a,a.1,a,a", "a,,a,", "b,a,b"])
def test_under_compat_columns_are_called_as_pandas_calls_them(header: str) -> None:
    assert column_names_as_pandas(header.split(",")) == list(pd.read_csv(io.StringIO(header + "\n")).columns)


def test_a_zip_code_in_a_table_is_asked_and_scored_as_written(write: Write) -> None:
    task = (TASK % "d.csv").replace("doc_to_text: k", "doc_to_text: '{{c}}'").replace("target: k", "target: c")
    folder = write({"t.yaml": task, "d.csv": a_table("02134", "10001")})
    asked = []

    def answer(prompt: str, params: Any, repeat: int) -> str:
        asked.append(prompt)
        return {"02134": "02134", "10001": "10001"}.get(prompt, "wrong")

    options = {"tasks": ["t"], "include_path": str(folder), "include_defaults": False}
    results = assay.simple_evaluate(Scripted(generate=answer), **options)
    assert (asked, results["results"]["t"]["exact_match,none"]) == (["02134", "10001"], 1.0)


GRAPH = """
data_config: {source: {type: disk, file_path: codes.csv}}
graph_config:
  nodes:
    draw: {node_type: weighted_sampler, attributes: {tone: {values: {column: word, source: {type: disk, file_path: tones.csv}}}}}
  edges: [{from: START, to: draw}, {from: draw, to: END}]
"""


def test_records_and_sampled_values_of_a_graph_keep_their_texts_and_are_sygras_under_compat(tmp_path: Path) -> None:
    folder = write_graph(tmp_path, [], GRAPH)
    (folder / "codes.csv").write_text("code,n,land,flag\n007,1,NA,true\n012,2,ZA,true\n")
    (folder / "tones.csv").write_text("word\n01\n02\n")

    def records(at: str, **options: Any) -> list[tuple[Any, ...]]:
        assay.simple_evaluate(None, tasks=[str(folder)], output_path=str(tmp_path / at), **options)
        [file] = (tmp_path / at).glob("output_*.json")
        return [(row["code"], row["n"], row["tone"], row["land"], row["flag"]) for row in json.loads(file.read_text())]

    assert records("own") == [("007", 1, "01", "NA", "true"), ("012", 2, "02", "ZA", "true")]
    assert records("like", compat="sygra") == [(7, 1, 1, None, True), (12, 2, 2, "ZA", True)]


JOINED = """
data_config:
  source:
    - {type: disk, file_path: people.csv, alias: p, join_type: primary}
    - {type: disk, file_path: places.csv, alias: q, join_type: column, primary_key: zip, join_key: zip}
graph_config:
  nodes:
    draw: {node_type: weighted_sampler, attributes: {tone: {values: [a]}}}
  edges: [{from: START, to: draw}, {from: draw, to: END}]
"""


def test_two_codes_that_are_one_number_are_not_joined(tmp_path: Path) -> None:
    folder = write_graph(tmp_path, [], JOINED)
    (folder / "people.csv").write_text("name,zip\nAda,0123\nBob,123\n")
    (folder / "places.csv").write_text("zip,place\n0123,Here\n123,There\n")
    assay.simple_evaluate(None, tasks=[str(folder)], output_path=str(tmp_path / "out"))
    [file] = (tmp_path / "out").glob("output_*.json")
    result = [(row["p->name"], row["q->place"]) for row in json.loads(file.read_text())]
    assert result == [("Ada", "Here"), ("Bob", "There")]
