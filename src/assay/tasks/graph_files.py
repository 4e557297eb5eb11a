"""What a graph leaves behind: its output, record by record, and what its post-processors make of all of it."""

import json
import math
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from assay.config.graph import SinkConfig
from assay.config.graph_reading import GraphFile
from assay.errors import ConfigError, Problem
from assay.records import Estimate, Failed, Outcome, ScoreKey
from assay.registry import accepted, parameter_problems
from assay.runs.durable import put_in_place
from assay.runs.samples import Kept
from assay.runs.sinks import write_sink
from assay.samples.rows import DataError, SpilledRows
from assay.statistics.aggregations import Aggregation
from assay.tasks.collate import Counts, Found, MetricCollatorPostProcessor
from assay.tasks.settings import Helpers
from assay.user_code import call_user_code, place_of, user_code
from assay.writable import written

MANY = 25_000
"""Records up to which the output is one JSON list, where nobody says."""
PREVIOUS = "use_previous_output"
REASON = "a number of all records together, whose error is not known: the rows of its unit metrics have errors"
Estimated = Callable[[Aggregation, Sequence[Any], Sequence[int]], Estimate]
"""A number with its error, from what it is made of: an aggregation, its values, the documents they are of."""


@dataclass(frozen=True, slots=True)
class Processor:
    """A post-processor, made before the first request."""

    name: str
    made: Any
    params: Mapping[str, Any]

    @property
    def takes_previous(self) -> bool:
        return bool(self.params.get(PREVIOUS))


def make_processors(graph: GraphFile, helpers: Helpers, folder: str | None) -> list[Processor]:
    """The post-processors of a graph; what they cannot be made with is refused."""
    found: list[Processor] = []
    problems: list[Problem] = []
    for number, each in enumerate(graph.config.processors):
        place = graph.place("graph_post_process", number)
        try:
            kind = helpers.dotted(each.processor, folder, place)
            if not isinstance(kind, type) or not callable(getattr(kind, "process", None)):
                fix = "derive it from GraphPostProcessor"
                raise ConfigError([Problem(place, f"{each.processor} has no `process`", fix)])
            params, takes = dict(each.params), accepted(kind)
            given = {k: v for k, v in params.items() if k != PREVIOUS or k in takes.named or takes.takes_any}
            problems += parameter_problems(kind, given, each.processor, place)
            if problems:
                continue
            with user_code(place_of("graph_post_process", kind), DataError):
                made = kind(**given)
            found.append(Processor(kind.__name__, made, params))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return found


