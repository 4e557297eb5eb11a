"""The models that the nodes of a graph ask: by role of the run, of a models.yaml, or the model under test."""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

from assay.config.source import Source, digest, read_bytes
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.graphs.nodes import NodeModel, Structure
from assay.graphs.reading import GraphFile
from assay.graphs.spec import ModelConfig, Record, StructuredOutput
from assay.graphs.sygra import clone_around
from assay.graphs.walk import NodeFailed
from assay.records import LIMITS, JSONDict, Prompt
from assay.redaction import reveal
from assay.samples.rows import DataError
from assay.scoring.helper_code import Helpers
from assay.scoring.results import ModelSpec
from assay.tasks.runnable import UNDER_TEST
from assay.tasks.settings import Messages, Settings
from assay.user_code import place_of, user_code

LOG = logging.getLogger("assay")
FILE = "models.yaml"
CUSTOM = "SYGRA_CUSTOM_MODELS_PATH"
NATIVE = ("openai", "vllm", "tgi")
"""Types that speak OpenAI's protocol."""
ANTHROPIC = "anthropic"
"""The type that speaks Anthropic's protocol. SyGra has none: it goes through proxies."""
PROXIES = {"claude_proxy": "anthropic", "gemini_proxy": "openai", "triton": "openai"}
"""Types of SyGra's with other protocols, and the type to try where the server speaks a known one."""
PREFIXES = {"azure_openai": "azure/", "mistralai": "mistral/", "ollama": "ollama_chat/", "vertex_ai": "vertex_ai/",
            "bedrock": "bedrock/", "azure": "azure_ai/"}  # fmt: skip
"""Types that LiteLLM speaks to, by what its names begin with."""
ARGUMENTS = {
    "url": "base_url", "auth_token": "api_key", "timeout": "timeout", "max_retries": "max_retries",
    "retry_attempts": "max_retries", "ssl_verify": "verify_certificate", "ssl_cert": "ca_cert_path",
    "num_concurrent": "num_concurrent", "price_in": "price_in", "price_out": "price_out", "api_version": "api_version",
}  # fmt: skip
"""Keys of an entry, and what our backends call them."""
KNOWN = ("model_type", "model", "model_serving_name", "parameters", "hf_chat_template_model_id", "completions_api",
         "post_process", "special_tokens")  # fmt: skip
IGNORED = ("backend", "delay", "load_balancing", "stats_interval", "name", "structured_output")
"""Keys that change nothing here."""
INERT = ("multi_modal", "image_capabilities")
"""Keys about pictures, which a note says change nothing."""
REFUSED = {
    "modify_tokenizer": "use a tokenizer folder instead", "chat_template_params": "use a server with that template",
    "input_type": "remove it: the model is asked with messages", "output_type": "remove it: the model is asked for text",
}  # fmt: skip
"""Keys that would change an answer and are not supported, with what to do instead."""
CLOUDS = ("aws_", "vertex_")
"""How keys begin that LiteLLM takes from the environment."""


