"""The journal: what was written is found again, and what was damaged is noticed."""

import os
import random
import threading
import time
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.records import Failed, Likelihood, Response, Text, Usage
from assay.runs import journal as journals
from assay.runs.compression import read_frames, write_frames
from assay.runs.journal import Journal, JournalError, lines, read_header
from assay.runs.key_index import KeyIndex

LINES = 60


def written(path: Path, count: int = LINES) -> dict[bytes, Response]:
    """A journal of texts and likelihoods."""
    draw = random.Random(7)
    responses: dict[bytes, Response] = {}
    for number in range(count):
        text = "".join(draw.choices('abc 123\n"\\é', k=draw.randint(0, 80)))
        usage = Usage(number, 2, 0.25) if number % 3 == 0 else None
        response: Response = (
            Text(text, "stop", usage=usage) if number % 2 else Likelihood(-number / 7, bool(number % 4), usage)
        )
        responses[draw.randbytes(16)] = response
    kept = Journal(path, {"spec": {"tasks": ["a"]}, "created": 17.0})
    kept.add(responses.items())
    kept.close()
    return responses


def read(path: Path, keys: dict[bytes, Response]) -> tuple[dict[bytes, Response | None], int]:
    kept = Journal(path)
    result = {key: kept.get(key) for key in keys}
    kept.close()
    return result, kept.damaged


