"""Writes a run of many samples with assay's own writers, for measuring what reads runs.

usage: python -m bench.big_run FOLDER [SAMPLES]
"""

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from assay.records import FilterScores, Generate, Sample
from assay.results import AuditCount, Results, Row, TaskEntry
from assay.runs.folder import MANIFEST, RESULTS, SAMPLES, write_json
from assay.runs.results_json import encode
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.runs.validation import FORMAT
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.intervals import with_interval

TASK = "big_sums"
PARAMS = {"until": ["\n"], "do_sample": False, "temperature": 0.0}
PREFIX = "".join(f"{n} + {n} = {2 * n}\n\n" for n in range(5))
SUBJECTS = ("algebra", "anatomy", "astronomy", "botany", "chemistry", "geology", "history", "law", "music", "physics")


def samples(count: int, changed: int = 0) -> Iterator[SampleRecord]:
    """Sums of which about a third is wrong; every 500th answer is cut off, every 2,000th document failed.

    With `changed`, every so-manieth is right where it would be wrong, and the other way round: another run of the same sums.
    """
    drawn = random.Random(1)
    for number in range(count):
        a, b = drawn.randrange(10**6), drawn.randrange(10**6)
        right = (drawn.random() < 0.65) is not (changed > 0 and number % changed == 0)
        subject, level = SUBJECTS[number % len(SUBJECTS)], drawn.randrange(1, 6)
        question = (
            f"In a lesson on {subject}, of level {level}, somebody asks what is {a} + {b}. Sample {number}.\nThe sum is"
        )
        doc = {"question": question, "a": a, "b": b, "answer": str(a + b), "subject": subject, "level": level}
        sample = Sample(number, doc, [Generate(PREFIX + question, PARAMS)], doc["answer"], doc["answer"], prefix=PREFIX)
        if number % 2000 == 1999:
            yield SampleRecord(sample, (), (), failed="the server did not answer within 60 s", audit=("failed",))
            continue
        said = f" {a + b if right else a + b + drawn.randrange(1, 99)} because {a} and {b} make that, step by step"
        scores = [
            FilterScores(name, [said.split()[0]], {"exact_match": float(right)}) for name in ("strict", "flexible")
        ]
        cut = number % 500 == 0
        reply = [{"finish": "length" if cut else "stop", "usage": (90, 20, 0.5, 1, 0, 0)}]
        yield SampleRecord(sample, [[said]], scores, replies=reply, audit=("truncated",) if cut else ())


def write_run(folder: Path, count: int, changed: int = 0) -> Path:
    """The folder of a run with so many samples; with `changed`, of another run of the same."""
    writer = SampleWriter(folder / SAMPLES, TASK)
    right = scored = failed = 0
    for kept in samples(count, changed):
        writer.add(kept)
        failed += bool(kept.failed)
        scored += not kept.failed
        right += bool(kept.scores and kept.scores[0].values["exact_match"])
    writer.end()
    writer.place()
    write_numbers(folder, TASK, (right, scored, failed))
    return folder


def write_numbers(folder: Path, task: str | list[str], counts: tuple[int, int, int]) -> None:
    """Manifest and results of a run of one task, or of several, with so many right, scored and failed; of each further task,
    seven more are right."""
    right, scored, failed = counts

    def rows(name: str, number: int) -> list[Row]:
        share = (right + 7 * number) % (scored + 1) / max(scored, 1)
        error = (share * (1 - share) / max(scored, 1)) ** 0.5
        estimate = with_interval(Estimate(share, error, scored, evidence=Evidence(is_rate=True)))
        filters = ("strict", "flexible")
        return [Row(name, "exact_match", each, estimate, failed, higher_is_better=True) for each in filters]

    audit = {"failed": AuditCount(failed), "truncated": AuditCount((scored + failed) // 500)}
    tasks = [task] if isinstance(task, str) else task
    entries = {
        name: TaskEntry(
            name,
            name,
            rows(name, number),
            scored + failed,
            scored,
            failed,
            {"no answer": failed} if failed else {},
            original=scored + failed,
            num_fewshot=5,
            version=1.0,
            directions={"exact_match": True},
            config={"task": name, "output_type": "generate_until"},
            audit=audit,
        )
        for number, name in enumerate(tasks)
    }
    about = {"config": {"model": "scripted", "model_args": {}}, "facts": {"total_evaluation_time_seconds": "3600"}}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RESULTS, encode(Results(entries, **about)))
    size = {"size": scored + failed, "repeats": 1}
    noted = {"created": time.time(), "status": "complete", "tasks": dict.fromkeys(tasks, size)}
    write_json(folder / MANIFEST, {"format": FORMAT, "model": {"name": "scripted"}, **noted})


if __name__ == "__main__":
    write_run(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
