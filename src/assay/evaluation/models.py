"""Open the models of a run: the one under test, those with other roles, and whether a server still has the same model."""

import logging
import re
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from assay.ahead import Ahead
from assay.checks import Level, refuse
from assay.config.arguments import parse_arguments
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.run import RunConfig, options_where
from assay.config.serve_command import ServeCommand, found_program
from assay.engine.retry import retry_before_run
from assay.errors import ConfigError, Place, Problem, SelfExplanatory
from assay.evaluation.dispatch import run_async
from assay.evaluation.replicas import FleetOptions, fleet_options, open_model
from assay.models.load import backend, check_generation, load_model, loads_ahead, parameters
from assay.models.protocol import AnyModel, Remote, is_replicated
from assay.models.scripted import NoModel
from assay.models.servers.server_model import NONDETERMINISTIC, ServerModel
from assay.records import JSONDict, JSONObject, Message, Prompt
from assay.runs.folder import RunError, RunFolder
from assay.runs.run import Run
from assay.scoring.results import ModelRoles
from assay.scoring.scorer_models import models_of
from assay.tasks.preflight import MODEL_CHECKS, OpenModels, check_template
from assay.tasks.runnable import UNDER_TEST, Runnable
from assay.user_code import user_code

if TYPE_CHECKING:
    from assay.evaluation.prepare import PreparedRun


class ModelPool:
    """The models of a run by role. The model under test is opened when something first needs it: a chat template, the
    length of a prompt, or the first request; `opened` is empty until all of them are."""

    def __init__(
        self, config: RunConfig, model: AnyModel | None = None, roles: Mapping[str, AnyModel] | None = None
    ) -> None:
        self.config, self.roles = config, dict(roles or {})
        self.opened: dict[str, AnyModel] = {}
        self.renders = True
        """Whether prompts of a run with a chat template are rendered; otherwise they stay messages, which every model renders
        as it is asked."""
        self.answers_for_graphs = config.model_named or model is not None
        self._under_test = model
        self._of_caller = [model, *self.roles.values()]
        self._loading: Ahead[AnyModel] | None = None

    def load_ahead(self) -> None:
        """Begin to load the model under test in a thread, where it is named and its backend can."""
        config = self.config
        if self._under_test is not None or not config.model_named or config.dry_run or config.serve is not None:
            return
        arguments = parse_arguments(config.model_args, "model_args")
        is_fleet = fleet_options(config.model, arguments, FleetOptions.of_run(config))[1].replicas is not None
        if loads_ahead(config.model) and not is_fleet:
            self._loading = Ahead(_loaded(config))

    def under_test(self, tasks: Sequence[Runnable] = ()) -> AnyModel:
        """The model under test; a stand-in that is never asked where none of `tasks` needs a model and none was named."""
        if self._under_test is None:
            loading, self._loading = self._loading, None
            if loading is not None:
                self._under_test = next(loading)  # or what went wrong with it
            else:
                self._under_test = _unneeded(self.config, tasks) or model_under_test(self.config)
        return self._under_test

    def chat_template(self, messages: tuple[Message, ...], opened: bool) -> Prompt:
        return self.under_test().chat_template(messages, opened) if self.renders else messages

    def fits(self, texts: Sequence[str], generated: int) -> bool:
        """Whether prompts fit the model together with this many generated tokens."""
        model = self.under_test()
        if model.max_length is None:
            return True
        limit = model.max_length - generated
        return all(len(text.encode()) <= limit or (model.count_tokens(text) or 0) <= limit for text in texts)

    def open(self, tasks: Sequence[Runnable]) -> dict[str, AnyModel]:
        """Open the models of every role that the run or its tasks name, and refuse those that cannot do what is needed."""
        model = self.under_test(tasks)
        models = {UNDER_TEST: model, **role_models(self.config, self.roles, self._roles_of(tasks))}
        self.opened.update(models)  # first: `close` ends the replicas of a run that is refused, too
        refuse(MODEL_CHECKS, OpenModels(models, tasks, self.config), Level.BOUND)
        return models

    def close(self) -> None:
        """End the replicas and the servers of models that were opened for this run; those of the caller stay."""
        if self._loading is not None:
            self._loading.abandon()
        if isinstance(self._under_test, ServerModel) and self._under_test.managed is not None:
            self._under_test.managed.stop()
        for model in [self._under_test, *self.opened.values()]:
            if model is not None and is_replicated(model) and not any(model is each for each in self._of_caller):
                model.close()

    def _roles_of(self, tasks: Sequence[Runnable]) -> ModelRoles:
        """The roles that scorers ask, each with the model that a task names for it; None where the run names one."""
        named = {*(self.config.model_role or {}), *self.roles}
        asked = [task.facts.models for task in tasks]
        return models_of({role: None if role in named else model for role, model in each.items()} for each in asked)


