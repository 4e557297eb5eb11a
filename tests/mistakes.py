"""Mistakes in what a user writes, one a row, with the place, the problem and the remedy that must be named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graph_world import EXECUTOR, QUESTION_ANSWERING

ROWS = [
    {"question": f"q{n}", "answer": "x", "choices": ["x", "y"], "gold": n % 2, "meta": {"text": f"m{n}"}, "topic": "t"}
    for n in range(4)
]
DATA = "".join(json.dumps(row) + "\n" for row in ROWS)
TASK = {
    "task": "t",
    "dataset_path": "json",
    "dataset_kwargs": "{data_files: {test: d.jsonl, few: few.jsonl}}",
    "test_split": "test",
    "doc_to_text": '"{{question}}"',
    "doc_to_target": "answer",
}
MARK = "»"
"""Marks the place that must be named; it is not part of the file."""
CHOICE = TASK | {"doc_to_target": "gold", "output_type": "multiple_choice", "doc_to_choice": "choices"}
HELPERS = """
    import assay

    def score(doc, results): return {"own": 1.0}
    def close(references, prediction, *, width: int = 1): return 1.0
    def first(resps, docs): return resps
    def fold(values): return sum(values) / len(values)
    def lowest(scores): return min(scores)
    def text(doc): return doc["question"]

    class Polite(assay.GenerationScorer):
        def __init__(self, config, *, weight: float = 1.0):
            super().__init__(config)

    class Total(assay.Aggregator):
        def compute(self, values, sizes): return sum(values)

    class Plain:
        pass
