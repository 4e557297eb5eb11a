"""The whole flow: from names of tasks to results. The only package that imports every other."""

from assay.evaluation.api import evaluate as evaluate
from assay.evaluation.api import simple_evaluate as simple_evaluate
