import random

import numpy as np


def shuffled(dataset):
    return dataset.map(shuffle)


def shuffled_again(dataset):
    return dataset.map(
        lambda doc: {**shuffle(doc), "again": True}
    )  # other code: `datasets` keeps what it has mapped once


def shuffle(doc):
    choices = list(doc["choices"])
    random.shuffle(choices)
    return {"choices": choices, "label": choices.index(doc["choices"][doc["label"]])}


def overlap(references, predictions):
    """The share of a reference's words that the answer has: neither 0 nor 1 for most."""
    words = references[0].split()
    return sum(word in predictions[0] for word in words) / len(words)


def overlap_of_pair(pair):
    return overlap([pair[0]], [pair[1]])


def numpy_target(doc):
    return np.round(doc["label"] > 0.5, 0).astype(np.int32)


def scored(doc, results):
    return {"length": len(str(results[0]))}


def no_target(doc):
    return None


def counted(resps, docs):
    return [len(each) for each in resps]


def numbers(resps, docs):
    return [[int(each.rpartition(" ")[2]) for each in repeats] for repeats in resps]
