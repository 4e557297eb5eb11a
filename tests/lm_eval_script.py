"""A script written for lm-eval, as people have them; run by tests/test_lm_eval_shim.py with packages/assay-lm-eval on the path."""

import json
import sys

import lm_eval
from lm_eval import evaluator, tasks, utils
from lm_eval.api.filter import Filter
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, TemplateLM
from lm_eval.api.registry import get_model, register_filter, register_metric, register_model
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager, get_task_dict
from lm_eval.utils import make_table

SAID = {"1+1=": "2", "2+3=": "5", "7-4=": "4", "3*3=": "9", "8/2=": "none"}
WEIGHTS = {"grass": (-1.0, -2.0), "blood": (-3.0, -0.5), "sky": (-0.25, -4.0), "snow": (-1.0, -1.5)}


@register_model("scripted-lm", "second-name")
class ScriptedLM(LM):
    """A model with lm-eval's three methods."""

    def __init__(self, shout=False, batch_size=1, **kwargs):
        super().__init__()
        self.shout, self.batches = shout, []

    def loglikelihood(self, requests):
        self.batches.append(len(requests))
        return [(WEIGHTS[each.args[0].split()[0]][each.args[1] == " red"], False) for each in requests]

    def loglikelihood_rolling(self, requests):
        return [-1.0 for _ in requests]

    def generate_until(self, requests):
        assert all(each.args[1]["until"] == ["\n"] for each in requests)
        return [SAID[each.args[0]] for each in requests]

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return "".join(each["content"] for each in chat_history)


class Letters(TemplateLM):
    """A model that scores letters: each costs 1, and those of the text `red` 2."""

    eot_token_id = 0

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return [ord(letter) for letter in string]

    def _loglikelihood_tokens(self, requests, **kwargs):
        self.seen = requests
        return [(-float(len(text)) * (2 if bytes(text) == b" red" else 1), False) for _, _, text in requests]

    def loglikelihood_rolling(self, requests):
        return [-1.0 for _ in requests]

    def generate_until(self, requests):
        return ["" for _ in requests]


@register_metric(metric="length_of_answer", higher_is_better=False, aggregation="mean", output_type="generate_until")
def length_of_answer(references, predictions, **kwargs):
    return float(len(predictions[0]))


@register_filter("last_letter")
class LastLetter(Filter):
    def apply(self, resps, docs):
        return [[each[-1:] for each in own] for own in resps]


def main(folder, output):
    manager = TaskManager(include_path=folder)
    shown = {}
    model = ScriptedLM()
    results = lm_eval.simple_evaluate(model=model, tasks=["sums", "colours"], task_manager=manager)
    shown["object"] = results["results"]
    shown["batches"] = model.batches
    shown["named"] = evaluator.simple_evaluate("second-name", "shout=True", ["sums"], include_path=folder)["results"][
        "sums"
    ]
    own = {
        **SUMS,
        "dataset_kwargs": {"data_files": {"test": f"{folder}/sums.jsonl"}},
    }
    shown["registered"] = lm_eval.simple_evaluate(model, tasks=[own])["results"]["own"]
    loaded = get_task_dict(["sums"], manager)
    loaded["sums"].set_config("num_fewshot", 0)
    shown["evaluate"] = lm_eval.evaluate(lm=model, task_dict=loaded, limit=2)["results"]["sums"]["exact_match,none"]
    shown["letters"] = lm_eval.simple_evaluate(Letters(), tasks=["colours"], task_manager=manager)["results"][
        "colours"
    ]["acc,none"]
    tracker = EvaluationTracker(output_path=output)
    results = lm_eval.simple_evaluate(model, tasks=["sums"], task_manager=manager, evaluation_tracker=tracker)
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    shown["hashes"] = results["task_hashes"]
    shown["dummy"] = get_model("dummy")().generate_until([Instance("generate_until", {}, ("a", {}), 0)])
    shown["classes"] = [
        get_model("scripted-lm") is ScriptedLM,
        get_model("hf") is HFLM,
        get_model("huggingface") is HFLM,
    ]
    shown["table"] = make_table(results)
    shown["match"] = tasks.TaskManager(include_path=folder).match_tasks(["sum*"])
    shown["config"] = EvaluatorConfig(model_args="pretrained=a,b=1", tasks="x,y").model_args
    shown["windows"] = [
        list(map(utils.make_disjoint_window, utils.get_rolling_token_windows(list(range(10)), 99, 4, 1)))
    ]
    print(json.dumps(shown))


SUMS = {
    "task": "own", "dataset_path": "json", "test_split": "test", "doc_to_text": "{{q}}=", "doc_to_target": "a",
    "generation_kwargs": {"until": ["\n"]},
    "filter_list": [{"name": "last", "filter": [{"function": "last_letter"}, {"function": "take_first"}]}],
    "metric_list": [{"metric": "length_of_answer"}, {"metric": "exact_match"}],
}  # fmt: skip

if __name__ == "__main__":
    main(*sys.argv[1:])
