"""Gates against the truth: how often a model that has not changed fails one, and how often a drop of 3 points is found.

Runs of a scripted model are stored once: documents are easy, hard or in between (a mixture of beta distributions), a model answers
each with its own chance (or always alike, but for a few), and the candidate has exactly the same share of right answers, or exactly
3 points fewer. Pairs of documents are then drawn from the stored runs, as many as `assay plan --mde 3pp` names, and decided by the
code of `assay gate`.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from assay import simple_evaluate
from assay.comparison.compare import recovery_of
from assay.comparison.contrasts import ComparedTask, PairedRow, Part, RunNoise
from assay.comparison.gates import Gate, GateEvidence, decide, measure, parse_gate
from assay.comparison.packs import between_runs
from assay.comparison.pairing import task_scores
from assay.comparison.planning import Aim, assumed, plan, planned_from_runs
from assay.models import Scripted
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.statistics.intervals import Decision
from assay.statistics.noise import noise_of
from bench.measure import Said

DOCUMENTS, DROP, RUNS = 6000, 0.03, 10_000
RATIOS = 2000
"""Draws of which the interval of the ratio is computed, too."""
KEY = ScoreKey("exact_match", "none")
TASK = """task: t
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{n}}}}"
doc_to_target: "{{{{ 'yes' }}}}"
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
Floats = NDArray[np.float64]
REGRESSION, MARGIN = (
    parse_gate("exact_match >= baseline", plain="value"),
    parse_gate("exact_match >= baseline - 3pp", plain="value"),
)


def difficulty(random: np.random.Generator) -> Floats:
    """The chance of a right answer, by document: half of them easy, a quarter hard, a quarter in between."""
    kinds = np.array([(9.0, 1.0), (9.0, 1.0), (1.0, 4.0), (2.0, 2.0)])[random.integers(4, size=DOCUMENTS)]
    return random.beta(kinds[:, 0], kinds[:, 1])


def answers() -> Mapping[str, Floats]:
    """Right or wrong by document, in each stored run."""
    random = np.random.default_rng(20)
    chances = difficulty(random)
    main = (random.random(DOCUMENTS) < chances) * 1.0
    right = int(main.sum())
    fewer = right - round(DROP * DOCUMENTS)
    return {
        "main": main,
        "sampled anew": _with_right((random.random(DOCUMENTS) < chances) * 1.0, right, random),
        "sampled anew, 3 points lower": _with_right((random.random(DOCUMENTS) < chances - DROP) * 1.0, fewer, random),
        "greedy, 4 % differ": _with_right(_flipped(main, 0.04, random), right, random),
        "greedy, 4 % differ, 3 points lower": _with_right(_flipped(main, 0.04, random), fewer, random),
    }


def _flipped(scores: Floats, share: float, random: np.random.Generator) -> Floats:
    return np.where(random.random(len(scores)) < share, 1 - scores, scores)


def _with_right(scores: Floats, right: int, random: np.random.Generator) -> Floats:
    """The same with exactly so many right, by as few changes as that takes."""
    changed, more = scores.copy(), right - int(scores.sum())
    places = np.flatnonzero(scores == (0 if more > 0 else 1))
    changed[random.choice(places, abs(more), replace=False)] = 1.0 if more > 0 else 0.0
    return changed


def _answering(scores: Floats) -> Callable[[str, Mapping[str, object], int], str]:
    def answer(prompt: str, params: Mapping[str, object], repeat: int) -> str:  # noqa: ARG001  # the shape of an answer
        return "yes" if scores[int(prompt)] else "no"

    return answer


def stored_runs(folder: Path) -> Mapping[str, Run]:
    """The runs, made by the evaluation itself."""
    data = folder / "t.jsonl"
    data.write_text("".join(f'{{"n": "{n}"}}\n' for n in range(DOCUMENTS)))
    (folder / "t.yaml").write_text(TASK.format(data=data))
    runs = {}
    for name, scores in answers().items():
        model = Scripted(generate=_answering(scores), identity=name)
        path = folder / name.replace(" ", "_")
        simple_evaluate(
            model,
            tasks=["t"],
            include_path=str(folder),
            include_defaults=False,
            output_path=str(path),
            log_samples=False,
        )
        runs[name] = Run.open(path)
    return runs


def scores_of(run: Run) -> Floats:
    scores = task_scores(run, "t")
    assert scores is not None
    return np.asarray(scores.values[KEY].values, np.float64)


def row(a: Floats, b: Floats, noise: RunNoise | None = None) -> PairedRow:
    """The row of a comparison of two runs on the drawn documents."""
    is_rate = bool(np.isin(a, (0, 1)).all())
    member = ComparedTask(
        task="t", key=KEY, source="t", documents=np.arange(len(a)), places=np.arange(len(a)), a=float(a.mean()),
        b=float(b.mean()), is_rate=is_rate, only_a=0, only_b=0, influence_a=a, influence_b=b, scores_a=a, scores_b=b,
        wide=1.0, is_mean=True,
    )  # fmt: skip
    return PairedRow("task", "t", "t", KEY, 0, True, member.a, member.b, (Part(member),), noise=noise)


def decision(gate: Gate, pair: PairedRow, runs: tuple[Run, Run]) -> Decision:
    [verdict] = decide(measure(gate, GateEvidence([pair], runs, 1, allow_incomplete=True)), 0.95)
    return verdict.decision


