"""results.json in lm-eval's layout, its `assay` section, and the order of its tasks and groups."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.config.row_names import row_name, stderr_name
from assay.errors import grouped, some
from assay.records import AnyJSON, JSONDict, JSONObject, ScoreKey
from assay.redaction import redacted
from assay.runs.reasons import grouped_reasons, without_numbers
from assay.statistics.influence import Bounds, Estimate

if TYPE_CHECKING:
    from assay.statistics.board import RowFailures

ResultsJSON = JSONObject
"""The content of a results.json, or a part of it: lm-eval's layout, and what it lacks under `assay`."""
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
    audit: Mapping[str, Any]
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


class Share(NamedTuple):
    """How far a number of a task moves a number of a group."""

    task: str
    row: ScoreKey
    slope: float


def lm_eval_results(tasks: Sequence[TaskResult], groups: Sequence[GroupResult]) -> JSONDict:
    """The results of tasks and groups; groups come with members before those that contain them."""
    rows = {
        task.name: {"name": task.name, "alias": task.alias, "sample_len": task.scored, **_written(task.rows)}
        for task in tasks
    }
    group_rows = {group.name: _group_row(group) for group in groups}
    aggregated = {group.name: group_rows[group.name] for group in groups if group.rows is not None}
    shots = {task.name: task.num_fewshot for task in tasks}
    better = {task.name: dict(task.higher_is_better) for task in tasks}
    for group in groups:
        _inherit(group, shots, better)
    versions = {**{task.name: task.version for task in tasks}, **{group.name: group.version for group in groups}}
    return {
        "results": {**rows, **group_rows},
        **({"groups": aggregated} if aggregated else {}),
        "group_subtasks": {group.name: list(group.members) for group in reversed(groups)},
        "configs": {
            task.name: redacted(plain(task.config), texts=False) for task in sorted(tasks, key=lambda task: task.name)
        },
        "versions": dict(sorted(versions.items())),
        "n-shot": dict(sorted(shots.items())),
        "higher_is_better": dict(sorted(better.items())),
        "n-samples": {task.name: {"original": task.original, "effective": task.scored} for task in tasks},
    }


def plain(value: AnyJSON) -> AnyJSON:
    """A value as JSON has it; what has no place there, as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _written(rows: Mapping[ScoreKey, Estimate]) -> JSONDict:
    row: dict[str, Any] = {}
    for key, estimate in rows.items():
        row[row_name(key)] = float(estimate) if estimate.named_values is None else dict(estimate.named_values)
        row[stderr_name(key)] = "N/A" if estimate.stderr is None else estimate.stderr
    return row


def _group_row(group: GroupResult) -> JSONDict:
    row: dict[str, Any] = {"alias": group.alias, "name": group.name}
    if group.rows is None:
        return row
    counts = {row_name(row): estimate.n for row, estimate in group.rows.items() if estimate.n}
    return {**row, "sample_len": group.size, **_written(group.rows), **({"sample_count": counts} if counts else {})}


def _inherit(group: GroupResult, shots: dict[str, int], better: dict[str, dict[str, bool | None]]) -> None:
    """A group's number of examples and directions, where its members agree. Members come first, so nesting works."""
    numbers = {shots.get(member) for member in group.members}
    if len(numbers) == 1 and None not in numbers:
        shots[group.name] = shots[group.members[0]]
    num_fewshot = group.metadata.get("num_fewshot")
    if isinstance(num_fewshot, int):
        shots[group.name] = num_fewshot
    merged: dict[str, bool | None] = {}
    for member in group.members:
        for metric, direction in better.get(member, {}).items():
            merged[metric] = direction if merged.get(metric, direction) == direction else None
    merged |= group.higher_is_better
    if merged:
        better[group.name] = merged


