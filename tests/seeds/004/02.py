class GenerateTask(Task):
    def _create_result(self, instances: list[Instance], filter_name: str):
        """Create GenResult from instances."""
        return GenResult.from_instances(instances, filter_name=filter_name)

    def _compute_metric(self, gen_result: GenResult, metric: MetricConfig):
        """Compute metric for generation task."""
        if metric.fn is None:
            return None

        # Compute for each generation
        scores = []
        for generation in gen_result.results:
            try:
                score = metric.fn(
                    references=(
                        [gen_result.target]
                        if not isinstance(gen_result.target, list)
                        else gen_result.target
                    ),
                    predictions=[generation],
                    **metric.kwargs
                )
            except TypeError:
                score = metric.fn([gen_result.target, generation])

            if isinstance(score, dict):
                # Handle metrics that return multiple values
                # For now, just take the first key (needs better handling)
                scores.append(list(score.values())[0])
            else:
                scores.append(score)

        # Return list of scores (one per generation)
        # The Task.reduce() method will handle repeat reduction later
        return scores
