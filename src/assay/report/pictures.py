"""Plots of runs as pictures: scores with intervals, scores over time, reliability curves, pass@k; differences of a comparison.

Everything that can be refused is refused before a run is read: the ending of the file, a folder that cannot be written.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from assay.errors import ConfigError, Place, did_you_mean, nearest, some
from assay.number_text import format_decimal, format_level, format_p, format_signed
from assay.report.charts import (
    WIDTH,
    Chart,
    Panel,
    Point,
    Series,
    draw,
    draw_part,
    estimate_point,
    interval_text,
    reliability_panel,
    reliability_points,
)
from assay.report.document import Slice, curves_of, open_with_results
from assay.report.drawing import Drawing, as_image, as_svg, check_matplotlib
from assay.report.index import training_step_of
from assay.results import Row
from assay.runs.comparison import ComparedRow, Comparison
from assay.runs.extensions import PlotKind
from assay.runs.files import new_file
from assay.runs.lines import ResultLine
from assay.runs.run import COMPLETE, Run
from assay.runs.storage import refuse_url
from assay.score_keys import ScoreKey, metric_title, spellings
from assay.statistics.arrays import combine

KINDS: tuple[PlotKind, ...] = get_args(PlotKind)
PlaceAxis = Literal["auto", "date", "step"]
ENDINGS = ("svg", "png", "pdf")
MAX_ROWS, MAX_PANELS = 120, 24
"""Rows and panels that a reader can still read."""


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A plot: a notebook shows it, `save` writes it."""

    drawing: Drawing

    @property
    def svg(self) -> str:
        return as_svg(self.drawing)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the picture: the end of the name chooses SVG, PNG or PDF."""
        target = Path(path)
        ending = check_target(target)
        content = self.svg.encode() if ending == "svg" else as_image(self.drawing, ending)
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_file(target) as part:
            part.write_bytes(content)
        return target

    def __repr__(self) -> str:
        return (
            f'<Picture {self.drawing.title!r}, {self.drawing.width:.0f} × {self.drawing.height:.0f}; .save("plot.svg")>'
        )

    def _repr_svg_(self) -> str:
        return self.svg


def check_target(path: Path) -> Literal["svg", "png", "pdf"]:
    """The format of a file; a ConfigError where its ending is unknown, or it cannot be written."""
    refuse_url(path)
    place, ending = Place(str(path)), path.suffix.lower().removeprefix(".")
    if ending not in ENDINGS:
        what = f"pictures cannot end in {path.suffix!r}" if ending else "the name of a picture needs an ending"
        raise ConfigError.at(place, what, f"write {path.with_suffix('').name or 'plot'}.svg, .png or .pdf")
    if ending != "svg":
        check_matplotlib(str(path))
    above = next(each for each in path.absolute().parents if each.exists())
    if path.is_dir() or not above.is_dir() or not os.access(path if path.exists() else above, os.W_OK):
        raise ConfigError.at(place, "cannot be written", "name a file in a folder that you may write to")
    return ending  # type: ignore[return-value]  # one of ENDINGS


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """Which tasks and which metric are drawn, what is across, and the title."""

    tasks: Sequence[str] = ()
    metric: str | None = None
    over: PlaceAxis = "auto"
    title: str | None = None


def plot(
    runs: Sequence[str | PathLike[str]] | str | PathLike[str], kind: PlotKind = "intervals", *, tasks: Sequence[str] = (),
    metric: str | None = None, over: PlaceAxis = "auto", title: str | None = None,
) -> Picture:  # fmt: skip
    """Draw runs: `intervals` of tasks and groups, scores over `time`, `reliability` (calibration), or `pass_at_k`.

    `tasks` are names, globs and groups. `metric` is one of acc, or exact_match,strict; without it, each task's main one. `over`
    is what runs over time are placed by: their date, or the step in their names.
    """
    for name, value, known in (("kind", kind, KINDS), ("over", over, get_args(PlaceAxis))):
        if value not in known:
            raise ConfigError.at(name, f"no {name} named {value!r}", did_you_mean(str(value), known))
    folders = [runs] if isinstance(runs, str | PathLike) else list(runs)
    if not folders:
        raise ConfigError.at("runs", "no run was named", "name the folder of a run")
    opened = [open_with_results(Path(folder)) for folder in folders]
    listed = [tasks] if isinstance(tasks, str) else list(tasks)
    options = PlotOptions(listed, metric, over, title)
    return Picture(draw(DRAWN[kind](_with_different_names(opened), options)))


def _with_different_names(runs: Sequence[Run]) -> list[Run]:
    counts = Counter(run.name for run in runs)
    return [run if counts[run.name] == 1 else run.renamed(str(run.path)) for run in runs]


def _notes(runs: Sequence[Run]) -> list[str]:
    """Runs that are not whole: their numbers are not those of complete runs."""
    return [
        f"{run.name}: {run.status}, {run.failed:,} of {run.scored + run.failed:,} documents failed"
        for run in runs
        if run.status != COMPLETE
    ]


# --- the numbers of runs


class Number(NamedTuple):
    """A row of a task or group of one run."""

    run: int
    line: ResultLine
    row: Row

    @property
    def key(self) -> tuple[str, ScoreKey]:
        return self.line.name, self.row.key


def _numbers(runs: Sequence[Run], options: PlotOptions) -> list[Number]:
    """The numbers to draw, in the order of the tables; a ConfigError where nothing is left."""
    numbers = [
        Number(place, line, row)
        for place, each in enumerate(runs)
        for line in _lines(each, options.tasks)
        for row in _rows(line, options.metric)
        if row.estimate.value is not None and math.isfinite(row.estimate.value)
    ]
    if options.metric is not None and not numbers:
        known = {name for run in runs for line in run.lines for row in line.numbers for name in spellings(row.key)}
        what = f"no number of a metric named {options.metric!r}" + (" in these tasks" if options.tasks else "")
        raise ConfigError.at("metric", what, did_you_mean(options.metric, known))
    if not numbers:
        raise ConfigError.at(runs[0].path, "has no number to draw", "name another run")
    return numbers


def _lines(run: Run, patterns: Sequence[str]) -> list[ResultLine]:
    """The lines that patterns choose, with the members of groups; each task once."""
    lines = list({line.name: line for line in reversed(run.lines)}.values())[::-1]
    if not patterns:
        return lines
    chosen = [line for line in lines if any(fnmatchcase(name, each) for each in patterns for name in line.path)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for line in lines for name in line.path):
            names = [line.name for line in lines]
            fix = did_you_mean(pattern, names) if nearest(pattern, names, count=1) else f"it has {some(names)}"
            raise ConfigError.at(run.path, f"no task or group named {pattern!r}", fix)
    return chosen


def _rows(line: ResultLine, metric: str | None) -> list[Row]:
    if metric is None:
        return [line.main] if line.main is not None else []
    return [row for row in line.numbers if metric in spellings(row.key)]


def _metric_text(row: Row | ComparedRow | ScoreKey) -> str:
    return metric_title(row.metric, row.filter)


def _direction(better: bool | None) -> str:
    return "" if better is None else ", higher is better" if better else ", lower is better"


def _point(at: float, number: Number, name: str) -> Point:
    return estimate_point(at, number.row.estimate, f"{name}: {number.line.alias} {_metric_text(number.row)}")


# --- intervals of tasks


def _intervals(runs: Sequence[Run], options: PlotOptions) -> Chart:
    numbers = _numbers(runs, options)
    rows = list(dict.fromkeys(number.key for number in numbers))
    if len(rows) > MAX_ROWS:
        raise ConfigError.at("tasks", f"{len(rows):,} rows are too many for a picture", "choose some with --tasks")
    shares = {key: all(number.row.estimate.is_share for number in numbers if number.key == key) for key in rows}
    by_panel: dict[ScoreKey | None, list[tuple[str, ScoreKey]]] = {}  # None: shares, which have one axis
    for key in rows:
        by_panel.setdefault(None if shares[key] else key[1], []).append(key)
    panels = [_row_panel(runs, [each for each in numbers if each.key in own], own) for own in by_panel.values()]
    whose = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    return Chart(options.title or f"Scores of {whose}", panels, [each.name for each in runs], _notes(runs))


def _row_panel(runs: Sequence[Run], numbers: Sequence[Number], keys: Sequence[tuple[str, ScoreKey]]) -> Panel:
    metrics = {_metric_text(number.row) + _direction(number.row.higher_is_better) for number in numbers}
    lines = {number.key: number for number in reversed(numbers)}
    alone = len(metrics) == 1
    shown = {name for name, _ in keys}
    depths = [sum(name in shown for name in lines[key].line.path[:-1]) for key in keys]
    rows = [
        "  " * depth + lines[key].line.alias + ("" if alone else f": {_metric_text(lines[key].row)}")
        for key, depth in zip(keys, depths, strict=True)
    ]
    places = {key: place for place, key in enumerate(keys)}
    series = [
        Series(each.name, [_point(places[one.key], one, each.name) for one in numbers if one.run == number], number)
        for number, each in enumerate(runs)
    ]
    is_share = all(number.row.estimate.is_share for number in numbers)
    what = next(iter(metrics)) if alone else "score"
    unit = "share of 1, " if is_share else ""
    return Panel("", f"{what} ({unit}95 % interval)", series, rows, limits=(0.0, 1.0) if is_share else None)


# --- runs over time


def _over_time(runs: Sequence[Run], options: PlotOptions) -> Chart:
    steps = [training_step_of(each) for each in runs]
    by_step = options.over == "step" or (options.over == "auto" and None not in steps and len(set(steps)) > 1)
    places: list[float | None] = [*steps] if by_step else [each.created for each in runs]
    for each, place in zip(runs, places, strict=True):
        if place is None:
            what = "has no step in its name or in that of its model" if by_step else "has no date"
            fix = "name it step-100, say, or place runs by date" if by_step else "place runs by step"
            raise ConfigError.at(each.path, what, fix)
    known = [float(place or 0.0) for place in places]
    numbers = _numbers(runs, options)
    if not options.tasks:  # without a choice, what is not a member of a group: the numbers that people watch
        numbers = [number for number in numbers if not number.line.depth] or numbers
    keys = list(dict.fromkeys(number.key for number in numbers))
    _refuse_many(keys)
    models = _models(runs, by_step)
    panels = []
    for key in keys:
        own = [number for number in numbers if number.key == key]
        series = _lines_of_models(runs, own, known, models)
        first, is_share = own[0], all(number.row.estimate.is_share for number in own)
        label = f"{_metric_text(first.row)}{' (share of 1)' if is_share else ''}"
        panels.append(time_panel(first.line.alias, label, series, known, by_step=by_step, is_share=is_share))
    title = options.title or f"{len(runs)} runs over {'training steps' if by_step else 'time'}"
    return Chart(title, panels, list(dict.fromkeys(models)), _notes(runs))


def _models(runs: Sequence[Run], by_step: bool) -> list[str]:
    """The line of each run: that of its model, unless every model has one run alone, as checkpoints have."""
    models = [each.model for each in runs]
    return [""] * len(runs) if by_step or len(set(models)) == len(models) else models


def _lines_of_models(
    runs: Sequence[Run], numbers: Sequence[Number], places: Sequence[float], models: Sequence[str]
) -> list[Series]:
    series = []
    for place, model in enumerate(dict.fromkeys(models)):
        own = sorted((each for each in numbers if models[each.run] == model), key=lambda each: places[each.run])
        points = [_point(places[each.run], each, runs[each.run].name) for each in own]
        series.append(Series(model, points, place))
    return series


def time_panel(
    title: str, label: str, series: Sequence[Series], places: Sequence[float], *, by_step: bool, is_share: bool
) -> Panel:
    """Numbers over training steps, or over dates."""
    return Panel(title, label, series, at_label="training step" if by_step else "date (UTC)", at_limits=ends_of_axis(places),
                 limits=(0.0, 1.0) if is_share else None, at_ticks=None if by_step else date_ticks)  # fmt: skip


def ends_of_axis(places: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis: a little beyond the first and the last run."""
    low, high = min(places), max(places)
    pad = (high - low) * 0.05 or 0.5
    return low - pad, high + pad


