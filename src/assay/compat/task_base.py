"""lm-eval's Task, the base of every class task, with its Instance and configuration."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from assay.compat.features import Ignored
from assay.config.fields import Fields, Origin
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.task import TaskConfig
from assay.dialect import OURS, Dialect
from assay.records import Document, MetricValue, Prompt
from assay.samples.data import DataSet, data_set
from assay.samples.fewshot import LeakPolicy, default_sampler
from assay.samples.prompt import FieldValue, Sampler
from assay.samples.rows import DataError, plain_rows
from assay.scoring.helper_code import Helpers
from assay.scoring.loop import ScoringLoop
from assay.statistics.aggregations import AggregationOrFunction
from assay.tasks.documents import read_run
from assay.tasks.scoring import scoring
from assay.tasks.settings import Settings, generation_params
from assay.tasks.task import Task as OurTask


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context of a class task: the task that its file defines, and the settings of its run."""

    task: OurTask
    settings: Settings
    helpers: Helpers

    @property
    def folder(self) -> str | None:
        """The folder of the YAML file that names the data, or else the class."""
        written = self.task.fields
        key = next((key for key in ("dataset_kwargs", "dataset_path", "class") if key in written), None)
        return written.origin(key).folder if key is not None else None


Docs = Iterable[Document] | None
"""The documents of a split, as a class returns them: a data set, a list, an iterator."""
Context = Prompt | list[Prompt]
"""The prompt of a document; where the choices are in the context, one for each."""
ModelAnswer = str | float | tuple[float, bool]
"""The answer to a request, as lm-eval's code sees it: a text, a log-likelihood, one with whether it is greedy."""


@dataclass
class Instance:
    """One request of a class-based task, with lm-eval's names."""

    request_type: str
    doc: Document
    arguments: Any
    idx: int
    metadata: tuple[str | None, int | None, int | None] = (None, None, None)
    resps: list[Any] = field(default_factory=list)
    filtered_resps: dict[str, Any] = field(default_factory=dict)

    @property
    def args(self) -> tuple[Any, ...]:
        return self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)

    @property
    def task_name(self) -> str | None:
        return self.metadata[0]

    @property
    def doc_id(self) -> int | None:
        return self.metadata[1]

    @property
    def repeats(self) -> int | None:
        return self.metadata[2]


class Config(dict[str, Any]):
    """A configuration that class-based tasks read and write by attribute or by key."""

    def __init__(self, values: YAMLMapping) -> None:
        defaults = {item.name: None if item.default is MISSING else item.default for item in fields(TaskConfig)}
        super().__init__({**defaults, "task": None, **{key: values[key] for key in values if key != "class"}})
        if self["output_type"] == "generate_until":
            self["generation_kwargs"] = generation_params(self["generation_kwargs"], self["fewshot_delimiter"], {})

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: YAMLValue) -> None:
        self[name] = value

    def to_dict(self, **_: Ignored) -> dict[str, YAMLValue]:
        return {key: value for key, value in self.items() if value is not None}


