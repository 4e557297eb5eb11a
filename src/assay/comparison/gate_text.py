"""Conditions that people write: a metric, a sign and a threshold. The one parser of `--gate`, `assay gate` and `--stop_when`."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from assay.errors import ConfigError, Place, nearest
from assay.runs.comparison import GateKind, Unit
from assay.statistics.arrays import SIGNS
from assay.statistics.influence import PERCENT, Bounds

_LEFT = r"\s*+(?P<metric>[^/<>=,\s]++)(?:,(?P<filter>[^<>=\s]++))?+\s*+(?P<sign>>=|<=|>|<)\s*+"
_RIGHT = (
    r"(?P<baseline>baseline\s*+(?P<plus>[+\-−])?+)?+\s*+\$?+(?P<number>[+\-−]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+\-]?+\d++)?+)?+\s*+"
    r"(?P<unit>pp|%\s*+rel|rel|%\s*+of\s++(?:the\s++)?baseline|%|[smhdkM]|)\s*+"
)
# Nothing is read twice (`*+`): with spaces that four neighbours could share, a text of 200 characters took 0.7 s.
_WRITTEN = re.compile(_LEFT + _RIGHT)
GATE = Place("--gate")
FIX = "write it as 'acc > -0.5pp', 'mmlu/acc >= -1% rel', 'acc >= 99% of baseline' or 'word_perplexity < 0.05'"
FIX_VALUE = (
    "write it as 'acc >= 0.8', 'mmlu/acc > 75%', 'failed <= 1%', 'cost <= 5', 'time <= 10m' or 'acc >= baseline - 1pp'"
)
OF_WHAT = "write 'pp' for percentage points, or '% rel' for a share of the first run's value"
COUNTS = {
    "failed": "%",
    "truncated": "%",
    "empty": "%",
    "cost": "",
    "time": "smhd",
    "tokens": "kM",
}
"""Counts of a run that a gate may name, each with the units that its threshold may have."""
SIZES = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "k": 1_000, "M": 1_000_000}
Plain = Literal["difference", "value"]
"""The meaning of a threshold without a unit: a difference to the first run, or the number itself."""


@dataclass(frozen=True)
class Gate:
    """A condition for the top-level rows, or for the rows that a name selects: about a metric's difference to a baseline, its
    value, or a count of the run."""

    written: str
    name: str | None
    metric: str
    filter: str | None
    sign: str
    threshold: float
    unit: Unit
    kind: GateKind = "difference"

    @property
    def relative(self) -> bool:
        """Whether it is a share of the first run's value."""
        return self.unit in ("% rel", "% of baseline")

    @property
    def wants_more(self) -> bool:
        return self.sign.startswith(">")

    def lets(self, value: float) -> bool:
        """Whether a value is on the right side."""
        return SIGNS[self.sign](value, self.threshold)

    def on(self, scale: Bounds | None) -> "Gate":
        """The gate for a number of this scale: of one from 0 to 100, 25 % is 25."""
        return replace(self, threshold=self.threshold * 100, unit="") if self.unit == "%" and scale == PERCENT else self


def parse_gate(written: str, place: Place = GATE, fix: str = FIX, plain: Plain = "difference") -> Gate:
    """A gate from `[NAME/]METRIC[,FILTER] > THRESHOLD`, where the threshold is a number with or without a unit,
    `baseline - NUMBER`, or `99% of baseline`.

    >>> gate = parse_gate("mmlu/acc > -0.5pp")
    >>> gate.name, gate.metric, gate.sign, gate.threshold, gate.relative
    ('mmlu', 'acc', '>', -0.005, False)
    >>> parse_gate("acc >= 99% of baseline").threshold, parse_gate("acc > 75%", plain="value").threshold
    (-0.010000000000000009, 0.75)
    """
    gate = _read_gate(written, place, fix, plain)
    if not math.isfinite(gate.threshold):
        raise ConfigError.at(place, f"{written!r}: the threshold must be a finite number", fix)
    return gate


def _read_gate(written: str, place: Place, fix: str, plain: Plain) -> Gate:
    name, slash, condition = written.rpartition("/")
    match = _WRITTEN.fullmatch(condition) if name.strip() or not slash else None
    if match is None or not (match["number"] or (match["baseline"] and not match["plus"])):
        raise ConfigError.at(place, f"invalid gate {written!r:.200}", fix)
    number = float((match["number"] or "0").replace("−", "-"))
    unit = re.sub(r"\s+", " ", match["unit"]).replace("% rel", "%rel")
    gate = Gate(written.strip(), name.strip() or None, match["metric"], match["filter"], match["sign"], number, "")
    if plain == "value" and gate.metric in COUNTS and gate.filter is None:
        return _count(gate, unit, is_relative=bool(match["baseline"]) or len(unit) > 1, place=place)
    if unit in SIZES:
        what = f"{written!r}: {gate.metric!r} does not have the unit {unit!r}"
        raise ConfigError.at(place, what, fix)
    if match["baseline"]:
        if match["number"] and (not match["plus"] or match["number"][0] in "+-−"):
            raise ConfigError.at(place, f"invalid gate {written!r}", "write 'acc >= baseline - 1pp'")
        number = -number if match["plus"] in ("-", "−") else number
        if "of" in unit or unit == "%":
            raise ConfigError.at(place, f"{written!r} does not say of what it is a percentage", OF_WHAT)
    if "of" in unit:
        return replace(gate, threshold=number / 100 - 1, unit="% of baseline")
    if unit in ("pp", "%rel", "rel") or match["baseline"] or plain == "difference":
        if unit == "%":
            raise ConfigError.at(place, f"{written!r} does not say of what it is a percentage", OF_WHAT)
        share = number / 100 if unit in ("pp", "%rel") else number
        return replace(gate, threshold=share, unit="% rel" if unit.endswith("rel") else "pp" if unit == "pp" else "")
    return replace(gate, threshold=number / 100 if unit == "%" else number, unit="%" if unit else "", kind="value")


def _count(gate: Gate, unit: str, *, is_relative: bool, place: Place) -> Gate:
    """A gate about a count of the run: documents or a share of them, money, seconds, tokens."""
    known = COUNTS[gate.metric]
    if is_relative or unit not in ("", *known):
        units = f"a number, or one with {' or '.join(known)}" if known else "a number without a unit"
        raise ConfigError.at(place, f"{gate.written!r}: the threshold of {gate.metric!r} is {units}", FIX_VALUE)
    if "%" in known and not unit and gate.threshold % 1:
        what = f"{gate.written!r}: {gate.metric!r} is a number of documents"
        raise ConfigError.at(place, what, f"write '{gate.threshold * 100:g}%' for a share of them")
    if unit == "%":
        return replace(gate, threshold=gate.threshold / 100, unit="%", kind="count")
    return replace(gate, threshold=gate.threshold * SIZES.get(unit, 1), kind="count")


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """The nearest name, and all that there are.

    >>> suggestion("accc", ["acc", "f1"])
    "did you mean 'acc'? There are: acc, f1"
    """
    names = sorted(set(known))
    near = nearest(wrong, names, count=1)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return (f"did you mean {near[0]!r}? " if near else "") + (f"There are: {listed}" if names else "there is none")
