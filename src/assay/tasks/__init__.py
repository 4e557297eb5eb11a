"""Tasks as objects, and the manager that finds and loads them."""

from assay.tasks.manager import TaskManager as TaskManager
from assay.tasks.task import Task as Task
