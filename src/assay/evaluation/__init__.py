"""The whole flow: from names of tasks to results. The only package that imports every other."""

from assay.evaluation.flow import evaluate as evaluate
from assay.evaluation.flow import simple_evaluate as simple_evaluate
