"""A task bound to its data, its prompts, its filters and its metrics: all that can fail before the first request does so here."""

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from assay.checks import Level, refuse
from assay.config.option import MAX_REPEATS, YAMLMapping
from assay.config.task import TaskConfig, generation_types
from assay.errors import ConfigError, Problem
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    Document,
    Failed,
    FilterScores,
    Generate,
    Loglikelihood,
    Plan,
    Prompt,
    Request,
    Response,
    Rolling,
    Sample,
    limit_of,
    prompt_text,
)
from assay.runs.folder import SampleSink
from assay.samples.data import Split, columns_of
from assay.samples.prompt import Chat, Examples, Prompter, Question, RenderError, TooSlow
from assay.samples.rows import DataError
from assay.score_keys import ScoreKey
from assay.scoring.filters import Pipeline
from assay.scoring.helper_code import Helpers, resolve_functions
from assay.scoring.loop import ScoringLoop
from assay.scoring.metric_binding import check_reference_order
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    LIKELIHOOD,
    ROLLING,
    AnsweredSample,
    GenResult,
    calls_without_text,
    grouped,
)
from assay.scoring.scorer import directions_of, members_of, roles_of, row_bounds
from assay.scoring.scorer_models import models_of
from assay.scoring.scores import BoundMetric, RowRule, ScoreRules
from assay.statistics.aggregations import AGGREGATIONS, Aggregation, AggregationOrFunction, known_aggregation, within
from assay.statistics.evidence import Estimate
from assay.tasks.checks import TASK_CHECKS, CheckedTask
from assay.tasks.documents import (
    Splits,
    asked_after,
    count,
    evaluated_docs,
    evaluated_split,
    examples,
    open_splits,
    placed_split,
    walked,
)
from assay.tasks.prompt_checks import (
    LOOKED_FURTHER,
    check_right_choices,
    check_templates,
    equal_prompts,
    unaskable,
)
from assay.tasks.runnable import UNDER_TEST, Estimator, TaskFacts
from assay.tasks.scoring import BYPASS, known_answers, known_rows, scoring
from assay.tasks.settings import Settings, generation_params, preserved_random
from assay.tasks.task import Task, task_dialect
from assay.tasks.task_methods import METHODS, takes_part, typed
from assay.user_code import IN_PYTHON, named_code

LOOKED_AT = 3
"""Samples that are built before the run: a task of which none of them can be asked is broken."""
SEARCHED = 200
"""Documents that are searched for several references, where a metric is tried with them."""
KINDS = {GENERATE: "generate", CHOICE: "loglikelihood", LIKELIHOOD: "loglikelihood", ROLLING: "rolling"}


def prepare(task: Task, settings: Settings, helpers: Helpers) -> "PreparedTask":
    """The task, ready to be run. What its file says wrongly is a ConfigError, what its data lacks a DataError."""
    config = resolve_functions(task.config, helpers.resolve)
    check_templates(task, config)
    refuse(TASK_CHECKS, CheckedTask(task=task, config=config, settings=settings), Level.LOADED)
    config = with_settings(config, settings)
    splits = open_splits(task, config, settings, helpers)
    prepared = bind(task, config, splits, settings, scoring(task, config, settings, helpers))
    if prepared.note is not None:
        logging.getLogger("assay").warning("%s", prepared.note)
    return prepared


def bind(task: Task, config: TaskConfig, splits: Splits, settings: Settings, scored: ScoringLoop) -> "PreparedTask":
    """The task with its documents, of which the first are looked at: can they be asked and scored?"""
    try:
        prepared = _bound(task, config, splits, settings, scored)
    except DataError as error:
        raise placed_split(task, error, splits) from error
    prepared.check_first()
    return prepared


