"""The kind of task that graphs are: the one entry by which the rest of assay reaches this package."""

from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.graphs.reading import read_graph
from assay.graphs.spec import GraphConfig

if TYPE_CHECKING:
    from assay.scoring.declarations import Metric
    from assay.scoring.helper_code import Helpers
    from assay.tasks.kinds import FindDefinition, FindDotted
    from assay.tasks.rescore import StoredTask
    from assay.tasks.runnable import Runnable
    from assay.tasks.settings import Settings
    from assay.tasks.task import Task


class GraphKind:
    """Graphs as a kind of task. Modules that run graphs are imported when one is run: catalogs are read without them."""

    name = "graph"
    config = GraphConfig
    hint_keys = ("data_config", "output_config")

    read = staticmethod(read_graph)

    def default_name(self, path: str) -> str:
        """Return the dotted path of the file's folder, from the nearest folder `tasks` on; the stem of other files.

        >>> GRAPH.default_name("/home/me/tasks/eval/qa/graph_config.yaml"), GRAPH.default_name("/home/me/qa/own.yaml")
        ('eval.qa', 'own')
        """
        *folders, file = path.split("/")
        if file.rpartition(".")[0] != "graph_config":
            return file.rpartition(".")[0]
        below = folders[len(folders) - folders[::-1].index("tasks") :] if "tasks" in folders else []
        return ".".join(below or folders[-1:]) or "graph"

    def metric(self, name: str) -> "Metric | None":
        from assay.graphs.unit_metrics import task_metric

        return task_metric(name)

    def prepare(self, task: "Task", settings: "Settings", helpers: "Helpers", find: "FindDefinition") -> "Runnable":
        from assay.graphs.task import prepare_graph

        return prepare_graph(task, settings, helpers, find)

    def prepare_scoring(
        self, task: "Task", settings: "Settings", helpers: "Helpers", stored: "StoredTask"
    ) -> "Runnable":
        from assay.graphs.task import prepare_graph_scoring

        return prepare_graph_scoring(task, settings, helpers, stored)

    def check(self, task: "Task", helpers: "Helpers", find_dotted: "FindDotted") -> list[Problem]:
        from assay.graphs.task import check_graph

        return check_graph(task, helpers, find_dotted)


GRAPH = GraphKind()
