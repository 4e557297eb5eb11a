"""results.json, format 3: the tree of results written down and read back, its schema, and what is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import run_world
from assay import Run, ScoreKey
from assay.cli import main
from assay.records import JSONDict
from assay.results import AuditCount, Estimate, GroupEntry, ReliabilityPoint, Results, Row, Share, TaskEntry
from assay.runs.results_json import Malformed, codec_of, decode, encode, schema
from run_world import RecordingModel

INFINITE = float("inf")
NUMBER = Estimate(
    0.25, 0.125, 4, "few", (0.1, None), method="wilson", df=2.5, scale=(0.0, INFINITE), unused_bounds=(0.0, 1.0), note="odd",
    clusters=3,
)  # fmt: skip
ROW = Row(
    "a", "acc", "strict", NUMBER, failed=2, reasons={"timeout": 1}, is_incomplete=True, higher_is_better=True,
    failure_bounds=(0.2, 0.5), noise={"within": 0.1, "between": 0.2, "repeats": 2}, labels=3, tuning=0.5,
    reliability=[ReliabilityPoint(0.5, Estimate(0.5, interval=(0.1, 0.9), n=2))],
)  # fmt: skip
LOST = Row("a", "f1", "strict", Estimate(None, reason="no positives", named_values={"x": 1.0}), lacks_number=True)
TASK = TaskEntry(
    "a", "A", [ROW, LOST], 6, 4, 2, {"timeout": 2}, is_incomplete=True, not_asked=1, original=9, noticed={"cut off": 1},
    remarks=["short"], audit={"empty": AuditCount(1, [3])}, never_came=["bleu"], unscored=["none"],
    directions={"acc": True, "f1": None}, num_fewshot=5, version=1.0, config={"task": "a", "metadata": {"x": [1, None]}},
)  # fmt: skip
G_ROW = Row("g", "acc", "none", Estimate(0.5), tasks=2, missing=["b"], chosen=["a"], shares=[Share("a", ROW.key, 0.5)])
GROUP = GroupEntry(
    "g", "G", ["a", "b"], [G_ROW], 4, is_incomplete=True, tasks=2, scored_tasks=1, failed=2, not_run=["b"],
    incomplete_tasks=["a"], directions={"acc": True}, metadata={"k": 1}, skipped={"c": "filtered"}, computed_by="Mine",
    num_fewshot=5, version="1",
)  # fmt: skip
RESULTS = Results(
    {"a": TASK}, {"g": GROUP, "tag": GroupEntry("tag", "tag", ["a"])}, "partial", {"b": "no data"}, "max_cost reached",
    {"part": "1/2", "status": "incomplete"}, {"rule": "acc > 1", "decision": "fail", "documents": 1, "of": 2},
    {"requests": 1, "failed": 0, "retries": 0, "tokens": {"in": 1, "out": 2}}, {"count": 1, "restarts": 1, "reasons": ["x"]},
    [{"what": "slower", "reason": "no memory"}], ["inspect"], {"changed": {"a": {"count": 1, "ids": [0]}}, "numbers": []},
    {"model": "m", "model_args": {"x": 1}}, {"date": 5.0, "model_name": "m"},
)  # fmt: skip


def in_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@dataclass(frozen=True)
class Within:
    value: int
    shares: Sequence[str] = ()


@dataclass(frozen=True)
class Record:
    name: str
    number: int = 1
    is_whole: bool = True
    counts: Mapping[str, int] = field(default_factory=dict)
    within: Within = field(default=Within(0), metadata={"within": True})


@pytest.mark.parametrize(
    ("record", "content"),
    [
        (Record("a"), {"name": "a", "value": 0}),
        (
            Record("a", 0, False, {"b": 0}),
            {"name": "a", "number": 0, "is_whole": False, "counts": {"b": 0}, "value": 0},
        ),
        (Record("a", within=Within(7, ["x"])), {"name": "a", "value": 7, "shares": ["x"]}),
    ],
)
def test_a_field_is_written_where_it_is_not_its_default(record: Record, content: JSONDict) -> None:
    codec = codec_of(Record)
    assert codec.encode(record) == content
    assert codec.decode(content, "") == record
    for needed in ("name", "value"):
        with pytest.raises(Malformed, match="is missing"):
            codec.decode({key: value for key, value in content.items() if key != needed}, "")


def test_every_field_is_written_and_read_back() -> None:
    content = in_json(encode(RESULTS))
    jsonschema.validate(content, schema())
    back = decode(content)
    assert in_json(encode(back)) == content
    assert back == replace(RESULTS, tasks=back.tasks, groups=back.groups)
    row = back.tasks["a"].rows[0]
    assert row == replace(ROW, noise=row.noise)
    assert back.groups["g"].rows == [G_ROW] and back.groups["tag"].rows is None
    assert replace(back.tasks["a"], rows=TASK.rows) == TASK


def test_the_file_can_be_read_by_a_person() -> None:
    task = TaskEntry("sums", "sums", [Row("sums", "acc", "none", Estimate(0.5, 0.1, 20, interval=(0.3, 0.7)))], 20, 20)
    assert in_json(encode(Results({"sums": task}))) == {
        "format": 3,
        "status": "complete",
        "tasks": {
            "sums": {
                "alias": "sums",
                "rows": [
                    {"metric": "acc", "filter": "none", "value": 0.5, "stderr": 0.1, "interval": [0.3, 0.7], "n": 20}
                ],
                "documents": 20,
                "scored": 20,
                "failed": 0,
            }
        },
        "groups": {},
    }


def test_what_a_run_writes_is_what_it_returned(tasks: Path, output: Path) -> None:
    returned = run_world.run(RecordingModel(failing={"3*3="}), tasks, output)
    stored = Run.open(output)
    row = stored.results.row("sums", ScoreKey("exact_match", "none"))
    assert row is not None
    assert row.estimate.value == returned["results"]["sums"]["exact_match,none"]
    assert (row.failed, row.estimate.n) == (1, 4)
    content = run_world.stored_results(output)
    assert content["tasks"]["sums"]["rows"][0]["failed"] == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content["tasks"]["a"]["rows"][0].update(n="4"), "tasks.a.rows.0.n must be a whole number"),
        (lambda content: content["tasks"]["a"]["rows"][0].update(value="x"), "tasks.a.rows.0.value must be a number"),
        (lambda content: content["tasks"]["a"]["rows"][0].pop("metric"), "tasks.a.rows.0.metric is missing"),
        (lambda content: content["tasks"]["a"].update(reasons=[1]), "tasks.a.reasons must be a mapping, not a list"),
        (lambda content: content["groups"]["g"].update(members=["g"]), "groups.g is a member of itself"),
        (
            lambda content: content["groups"]["g"]["rows"][0].update(shares=[["a"]]),
            "rows.0.shares.0 must be a list of 3",
        ),
        (lambda content: content["usage"].update(tokens=3), "usage.tokens must be a mapping"),
        (lambda content: content["tasks"]["a"].update(is_incomplete=1), "tasks.a.is_incomplete must be true or false"),
        (lambda content: content.update(tasks=None), "tasks must be a mapping, not null"),
        (lambda content: content["facts"].update(date=1e300), "facts.date must be a time"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(change: Any, says: str) -> None:
    content = in_json(encode(RESULTS))
    change(content)
    with pytest.raises(Malformed) as raised:
        decode(content)
    assert says in str(raised.value)


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "results"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == in_json(schema())
    jsonschema.Draft202012Validator.check_schema(printed)
    row = printed["properties"]["tasks"]["additionalProperties"]["properties"]["rows"]["items"]
    assert {"metric", "filter", "value", "stderr", "interval", "n"} <= set(row["required"])
