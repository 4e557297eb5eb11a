"""What a graph leaves behind: its output, record by record, and what its post-processors make of all of it."""

import inspect
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from assay.config.graph import SinkConfig
from assay.config.graph_reading import GraphFile
from assay.errors import ConfigError, Problem, did_you_mean
from assay.records import Estimate, Outcome, ScoreKey
from assay.runs.samples import Kept
from assay.runs.sinks import write_sink
from assay.samples.spill import Spilled
from assay.tasks.collate import Counts, MetricCollatorPostProcessor
from assay.tasks.settings import Helpers

MANY = 25_000
"""Records up to which the output is one JSON list, where nobody says."""
PREVIOUS = "use_previous_output"
REASON = "a number of all records together: the rows of its unit metrics have errors"


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
            params = dict(each.params)
            known = inspect.signature(kind).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
                given = {key: value for key, value in params.items() if key != PREVIOUS or key in known}
                for key in given:
                    if key not in known:
                        what = f"{each.processor} has no parameter {key!r}"
                        raise ConfigError([Problem(place, what, did_you_mean(key, known))])
            else:
                given = params
            found.append(Processor(kind.__name__, kind(**given), params))
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

    def __post_init__(self) -> None:
        form = self.form or ("json" if self.asked <= MANY else "jsonl")
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(self.created))
        self.name = f"{self.label}output_{stamp}.{form}"
        self.records = Spilled((), self._part("records") if self.folder is not None else None)

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

    def end(self) -> None:
        """Nothing is held back."""

    def conclude(self) -> dict[ScoreKey, Estimate]:
        """Let post-processors look at all records, each once; the numbers of the report are rows."""
        counts = Counts(self.asked, len(self.records), self.failed, self.asked - len(self.records) - self.failed)
        previous: Any = self.records
        rows: dict[ScoreKey, Estimate] = {}
        for each in self.processors:
            data = previous if each.takes_previous else self.records
            told = {"output_file": self.name, "params": dict(each.params), "counts": counts, "compat": self.compat}
            try:
                previous = each.made.process(data, told)
                self.reports[each.name] = previous
                if isinstance(each.made, MetricCollatorPostProcessor):
                    rows |= dict(report_rows(previous, len(self.records)))
            except Exception as error:  # noqa: BLE001  # anybody's code, after everything was asked: told, the rest stands
                reason = f"{each.name} raised {type(error).__name__}: {error}"
                rows[ScoreKey(each.name, "none")] = Estimate(math.nan, None, len(self.records), reason)
        return rows

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
        part.replace(folder / self.name)

    def place_reports(self) -> None:
        """Give what post-processors made its names, and leave the records where they came from."""
        if self.folder is None:
            return
        for name, report in self.reports.items():
            part = self._part(name)
            part.write_text(json.dumps(report, indent=4, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
            renamed = self.label + self.name[len(self.label) :].replace("output", name, 1)
            part.replace(self.folder / f"{renamed.rpartition('.')[0]}.json")
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


def report_rows(report: Any, n: int) -> Iterator[tuple[ScoreKey, Estimate]]:
    """The numbers of a report as rows; where several are called alike, with the name of their aggregator before them."""
    results = report[0].get("results", {}) if isinstance(report, list) and report else {}
    names = [key for each in results.values() for key, value in each.items() if _is_number(value)]
    for name, values in results.items():
        if "error" in values:
            yield ScoreKey(name, "none"), Estimate(math.nan, None, n, str(values["error"]))
        for key, value in values.items():
            if _is_number(value):
                label = key if names.count(key) == 1 else f"{name}.{key}"
                yield ScoreKey(label, "none"), Estimate(float(value), None, n, REASON)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def outcome_of(responses: Sequence[Any]) -> Outcome:
    """What a graph's plan came to: it stands last."""
    found = responses[-1]
    assert isinstance(found, Outcome), "a record that failed is told apart before"
    return found