def assay_section(
    tasks: Sequence[TaskResult],
    groups: Sequence[GroupResult],
    broken: Mapping[str, str],
    max_failed: float,
    ends: Ends,
    ended: Collection[str] = (),
) -> JSONDict:
    """Build the `assay` section of results.json: intervals, failures, how far they can move a number, why one is missing.

    Tasks that `ended` early are incomplete, even with samples.
    """
    by_task = {task.name: _account(task, max_failed, ends) for task in tasks}
    for name in ended:
        by_task[name]["incomplete"] = True
    failed = sum(account["failed"] for account in by_task.values())
    lacking = any("no_value" in each or "not_asked" in each for each in by_task.values())
    return {
        "status": "incomplete" if failed or broken or lacking or any(group.failed for group in groups) else "complete",
        "failed": failed,
        "incomplete": [name for name, account in by_task.items() if account["incomplete"]],
        "broken": dict(broken),
        "tasks": by_task,
        "groups": {group.name: {**_completeness(group, by_task), **_group_account(group, ends)} for group in groups},
    }


def _completeness(group: GroupResult, by_task: Mapping[str, JSONObject]) -> JSONDict:
    """Whether all tasks of a group were run and are complete; else which are not."""
    run = [name for name in group.tasks if name in by_task]
    scored = [name for name in run if by_task[name]["scored"] or not by_task[name]["incomplete"]]
    incomplete = [name for name in run if by_task[name]["incomplete"]]
    if not incomplete and len(run) == len(group.tasks):
        return {"incomplete": False}
    return {
        "incomplete": True,
        "tasks": len(group.tasks),
        "scored_tasks": len(scored),
        "failed": sum(by_task[name]["failed"] for name in run),
        "not_run": [name for name in group.tasks if name not in by_task],
        "incomplete_tasks": incomplete,
    }


def coverage(group: JSONObject) -> str:
    """How much of a group was scored, from its account; nothing where that is all of it.

    >>> coverage({"incomplete": True, "tasks": 57, "scored_tasks": 1, "incomplete_tasks": []})
    '1 of 57 tasks'
    >>> coverage({"incomplete": True, "tasks": 3, "scored_tasks": 3, "incomplete_tasks": ["a"]})
    '1 of 3 tasks incomplete'
    """
    if not group.get("incomplete"):
        return ""
    if group["scored_tasks"] < group["tasks"]:
        return f"{group['scored_tasks']} of {group['tasks']} tasks"
    return f"{len(group['incomplete_tasks'])} of {group['tasks']} tasks incomplete"


def _account(task: TaskResult, max_failed: float, ends: Ends) -> JSONDict:
    failed = sum(task.failed.values())
    never = sorted(set(task.higher_is_better) - {key.metric for key in task.rows})
    without = {row_name(key): row.reason for key, row in task.rows.items() if _is_lost(row)}
    return {
        "documents": task.documents,
        "scored": task.scored,
        "failed": failed,
        "reasons": dict(sorted(task.failed.items())),
        "incomplete": failed > max_failed * max(task.documents, 1) or task.documents < task.expected,
        **({"not_asked": task.expected - task.documents} if task.documents < task.expected else {}),
        **({"noticed": dict(sorted(task.noticed.items()))} if task.noticed else {}),
        **({"remarks": list(task.remarks)} if task.remarks else {}),
        "audit": dict(task.audit),
        **({"bounds": _bounds(task, failed)} if failed else {}),
        **({"no_value": without} if without else {}),
        **({"never_came": never} if never and task.scored else {}),
        "rows": _with_failures(_described(task.rows, ends), task, max_failed),
    }


def _with_failures(described: JSONDict, task: TaskResult, max_failed: float) -> JSONDict:
    """The rows of a task, each with how many documents failed in it, and why, where they failed in this row alone.

    A row in which all documents failed has no number, and is listed here only.
    """
    for key, details in task.details.items():
        described[row_name(key)].update(details)
    for key, failures in task.failures.items():
        unknown = {
            "value": None,
            "stderr": None,
            "interval": None,
            "n": 0,
            "reason": "every document failed in this row",
        }
        row = described.setdefault(row_name(key), unknown)
        row["failed"] = failures.documents
        if failures.reasons:
            row["reasons"] = dict(failures.reasons)
        if failures.documents > max_failed * max(task.documents, 1):
            row["incomplete"] = True
    return described


