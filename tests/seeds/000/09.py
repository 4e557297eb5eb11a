class Task(ABC):
    """Enhanced Task with group awareness."""

    def __init__(self, config: TaskConfig):
        # ... existing initialization ...

        # Track which groups this task belongs to
        self._groups: List[Group] = []
        self._tags: List[str] = []

    @property
    def groups(self) -> List[Group]:
        """Get all groups this task belongs to."""
        return self._groups

    @property
    def tags(self) -> List[str]:
        """Get all tags attached to this task."""
        return self._tags

    def add_to_group(self, group: Group) -> None:
        """Add this task to a group."""
        if group not in self._groups:
            self._groups.append(group)
            group.add_child(self)
