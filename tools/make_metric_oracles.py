"""Have lm-eval filter random responses, score random documents and aggregate random scores, and keep what it found.

usage: PYTHON tools/make_metric_oracles.py FILE
PYTHON is one of an environment with lm_eval==0.4.13 (and its sklearn and sacrebleu); FILE is
tests/golden/metrics.json in this repository. Nothing of assay is used.
"""

import json
import random
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

from lm_eval.api import metrics, task
from lm_eval.api.registry import get_filter

CASES = 200
WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "in",
    "mat",
    "park",
    "rains",
    "all",
    "day",
    "été",
    "東京",
    ",",
    ".",
    "!",
)
METRICS = ("acc", "acc_norm", "acc_bytes", "exact_match", "f1", "mcc", "brier_score", "likelihood")
OPTIONS = ("ignore_case", "ignore_punctuation", "ignore_numbers")


def text(draw: random.Random, least: int, most: int) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(least, most)))


def process(output_type: str, names, doc: dict, results: list, *, kwargs=None, has_several: bool = False) -> dict:
    """What lm-eval's own task makes of the results of one document."""
    stand_in = SimpleNamespace(
        OUTPUT_TYPE=output_type,
        _metric_fn_list=dict.fromkeys(names, metrics.exact_match_fn),
        _metric_fn_kwargs={name: kwargs or {} for name in names},
        config=SimpleNamespace(process_results=None, doc_to_choice=None),
        doc_to_choice=lambda doc: doc["choices"],
        doc_to_target=lambda doc: doc["gold"],
        multiple_input=False,
        multiple_target=has_several,
        count_words=task.ConfigurableTask.count_words,
        count_bytes=task.ConfigurableTask.count_bytes,
        _aggregation_list={},
        _higher_is_better={},
    )
    return task.ConfigurableTask.process_results(stand_in, doc, results)


def choices(draw: random.Random, *, has_several: bool, mutual: bool) -> dict:
    doc = {"choices": [f"{number} {text(draw, 1, 4)}" for number in range(draw.randint(2, 5))]}
    count = len(doc["choices"])
    doc["gold"] = sorted(draw.sample(range(count), draw.randint(1, count))) if has_several else draw.randrange(count)
    length = 2 * count if mutual else count
    results = [(draw.choice([-1.0, -2.0, round(draw.uniform(-30, 0), 3)]), draw.random() < 0.5) for _ in range(length)]
    names = ("acc", "acc_norm", "acc_bytes", "exact_match") if has_several else METRICS
    result = process(
        "multiple_choice", (*names, "acc_mutual_info") if mutual else names, doc, results, has_several=has_several
    )
    return {"doc": doc, "results": results, "found": result}


def continuation(draw: random.Random) -> dict:
    doc, results = {"gold": text(draw, 1, 4)}, [(round(draw.uniform(-30, 0), 3), draw.random() < 0.5)]
    return {"doc": doc, "results": results, "found": process("loglikelihood", ("perplexity", "acc"), doc, results)}


def whole_text(draw: random.Random) -> dict:
    doc, results = {"gold": draw.choice(["", " ", "\n"]) + text(draw, 0, 9)}, [round(draw.uniform(-300, 0), 3)]
    names = ("word_perplexity", "byte_perplexity", "bits_per_byte")
    return {"doc": doc, "results": results, "found": process("loglikelihood_rolling", names, doc, results)}


def generation(draw: random.Random, *, has_several: bool) -> dict:
    kwargs = {name: True for name in OPTIONS if draw.random() < 0.5}
    if draw.random() < 0.3:
        kwargs["regexes_to_ignore"] = draw.choice([[","], ["a", r"\d"], ["(?i)THE "], []])
    pool = ["Room 1", "room 1", "room 2", "Room, 1", "the room", "THE ROOM!", "1", "", "été", "ÉTÉ"]
    gold = draw.sample(pool, draw.randint(1, 3)) if has_several else draw.choice(pool)
    doc, results = {"gold": gold}, [draw.choice(pool)]
    result = process("generate_until", ("exact_match",), doc, results, kwargs=kwargs, has_several=has_several)
    return {"doc": doc, "results": results, "kwargs": kwargs, "found": result}


def likelihoods(draw: random.Random) -> list:
    return [round(draw.uniform(-9, 0), 3) for _ in range(draw.randint(1, 20))]


def with_gaps(draw: random.Random) -> list:
    return [None if draw.random() < 0.2 else round(draw.uniform(-9, 9), 3) for _ in range(draw.randint(2, 20))]


def weighted(draw: random.Random) -> list:
    return [(round(draw.uniform(-90, 0), 3), draw.randint(1, 50)) for _ in range(draw.randint(1, 20))]


def labels(draw: random.Random) -> list:
    return [(0, 1), (1, 0), *((draw.randrange(2), draw.randrange(2)) for _ in range(draw.randint(1, 20)))]


def many_labels(draw: random.Random) -> list:
    return [(draw.randrange(4), draw.randrange(4)) for _ in range(draw.randint(2, 20))]


def probabilities(draw: random.Random) -> list:
    count, built = draw.randint(2, 5), []
    for _ in range(draw.randint(1, 20)):
        parts = [draw.randint(1, 99) for _ in range(count)]
        built.append((draw.randrange(count), [round(part / sum(parts), 4) for part in parts]))
    return built


def translations(draw: random.Random) -> list:
    streams, built = draw.randint(1, 3), []
    for _ in range(draw.randint(1, 3)):
        references = [text(draw, 1, 12) for _ in range(streams)]
        near = references[0].split()
        near[draw.randrange(len(near))] = draw.choice(WORDS)
        built.append((references if streams > 1 else references[0], draw.choice([" ".join(near), text(draw, 0, 12)])))
    return built


