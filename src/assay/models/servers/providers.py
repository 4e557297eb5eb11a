"""What providers want otherwise: one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True)
class Rules:
    """How parameters are written for a model: another name for the limit, what it refuses, how many stops it takes,
    whether it thinks before it answers."""

    limit_key: str = "max_tokens"
    refuses: tuple[str, ...] = ()
    most_stops: int | None = None
    thinks: bool = False

    def applied(self, params: Mapping[str, Any]) -> dict[str, Any]:
        made = {key: value for key, value in params.items() if key not in self.refuses}
        if self.limit_key != "max_tokens" and "max_tokens" in made:
            made[self.limit_key] = made.pop("max_tokens")
        if not made.get("stop"):
            made.pop("stop", None)
        elif self.most_stops is not None:
            made["stop"] = made["stop"][: self.most_stops]
        return made


REASONING = Rules("max_completion_tokens", ("temperature", "stop"), thinks=True)
TABLE: tuple[tuple[str, str, Rules], ...] = (
    ("*api.openai.com*", "o[1-9]*", REASONING),
    ("*api.openai.com*", "gpt-5*", REASONING),
    ("*api.openai.com*", "*", Rules(most_stops=4)),
)
"""By address and model, both as patterns: the first that fits."""


def rules_for(model: str, url: str) -> Rules:
    return next((rules for at, name, rules in TABLE if fnmatchcase(url, at) and fnmatchcase(model, name)), Rules())
