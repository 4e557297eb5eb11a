# evaluator_utils.py:485-492
if metric_config["aggregation"] == "mean":
    aggregate_fn = aggregate_subtask_metrics
else:
    raise ValueError("Only 'mean' supported")
