class Task(ABC):
    """Base task class with Scorer integration."""

    def __init__(self, config: TaskConfig):
        self.config = config
        self._instances: list[Instance] = []
        self._filters: list[FilterConfig] = config.get_filters()
        self._sample_scores: dict[tuple[str, str], list] = defaultdict(list)

        # Create scorer during initialization
        self._scorer: Scorer = ScorerFactory.create_scorer(config)

    def process_instances(self, instances: list[Instance] | None = None):
        """
        Process instances to compute metrics.

        This is now a simple orchestration method that:
        1. Groups instances by doc_id
        2. For each filter, delegates scoring to the Scorer
        3. Collects results
        """
        _instances = self.sort_instances(instances or self._instances)
        if not _instances:
            return {}

        results = defaultdict(list)

        # Iterate over filters
        for filter_config in self._filters:
            filter_name = filter_config.name

            # Score each document's instances
            for doc_instances in _instances.values():
                # Delegate to scorer
                scored_result = self._scorer.score_instances(
                    doc_instances,
                    filter_name
                )

                # Collect scores
                if isinstance(scored_result, dict):
                    # ProcessResultsScorer returns dict directly
                    for metric, value in scored_result.items():
                        results[(metric, filter_name)].append(value)
                else:
                    # Type-specific scorers return Result objects
                    for metric, score in scored_result.scores.items():
                        results[(metric, filter_name)].append(score)

        self._sample_scores = results
        return results

    # Remove _process_instances from Task base class
    # It's now handled by Scorers


# Simplified task subclasses
class GenerateTask(Task):
    OUTPUT_TYPE = "generate_until"

    # Only needs construct_requests now
    # Scoring logic moved to GenerationScorer


class MultipleChoiceTask(Task):
    OUTPUT_TYPE = "loglikelihood"

    # Only needs construct_requests now
    # Scoring logic moved to LoglikelihoodScorer
