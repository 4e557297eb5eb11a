"""Model backends by name: a backend is a file and a row here."""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path

from assay.config.arguments import parse_arguments
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.task import GenerationParams
from assay.errors import ConfigError, Place, Problem, did_you_mean, nearest
from assay.extension_points import ExtensionPoint
from assay.models.lm_eval_names import OUR_WAY
from assay.models.local.generation import GENERATION_PARAMETERS
from assay.models.protocol import AnyModel, TokenizerAlone
from assay.models.scripted import METHODS, Scripted
from assay.redaction import reveal
from assay.registry import Registry, must_be_callable
from assay.signatures import Accepted, Where, accepted, names_only

COMPLETIONS, CHAT = "assay.models.servers.openai:OpenAI", "assay.models.servers.openai:OpenAIChat"
TRANSFORMERS = "assay.models.local.hf.backend:HF"
CLAUDE = "assay.models.servers.anthropic:Anthropic"
LITELLM = "assay.models.servers.litellm:LiteLLM"
_BUILT_IN: dict[str, Callable[..., AnyModel] | str] = {
    "dummy": "assay.models.scripted:Dummy",
    "embedded": "assay.models.local.embedded:Embedded",
    "hf": TRANSFORMERS,
    "hf-auto": TRANSFORMERS,
    "huggingface": TRANSFORMERS,
    "openai": COMPLETIONS,
    "openai-chat": CHAT,
    "local-completions": COMPLETIONS,
    "local-chat-completions": CHAT,
    "openai-completions": COMPLETIONS,
    "openai-chat-completions": CHAT,
    "anthropic": CLAUDE,
    "anthropic-chat": CLAUDE,
    "anthropic-chat-completions": CLAUDE,
    "litellm": LITELLM,
    "litellm-chat": LITELLM,
    "litellm-chat-completions": LITELLM,
    "vllm": "assay.models.local.vllm:VLLM",
    "reward-http": "assay.models.servers.reward:RewardHTTP",
    "reward-hf": "assay.models.local.hf.reward:RewardHF",
}


class _Backends(Registry[Callable[..., AnyModel], AnyModel]):
    """The backends of `--model`. A backend's parameters are its `--model_args`; a parameter `connection` means the
    arguments of every server."""

    word = "argument"

    def find(self, name: str, where: Where) -> Callable[..., AnyModel]:
        if name in OUR_WAY and name not in self:
            what = f"lm-eval's model {name!r} is not a backend here"
            raise ConfigError([Problem(Place("model"), what, OUR_WAY[name], cause=(self.kind, name))])
        if name not in self and not nearest(name, self.names(), count=1):
            fix = f"`assay ls models` lists the names; a model of the hub or a folder: --model hf --model_args pretrained={name}"
            raise ConfigError([Problem(Place("model"), f"no model named {name!r}", fix, cause=(self.kind, name))])
        return super().find(name, where)

    def accepts(self, member: Callable[..., AnyModel]) -> Accepted:
        takes = replace(accepted(member), instead=getattr(member, "unsupported_arguments", {}))
        if "connection" not in takes.named:
            return takes
        from assay.models.servers.server_model import Connection

        unsupported: frozenset[str] = getattr(member, "unsupported_connection", frozenset())
        own = {key: each for key, each in takes.named.items() if key not in ("connection", "identity_fields")}
        known = names_only(accepted(Connection)).named  # their types are checked when they are decoded
        return replace(takes, named=own | {key: each for key, each in known.items() if key not in unsupported})

    def fix_for_missing(self, name: str, key: str) -> str:
        return f"add it: {name},{key}=…, or --model_args {key}=…"


_IMPORTED: dict[object, tuple[str, ...]] = {
    TRANSFORMERS: (
        "torch",
        "transformers",
        "transformers.modeling_utils",
        "transformers.models.auto.modeling_auto",
        "assay.models.local.hf.runners",
    )
}
"""Modules that backends import when a model is loaded, where that takes seconds."""

BACKENDS = _Backends("model", _BUILT_IN, group="assay.models", adopt=must_be_callable)

IGNORED_BY_SERVERS = frozenset((
    "batch_size", "tokenized_requests", "add_bos_token", "trust_remote_code", "revision", "use_fast_tokenizer",
    "max_images", "eos_string", "tokenizer", "tokenizer_backend", "truncate",
))  # fmt: skip
"""Arguments of lm-eval's server models, which are ignored by a backend that has no argument of that name."""


def backend(name: str) -> Callable[..., AnyModel]:
    """Return the factory of a backend."""
    return BACKENDS.find(name, Place("model"))


def imported_by(name: str) -> tuple[str, ...]:
    """The modules that a backend imports when it loads a model, where that takes seconds."""
    return _IMPORTED.get(_BUILT_IN.get(name), ())


def loads_ahead(name: str) -> bool:
    """Whether a model of this backend can be loaded in a thread while its tasks are prepared."""
    return bool(getattr(backend(name), "loads_ahead", False))


def parameters(factory: Callable[..., AnyModel]) -> dict[str, YAMLValue]:
    """Return a backend's arguments with their defaults: `REQUIRED` for one without."""
    return {key: each.default for key, each in BACKENDS.accepts(factory).named.items()}


def check_arguments(name: str, arguments: YAMLMapping, place: Place | None = None) -> dict[str, YAMLValue]:
    """The arguments that a backend uses of these; refused, at `place`, if it does not have one or lacks a required one."""
    factory = backend(name)
    known = parameters(factory)
    is_served = "base_url" in known
    used = {
        key: value for key, value in arguments.items() if key in known or not (is_served and key in IGNORED_BY_SERVERS)
    }
    ignored: Mapping[str, str] = getattr(factory, "ignored_arguments", {})
    checked = {
        key: value for key, value in used.items() if key not in ignored and (value is not None or key not in known)
    }
    problems = BACKENDS.problems(name, BACKENDS.accepts(factory), checked, lambda key: place or _argument_place(key))
    if problems:
        raise ConfigError(problems)
    return reveal(used)