def _bound(task: Task, config: TaskConfig, splits: Splits, settings: Settings, scored: ScoringLoop) -> "PreparedTask":
    shots = examples(config, config.num_fewshot or 0, splits, settings)
    docs = evaluated_docs(task, config, splits)
    columns = columns_of(docs)
    dialect = task_dialect(task, settings.run.compat)
    if not config.num_fewshot and not dialect.notes_what_cannot_run:
        _refuse_unknown_pool(config, splits)
    checked = CheckedTask(task=task, config=config, settings=settings, docs=docs, scored=scored)
    refuse(TASK_CHECKS, checked, Level.BOUND)
    prompter = Prompter(
        config,
        columns,
        shots,
        settings.chat,
        fits=_fitting(config, settings),
        dialect=dialect,
    )
    first = _look_at_first(task, prompter, docs, settings)
    prompter.multiple_inputs = first.multiple_inputs
    is_one_target = not first.target and dialect.takes_empty_target_list_for_one_target
    has_targets = isinstance(first.target, list) and not is_one_target
    refuse(TASK_CHECKS, replace(checked, choices=first.choices), Level.FIRST_DOCUMENTS)
    scored.reading.multiple_targets = has_targets or config.multiple_targets
    source = f"{splits.fingerprint(evaluated_split(config))} {task.fields.get('process_docs', '')}"
    return PreparedTask(task, config, settings, docs, prompter, scored, splits.fingerprint(), source)


def _refuse_unknown_pool(config: TaskConfig, splits: Splits) -> None:
    """Refuse a split of examples that does not exist, although this run draws none: nothing else would look."""
    named = (config.fewshot_config and config.fewshot_config.split) or config.fewshot_split
    if named is not None and splits.data.is_local and named not in (known := splits.data.available()):
        raise DataError(f"there is no split {named!r} for examples; there are: {', '.join(map(str, known)) or 'none'}")


class _First(NamedTuple):
    multiple_inputs: bool
    target: Any
    choices: Any


def _look_at_first(task: Task, prompter: Prompter, docs: Split, settings: Settings) -> _First:
    """Return facts that the first document shows for all; of the first, the first that can be rendered.

    Text, target and choices are rendered once and in this order, as by lm-eval: functions may draw random numbers.
    """
    problem: RenderError | None = None
    for doc in islice(docs, LOOKED_FURTHER):
        try:
            is_multiple = has_multiple_inputs(prompter.config, prompter, doc)
            return _First(is_multiple, prompter.target(doc), prompter.choices(doc))
        except RenderError as error:
            problem = problem or error
    if problem is None:
        raise DataError(f"the split {evaluated_split(prompter.config)!r} has none of the documents that it says it has")
    raise unaskable(task, problem, docs, settings)


def with_settings(config: TaskConfig, settings: Settings) -> TaskConfig:
    """The configuration under what the run says to every task."""
    config = typed(config)
    number = config.num_fewshot
    if settings.run.num_fewshot is not None and not (number == 0 and settings.dialect.zero_shots_block_num_fewshot):
        number = settings.run.num_fewshot
    if config.output_type == ROLLING and not settings.dialect.counts_shots_of_rolling_tasks:  # a whole text has none
        number = 0
    repeats = (
        settings.run.repeats if settings.run.repeats is not None and config.output_type == GENERATE else config.repeats
    )
    params = config.generation_kwargs
    if config.output_type == GENERATE:
        for key, what, fix in generation_types({**(params or {}), **settings.gen_kwargs}):
            raise ConfigError.at(f"generation_kwargs.{key[0]}", what, fix)
        params = generation_params(params, config.fewshot_delimiter, settings.gen_kwargs)
    repeats = min(repeats, MAX_REPEATS)  # more are refused, but `validate` checks the rest of the task
    return replace(config, num_fewshot=number or 0, repeats=repeats, generation_kwargs=params)


