"""Small worlds for the tests of filters, metrics and estimates: a task of a few rows, and a script that answers it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from assay import simple_evaluate
from assay.models import Scripted

SAMPLED = "generation_kwargs: {do_sample: true, temperature: 1.0, until: []}\n"
"""Without sampling, the same request is asked once, however often it is repeated."""


def write_task(folder: Path, rows: Sequence[Mapping[str, object]], yaml: str, name: str = "t") -> None:
    """A task in `folder` with these rows; `yaml` is all but its name and data."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    data = f"task: {name}\ndataset_path: json\ntest_split: test\n"
    files = f"dataset_kwargs: {{data_files: {{test: {folder / f'{name}.jsonl'}}}}}\n"
    (folder / f"{name}.yaml").write_text(data + files + dedent(yaml).lstrip("\n"), encoding="utf-8")


def run(folder: Path, model: Scripted, tasks: str | list[str] = "t", **options: Any) -> dict[str, Any]:
    return simple_evaluate(model=model, tasks=tasks, include_path=str(folder), include_defaults=False, **options)


def generate(
    folder: Path, answers: Sequence[Any], golds: Sequence[object], yaml: str = "", **options: Any
) -> dict[str, Any]:
    """The results of a task whose n-th question gets the n-th answer, or one of several answers per repeat."""
    rows = [{"q": f"{number}", "gold": gold} for number, gold in enumerate(golds)]
    write_task(folder, rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n" + dedent(yaml))
    return run(folder, says(answers), **options)


def says(answers: Sequence[Any]) -> Scripted:
    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        arguments = answers[int(prompt)]
        return arguments if isinstance(arguments, str) else arguments[repeat]

    return Scripted(generate=answer, identity=repr(answers))


def noting(asked: list[str]) -> Scripted:
    """A model that writes down what it is asked."""

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        return "a"

    return Scripted(generate=answer)


def filtered(results: Mapping[str, Any], name: str = "none") -> list[Any]:
    """What a filter left of the answer to each document."""
    return [sample["filtered_resps"][0] for sample in results["samples"]["t"] if sample["filter"] == name]


def choose(
    folder: Path,
    lls: Sequence[Sequence[float]],
    golds: Sequence[object],
    choices: Sequence[str],
    yaml: str = "",
    *,
    greedy: Callable[[int, int], bool] = lambda row, choice: False,
    alone: Sequence[float] = (),
    **options: Any,
) -> dict[str, Any]:
    """The results of a task where choice c of row r has the log-likelihood lls[r][c], and alone[c] without its row."""
    rows = [{"q": f"{number}", "choices": list(choices), "gold": gold} for number, gold in enumerate(golds)]
    start = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: gold\n"
    write_task(folder, rows, start + dedent(yaml))

    def likelihood(context: str, continuation: str) -> tuple[float, bool]:
        choice = choices.index(continuation[1:])
        if not context:
            return alone[choice], False
        return lls[int(context)][choice], greedy(int(context), choice)

    return run(folder, Scripted(loglikelihood=likelihood, identity=repr((lls, alone))), **options)


def continue_(
    folder: Path, values: Sequence[tuple[float, bool]], yaml: str = "", targets: Sequence[str] = (), **options: Any
) -> dict[str, Any]:
    """The results of a task where the right continuation of row r has the log-likelihood and greediness values[r]."""
    rows = [{"q": f"{n}", "gold": targets[n] if targets else " x"} for n in range(len(values))]
    write_task(folder, rows, "output_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: gold\n" + dedent(yaml))
    model = Scripted(loglikelihood=lambda context, continuation: values[int(context)], identity=repr(values))
    return run(folder, model, **options)


def roll(folder: Path, texts: Mapping[str, float], yaml: str = "", **options: Any) -> dict[str, Any]:
    """The results of a task of whole texts with their log-likelihoods."""
    rows = [{"text": text} for text in texts]
    write_task(
        folder, rows, "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: text\n" + dedent(yaml)
    )
    return run(folder, Scripted(loglikelihood_rolling=texts.__getitem__, identity=repr(texts)), **options)


def processed(
    folder: Path, values: Sequence[Mapping[str, object]], yaml: str, name: str = "t", helper: str = ""
) -> None:
    """A task whose documents carry their own scores: `process_results` of its helper returns them."""
    rows = [{"q": f"{number}", "gold": "x", "values": value} for number, value in enumerate(values)]
    fields = (
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nprocess_results: !function helper.values\n"
    )
    write_task(folder, rows, fields + dedent(yaml), name)
    start = "def values(doc, results):\n    return {k: v for k, v in doc['values'].items() if v is not None}\n"
    (folder / "helper.py").write_text(start + dedent(helper), encoding="utf-8")


ANYTHING = Scripted(generate=lambda prompt, params, repeat: "x", identity="anything")
