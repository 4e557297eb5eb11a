"""Compares runs document by document, each against the first: rows, flips, the stage that a difference comes from, recovery (how
much of a reference a candidate keeps); and decides what a run must show, alone and against baselines."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from assay.comparison.contrasts import (
    ComparedTask,
    PairedRow,
    below,
    compared_members,
    compared_row,
    lone_rows,
    paired_rows,
    placed_rows,
    selected_rows,
)
from assay.comparison.gates import (
    FIX_VALUE,
    GATE,
    Gate,
    GateEvidence,
    Measured,
    RunNumbers,
    decide,
    decide_count,
    measure,
    measure_value,
    parse_gate,
)
from assay.comparison.packs import open_run
from assay.comparison.pairing import (
    PROMPT_OPTIONS,
    PairedTask,
    pair_tasks,
    refuse_other_prompts,
    shared_tasks,
)
from assay.errors import ConfigError, check_each, some
from assay.records import AnyJSON, JSONObject
from assay.results import Estimate
from assay.runs.comparison import (
    STAGES,
    Attribution,
    ComparedRow,
    ComparedRun,
    Comparison,
    Difference,
    Flip,
    GateVerdict,
    decision_of,
)
from assay.runs.results import failure_lines
from assay.runs.run import COMPLETE, Run, model_with_arguments
from assay.runs.samples.encode import from_json
from assay.runs.samples.records import StoredSample
from assay.runs.samples.turns import shown_prompt
from assay.runs.storage import short_names, shown_path
from assay.safe_text import cut
from assay.score_keys import ScoreKey
from assay.statistics.intervals import LEVEL, Decision
from assay.statistics.paired import HALF, holm, quantile, smoothed
from assay.statistics.sequences import spent_at


@dataclass(frozen=True)
class CompareOptions:
    tasks: Sequence[str] = ()
    metrics: Sequence[str] = ()
    gates: Sequence[Gate] = ()
    cluster_by: str | None = None
    other_prompts: bool = False
    incomplete: bool = False
    flips: int = 0
    level: float = 0.95
    power: float = 0.8
    recovery: bool = False


def compare(  # noqa: PLR0913  # each is an option of the command
    runs: Sequence[str | PathLike[str]],
    *,
    tasks: Sequence[str] = (),
    metrics: Sequence[str] = (),
    gates: Sequence[str] = (),
    cluster_by: str | None = None,
    allow_different_prompts: bool = False,
    allow_incomplete: bool = False,
    flips: int = 0,
    level: float = 0.95,
    power: float = 0.8,
    recovery: bool = False,
) -> Comparison:
    """The others of these runs against the first, on the documents they share.

    `tasks` (names, globs, groups) and `metrics` choose rows. `level` is that of the intervals and, one-sided, of the gates.
    `flips` is how many documents of each task are listed that became worse, and that became better. Runs whose prompts differ are
    refused unless that is allowed. Gates assume the worst for documents not scored in both runs, unless `allow_incomplete`.
    `recovery` adds b over a to each row, with its interval.
    """
    parsed_gates = [parse_gate(each) for each in gates]
    check_shares(level, power)
    options = CompareOptions(
        tasks,
        metrics,
        parsed_gates,
        cluster_by,
        allow_different_prompts,
        allow_incomplete,
        flips,
        level,
        power,
        recovery,
    )
    read = _read(runs)
    pairs = [_compare_pair(read[0], other, number, options) for number, other in enumerate(read[1:], 1)]
    parts, measured = [part for part, _ in pairs], [each for _, gated in pairs for own in gated for each in own]
    return Comparison(
        runs=_labelled(read),
        rows=_corrected([row for part in parts for row in part.rows], 1 - level),
        attributions=[each for part in parts for each in part.attributions],
        flips=[flip for part in parts for flip in part.flips],
        verdicts=decide(measured, level),
        notes=list(
            dict.fromkeys([*_endings(read), *(note for part in parts for note in part.notes), *_together(measured)])
        ),
        level=level,
        power=power,
    )


def measured_gates(
    pair: tuple[str | PathLike[str], str | PathLike[str]], options: CompareOptions
) -> tuple[list[list[Measured]], list[str]]:
    """Measure the rows of each gate in the second of two runs; returns also notes about them."""
    runs = _read(pair)
    compared, gated = _compare_pair(runs[0], runs[1], 1, options)
    return gated, [*_endings(runs[:1]), *compared.notes]


def check_shares(level: float, power: float = 0.8) -> None:
    """Refuse an invalid level or power."""
    for name, value in (("--level", level), ("--power", power)):
        if not 0.5 < value < 1:
            what = f"{name} must be between 0.5 and 1, got {value:g}"
            raise ConfigError.at(name, what, "give 0.95, say")


def _read(runs: Sequence[str | PathLike[str]]) -> list[Run]:
    if len(runs) < 2:
        what = "a comparison takes two runs or more"
        raise ConfigError.at("assay compare", what, "name the first one, then those to compare with it")
    places = [os.path.realpath(run) for run in runs]  # of a loop of links, too
    twice = [run for number, run in enumerate(runs) if places[number] in places[:number]]
    if twice:
        raise ConfigError.at(os.fspath(twice[0]), "the same run is named twice", "name each run once")
    return [open_run(run) for run in runs]


def _compare_pair(a: Run, b: Run, number: int, options: CompareOptions) -> tuple[Comparison, list[list[Measured]]]:
    """One run against the first, and gate by gate its rows, which are decided together with those of the other runs."""
    notes: list[str] = []
    shared = set(shared_tasks(a, b))
    named = (
        set().union(*(below(a, each, shared) for each in options.tasks))
        if options.tasks
        else {*a.scored_tasks, *b.scored_tasks}
    )
    tasks = pair_tasks(a, b, named, notes)
    if not options.other_prompts:
        refuse_other_prompts(tasks, a, b)
    every = paired_rows((a, b), compared_members(tasks, (a, b), options.cluster_by, notes), notes)
    paired = placed_rows(selected_rows(every, a, options.tasks, options.metrics), a)
    gated = selected_rows([*every, *lone_rows(a, every)], a, options.tasks, options.metrics)
    evidence = GateEvidence(gated, (a, b), number, options.incomplete)
    compared = Comparison(
        runs=(),
        rows=[_row(row, number, options, _same_answers(row, tasks)) for row in paired],
        attributions=[attribute(a, b, tasks, number)],
        flips=flips_of(tasks, paired, number, options.flips) if options.flips else (),
        notes=notes,
    )
    return compared, [measure(gate, evidence) for gate in options.gates]


def _row(row: PairedRow, number: int, options: CompareOptions, has_same_answers: bool) -> ComparedRow:
    compared = compared_row(row, number, options.level, options.power, has_same_answers=has_same_answers)
    return replace(compared, recovery=recovery_of(row, options.level)) if options.recovery else compared


def _same_answers(row: PairedRow, tasks: Sequence[PairedTask]) -> bool:
    """Whether all documents that a number comes from were answered in the same words; looked at where no score differs."""
    names = {part.member.task for part in row.parts} if row.is_alike else set()
    return bool(names) and all(task.has_same_answers for task in tasks if task.name in names)


def _corrected(rows: Sequence[ComparedRow], alpha: float) -> list[ComparedRow]:
    """Correct each task's p for the number of tests in all comparisons with the first run, and set the verdicts."""
    tested = [
        (place, row.difference.p)
        for place, row in enumerate(rows)
        if row.kind == "task" and row.difference.p is not None
    ]
    corrected = dict(zip((place for place, _ in tested), holm([p for _, p in tested]), strict=True))
    with_p = [replace(row, p_holm=corrected.get(place)) for place, row in enumerate(rows)]
    return [replace(row, verdict=row.outcome(alpha)) for row in with_p]


