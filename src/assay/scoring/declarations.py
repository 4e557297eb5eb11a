"""The declarations of metrics and filters: a plain function, and beside it all that the program must know of it before a run.

Both are used the same way everywhere: in a task's `metric_list`, as a unit metric of a graph, and on stored answers. The third
declaration, of aggregations, is `statistics.aggregations.Aggregation`.

A metric that compares an answer with its references, and one that looks at the choices of a document:

    Metric({"generate_until": token_f1}, bounds=SHARE)
    Metric({"multiple_choice": brier_score}, "brier_score", higher_is_better=False)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.records import Answer, Document, MetricValue, UserFunction, UserValue
from assay.signatures import Accepted, accepted, dress
from assay.statistics.influence import Bounds

RECORD = "record"
"""The kind of answer that a record of a graph has: a golden value, and the one that the graph predicted."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: by kind of answer the function that scores it, whose keyword parameters are keys of a file.

    A function of `generate_until` takes `(references, prediction, *, …)`, one of `record` takes `(golden, predicted, *, …)`, those
    of the other output types take `(result, *, …)`.
    """

    functions: Mapping[str, Callable[..., MetricValue]]
    aggregation: str | None = "mean"
    """How the values of all documents become one number; None where the task must say it."""
    higher_is_better: bool = True
    bounds: Bounds | None = None
    """The least and the greatest score of a document: intervals stay within them."""
    needs: str | None = None
    """The module of a library that is installed separately: a run imports it before the first request."""
    gives: Callable[..., Sequence[str] | None] | None = None
    """Takes the parameters and returns the names of the values, where there are several."""
    obstacle: Callable[[], tuple[str, str] | None] | None = None
    """What keeps it from working on this machine, and what would help."""
    runs_code: bool = False
    """Whether it executes what the model wrote."""
    parallel: bool = False
    """Whether a score keeps a processor busy: such scores are computed in several processes, or on a cluster."""
    needs_golden: bool | str = True
    """Whether it compares with a golden value; or the parameter that stands in for one."""
    sentence: str = ""
    """The sentence for `assay ls`, where several metrics share a function: else it is the first line of its docstring."""


def prepared(
    prepare: UserFunction,
    takes: Sequence[Accepted] | None = None,
    *,
    like: UserFunction | None = None,
    supplied: Sequence[str] = ("golden", "predicted"),
) -> UserFunction:
    """Return a metric's function whose parameters are looked at once, before the first answer.

    `prepare` takes them, and returns the function of the two `supplied` values. The parameters are those of `prepare`, or `takes`;
    name and docstring are those of `prepare`, or of `like`.
    """

    def score(one: MetricValue, other: MetricValue, **params: UserValue) -> MetricValue:
        return prepare(**params)(one, other)

    score.prepared = prepare  # type: ignore[attr-defined]  # whoever binds the function asks it for that
    return dress(score, like or prepare, takes if takes is not None else [accepted(prepare)], supplied)


@dataclass(frozen=True, slots=True)
class Filter:
    """A step of a filter: a function of its parameters that returns the step. None means that only the user's code knows.

    A step takes the responses to one request, one per repeat, and the document, and returns cleaner responses.
    """

    function: UserFunction
    keeps: Literal["one", "k", "all"] | None = "all"
    """How many of a request's responses are left: one, as many as the parameter `k` says, or all."""
    reads: Literal["text", "any"] | None = "text"
    """What responses it can read; log-likelihoods are no text."""
    leaves: Literal["text", "value"] | None = "text"
    """What it makes of text: other text, or values such as numbers and lists."""

    def __call__(self, **params: UserValue) -> Callable[[list[Answer], Document], list[Answer]]:
        """The step with these parameters."""
        return self.function(**params)  # type: ignore[no-any-return]  # as a filter is defined
