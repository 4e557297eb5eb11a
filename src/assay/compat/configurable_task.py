"""lm-eval's ConfigurableTask, with methods that a subclass may override; its older task classes and few-shot samplers."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from assay.compat.features import Ignored
from assay.compat.task_base import Config, Context, Docs, Instance, ModelAnswer, Task
from assay.config.option import YAMLMapping
from assay.config.task import FewshotConfig
from assay.dialect import dialect_of
from assay.errors import ConfigError
from assay.records import (
    Document,
    Failed,
    Function,
    Message,
    MetricValue,
    Prompt,
    Sample,
    UserFunction,
    messages_to_plain,
    plain,
)
from assay.samples.data import DataSet, columns_of
from assay.samples.prompt import (
    Chat,
    Examples,
    FieldSpec,
    FieldValue,
    Prompter,
    Sampler,
    choice_field,
    filled_choice_field,
    is_template,
    plain_field,
    target_field,
    text_field,
)
from assay.samples.rows import DataError
from assay.scoring.filters import DEFAULT
from assay.scoring.loop import ScoringLoop
from assay.scoring.results import AnsweredSample
from assay.scoring.scorer_models import Unscored
from assay.statistics.aggregations import AGGREGATIONS, AggregationOrFunction, bits_per_byte, mean, weighted_perplexity
from assay.tasks.documents import ProcessDocs, Splits, examples
from assay.tasks.prompt_checks import QUESTION_KEYS, prompt_problems


class ConfigurableTask(Task):
    """A task that does what its configuration says, as a YAML task does, but for what a subclass overrides."""

    VERSION = "Yaml"
    CONFIG: Any = None

    def __init__(self, *_: Ignored, config: Any = None, **__: Ignored) -> None:
        self._config = Config({**(self.CONFIG or {}), **(config or {})})
        metadata = self._config.metadata
        if isinstance(metadata, Mapping) and "version" in metadata:
            self.VERSION = metadata["version"]
        self.DATASET_PATH = self._config.dataset_path or self.DATASET_PATH
        self.DATASET_NAME = self._config.dataset_name or self.DATASET_NAME
        self.OUTPUT_TYPE = self._config.output_type
        self.download(self._config.dataset_kwargs)

    def download(self, dataset_kwargs: YAMLMapping | None = None, **_: Ignored) -> None:
        self.dataset = self._opened(dataset_kwargs)

    def has_training_docs(self) -> bool:
        return self._config.training_split is not None

    def has_validation_docs(self) -> bool:
        return self._config.validation_split is not None

    def has_test_docs(self) -> bool:
        return self._config.test_split is not None

    def training_docs(self) -> Docs:
        return self._processed(self._config.training_split, self._config.process_docs)

    def validation_docs(self) -> Docs:
        return self._processed(self._config.validation_split, self._config.process_docs)

    def test_docs(self) -> Docs:
        return self._processed(self._config.test_split, self._config.process_docs)

    def _processed(self, split: str | None, process_docs: Function | ProcessDocs | None) -> Docs:
        if split is None:
            return None
        return process_docs(self.dataset[split]) if callable(process_docs) else self.dataset[split]

    def fewshot_docs(self) -> Docs:
        own, shots = self.yaml_config, self._shots
        if (split := shots.split or own.fewshot_split) is not None:
            return self._processed(split, shots.process_docs or own.process_docs)
        if shots.samples is not None:
            samples: Any = shots.samples
            docs: Docs = samples() if callable(samples) else samples
            return docs
        return super().fewshot_docs()

    @cached_property
    def features(self) -> Sequence[str]:
        """The columns of the evaluated documents."""
        return columns_of(self.task_docs)

    @property
    def _shots(self) -> FewshotConfig:
        return self.yaml_config.fewshot_config or FewshotConfig()

    def look_at_first(self) -> None:
        """As lm-eval does when a task is made, for what a function may draw: pool, documents, and the first one's fields."""
        if self._dialect.prepares_unused_examples:
            self._pool  # noqa: B018  # listed here and kept
        if self.surroundings is not None:
            own = [key for key in QUESTION_KEYS[:2] if not self._overrides(key)]
            task, settings = self.surroundings.task, self.surroundings.settings
            wrong = [*prompt_problems(task, self.yaml_config, self.features, settings, own)]
            if wrong:
                raise ConfigError(wrong)
        first = self.task_docs[0]
        text, target = plain(self.doc_to_text(first)), plain(self.doc_to_target(first))
        choices = self.doc_to_choices_or_none(first)
        self.multiple_input = choices is not None and isinstance(text, int) and not isinstance(text, bool)
        self.multiple_target = isinstance(target, list)

    def doc_to_text(self, doc: Document, doc_to_text: FieldSpec = None) -> FieldValue:
        spec = doc_to_text if doc_to_text is not None else self.yaml_config.doc_to_text
        return text_field(spec, self.features, has_choices=self.yaml_config.doc_to_choice is not None)(doc)

    def doc_to_target(self, doc: Document, doc_to_target: FieldSpec = None) -> FieldValue:
        spec = doc_to_target if doc_to_target is not None else self.yaml_config.doc_to_target
        return target_field(spec, self.features, has_choices=self.yaml_config.doc_to_choice is not None)(doc)

    def doc_to_choice(self, doc: Document, doc_to_choice: FieldSpec = None) -> FieldValue:
        spec = doc_to_choice if doc_to_choice is not None else self.yaml_config.doc_to_choice
        if spec is None:
            raise DataError(f"{type(self).__name__} asks for choices, and its configuration has no doc_to_choice")
        fills = self.surroundings is not None and not self._dialect.sends_templates_in_lists
        return (filled_choice_field if fills else choice_field)(spec, self.features)(doc)

    def doc_to_choices_or_none(self, doc: Document) -> FieldValue:
        has_some = self.yaml_config.doc_to_choice is not None or self._overrides("doc_to_choice")
        return self.doc_to_choice(doc) if has_some else None

    def doc_to_prefix(self, doc: Document) -> FieldValue:
        return plain_field(self.yaml_config.gen_prefix, self.features)(doc)

    def _overrides(self, method: str) -> bool:
        return getattr(getattr(self, method), "__func__", None) is not getattr(ConfigurableTask, method)

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        super().set_fewshot_seed(seed)
        self._prompters: dict[tuple[Any, ...], Prompter] = {}

    def fewshot_context(  # type: ignore[override]  # noqa: PLR0913  # lm-eval's signatures
        self, doc: Document, num_fewshot: int, system_instruction: str | None = None, apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False, chat_template: UserFunction | None = None, gen_prefix: str | None = None, **_: Ignored,
    ) -> Context:  # fmt: skip
        """Description, examples and question, as text or through the chat template; of several inputs, one for each."""
        template = chat_template if apply_chat_template else None
        key = (num_fewshot, system_instruction, fewshot_as_multiturn, template, gen_prefix)
        if key not in self._prompters:
            chat = Chat(_opening(template) if template else None, fewshot_as_multiturn, system_instruction)
            self._prompters[key] = self._prompter(num_fewshot, chat, gen_prefix)
        contexts = list(self._prompters[key].question(doc).contexts)
        return contexts if self.multiple_input else contexts[0]

    def _prompter(self, number: int, chat: Chat, prefix: str | None) -> Prompter:
        """Puts prompts together as for a YAML task whose fields are the methods of this class."""
        own, shots = self.yaml_config, self._shots
        methods: dict[str, Any] = {"doc_to_text": self.doc_to_text, "doc_to_target": self.doc_to_target}
        if own.doc_to_choice is not None or self._overrides("doc_to_choice"):
            methods["doc_to_choice"] = self.doc_to_choice
        shown: dict[str, Any] = {"gen_prefix": shots.gen_prefix if shots.gen_prefix is not None else own.gen_prefix}
        for name in ("doc_to_text", "doc_to_target", "doc_to_choice"):
            if getattr(shots, name) is not None:
                shown[name] = partial(_asked_with, getattr(self, name), getattr(shots, name))
        literal = f"{{% raw %}}{prefix}{{% endraw %}}" if prefix and is_template(prefix) else prefix
        config = replace(own, **methods, gen_prefix=literal, fewshot_config=replace(shots, **shown))
        drawn = Examples(number, self._examples.pool, self._sampler) if number else Examples()
        return Prompter(config, (), drawn, chat, multiple_inputs=self.multiple_input, dialect=dialect_of("lm-eval"))

    def _sampler(self) -> Sampler:
        """One for all prompts of the task: what is drawn depends on what was drawn before."""
        if self._choose is None:
            assert self._examples.start is not None
            self._choose = self._examples.start()
        return self._choose

    @property
    def _examples(self) -> Examples:
        """The few-shot documents of this class, chosen from as those of a YAML task are."""
        assert self.surroundings is not None
        pool = Splits(DataSet("class", lambda _: self._pool, list), list)
        shots = replace(self._shots, samples=None, process_docs=None)  # what these say, `fewshot_docs` has done
        split = self.yaml_config.training_split or "train"
        config = replace(self.yaml_config, process_docs=None, training_split=split, fewshot_config=shots)
        settings = self.surroundings.settings
        seeded = replace(settings, run=replace(settings.run, fewshot_random_seed=self._seed))
        return examples(config, 1, pool, seeded)

    def construct_requests(self, doc: Document, ctx: Context, **kwargs: Any) -> Instance | list[Instance]:
        is_chat = kwargs.pop("apply_chat_template", False)
        kwargs.pop("chat_template", None)
        kind = str(self.OUTPUT_TYPE)
        if kind == "multiple_choice":
            pairs = self._choice_arguments(doc, ctx, is_chat=is_chat)
            return [Instance("loglikelihood", doc, pair, number, **kwargs) for number, pair in enumerate(pairs)]
        arguments: tuple[Any, ...] = (ctx, dict(self._config.generation_kwargs or {}))
        if kind != "generate_until":
            target = self.doc_to_target(doc)
            arguments = (ctx, target) if kind == "loglikelihood" else (target,)
        return Instance(kind, doc, arguments, 0, **kwargs)

    def _choice_arguments(self, doc: Document, ctx: Any, *, is_chat: bool) -> list[tuple[Prompt, str]]:
        config, choices = self.yaml_config, self.doc_to_choice(doc)
        prefix = config.gen_prefix
        delimiter = config.target_delimiter if not is_chat or (prefix and not prefix[-1].isspace()) else ""
        if self.multiple_input:
            pairs = [(context, f"{delimiter}{self.doc_to_target(doc)}") for context in ctx]
        else:
            pairs = [(ctx, f"{delimiter}{choice}") for choice in choices]
        if any(metric.name == "acc_mutual_info" for metric in config.metric_list or ()):
            pairs += [("", f"{delimiter}{choice}") for choice in choices]
        return pairs

    @cached_property
    def yaml_scoring(self) -> ScoringLoop:
        """The filters and metrics of the configuration; who computes the values is this class where it says how."""
        if not self._overrides("process_results"):
            return self._scored()
        # lm-eval's predict_only takes the metrics of the configuration away, and does not reach a method
        return self._scored(
            scores_anyway=self._dialect.scores_classes_in_predict_only, process_results=self.process_results
        )

    @cached_property
    def _metrics_alone(self) -> ScoringLoop:
        """The metrics of the configuration for answers that are filtered already."""
        scored = self._scored(process_results=None, filter_list=(DEFAULT,))
        parents = self.yaml_scoring.steps[0].parents  # shared, so that both know them
        return replace(scored, steps=[replace(step, parents=parents) for step in scored.steps])

    def process_results(self, doc: Document, results: Sequence[ModelAnswer]) -> dict[str, MetricValue]:
        if callable(self._config.process_results):
            return dict(self._config.process_results(doc, results))
        target = plain(self.doc_to_target(doc))
        gold = plain(self.doc_to_text(doc)) if self.multiple_input else target
        sample = Sample(0, doc, (), target, gold, plain(self.doc_to_choices_or_none(doc)))
        [scored] = self._metrics_alone.score([AnsweredSample(sample, [[answer] for answer in results])])
        if isinstance(scored, Failed):
            raise Unscored(scored.reason)
        lost = {row: Failed(reason) for row, reason in scored[0].failed.items()}
        return {**scored[0].values, **lost}

    def aggregation(self) -> dict[str, AggregationOrFunction | None]:
        known = {metric.name: metric.aggregation for metric in self.yaml_scoring.metrics}
        known |= {name: known[parent] for name, parent in self.yaml_scoring.parents.items()}
        return {
            name: AGGREGATIONS[aggregation] if isinstance(aggregation, str) else aggregation
            for name, aggregation in known.items()
        }

    def higher_is_better(self) -> dict[str, bool | None]:
        known = {metric.name: metric.higher_is_better for metric in self.yaml_scoring.metrics}
        return known | {name: known[parent] for name, parent in self.yaml_scoring.parents.items()}


