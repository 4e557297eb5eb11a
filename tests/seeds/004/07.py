for filter_cfg in self._filters:
    # Use filter's metrics if specified, else use global
    metrics = filter_cfg.metric_list or self.config._metric_list
    for metric in metrics:
        ...
