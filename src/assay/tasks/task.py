"""A task: its configuration, and where it belongs."""

from collections.abc import Mapping

from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.graph_reading import GRAPH_KEYS, GraphFile, read_graph
from assay.config.task import MEDIA, TaskConfig, media_problem, unsent_media
from assay.errors import ConfigError, Place, Problem
from assay.groups import Group, TagGroup
from assay.tasks.unit_metrics import runs_code


def _runs_code(node: object) -> bool:
    """Whether a node scores by executing what the model wrote."""
    return isinstance(node, Mapping) and isinstance(node.get("unit_metrics_map"), list) and runs_code(node)


class Task:
    """One evaluation, ready to be run. `name` is how results call it; `config.task` how its file does."""

    def __init__(self, config: TaskConfig, *, name: str | None = None, fields: Fields | None = None) -> None:
        self.config = config
        self.name = name if name is not None else config.task
        self.alias = config.task_alias or self.name
        self.fields = fields if fields is not None else Fields({}, {})
        self.notes: tuple[str, ...] = ()
        self.graph: GraphFile | None = None
        """What it is, where it is a graph."""
        self._groups: list[Group[Task]] = []
        self._tags: list[str] = list(config.tag)

    @classmethod
    def from_config(cls, config: Mapping[str, object], *, name: str | None = None) -> "Task":
        """A task from a mapping as it would stand in YAML, checked as strictly."""
        return cls.from_fields(Fields.of(config, Origin("configuration")), name=name)

    @classmethod
    def from_fields(cls, fields: Fields, *, name: str | None = None) -> "Task":
        problems: list[Problem] = []
        config = decode(TaskConfig, fields, problems, known=("group", "task_list"))
        if config is None or any(problem.serious for problem in problems):
            raise ConfigError(problems)
        return cls(config, name=name, fields=fields)

    @classmethod
    def from_graph(cls, fields: Fields, *, name: str) -> "Task":
        """A task that is a graph. What groups say to all of their tasks and a graph has no use for is noted."""
        problems: list[Problem] = []
        own = fields.origin("graph_config").source
        foreign = [key for key in fields if key not in GRAPH_KEYS and fields.origin(key).source is not own]
        graph = read_graph(fields.without(*foreign), problems)
        if graph is None:
            raise ConfigError(problems)
        told = graph.config
        config = TaskConfig(
            task=told.task or name, task_alias=told.task_alias, tag=told.tag, metadata=told.metadata,
            cluster_by=told.cluster_by, unsafe_code=any(map(_runs_code, told.graph_config.nodes.values())),
        )  # fmt: skip
        made = cls(config, name=name, fields=fields)
        made.graph = graph
        made.notes = tuple(f"{key} has no effect on a graph" for key in foreign)
        return made

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    @property
    def task_name(self) -> str:
        return self.name

    @property
    def unsent(self) -> Problem | None:
        """What keeps it from being run though it can be read: it would send more than text."""
        known = {key: getattr(self.config, key) for key in MEDIA}
        key = unsent_media(known)
        if key is None:
            return None
        return media_problem(key, self.fields.place(key) if key in self.fields else Place(f"task {self.name!r}"))

    @property
    def output_type(self) -> str:
        return "graph" if self.graph is not None else self.config.output_type

    @property
    def version(self) -> str:
        return str((self.config.metadata or {}).get("version", "N/A"))

    @property
    def groups(self) -> list[Group["Task"]]:
        """The groups this task was added to."""
        return list(self._groups)

    @property
    def tags(self) -> list[str]:
        return list(self._tags)

    def add_to_group(self, group: Group["Task"]) -> None:
        """Join a group; both know of it afterwards. Joining twice is joining once."""
        if any(known is group for known in self._groups):
            return
        if not isinstance(group, TagGroup):  # a tag is noted as a tag
            self._groups.append(group)
        group.add_child(self)

    def add_tag(self, tag: str) -> None:
        if tag not in self._tags:
            self._tags.append(tag)