def judgements(draw: random.Random) -> list:
    built = []
    for _ in range(draw.randint(1, 20)):
        idx = {"paragraph": draw.randrange(3), "question": draw.randrange(2)}
        built.append((draw.randrange(2), {"idx": idx, "label": draw.randrange(2)}))
    return built


AGGREGATIONS = {
    "mean": (metrics.mean, likelihoods),
    "median": (metrics.median, likelihoods),
    "nanmean": (metrics.nanmean, with_gaps),
    "perplexity": (metrics.perplexity, likelihoods),
    "weighted_perplexity": (metrics.weighted_perplexity, weighted),
    "bits_per_byte": (metrics.bits_per_byte, weighted),
    "f1": (metrics.f1_score, labels),
    "matthews_corrcoef": (metrics.matthews_corrcoef, many_labels),
    "brier_score": (metrics.brier_score, probabilities),
    "bleu": (metrics.bleu, translations),
    "chrf": (metrics.chrf, translations),
    "chrf++": (metrics.chrfpp, translations),
    "ter": (metrics.ter, translations),
    "acc_all": (metrics.acc_all, judgements),
}


def aggregated(name: str) -> list:
    function, make = AGGREGATIONS[name]
    draw, cases = random.Random(name), []
    for _ in range(CASES):
        values = make(draw)
        numbers = [float("nan") if value is None else value for value in values] if name == "nanmean" else values
        cases.append({"values": values, "found": float(function(numbers))})
    return cases


def said(draw: random.Random) -> str:
    parts = [
        "#### 4",
        "#### -1,200.5",
        "####",
        "(A)",
        "(B)",
        "Answer: C",
        ": A",
        "Red",
        "red wine",
        "Blue.",
        "7",
        " ",
        "\n",
        "été",
    ]
    return draw.choice(["", " "]).join(draw.choices(parts, k=draw.randint(0, 5)))


def tagged(draw: random.Random) -> str:
    pairs = [f"('{draw.choice(WORDS)}', '{draw.choice(['NOUN', 'VERB', ''])}')" for _ in range(draw.randint(0, 3))]
    return draw.choice(["", "Tags: "]) + "[" + ", ".join(pairs) + draw.choice(["]", ""])


def entities(draw: random.Random) -> str:
    labels = ["PER", "Person", "LOC", "country", "time", "organization ", "x", "date"]
    parts = [f"{draw.choice(labels)}: {draw.choice(['Ada', 'Kenya, Uganda', 'none', 'Monday', ''])}" for _ in range(3)]
    return draw.choice([" $$ ", "$", "\n", " "]).join(parts[: draw.randint(0, 3)])


def options(draw: random.Random, name: str) -> dict:
    """Parameters of a filter."""
    pattern = {"regex_pattern": draw.choice([r"(\d+)", r"\(([A-Z])\)|: ([A-Z])", "#### (.*)", r"(\([A-Z]\))"])}
    chosen = {"group_select": draw.choice([0, -1]), **draw.choice([{}, pattern, {"fallback": "none"}])}
    if name == "regex":
        return chosen
    if name == "multi_choice_regex":
        more = {key: True for key in ("ignore_case", "ignore_punctuation") if draw.random() < 0.5}
        return {**chosen, **more, **draw.choice([{}, {"regexes_to_ignore": ["wine", r"\s"]}])}
    if name == "map":
        return {"mapping_dict": {"7": "seven", "(A)": 0, "": "nothing"}, **draw.choice([{}, {"default_value": -1}])}
    return {"k": draw.randint(1, 2)} if name == "take_first_k" else {}


FILTERS = {
    **dict.fromkeys(["regex", "multi_choice_regex", "remove_whitespace", "lowercase", "uppercase", "map"], said),
    **dict.fromkeys(["take_first", "take_first_k", "majority_vote"], lambda draw: draw.choice("abc")),
    "regex_pos": tagged,
    "format_span": entities,
}


def filtered(name: str) -> list:
    """What a filter leaves of the responses to one document."""
    draw, cases = random.Random(name), []
    for _ in range(CASES):
        choices = draw.sample(["Red", "Red wine", "Blue", "Green", "7"], draw.randint(2, 4))
        doc = {"choices": choices} if name == "multi_choice_regex" else {}
        kwargs, responses = options(draw, name), [FILTERS[name](draw) for _ in range(draw.randint(2, 5))]
        [result] = get_filter(name)(**kwargs).apply([list(responses)], [doc])
        cases.append({"doc": doc, "kwargs": kwargs, "responses": responses, "found": result})
    return cases


def plain(value):
    """Numbers of numpy as Python's."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def main(file: Path) -> None:
    warnings.simplefilter("ignore")
    draw = random.Random(413)
    documents = {
        "multiple_choice": [choices(draw, has_several=False, mutual=False) for _ in range(CASES)],
        "several right": [choices(draw, has_several=True, mutual=False) for _ in range(CASES)],
        "mutual information": [choices(draw, has_several=False, mutual=True) for _ in range(CASES)],
        "loglikelihood": [continuation(draw) for _ in range(CASES)],
        "loglikelihood_rolling": [whole_text(draw) for _ in range(CASES)],
        "generate_until": [generation(draw, has_several=False) for _ in range(CASES)],
        "several references": [generation(draw, has_several=True) for _ in range(CASES)],
    }
    kept = {
        "documents": documents,
        "aggregations": {name: aggregated(name) for name in AGGREGATIONS},
        "filters": {name: filtered(name) for name in FILTERS},
    }
    file.write_text(json.dumps(kept, default=plain, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