def _is_lost(row: Estimate) -> bool:
    return math.isnan(row) and row.named_values is None


def _group_account(group: GroupResult, ends: Ends) -> JSONDict:
    rows = _described(group.rows or {}, ends)
    for key, shares in group.shares.items():
        written = [[each.task, row_name(each.row), each.slope] for each in shares]
        rows[row_name(key)]["of"] = written
    return {
        **({"metadata": plain(group.metadata)} if group.metadata else {}),
        **({"skipped": dict(group.skipped)} if group.skipped else {}),
        **({"computed_by": group.computed_by} if group.computed_by else {}),
        **({"no_value": {row_name(key): reason for key, reason in group.failed.items()}} if group.failed else {}),
        "rows": rows,
    }


def _described(rows: Mapping[ScoreKey, Estimate], ends: Ends) -> JSONDict:
    """All that is known about each number: null, with the reason, where there is none."""
    return {
        row_name(key): {
            "value": None if math.isnan(row) else float(row),
            **({"values": dict(row.named_values)} if row.named_values is not None else {}),
            "stderr": row.stderr,
            "interval": (both := ends(row)),
            "method": row.method or None if both is not None else None,
            **_details(row, both),
            "n": row.n,
            **({"clusters": row.draws} if 0 < row.draws < row.n else {}),
            **({"tasks": row.tasks} if row.tasks > 1 else {}),
            **({"missing": list(row.missing)} if row.missing else {}),
            **({"chosen": list(row.chosen)} if row.chosen else {}),
            **({"reason": row.reason} if row.reason else {}),
        }
        for key, row in rows.items()
    }


def _details(row: Estimate, both: Sequence[float] | None) -> JSONDict:
    """Degrees of freedom of the interval, the bounds of the number, and a note about it; where there are any."""
    freedom, limits = row.df if both is not None else None, row.bounds
    return {
        **({"df": round(freedom, 3)} if freedom is not None and freedom < row.n - 1 else {}),
        **({"scale": _both_ends(limits)} if limits is not None else {}),
        **({"unused_bounds": _both_ends(row.unused_bounds)} if row.unused_bounds is not None else {}),
        **({"note": row.note} if row.note else {}),
    }


def _both_ends(bounds: Bounds) -> list[float | None]:
    """Bounds with null for an end that is open."""
    return [each if math.isfinite(each) else None for each in bounds]


def _bounds(task: TaskResult, failed: int) -> dict[str, list[float]]:
    """For shares: what the number would be if all that failed were wrong, and if all were right."""
    bounds = {}
    for key, row in task.rows.items():
        if isinstance(row.value, float) and 0 <= row.value <= 1 and row.n:
            lost = min(failed, max(task.documents - row.n, 0))  # a document may have failed in other rows alone
            whole = row.n + lost
            bounds[row_name(key)] = [row.value * row.n / whole, (row.value * row.n + lost) / whole]
    return bounds


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


