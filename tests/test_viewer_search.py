"""Samples found by text and by columns: the same as a loop over all of them would find, also where files change."""

from pathlib import Path

from bench.big_run import write_run

from assay.records import Generate, Message, Sample
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.score_keys import ScoreKey
from assay.viewer.query import Condition, SampleQuery
from assay.viewer.samples import MAX_FILES, Database, Samples


def documents(samples: Samples, query: SampleQuery) -> list[int]:
    """The documents that a query finds, in the order of the file."""
    return sorted(row.doc_id for row in samples.page(query).rows)


def test_a_text_is_found_in_prompts_messages_responses_and_targets_in_any_case(tmp_path: Path) -> None:
    chat = Generate((Message("system", "Be brief."), Message("user", "Wie heißt der FLUSS?")), {})
    texts = [
        (Generate("Viele Grüße", {}), [["no"], ["ÄPFEL (rot)"]], "x"),
        (chat, [["Rhein"]], 'say "hi"\n'),
        (Generate("a.b", {}), [["50 % _"]], "Äpfel"),
        (Generate("failed", {}), [], "fluss"),
    ]
    writer = SampleWriter(tmp_path / "samples", "t")
    for number, (request, responses, target) in enumerate(texts * 2500):
        sample = Sample(number, {"n": number}, [request] * max(len(responses), 1), target, target, prefix="")
        failed = "no answer" if not responses else ""
        writer.add(SampleRecord(sample, responses, (), failed=failed))
    writer.end()
    writer.place()
    database = Database(tmp_path)
    samples = Samples(database, database.samples(SampleFile(tmp_path / "samples/t.parquet")), None, True)
    expected = {"grÜsse": (), "GRÜSSE": (), "GRÜße": (0,), "äpfel": (0, 2), "(ROT)": (0,), "fluss": (1, 3), "brief.": (1,),
                "a.b": (2,), "axb": (), '"hi"': (1,), "% _": (2,), "rhein": (1,), "\\": ()}  # fmt: skip
    for text, places in expected.items():
        assert samples.count(SampleQuery(text=text)) == 2500 * len(places), text
        assert {row.doc_id % 4 for row in samples.page(SampleQuery(text=text)).rows} == {*places}, text


def test_a_value_is_compared_as_a_text_and_as_a_number(tmp_path: Path) -> None:
    values = [1, 1.0, "1", "01", "1x", 10, "law", "LAW", None, "nan", "inf", "1e1", -2, "-2.0", True, ""]
    writer = SampleWriter(tmp_path / "samples", "t")
    for number, value in enumerate(values):
        sample = Sample(number, {"v": value}, [Generate("p", {})], "", "", prefix="")
        writer.add(SampleRecord(sample, [["r"]], ()))
    writer.end()
    writer.place()
    database = Database(tmp_path)
    samples = Samples(database, database.samples(SampleFile(tmp_path / "samples/t.parquet")), None, True)
    expected = {"1": [0, 1, 2, 3], "1.0": [0, 1, 2, 3], "01": [0, 1, 2, 3], "1x": [4], "10": [5, 11], "law": [6], "LAW": [7],
                "nan": [9], "inf": [10], "1e1": [5, 11], "-2": [12, 13], "true": [14], "zzz": []}  # fmt: skip
    for value, places in expected.items():
        assert documents(samples, SampleQuery(conditions=(Condition("doc.v", "eq", value),))) == places, value
        others = [number for number in range(len(values)) if number not in places]
        assert documents(samples, SampleQuery(conditions=(Condition("doc.v", "ne", value),))) == others, value


def test_a_file_that_is_replaced_and_more_files_than_are_held_are_read_as_they_are(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for count in (30, 2500, 40):
        write_run(tmp_path / "same", count)
        samples = Samples(
            database,
            database.samples(SampleFile(tmp_path / "same/samples/big_sums.parquet")),
            ScoreKey("exact_match", "strict"),
            True,
        )
        assert samples.count(SampleQuery()) == count == samples.count(SampleQuery(text="lesson"))
        assert samples.count(SampleQuery(conditions=(Condition("doc_id", "lt", "20"),))) == 20
    opened = {}
    for count in range(1, 2 * MAX_FILES):
        folder = write_run(tmp_path / f"run-{count}", count)
        opened[count] = database.samples(SampleFile(folder / "samples/big_sums.parquet"))
    for count, file in opened.items():
        samples = Samples(database, file, ScoreKey("exact_match", "strict"), True)
        assert samples.count(SampleQuery(conditions=(Condition("doc_id", "gt", "-1"),))) == count
        assert len(samples.page(SampleQuery()).rows) == count
        file.close()
        assert len(samples.page(SampleQuery()).rows) == count
