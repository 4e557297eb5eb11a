"""Times for people: in the progress line of a run and on the pages of one in progress."""

from collections.abc import Sequence

from assay.number_text import format_duration


def time_left_text(seconds: float | None, unknown: Sequence[str] = ()) -> str:
    """The time left in words; a kind of request that was not seen yet makes it a minimum.

    >>> time_left_text(130.0), time_left_text(20.0, ("judge calls",))
    ('about 2 min left', 'at least 20 s left (judge calls not yet seen)')
    """
    unseen = f" ({' and '.join(_few(unknown))} not yet seen)" if unknown else ""
    if seconds is None:
        return f"time left unknown{unseen}"
    rounded = round(seconds) if seconds < 60 else round(seconds / 60) * 60  # nobody knows it better
    return f"{'at least' if unknown else 'about'} {format_duration(rounded)} left{unseen}"


def _few(kinds: Sequence[str]) -> list[str]:
    return [*kinds[:2], f"{len(kinds) - 2} more kinds"] if len(kinds) > 3 else list(kinds)
