"""The lambda node that scores a record with unit metrics, and what can be wrong with it before anything runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.config.option import near_miss
from assay.dialect import OURS, Dialect, dialect_of
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.graphs.spec import Record, Value
from assay.graphs.sygra import LambdaFunction
from assay.graphs.sygra_classes import UnitMetricResult, lost_result
from assay.graphs.unit_metrics import UNIT_METRICS, Compare, unit_result
from assay.records import Failed, JSONDict, UserValue
from assay.score_keys import metric_name_problem
from assay.scoring.declarations import RECORD, Metric
from assay.user_code import TIME_LIMIT, UserCodeError, alarmed, timed, user_code

ENTRY_KEYS = ("name", "params", "as", "at_max_turns")
AT_MAX_TURNS = ("not_solved", "measure", "fail")
"""What the result of a record is whose agent still called tools at its last turn: wrong with the least score, measured as it
is, or failed, so that it is left out of the mean."""
SUFFIX = "_result"
"""Behind the name of a unit metric, in the field that it writes."""
NODE_KEYS = ("golden_key", "predicted_key", "unit_metrics_map")
"""The keys of the node that are its own, beside those that every lambda node has."""
ALL_KEYS = (*NODE_KEYS, "node_type", "node_state", "lambda", "output_keys", "compat")
Places = Callable[..., Place]
"""Returns the place of a key, by its path."""


class Unmeasured(UserCodeError, ValueError):
    """No unit metric of a node could be computed."""


class UnitMetrics(LambdaFunction):
    """Scores a record: golden and predicted values of the state to a field for every unit metric.

    A metric `m` writes `m_result`; where the node declares `m` among its `output_keys` and not `m_result`, as newer
    versions of SyGra do, it writes `m`; an entry's `as` says another name. A value that is a mapping is compared as it is,
    any other as `{"text": value}`; a metric that cannot compare them has failed, and the record where all of them have.
    `compat` in the node names another dialect: with `sygra` everything is wrapped, and what cannot be compared is wrong.
    """

    @staticmethod
    def apply(lambda_node_dict: JSONDict, state: Value) -> JSONDict:
        """The state with the results."""
        return NodeMetrics.of(lambda_node_dict).apply(lambda_node_dict, state)


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """The unit metrics of a node, read once for all records: each with its name and the field that it writes."""

    metrics: Sequence[tuple[Compare, str, str]]
    dialect: Dialect

    @classmethod
    def of(cls, node: Record) -> "NodeMetrics":
        dialect = dialect_of(node.get("compat"))
        entries = [entry for entry in metric_entries(node) if not _asks(_metric(entry))]
        metrics = [(_bound(entry, dialect), entry["name"], result_field(entry, node)) for entry in entries]
        return cls(metrics, dialect)

    def apply(self, node: Record, state: Value) -> JSONDict:
        """The state with the results; `node` has the keys of both sides."""
        answer = _side(node, state, "predicted_key", self.dialect)
        right = _side(node, state, "golden_key", self.dialect) if "golden_key" in node else NOTHING
        results: JSONDict = {}
        for compare, name, field in self.metrics:
            arguments = (compare, name, right, answer)
            result = (
                alarmed(TIME_LIMIT, "a metric", _scored_as_sygra, *arguments)
                if self.dialect.takes_errors_for_wrong_answers
                else timed(TIME_LIMIT, f"unit metric {name!r}", _scored, *arguments)
            )
            if isinstance(result, Failed) and right == NOTHING and "golden_key" in node:
                result = Failed(
                    f"unit metric {name!r}: the record has no value in {node['golden_key']!r}, its golden_key"
                )
            results[field] = result if isinstance(result, Failed) else result.to_dict()
        lost = {field: result.reason for field, result in results.items() if isinstance(result, Failed)}
        if lost and len(lost) == len(results):
            raise Unmeasured("; ".join(dict.fromkeys(lost.values())))
        return {**state, **results, **{field: lost_result(reason) for field, reason in lost.items()}}


NOTHING = {"text": None}
"""The value of a side that has none."""


def unfinished_results(node: Record, state: Record, reason: str) -> JSONDict:
    """The results of a record whose agent did not finish, as the entry of each metric declares."""
    results: JSONDict = {}
    right, answer = (
        _side(node, state, key, OURS) if node.get(key) in state else NOTHING for key in ("golden_key", "predicted_key")
    )
    for entry in metric_entries(node):
        declared, field = _metric(entry), result_field(entry, node)
        # of a metric of which less is better, a score of 0 would be the best one
        rule = entry.get("at_max_turns") or ("not_solved" if declared.higher_is_better else "measure")
        if rule == "fail":
            results[field] = lost_result(reason)
        elif rule == "measure":
            results |= {field: NodeMetrics.of({**node, "unit_metrics_map": [entry]}).apply(dict(node), state)[field]}
        else:
            said = {"validator": entry["name"], "unfinished": reason}
            worst = declared.bounds[0] if declared.bounds is not None else 0.0
            results[field] = UnitMetricResult(False, right, answer, said, worst).to_dict()
    return results


def _side(node: Record, state: Record, key: str, dialect: Dialect) -> JSONDict:
    """A value of the state as metrics take it."""
    name = node[key]
    if name not in state:
        raise KeyError(f"the state has no {name!r}, which {key} names; it has {', '.join(map(str, state))}")
    value = state[name]
    return dict(value) if isinstance(value, Mapping) and not dialect.wraps_mappings_as_text else {"text": value}


def _scored(compare: Compare, name: str, right: JSONDict, answer: JSONDict) -> UnitMetricResult:
    return unit_result(name, compare(right, answer), right, answer)


def _scored_as_sygra(compare: Compare, name: str, right: JSONDict, answer: JSONDict) -> UnitMetricResult:
    """The result; SyGra takes whatever a metric raises for a wrong answer."""
    try:
        with user_code(name):
            return _scored(compare, name, right, answer)
    except UserCodeError as error:
        return UnitMetricResult(False, right, answer, {"validator": name, "error": str(error.__cause__)})


CHECKED = Place("unit_metrics_map")


def _metric(entry: Record) -> Metric:
    return UNIT_METRICS.find(str(entry.get("name")), CHECKED)


def _asks(declared: Metric) -> bool:
    """Whether a metric asks a model: then its node does that."""
    return RECORD not in declared.functions


def _bound(entry: Record, dialect: Dialect) -> Compare:
    """The metric of an entry with its parameters."""
    name, params = str(entry.get("name")), entry.get("params") or {}
    if not isinstance(params, Mapping):
        raise ConfigError.at(CHECKED, f"params of {name!r} must be a mapping", "write `params: {key: text}`")
    return UNIT_METRICS.bind(name, params, Place(f"unit metric {name!r}"), dialect)


def metric_entries(node: Record) -> Sequence[Record]:
    """Return the entries that are mappings; `check_unit_metrics` reports the others."""
    written = node.get("unit_metrics_map")
    return [each for each in written if isinstance(each, Mapping)] if isinstance(written, list | tuple) else ()


def result_field(entry: Record, node: Record) -> str:
    """The field that an entry of `unit_metrics_map` writes."""
    if entry.get("as"):
        return str(entry["as"])
    name, declared = str(entry.get("name")), _declared(node)
    return name if name in declared and f"{name}_result" not in declared else f"{name}_result"


def _declared(node: Record) -> Sequence[str]:
    written = node.get("output_keys") or ()
    return (written,) if isinstance(written, str) else tuple(written)


def judge_metrics(node: Record) -> dict[str, Value]:
    """By field the metrics of the node that ask models."""
    entries = [entry for entry in metric_entries(node) if _asks(_metric(entry))]
    return {result_field(entry, node): _bound(entry, OURS) for entry in entries}


def metrics_by_field(node: Record) -> dict[str, Metric]:
    """By field that the node writes its unit metric, where that is known."""
    entries = [entry for entry in metric_entries(node) if str(entry.get("name")) in UNIT_METRICS]
    return {result_field(entry, node): _metric(entry) for entry in entries}


def unit_metric_fields(node: Record) -> list[str]:
    """All fields that the node writes."""
    return [result_field(entry, node) for entry in metric_entries(node)]


def runs_code(node: Record) -> bool:
    """Whether one of the node's metrics executes what the model wrote."""
    return any(metric.runs_code for metric in metrics_by_field(node).values())


