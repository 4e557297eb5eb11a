# No methods like:
# group.get_all_tasks()
# group.get_subtasks()
# group.depth()
