class RewardModelScorer(GenerationScorer):
    """Use a reward model to score generations."""

    def __init__(self, task_config, reward_model_path: str):
        super().__init__(task_config)
        self.reward_model = load_reward_model(reward_model_path)

    def _compute_metrics(self, gen_result, metrics):
        scores = super()._compute_metrics(gen_result, metrics)

        # Add reward model scores
        reward_scores = self.reward_model.score(
            prompts=[inst.args[0] for inst in gen_result.instances],
            generations=gen_result.results
        )

        scores['reward'] = reward_scores
        return scores
