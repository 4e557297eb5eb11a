class StandardGroup(Group):
    """
    Standard group implementation for most use cases.

    Handles hierarchical task collections with configurable aggregation.
    """

    def add_child(self, child: Group | Task) -> None:
        """Add task or subgroup, maintaining bidirectional links."""
        self.children.append(child)

        # Set parent reference on child
        if isinstance(child, Group):
            child.parent = self
        elif isinstance(child, Task):
            # Add this group to task's group list
            if not hasattr(child, '_groups'):
                child._groups = []
            child._groups.append(self)

    def get_all_tasks(self) -> List[Task]:
        """Recursively collect all leaf tasks."""
        tasks = []
        for child in self.children:
            if isinstance(child, Group):
                tasks.extend(child.get_all_tasks())
            else:
                tasks.append(child)
        return tasks

    def get_subtasks(self, max_depth: int | None = None) -> List[Task]:
        """Get tasks up to a certain depth."""
        if max_depth == 0:
            return []

        tasks = []
        for child in self.children:
            if isinstance(child, Task):
                tasks.append(child)
            elif max_depth is None or max_depth > 1:
                new_depth = None if max_depth is None else max_depth - 1
                tasks.extend(child.get_subtasks(max_depth=new_depth))
        return tasks
