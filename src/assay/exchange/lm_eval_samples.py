"""Reads lm-eval's samples files: one line for each document and filter."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay.errors import Place
from assay.records import AnyJSON, FilterScores, Generate, JSONDict, JSONObject, Loglikelihood, Request, Rolling, Sample
from assay.runs.folder import RunError
from assay.runs.samples.reader import filter_scores
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import file_name
from assay.score_keys import ScoreKey

_DATED = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl")


class SampleLog(NamedTuple):
    """A samples file: of which task, and what the results file beside it holds; nothing where there is none."""

    path: Path
    task: str
    results: JSONObject


def logged_files(paths: Iterable[Path]) -> dict[str, SampleLog]:
    """The samples files among some files and folders, by task; of several of one task the latest."""
    logs: dict[str, SampleLog] = {}
    dates: dict[str, str] = {}
    results_beside = cache(_read_results_beside)
    for path in paths:
        for file in sorted(path.glob("samples_*.jsonl")) if path.is_dir() else [path]:
            if file.exists() and not file.is_file():  # a pipe would be waited for
                raise _problem(file, 1, "not a regular file")
            match = _DATED.fullmatch(file.name)
            label, date = (match["task"], match["date"] or "") if match else (file.stem, "")
            results, names = results_beside(file.parent, date)
            task = names.get(label, label)
            if task not in logs or date >= dates[task]:
                logs[task], dates[task] = SampleLog(file, task, results), date
    return logs


def _read_results_beside(folder: Path, date: str) -> tuple[JSONObject, Mapping[str, str]]:
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


def count_repeats(file: SampleLog) -> int:
    """How many answers the first document has to a request."""
    first = next(_records(file.path), None)
    if first is None:
        raise RunError.at(file.path, "the file is empty", "leave it out")
    return max(map(len, first["resps"]), default=1) or 1


def read_samples(path: Path, repeats: int) -> Iterator[SampleRecord]:
    """The documents of a file in their order, with what every filter left and scored."""
    scores: dict[int, dict[ScoreKey, Any]] = {}
    answers: dict[int, dict[str, Any]] = {}
    for record in _records(path):
        own = {ScoreKey(metric, record["filter"]): record.get(metric) for metric in record["metrics"]}
        scores.setdefault(record["doc_id"], {}).update(own)
        left = [_answer(each) for each in record.get("filtered_resps", [])]
        answers.setdefault(record["doc_id"], {})[record["filter"]] = left
    for record in _records(path):
        own_scores = scores.pop(record["doc_id"], None)
        if own_scores is not None:  # further filters of a document repeat the first one's fields
            filtered = filter_scores(answers.pop(record["doc_id"]), own_scores)
            yield _sample(record, filtered, repeats)


def _sample(record: JSONObject, filtered: Sequence[FilterScores], repeats: int) -> SampleRecord:
    asked = [list(each.values()) for each in record["arguments"].values()]
    requests = [_request(each, repeat) for each in asked for repeat in range(repeats)]
    choices, target = _choices(requests[::repeats]), str(record.get("target", ""))
    is_number = choices is not None and target.isdecimal() and int(target) < len(choices)
    sample = Sample(record["doc_id"], record["doc"], requests, target, int(target) if is_number else target, choices)
    responses = [
        [_response(request, each) for each in repeats_of]
        for request, repeats_of in zip(requests[::repeats], record["resps"], strict=True)
    ]
    return SampleRecord(sample, responses, filtered, repeats)


def _response(request: Request, written: AnyJSON) -> AnyJSON:
    """A response as filters saw it: pairs are log-likelihoods, and a text alone is one where the request has no other answer."""
    if isinstance(written, list):
        return (float(written[0]), written[1] in ("True", True))
    return float(written) if isinstance(request, Rolling) else str(written)


def _answer(written: AnyJSON) -> AnyJSON:
    """What a filter left: pairs of texts are log-likelihoods."""
    if isinstance(written, list) and len(written) == 2 and written[1] in ("True", "False"):
        return (float(written[0]), written[1] == "True")
    return written


def _request(arguments: Sequence[AnyJSON], repeat: int) -> Request:
    """A request from its arguments: a text and parameters, a text and what follows, or a text alone."""
    if len(arguments) < 2:
        return Rolling(str(arguments[0]))
    if isinstance(arguments[1], Mapping):
        return Generate(str(arguments[0]), arguments[1], repeat)
    return Loglikelihood(str(arguments[0]), str(arguments[1]))


def _choices(requests: Sequence[Request]) -> list[str] | None:
    """The continuations of one context, where there are several: what there was to choose from."""
    loglikelihoods = [each for each in requests if isinstance(each, Loglikelihood)]
    same = [each.continuation.strip() for each in loglikelihoods if each.context == loglikelihoods[0].context]
    return same if len(same) > 1 else None


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


def _problem(path: Path, line: int, what: str) -> RunError:
    return RunError.at(Place(str(path), line, 1), what, "give a samples_*.jsonl file that lm-eval wrote")