def _fitting(config: TaskConfig, settings: Settings) -> Callable[[Sequence[Prompt], Sequence[str] | None], bool] | None:
    """Whether what is asked about a question is short enough for the model, its choices and what is generated included."""
    fits = settings.fits
    if fits is None:
        return None
    limit = limit_of(config.generation_kwargs or {}) or DEFAULT_MAX_GEN_TOKS
    generated = limit if config.output_type == GENERATE else 0
    return lambda contexts, choices: fits([prompt_text(c) + e for c in contexts for e in choices or [""]], generated)


def has_multiple_inputs(config: TaskConfig, prompter: Prompter, first: Document) -> bool:
    """Whether the choices are in the context: lm-eval assumes so if doc_to_text gives the number of the right one."""
    text = prompter.text(first)
    return config.doc_to_choice is not None and isinstance(text, int) and not isinstance(text, bool)


def check_choices(choices: Any, *, is_asked: bool) -> None:
    """Refuse choices that are not texts. Those that are not asked may be any collection of them, with gaps."""
    if type(choices) is list and {*map(type, choices)} == {str}:  # as most are
        return
    kinds, items = ((list, tuple), (str,)) if is_asked else ((Collection,), (str, type(None)))
    if not isinstance(choices, kinds) or not all(isinstance(choice, items) for choice in choices):
        raise RenderError(f"doc_to_choice must be a list of texts, got {choices!r:.80}")


