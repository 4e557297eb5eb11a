"""Tasks that are Python classes: lm-eval's base classes, and how a run uses what is made of them."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any

from assay.aggregate.functions import Aggregation
from assay.config.task import TaskConfig
from assay.errors import Place
from assay.filters import build_pipeline
from assay.filters.pipeline import DEFAULT
from assay.plans.ask import generation_params
from assay.records import Failed, FilterScores, Generate, Loglikelihood, Request, Response, Rolling, Sample, Turn
from assay.samples.chat import as_messages, as_single_turn, as_text, example_turns, joined, question_turns
from assay.samples.data import data_set
from assay.samples.fewshot import Leaks, Sampler, default_sampler
from assay.samples.templates import template
from assay.scorers.loop import Document, Scoring, grouped
from assay.tasks.documents import chosen, count
from assay.tasks.randomness import preserved_random
from assay.tasks.settings import Settings
from assay.tasks.task import Task as OurTask


@dataclass
class Instance:
    """One request of a class-based task, with lm-eval's names."""

    request_type: str
    doc: Any
    arguments: Any
    idx: int
    metadata: Any = (None, None, None)
    resps: list[Any] = field(default_factory=list)
    filtered_resps: dict[str, Any] = field(default_factory=dict)

    @property
    def args(self) -> tuple[Any, ...]:
        return self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)

    @property
    def task_name(self) -> Any:
        return self.metadata[0]

    @property
    def doc_id(self) -> Any:
        return self.metadata[1]

    @property
    def repeats(self) -> Any:
        return self.metadata[2]


