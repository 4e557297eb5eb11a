# Task knows its groups
task.groups  # → [Group("math"), Group("reasoning")]

# Group knows its tasks
group.get_all_tasks()  # → [Task("gsm8k"), Task("math_qa")]
