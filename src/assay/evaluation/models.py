"""The models of a run: the one under test, and those that have a role beside it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from assay.config.arguments import parse_arguments
from assay.config.run import RunConfig, options_where
from assay.errors import ConfigError, Place, Problem
from assay.models.load import backend, load_model, parameters
from assay.models.protocol import AnyModel, Remote
from assay.scoring.scorer import Scorer
from assay.tasks.preflight import MEANING

UNDER_TEST = "model"


def model_under_test(config: RunConfig) -> AnyModel:
    """The model that is evaluated, told how long prompts are to be treated."""
    arguments = parse_arguments(config.model_args, "model_args")
    if config.over_length == "truncate":
        if "over_length" not in parameters(backend(config.model)):
            what = f"model {config.model!r} cannot cut prompts itself"
            raise ConfigError([Problem(Place("over_length"), what, "leave it out, or take --over_length drop_shots")])
        arguments.setdefault("over_length", "truncate")
    for name in options_where(lambda each: each.for_model):
        if getattr(config, name) and name in parameters(backend(config.model)):
            arguments.setdefault(name, getattr(config, name))
    model = load_model(config.model, arguments)
    if isinstance(config.apply_chat_template, str):
        use_template(model, config.apply_chat_template)
    return model


def check_batch_size(config: RunConfig) -> None:
    """Refuse a number of requests at once that is none."""
    arguments = parse_arguments(config.model_args, "model_args")
    for place, size in (("batch_size", config.batch_size), ("model_args.batch_size", arguments.get("batch_size"))):
        is_number = isinstance(size, int) and not isinstance(size, bool) and size > 0
        if size is not None and not is_number and not re.fullmatch(r"auto(:\d+)?", str(size)):
            raise ConfigError([Problem(Place(place), f"cannot be {size!r}", "write a number from 1 on, or auto")])


def use_template(model: AnyModel, name: str) -> None:
    """Have a model use one of its chat templates, by name."""
    if not model.can.named_templates:
        what = f"model {model.name!r} has no chat templates with names"
        raise ConfigError([Problem(Place("apply_chat_template"), what, "write --apply_chat_template without a name")])
    model.use_template(name)  # type: ignore[union-attr]  # which is what it said it can


def parse_role(written: object, role: str) -> tuple[str, dict[str, Any]]:
    """The backend and its arguments that a role names: `openai,model=x,base_url=…`, or `{model:, model_args:}`.

    >>> parse_role("openai-chat,model=x", "judge")
    ('openai-chat', {'model': 'x'})
    """
    place = Place(f"model_role.{role}")
    if isinstance(written, Mapping):
        unknown = set(written) - {"model", "model_args"}
        if unknown or "model" not in written:
            raise ConfigError([Problem(place, "must name a model", "write {model: openai-chat, model_args: {…}}")])
        return str(written["model"]), parse_arguments(written.get("model_args"), f"model_role.{role}")
    name, _, rest = str(written).partition(",")
    return name.strip(), parse_arguments(rest, f"model_role.{role}")


def role_models(config: RunConfig, given: Mapping[str, AnyModel], wanted: Mapping[str, object]) -> dict[str, AnyModel]:
    """The models beside the one under test, by role: handed over as they are, named by the run, or by the tasks' scorers."""
    made: dict[str, AnyModel] = {}
    for role, written in (config.model_role or {}).items():
        if role == UNDER_TEST or not role.isidentifier():
            fix = "give a name such as judge; the model under test is --model"
            raise ConfigError([Problem(Place("model_role"), f"{role!r} is no name for a role", fix)])
        name, arguments = parse_role(written, role)
        made[role] = load_model(name, arguments)
    found = {**made, **given}
    lacking = [role for role, told in wanted.items() if told is None and role not in found]
    if lacking:
        what = f"the tasks ask a model in the role {lacking[0]!r}, and the run has none"
        fix = f"give --model_role {lacking[0]}=openai-chat,model=…,base_url=…"
        raise ConfigError([Problem(Place("model_role"), what, fix)])
    for role, told in wanted.items():
        if role not in found:
            found[role] = load_model(*parse_role(told, role))
    return found


def check_scorers(models: Mapping[str, AnyModel], scorers: Iterable[Scorer]) -> None:
    """Refuse models that cannot do what the scorers ask of their role."""
    for scorer in scorers:
        for role in () if scorer.members else scorer.models():
            if not getattr(models[role].can, scorer.asks_for):
                what = f"scorer {scorer.name!r} needs a model that can {MEANING[scorer.asks_for]}"
                fix = f"give the role {role!r} another model than {models[role].name!r}"
                raise ConfigError([Problem(Place(f"model_role.{role}"), what, fix)])


def labels(models: Mapping[str, AnyModel]) -> dict[str, str]:
    """What a person calls the model of each role."""
    return {role: f"{model.name} {getattr(model, 'model', '')}".strip() for role, model in models.items()}


def refuse_unpriced(models: Mapping[str, AnyModel], cost: float | None) -> None:
    """A limit of money needs prices: of every model that may cost some."""
    if cost is None:
        return
    missing = [
        role for role, model in models.items() if isinstance(model, Remote) and getattr(model, "price", None) is None
    ]
    if missing:
        where = "model_args" if missing[0] == UNDER_TEST else f"model_role {missing[0]}"
        what = f"what the model of {where} costs is not known"
        fix = "add price_in=… and price_out=… (money for a million tokens), or prices=FILE"
        raise ConfigError([Problem(Place("max_cost"), what, fix)])
