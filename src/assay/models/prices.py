"""Token prices: from two arguments, or from a file with a row per model."""

from pathlib import Path
from typing import NamedTuple

from assay.config.source import Source
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.records import Usage

MILLION = 1_000_000


class Price(NamedTuple):
    """Price per million tokens: input, output, and input from the provider's cache."""

    read: float
    written: float
    stored: float

    def of(self, usage: Usage) -> float:
        fresh = usage.read - usage.stored
        return (fresh * self.read + usage.stored * self.stored + usage.written * self.written) / MILLION

    def maximum(self, characters: int, written: int) -> float:
        """Maximum cost of a request, if a token has at least two characters."""
        return (characters / 2 * self.read + written * self.written) / MILLION


def price_of(model: str, read: float | None, written: float | None, table: str | None) -> Price | None:
    """Return the price of a model, from the arguments or the file; None if there is none."""
    if table is not None:
        return _listed(model, table)
    if read is None and written is None:
        return None
    return Price(read or 0.0, written or 0.0, read or 0.0)


def _listed(model: str, path: str) -> Price:
    """Return the row of a file such as `gpt-x: {in: 2.5, out: 10, stored: 1.25}`."""
    place = Place("model_args.prices")
    try:
        rows = Source(path, Path(path).expanduser().read_bytes()).value
    except OSError as error:
        raise ConfigError([Problem(place, f"{path} cannot be read: {error.strerror}", "check the path")]) from None
    if not isinstance(rows, dict) or model not in rows:
        known = list(rows) if isinstance(rows, dict) else []
        raise ConfigError(
            [Problem(place, f"no price for {model!r} in {path}", did_you_mean(model, known) or "add a row")]
        )
    row = rows[model]
    wrong = not isinstance(row, dict) or not {"in", "out"} <= set(row) <= {"in", "out", "stored"}
    if wrong or not all(isinstance(value, int | float) and value >= 0 for value in row.values()):
        fix = f"write `{model}: {{in: 2.5, out: 10}}`, per million tokens"
        raise ConfigError([Problem(place, f"invalid price for {model!r} in {path}", fix)])
    return Price(float(row["in"]), float(row["out"]), float(row.get("stored", row["in"])))
