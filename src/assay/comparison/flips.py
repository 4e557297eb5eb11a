"""Documents that one run does better than the other, with what each answered."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from assay.comparison.comparison import Flip
from assay.comparison.contrasts import ComparedTask
from assay.comparison.pairing import PairedTask
from assay.comparison.rows import PairedRow

COLUMNS = ("prompt", "answers", "target", "gold", "choices")


def flips_of(tasks: Sequence[PairedTask], lines: Sequence[PairedRow], run: int, most: int) -> list[Flip]:
    """Of each task the documents whose first number changed: those that became worse first, the largest changes first."""
    by_name = {task.name: task for task in tasks}
    found: list[Flip] = []
    done: set[str] = set()
    for line in lines:
        if line.kind == "task" and line.name not in done and line.parts:
            [part] = line.parts
            if part.member.scores_a is not None:
                done.add(line.name)
                found += _of_line(by_name[line.name], line, part.member, run, most)
    return found


def _of_line(task: PairedTask, line: PairedRow, member: ComparedTask, run: int, most: int) -> list[Flip]:
    change = member.scores_b - member.scores_a
    worse = change if line.better is False else -change
    order = np.lexsort((member.documents, -np.abs(change)))
    places = [place for place in order if worse[place] > 0][:most] + [place for place in order if worse[place] < 0][
        :most
    ]
    rows_a = task.places_a[member.places]
    rows_b = task.places_b[member.places]
    told_a = {row["place"]: row for row in task.scores_a.some([int(rows_a[p]) for p in places], COLUMNS)}
    told_b = {row["place"]: row for row in task.scores_b.some([int(rows_b[p]) for p in places], COLUMNS)}
    return [
        Flip(
            task=task.name,
            doc_id=int(member.documents[place]),
            metric=line.key.metric,
            filter=line.key.filter,
            run=run,
            score_a=float(member.scores_a[place]),
            score_b=float(member.scores_b[place]),
            answer_a=answer(told_a[int(rows_a[place])], line.key.filter),
            answer_b=answer(told_b[int(rows_b[place])], line.key.filter),
            target=target(told_a[int(rows_a[place])]),
            question=str(told_a[int(rows_a[place])]["prompt"]),
            is_loss=bool(worse[place] > 0),
            doc_id_b=int(task.scores_b.documents[rows_b[place]]),
        )
        for place in places
    ]


def answer(row: Mapping[str, Any], filter_name: str) -> str:
    """What was answered, as the filter left it; of choices the likeliest one."""
    several = row["answers"].get(filter_name, [])
    choices = row["choices"]
    likelihoods = [each[0] for each in several if isinstance(each, tuple)]
    if choices and len(likelihoods) == len(several) >= len(choices):
        return str(choices[max(range(len(choices)), key=likelihoods.__getitem__)])
    return "\n".join(each if isinstance(each, str) else orjson.dumps(each).decode() for each in several)


def target(row: Mapping[str, Any]) -> str:
    """What would have been right; of a choice its text."""
    found = orjson.loads(row["gold"] or row["target"])
    choices = row["choices"]
    if choices and isinstance(found, int) and 0 <= found < len(choices):
        return str(choices[found])
    return found if isinstance(found, str) else orjson.dumps(found).decode()