def check_unit_metrics(node_config: Record, place: Place, at: Places | None = None) -> list[Problem]:
    """All that is wrong with the node: what it lacks, unknown metrics and parameters, fields that clash.

    `place` is that of the node, `at` returns the place of its keys.
    """
    at = at or (lambda *_: place)
    problems = [
        Problem(at(key), f"UnitMetrics has no key {key!r}", f"did you mean {near!r}?")
        for key in node_config
        if key not in ALL_KEYS and (near := near_miss(str(key), NODE_KEYS)) is not None
    ]
    problems += [
        Problem(place, f"UnitMetrics needs {key!r}", f"add `{key}:` with a key of the state")
        for key in (*(["golden_key"] if _needs_golden(node_config) else []), "predicted_key")
        if not isinstance(node_config.get(key), str) or not node_config[key]
    ]
    entries = node_config.get("unit_metrics_map")
    if not isinstance(entries, list) or not entries:
        fix = "add `unit_metrics_map:` with a list of `name:` and `params:`"
        return [*problems, Problem(place, "UnitMetrics has no unit metrics", fix)]
    for number, entry in enumerate(entries):
        problems += _entry_problems(entry, number, at)
    if problems:
        return problems
    return _field_problems(node_config, place, at)


def _needs_golden(node: Record) -> bool:
    """Whether golden values are compared with; a node may be without them if none of its metrics does."""
    entries = metric_entries(node)
    return "golden_key" in node or not entries or any(map(_compares, entries))


