"""`assay new`: a starter that works as it is, with a comment for everything one may want to change."""

import argparse
import re
from pathlib import Path

from assay.catalog.examine import name_problem
from assay.cli.output import say
from assay.errors import ConfigError, Place, Problem

WORDS = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
"""What YAML does not read as text unless it is quoted."""

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

# What is asked: multiple_choice, generate_until, loglikelihood or loglikelihood_rolling.
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"   # a column or a Jinja template over the columns
doc_to_choice: choices             # a column with a list, or the list itself
doc_to_target: answer              # the index of the right choice
# process_docs: !function utils.process_docs         # Python beside this file, for what YAML cannot say

# How answers are scored.
metric_list:
  - metric: acc
  - metric: acc_norm
metadata:
  version: 1.0
"""

ROWS = """\
{"question": "Which animal barks?", "choices": ["cat", "dog", "fish"], "answer": 1}
{"question": "What colour is a ripe banana?", "choices": ["yellow", "blue", "black"], "answer": 0}
{"question": "How many legs has a spider?", "choices": ["four", "six", "eight"], "answer": 2}
"""

GROUP = """\
# A group shows its members under one name, and may have numbers of its own.
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


def define(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["task", "group"])
    parser.add_argument("name", metavar="NAME", help="the name; the files are called after it")
    parser.add_argument("--dir", default=".", metavar="DIR", help="where to write (default: here)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    wrong = name_problem(options.name) or (
        "" if re.fullmatch(r"[\w.-]+", options.name) else "has signs other than _ . -"
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
            say(f"wrote {path}")
    except OSError as error:
        problem = Problem(Place(str(folder)), f"cannot be written: {error.strerror}", "choose another --dir")
        raise ConfigError([problem]) from None
    say(f"next: assay validate {folder / options.name}.yaml")
    return 0
