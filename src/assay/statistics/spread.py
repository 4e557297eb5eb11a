"""How a group's number varies: documents are the draws, tasks are given.

A number of a group is a function of its members' numbers, and those vary with their documents. `Influence` has each
document's contribution to a member's number; a smooth function of several members passes the contributions on (`smooth`), any
other one is computed again on resampled documents (`resampled`). A document that several members share moves them all at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import some
from assay.records import Floats
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence

if TYPE_CHECKING:
    import numpy as np

    from assay.statistics.estimates import Integers

FEW = 64
"""Up to so many different contributions, how often each is drawn is drawn instead of the documents themselves."""
PIECE = 65536
"""So many documents are drawn at a time: they stay in the processor's cache, which halves the time."""
NEAR = 3.0
"""Within so many standard errors of 0 a member may as well be there."""


class MemberEstimate(NamedTuple):
    """One member's part in a number: its name, its own number, and how many documents that has."""

    name: str
    estimate: Estimate
    size: int


def smooth(value: float | None, members: Sequence[MemberEstimate], slopes: Sequence[float]) -> Estimate:
    """A number with its error; `slopes` are its derivatives by the members' numbers."""
    parts: dict[Influence, float] = {}
    for member, slope in zip(members, slopes, strict=True):
        for draws, share in _parts(member).items():
            parts[draws] = parts.get(draws, 0.0) + slope * share
    n = sum(member.size for member in members)
    without = [member.name for member in members if member.estimate.stderr is None]
    if without:
        return Estimate(
            value, None, n, f"no standard error is known of {some(without)}", evidence=Evidence(tasks=len(members))
        )
    error = math.sqrt(variance(parts))
    independent = sum(member.estimate.draws for member in members)
    return Estimate(value, error, n, evidence=Evidence(parts, independent, tasks=len(members)))


def _parts(member: MemberEstimate) -> Mapping[Influence, float]:
    """What its error is made of; all of it, where only the error is known, as of an estimate of user code or of a stored run."""
    own, stderr = member.estimate.evidence.parts, member.estimate.stderr
    return {Influence(member.name, range(member.size), None, stderr**2): 1.0} if stderr and not own else own


def unknown(value: float | None, members: Sequence[MemberEstimate], reason: str) -> Estimate:
    """A number without a standard error, and why."""
    size = sum(member.size for member in members)
    return Estimate(value, None, size, reason, evidence=Evidence(tasks=len(members)))


def variance(parts: Mapping[Influence, float]) -> float:
    """The variance of a sum of contributions: by document where members share a source, else member by member. Never too small: see
    `_shared_variance` where the contributions of shared documents are not known."""
    by_source: dict[str, list[tuple[Influence, float]]] = {}
    for draws, share in parts.items():
        by_source.setdefault(draws.source, []).append((draws, share))
    return sum(
        same_source[0][1] ** 2 * same_source[0][0].variance if len(same_source) == 1 else _shared_variance(same_source)
        for same_source in by_source.values()
    )


def _shared_variance(parts: Sequence[tuple[Influence, float]]) -> float:
    """Of parts of one source. How a part without contributions varies with others that have its documents is not known: their
    errors are added, which is the most that it can be."""
    import numpy as np

    numbers = draw_numbers([draws for draws, _ in parts])
    known = [(own, share * np.asarray(draws.contributions)) for own, (draws, share) in zip(numbers, parts, strict=True)
             if draws.contributions is not None]  # fmt: skip
    together = alone = 0.0
    if known:
        _, place = np.unique(np.concatenate([own for own, _ in known]), return_inverse=True)
        together = math.sqrt(
            np.sum(np.bincount(place, weights=np.concatenate([contributions for _, contributions in known])) ** 2)
        )
    met, counts = np.unique(np.concatenate([np.unique(own) for own in numbers]), return_counts=True)
    for own, (draws, share) in zip(numbers, parts, strict=True):
        if draws.contributions is None and len(own) and not np.isin(own, met[counts > 1]).any():
            alone += share**2 * draws.variance
        elif draws.contributions is None:
            together += abs(share) * math.sqrt(draws.variance)
    return together**2 + alone


