class BeamSearchScorer(GenerationScorer):
    """Scorer for beam search outputs with diversity metrics."""

    def _compute_metrics(self, gen_result, metrics):
        scores = super()._compute_metrics(gen_result, metrics)

        # Add diversity metrics
        scores['diversity'] = self._compute_diversity(gen_result.results)
        scores['n_unique'] = len(set(gen_result.results))

        return scores