def _opening(chat_template: UserFunction) -> Callable[[tuple[Message, ...], bool], Prompt]:
    """A chat template in lm-eval's shape, in ours."""
    return lambda messages, opened: chat_template(messages_to_plain(messages), add_generation_prompt=opened)


def _asked_with(method: UserFunction, spec: FieldSpec, doc: Document) -> FieldValue:
    return method(doc, spec)


def task_classes(data_dir: str | None) -> tuple[type, type]:
    """`Task` and `ConfigurableTask` for the helper modules of one run."""
    task = type("Task", (Task,), {"_data_dir": data_dir})
    return task, type("ConfigurableTask", (ConfigurableTask, task), {})


class ContextSampler:
    """Random examples from a pool."""

    def __init__(
        self,
        df: Sequence[Document] | None = None,
        *,
        rnd: int | None = None,
        fewshot_indices: Sequence[int] | None = None,
        **_: Ignored,
    ) -> None:
        self.rnd = random.Random(rnd)
        self.df = list(df or [])
        self.fewshot_indices = fewshot_indices

    def set_rnd(self, rnd: int | None) -> "ContextSampler":
        self.rnd = random.Random(rnd)
        return self

    def replace_df(self, df: Sequence[Document]) -> "ContextSampler":
        self.df = list(df)
        return self

    def fewshot_docs(self) -> list[Document]:
        return [self.df[index] for index in self.fewshot_indices] if self.fewshot_indices else list(self.df)

    def sample(
        self, n: int, eval_doc: Document | None = None, df: Sequence[Document] | None = None, **_: Ignored
    ) -> Sequence[Document]:
        if n == 0:
            return []
        if df:
            self.df = list(df)
        pool = self.fewshot_docs()
        drawn = self.rnd.sample(pool, n + 1 if eval_doc else n)
        chosen = self.rm_eval_doc(eval_doc, drawn, n) if eval_doc else drawn
        if len(chosen) < n:
            chosen = self.rnd.sample([doc for doc in pool if doc != eval_doc], n)
        return chosen

    @staticmethod
    def rm_eval_doc(doc: Document, _iter: Sequence[Document], n: int | None = None) -> list[Document]:
        return [example for example in _iter if example != doc][:n]


