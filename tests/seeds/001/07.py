class LLMJudgeScorer(GenerationScorer):
    """Use an LLM to score generations."""

    def __init__(self, task_config, judge_model: str):
        super().__init__(task_config)
        self.judge_lm = get_model(judge_model)

    def _compute_metrics(self, gen_result, metrics):
        scores = super()._compute_metrics(gen_result, metrics)

        # Add LLM judge score
        judge_scores = []
        for generation in gen_result.results:
            prompt = self._create_judge_prompt(generation, gen_result.target)
            score = self.judge_lm.evaluate(prompt)
            judge_scores.append(score)

        scores['llm_judge'] = judge_scores
        return scores
