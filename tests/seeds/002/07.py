from lm_eval.tasks import TaskManager

tm = TaskManager()
loaded = tm.load(["mmlu::mmlu_anatomy"])
