"""The viewer as HTTP has it: what pages say, and what cannot be had from it."""

import http.client
import json
import math
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from bench.big_run import samples as big_samples
from bench.big_run import write_run
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams
from tools.get_browser import find_browser

import compared_world
from assay import ScoreOptions, score, simple_evaluate
from assay.models import Scripted
from assay.models.servers.server_model import Price
from assay.number_text import format_trimmed
from assay.records import FilterScores, Generate, Sample
from assay.report.document import build_report
from assay.runs.comparison import Flip
from assay.runs.extensions import ReportOptions
from assay.runs.folder import write_json
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.score_keys import ScoreKey
from assay.viewer.app import make_app, server_config
from assay.viewer.compare_page import round_robin
from assay.viewer.events import StreamServer
from assay.viewer.graph_page import NodeVisits, _count_visits
from assay.viewer.guard import HEADERS, RequestGuard, allowed_hosts, is_loopback
from assay.viewer.query import OPERATORS, Condition, SampleQuery, read_query
from assay.viewer.sample_page import (
    SampleView,
    Step,
    UnitMetricView,
    diff_parts,
    sample_score,
    sample_view,
    unit_results,
)
from assay.viewer.samples import Database, Samples
from assay.viewer.task_charts import score_bins, score_slices
from commands import Run
from graph_world import write_graph
from viewer_world import HOSTILE, SECRET, SUMS, fetched, serving, write_hostile_run, write_runs

STATIC = Path(__file__).parent.parent / "src/assay/viewer/static"
pytestmark = pytest.mark.xdist_group("viewer")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving(runs) as at:
        yield at


@pytest.fixture(scope="module")
def sums(runs: Path) -> Samples:
    return the_samples(runs, "sums", "exact_match,strict")


def the_samples(runs: Path, task: str, metric: str, run: str = "first") -> Samples:
    database, path = Database(runs), runs / run / f"samples/{task}.parquet"
    return Samples(database, database.samples(SampleFile(path)), ScoreKey.parse(metric), True)


def documents(samples: Samples, **options: Any) -> list[int]:
    return [row.doc_id for row in samples.page(SampleQuery(**options)).rows]


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html.replace("<wbr>", ""))).split())


WRONG = [a for a in range(SUMS) if a % 5 == 0]


def test_runs_are_listed_with_headline_interval_and_counts(address: str) -> None:
    status, page, _ = fetched(address)
    assert status == 200
    text = text_of(page)
    assert "first scripted quiz exact_match 0.8000" in text
    assert "second scripted quiz exact_match 0.6000" in text
    assert "more/graphs embedded limit=6 first_steps_graph_tries" in text
    assert re.search(
        r"exact_match 0\.8000 0\.\d+ … 0\.\d+ 60 0 ", text
    )  # of the 60 sums, not of all 80 samples; none failed


def test_runs_are_filtered_by_words_and_sorted_by_columns(address: str) -> None:
    _, page, _ = fetched(address, "/", q="scripted quiz", sort="score")
    assert re.findall(r'href="/run\?run=([^"]+)"', page) == ["second", "first"]
    _, page, _ = fetched(address, "/", q="scripted quiz", sort="score", desc="1")
    assert re.findall(r'href="/run\?run=([^"]+)"', page) == ["first", "second"]
    assert "No runs match" in fetched(address, "/", q="nothing like that")[1]


def test_a_run_shows_its_tree_and_closes_groups_by_its_address(address: str) -> None:
    _, page, _ = fetched(address, "/run", run="first")
    text = text_of(page)
    assert re.search(r"exact_match ↑ flexible 0\.8000 0\.6\d+ … 0\.8\d+ 60 0 0\.0521 2", text)  # √(0.8·0.2/59)
    assert "colours acc ↑ 0.7500" in text
    _, closed, _ = fetched(address, "/run", run="first", closed="quiz")
    assert "colours acc ↑" not in text_of(closed).partition("Metric")[2]
    assert 'aria-expanded="false"' in closed


def test_a_run_has_a_column_for_each_metric_where_asked(address: str) -> None:
    _, page, _ = fetched(address, "/run", run="first", view="columns")
    text = text_of(page)
    assert "Task exact_match strict" in text
    assert "acc_norm" in text
    assert " 80 " not in text.partition("Task")[2]  # no number is shown beside the count of another row


def test_the_worst_come_first_in_the_samples_of_a_task(sums: Samples) -> None:
    assert documents(sums)[: len(WRONG)] == WRONG
    assert documents(sums, show="wrong") == WRONG
    assert documents(sums, show="right") == [a for a in range(SUMS) if a % 5][:50]


def test_samples_are_found_by_text_in_any_case_and_any_field(sums: Samples) -> None:
    assert documents(sums, text="17 + 1 =") == [17]
    assert documents(sums, text=" 18") == [15, 17]  # wrong in 15, right in 17
    assert documents(sums, text="never said") == []
    assert documents(sums, text="%") == documents(sums, text="_") == []  # signs, no wildcards


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("doc.level", "eq", "2"), [a for a in range(SUMS) if a % 3 == 2]),
        (Condition("doc.level", "ne", "2"), [a for a in range(SUMS) if a % 3 != 2]),
        (Condition("doc.a", "gt", "55"), [56, 57, 58, 59]),
        (Condition("doc.a", "lt", "2.5"), [0, 1, 2]),
        (Condition("answer.strict", "eq", "18"), [15, 17]),
        (Condition("score.exact_match,strict", "lt", "1"), WRONG),
        (Condition("target", "has", "60"), [59]),
        (Condition("doc.nothing", "empty", ""), list(range(SUMS))),
        (Condition("doc_id", "eq", "7"), [7]),
        (Condition("doc.a", "gt", "no number"), []),
        (Condition("nothing", "eq", "1"), []),
        (Condition("score.no,such", "gt", "0"), []),
    ],
    ids=str,
)
def test_samples_are_filtered_by_columns(sums: Samples, condition: Condition, expected: list[int]) -> None:
    result = sums.page(SampleQuery(conditions=(condition,), sort="doc_id"))
    assert (result.total, [row.doc_id for row in result.rows]) == (len(expected), expected[:50])