def _compares(entry: Record) -> bool:
    """Whether the metric of an entry compares with golden values: unless a parameter stands in for them."""
    declared = UNIT_METRICS.get(str(entry.get("name")))
    needs, params = declared.needs_golden if declared is not None else True, entry.get("params") or {}
    return needs if isinstance(needs, bool) else not (isinstance(params, Mapping) and params.get(needs))


def shape_problems(entry: UserValue, number: int, where: str, keys: Sequence[str], place: Place) -> Iterator[Problem]:
    """Yield what is wrong with the shape of an entry of a list of metrics, which is called `where` in a file."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        fix = "write `- name: ` and a metric's name"
        yield Problem(place, f"entry {number + 1} of {where} names no metric", fix)
        return
    named = f"{where}: {entry['name']!r}"
    for key in entry:
        if key not in keys:
            yield Problem(place, f"{named} has an unknown key {key!r}", did_you_mean(str(key), keys))
    for key in ("params", "metadata"):
        if key in keys and not isinstance(entry.get(key) or {}, Mapping):
            yield Problem(place, f"{named}: {key!r} must be a mapping", f"write `{key}:` with a key a line")


def _entry_problems(entry: Record, number: int, at: Places) -> list[Problem]:
    shape = list(shape_problems(entry, number, "unit_metrics_map", ENTRY_KEYS, at("unit_metrics_map", number)))
    if shape:
        return shape
    params = entry.get("params") or {}
    rule = entry.get("at_max_turns")
    if rule is not None and rule not in AT_MAX_TURNS:
        what = f"at_max_turns of {entry['name']!r} must be {', '.join(AT_MAX_TURNS)}, got {rule!r}"
        return [Problem(at("unit_metrics_map", number, "at_max_turns"), what, did_you_mean(str(rule), AT_MAX_TURNS))]
    declared = UNIT_METRICS.get(entry["name"])
    if rule == "not_solved" and declared is not None and not declared.higher_is_better:
        what = f"less of {entry['name']!r} is better, so that it has no score for what is not solved"
        return [Problem(at("unit_metrics_map", number, "at_max_turns"), what, "write measure or fail")]
    if rule == "measure" and declared is not None and _asks(declared):
        what = f"{entry['name']!r} asks a model, which it does not for a record that did not finish"
        return [Problem(at("unit_metrics_map", number, "at_max_turns"), what, "write not_solved or fail")]
    try:
        UNIT_METRICS.bind(
            entry["name"], params, lambda key: at("unit_metrics_map", number, *(("params", key) if key else ("name",)))
        )
    except ConfigError as error:
        return list(error.problems)
    return []


def _field_problems(node: Record, place: Place, at: Places) -> list[Problem]:
    fields, declared = unit_metric_fields(node), _declared(node)
    problems: list[Problem] = []
    for number, field in enumerate(fields):
        here, wrong = at("unit_metrics_map", number), metric_name_problem(field.removesuffix(SUFFIX))
        if wrong is not None:
            problems.append(Problem(here, f"a unit metric cannot write {field!r}: {wrong[0]}", wrong[1]))
        if field in fields[:number]:
            first = at("unit_metrics_map", fields.index(field))
            what = f"two unit metrics write {field!r}: the other one is at {first}"
            problems.append(Problem(here, what, "give one of them another name with `as:`"))
    if declared:
        problems += [
            Problem(
                place, f"UnitMetrics writes {field!r}, which is none of its output_keys", "add it to `output_keys:`"
            )
            for field in dict.fromkeys(fields)
            if field not in declared
        ]
        problems += [
            Problem(place, f"no unit metric writes the output key {key!r}", did_you_mean(str(key), fields))
            for key in declared
            if key not in fields
        ]
    return problems
