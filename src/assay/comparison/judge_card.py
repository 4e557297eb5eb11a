"""A judge's card: agreement with people's labels, and what the judge lets itself be led by: order, length, relatives, chance."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.comparison.labelling import JudgeRows
from assay.errors import ConfigError
from assay.records import Floats, mapping
from assay.runs.labels import TaskLabels
from assay.runs.run import Run
from assay.runs.samples.records import StoredSample, shown_texts
from assay.statistics.aggregations import krippendorff_alpha
from assay.statistics.agreement import kappa, spearman
from assay.statistics.arrays import estimate
from assay.statistics.evidence import Estimate
from assay.statistics.jackknife import Pairs, jackknifed

WINNER = re.compile(r'"winner"\s*:\s*"(A|B|tie)"')
FAMILY = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class CardEntry:
    """One property of a judge with its interval, of n documents, and how to read it."""

    task: str
    name: str
    number: Estimate
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
    entries = [entry for each in rows for entry in _of_task(run, each, run.labels.get(each.task))]
    if not entries:
        fix = "write a table with `assay label RUN`, fill it in, and import it: `assay label RUN --import FILE`"
        raise ConfigError.at(run.path, "no document of this run has a label", fix)
    return entries


def _of_task(run: Run, rows: JudgeRows, labels: TaskLabels | None) -> Iterator[CardEntry]:
    judged = _read(run, rows, labels)
    middle = (rows.bounds[0] + rows.bounds[1]) / 2
    wide = rows.bounds[1] - rows.bounds[0]
    tested = [*_agreement(judged, middle, wide), *_leanings(judged, run, wide), *_consistency(judged, wide)]
    tested += people_agreement(labels) if labels is not None else ()
    yield from (CardEntry(rows.task, name, number, meaning) for name, number, meaning in tested)


def _read(run: Run, rows: JudgeRows, labels: TaskLabels | None) -> Judged:
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
