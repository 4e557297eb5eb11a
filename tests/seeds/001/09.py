class CrossFilterScorer(Scorer):
    """Compute metrics that compare across different filters."""

    def score_instances(self, instances, filter_name):
        # Get results from ALL filters
        all_filtered_results = {
            fname: [inst.filtered_resps[fname] for inst in instances]
            for fname in instances[0].filtered_resps.keys()
        }

        # Compute agreement metrics
        scores = {
            'filter_agreement': self._compute_agreement(all_filtered_results),
            'filter_diversity': self._compute_diversity(all_filtered_results),
        }

        return scores