def test_pages_follow_each_other_and_end(sums: Samples) -> None:
    second = sums.page(SampleQuery(page=2, sort="doc_id"))
    assert ([row.doc_id for row in second.rows], second.pages) == (list(range(50, 60)), 2)
    assert sums.page(SampleQuery(page=10**9)).page == 2


def test_many_row_groups_are_searched_as_a_loop_over_all_samples_would(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "big", 7000)
    every = list(big_samples(7000))
    database, path = Database(tmp_path), folder / "samples/big_sums.parquet"
    samples = Samples(database, database.samples(SampleFile(path)), ScoreKey("exact_match", "strict"), True)
    columns = {"level": "3", "subject": "law"}
    conditions = tuple(Condition(f"doc.{name}", "eq", value) for name, value in columns.items())
    expected = [
        k.sample.doc_id for k in every if all(str(k.sample.doc[name]) == value for name, value in columns.items())
    ]
    result = samples.page(SampleQuery(conditions=conditions, sort="doc_id"))
    assert (result.total, [row.doc_id for row in result.rows]) == (len(expected), expected[:50])
    wrong = [k.sample.doc_id for k in every if not k.failed and not k.scores[0].values["exact_match"]]
    page = samples.page(SampleQuery(show="wrong", page=20))
    assert (page.total, [row.doc_id for row in page.rows]) == (len(wrong), wrong[950:1000])
    failed = [k.sample.doc_id for k in every if k.failed]
    assert documents(samples, show="failed") == failed
    text = [k.sample.doc_id for k in every if "77 because" in str(k.responses)]
    assert samples.count(SampleQuery(text="77 BECAUSE")) == len(text) > 0


def test_every_place_of_a_list_knows_its_neighbours(sums: Samples) -> None:
    query = SampleQuery(show="wrong")
    assert sums.around(query, 0) == [-1, 0, 5]
    assert sums.around(query, 3) == [10, 15, 20]
    assert sums.around(query, len(WRONG) - 1) == [50, 55, -1]
    assert sums.around(SampleQuery(text="17 + 1 ="), 0) == [-1, 17, -1]


