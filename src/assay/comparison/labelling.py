"""Labels for the documents of a judged run: which to label, a table to fill in, the judge's numbers corrected by them, and the
card of a judge: how far it agrees with people, and what it lets itself be led by."""

import csv
import math
import random
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from assay.comparison.pairing import PairedColumn, TaskScores, scoring_configs, task_scores
from assay.errors import ConfigError, Place, Problem, did_you_mean, some
from assay.records import Floats, JSONDict, JSONObject, mapping
from assay.results import Row, Share, keys
from assay.runs.files import write_sink
from assay.runs.folder import RunError
from assay.runs.labels import (
    SUFFIX,
    Corrections,
    PersonLabel,
    TaskLabels,
    answer_digest,
    append_labels,
    corrected_key,
    judged_answer,
)
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.samples.records import StoredSample, shown_texts
from assay.runs.samples.turns import shown_prompt
from assay.safe_text import spreadsheet_cell
from assay.score_keys import ScoreKey, spellings
from assay.scoring.judges import PREFERENCE, RUBRIC
from assay.statistics.aggregations import krippendorff_alpha
from assay.statistics.agreement import kappa, spearman
from assay.statistics.arrays import estimate
from assay.statistics.evidence import Estimate
from assay.statistics.intervals import method, student, with_interval
from assay.statistics.jackknife import Pairs, jackknifed
from assay.statistics.labels import Corrected
from assay.statistics.members import weighted_sum
from assay.statistics.spread import MemberEstimate

JUDGE, SHARE = "llm_judge", (0.0, 1.0)
PLANNED = (50, 100, 300)
"""Numbers of labels for which a plan has the width of intervals; of fewer documents, for all of them."""
FEWEST = 2
"""So few labels have no interval."""
AGREEMENT = (0.5, 0.7, 0.9)
"""Correlations of labels with verdicts for which a plan has the width of intervals: those of poor, fair and good judges."""
WHOLE = re.compile(r"\d+(\.0+)?")
WRONG_SIZE = "wrong size"
"""In a record that was read: how many cells it has, if they are not as many as there are columns."""
CSV_FIELD = 10_000_000
"""Characters that a cell may have: those of an answer, where the usual limit is 131,072."""


class JudgeRows(NamedTuple):
    """The rows of a task that one judge gave, and the scale of its scores: as people use it, and as they are stored."""

    task: str
    keys: Sequence[ScoreKey]
    scale: tuple[float, float]
    bounds: tuple[float, float]
    other: str | None = None
    """Of a judge of pairs: the column with the answer to compare with."""


def judge_rows(run: Run, tasks: Sequence[str] = (), metric: str | None = None) -> list[JudgeRows]:
    """The rows of each task that a judge gave; or those of another `metric`, which is then corrected as if it were a judge."""
    for name in tasks:
        if name not in run.scored_tasks:
            what = f"no task named {name!r} has results in this run"
            raise ConfigError.at("--task", what, did_you_mean(name, run.scored_tasks))
    by_task = [_of_task(run, task, metric) for task in tasks or run.scored_tasks]
    rows = [each for each in by_task if each is not None]
    if not rows:
        what = f"no task has the metric {metric!r}" if metric else "no task of this run has a row of a judge"
        fix = "name the row that people are to check: --metric NAME"
        raise ConfigError.at(run.path, what, fix)
    return rows


def _of_task(run: Run, task: str, metric: str | None) -> JudgeRows | None:
    rows = run.rows(task)
    keys = [key for key in rows if rows[key].estimate.value is not None and not key.metric.endswith(SUFFIX)]
    selected = [key for key in keys if metric is None or metric in spellings(key)]
    for kwargs, only in _judges_of(run.config(task)):
        own = [key for key in selected if _is_judge(key) and only in (None, key.filter)]
        if own:
            low, high = (0, 1) if kwargs.get("pairwise") else kwargs.get("scale") or (1, 10)
            scale, is_share = (float(low), float(high)), kwargs.get("pairwise") or kwargs.get("normalize", True)
            same_filter = [key for key in own if key.filter == own[0].filter]
            return JudgeRows(task, same_filter, scale, SHARE if is_share else scale, kwargs.get("baseline"))
    return JudgeRows(task, selected[:1], SHARE, SHARE) if metric is not None and selected else None


