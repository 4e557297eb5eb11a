"""The whole flow, in the order it happens: tasks, data, model, requests, scores, numbers, files."""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from assay.compat.prepare import prepare_tasks
from assay.config.arguments import parse_arguments
from assay.config.run import RunConfig
from assay.engine import Budget, Ended, Engine, RequestCounts, ResponseStore, Started
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.conduct import fewer_collections, run_async
from assay.evaluation.graphs import graph_settings, label_of, nobody, read_inner
from assay.evaluation.models import (
    UNDER_TEST,
    check_batch_size,
    check_scorers,
    labels,
    model_under_test,
    refuse_unpriced,
    role_models,
    use_template,
)
from assay.evaluation.options import run_config, task_manager
from assay.evaluation.outcome import outcome
from assay.evaluation.recognition import introduced, note_addresses
from assay.evaluation.record import (
    config_section,
    facts,
    helper_digests,
    model_name,
    remembered,
    run_section,
    spec,
    task_facts,
)
from assay.evaluation.scoring import memories, processes
from assay.models.load import check_generation
from assay.models.protocol import AnyModel
from assay.records import Message, Prompt
from assay.registry import USED, load_plugins
from assay.runs.cache import Cache, Cached
from assay.runs.folder import RunFolder, Writer, open_run
from assay.runs.journal import Journal
from assay.runs.placing import folder_for
from assay.runs.results import troubles
from assay.runs.samples import Kept, lm_eval_records
from assay.samples.prompt import Chat
from assay.scoring.scorer import Scorer, models_of
from assay.tasks import TaskManager
from assay.tasks.documents import parse_shard
from assay.tasks.preflight import (
    check_model,
    check_over_length,
    check_roles,
    check_samples,
    ready_groups,
    refuse_unsafe,
)
from assay.tasks.run import TaskRun
from assay.tasks.settings import Settings, Shard

Watch = Callable[["Run"], None]
"""Told now and then how far a run is."""


def simple_evaluate(
    model: AnyModel | str, model_args: object = None, tasks: object = None, **options: Any
) -> dict[str, Any]:
    """Evaluate a model on tasks; the result is the content of results.json, with `samples` where they are logged.

    `model` is a model object or a name of `assay ls models`. `options` are those of lm-eval's function of this name, and
    `include_path`, `data_dir`, `compat`, `output_path`, `repeats`, `sample`, `force`, `max_failed`: see RunConfig.
    """
    if not isinstance(model, str) and not hasattr(model, "identity"):
        what, fix = f"{model!r:.60} is neither a model nor the name of one", "give a name of `assay ls models`"
        raise ConfigError([Problem(Place("model"), what, fix)])
    manager: TaskManager | None = options.pop("task_manager", None)
    options.pop("evaluation_tracker", None)  # what it would write is in the folder of the run
    roles = options.pop("model_role", None) or {}
    objects = {role: each for role, each in roles.items() if hasattr(each, "identity")}
    options["model_role"] = {role: each for role, each in roles.items() if role not in objects} or None
    given = {"log_samples": True, **options, "tasks": _listed(tasks), "model_args": model_args}
    config = run_config({**given, **({"model": model} if isinstance(model, str) else {})})
    about = {} if isinstance(model, str) else {"model": {"name": model.name, **getattr(model, "facts", {})}}
    run = Run(
        config,
        manager or task_manager(config, **about),
        None if isinstance(model, str) else model,
        keep_samples=config.log_samples,
        roles=objects,
    )
    run.prepare()
    results = run.execute()
    for line in troubles(results["assay"]):
        logging.getLogger("assay").warning(line)
    return results