def _labelled(runs: Sequence[Run]) -> list[ComparedRun]:
    """Label the runs by the shortest ends of their paths that differ."""
    labels = short_names(run.path for run in runs)
    ends = [run.manifest.get("finished", run.manifest.get("created")) for run in runs]
    return [
        ComparedRun(run.path, label, model_with_arguments(run.results), run.status, end)
        for run, label, end in zip(runs, labels, ends, strict=True)
    ]


def _together(measured: Sequence[Measured]) -> list[str]:
    tested = sum(each.ends is not None for each in measured)
    return [f"{tested} gates are decided together: the level of each is raised for that (Holm)"] if tested > 1 else []


def _endings(runs: Sequence[Run]) -> list[str]:
    return [f"{run.path}: the run is {run.status}" for run in runs if run.status not in ("complete", "unknown")]


def flips_of(tasks: Sequence[PairedTask], rows: Sequence[PairedRow], run: int, most: int) -> list[Flip]:
    """Of each task the documents whose first number changed, the largest changes first: those that became worse, then the others.

    Where it is not known whether more is better, those with a smaller number come first.
    """
    by_name = {task.name: task for task in tasks}
    flips: list[Flip] = []
    done: set[str] = set()
    for row in rows:
        if row.kind == "task" and row.name not in done and row.parts:
            [part] = row.parts
            if part.member.scores_a is not None:
                done.add(row.name)
                flips += _flips_of_row(by_name[row.name], row, part.member, run, most)
    return flips


