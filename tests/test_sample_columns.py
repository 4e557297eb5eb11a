"""Format 2 of samples: typed columns that other tools read, the same values back, and damage that is noticed."""

import json
import math
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import run_world
from assay import score
from assay.errors import AssayError
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.records import (
    FilterScores,
    Generate,
    Likelihood,
    Loglikelihood,
    Rolling,
    Sample,
    Text,
    Usage,
    plain_to_messages,
)
from assay.runs.samples.arrays import float_array, int32_array, int_array, text_array, truth_array
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import CHECKSUM_KEY, NO_CHECKSUM, SampleWriter, write_checksum, written_checksum
from assay.score_keys import ScoreKey
from assay.tasks.run import response_metadata
from run_world import ACC, COLOURS, EXACT_MATCH, RecordingModel

INF, NAN = math.inf, math.nan
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
TALK = [
    {"role": "user", "content": "add 1"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
]


def written(folder: Path, *items: SampleRecord) -> Path:
    writer = SampleWriter(folder, "t")
    for kept in items:
        writer.add(kept)
    writer.end()
    writer.place()
    return writer.path


def sample(number: int, *requests: Any, **more: Any) -> Sample:
    return Sample(number, {"q": number}, requests, "x", "x", **more)


def scored(values: dict[str, Any], answers: list[Any], **more: Any) -> list[FilterScores]:
    return [FilterScores("none", answers, values, **more)]


def column(path: Path, name: str) -> list[Any]:
    """A column as pyarrow reads it, without assay."""
    collected: list[Any] = pq.read_table(path).column(name).to_pylist()
    return collected


# ---- what other tools find in the files


def test_choices_are_typed_columns(tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    path = output / "samples/colours.parquet"
    kinds = {field.name: str(field.type) for field in pq.read_schema(path)}
    assert kinds["acc,none"] == "double"
    assert kinds["choices"] == "list<element: string>"
    assert kinds["responses"] == "list<element: list<element: struct<value: double, greedy: bool>>>"
    assert kinds["requests"] == "list<element: struct<kind: string, continuation: string>>"
    assert column(path, "kind") == ["loglikelihood"] * 4
    likelihoods = [[repeats[0]["value"] for repeats in responses] for responses in column(path, "responses")]
    assert likelihoods == [list(both) for _, *both in COLOURS.values()]
    asked = [[each["continuation"] for each in requests] for requests in column(path, "requests")]
    assert asked == [[" green", " red"]] * 4


def test_duckdb_reads_scores_and_texts_without_a_word_of_json(tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    [[mean]] = duckdb.sql(f"""select avg("acc,none") from '{output}/samples/colours.parquet'""").fetchall()
    assert mean == ACC
    query = f"select kind, responses[1][1].text from '{output}/samples/sums.parquet' order by doc_id limit 1"
    [[kind, text]] = duckdb.sql(query).fetchall()
    assert (kind, text) == ("generate", next(iter(run_world.SUMS.values()))[1])


def test_infinities_and_nan_are_stored_as_numbers(tmp_path: Path) -> None:
    requests = [Loglikelihood("c", each) for each in ("a", "b", "c")]
    said = [(-INF, False), (NAN, True), (-1.5, True)]
    kept = SampleRecord(sample(0, *requests), [[each] for each in said], scored({"acc": NAN, "gain": -INF}, said))
    path = written(tmp_path, kept)
    values = [repeats[0]["value"] for repeats in column(path, "responses")[0]]
    assert values[0] == -INF
    assert math.isnan(values[1])
    assert values[2] == -1.5
    assert math.isnan(column(path, "acc,none")[0])
    assert column(path, "gain,none") == [-INF]
    [stored] = SampleFile(path).samples()
    assert stored.responses[0] == Likelihood(-INF)
    assert math.isnan(stored.responses[1].value)  # type: ignore[union-attr]


def test_a_conversation_is_messages_with_the_calls_of_tools(tmp_path: Path) -> None:
    request = Generate(plain_to_messages(TALK), {"temperature": 0})
    response = Text("done", "stop", "hm", Usage(3, 4, 0.5, 2, 1, 1), [CALL])
    kept = SampleRecord(
        sample(0, request), [["done"]], scored({"m": 1.0}, ["done"]), replies=response_metadata([response], 1)
    )
    path = written(tmp_path, kept)
    [[asked]] = column(path, "requests")
    assert [each["role"] for each in asked["messages"]] == ["user", "assistant", "tool"]
    assert asked["messages"][1]["tool_calls"] == [{"id": "c1", "name": "add", "arguments": '{"a":1}'}]
    assert (asked["kind"], json.loads(asked["params"])) == ("generate", {"temperature": 0})
    assert column(path, "prompt") == [""]
    [[[values]]] = column(path, "responses")
    assert (values["text"], values["finish"], values["reasoning"], values["usage"]["read"]) == ("done", "stop", "hm", 3)
    [stored] = SampleFile(path).samples()
    assert stored.sample.requests == [request]
    assert stored.responses == [response]


@pytest.mark.parametrize(
    "prompt", ["[{broken", '[{"role": "user"}]', '[{"content":"a","role":"user"}]', "[{}]", "plain"]
)
def test_text_that_only_looks_like_a_conversation_stays_text(prompt: str, tmp_path: Path) -> None:
    kept = SampleRecord(sample(0, Generate(prompt, {})), [["a"]], scored({"m": 1.0}, ["a"]))
    path = written(tmp_path, kept)
    assert column(path, "prompt") == [prompt]
    assert "messages" not in column(path, "requests")[0][0]


def test_failures_are_stored_by_row(tmp_path: Path) -> None:
    scores = scored({"a": 1.0}, ["x"], failed={"b": "no number"})
    path = written(tmp_path, SampleRecord(sample(0, Generate("p", {})), [["x"]], scores, failed="no number"))
    assert column(path, "failures") == [[{"metric": "b", "filter": "none", "reason": "no number"}]]
    [row] = SampleFile(path).rows()
    assert row.failures == {ScoreKey("b", "none"): "no number"}
    [kept] = SampleFile(path).records()
    assert kept.scores[0].failed == {"b": "no number"}


def test_scores_of_any_kind_come_back_in_their_order(tmp_path: Path) -> None:
    values = {"pair": [-1.5, 7], "f1": 0.25, "flag": True, "large": 2**60}
    kept = SampleRecord(
        sample(0, Generate("p", {})), [["x", "y"]], scored(values, ["x"], repeats={"f1": [0.5, 0.0]}), 2
    )
    [row] = SampleFile(written(tmp_path, kept)).rows()
    assert [*row.scores] == [ScoreKey(name, "none") for name in ("pair", "f1", "flag", "large")]
    assert [*row.scores.values()] == [[-1.5, 7], 0.25, True, 2**60]
    assert row.repeats == {ScoreKey("f1", "none"): [0.5, 0.0]}


def test_whole_scores_are_in_a_column_of_numbers_as_far_as_they_are_exact_there(tmp_path: Path) -> None:
    values = {"low": -(2**53), "high": 2**53, "lower": -(2**53) - 1, "higher": 2**53 + 1}
    path = written(tmp_path, SampleRecord(sample(0, Generate("p", {})), [["x"]], scored(values, ["x"])))
    assert {"low,none", "high,none"} == {name for name in pq.read_schema(path).names if name.endswith(",none")}
    assert [*column(path, "low,none"), *column(path, "high,none")] == [-(2.0**53), 2.0**53]
    [row] = SampleFile(path).rows()
    assert {key.metric: value for key, value in row.scores.items()} == values


def test_answers_of_any_kind_come_back(tmp_path: Path) -> None:
    answers = ["text", (-0.5, True), -2.5, 3, None, True, ["a", 1], {"k": [None]}, (-INF, False)]
    kept = SampleRecord(sample(0, Rolling("p")), [[-1.0]], scored({"m": 1.0}, answers))
    [row] = SampleFile(written(tmp_path, kept)).rows()
    assert row.answers == {"none": answers}
    assert [type(each) for each in row.answers["none"]] == [*map(type, answers)]


def test_what_a_graph_did_is_beside_its_last_response(tmp_path: Path) -> None:
    ends = {"trace": [["a", [0]], ["b", [1]]], "noticed": {"cut off": 1}, "state": {"q": 1}}
    replies = [{"finish": "stop"}, {"finish": "length", **ends}]
    requests = [Generate("p", {}), Generate("q", {})]
    kept = SampleRecord(sample(0, *requests), [["x"], ["y"]], scored({"m": 1.0}, ["x"]), replies=replies)
    [row] = SampleFile(written(tmp_path, kept)).rows()
    assert row.replies == replies
    assert (row.kind, row.responses) == ("graph", [["x"], ["y"]])


def test_a_later_group_may_have_more_than_the_first(tmp_path: Path) -> None:
    first = [
        SampleRecord(sample(n, Loglikelihood("c", "a")), [[(-1.0, True)]], scored({"acc": 1.0}, [(-1.0, True)]))
        for n in range(2000)
    ]
    response = Text("b", "length", usage=Usage(1, 2))
    last = SampleRecord(
        sample(2000, Generate("p", {})), [["b"]], scored({"f1": 0.5}, ["b"]), replies=response_metadata([response], 1)
    )
    path = written(tmp_path, *first, last)
    rows = [*SampleFile(path).rows()]
    assert pq.ParquetFile(path).num_row_groups == 2
    assert (rows[0].scores, rows[0].responses, rows[0].replies) == (
        {ScoreKey("acc", "none"): 1.0},
        [[(-1.0, True)]],
        None,
    )
    assert (rows[2000].scores, rows[2000].responses) == ({ScoreKey("f1", "none"): 0.5}, [["b"]])
    assert rows[2000].replies == [{"finish": "length", "usage": (1, 2, 0.0, 1, 0, 0)}]
    assert [*tmp_path.iterdir()] == [path]


def test_the_same_samples_make_the_same_bytes(tmp_path: Path) -> None:
    kept = [SampleRecord(sample(n, Generate("p", {})), [[f"a{n}"]], scored({"m": n / 7}, [f"a{n}"])) for n in range(50)]
    assert written(tmp_path / "a", *kept).read_bytes() == written(tmp_path / "b", *kept).read_bytes()


# ---- damage


def changed(path: Path, place: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("task", ["colours", "sums"])
def test_a_flipped_bit_anywhere_is_noticed_with_words(task: str, tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    path = output / f"samples/{task}.parquet"
    whole, random_ = path.read_bytes(), random.Random(task)
    footer = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8
    places = [random_.randrange(len(whole)) for _ in range(300)] + [
        random_.randrange(footer, len(whole)) for _ in range(100)
    ]
    for place in [*places, *range(len(whole) - 8, len(whole)), 0, 3]:
        path.write_bytes(whole)
        changed(path, place, random_.randrange(8))
        with pytest.raises(AssayError, match="the samples cannot be read"):
            SampleFile(path).check()
    path.write_bytes(whole)
    SampleFile(path).check()


def test_a_text_that_looks_like_a_checksum_is_none(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"doc": ["crc32:12345678"]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    assert b"crc32:12345678" in path.read_bytes()
    assert written_checksum(path) == (0, "")


def test_a_damaged_file_is_not_scored(tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    path = output / "samples/sums.parquet"
    changed(path, 300, 2)
    with pytest.raises(AssayError, match="does not match its checksum"):
        score(output)
    changed(path, 300, 2)
    assert lm_eval_layout(score(output).results)["results"]["sums"]["exact_match,none"] == EXACT_MATCH


def rewrite(path: Path, table: pa.Table) -> None:
    """Write another table in place of a file of samples, with a checksum that is right."""
    pq.write_table(table.replace_schema_metadata({CHECKSUM_KEY: NO_CHECKSUM}), path)
    write_checksum(path)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("doc", "[1]", "the column doc has invalid values"),
        ("doc", '{"q": 1}, {"q": 2}', "the column doc has invalid values"),
        ("target", "1, 2", "the column target has invalid values"),
        ("target", "x", "the column target is not JSON"),
        ("target", None, "the column target is empty in some rows"),
    ],
)
def test_a_column_whose_texts_are_not_a_json_value_each_is_refused(
    name: str, text: str | None, problem: str, tmp_path: Path
) -> None:
    kept = SampleRecord(sample(0, Generate("p", {})), [["x"]], scored({"m": 1.0}, ["x"]))
    path = written(tmp_path, kept)
    table = pq.read_table(path)
    rewrite(path, table.set_column(table.column_names.index(name), name, [pa.array([text], pa.string())]))
    with pytest.raises(AssayError, match=problem):
        SampleFile(path).check()


def test_a_column_of_another_type_is_refused_with_its_name_and_type(tmp_path: Path) -> None:
    path = written(tmp_path, SampleRecord(sample(0, Generate("p", {})), [["x"]], scored({"m": 1.0}, ["x"])))
    table = pq.read_table(path)
    for name in ("target", "doc_id"):
        kind = pa.float32() if name == "target" else pa.string()
        table = table.set_column(table.column_names.index(name), name, [pa.array([None], kind)])
    rewrite(path, table)
    with pytest.raises(AssayError, match="the column doc_id holds string"):
        SampleFile(path).check()


def test_pages_have_checksums_for_other_readers(tasks: Path, output: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    path = output / "samples/sums.parquet"
    about = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert about.path_in_schema == "doc"
    changed(path, about.data_page_offset + about.total_compressed_size - 1, 0)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(path, page_checksum_verification=True)


@pytest.mark.parametrize(
    ("make", "kind", "values"),
    [
        (text_array, "string", ["a", None, "", "é – 日本", "𝄞"]),
        (text_array, "string", ["plain"] * 9),
        (text_array, "string", [None, None]),
        (int_array, "int64", [0, -(2**63), None, 2**63 - 1]),
        (int32_array, "int32", [0, None, 2**31 - 1]),
        (float_array, "float64", [0.1, None, float("inf"), -0.0, 3]),
        (truth_array, "bool_", [True, False, None, True, True, False, False, True, True]),
    ],
)
def test_arrays_of_buffers_are_those_of_pyarrow(make: Any, kind: str, values: list[Any]) -> None:
    for some in (values, values[:1], values[1:], []):
        made, expected = make(some), pa.array(some, getattr(pa, kind)())
        made.validate(full=True)
        assert made.equals(expected)
        assert made.type == expected.type


def test_half_a_character_is_written_as_its_number() -> None:
    assert text_array(["a\ud800", "é"]).to_pylist() == ["a\\ud800", "é"]


@pytest.mark.parametrize(("make", "value"), [(int_array, 1.5), (int_array, "1"), (float_array, "1.5"), (text_array, 1)])
def test_a_value_of_another_type_is_no_number_or_text(make: Any, value: object) -> None:
    with pytest.raises(TypeError):
        make([value])
