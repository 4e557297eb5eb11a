"""Times for people: in the progress line of a run and on the pages of one in progress."""

from collections.abc import Sequence


def time_left_text(seconds: float | None, unknown: Sequence[str] = ()) -> str:
    """The time left in words; a kind of request that was not seen yet makes it a minimum.

    >>> time_left_text(130.0), time_left_text(20.0, ("judge calls",))
    ('about 2 min left', 'at least 20 s left (judge calls not yet seen)')
    """
    unseen = f" ({' and '.join(_few(unknown))} not yet seen)" if unknown else ""
    if seconds is None:
        return f"time left unknown{unseen}"
    return f"{'at least' if unknown else 'about'} {duration(seconds)} left{unseen}"


def duration(seconds: float) -> str:
    """A duration in at most two units.

    >>> duration(3.4), duration(95), duration(7500)
    ('3 s', '2 min', '2 h 5 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _few(kinds: Sequence[str]) -> list[str]:
    return [*kinds[:2], f"{len(kinds) - 2} more kinds"] if len(kinds) > 3 else list(kinds)
