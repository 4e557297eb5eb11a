"""A plug-in with one thing of each kind, as short as they get."""

from assay import Estimate, FormatConfig, GenerationScorer, RowAggregator, metric
from assay.models import Scripted


@metric("starts_alike", higher_is_better=False)  # a decorator for what an entry point cannot say
def starts_alike(references, prediction, *, letters: int = 1):
    return float(any(prediction[:letters] == each[:letters] for each in references))


def nth_word(*, n: int = 0):
    return lambda responses, doc: [response.split()[n] for response in responses]


def lowest(values, *, floor: float = 0.0):
    return max(floor, min(values))


def spread(scores):
    return max(scores) - min(scores)


class Widest(RowAggregator):
    def __init__(self, config, scale: float = 1.0):
        super().__init__(config)
        self.scale = scale

    def combine(self, members, weights):
        values = [float(member.estimate) for member in members]
        return Estimate(self.scale * (max(values) - min(values)))


class LongEnough(GenerationScorer):
    def __init__(self, config=None, *, least: int = 3):
        super().__init__(config)
        self.least = least

    def score(self, reference, predictions):
        return [float(len(each) >= self.least) for each in predictions]


def parrot(*, suffix: str = ""):
    says = {"generate": lambda prompt, params, repeat: prompt + suffix + "!" * repeat}
    return Scripted(
        **says, chat_template=lambda messages, _: messages[-1]["content"], name="parrot", identity="parrot 1"
    )


def last_n(pool, seed, leaks):
    return lambda doc, number: range(len(pool) - number, len(pool))


class Loud:
    def transform(self, data, params):
        return [{**record, params["field"]: record[params["field"]].upper()} for record in data]


plain_question = FormatConfig(output_type="generate_until", choice_labels=None, question_prefix="", answer_prompt="so")


def same_length(golden, predicted, *, slack: int = 0):
    return abs(len(golden["text"]) - len(predicted["text"])) <= slack


def share_right(results, *, scale: float = 1.0):
    return scale * sum(result.correct for result in results) / len(results)


def names_only(run, target):
    target.mkdir(parents=True, exist_ok=True)
    (target / "names.txt").write_text("\n".join(run.tasks))
    return target / "names.txt"
