"""The results of tasks and groups put together as one tree, and sentences about what is missing in it."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import grouped, some
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.redaction import redacted
from assay.results import EVERY_DOCUMENT_FAILED, AuditCount, Bounds, GroupEntry, Results, Row, Share, TaskEntry
from assay.results import Estimate as EstimateRecord
from assay.runs.reasons import grouped_reasons, without_numbers
from assay.score_keys import BYPASS, ScoreKey
from assay.statistics.influence import Estimate

if TYPE_CHECKING:
    from assay.statistics.board import RowFailures

ManifestJSON = JSONObject
"""The content of a manifest.json, or a part of it."""
Ends = Callable[[Estimate], Sequence[float] | None]
"""The interval of a number."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task."""

    name: str
    alias: str
    rows: Mapping[ScoreKey, Estimate]
    scored: int
    documents: int
    expected: int
    failed: Mapping[str, int]
    noticed: Mapping[str, int]
    original: int
    num_fewshot: int
    version: object
    higher_is_better: Mapping[str, bool | None]
    config: Mapping[str, object]
    audit: Mapping[str, AuditCount]
    failures: Mapping[ScoreKey, "RowFailures"] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    details: Mapping[ScoreKey, JSONObject] = field(default_factory=dict)
    """Of some rows more than a number: the reliability curve, the sources of noise."""

    def has_lost(self, metric: str | None) -> bool:
        """Whether it lacks an expected score of this metric because documents failed or were not asked, or because
        its number has no value; None: no score at all."""
        own = [value for key, value in self.rows.items() if key.metric == metric]
        if own and all(math.isnan(value) and value.named_values is None for value in own):
            return True
        if not self.failed and self.documents >= self.expected:
            return False
        return not self.scored or (metric in self.higher_is_better and all(key.metric != metric for key in self.rows))


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of one group; `tasks` are those that its numbers consist of."""

    name: str
    alias: str
    members: Sequence[str]
    tasks: Sequence[str]
    rows: Mapping[ScoreKey, Estimate] | None
    size: int
    version: str
    metadata: Mapping[str, object]
    skipped: Mapping[str, str]
    higher_is_better: Mapping[str, bool]
    shares: Mapping[ScoreKey, Sequence["Share"]]
    failed: Mapping[ScoreKey, str] = field(default_factory=dict)
    """The rows that code was to compute and did not, each with the reason."""
    computed_by: str | None = None
    """The class of the user's that computes the rows in place of the configuration: an aggregator that was set, or a group."""


def results_tree(
    tasks: Sequence[TaskResult],
    groups: Sequence[GroupResult],
    broken: Mapping[str, str],
    max_failed: float,
    ends: Ends,
    ended: Collection[str] = (),
) -> Results:
    """The results of tasks and groups; groups come with members before those that contain them.

    Tasks that `ended` early are incomplete, even with samples.
    """
    entries = {task.name: _task_entry(task, max_failed, ends, is_ended=task.name in ended) for task in tasks}
    group_entries: dict[str, GroupEntry] = {}
    for result in groups:
        group_entries[result.name] = _group_entry(result, entries, group_entries, ends)
    has_problem = bool(broken)
    for entry in entries.values():
        has_problem |= bool(entry.failed or entry.not_asked or any(row.lacks_number for row in entry.rows))
    for group in group_entries.values():
        has_problem |= any(row.lacks_number for row in group.rows or ())
    return Results(
        tasks=entries,
        groups=group_entries,
        status="incomplete" if has_problem else "complete",
        broken=dict(broken),
    )


def _task_entry(task: TaskResult, max_failed: float, ends: Ends, *, is_ended: bool) -> TaskEntry:
    failed = sum(task.failed.values())
    is_incomplete = is_ended or failed > max_failed * max(task.documents, 1) or task.documents < task.expected
    never = sorted(set(task.higher_is_better) - {key.metric for key in task.rows}) if task.scored else ()
    return TaskEntry(
        name=task.name,
        alias=task.alias,
        rows=_task_rows(task, failed, is_incomplete, max_failed, ends),
        documents=task.documents,
        scored=task.scored,
        failed=failed,
        reasons=dict(sorted(task.failed.items())),
        is_incomplete=is_incomplete,
        not_asked=max(task.expected - task.documents, 0),
        original=task.original,
        noticed=dict(sorted(task.noticed.items())),
        remarks=list(task.remarks),
        audit=dict(task.audit),
        never_came=never,
        unscored=[key.filter for key in task.rows if key.metric == BYPASS],
        directions=dict(task.higher_is_better),
        num_fewshot=task.num_fewshot,
        version=task.version,
        config=redacted(plain(task.config), texts=False),
    )