class FirstNSampler(ContextSampler):
    """The first examples of a pool."""

    def sample(
        self,
        n: int,
        eval_doc: Document | None = None,
        df: Sequence[Document] | None = None,  # noqa: ARG002
        **_: Ignored,
    ) -> Sequence[Document]:
        pool = self.rm_eval_doc(eval_doc, self.df) if eval_doc is not None else self.df
        if n > len(pool):
            raise ValueError(f"{n} examples are asked for, and the pool holds {len(pool)}")
        return pool[:n]


def _gold_text(self: Task, doc: Document, *_: Ignored) -> str:  # noqa: ARG001  # a method
    return f" {doc['choices'][doc['gold']]}"


def _ask_choices(self: Task, doc: Document, ctx: str, **kwargs: Any) -> list[Instance]:  # noqa: ARG001
    metadata = kwargs.get("metadata", (None, None, None))
    return [
        Instance("loglikelihood", doc, (ctx, f" {choice}"), number, metadata)
        for number, choice in enumerate(doc["choices"])
    ]


def _score_choices(self: Task, doc: Document, results: Sequence[tuple[float, bool]]) -> dict[str, float]:  # noqa: ARG001
    likelihoods = np.array([likelihood for likelihood, _ in results])
    lengths = np.array([float(len(choice)) for choice in doc["choices"]])
    return {
        "acc": float(np.argmax(likelihoods) == doc["gold"]),
        "acc_norm": float(np.argmax(likelihoods / lengths) == doc["gold"]),
    }


