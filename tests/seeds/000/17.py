# Groups work seamlessly with filtered metrics
aggregate_metric_list:
  - metric: exact_match
    filter_list: [strict-match, flexible-extract]
    aggregation: mean