@pytest.mark.slow
@given(st.text(max_size=20), st.sampled_from(sorted(OPERATORS)), st.text(max_size=20))
def test_no_text_in_a_filter_breaks_a_query(text: str, operator: str, value: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    value = value.encode("utf-8", "replace").decode()
    samples = the_samples_once()
    samples.page(
        SampleQuery(text=text, sort=text, audit=value, conditions=(Condition(f"doc.{text}", operator, value),))
    )
    samples.page(SampleQuery(conditions=(Condition(text, operator, value),)))


KNOWN: list[Samples] = []


def the_samples_once() -> Samples:
    return KNOWN[0]


@pytest.fixture(scope="module", autouse=True)
def known(sums: Samples) -> None:
    KNOWN[:] = [sums]


@given(
    st.text(max_size=30),
    st.sampled_from(["all", "wrong"]),
    st.integers(1, 10**6),
    st.text("abc .,=", min_size=1, max_size=9),
    st.text(max_size=9),
)
def test_a_url_contains_the_whole_query(text: str, show: str, page: int, column: str, value: str) -> None:
    query = SampleQuery(
        text, show, "empty", (Condition(column, "has", value),), "doc_id", True, page, "level", ScoreKey("acc", "none")
    )
    assert read_query(QueryParams(query.parameters)) == query


def test_invalid_parameters_of_a_url_are_ignored() -> None:
    assert read_query(QueryParams("show=x&page=-3&f=a&f=a~b~c&desc=yes&page=" + "9" * 40)) == SampleQuery()


def test_scores_are_counted_and_parted_by_a_column(sums: Samples) -> None:
    assert [(each.low, each.size) for each in score_bins(sums)] == [(0.0, 12), (1.0, 48)]
    parts = score_slices(sums, "level")
    assert [(part.name, part.number.value, part.number.n) for part in parts] == [
        ("0", 0.8, 20),
        ("1", 0.8, 20),
        ("2", 0.8, 20),
    ]
    assert [part.number.n for part in score_slices(sums, "a")] == [12] * 5  # too many values: fifths
    assert score_slices(sums, "no such column") == []


def test_a_part_of_the_samples_has_one_interval_in_the_viewer_and_in_a_report(tmp_path: Path) -> None:
    """Of shares Wilson's, of others Student's: 2, 4 and 6 have the mean 4 and the error 2/√3, and 4.303 of those on either side."""
    scores = {"rate": [1.0, 0.0, 0.0, 1.0, 1.0], "other": [2.0, 4.0, 6.0, 0.5, 0.5]}
    kinds = [{"kind": "many"}] * 3 + [{"kind": "few"}] + [{"kind": "single"}]
    tasks = compared_world.write_tasks(tmp_path / "tasks", dict.fromkeys(scores, kinds))
    compared_world.make_run(tasks, tmp_path / "run", scores)
    slices = {each.task: {part.name: part.number for part in each.parts} for each in
                build_report([tmp_path / "run"], ReportOptions(columns=["kind"])).runs[0].slices}  # fmt: skip
    for task in scores:
        shown = {part.name: part.number for part in score_slices(the_samples(tmp_path, task, "x,none", "run"), "kind")}
        assert shown.keys() == {"many", "few", "single"}
        for name, part in shown.items():
            assert part.value == pytest.approx(slices[task][name].value)
            assert (part.low, part.high) == pytest.approx((slices[task][name].low, slices[task][name].high))
    assert (shown["many"].low, shown["many"].high) == pytest.approx(
        (4 - 4.303 * 2 / 3**0.5, 4 + 4.303 * 2 / 3**0.5), abs=2e-3
    )
    assert (shown["few"].low, shown["few"].high) == (None, None)  # one document has no spread


def test_a_task_shows_numbers_distribution_slices_and_samples(address: str) -> None:
    _, page, _ = fetched(address, "/task", run="first", task="sums", slice="level", show="wrong")
    text = text_of(page)
    assert "Samples 12" in text
    assert "doc.level" in text
    assert page.count('class="plot"') == 5  # two bars of numbers; scores, length of the answers, slices
    assert "Reliability" in fetched(address, "/task", run="first", task="colours")[1]


def test_a_sample_shows_prompt_answer_filters_target_and_why_it_is_wrong(address: str) -> None:
    _, page, _ = fetched(address, "/sample", run="first", task="sums", doc="5", at="1", show="wrong")
    text = text_of(page)
    assert "Wrong: the answer is '8', expected '6'." in text
    assert "2 parts before the question" in text
    assert "100 + 1 = 101" in text
    assert "After the filter strict regex(regex_pattern=^ ?([0-9]+)$) → take_first" in text
    assert "The same document in second" in text
    assert "doc=0&amp;at=0" in page
    assert "doc=10&amp;at=2" in page


def test_a_sentence_explains_wrong_and_partly_wrong_answers(sums: Samples) -> None:
    row = sums.document(5)
    assert row is not None

    def why(scores: dict[str, float]) -> str:
        return sample_view(
            row._replace(scores={ScoreKey.parse(name): value for name, value in scores.items()}),
            {},
            {"exact_match": True},
        ).why

    assert why({"exact_match,strict": 0.0}).startswith("Wrong: the answer is '8'")
    assert why({"exact_match,strict": 1.0}).startswith("Right: ")
    assert why({"exact_match,strict": 0.0, "exact_match,flexible": 1.0}).startswith(
        "Partly right (exact_match (strict) 0, exact_match (flexible) 1): "
    )
    assert why({"perplexity,none": 3.0}) == ""


def test_the_list_of_samples_names_their_audit_kinds_and_every_score_with_four_decimals(address: str) -> None:
    hostile = {"run": "<img src=x onerror=alert(0)>", "task": HOSTILE[0]}
    _, page, _ = fetched(address, "/task", **hostile)
    assert page.count('<td class="faint">empty</td>') == len(HOSTILE)
    assert [format_trimmed(each) for each in (0.0, 1.0, 2 / 3, -0.5, 1e-7)] == ["0", "1", "0.6667", "-0.5", "1e-07"]


def test_examples_are_folded_also_where_every_document_has_its_own(sums: Samples) -> None:
    row = sums.document(5)
    assert row is not None
    alone = row._replace(prefix="", prompt="1 + 1 = 2\n\n2 + 1 = 3\n\n5 + 1 =")
    view = sample_view(alone, {"num_fewshot": 2}, {})
    assert (view.shots, view.prompt) == (["1 + 1 = 2\n\n", "2 + 1 = 3\n\n"], "5 + 1 =")
    in_doubt = sample_view(alone, {"num_fewshot": 1}, {})
    assert (in_doubt.shots, in_doubt.prompt) == ([], alone.prompt)


def test_a_wrong_answer_is_marked_against_the_target(sums: Samples) -> None:
    row = sums.document(15)
    assert row is not None
    marked = sample_view(
        row._replace(answers={"strict": ["a x c"]}, target='"a b c"'), {}, {"exact_match": True}
    ).marked
    assert marked is not None
    assert [piece.text for piece in marked[1] if not piece.is_shared] == ["b"]
    assert sample_view(row, {}, {"exact_match": True}).marked is None  # 18 and 16 share nothing


def test_a_choice_has_its_log_likelihoods_and_what_metrics_make_of_them(address: str) -> None:
    _, page, _ = fetched(address, "/sample", run="first", task="colours", doc="0")
    text = text_of(page)
    assert "Wrong: 'red' is the likeliest choice, expected 'green'." in text
    assert "right green -2.0000 -0.4000 -0.4000 0.2689" in text  # by 5 characters, 5 bytes; e⁻² / (e⁻¹ + e⁻²)
    assert "chosen red -1.0000 -0.3333 -0.3333 0.7311" in text
    assert "Right: 'green'." in text_of(fetched(address, "/sample", run="first", task="colours", doc="2")[1])


def test_a_graph_is_drawn_with_what_happened_at_each_node(address: str, runs: Path) -> None:
    _, page, _ = fetched(address, "/graph", run="more/graphs", task="first_steps_graph_tries")
    text = text_of(page)
    assert "begin lambda 6 6 0" in text
    assert "verdict lambda 6 6 0" in text
    _, sample, _ = fetched(address, "/sample", run="more/graphs", task="first_steps_graph_tries", doc="0")
    assert "Path through the graph" in sample
    assert fetched(address, "/graph", run="first", task="sums")[0] == 404


def test_nodes_are_counted_by_the_ways_of_all_records(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, "t")
    ways = [
        ([["a", [0]], ["b", [1, 2]]], "", 0.5),
        ([["a", [0]], ["b", [1]], ["a", [2]], ["b", []]], "", 0.25),
        ([["a", [0]]], "the node 'a' raised", 0.0),
    ]
    for number, (trace, failed, seconds) in enumerate(ways):
        usage = {"usage": [1, 1, seconds, 1, 0, 0]}
        rows = [usage, usage, usage, {"trace": trace}]
        writer.add(SampleRecord(Sample(number, {}, (), None, None), [["x"]] * 3, (), failed=failed, replies=rows))
    writer.end()
    writer.place()
    database = Database(tmp_path)
    known, visited = _count_visits(
        Samples(database, database.samples(SampleFile(tmp_path / "t.parquet")), None, True),
        {"a": Price(1e6, 2e6, 0.0), "b": None},
    )
    assert known == 3
    assert visited == {
        "a": NodeVisits(
            "a", "", visits=4, records=3, requests=4, failed=1, seconds=1.0, read=4, written=4, cost=12.0
        ),  # 0.5 + 2 × 0.25
        "b": NodeVisits(
            "b", "", visits=3, records=2, requests=3, failed=0, seconds=1.25, read=3, written=3, cost=None
        ),  # 2 × 0.5 + 0.25
    }


def test_values_that_json_has_no_word_for_are_shown_filtered_and_parted(tmp_path: Path) -> None:
    folder = tmp_path / "runs/odd"
    odd = [{"x": float("nan"), "big": 2**70}, {"x": "\ud800", "big": 1}, {"x": [1, {"y": None}], "big": True}]
    writer = SampleWriter(folder / "samples", "t")
    for number, doc in enumerate(odd):
        sample = Sample(number, doc, [Generate("q", {})], 2**70, 2**70)
        writer.add(SampleRecord(sample, [["a"]], [FilterScores("none", ["a"], {"m": float(number)})]))
    writer.end()
    writer.place()
    empty = SampleWriter(folder / "samples", "none")
    empty.end()
    empty.place()
    write_json(folder / "manifest.json", {"status": "complete", "tasks": {"t": {"size": 3}, "none": {"size": 0}}})
    with serving(tmp_path / "runs") as at:
        for query in ({}, {"slice": "x"}, {"slice": "big"}, {"f": "doc.x~has~y"}, {"f": "doc.big~gt~0"}, {"q": "a"}):
            assert fetched(at, "/task", run="odd", task="t", **query)[0] == 200, query
        assert str(2**70) in fetched(at, "/sample", run="odd", task="t", doc="0")[1]
        assert "\\ud800" in fetched(at, "/sample", run="odd", task="t", doc="1")[1]
        assert "No samples match" in fetched(at, "/task", run="odd", task="none")[1]


@pytest.mark.parametrize(
    ("metric", "value", "number"),
    [
        ("acc", 1.0, 1.0),
        ("word_perplexity", [-math.log(8), 3], 2.0),
        ("byte_perplexity", [-math.log(9), 2], 3.0),
        ("bits_per_byte", [-math.log(8), 6], 0.5),
        ("brier_score", [1, [0.5, 0.25, 0.25]], 0.25 + 0.5625 + 0.0625),
        ("f1", [1, 0], None),
        ("byte_perplexity", [-1.0, 0], None),
        ("brier_score", "text", None),
        ("byte_perplexity", [-1000.0, 1], None),  # beyond all numbers
        ("acc", 10**400, None),
        ("acc", math.nan, None),
    ],
)
def test_a_sample_has_its_own_score(metric: str, value: Any, number: float | None) -> None:
    assert sample_score(metric, value) == (None if number is None else pytest.approx(number))


def test_a_text_that_is_only_read_has_its_numbers_and_nothing_that_makes_no_sense(tmp_path: Path) -> None:
    options = {"limit": 25, "output_path": str(tmp_path / "runs/read")}
    simple_evaluate("embedded", tasks=["first_steps_stories", "first_steps_facts"], **options)
    with serving(tmp_path / "runs") as at:
        _, page, _ = fetched(at, "/task", run="read", task="first_steps_stories")
        text = text_of(page)
        assert "doc question word_perplexity byte_perplexity bits_per_byte audit" in text
        assert "show=wrong" not in page
        sample = text_of(fetched(at, "/sample", run="read", task="first_steps_stories", doc="0")[1])
        assert re.search(
            r"word_perplexity \d\.\d{3,4} byte_perplexity \d\.\d{3,4} bits_per_byte 0\.\d{3,4} Document",
            sample,
        )
        assert " Target " not in sample
        worst = text_of(fetched(at, "/run", run="read", view="worst")[1])
        assert "of which higher is better: stories" in worst
        facts = fetched(at, "/task", run="read", task="first_steps_facts", slice="question")[1]
        assert "5 more values are not drawn" in facts
        assert "brier_" in facts
        filtered = text_of(fetched(at, "/task", run="read", task="first_steps_facts", f="score.acc,none~lt~abc")[1])
        assert "abc is not a number" in filtered


def test_a_wrong_outcome_of_a_graph_is_shown_with_the_right_one() -> None:
    unit_result = {"correct": False, "golden": {"text": "the old kitchen"}, "predicted": {"text": "the kitchen"}}
    result = unit_results({"none": [{"answer": "x", "exact_match_result": unit_result, "other": 3}, "no outcome"]})
    assert result == [UnitMetricView("exact_match", False, "the old kitchen", "the kitchen")]
    step = Step("verdict", (), None)
    scores = [("exact_match", "none", "0.0", True)]
    view = SampleView(
        0, {}, (), "", "", (), (), scores, trace=[step], units=[*result, result[0]._replace(metric="fuzzy")]
    )
    assert view.why == "Wrong: exact_match found 'the kitchen', expected 'the old kitchen'."
    [(metric, is_there, should)] = view.differences
    assert metric == "exact_match"
    assert "".join(piece.text for piece in is_there) == "the kitchen"
    assert [piece.text.strip() for piece in should if not piece.is_shared] == ["old"]


def test_the_command_of_a_run_can_be_copied_as_a_line(tmp_path: Path) -> None:
    (tmp_path / "runs/a").mkdir(parents=True)
    write_json(
        tmp_path / "runs/a/manifest.json", {"status": "stopped", "command": ["assay", "run", "--gen_kwargs", "a b"]}
    )
    with serving(tmp_path / "runs") as at:
        assert "assay run --gen_kwargs 'a b'" in text_of(fetched(at, "/run", run="a")[1])


def test_two_runs_are_compared_as_in_the_terminal(address: str) -> None:
    _, page, _ = fetched(address, "/compare?run=first&run=second")
    text = text_of(page)
    assert "First difference between the runs: model" in text
    assert "0.8000 0.6000 -0.2000" in text
    assert " 0 / 12 / 48 60 " in text  # better, worse, same, n
    assert "p by McNemar" in text
    assert "<del>" in page
    assert "<ins>" in page


LONG_ANSWERS, CHANGED = 6, 40
"""Tasks, and documents of each: the first run has all of them right and the second none, in 300 words."""


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A viewer over two runs whose answers are long."""
    folder = tmp_path_factory.mktemp("talkative")
    tasks = compared_world.write_tasks(folder / "tasks", {f"q{n}": [{}] * CHANGED for n in range(LONG_ANSWERS)})
    (tasks / "helper.py").write_text("def values(doc, results):\n    return {'x': float(results[0].split()[0])}\n")
    for run, value in (("a", "1"), ("b", "0")):

        def answer(prompt: str, params: dict[str, object], repeat: int, run: str = run, value: str = value) -> str:
            return f"{value} " + " ".join(f"word{n}" for n in range(299)) + f" {run}"

        options = {
            "tasks": [f"q{n}" for n in range(LONG_ANSWERS)],
            "include_path": str(tasks),
            "include_defaults": False,
        }
        simple_evaluate(Scripted(generate=answer, identity=run), output_path=str(folder / "runs" / run), **options)
    with serving(folder / "runs") as at:
        yield at


def test_a_comparison_shows_some_flips_of_every_task_and_the_beginnings_of_their_answers(talkative: str) -> None:
    _, page, _ = fetched(talkative, "/compare?run=a&run=b")
    listed = re.findall(r'<details class="flip".*?</details>', page, re.DOTALL)
    assert len(listed) == 5 * LONG_ANSWERS <= 40
    texts = [re.sub(r"<.*?>", "", each) for one in listed for each in re.findall(r"<pre.*?</pre>", one, re.DOTALL)]
    assert {len(unescape(text)) for text in texts} == {401}  # and the sign that there is more
    more = re.findall(r'<a href="(/flips[^"]*)"><bdi>(q\d)</bdi></a> <span class="faint">40<', page)
    assert [name for _, name in more] == [f"q{n}" for n in range(LONG_ANSWERS)]


def test_all_flips_of_a_task_and_each_flip_with_its_answers_have_separate_pages(talkative: str) -> None:
    _, page, _ = fetched(talkative, "/flips?run=a&run=b&task=q3")
    assert page.count('<details class="flip"') == 30
    [whole, *_] = re.findall(r'<a href="(/flips[^"]*)">full answers side by side</a>', page)
    _, page, _ = fetched(talkative, unescape(whole))
    left, right = re.findall(r'<pre class="answer">(.*?)</pre>', page, re.DOTALL)
    assert (len(re.sub("<.*?>", "", left).split()), len(re.sub("<.*?>", "", right).split())) == (301, 301)
    assert (re.findall("<del>(.*?)<", left), re.findall("<ins>(.*?)<", right)) == (["1", "a"], ["0", "b"])
    for query in ("run=a&task=q3", "run=a&run=b&task=none", "run=a&run=b&task=q3&doc=999"):
        assert fetched(talkative, f"/flips?{query}")[0] == 404, query


def flip(run: int, task: str, doc_id: int) -> Flip:
    return Flip(task, doc_id, "x", "none", run, 1.0, 0.0, "", "", "", "", True)


@given(st.lists(st.tuples(st.integers(1, 2), st.sampled_from("abc")), max_size=30), st.integers(0, 12))
def test_flips_are_taken_from_all_tasks_in_turn(items: list[tuple[int, str]], most: int) -> None:
    flips = [flip(run, task, number) for number, (run, task) in enumerate(items)]
    taken = round_robin(flips, most)
    assert len(taken) == min(most, len(flips))
    assert [each.doc_id for each in taken] == sorted(each.doc_id for each in taken)
    for one in set(items):
        own = [each for each in flips if (each.run, each.task) == one]
        count = sum(each in taken for each in own)
        assert [each for each in own if each in taken] == own[:count]
        others = [sum((each.run, each.task) == other for each in taken) for other in set(items)]
        assert count == len(own) or count + 1 >= max(others)


def test_different_prompts_are_reported_in_a_line_with_the_box_to_tick(tmp_path: Path) -> None:
    for name, shots in (("none", 0), ("two", 2)):
        options = {"limit": 2, "num_fewshot": shots, "output_path": str(tmp_path / "runs" / name)}
        simple_evaluate("embedded", tasks=["first_steps_arithmetic"], **options)
    with serving(tmp_path / "runs") as at:
        text = text_of(fetched(at, "/compare?run=none&run=two")[1])
        assert text.count("num_fewshot 0 → 2") == 1
        assert "the prompts of 4 tasks differ between the runs" in text
        assert "check “compare even where prompts differ”" in text
        assert "--allow_different_prompts" not in text
        assert "num_fewshot=2" in text_of(fetched(at)[1])  # what tells the runs of a model apart


@given(st.text(alphabet="ab \n.", max_size=40), st.text(alphabet="ab \n.", max_size=40))
def test_aligned_texts_are_whole_and_share_the_same_pieces(one: str, two: str) -> None:
    left, right = diff_parts(one, two)
    assert ("".join(piece.text for piece in left), "".join(piece.text for piece in right)) == (one, two)
    assert [piece.text for piece in left if piece.is_shared] == [piece.text for piece in right if piece.is_shared]


FAILING = """
    data_config: {source: {type: disk, file_path: records.jsonl}}
    graph_config:
      nodes:
        first: {node_type: llm, prompt: [{user: "one {x}"}], output_keys: said, model: {name: m}}
        second: {node_type: llm, prompt: [{user: "two {said}"}], output_keys: more, model: {name: m}}
        bad: {node_type: lambda, lambda: code.bad}
      edges: [{from: START, to: first}, {from: first, to: second}, {from: second, to: bad}, {from: bad, to: END}]
"""


def test_a_graphs_record_that_failed_shows_its_way_and_where_and_why_it_ended(tmp_path: Path) -> None:
    """One fails by a request of its second node, the other by the code of its last."""

    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        if "two one 1" in prompt:
            raise TimeoutError(f"no answer with api_key={SECRET}")
        return str(json.loads(prompt)[-1]["content"])

    code = "def bad(node, state):\n    raise KeyError('of all things')\n"
    folder = write_graph(tmp_path, [{"x": 1}, {"x": 2}], dedent(FAILING), code=code)
    model = Scripted(generate, chat_template=lambda messages, _: json.dumps(messages), identity="one")
    simple_evaluate(model, tasks=[str(folder)], output_path=str(tmp_path / "runs/run"))
    with serving(tmp_path / "runs") as at:
        pages = [fetched(at, "/sample", run="run", task="eval.question_answering.simpleqa", doc=doc)[1] for doc in "01"]
        assert "simpleqa graph 2 failed" in text_of(fetched(at, "/run", run="run")[1])
    request, last = map(text_of, pages)
    said = "first one 1 user one 1 assistant one 1 second failed: TimeoutError: no answer with api_key=***"
    assert f"{said} two one 1 user two one 1 Answer" in request  # what was asked, without an answer
    assert "Last state said one 1 Document" in request
    assert "two one 2 bad failed: the node 'bad': KeyError: 'of all things' (code.py:2)" in last
    assert "Last state said one 2 more two one 2 Document" in last
    assert SECRET not in pages[0]


def test_the_same_document_is_searched_only_in_runs_of_the_same_data(tmp_path: Path) -> None:
    """Two runs and a scoring of the same data; one of other documents under the same names and numbers."""
    for run, data in (("a", "one"), ("b", "one"), ("c", "other")):
        tasks = compared_world.write_tasks(tmp_path / data, {"t": [{"k": data}] * 3})
        compared_world.make_run(tasks, tmp_path / "runs" / run, {"t": [1, 0, 1]})
    score(tmp_path / "runs/b", ScoreOptions(include_path=[str(tmp_path / "one")]))
    with serving(tmp_path / "runs") as at:
        _, page, _ = fetched(at, "/sample", run="a", task="t", doc="1")
        assert "The same document in b , b/scored/001 Raw" in text_of(page)
        assert "The same document in" not in fetched(at, "/sample", run="c", task="t", doc="1")[1]


def test_a_missing_page_is_reported(address: str) -> None:
    for page, query in (("/run", {"run": "x"}), ("/task", {"run": "first", "task": "x"}), ("/nothing", {}),
                        ("/sample", {"run": "first", "task": "sums", "doc": "99999"}), ("/sample", {"run": "first", "task": "sums", "doc": "x"})):  # fmt: skip
        status, text, _ = fetched(address, page, **query)
        assert (status, "This page cannot be shown" in text) == (404, True)


def test_a_damaged_file_of_samples_is_reported_and_the_server_keeps_running(runs: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs / "first", tmp_path / "runs/first")
    (tmp_path / "runs/first/samples/sums.parquet").write_bytes(b"PAR1 this is none PAR1")
    with serving(tmp_path / "runs") as at:
        status, text, headers = fetched(at, "/task", run="first", task="sums")
        assert status == 404
        assert "the samples cannot be read" in text
        assert headers["x-content-type-options"] == "nosniff"
        assert fetched(at, "/task", run="first", task="colours")[0] == 200


# ---- what cannot be had


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%5capp.py",
     "/../../etc/passwd", "/run?run=../../../etc", "/run?run=%2fetc", "/run?run=first%2f..%2f..", "/task?run=first&task=../manifest",
     "/task?run=first&task=%2fetc%2fpasswd", "/sample?run=first&task=..%2fresults.json&doc=0", "/run?run=first%00"],
)  # fmt: skip
def test_no_address_leads_out_of_the_runs(address: str, path: str) -> None:
    at = urlsplit(address)
    connection = http.client.HTTPConnection(at.hostname or "", at.port)
    connection.putrequest("GET", path, skip_host=False)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    assert answer.status == 404
    assert "root:" not in body
    assert "def make_app" not in body
    connection.close()


def test_the_database_reads_below_the_folder_and_nowhere_else(runs: Path, tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "x.csv").write_text("a\n1\n")
    database = Database(runs)
    for query in ("select * from read_csv('/etc/passwd')", f"select * from read_csv('{tmp_path}/x.csv')",
                  "set enable_external_access=true", "install httpfs", "copy (select 1) to '/tmp/x.csv'"):  # fmt: skip
        with pytest.raises(duckdb.Error):
            database.rows(query)


def test_a_link_out_of_the_folder_is_not_followed(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/link").symlink_to(runs / "first")
    with serving(tmp_path / "runs") as at:
        assert fetched(at, "/run", run="link")[0] == 404


@pytest.mark.parametrize("name", ["results.json", "manifest.json", "samples", "samples/sums.parquet"])
def test_a_run_with_files_outside_its_folder_is_not_shown(name: str, runs: Path, tmp_path: Path) -> None:
    for run in ("first", "second"):
        shutil.copytree(runs / run, tmp_path / "runs" / run)
    (tmp_path / "runs/first" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "runs/first" / name).symlink_to(tmp_path / "elsewhere")
    with serving(tmp_path / "runs") as at:
        _, page, _ = fetched(at, "/run", run="first")
        assert f"{name} is a link that leads out of the folder of the run" in text_of(page)
        assert "exact_match" not in page
        assert "exact_match" in fetched(at, "/run", run="second")[1]
        for address in ("/task?run=first&task=sums", "/sample?run=first&task=sums&doc=0", "/graph?run=first&task=sums"):
            assert fetched(at, address)[0] == 404
        _, page, _ = fetched(at, "/compare?run=first&run=second")
        assert "is a link that leads out" in page and "differences1" not in page
        assert fetched(at, "/compare?run=second&run=first")[1].count("is a link that leads out") == 1


def pages_of(address: str) -> list[str]:
    """Every page of every run, and the files they load."""
    _, start, _ = fetched(address)
    seen, todo = set(), ["/", *re.findall(r'(?:href|src)="(/[^"]*)"', start)]
    while todo:
        page = unescape(todo.pop())
        if page not in seen and len(seen) < 150:
            seen.add(page)
            todo += re.findall(r'(?:href|src)="(/[^"]*)"', fetched(address, page)[1])
    return sorted(seen)


def test_every_page_forbids_what_is_not_ours_and_no_page_breaks(address: str) -> None:
    pages = pages_of(address)
    assert len(pages) > 100
    for page in pages:
        status, text, headers = fetched(address, page)
        assert status in (200, 404), page
        assert {name: headers.get(name) for name in HEADERS} == HEADERS
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        if headers["content-type"].startswith("text/html"):
            assert not re.search(r"<script(?! src=\"/static/view.js\">)", text)
            assert not re.search(r"<[^>]*\s(?:on\w+|style)\s*=", re.sub(r'"[^"]*"', '""', text)), page
            assert not re.search(
                r"""(?:src|href|action)=["']?(?:https?:|//|javascript:|data:)""", re.sub(r">[^<]*<", "><", text)
            ), page


def test_hostile_texts_are_shown_as_they_are(address: str) -> None:
    name = "<img src=x onerror=alert(0)>"
    for number, text in enumerate(HOSTILE):
        _, page, _ = fetched(address, "/sample", run=name, task=HOSTILE[0], doc=str(number))
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "Verdict of the judge" in page
        shown = unescape(page).replace("\r\n", "\n")
        assert text.replace("\r\n", "\n") in shown


def test_nothing_can_be_written(address: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
        for page in ("/", "/run", "/filter", "/static/view.css"):
            status, _, headers = fetched(address, page, method=method)
            assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert fetched(address, "/", method="HEAD")[:2] == (200, "")


def test_looking_changes_nothing(address: str, runs: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(runs.rglob("*"))}

    before = state()
    pages_of(address)
    assert state() == before


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "0.0.0.0",
        "[::ffff:1.2.3.4]",
    ],
)
def test_a_name_that_is_not_its_own_is_refused(address: str, host: str) -> None:
    status, text, _ = fetched(address, "/", headers={"Host": host})
    assert status in (400, 421)
    assert "first" not in text


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:8777", "[::1]:8777", "[::1]"])
def test_its_own_names_are_let_in(host: str) -> None:
    assert RequestGuard(None, allowed_hosts("127.0.0.1")).is_ours(host)  # type: ignore[arg-type]


