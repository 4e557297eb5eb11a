"""A task bound to stored responses: its filters and metrics, without its data and without a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from assay.records import Document, Generate, Loglikelihood, Request, Rolling, Sample
from assay.samples.prompt import Prompter, RenderError
from assay.scoring.helper_code import Helpers, resolve_functions
from assay.scoring.results import GENERATE, ROLLING
from assay.tasks.prepare import PreparedTask, has_multiple_inputs, with_settings
from assay.tasks.scoring import scoring
from assay.tasks.settings import Settings
from assay.tasks.task import Task, task_dialect


class StoredTask(NamedTuple):
    """What an earlier run stored of a task. `first` is a document, where targets must be made again from documents; `columns`
    are those of the documents, where scorers ask about the question."""

    size: int
    original: int
    repeats: int = 1
    num_fewshot: int | None = None
    multiple_targets: bool = False
    source: str = ""
    first: Mapping[str, Any] | None = None
    columns: Sequence[str] = ()


RequestArguments = Sequence[Any]
"""The arguments of a request in lm-eval's order: a prompt, and a continuation or the parameters of generation."""


@dataclass
class RescoredTask(PreparedTask):
    """A task whose documents were asked about in an earlier run."""

    stored: StoredTask = StoredTask(0, 0)

    def _counts(self) -> tuple[int, int]:
        return self.stored.size, self.stored.original

    def asked(self, doc_id: int, doc: Document, arguments: Sequence[RequestArguments]) -> Sample:
        """A sample from its document and the arguments of its requests: choices and right answer are made again."""
        requests = [self._request(each, repeat) for each in arguments for repeat in range(self.config.repeats)]
        try:
            target = self.prompter.target(doc)
            gold = self.prompter.text(doc) if self.prompter.multiple_inputs else target
            return Sample(doc_id, doc, requests, target, gold, self.prompter.choices(doc))
        except RenderError as error:
            return Sample(doc_id, doc, requests, None, None, problem=str(error))

    def _request(self, arguments: RequestArguments, repeat: int) -> Request:
        if self.config.output_type == GENERATE:
            return Generate(arguments[0], arguments[1], repeat)
        return Rolling(arguments[0]) if self.config.output_type == ROLLING else Loglikelihood(*arguments[:2])


def prepare_scoring(task: Task, settings: Settings, helpers: Helpers, stored: StoredTask) -> RescoredTask:
    """The task, ready to score what was answered. What its file says wrongly is a ConfigError."""
    config = with_settings(resolve_functions(task.config, helpers.resolve), settings)
    shots = stored.num_fewshot if stored.num_fewshot is not None else config.num_fewshot
    config = replace(config, repeats=stored.repeats, num_fewshot=shots)
    prompter = Prompter(config, tuple(stored.first or stored.columns), dialect=task_dialect(task, settings.run.compat))
    multiple = stored.multiple_targets or config.multiple_targets
    if stored.first is not None:
        prompter.multiple_inputs = has_multiple_inputs(config, prompter, stored.first)
        multiple = multiple or isinstance(prompter.target(stored.first), list)
    scored = scoring(task, config, settings, helpers)
    scored.reading.multiple_targets = multiple
    return RescoredTask(task, config, settings, (), prompter, scored, source=stored.source, stored=stored)
