"""The names of lm-eval's tasks, groups and tags, known without the package: a name is answered with the way to get it."""

import lzma
import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from assay.catalog.index import Index
from assay.catalog.roots import BUNDLED
from assay.errors import Place, Problem, nearest, some

FILE = Path(__file__).with_name("lm_eval_names.xz")
"""The version, and a paragraph of names for each kind; written by tools/make_lm_eval_names.py."""
VERSION = "0.4.13"
GET = f"`assay fetch tasks` gets them; so does pip install --no-deps lm_eval=={VERSION}"
KINDS = ("task", "group", "tag")
OTHER_NAMES = {
    "aime_2024": "aime24",
    "aime_2025": "aime25",
    "big_bench_hard": "bbh",
    "bigbench_hard": "bbh",
    "instruction_following_eval": "ifeval",
    "massive_multitask_language_understanding": "mmlu",
    "natural_question": "nq_open",
    "natural_questions": "nq_open",
}
"""Other names of well-known benchmarks, which have no letters in common with lm-eval's."""


@cache
def lm_eval_names() -> Mapping[str, str]:
    """The kind of every name of lm_eval 0.4.13."""
    paragraphs = lzma.decompress(FILE.read_bytes()).decode().split("\n\n")[1:]
    return {name: kind for kind, names in zip(KINDS, paragraphs, strict=True) for name in names.split()}


def packed_names(names: Mapping[str, Iterable[str]]) -> bytes:
    """The content of the file, from the names of each kind."""
    text = "\n\n".join([VERSION, *("\n".join(sorted(names[kind])) for kind in KINDS)])
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


def missing_names(index: Index) -> Mapping[str, str]:
    """The names of lm-eval's that are not here, by kind: none where the index has lm-eval's folder, of whatever version."""
    has_folder = any(root.path.replace(os.sep, "/").endswith("/lm_eval/tasks") for root, _ in index.parts)
    return {} if has_folder else lm_eval_names()


def unknown_name(index: Index, name: str, place: Place, *, only_tag: bool = False) -> Problem:
    """The problem of a name that the index does not have, with the names that may be meant and the way to get them."""
    known = index.tags if only_tag else {**index.named, **index.tags}
    theirs = {each: kind for each, kind in missing_names(index).items() if kind == "tag" or not only_tag}
    if name in theirs:
        return Problem(place, f"{name!r} is one of lm-eval's {theirs[name]}s, {_why_absent(index)}", _remedy(index))
    what = f"no {'tag' if only_tag else 'task, group or tag'} named {name!r}"
    if not theirs and name in lm_eval_names():
        return Problem(place, what, f"lm_eval {VERSION} has it, and the installed version does not")
    return Problem(place, what, _suggestion(index, name, known, theirs))


def unmatched(index: Index, pattern: str, place: Place, kinds: Sequence[str] = KINDS) -> Problem:
    """The problem of a pattern that no name matches."""
    theirs = {name: kind for name, kind in missing_names(index).items() if kind in kinds}
    names = sorted(name for name in theirs if fnmatchcase(name, pattern))
    if names:
        what = f"{pattern!r} matches only names of lm-eval's ({some(names)}), {_why_absent(index)}"
        return Problem(place, what, _remedy(index))
    fix = _suggestion(index, pattern.strip("*?"), index.names(*kinds), theirs)
    return Problem(place, f"no name matches {pattern!r}", fix)


def _why_absent(index: Index) -> str:
    return "which are not installed" if _has_defaults(index) else "which are not searched without the default folders"


def _remedy(index: Index) -> str:
    return GET if _has_defaults(index) else "leave out --no_defaults"


def _has_defaults(index: Index) -> bool:
    return any(root.origin == BUNDLED for root, _ in index.parts)


def _suggestion(index: Index, name: str, known: Iterable[str], theirs: Iterable[str]) -> str:
    """The names that may be meant; and how to get those that are lm-eval's, and not here."""
    here = nearest(name, known)
    other = OTHER_NAMES.get(name.casefold().replace("-", "_"), "")
    names = list(theirs) if _has_defaults(index) else []
    absent = [other] if other in names else nearest(name, names, 5 - len(here))
    near = list(dict.fromkeys([*here, *absent]))
    if not near:
        return "`assay ls` lists every name"
    listed = f"did you mean {', '.join(near)}?"
    if not absent:
        return listed
    which = (
        "That is"
        if len(near) == 1
        else "They are"
        if not here
        else "The last is"
        if len(absent) == 1
        else f"The last {len(absent)} are"
    )
    return f"{listed} {which} lm-eval's: {_remedy(index)}"
