"""What would be asked: prompts, targets and counts of a run, before any model is loaded."""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from assay.cli.output import counted, say
from assay.models.load import token_counter
from assay.records import Call, Sample
from assay.runs.samples.records import arguments

if TYPE_CHECKING:
    from assay.evaluation import Run
    from assay.tasks.runnable import Runnable

SHOWN, COUNTED = 1, 25


def write_out(run: "Run") -> None:
    """Say for each task what its first document becomes, and for all how much will be asked."""
    count = token_counter(run.config.model, run.config.model_args)
    requests = tokens = 0
    for each in run.tasks:
        asked, length = write_task(each.runnable, count)
        requests, tokens = requests + asked, tokens + length
    unit = "tokens" if count is not None else "characters"
    say(f"\nin all: {counted(requests, 'request')}, about {tokens:,} {unit} of prompts\n")


def write_task(task: "Runnable", count: Callable[[str], int] | None) -> tuple[int, int]:
    """Say what the first document of a task becomes; about how many requests and tokens all of them are."""
    measure = count or len
    seen = [_begun(task, sample) for sample in islice(task.samples(), COUNTED)]
    each = sum(len(sample.requests) for sample in seen) / max(len(seen), 1)
    length = sum(measure(str(arguments(request)[0])) for sample in seen for request in sample.requests) / max(
        len(seen), 1
    )
    say(f"\n{task.task.name}: {counted(task.size, 'document')} of {task.original}, {task.num_fewshot}-shot, "
        f"{'at least' if task.task.graph is not None else 'about'} {each * task.size:,.0f} requests")  # fmt: skip
    for sample in seen[:SHOWN]:
        _write_sample(sample)
    return round(each * task.size), round(length * task.size)


def _begun(task: "Runnable", sample: Sample) -> Sample:
    """A sample with what is asked about it first: what a graph asks after that depends on the answers."""
    if task.task.graph is None:
        return sample
    asked = next(task.plan(sample), ())
    return sample._replace(requests=[request for request in asked if not isinstance(request, Call)])


def _write_sample(sample: Sample) -> None:
    if not sample.requests:
        say(f"--- document {sample.doc_id}: no model is asked first\n---")
        return
    first, *others = sample.requests
    prompt = arguments(first)[0]
    say(f"--- prompt of document {sample.doc_id}\n{prompt}\n---")
    for request in [first, *others][:8]:
        more = arguments(request)[1:]
        if more:
            say(f"then: {more[0]!r}")
    say(f"target: {sample.target!r}")