def test_a_server_that_is_open_to_others_takes_addresses_and_its_own_name_only() -> None:
    guard = RequestGuard(None, allowed_hosts("0.0.0.0"))  # type: ignore[arg-type]
    assert guard.is_ours("192.168.7.7:8777")
    assert guard.is_ours(f"{socket.gethostname()}:8777")
    assert not guard.is_ours("evil.example:8777")
    assert not RequestGuard(None, allowed_hosts("127.0.0.1")).is_ours("192.168.7.7")  # type: ignore[arg-type]


def test_other_machines_are_allowed_only_with_allow_remote(runs: Path, run_assay: Run) -> None:
    assert not is_loopback("0.0.0.0")
    ended = run_assay("view", runs, "--host", "0.0.0.0", "--port", "0")
    assert ended.returncode == 2
    assert "other machines can read everything" in ended.stderr
    with serving(runs, "--host", "0.0.0.0", "--allow_remote") as at:
        assert at.startswith("http://0.0.0.0:")


def test_a_request_that_does_not_come_to_its_end_is_given_up(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a connection that sends nothing, half a head, half a second one, or half a form: each is answered 408 or closed."""
    monkeypatch.setattr("assay.viewer.deadline.SECONDS", 0.3)
    whole = b"HEAD /static/view.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    beginnings = {
        "nothing": b"", "half a head": whole[:20], "half a second head": whole,
        "half a form": b"POST /label HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nab",
        "half a body that nobody reads": whole.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\nab"),
    }  # fmt: skip
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = StreamServer(server_config(make_app(runs)), bool)
        serving_thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving_thread.start()
        try:
            opened = {name: socket.create_connection(listening.getsockname(), 30) for name in beginnings}
            for name, connection in opened.items():
                connection.sendall(beginnings[name])
            assert opened["half a second head"].recv(4096).startswith(b"HTTP/1.1 200 ")
            opened["half a second head"].sendall(whole[:20])
            answers = {name: read_to_end(connection)[:12] for name, connection in opened.items()}
        finally:
            server.should_exit = True
            serving_thread.join(30)
    assert answers == {
        "nothing": b"HTTP/1.1 408", "half a head": b"HTTP/1.1 408", "half a second head": b"HTTP/1.1 408",
        "half a form": b"HTTP/1.1 405", "half a body that nobody reads": b"HTTP/1.1 200",
    }  # fmt: skip


def read_to_end(connection: socket.socket) -> bytes:
    """All that a server sends until it closes the connection."""
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_keys_are_shown_nowhere(address: str, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(0)>"
    shown = 0
    for page in pages_of(address):
        text = fetched(address, page)[1]
        shown += "***" in text
        assert SECRET not in text, page
    assert shown
    for number in range(len(HOSTILE)):
        _, text, _ = fetched(address, "/sample", run=name, task=HOSTILE[0], doc=str(number))
        assert SECRET not in text
    for other in ("one", "two"):
        write_hostile_run(tmp_path / other)
        loaded = json.loads((tmp_path / other / "manifest.json").read_text())
        write_json(tmp_path / other / "manifest.json", {**loaded, "spec": {"model": other}})
    with serving(tmp_path) as at:
        status, text, _ = fetched(at, "/compare?run=one&run=two")
    assert status == 200
    assert "api_key=***" in text and SECRET not in text


def test_a_missing_folder_and_a_port_in_use_are_reported(
    runs: Path, tmp_path: Path, address: str, run_assay: Run
) -> None:
    missing = run_assay("view", tmp_path / "nowhere")
    in_use = run_assay("view", runs, "--port", address.rpartition(":")[2])
    assert (missing.returncode, in_use.returncode) == (2, 2)
    assert "no such folder" in missing.stderr
    assert "cannot listen" in in_use.stderr


def test_a_folder_whose_name_has_signs_of_patterns_is_read_as_it_is(runs: Path, tmp_path: Path) -> None:
    for name in ("a[1]", "b*", "c'd", 'e"f', "g%20h", "i j"):
        shutil.copytree(runs / "first", tmp_path / "r[s]" / name)
    with serving(tmp_path / "r[s]") as at:
        for name in ("a[1]", "b*", "c'd", 'e"f', "g%20h", "i j"):
            assert "Samples 12" in text_of(fetched(at, f"/task?run={quote(name)}&task=sums&show=wrong")[1])


# ---- how it looks


def palette() -> dict[str, tuple[str, str]]:
    matches = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", (STATIC / "view.css").read_text())
    return {name: (light, dark) for name, light, dark in matches}


def contrast(one: str, two: str) -> float:
    """By WCAG 2.2: the relative luminances of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


def test_the_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # just not enough, as is well known


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_has_the_contrast_of_wcag_aa(theme: int) -> None:
    colours = {name: both[theme] for name, both in palette().items()}
    pairs = [
        (text, ground)
        for ground in ("page", "panel", "chosen")
        for text in ("ink", "faint", "link", "good", "bad", "accent")
    ]
    pairs += [("ink", "added"), ("ink", "gone"), ("page", "ink")]
    low = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}
    marks = {
        (mark, ground): contrast(colours[mark], colours[ground])
        for mark in ("accent", "edge")
        for ground in ("page", "panel")
    }
    assert all(value >= 3 for value in marks.values())


