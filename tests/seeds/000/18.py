# Custom group types
class DomainGroup(StandardGroup):
    """Group for tasks in same domain."""
    def compute_domain_score(self):
        ...

# Custom aggregators
class GeometricMeanAggregator(Aggregator):
    def aggregate(self, group, results):
        # Implement geometric mean
        ...
