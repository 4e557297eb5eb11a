"""Every byte of a run: damage is noticed or without effect. `make damage` tries all of it."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import run_world
from assay import Run
from assay.cli import main
from assay.errors import AssayError
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.records import Text
from assay.runs.cache import Cache, ScoreCache
from fuzz.damage import run_all
from fuzz.damaged_parts import run_parts
from kinds import mostly_nightly
from run_world import RecordingModel

pytestmark = pytest.mark.slow
KINDS = [
    "manifest.json: a FIFO", "manifest.json: another run's", "responses.jsonl: another run's", "results.json: missing", "results.json: a loop",
    "results.json: a folder", "results.json: another run's", "samples/sums.parquet: missing", "samples/sums.parquet: another task's",
    "scored/001/results.json: the run's",
]  # fmt: skip


@pytest.mark.parametrize("every", mostly_nightly([211, 1009], kept=[1009]))
@pytest.mark.parametrize("packed", [False, True], ids=["journal", "compressed journal"])
def test_damage_of_any_byte_is_noticed_or_without_effect(packed: bool, every: int) -> None:
    findings = run_all(
        packed=packed, every=every, commands=6, kinds=KINDS if not packed else ["responses.jsonl.zst: a FIFO"]
    )
    assert findings.wrong == {}
    assert findings.noticed > findings.tried > 500 * 211 / every


def test_damage_of_graphs_with_tools_and_of_shards_is_noticed_or_without_effect() -> None:
    findings = run_parts(5)
    assert findings.wrong == {}
    assert findings.noticed > findings.tried > 35


@pytest.fixture
def runs(tasks: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two runs with different answers."""
    run_world.run(RecordingModel(), tasks, tmp_path / "one")
    run_world.run(RecordingModel(), tasks, tmp_path / "two", limit=2)
    return tmp_path / "one", tmp_path / "two"


def test_results_and_manifest_end_in_the_checksum_of_all_before_it(runs: tuple[Path, Path]) -> None:
    for name in ("results.json", "manifest.json"):
        data = (runs[0] / name).read_bytes()
        before, digits = re.fullmatch(rb'(.*),\n  "crc32": "(\w{8})"\n}\n', data, re.DOTALL).groups()  # type: ignore[union-attr]
        assert int(digits, 16) == zlib.crc32(before)
        assert json.loads(data)["crc32"] == digits.decode()


def test_one_changed_digit_of_a_result_is_refused_and_the_run_writes_it_anew(
    runs: tuple[Path, Path], tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs[0] / "results.json"
    whole = path.read_text()
    path.write_text(whole.replace('"value": 0.6', '"value": 0.8', 1))
    assert path.read_text() != whole
    for command in (["report", str(runs[0])], ["runs", "show", str(runs[0])], ["compare", str(runs[1]), str(runs[0])]):
        assert main(command) == 2
        assert (
            "results.json: the file is damaged: its content does not match its checksum — repeat"
            in capsys.readouterr().err
        )
    asked = RecordingModel()
    run_world.run(asked, tasks, runs[0])
    assert asked.calls == []
    assert lm_eval_layout(Run.open(runs[0]).results)["results"]["sums"]["exact_match,none"] == run_world.EXACT_MATCH


def test_results_that_another_program_wrote_are_read(runs: tuple[Path, Path]) -> None:
    run_world.change_results(runs[0], lambda content: content["facts"].update(note="checked"))
    assert Run.open(runs[0]).results.facts["note"] == "checked"


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("results.json", "results.json: the file is damaged: manifest.json has another checksum for it"),
        ("manifest.json", "results.json: the file is damaged: manifest.json has another checksum for it"),
        ("samples/sums.parquet", "sums.parquet: the samples cannot be read: the manifest has another checksum for it"),
    ],
)
def test_a_file_of_another_run_is_refused(file: str, problem: str, runs: tuple[Path, Path]) -> None:
    shutil.copy(runs[1] / file, runs[0] / file)
    run = Run.open(runs[0])
    with pytest.raises(AssayError, match=re.escape(problem)):
        (lm_eval_layout(run.results), [*run.sample_batches("sums")])


