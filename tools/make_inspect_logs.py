#!/usr/bin/env python3
"""Write the logs that inspect_ai leaves of three small tasks: what `assay import` must read.

usage (in an environment with inspect_ai==0.3.285):  make_inspect_logs.py OUT_DIR

The model says what is written here. Samples have names, metadata and two epochs; one scorer gives several values; the model
fails on one sample. The second task has choices. The third has a conversation, epochs put together in two ways, and a scorer
that leaves a sample out. What the logs say of this machine is left out afterwards.
"""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

from inspect_ai import Epochs, Task, eval, task  # noqa: A004  # that is its name
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, choice, match, mean, scorer, std
from inspect_ai.solver import Generate, Solver, TaskState, generate, multiple_choice, solver

SAID = ["2", "5", "It is 54", "2", "4", "56"]
"""The answers of the first epoch, then of the second: 1 and 1, 1 and 0, 0 and 1 are right; 2/3 of three samples."""


@scorer(metrics={"short": [mean()], "polite": [mean()]})
def manners() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001  # the shape of every scorer
        text = state.output.completion
        return Score(value={"short": float(len(text) < 5), "polite": 0.5}, answer=text)

    return score


@solver
def refuse_the_last() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001  # the shape of every solver
        if state.sample_id == "d":
            raise ValueError("nothing can be asked about this")
        return state

    return solve


@task
def sums() -> Task:
    rows = [
        ("a", "1+1=", "2", "easy"),
        ("b", "2+3=", "5", "easy"),
        ("c", "7*8=", "56", "hard"),
        ("d", "?", "1", "hard"),
    ]
    samples = [Sample(id=i, input=q, target=t, metadata={"level": level}) for i, q, t, level in rows]
    scorers = [match(numeric=True), manners()]
    return Task(
        MemoryDataset(samples, name="sums_rows"), solver=[refuse_the_last(), generate()], scorer=scorers, epochs=2
    )


@task
def colours() -> Task:
    rows = [("Grass is", "A"), ("Blood is", "B"), ("Snow is", "A")]
    samples = [Sample(input=q, choices=["green", "red"], target=t) for q, t in rows]
    return Task(MemoryDataset(samples, name="colour_rows"), solver=multiple_choice(), scorer=choice())


@scorer(metrics=[mean(), std()])
def left_out() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001  # the shape of every scorer
        return Score(value=float("nan") if state.sample_id == 1 else 2.0)

    return score


@task
def talks() -> Task:
    talk = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="1+1=")]
    samples = [
        Sample(input=talk, target="2"),
        Sample(input="2+2=", target=["4", "four"]),
        Sample(input="3+3=", target="6"),
    ]
    epochs = Epochs(2, ["mean", "at_least_1"])
    return Task(MemoryDataset(samples), solver=generate(), scorer=[match(), left_out()], epochs=epochs)


def said(text: str) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=4, output_tokens=2, total_tokens=6)
    return output


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    answers = {
        "talks": ["2", "4", "7", "3", "4", "8"],
        "sums": SAID,
        "colours": ["ANSWER: A", "ANSWER: A", "ANSWER: B"],
    }
    with tempfile.TemporaryDirectory() as folder:
        for built in (sums(), colours(), talks()):
            model = get_model("mockllm/model", custom_outputs=map(said, answers[built.name]))
            options = {
                "max_connections": 1,
                "max_samples": 1,
                "fail_on_error": False,
                "display": "none",
                "log_dir": folder,
            }
            [log] = eval(built, model=model, **options)
            path = out / f"{built.name}.eval"
            _write(log.location, path)
            print(path, [(s.name, {k: m.value for k, m in s.metrics.items()}) for s in log.results.scores])


def _write(location: str, path: Path) -> None:
    """The log without what it says of the machine it was made on."""
    log = read_eval_log(location)
    log.eval.revision, log.eval.task_file, log.eval.dataset.location = None, None, None
    for sample in log.samples or ():
        sample.events, sample.timelines, sample.attachments = [], None, {}
        if sample.error is not None:
            sample.error.traceback = sample.error.traceback_ansi = ""
    write_eval_log(log, str(path))
    with zipfile.ZipFile(path) as file:
        print(json.dumps(file.namelist()))


if __name__ == "__main__":
    main()
