class EnsembleScorer(Scorer):
    """Combine scores from multiple scorers."""

    def __init__(self, scorers: list[Scorer], weights: list[float]):
        self.scorers = scorers
        self.weights = weights

    def score_instances(self, instances, filter_name):
        results = [s.score_instances(instances, filter_name) for s in self.scorers]
        return self._weighted_average(results)
