import random


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
