"""What a request knows of the connection that it was sent on."""

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.models.servers.connections import Link


class StaleConnection(Exception):
    """A connection that was used before brought no answer to this request. It is sent again at once, on a new connection."""


class Checkout:
    """The connection of one request. `wants_new`: it must be one that was never used."""

    __slots__ = ("is_early", "is_reused", "link", "wants_new")

    def __init__(self, *, wants_new: bool) -> None:
        self.wants_new, self.is_reused, self.is_early = wants_new, False, False
        self.link: Link | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether the answer may be another request's."""
        return self.is_reused and (self.is_early or (self.link is not None and self.link.is_distrusted))


current_checkout: ContextVar[Checkout | None] = ContextVar("current_checkout", default=None)
"""The checkout of the request that the current task sends: the connection that it takes is noted there."""
