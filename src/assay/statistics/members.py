"""A group's number from those of its members: means, a difference, a sum, the middle one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from assay.errors import some
from assay.records import Floats
from assay.statistics.evidence import Estimate, Evidence, with_evidence
from assay.statistics.influence import SHARE, Bounds, Influence, Spread
from assay.statistics.intervals import spread_of
from assay.statistics.spread import NEAR, MemberEstimate, curved, resampled, smooth, unknown

DRAWS, FEWER, MANY_DOCUMENTS = 10_000, 1_000, 100_000
"""Resamples of a median; fewer where there are very many documents, or where only the shape near 0 matters."""


def mean_by_weight(members: Sequence[MemberEstimate], weights: Sequence[float]) -> Estimate:
    """The mean of the members, each with its weight. By size, that of all documents together."""
    whole = sum(weights)
    if not whole:
        return unknown(None, members, "no member has a document")
    numbers = [float(member.estimate) for member in members]
    above = 0.0
    for own, weight in zip(numbers, weights, strict=True):
        above += own * weight
    value = min(max(above / whole, min(numbers)), max(numbers)) if min(weights) >= 0 else above / whole
    number = smooth(value, members, [weight / whole for weight in weights])
    size = sum(member.size for member in members)
    by_size = all(
        abs(member.size * whole - weight * size) <= 1e-9 * abs(whole) * size
        for member, weight in zip(members, weights, strict=True)
    )
    is_rate = by_size and all(member.estimate.evidence.is_rate for member in members)
    return replace(number, scale=_shared_bounds(members), evidence=replace(number.evidence, is_rate=is_rate))


def _shared_bounds(members: Sequence[MemberEstimate]) -> Bounds | None:
    bounds = {member.estimate.scale for member in members}
    return bounds.pop() if len(bounds) == 1 else None


def harmonic_mean(members: Sequence[MemberEstimate], weights: Sequence[float]) -> Estimate:
    """The harmonic mean: low members pull it down. There is none where a member is 0 or less."""
    return power_mean(members, weights, -1.0, "harmonic")


def geometric_mean(members: Sequence[MemberEstimate], weights: Sequence[float]) -> Estimate:
    """The geometric mean. There is none where a member is 0 or less."""
    return power_mean(members, weights, 0.0, "geometric")


def power_mean(members: Sequence[MemberEstimate], weights: Sequence[float], power: float, named: str) -> Estimate:
    """A mean of powers, back in the scale of its members. Its interval is around the number minus the bias that a bent function
    of uncertain members has."""
    if any(float(member.estimate) <= 0 for member in members):
        return unknown(None, members, f"a {named} mean needs numbers above 0")
    if len(members) == 1 or not sum(weights):
        return mean_by_weight(members, weights)
    numbers, shares = np.array([float(member.estimate) for member in members]), np.array(weights) / sum(weights)
    mean = float(_power_mean(numbers, shares, power))
    ratios = (mean / numbers) ** (1 - power)
    slopes = shares * ratios
    number = curved(mean, members, slopes.tolist(), lambda drawn: _power_mean(drawn, shares, power), FEWER)
    bends = (1 - power) * slopes * (slopes / mean - 1 / numbers)  # second derivatives by each member
    errors = np.minimum(
        [member.estimate.stderr or 0.0 for member in members], numbers
    )  # nearer to 0 the expansion fails
    center = mean - float((bends * errors**2).sum()) / 2
    near = [member.name for member in members if float(member.estimate) < NEAR * (member.estimate.stderr or 0.0)]
    note = f"{some(near)}: may as well be 0, and the interval says little of a {named} mean then" if near else ""
    evidence = replace(number.evidence, center=center)
    return replace(number, scale=_shared_bounds(members), note=note, evidence=evidence)


def _power_mean(numbers: Floats, shares: Floats, power: float) -> Floats:
    """The mean of each row; where the power nears 0, that of logarithms."""
    return (numbers**power @ shares) ** (1 / power) if power else np.exp(np.log(numbers) @ shares)


def middle(
    members: Sequence[MemberEstimate],
    weights: Sequence[float] = (),  # noqa: ARG001  # all alike
    *,
    draws: int | None = None,
) -> Estimate:
    """The middle member, or the mean of the two; its spread over resampled documents."""
    if len(members) == 1:
        return mean_by_weight(members, [1.0])
    value = float(median(float(member.estimate) for member in members))
    usual = DRAWS if sum(member.size for member in members) <= MANY_DOCUMENTS else FEWER
    chosen = np.zeros(len(members))

    def medians(numbers: Floats) -> Floats:
        ranked, half = np.sort(numbers, axis=1), len(members) // 2
        for place in {half, len(members) - 1 - half}:
            there = np.abs(numbers - ranked[:, [place]]) <= 1e-12
            chosen[:] += (there / there.sum(axis=1, keepdims=True)).sum(axis=0)
        return np.median(numbers, axis=1)

    error, reason = resampled(medians, members, draws or usual)
    n, independent = sum(member.size for member in members), sum(member.estimate.draws for member in members)
    evidence = Evidence(draws=independent, tasks=len(members))
    number = Estimate(value, error, n, reason, scale=_shared_bounds(members), evidence=evidence)
    if error is None:
        return number
    return with_evidence(number, spread=_spread_of_middle(members, chosen / chosen.sum(), number))


def _spread_of_middle(members: Sequence[MemberEstimate], chances: Floats, number: Estimate) -> Spread:
    """As of the members, by how often each is in the middle: what their spread for intervals is larger than the plain one."""
    own, share = [spread_of(member.estimate) for member in members], 1.0 if len(members) % 2 else 0.5
    plain = np.array([(member.estimate.stderr or 0.0) ** 2 for member in members])
    wide, freedom = np.array([each.variance for each in own]), np.array([each.freedom for each in own])
    variance = (number.stderr or 0.0) ** 2
    total = variance + share * float(chances @ (wide - plain))
    if (
        total <= 0.0
    ):  # members of two documents, one right: pseudo-documents make their spread narrower by more than there is
        total = variance
    parts = chances * wide
    moved = np.array([each.shrunk - member.estimate.center for each, member in zip(own, members, strict=True)])
    return Spread(total, float(parts.sum() ** 2 / (parts**2 / freedom).sum()), float(number) + float(chances @ moved))


def least(members: Sequence[MemberEstimate], weights: Sequence[float] = ()) -> Estimate:  # noqa: ARG001
    """The least of the members."""
    return _chosen(min(float(member.estimate) for member in members), members, "least")


def greatest(members: Sequence[MemberEstimate], weights: Sequence[float] = ()) -> Estimate:  # noqa: ARG001
    """The greatest of the members."""
    return _chosen(max(float(member.estimate) for member in members), members, "greatest")


def _chosen(value: float, members: Sequence[MemberEstimate], which: str) -> Estimate:
    if len(members) == 1:
        return mean_by_weight(members, [1.0])
    return unknown(value, members, f"which member is the {which} is a matter of chance")


def difference(
    members: Sequence[MemberEstimate],
    weights: Sequence[float] = (),  # noqa: ARG001
    *,
    of: Sequence[str] | None = None,
) -> Estimate:
    """One member minus another: the two that there are, or those that `of` names."""
    if of is not None:
        members = [member for name in of for member in members if member.name == name]
    if len(members) != 2:
        return unknown(None, members, f"a difference takes two members, and there are {len(members)}")
    number = smooth(float(members[0].estimate) - float(members[1].estimate), members, [1.0, -1.0])
    bounds = _shared_bounds(members)
    wide = bounds[1] - bounds[0] if bounds is not None else math.inf
    return replace(number, scale=(-wide, wide) if math.isfinite(wide) else None)


def weighted_sum(members: Sequence[MemberEstimate], weights: Sequence[float], *, normalize: bool = False) -> Estimate:
    """The sum of the members, each times its weight; with `normalize`, over the sum of the weights."""
    whole = sum(weights) if normalize else 1.0
    if not whole:
        return unknown(None, members, "the weights add up to 0")
    slopes = [weight / whole for weight in weights]
    value = sum(weight * float(member.estimate) for weight, member in zip(weights, members, strict=True)) / whole
    limits = [member.estimate.scale for member in members]
    number = smooth(value, members, slopes)
    if any(each is None for each in limits):
        return number
    ends = [sorted((slope * each[0], slope * each[1])) for slope, each in zip(slopes, limits, strict=True) if each]
    low, high = sum(each[0] for each in ends), sum(each[1] for each in ends)
    return replace(number, scale=(low, high) if math.isfinite(low + high) else None)


def mean_of_scores(scores: Floats, like: Estimate) -> Estimate:
    """The mean of a score per document, for the documents that another number has."""
    n, value = len(scores), float(scores.mean())
    if n < 2 or like.draws == 1:
        return Estimate(value, None, n, like.reason or "one document has no spread", evidence=Evidence(draws=1))
    known = next(iter(like.evidence.parts), None) or Influence(f"documents {id(like)}", range(n), None, 0.0)
    draws = Influence.of_mean(known.source, known.documents, scores, known.clusters, bounds=SHARE)
    return Estimate(value, math.sqrt(draws.variance), n, scale=SHARE, evidence=Evidence({draws: 1.0}, draws.count))