@cache
def _note(text: str) -> None:
    """Say something once: the nodes of a graph are made more than once, and may have one model."""
    LOG.warning("%s", text)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model of models.yaml: its keys, and their place."""

    name: str
    keys: Record
    place: Place

    def but(self, keys: Record) -> "ModelEntry":
        """The same with other keys; mappings are put together one level deep, as SyGra does."""
        merged = dict(self.keys)
        for key, value in keys.items():
            known = merged.get(key)
            merged[key] = {**known, **value} if isinstance(known, Mapping) and isinstance(value, Mapping) else value
        return ModelEntry(self.name, merged, self.place)

    def backend(self) -> JSONDict:
        """The backend and its arguments, as a role of a run names them. What is wrong with the entry is raised."""
        problems = list(self._problems())
        if problems:
            raise ConfigError(problems)
        kind = str(self.keys["model_type"])
        named = str(self.keys.get("model_serving_name") or self.keys.get("model") or self.name)
        arguments = {ours: self.keys[key] for key, ours in ARGUMENTS.items() if self.keys.get(key) is not None}
        version = arguments.pop("api_version", None)  # of Azure's protocol
        if isinstance(arguments.get("api_key"), list):
            arguments["api_key"] = arguments["api_key"][0]
        backend = "openai-chat"
        if kind == ANTHROPIC:
            backend = "anthropic"
        elif kind in PREFIXES:
            backend, named = "litellm", PREFIXES[kind] + named
            arguments |= {"api_version": str(version)} if version is not None else {}
        elif self.keys.get("completions_api"):
            backend, tokenizer = "openai", self.keys.get("hf_chat_template_model_id")
            arguments = {**({"tokenizer": tokenizer} if tokenizer else {}), **arguments}
        return {"model": backend, "model_args": {"model": named, **arguments}}

    def _problems(self) -> Iterator[Problem]:
        for key, value in self.keys.items():
            if key in REFUSED and value not in (None, [], {}, ""):
                yield Problem(self.place, f"{key!r} of the model {self.name!r} is not supported", REFUSED[key])
            elif key in INERT:
                _note(f"{self.place}: {key} of the model {self.name!r} has no effect: messages are sent as they are")
            elif key not in (*ARGUMENTS, *KNOWN, *IGNORED, *REFUSED):
                fix = did_you_mean(str(key), [*ARGUMENTS, *KNOWN, *IGNORED])
                if str(key).startswith(CLOUDS):
                    fix = f"set {str(key).upper()} in the environment, where LiteLLM looks for it"
                yield Problem(self.place, f"unknown key {key!r} of the model {self.name!r}", fix)
        kind = self.keys.get("model_type")
        if kind not in (*NATIVE, ANTHROPIC, *PREFIXES):
            what = f"model_type {kind!r} of the model {self.name!r} is not supported" if kind else "needs model_type"
            fix = did_you_mean(str(kind), [*NATIVE, ANTHROPIC, *PREFIXES]) if kind else "write model_type: openai"
            if kind in PROXIES:
                fix = f"write model_type: {PROXIES[str(kind)]} if the server speaks that protocol"
            yield Problem(self.place, what, fix)
        elif kind in ("vllm", "tgi") and not self.keys.get("url"):
            fix = f"add url:, or set {variable(self.name, 'url')}"
            yield Problem(self.place, f"the model {self.name!r} has no url", fix)
        tokens = self.keys.get("auth_token")
        if isinstance(tokens, list) and len(set(map(str, tokens))) > 1:
            what = f"the model {self.name!r} has several tokens"
            yield Problem(self.place, what, "give one that all addresses accept")


def _without(text: str, marks: Sequence[str]) -> str:
    for mark in marks:
        text = text.replace(mark, "")
    return text


def variable(name: str, key: str) -> str:
    """The environment variable that says a key of a model.

    >>> variable("gpt-4o mini", "url")
    'SYGRA_GPT_4O_MINI_URL'
    """
    return f"SYGRA_{re.sub(r'[^A-Z0-9]', '_', name.upper())}_{key.upper()}"


def dotenv() -> dict[str, str]:
    """Return the values in `.env` of the working directory whose names begin with SYGRA_. The environment is stronger."""
    file, written = Path(".env"), ""
    if file.is_file():  # it may also be a folder with an environment of Python
        try:
            written = file.read_text("utf-8", "replace")
        except OSError as error:
            LOG.warning("%s: cannot be read: %s", file, error.strerror)
    matches = filter(None, map(_DOTENV.fullmatch, written.splitlines()))
    return {match[1]: match[3] if match[2] else match[4] for match in matches}


_DOTENV = re.compile(r"""\s*(?:export\s+)?(SYGRA_[^\s=]+)\s*=\s*(?:(["'])(.*)\2\s*(?:#.*)?|(.*?)\s*(?:(?<=\s)#.*)?)""")


def find_models_file(path: str | None, folder: str | None) -> list[Path]:
    """The files that say models, weakest first: one that is named, or those beside the graph and above it, and here."""
    named = os.environ.get(CUSTOM) or dotenv().get(CUSTOM)
    custom = [Path(named)] if named else []
    if path is not None:
        return [Path(path), *custom]
    here = Path.cwd()
    start = Path(folder).resolve() if folder is not None else here
    top = clone_around(start)
    above = [parent for parent in (start, *start.parents) if parent.is_relative_to(here)]
    tops = [folder / "sygra/config" for folder in (top, here) if folder is not None]
    places = [*tops, here / "config", *reversed(above), start]
    files = [place / FILE for place in dict.fromkeys(places) if (place / FILE).is_file()]
    return [*files, *custom]


def read_models(files: Sequence[Path]) -> dict[str, ModelEntry]:
    """The models of several files; of two with one name, the last counts. The environment says more of each."""
    models: dict[str, ModelEntry] = {}
    for file in files:
        try:
            source = Source(str(file), read_bytes(str(file)))
        except OSError as error:
            raise ConfigError.at(file, f"cannot be read: {error.strerror}", "check the path") from None
        if source.problems or not isinstance(source.value, Mapping):
            raise ConfigError(
                source.problems or [Problem(source.place(), "must be a mapping of models", "write name: {…}")]
            )
        for name, keys in source.value.items():
            if not isinstance(keys, Mapping):
                raise ConfigError.at(source.place((name,)), f"{name} must be a mapping", "write model_type: …")
            models[str(name)] = ModelEntry(str(name), keys, source.place((name,), key=True))
    starts = {start for name in models for start in _starts(name)}
    for variables in (dotenv(), os.environ):
        models = {name: entry.but(_of_environment(name, variables, starts)) for name, entry in models.items()}
    return models


def _starts(name: str) -> tuple[str, str]:
    """How the variables of a model begin: as a shell can write it, and as SyGra does."""
    return variable(name, ""), "SYGRA_" + re.sub(r"\s+", "_", name.upper()) + "_"


def _of_environment(name: str, variables: Mapping[str, str], starts: Collection[str]) -> JSONDict:
    """Return a model's keys from the environment; `|` separates values of a list. A variable is of the longest name."""
    keys: JSONDict = {}
    for start in _starts(name):
        for key, value in variables.items():
            longer = any(len(other) > len(start) and key.startswith(other) for other in starts)
            if key.startswith(start) and not longer:
                name_of_key = {"TOKEN": "auth_token"}.get(key[len(start) :], key[len(start) :].lower())
                keys[name_of_key] = value.split("|") if "|" in value else value
    return keys


MAX_TOKENS = 2048
"""How much a node may write where its parameters do not say."""


TOOL_CHOICES = ("auto", "none", "required")


def _tool_name(tool: object) -> str:
    """The name of a tool or of a choice of one, as OpenAI's protocol has them; empty where there is none."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


@dataclass
class GraphModels:
    """Finds the model that a node means; `backends` are those that the run must make, by role, as a run names them."""

    graph: GraphFile
    settings: Settings
    helpers: Helpers
    backends: dict[str, ModelSpec | None] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)
    """By role, what its model must be able to do."""

    @cached_property
    def _entries(self) -> dict[str, ModelEntry]:
        return read_models(find_models_file(self.settings.run.models_file, self.graph.folder))

    def generation_model(self, model: ModelConfig, place: Place, tools: Record | None = None) -> NodeModel:
        """Return the model of a node with its parameters; `tools` are the parameters that describe tools."""
        role, entry = self._role(model, place)
        parameters = entry.keys.get("parameters") if entry is not None else None
        self.needs.setdefault(role, set()).update({"generate", "chat", *(["tools"] if tools else [])})
        written = {
            **(parameters if isinstance(parameters, Mapping) else {}),
            **model.parameters,
            **self.settings.gen_kwargs,
        }
        params: dict[str, object] = {**({"tool_choice": "auto"} if tools else {}), **written, **(tools or {})}
        if params.get("tool_choice") is not None:
            params["tool_choice"] = self._tool_choice(params, place)
        params.setdefault("until", params.pop("stop", None) or [])
        if not any(key in params for key in LIMITS):
            params["max_tokens"] = MAX_TOKENS
        structure = self._structure(model.structured_output, place)
        native = {**params, "response_format": structure.response_format} if structure is not None else params
        graphs, clean = self.settings.graphs, self._cleaned(entry) if entry is not None else None
        return NodeModel(role, native, params, self._writer(role), structure, partial(graphs.takes_schema, role), clean)

    def _writer(self, role: str) -> Callable[[Messages], Prompt]:
        """The function that writes a conversation for the model of a role."""
        return partial(self.settings.graphs.write, role)

    def _tool_choice(self, params: Mapping[str, object], place: Place) -> object:
        """The choice as OpenAI's protocol has it; one that is invalid, or names a tool that the node does not have, is refused."""
        choice, tools = params["tool_choice"], params.get("tools")
        known = [_tool_name(tool) for tool in tools] if isinstance(tools, list | tuple) else []
        named = _tool_name(choice)
        if not known:
            what, fix = "tool_choice needs tools", "add `tools:` to the node, or remove it"
        elif isinstance(choice, str) and choice not in TOOL_CHOICES and choice not in known:
            what, fix = f"invalid tool_choice {choice!r}", did_you_mean(choice, [*TOOL_CHOICES, *known])
        elif not isinstance(choice, str) and named not in known:
            what = f"tool_choice must be {', '.join(TOOL_CHOICES)} or one of the node's tools, got {choice!r:.60}"
            fix = f"write {{type: function, function: {{name: {known[0]}}}}}"
        else:
            return {"type": "function", "function": {"name": choice}} if choice in known else choice
        raise ConfigError.at(place, what, fix)

    def _cleaned(self, entry: ModelEntry) -> Callable[[str], str] | None:
        """The function that an entry changes every answer of its model with: `special_tokens` and `post_process`."""
        marks = [str(each) for each in entry.keys.get("special_tokens") or ()]
        named = entry.keys.get("post_process")
        if not named:
            return (lambda text: _without(text, marks)) if marks else None
        kind = self.helpers.dotted(str(named), self.graph.folder, entry.place)
        apply = getattr(kind, "apply", None)
        if not isinstance(kind, type) or not callable(apply):
            raise ConfigError.at(entry.place, f"{named} has no `apply`", "name a class that changes a text")
        with user_code(place_of("post_process", kind), DataError):
            change = kind()

        def cleaned(text: str) -> str:
            with user_code(place_of("post_process", kind), NodeFailed):
                return str(change.apply(_without(text, marks)))

        return cleaned

    def likelihood_model(
        self, model: ModelConfig, place: Place, *needs: str
    ) -> tuple[str, Callable[[Messages], Prompt]]:
        """The role of a model that is asked for log-likelihoods, and what writes a conversation for it."""
        role, _ = self._role(model, place)
        self.needs.setdefault(role, set()).update(needs)
        return role, self._writer(role)

    def _role(self, model: ModelConfig, place: Place) -> tuple[str, ModelEntry | None]:
        """The role that a model has in the run, and its entry in models.yaml."""
        name = model.name
        for role in (name, re.sub(r"\W", "_", name)):
            if role in self.settings.graphs.roles:
                self.backends[role] = None
                return role, None
        if self.settings.graphs.whole:
            if model.entry.get("output_type") in ("audio", "image"):
                _note(f"{place}: output_type of {name!r} has no effect: the model is asked for text")
            return UNDER_TEST, None
        entry = self._entries.get(name)
        if entry is None and "model_type" in model.entry:
            entry = ModelEntry(name, {}, place)
        if entry is None:
            return self._under_test(model, place), None
        entry = entry.but(model.entry)
        backend = entry.backend()
        role = f"{name}-{digest(repr(reveal(backend)).encode())[:6]}" if model.entry else name
        self.backends[role] = backend
        return role, entry

    def _under_test(self, model: ModelConfig, place: Place) -> str:
        """The model of the run, for the one model of a graph without settings in models.yaml."""
        if model.entry:
            key = next(iter(model.entry))
            fix = f"add model_type:, or an entry {model.name!r} to models.yaml"
            raise ConfigError.at(place, f"{key!r} is set for an unknown model", fix)
        asked = {model.name for node in self.graph.nodes.values() for model in node.models.values()}
        unknown = sorted(asked - self._entries.keys())
        if len(unknown) > 1:
            what = f"the graph asks several models ({', '.join(unknown)}), and nothing defines them"
            fix = f"--model NAME for all of them, --model_role {unknown[0]}=… for one, or entries in models.yaml"
            raise ConfigError.at(place, what, fix)
        return UNDER_TEST

    def _structure(self, written: StructuredOutput | None, place: Place) -> Structure | None:
        if written is None or not written.enabled:
            return None
        if not isinstance(written.schema, str):
            return Structure.of_fields(written.schema.name, written.schema.fields)
        kind = self.helpers.dotted(written.schema, self.graph.folder, place)
        if not hasattr(kind, "model_json_schema"):
            fix = "name a class derived from pydantic.BaseModel, or write fields"
            raise ConfigError.at(place, f"{written.schema} must be a pydantic class", fix)
        return Structure(kind.__name__, kind.model_json_schema())
