"""The metric `math_equal`. How it compares is imported when it is used: its hundred patterns take longer than a small run."""

from assay.records import Answer
from assay.scoring.declarations import Metric
from assay.scoring.results import GENERATE, References
from assay.statistics.influence import SHARE


def math_equal(references: References, prediction: Answer, *, digits: int = 6, strict: bool = True) -> float:
    r"""Whether the answer equals a reference, by computing with both: 0.5, 1/2 and \frac{2}{4} are the same.

    Numbers are compared to so many digits after the point. `strict`: variables must have the same names.
    An answer that cannot be read is wrong; a reference that cannot be read is a failure.
    """
    from assay.scoring.metrics.math_comparison import compare

    return compare([*map(str, references)], str(prediction), digits, strict)


MATH_METRICS: dict[str, Metric] = {
    "math_equal": Metric({GENERATE: math_equal}, needs="math_verify", bounds=SHARE, parallel=True)
}
