"""Every error a user can meet: what happened, where, and how to fix it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from os import PathLike, fspath
from typing import ParamSpec, Self, TypeVar

from assay.similar import nearest as nearest

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A point in a file or a flag. Lines and columns count from 1; line 0 is the whole of it."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake in what the user wrote. If it is not `serious`, it is a warning. Code that decides by what a problem is
    about looks at its `cause`, and never at its words.

    >>> print(Problem(Place("a.yaml", 3, 1), "unknown key 'taks'", "did you mean 'task'?"))
    a.yaml:3:1: unknown key 'taks' — did you mean 'task'?
    """

    place: Place
    what: str
    fix: str = ""
    serious: bool = True
    cause: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f" — {self.fix}" if self.fix else "")


class SelfExplanatory(Exception):
    """An error whose message is a complete sentence for users, shown without its type."""

    problem: Problem | None = None
    """The same with its place, where that is known."""


class AssayError(SelfExplanatory):
    """Base class of every error that assay raises on purpose."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def at(cls, place: "Place | str | PathLike[str]", what: str, fix: str = "") -> Self:
        """Return an error about one problem: at a place of a file, in a file or run, or in what has this name, such as a flag.

        >>> print(ConfigError.at("--level", "must be between 0.5 and 1, got 0.3"))
        --level: must be between 0.5 and 1, got 0.3
        """
        return cls([Problem(place if isinstance(place, Place) else Place(fspath(place)), what, fix)])


Explained = TypeVar("Explained", bound=SelfExplanatory)


def placed_error(kind: Callable[[str], Explained], problem: Problem) -> Explained:
    """An error about one problem."""
    error = kind(str(problem))
    error.problem = problem
    return error


class ConfigError(AssayError, ValueError):
    """A file, flag or argument is invalid, or names something that does not exist."""


def collect(problems: list[Problem], check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what a check returns; where it refuses something, add that to the problems, and return None."""
    try:
        return check(*args, **kwargs)
    except ConfigError as error:
        problems += error.problems
        return None


def check_each(check: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
    """Return what a check returns for each item. What it refuses is raised at once: none of the items hides another's."""
    problems: list[Problem] = []
    results: list[T] = []
    for item in items:
        try:
            results.append(check(item))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return results


def uncheckable(file: str, reason: str) -> Problem:
    """Report a file on which assay's own code fails; only that file is unusable."""
    return Problem(Place(file, 1, 1), reason, "correct the file; if it is valid, report this as a bug in assay")


MOST_NAMES = 12


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Suggest the nearest option, or list the first options if none is near.

    >>> did_you_mean("ignore_cas", ["ignore_case", "k"])
    "did you mean 'ignore_case'?"
    """
    known = sorted(set(map(str, options)))  # YAML keys need not be texts
    near = nearest(str(name), known, count=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
    return f"use one of: {', '.join(known[:MOST_NAMES])}{more}" if known else "leave it out: there is none to name"


def unknown_name(kind: str, name: str, known: Iterable[str], place: Place) -> Problem:
    """The problem of a name that no member of a kind has."""
    return Problem(place, f"no {kind} named {name!r}", did_you_mean(str(name), known), cause=(kind, name))


def some(names: Sequence[str]) -> str:
    """List the first three names and the number of the others.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def grouped(reasons: Iterable[tuple[str, str]], least: int = 3) -> list[tuple[list[str], str]]:
    """Names by their reason. Reasons that differ only in paths, numbers and the names themselves are one if there are
    `least` of them, with `…` where they differ.

    >>> grouped([(name, f"data/{name} is on the hub: pip install x") for name in ("t_a", "t_b", "t_c")] + [("u", "too old")])
    [(['t_a', 't_b', 't_c'], 'data/t_… is on the hub: pip install x'), (['u'], 'too old')]
    """
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, reason in reasons:
        groups.setdefault(tuple(_unchanging(word, name) for word in reason.split(" ")), []).append((name, reason))
    named: list[tuple[list[str], str]] = []
    for members in groups.values():
        texts = list(dict.fromkeys(reason for _, reason in members))
        if len(members) >= least or len(texts) == 1:
            named.append(
                (
                    [name for name, _ in members],
                    " ".join(map(_common, zip(*(t.split(" ") for t in texts), strict=True))),
                )
            )
        else:
            named += [([name], reason) for name, reason in members]
    return named


def _unchanging(word: str, name: str) -> str:
    return "…" if "/" in word or any(map(str.isdigit, word)) or (len(name) > 2 and name in word) else word


def _common(words: Sequence[str]) -> str:
    """One word for several: what they begin and end with alike."""
    if len(set(words)) == 1:
        return words[0]
    start = _beginning(words)
    end = _beginning([word[len(start) :][::-1] for word in words])[::-1]
    return f"{start}…{end}"


def _beginning(words: Sequence[str]) -> str:
    first, last = min(words), max(words)  # the two that differ the most
    return first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def installing(extra: str) -> str:
    """Return the command that installs an extra: by name only if assay was installed from a package index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        from_index = distribution("assay").read_text("direct_url.json") is None
    except PackageNotFoundError:
        from_index = False
    return (
        f"pip install 'assay[{extra}]'" if from_index else f"pip install '.[{extra}]' in the folder of assay's sources"
    )


def library_problem(library: str | None, what: str, place: Place) -> Problem | None:
    """Report that a library which `what` needs is not installed, with the command to install it."""
    top = library.partition(".")[0] if library is not None else ""
    if not top or find_spec(top) is not None:
        return None
    packages = {"sklearn": "scikit-learn", "rouge_score": "rouge-score", "math_verify": "math-verify"}
    fix = installing("math" if top == "math_verify" else "metrics")
    return Problem(place, f"{what} needs {packages.get(top, top)}, which is not installed", fix)
