"""The queue of a fleet: requests in pieces that share the beginning of their prompts, so that one replica computes it once."""

from collections import deque
from collections.abc import Iterable, Sequence

from assay.records import Generate, Loglikelihood, Request

KeyedRequest = tuple[bytes, Request]
MIN_SHARED = 32
"""Letters; a shorter common beginning is not worth keeping requests together."""
WHOLE = 2
"""A piece that is at most so many times larger than what is wanted of it is taken whole."""
MOST_CHOICES = 64
"""Requests with one prompt that are kept together beyond the number that is wanted."""


class Piece:
    """Requests that share the beginning of their prompts. `holder` is the replica that took the first of them."""

    __slots__ = ("head", "holder", "last", "requests", "shared")

    def __init__(self, head: str, holder: object = None) -> None:
        self.head, self.last, self.holder = head, head, holder
        self.shared = 0
        """Letters that all have in common; 0 while there is one prompt."""
        self.requests: deque[KeyedRequest] = deque()

    def takes(self, text: str) -> bool:
        """Whether a prompt belongs to this piece. Nearly all calls compare one slice."""
        if text == self.last:
            return True
        if not self.shared:
            self.shared = _common(self.head, text)
            if self.shared < MIN_SHARED:
                self.shared = 0
                return False
        least = self.shared * 3 // 4
        if self.head[:least] != text[:least]:
            return False
        self.last = text
        return True

    def first(self, number: int) -> list[KeyedRequest]:
        """Take requests from the front: so many, and those with the last one's prompt."""
        requests = self.requests
        taken = [requests.popleft() for _ in range(min(number, len(requests)))]
        while requests and len(taken) < number + MOST_CHOICES and _prompt(requests[0][1]) is _prompt(taken[-1][1]):
            taken.append(requests.popleft())
        return taken

    def back_half(self) -> "Piece":
        """Take the second half out of this piece, as one of its own."""
        half = Piece(self.head)
        half.shared, half.last = self.shared, self.last
        keep = len(self.requests) // 2
        while len(self.requests) > keep:
            half.requests.appendleft(self.requests.pop())
        most = len(half.requests) + MOST_CHOICES
        while (
            self.requests
            and len(half.requests) < most
            and _prompt(self.requests[-1][1]) is _prompt(half.requests[0][1])
        ):
            half.requests.appendleft(self.requests.pop())
        return half


def _prompt(request: Request) -> object:
    if isinstance(request, Generate):
        return request.prompt
    return request.context if isinstance(request, Loglikelihood) else request.text


def _text(request: Request) -> str:
    prompt = _prompt(request)
    return prompt if isinstance(prompt, str) else "\0".join(f"{each.role}\0{each.content}" for each in prompt)  # type: ignore[attr-defined]  # messages


def _common(one: str, other: str) -> int:
    """Length of the common beginning, by bisection: comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class PrefixQueue:
    """Requests that wait for a replica, in their order, by piece.

    A replica takes from the piece that it began, then from those that none began; one without either takes half of the
    largest piece of another.
    """

    def __init__(self) -> None:
        self._fresh: deque[Piece] = deque()
        self._held: dict[object, list[Piece]] = {}
        self._newest: Piece | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def clear(self) -> None:
        self._fresh.clear()
        self._held.clear()
        self._newest, self._size = None, 0

    def put(self, requests: Sequence[KeyedRequest]) -> None:
        """Add requests at the end."""
        for piece in self._pieces(requests, self._newest):
            if piece is not self._newest:
                self._fresh.append(piece)
                self._newest = piece

    def put_back(self, requests: Sequence[KeyedRequest]) -> None:
        """Add requests at the front: a replica was lost with them."""
        self._fresh.extendleft(reversed([*self._pieces(requests, None)]))

    def _pieces(self, requests: Sequence[KeyedRequest], piece: Piece | None) -> Iterable[Piece]:
        """Yield the pieces of requests, each once; those that belong to the given piece are added to it."""
        self._size += len(requests)
        pieces: list[Piece] = []
        before: object = None
        for keyed in requests:
            prompt = _prompt(keyed[1])
            if piece is None or not piece.requests or prompt is not before:
                text = _text(keyed[1])
                if piece is None or not piece.takes(text) or not piece.requests:
                    piece = Piece(text)
                    pieces.append(piece)
            before = prompt
            piece.requests.append(keyed)
        return pieces

    def take(self, holder: object, size: int, window: int) -> list[KeyedRequest]:
        """Take about so many requests for a replica, and at most a window; whole pieces where they fit."""
        taken: list[KeyedRequest] = []
        while len(taken) < min(size, window):
            piece = self._own(holder) or self._begin(holder) or (None if taken else self._steal(holder))
            if piece is None:
                break
            room = size - len(taken)
            most = window - len(taken)
            taken += piece.first(min(len(piece.requests) if len(piece.requests) <= WHOLE * room else room, most))
        self._size -= len(taken)
        return taken

    def release(self, holder: object) -> None:
        """A replica is lost: others may take what it began."""
        pieces = [piece for piece in self._held.pop(holder, ()) if piece.requests]
        for piece in pieces:
            piece.holder = None
        self._fresh.extendleft(reversed(pieces))

    def _own(self, holder: object) -> Piece | None:
        held = self._held.get(holder, [])
        while held and not held[-1].requests:
            held.pop()
        return held[-1] if held else None

    def _begin(self, holder: object) -> Piece | None:
        while self._fresh:
            piece = self._fresh.popleft()
            if piece.requests:
                return self._hold(piece, holder)
        return None

    def _steal(self, holder: object) -> Piece | None:
        others = [piece for pieces in self._held.values() for piece in pieces if piece.requests]
        if not others:
            return None
        largest = max(others, key=lambda piece: len(piece.requests))
        return self._hold(largest.back_half(), holder)

    def _hold(self, piece: Piece, holder: object) -> Piece:
        piece.holder = holder
        self._held.setdefault(holder, []).append(piece)
        return piece
