"""A task bound to its data, its prompts, its filters and its metrics: all that can fail before the first request does so here."""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assay.config.option import YAMLMapping, YAMLValue
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Problem, did_you_mean
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    Document,
    Estimate,
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
    ScoreKey,
    limit_of,
    prompt_text,
)
from assay.runs.folder import SampleSink
from assay.samples.data import Split, columns_of, data_set
from assay.samples.prompt import Chat, Prompter, Question, RenderError
from assay.samples.rows import DataError
from assay.scoring.loop import AnsweredSample, ScoringLoop
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, ROLLING, Metric, ModelRoles, ScoreRules, grouped
from assay.scoring.scorer import Scorer, models_of
from assay.statistics.aggregations import AGGREGATIONS, Aggregation, known_aggregation
from assay.tasks.documents import Splits, count, evaluated_split, examples, read_run, walked
from assay.tasks.prompt_checks import check_prompts, check_right_choices, check_targets, check_templates
from assay.tasks.runnable import AggregationOrFunction, Estimator
from assay.tasks.scoring import answers_left, known_rows, placer, scoring
from assay.tasks.settings import Helpers, Settings, resolved
from assay.tasks.task import Task

LOOKED_AT = 3
"""Samples that are built before the run: a task of which none of them can be asked is broken."""
KINDS = {GENERATE: "generate", CHOICE: "loglikelihood", LIKELIHOOD: "loglikelihood", ROLLING: "rolling"}


def prepare(task: Task, settings: Settings, helpers: Helpers) -> "PreparedTask":
    """The task, ready to be run. What its file says wrongly is a ConfigError, what its data lacks a DataError."""
    config = resolved(task.config, helpers.resolve)
    if config.use_prompt is not None:
        place = task.fields.place("use_prompt", key=True)
        raise ConfigError([Problem(place, "use_prompt is not supported", "write doc_to_text and doc_to_target")])
    check_templates(task, config)
    config = with_settings(config, settings)
    key = next((key for key in ("dataset_kwargs", "dataset_path", "task") if key in task.fields), None)
    folder = task.fields.origin(key).folder if key is not None else None
    splits = Splits(
        data_set(
            config, folder=folder, data_dir=settings.run.data_dir, as_table=settings.like_lm_eval, read_run=read_run
        ),
        helpers.as_dataset,
    )
    scored = scoring(task, config, settings, helpers)
    prepared = _bound(task, config, splits, settings, scored)
    prepared.check_first()
    return prepared


def _bound(task: Task, config: TaskConfig, splits: Splits, settings: Settings, scored: ScoringLoop) -> "PreparedTask":
    shots = examples(config, config.num_fewshot or 0, splits, settings)
    process = config.process_docs if callable(config.process_docs) else None
    docs = splits.split(evaluated_split(config), process)
    if len(docs) == 0:
        raise DataError(f"the split {evaluated_split(config)!r} is empty")
    check_clusters(task, docs)
    check_columns(task, docs, scored)
    columns = columns_of(docs)
    check_prompts(task, config, columns, settings)
    prompter = Prompter(
        config,
        columns,
        shots,
        settings.chat,
        fits=_fitting(config, settings),
        strict=not settings.like_lm_eval,
        separates_system=not settings.like_lm_eval and not any(task.fields.origin(key).lenient for key in task.fields),
    )
    first = _look_at_first(config, prompter, docs)
    prompter.multiple_inputs = first.multiple_inputs
    has_targets = isinstance(first.target, list) and not (
        settings.like_lm_eval and not first.target
    )  # lm-eval: len([]) is 0
    check_targets(task, config, columns, settings, first.choices)
    scored = replace(scored, reading=scored.reading.but(multiple_targets=has_targets or config.multiple_targets))
    source = f"{splits.fingerprint(evaluated_split(config))} {task.fields.get('process_docs', '')}"
    return PreparedTask(task, config, settings, docs, prompter, scored, splits.fingerprint(), source)


class _First(NamedTuple):
    multiple_inputs: bool
    target: Any
    choices: Any


def _look_at_first(config: TaskConfig, prompter: Prompter, docs: Split) -> _First:
    """Return facts that the first document shows for all; of the first few, the first that can be rendered.

    Text, target and choices are rendered once and in this order, as by lm-eval: functions may draw random numbers.
    """
    problem: RenderError | None = None
    for doc in islice(docs, LOOKED_AT):
        try:
            is_multiple = has_multiple_inputs(config, prompter, doc)
            return _First(is_multiple, prompter.target(doc), prompter.choices(doc))
        except RenderError as error:
            problem = problem or error
    assert problem is not None, "a split has documents"
    raise problem


def check_clusters(task: Task, docs: Split) -> None:
    """Refuse a `cluster_by` column that the documents do not have."""
    column = task.config.cluster_by
    if column is not None and column not in columns_of(docs):
        what = f"the documents have no column {column!r} for cluster_by"
        raise ConfigError([Problem(placer(task, "cluster_by")(), what, did_you_mean(column, columns_of(docs)))])