def failure_lines(account: JSONObject, *, with_broken: bool = True) -> list[str]:
    """List the problems of a run, a line each: failed documents, missing numbers, skipped members and tasks. What holds for
    many tasks is one line."""
    lines = [_rule_line(account["stop_when"])] if account.get("stop_when") else []
    if account.get("ended") and not str(account["ended"]).startswith("stop_when:"):
        further = "" if account.get("imported") else "; the same command resumes it"
        lines.append(f"ended early: {account['ended']}{further}")
    if account.get("servers", {}).get("restarts"):
        lines.append(_restarts_line(account["servers"]))
    lines += map(_fallback_line, account.get("fallbacks", ()))
    if account.get("shard"):
        lines.append(f"shard {account['shard']['part']}: the results of a part; `assay merge` joins all parts")
    tasks: Mapping[str, JSONObject] = account.get("tasks", {})
    lines += _remark_lines(
        [*_failed_documents(tasks), *(each for name, own in tasks.items() for each in _remarks(name, own))]
    )
    for group, own in account.get("groups", {}).items():
        left_out = grouped(own.get("skipped", {}).items())
        lines += [f"{group}: left out: {tasks_text(names, noun='member')}: {why}" for names, why in left_out]
        lines += [f"{group}: {row}: {about['note']}" for row, about in own["rows"].items() if about.get("note")]
        without = {row: known.get("reason", "") for row, known in own["rows"].items() if known["value"] is None}
        lines += [f"{group}: {row}: no number: {reason}" for row, reason in without.items()]
        if own.get("incomplete") and not without:
            named = {"not run": own["not_run"], "incomplete": own["incomplete_tasks"]}
            reasons = "; ".join(f"{what}: {some(names)}" for what, names in named.items() if names)
            lines.append(f"incomplete: {group}: {coverage(own)} ({reasons})")
    broken = account.get("broken", {}) if with_broken else {}
    total = len(broken) + len(tasks)
    return lines + [f"not run: {tasks_text(names, total)}: {why}" for names, why in grouped(broken.items())]


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


def _failed_documents(tasks: Mapping[str, JSONObject]) -> Iterator[_Remark]:
    """Sentences about failed documents: of tasks with the same reasons, one with the sum of their numbers."""
    alike: dict[tuple[bool, frozenset[str]], list[str]] = {}
    for name, own in tasks.items():
        if own["failed"]:
            alike.setdefault((bool(own["incomplete"]), frozenset(map(without_numbers, own["reasons"]))), []).append(
                name
            )
    for (incomplete, _), names in alike.items():
        for together in [names] if len(names) >= MANY else [[name] for name in names]:
            counts: Counter[str] = Counter()
            for name in together:
                counts.update(tasks[name]["reasons"])
            reasons = grouped_reasons(counts)
            more = f"; and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
            failed, documents = (sum(tasks[name][key] for name in together) for key in ("failed", "documents"))
            text = f"{failed} of {documents} documents failed ({'; '.join(reasons[:3])}{more})"
            yield _Remark(tasks_text(together), text, "incomplete: " if incomplete else "")


def _remarks(task: str, own: JSONObject) -> Iterator[_Remark]:
    if own.get("not_asked"):
        yield _Remark(task, f"{own['not_asked']} documents were not asked", "incomplete: ")
    tied = own.get("audit", {}).get("tied", {}).get("count")
    if tied:
        yield _Remark(task, f"all choices have the same log-likelihood in {tied} of {own['documents']} documents")
    if own.get("noticed"):
        shares = ", ".join(_share(what, count, own["documents"]) for what, count in own["noticed"].items())
        yield _Remark(task, f"answers {shares}")
    yield from (_Remark(task, remark) for remark in own.get("remarks", ()))
    rows = own.get("rows", {}).items()
    yield from (_Remark(task, f"{row}: {about['note']}") for row, about in rows if about.get("note"))
    yield from (_Remark(task, f"{row}: {reason}", "no value: ") for row, reason in own.get("no_value", {}).items())
    for metric in own.get("never_came", ()):
        yield _Remark(task, f"the metric {metric!r} is declared, and has no score")


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


def names_with_depth(results: ResultsJSON) -> Iterator[tuple[str, int]]:
    """Every line of the tree with its depth, in the order of `result_paths`."""
    return ((path[-1], len(path) - 1) for path in result_paths(results))


def result_paths(results: ResultsJSON) -> Iterator[tuple[str, ...]]:
    """The path to every line: groups that are in no other first, by name, each with its members below it; then the rest."""
    members: Mapping[str, Sequence[str]] = results.get("group_subtasks") or {}
    inside = {name for names in members.values() for name in names}

    def below(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for member in sorted(members.get(path[-1], ())):
            if member not in path:
                yield from below((*path, member))

    for name in sorted(name for name in members if name not in inside):
        yield from below((name,))
    yield from ((name,) for name in sorted(results["results"]) if name not in members and name not in inside)
