# Task can be in multiple groups
math_task.add_to_group(math_group)
math_task.add_to_group(hard_tasks_group)
# No more "Found tasks in more than 1 group" error!