def check_columns(task: Task, docs: Split, scored: ScoringLoop) -> None:
    """Refuse scorers that read a column which the documents do not have."""
    known = columns_of(docs)
    for _, scorer in scored.pipelines:
        for column in scorer.needs_columns:
            if column not in known:
                what = f"scorer {scorer.name!r} reads the column {column!r}, which the documents do not have"
                raise ConfigError([Problem(placer(task, "scorer")(), what, did_you_mean(column, known))])


def with_settings(config: TaskConfig, settings: Settings) -> TaskConfig:
    """The configuration under what the run says to every task."""
    number = config.num_fewshot
    if settings.run.num_fewshot is not None and not (settings.like_lm_eval and number == 0):
        number = settings.run.num_fewshot
    if config.output_type == ROLLING and not settings.like_lm_eval:  # a whole text has no examples before it
        number = 0
    repeats = (
        settings.run.repeats if settings.run.repeats is not None and config.output_type == GENERATE else config.repeats
    )
    params = config.generation_kwargs
    if config.output_type == GENERATE:
        params = generation_params(params, config.fewshot_delimiter, settings.gen_kwargs)
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

    def __post_init__(self) -> None:
        self._check_scores()

    @cached_property
    def original(self) -> int:
        return len(self.docs)

    @cached_property
    def size(self) -> int:
        return count(self.docs, self.task.name, self.settings)

    @property
    def is_batch(self) -> bool:
        return self.scoring.is_batch

    @property
    def repeats(self) -> int:
        return self.config.repeats

    @property
    def num_fewshot(self) -> int:
        return self.config.num_fewshot or 0

    @property
    def version(self) -> YAMLValue:
        return (self.config.metadata or {}).get("version", "Yaml")

    @property
    def needs(self) -> frozenset[str]:
        chat = {"chat"} if self.settings.chat.template is not None else set()
        return frozenset({KINDS[self.config.output_type], *chat})

    @property
    def multiple_targets(self) -> bool:
        return self.scoring.reading.multiple_targets

    def samples(self) -> Iterator[Sample]:
        """Yield the samples. Examples are drawn for all documents, also for those of other shards and those that are not
        asked about, so that prompts are those of a full run. lm-eval draws for the selected documents alone."""
        return self._samples(whole=self.draws and self.settings.run.compat != "lm-eval")

    def _samples(self, *, whole: bool) -> Iterator[Sample]:
        self.prompter.restart()
        for doc_id, doc, is_asked in walked(self.docs, self.task.name, self.settings, whole=whole):
            if not is_asked:
                self._pass_over(doc_id, doc)
                continue
            try:
                sample = self.sample(doc_id, doc)
            except RenderError as error:
                sample = Sample(doc_id, doc, (), None, None, problem=str(error))
            yield sample

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
        if kind == GENERATE:
            params = self.config.generation_kwargs or {}
            return [Generate(question.contexts[0], params, repeat) for repeat in range(self.config.repeats)]
        target = question.target
        if kind == LIKELIHOOD:
            return self._repeated([Loglikelihood(question.contexts[0], str(target))])
        if kind == ROLLING:
            return self._repeated([Rolling(str(target))])
        choices = question.choices
        if not isinstance(choices, list | tuple) or not all(isinstance(choice, str) for choice in choices):
            raise RenderError(f"doc_to_choice must be a list of texts, got {choices!r:.80}")
        delimiter = self._delimiter
        requests: list[Request]
        if self.prompter.multiple_inputs:  # the choice is in the context, and the same words follow each
            requests = [Loglikelihood(context, f"{delimiter}{target}") for context in question.contexts]
        else:
            context = question.contexts[0]
            requests = [Loglikelihood(context, f"{delimiter}{choice}") for choice in choices]
        if self._unconditional:
            requests += [Loglikelihood("", f"{delimiter}{choice}") for choice in choices]
        return self._repeated(requests)

    def _repeated(self, requests: list[Request]) -> list[Request]:
        return (
            [request for request in requests for _ in range(self.config.repeats)]
            if self.config.repeats > 1
            else requests
        )

    @cached_property
    def _delimiter(self) -> str:
        """The text between context and choice; after a chat template, only if a prefix does not end with a space."""
        prefix = self.config.gen_prefix
        if self.settings.chat.template is None or (prefix and not prefix[-1].isspace()):
            return self.config.target_delimiter
        return ""

    @cached_property
    def _unconditional(self) -> bool:
        return any(metric.name == "acc_mutual_info" for metric in self._metrics())

    def plan(self, sample: Sample) -> Plan:
        if not self.scoring.asks:
            return ask(sample.requests)
        return ask_about(sample.requests, lambda responses: self.scoring.verdict_plan(self.document(sample, responses)))

    def models(self) -> ModelRoles:
        return models_of(scorer.models() for _, scorer in self.scoring.pipelines)

    def role_needs(self) -> Mapping[str, frozenset[str]]:
        return {}

    def scorers(self) -> Sequence[Scorer]:
        return [each for _, scorer in self.scoring.pipelines for each in (scorer, *scorer.members)]

    def document(self, sample: Sample, responses: Sequence[Response]) -> AnsweredSample:
        own, verdicts = responses[: len(sample.requests)], responses[len(sample.requests) :]
        return AnsweredSample(
            sample, grouped(sample.requests, own, self.config.repeats), verdicts, self._question(sample.doc)
        )

    def _question(self, doc: Document) -> str:
        """Return the question of a document, for scorers that ask a model about the answer."""
        if not self.scoring.asks:
            return ""
        with preserved_random():
            return str(self.prompter.text(doc))

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        return self.scoring.score(documents)

    @property
    def parents(self) -> Mapping[str, str]:
        return self.scoring.parents

    def _metrics(self) -> Iterator[Metric]:
        return iter(self.scoring.metrics)

    def aggregation(self, row: ScoreKey) -> AggregationOrFunction | None:
        scorer = next((each for pipeline, each in self.scoring.pipelines if pipeline.name == row.filter), None)
        if scorer is None:
            return None
        own = scorer.aggregation(row.metric)
        if own is not None:
            return AGGREGATIONS[own]
        return _aggregation_of(scorer.parents.get(row.metric, row.metric), scorer.get_metrics(row.filter))

    def _check_scores(self) -> None:
        """Say to the loop of which rows scores must be numbers: of those that are averaged."""
        known: dict[tuple[str, str], bool] = {}

        def is_averaged(metric: str, filter_name: str) -> bool:
            if (metric, filter_name) not in known:
                aggregation = known_aggregation(self.aggregation(ScoreKey(metric, filter_name)))
                known[metric, filter_name] = isinstance(aggregation, Aggregation) and aggregation.of_numbers
            return known[metric, filter_name]

        def takes_nan(metric: str, filter_name: str) -> bool:
            """As lm-eval, whose mean of NaN is NaN; and an aggregation that is made for it."""
            aggregation = known_aggregation(self.aggregation(ScoreKey(metric, filter_name)))
            return self.settings.like_lm_eval or (
                isinstance(aggregation, Aggregation) and aggregation.name == "nanmean"
            )

        lenient = any(scorer.overwrites for _, scorer in self.scoring.pipelines)
        self.scoring = replace(self.scoring, rules=ScoreRules(is_averaged, lenient, takes_nan))

    def rows(self) -> frozenset[ScoreKey] | None:
        return known_rows(self.scoring)

    def answers(self) -> Mapping[str, int]:
        return answers_left(self.scoring, self.config)

    def higher_is_better(self) -> Mapping[str, bool | None]:
        known = {metric.name: metric.higher_is_better for metric in self._metrics()}
        known |= {row: metric.higher_is_better for metric in self._metrics() for row in metric.reductions.added}
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
        values = dict(self.task.fields) or {"task": self.task.name}
        described = {
            "num_fewshot": self.num_fewshot,
            "repeats": self.repeats,
            "generation_kwargs": self.config.generation_kwargs,
        }
        return {**values, **{key: value for key, value in described.items() if value is not None}}

    def check_first(self) -> None:
        """Build the first samples, to find out what cannot work; the chat template is left to when there is a model."""
        with preserved_random():
            bare = replace(
                self, prompter=replace(self.prompter, chat=Chat(system=self.prompter.chat.system), fits=None)
            )
            first = list(islice(bare._samples(whole=False), LOOKED_AT))
        if first and all(sample.problem for sample in first):
            raise RenderError(first[0].problem)
        own = self.config.process_results is not None or self.settings.run.predict_only or self.settings.like_lm_eval
        if self.config.output_type == CHOICE and not own:
            check_right_choices(self.scoring.reading, [sample for sample in first if not sample.problem])


