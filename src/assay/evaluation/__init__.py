"""The whole flow: from names of tasks to numbers. The only room that knows every other."""

from assay.evaluation.flow import Run as Run
from assay.evaluation.flow import evaluate as evaluate
from assay.evaluation.flow import simple_evaluate as simple_evaluate
