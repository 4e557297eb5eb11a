"""What results.json says of the requests of a run, counted by hand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from assay.engine import Engine, Started
from assay.engine.lanes import Budget
from assay.engine.retry import ModelUnreachable
from assay.engine.usage import RunUsage
from assay.models import Scripted
from assay.models.protocol import Answered
from assay.records import Failed, Generate, Plan, Request, Text, Usage
from assay.runs.journal import Journal
from small_runs import run, write_task


def test_usage_is_summed_by_task_and_by_role() -> None:
    usage = RunUsage(bound=frozenset({"judge"}))
    usage.add("t", "model", Text("a", usage=Usage(10, 2, seconds=0.5, tries=1)), 0.25)
    usage.add("t", "model", Text("b", usage=Usage(20, 4, seconds=1.5, tries=3)), 0.5)
    usage.add("t", "judge", Text("c", usage=Usage(5, 1, seconds=1.0, tries=1), model="other"), None)
    usage.add("u", "model", Failed("HTTP 400"), None)
    of_model = {
        "requests": 2,
        "failed": 1,
        "retries": 2,
        "tokens": {"in": 30, "out": 6},
        "cost": 0.75,
        "seconds": {"p50": 1.0, "p90": 1.4, "p99": 1.49},
    }
    of_judge = {
        "requests": 1,
        "failed": 0,
        "retries": 0,
        "tokens": {"in": 5, "out": 1},
        "seconds": {"p50": 1.0, "p90": 1.0, "p99": 1.0},
        "other_models": {"other": 1},
        "at_least": True,
    }
    of_all = {**of_model, "requests": 3, "tokens": {"in": 35, "out": 7}, "other_models": {"other": 1}}
    assert usage.to_json() == {
        **of_all,
        "at_least": True,
        "roles": {"judge": of_judge, "model": of_model},
        "tasks": {
            "t": {**of_all, "failed": 0},
            "u": {"requests": 0, "failed": 1, "retries": 0, "tokens": {"in": 0, "out": 0}},
        },
    }


def test_of_a_model_on_this_machine_the_seconds_of_the_device_and_computed_tokens_are_summed() -> None:
    usage = RunUsage(local=frozenset({"model"}))
    usage.add("t", "model", Text("a", usage=Usage(10, 2, seconds=0.25, stored=4)), None)
    usage.add("t", "model", Text("b", usage=Usage(6, 1, seconds=0.5)), None)
    tokens = {"in": 16, "out": 3, "in_from_cache": 4, "computed": 15}
    expected = {"requests": 2, "failed": 0, "retries": 0, "tokens": tokens, "device_seconds": 0.75}
    assert usage.to_json() == {**expected, "tasks": {"t": expected}}


def test_of_a_model_on_this_machine_that_counts_no_tokens_the_latency_is_told() -> None:
    usage = RunUsage(local=frozenset({"model"}))
    usage.add("t", "model", Text("a", usage=Usage(seconds=0.25)), None)
    assert usage.to_json()["seconds"] == {"p50": 0.25, "p90": 0.25, "p99": 0.25}


def test_a_server_and_a_model_on_this_machine_are_told_together_as_requests() -> None:
    usage = RunUsage(local=frozenset({"model"}))
    usage.add("t", "model", Text("a", usage=Usage(10, 2, seconds=0.25)), None)
    usage.add("t", "judge", Text("b", usage=Usage(5, 1, seconds=0.75)), 0.5)
    told = usage.to_json()
    assert (told["tokens"], told["cost"], told["seconds"]["p50"]) == ({"in": 15, "out": 3}, 0.5, 0.5)  # type: ignore[call-overload, index]
    assert told["roles"]["model"]["device_seconds"] == 0.25  # type: ignore[call-overload, index]


def test_what_was_cancelled_in_flight_is_counted_and_nothing_is_told_of_a_run_without_requests() -> None:
    usage = RunUsage()
    assert usage.to_json() == {}
    usage.unanswered = 2
    assert (usage.to_json()["unanswered"], usage.to_json()["at_least"]) == (2, True)


def test_requests_of_a_plan_are_counted_by_role_step_by_step() -> None:
    asked, judged = Generate("q", {}), Generate("q", {}, role="judge")

    def plan() -> Plan:
        yield [asked, judged, asked]
        assert counts() == (0, {"model": 2, "judge": 1}, {})
        return (yield [judged])

    def counts() -> tuple[int, dict[str, int], dict[str, int]]:
        counts = engine.task_counts["t"]
        return counts.ended, counts.asked, counts.of_ended

    model = Scripted(generate=lambda prompt, params, repeat: "x")
    engine = Engine({"model": model, "judge": model}, Journal(None))
    asyncio.run(engine.run(iter([Started("what", b"0", plan(), "t")]), lambda _: None))
    assert counts() == (1, {"model": 2, "judge": 2}, {"model": 2, "judge": 2})


class Counting(Scripted):
    """Reads three tokens and writes two for each request; in all it answers so many."""

    left = 2

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:  # type: ignore[override]
        for number, _ in enumerate(requests):
            if not self.left:
                raise ModelUnreachable.at("model", "it has gone", "start it again")
            self.left -= 1
            yield [(number, Text("x", usage=Usage(3, 2, 0.5)))]


def test_a_run_that_goes_on_counts_what_was_answered_before_once(tmp_path: Path) -> None:
    rows = [{"q": f"{number}", "gold": "x"} for number in range(4)]
    metrics = "metric_list: [{metric: exact_match}]\n"
    write_task(tmp_path, rows, f"output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n{metrics}")

    def usage() -> tuple[int, dict[str, int]]:
        model = Counting(generate=lambda prompt, params, repeat: "", identity="counting")
        told = run(tmp_path, model, output_path=str(tmp_path / "run"))["assay"]["usage"]
        return told["requests"], told["tokens"]

    assert usage() == (2, {"in": 6, "out": 4, "in_from_cache": 0, "computed": 10})
    assert usage() == (4, {"in": 12, "out": 8, "in_from_cache": 0, "computed": 20})


@pytest.mark.parametrize(
    ("failed", "ended"),
    [
        ([False], ""),
        ([False, False], "max_failures: 2 requests failed"),
        ([True, False], "max_failures: 2 requests or documents failed"),
        ([False, True, True], "max_failures: 2 requests or documents failed"),
    ],
)
def test_a_run_ends_with_so_many_failures(failed: list[bool], ended: str) -> None:
    budget = Budget(failures=2)
    for is_document in failed:
        budget.fail(is_document=is_document)
    assert (budget.ended, budget.is_over) == (ended, bool(ended))


def test_a_run_ends_when_the_next_request_may_cost_more_than_is_left_and_none_is_in_flight() -> None:
    budget = Budget(cost=1.0)
    assert budget.reserve(0.6)
    assert not budget.reserve(0.6)
    assert not budget.is_over, "the one in flight may cost less than was reserved"
    budget.settle(0.6, 0.25)
    assert budget.reserve(0.75)
    budget.settle(0.75, 0.5)
    budget.pay(0.125)  # by an earlier part of the run
    assert not budget.reserve(0.25)
    assert budget.ended.startswith("max_cost: ")


def test_what_ended_a_run_first_is_said() -> None:
    budget = Budget(failures=1, seconds=0.0)
    budget.stop("interrupted")
    budget.fail()
    assert (budget.is_over, budget.ended, budget.at_once) == (True, "interrupted", True)
    assert Budget(seconds=0.0).is_over
    assert not Budget(seconds=60.0).is_over
