"""What tokens cost: by two arguments, or from a file that lists models."""

from pathlib import Path
from typing import Any, NamedTuple

from assay.config.source import Source
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.records import Usage

MILLION = 1_000_000


class Price(NamedTuple):
    """Money for a million tokens: read, written, and read again from the provider's own store."""

    read: float
    written: float
    stored: float

    def of(self, usage: Usage) -> float:
        fresh = usage.read - usage.stored
        return (fresh * self.read + usage.stored * self.stored + usage.written * self.written) / MILLION

    def most(self, characters: int, written: int) -> float:
        """The most a request may cost, if a token has at least two characters."""
        return (characters / 2 * self.read + written * self.written) / MILLION


def price_of(model: str, read: float | None, written: float | None, table: str | None) -> Price | None:
    """The price of a model: as given, or by its name in a file; None where nobody says."""
    if table is not None:
        return _listed(model, table)
    if read is None and written is None:
        return None
    return Price(read or 0.0, written or 0.0, read or 0.0)


def _listed(model: str, path: str) -> Price:
    """A row of a file such as `gpt-x: {in: 2.5, out: 10, stored: 1.25}`."""
    place = Place("model_args.prices")
    try:
        rows: Any = Source(path, Path(path).expanduser().read_bytes()).value
    except OSError as error:
        raise ConfigError([Problem(place, f"{path} cannot be read: {error.strerror}", "check the path")]) from None
    if not isinstance(rows, dict) or model not in rows:
        known = list(rows) if isinstance(rows, dict) else []
        raise ConfigError(
            [Problem(place, f"{path} has no price of {model!r}", did_you_mean(model, known) or "add a row")]
        )
    row = rows[model]
    wrong = not isinstance(row, dict) or not {"in", "out"} <= set(row) <= {"in", "out", "stored"}
    if wrong or not all(isinstance(value, int | float) and value >= 0 for value in row.values()):
        fix = f"write `{model}: {{in: 2.5, out: 10}}`, money for a million tokens"
        raise ConfigError([Problem(place, f"the row of {model!r} in {path} is no price", fix)])
    return Price(float(row["in"]), float(row["out"]), float(row.get("stored", row["in"])))
