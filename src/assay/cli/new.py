"""`assay new`: write files to start from, which validate and run as they are."""

import argparse
import keyword
import re
import sys
from pathlib import Path

from assay.catalog.examine import name_problem
from assay.cli.output import echo
from assay.errors import ConfigError, Place, Problem
from assay.runs.files import new_file
from assay.score_keys import metric_name_problem

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

CHOICES = """\
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

_USE = """\
# A task that uses {name}.py. Check it: assay validate {name}.yaml. Run it: assay run --tasks ./{name}.yaml
# Other tasks beside it take the same lines; for all folders: assay run --plugin (docs/plugins.md).
task: {written}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {name}.jsonl
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: answers             # a column with one right answer, or with a list of them
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
# repeats: 4                       # ask four times (with do_sample: true): each answer is scored, their mean counts
"""

METRIC = """\
metric_list:
  - metric: !function {name}.{name}
    tolerance: 0.5                 # a parameter of the function
    aggregation: mean
    higher_is_better: true         # false: less is better
metadata:
  version: 1.0
"""

_AS_NUMBER = """

def as_number(text):
    try:
        return float(text.strip().rstrip(".").replace(",", ""))
    except ValueError:
        return None
"""

METRIC_CODE = (
    '''\
"""A metric: it compares an answer with the right ones."""


def {name}(references, prediction, *, tolerance: float = 0.0):
    """Whether the answer is a number near one of the references.

    It is called once per answer. `references` is the list of all right answers of the document; a parameter called
    `reference` is given one after the other, and the best score counts. Others are keys of the task file.
    Return a number or a bool; or scores by name, each a row: {{"near": 1.0, "far": 0.0}}.
    """
    answer = as_number(prediction)
    if answer is None:
        return 0.0  # an answer that is not a number is wrong; an exception would take its document out of the mean
    right = [number for number in map(as_number, references) if number is not None]
    return float(any(abs(answer - number) <= tolerance for number in right))
'''
    + _AS_NUMBER
)

FILTER = """\
filter_list:
  - name: {written}
    filter:
      - function: !function {name}.{name}
        fallback: "[invalid]"      # a parameter of the function
      - function: take_first       # of repeated answers the first; leave it out to score all
metric_list:
  - metric: exact_match
metadata:
  version: 1.0
"""

FILTER_CODE = '''\
"""A filter: it extracts the answer from the response."""

import re


def {name}(resps, docs, *, fallback: str = "[invalid]"):
    """The last number of each response.

    `resps` has a list for each request, with one response per repeat; `docs` has the document of each request.
    Return lists of the same shape. Where nothing is found, return "[invalid]": it is counted beside n.
    """
    return [[last_number(response, fallback) for response in responses] for responses in resps]


def last_number(response, fallback):
    numbers = re.findall(r"-?[0-9]+(?:[.][0-9]+)?", response)
    return numbers[-1] if numbers else fallback
'''

SCORER = """\
scorer:
  type: !function {name}.{camel}
  kwargs:
    scale: 10                      # a parameter of the class
metadata:
  version: 1.0
"""

SCORER_CODE = (
    '''\
"""A scorer: it turns the answers to a document into scores, without a metric."""

from assay import GenerationScorer


class {camel}(GenerationScorer):
    """1 for the right number, less the farther the answer is away from it."""

    name = "{name}"  # the row

    def __init__(self, config=None, scale: float = 1.0):
        super().__init__(config)
        self.scale = scale

    def score(self, reference, predictions):
        """One score per answer: `predictions` has one answer per repeat that the filter keeps.

        `reference` is the right answer, or a list where the document has several. Return a list, a number for all
        answers, or a mapping of names to either.
        """
        references = reference if isinstance(reference, list) else [reference]
        right = [number for number in map(as_number, references) if number is not None]
        return [max(self.nearness(as_number(each), number) for number in right) for each in predictions]

    def nearness(self, answer, right):
        if answer is None:
            return 0.0  # an answer that is not a number is wrong; an exception would take its document out of the mean
        return max(0.0, 1 - abs(answer - right) / self.scale)
'''
    + _AS_NUMBER
)

NUMBERS = """\
{"question": "How many legs has a spider?", "answers": ["8"]}
{"question": "What is 6 times 7?", "answers": ["42"]}
{"question": "How many days has February?", "answers": ["28", "29"]}
"""

GRAPH = """\
# A graph asks in several steps: nodes change a state, edges say which comes next (docs/graphs.md).
# Check it: assay validate {name}.yaml. Draw it: assay show {name}.yaml. Run it: assay run --tasks ./{name}.yaml
task: {written}
data_config:
  source:
    type: disk
    file_path: {name}.jsonl        # each row is a record; its columns begin the state