def takes_messages(model: AnyModel) -> bool:
    """Whether a model is sent conversations as messages: its server has the chat template."""
    try:
        with user_code("the chat template"):
            return not isinstance(model.chat_template((Message("user", "Hello"),), True), str)
    except SelfExplanatory:  # it has none, or it refuses this conversation
        return False


def _unneeded(config: RunConfig, tasks: Sequence[Runnable]) -> AnyModel | None:
    """A stand-in for the model under test where no task asks it and the user named none."""
    if config.model_named or not tasks or any(task.needs() for task in tasks):
        return None
    roles = sorted({role for task in tasks for role in task.facts.models})
    return NoModel(" and ".join(roles) or "no model")


def open_models(prepared: "PreparedRun") -> dict[str, AnyModel]:
    """Open and check the models of a run; servers are greeted, and a folder's models must be those it was begun with."""
    config = prepared.config
    models = prepared.models.open(prepared.tasks)
    greet_models(models, config.output_path, force=config.force)
    if config.apply_chat_template:
        check_template(models[UNDER_TEST], prepared.tasks)
    needs = {need for task in prepared.tasks for need in task.needs()}
    for need, remark in getattr(models[UNDER_TEST], "remarks", {}).items():
        if need in needs:
            logging.getLogger("assay").warning(remark)
    return models


def check_model_options(config: RunConfig, model: AnyModel | None) -> None:
    """Refuse options that the model cannot take, as far as that is known before it is opened."""
    check_serve(config, model)
    if model is None:
        check_batch_size(config)
        check_fleet(config)
        check_generation(config.model, parse_arguments(config.gen_kwargs, "gen_kwargs"))
        return
    if config.replicas is not None and config.serve is None:
        what, fix = "a model object has no replicas", "give assay.Fleet(NAME, {…}, replicas=N) as the model"
        raise ConfigError.at("replicas", what, fix)
    if isinstance(config.apply_chat_template, str):
        use_template(model, config.apply_chat_template)


def check_fleet(config: RunConfig) -> None:
    """Refuse replicas that there cannot be: of a server, or without Ray."""
    if config.serve is not None:
        return
    arguments = parse_arguments(config.model_args, "model_args")
    if fleet_options(config.model, arguments, FleetOptions.of_run(config))[1].replicas is not None:
        from assay.fleet.replicas import check_backend

        check_backend(config.model)


def model_under_test(config: RunConfig) -> AnyModel:
    """Open the model under test, with the options of the run that are arguments of its backend."""
    arguments = parse_arguments(config.model_args, "model_args")
    if config.over_length == "truncate":
        if "over_length" not in parameters(backend(config.model)):
            what = f"model {config.model!r} cannot cut prompts itself"
            raise ConfigError.at("over_length", what, "leave it out, or use --over_length drop_shots")
        arguments.setdefault("over_length", "truncate")
    for name in options_where(lambda each: each.for_model):
        if getattr(config, name) and name in parameters(backend(config.model)):
            arguments.setdefault(name, getattr(config, name))
    model = _opened(config, arguments)
    if isinstance(config.apply_chat_template, str):
        use_template(model, config.apply_chat_template)
    return model


