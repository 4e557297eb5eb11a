"""The lambda node that scores a record with unit metrics, and what can be wrong with it before anything runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from assay.config.option import near_miss
from assay.dialect import OURS, Dialect, dialect_of
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean
from assay.graphs.spec import Record, Value
from assay.graphs.sygra import LambdaFunction
from assay.graphs.sygra_classes import UnitMetricResult, as_mapping, lost_result
from assay.graphs.unit_metrics import UNIT_METRICS, Compare, measure
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
        return bind_unit_metrics(lambda_node_dict)(lambda_node_dict, state)


def bind_unit_metrics(node: Record) -> Callable[[Record, Value], JSONDict]:
    """Return the function of node and state that scores a record: the node's metrics are read once for all records."""
    dialect = dialect_of(node.get("compat"))
    metrics = [(entry.bind(dialect), entry.name, entry.field) for entry in read_unit_entries(node) if not entry.asks]

    def score(node: Record, state: Value) -> JSONDict:
        answer = _side(node, state, "predicted_key", dialect)
        right = _side(node, state, "golden_key", dialect) if "golden_key" in node else NOTHING
        results: JSONDict = {}
        lost: dict[str, str] = {}
        for compare, name, field in metrics:
            arguments = (compare, name, right, answer)
            result = (
                alarmed(TIME_LIMIT, "a metric", _measure_as_sygra, *arguments)
                if dialect.takes_errors_for_wrong_answers
                else timed(TIME_LIMIT, f"unit metric {name!r}", measure, *arguments)
            )
            if not isinstance(result, Failed):
                results[field] = result.to_dict()
                continue
            lost[field] = result.reason
            if right == NOTHING and "golden_key" in node:
                what = f"the record has no value in {node['golden_key']!r}, its golden_key"
                lost[field] = f"unit metric {name!r}: {what}"
            results[field] = lost_result(lost[field])
        if lost and len(lost) == len(results):
            raise Unmeasured("; ".join(dict.fromkeys(lost.values())))
        return {**state, **results}

    return score


NOTHING = {"text": None}
"""The value of a side that has none."""


def unfinished_results(node: Record, state: Record, reason: str) -> JSONDict:
    """The results of a record whose agent did not finish, as the entry of each metric declares."""
    results: JSONDict = {}
    right, answer = (
        _side(node, state, key, OURS) if node.get(key) in state else NOTHING for key in ("golden_key", "predicted_key")
    )
    for entry in read_unit_entries(node):
        declared = UNIT_METRICS[entry.name]
        # of a metric of which less is better, a score of 0 would be the best one
        rule = entry.written.get("at_max_turns") or ("not_solved" if declared.higher_is_better else "measure")
        if rule == "fail":
            results[entry.field] = lost_result(reason)
        elif rule == "measure":
            alone = {**node, "unit_metrics_map": [entry.written]}
            results[entry.field] = bind_unit_metrics(alone)(node, state)[entry.field]
        else:
            said = {"validator": entry.name, "unfinished": reason}
            worst = declared.bounds[0] if declared.bounds is not None else 0.0
            results[entry.field] = UnitMetricResult(False, right, answer, said, worst).to_dict()
    return results


def _side(node: Record, state: Record, key: str, dialect: Dialect) -> JSONDict:
    """A value of the state as metrics take it."""
    name = node[key]
    if name not in state:
        raise KeyError(f"the state has no {name!r}, which {key} names; it has {', '.join(map(str, state))}")
    value = state[name]
    return {"text": value} if dialect.wraps_mappings_as_text else as_mapping(value)


def _measure_as_sygra(compare: Compare, name: str, right: JSONDict, answer: JSONDict) -> UnitMetricResult:
    """The result; SyGra takes whatever a metric raises for a wrong answer."""
    try:
        with user_code(name):
            return measure(compare, name, right, answer)
    except UserCodeError as error:
        return UnitMetricResult(False, right, answer, {"validator": name, "error": str(error.__cause__)})


class UnitEntry(NamedTuple):
    """An entry of `unit_metrics_map`, and the field that it writes."""

    written: Record
    name: str
    field: str

    @property
    def declared(self) -> Metric | None:
        """The metric, where its name is known."""
        return UNIT_METRICS.get(self.name)

    @property
    def asks(self) -> bool:
        """Whether the metric asks a model: then its node does that."""
        return self.declared is not None and RECORD not in self.declared.functions

    @property
    def needs_golden(self) -> bool:
        """Whether the metric compares with golden values: unless a parameter stands in for them."""
        needs = self.declared.needs_golden if self.declared is not None else True
        params = self.written.get("params")
        return needs if isinstance(needs, bool) else not (isinstance(params, Mapping) and params.get(needs))

    def bind(self, dialect: Dialect) -> Compare:
        """The metric with its parameters."""
        place, params = Place(f"unit metric {self.name!r}"), self.written.get("params") or {}
        if not isinstance(params, Mapping):
            raise ConfigError.at(place, f"params of {self.name!r} must be a mapping", "write `params: {key: text}`")
        return UNIT_METRICS.bind(self.name, params, place, dialect)


