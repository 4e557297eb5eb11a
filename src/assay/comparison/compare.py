"""Comparing runs: document by document, each run against the first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.comparison.attribution import attribute
from assay.comparison.comparison import Attribution as Attribution
from assay.comparison.comparison import ComparedRun as ComparedRun
from assay.comparison.comparison import Comparison as Comparison
from assay.comparison.comparison import Difference as Difference
from assay.comparison.comparison import Flip as Flip
from assay.comparison.comparison import ComparedRow as ComparedRow
from assay.comparison.comparison import GateVerdict as GateVerdict
from assay.comparison.flips import flips_of
from assay.comparison.gates import GateEvidence, Gate, decide, parse_gate
from assay.comparison.pairing import pair_tasks, refuse_other_prompts, shared_tasks
from assay.comparison.rows import below, selected_rows, paired_rows, lone_rows, compared_members, compared_row
from assay.comparison.run_scores import model_of
from assay.errors import ConfigError, Place, Problem
from assay.runs.run import Run
from assay.statistics.paired import holm


@dataclass(frozen=True)
class CompareOptions:
    tasks: Sequence[str]
    metrics: Sequence[str]
    gates: Sequence[Gate]
    cluster_by: str | None
    other_prompts: bool
    incomplete: bool
    flips: int
    level: float
    power: float


def compare(  # noqa: PLR0913  # each is an option of the command
    runs: Sequence[str | Path],
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
) -> Comparison:
    """The others of these runs against the first, on the documents they share.

    `tasks` (names, globs, groups) and `metrics` choose rows. `level` is that of the intervals and, one-sided, of the gates.
    `flips` is how many documents of each task are listed that became worse, and that became better. Runs whose prompts differ are
    refused unless that is allowed. Gates count documents that not both runs scored at their worst, unless `allow_incomplete`.
    """
    asked = [parse_gate(each) for each in gates]
    _check_shares(level, power)
    wanted = CompareOptions(tasks, metrics, asked, cluster_by, allow_different_prompts, allow_incomplete, flips, level, power)
    read = _read([Path(run) for run in runs])
    parts = [_compare_pair(read[0], other, number, wanted) for number, other in enumerate(read[1:], 1)]
    return Comparison(
        runs=_labelled(read),
        rows=_corrected([row for part in parts for row in part.rows], 1 - level),
        attributions=[each for part in parts for each in part.attributions],
        flips=[flip for part in parts for flip in part.flips],
        verdicts=[verdict for part in parts for verdict in part.verdicts],
        notes=list(dict.fromkeys([*_endings(read), *(note for part in parts for note in part.notes)])),
        level=level,
        power=power,
    )


def _check_shares(level: float, power: float) -> None:
    for name, value in (("--level", level), ("--power", power)):
        if not 0.5 < value < 1:
            what = f"{value:g} is no {name[2:]}: it lies between 0.5 and 1"
            raise ConfigError([Problem(Place(name), what, "give 0.95, say")])


def _read(folders: Sequence[Path]) -> list[Run]:
    if len(folders) < 2:
        what = "a comparison takes two runs or more"
        raise ConfigError([Problem(Place("assay compare"), what, "name the first one, then those to compare with it")])
    places = [folder.resolve() for folder in folders]
    twice = [folder for number, folder in enumerate(folders) if places[number] in places[:number]]
    if twice:
        raise ConfigError([Problem(Place(str(twice[0])), "the same run is named twice", "name each run once")])
    return [Run.open(folder).finished() for folder in folders]


def _compare_pair(a: Run, b: Run, number: int, wanted: CompareOptions) -> Comparison:
    """One run against the first."""
    notes: list[str] = []
    shared = set(shared_tasks(a, b))
    named = (
        set().union(*(below(a, each, shared) for each in wanted.tasks))
        if wanted.tasks
        else {*a.scored_tasks, *b.scored_tasks}
    )
    tasks = pair_tasks(a, b, named, notes)
    if not wanted.other_prompts:
        refuse_other_prompts(tasks, a, b)
    every = paired_rows((a, b), compared_members(tasks, (a, b), wanted.cluster_by, notes), notes)
    several = selected_rows(every, a, wanted.tasks, wanted.metrics)
    gated = selected_rows([*every, *lone_rows(a, every)], a, wanted.tasks, wanted.metrics)
    evidence = GateEvidence(gated, tasks, (a, b), number, wanted.level, wanted.incomplete)
    return Comparison(
        runs=(),
        rows=[compared_row(line, number, wanted.level, wanted.power) for line in several],
        attributions=[attribute(a, b, tasks, number)],
        flips=flips_of(tasks, several, number, wanted.flips) if wanted.flips else (),
        verdicts=[each for gate in wanted.gates for each in decide(gate, evidence)],
        notes=notes,
    )


def _corrected(rows: Sequence[ComparedRow], alpha: float) -> list[ComparedRow]:
    """The rows with each task's p corrected for how many there are, in all comparisons with the first run, and what that says."""
    tested = [(place, row.p) for place, row in enumerate(rows) if row.kind == "task" and row.p is not None]
    corrected = dict(zip((place for place, _ in tested), holm([p for _, p in tested]), strict=True))
    made = [replace(row, p_holm=corrected.get(place)) for place, row in enumerate(rows)]
    return [replace(row, verdict=row.told(alpha)) for row in made]


def _labelled(runs: Sequence[Run]) -> list[ComparedRun]:
    """The runs by the shortest ends of their paths that tell them apart."""
    parts = [run.path.resolve().parts for run in runs]
    length = 1
    while len({each[-length:] for each in parts}) < len(parts):
        length += 1
    return [
        ComparedRun(
            run.path, "/".join(each[-length:]), model_of(run), run.status, run.manifest.get("finished", run.manifest.get("created"))
        )
        for run, each in zip(runs, parts, strict=True)
    ]  # fmt: skip


def _endings(runs: Sequence[Run]) -> list[str]:
    return [f"{run.path}: the run is {run.status}" for run in runs if run.status not in ("complete", "unknown")]
