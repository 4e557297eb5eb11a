"""Hugging Face's `datasets` for helper code: the installed library, whose `load_dataset` finds the data of a task."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from assay.compat import evaluate_names
from assay.compat.sygra_names import ModuleContents
from assay.config.option import YAMLValue
from assay.config.task import TaskConfig
from assay.errors import installing
from assay.records import Document
from assay.samples.data import data_set
from assay.samples.rows import DataError
from assay.tasks.documents import read_run

LIBRARY = "datasets"


def library() -> Any:
    """Import `datasets` without its progress bars, which would be drawn into ours."""
    if find_spec(LIBRARY) is None:
        raise DataError(
            f"helper code takes documents as a data set of `datasets`, which is not installed: {installing('hub')}"
        )
    module = import_module(LIBRARY)
    module.disable_progress_bars()
    return module


def as_dataset(rows: Sequence[Document]) -> Any:
    """Rows as a data set of the library, with every column that a row has; one of the library stays what it is."""
    if type(rows).__module__.startswith(LIBRARY):
        return rows
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    return library().Dataset.from_dict({name: [row.get(name) for row in listed] for name in names})


def dataset_names(data_dir: str | None) -> ModuleContents:
    """Contents of the module `datasets`: what reads data finds a task's, every other name is the library's."""

    def load_dataset(path: str, name: str | None = None, split: str | None = None, **kwargs: YAMLValue) -> Any:
        """A data set as a task would get it: from the data folder, from files, or from the hub."""
        config = TaskConfig(task=path, dataset_path=path, dataset_name=name, dataset_kwargs=kwargs)
        data = data_set(config, folder=None, data_dir=data_dir, read_run=read_run)
        if split is not None:
            return as_dataset(data.split(split))
        return library().DatasetDict({name: as_dataset(data.split(name)) for name in data.available()})

    return {
        "load_dataset": load_dataset,
        "load_metric": evaluate_names.load,
        "__getattr__": lambda name: getattr(library(), name),
    }
