"""Sentences about what is missing in the results of a run, and sums of usage."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from assay.errors import grouped, some
from assay.number_text import format_decimal, format_points, format_share
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.redaction import redact
from assay.results import GroupEntry, Results, TaskEntry
from assay.runs.reasons import grouped_reasons, without_numbers

ManifestJSON = JSONObject
"""The content of a manifest.json, or a part of it."""


def plain(settings: AnyJSON) -> AnyJSON:
    """Settings as JSON has them, without secrets; what has no place there, as text."""
    return redact(_as_json(settings), texts=False)


def _as_json(value: AnyJSON) -> AnyJSON:
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _share(what: str, count: int, documents: int) -> str:
    share = f" of {documents} documents ({format_share(count / documents)})" if documents >= count else ""
    return f"{what}: {count}{share}"


def _rule_line(rule: JSONObject) -> str:
    """The decision of a rule to stop, with the interval that holds whenever one stops.

    >>> _rule_line({"rule": "acc > -1pp vs main", "decision": "pass", "documents": 300, "of": 900, "value": 0.02,
    ...             "interval": [-0.008, 0.05], "unit": "pp"})
    'stop_when: acc > -1pp vs main: PASS after 300 of 900 documents: +2.00pp, anytime-valid interval -0.80pp … +5.00pp'
    """
    unit = rule.get("unit", "")

    def written(value: float) -> str:
        return format_points(value) if unit else format_decimal(value, is_signed=bool(rule.get("baseline")))

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
    for reason in dict.fromkeys(row.estimate.reason for row in without):
        names = [str(row.key) for row in without if row.estimate.reason == reason]
        yield f"{group.name}: {some(names)}: no number: {reason}"
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