def test_one_short_stylesheet_and_every_colour_in_it_by_name() -> None:
    text = (STATIC / "view.css").read_text()
    assert text.count("\n") <= 400
    rest = text.partition(":root[data-theme")[2]
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", rest)) <= {"#0008"}  # the shade behind a dialog
    assert "http" not in text + (STATIC / "view.js").read_text()


def test_every_kind_of_page_has_a_screenshot_that_is_small_enough_for_a_document() -> None:
    shots = {path.stem: path.stat().st_size for path in (STATIC.parents[3] / "docs/screenshots").glob("*.png")}
    shown = re.findall(r"\(screenshots/(\w+)\.png\)", (STATIC.parents[3] / "docs/viewing.md").read_text())
    pages = {
        "run",
        "task",
        "sample",
        "compare",
        "graph",
        "conversation",
        "judge",
        "label",
        "matrix",
        "trend",
        "live",
        "flip",
        "agent",
    }
    assert pages <= set(shown) <= set(shots)
    assert max(shots.values()) < 50_000 and sum(shots.values()) < 400_000


def test_a_browser_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_BROWSER", "/somewhere/chromium")
    assert find_browser() == "/somewhere/chromium"


def test_values_that_are_not_json_are_shown_as_they_are(sums: Samples) -> None:
    row = sums.document(3)
    assert row is not None
    view = sample_view(row._replace(doc="{", target="["), {}, {})
    assert view.prompt.endswith("3 + 1 =")