def read_unit_entries(node: Record) -> list[UnitEntry]:
    """Return the entries that are mappings; `check_unit_metrics` reports the others."""
    written, declared = node.get("unit_metrics_map"), _declared(node)
    entries = []
    for entry in written if isinstance(written, list | tuple) else ():
        if isinstance(entry, Mapping):
            name = str(entry.get("name"))
            usual = name if name in declared and name + SUFFIX not in declared else name + SUFFIX
            entries.append(UnitEntry(entry, name, str(entry.get("as") or usual)))
    return entries


def _declared(node: Record) -> Sequence[str]:
    written = node.get("output_keys") or ()
    return (written,) if isinstance(written, str) else tuple(written)


def judge_metrics(node: Record) -> dict[str, Value]:
    """By field the metrics of the node that ask models."""
    return {entry.field: entry.bind(OURS) for entry in read_unit_entries(node) if entry.asks}


def unit_metric_fields(node: Record) -> list[str]:
    """All fields that the node writes."""
    return [entry.field for entry in read_unit_entries(node)]


def runs_code(node: Record) -> bool:
    """Whether one of the node's metrics executes what the model wrote."""
    known = [entry.declared for entry in read_unit_entries(node)]
    return any(declared is not None and declared.runs_code for declared in known)


def check_unit_metrics(node_config: Record, at: Places) -> list[Problem]:
    """All that is wrong with the node: what it lacks, unknown metrics and parameters, fields that clash.

    `at` returns the place of the node, or of its keys.
    """
    problems = [
        Problem(at(key), f"UnitMetrics has no key {key!r}", f"did you mean {near!r}?")
        for key in node_config
        if key not in ALL_KEYS and (near := near_miss(str(key), NODE_KEYS)) is not None
    ]
    # a node may be without golden values if none of its metrics compares with them
    known = read_unit_entries(node_config)
    needs_golden = "golden_key" in node_config or not known or any(entry.needs_golden for entry in known)
    problems += [
        Problem(at(), f"UnitMetrics needs {key!r}", f"add `{key}:` with a key of the state")
        for key in (*(["golden_key"] if needs_golden else []), "predicted_key")
        if not isinstance(node_config.get(key), str) or not node_config[key]
    ]
    entries = node_config.get("unit_metrics_map")
    if not isinstance(entries, list) or not entries:
        fix = "add `unit_metrics_map:` with a list of `name:` and `params:`"
        return [*problems, Problem(at(), "UnitMetrics has no unit metrics", fix)]
    for number, entry in enumerate(entries):
        problems += _entry_problems(entry, number, at)
    if problems:
        return problems
    return _field_problems(node_config, at)


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


def name_problems(named: Sequence[tuple[str, Place]], cannot: str, twice: str) -> Iterator[Problem]:
    """Yield the names of fields or numbers that results would read otherwise, and those that come twice."""
    seen: dict[str, Place] = {}
    for name, place in named:
        wrong = metric_name_problem(name.removesuffix(SUFFIX))
        if wrong is not None:
            yield Problem(place, f"{cannot} {name!r}: {wrong[0]}", wrong[1])
        if name in seen:
            what = f"{twice} {name!r}: the other one is at {seen[name]}"
            yield Problem(place, what, "give one another name with `as:`")
        seen.setdefault(name, place)


def _entry_problems(entry: Record, number: int, at: Places) -> list[Problem]:
    shape = list(shape_problems(entry, number, "unit_metrics_map", ENTRY_KEYS, at("unit_metrics_map", number)))
    if shape:
        return shape
    declared, rule = UNIT_METRICS.get(entry["name"]), entry.get("at_max_turns")
    if rule is not None and rule not in AT_MAX_TURNS:
        what = f"at_max_turns of {entry['name']!r} must be {', '.join(AT_MAX_TURNS)}, got {rule!r}"
        fix = did_you_mean(str(rule), AT_MAX_TURNS)
    elif rule == "not_solved" and declared is not None and not declared.higher_is_better:
        what = f"less of {entry['name']!r} is better, so that it has no score for what is not solved"
        fix = "write measure or fail"
    elif rule == "measure" and declared is not None and RECORD not in declared.functions:
        what = f"{entry['name']!r} asks a model, which it does not for a record that did not finish"
        fix = "write not_solved or fail"
    else:

        def place_of(key: str) -> Place:
            return at("unit_metrics_map", number, *(("params", key) if key else ("name",)))

        problems: list[Problem] = []
        collect(problems, UNIT_METRICS.bind, entry["name"], entry.get("params") or {}, place_of)
        return problems
    return [Problem(at("unit_metrics_map", number, "at_max_turns"), what, fix)]


def _field_problems(node: Record, at: Places) -> list[Problem]:
    fields, declared = unit_metric_fields(node), _declared(node)
    said = ("a unit metric cannot write", "two unit metrics write")
    problems = list(name_problems([(field, at("unit_metrics_map", n)) for n, field in enumerate(fields)], *said))
    if declared:
        problems += [
            Problem(at(), f"UnitMetrics writes {field!r}, which is none of its output_keys", "add it to `output_keys:`")
            for field in dict.fromkeys(fields)
            if field not in declared
        ]
        problems += [
            Problem(at(), f"no unit metric writes the output key {key!r}", did_you_mean(str(key), fields))
            for key in declared
            if key not in fields
        ]
    return problems