def _task_rows(task: TaskResult, failed: int, is_incomplete: bool, max_failed: float, ends: Ends) -> list[Row]:
    """The rows of a task, then those in which every document failed."""
    rows = []
    lost = Estimate(math.nan, None, 0, EVERY_DOCUMENT_FAILED)
    for key in dict.fromkeys((*task.rows, *task.failures)):
        if key.metric == BYPASS:
            continue
        number = task.rows.get(key, lost)
        own = task.failures.get(key)  # None of numbers that a graph computes from all of its records
        details = task.details.get(key, {})
        rows.append(
            Row(
                task.name,
                key.metric,
                key.filter,
                _record(number, ends),
                failed=failed if own is None else own.documents,
                reasons={} if own is None else dict(own.reasons),
                is_incomplete=(is_incomplete if own is None else own.documents > max_failed * max(task.documents, 1)),
                lacks_number=key in task.rows and math.isnan(number) and number.named_values is None,
                higher_is_better=task.higher_is_better.get(key.metric),
                failure_bounds=_failure_bounds(number, failed, task.documents) if failed else None,
                noise=details.get("noise"),
                reliability=details.get("reliability", ()),
            )
        )
    return rows


def _record(number: Estimate, ends: Ends) -> EstimateRecord:
    """All that is known about a number: no value, and the reason, where there is none."""
    interval = ends(number)
    freedom = number.df if interval is not None else None
    return EstimateRecord(
        None if math.isnan(number) else float(number),
        number.stderr,
        None if interval is None else (interval[0], interval[1]),
        number.n,
        number.reason,
        method=number.method if interval is not None else "",
        df=round(freedom, 3) if freedom is not None and freedom < number.n - 1 else None,
        scale=number.bounds,
        unused_bounds=number.unused_bounds,
        note=number.note,
        clusters=number.draws if 0 < number.draws < number.n else None,
        named_values=None if number.named_values is None else dict(number.named_values),
    )


def _failure_bounds(number: Estimate, failed: int, documents: int) -> Bounds | None:
    """For shares: what the number would be if all that failed were wrong, and if all were right."""
    if not isinstance(number.value, float) or not 0 <= number.value <= 1 or not number.n:
        return None
    lost = min(failed, max(documents - number.n, 0))  # a document may have failed in other rows alone
    whole = number.n + lost
    return number.value * number.n / whole, (number.value * number.n + lost) / whole


def _group_entry(
    group: GroupResult, tasks: Mapping[str, TaskEntry], groups: Mapping[str, GroupEntry], ends: Ends
) -> GroupEntry:
    """The results of a group, whose members are in `tasks` and `groups` if they have results."""
    members = [groups.get(name) or tasks.get(name) for name in group.members]
    directions = _common_directions([member.directions for member in members if member is not None])
    directions |= group.higher_is_better
    run = [name for name in group.tasks if name in tasks]
    incomplete = [name for name in run if tasks[name].is_incomplete]
    entry = GroupEntry(
        name=group.name,
        alias=group.alias,
        members=list(group.members),
        size=group.size,
        directions=directions,
        metadata=plain(group.metadata),
        skipped=dict(group.skipped),
        computed_by=group.computed_by,
        num_fewshot=_common_shots(group, members),
        version=group.version,
    )
    if incomplete or len(run) < len(group.tasks):
        entry = replace(
            entry,
            is_incomplete=True,
            tasks=len(group.tasks),
            scored_tasks=sum(1 for name in run if tasks[name].scored or not tasks[name].is_incomplete),
            failed=sum(tasks[name].failed for name in run),
            not_run=[name for name in group.tasks if name not in tasks],
            incomplete_tasks=incomplete,
        )
    return replace(entry, rows=_group_rows(group, entry, ends) if group.rows is not None else None)


def _group_rows(group: GroupResult, entry: GroupEntry, ends: Ends) -> list[Row]:
    return [
        Row(
            group.name,
            key.metric,
            key.filter,
            _record(number, ends),
            failed=entry.failed,
            is_incomplete=entry.is_incomplete,
            lacks_number=key in group.failed,
            higher_is_better=entry.directions.get(key.metric),
            tasks=number.tasks,
            missing=list(number.missing),
            chosen=list(number.chosen),
            shares=group.shares.get(key),
        )
        for key, number in (group.rows or {}).items()
    ]


