"""How a group's number varies: documents are the draws, tasks are given.

A number of a group is a function of its members' numbers, and those vary with their documents. `Draws` says how far each document
moves a member's number; a smooth function of several members passes these moves on (`smooth`), any other one is
computed again on resampled documents (`resampled`). A document that several members share moves them all at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from assay.records import Draws, Estimate

FEW = 64
"""Up to so many different moves, how often each is drawn is drawn instead of the documents themselves."""


class Member(NamedTuple):
    """One member's part in a number: its name, its own number, and how many documents that has."""

    name: str
    estimate: Estimate
    size: int


def smooth(value: float, members: Sequence[Member], slopes: Sequence[float]) -> Estimate:
    """A number with its error; `slopes` are its derivatives by the members' numbers."""
    parts: dict[Draws, float] = {}
    for member, slope in zip(members, slopes, strict=True):
        for draws, share in member.estimate.parts.items():
            parts[draws] = parts.get(draws, 0.0) + slope * share
    n = sum(member.size for member in members)
    without = [member.name for member in members if member.estimate.stderr is None]
    if without:
        return Estimate(value, None, n, f"no standard error is known of {_some(without)}", tasks=len(members))
    return Estimate(value, math.sqrt(variance(parts)), n, parts=parts, tasks=len(members))


def unknown(value: float, members: Sequence[Member], reason: str) -> Estimate:
    """A number without a standard error, and why."""
    return Estimate(value, None, sum(member.size for member in members), reason, tasks=len(members))


def variance(parts: Mapping[Draws, float]) -> float:
    """The variance of a sum of moves: by document where members share a source, else member by member."""
    by_source: dict[str, list[tuple[Draws, float]]] = {}
    for draws, share in parts.items():
        by_source.setdefault(draws.source, []).append((draws, share))
    return sum(
        several[0][1] ** 2 * several[0][0].variance if len(several) == 1 else _shared_variance(several)
        for several in by_source.values()
    )


def _shared_variance(several: Sequence[tuple[Draws, float]]) -> float:
    import numpy as np

    known = [(draws, share) for draws, share in several if draws.moves is not None]
    alone = sum(share**2 * draws.variance for draws, share in several if draws.moves is None)
    if not known:
        return alone
    documents = np.concatenate([np.asarray(draws.documents) for draws, _ in known])
    moves = np.concatenate([share * np.asarray(draws.moves) for draws, share in known])
    _, place = np.unique(documents, return_inverse=True)
    return alone + float(np.sum(np.bincount(place, weights=moves) ** 2))


def resampled(
    compute: Callable[[Any], Any], members: Sequence[Member], draws: int, seed: int = 0
) -> tuple[float, str] | tuple[None, str]:
    """The spread of a number over resampled documents. `compute` takes a row of members' numbers per draw.

    Members without moves of their documents have no resamples: then there is no spread, and the reason is told.
    """
    import numpy as np

    without = [m.name for m in members if not m.estimate.parts or any(d.moves is None for d in m.estimate.parts)]
    if without:
        return None, f"the documents of {_some(without)} are not known"
    random = np.random.default_rng(seed)
    values = np.empty((draws, len(members)))
    sums: dict[Draws, Any] = {}
    _draw_sums([part for member in members for part in member.estimate.parts], draws, random, sums)
    for column, member in enumerate(members):
        values[:, column] = float(member.estimate)
        for part, share in member.estimate.parts.items():
            values[:, column] += share * sums[part]
    return float(np.std(compute(values), ddof=1)), ""


def _draw_sums(parts: Sequence[Draws], draws: int, random: Any, sums: dict[Draws, Any]) -> None:
    """For each part the sum of its moves over every draw of documents; parts of one source are drawn together."""
    by_source: dict[str, list[Draws]] = {}
    for part in dict.fromkeys(parts):
        by_source.setdefault(part.source, []).append(part)
    for several in by_source.values():
        if len(several) == 1:
            sums[several[0]] = _sums(several[0].moves, draws, random)
        else:
            _draw_together(several, draws, random, sums)


def _sums(moves: Any, draws: int, random: Any) -> Any:
    """Sums of as many moves as there are, drawn with replacement, so many times."""
    import numpy as np

    moves = np.asarray(moves, dtype=np.float64)
    n = len(moves)
    different, counts = np.unique(moves, return_counts=True)
    if len(different) <= FEW:
        return random.multinomial(n, counts / n, size=draws) @ different
    made = np.empty(draws)
    rows = max(1, min(draws, 4_000_000 // n))
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        chosen = random.integers(n, size=size * n, dtype=np.uint32)
        made[start : start + size] = moves.take(chosen).reshape(size, n).sum(axis=1)
    return made


def _draw_together(several: Sequence[Draws], draws: int, random: Any, sums: dict[Draws, Any]) -> None:
    """Members that share documents: a document is drawn for all of them."""
    import numpy as np

    every = np.unique(np.concatenate([np.asarray(part.documents) for part in several]))
    table = np.zeros((len(every), len(several)))
    for column, part in enumerate(several):
        table[np.searchsorted(every, part.documents), column] = part.moves
    made = np.empty((draws, len(several)))
    rows = max(1, 2_000_000 // len(every))
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        chosen = random.integers(len(every), size=(size, len(every)))
        made[start : start + size] = table[chosen].sum(axis=1)
    for column, part in enumerate(several):
        sums[part] = made[:, column]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
