"""More mistakes, with the branch that makes assay refuse them: move a row to `mistakes.py` when its branch is merged."""

from mistakes import Mistake, group, helper, metrics, task

OWN = "metric: »!function own.m, aggregation: mean"
REPEATED = {
    "repeats": "4",
    "generation_kwargs": "{do_sample: true, temperature: 1.0}",
    "filter_list": "[{name: f, filter: [{function: take_first_k, k: 4}]}]",
}

METRICS: dict[str, Mistake] = {
    "an async metric": task(metrics(OWN), "async", "`def`", files=helper("async def m(references, prediction): return 1.0\n")),
    "a metric whose score depends on the order of references": task(metrics(OWN) | {"doc_to_target": "choices"}, "order", "reference", files=helper("def m(references, prediction): return float(references[0] == 'x')\n"), load=True),
    "a filter function of one argument": task({"filter_list": "[{name: f, filter: [{function: »custom, filter_fn: !function own.m}]}]"}, "(resps, docs)", "", files=helper("def m(responses): return responses\n")),
    "an async filter function": task({"filter_list": "[{name: f, filter: [{function: »custom, filter_fn: !function own.m}]}]"}, "async", "`def`", files=helper("async def m(resps, docs): return resps\n")),
    "an async aggregation": task(metrics("metric: exact_match, aggregation: »!function own.m"), "async", "", files=helper("async def m(values): return 1.0\n")),
    "repeats of a metric of the whole task": task(REPEATED | metrics("metric: bleu, reduction: »pass@2"), "bleu", ""),
}  # fmt: skip

SEEDS: dict[str, Mistake] = {
    "a scorer whose score takes too little": task({"scorer": "»!function own.S"}, "score", "", files=helper("import assay\nclass S(assay.Scorer):\n    def score(self): return 1.0\n")),
    "an abstract scorer": task({"scorer": "»!function own.S"}, "score_instances", "", files=helper("import assay\nclass S(assay.Scorer):\n    pass\n"), load=True),
}  # fmt: skip

GROUPS: dict[str, Mistake] = {
    "a metric that the members lack": group("task: [t, u]\naggregate_metric_list: [{metric: f1}]\n", "3:", "f1", "exact_match"),
    "a filter that the members lack": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, filter_list: strict}]\n", "3:", "strict", ""),
    "a condition that cannot be read": group('task:\n  - {task: t, if: "model.size >> 7"}\n  - u\n', "3:", ">>", ""),
    "pass@k of one answer": group("task: [t, u]\naggregate_metric_list: [{metric: pass@10, aggregation: pass@k, kwargs: {k: 10}}]\n", "3:", "10", "take_first_k"),
    "an aggregator function without arguments": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, aggregation: !function helpers.Plain}]\n", "3:", "Plain", "", load=True),
    "a group_filter of another key": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match}]\ngroup_filter: {topk: 1}\n", "4:", "topk", "top_k"),
    "a filter of one member": group("task: [t, u]\naggregate_metric_list: [{metric: exact_match, filter_list: {tt: none}}]\n", "3:", "tt", ""),
}  # fmt: skip
