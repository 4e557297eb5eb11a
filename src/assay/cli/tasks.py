"""`assay new`, `assay validate` and `assay fetch`: write task files, check them, and download their data."""

import argparse
import re
from pathlib import Path

import orjson

from assay.catalog.examine import name_problem
from assay.cli.flags import add_catalog_options, add_option, task_manager
from assay.cli.output import counted, echo, echo_err, echo_json
from assay.config.run import RunConfig
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.prepare import find_problems
from assay.plugins import plugin_problems
from assay.records import Document
from assay.samples.data import FILE_READERS, data_set
from assay.samples.rows import DataError

WORDS = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
"""Words that YAML does not read as text unless they are quoted."""

TASK = """\
# A task turns each row of a data set into a request, and the answer into scores.
# Check it:   assay validate {name}.yaml
# Look at it: assay show {name}.yaml
task: {written}
# task_alias: {name}              # the name shown in tables
tag: [my_tasks]                    # select it with others: --tasks my_tasks

# Data: a local file (paths are relative to this file), or a data set of the Hugging Face hub.
dataset_path: json                 # json, csv, parquet, or a hub name such as openai/gsm8k
dataset_kwargs:
  data_files:
    test: {name}.jsonl
test_split: test
# fewshot_split: train             # where examples come from, for num_fewshot > 0
# num_fewshot: 0

# The kind of request: multiple_choice, generate_until, loglikelihood or loglikelihood_rolling.
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"   # a column or a Jinja template over the columns
doc_to_choice: choices             # a column with a list, or the list itself
doc_to_target: answer              # the index of the right choice
# process_docs: !function utils.process_docs         # Python code in this folder

# How answers are scored.
metric_list:
  - metric: acc
  - metric: acc_norm
metadata:
  version: 1.0
"""

ROWS = """\
{"question": "Which animal barks?", "choices": ["cat", "dog", "fish"], "answer": 1}
{"question": "What color is a ripe banana?", "choices": ["yellow", "blue", "black"], "answer": 0}
{"question": "How many legs has a spider?", "choices": ["four", "six", "eight"], "answer": 2}
"""

GROUP = """\
# A group shows its members under one name, and may have aggregated metrics.
# Check it:   assay validate {name}.yaml
# Look at it: assay show {name}.yaml
group: {written}
group_alias: {written}                # the name shown in tables
task:
  # - some_task                    # a task, group or tag by name: `assay ls`
  # - task: other_task             # ... with changes for this group
  #   num_fewshot: 5
  - task: example                  # ... or a whole task, written here; results call it {name}::example
    dataset_path: json
    dataset_kwargs:
      data_files:
        test: {name}.jsonl
    test_split: test
    output_type: multiple_choice
    doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
    doc_to_choice: choices
    doc_to_target: answer
aggregate_metric_list:
  - metric: acc
    aggregation: mean
    weight_by_size: true           # false: every member counts the same
metadata:
  version: 1.0
  description: What this group measures.
"""
HERE = ("/", "./", "../", "~")
"""Prefixes of data set paths that are on this machine already."""


def define_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["task", "group"])
    parser.add_argument("name", metavar="NAME", help="the name; also the name of the files")
    parser.add_argument("--dir", default=".", metavar="DIR", help="where to write (default: here)")
    parser.set_defaults(run=run_new)


def run_new(options: argparse.Namespace) -> int:
    wrong = name_problem(options.name) or (
        "" if re.fullmatch(r"[\w.-]+", options.name) else "has characters other than letters, digits and _ . -"
    )
    if wrong:
        raise ConfigError([Problem(Place("new"), f"the name {options.name!r} {wrong}", "use letters, digits and _")])
    folder = Path(options.dir)
    written = (
        options.name
        if re.fullmatch(r"[A-Za-z]\w*", options.name) and options.name.lower() not in WORDS
        else repr(options.name)
    )
    texts = {
        folder / f"{options.name}.yaml": (TASK if options.kind == "task" else GROUP).format(
            name=options.name, written=written
        ),
        folder / f"{options.name}.jsonl": ROWS,
    }
    for path in texts:
        if path.exists():
            raise ConfigError([Problem(Place(str(path)), "the file exists already", "choose another name or --dir")])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
            echo(f"wrote {path}")
    except OSError as error:
        problem = Problem(Place(str(folder)), f"cannot be written: {error.strerror}", "choose another --dir")
        raise ConfigError([problem]) from None
    echo(f"next: assay validate {folder / options.name}.yaml")
    return 0


def define_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to check (default: everything)")
    parser.add_argument("--tasks", action="append", metavar="NAMES", help="the same, in lm-eval's spelling")
    parser.add_argument("--json", action="store_true", help="an array of file, line, column, what, fix, serious")
    parser.add_argument(
        "--load", action="store_true", help="import helper modules, as a run does; else they are only read"
    )
    add_option(parser, "data_dir")
    add_catalog_options(parser)
    parser.set_defaults(run=run_validate)


def run_validate(options: argparse.Namespace) -> int:
    manager = task_manager(options)
    names = [*options.names, *(options.tasks or [])] or None
    config = RunConfig(data_dir=options.data_dir, compat=options.compat)
    problems = find_problems(manager, config, names, load=options.load)
    if names is None:
        problems = sorted([*problems, *plugin_problems()])
    serious = sum(problem.serious for problem in problems)
    if options.json:
        echo_json(
            [
                {"file": p.place.file, "line": p.place.line, "column": p.place.column}
                | {"what": p.what, "fix": p.fix, "serious": p.serious}
                for p in problems
            ]
        )
    else:
        for problem in problems:
            echo(str(problem) if problem.serious else f"{problem} (note)")
        echo(f"{counted(serious, 'problem')}, {counted(len(problems) - serious, 'note')}")
    return 1 if serious else 0


def define_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="+", metavar="NAME", help="tasks, groups or tags to download the data of")
    add_option(parser, "data_dir", required=True, help="the folder to write: DIR/<path>/<name>/<split>.jsonl")
    add_catalog_options(parser)
    parser.set_defaults(run=run_fetch)


def run_fetch(options: argparse.Namespace) -> int:
    loaded = task_manager(options).load(options.tasks)
    done: set[tuple[str | None, str | None]] = set()
    failed = 0
    for task in loaded["tasks"].values():
        config = task.config
        key = (config.dataset_path, config.dataset_name)
        path = config.dataset_path
        if key in done or path is None or path in FILE_READERS or path.startswith(HERE):
            continue
        done.add(key)
        try:
            for written, count in fetch(config, Path(options.data_dir)):
                echo(f"{written}: {count} rows")
        except DataError as error:
            failed += 1
            echo_err(f"{task.name}: {error}")
    return 1 if failed else 0


def fetch(config: TaskConfig, folder: Path) -> list[tuple[Path, int]]:
    """Write every split of a task's data set below a folder; existing files are kept."""
    data = data_set(config, folder=None, data_dir=None)
    target = folder / str(config.dataset_path) / (config.dataset_name or "default")
    written = []
    for split in data.available():
        path = target / f"{split}.jsonl"
        if path.exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        count = 0
        with part.open("wb") as lines:
            for row in data.split(split):
                lines.write(orjson.dumps(_plain(row), default=str) + b"\n")
                count += 1
        part.replace(path)
        written.append((path, count))
    return written


def _plain(row: Document) -> Document:
    return {str(key): value for key, value in dict(row).items()}