def _flips_of_row(task: PairedTask, row: PairedRow, member: ComparedTask, run: int, most: int) -> list[Flip]:
    change = member.scores_b - member.scores_a
    worse = change if row.better is False else -change
    order = np.lexsort((member.documents, -np.abs(change)))
    losses, gains = ([place for place in order if sign * worse[place] > 0][:most] for sign in (1, -1))
    rows_a, rows_b = task.places_a[member.places], task.places_b[member.places]
    stored_a = task.scores_a.some([int(rows_a[place]) for place in (*losses, *gains)])
    stored_b = task.scores_b.some([int(rows_b[place]) for place in (*losses, *gains)])
    flips = []
    for place in (*losses, *gains):
        a, b = stored_a[int(rows_a[place])], stored_b[int(rows_b[place])]
        flip = Flip(
            task=task.name,
            doc_id=int(member.documents[place]),
            metric=row.key.metric,
            filter=row.key.filter,
            run=run,
            score_a=float(member.scores_a[place]),
            score_b=float(member.scores_b[place]),
            answer_a=answer(a, row.key.filter),
            answer_b=answer(b, row.key.filter),
            target=target(a) or target(b),
            question=shown_prompt(a) or shown_prompt(b),
            is_loss=None if row.better is None else bool(worse[place] > 0),
            doc_id_b=int(task.scores_b.documents[rows_b[place]]),
            question_b=_other_prompt(a, b),
        )
        flips.append(flip)
    return flips


def _other_prompt(one: StoredSample, two: StoredSample) -> str:
    """The whole prompt of the second where it is not that of the first."""
    is_same = (one.prefix, one.prompt) == (two.prefix, two.prompt) or one.prefix + one.prompt == two.prefix + two.prompt
    return "" if is_same else two.prefix + shown_prompt(two)


def answer(row: StoredSample, filter_name: str) -> str:
    """Return the answer after a filter; for choices the likeliest one."""
    answers, choices = row.answers.get(filter_name, ()), row.choices
    likelihoods = [each[0] for each in answers if isinstance(each, tuple)]
    if choices and len(likelihoods) == len(answers) >= len(choices):
        return str(choices[max(range(len(choices)), key=likelihoods.__getitem__)])
    return "\n".join(each if isinstance(each, str) else orjson.dumps(each).decode() for each in answers)