DAY = 86400.0
SPANS = (
    60,
    300,
    900,
    3600,
    3 * 3600,
    6 * 3600,
    12 * 3600,
    *(DAY * days for days in (1, 2, 7, 14, 30, 91, 182, 365, 730, 3650)),
)


def date_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Dates between two times, or hours where they are near each other; UTC, so that a picture is the same wherever it is drawn.

    >>> date_ticks(0, 3 * DAY, 4)
    [(0.0, '1970-01-01'), (86400.0, '1970-01-02'), (172800.0, '1970-01-03'), (259200.0, '1970-01-04')]
    """
    step = next((each for each in SPANS if (high - low) / each <= max(most - 1, 1)), SPANS[-1])
    shape = "%Y-%m-%d" if step >= DAY else "%m-%d %H:%M"
    first = math.ceil(low / step)
    ticks = [number * float(step) for number in range(first, math.floor(high / step) + 1)][:most]
    return [(each, time.strftime(shape, time.gmtime(each))) for each in ticks or [(low + high) / 2]]


# --- reliability


def _reliability(runs: Sequence[Run], options: PlotOptions) -> Chart:
    panels: dict[tuple[str, ScoreKey], list[Series]] = {}
    for number, run in enumerate(runs):
        chosen = {line.name for line in _lines(run, options.tasks)}
        for curve in curves_of(run):
            if curve.task in chosen:
                points = reliability_points(curve.points, f"{run.name}: {curve.task} ")
                panels.setdefault((curve.task, curve.metric), []).append(Series(run.name, points, number))
    if not panels:
        what = "has no reliability curve: no chosen task has the metric ece"
        fix = "add `- metric: ece` to a multiple-choice task; `assay score` adds it to a run without a model"
        raise ConfigError.at(runs[0].path, what, fix)
    _refuse_many(panels)
    drawn = [
        reliability_panel(_curve_title(runs, task, metric, series), series) for (task, metric), series in panels.items()
    ]
    notes = ["A calibrated model is on the dashed line; large marks have many documents.", *_notes(runs)]
    width = 470.0 if len(drawn) == 1 else WIDTH
    return Chart(options.title or "Reliability", drawn, [each.name for each in runs], notes, width)


def _curve_title(runs: Sequence[Run], task: str, metric: ScoreKey, series: Sequence[Series]) -> str:
    values = [runs[each.number].rows(task) for each in series]
    numbers = [
        row.estimate.value
        for rows in values
        for key, row in rows.items()
        if key == metric and row.estimate.value is not None
    ]
    return f"{task}, ECE " + ", ".join(format_decimal(value, 3) for value in numbers) if numbers else task


def _refuse_many(panels: Collection[tuple[str, ScoreKey]]) -> None:
    if len(panels) > MAX_PANELS:
        raise ConfigError.at("tasks", f"{len(panels)} panels are too many for a picture", "choose some with --tasks")


# --- pass@k


def _pass_at_k(runs: Sequence[Run], options: PlotOptions) -> Chart:
    panels: dict[tuple[str, ScoreKey], list[Series]] = {}
    notes: list[str] = []
    for number, run in enumerate(runs):
        for line in _lines(run, options.tasks):
            for key, scores in _repeated(run, line, options.metric).items():
                repeats = max(map(len, scores))
                whole = [row for row in scores if len(row) == repeats]
                if len(whole) < len(scores):
                    notes.append(
                        f"{run.name}, {line.alias}: {len(scores) - len(whole):,} documents lack answers and are left out"
                    )
                panels.setdefault((line.name, key), []).append(_pass_series(run.name, number, line.alias, whole))
    if not panels:
        what = "has no scores of repeats" + (f" for {options.metric!r}" if options.metric else "")
        fix = "ask each question more than once: `repeats: 8` in the task, or --repeats 8, with a metric of 0 or 1"
        raise ConfigError.at(runs[0].path, what, fix)
    _refuse_many(panels)
    drawn = [
        Panel(f"{task}: {_key_text(key)}", "pass@k (share of 1), 95 % interval", series,
              at_label="k, number of answers", limits=(0.0, 1.0), at_limits=_whole_numbers(series), at_ticks=_whole_ticks)
        for (task, key), series in panels.items()
    ]  # fmt: skip
    return Chart(options.title or "pass@k", drawn, [each.name for each in runs], [*dict.fromkeys(notes), *_notes(runs)])


def _key_text(key: ScoreKey) -> str:
    return key.metric if key.filter == "none" else f"{key.metric} {key.filter}"


def _repeated(run: Run, line: ResultLine, metric: str | None) -> dict[ScoreKey, list[list[float]]]:
    """By metric and filter the scores of every answer, one list for each document; of metrics that are 0 or 1."""
    file = run.sample_file(line.name) if not line.is_group and run.repeats(line.name) > 1 else None
    scores: dict[ScoreKey, list[list[float]]] = {}
    for record in file.records() if file is not None else ():
        for own in record.scores:
            for name, values in own.repeats.items():
                key = ScoreKey(name, own.filter)
                if metric is None or metric in spellings(key):
                    scores.setdefault(key, []).append([float(each) for each in values if isinstance(each, int | float)])
    return {
        key: rows for key, rows in scores.items() if {each for row in rows for each in row} <= {0.0, 1.0} and any(rows)
    }


def _pass_series(name: str, number: int, alias: str, scores: Sequence[Sequence[float]]) -> Series:
    points = []
    for k in range(1, len(scores[0]) + 1):
        passed = combine([scores], how=f"pass@{k}")  # type: ignore[list-item]  # rows of scores, as pass@k takes them
        points.append(estimate_point(k, passed, f"{name}: {alias} pass@{k}"))
    return Series(name, points, number)


def _whole_numbers(series: Sequence[Series]) -> tuple[float, float]:
    return 0.6, max(point.at for each in series for point in each.points) + 0.4


def _whole_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """k as whole numbers, 1 among them."""
    last = math.floor(high)
    step = max(1, -(-last // most))
    return [(float(k), str(k)) for k in dict.fromkeys((1, *range(step, last + 1, step))) if k >= low]


DRAWN: Mapping[PlotKind, Callable[[Sequence[Run], PlotOptions], Chart]] = {
    "intervals": _intervals,
    "time": _over_time,
    "reliability": _reliability,
    "pass_at_k": _pass_at_k,
}


# --- comparisons


def plot_comparison(comparison: Comparison, *, metric: str | None = None) -> Picture:
    """Draw the differences to the first run with their intervals: shares in percentage points, other metrics each on its axis."""
    rows = [row for row in comparison.rows if row.difference.value is not None and math.isfinite(row.difference.value)]
    chosen = [row for row in rows if metric is None or metric in spellings(ScoreKey(row.metric, row.filter))]
    if not chosen:
        known = {name for row in rows for name in spellings(ScoreKey(row.metric, row.filter))}
        what = (
            "the runs have no difference to draw" if metric is None else f"no difference of a metric named {metric!r}"
        )
        raise ConfigError.at("plot", what, did_you_mean(metric, known) if metric else "compare runs that share tasks")
    if metric is None:
        chosen = _main_rows(chosen)
    by_panel: dict[ScoreKey | None, list[ComparedRow]] = {}  # None: shares, which have one axis
    for row in chosen:
        by_panel.setdefault(None if _is_share(row) else ScoreKey(row.metric, row.filter), []).append(row)
    labels = [run.label for run in comparison.runs[1:]]
    title = f"{labels[0] if len(labels) == 1 else f'{len(labels)} runs'} minus {comparison.runs[0].label}"
    panels = [_difference_panel(own, labels, comparison.level) for own in by_panel.values()]
    if sum(len(panel.rows) for panel in panels) > MAX_ROWS:
        raise ConfigError.at(
            "tasks", f"more than {MAX_ROWS} rows are too many for a picture", "choose some with --tasks"
        )
    return Picture(draw(Chart(title, panels, labels, comparison.notes[:5])))


def _main_rows(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """One metric for each task and group: its first that is higher-is-better, else its first."""
    chosen: dict[str, tuple[str, str]] = {}
    for row in sorted(rows, key=lambda each: each.higher_is_better is not True):
        chosen.setdefault(row.name, (row.metric, row.filter))
    return [row for row in rows if chosen[row.name] == (row.metric, row.filter)]


def _is_share(row: ComparedRow) -> bool:
    return all(value is not None and 0 <= value <= 1 for value in (row.a, row.b))


def _difference_panel(rows: Sequence[ComparedRow], labels: Sequence[str], level: float) -> Panel:
    factor, unit = (100.0, "percentage points") if _is_share(rows[0]) else (1.0, rows[0].metric)
    metrics = {_metric_text(row) + _direction(row.higher_is_better) for row in rows}
    alone = len(metrics) == 1
    names = {(row.name, row.metric, row.filter): row for row in reversed(rows)}
    keys = list(dict.fromkeys((row.name, row.metric, row.filter) for row in rows))
    shown = [
        "  " * names[key].depth + names[key].alias + ("" if alone else f": {_metric_text(names[key])}") for key in keys
    ]
    series = [
        Series(label, [_difference_point(row, keys.index((row.name, row.metric, row.filter)), factor, len(labels) == 1)
                       for row in rows if row.run == number], number - 1)
        for number, label in enumerate(labels, 1)
    ]  # fmt: skip
    what = f"{next(iter(metrics))}: difference in {unit}" if alone else f"difference in {unit}"
    if factor == 1.0:
        what = f"difference in {next(iter(metrics))}"
    return Panel("", f"{what}, {format_level(level)} interval", series, shown, zero=True)


def _difference_point(row: ComparedRow, at: int, factor: float, judged: bool) -> Point:
    value, low, high = row.difference.value or 0.0, row.difference.low, row.difference.high
    verdict = row.verdict if judged and row.verdict in ("better", "worse") else ""
    shown = interval_text(value, low, high)
    return Point(
        at, value * factor, None if low is None else low * factor, None if high is None else high * factor,
        f"{row.alias} {_metric_text(row)} {shown}, {row.verdict}", verdict=verdict,
    )  # fmt: skip


# --- parts of pages


def slices_panel(slices: Sequence[Slice], key: ScoreKey) -> Panel:
    """A row for each slice of a task's documents: from 0 to 1 where all are shares."""
    numbers = [part.number for part in slices]
    points = [
        estimate_point(row, number, f"{part.name}:", f"{format_decimal(number.value)} · n {number.n:,}")
        for row, (part, number) in enumerate(zip(slices, numbers, strict=True))
    ]
    ends = [end for number in numbers for end in (number.value, number.low, number.high) if end is not None]
    limits = (0.0, 1.0) if all(0 <= end <= 1 for end in ends) else None
    rows = [part.name for part in slices]
    label = f"{_metric_text(key)}, 95 % interval"
    return Panel("", label, [Series("", points)], rows, limits=limits, whole=limits is not None)


