class GroupManager:
    """
    Manages the group hierarchy and task-group relationships.

    Replaces the implicit hierarchy tracking in current TaskManager.
    """

    def __init__(self):
        self.groups: Dict[str, Group] = {}
        self.tasks: Dict[str, Task] = {}
        self.root_groups: List[Group] = []  # Top-level groups

    def register_group(self, group: Group) -> None:
        """Register a group in the manager."""
        self.groups[group.name] = group
        if group.parent is None:
            self.root_groups.append(group)

    def register_task(self, task: Task) -> None:
        """Register a task in the manager."""
        self.tasks[task.task_name] = task

    def build_hierarchy(self, config_dict: Dict) -> None:
        """Build group hierarchy from configuration."""
        # Create all groups first
        for name, config in config_dict.items():
            if isinstance(config, GroupConfig):
                group = StandardGroup(config)
                self.register_group(group)

        # Then establish parent-child relationships
        for name, group in self.groups.items():
            for child_name in group.config.task or []:
                if child_name in self.groups:
                    # Child is a subgroup
                    child_group = self.groups[child_name]
                    group.add_child(child_group)
                elif child_name in self.tasks:
                    # Child is a task
                    task = self.tasks[child_name]
                    group.add_child(task)

    def get_groups_for_task(self, task_name: str) -> List[Group]:
        """Get all groups containing a task."""
        task = self.tasks.get(task_name)
        return task.groups if task else []

    def get_tasks_for_group(self, group_name: str) -> List[Task]:
        """Get all tasks in a group (recursively)."""
        group = self.groups.get(group_name)
        return group.get_all_tasks() if group else []

    def traverse_hierarchy(
        self,
        visitor: Callable[[Group | Task], None],
        root: Group | None = None
    ) -> None:
        """Traverse hierarchy applying visitor function."""
        roots = [root] if root else self.root_groups
        for root_group in roots:
            root_group.traverse(visitor)

    def compute_all_group_metrics(
        self,
        task_results: Dict[str, Dict[str, float]]
    ) -> Dict[str, Dict[str, float]]:
        """Compute metrics for all groups."""
        group_results = {}

        for group_name, group in self.groups.items():
            group_results[group_name] = group.compute_metrics(task_results)

        return group_results