class Config(dict[str, Any]):
    """A configuration that class-based tasks read and write by attribute or by key."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        defaults = {item.name: None if item.default is MISSING else item.default for item in fields(TaskConfig)}
        super().__init__({**defaults, "task": None, **given})
        if self["output_type"] == "generate_until":
            self["generation_kwargs"] = generation_params(self["generation_kwargs"], self["fewshot_delimiter"], {})

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def to_dict(self, **_: Any) -> dict[str, Any]:
        return {key: value for key, value in self.items() if value is not None}


class _Base:
    """What lm-eval's tasks have in common. A subclass overrides what it needs; the rest works as in YAML tasks."""

    VERSION: Any = "Yaml"
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None
    OUTPUT_TYPE: str | None = None
    CONFIG: Any = None
    _data_dir: str | None = None

    def __init__(self, *_: Any, config: Any = None, **__: Any) -> None:
        self._config = Config(config or self.CONFIG or {})
        metadata = self._config.metadata
        if isinstance(metadata, Mapping) and "version" in metadata:
            self.VERSION = metadata["version"]
        self.DATASET_PATH = self._config.dataset_path or self.DATASET_PATH
        self.DATASET_NAME = self._config.dataset_name or self.DATASET_NAME
        self.OUTPUT_TYPE = self.OUTPUT_TYPE or self._config.output_type
        self.download(self._config.dataset_kwargs)

    @property
    def config(self) -> Any:
        return self._config

    @property
    def task_name(self) -> Any:
        return self._config.task

    def download(self, dataset_kwargs: Any = None, **_: Any) -> None:
        """The data set, split by split as they are asked for."""
        config = TaskConfig(
            task=str(self._config.task), dataset_path=self.DATASET_PATH, dataset_name=self.DATASET_NAME,
            dataset_kwargs=dataset_kwargs, custom_dataset=self._config.custom_dataset,
        )  # fmt: skip
        self.dataset: Any = _Splits(data_set(config, folder=None, data_dir=self._data_dir))

    def has_training_docs(self) -> bool:
        return self._config.training_split is not None

    def has_validation_docs(self) -> bool:
        return self._config.validation_split is not None

    def has_test_docs(self) -> bool:
        return self._config.test_split is not None

    def training_docs(self) -> Any:
        return self._processed(self._config.training_split)

    def validation_docs(self) -> Any:
        return self._processed(self._config.validation_split)

    def test_docs(self) -> Any:
        return self._processed(self._config.test_split)

    def _processed(self, split: str | None) -> Any:
        if split is None:
            return None
        docs = self.dataset[split]
        return self._config.process_docs(docs) if callable(self._config.process_docs) else docs

    def fewshot_docs(self) -> Any:
        for has, docs in (
            (self.has_training_docs, self.training_docs),
            (self.has_validation_docs, self.validation_docs),
        ):
            if has():
                return docs()
        return self.test_docs()

    @property
    def eval_docs(self) -> Any:
        return self.test_docs() if self.has_test_docs() else self.validation_docs()

    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> Any:
        return _field(doc, doc_to_text if doc_to_text is not None else self._config.doc_to_text)

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        return _field(doc, doc_to_target if doc_to_target is not None else self._config.doc_to_target)

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any:
        return _field(doc, doc_to_choice if doc_to_choice is not None else self._config.doc_to_choice)

    def doc_to_prefix(self, doc: Any) -> Any:
        return _field(doc, self._config.gen_prefix) if self._config.gen_prefix is not None else None

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        docs = self.fewshot_docs()
        self._pool = list(docs) if docs is not None else []
        self._choose: Sampler = default_sampler(self._pool, seed, Leaks(one_more=True, always=True))

    def fewshot_context(  # noqa: PLR0913  # lm-eval's signature
        self, doc: Any, num_fewshot: int, system_instruction: str | None = None, apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False, chat_template: Any = None, gen_prefix: str | None = None, **_: Any,
    ) -> Any:  # fmt: skip
        """Description, examples and question, as text or through the chat template."""
        description = _field(doc, self._config.description) if self._config.description else ""
        system = joined(system_instruction, description, self._config.fewshot_delimiter)
        turns = [Turn("system", system)] if system else []
        for index in self._choose(doc, num_fewshot) if num_fewshot else ():
            shot = self._pool[index]
            answer = self.doc_to_target(shot)
            text = answer[0] if isinstance(answer, list) else answer if isinstance(answer, str | None) else str(answer)
            delimiter, end = self._config.target_delimiter, self._config.fewshot_delimiter
            turns += example_turns(self.doc_to_text(shot), text, self.doc_to_prefix(shot), delimiter, end)
        turns += question_turns(self.doc_to_text(doc), gen_prefix, self._config.target_delimiter)
        if not (apply_chat_template and chat_template):
            return as_text(turns)
        messages = as_messages(turns) if fewshot_as_multiturn else as_single_turn(turns)
        return chat_template(messages, add_generation_prompt=not gen_prefix)

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        kwargs.pop("apply_chat_template", None)
        kwargs.pop("chat_template", None)
        kind = self.OUTPUT_TYPE
        if kind == "multiple_choice":
            texts = [f"{self._config.target_delimiter}{choice}" for choice in self.doc_to_choice(doc)]
            return [Instance("loglikelihood", doc, (ctx, text), number, **kwargs) for number, text in enumerate(texts)]
        arguments: tuple[Any, ...] = (ctx, dict(self._config.generation_kwargs or {}))
        if kind != "generate_until":
            target = self.doc_to_target(doc)
            arguments = (ctx, target) if kind == "loglikelihood" else (target,)
        return Instance(str(kind), doc, arguments, 0, **kwargs)

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        if callable(self._config.process_results):
            return dict(self._config.process_results(doc, results))
        raise NotImplementedError(f"{type(self).__name__} must define process_results")

    def aggregation(self) -> dict[str, Any]:
        return {}

    def higher_is_better(self) -> dict[str, Any]:
        return {}

    def get_config(self, key: str) -> Any:
        return self._config.get(key)

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        self._config[key] = {**(self._config.get(key) or {}), **value} if update else value

    @classmethod
    def count_bytes(cls, doc: str) -> int:
        return len(doc.encode("utf-8"))

    @classmethod
    def count_words(cls, doc: str) -> int:
        import re

        return len(re.split(r"\s+", doc))


