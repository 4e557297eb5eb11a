class TagGroup(StandardGroup):
    """
    Special group type for tags.

    Tags are flat collections (no hierarchy) that can overlap.
    Multiple tasks can have the same tag.
    """

    def __init__(self, tag_name: str, description: str | None = None):
        config = GroupConfig(
            group=tag_name,
            group_alias=description or tag_name,
            task=[],
            metadata={"type": "tag"}
        )
        super().__init__(config)

    def add_child(self, child: Task) -> None:
        """Tags only contain tasks, not subgroups."""
        if isinstance(child, Group):
            raise TypeError("Tags cannot contain subgroups")

        self.children.append(child)
        if not hasattr(child, '_tags'):
            child._tags = []
        child._tags.append(self.name)

    def get_all_tasks(self) -> List[Task]:
        """Tags are flat, so just return children."""
        return self.children
