from abc import ABC, abstractmethod
from typing import Generic, TypeVar, List, Dict
from dataclasses import dataclass

TaskT = TypeVar('TaskT', bound='Task')
GroupT = TypeVar('GroupT', bound='Group')


class Group(ABC, Generic[TaskT]):
    """
    A Group represents a collection of tasks with shared properties.

    Responsibilities:
    - Maintain hierarchy (parent/child relationships)
    - Track member tasks
    - Compute group-wide metrics via Aggregators
    - Provide traversal methods
    - Store group metadata
    """

    def __init__(self, config: GroupConfig, parent: 'Group | None' = None):
        self.config = config
        self.name = config.group
        self.alias = config.group_alias or config.group
        self.parent = parent
        self.children: List[Group | TaskT] = []
        self.metadata = config.metadata or {}

        # Aggregator for computing group metrics
        self._aggregator = AggregatorFactory.create_aggregator(config)

    @abstractmethod
    def add_child(self, child: 'Group | TaskT') -> None:
        """Add a task or subgroup to this group."""
        raise NotImplementedError

    @abstractmethod
    def get_all_tasks(self) -> List[TaskT]:
        """Get all leaf tasks (recursively flattening hierarchy)."""
        raise NotImplementedError

    @abstractmethod
    def get_direct_children(self) -> List['Group | TaskT']:
        """Get immediate children only (no recursion)."""
        return self.children

    def compute_metrics(
        self,
        task_results: Dict[str, Dict[str, float]]
    ) -> Dict[str, float]:
        """
        Compute group-wide metrics from task results.

        Args:
            task_results: Dict mapping task_name -> {metric: value}

        Returns:
            Dict of group-level metrics
        """
        return self._aggregator.aggregate(self, task_results)

    def depth(self) -> int:
        """Return depth of this group in hierarchy (0 = root)."""
        if self.parent is None:
            return 0
        return 1 + self.parent.depth()

    def is_leaf(self) -> bool:
        """Check if this is a leaf group (no subgroups)."""
        return all(not isinstance(child, Group) for child in self.children)

    def traverse(self, visitor: Callable[[Group | TaskT], None]) -> None:
        """Apply visitor function to all nodes in tree."""
        visitor(self)
        for child in self.children:
            if isinstance(child, Group):
                child.traverse(visitor)
            else:
                visitor(child)