def packed(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(journals, "LONG", 1)
    kept = Journal(path)
    kept.compress()
    kept.close()
    assert not path.exists()
    return path.with_name(path.name + ".zst")


def test_written_responses_are_found_again(tmp_path: Path) -> None:
    expected = written(tmp_path / "responses.jsonl")
    assert read(tmp_path / "responses.jsonl", expected) == (expected, 0)


def test_every_line_ends_in_the_crc32_of_its_content(tmp_path: Path) -> None:
    written(tmp_path / "responses.jsonl")
    texts = (tmp_path / "responses.jsonl").read_bytes().splitlines()
    assert len(texts) == LINES + 1
    for line in texts:
        inside, _, seal = line.rpartition(b',"c":')
        assert seal == b'"%08x"}' % zlib.crc32(inside)


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
def test_a_flipped_bit_anywhere_is_noticed_and_never_another_answer(
    compressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "responses.jsonl"
    expected = written(path)
    file = packed(path, monkeypatch) if compressed else path
    data, draw = file.read_bytes(), random.Random(3)
    for position in draw.sample(range(len(data)), min(1000, len(data) - 1)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << draw.randrange(8)
        path.unlink(missing_ok=True)
        file.write_bytes(flipped)
        result, damaged = read(path, expected)
        assert damaged > 0 or position == len(data) - 1, position  # the last line without its end is cut off as torn
        assert all(answer in (None, expected[key]) for key, answer in result.items()), position


def test_damage_in_a_compressed_journal_costs_one_frame(tmp_path: Path) -> None:
    texts = [b'{"k":"%032x"}\n' % number for number in range(200_000)]
    with (tmp_path / "frames").open("wb") as file:
        write_frames(texts, file)
    data = bytearray((tmp_path / "frames").read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "frames").write_bytes(data)
    values = list(read_frames(tmp_path / "frames"))
    [lost] = [each for each in values if isinstance(each, int)]
    assert len(values) - 1 + lost == len(texts)
    assert 0 < lost < 40_000
    assert set(values) - {lost} <= set(texts)


def test_libzstd_reads_a_compressed_journal_as_an_ordinary_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "responses.jsonl"
    written(path)
    plain = path.read_bytes()
    with pa.input_stream(str(packed(path, monkeypatch)), compression="zstd") as stream:
        assert stream.read() == plain


@pytest.mark.parametrize("line", [1, 5, LINES])
def test_a_line_without_a_checksum_after_a_header_is_damaged(line: int, tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    expected = written(path)
    texts = path.read_bytes().splitlines()
    texts[line] = texts[line].rpartition(b',"c":')[0] + b"}"
    path.write_bytes(b"\n".join(texts) + b"\n")
    result, damaged = read(path, expected)
    assert damaged == 1
    assert [key for key, answer in result.items() if answer is None] == [list(expected)[line - 1]]


@pytest.mark.parametrize("other", [1, 2])
def test_another_format_is_refused_by_its_number(other: int, tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    written(path)
    path.write_bytes(path.read_bytes().replace(b'{"format":3', b'{"format":%d' % other, 1))
    changed = path.read_bytes().splitlines(keepends=True)
    inside = changed[0].rpartition(b',"c":')[0]
    path.write_bytes(b"".join([journals.sealed(inside), *changed[1:]]))
    with pytest.raises(JournalError, match=f"it has format {other}, and this version of assay reads format 3"):
        Journal(path)


def test_the_header_holds_the_manifest_compressed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "responses.jsonl"
    written(path)
    assert read_header(path) == {"spec": {"tasks": ["a"]}, "created": 17.0}
    packed(path, monkeypatch)
    assert read_header(path) == {"spec": {"tasks": ["a"]}, "created": 17.0}


def test_failures_are_written_down_and_not_found_by_their_key(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    kept = Journal(path)
    kept.add([(b"a" * 16, Failed("no"))])
    kept.close()
    assert [line.entry["r"] for line in lines(path) if line.entry and "r" in line.entry] == [{"failed": "no"}]
    assert read(path, {b"a" * 16: Failed("no")}) == ({b"a" * 16: None}, 0)


def test_earlier_responses_are_claimed_once_each(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    expected = written(path, 5)
    kept = Journal(path)
    kept.add([(b"n" * 16, Text("new"))])
    assert [kept.claim(key) for key in (*expected, *expected, b"n" * 16, b"x" * 16)] == [True] * 5 + [False] * 7
    kept.close()


def test_written_lines_are_synced_without_another_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last response is followed by silence, and is synced all the same."""
    synced, sync = threading.Event(), os.fsync

    def noticed_sync(handle: int) -> None:
        sync(handle)
        if os.path.sameopenfile(handle, file.fileno()):
            synced.set()

    monkeypatch.setattr(journals, "SYNC_SECONDS", 0.001)
    path = tmp_path / "responses.jsonl"
    kept = Journal(path)
    with path.open("rb") as file:
        monkeypatch.setattr(os, "fsync", noticed_sync)
        kept.add([(b"a" * 16, Text("x"))])
        assert synced.wait(20)
        kept.close()


def test_an_error_of_syncing_is_raised_by_the_next_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SYNC_SECONDS", 0.001)
    reading, writing = os.pipe()  # it can be written, and not synced
    clock = journals._Clock(writing)
    end = time.monotonic() + 20
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            while time.monotonic() < end:
                clock.wrote()
                time.sleep(0.001)
    finally:
        clock.stop()
        os.close(reading)
        os.close(writing)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**40)), max_size=300), st.sampled_from([2, 8, 1000]))
def test_an_index_is_a_dict_of_keys_to_the_latest_offset(entries: list[tuple[int, int]], recent: int) -> None:
    from assay.runs import key_index

    before, key_index.RECENT = key_index.RECENT, recent
    try:
        index, expected = KeyIndex(), {}
        for number, offset in entries:
            key = zlib.crc32(b"%d" % number).to_bytes(4) + number.to_bytes(12)
            index.put(key, offset)
            expected[key] = offset
        assert {key: index.get(key) for key in expected} == expected
        assert index.get(b"\xff" * 16) is None
        assert len(index) == len(expected)
        assert sorted(index.offsets()) == sorted(expected.values())
    finally:
        key_index.RECENT = before


def test_a_line_about_a_started_request_is_neither_an_answer_nor_damage(tmp_path: Path) -> None:
    path = tmp_path / journals.NAME
    Journal(path, {"a": 1}).close()
    with path.open("ab") as file:
        file.write(journals.sealed(b'{"intent":"a call of a tool","k":"%s"' % (b"00" * 16)))
    opened = Journal(path, {"a": 1})
    assert opened.damaged == 0
    assert opened.get(bytes(16)) is None
    opened.close()
