"""lm-eval's registry: what a script registers is known to assay's registries, and so to every task file."""

from collections.abc import Callable
from typing import Any, TypeVar

from assay import plugins
from assay.compat.names import provided_modules
from assay.compat.registered import Registered

F = TypeVar("F", bound=Callable[..., Any])


class ScriptNames(Registered):
    """The registry of a script: names are entered into assay's registries, too."""

    __slots__ = ()

    def register_filter(self, name: str) -> Callable[[F], F]:
        return lambda item: plugins.filter(name)(super(ScriptNames, self).register_filter(name)(item))

    def register_aggregation(self, name: str) -> Callable[[F], F]:
        return lambda item: plugins.aggregation(name)(super(ScriptNames, self).register_aggregation(name)(item))

    def register_metric(self, **about: Any) -> Callable[[F], F]:
        """Register a metric function; lm-eval's keywords: metric, higher_is_better, output_type, aggregation."""
        types = about.get("output_type") or "generate_until"
        declare = plugins.metric(
            about["metric"],
            aggregation=about.get("aggregation") or "mean",
            higher_is_better=about.get("higher_is_better", True),
            output_type=types,
        )
        keep = super().register_metric(**about)
        return lambda item: declare(keep(item))


REGISTRY = ScriptNames()


def register_model(*names: str) -> Callable[[type], type]:
    """A decorator for a class of lm-eval's models, which can then be named with --model and in `simple_evaluate`."""

    def decorate(kind: type) -> type:
        from lm_eval import _models

        for name in names:
            _models.REGISTERED[name] = kind
            plugins.model(name)(_models.factory(kind))
        return kind

    return decorate


def get_model(model_name: str) -> type:
    """The class of a model by its name; a name that assay answers differently raises an error with the way."""
    from lm_eval import _models

    return _models.class_named(model_name)


def register_task(*names: str) -> Callable[[type], type]:  # noqa: ARG001
    """Refuse: tasks are found by their files."""
    raise ImportError(
        "a task class is named by a YAML file here: write `task: NAME` and `class: !function module.Class` into one, and give its"
        " folder as include_path"
    )


def _modules() -> dict[str, Any]:
    modules = provided_modules(REGISTRY, None)
    registry = {"register_model": register_model, "get_model": get_model, "register_task": register_task}
    modules["lm_eval.api.registry"].__dict__.update(registry)
    return {name: module for name, module in modules.items() if name.startswith("lm_eval.")}


MODULES = _modules()
"""Module objects of assay's `compat`, by dotted name."""
