"""Class tasks: tasks that are Python classes written for lm-eval, bound to a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from assay.compat.task_base import Instance, Surroundings
from assay.compat.task_base import Task as Base
from assay.config.option import YAMLMapping
from assay.config.task import MEDIA, media_problem, template_slips, unsent_media
from assay.dialect import dialect_of
from assay.errors import ConfigError
from assay.records import (
    JSON,
    Document,
    Generate,
    Loglikelihood,
    Prompt,
    Request,
    Rolling,
    Sample,
    plain,
    plain_to_messages,
    prompt_text,
)
from assay.samples.data import columns_of
from assay.samples.prompt import Prompter, RenderError
from assay.samples.rows import DataError
from assay.score_keys import ScoreKey
from assay.scoring.helper_code import Helpers, resolve_functions
from assay.signatures import argument_names
from assay.statistics.aggregations import Aggregation, AggregationOrFunction
from assay.tasks.checks import unknown_clusters
from assay.tasks.prepare import KINDS, LOOKED_AT, PreparedTask, check_choices
from assay.tasks.runnable import TaskFacts
from assay.tasks.scoring import BYPASS
from assay.tasks.settings import Settings, preserved_random
from assay.tasks.task import Task, class_place, not_a_task_class
from assay.user_code import user_code

NOT_CONFIGURATION = ("tag", "group", "task_list")


@dataclass
class ClassTask(PreparedTask):
    """A task that a Python class defines: `lm_task`, an object of it, decides all that a class may override."""

    lm_task: Any = None
    yaml_values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, settings: Settings, helpers: Helpers) -> "ClassTask":
        """Create an object of the task's class. An exception of its code is an error of this task alone."""
        assert task.config.class_ is not None
        kind = helpers.resolve(task.config.class_)
        if not (isinstance(kind, type) and issubclass(kind, Base)):
            raise ConfigError([not_a_task_class(task)])
        if task.format is not None:
            what = f"a class written for lm-eval writes its own questions, which format {task.format!r} cannot change"
            fix = "name the task without a format, or derive it from assay.GenerateTask or assay.MultipleChoiceTask"
            raise ConfigError.at(class_place(task), what, fix)
        yaml_values = resolve_functions(
            {key: task.fields[key] for key in task.fields if key not in NOT_CONFIGURATION}, helpers.resolve
        )
        with user_code(f"the class {kind.__name__}", RenderError):
            lm_task: Any = _create(kind, Surroundings(task, settings, helpers), yaml_values)
            _apply_settings(lm_task, task, settings)
            lm_task.look_at_first()
            lm_task.set_fewshot_seed(settings.run.fewshot_random_seed)
            docs = lm_task.task_docs
            wrong = [*unknown_clusters(task, columns_of(docs))]
            if wrong:
                raise ConfigError(wrong)
            prompter = Prompter(lm_task.yaml_config, (), dialect=dialect_of("lm-eval"))  # its methods say the rest
            return cls(
                task,
                lm_task.yaml_config,
                settings,
                docs,
                prompter,
                lm_task.yaml_scoring,
                lm_task=lm_task,
                yaml_values=yaml_values,
            )

    def refuse_media(self) -> None:
        """Refuse a class that sends images or audio, which its file need not show."""
        key = unsent_media({key: getattr(self.config, key) for key in MEDIA})
        if key is None and getattr(self.lm_task, "MULTIMODAL", False):  # what lm-eval's classes call it
            key = "doc_to_image"
        if key is not None:
            raise DataError(str(media_problem(key, self.task.fields.place("class"))))

    def check_first(self) -> None:
        """Build the first samples to find errors early; with a chat template only once there is a model."""
        if self.settings.chat.template is None:
            first = list(islice(self._samples(whole=False), LOOKED_AT))
            if first and all(sample.problem for sample in first):
                raise RenderError(first[0].problem)

    @cached_property
    def facts(self) -> TaskFacts:
        return replace(super().facts, version=self.lm_task.VERSION)

    @cached_property
    def _needs(self) -> frozenset[str]:
        with preserved_random():
            first = next((sample for sample in islice(self._samples(whole=False), LOOKED_AT) if sample.requests), None)
        kinds = {Generate: "generate", Loglikelihood: "loglikelihood", Rolling: "rolling"}
        asked = {kinds[type(request)] for request in (first.requests if first else ())}
        chat = {"chat"} if self.settings.chat.template is not None else set()
        return frozenset({*(asked or {KINDS[self.config.output_type]}), *chat})

    @cached_property
    def draws(self) -> bool:
        """A class may draw what it likes."""
        return True

    def _samples(self, *, whole: bool) -> Iterator[Sample]:
        self.lm_task.set_fewshot_seed(self.settings.run.fewshot_random_seed)
        return super()._samples(whole=whole)

    def _pass_over(self, doc_id: int, doc: Document) -> None:
        with suppress(RenderError):
            self.sample(doc_id, doc)

    def sample(self, doc_id: int, doc: Document) -> Sample:
        with user_code(f"the class {type(self.lm_task).__name__}", RenderError):
            requests = self._asked(doc_id, doc)
            target = plain(self.lm_task.doc_to_target(doc))
            gold = plain(self.lm_task.doc_to_text(doc)) if self.lm_task.multiple_input else target
            choices = plain(self.lm_task.doc_to_choices_or_none(doc))
        if choices is not None:
            check_choices(choices, is_asked=False)
        return Sample(doc_id, doc, requests, target, gold, choices)

    def _asked(self, doc_id: int, doc: Document) -> list[Request]:
        chat = self.settings.chat
        self._conversations.clear()
        applied = {"apply_chat_template": chat.template is not None, "chat_template": self._chat_template}
        context = self.lm_task.fewshot_context(
            doc, num_fewshot=self.config.num_fewshot or 0, system_instruction=chat.system, fewshot_as_multiturn=chat.multiturn,
            gen_prefix=self.lm_task.doc_to_prefix(doc), **applied,
        )  # fmt: skip
        about = (self.lm_task.config["task"], doc_id, self.config.repeats)
        built = self.lm_task.construct_requests(doc=doc, ctx=context, metadata=about, **applied)
        instances = sorted(built if isinstance(built, list) else [built], key=lambda instance: instance.idx)
        chats = self._conversations
        return [_request(instance, repeat, chats) for instance in instances for repeat in range(self.config.repeats)]

    @cached_property
    def _conversations(self) -> dict[str, Prompt]:
        """The conversations of the current document by their JSON, the form that lm-eval's code sees: any other prompt is
        text."""
        return {}

    @cached_property
    def _chat_template(self) -> Callable[..., str] | None:
        """The chat template with lm-eval's signature; always the same object, since prompts compare it."""
        template = self.settings.chat.template
        if template is None:
            return None

        def apply(messages: Sequence[Mapping[str, JSON]], add_generation_prompt: bool = True) -> str:
            prompt = template(plain_to_messages(messages), add_generation_prompt)
            written = prompt_text(prompt)
            self._conversations[written] = prompt
            return written

        return apply

    def aggregation(self, row: ScoreKey) -> AggregationOrFunction | None:
        if row.metric == BYPASS:
            return super().aggregation(row)
        aggregation: Aggregation | Callable[..., Any] | None = self.lm_task.aggregation().get(row.metric)
        return aggregation

    def higher_is_better(self) -> Mapping[str, bool | None]:
        return dict(self.lm_task.higher_is_better())

    def described(self) -> YAMLMapping:
        """The configuration as the class left it, with functions by their names in the file."""
        values = self.lm_task.config.to_dict()
        return {
            key: self.task.fields[key] if key in self.yaml_values and self.yaml_values[key] is value else value
            for key, value in values.items()
        }


