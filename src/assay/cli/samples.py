"""`assay samples`: print samples of a run. Escape sequences in a model's text do not reach the terminal."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

import orjson

from assay.cli.output import counted, echo, echo_err
from assay.errors import ConfigError, did_you_mean, some
from assay.records import AnyJSON, Trace
from assay.runs.folder import no_run
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredSample, call_text, made_calls, shown_texts
from assay.runs.samples.turns import ChatPrompt, chat_prompt, chat_text, stored_exchanges, turn_text, turns_of
from assay.score_keys import ScoreKey, join_scores
from assay.tasks.audit import is_wrong

LONG = 2000
"""Characters of a prompt or answer that are printed without --full."""
BEGINNING = 200
"""Characters of instructions and of reasoning that are printed without --full."""


def run_samples(options: argparse.Namespace) -> int:
    opened = Run.open(options.folder)
    if options.doc is not None:
        _check_documents(options.doc, _files(opened, options.task))
    for task, file in _files(opened, options.task).items():
        better, shots = opened.higher_is_better(task), opened.config(task).get("num_fewshot")
        rows = (row for row in file.rows() if _is_selected(row, options, better))
        for row in islice(rows, options.n or None):
            echo(f"\n━━ {task} · document {row.doc_id}{_marks(row)}")
            for name, text in _parts(row, shots, full=options.full):
                echo(f"── {name}\n{text}")
        left = sum(1 for _ in rows)
        if left:
            echo_err(f"{task}: {counted(left, 'sample')} more; -n 0 shows all")
    return 0


def _check_documents(wanted: Sequence[int], files: Mapping[str, SampleFile]) -> None:
    """Refuse numbers of documents that no task has."""
    known = {row.doc_id for file in files.values() for row in file.rows()}
    missing = [str(number) for number in dict.fromkeys(wanted) if number not in known]
    if missing:
        what = (
            f"no task has a document {some(missing)}"
            if len(files) > 1
            else f"{next(iter(files))!r} has no document {some(missing)}"
        )
        fix = f"there are {len(known)}, from {min(known)} to {max(known)}" if known else "there is none"
        raise ConfigError.at("--doc", what, fix)


def _files(run: Run, tasks: Sequence[str] | None) -> dict[str, SampleFile]:
    """Return the samples by task, also of finished tasks of an unfinished run."""
    known = {**{task: run.sample_file(task) for task in run.tasks}, **run.sample_files()}
    files = {task: file for task, file in sorted(known.items()) if file is not None}
    if not files:
        raise ConfigError([no_run(run.path, "no task of this run is finished yet")])
    for task in tasks or ():
        if task not in files:
            what = f"no samples of a task named {task!r}"
            raise ConfigError.at("--task", what, did_you_mean(task, files))
    return {task: files[task] for task in tasks} if tasks else files


def _is_selected(row: StoredSample, options: argparse.Namespace, better: Mapping[str, bool | None]) -> bool:
    if options.doc is not None and row.doc_id not in options.doc:
        return False
    if options.reason is not None and options.reason not in row.audit:
        return False
    return not options.wrong or _is_wrong(row.scores, better)


def _is_wrong(scores: Mapping[ScoreKey, AnyJSON], better: Mapping[str, bool | None]) -> bool:
    firsts: dict[str, tuple[str, Any]] = {}
    for key, value in scores.items():
        firsts.setdefault(key.filter, (key.metric, value))
    return is_wrong(firsts.values(), lambda: better)


def _marks(row: StoredSample) -> str:
    return f" · {', '.join(row.audit)}" if row.audit else ""


def _parts(row: StoredSample, shots: AnyJSON, *, full: bool) -> Iterator[tuple[str, str]]:
    yield from _asked(row, shots, full=full) if row.trace is None else _path(row, row.trace, full=full)
    yield "target", _target(row)
    verdicts = [reply for reply in row.replies or () if "verdict" in reply]
    if verdicts:
        yield "said by judges", "\n".join(_cut(_shown(reply["verdict"]), full) for reply in verdicts)
    if row.failed:
        yield "failed", row.failed
    if row.last_state:
        yield "last state", _cut("\n".join(f"{key}: {_shown(value)}" for key, value in row.last_state.items()), full)
    if row.scores:
        yield (
            "scores",
            "\n".join(f"{name}: {_shown(value)}" for name, value in join_scores(row.scores, row.repeats).items()),
        )


def _path(row: StoredSample, trace: Trace, *, full: bool) -> Iterator[tuple[str, str]]:
    """Yield the nodes that a graph's record visited, with prompts and answers, and its output."""
    yield "path", " → ".join(node for node, _ in trace)
    parts = stored_exchanges(row)
    for node, numbers in trace:
        own = [parts[number] for number in numbers if number < len(parts)]
        if len(own) == 1:
            yield f"prompt of {node}", _cut(chat_text(turns_of(own[0].asked)), full)
            if own[0].answer is not None:
                yield f"answer to {node}", _cut(turn_text(turns_of([own[0].answer])[0]), full)
        elif own:
            said = [message for each in own for message in (*each.asked, each.answer) if message is not None]
            yield f"conversation of {node}", _cut(chat_text(turns_of(said)), full)
    if made_calls(row.replies):
        yield "tool calls", "\n".join(call_text(call) for call in made_calls(row.replies))
    for left in row.answers.values():
        yield "output", _cut("\n".join(_shown(each) for each in left), full)


