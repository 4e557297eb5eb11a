"""`assay samples`: show samples of a run readably. What a model wrote cannot steer the terminal."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import orjson

from assay.cli.output import counted, say, tell
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.runs.folder import MANIFEST, no_run, read_manifest, read_results
from assay.runs.rows import RequestRow, Row
from assay.runs.stored import SampleFile, is_whole
from assay.tasks.audit import KINDS

LONG = 2000
"""Characters of a prompt or answer that are shown without --full."""


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="RUN", help="the folder of a run, or of a scoring of it: RUN/scored/001")
    add("--task", "-t", action="append", metavar="NAME", help="samples of this task; may be given again")
    add("--wrong", action="store_true", help="only those of which no filter's first metric is above 0")
    add(
        "--reason",
        choices=list(KINDS),
        help="only those: " + "; ".join(f"{kind}: {why}" for kind, why in KINDS.items()),
    )
    add("--doc", type=int, nargs="+", metavar="ID", help="only these documents, by doc_id")
    add("-n", type=_count, default=5, metavar="N", help="how many of each task (5); 0 for all")
    add("--full", action="store_true", help="show the examples before the question, and texts to their end")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of samples")
    return int(text)


def run(options: argparse.Namespace) -> int:
    files = _files(Path(options.folder), options.task)
    better = read_results(Path(options.folder)).get("higher_is_better", {})
    for task, path in files.items():
        rows = (row for row in SampleFile(path).rows() if _is_wanted(row, options, better.get(task, {})))
        for row in islice(rows, options.n or None):
            say(f"\n━━ {task} · document {row.doc_id}{_marks(row)}")
            for name, text in _parts(row, full=options.full):
                say(f"── {name}\n{text}")
        left = sum(1 for _ in rows)
        if left:
            tell(f"{task}: {counted(left, 'sample')} more; -n 0 shows all")
    return 0


def _files(folder: Path, wanted: Sequence[str] | None) -> dict[str, Path]:
    """The samples files by task: those in place, and those of tasks that have ended in a run that has not."""
    found = {path.name.partition(".parquet")[0]: path for path in sorted((folder / "samples").glob("*.parquet*"))}
    found = {name: path for name, path in found.items() if path.suffix == ".parquet" or is_whole(path)}
    names = {_file_name(task): task for task in _tasks(folder)}
    files = {names.get(name, name): path for name, path in found.items()}
    if not files:
        there = (folder / MANIFEST).is_file()
        what = "no task of this run has come to its end yet" if there else "the folder holds no run"
        raise ConfigError([no_run(folder, what)])
    for task in wanted or ():
        if task not in files:
            what = f"there are no samples of a task {task!r}"
            raise ConfigError([Problem(Place("--task"), what, did_you_mean(task, files))])
    return {task: files[task] for task in wanted} if wanted else files


def _tasks(folder: Path) -> list[str]:
    known = read_manifest(folder).get("tasks") or read_results(folder).get("n-samples", {})
    return list(known)


def _file_name(task: str) -> str:
    from assay.runs.parquet import file_name

    return file_name(task)


def _is_wanted(row: Row, options: argparse.Namespace, better: Mapping[str, bool | None]) -> bool:
    if options.doc is not None and row.doc_id not in options.doc:
        return False
    if options.reason is not None and options.reason not in row.audit:
        return False
    return not options.wrong or _is_wrong(row.scores, better)


def _is_wrong(scores: Mapping[str, Any], better: Mapping[str, bool | None]) -> bool:
    """As `tasks.audit.is_wrong` has it, of scores as they are written: `{"metric,filter": value}`."""
    firsts: dict[str, tuple[str, Any]] = {}
    for row, value in scores.items():
        if not row.endswith(",repeats"):
            metric, _, name = row.partition(",")
            firsts.setdefault(name, (metric, value))
    told = [v for metric, v in firsts.values() if better.get(metric) is not False and isinstance(v, int | float)]
    return bool(told) and all(value <= 0 for value in told)


def _marks(row: Row) -> str:
    return f" · {', '.join(row.audit)}" if row.audit else ""


def _parts(row: Row, *, full: bool) -> Iterator[tuple[str, str]]:
    prefix = row.prefix
    if prefix and not full:
        yield (
            "prompt",
            f"[{counted(len(prefix), 'character')} before it; --full shows them]\n{_cut(row.prompt, full)}",
        )
    else:
        yield "prompt", _cut(prefix + row.prompt, full)
    yield from _answers(row.requests, row.responses, row.answers, full=full)
    yield "target", _target(row)
    if row.failed:
        yield "failed", row.failed
    if row.scores:
        yield "scores", "\n".join(f"{name}: {_shown(value)}" for name, value in row.scores.items())


def _answers(
    requests: Sequence[RequestRow], responses: Sequence[Sequence[Any]], answers: Mapping[str, Any], *, full: bool
) -> Iterator[tuple[str, str]]:
    """What was answered: texts as they came and as each filter left them, or the log-likelihood of each continuation."""
    texts = [each for several in responses for each in several if isinstance(each, str)]
    if texts:
        yield "answer" if len(texts) == 1 else "answers", "\n".join(_cut(text, full) for text in texts)
        for name, left in answers.items():
            yield f"filtered by {name}", _cut("\n".join(_shown(each) for each in left), full)
    elif responses:
        asked = [f" {each.continuation!r}" if each.continuation is not None else "" for each in requests]
        lines = [f"{_shown(v)}{text}" for text, several in zip_longest(asked, responses, fillvalue="") for v in several]
        yield "log-likelihoods", "\n".join(lines)


def _target(row: Row) -> str:
    target = orjson.loads(row.target)
    gold = orjson.loads(row.gold) if row.gold else target
    choices = row.choices
    if choices and isinstance(gold, int) and 0 <= gold < len(choices):
        return f"{gold}: {choices[gold]}"
    return _shown(target)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]:>12}{' greedy' if value[1] else '       '}"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _cut(text: str, full: bool) -> str:
    """A text; of a long one its beginning and its end."""
    if full or len(text) <= LONG:
        return text
    half = LONG // 2
    return f"{text[:half]}\n[… {counted(len(text) - LONG, 'character')} more; --full shows them …]\n{text[-half:]}"
