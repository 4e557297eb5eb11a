"""What is held in memory: not the rows that a function made of a split, not the samples of a task that has ended."""

import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models import Scripted
from assay.samples.rows import SPILL_FROM, SpilledRows, spill_rows
from small_runs import run, write_task

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.text(max_size=3), VALUES, min_size=1, max_size=3), min_size=1, max_size=20))
def test_rows_come_back_as_they_went(some: list[dict[str, Any]]) -> None:
    rows = [some[number % len(some)] for number in range(SPILL_FROM)]
    kept = spill_rows(rows)
    assert isinstance(kept, SpilledRows)
    assert list(kept) == rows
    assert (kept[0], kept[-1], kept[3:5]) == (rows[0], rows[-1], rows[3:5])
    assert len(kept) == SPILL_FROM


def test_rows_that_would_not_come_back_stay_as_they_are() -> None:
    for value in ((1, 2), math.nan, {1: "a"}, object(), {"a"}, 2**70):
        rows = [{"q": "x"}] * (SPILL_FROM - 1) + [{"q": value}]
        assert spill_rows(rows) is rows
    few = [{"q": "x"}] * (SPILL_FROM - 1)
    assert spill_rows(few) is few


def test_many_rows_that_a_function_made_are_evaluated_as_it_made_them(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("def double(rows):\n    return rows.map(lambda row: {'q': row['q'] * 2})\n")
    rows = [{"q": f"{number} ", "gold": "a"} for number in range(SPILL_FROM + 5)]
    yaml = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nprocess_docs: !function utils.double\n"
    write_task(tmp_path, rows, yaml)
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a"))
    assert [sample["arguments"][0][0] for sample in results["samples"]["t"]] == [row["q"] * 2 for row in rows]


def test_a_task_is_scored_and_written_when_its_last_document_has_ended(tmp_path: Path) -> None:
    """A filter that must see all documents at once holds back its own task, and not the others."""
    (tmp_path / "utils.py").write_text("def same(resps, docs):\n    print(len(docs), flush=True)\n    return [r[0] for r in resps]\n")  # fmt: skip
    yaml = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nfilter_list: [{name: all, filter: [{function: custom, filter_fn: !function utils.same}]}]\n"  # fmt: skip
    for name in ("first", "second"):
        write_task(tmp_path, [{"q": f"{name} {number}", "gold": "a"} for number in range(3)], yaml, name)
    files: list[Sequence[str]] = []

    class Small(Scripted):
        async def answer(self, requests: Any) -> Any:
            files.append(sorted(file.name for file in (tmp_path / "out").rglob("*.parquet*")))
            async for piece in super().answer(requests):
                yield piece

    model = Small(generate=lambda prompt, params, repeat: "a")
    model.window = 1
    run(tmp_path, model, ["first", "second"], output_path=str(tmp_path / "out"))
    assert files == [[], [], [], ["first.parquet.part"], ["first.parquet.part"], ["first.parquet.part"]]
    assert sorted(file.name for file in (tmp_path / "out/samples").iterdir()) == ["first.parquet", "second.parquet"]


def test_rows_whose_file_cannot_be_opened_are_deleted_in_silence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SpilledRows(["a"], tmp_path / "missing/file")
    gc.collect()  # what a destructor raises is a warning, and an error here
