"""Which scorer a task has."""

from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, ROLLING
from assay.scoring.scorer import (
    GenerationScorer,
    LoglikelihoodScorer,
    PerplexityScorer,
    ProcessResultsScorer,
    Scorer,
    make_scorer,
)

BY_OUTPUT: dict[str, type[Scorer]] = {
    GENERATE: GenerationScorer,
    CHOICE: LoglikelihoodScorer,
    LIKELIHOOD: LoglikelihoodScorer,
    ROLLING: PerplexityScorer,
}


class ScorerFactory:
    """Makes the scorer of a task: its own function first, then the scorer it names, then that of its output type."""

    @staticmethod
    def create_scorer(task_config: TaskConfig, place: Place | None = None) -> Scorer:
        if callable(task_config.process_results):
            return ProcessResultsScorer(task_config, task_config.process_results)
        at = place or Place(f"task {task_config.task!r}")
        if task_config.scorer is not None:
            return make_scorer(task_config.scorer, task_config, at)
        if task_config.output_type not in BY_OUTPUT:
            what = f"no scorer scores the output type {task_config.output_type!r}"
            raise ConfigError([Problem(at, what, f"one of {', '.join(BY_OUTPUT)}")])
        return BY_OUTPUT[task_config.output_type](task_config)