def judge_instructions(run: Run, rows: JudgeRows) -> str:
    """How the judge of these rows must grade; people grade by the same words."""
    kwargs = next((own for own, only in _judges_of(run.config(rows.task)) if only in (None, rows.keys[0].filter)), None)
    if kwargs is None:
        return ""
    return str(kwargs.get("rubric") or kwargs.get("prompt") or (PREFERENCE if rows.other else RUBRIC))


def labelled_rows(run: Run) -> list[JudgeRows]:
    """The rows that people checked, as far as their labels are about the run's answers."""
    checked = []
    for task, about in run.labels.items():
        keys, judge = about.rows, _of_task(run, task, None)
        if keys and corrected_key(keys[0]) in run.rows(task):
            other = judge.other if judge is not None else None
            checked.append(JudgeRows(task, keys, about.scale, about.bounds, other))
    return checked


def _is_judge(key: ScoreKey) -> bool:
    return key.metric == JUDGE or (key.metric.startswith(f"{JUDGE}[") and key.metric.endswith("]"))


def _judges_of(config: JSONObject) -> Iterator[tuple[JSONObject, str | None]]:
    """The parameters of the judges of a task, and the filter whose answers each sees, where it is one."""
    for part in scoring_configs(config):
        only = None if part is config else part.get("name")
        yield from ((kwargs, only) for kwargs in _judges(part.get("scorer")))


def _judges(written: Any) -> Iterator[JSONObject]:
    """The parameters of a scorer that is a judge, and of those in an ensemble."""
    about = written if isinstance(written, Mapping) else {"type": written}
    kwargs = mapping(about.get("kwargs"))
    if about.get("type") == JUDGE:
        yield kwargs
    for member in kwargs.get("scorers") or ():
        yield from _judges(member)


@dataclass(frozen=True)
class Plan:
    """Documents of a task to label, by chance, and the widths of the interval to expect: of labels alone, and with the judge."""

    rows: JudgeRows
    documents: Sequence[int]
    labelled: int
    n: int
    widths: Mapping[int, Sequence[float]]


def plan_labels(run: Run, rows: JudgeRows, count: int, *, seed: int = 0, by: str | None) -> Plan:
    """Choose documents in a random order that only the seed and the run decide: asked for more, it continues where it was.

    Those that have a label are done; or those that have one `by` a person: so all people label the same ones.
    """
    verdicts = scored_documents(run, rows)
    documents = [*verdicts]
    shuffled = sorted(documents)
    random.Random(f"{seed} {run.source(rows.task)} {rows.task}").shuffle(shuffled)
    known = run.labels.get(rows.task)
    people = known.people if known is not None else {}
    done = people.get(by, {}) if by is not None else (known.labels if known is not None else {})
    left = [document for document in shuffled if document not in done][: max((count or len(documents)) - len(done), 0)]
    spread = float(np.std([*verdicts.values()]))
    spread = max(spread, 0.1 * (rows.bounds[1] - rows.bounds[0]))
    n = len(documents)
    counts = [count for count in PLANNED if count <= n] or [n] * (n > FEWEST)
    widths = {count: [_width(spread, count, n, agreement) for agreement in (0.0, *AGREEMENT)] for count in counts}
    return Plan(rows, left, len(done), n, widths)


def scored_documents(run: Run, rows: JudgeRows) -> dict[int, float]:
    """The documents that have a score in these rows, so that they can be labelled, with it."""
    scores = _scores(run, rows.task)
    column = scores.values[rows.keys[0]]
    _check_scores(rows, column)
    return dict(zip(scores.documents[column.present].tolist(), column.present_values, strict=True))