def target(row: StoredSample) -> str:
    """Return the right answer; for choices its text."""
    gold, choices = from_json(row.gold or row.target), row.choices
    if choices and isinstance(gold, int) and 0 <= gold < len(choices):
        return str(choices[gold])
    return gold if isinstance(gold, str) else orjson.dumps(gold).decode()


OPTIONS = {
    "data": ("limit", "sample", "samples", "start_index", "shard", "data_dir"),
    "prompt": PROMPT_OPTIONS,
    "sampling": ("gen_kwargs", "repeats", "random_seed", "numpy_random_seed", "torch_random_seed"),
    "scorer": ("compat", "bootstrap_iters", "predict_only"),
}  # fmt: skip
"""Options of a run, by the stage that they change."""
KEYS = {
    "data": ("dataset_path", "dataset_name", "dataset_kwargs", "custom_dataset", "test_split", "validation_split",
             "training_split", "process_docs"),
    "sampling": ("generation_kwargs", "repeats"),
    "filter": ("filter_list",),
    "scorer": ("metric_list", "process_results", "scorer", "should_decontaminate", "doc_to_decontamination_query"),
}  # fmt: skip
"""Keys of a task, likewise; those that are not here make its prompts."""
NOWHERE = ("task", "task_alias", "tag", "metadata", "unsafe_code", "cluster_by", "include", "group", "dataset_version")


def attribute(a: Run, b: Run, tasks: Sequence[PairedTask], number: int) -> Attribution:
    """Attribute a difference to the first stage at which the other run differs from the first. The documents and prompts
    themselves decide whether they differ: settings that left them unchanged are not listed."""
    data = [task.name for task in tasks if task.by_content or len(task.places_a) < max(_sizes(task))]
    prompts = {
        task.name: len(documents_differing) for task in tasks if (documents_differing := task.prompts_that_differ)
    }
    differences: list[Difference] = []
    if data:
        differences.append(Difference("data", "documents", *_counts(tasks, data), data))
        differences += [*_options_that_differ("data", a, b), *_keys("data", a, b, _named(tasks, data))]
    if prompts:
        documents = sum(len(task.places_a) for task in tasks if task.name in prompts)
        what = f"prompts of {sum(prompts.values())} of {documents} documents"
        differences.append(Difference("prompt", what, "", "", list(prompts)))
        differences += [*_options_that_differ("prompt", a, b), *_keys("prompt", a, b, _named(tasks, prompts))]
    differences += [*_options_that_differ("sampling", a, b), *_keys("sampling", a, b, tasks)]
    differences += _models(a, b)
    differences += _keys("filter", a, b, tasks)
    differences += [*_options_that_differ("scorer", a, b), *_keys("scorer", a, b, tasks), *_code(a, b)]
    return Attribution(number, sorted(differences, key=lambda each: STAGES.index(each.stage)))


def _sizes(task: PairedTask) -> tuple[int, int]:
    return len(task.scores_a.documents), len(task.scores_b.documents)


def _named(tasks: Sequence[PairedTask], names: Iterable[str]) -> list[PairedTask]:
    selected = set(names)
    return [task for task in tasks if task.name in selected]


def _counts(tasks: Sequence[PairedTask], names: Sequence[str]) -> tuple[str, str]:
    sizes = [_sizes(task) for task in _named(tasks, names)]
    return str(sum(a for a, _ in sizes)), str(sum(b for _, b in sizes))


def _options_that_differ(stage: str, a: Run, b: Run) -> Iterable[Difference]:
    mine, others = _spec(a), _spec(b)
    for name in OPTIONS[stage]:
        if mine.get(name) != others.get(name):
            yield Difference(stage, name, _short(mine.get(name)), _short(others.get(name)))


def _spec(run: Run) -> JSONObject:
    spec: Mapping[str, Any] = run.answers_manifest.get("spec", {})
    return spec