def load_model(name: str, arguments: YAMLMapping) -> AnyModel:
    """Load a model by the name of its backend and its arguments."""
    factory, used = backend(name), check_arguments(name, arguments)
    ignored: Mapping[str, str] = getattr(factory, "ignored_arguments", {})
    for key in [key for key in used if key in ignored]:
        logging.getLogger("assay").warning("%s=%s has no effect: %s", key, used.pop(key), ignored[key])
    if "base_url" not in parameters(factory):
        model = factory(**used)
        refuse_incomplete(model, f"model {name!r}")
        return model
    from assay.models.servers.secrets import refuse_malformed
    from assay.models.servers.server_model import Connection

    names = {each.name for each in fields(Connection)}
    own = {key: value for key, value in used.items() if key in names}
    refuse_malformed(own)
    problems: list[Problem] = []
    connection = decode(Connection, Fields.of(own, Origin("model_args")), problems)
    if problems or connection is None:
        raise ConfigError(problems)
    return factory(connection=connection, **{key: value for key, value in used.items() if key not in names})


MEMBERS = ("name", "identity", "can", "max_length", "chat_template", "count_tokens")
"""What every model has; one that is not behind a server has these, too:"""
IN_BATCHES = ("window", "answer")


_GIVE = "give the function to `super().__init__({name}=…)`"
SCRIPTED_POINT = ExtensionPoint(
    Scripted,
    dict.fromkeys(METHODS),
    ("name", "identity", "can", "window", "max_length"),
    {name: _GIVE.format(name=name) for name in ("generate", "loglikelihood", "loglikelihood_rolling")},
)
"""What users' classes of scripted models may define."""


def refuse_incomplete(model: object, about: str) -> None:
    """Refuse an object of a user's that lacks what a model has: the run would find out in its middle."""
    is_remote = _has(model, "ask") or _has(model, "joined")
    lacking = [name for name in (*MEMBERS, *(() if is_remote else IN_BATCHES)) if not _has(model, name)]
    if "identity" in lacking:
        raise ConfigError.at(
            "model", f"{model!r:.60} is neither a model nor the name of one", "give a name of `assay ls models`"
        )
    if lacking:
        fix = "define them as docs/models.md says, or derive the class from assay.Scripted"
        raise ConfigError.at("model", f"{about} has no {', '.join(lacking)}", fix)
    if isinstance(model, Scripted):
        SCRIPTED_POINT.refuse(model, Place("model"))


def _has(model: object, name: str) -> bool:
    """Whether there is such an attribute, without computing it."""
    passes_on = hasattr(type(model), "__getattr__")  # to a model that it wraps
    return passes_on or inspect.getattr_static(model, name, inspect.Parameter.empty) is not inspect.Parameter.empty


def load_tokenizer(name: str, arguments: YAMLMapping) -> TokenizerAlone | None:
    """The tokenizer of a model without its weights; None where the backend has none. One that is derived from another may
    render in its own way: what it inherits does not count."""
    factory = backend(name)
    if "tokenizer_alone" not in getattr(factory, "__dict__", {}):
        return None
    opened: TokenizerAlone = factory.tokenizer_alone(**check_arguments(name, arguments))  # type: ignore[attr-defined]
    return opened


def _argument_place(key: str) -> Place:
    return Place(f"model_args.{key}" if key else "model_args")


SERVER_PARAMETERS = frozenset((
    "stop", "stop_token_ids", "seed", "min_p", "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "length_penalty", "logit_bias", "response_format", "reasoning_effort", "ignore_eos", "chat_template_kwargs", "tools",
    "tool_choice", "thinking", "num_beams", "typical_p",
))  # fmt: skip
"""Generation parameters of servers, in addition to those of all models."""


def check_generation(name: str, params: GenerationParams) -> None:
    """Refuse generation parameters that the backend does not have. Servers may accept any: a likely typo is logged."""
    if not params:
        return
    known: frozenset[str] | None = getattr(backend(name), "generation", None)
    unknown = [
        key for key in params if key not in (GENERATION_PARAMETERS | SERVER_PARAMETERS if known is None else known)
    ]
    if known is None:
        for key in unknown:
            for near in nearest(key, GENERATION_PARAMETERS | SERVER_PARAMETERS, 1, only_slips=True):
                logging.getLogger("assay").warning(
                    "gen_kwargs: %r is passed to the server unchanged; did you mean %r?", key, near
                )
        return
    if unknown:
        what = "backend {!r} has no generation parameter {!r}"
        raise ConfigError(
            [Problem(Place("gen_kwargs"), what.format(name, key), did_you_mean(key, known)) for key in unknown]
        )


def token_counter(name: str, arguments: YAMLValue) -> Callable[[str], int] | None:
    """Return a function that counts tokens, if the model's tokenizer is available without the model."""
    from assay.models.local.embedded import BUNDLED
    from assay.models.tokenizer import FolderTokenizer

    parsed = parse_arguments(arguments, "model_args")
    folder = parsed.get("path", BUNDLED) if name == "embedded" else parsed.get("tokenizer")
    if _BUILT_IN.get(name) == TRANSFORMERS:
        folder = folder or parsed.get("pretrained")
        if not Path(str(folder)).expanduser().joinpath("tokenizer.json").is_file():  # a hub name, say
            return None
    if folder is None or parsed.get("tokenizer_backend") in ("tiktoken", "remote"):
        return None
    tokenizer = FolderTokenizer.load(str(folder))
    return lambda text: len(tokenizer.encode(text))