def evaluate(lm: AnyModel, task_dict: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Evaluate a model on tasks that were loaded already: what `TaskManager.load` returns."""
    items = [*task_dict["tasks"].values(), *task_dict.get("groups", {}).values()]
    return simple_evaluate(lm, tasks=items, **{"fewshot_as_multiturn": False, **options})


def _listed(tasks: object) -> list[object]:
    return [tasks] if isinstance(tasks, str | Mapping) else list(tasks or [])  # type: ignore[call-overload]


@dataclass
class Run:
    """A run: what was asked for, and what has become of it so far."""

    config: RunConfig
    manager: TaskManager
    model: AnyModel | None = None
    watch: Watch | None = None
    keep_samples: bool = False
    roles: Mapping[str, AnyModel] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    loaded: Mapping[str, Any] = field(default_factory=dict)
    tasks: list[TaskRun] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    helper_files: list[Path] = field(default_factory=list)
    engine: Engine | None = None
    folder: RunFolder | None = None
    started: float = field(default_factory=time.time)
    _models: dict[str, AnyModel] = field(default_factory=dict)

    @property
    def like_lm_eval(self) -> bool:
        return self.config.compat == "lm-eval"

    def prepare(self) -> None:
        """Everything that can fail, before the model is loaded."""
        if self.model is None:
            check_batch_size(self.config)
            check_generation(self.config.model, parse_arguments(self.config.gen_kwargs, "gen_kwargs"))
        if self.model is not None and isinstance(self.config.apply_chat_template, str):
            use_template(self.model, self.config.apply_chat_template)
        self.loaded = self.manager.load(self.config.tasks)  # type: ignore[arg-type]  # checked there
        tasks = self.loaded["tasks"]
        refuse_unsafe(tasks.values(), confirmed=self.config.confirm_run_unsafe_code)
        check_samples(self.config.samples, tasks)
        prepared, self.broken, helper_files, resolve = prepare_tasks(
            tasks.values(), self._settings(), self.config, read_inner(self.manager)
        )
        self.helper_files = [*helper_files, *load_plugins(self.config.plugins)]
        if not prepared:
            wrong = [Problem(Place(f"task {name!r}"), reason) for name, reason in self.broken.items()]
            raise ConfigError(wrong or [Problem(Place("tasks"), "there is no task in what was named", "name another")])
        groups = self.loaded["groups"].values()
        if self.config.predict_only:
            for group in groups:
                group.config = dataclasses.replace(group.config, aggregate_metric_list=None, group_scorer=None)
        ready_groups(groups, prepared, resolve, lenient=self.like_lm_eval)
        self.tasks = [TaskRun(each) for each in prepared]

    def execute(self) -> dict[str, Any]:
        """Ask, score and count; the result is the content of results.json."""
        with processes(self._scorers()):
            return self._execute()

    def _execute(self) -> dict[str, Any]:
        models = {UNDER_TEST: self.ready_model(), **role_models(self.config, self.roles, self._wanted_models())}
        check_model(self.ready_model(), [run.runnable for run in self.tasks])
        check_scorers(models, self._scorers())
        check_roles(models, [run.runnable for run in self.tasks])
        check_over_length(self.ready_model(), self.config.over_length)
        self._models.update(models)
        refuse_unpriced(models, self.config.max_cost)
        introduced(models, self.config.output_path, force=self.config.force)
        self._tell_remarks()
        if self.config.output_path is None and self.config.runs_dir is None:
            with closing(Journal(None)) as journal:
                return self._work(models, journal)
        known = {run.runnable.task.name: task_facts(run.runnable) for run in self.tasks}
        code = helper_digests(self.helper_files)
        again = {**remembered(self.config, self.manager), "tasks": known, **({"helper_files": code} if code else {})}
        plugins = {"plugins": dict(USED)} if USED else {}
        noted = {**facts(self.config, models), **again, **plugins, **self.facts}
        made = spec(self.config, models, [run.runnable for run in self.tasks], self.helper_files)
        self.folder = open_run(self._place(made, models), made, noted, force=self.config.force)
        note_addresses(self.folder, models)
        with self.folder, memories(self._scorers(), self.folder.path):
            results = self._work(models, self.folder.journal)
            written = {key: value for key, value in results.items() if key != "samples"}
            self.folder.finish(written, results["assay"]["status"], dataclasses.asdict(self.counts))
        return results

    def _place(self, spec: Mapping[str, Any], models: Mapping[str, AnyModel]) -> Path:
        """The folder of this run: the one that was named, else one of its own."""
        if self.config.output_path is not None:
            return Path(self.config.output_path)
        assert self.config.runs_dir is not None, "there is a folder"
        model = model_name(self.config, models[UNDER_TEST])
        return folder_for(Path(self.config.runs_dir), spec, model, [str(each) for each in self.config.tasks])

    def _scorers(self) -> list[Scorer]:
        return list({id(scorer): scorer for run in self.tasks for scorer in run.runnable.scorers()}.values())

    def _wanted_models(self) -> dict[str, object]:
        """The models that scorers ask, by role."""
        named = {**(self.config.model_role or {}), **self.roles}
        asked = [run.runnable.models() for run in self.tasks]
        return models_of({role: None if role in named else told for role, told in each.items()} for each in asked)

    def _tell_remarks(self) -> None:
        """What is worth knowing about the model, for what these tasks ask of it."""
        needed = {need for run in self.tasks for need in run.runnable.needs}
        for need, remark in getattr(self.ready_model(), "remarks", {}).items():
            if need in needed:
                logging.getLogger("assay").warning(remark)

    def _work(self, models: Mapping[str, AnyModel], journal: Journal) -> dict[str, Any]:
        kept: dict[str, list[Kept]] = {}
        for run in self.tasks:
            self._keep_samples(run, kept)
        with fewer_collections():
            if self.config.use_cache is None:
                run_async(self._drive(models, journal))
            else:
                with closing(Cache(Path(self.config.use_cache))) as cache:
                    run_async(self._drive(models, Cached(journal, cache, labels(models))))
        return self._results(kept)

    def ready_model(self) -> AnyModel:
        if self.model is None:
            self.model = nobody(self.config, self.tasks) or model_under_test(self.config)
        return self.model

    @property
    def counts(self) -> RequestCounts:
        return self.engine.counts if self.engine is not None else RequestCounts()

    def _settings(self) -> Settings:
        config = self.config
        chat = Chat(
            self._template if config.apply_chat_template else None,
            config.fewshot_as_multiturn,
            config.system_instruction,
        )
        return Settings(
            num_fewshot=config.num_fewshot,
            repeats=config.repeats,
            gen_kwargs=parse_arguments(config.gen_kwargs, "gen_kwargs"),
            limit=config.limit,
            sample=config.sample,
            samples=config.samples,  # type: ignore[arg-type]  # check_samples has looked
            shard=parse_shard(config.shard),
            chat=chat,
            fewshot_seed=config.fewshot_random_seed,
            data_dir=config.data_dir,
            predict_only=config.predict_only,
            like_lm_eval=self.like_lm_eval,
            start=config.start_index,
            graphs=graph_settings(config, self._models, self.roles, whole=config.model_named or self.model is not None),
            fits=self._fits if config.over_length == "drop_shots" else None,
        )

    def _template(self, messages: tuple[Message, ...], opened: bool) -> Prompt:
        return self.ready_model().chat_template(messages, opened)

    def _fits(self, texts: Sequence[str], generated: int) -> bool:
        """Whether prompts are short enough for the model, with so many tokens to come."""
        model = self.ready_model()
        if model.max_length is None:
            return True
        room = model.max_length - generated
        return all(len(text.encode()) <= room or (model.count_tokens(text) or 0) <= room for text in texts)

    async def _drive(self, models: Mapping[str, AnyModel], memory: ResponseStore) -> None:
        """Ask everything; scores are noted as responses land."""

        def plans() -> Iterator[Started]:
            for run in self.tasks:
                name = run.runnable.task.name
                named = name.encode()
                for number, sample in run.samples():
                    yield Started(
                        (run, number, sample), b"%s\0%d" % (named, sample.doc_id), run.runnable.plan(sample), name
                    )

        def end(ended: Ended) -> None:
            run, number, sample = ended.what
            run.end(number, sample, ended.responses)

        budget = Budget(self.config.max_cost, self.config.max_time, self.config.max_failures)
        self.engine = Engine(models, memory, self._notice, budget, self.config.records_at_once)
        await self.engine.run(plans(), end)
        for run in self.tasks:
            run.finish()

    def _notice(self) -> None:
        if self.folder is not None:
            self.folder.beat_now_and_then(self._documents)
        if self.watch is not None:
            self.watch(self)

    def _documents(self) -> dict[str, int]:
        return {run.runnable.task.name: run.board.documents for run in self.tasks}

    def _results(self, kept: Mapping[str, Sequence[Kept]]) -> dict[str, Any]:
        """The numbers of every task and group, in lm-eval's layout, with our own account beside them."""
        results = outcome(self.tasks, self.loaded["groups"].values(), self.config, self.broken)
        account = results.pop("assay")
        if self.keep_samples:
            results["samples"] = {name: self._sample_log(name, several) for name, several in kept.items()}
        assert self.engine is not None, "the run is over"
        return {
            **results,
            "config": config_section(self.config, self.ready_model()),
            **run_section(self.config, self.ready_model(), self.started),
            "assay": {**account, **self._ending(account, self.engine)},
        }

    def _ending(self, account: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
        """What there is to tell of the run as a whole: what it took, and what ended it before its time."""
        told = engine.usage.to_json()
        stopped = engine.budget.ended and any("not_asked" in each for each in account["tasks"].values())
        ended = {"status": "partial", "ended": engine.budget.ended} if stopped else {"status": account["status"]}
        shard = self.config.shard
        part = {"status": "partial", "shard": {"part": shard, **ended}} if shard is not None else {}
        return {**ended, **part, **({"account": told} if told else {})}

    def _keep_samples(self, run: TaskRun, kept: dict[str, list[Kept]]) -> None:
        """Say what takes the samples of a task: the folder, the caller, both or nobody."""
        name = run.runnable.task.name
        takers: list[Callable[[Kept], None]] = []
        if self.keep_samples:
            takers.append(kept.setdefault(name, []).append)
        if self.folder is not None:
            keeper = self.folder.keeper(name, self.config.log_samples, partial(self._logged_id, name))
            takers.append(keeper.add)
            run.ended = keeper.end
        own = self._files(run)
        if own is not None:
            takers.append(own.add)
        if takers:
            run.keep = takers[0] if len(takers) == 1 else lambda each: [take(each) for take in takers]

    def _files(self, run: TaskRun) -> Writer | None:
        """The files that a task writes itself, in the folder of the run."""
        several = sum(each.runnable.task.graph is not None for each in self.tasks) > 1
        label = label_of(run, several, self.config.run_name)
        if self.folder is None:
            return run.runnable.files(None, self.started, label)
        made = run.runnable.files(self.folder.path, self.folder.manifest["created"], label)
        if made is not None:
            self.folder.keepers.append(made)
        return made

    def _sample_log(self, name: str, kept: Sequence[Kept]) -> list[dict[str, Any]]:
        """The samples of a task as lm-eval logs them: filter by filter."""
        records = [list(lm_eval_records(k, self._logged_id(name, n, k.sample.doc_id))) for n, k in enumerate(kept)]
        filters = max(map(len, records), default=0)
        return [several[number] for number in range(filters) for several in records if number < len(several)]

    def _logged_id(self, name: str, number: int, doc_id: int) -> int:
        """The number a document is logged under: its own; or lm-eval's, which takes `samples` in the order given."""
        asked: Any = (self.config.samples or {}).get(name)
        return _nth_asked(asked, number, parse_shard(self.config.shard)) if self.like_lm_eval and asked else doc_id


def _nth_asked(asked: Sequence[int], number: int, shard: Shard | None) -> int:
    """The number that was asked for as the n-th of this run, which may have every so many of them."""
    return int(asked[number if shard is None else shard.number - 1 + number * shard.of])