def _loaded(config: RunConfig) -> Generator[AnyModel]:
    """The model under test, loaded in a thread."""
    begin = getattr(backend(config.model), "begin_loading", None)
    if begin is not None:
        begin(**parse_arguments(config.model_args, "model_args"))
    yield model_under_test(config)


def _opened(config: RunConfig, arguments: YAMLMapping) -> AnyModel:
    """A model in this process, a fleet of it, or one behind servers that are started now."""
    if config.serve is None:
        return open_model(config.model, arguments, FleetOptions.of_run(config))
    if config.dry_run:  # nothing will be asked
        return load_model(config.model, {"model": "served", "base_url": "http://127.0.0.1:1/v1", **arguments})
    from assay.fleet.servers import load_served

    return load_served(config, arguments)


def check_serve(config: RunConfig, model: AnyModel | None) -> None:
    """Refuse --serve with a model that does not ask the servers it starts, and a command that is not on this machine."""
    if config.serve is None:
        return
    what = fix = ""
    program = ServeCommand.parse(config.serve).program
    if model is not None:
        what, fix = (
            "a model object has its own server",
            "give the name of a backend, such as openai, or leave serve out",
        )
    elif "base_url" not in parameters(backend(config.model)):
        what = f"model {config.model!r} does not ask a server"
        fix = "leave --model out, or give openai or openai-chat; --replicas alone starts copies of a local model"
    elif "base_url" in parse_arguments(config.model_args, "model_args"):
        what, fix = "base_url names a server that runs, and --serve starts one", "leave one of them out"
    elif config.ray in (None, "local") and found_program(program) is None:
        what, fix = f"no program {program!r} on this machine", "install it, or write its path"
    if what:
        raise ConfigError.at("serve", what, fix)


def check_batch_size(config: RunConfig) -> None:
    """Refuse a batch size that is neither a positive number nor auto."""
    arguments = parse_arguments(config.model_args, "model_args")
    for place, size in (("batch_size", config.batch_size), ("model_args.batch_size", arguments.get("batch_size"))):
        is_number = isinstance(size, int) and not isinstance(size, bool) and size > 0
        if size is not None and not is_number and not re.fullmatch(r"auto(:\d+)?", str(size)):
            raise ConfigError.at(place, f"must be a positive number or auto, got {size!r}", "write 8, auto or auto:4")


def use_template(model: AnyModel, name: str) -> None:
    """Select one of a model's chat templates by name."""
    if not model.can.named_templates:
        what = f"model {model.name!r} has no chat templates with names"
        raise ConfigError.at("apply_chat_template", what, "write --apply_chat_template without a name")
    model.use_template(name)  # type: ignore[union-attr]  # declared by `named_templates`


def parse_role(written: YAMLValue, role: str) -> tuple[str, dict[str, YAMLValue]]:
    """The backend of a role and its arguments: `openai,model=x,base_url=…`, or `{model:, model_args:}`.

    >>> parse_role("openai-chat,model=x", "judge")
    ('openai-chat', {'model': 'x'})
    """
    place = Place(f"model_role.{role}")
    if isinstance(written, Mapping):
        unknown = set(written) - {"model", "model_args"}
        if unknown or "model" not in written:
            raise ConfigError.at(place, "must name a model", "write {model: openai-chat, model_args: {…}}")
        return str(written["model"]), parse_arguments(written.get("model_args"), f"model_role.{role}")
    return split_model(str(written), f"model_role.{role}")


def split_model(written: str, where: str) -> tuple[str, dict[str, YAMLValue]]:
    """The backend and its arguments of a model that is written as one text."""
    name, _, rest = written.partition(",")
    return name.strip(), parse_arguments(rest, where)


