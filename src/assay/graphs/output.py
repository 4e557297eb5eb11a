"""The output of a graph: the last state to the record that is written, the files, and post-processors of all records."""

import json
import logging
import math
import operator
import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.dialect import dialect_of
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean
from assay.extension_points import ExtensionPoint
from assay.graphs.aggregator_metrics import NumberEvidence
from assay.graphs.collate import MetricCollatorPostProcessor, RecordCounts
from assay.graphs.nodes import JSON_CLASSES
from assay.graphs.reading import GraphFile
from assay.graphs.spec import JSON_TYPES, AgentSpec, Record, SchemaField, SinkConfig, SubgraphSpec, Value
from assay.graphs.sygra import BaseOutputGenerator, GraphPostProcessor, clone_around
from assay.graphs.walk import NodeFailed, State
from assay.records import Failed, JSONDict, Outcome
from assay.runs.files import new_file, write_sink
from assay.runs.outcomes import record_line
from assay.runs.samples.records import SampleRecord
from assay.samples.rows import DataError, SpilledRows
from assay.score_keys import ScoreKey
from assay.scoring.helper_code import Helpers
from assay.signatures import accepted, parameter_problems
from assay.statistics.evidence import Estimate
from assay.tasks.runnable import Estimator
from assay.user_code import call_user_code, place_of, user_code, written