graph_config:
  nodes:
    answer:
      node_type: llm
      prompt:
        - user: "Question: {{question}}\\nAnswer:"      # {{key}} is a value of the state
      output_keys: [predicted]
      post_process: {name}.first_line                 # Python code in this folder
      model:
        name: model_under_test
        parameters: {{temperature: 0.0, max_tokens: 16}}
    verdict:
      node_type: lambda
      lambda: {name}.compare
      output_keys: [verdict]
  edges:
    - {{from: START, to: answer}}
    - {{from: answer, to: verdict}}
    - {{from: verdict, to: END}}
output_config:
  output_map:
    question: {{from: question}}
    answer: {{from: answer}}
    predicted: {{from: predicted}}
    verdict: {{from: verdict}}
graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params:
      aggregator_metrics_map:
        - name: accuracy           # the share of verdicts that are correct
          unit_metrics_results: [verdict]
metadata:
  version: 1.0
"""

GRAPH_CODE = '''\
"""The code of a graph: functions that nodes call."""

from assay import UnitMetricResult


def first_line(message):
    """The first line of the model's message, as the value of `predicted`."""
    return {{"predicted": message.content.strip().partition("\\n")[0].rstrip(".")}}


def compare(node, state):
    """Whether the answer is right: a lambda node is given its settings and the state, and returns changes of the state."""
    golden, predicted = {{"text": state["answer"]}}, {{"text": state["predicted"]}}
    correct = golden["text"].casefold() in predicted["text"].casefold()
    return {{"verdict": UnitMetricResult(correct=correct, golden=golden, predicted=predicted, metadata={{}})}}
'''

QUESTIONS = """\
{"question": "Which animal barks?", "answer": "dog"}
{"question": "What color is a ripe banana?", "answer": "yellow"}
{"question": "How many legs has a spider?", "answer": "eight"}
"""

KINDS: dict[str, dict[str, str]] = {
    "task": {"yaml": TASK, "jsonl": CHOICES},
    "group": {"yaml": GROUP, "jsonl": CHOICES},
    "metric": {"yaml": _USE + METRIC, "py": METRIC_CODE, "jsonl": NUMBERS},
    "filter": {"yaml": _USE + FILTER, "py": FILTER_CODE, "jsonl": NUMBERS},
    "scorer": {"yaml": _USE + SCORER, "py": SCORER_CODE, "jsonl": NUMBERS},
    "graph": {"yaml": GRAPH, "py": GRAPH_CODE, "jsonl": QUESTIONS},
}
"""The files of each kind by suffix."""


def run_new(options: argparse.Namespace) -> int:
    name, files = options.name, KINDS[options.kind]
    wrong = _wrong_name(name, has_code="py" in files)
    if wrong:
        raise ConfigError.at("new", f"the name {name!r} {wrong}", "use letters, digits and _")
    folder = Path(options.dir)
    plain = re.fullmatch(r"[A-Za-z]\w*", name) and name.lower() not in WORDS
    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_")) or name
    values = {"name": name, "written": name if plain else repr(name), "camel": camel if camel.isidentifier() else name}
    texts = {
        folder / f"{name}.{suffix}": text if suffix == "jsonl" else text.format(**values)
        for suffix, text in files.items()
    }
    for path in texts:
        if path.exists():
            raise ConfigError.at(path, "the file exists already", "choose another name or --dir")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with new_file(path) as part:
                part.write_text(text, encoding="utf-8")
            echo(f"wrote {path}")
    except OSError as error:
        problem = Problem(Place(str(folder)), f"cannot be written: {error.strerror}", "choose another --dir")
        raise ConfigError([problem]) from None
    echo(f"next: assay validate {folder / name}.yaml")
    return 0


def _wrong_name(name: str, *, has_code: bool) -> str:
    if has_code:
        if not name.isidentifier() or keyword.iskeyword(name):
            return "cannot be the name of a Python function"
        if name in sys.stdlib_module_names or name in ("assay", "lm_eval"):
            return "is that of a module of Python, which its file would hide"
        row = metric_name_problem(name)
        if row is not None:
            return f"cannot be the name of a row: {row[0]}"
    return name_problem(name) or (
        "" if re.fullmatch(r"[\w.-]+", name) else "has characters other than letters, digits and _ . -"
    )
