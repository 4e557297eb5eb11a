"""A few fixed histories of disturbed commands; `make chaos` draws hundreds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.histories import Chaos, Disturbance, History, drawn
from chaos.outcome import compared, leftovers

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.server, pytest.mark.xdist_group("chaos")]


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    world = Chaos(tmp_path_factory.mktemp("chaos"))
    yield world
    world.close()


HISTORIES = {
    "run": [
        Disturbance("kill", "requests", 0.4), Disturbance("term", "requests", 0.5), Disturbance("disk", "changes", 0.2),
        Disturbance("kill", "changes", 0.8),
    ],
    "cache": [Disturbance("kill", "requests", 0.9)],
    "judge": [Disturbance("kill", "requests", 0.8)],
    "score": [Disturbance("kill", "changes", 0.5), Disturbance("int", "changes", 0.9)],
}  # fmt: skip


@pytest.mark.parametrize("kind", HISTORIES)
def test_a_disturbed_command_ends_as_an_undisturbed_one(kind: str, chaos: Chaos) -> None:
    history = History(0, 0, kind, 0.05, {0: HISTORIES[kind]})
    report = chaos.told(history)
    assert report.problems == [], str(history)
    planned = sum(each.how == "kill" for each in HISTORIES[kind])
    assert min(planned, 1) <= report.kills.total() <= planned  # on a busy machine a command may end before the last one
    assert report.asked >= report.needed


def test_a_seed_draws_the_same_histories() -> None:
    assert [drawn(3, n) for n in range(16)] == [drawn(3, n) for n in range(16)]
    assert [drawn(3, n) for n in range(16)] != [drawn(4, n) for n in range(16)]
    kills = sum(each.how == "kill" for n in range(200) for part in drawn(1, n).disturbances.values() for each in part)
    assert kills >= 200


def test_only_times_and_the_order_of_a_journal_are_left_out(tmp_path: Path) -> None:
    lines = [
        {"k": "a", "r": {"text": "1"}, "u": [5, 2, 0.25, 1, 0, 0], "c": "x"},
        {"k": "b", "r": {"failed": "no"}, "c": "y"},
    ]

    def journal(name: str, *changed: dict[str, object]) -> bytes:
        (tmp_path / name).mkdir()
        content = [{"format": 3, "created": 1.0}, *changed]
        (tmp_path / name / "responses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
        return compared(tmp_path / name / "responses.jsonl")

    first = journal("first", *lines)
    assert first == journal("slower", {**lines[0], "u": [5, 2, 0.75, 3, 0, 0], "c": "z"})
    assert first != journal("tokens", {**lines[0], "u": [6, 2, 0.25, 1, 0, 0]})
    assert first != journal("text", {**lines[0], "r": {"text": "2"}})
    journal("twice", lines[0], lines[0])
    (tmp_path / ".part-host-1-x").mkdir()
    (tmp_path / "tmp").mkdir()
    assert list(leftovers(tmp_path, tmp_path / "tmp")) == [".part-host-1-x", "twice/responses.jsonl: a 2 times"]