LOG = logging.getLogger("assay")
Finish = Callable[[State], Record]
CLASSES: dict[str, tuple[type, ...]] = {
    **{name: JSON_CLASSES[kind] for name, kind in JSON_TYPES.items()},
    "list": (list, tuple),
    "tuple": (tuple, list),
    "set": (set,),
    "any": (object,),
}
RULES: Mapping[str, Callable[[Any, Any], bool]] = {
    "is_greater_than": operator.gt,
    "is_less_than": operator.lt,
    "is_equal_to": operator.eq,
}
"""Rules of a schema's fields, which compare a value with theirs."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_TIMED = ({"name", "arguments", "turn", "tokens"}, {"turns", "tokens"})
"""Keys beside the seconds of a tool call, and beside those of an agent."""


def make_finish(graph: GraphFile, helpers: Helpers, folder: str | None) -> Finish:
    """Return the function from last state to output record; what cannot work is raised before the first record."""
    checks, mapped = _schema(graph, helpers, folder), _output(graph, helpers, folder)

    def finish(state: State) -> Record:
        for check in checks:
            check(state)
        return mapped(state)

    return finish


def _output(graph: GraphFile, helpers: Helpers, folder: str | None) -> Finish:
    generator = graph.config.output_config.generator
    kind: Any = BaseOutputGenerator
    if generator is not None:
        place = graph.place("output_config", "generator")
        kind = helpers.dotted(generator, folder, place)
        if not hasattr(kind, "generate"):
            raise ConfigError.at(place, f"{generator} has no `generate`", "derive it from BaseOutputGenerator")
    for name, output in graph.outputs.items():
        if output.transform is not None and (generator is None or not hasattr(kind, output.transform)):
            at = graph.place("output_config", "output_map", name, "transform")
            if generator is None:
                raise ConfigError.at(at, "a transform is a method of the generator", "add generator:")
            fix = did_you_mean(output.transform, dir(kind))
            raise ConfigError.at(at, f"{generator} has no method {output.transform!r}", fix)
    has_agents = any(isinstance(node, AgentSpec | SubgraphSpec) for node in graph.nodes.values())
    without_times: Callable[[JSONDict], Record] = timeless if has_agents and generator is None else dict
    if generator is None and not graph.outputs:
        return lambda state: without_times({key: value for key, value in state.items() if not key.startswith("__")})
    raw: Any = graph.fields["output_config"]
    written = {
        name: {**dict(rule), **({"value": _constant(graph, name)} if "value" in rule else {})}
        for name, rule in (raw.get("output_map") or {}).items()
    }
    with user_code(place_of("output_config.generator", kind), DataError):
        instance = kind({**dict(raw), "output_map": written})

    def generate(state: State) -> Record:
        record = instance.generate(state)
        if not isinstance(record, Mapping):
            raise NodeFailed(f"the generator must return a record, got {type(record).__name__}")
        return without_times(dict(record))

    return generate


def timeless(value: Value) -> Value:
    """A value without the seconds that tool calls and agents took, wherever nodes and metrics put them.

    The same answers make the same file.

    >>> timeless({"all": [{"name": "f", "arguments": {}, "turn": 1, "tokens": 3, "seconds": 0.1}], "seconds": 9})
    {'all': [{'name': 'f', 'arguments': {}, 'turn': 1, 'tokens': 3}], 'seconds': 9}
    """
    if isinstance(value, list):
        return [timeless(each) for each in value]
    if not isinstance(value, dict):
        return value
    is_timed = "seconds" in value and any(keys <= value.keys() for keys in _TIMED)
    return {key: timeless(inner) for key, inner in value.items() if not (is_timed and key == "seconds")}


def _constant(graph: GraphFile, name: str) -> Value:
    """A value that is always the same; one that begins with `$` is looked up in the file."""
    value = graph.outputs[name].value
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    constant: Any = dict(graph.fields)
    for key, number in _STEP.findall(value[1:]):
        try:
            constant = constant[int(number)] if number else constant[key]
        except (KeyError, IndexError, TypeError):
            place = graph.place("output_config", "output_map", name, "value")
            known = [str(each) for each in constant] if isinstance(constant, Mapping) else []
            what = f"{value} leads nowhere: there is no {key or number!r}"
            raise ConfigError.at(place, what, did_you_mean(key, known) if known else "") from None
    return constant


def _schema(graph: GraphFile, helpers: Helpers, folder: str | None) -> list[Callable[[State], None]]:
    config = graph.config.schema_config
    if config is None:
        return []
    checks: list[Callable[[State], None]] = []
    for number, entry in enumerate(config.fields):
        outer = entry.type.partition("[")[0].strip().lower()
        if outer not in CLASSES:
            place = graph.place("schema_config", "fields", number, "type")
            raise ConfigError.at(place, f"no type named {entry.type!r}", did_you_mean(outer, CLASSES))
        checks.append(_check(entry, CLASSES[outer]))
    if config.schema is not None:
        place = graph.place("schema_config", "schema")
        kind = helpers.dotted(config.schema, folder, place)
        if not hasattr(kind, "model_validate"):
            raise ConfigError.at(place, f"{config.schema} must be a pydantic class", "derive it from BaseModel")

        def validate(state: State) -> None:
            try:
                kind.model_validate(dict(state))
            except ValueError as error:
                raise NodeFailed(f"the record does not fit {kind.__name__}: {str(error).splitlines()[0]}") from error

        checks.append(validate)
    return checks


def _check(field: SchemaField, classes: tuple[type, ...]) -> Callable[[State], None]:
    def check(state: State) -> None:
        value = state.get(field.name)
        if not isinstance(value, classes) or (
            isinstance(value, bool) and bool not in classes and object not in classes
        ):
            raise NodeFailed(
                f"the record does not fit the schema: {field.name} must be {field.type}, got {value!r:.60}"
            )
        for rule, holds in RULES.items():
            bound = getattr(field, rule)
            if bound is not None and not holds(value, bound):
                raise NodeFailed(f"the record does not fit the schema: {field.name} is {value!r:.60} ({rule})")

    return check


MANY = 25_000
"""Records up to which the output is one JSON list, where the file does not say."""
PREVIOUS = "use_previous_output"
REASON = "a number of all records together, whose error is not known: the rows of its unit metrics have errors"


@dataclass(frozen=True, slots=True)
class Processor:
    """A post-processor, made before the first request."""

    name: str
    instance: Any
    params: Record

    @property
    def takes_previous(self) -> bool:
        return bool(self.params.get(PREVIOUS))


PROCESSOR_POINT = ExtensionPoint(GraphPostProcessor, {"process": ("data", "metadata")})
METRICS = "sygra/core/eval/metrics"
"""Where SyGra looks for metrics: every module there is loaded."""


def load_metrics(graph: GraphFile, helpers: Helpers, folder: str | None) -> list[Problem]:
    """Load the modules that `imports` names, and those that a user added to SyGra's metrics; returns the problems of the
    former. A file of the latter that cannot be loaded is reported, as SyGra does, and the metrics of the others are there."""
    problems: list[Problem] = []
    for number, name in enumerate(graph.config.imports):
        place = graph.place("imports", *([number] if isinstance(graph.fields["imports"], list) else []))
        collect(problems, helpers.dotted, name, folder, place)
    around = clone_around(Path(folder).resolve()) if folder is not None else None
    tops = [top for top in dict.fromkeys((around, Path.cwd())) if top is not None]
    for file in [file for top in tops for file in sorted((top / METRICS).glob("*_metrics/[!_]*.py"))]:
        name = ".".join((METRICS.replace("/", "."), file.parent.name, file.stem))
        try:  # of a module that assay supplies, nothing is run
            helpers.dotted(name, folder, Place(str(file)))
        except ConfigError as error:
            LOG.warning("%s", error)
    return problems


def make_processors(graph: GraphFile, helpers: Helpers, folder: str | None) -> list[Processor]:
    """The post-processors of a graph; what they cannot be made with is refused."""
    processors: list[Processor] = []
    problems = load_metrics(graph, helpers, folder)
    for number, each in enumerate(graph.config.processors):
        place = graph.place("graph_post_process", number)
        try:
            if each.processor.endswith(".SemanticDedupPostProcessor") and find_spec("sentence_transformers") is None:
                what = f"{each.processor} needs sentence_transformers, which is not installed"
                raise ConfigError.at(place, what, "pip install sentence-transformers")
            kind = helpers.dotted(each.processor, folder, place)
            if not isinstance(kind, type) or not callable(getattr(kind, "process", None)):
                fix = "derive it from GraphPostProcessor"
                raise ConfigError.at(place, f"{each.processor} has no `process`", fix)
            params, takes = dict(each.params), accepted(kind)
            arguments = {k: v for k, v in params.items() if k != PREVIOUS or k in takes.named or takes.takes_any}
            problems += parameter_problems(kind, arguments, each.processor, place)
            if problems:
                continue
            with user_code(place_of("graph_post_process", kind), DataError):
                processor = kind(**arguments)
            PROCESSOR_POINT.refuse(processor, place)
            if getattr(kind, "process", None) is GraphPostProcessor.process:
                fix = "write `def process(self, data, metadata)`"
                raise ConfigError.at(place, f"{each.processor} has no `process` of its own", fix)
            processors.append(Processor(kind.__name__, processor, params))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return processors


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
    reports: JSONDict = field(default_factory=dict)
    directions: dict[str, bool] = field(default_factory=dict)
    """Whether more is better, of rows whose aggregator is a class of users that declares it."""
    _documents: "array[int]" = field(default_factory=lambda: array("q"))

    def __post_init__(self) -> None:
        form = self.form or ("json" if self.asked <= MANY else "jsonl")
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(self.created))
        self.name = f"{self.label}output_{stamp}.{form}"
        self.records = SpilledRows((), self._part() if self.folder is not None else None)

    def _part(self) -> Path:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f".{self.label}records.part"

    def add(self, kept: SampleRecord) -> None:
        """Write a record that did not fail."""
        if kept.failed:
            self.failed += 1
            return
        self.records.add(record_line(kept.scores[0].answers[0]))
        self._documents.append(kept.sample.doc_id)

    def end(self) -> None:
        """Nothing is held back."""

    def conclude(self, estimated: Estimator) -> dict[ScoreKey, Estimate]:
        """Let post-processors look at all records, each once; the numbers of the report are rows."""
        previous: Any = self.records
        rows: dict[ScoreKey, Estimate] = {}
        for each in self.processors:
            name = self._report_name(each.name)
            data = previous if each.takes_previous else self.records
            report = call_user_code(name, self._report, each, name, data, estimated, rows)
            if isinstance(report, Failed):
                rows[ScoreKey(name, "none")] = Estimate(None, None, len(self.records), report.reason)
            else:
                previous = report
        return rows

    def _report(
        self, processor: Processor, name: str, data: Value, estimated: Estimator, rows: dict[ScoreKey, Estimate]
    ) -> Value:
        """The report of one post-processor; the numbers in it are added to the rows."""
        counts = RecordCounts(self.asked, len(self.records), self.failed, self.asked - len(self.records) - self.failed)
        options = {"output_file": self.name, "params": dict(processor.params), "counts": counts, "compat": self.compat}
        made = processor.instance.process(data, options)
        if not isinstance(made, list | tuple | Mapping):
            raise TypeError(f"process returned {made!r:.60}: it must return a list")
        report = self.reports[name] = [made] if isinstance(made, Mapping) else list(made)
        if isinstance(processor.instance, MetricCollatorPostProcessor):
            taken = () if dialect_of(self.compat).keeps_last_of_equal_results else {*rows}
            for row, estimate, aggregator, number in report_rows(report, len(self.records)):
                key = row._replace(metric=f"{name}.{row.metric}") if row in taken else row  # an earlier report has it
                rows[key] = estimate
                values = processor.instance.collected.get(aggregator)
                if values is None or values.collation is None:
                    continue
                if data is self.records and number in values.evidence:
                    rows[key] = self._with_error(estimate, values.evidence[number], values.records, estimated)
                if values.collation.higher_is_better is not None:
                    self.directions[key.metric] = values.collation.higher_is_better
        return report

    def _report_name(self, kind: str) -> str:
        """Return the file name of the next report of a class: the second one has its number."""
        count = sum(name.startswith(kind) for name in self.reports)
        return f"{kind}_{count + 1}" if count else kind

    def _with_error(
        self, number: Estimate, known: NumberEvidence, records: Sequence[int], estimated: Estimator
    ) -> Estimate:
        """The number of a report with the error that follows from its records; as it is, where it is made of something else."""
        again = estimated(known.aggregation, known.values, [self._documents[record] for record in records])
        return again if math.isclose(again, number, rel_tol=1e-9, abs_tol=1e-12) else number

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
        with new_file(folder / self.name) as part, part.open("wb") as out:
            if self.name.endswith(".jsonl"):
                out.writelines(line + b"\n" for line in self.records.lines())
            else:
                out.write(b"[")
                for number, line in enumerate(self.records.lines()):
                    out.write((b",\n" if number else b"\n") + line)
                out.write(b"\n]\n")

    def place_reports(self) -> None:
        """Give what post-processors made its names, and leave the records where they came from."""
        if self.folder is None:
            return
        for name, report in self.reports.items():
            renamed = self.label + self.name[len(self.label) :].replace("output", name, 1)
            with new_file(self.folder / f"{renamed.rpartition('.')[0]}.json") as part:
                part.write_bytes(written(json.dumps(report, indent=4, ensure_ascii=False, default=str) + "\n").encode())
        self.abandon()

    def abandon(self) -> None:
        """Let go of what was put down."""
        self.records.close()
        if self.folder is not None:
            self._part().unlink(missing_ok=True)


def report_rows(report: Value, n: int) -> Iterator[tuple[ScoreKey, Estimate, str, str]]:
    """The numbers of a report as rows, each with the names of its aggregator and of the number there."""
    results = report[0].get("results", {}) if isinstance(report, list) and report else {}
    numbers = {name: [key for key, value in each.items() if _is_number(value)] for name, each in results.items()}
    labels = row_labels(numbers)
    for name, values in results.items():
        if "error" in values:
            yield ScoreKey(name, "none"), Estimate(None, None, n, str(values["error"])), name, "error"
        for key in numbers[name]:
            yield ScoreKey(labels[name, key], "none"), Estimate(float(values[key]), None, n, REASON), name, key


def row_labels(numbers: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """By aggregator and number what its row is called: as the number, or with the aggregator's name where several are so.

    >>> row_labels({"accuracy": ["accuracy"], "share": ["accuracy"], "f1": ["average"]})["share", "accuracy"]
    'share.accuracy'
    >>> row_labels({"a-accuracy": ["accuracy"], "b-accuracy": ["accuracy"]})["a-accuracy", "accuracy"]
    'a-accuracy'
    """
    names = Counter(key for keys in numbers.values() for key in keys)
    labels: dict[tuple[str, str], str] = {}
    for name, keys in numbers.items():
        for key in keys:
            whole = name if name.endswith(f"-{key}") else f"{name}.{key}"
            labels[name, key] = key if names[key] == 1 else whole
    return labels


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def outcome_of(responses: Sequence[Value]) -> Outcome:
    """Return the outcome of a graph's plan, its last response."""
    outcome = responses[-1]
    assert isinstance(outcome, Outcome), "failed records are handled before"
    return outcome
