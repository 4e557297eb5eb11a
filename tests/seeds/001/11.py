# In a custom task YAML or Python config
from lm_eval.api.scorer import GenerationScorer

class MyCustomScorer(GenerationScorer):
    def _compute_metrics(self, gen_result, metrics):
        # Add custom logic
        scores = super()._compute_metrics(gen_result, metrics)
        scores['custom_metric'] = self._my_custom_metric(gen_result)
        return scores

# Register it
from lm_eval.api.scorer import SCORER_REGISTRY
SCORER_REGISTRY['my_custom'] = MyCustomScorer

# Then in YAML:
# task: my_task
# output_type: generate_until
# scorer: my_custom
