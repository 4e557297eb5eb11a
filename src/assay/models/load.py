"""Model names to models: a backend is a file and a row here."""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from assay.config.arguments import parse_arguments
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.errors import ConfigError, Place, Problem, did_you_mean, nearest
from assay.models.local.generation import KNOWN
from assay.models.protocol import AnyModel
from assay.registry import Accepted, Table, accepted, must_be_callable

COMPLETIONS, CHAT = "assay.models.servers.openai:OpenAI", "assay.models.servers.openai:OpenAIChat"
TRANSFORMERS = "assay.models.local.hf.backend:HF"
CLAUDE = "assay.models.servers.anthropic:Anthropic"
_BUILT_IN: dict[str, Callable[..., AnyModel] | str] = {
    "dummy": "assay.models.dummy:Dummy",
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
    "litellm": "assay.models.servers.litellm:LiteLLM",
    "vllm": "assay.models.local.vllm.backend:VLLM",
    "reward-http": "assay.models.servers.reward:RewardHTTP",
    "reward-hf": "assay.models.local.hf.reward:RewardHF",
}


class _Backends(Table[Callable[..., AnyModel], AnyModel]):
    """What `--model` may name. The parameters it is made with are its `--model_args`; one called `connection` stands for
    those that every model behind a server has."""

    word = "argument"

    def accepts(self, member: Any) -> Accepted:
        takes = replace(accepted(member), instead=getattr(member, "refused", {}))
        if "connection" not in takes.named:
            return takes
        from assay.models.servers.served import Connection

        left_out: frozenset[str] = getattr(member, "without", frozenset())
        own = {key: each for key, each in takes.named.items() if key not in ("connection", "telling")}
        shared = {
            each.name: inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default)
            for each in fields(Connection)  # their types are checked when they are decoded
            if each.name not in left_out
        }
        return replace(takes, named=own | shared)

    def fix_for_missing(self, name: str, key: str) -> str:
        return f"add it: {name},{key}=…, or --model_args {key}=…"


BACKENDS = _Backends("model", _BUILT_IN, group="assay.models", adopt=must_be_callable)

MEANINGLESS = frozenset((
    "batch_size", "tokenized_requests", "add_bos_token", "trust_remote_code", "revision", "use_fast_tokenizer",
    "max_images", "eos_string", "tokenizer", "tokenizer_backend", "truncate",
))  # fmt: skip
"""Arguments that lm-eval's models behind servers have, and that change nothing where ours have none of that name."""


def backend(name: str) -> Callable[..., AnyModel]:
    """What makes the models of a name."""
    return BACKENDS.find(name, Place("model"))


def parameters(factory: Callable[..., AnyModel]) -> dict[str, Any]:
    """What a model may be told, by name, with what is meant where it is not: `inspect`'s `empty` where it must be."""
    return {key: each.default for key, each in BACKENDS.accepts(factory).named.items()}


def load_model(name: str, arguments: Mapping[str, Any]) -> AnyModel:
    """The model a name and its arguments mean."""
    factory = backend(name)
    known = parameters(factory)
    is_served = "base_url" in known
    given = {key: value for key, value in arguments.items() if key in known or not (is_served and key in MEANINGLESS)}
    idle: Mapping[str, str] = getattr(factory, "idle", {})
    for key in [key for key in given if key in idle]:
        logging.getLogger("assay").warning("no effect here: %s=%s, since %s", key, given.pop(key), idle[key])
    said = {key: value for key, value in given.items() if value is not None or key not in known}
    problems = BACKENDS.problems(name, BACKENDS.accepts(factory), said, _argument_place)
    if problems:
        raise ConfigError(problems)
    if not is_served:
        return factory(**given)
    from assay.models.servers.secrets import refuse_malformed
    from assay.models.servers.served import Connection

    told = {each.name for each in fields(Connection)}
    own = {key: value for key, value in given.items() if key in told}
    refuse_malformed(own)
    connection = decode(Connection, Fields.of(own, Origin("model_args")), problems)
    if problems or connection is None:
        raise ConfigError(problems)
    return factory(connection=connection, **{key: value for key, value in given.items() if key not in told})


def _argument_place(key: str) -> Place:
    return Place(f"model_args.{key}" if key else "model_args")


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
    from assay.models.local.embedded import BUNDLED
    from assay.models.tokenizer import Vocabulary

    given = parse_arguments(arguments, "model_args")
    folder = given.get("path", BUNDLED) if name == "embedded" else given.get("tokenizer")
    if _BUILT_IN.get(name) == TRANSFORMERS:
        folder = folder or given.get("pretrained")
        if not Path(str(folder)).expanduser().joinpath("tokenizer.json").is_file():  # of the hub, say
            return None
    if folder is None or given.get("tokenizer_backend") in ("tiktoken", "remote"):
        return None
    words = Vocabulary.load(str(folder))
    return lambda text: len(words.encode(text))