def role_models(config: RunConfig, objects: Mapping[str, AnyModel], named_by_tasks: ModelRoles) -> dict[str, AnyModel]:
    """The models of all other roles: model objects of the caller, named by the run, or named by the tasks' scorers."""
    models: dict[str, AnyModel] = {}
    for role, written in (config.model_role or {}).items():
        if role == UNDER_TEST or not role.isidentifier():
            fix = "give a name such as judge; the model under test is --model"
            raise ConfigError.at("model_role", f"invalid role name {role!r}", fix)
        name, arguments = parse_role(written, role)
        models[role] = open_model(name, arguments, FleetOptions.of_role(config))
    models |= objects
    missing = [role for role, written in named_by_tasks.items() if written is None and role not in models]
    if missing:
        what = f"the tasks ask a model in the role {missing[0]!r}, and the run has none"
        fix = f"give --model_role {missing[0]}=openai-chat,model=…,base_url=…"
        raise ConfigError.at("model_role", what, fix)
    for role, written in named_by_tasks.items():
        if role not in models:
            models[role] = open_model(*parse_role(written, role), FleetOptions.of_role(config))
    return models


def served_facts(model: AnyModel) -> JSONDict:
    """The addresses of a served model and its response to the probe, for the manifest."""
    if not isinstance(model, ServerModel):
        return {}
    served = {"serve": model.managed.command} if model.managed is not None else {}
    return {"addresses": model.addresses, "probe": model.probed, **served}


def model_account(model: AnyModel) -> JSONDict:
    """For the results: the servers that the run started, and what a local model computed in a slower way after a failure."""
    if isinstance(model, ServerModel) and model.managed is not None:
        return {"servers": model.managed.usage()}
    fallbacks = getattr(model, "fallbacks", ())
    return {"fallbacks": list(fallbacks)} if fallbacks else {}


def greet_models(models: Mapping[str, AnyModel], folder: str | None, *, force: bool) -> None:
    """Greet the servers of a run; where its folder holds a run already, refuse models other than that run's."""
    for role, model in models.items():
        if isinstance(model, Remote):
            run_async(retry_before_run(model.greet, role))
    before = _manifest(folder)
    for role, model in models.items():
        noted = _noted(before, role)
        if not isinstance(model, ServerModel) or noted.get("identity") in (None, model.identity):
            continue
        recorded, said = str(noted["identity"]), (noted.get("probe") or {}).get("said")
        if isinstance(said, str):
            run_async(retry_before_run(partial(model.recognize, recorded, said), role))
        if model.identity != recorded and not force:
            raise RunError([_other_model(Path(str(folder)), role, noted, model)])


def note_addresses(folder: RunFolder, models: Mapping[str, AnyModel]) -> None:
    """Add the current addresses of a resumed run's models to its manifest."""
    for role, model in models.items():
        noted = _noted(folder.manifest, role)
        if isinstance(model, ServerModel) and noted:
            known = noted.get("addresses") or []
            noted["addresses"] = [*known, *(address for address in model.addresses if address not in known)]


def _manifest(folder: str | None) -> JSONObject:
    """The manifest of a folder, empty where it cannot be read: opening the folder reports why."""
    try:
        return Run.open(folder).manifest if folder is not None else {}
    except RunError:
        return {}


def _noted(manifest: JSONObject, role: str) -> JSONDict:
    model = manifest.get("model") if role == UNDER_TEST else (manifest.get("roles") or {}).get(role)
    return model if isinstance(model, dict) else {}


def _other_model(folder: Path, role: str, noted: JSONObject, model: ServerModel) -> Problem:
    now = f"{model.name} {model.model} at {', '.join(model.addresses)}"
    args = noted.get("args") or {}
    places = noted.get("addresses") or ["?"]
    before = f"{noted.get('name')} {args.get('model', '')} at {', '.join(map(str, places))}"
    said, says = (noted.get("probe") or {}).get("said"), model.probed["said"]
    probe = (
        f"; its response to the probe was {said!r:.100} and is now {says!r:.100}" if said not in (None, says) else ""
    )
    varies = (
        " (a model that does not repeat its response is identified by its address only)"
        if NONDETERMINISTIC in (said, says)
        else ""
    )
    what = f"the folder holds another run, of another {role}: {before} there, {now} here{probe}{varies}"
    fix = "start the server with the model of the run; or choose another --output_path, or --force to move the old run aside"
    return Problem(Place(str(folder)), what, fix)
