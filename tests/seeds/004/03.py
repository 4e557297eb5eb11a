class MultipleChoiceTask(Task):
    def _create_result(self, instances: list[Instance], filter_name: str):
        """Create MCResult from instances."""
        acc_mutual_info = "acc_mutual_info" in [
            m.name for m in self.config._metric_list
        ]
        return MCResult.from_instances(instances, acc_mutual_info=acc_mutual_info)

    def _compute_metric(self, mc_result: MCResult, metric: MetricConfig):
        """Compute metric for multiple-choice task."""
        if metric.fn is None:
            return None

        # MC metrics take MCResult directly
        return metric.fn(mc_result)
