"""Tasks that are Python classes, as a run sees them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from assay.compat.task_base import Surroundings
from assay.compat.task_base import Task as Base
from assay.config.task import MEDIA, media_problem, unsent_media
from assay.errors import ConfigError, Problem
from assay.records import (
    Generate,
    Loglikelihood,
    Prompt,
    Request,
    Rolling,
    Sample,
    ScoreKey,
    plain,
    plain_to_messages,
    prompt_text,
)  # fmt: skip
from assay.samples.prompt import Prompter
from assay.samples.rows import DataError
from assay.samples.templates import RenderError
from assay.statistics.aggregations import Aggregation
from assay.tasks.prepare import KINDS, LOOKED_AT, PreparedTask, check_clusters
from assay.tasks.randomness import preserved_random
from assay.tasks.resolve import resolved
from assay.tasks.scoring import BYPASS
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task
from assay.user_code import user_code

NOT_CONFIGURATION = ("tag", "group", "task_list")


@dataclass
class ClassTask(PreparedTask):
    """A task that a Python class defines: `made` is asked for all that a class may say otherwise than YAML."""

    made: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, settings: Settings, helpers: Helpers) -> "ClassTask":
        """The task, with an object of its class. What that code gets wrong is an error of this task's."""
        assert task.config.class_ is not None
        kind = helpers.resolve(task.config.class_)
        if not (isinstance(kind, type) and issubclass(kind, Base)):
            fix = "derive it from lm_eval.api.task.ConfigurableTask"
            raise ConfigError([Problem(task.config.class_.place, f"{task.config.class_.name!r} is no task class", fix)])
        given = resolved(
            {key: task.fields[key] for key in task.fields if key not in NOT_CONFIGURATION}, helpers.resolve
        )
        with user_code(f"the class {kind.__name__}", RenderError):
            made: Any = _made(kind, Surroundings(task, settings, helpers), given)
            _tell(made, task, settings)
            made.look_at_first()
            made.set_fewshot_seed(settings.fewshot_seed)
            docs = made.task_docs
            check_clusters(task, docs)
            prompter = Prompter(made.yaml_config, ())
            return cls(task, made.yaml_config, settings, docs, prompter, made.yaml_scoring, made=made, given=given)

    def refuse_media(self) -> None:
        """Refuse a class that sends more than text, which its file need not show."""
        key = unsent_media({key: getattr(self.config, key) for key in MEDIA})
        if key is None and getattr(self.made, "MULTIMODAL", False):  # what lm-eval's classes call it
            key = "doc_to_image"
        if key is not None:
            raise DataError(str(media_problem(key, self.task.fields.place("class"))))

    def check_first(self) -> None:
        """Build the first samples, to find out what cannot work; the chat template is left to when there is a model."""
        if self.settings.chat.template is None:
            first = list(islice(self._samples(whole=False), LOOKED_AT))
            if first and all(sample.problem for sample in first):
                raise RenderError(first[0].problem)

    @property
    def version(self) -> object:
        return self.made.VERSION

    @cached_property
    def needs(self) -> frozenset[str]:
        with preserved_random():
            first = next((each for each in islice(self._samples(whole=False), LOOKED_AT) if each.requests), None)
        kinds = {Generate: "generate", Loglikelihood: "loglikelihood", Rolling: "rolling"}
        asked = {kinds[type(request)] for request in (first.requests if first else ())}
        chat = {"chat"} if self.settings.chat.template is not None else set()
        return frozenset({*(asked or {KINDS[self.config.output_type]}), *chat})

    @cached_property
    def draws(self) -> bool:
        """A class may draw what it likes."""
        return True

    def _samples(self, *, whole: bool) -> Iterator[Sample]:
        self.made.set_fewshot_seed(self.settings.fewshot_seed)
        return super()._samples(whole=whole)

    def _pass_over(self, doc_id: int, doc: Mapping[str, Any]) -> None:
        with suppress(RenderError):
            self.sample(doc_id, doc)

    def sample(self, doc_id: int, doc: Mapping[str, Any]) -> Sample:
        with user_code(f"the class {type(self.made).__name__}", RenderError):
            requests = self._asked(doc_id, doc)
            target = plain(self.made.doc_to_target(doc))
            gold = plain(self.made.doc_to_text(doc)) if self.made.multiple_input else target
            return Sample(doc_id, doc, requests, target, gold, plain(self.made.doc_to_choices_or_none(doc)))

    def _asked(self, doc_id: int, doc: Mapping[str, Any]) -> list[Request]:
        chat = self.settings.chat
        self._conversations.clear()
        applied = {"apply_chat_template": chat.template is not None, "chat_template": self._chat_template}
        context = self.made.fewshot_context(
            doc, num_fewshot=self.num_fewshot, system_instruction=chat.system, fewshot_as_multiturn=chat.multiturn,
            gen_prefix=self.made.doc_to_prefix(doc), **applied,
        )  # fmt: skip
        about = (self.made.config["task"], doc_id, self.repeats)
        made = self.made.construct_requests(doc=doc, ctx=context, metadata=about, **applied)
        instances = sorted(made if isinstance(made, list) else [made], key=lambda each: each.idx)
        chats = self._conversations
        return [_request(instance, repeat, chats) for instance in instances for repeat in range(self.repeats)]

    @cached_property
    def _conversations(self) -> dict[str, Prompt]:
        """The conversations of the present document by their JSON, which is what lm-eval's code is shown: a prompt that is
        none of these is text."""
        return {}

    @cached_property
    def _chat_template(self) -> Callable[..., str] | None:
        """The chat template in lm-eval's shape; always the same object, by which prompts know theirs."""
        template = self.settings.chat.template
        if template is None:
            return None

        def apply(messages: Any, add_generation_prompt: bool = True) -> str:
            made = template(plain_to_messages(messages), add_generation_prompt)
            written = prompt_text(made)
            self._conversations[written] = made
            return written

        return apply

    def aggregation(self, row: ScoreKey) -> Aggregation | Callable[..., Any] | None:
        if row.metric == BYPASS:
            return super().aggregation(row)
        found: Aggregation | Callable[..., Any] | None = self.made.aggregation().get(row.metric)
        return found

    def higher_is_better(self) -> Mapping[str, bool | None]:
        return dict(self.made.higher_is_better())

    def described(self) -> Mapping[str, object]:
        """What the class made of its configuration, with functions by the names that the file gives them."""
        values = self.made.config.to_dict()
        return {
            key: self.task.fields[key] if key in self.given and self.given[key] is value else value
            for key, value in values.items()
        }