def _asked(row: StoredSample, shots: AnyJSON, *, full: bool) -> Iterator[tuple[str, str]]:
    prefix, chat = row.prefix, chat_prompt(row, shots)
    if chat is not None:
        yield from _chat(chat, full=full)
    elif prefix and not full:
        yield (
            "prompt",
            f"[{counted(len(prefix), 'character')} before it; --full shows them]\n{_cut(row.prompt, full)}",
        )
    else:
        yield "prompt", _cut(prefix + row.prompt, full)
    yield from _answers(row, full=full)


def _chat(chat: ChatPrompt, *, full: bool) -> Iterator[tuple[str, str]]:
    """Yield the turns of a prompt, each under its role; instructions and examples are cut short without --full."""
    for turn in chat.system:
        yield turn.role, turn.text if full else _beginning(turn.text)
    if full:
        yield from ((f"example, {turn.role}", turn_text(turn)) for turn in chat.examples)
    elif chat.examples:
        yield "examples", f"[{counted(len(chat.examples), 'turn')}; --full shows them]"
    for turn in chat.turns:
        yield from _reasoned(turn.reasoning, full=full)
        yield turn.role, _cut(turn_text(turn), full)


def _beginning(text: str) -> str:
    if len(text) <= BEGINNING:
        return text
    return f"{text[:BEGINNING]}… [{counted(len(text) - BEGINNING, 'character')} more; --full shows them]"


def _reasoned(text: str, *, full: bool) -> Iterator[tuple[str, str]]:
    if text:
        yield "reasoning", text if full else _beginning(text)


def _answers(row: StoredSample, *, full: bool) -> Iterator[tuple[str, str]]:
    """Yield the answers: texts before and after each filter, or the log-likelihood of each continuation."""
    texts, responses = shown_texts(row.responses, row.replies), row.responses
    if texts:
        for reply in row.replies or ():
            yield from _reasoned(str(reply.get("reasoning") or ""), full=full)
        yield "answer" if len(texts) == 1 else "answers", "\n".join(_cut(text, full) for text in texts)
        for name, left in row.answers.items():
            yield f"filtered by {name}", _cut("\n".join(_shown(each) for each in left), full)
    elif responses:
        asked = [f" {each.continuation!r}" if each.continuation is not None else "" for each in row.requests]
        lines = [f"{_shown(v)}{text}" for text, repeats in zip_longest(asked, responses, fillvalue="") for v in repeats]
        yield "log-likelihoods", "\n".join(lines)


def _target(row: StoredSample) -> str:
    target = orjson.loads(row.target)
    gold = orjson.loads(row.gold) if row.gold else target
    choices = row.choices
    if choices and isinstance(gold, int) and 0 <= gold < len(choices):
        return f"{gold}: {choices[gold]}"
    return _shown(target)


def _shown(value: AnyJSON) -> str:
    if isinstance(value, tuple):
        return f"{value[0]:>12}{' greedy' if value[1] else '       '}"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _cut(text: str, full: bool) -> str:
    """Shorten a long text to its beginning and its end."""
    if full or len(text) <= LONG:
        return text
    half = LONG // 2
    return f"{text[:half]}\n[… {counted(len(text) - LONG, 'character')} more; --full shows them …]\n{text[-half:]}"
