"""The models that the nodes of a graph ask: by role of the run, of a models.yaml, or the model under test."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.graphs.models_file import Entry, find_models_file, read_models
from assay.graphs.nodes import Asked
from assay.graphs.reading import GraphFile
from assay.graphs.spec import ModelConfig, StructuredOutput
from assay.graphs.structured import TYPES, Structure
from assay.records import LIMITS, Prompt
from assay.tasks.settings import GraphSettings, Helpers, Messages

UNDER_TEST = "model"
MAX_TOKENS = 2048
"""How much a node may write where its parameters do not say."""


@dataclass
class GraphModels:
    """Finds the model that a node means; `wanted` are those that the run must make, by role, as a run names them."""

    graph: GraphFile
    settings: GraphSettings
    helpers: Helpers
    gen_kwargs: Mapping[str, object]
    folder: str | None
    wanted: dict[str, object] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)
    """By role, what its model must be able to do."""

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return read_models(find_models_file(self.settings.models_file, self.folder))

    def asked(self, model: ModelConfig, place: Place, tools: Mapping[str, object] | None = None) -> Asked:
        """Whom a node asks, and how; `tools` are the parameters that tell of them."""
        role, parameters = self._role(model, place)
        self.needs.setdefault(role, set()).update({"generate", "chat", *(["tools"] if tools else [])})
        params: dict[str, object] = {**parameters, **model.parameters, **self.gen_kwargs, **(tools or {})}
        params.setdefault("until", params.pop("stop", None) or [])
        if not any(key in params for key in LIMITS):
            params["max_tokens"] = MAX_TOKENS
        structure = self._structure(model.structured_output, place)
        native = {**params, "response_format": structure.response_format} if structure is not None else params
        write, takes = self.settings.write, self.settings.takes_schema
        return Asked(role, native, params, lambda messages: write(role, messages), structure, lambda: takes(role))

    def weighed(self, model: ModelConfig, place: Place, *needs: str) -> tuple[str, Callable[[Messages], Prompt]]:
        """The role of a model that is asked for log-likelihoods, and what writes a conversation for it."""
        role, _ = self._role(model, place)
        self.needs.setdefault(role, set()).update(needs)
        write = self.settings.write
        return role, lambda messages: write(role, messages)

    def _role(self, model: ModelConfig, place: Place) -> tuple[str, dict[str, Any]]:
        """The role that a model has in the run, and the parameters that its entry gives it."""
        name = model.name
        plain = re.sub(r"\W", "_", name)
        given = next((each for each in (name, plain) if each in self.settings.roles), None)
        if given is not None:
            self.wanted[given] = None
            return given, {}
        if self.settings.whole:
            return UNDER_TEST, {}
        entry = self._entries.get(name)
        if entry is None and "model_type" in model.entry:
            entry = Entry(name, {}, place)
        if entry is None:
            return self._under_test(model, place)
        told = entry.but(model.entry).told()
        role = f"{name}-{digest(repr(told).encode())[:6]}" if model.entry else name
        self.wanted[role] = told
        return role, entry.parameters

    def _under_test(self, model: ModelConfig, place: Place) -> tuple[str, dict[str, Any]]:
        """The model of the run, for the one model of a graph that nobody says more about."""
        if model.entry:
            key = next(iter(model.entry))
            fix = f"add model_type:, or an entry {model.name!r} to models.yaml"
            raise ConfigError([Problem(place, f"{key!r} is said of a model that is not known", fix)])
        unknown = sorted({each.name for each in self._all() if each.name not in self._entries})
        if len(unknown) > 1:
            what = f"the graph asks several models ({', '.join(unknown)}), and nothing says which they are"
            fix = f"--model NAME for all of them, --model_role {unknown[0]}=… for one, or entries in models.yaml"
            raise ConfigError([Problem(place, what, fix)])
        return UNDER_TEST, {}

    def _all(self) -> Iterator[ModelConfig]:
        return (model for models in self.graph.models.values() for model in models.values())

    def _structure(self, told: StructuredOutput | None, place: Place) -> Structure | None:
        if told is None or not told.enabled:
            return None
        if isinstance(told.schema, str):
            kind = self.helpers.dotted(told.schema, self.folder, place)
            if not hasattr(kind, "model_json_schema"):
                fix = "name a class derived from pydantic.BaseModel, or write fields"
                raise ConfigError([Problem(place, f"{told.schema} is no pydantic class", fix)])
            return Structure.of_schema(kind.__name__, kind.model_json_schema())
        fields = told.schema.get("fields")
        unknown = [str(key) for key in told.schema if key not in ("name", "fields")]
        if unknown or not isinstance(fields, Mapping) or not fields:
            what = f"unknown key {unknown[0]!r} of a schema" if unknown else "a schema needs fields"
            fix = did_you_mean(unknown[0], ["name", "fields"]) if unknown else "write fields: {name: {type: str}}"
            raise ConfigError([Problem(place, what, fix)])
        for name, field_ in fields.items():
            kind = field_.get("type", "str") if isinstance(field_, Mapping) else None
            if kind not in TYPES:
                what = f"the field {name!r} has no type that is known: {kind!r}"
                raise ConfigError([Problem(place, what, did_you_mean(str(kind), TYPES))])
        return Structure.of_fields(str(told.schema.get("name", "answer")), fields)