def _aggregation_of(metric: str, metrics: Sequence[Metric]) -> AggregationOrFunction | None:
    """The aggregation that the metrics of a filter have for one of them."""
    aggregation = next((each.aggregation for each in metrics if each.name == metric), None)
    return AGGREGATIONS[aggregation] if isinstance(aggregation, str) else aggregation


@contextmanager
def preserved_random() -> Iterator[None]:
    """Restore the global random state on exit, whatever is drawn inside."""
    state, array = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(array)


def seed_random(seed: int | None, array_seed: int | None) -> None:
    """Begin the global streams at these seeds; None leaves one as it is."""
    if seed is not None:
        random.seed(seed)
    if array_seed is not None:
        np.random.seed(array_seed)


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


def generation_params(
    task: Mapping[str, object] | None, fewshot_delimiter: str, command: Mapping[str, object]
) -> dict[str, object]:
    """The parameters of generation: the task's, completed as lm-eval does, and over them the command line's."""
    if task is None:
        params: dict[str, object] = {
            "temperature": 0.0, "do_sample": False, "max_gen_toks": DEFAULT_MAX_GEN_TOKS, "until": [fewshot_delimiter],
        }  # fmt: skip
    else:
        params = dict(task)
        if "temperature" in params:
            params["temperature"] = float(str(params["temperature"]))
        params.setdefault("until", [fewshot_delimiter])
    return {**params, **command}
