"""Model names to models: a backend is a file and a row here."""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from assay.config.arguments import parse_arguments
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.errors import ConfigError, Place, Problem, did_you_mean, nearest
from assay.models.protocol import AnyModel
from assay.models.writing import KNOWN

COMPLETIONS, CHAT = "assay.models.openai:OpenAI", "assay.models.openai:OpenAIChat"
TRANSFORMERS = "assay.models.hf:HF"
CLAUDE = "assay.models.anthropic:Anthropic"
BACKENDS: dict[str, str | Callable[..., AnyModel]] = {
    "dummy": "assay.models.dummy:Dummy",
    "embedded": "assay.models.embedded:Embedded",
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
    "litellm": "assay.models.litellm:LiteLLM",
    "vllm": "assay.models.vllm:VLLM",
    "reward-http": "assay.models.reward_http:RewardHTTP",
    "reward-hf": "assay.models.reward_hf:RewardHF",
}
"""What `--model` may name: a class, or where it is. The parameters it is made with are its `--model_args`; one called
`connection` stands for those that every model behind a server has."""

MEANINGLESS = frozenset((
    "batch_size", "tokenized_requests", "add_bos_token", "trust_remote_code", "revision", "use_fast_tokenizer",
    "max_images", "eos_string", "tokenizer", "tokenizer_backend", "truncate",
))  # fmt: skip
"""Arguments that lm-eval's models behind servers have, and that change nothing where ours have none of that name."""


def backend(name: str) -> Callable[..., AnyModel]:
    """What makes the models of a name."""
    if name not in BACKENDS:
        raise ConfigError([Problem(Place("model"), f"no model is called {name!r}", did_you_mean(name, BACKENDS))])
    found = BACKENDS[name]
    if not isinstance(found, str):
        return found
    module, _, attribute = found.partition(":")
    made: Callable[..., AnyModel] = getattr(import_module(module), attribute)
    return made


def parameters(factory: Callable[..., AnyModel]) -> dict[str, Any]:
    """What a model may be told, by name, with what is meant where it is not: `inspect`'s `empty` where it must be."""
    known = {key: each.default for key, each in inspect.signature(factory).parameters.items()}
    if "connection" in known:
        from assay.models.served import Connection

        known.pop("connection")
        known.pop("telling", None)
        left_out: frozenset[str] = getattr(factory, "without", frozenset())
        known |= {each.name: each.default for each in fields(Connection) if each.name not in left_out}
    return known


def load_model(name: str, arguments: Mapping[str, Any]) -> AnyModel:
    """The model a name and its arguments mean."""
    factory = backend(name)
    known = parameters(factory)
    is_served = "base_url" in known
    given = {key: value for key, value in arguments.items() if key in known or not (is_served and key in MEANINGLESS)}
    idle: Mapping[str, str] = getattr(factory, "idle", {})
    for key in [key for key in given if key in idle]:
        logging.getLogger("assay").warning("no effect here: %s=%s, since %s", key, given.pop(key), idle[key])
    _refuse_wrong(name, given, known)
    if not is_served:
        return factory(**given)
    from assay.models.secrets import refuse_malformed
    from assay.models.served import Connection

    told = {each.name for each in fields(Connection)}
    problems: list[Problem] = []
    own = {key: value for key, value in given.items() if key in told}
    refuse_malformed(own)
    connection = decode(Connection, Fields.of(own, Origin("model_args")), problems)
    if problems or connection is None:
        raise ConfigError(problems)
    return factory(connection=connection, **{key: value for key, value in given.items() if key not in told})


def _refuse_wrong(name: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    instead: Mapping[str, str] = getattr(backend(name), "refused", {})
    wrong = [
        Problem(
            Place("model_args"),
            f"model {name!r} has no argument {key!r}",
            instead.get(key) or (did_you_mean(key, known) if known else "it takes none"),
        )
        for key in given
        if key not in known
    ]
    wrong += [
        Problem(
            Place("model_args"),
            f"model {name!r} needs the argument {key!r}",
            f"add it: {name},{key}=…, or --model_args {key}=…",
        )
        for key, default in known.items()
        if default is inspect.Parameter.empty and key not in given
    ]
    factory = backend(name)
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    wrong += [problem for key, value in given.items() if (problem := _mistyped(key, value, hints.get(key))) is not None]
    if wrong:
        raise ConfigError(wrong)


def _mistyped(key: str, value: Any, hint: Any) -> Problem | None:
    """What is wrong with the value of an argument whose type is a choice of words, or a plain one."""
    options = [each for part in (hint, *get_args(hint)) if get_origin(part) is Literal for each in get_args(part)]
    plain = [part for part in (hint, *get_args(hint)) if part in (bool, int, float, str)]
    place = Place(f"model_args.{key}")
    if options and value is not None and value not in options:
        return Problem(place, f"{value!r} is none of {', '.join(map(str, options))}", did_you_mean(str(value), options))
    fits = any(isinstance(value, part) and (part is bool or not isinstance(value, bool)) for part in plain)
    if plain and not options and value is not None and not fits and not (float in plain and isinstance(value, int)):
        return Problem(place, f"must be {' or '.join(part.__name__ for part in plain)}, not {value!r}", "correct it")
    return None


ELSEWHERE = frozenset((
    "stop", "stop_token_ids", "seed", "min_p", "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "length_penalty", "logit_bias", "response_format", "reasoning_effort", "ignore_eos", "chat_template_kwargs", "tools",
    "tool_choice", "thinking", "num_beams", "typical_p",
))  # fmt: skip
"""Parameters of a generation that servers know, beside those that all models do."""


def check_generation(name: str, params: Mapping[str, object]) -> None:
    """Refuse a parameter of generation that a model would not know. A server may know any: what looks like a slip is told."""
    if not params:
        return
    known: frozenset[str] | None = getattr(backend(name), "generation", None)
    unknown = [key for key in params if key not in (KNOWN | ELSEWHERE if known is None else known)]
    if known is None:
        for key in unknown:
            for near in nearest(key, KNOWN | ELSEWHERE, 1, floor=0.8):
                logging.getLogger("assay").warning("gen_kwargs: %r is passed on as it is; did you mean %r?", key, near)
        return
    if unknown:
        what = "model {!r} knows no parameter {!r} of a generation"
        raise ConfigError(
            [Problem(Place("gen_kwargs"), what.format(name, key), did_you_mean(key, known)) for key in unknown]
        )


def token_counter(name: str, arguments: object) -> Callable[[str], int] | None:
    """What counts the tokens of a text as a model does, where its tokenizer can be had without the model."""
    from assay.models.embedded import BUNDLED
    from assay.models.vocabulary import Vocabulary

    given = parse_arguments(arguments, "model_args")
    folder = given.get("path", BUNDLED) if name == "embedded" else given.get("tokenizer")
    if BACKENDS.get(name) == TRANSFORMERS:
        folder = folder or given.get("pretrained")
        if not Path(str(folder)).expanduser().joinpath("tokenizer.json").is_file():  # of the hub, say
            return None
    if folder is None or given.get("tokenizer_backend") in ("tiktoken", "remote"):
        return None
    words = Vocabulary.load(str(folder))
    return lambda text: len(words.encode(text))
