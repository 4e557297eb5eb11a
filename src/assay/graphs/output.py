"""The last state of a record to what is written of it: checked, mapped, generated."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from assay.errors import ConfigError, Problem, did_you_mean
from assay.graphs.reading import GraphFile
from assay.graphs.spec import SchemaField
from assay.graphs.walk import NodeFailed, State
from assay.samples.rows import DataError
from assay.tasks.settings import Helpers
from assay.user_code import place_of, user_code

Finish = Callable[[State], Mapping[str, Any]]
CLASSES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "list": (list, tuple), "dict": (dict,),
    "tuple": (tuple, list), "set": (set,), "any": (object,),
}  # fmt: skip
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def make_finish(graph: GraphFile, helpers: Helpers, folder: str | None) -> Finish:
    """What makes the output of a state. What cannot work is raised before the first record."""
    checks, mapped = _schema(graph, helpers, folder), _output(graph, helpers, folder)

    def finish(state: State) -> Mapping[str, Any]:
        for check in checks:
            check(state)
        return mapped(state)

    return finish if checks else mapped


def _output(graph: GraphFile, helpers: Helpers, folder: str | None) -> Finish:
    config = graph.config.output_config
    constants = {name: _constant(graph, name) for name, field in graph.outputs.items() if _has_value(graph, name)}
    if config.generator is None:
        for name, field in graph.outputs.items():
            if field.transform is not None:
                place = graph.place("output_config", "output_map", name, "transform")
                raise ConfigError([Problem(place, "a transform is a method of the generator", "add generator:")])
        sources = {name: field.source for name, field in graph.outputs.items()}
        if not sources:
            return lambda state: {key: value for key, value in state.items() if not key.startswith("__")}
        return lambda state: {
            name: constants[name] if name in constants else state.get(str(source)) for name, source in sources.items()
        }
    place = graph.place("output_config", "generator")
    kind = helpers.dotted(config.generator, folder, place)
    if not hasattr(kind, "generate"):
        raise ConfigError(
            [Problem(place, f"{config.generator} has no `generate`", "derive it from BaseOutputGenerator")]
        )
    raw: Any = graph.fields["output_config"]
    for name, field in graph.outputs.items():
        if field.transform is not None and not hasattr(kind, field.transform):
            at = graph.place("output_config", "output_map", name, "transform")
            fix = did_you_mean(field.transform, dir(kind))
            raise ConfigError([Problem(at, f"{config.generator} has no method {field.transform!r}", fix)])
    written = {
        name: {**dict(rule), **({"value": constants[name]} if name in constants else {})}
        for name, rule in (config.output_map or {}).items()
        if isinstance(rule, Mapping)
    }
    with user_code(place_of("output_config.generator", kind), DataError):
        made = kind({**dict(raw), "output_map": written})

    def generated(state: State) -> Mapping[str, Any]:
        found = made.generate(state)
        if not isinstance(found, Mapping):
            raise NodeFailed(f"the generator gave {type(found).__name__} instead of a record")
        return found

    return generated


def _has_value(graph: GraphFile, name: str) -> bool:
    rule = (graph.config.output_config.output_map or {})[name]
    return isinstance(rule, Mapping) and "value" in rule


def _constant(graph: GraphFile, name: str) -> Any:
    """A value that is always the same; one that begins with `$` is looked up in the file."""
    value = graph.outputs[name].value
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    found: Any = dict(graph.fields)
    for key, number in _STEP.findall(value[1:]):
        try:
            found = found[int(number)] if number else found[key]
        except (KeyError, IndexError, TypeError):
            place = graph.place("output_config", "output_map", name, "value")
            known = [str(each) for each in found] if isinstance(found, Mapping) else []
            what = f"{value} leads nowhere: there is no {key or number!r}"
            raise ConfigError([Problem(place, what, did_you_mean(key, known) if known else "")]) from None
    return found


def _schema(graph: GraphFile, helpers: Helpers, folder: str | None) -> list[Callable[[State], None]]:
    config = graph.config.schema_config
    if config is None:
        return []
    made: list[Callable[[State], None]] = []
    for number, field in enumerate(config.fields):
        outer = field.type.partition("[")[0].strip().lower()
        if outer not in CLASSES:
            place = graph.place("schema_config", "fields", number, "type")
            raise ConfigError([Problem(place, f"no type is called {field.type!r}", did_you_mean(outer, CLASSES))])
        made.append(_check(field, CLASSES[outer]))
    if config.schema is not None:
        place = graph.place("schema_config", "schema")
        kind = helpers.dotted(config.schema, folder, place)
        if not hasattr(kind, "model_validate"):
            raise ConfigError([Problem(place, f"{config.schema} is no pydantic class", "derive it from BaseModel")])

        def validate(state: State) -> None:
            try:
                kind.model_validate(dict(state))
            except ValueError as error:
                raise NodeFailed(f"the record does not fit {kind.__name__}: {str(error).splitlines()[0]}") from error

        made.append(validate)
    return made


def _check(field: SchemaField, classes: tuple[type, ...]) -> Callable[[State], None]:
    def check(state: State) -> None:
        value = state.get(field.name)
        if not isinstance(value, classes) or (
            isinstance(value, bool) and bool not in classes and object not in classes
        ):
            raise NodeFailed(f"the record does not fit the schema: {field.name} is {value!r:.60}, no {field.type}")
        for rule, holds in (
            ("is_greater_than", field.is_greater_than is None or value > field.is_greater_than),  # type: ignore[operator]
            ("is_less_than", field.is_less_than is None or value < field.is_less_than),  # type: ignore[operator]
            ("is_equal_to", field.is_equal_to is None or value == field.is_equal_to),
        ):
            if not holds:
                raise NodeFailed(f"the record does not fit the schema: {field.name} is {value!r:.60} ({rule})")

    return check