"""
GRAPH_RECORDS = "".join(
    json.dumps({"id": n, "task_id": n, "problem": f"p{n}", "answer": "x", "metadata": {"topic": "t"}}) + "\n"
    for n in range(2)
)


def a_file(fields: Mapping[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


@dataclass(frozen=True)
class Mistake:
    """Files beside the usual ones, the place of the mistake, and what is said of it; `load` where only the running code shows it."""

    files: Mapping[str, str]
    at: str
    what: str
    fix: str
    load: bool = False
    asked: str = "t"
    """The name, or the path, of what is run."""


def marked(file: str, text: str) -> tuple[str, str]:
    """The text of a file without the mark, and its place."""
    before, _, after = text.partition(MARK)
    assert after, text
    return before + after, f"{file}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "


def task(changes: Mapping[str, str], what: str, fix: str, *, base: Mapping[str, str] = TASK, **more: Any) -> Mistake:
    """A mistake in the file of a task."""
    text, at = marked("t.yaml", a_file(dict(base) | dict(changes)))
    return Mistake({"t.yaml": text, **more.pop("files", {})}, at, what, fix, **more)


def helper(text: str) -> dict[str, str]:
    return {"own.py": text}


def metrics(entry: str) -> dict[str, str]:
    return {"metric_list": f"[{{{entry}}}]"}


def filters(step: str) -> dict[str, str]:
    return {"filter_list": f"[{{name: f, filter: [{{{step}}}, {{function: take_first}}]}}]"}


OWN = "metric: »!function own.m, aggregation: mean"
REPEATED = {
    "repeats": "4",
    "generation_kwargs": "{do_sample: true, temperature: 1.0}",
    "filter_list": "[{name: f, filter: [{function: take_first_k, k: 4}]}]",
}


MISTAKES: dict[str, Mistake] = {
    "an async metric": task(metrics(OWN), "async", "`def`", files=helper("async def m(references, prediction): return 1.0\n")),
    "a metric whose score depends on the order of references": task(metrics(OWN) | {"doc_to_target": "choices"}, "order", "reference", files=helper("def m(references, prediction): return float(references[0] == 'x')\n"), load=True),
    "a filter function of one argument": task({"filter_list": "[{name: f, filter: [{function: »custom, filter_fn: !function own.m}]}]"}, "(resps, docs)", "", files=helper("def m(responses): return responses\n")),
    "an async filter function": task({"filter_list": "[{name: f, filter: [{function: »custom, filter_fn: !function own.m}]}]"}, "async", "`def`", files=helper("async def m(resps, docs): return resps\n")),
    "an async aggregation": task(metrics("metric: exact_match, aggregation: »!function own.m"), "async", "", files=helper("async def m(values): return 1.0\n")),
    "repeats of a metric of the whole task": task(REPEATED | metrics("metric: bleu, reduction: »pass@2"), "bleu", ""),
    "a scorer whose score takes too little": task({"scorer": "»!function own.S"}, "score", "", files=helper("import assay\nclass S(assay.Scorer):\n    def score(self): return 1.0\n"), load=True),
    "an abstract scorer": task({"scorer": "»!function own.S"}, "score_instances", "", files=helper("import assay\nclass S(assay.Scorer):\n    pass\n"), load=True),
    # metrics
    "a metric that is not there": task(metrics("metric: »exact_mach"), "no metric named 'exact_mach'", "exact_match"),
    "a parameter of a metric": task(metrics("metric: exact_match, ignore_cas: »true"), "no parameter 'ignore_cas'", "ignore_case"),
    "a parameter of the wrong type": task(metrics("metric: exact_match, ignore_case: »maybe"), "cannot be 'maybe'", "bool"),
    "a metric of another output type": task(metrics("metric: »acc"), "'acc' does not score generate_until", "multiple_choice"),
    "a parameter of a user's metric": task(metrics("metric: !function helpers.close, widht: »2, aggregation: mean"), "no parameter 'widht'", "width"),
    "a value of a user's metric": task(metrics("metric: !function helpers.close, width: »two, aggregation: mean"), "'width' cannot be 'two'", "int"),
    "a metric without an aggregation": task(metrics("metric: »likelihood") | {"output_type": "multiple_choice", "doc_to_choice": "[a, b]"}, "no aggregation", "aggregation: mean"),
    "a metric that the helper lacks": task(metrics("metric: »!function helpers.clos, aggregation: mean"), "helpers.py has no 'clos'", "did you mean 'close'"),
    "a helper that is not there": task(metrics("metric: »!function helprs.close, aggregation: mean"), "no module 'helprs'", "helpers"),
    "two rows of one name": task({"metric_list": "[{metric: exact_match}, {metric: »exact_match, ignore_case: true}]"}, "exact_match", "name"),
    "a metric without arguments": task(metrics("metric: »!function own.m, aggregation: mean"), "'m'", "", files=helper("def m(): return 1.0\n")),
    "a metric of three arguments": task(metrics("metric: »!function own.m, aggregation: mean"), "'m'", "", files=helper("def m(references, prediction, third): return 1.0\n")),
    "a metric that is a number": task(metrics("metric: »!function own.m, aggregation: mean"), "", "", files=helper("m = 5\n"), load=True),
    "an aggregation without arguments": task(metrics("metric: exact_match, aggregation: »!function own.m"), "'m'", "", files=helper("def m(): return 1.0\n")),
    "a text for a truth in a metric": task(metrics("metric: exact_match, ignore_case: »'yes please'"), "cannot be 'yes please'", "bool"),
    # aggregations and reductions
    "an aggregation that is not there": task(metrics("metric: exact_match, aggregation: »maen"), "no aggregation named 'maen'", "mean"),
    "a reduction that is not there": task({"repeats": "4"} | metrics("metric: exact_match, reduction: »bets"), "no reduction named 'bets'", "use one of"),
    "a reduction with too few repeats": task(metrics("metric: exact_match, reduction: »pass@4"), "needs 4 repeats, but the task has 1", "repeats: 4"),
    "a reduction behind a filter that leaves one": task({"repeats": "4", "filter_list": "[{name: f, filter: »[{function: take_first}]}]"} | metrics("metric: exact_match, reduction: pass@4"), "leaves one answer", "take_first_k, k: 4"),
    "a parameter of an aggregation": task(metrics("metric: exact_match, aggregation: mean, axsi: »1"), "axsi", ""),
    "a reduction without arguments": task({"repeats": "4"} | metrics("metric: exact_match, reduction: »!function own.m"), "m cannot be used as reduction", "", files=helper("def m(): return 1.0\n")),
    # filters
    "a filter that is not there": task(filters("function: »lowercas"), "no filter named 'lowercas'", "lowercase"),
    "a parameter of a filter": task(filters("function: regex, regex_patern: »x"), "no parameter 'regex_patern'", "regex_pattern"),
    "an invalid pattern": task(filters('function: »regex, regex_pattern: "("'), "cannot be made", "correct"),
    "a filter without its parameter": task(filters("function: »take_first_k"), "needs the parameter 'k'", "k"),
    "a filter of text for log-likelihoods": task({"filter_list": "[{name: f, filter: »[{function: lowercase}]}]"}, "'lowercase' reads text", "generate_until", base=CHOICE),
    "two filters of one name": task({"filter_list": "[{name: f, filter: [{function: lowercase}]}, {name: »f, filter: [{function: uppercase}]}]"}, "two filters are named 'f'", "rename"),
    "a filter without a function": task({"filter_list": "[{name: f, filter: [{»functon: lowercase}]}]"}, "unknown key 'functon'", "function"),
    "unknown keys do not hide a metric": task({"doc_to_txt": "x"} | metrics("metric: »exact_mach"), "no metric named 'exact_mach'", "exact_match"),
    "an unknown filter does not hide a metric": task(filters("function: lowercas") | metrics("metric: »exact_mach"), "no metric named 'exact_mach'", "exact_match"),
    "an unknown filter does not hide a scorer": task(filters("function: lowercas") | {"scorer": "»{type: generation, kwargs: {k: 1}}"}, "k", ""),
    # scorers
    "a scorer that is not there": task({"scorer": "»ensembel"}, "no scorer named 'ensembel'", "ensemble"),
    "a parameter of a user's scorer": task({"scorer": "»{type: !function helpers.Polite, kwargs: {weigth: 2}}"}, "weigth", "weight"),
    "a value of a user's scorer": task({"scorer": "»{type: !function helpers.Polite, kwargs: {weight: heavy}}"}, "'heavy'", "float"),
    "a class that is not a scorer": task({"scorer": "»!function helpers.Plain"}, "Plain", "derived from assay.Scorer"),
    "a function as scorer": task({"scorer": "»!function helpers.close"}, "close", "derived from assay.Scorer"),
    "a scorer of another output type": task({"scorer": "»generation"}, "'generation' does not score multiple_choice", "generate_until", base=CHOICE),
    "a judge without its scale": task({"scorer": "»{type: llm_judge, kwargs: {scael: [1, 5]}}"}, "scael", "scale"),
    "a cross_filter over one filter": task({"scorer": "»cross_filter"}, "filters", "filter_list"),
    "a scorer without a parameter that it needs": task({"scorer": "»!function own.S"}, "needs the parameter 'path'", "path", files=helper("import assay\nclass S(assay.GenerationScorer):\n    def __init__(self, task_config, path): super().__init__(task_config)\n")),
    "an ensemble without scorers": task({"scorer": "»ensemble"}, "scorers", ""),
    "an ensemble with a wrong weight": task({"scorer": "»{type: ensemble, kwargs: {scorers: [generation], weights: [1, 2]}}"}, "weights", ""),
    # prompts and columns
    "a variable without a column": task({"doc_to_text": '"Q: {{»quesion}}"'}, "no column 'quesion'; they have: question, answer", "did you mean 'question'"),
    "a variable like no column": task({"doc_to_text": '"Q: {{»zebra}} {{question}}"'}, "no column 'zebra'; they have: question", "correct"),
    "a variable in a branch not taken": task({"doc_to_text": '"{{question}}{% if gold == 9 %}{{»anwser}}{% endif %}"'}, "no column 'anwser'", "did you mean 'answer'"),
    "a variable in a block of text": task({"doc_to_text": "|\n  Question: {{question}}\n  Hint: {{»toipc}}"}, "no column 'toipc'", "did you mean 'topic'"),
    "columns behind doc": task({"doc_to_text": '"{{»doc.quesion}}"'}, "no column 'doc'", "{{question}}"),
    "an attribute that is not there": task({"doc_to_text": '"{{question}} {{meta.»txet}}"'}, "'meta' has no 'txet'; it has: text", "did you mean 'text'"),
    "an attribute of items in a list": task({"doc_to_text": "\"{{ [meta] | map(attribute='»txet') | list }}\""}, "no 'txet'", "correct"),
    "a target column": task({"doc_to_target": "»anwser"}, "no column 'anwser'", "did you mean 'answer'"),
    "a target template": task({"doc_to_target": '"{{»anwser}}"'}, "no column 'anwser'", "did you mean 'answer'"),
    "a choice column": task({"doc_to_choice": "»chioces"}, "no column 'chioces'", "did you mean 'choices'", base=CHOICE),
    "a template of choices": task({"doc_to_choice": '"{{[answer, »topc]}}"'}, "no column 'topc'", "did you mean 'topic'", base=CHOICE),
    "a description": task({"description": '"About {{»topc}}. "'}, "no column 'topc'", "did you mean 'topic'"),
    "a prefix": task({"gen_prefix": '"{{»topc}}:"'}, "no column 'topc'", "did you mean 'topic'"),
    "a column of examples": task({"num_fewshot": "1", "fewshot_split": "few", "fewshot_config": '{doc_to_text: "{{»qestion}}"}'}, "no column 'qestion'", "did you mean 'question'"),
    "a column that a format names": task({"formats": '{type: mcqa, instruction: "About {{»topc}}: "}'}, "no column 'topc'", "did you mean 'topic'", base=CHOICE),
    "a column that a format of a table names": task({"formats": '{b: cloze, a: {type: mcqa, instruction: "{{»topc}}: "}}'}, "no column 'topc'", "did you mean 'topic'", base=CHOICE, asked="t@a"),
    "a column with process_docs": task({"process_docs": "!function own.keep", "doc_to_text": '"{{»textt}}"'}, "no column 'textt'; they have: text, answer", "did you mean 'text'", files=helper("def keep(split): return [{'text': row['question'], 'answer': 'x'} for row in split]\n"), load=True),
    "an invalid template": task({"doc_to_text": '»"{{question}"'}, "not a valid template", "correct"),
    "a prompt without a column": task({"doc_to_text": '»"Answer the question:"'}, "all 4 documents are asked the same", "name a column"),
    "a target beside the choices": task({"doc_to_target": "»question"}, "the right answer, 'q0', is none of the 2 choices", "index", base=CHOICE),
    "a cluster column": task({"cluster_by": "»topc"}, "no column 'topc'", "topic"),
    # data
    "a split that is not there": task({"test_split": "»tets"}, "no split 'tets'; it has: test, few", "did you mean 'test'"),
    "a split of examples": task({"num_fewshot": "1", "fewshot_split": "»fwe"}, "no split 'fwe'", "did you mean 'few'"),
    "more examples than there are": task({"num_fewshot": "»50", "fewshot_split": "few"}, "50 examples are asked for, and the pool holds 2", "fewer"),
    "a data file that is not there": task({"dataset_kwargs": "{data_files: {test: »e.jsonl}}"}, "no data file 'e.jsonl'", "put the file there"),
    "a prompt of another program": task({"»use_prompt": "promptsource:x"}, "use_prompt is not supported", "write doc_to_text"),
    "a reader without files": task({"dataset_kwargs": "{}"} | {"dataset_path": "»json"}, "needs dataset_kwargs.data_files", ""),
    "a sampler that is not there": task({"num_fewshot": "1", "fewshot_split": "few", "fewshot_config": "{sampler: »firstn}"}, "no sampler named 'firstn'", "first_n"),
    # helper modules
    "a helper with a syntax error": task({"process_docs": "»!function own.keep"}, "own.py cannot be read", "correct the module", files=helper("def keep(split:\n")),
    "a helper that exits": task({"process_docs": "»!function own.keep"}, "own.py cannot be loaded: SystemExit", "do what it asks for", files=helper("import sys\nsys.exit(3)\ndef keep(split): return split\n"), load=True),
    "a helper that imports itself without end": task({"process_docs": "»!function own.keep"}, "own.py cannot be loaded: RecursionError", "do what it asks for", files=helper("def f(): return f()\nf()\ndef keep(split): return split\n"), load=True),
    "a helper that needs a library": task({"process_docs": "»!function own.keep"}, "No module named 'no_such_library'", "pip install no_such_library", files=helper("import no_such_library\ndef keep(split): return split\n"), load=True),
    "process_results with one argument": task({"process_results": "»!function own.score"} | metrics("metric: own, aggregation: mean"), "'score' cannot be called with 2 arguments (doc, results)", "def score(doc, results)", files=helper("def score(results): return {'own': 1}\n")),
    "a question function without its argument": task({"doc_to_text": "»!function own.text"}, "'text' cannot be called with 1 arguments (doc)", "def text(doc)", files=helper("def text(): return 'x'\n")),
    "an async function": task({"process_docs": "»!function own.keep"}, "'keep' is async", "def keep(dataset)", files=helper("async def keep(split): return split\n")),
    # class tasks
    "a class that is not a task": task({"class": "»!function helpers.Plain"}, "'Plain' is not a task class", "derive it"),
    "a function for a class": task({"class": "»!function helpers.close"}, "'close' is not a task class", "derive it"),
    "a class that fails": task({"class": "»!function own.Own"}, "broken on purpose", "", files=helper("from lm_eval.api.task import ConfigurableTask\nclass Own(ConfigurableTask):\n    def __init__(self, *a, **k): raise ValueError('broken on purpose')\n"), load=True),
}  # fmt: skip


def graph(changes: Mapping[str, str], what: str, fix: str) -> Mistake:
    text = QUESTION_ANSWERING.lstrip("\n").replace(
        "tasks.eval.question_answering.simpleqa.task_executor", "task_executor"
    )
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new, 1)
    text, at = marked("graph_config.yaml", text)
    files = {"graph/graph_config.yaml": text, "graph/records.jsonl": GRAPH_RECORDS, "graph/task_executor.py": EXECUTOR}
    return Mistake(files, at, what, fix, asked="graph/graph_config.yaml")


GRAPHS: dict[str, Mistake] = {
    "a key in a prompt": graph({"{problem}": "{»problm}"}, "problm", "did you mean 'problem'"),
    "an edge to nowhere": graph({"to: predict_answer": "to: »predict_anser"}, "predict_anser", "predict_answer"),
    "a golden key": graph({'golden_key: "answer"': 'golden_key: »"anwser"'}, "nothing produces 'anwser'", "answer"),
    "a unit metric": graph({'name: "exact_match"': 'name: »"exact_mach"'}, "exact_mach", "exact_match"),
    "a parameter of a transform": graph({"transform: sygra": "»transform: sygra", "overwrite: false": "overwrit: false"}, "overwrit", "overwrite"),
    "a post-processor of a node": graph({"task_executor.GenerateAnswerPostProcessor": "»task_executr.GenerateAnswerPostProcessor"}, "task_executr", "task_executor"),
    "a class that the module lacks": graph({"task_executor.GenerateAnswerPostProcessor": "»task_executor.GenerateAnswrPostProcessor"}, "GenerateAnswrPostProcessor", "GenerateAnswerPostProcessor"),
    "a node type": graph({"node_type: llm": "node_type: »lm"}, "lm", "llm"),
    "a key of a node": graph({"output_keys:": "»output_kyes:"}, "output_kyes", "output_keys"),
    "a lambda": graph({"tasks.eval.utils.UnitMetrics": "»tasks.eval.utils.UnitMetrix"}, "UnitMetrix", "UnitMetrics"),
    "a file of records": graph({"file_path: records.jsonl": "file_path: »record.jsonl"}, "no data file 'record.jsonl'", "put the file there"),
}  # fmt: skip


def group(lines: str, at: str, what: str, fix: str, **more: Any) -> Mistake:
    files = {"t.yaml": a_file(TASK), "u.yaml": a_file(TASK | {"task": "u"}), "g.yaml": "group: g\n" + lines}
    return Mistake(files, f"g.yaml:{at}", what, fix, asked="g", **more)


GROUPS: dict[str, Mistake] = {
    "a metric that the members lack": group("task: [t, u]\naggregate_metric_list: [{metric: f1}]\n", "3:", "f1", "exact_match"),
    "a filter that the members lack": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, filter_list: strict}]\n", "3:", "strict", ""),
    "a condition that cannot be read": group('task:\n  - {task: t, if: "model.size >> 7"}\n  - u\n', "3:", ">>", ""),
    "pass@k of one answer": group("task: [t, u]\naggregate_metric_list: [{metric: pass@10, aggregation: pass@k, kwargs: {k: 10}}]\n", "3:", "10", "take_first_k"),
    "an aggregator function without arguments": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, aggregation: !function helpers.Plain}]\n", "3:", "Plain", "", load=True),
    "a group_filter of another key": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match}]\ngroup_filter: {topk: 1}\n", "4:", "topk", "top_k"),
    "a filter of one member": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, filter_list: {tt: none}}]\n", "3:", "tt", ""),
    "a key": group("task: [t, u]\naggregate_metric_lst: [{metric: exact_match}]\n", "3:1", "unknown key", "aggregate_metric_list"),
    "a member": group("task: [t, uu]\n", "2:11", "no task, group or tag named 'uu'", ""),
    "an aggregator": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, aggregation: haromnic_mean}]\n", "3:", "haromnic_mean", "harmonic_mean"),
    "a parameter of an aggregator": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, aggregation: pass@k, kwargs: {kk: 2}}]\n", "3:", "kk", "k"),
    "a circle": group("task: [g]\n", "2:8", "circle", ""),
    "two rows of one name": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match}, {metric: exact_match}]\n", "3:48", "two entries make the row 'exact_match'", "name"),
    "an unknown key of an override": group("task:\n  - task: t\n    num_fewsht: 2\n", "4:5", "unknown key 'num_fewsht'", "num_fewshot"),
    "a group without members": group("", "1:", "no members", ""),
    "a group of nothing": group("task: []\n", "", "no members", ""),
    "a type that is not there": group("task: [t]\ntype: Nothing\n", "3:7", "no kind of group named 'Nothing'", "StandardGroup"),
}  # fmt: skip