MULTIPLE_CHOICE: dict[str, Any] = {
    "OUTPUT_TYPE": "loglikelihood",
    "doc_to_target": _gold_text,
    "construct_requests": _ask_choices,
    "process_results": _score_choices,
    "aggregation": lambda self: {"acc": mean, "acc_norm": mean},  # noqa: ARG005
    "higher_is_better": lambda self: {"acc": True, "acc_norm": True},  # noqa: ARG005
}


def _no_examples(self: Task, doc: Document, num_fewshot: int = 0, **_: Ignored) -> str:  # noqa: ARG001
    if num_fewshot != 0:
        raise ValueError("a perplexity task has no examples: set num_fewshot to 0")
    return ""


def _ask_text(self: Task, doc: Document, ctx: str | None = None, **kwargs: Any) -> Instance:
    if ctx:
        raise ValueError("a perplexity task has no context")
    metadata = kwargs.get("metadata", (None, None, None))
    return Instance("loglikelihood_rolling", doc, (self.doc_to_target(doc),), 0, metadata)


def _score_text(self: Task, doc: Document, results: Sequence[float]) -> dict[str, tuple[float, int]]:
    (likelihood,) = results
    text = self.doc_to_target(doc)
    size = likelihood, self.count_bytes(text)
    return {"word_perplexity": (likelihood, self.count_words(text)), "byte_perplexity": size, "bits_per_byte": size}


PERPLEXITY: dict[str, Any] = {
    "OUTPUT_TYPE": "loglikelihood_rolling",
    "has_training_docs": lambda self: False,  # noqa: ARG005
    "doc_to_text": lambda self, doc, *_: "",  # noqa: ARG005
    "doc_to_target": lambda self, doc, *_: doc,  # noqa: ARG005
    "fewshot_context": _no_examples,
    "construct_requests": _ask_text,
    "process_results": _score_text,
    "aggregation": lambda self: {  # noqa: ARG005
        "word_perplexity": weighted_perplexity,
        "byte_perplexity": weighted_perplexity,
        "bits_per_byte": bits_per_byte,
    },
    "higher_is_better": lambda self: dict.fromkeys(("word_perplexity", "byte_perplexity", "bits_per_byte"), False),  # noqa: ARG005
}
