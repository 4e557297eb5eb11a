class Aggregator(ABC):
    """
    An Aggregator computes group-wide metrics from task results.

    Responsibilities:
    - Collect metrics from child tasks/groups
    - Apply aggregation function (mean, weighted mean, harmonic, etc.)
    - Handle different metric types appropriately
    - Support filter-specific aggregation
    """

    def __init__(self, config: GroupConfig):
        self.config = config
        self.agg_metric_configs = config.aggregate_metric_list or []

    @abstractmethod
    def aggregate(
        self,
        group: Group,
        task_results: Dict[str, Dict[str, float]]
    ) -> Dict[str, float]:
        """
        Aggregate task results into group metrics.

        Args:
            group: The group to aggregate for
            task_results: Task name -> {metric: value}

        Returns:
            Dict of aggregated metrics for the group
        """
        raise NotImplementedError


class MeanAggregator(Aggregator):
    """
    Aggregates metrics using (weighted) arithmetic mean.

    This is the most common aggregation strategy.
    """

    def aggregate(
        self,
        group: Group,
        task_results: Dict[str, Dict[str, float]]
    ) -> Dict[str, float]:
        """Compute weighted or unweighted mean across tasks."""
        if not self.agg_metric_configs:
            return {}  # No aggregation configured

        group_metrics = {}
        tasks = group.get_all_tasks()

        for agg_config in self.agg_metric_configs:
            metric_name = agg_config.metric
            weight_by_size = agg_config.weight_by_size
            filter_list = agg_config.filter_list

            # Collect metric values and sizes
            values = []
            weights = []

            for task in tasks:
                task_name = task.task_name
                if task_name not in task_results:
                    continue

                # Get metric with filter
                metric_key = f"{metric_name},{filter_list}"
                if metric_key in task_results[task_name]:
                    values.append(task_results[task_name][metric_key])

                    # Get sample size for weighting
                    if weight_by_size:
                        weights.append(task_results[task_name].get("samples", 1))
                    else:
                        weights.append(1)

            # Compute weighted mean
            if values:
                group_metrics[metric_key] = sum(
                    v * w for v, w in zip(values, weights)
                ) / sum(weights)

        return group_metrics


class HarmonicMeanAggregator(Aggregator):
    """
    Aggregates using harmonic mean.

    Useful for metrics like F1-score where harmonic mean is more appropriate
    than arithmetic mean.
    """

    def aggregate(self, group, task_results):
        group_metrics = {}
        tasks = group.get_all_tasks()

        for agg_config in self.agg_metric_configs:
            metric_name = agg_config.metric
            filter_list = agg_config.filter_list

            values = []
            for task in tasks:
                task_name = task.task_name
                metric_key = f"{metric_name},{filter_list}"

                if (task_name in task_results and
                    metric_key in task_results[task_name]):
                    values.append(task_results[task_name][metric_key])

            # Harmonic mean: n / sum(1/x_i)
            if values and all(v > 0 for v in values):
                group_metrics[metric_key] = len(values) / sum(1/v for v in values)

        return group_metrics


class PassAtKAggregator(Aggregator):
    """
    Aggregates using pass@k metric for code generation.

    Computes probability that at least one of k samples passes.
    """

    def __init__(self, config: GroupConfig, k: int = 1):
        super().__init__(config)
        self.k = k

    def aggregate(self, group, task_results):
        # pass@k = 1 - C(n-c, k) / C(n, k)
        # where n = total samples, c = correct samples
        ...


class CustomAggregator(Aggregator):
    """
    Allows user-defined aggregation functions.

    Useful for domain-specific metrics or complex aggregation logic.
    """

    def __init__(self, config: GroupConfig, agg_fn: Callable):
        super().__init__(config)
        self.agg_fn = agg_fn

    def aggregate(self, group, task_results):
        """Delegate to user-provided function."""
        return self.agg_fn(group, task_results)


class AggregatorFactory:
    """Factory for creating appropriate Aggregator based on config."""

    @staticmethod
    def create_aggregator(config: GroupConfig) -> Aggregator:
        """Create aggregator from group configuration."""
        if not config.aggregate_metric_list:
            return NoOpAggregator(config)  # No aggregation

        # Check first aggregation config to determine type
        first_agg = config.aggregate_metric_list[0]
        agg_type = first_agg.aggregation

        if agg_type == "mean":
            return MeanAggregator(config)
        elif agg_type == "harmonic_mean":
            return HarmonicMeanAggregator(config)
        elif agg_type == "pass@k":
            k = first_agg.kwargs.get("k", 1)
            return PassAtKAggregator(config, k=k)
        elif callable(agg_type):
            return CustomAggregator(config, agg_fn=agg_type)
        else:
            raise ValueError(f"Unknown aggregation type: {agg_type}")