@dataclass(frozen=True)
class Shares:
    """Shares of the draws: of each decision of both gates, and of a bare threshold that is not met."""

    regression: Mapping[Decision, float]
    margin: Mapping[Decision, float]
    bare: float
    bare_margin: float
    recovery: float
    count: int


def simulated(runs: tuple[Run, Run], n: int, count: int = RUNS) -> Shares:
    """Draw pairs of documents again and again, and decide each draw."""
    a, b = map(scores_of, runs)
    random = np.random.default_rng([n, crc32(runs[1].path.name.encode())])
    first: list[Decision] = []
    second: list[Decision] = []
    ratio, bare, bare_margin, held = b.mean() / a.mean(), 0, 0, 0
    for number in range(count):
        drawn = random.integers(len(a), size=n)
        pair = row(a[drawn], b[drawn])
        first.append(decision(REGRESSION, pair, runs))
        second.append(decision(MARGIN, pair, runs))
        bare += (pair.b or 0) < (pair.a or 0)
        bare_margin += (pair.b or 0) < (pair.a or 0) - DROP
        if number < RATIOS:
            kept = recovery_of(pair, 0.95)
            held += (
                kept is not None and kept.low is not None and kept.high is not None and kept.low <= ratio <= kept.high
            )
    return Shares(_shares(first), _shares(second), bare / count, bare_margin / count, held / min(RATIOS, count), count)


def _shares(decisions: Sequence[Decision]) -> Mapping[Decision, float]:
    return {each: decisions.count(each) / len(decisions) for each in ("pass", "fail", "inconclusive")}


def planned(runs: Mapping[str, Run], other: str) -> int:
    """How many documents `assay plan --mde 3pp --baseline main OTHER` names."""
    [needed] = planned_from_runs([runs["main"], runs[other]], ["t"], None, Aim(mde=DROP))
    return needed.needed


def noisy_baseline(with_noise: bool, count: int = 1500, documents: int = 400) -> float:
    """How often a regression gate fails a model that has not changed, where whole runs differ by 2 points (one standard
    deviation) and the baseline is three of them."""
    random = np.random.default_rng(7)
    failed = 0
    folder = Run(Path("main"), {})
    for _ in range(count):
        chances = random.beta(2.0, 2.0, size=documents)
        drawn = [(random.random(documents) < chances + random.normal(0, 0.02)) * 1.0 for _ in range(4)]
        before, after = np.stack(drawn[:3]), drawn[3]
        noise = noise_of(before.T.tolist())
        assert noise is not None
        known = between_runs([float(each.mean()) for each in before], noise.within / documents)
        own = RunNoise(known["between_runs"], 3) if with_noise and known["between_runs"] else None
        failed += decision(REGRESSION, row(before.mean(axis=0), after, own), (folder, folder)) == "fail"
    return failed / count


def rows() -> Iterator[Said]:
    with tempfile.TemporaryDirectory() as folder:
        runs = stored_runs(Path(folder))
        worst = plan("t", "a rate", None, assumed(Aim(mde=DROP)), Aim(mde=DROP)).needed
        alarms, drops = [], []
        for same in ("sampled anew", "greedy, 4 % differ"):
            for n, how in ((planned(runs, same), "plan with two runs"), (worst, "plan without a run")):
                unchanged = simulated((runs["main"], runs[same]), n)
                lower = simulated((runs["main"], runs[f"{same}, 3 points lower"]), n)
                alarms.append(unchanged.regression["fail"])
                drops.append(lower.regression["fail"])
                yield from _lines(f"{same}, n = {n} ({how})", unchanged, lower)
        yield Said("all together: false alarms", f"{np.mean(alarms):.2%} of {len(alarms) * RUNS:,}", "≤ 5 %")
        yield Said("worst of all: a 3-point drop is found", f"{min(drops):.1%}", "≥ 80 %")
        without, carried = noisy_baseline(False), noisy_baseline(True)
        yield Said(
            "whole runs differ by 2 points; baseline of 3 runs: false alarms",
            f"{carried:.2%}",
            "≤ 5 %",
            f"{without:.2%} without the noise",
        )


def _lines(name: str, unchanged: Shares, lower: Shares) -> Iterator[Said]:
    strict, both = "'acc >= baseline - 3pp', --inconclusive fail", "'acc >= baseline', --inconclusive pass"
    yield Said(
        f"{name}: {both}: false alarms",
        f"{unchanged.regression['fail']:.2%}",
        "5 % ± 0.5",
        f"{unchanged.bare:.0%} of a bare threshold",
    )
    yield Said(
        f"{name}: {both}: 3-point drop found",
        f"{lower.regression['fail']:.1%}",
        "≥ 80 %",
        f"{lower.bare_margin:.0%} of a bare threshold with a margin of 3 points",
    )
    yield Said(f"{name}: {strict}: unchanged model passes", f"{unchanged.margin['pass']:.1%}", "≥ 80 %")
    yield Said(f"{name}: {strict}: 3-point drop passes", f"{lower.margin['pass']:.2%}", "5 % ± 1")
    yield Said(
        f"{name}: coverage of the recovery's 95 % interval", f"{min(unchanged.recovery, lower.recovery):.1%}", "95 %"
    )