def draw_numbers(parts: Sequence[Influence]) -> list["Integers"]:
    """For each part, of each document the number of its draw. Documents that one of them puts together are so for all."""
    import numpy as np

    if len(parts) == 1:
        [part] = parts
        return [np.asarray(part.documents if part.clusters is None else part.clusters)]
    clusters: dict[int, int] = {}
    for part in parts:
        if part.clusters is not None:
            clusters.update(zip(part.documents, part.clusters, strict=True))
    if not clusters:
        return [np.asarray(part.documents) for part in parts]
    return [np.array([clusters.get(document, document) for document in part.documents]) for part in parts]


def curved(
    value: float,
    members: Sequence[MemberEstimate],
    slopes: Sequence[float],
    compute: Callable[[Floats], Floats],
    draws: int,
) -> Estimate:
    """As `smooth`, for a number that exists above 0 only.

    Where a member is within three standard errors of 0, a straight line through it says little of such a number (simulated, it is
    a third too much, or a sixth too little): the spread over resampled documents that leave it defined is taken instead.
    """
    straight = smooth(value, members, slopes)
    near = any(float(member.estimate) < NEAR * (member.estimate.stderr or 0.0) for member in members)
    if not near or not straight.stderr or _without_influence(members):
        return straight
    import numpy as np

    numbers = np.array([float(member.estimate) for member in members]) + _deviations(members, draws, seed=0)
    defined = numbers[(numbers > 0).all(axis=1)]
    if len(defined) < 2:
        return straight
    times = float(np.std(compute(defined), ddof=1)) / straight.stderr
    return smooth(value, members, [times * slope for slope in slopes])


def resampled(
    compute: Callable[[Floats], Floats], members: Sequence[MemberEstimate], draws: int, seed: int = 0
) -> tuple[float, str] | tuple[None, str]:
    """The spread of a number over resampled documents. `compute` takes a row of members' numbers per draw.

    A member whose documents' influence is unknown cannot be resampled: then the result is None, and the reason.
    """
    import numpy as np

    without = _without_influence(members)
    if without:
        return None, f"the documents of {some(without)} are not known"
    deviations = _deviations(members, draws, seed)
    return float(np.std(compute(_centres(members, deviations) + deviations), ddof=1)), ""


def _without_influence(members: Sequence[MemberEstimate]) -> list[str]:
    without = []
    for member in members:
        parts = member.estimate.evidence.parts
        if not parts or any(part.contributions is None for part in parts):
            without.append(member.name)
    return without


def _deviations(members: Sequence[MemberEstimate], draws: int, seed: int) -> Floats:
    """How far the members' numbers are off in each draw of documents: a row per draw."""
    import numpy as np

    off = np.zeros((draws, len(members)))
    sums: dict[Influence, Floats] = {}
    random = np.random.Generator(np.random.SFC64(seed))
    alike = sorted(members, key=lambda each: (each.size, float(each.estimate), each.estimate.stderr or 0.0))
    _draw_sums(
        [part for member in alike for part in member.estimate.evidence.parts], draws, random, sums
    )  # in any order the same
    for column, member in enumerate(members):
        for part, share in member.estimate.evidence.parts.items():
            off[:, column] += share * sums[part]
    return off


