from abc import ABC, abstractmethod
from typing import Generic, TypeVar
from dataclasses import dataclass

# Type variables for different result types
ResultT = TypeVar('ResultT', bound='Results')

class Scorer(ABC, Generic[ResultT]):
    """
    A Scorer computes metric scores from filtered model outputs.

    Responsibilities:
    - Convert filtered outputs into Result objects (MCResult/GenResult)
    - Apply metrics to compute scores
    - Handle repeat/aggregation logic at the sample level
    - Track which filter produced the outputs
    """

    def __init__(self, task_config: TaskConfig):
        self.config = task_config

    @abstractmethod
    def score_instances(
        self,
        instances: list[Instance],
        filter_name: str
    ) -> ResultT:
        """
        Score a group of instances (typically same doc_id) using a specific filter.

        Args:
            instances: List of Instance objects for the same document
            filter_name: Name of the filter whose outputs to use

        Returns:
            Result object with computed scores
        """
        raise NotImplementedError

    @abstractmethod
    def get_metrics(self, filter_name: str) -> list[MetricConfig]:
        """
        Get the metrics to compute for a given filter.

        Args:
            filter_name: Name of the filter

        Returns:
            List of MetricConfig objects to apply
        """
        raise NotImplementedError


class ProcessResultsScorer(Scorer):
    """
    Scorer that delegates to custom process_results function.

    This handles the legacy/custom scoring path where tasks define their own
    process_results method. It maintains backwards compatibility.
    """

    def __init__(self, task_config: TaskConfig, process_results_fn: Callable):
        super().__init__(task_config)
        self.process_results_fn = process_results_fn

    def score_instances(
        self,
        instances: list[Instance],
        filter_name: str
    ) -> dict[str, Any]:
        """Delegate to custom process_results function."""
        # Create a Result object to extract doc and filtered results
        result = Results.create(instances, filter_name)

        # Call custom process_results
        scores = self.process_results_fn(
            result.doc,
            [result.results[filter_name]]
        )

        return scores or {}

    def get_metrics(self, filter_name: str) -> list[MetricConfig]:
        """
        For custom process_results, we don't know the metrics ahead of time.
        Return empty list and use mean aggregation as default.
        """
        return []


class GenerationScorer(Scorer[GenResult]):
    """
    Scorer for generation tasks (generate_until).

    Handles:
    - String outputs (generated text)
    - Reference-based metrics (BLEU, ROUGE, exact match, etc.)
    - Repeat reduction if configured
    """

    def score_instances(
        self,
        instances: list[Instance],
        filter_name: str
    ) -> GenResult:
        """Score generation instances."""
        # Create GenResult from instances
        gen_result = GenResult.from_instances(instances, filter_name)
        gen_result.repeats = self.config.repeat_cfg.repeats

        # Get metrics for this filter
        metrics = self.get_metrics(filter_name)

        # Compute metrics
        gen_result.scores = self._compute_metrics(gen_result, metrics)

        return gen_result

    def _compute_metrics(
        self,
        gen_result: GenResult,
        metrics: list[MetricConfig]
    ) -> dict[str, list[float]]:
        """Compute all metrics for a GenResult."""
        from collections import defaultdict

        scores = defaultdict(list)
        gold = gen_result.target

        # Compute metric for each generation
        for generation in gen_result.results:
            for metric in metrics:
                if metric.fn is None:
                    continue

                try:
                    score = metric.fn(
                        references=[gold] if not isinstance(gold, list) else gold,
                        predictions=[generation],
                        **metric.kwargs,
                    )
                except TypeError:
                    # Handle metrics with different interfaces
                    score = metric.fn([gold, generation])

                # Handle metrics that return dicts (multiple metrics at once)
                if isinstance(score, dict):
                    for k, v in score.items():
                        scores[k].append(v)
                else:
                    scores[metric.name].append(score)

        return dict(scores)

    def get_metrics(self, filter_name: str) -> list[MetricConfig]:
        """Get metrics for this filter from task config."""
        # Find the FilterConfig for this filter_name
        for filter_config in self.config.get_filters():
            if filter_config.name == filter_name:
                return filter_config.metric_list

        # Fallback to task-level metrics
        return self.config._metric_list


class LoglikelihoodScorer(Scorer[MCResult]):
    """
    Scorer for loglikelihood/multiple-choice tasks.

    Handles:
    - Loglikelihood outputs (log probabilities)
    - Choice-based metrics (accuracy, Brier score, etc.)
    - Mutual information if configured
    """

    def score_instances(
        self,
        instances: list[Instance],
        filter_name: str
    ) -> MCResult:
        """Score multiple-choice instances."""
        # Create MCResult from instances
        mc_result = MCResult.from_instances(instances)

        # Get metrics for this filter
        metrics = self.get_metrics(filter_name)

        # Compute metrics
        mc_result.scores = self._compute_metrics(mc_result, metrics)

        return mc_result

    def _compute_metrics(
        self,
        mc_result: MCResult,
        metrics: list[MetricConfig]
    ) -> dict[str, float]:
        """Compute all metrics for an MCResult."""
        scores = {}

        for metric in metrics:
            if metric.fn is None:
                continue

            # MC metrics take the entire MCResult as input
            score = metric.fn(mc_result)

            # Handle metrics that return dicts
            if isinstance(score, dict):
                scores.update(score)
            else:
                scores[metric.name] = score

        return scores

    def get_metrics(self, filter_name: str) -> list[MetricConfig]:
        """Get metrics for this filter from task config."""
        # Find the FilterConfig for this filter_name
        for filter_config in self.config.get_filters():
            if filter_config.name == filter_name:
                return filter_config.metric_list

        # Fallback to task-level metrics
        return self.config._metric_list


class ScorerFactory:
    """
    Factory for creating the appropriate Scorer based on task configuration.

    Decision tree:
    1. If process_results is defined → ProcessResultsScorer
    2. Elif output_type is generate_until → GenerationScorer
    3. Elif output_type is loglikelihood → LoglikelihoodScorer
    4. Else → raise error
    """

    @staticmethod
    def create_scorer(task_config: TaskConfig) -> Scorer:
        """Create appropriate scorer for task configuration."""

        # Check for custom process_results first
        if callable(task_config.process_results):
            return ProcessResultsScorer(task_config, task_config.process_results)

        # Create type-specific scorer
        output_type = task_config.output_type

        if output_type == "generate_until":
            return GenerationScorer(task_config)
        elif output_type in ("loglikelihood", "multiple_choice"):
            return LoglikelihoodScorer(task_config)
        elif output_type == "loglikelihood_rolling":
            # Could add PerplexityScorer here
            raise NotImplementedError(f"Scorer for {output_type} not yet implemented")
        else:
            raise ValueError(f"Unknown output_type: {output_type}")