@dataclass
class GraphFiles:
    """The files of one graph in one run. Records are put down as they come; post-processors read them from there.

    Without a folder nothing stays. `asked` is how many records there are to be.
    """

    folder: Path | None
    created: float
    processors: Sequence[Processor]
    form: str | None
    asked: int
    label: str = ""
    compat: str | None = None
    sinks: Sequence[SinkConfig] = ()
    failed: int = 0
    reports: dict[str, Any] = field(default_factory=dict)
    _documents: "array[int]" = field(default_factory=lambda: array("q"))

    def __post_init__(self) -> None:
        form = self.form or ("json" if self.asked <= MANY else "jsonl")
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(self.created))
        self.name = f"{self.label}output_{stamp}.{form}"
        self.records = SpilledRows((), self._part("records") if self.folder is not None else None)

    def _part(self, name: str) -> Path:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f".{self.label}{name}.part"

    def add(self, kept: Kept) -> None:
        """Put a record down, where it came to something."""
        if kept.failed:
            self.failed += 1
            return
        self.records.add(record_line(kept.scores[0].answers[0]))
        self._documents.append(kept.sample.doc_id)

    def end(self) -> None:
        """Nothing is held back."""

    def conclude(self, estimated: Estimated) -> dict[ScoreKey, Estimate]:
        """Let post-processors look at all records, each once; the numbers of the report are rows."""
        previous: Any = self.records
        rows: dict[ScoreKey, Estimate] = {}
        for each in self.processors:
            name = self._report_name(each.name)
            data = previous if each.takes_previous else self.records
            report = call_user_code(name, self._report, each, name, data, estimated, rows)
            if isinstance(report, Failed):
                rows[ScoreKey(name, "none")] = Estimate(math.nan, None, len(self.records), report.reason)
            else:
                previous = report
        return rows

    def _report(
        self, processor: Processor, name: str, data: Any, estimated: Estimated, rows: dict[ScoreKey, Estimate]
    ) -> Any:
        """The report of one post-processor; the numbers in it are added to the rows."""
        counts = Counts(self.asked, len(self.records), self.failed, self.asked - len(self.records) - self.failed)
        options = {"output_file": self.name, "params": dict(processor.params), "counts": counts, "compat": self.compat}
        report = self.reports[name] = processor.made.process(data, options)
        if isinstance(processor.made, MetricCollatorPostProcessor):
            found = {
                _of_report(key, name) if key in rows and self.compat != "sygra" else key: row
                for key, row in report_rows(report, len(self.records))
            }
            rows |= {key: row for key, (row, _, _) in found.items()}
            if data is self.records:
                rows |= self._with_errors(found, processor.made.evidence(), estimated)
        return report

    def _report_name(self, kind: str) -> str:
        """What the next report of a class is called: the second of them has its number."""
        several = sum(name.startswith(kind) for name in self.reports)
        return f"{kind}_{several + 1}" if several else kind

    def _with_errors(
        self,
        rows: Mapping[ScoreKey, tuple[Estimate, str, str]],
        evidence: Mapping[str, Mapping[str, Found]],
        estimated: Estimated,
    ) -> dict[ScoreKey, Estimate]:
        """The rows whose numbers follow from the records in a known way, with their errors."""
        made: dict[ScoreKey, Estimate] = {}
        for key, (row, aggregator, number) in rows.items():
            known = evidence.get(aggregator, {}).get(number)
            if known is not None:
                documents = [self._documents[record] for record in known.records]
                again = estimated(known.aggregation, known.values, documents)
                if math.isclose(again, row, rel_tol=1e-9, abs_tol=1e-12):  # else it is made of something else
                    made[key] = again
        return made

    def write_copies(self) -> None:
        """Put the records where `sink` wants them, too."""
        for sink in self.sinks:
            write_sink(Path(sink.file_path).expanduser(), sink.type, self.records, sink.encoding)

    def place(self) -> None:
        """Give the files their names."""
        if self.folder is not None:
            self._place_output(self.folder)
        self.place_reports()

    def _place_output(self, folder: Path) -> None:
        part = self._part("output")
        with part.open("wb") as out:
            if self.name.endswith(".jsonl"):
                out.writelines(line + b"\n" for line in self.records.lines())
            else:
                out.write(b"[")
                for number, line in enumerate(self.records.lines()):
                    out.write((b",\n" if number else b"\n") + line)
                out.write(b"\n]\n")
        put_in_place(part, folder / self.name)

    def place_reports(self) -> None:
        """Give what post-processors made its names, and leave the records where they came from."""
        if self.folder is None:
            return
        for name, report in self.reports.items():
            part = self._part(name)
            part.write_bytes(written(json.dumps(report, indent=4, ensure_ascii=False, default=str) + "\n").encode())
            renamed = self.label + self.name[len(self.label) :].replace("output", name, 1)
            put_in_place(part, self.folder / f"{renamed.rpartition('.')[0]}.json")
        self.abandon()
        self._part("records").unlink(missing_ok=True)

    def abandon(self) -> None:
        """Let go of what was put down."""
        self.records.close()


def record_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of JSON."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(record, default=_plain, option=options)
    except TypeError:  # a whole number beyond 64 bits, half a character: Python's own writes them
        return json.dumps(record, default=_plain).encode()


def _plain(value: Any) -> Any:
    for name in ("to_dict", "model_dump", "_asdict"):
        if callable(getattr(value, name, None)):
            return getattr(value, name)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return getattr(value, "content", None) or str(value)


def report_rows(report: Any, n: int) -> Iterator[tuple[ScoreKey, tuple[Estimate, str, str]]]:
    """The numbers of a report as rows, each with the names of its aggregator and of the number there."""
    results = report[0].get("results", {}) if isinstance(report, list) and report else {}
    numbers = {name: [key for key, value in each.items() if _is_number(value)] for name, each in results.items()}
    labels = row_labels(numbers)
    for name, values in results.items():
        if "error" in values:
            yield ScoreKey(name, "none"), (Estimate(math.nan, None, n, str(values["error"])), name, "error")
        for key in numbers[name]:
            yield ScoreKey(labels[name, key], "none"), (Estimate(float(values[key]), None, n, REASON), name, key)


def row_labels(numbers: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """By aggregator and number what its row is called: as the number, or with the aggregator's name where several are so.

    >>> row_labels({"accuracy": ["accuracy"], "share": ["accuracy"], "f1": ["average"]})["share", "accuracy"]
    'share.accuracy'
    """
    names = [key for several in numbers.values() for key in several]
    return {
        (name, key): key if names.count(key) == 1 else f"{name}.{key}"
        for name, several in numbers.items()
        for key in several
    }


def _of_report(key: ScoreKey, report: str) -> ScoreKey:
    """A row whose name an earlier report has, with the name of its own report before it."""
    return key._replace(metric=f"{report}.{key.metric}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def outcome_of(responses: Sequence[Any]) -> Outcome:
    """What a graph's plan came to: it stands last."""
    found = responses[-1]
    assert isinstance(found, Outcome), "a record that failed is told apart before"
    return found
