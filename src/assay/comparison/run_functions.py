"""Registers what a run gets from this package: comparisons, and rows that labels correct."""

from assay.comparison.compare import compare
from assay.comparison.labelling import corrected_rows
from assay.runs.extensions import COMPARISON


class RunComparisons:
    compare = staticmethod(compare)
    corrected_rows = staticmethod(corrected_rows)


COMPARISON.register(RunComparisons())
