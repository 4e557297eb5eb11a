"""Responses kept across runs: never another model's, safe with several processes, and kept in order by a command."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest

import assay
from assay.engine.keys import Keys
from assay.errors import AssayError
from assay.models import Scripted
from assay.models.protocol import Samples
from assay.records import Failed, Generate, Likelihood, Text, Usage
from assay.runs.cache import FILE, Cache
from commands import Ended, Run
from small_runs import SAMPLED, write_task

TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


class Counting:
    """A script that counts what it is asked."""

    def __init__(self, answer: str = "yes", identity: str = "one") -> None:
        self.asked = 0
        self.answer = answer
        self.model = Scripted(generate=self._say, identity=identity)

    def _say(self, prompt: str, params: dict[str, object], repeat: int) -> str:
        self.asked += 1
        return f"{self.answer} {repeat}" if params.get("do_sample") else self.answer


def run(folder: Path, model: Counting, yaml: str = TASK, **options: Any) -> dict[str, Any]:
    write_task(folder, [{"q": f"{n}", "gold": "yes"} for n in range(10)], yaml)
    return assay.simple_evaluate(
        model.model,
        tasks=["t"],
        include_path=str(folder),
        include_defaults=False,
        use_cache=str(folder / "cache"),
        **options,
    )


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    one, two = run(tmp_path, first), run(tmp_path, second)
    assert (first.asked, second.asked) == (10, 0)
    assert one["results"] == two["results"]


def test_what_a_killed_run_did_not_get_into_the_cache_is_put_there_when_it_resumes(tmp_path: Path) -> None:
    """The cache is written every second: of a killed run its last answers are in the journal alone."""
    output = tmp_path / "run"
    run(tmp_path, Counting(), output_path=str(output))
    for left in (tmp_path / "cache").glob("responses.sqlite*"):
        left.unlink()
    again, other = Counting(), Counting()
    run(tmp_path, again, output_path=str(output))
    run(tmp_path, other)
    assert (again.asked, other.asked) == (0, 0)


def test_two_models_never_share(tmp_path: Path) -> None:
    run(tmp_path, Counting("yes"))
    other = Counting("no", identity="two")
    assert run(tmp_path, other)["results"]["t"]["exact_match,none"] == 0.0
    assert other.asked == 10


def test_another_parameter_is_another_question(tmp_path: Path) -> None:
    run(tmp_path, Counting())
    for change in ({"gen_kwargs": "max_gen_toks=7"}, {"gen_kwargs": "until=x"}, {"system_instruction": "Be brief."}):
        model = Counting()
        run(tmp_path, model, **change)
        assert model.asked == 10, change


def test_repeats_come_back_as_different_as_they_were(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    one = run(tmp_path, first, TASK + SAMPLED, repeats=4)
    two = run(tmp_path, second, TASK + SAMPLED, repeats=4)
    assert second.asked == 0
    assert [sample["resps"] for sample in one["samples"]["t"]] == [sample["resps"] for sample in two["samples"]["t"]]
    assert len(set(two["samples"]["t"][0]["resps"][0])) == 4


@pytest.mark.parametrize(
    ("params", "if_asked", "unless_greedy"),
    [
        ({}, False, False),  # a server is sent the temperature 0
        ({"do_sample": False}, False, False),
        ({"do_sample": False, "temperature": 1.0}, False, False),
        ({"do_sample": True}, True, True),
        ({"temperature": 0}, False, False),
        ({"temperature": 0.0}, False, False),
        ({"temperature": 0.5}, True, True),
        ({"temperature": 1}, True, True),
        ({"temperature": None}, False, True),  # nobody knows what the server does
    ],
)
def test_repeats_of_a_request_are_other_questions_where_the_model_samples(
    params: dict[str, object], if_asked: bool, unless_greedy: bool
) -> None:
    def keys(samples: Samples) -> set[bytes]:
        model = Keys("m", samples)
        requests = [Generate("q", params, repeat) for repeat in (0, 1)]
        return {key for sample in (b"a", b"b") for key in model.keyed(requests, sample, {})[0]}

    expected = {"if asked": if_asked, "unless greedy": unless_greedy, "always": True}
    for samples in get_args(Samples):
        assert len(keys(samples)) == (4 if expected[samples] else 1), samples


def test_failures_are_not_kept_and_what_was_paid_is_not_paid_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    used = Usage(read=5, written=2)
    cache.add("m", [(b"1", Failed("no")), (b"2", Text("é", "stop", "hm", used)), (b"3", Likelihood(-1.5, True, used))])
    cache.close()
    again = Cache(tmp_path)
    assert again.get(b"1") is None
    assert again.get(b"2") == Text("é", "stop", "hm", used)
    assert again.get(b"3") == Likelihood(-1.5, True, used)
    again.close()


@pytest.mark.parametrize(
    ("damaged", "warnings"),
    [
        (0, []),
        (1, ["the cache held 1 damaged response: requested again"]),
        (2, ["the cache held 2 damaged responses: requested again"]),
    ],
)
def test_responses_that_were_damaged_are_counted_in_a_warning(
    damaged: int, warnings: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [b"1", b"2"]
    cache = Cache(tmp_path)
    cache.add("m", [(key, Text("a")) for key in keys])
    cache.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.executemany(
            "update responses set response = x'00' where key = ?", [(key,) for key in keys[:damaged]]
        )
        connection.commit()
    again = Cache(tmp_path)
    assert [again.get(key) for key in keys].count(None) == damaged
    again.close()
    assert [record.getMessage() for record in caplog.records] == warnings


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """Four processes write a thousand responses each, half of them the same: none is lost, none is torn."""
    script = (
        "import sys; from pathlib import Path; from assay.runs.cache import Cache; from assay.records import Text\n"
        "cache, me = Cache(Path(sys.argv[1])), int(sys.argv[2])\n"
        "for n in range(1000):\n"
        "    key = n if n % 2 else me * 10_000 + n\n"
        "    cache.add('m', [(str(key).encode(), Text('answer %d' % key))])\n"
        "cache.close()\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(me)]) for me in range(1, 5)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0, 0]
    cache = Cache(tmp_path)
    [shelf] = cache.shelves()
    assert shelf.responses == 4 * 500 + 500
    for me in range(1, 5):
        for n in range(1000):
            key = n if n % 2 else me * 10_000 + n
            assert cache.get(str(key).encode()) == Text(f"answer {key}")
    cache.close()


def test_the_command_lists_and_prunes(tmp_path: Path, run_assay: Run) -> None:
    cache = Cache(tmp_path / "cache")
    cache.add("one", [(b"1", Text("a")), (b"2", Text("b"))])
    cache.add("two", [(b"3", Text("c"))])
    cache.close()

    def command(*arguments: object) -> Ended:
        return run_assay("cache", *arguments)

    shown = command("ls", tmp_path / "cache").stdout
    assert [line.split()[:2] for line in shown.splitlines()[-2:]] == [["one", "2"], ["two", "1"]]
    assert command("prune", tmp_path / "cache").returncode == 2  # it is not said what
    assert command("prune", tmp_path / "cache", "--model", "tow").returncode == 2
    assert "did you mean" in command("prune", tmp_path / "cache", "--model", "tow").stderr
    assert "0 responses" in command("prune", tmp_path / "cache", "--unused_days", "1").stdout
    assert "2 responses" in command("prune", tmp_path / "cache", "--model", "one").stdout
    assert "1 responses" in command("prune", tmp_path / "cache", "--all").stdout
    assert command("ls", tmp_path / "nothing").returncode == 2


def test_an_unusable_cache_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(AssayError, match="cache cannot be opened"):
        run(tmp_path, Counting())


def test_a_resumed_run_does_not_need_the_cache(tmp_path: Path) -> None:
    run(tmp_path, Counting())
    run(tmp_path, Counting(), output_path=str(tmp_path / "run"))
    _, *lines = [json.loads(line) for line in (tmp_path / "run/responses.jsonl").read_text().splitlines()]
    assert len(lines) == 10