def _keys(stage: str, a: Run, b: Run, tasks: Sequence[PairedTask]) -> list[Difference]:
    """List the keys of this stage that differ between the runs; the same change in many tasks is listed once."""
    changed: dict[tuple[str, str, str], list[str]] = {}
    for task in tasks:
        mine, others = a.config(task.name), b.config(task.name_b)
        for key in {**mine, **others}:
            if _stage(key) == stage and mine.get(key) != others.get(key):
                change = key, _short(mine.get(key)), _short(others.get(key))
                changed.setdefault(change, []).append(task.name)
    return [Difference(stage, *change, names) for change, names in changed.items()]


def _stage(key: str) -> str | None:
    if key in NOWHERE:
        return None
    return next((stage for stage, keys in KEYS.items() if key in keys), "prompt")


def _models(a: Run, b: Run) -> Iterable[Difference]:
    mine, others = _spec(a).get("model"), _spec(b).get("model")
    if mine != others:
        yield Difference("model", "model", _model(a, mine), _model(b, others))
    roles = _spec(a).get("roles") or {}, _spec(b).get("roles") or {}
    for role in sorted({*roles[0], *roles[1]}):
        if roles[0].get(role) != roles[1].get(role):
            yield Difference(
                "scorer", f"model in the role {role}", _short(roles[0].get(role)), _short(roles[1].get(role))
            )


def _model(run: Run, identity: AnyJSON) -> str:
    return f"{model_with_arguments(run.results)} [{str(identity)[-12:]}]"


def _code(a: Run, b: Run) -> Iterable[Difference]:
    """Code that may score otherwise: helper files, and the versions of what computes."""
    mine, others = a.answers_manifest.get("helper_files", {}), b.answers_manifest.get("helper_files", {})
    changed = sorted(file for file in {*mine, *others} if mine.get(file) != others.get(file))
    if changed and sorted(mine.values()) != sorted(others.values()):
        yield Difference("scorer", "helper code", _short(changed[:3]), "")
    versions = (_packages(a), _packages(b))
    for name in ("assay", "sacrebleu"):
        if versions[0].get(name) != versions[1].get(name):
            yield Difference("scorer", f"version of {name}", str(versions[0].get(name)), str(versions[1].get(name)))


def _packages(run: Run) -> Mapping[str, str]:
    packages: Mapping[str, str] = run.manifest.get("environment", {}).get("packages", {})
    return packages


def _short(value: AnyJSON) -> str:
    text = value if isinstance(value, str) else "–" if value is None else json.dumps(value, ensure_ascii=False)
    return cut(text, 80)


def recovery_of(row: PairedRow, level: float) -> Estimate | None:
    """The ratio of two numbers on the same documents with Fieller's interval, which there is none of where the reference may as
    well be 0; None where there is no ratio.

    It holds every ratio r for which b - r a may be 0. The variance of that difference is a polynomial of r of degree 2, known
    from three of its values.
    """
    a, b = row.a, row.b
    if a is None or b is None or a <= 0 or not math.isfinite(b):
        return None
    n = sum(part.member.n for part in row.parts)
    at = [_variance(row, each) for each in (-0.5, 0.0, 0.5)]
    contrast = row.contrast(0.999 * b / a)  # at a ratio of 1, bounds of the difference would count
    if contrast is None or None in at:
        return Estimate(b / a, n=n)
    below, middle, above = (each or 0.0 for each in at)
    of_a, crossed, of_b = 2 * (above + below - 2 * middle), above - below, middle
    t = quantile(contrast, level) ** 2
    square, linear, constant = a * a - t * of_a, -(2 * a * b + t * crossed), b * b - t * of_b
    inside = linear * linear - 4 * square * constant
    if square <= 0 or inside < 0 or not (of_a or of_b):
        return Estimate(b / a, n=n)
    ends = [(-linear + sign * math.sqrt(inside)) / (2 * square) for sign in (-1, 1)]
    return Estimate(b / a, interval=(max(ends[0], 0.0) if b >= 0 else ends[0], ends[1]), n=n)