class _Splits(dict[str, Any]):
    """Splits of a data set, each opened when it is asked for, and as helper code expects it."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data

    def __missing__(self, split: str) -> Any:
        from assay.compat.dataset import Dataset

        rows = self._data.split(split)
        self[split] = rows if type(rows).__module__.startswith("datasets") else Dataset(rows)
        return self[split]


def _field(doc: Any, spec: Any) -> Any:
    if callable(spec):
        return spec(doc)
    if isinstance(spec, str):
        return doc[spec] if spec in doc else template(spec)(doc)
    return spec


def task_classes(data_dir: str | None) -> tuple[type, type]:
    """`Task` and `ConfigurableTask` for the helper modules of one run."""
    task = type("Task", (_Base,), {"_data_dir": data_dir})
    return task, type("ConfigurableTask", (task,), {})


@dataclass
class ClassTask:
    """A task that a Python class defines, as a run sees it."""

    task: OurTask
    made: Any
    settings: Settings

    @classmethod
    def of(cls, task: OurTask, settings: Settings, kind: Any) -> "ClassTask":
        config = {
            key: value for key, value in dict(task.fields).items() if key not in ("tag", "group", "class", "task_list")
        }
        takes_config = "config" in inspect.signature(kind.__init__).parameters
        made = kind(config=config) if takes_config else kind()
        made.config["task"] = task.config.task
        made.set_fewshot_seed(settings.fewshot_seed)
        return cls(task, made, settings)

    @cached_property
    def _docs(self) -> Any:
        return self.made.eval_docs

    @cached_property
    def original(self) -> int:
        return len(self._docs)

    @cached_property
    def size(self) -> int:
        return count(self._docs, self.task.name, self.settings)

    is_batch = False
    repeats = 1
    fingerprint = ""

    def check_first(self) -> None:
        """Build the first sample, to find out what cannot work."""
        if self.settings.chat.template is None:
            next(self.samples(), None)

    @property
    def num_fewshot(self) -> int:
        own = self.made.config.get("num_fewshot")
        if self.settings.num_fewshot is not None and not (self.settings.like_lm_eval and own == 0):
            return self.settings.num_fewshot
        return own or 0

    @property
    def version(self) -> object:
        return self.made.VERSION

    @cached_property
    def needs(self) -> frozenset[str]:
        with preserved_random():
            first = next(self.samples(), None)
        kinds = {Generate: "generate", Loglikelihood: "loglikelihood", Rolling: "rolling"}
        return frozenset(kinds[type(request)] for request in (first.requests if first else ()))

    def samples(self) -> Iterator[Sample]:
        self.made.set_fewshot_seed(self.settings.fewshot_seed)
        chat = self.settings.chat

        def templated(messages: Any, add_generation_prompt: bool = True) -> str:
            assert chat.template is not None
            return chat.template(messages, add_generation_prompt)

        for doc_id, doc in chosen(self._docs, self.task.name, self.settings):
            applied = {
                "apply_chat_template": chat.template is not None,
                "chat_template": templated if chat.template else None,
            }
            context = self.made.fewshot_context(
                doc, num_fewshot=self.num_fewshot, system_instruction=chat.system, fewshot_as_multiturn=chat.multiturn,
                gen_prefix=self.made.doc_to_prefix(doc), **applied,
            )  # fmt: skip
            made = self.made.construct_requests(doc=doc, ctx=context, metadata=(self.task.name, doc_id, 1), **applied)
            instances = made if isinstance(made, list) else [made]
            requests = [_request(instance) for instance in sorted(instances, key=lambda each: each.idx)]
            target = self.made.doc_to_target(doc)
            yield Sample(doc_id, doc, requests, target, target)

    def document(self, sample: Sample, responses: Sequence[Response]) -> Document:
        return Document(sample, grouped(sample.requests, responses, 1))

    @cached_property
    def _scoring(self) -> Scoring:
        pipeline = build_pipeline(DEFAULT, lambda *_: Place("class"))
        return Scoring(str(self.made.OUTPUT_TYPE), [(pipeline, ())], process_results=self.made.process_results)

    def score(self, documents: Sequence[Document]) -> list[list[FilterScores] | Failed]:
        return self._scoring.score(documents)

    def aggregation(self, metric: str) -> Aggregation | Callable[..., Any] | None:
        found: Aggregation | Callable[..., Any] | None = self.made.aggregation().get(metric)
        return found

    def rows(self) -> None:
        return None

    def higher_is_better(self) -> Mapping[str, bool | None]:
        return dict(self.made.higher_is_better())

    def described(self) -> Mapping[str, object]:
        return dict(self.made.config.to_dict())


def _request(instance: Any) -> Request:
    if instance.request_type == "generate_until":
        return Generate(instance.args[0], instance.args[1])
    if instance.request_type == "loglikelihood":
        return Loglikelihood(instance.args[0], instance.args[1])
    return Rolling(instance.args[0])