def _check_scores(rows: JudgeRows, column: PairedColumn) -> None:
    """Refuse a row that has no number for each document, or has some that are off the scale of the labels."""
    numbers = column.present_values
    low, high = rows.bounds
    if all(isinstance(each, int | float) and low <= each <= high for each in np.asarray(numbers, object).tolist()):
        return
    what = f"{rows.task}: not every score of {rows.keys[0].metric!r} is a number from {low:g} to {high:g}"
    raise ConfigError.at("--metric", what, "labels correct scores with bounds: name another row")


def _width(spread: float, labels: int, n: int, agreement: float) -> float:
    variance = spread**2 * ((1 - agreement**2) / labels + agreement**2 / n)
    return 2 * student(0.95, labels - 2) * math.sqrt(variance)


def _scores(run: Run, task: str) -> TaskScores:
    scores = task_scores(run, task)
    if scores is None:
        raise RunError.at(run.path, f"the samples of {task!r} are missing", "restore them")
    return scores


def write_table(run: Run, plans: Sequence[Plan], path: Path, *, seen: bool) -> int:
    """Write the documents of the plans as a table with an empty column `label`; `seen` adds what the judge gave."""
    if path.exists():
        fix = "move it, or write elsewhere: -o FILE"
        raise ConfigError.at(path, "the file exists, and may hold labels", fix)
    has_pairs = any(plan.rows.other for plan in plans)  # one table has one set of columns
    records = [record for plan in plans for record in _records(run, plan, seen=seen, has_pairs=has_pairs)]
    if not records:
        what = f"{sum(plan.labelled for plan in plans)} documents have labels already"
        raise ConfigError.at("-n", what, "ask for more of them with a larger number")
    write_sink(path, "csv", records, "utf-8")
    return len(records)


def _records(run: Run, plan: Plan, *, seen: bool, has_pairs: bool) -> Iterator[JSONDict]:
    file, rows = _scores(run, plan.rows.task).file, plan.rows
    order = {document: place for place, document in enumerate(plan.documents)}
    samples = sorted((row for row in file.rows() if row.doc_id in order), key=lambda row: order[row.doc_id])
    for sample in samples:
        doc = from_json(sample.doc)
        texts = {"prompt": shown_prompt(sample), "target": _text(from_json(sample.target))}
        texts |= {"answer": judged_answer(sample, rows.keys[0].filter)}
        texts |= {"other": _text(doc.get(rows.other)) if rows.other else ""} if has_pairs else {}
        record: JSONDict = {
            "task": rows.task,
            "id": sample.doc_id,
            **{name: spreadsheet_cell(text) for name, text in texts.items()},
        }
        record |= {"judge": sample.scores.get(rows.keys[0])} if seen else {}
        yield record | {"label": ""}


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else orjson.dumps(value).decode()


class ReadLabels(NamedTuple):
    """Labels by task and document, and how many lines have none."""

    labels: Mapping[str, Mapping[int, float]]
    empty: int


def read_table(path: Path, run: Run, rows: Sequence[JudgeRows]) -> ReadLabels:
    """Read a filled table; every problem of every line is reported at once, and then nothing is stored."""
    by_task = {each.task: each for each in rows}
    known = {task: set(_scores(run, task).documents.tolist()) for task in by_task}
    labels: dict[str, dict[int, float]] = {}
    problems, empty = [], 0
    lines: dict[tuple[str, int], int] = {}
    for line, record in _lines(path, ("id", "label") if len(by_task) == 1 else ("id", "label", "task")):
        task = (record.get("task") or "").strip() or (next(iter(by_task)) if len(by_task) == 1 else "")
        written = record.get("label", "").strip()
        if not written and not record[WRONG_SIZE]:
            empty += 1
            continue
        wrong = _wrong(record, task, by_task, known)
        if not wrong:
            document = int(float(record["id"]))
            before = lines.setdefault((task, document), line)
            wrong = f"document {document} of {task!r} has a label in line {before} already" if before != line else ""
            labels.setdefault(task, {})[document] = float(written) if not wrong else math.nan
        if wrong:
            problems.append(Problem(Place(str(path), line, 1), wrong, "correct the line, or empty its label"))
    if problems:
        raise ConfigError(problems)
    if not labels:
        raise ConfigError.at(path, "no line has a label", "fill in the column `label`")
    return ReadLabels(labels, empty)


