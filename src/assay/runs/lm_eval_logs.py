"""Reads lm-eval's samples files: one line for each document and filter."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from assay.errors import Place
from assay.records import AnyJSON, JSONDict, JSONObject, Likelihood, Response, Text
from assay.runs.folder import RunError
from assay.runs.samples.writer import file_name
from assay.score_keys import ScoreKey

_DATED = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl")


class SampleLog(NamedTuple):
    """A samples file: of which task, and what the results file beside it holds; nothing where there is none."""

    path: Path
    task: str
    results: JSONObject


class LoggedSample(NamedTuple):
    """One document of such a file, with what every filter scored."""

    doc_id: int
    doc: Mapping[str, Any]
    arguments: Sequence[Sequence[Any]]
    responses: Sequence[Sequence[Response]]
    scores: Mapping[ScoreKey, Any]
    target: str = ""
    answers: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """By filter what it left of the responses, as texts."""


def logged_files(paths: Iterable[Path]) -> dict[str, SampleLog]:
    """The samples files among some files and folders, by task; of several of one task the latest."""
    logs: dict[str, SampleLog] = {}
    dates: dict[str, str] = {}
    read_results = cache(_read_results)
    for path in paths:
        for file in sorted(path.glob("samples_*.jsonl")) if path.is_dir() else [path]:
            if file.exists() and not file.is_file():  # a pipe would be waited for
                raise _problem(file, 1, "not a regular file")
            match = _DATED.fullmatch(file.name)
            label, date = (match["task"], match["date"] or "") if match else (file.stem, "")
            results, names = read_results(file.parent, date)
            task = names.get(label, label)
            if task not in logs or date >= dates[task]:
                logs[task], dates[task] = SampleLog(file, task, results), date
    return logs


def _read_results(folder: Path, date: str) -> tuple[JSONObject, Mapping[str, str]]:
    """The results that were written with the samples of a date, where they are still there, and their tasks by the names of
    samples files. lm-eval names the results as it was asked to: `--output_path out.json` gives `out_DATE.json`."""
    usual = folder / (f"results_{date}.json" if date else "results.json")
    path = usual if usual.is_file() else next(iter(sorted(folder.glob(f"*_{date}.json")) if date else ()), usual)
    try:
        results = _parse(path.read_bytes() if path.is_file() else b"")
    except (OSError, ValueError):
        return {}, {}
    if not isinstance(results, dict):
        return {}, {}
    names = results.get("results")
    return results, {file_name(name): name for name in names} if isinstance(names, dict) else {}


def logged_samples(path: Path) -> Iterator[LoggedSample]:
    """The documents of a file in their order."""
    scores: dict[int, dict[ScoreKey, Any]] = {}
    answers: dict[int, dict[str, Any]] = {}
    for record in _records(path):
        own = {ScoreKey(metric, record["filter"]): record.get(metric) for metric in record["metrics"]}
        scores.setdefault(record["doc_id"], {}).update(own)
        answers.setdefault(record["doc_id"], {})[record["filter"]] = record.get("filtered_resps", [])
    for record in _records(path):
        own_scores = scores.pop(record["doc_id"], None)
        if own_scores is not None:  # further filters of a document repeat the first one's fields
            yield LoggedSample(
                record["doc_id"],
                record["doc"],
                [list(each.values()) for each in record["arguments"].values()],
                [[_response(value) for value in responses] for responses in record["resps"]],
                own_scores,
                str(record.get("target", "")),
                answers.pop(record["doc_id"]),
            )


def _records(path: Path) -> Iterator[JSONDict]:
    needed = {"doc_id", "doc", "arguments", "resps", "filter", "metrics"}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = _parse(line)
            except ValueError as error:
                raise _problem(path, number, f"invalid JSON: {error}") from None
            if not isinstance(record, dict) or not needed <= record.keys():
                raise _problem(path, number, "is not a sample in lm-eval's format")
            if type(record["doc_id"]) is not int or not -(2**63) <= record["doc_id"] < 2**63:
                raise _problem(path, number, "its doc_id must be a whole number of at most 64 bits")
            yield record


def _parse(line: bytes) -> AnyJSON:
    """Parse JSON. Python writes NaN and Infinity, which JSON does not have."""
    try:
        return orjson.loads(line)
    except ValueError:
        if b"NaN" not in line and b"Infinity" not in line:
            raise
        return json.loads(line)


def _response(written: AnyJSON) -> Response:
    """Parse a response: pairs are log-likelihoods; whether it is a rolling one depends on its task."""
    if isinstance(written, list):
        return Likelihood(float(written[0]), written[1] in ("True", True))
    return Text(str(written))


def _problem(path: Path, line: int, what: str) -> RunError:
    return RunError.at(Place(str(path), line, 1), what, "give a samples_*.jsonl file that lm-eval wrote")