@dataclass
class PreparedTask:
    """A task that YAML describes, ready to be run."""

    task: Task
    config: TaskConfig
    settings: Settings
    docs: Split
    prompter: Prompter
    scoring: ScoringLoop
    fingerprint: str = ""
    source: str = ""
    note: Problem | None = None

    def __post_init__(self) -> None:
        self.dialect = task_dialect(self.task, self.settings.run.compat)
        self._check_scores()

    @cached_property
    def facts(self) -> TaskFacts:
        size, original = self._counts()
        return TaskFacts(
            size=size,
            original=original,
            version=(self.config.metadata or {}).get("version", "Yaml"),
            source=self.source,
            fingerprint=self.fingerprint,
            repeats=self.config.repeats,
            num_fewshot=self.config.num_fewshot or 0,
            multiple_targets=self.scoring.reading.multiple_targets,
            cluster_column=self.task.config.cluster_by,
            models=models_of(roles_of(step.scorer) for step in self.scoring.steps),
            scorers=[each for step in self.scoring.steps for each in (step.scorer, *members_of(step.scorer))],
            rows=known_rows(self.scoring),
            listed_rows=self.scoring.listed_rows,
            answers=known_answers(self.scoring, self.config),
            remarks=self._unscored_repeats(),
            copies=self._copies(),
        )

    def _counts(self) -> tuple[int, int]:
        """Return the number of documents that are evaluated, and of all."""
        return count(self.docs, self.task.name, self.settings), len(self.docs)

    @property
    def is_batch(self) -> bool:
        return self.scoring.waits

    def needs(self, role: str = UNDER_TEST) -> frozenset[str]:
        return self._needs if role == UNDER_TEST else frozenset()

    @cached_property
    def _needs(self) -> frozenset[str]:
        chat = {"chat"} if self.settings.chat.template is not None else set()
        return frozenset({KINDS[self.config.output_type], *chat})

    def samples(self) -> Iterator[Sample]:
        """Yield the samples. Examples are drawn for all documents, also for those of other shards and those that are not
        asked about, so that prompts are those of a full run."""
        return self._samples(whole=self.draws and not self.dialect.draws_examples_for_selection_alone)

    def _samples(self, *, whole: bool) -> Iterator[Sample]:
        self.prompter.restart()
        last = -1
        try:
            for last, doc, is_asked in walked(self.docs, self.task.name, self.settings, whole=whole):
                if not is_asked:
                    self._pass_over(last, doc)
                    continue
                try:
                    sample = self.sample(last, doc)
                except RenderError as error:
                    sample = Sample(last, doc, (), None, None, problem=str(error))
                yield sample
        except DataError as error:  # the file changed since it was checked: what cannot be read fails
            for doc_id in asked_after(last, self.docs, self.task.name, self.settings):
                yield Sample(doc_id, {}, (), None, None, problem=str(error))

    @cached_property
    def draws(self) -> bool:
        """Whether what is asked depends on the documents before."""
        return self.prompter.draws

    def _pass_over(self, doc_id: int, doc: Document) -> None:  # noqa: ARG002  # the shape of `sample`
        """Draw the random numbers of a document that is not asked about; if rendering fails, those drawn until then."""
        with suppress(RenderError):
            if self.draws:
                self.prompter.pass_over(doc)

    def sample(self, doc_id: int, doc: Document) -> Sample:
        question = self.prompter.question(doc)
        gold = self.prompter.text(doc) if self.prompter.multiple_inputs else question.target
        requests = self._requests(question)
        return Sample(
            doc_id, doc, requests, question.target, gold, question.choices, question.prefix, dropped=question.dropped
        )

    def _requests(self, question: Question) -> list[Request]:
        kind = self.config.output_type
        if question.choices is not None or kind == CHOICE:
            check_choices(question.choices, is_asked=kind == CHOICE)
        if kind == GENERATE:
            params = self.config.generation_kwargs or {}
            return [Generate(question.contexts[0], params, repeat) for repeat in range(self.config.repeats)]
        target = question.target
        if kind == LIKELIHOOD:
            return self._repeated([Loglikelihood(question.contexts[0], str(target))])
        if kind == ROLLING:
            return self._repeated([Rolling(str(target))])
        choices = question.choices or ()
        delimiter = self._delimiter
        requests: list[Request]
        if self.prompter.multiple_inputs:  # the choice is in the context, and the same words follow each
            requests = [Loglikelihood(context, f"{delimiter}{target}") for context in question.contexts]
        else:
            context = question.contexts[0]
            requests = [Loglikelihood(context, f"{delimiter}{choice}") for choice in choices]
        if self._unconditional:
            requests += [Loglikelihood("", f"{delimiter}{choice}") for choice in choices]
        return self._repeated(requests) if self.config.repeats > 1 else requests

    def _repeated(self, requests: list[Request]) -> list[Request]:
        return [request for request in requests for _ in range(self.config.repeats)]

    @cached_property
    def _delimiter(self) -> str:
        """The text between context and choice; after a chat template, only if a prefix does not end with a space."""
        prefix = self.config.gen_prefix
        if self.settings.chat.template is None or (prefix and not prefix[-1].isspace()):
            return self.config.target_delimiter
        return ""

    @cached_property
    def _unconditional(self) -> bool:
        return any("acc_mutual_info" in (metric.name, metric.of) for metric in self._metrics())

    def plan(self, sample: Sample) -> Plan:
        if not self.scoring.asks:
            return ask(sample.requests)
        return ask_about(sample.requests, lambda responses: self.scoring.verdict_plan(self.document(sample, responses)))

    def document(self, sample: Sample, responses: Sequence[Response]) -> AnsweredSample:
        own, verdicts = responses[: len(sample.requests)], responses[len(sample.requests) :]
        return AnsweredSample(
            sample,
            grouped(sample.requests, own, self.config.repeats),
            verdicts,
            self._question(sample.doc) if self.scoring.asks else "",
            without_text=calls_without_text(own) if self.config.output_type == GENERATE else "",
        )

    def _question(self, doc: Document) -> str:
        """Return the question of a document, for scorers that ask a model about the answer."""
        with preserved_random():
            return str(self.prompter.text(doc))

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        return self.scoring.score(documents)

    @property
    def parents(self) -> Mapping[str, str]:
        return self.scoring.parents

    def _metrics(self) -> Iterator[BoundMetric]:
        return iter(self.scoring.metrics)

    def aggregation(self, row: ScoreKey) -> AggregationOrFunction | None:
        step = next((step for step in self.scoring.steps if step.filter.name == row.filter), None)
        if step is None:
            return None
        if row.metric in step.scorer.aggregations:
            return AGGREGATIONS[step.scorer.aggregations[row.metric]]
        aggregation = _aggregation_of(step.parents.get(row.metric, row.metric), step.metrics)
        return within(aggregation, row_bounds(row.metric, step))

    def _check_scores(self) -> None:
        """Say to the loop what the aggregation of each row takes."""

        @cache
        def rule(metric: str, filter_name: str) -> RowRule:
            aggregation = known_aggregation(self.aggregation(ScoreKey(metric, filter_name)))
            if not isinstance(aggregation, Aggregation):  # one of the user's takes anything
                return RowRule(is_averaged=False, takes_nan=True)
            # in lm-eval, the mean of NaN is NaN
            takes_nan = self.dialect.scores_nan or aggregation.name in ("nanmean", BYPASS)
            return RowRule(aggregation.of_numbers, takes_nan)

        self.scoring = replace(self.scoring, rules=ScoreRules(rule, self.dialect))

    def _unscored_repeats(self) -> list[str]:
        """Return sentences about filters that leave repeats out."""
        repeats = self.config.repeats
        if repeats < 2 or self.settings.run.predict_only:
            return []
        filters = [step.filter for step in self.scoring.steps if isinstance(step.filter, Pipeline)]
        selected = [(each.name, *each.selects) for each in filters if each.selects is not None]
        return [
            f"{repeats - kept} of {repeats} answers are not scored: {step}"
            + (f" of filter {name}" if len(filters) > 1 else "")
            for name, step, kept in selected
            if kept < repeats
        ]

    def _copies(self) -> str:
        """Return the sentence about repeats that are equal because nothing is sampled."""
        is_sampled = (
            self.config.output_type == GENERATE and Generate("", self.config.generation_kwargs or {}).is_sampled
        )
        if is_sampled or self.config.repeats < 2 or self.settings.run.predict_only:
            return ""
        return f"the {self.config.repeats} answers are copies: nothing is sampled (set do_sample and temperature)"

    def higher_is_better(self) -> Mapping[str, bool | None]:
        scorers = [directions_of(step.scorer) for step in self.scoring.steps]
        known: dict[str, bool | None] = {name: up for each in scorers for name, up in each.items()}
        known |= {metric.name: metric.higher_is_better for metric in self._metrics()}
        for metric in self._metrics():
            rows = [row for row, parent in self.scoring.parents.items() if parent == metric.name]
            known |= dict.fromkeys(metric.added_rows(rows), metric.higher_is_better)
        below = {name: known.get(parent) for name, parent in self.scoring.parents.items()}
        hidden = {*self.scoring.parents.values()} - {*below}
        return {**{name: better for name, better in known.items() if name not in hidden}, **below}

    def files(self, folder: Path | None, created: float, label: str) -> SampleSink | None:  # noqa: ARG002  # the shape of a task
        return None

    def conclude(
        self,
        estimated: Estimator,  # noqa: ARG002  # it has none
    ) -> Mapping[ScoreKey, Estimate]:
        return {}

    def described(self) -> YAMLMapping:
        """Return the task's settings as this run uses them, without absent ones."""
        values = named_code(self.task.fields) or {"task": self.task.name}
        if self.config.class_ is None and takes_part(self.task):  # an object that Python made, or set a method on
            methods = [f"{IN_PYTHON}{name}" for name in METHODS if name in vars(self.task)]
            values["class"] = methods or named_code(type(self.task))
        values |= {key: f"{IN_PYTHON}{key}" for key in self.task.set_keys}
        described = {
            "num_fewshot": self.config.num_fewshot or 0,
            "repeats": self.config.repeats,
            "generation_kwargs": self.config.generation_kwargs,
        }
        return {**values, **{key: value for key, value in described.items() if value is not None}}

    def check_first(self) -> None:
        """Build the first samples, to find out what cannot work; the chat template is left to when there is a model."""
        with preserved_random():
            prompter = replace(self.prompter, chat=Chat(system=self.prompter.chat.system), fits=None)
            bare = replace(self, prompter=prompter, config=replace(self.config, repeats=1))
            first = list(islice(bare._samples(whole=False), LOOKED_AT))
            if first and all(sample.problem for sample in first):
                bare._refuse_unaskable()
        check_reference_order(self._metrics(), self._several_references)
        is_scored_otherwise = self.config.process_results is not None or self.settings.run.predict_only
        is_scored_otherwise = is_scored_otherwise or self.dialect.scores_zero_without_right_choice
        if self.config.output_type == CHOICE and not is_scored_otherwise:
            check_right_choices(self.task, self.scoring.reading, [sample for sample in first if not sample.problem])
        self.note = self.equal_prompts()
        if self.note is not None and self.note.serious:
            raise ConfigError([self.note])

    def _refuse_unaskable(self) -> None:
        """Refuse a task of which none of the first documents can be asked."""
        first: RenderError | None = None
        self.prompter.restart()
        for doc_id, doc, _ in islice(walked(self.docs, self.task.name, self.settings, whole=False), LOOKED_FURTHER):
            try:
                self.sample(doc_id, doc)
                return
            except RenderError as error:
                first = first or error
                if isinstance(error, TooSlow):
                    break
        if first is not None:
            raise unaskable(self.task, first, self.docs, self.settings)

    def equal_prompts(self) -> Problem | None:
        """Whether every document is asked the same, examples aside."""
        if len(self.docs) < 2 or self.dialect.keeps_one_random_stream:  # of which looking ahead would draw
            return None
        with preserved_random():
            prompter = replace(self.prompter, chat=Chat(), fits=None, examples=Examples())
            bare = replace(self, prompter=prompter, config=replace(self.config, repeats=1))
            return equal_prompts(self.task, bare._all_samples(), self.dialect)

    def _all_samples(self) -> Iterator[Sample]:
        """Samples of all documents, whichever the run selects; those that cannot be asked are left out."""
        for doc_id, doc in enumerate(self.docs):
            try:
                yield self.sample(doc_id, doc)
            except TooSlow:
                return
            except RenderError:
                continue

    def _several_references(self) -> Iterator[GenResult]:
        """Results of the first documents with several references, each with the first and the last as answer."""
        if self.config.output_type != GENERATE or not self.scoring.reading.multiple_targets:
            return
        tried = 0
        for number, doc in enumerate(islice(self.docs, SEARCHED)):
            try:
                target = self.prompter.target(doc)
            except RenderError:
                continue
            if isinstance(target, list) and len(target) > 1 and tried < LOOKED_AT:
                tried += 1
                sample = Sample(number, doc, (), target, target)
                results = [self.scoring.reading.result(sample, [str(each)]) for each in (target[0], target[-1])]
                yield from (each for each in results if isinstance(each, GenResult))


def _aggregation_of(metric: str, metrics: Sequence[BoundMetric]) -> AggregationOrFunction | None:
    """The aggregation that the metrics of a filter have for one of them."""
    aggregation = next((each.aggregation for each in metrics if each.name == metric), None)
    return AGGREGATIONS[aggregation] if isinstance(aggregation, str) else aggregation


Further = Generator[Sequence[Request], Sequence[Response], object]
"""Requests that follow the responses, round by round."""


def ask(requests: Sequence[Request]) -> Plan:
    """Ask everything at once; the responses are the answer."""
    return (yield requests)


def ask_about(requests: Sequence[Request], more: Callable[[Sequence[Response]], Further]) -> Plan:
    """Ask everything at once, and then what follows from the responses; all responses together are the answer."""
    responses = yield requests
    if any(isinstance(response, Failed) for response in responses):
        return responses
    answer, plan = list(responses), more(responses)
    try:
        further = next(plan)
        while True:
            replies = yield further
            answer += replies
            further = plan.send(replies)
    except StopIteration:
        return answer