def _wrong(
    record: Mapping[str, str], task: str, by_task: Mapping[str, JudgeRows], known: Mapping[str, set[int]]
) -> str:
    if task not in by_task:
        return f"no task named {task!r} with a row of a judge in this run ({some(list(by_task))})"
    if record[WRONG_SIZE]:
        return record[WRONG_SIZE]
    if not WHOLE.fullmatch(record["id"].strip()):
        return f"the id must be a whole number, got {record['id'][:40]!r}"
    document = int(float(record["id"]))
    if document not in known[task]:
        return f"{task!r} has no document {document}"
    low, high = by_task[task].scale
    try:
        label = float(record["label"])
    except ValueError:
        return f"the label must be a number from {low:g} to {high:g}, got {record['label'][:40]!r}"
    return "" if low <= label <= high else f"the label must be a number from {low:g} to {high:g}, got {label:g}"


def _check_columns(path: Path, names: Sequence[str], needed: Sequence[str]) -> None:
    fix = "write the table with `assay label RUN`, and fill in its last column"
    for name in needed:
        if names.count(name) != 1:
            what = f"there is no column {name!r}" if name not in names else f"two columns are named {name!r}"
            raise ConfigError.at(Place(str(path), 1, 1), what, fix)


def _lines(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The records of a table, each with the line that it begins in. A spreadsheet may have written it with semicolons or tabs, its
    decimals with commas then, or in UTF-16."""
    before = csv.field_size_limit(CSV_FIELD)
    try:
        with path.open("rb") as raw:
            encoding = "utf-16" if raw.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"
        with path.open(newline="", encoding=encoding) as file:
            first = file.readline()
            skipped = first.strip().lower().startswith("sep=")  # for Excel
            start = file.tell() if skipped else 0
            first = file.readline() if skipped else first
            file.seek(start)
            delimiter = max(",;\t", key=first.count)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = [name.strip().lower() for name in next(reader, [])]
            _check_columns(path, names, needed)
            line = reader.line_num + 1 + skipped
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    record = dict(zip(names, cells, strict=False))
                    if delimiter != ",":
                        record["label"] = record.get("label", "").replace(",", ".")
                    off = len(cells) != len(names)
                    record[WRONG_SIZE] = f"the line has {len(cells)} cells for {len(names)} columns" if off else ""
                    yield line, record
                line = reader.line_num + 1 + skipped
    except (UnicodeError, csv.Error) as error:
        what = "it is not written in UTF-8" if isinstance(error, UnicodeError) else f"it is not a table ({error})"
        raise ConfigError.at(path, what, "save it as CSV in UTF-8") from None
    finally:
        csv.field_size_limit(before)


def store_labels(
    run: Run, rows: Sequence[JudgeRows], labels: Mapping[str, Mapping[int, float | None]], by: str
) -> None:
    """Add a person's labels to those of the run, beside it. A later label replaces an earlier one, None takes it back."""
    lines: list[PersonLabel] = []
    for each in (each for each in rows if each.task in labels):
        scores = _scores(run, each.task)
        _check_scores(each, scores.values[each.keys[0]])
        own = labels[each.task]
        numbers = [place for place, document in enumerate(scores.documents.tolist()) if document in own]
        digests = {
            row.doc_id: answer_digest(judged_answer(row, each.keys[0].filter)) for row in scores.file.at(numbers)
        }
        checksum = scores.file.checksum
        lines += [
            PersonLabel(each.task, document, label, by, each.keys, each.scale, each.bounds, digests[document], checksum)
            for document, label in own.items()
        ]
    append_labels(run.path, lines)


def corrected_rows(run: Run) -> Corrections:
    """The rows of a run that labels correct, and what is to be said about its labels."""
    plain = run.without_labels()
    numbers: dict[tuple[str, ScoreKey], Corrected] = {}
    tasks: dict[str, list[Row]] = {}
    remarks: dict[str, list[str]] = {}
    for task, about in run.labels.items():
        said = remarks.setdefault(task, [])
        if about.stale:
            said.append(f"{about.stale} labels are left out, since they are about other answers: label these again")
        try:
            own = corrections(plain, task, about) if about.labels else {}
        except RunError as error:
            said.append(f"no corrected values: {'; '.join(problem.what for problem in error.problems)}")
            continue
        numbers |= {(task, key): number for key, number in own.items()}
        judges = plain.rows(task)
        tasks[task] = [
            replace(_corrected_row(judges[key], number, number.method, number.labels), tuning=number.tuning)
            for key, number in own.items()
        ]
        said += [
            f"{corrected_key(key)!s}: by {number.labels} labels of {number.n} documents, {number.method}"
            for key, number in own.items()
        ]
    return Corrections(tasks, _groups(plain, numbers), {task: said for task, said in remarks.items() if said})


def corrections(run: Run, task: str, labels: TaskLabels) -> dict[ScoreKey, Corrected]:
    """The corrected number of each row of a judge that has labels."""
    scores, stored = _scores(run, task), run.rows(task)
    rows = [key for key in labels.rows if key in stored]
    source = run.source(task) or task
    numbers = {key: scores.corrected(labels, scores.values[key], source) for key in rows}
    return {key: number for key, number in numbers.items() if number is not None}


def _corrected_row(judge: Row, number: Estimate, method: str, labels: int) -> Row:
    """The row of a corrected number, beside that of the judge."""
    estimate = Estimate(
        number.value,
        number.stderr,
        number.n,
        number.reason,
        number.interval,
        method=method,
        scale=number.scale,
    )
    return replace(
        judge, metric=corrected_key(judge.key).metric, estimate=estimate, labels=labels, noise=None, reliability=(),
        failure_bounds=None, shares=None,
    )  # fmt: skip


def _groups(run: Run, numbers: Mapping[tuple[str, ScoreKey], Corrected]) -> dict[str, list[Row]]:
    """The corrected rows of groups whose number is a sum of those of their tasks; all members with such a row need labels."""
    groups: dict[str, list[Row]] = {}
    metrics = {key.metric for _, key in numbers}
    for group in run.groups:
        for row in run.rows(group).values():
            parts, value = row.slopes or {}, row.estimate.value
            if value is None or not any(part in numbers for part in parts):
                continue
            lacking = [task for task, own in parts if own.metric in metrics and (task, own) not in numbers]
            raw = [run.rows(task)[own].estimate.value or 0.0 for task, own in parts]
            is_sum = math.isclose(
                math.fsum(s * v for s, v in zip(parts.values(), raw, strict=True)), value, rel_tol=1e-9
            )
            if lacking or not is_sum:
                continue
            groups.setdefault(group, []).append(_group_row(run, row, parts, numbers))
    return groups


def _group_row(
    run: Run,
    judge: Row,
    parts: Mapping[tuple[str, ScoreKey], float],
    numbers: Mapping[tuple[str, ScoreKey], Corrected],
) -> Row:
    members = []
    for task, key in parts:
        own = numbers.get((task, key))
        number = own if own is not None else _plain(run, task, key)
        members.append(MemberEstimate(task, number, number.n))
    total = with_interval(weighted_sum(members, list(parts.values())))
    shares = [
        Share(task, corrected_key(key) if (task, key) in numbers else key, slope)
        for (task, key), slope in parts.items()
    ]
    labels = sum(numbers[part].labels for part in parts if part in numbers)
    corrected = _corrected_row(judge, total, f"ppi++, {method(total)}".rstrip(", "), labels)
    return replace(corrected, shares=shares)


def _plain(run: Run, task: str, key: ScoreKey) -> Any:
    """The number of a row without labels, with the documents that it varies with."""
    scores = _scores(run, task)
    column = scores.values[key]
    number = estimate(np.asarray(column.present_values, float))
    for part in number.evidence.parts:
        part.source, part.documents = run.source(task) or task, scores.documents[column.present].tolist()
    return number


WINNER = re.compile(r'"winner"\s*:\s*"(A|B|tie)"')
FAMILY = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class CardEntry:
    """One property of a judge with its interval, of n documents, and how to read it."""

    task: str
    name: str
    number: Estimate = field(metadata=keys("value", "low", "high", "n"))
    meaning: str


@dataclass(frozen=True)
class Judged:
    """A task's documents: the judge's score of each, the label (NaN where there is none), the length of the answer."""

    scores: Floats
    labels: Floats
    lengths: Floats
    repeats: Sequence[Sequence[float]]
    winners: Sequence[Sequence[str]]

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        return ~np.isnan(self.labels)


def judge_card(run: Run, rows: Sequence[JudgeRows]) -> list[CardEntry]:
    """The card of the judge of each task; a ConfigError where it would be empty."""
    entries = [entry for each in rows for entry in _entries_of_task(run, each, run.labels.get(each.task))]
    if not entries:
        fix = "write a table with `assay label RUN`, fill it in, and import it: `assay label RUN --import FILE`"
        raise ConfigError.at(run.path, "no document of this run has a label", fix)
    return entries


def _entries_of_task(run: Run, rows: JudgeRows, labels: TaskLabels | None) -> Iterator[CardEntry]:
    judged = _read_judged(run, rows, labels)
    middle = (rows.bounds[0] + rows.bounds[1]) / 2
    wide = rows.bounds[1] - rows.bounds[0]
    tested = [*_agreement(judged, middle, wide), *_leanings(judged, run, wide), *_consistency(judged, wide)]
    tested += people_agreement(labels) if labels is not None else ()
    yield from (CardEntry(rows.task, name, number, meaning) for name, number, meaning in tested)


def _read_judged(run: Run, rows: JudgeRows, labels: TaskLabels | None) -> Judged:
    key = rows.keys[0]
    known: list[tuple[float, float, float]] = []
    repeats, winners = [], []
    file = run.sample_file(rows.task)
    for sample in file.rows() if file is not None else ():
        score = sample.scores.get(key)
        if not isinstance(score, int | float):
            continue
        label = labels.labels.get(sample.doc_id) if labels is not None else None
        on_scale = labels.as_score(label) if labels is not None and label is not None else np.nan
        known.append((float(score), on_scale, float(len("".join(shown_texts(sample.responses, sample.replies)[:1])))))
        repeats.append([float(each) for each in sample.repeats.get(key, ()) if isinstance(each, int | float)])
        winners.append(_winners(sample) if rows.other else [])
    columns = np.array(known, dtype=np.float64).reshape(-1, 3).T
    return Judged(columns[0], columns[1], columns[2], repeats, winners)


def _winners(sample: StoredSample) -> list[str]:
    """Which of two answers each verdict prefers, by its place: every second one saw them the other way round."""
    said = [reply["verdict"] for reply in sample.replies or () if isinstance(reply.get("verdict"), str)]
    matches = [WINNER.findall(text) for text in said]
    return [each[-1] for each in matches] if matches and all(matches) else []


def _agreement(judged: Judged, middle: float, wide: float) -> Iterator[tuple[str, Estimate, str]]:
    has = judged.labelled
    if not has.any():
        return
    score, label = judged.scores[has], judged.labels[has]
    passed, good = score >= middle, label >= middle
    if good.any():
        yield "sensitivity", estimate(passed[good]), "of answers that people put in the upper half, the judge does, too"
    if not good.all():
        yield (
            "specificity",
            estimate(~passed[~good]),
            "of answers that people put in the lower half, the judge does, too",
        )
    yield "mean error", estimate(score - label, bounds=(-wide, wide)), "judge minus people: above 0 it is too mild"
    yield (
        "Cohen's kappa",
        jackknifed(kappa, _pairs(passed, good)),
        "of upper and lower half; 0 is chance",
    )
    yield "Spearman", jackknifed(spearman, _pairs(score, label)), "do both put answers in the same order"
    yield "Krippendorff's alpha", jackknifed(_alpha, _pairs(score, label)), "of the scores themselves; 0 is chance"


def people_agreement(labels: TaskLabels) -> Iterator[tuple[str, Estimate, str]]:
    """How far two people agree on the documents that both labelled, each two of them."""
    middle = sum(labels.scale) / 2
    for (one, own), (other, theirs) in combinations(sorted(labels.people.items()), 2):
        pairs = [(own[document], theirs[document]) for document in own if document in theirs]
        names = f"{one or 'no name'} and {other or 'no name'}"
        if len(pairs) > 1:
            same = [first == second for first, second in pairs]
            yield f"same label: {names}", estimate(same), "of documents that both labelled"
            halves = [(first >= middle, second >= middle) for first, second in pairs]
            yield f"kappa: {names}", jackknifed(kappa, halves), "of upper and lower half; 0 is chance"


def _pairs(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> list[tuple[Any, Any]]:
    return list(zip(one.tolist(), other.tolist(), strict=True))


def _alpha(pairs: Pairs) -> float:
    return krippendorff_alpha([[list(pair)] for pair in pairs])


def _leanings(judged: Judged, run: Run, wide: float) -> Iterator[tuple[str, Estimate, str]]:
    has = judged.labelled
    if has.sum() > 2:
        error = judged.scores[has] - judged.labels[has]
        yield (
            "length preference",
            jackknifed(spearman, _pairs(error, judged.lengths[has])),
            "error and length of the answer; above 0 it likes long ones",
        )
        family = _shared_family(run)
        if family:
            meaning = f"judge minus people; judge and model are both of the family {family!r}"
            yield "self-preference", estimate(error, bounds=(-wide, wide)), meaning
    pairs = [pair for each in judged.winners for pair in zip(each[::2], each[1::2], strict=False)]
    led = [first == "A" for first, second in pairs if first == second and first != "tie"]
    if pairs:
        same = [{"A": "B", "B": "A"}.get(first, first) == second for first, second in pairs]
        yield "same in both orders", estimate(same), "verdicts on two answers that do not depend on their order"
    if led:
        yield "first preferred", estimate(led), "where the order decides, the first answer wins; 0.5 is even"


def _shared_family(run: Run) -> str:
    """The first word that the names of the model and of a judge share; nothing where they are not known to be related.

    Names of backends, such as `openai-chat`, say nothing about the model behind them.
    """
    manifest = run.answers_manifest
    own = _family(mapping(manifest.get("model")))
    judges = {_family(mapping(about)) for about in mapping(manifest.get("roles")).values()}
    return own if own in judges else ""


def _family(model: Mapping[str, Any]) -> str:
    args = mapping(model.get("args"))
    named = next((str(args[key]) for key in ("model", "pretrained", "path") if args.get(key)), "")
    first = FAMILY.search(named.rstrip("/").rpartition("/")[2].lower())
    return first.group() if first else ""


def _consistency(judged: Judged, wide: float) -> Iterator[tuple[str, Estimate, str]]:
    repeated = [each for each in judged.repeats if len(each) > 1]
    if repeated:
        same = [len(set(each)) == 1 for each in repeated]
        yield "same for all repeats", estimate(same), "documents whose repeated answers all get the same score"
        spreads = [float(np.std(each, ddof=1)) for each in repeated]
        meaning = "mean standard deviation of the scores of a document's repeats"
        yield "spread over repeats", estimate(spreads, bounds=(0, wide)), meaning