def _centres(members: Sequence[MemberEstimate], deviations: Floats) -> Floats:
    """The members' numbers, as far apart as the true ones may be.

    Chance has spread the numbers already, and would do so again in every draw: the spread of a middle one came out up to
    15 % too large. So they are drawn together by what chance adds to their variance, minus what James and Stein leave to
    the uncertainty of that variance. A number that is linear in the members does not notice.
    """
    import numpy as np

    numbers = np.array([float(member.estimate) for member in members])
    count = len(numbers)
    apart = float(np.var(numbers, ddof=1)) if count > 3 else 0.0
    if not apart:
        return numbers
    by_chance = float(np.var(deviations, axis=1, ddof=1).mean()) * (count - 3) / (count - 1)
    mean = numbers.mean()
    centres: Floats = mean + math.sqrt(max(0.0, 1 - by_chance / apart)) * (numbers - mean)
    return centres


def _draw_sums(
    parts: Sequence[Influence], draws: int, random: "np.random.Generator", sums: dict[Influence, Floats]
) -> None:
    """For each part the sum of its contributions over every draw of documents; parts of one source are drawn together."""
    by_source: dict[str, list[Influence]] = {}
    for part in dict.fromkeys(parts):
        by_source.setdefault(part.source, []).append(part)
    for same_source in by_source.values():
        if len(same_source) == 1:
            sums[same_source[0]] = _sums(same_source[0].by_draw(), draws, random)
        else:
            _draw_together(same_source, draws, random, sums)


def _sums(contributions: Floats, draws: int, random: "np.random.Generator") -> Floats:
    """Sums of as many contributions as there are, drawn with replacement, so many times."""
    import numpy as np

    contributions = np.asarray(contributions, dtype=np.float64)
    n = len(contributions)
    different, counts = np.unique(contributions, return_counts=True)
    if len(different) <= FEW:
        weighted: Floats = random.multinomial(n, counts / n, size=draws) @ different
        return weighted
    sums = np.zeros(draws)
    buffer = np.empty(PIECE)
    if n > PIECE:
        for start in range(0, n, PIECE):
            size = min(PIECE, n - start)
            for draw in range(draws):
                chosen = random.integers(n, size=size)
                sums[draw] += contributions.take(chosen, mode="clip", out=buffer[:size]).sum()
        return sums
    rows = PIECE // n
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        chosen = random.integers(n, size=size * n)
        drawn = contributions.take(chosen, mode="clip", out=buffer[: size * n])
        sums[start : start + size] = drawn.reshape(size, n).sum(axis=1)
    return sums


def _draw_together(
    parts: Sequence[Influence], draws: int, random: "np.random.Generator", sums: dict[Influence, Floats]
) -> None:
    """Members that share documents: a document is drawn for all of them. One that has not all of the documents is given
    what it would have if as many of its documents had been drawn as it has."""
    import numpy as np

    numbers = draw_numbers(parts)
    every = np.unique(np.concatenate(numbers))
    table = np.zeros((len(every), 2 * len(parts)))
    for column, (part, own) in enumerate(zip(parts, numbers, strict=True)):
        places = np.searchsorted(every, own)
        table[:, column] = np.bincount(places, weights=part.contributions, minlength=len(every))
        table[:, len(parts) + column] = np.bincount(places, minlength=len(every))
    drawn = _drawn_rows(table, draws, random)
    for column, part in enumerate(parts):
        times = drawn[:, len(parts) + column]
        sums[part] = drawn[:, column] * (len(part.documents) / np.maximum(times, 1.0))


def _drawn_rows(table: Floats, draws: int, random: "np.random.Generator") -> Floats:
    """Sums of as many rows as there are, drawn with replacement, so many times."""
    import numpy as np

    n = len(table)
    different, counts = np.unique(table, axis=0, return_counts=True)
    if len(different) <= FEW:
        weighted: Floats = random.multinomial(n, counts / n, size=draws) @ different
        return weighted
    sums = np.empty((draws, table.shape[1]))
    rows = max(1, min(draws, 1_000_000 // n))
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        chosen = random.integers(n, size=(size, n)) + np.arange(size)[:, None] * n
        sums[start : start + size] = np.bincount(chosen.ravel(), minlength=size * n).reshape(size, n) @ table
    return sums