def _create(kind: type[Base], surroundings: Surroundings, config: YAMLMapping) -> Base:
    """Create an object of the class; its surroundings are set before `__init__` runs, which may need them."""
    lm_task = kind.__new__(kind)
    lm_task.surroundings = surroundings
    arguments = {"config": dict(config)} if "config" in argument_names(kind.__init__) else {}
    lm_task.__init__(**arguments)  # type: ignore[misc]  # the signature is read above
    return lm_task


def _apply_settings(lm_task: Base, task: Task, settings: Settings) -> None:
    """Apply the settings of the run to the configuration of the class."""
    lm_task.set_config("task", task.config.task)
    number = lm_task.config.get("num_fewshot")
    if settings.run.num_fewshot is not None and not (number == 0 and settings.dialect.zero_shots_block_num_fewshot):
        number = settings.run.num_fewshot
    lm_task.set_config("num_fewshot", number or 0)
    if lm_task.config.get("output_type") == "generate_until":
        lm_task.set_config("generation_kwargs", dict(settings.gen_kwargs), update=True)
        for path, what, fix in template_slips(lm_task.config.get("generation_kwargs")):
            raise ConfigError.at(f"task {task.name!r}: generation_kwargs.{path[0]}", what, fix)
        if settings.run.repeats is not None:
            lm_task.set_config("repeats", settings.run.repeats)


def _request(instance: Instance, repeat: int, conversations: Mapping[str, Prompt]) -> Request:
    first = instance.args[0]
    if instance.request_type == "generate_until":
        return Generate(conversations.get(first, first), instance.args[1], repeat)
    if instance.request_type == "loglikelihood":
        return Loglikelihood(conversations.get(first, first), instance.args[1])
    return Rolling(first)