def _common_shots(group: GroupResult, members: Sequence[TaskEntry | GroupEntry | None]) -> int | None:
    """The number of examples of a group: its own, or that of its members where they agree."""
    own = group.metadata.get("num_fewshot")
    if isinstance(own, int):
        return own
    numbers = {None if member is None else member.num_fewshot for member in members}
    return numbers.pop() if len(numbers) == 1 else None


def _common_directions(members: Sequence[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """By metric whether more is better; None where members do not agree."""
    merged: dict[str, bool | None] = {}
    for directions in members:
        for metric, direction in directions.items():
            merged[metric] = direction if merged.get(metric, direction) == direction else None
    return merged


def plain(value: AnyJSON) -> AnyJSON:
    """A value as JSON has it; what has no place there, as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _share(what: str, count: int, documents: int) -> str:
    return f"{what}: {count}" + (f" of {documents} documents ({count / documents:.1%})" if documents >= count else "")


def _rule_line(rule: JSONObject) -> str:
    """The decision of a rule to stop, with the interval that holds whenever one stops.

    >>> _rule_line({"rule": "acc > -1pp vs main", "decision": "pass", "documents": 300, "of": 900, "value": 0.02,
    ...             "interval": [-0.008, 0.05], "unit": "pp"})
    'stop_when: acc > -1pp vs main: PASS after 300 of 900 documents: +2.00pp, anytime-valid interval -0.80pp … +5.00pp'
    """
    unit = rule.get("unit", "")

    def written(value: float) -> str:
        return f"{value * 100:+.2f}pp" if unit else f"{value:+.4f}" if rule.get("baseline") else f"{value:.4f}"

    value, ends, failed = rule.get("value"), rule.get("interval"), rule.get("failed")
    numbers = [written(value)] if value is not None else []
    numbers += [f"anytime-valid interval {written(ends[0])} … {written(ends[1])}"] if ends else []
    numbers += [f"{failed} failed, counted at their worst"] if failed else []
    said = f"{str(rule['decision']).upper()} after {rule['documents']} of {rule['of']} documents"
    return f"stop_when: {rule['rule']}: {said}" + (f": {', '.join(numbers)}" if numbers else "")


class _Remark(NamedTuple):
    """A sentence about a task, with the mark of its line."""

    task: str
    text: str
    mark: str = ""


def failure_lines(results: Results, *, with_broken: bool = True) -> list[str]:
    """List the problems of a run, a line each: failed documents, missing numbers, skipped members and tasks. What holds for
    many tasks is one line."""
    lines = [_rule_line(results.stop_when)] if results.stop_when else []
    if results.ended and not results.ended.startswith("stop_when:"):
        further = "" if results.imported else "; the same command resumes it"
        lines.append(f"ended early: {results.ended}{further}")
    if results.servers.get("restarts"):
        lines.append(_restarts_line(results.servers))
    lines += map(_fallback_line, results.fallbacks)
    if results.shard:
        lines.append(f"shard {results.shard['part']}: the results of a part; `assay merge` joins all parts")
    tasks = list(results.tasks.values())
    lines += _remark_lines([*_failed_documents(tasks), *(remark for task in tasks for remark in _remarks(task))])
    for group in results.groups.values():
        lines += _group_lines(group)
    broken = results.broken if with_broken else {}
    total = len(broken) + len(tasks)
    return lines + [f"not run: {tasks_text(names, total)}: {why}" for names, why in grouped(broken.items())]


def _group_lines(group: GroupEntry) -> Iterator[str]:
    rows = group.rows or ()
    for names, why in grouped(group.skipped.items()):
        yield f"{group.name}: left out: {tasks_text(names, noun='member')}: {why}"
    for row in rows:
        if row.estimate.note:
            yield f"{group.name}: {row.key!s}: {row.estimate.note}"
    without = [row for row in rows if row.estimate.value is None]
    for row in without:
        yield f"{group.name}: {row.key!s}: no number: {row.estimate.reason}"
    if group.is_incomplete and not without:
        named = {"not run": group.not_run, "incomplete": group.incomplete_tasks}
        reasons = "; ".join(f"{what}: {some(names)}" for what, names in named.items() if names)
        yield f"incomplete: {group.name}: {group.coverage} ({reasons})"


def _restarts_line(servers: JSONObject) -> str:
    """The sentence about servers that ended during a run.

    >>> _restarts_line({"count": 2, "restarts": 1, "reasons": ["it ended with exit code 1"]})
    '1 restart of 2 servers during the run: it ended with exit code 1'
    """
    count, number = servers["restarts"], servers["count"]
    these = f"{number} servers" if number > 1 else "the server"
    return f"{count} restart{'s' if count > 1 else ''} of {these} during the run: {some(list(dict.fromkeys(servers['reasons'])))}"


def _fallback_line(fallback: JSONObject) -> str:
    """The sentence about a faster way of computing that failed.

    >>> _fallback_line({"what": "the model runs without torch.compile", "reason": "no C compiler", "times": 1, "requests": 20})
    'the model runs without torch.compile: no C compiler; 20 requests were computed again'
    """
    count = fallback.get("requests", 0)
    again = f"; {count} request{'s were' if count > 1 else ' was'} computed again" if count else ""
    return f"{fallback['what']}: {fallback['reason']}{again}"


def tasks_text(names: Sequence[str], of: int | None = None, noun: str = "task") -> str:
    """The name of a task; of several how many they are, and some of the names.

    >>> tasks_text(["a", "b", "c", "d"], of=7), tasks_text(["a"], of=7)
    ('4 of 7 tasks (a, b, c and 1 more)', 'a')
    """
    return names[0] if len(names) == 1 else f"{len(names)}{f' of {of}' if of else ''} {noun}s ({some(names)})"


def _failed_documents(tasks: Sequence[TaskEntry]) -> Iterator[_Remark]:
    """Sentences about failed documents: of tasks with the same reasons, one with the sum of their numbers."""
    alike: dict[tuple[bool, frozenset[str]], list[TaskEntry]] = {}
    for task in tasks:
        if task.failed:
            alike.setdefault((task.is_incomplete, frozenset(map(without_numbers, task.reasons))), []).append(task)
    for (incomplete, _), entries in alike.items():
        for together in [entries] if len(entries) >= MANY else [[entry] for entry in entries]:
            counts: Counter[str] = Counter()
            for task in together:
                counts.update(task.reasons)
            reasons = grouped_reasons(counts)
            more = f"; and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
            failed, documents = sum(task.failed for task in together), sum(task.documents for task in together)
            text = f"{failed} of {documents} documents failed ({'; '.join(reasons[:3])}{more})"
            yield _Remark(tasks_text([task.name for task in together]), text, "incomplete: " if incomplete else "")


def _remarks(task: TaskEntry) -> Iterator[_Remark]:
    if task.not_asked:
        yield _Remark(task.name, f"{task.not_asked} documents were not asked", "incomplete: ")
    tied = task.audit.get("tied")
    if tied is not None and tied.count:
        text = f"all choices have the same log-likelihood in {tied.count} of {task.documents} documents"
        yield _Remark(task.name, text)
    if task.noticed:
        shares = ", ".join(_share(what, count, task.documents) for what, count in task.noticed.items())
        yield _Remark(task.name, f"answers {shares}")
    yield from (_Remark(task.name, remark) for remark in task.remarks)
    for row in task.rows:
        if row.estimate.note:
            yield _Remark(task.name, f"{row.key!s}: {row.estimate.note}")
    for row in task.rows:
        if row.lacks_number:
            yield _Remark(task.name, f"{row.key!s}: {row.estimate.reason}", "no value: ")
    for metric in task.never_came:
        yield _Remark(task.name, f"the metric {metric!r} is declared, and has no score")


MANY = 3
"""Tasks that are named in one line if the same is said of them."""


def _remark_lines(remarks: Sequence[_Remark]) -> list[str]:
    """A line for each remark; one for all tasks of which the same is said."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in remarks:
        alike.setdefault((each.mark, each.text), []).append(each.task)
    lines = []
    for each in remarks:
        names = alike[each.mark, each.text]
        if len(names) < MANY:
            lines.append(f"{each.mark}{each.task}: {each.text}")
        elif each.task == names[0]:
            lines.append(f"{each.mark}{tasks_text(names)}: {each.text}")
    return lines


def total_usage(accounts: Sequence[JSONObject]) -> JSONDict:
    """Add up the usage of parts: counts and costs are added. For seconds the maximum is kept: percentiles do not add up."""
    total: dict[str, Any] = {}
    for account in accounts:
        for key, value in account.items():
            if key == "seconds":
                known = total.get(key, {})
                total[key] = {name: max(known.get(name, 0.0), seconds) for name, seconds in value.items()}
            elif isinstance(value, Mapping):
                total[key] = total_usage([total.get(key, {}), value])
            else:
                total[key] = total.get(key, 0) + value
    return total
