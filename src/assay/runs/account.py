"""What several parts of a run took, together."""

from collections.abc import Mapping, Sequence
from typing import Any


def total_usage(accounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The accounts of parts as one: counts and costs are added. Of the seconds the longest stand: percentiles do not add up."""
    made: dict[str, Any] = {}
    for account in accounts:
        for key, value in account.items():
            if key == "seconds":
                known = made.get(key, {})
                made[key] = {name: max(known.get(name, 0.0), seconds) for name, seconds in value.items()}
            elif isinstance(value, Mapping):
                made[key] = total_usage([made.get(key, {}), value])
            else:
                made[key] = made.get(key, 0) + value
    return made