def test_a_journal_of_another_run_is_refused_and_stays_as_it_is(runs: tuple[Path, Path], tasks: Path) -> None:
    shutil.copy(runs[1] / "responses.jsonl", runs[0] / "responses.jsonl")
    with pytest.raises(AssayError, match=r"responses\.jsonl: the responses are those of another run — restore"):
        run_world.run(RecordingModel(), tasks, runs[0])
    assert (runs[0] / "responses.jsonl").read_bytes() == (runs[1] / "responses.jsonl").read_bytes()


def test_lost_samples_of_a_finished_run_are_reported_and_written_anew(
    runs: tuple[Path, Path], tasks: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, out = str(runs[0]), str(tmp_path / "out")
    (runs[0] / "samples/sums.parquet").unlink()
    for command in (
        ["samples", one],
        ["export", one, "--to", "inspect", "-o", out],
        ["pack", one, "-o", f"{out}.zip"],
        ["import", one, "-o", out],
    ):
        assert main(command) == 2
        assert (
            f"{one}: the samples of 'sums' are missing — restore them, or repeat the command" in capsys.readouterr().err
        )
    assert main(["report", one, "--format", "md"]) == 0
    assert "sums: its samples are missing" in capsys.readouterr().out
    asked = RecordingModel()
    run_world.run(asked, tasks, runs[0])
    assert asked.calls == [] and len(next(Run.open(runs[0]).sample_batches("sums"))) == len(run_world.SUMS)


def test_something_in_the_place_of_a_file_is_reported_with_its_path(runs: tuple[Path, Path], tasks: Path) -> None:
    (runs[0] / "results.json").unlink()
    (runs[0] / "results.json/inside").mkdir(parents=True)
    with pytest.raises(
        AssayError, match=r"results\.json: the run cannot be written: Is a directory — remove what is in its place"
    ):
        run_world.run(RecordingModel(), tasks, runs[0])


# ---- caches: SQLite has no checksums for what it stores


def _flipped(path: Path, read: Callable[[], object], value: bytes) -> None:
    """Damage every 7th byte of a database in turn, and all of a value; nothing that is read differs."""
    content = path.read_bytes()
    copies = [
        range(copy.start(), copy.end()) for copy in re.finditer(re.escape(value), content)
    ]  # SQLite leaves old ones
    for at in (*range(3, len(content), 7), *(at for copy in copies for at in copy)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 7]) + content[at + 1 :])
        assert read() is not True, at
        for more in ("-wal", "-shm"):
            path.with_name(path.name + more).unlink(missing_ok=True)


def test_a_damaged_response_of_a_cache_is_not_given(tmp_path: Path) -> None:
    key, said = b"k" * 16, Text("the answer is 42")
    cache = Cache(tmp_path)
    cache.add("m", [(key, said)])
    cache.close()
    responses: list[object] = []

    def read() -> object:
        try:
            with closing(Cache(tmp_path)) as cache:
                responses.append(cache.get(key))
        except (AssayError, sqlite3.Error):  # a run continues without it
            return None
        return responses[-1] not in (None, said)

    assert read() is False
    _flipped(tmp_path / "responses.sqlite", read, b"the answer is 42")
    assert responses.count(said) > len(responses) // 2, "most bytes are unused"
    assert None in responses


def test_a_damaged_score_of_a_cache_is_computed_again(tmp_path: Path) -> None:
    key = b"k" * 16
    scores = ScoreCache(tmp_path)
    scores.add(key, b"0.25")
    scores.close()
    responses: list[bytes | None] = []

    def read() -> object:
        scores = ScoreCache(tmp_path)
        responses.append(scores.get(key))
        scores.close()
        return responses[-1] not in (None, b"0.25")

    assert read() is False
    _flipped(tmp_path / "scores.sqlite", read, b"0.25")
    assert None in responses


# ---- power cuts


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_after_a_power_cut_no_answer_is_lost_that_is_a_second_old(tmp_path: Path) -> None:
    """Eight of the cuts of `python -m bench.power_cut`, of a run of two tasks; sixteen folders."""
    command = [sys.executable, "-m", "bench.power_cut", "--cuts", "8", "run"]
    ended = subprocess.run(
        command,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert re.search(r"\d+ cuts, \d+ folders, 0 wrong", ended.stdout), ended.stdout + ended.stderr
