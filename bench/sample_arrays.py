"""Samples as Arrow arrays: those built from buffers (src/assay/runs/samples/encode.py) against `pa.array(rows, type=STRUCT)`.

usage: python -m bench.sample_arrays [SAMPLES]

Prints CPU time, the least of seven rounds, of the columns that are large in every run, of their plain arrays, and of the import
of pandas, which the first `pa.array` of a process makes wherever pandas is installed; last the whole of writing a file.
"""

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.records import FilterScores, Loglikelihood, Sample
from assay.runs.samples import encode
from assay.runs.samples.arrays import text_array
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.schema import SCHEMA, type_of
from assay.runs.samples.writer import LOGLIKELIHOOD, SampleWriter
from bench.big_run import samples as generations

ROUNDS = 7
COUNT = 57_000


def choices(count: int) -> Iterator[SampleRecord]:
    """Documents with four choices each."""
    for number in range(count):
        prompt = f"Question {number}, of a length that questions of such benchmarks have on the average?\nAnswer:"
        said = [(-1.5 - choice, choice == number % 4) for choice in range(4)]
        requests = [Loglikelihood(prompt, f" {letter}") for letter in "abcd"]
        sample = Sample(number, {"question": prompt}, requests, number % 4, number % 4, tuple("abcd"))
        scores = [FilterScores("none", said, {"acc": float(number % 2), "acc_norm": 1.0})]
        yield SampleRecord(sample, [[pair] for pair in said], scores)


def cpu(work: Callable[[], object]) -> float:
    """The least CPU time of some rounds."""
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def write(records: list[SampleRecord]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = SampleWriter(Path(folder), "t")
        for record in records:
            writer.add(record)
        writer.end()


def pandas_import() -> float:
    """The CPU time that a process spends on pandas at its first `pa.array`."""
    code = "import time, pyarrow as pa; s = time.process_time(); pa.array(['a']); print(time.process_time() - s)"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3))


def compare(count: int) -> Iterator[tuple[str, float, float]]:
    """Columns with the CPU time from buffers and that of `pa.array`."""
    prompts = [
        f"Question {number} of a length that questions have on the average in such a benchmark"
        for number in range(count)
    ]
    yield "texts", cpu(lambda: text_array(prompts)), cpu(lambda: pa.array(prompts, pa.string()))

    letters = [f" {letter}" for _ in range(count) for letter in "abcd"]
    none = [None] * len(letters)
    asked = [[(LOGLIKELIHOOD, None, None, f" {letter}", None) for letter in "abcd"] for _ in range(count)]
    requests = lambda: encode.likelihood_requests([4] * count, none, letters, LOGLIKELIHOOD)  # noqa: E731
    yield "requests of 4 choices", cpu(requests), cpu(lambda: pa.array(asked, type_of(SCHEMA["requests"])))

    pairs = [[[(-1.5 - choice, choice == 0)] for choice in range(4)] for _ in range(count)]
    replies: list[Any] = [None] * count
    yield (
        "responses, 4 log-likelihoods",
        cpu(lambda: encode._responses(pairs, replies)),
        cpu(lambda: pa.array([[[(None, *each) + (None,) * 5 for each in of] for of in row] for row in pairs],
                             type_of(SCHEMA["responses"]))),
    )  # fmt: skip

    texts = [[[" 17 because a and b make that, step by step"]] for _ in range(count)]
    metadata = [[{"finish": "stop", "usage": (90, 20, 0.5, 1, 0, 0)}] for _ in range(count)]
    yield (
        "responses, a text with its usage",
        cpu(lambda: encode._responses(texts, metadata)),
        cpu(lambda: pa.array([[[(text, None, None, None, reply["finish"], None, reply["usage"], None) for text in of] for of in row]
                              for row, [reply] in zip(texts, metadata, strict=True)], type_of(SCHEMA["responses"]))),
    )  # fmt: skip

    left = [{"none": row} for [row] in texts]
    yield (
        "answers",
        cpu(lambda: encode._answers(left)),
        cpu(lambda: pa.array([[(name, [(text, None, None, None) for text in values]) for name, values in row.items()]
                              for row in left], type_of(SCHEMA["answers"]))),
    )  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    print(f"{count:,} samples, CPU ms | from buffers | pa.array")
    for name, ours, theirs in compare(count):
        print(f"{name} | {ours * 1000:.1f} | {theirs * 1000:.1f}")
    print(f"import of pandas, once | 0 | {pandas_import() * 1000:.0f}")
    for name, make in (("generations", generations), ("choices", choices)):
        records = list(make(count))
        print(f"a file of {name}, whole | {cpu(lambda records=records: write(records)) * 1000:.0f} |")  # type: ignore[misc]


if __name__ == "__main__":
    main()