class Task:
    """The base of lm-eval's class tasks: a subclass defines its requests and its scores."""

    VERSION: Any = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None
    OUTPUT_TYPE: str | None = None
    multiple_input = multiple_target = False
    surroundings: Surroundings | None = None
    _data_dir: str | None = None
    _seed: int | None = None
    _choose: Sampler | None = None

    def __init__(self, *places: Any, config: Any = None) -> None:  # noqa: ARG002  # lm-eval gives it, and makes nothing of it
        self._config = Config({})
        self.download(*places)

    def download(self, *_: Ignored, **__: Ignored) -> None:
        self.dataset: Any = self._opened(None)

    def _opened(self, dataset_kwargs: YAMLMapping | None) -> "_Splits":
        """The data set, split by split as they are asked for."""
        config = TaskConfig(
            task=str(self._config.task), dataset_path=self.DATASET_PATH, dataset_name=self.DATASET_NAME,
            dataset_kwargs=dataset_kwargs, custom_dataset=self._config.custom_dataset, metadata=self._config.metadata,
        )  # fmt: skip
        folder = self.surroundings.folder if self.surroundings is not None else None
        return _Splits(
            data_set(config, folder=folder, data_dir=self._data_dir, dialect=self._dialect, read_run=read_run)
        )

    @property
    def config(self) -> Config:
        return self._config

    @property
    def task_name(self) -> str | None:
        name: str | None = self._config.task
        return name

    def get_config(self, key: str) -> YAMLValue:
        return self._config.get(key)

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        self._config[key] = {**(self._config.get(key) or {}), **value} if update else value
        self.__dict__.pop("yaml_config", None)

    @cached_property
    def yaml_config(self) -> TaskConfig:
        """The configuration as a YAML file would give it, checked as strictly."""
        name = str(self._config.task)
        values = {key: value for key, value in self._config.items() if value is not None}
        return OurTask.from_fields(Fields.of({**values, "task": name}, Origin(f"task {name!r}"))).config

    @cached_property
    def yaml_scoring(self) -> ScoringLoop:
        """The filters and metrics of the configuration, with the values that this class computes."""
        return self._scored(process_results=self.process_results)

    def _scored(self, *, scores_anyway: bool = False, **changes: Any) -> ScoringLoop:
        """How the configuration scores, with some changes; `scores_anyway`, even where the run wants no scores."""
        run = self.surroundings
        assert run is not None, "only tasks of a run are scored"
        options = run.settings.run
        settings = replace(run.settings, run=replace(options, predict_only=options.predict_only and not scores_anyway))
        scored = scoring(run.task, replace(self.yaml_config, **changes), settings, run.helpers)
        multiple = self.multiple_target or self.yaml_config.multiple_targets
        scored.reading.multiple_targets = multiple
        return scored

    def has_training_docs(self) -> bool:
        return False

    has_validation_docs = has_test_docs = has_training_docs

    def training_docs(self) -> Docs:
        return []

    validation_docs = test_docs = training_docs

    def fewshot_docs(self) -> Docs:
        if self.has_training_docs():
            return self.training_docs()
        return self.validation_docs() if self.has_validation_docs() else self.test_docs()

    @property
    def eval_docs(self) -> Docs:
        if not self.has_test_docs() and not self.has_validation_docs():
            raise DataError("the task has neither test nor validation documents, so there is nothing to evaluate")
        return self.test_docs() if self.has_test_docs() else self.validation_docs()

    @cached_property
    def task_docs(self) -> Sequence[Document]:
        """The evaluated documents, prepared once."""
        docs: Any = self.eval_docs
        listed: Sequence[Document] = plain_rows(
            docs if hasattr(docs, "__len__") and hasattr(docs, "__getitem__") else list(docs)
        )
        if len(listed) == 0:
            raise DataError("there is no document to evaluate")
        return listed

    @cached_property
    def _pool(self) -> list[Document]:
        docs = self.fewshot_docs()
        return [] if docs is None else list(plain_rows(docs))

    @property
    def _dialect(self) -> Dialect:
        return self.surroundings.settings.dialect if self.surroundings is not None else OURS

    def look_at_first(self) -> None:
        """Find out from the first document what the configuration leaves open. A plain task leaves nothing."""

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        self.fewshot_rnd = random.Random(seed)
        self._seed, self._choose = seed, None

    def doc_to_text(self, doc: Document) -> FieldValue:
        raise NotImplementedError(f"{type(self).__name__} must define doc_to_text")

    def doc_to_target(self, doc: Document) -> FieldValue:
        raise NotImplementedError(f"{type(self).__name__} must define doc_to_target")

    def doc_to_choices_or_none(self, doc: Document) -> FieldValue:  # noqa: ARG002  # for those that have choices
        return None

    def doc_to_prefix(self, doc: Document) -> FieldValue:  # noqa: ARG002  # for those that have one
        return ""

    def fewshot_context(
        self, doc: Document, num_fewshot: int, rnd: random.Random | None = None, description: str | None = None, **_: Ignored  # noqa: ARG002
    ) -> Context:  # fmt: skip
        """Description, examples and question, each written right behind the other."""
        if num_fewshot and self._choose is None:
            leaks = LeakPolicy(
                one_more=not self.has_training_docs(), always=not self._dialect.draws_examples_from_evaluated_split
            )
            self._choose = default_sampler(self._pool, self._seed, leaks)
        shots = [self._pool[index] for index in self._choose(doc, num_fewshot)] if self._choose and num_fewshot else []
        before = [f"{self.doc_to_text(shot)}{self.doc_to_target(shot)}\n\n" for shot in shots]
        return "".join([description or "", *before, self.doc_to_text(doc)])

    def construct_requests(self, doc: Document, ctx: Context, **kwargs: Any) -> Instance | list[Instance]:
        raise NotImplementedError(f"{type(self).__name__} must define construct_requests")

    def process_results(self, doc: Document, results: Sequence[ModelAnswer]) -> dict[str, MetricValue]:
        raise NotImplementedError(f"{type(self).__name__} must define process_results")

    def aggregation(self) -> dict[str, AggregationOrFunction | None]:
        return {}

    def higher_is_better(self) -> dict[str, bool | None]:
        return {}

    @classmethod
    def count_bytes(cls, doc: str) -> int:
        return len(doc.encode("utf-8"))

    @classmethod
    def count_words(cls, doc: str) -> int:
        return len(re.split(r"\s+", doc))


class _Splits(dict[str, Any]):
    """Splits of a data set, each opened when it is asked for, and as helper code expects it."""

    def __init__(self, data: DataSet) -> None:
        super().__init__()
        self._data = data

    def __missing__(self, split: str) -> Any:
        from assay.compat.dataset import Dataset

        rows = self._data.split(split)
        self[split] = rows if type(rows).__module__.startswith("datasets") else Dataset(rows)
        return self[split]