def _made(kind: Any, surroundings: Surroundings, config: Mapping[str, Any]) -> Any:
    """An object of the class, that knows its surroundings before its own `__init__` runs, which may need them."""
    made = kind.__new__(kind)
    made.surroundings = surroundings
    arguments = {"config": dict(config)} if "config" in inspect.signature(kind.__init__).parameters else {}
    made.__init__(**arguments)
    return made


def _tell(made: Any, task: Task, settings: Settings) -> None:
    """Put into the configuration what the run says to every task."""
    made.set_config("task", task.config.task)
    number = made.config.get("num_fewshot")
    if settings.num_fewshot is not None and not (settings.like_lm_eval and number == 0):
        number = settings.num_fewshot
    made.set_config("num_fewshot", number or 0)
    if made.config.get("output_type") == "generate_until":
        made.set_config("generation_kwargs", dict(settings.gen_kwargs), update=True)
        if settings.repeats is not None:
            made.set_config("repeats", settings.repeats)


def _request(instance: Any, repeat: int, conversations: Mapping[str, Prompt]) -> Request:
    first = instance.args[0]
    if instance.request_type == "generate_until":
        return Generate(conversations.get(first, first), instance.args[1], repeat)
    if instance.request_type == "loglikelihood":
        return Loglikelihood(conversations.get(first, first), instance.args[1])
    return Rolling(first)