def draw_differences(comparison: Comparison, panel: Panel, run: int) -> Drawing:
    """Draw the differences of a run to the first, for a page."""
    return draw_part(panel, f"{comparison.runs[run].label} minus {comparison.runs[0].label}")


def share_differences(comparison: Comparison, run: int) -> Panel:
    """The differences of a run to the first: of shares that are not lower-is-better, with their p-values."""
    rows = [row for row in comparison.rows if row.run == run and row.higher_is_better is not False and _is_share(row)]
    return forest_panel(
        [row for row in rows if row.difference.interval is not None], comparison.level, _difference_name, _p_text
    )


def forest_panel(
    rows: Sequence[ComparedRow], level: float, name: Callable[[ComparedRow], str], note: Callable[[ComparedRow], str]
) -> Panel:
    """Differences around zero; one whose interval excludes zero is better or worse, where a direction is known."""
    names, points = [name(row) for row in rows], []
    for place, row in enumerate(rows):
        value, low, high = row.difference.value or 0.0, row.difference.low or 0.0, row.difference.high or 0.0
        verdict = "better" if low > 0 else "worse" if high < 0 else ""
        if row.higher_is_better is None:
            verdict = ""
        title = f"{names[place]}: {interval_text(value, low, high)} {note(row)}".rstrip()
        text = " · ".join(part for part in (format_signed(value), note(row)) if part)
        points.append(Point(place, value, low, high, title, verdict=verdict, text=text))
    return Panel("", f"difference, {format_level(level)} interval", [Series("", points)], names, zero=True)


def _difference_name(row: ComparedRow) -> str:
    return f"{row.alias} {metric_title(row.metric, row.filter, is_group=row.kind == 'group')}"


def _p_text(row: ComparedRow) -> str:
    return "" if row.difference.p is None else f"p {format_p(row.difference.p)}"