def _variance(row: PairedRow, ratio: float) -> float | None:
    """The variance of b - r a for an interval; that of a rate with half a document on either side."""
    contrast = row.contrast(ratio)
    if contrast is None:
        return None
    share = contrast.draws / (contrast.draws + 2 * HALF) if contrast.unit else 1.0
    return (smoothed(contrast)[1] / share) ** 2


WHOLE = "the whole run"
"""The name of the verdict about a run that is not complete."""


@dataclass(frozen=True)
class GateReport:
    """The verdicts of all gates of a run."""

    run: Path
    status: str
    verdicts: Sequence[GateVerdict]
    baseline: Path | None = None
    notes: Sequence[str] = ()
    level: float = LEVEL

    @property
    def decision(self) -> Decision:
        decision = decision_of(self.verdicts)
        assert decision is not None, "there is a gate"
        return decision


def parse_gates(written: Sequence[str]) -> list[Gate]:
    """The gates of a command, every problem at once."""
    return check_each(lambda gate: parse_gate(gate, GATE, FIX_VALUE, plain="value"), written)


def needs_baseline(gates: Sequence[Gate], baseline: str | Path | None) -> None:
    """Refuse a gate about a difference where there is nothing that it could be to, and a baseline that no gate is about."""
    relative = [gate for gate in gates if gate.kind == "difference"]
    if relative and baseline is None:
        what = f"{relative[0].written!r} is about a difference to a baseline, and there is none"
        raise ConfigError.at(GATE, what, "add --baseline RUN, or give the number itself: 'acc >= 0.8'")
    if baseline is not None and not relative:
        what = f"no gate is about a difference to {shown_path(baseline)}"
        raise ConfigError.at(GATE, what, "write one as 'acc >= baseline - 1pp', or leave out --baseline")


def gate(
    run: str | Path,
    gates: Sequence[str],
    *,
    baseline: str | Path | None = None,
    level: float = LEVEL,
    allow_incomplete: bool = False,
    allow_different_prompts: bool = False,
) -> GateReport:
    """Decide what a run must show: about its numbers (`acc >= 0.8`), its counts (`failed <= 1%`), and with a baseline about
    differences to it (`acc >= baseline - 1pp`). A run that is not complete passes only what says so."""
    check_shares(level)
    parsed = parse_gates(gates)
    if not parsed:
        raise ConfigError.at(GATE, "there is no gate", FIX_VALUE)
    needs_baseline(parsed, baseline)
    opened, baselines = open_run(run), [Path(baseline)] if baseline is not None else []
    options = CompareOptions(other_prompts=allow_different_prompts, incomplete=allow_incomplete, level=level)
    numbers = RunNumbers(opened, allow_incomplete)
    _refuse_ambiguous(parsed, numbers)
    rows, notes = measured_rows(numbers, parsed, baselines, options)
    decided = list(zip(rows, decide([row.measured for row in rows], level), strict=True))
    verdicts: list[GateVerdict] = []
    for condition in parsed:
        if condition.kind == "count":
            verdicts.append(decide_count(condition, opened))
        else:
            about_it = [verdict for row, verdict in decided if row.gate is condition]
            verdicts += about_it
            notes += _direction(condition, opened, about_it)
    if not allow_incomplete:
        verdicts += _about_the_run(opened, verdicts)
    return GateReport(Path(run), opened.status, verdicts, baselines[0] if baselines else None, notes, level)


class GateRow(NamedTuple):
    """A row that a gate is about, and the baseline that its difference is to."""

    gate: Gate
    baseline: Path | None
    measured: Measured


def measured_rows(
    numbers: RunNumbers, gates: Sequence[Gate], baselines: Sequence[Path], options: CompareOptions
) -> tuple[list[GateRow], list[str]]:
    """The rows of all gates about numbers: of the run alone, and against each baseline; and notes about the baselines."""
    notes: list[str] = []
    rows = [GateRow(gate, None, row) for gate in gates if gate.kind == "value" for row in measure_value(gate, numbers)]
    relative = [gate for gate in gates if gate.kind == "difference"]
    for baseline in baselines if relative else ():
        by_gate, noted = measured_gates((baseline, numbers.run), replace(options, gates=relative))
        rows += [
            GateRow(gate, baseline, row) for gate, measured in zip(relative, by_gate, strict=True) for row in measured
        ]
        notes += noted
    return rows, notes


@dataclass(frozen=True)
class SeriesVerdict:
    """The verdict of a gate about one run of a series; for a difference, the run that it is to."""

    verdict: GateVerdict
    baseline: Path | None


def decide_next(
    run: Path, gates: Sequence[str], before: Sequence[Path], number: int, level: float = LEVEL
) -> list[SeriesVerdict]:
    """Decide the gates of the `number`-th look at a series: differences to each of the runs `before`, values and counts.

    However many looks there are, the chance of a wrong decision in any of them is 1 − level: the n-th spends α/(n(n + 1)) of it,
    for all its gates and all runs before together (Holm).
    """
    alpha, parsed, opened = spent_at(number, 1 - level), parse_gates(gates), open_run(run)
    rows, _ = measured_rows(RunNumbers(opened), parsed, before, CompareOptions(level=1 - alpha))
    decided = decide([row.measured for row in rows], 1 - alpha)
    counts = [SeriesVerdict(decide_count(gate, opened), None) for gate in parsed if gate.kind == "count"]
    return [SeriesVerdict(verdict, row.baseline) for verdict, row in zip(decided, rows, strict=True)] + counts


def _refuse_ambiguous(gates: Sequence[Gate], numbers: RunNumbers) -> None:
    for each in gates:
        own = [row for row in numbers.rows if row.key.metric == each.metric]
        if each.kind == "count" and own:
            what = f"{each.written!r}: {each.metric!r} is a count of every run, and a metric of {own[0].name!r}"
            raise ConfigError.at(GATE, what, f"write {str(own[0].key)!r} for the metric")


def _direction(gate: Gate, run: Run, verdicts: Sequence[GateVerdict]) -> list[str]:
    """A note about a gate that asks for a worse number."""
    rows = [run.results.row(verdict.name, ScoreKey(verdict.metric, verdict.filter)) for verdict in verdicts]
    better = {row.higher_is_better for row in rows if row is not None}
    if better == {not gate.wants_more}:
        better_way = "lower" if gate.wants_more else "higher"
        return [f"{gate.written}: {better_way} is better for {gate.metric}; the gate asks for the opposite"]
    return []


def _about_the_run(run: Run, verdicts: Sequence[GateVerdict]) -> list[GateVerdict]:
    """A run that is not complete does not pass silently. Failed documents are all right if a gate about them passes."""
    if run.status in (COMPLETE, "unknown"):
        return []
    only_failed = run.status == "incomplete" and not run.broken and not _lacks_numbers(run)
    allowed = [
        each
        for each in verdicts
        if each.kind == "count" and each.metric == "failed" and each.name == run.path.resolve().name
    ]
    if only_failed and any(each.decision == "pass" for each in allowed):
        return []
    lines = [each.removeprefix("incomplete: ") for each in failure_lines(run.results)]
    reason = f"is {run.status}" + (f": {some(lines)}" if lines else "")
    reason += "; 'failed <= 1%' allows some documents to fail" if only_failed else ""
    reason += "; --allow_incomplete decides all the same"
    return [GateVerdict("complete", WHOLE, "complete", "", 1, "inconclusive", None, None, 0.0, reason, "", 1.0, "run")]


def _lacks_numbers(run: Run) -> bool:
    lacks_rows = any(row.lacks_number for _, _, row in run.scored_rows())
    return lacks_rows or any(task.not_asked for task in run.results.tasks.values())
