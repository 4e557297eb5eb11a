"""Model names to models: a backend is a file and a row here."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.config.arguments import parse_arguments
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.models.protocol import AnyModel, Model


def _dummy() -> Model:
    """A model that knows nothing, for trying a set-up."""
    from assay.models.dummy import Dummy

    return Dummy()


def _embedded(path: str | None = None) -> Model:
    """The small model that comes with assay; or one of its kind in a folder."""
    from assay.models.embedded import Embedded

    return Embedded(path)


def _openai(chat: bool) -> Callable[..., AnyModel]:
    """A server that speaks OpenAI's protocol."""

    def make(  # noqa: PLR0913  # what lm-eval calls them
        model: str, base_url: str | Sequence[str] | None = None, num_concurrent: int = 32, timeout: float = 300.0,
        api_key: str | None = None, tokenizer: str | None = None, max_length: int | None = None,
        max_gen_toks: int | None = None, seed: int | None = None, header: Mapping[str, str] | None = None,
    ) -> AnyModel:  # fmt: skip
        from assay.models.openai import PUBLIC, OpenAI

        given = {"max_gen_toks": max_gen_toks} if max_gen_toks is not None else {}
        return OpenAI(
            model, base_url or PUBLIC, chat=chat, num_concurrent=num_concurrent, timeout=timeout, api_key=api_key,
            tokenizer=tokenizer, max_length=max_length, seed=seed, header=header, **given,
        )  # fmt: skip

    make.__doc__ = f"A server that speaks OpenAI's protocol: {'conversations' if chat else 'completions'}."
    return make


BACKENDS: dict[str, Callable[..., AnyModel]] = {
    "dummy": _dummy,
    "embedded": _embedded,
    "openai": _openai(chat=False),
    "openai-chat": _openai(chat=True),
    "local-completions": _openai(chat=False),
    "local-chat-completions": _openai(chat=True),
    "openai-completions": _openai(chat=False),
    "openai-chat-completions": _openai(chat=True),
}
"""What `--model` may name; the parameters of each function are its `--model_args`."""


def token_counter(name: str, arguments: object) -> Callable[[str], int] | None:
    """What counts the tokens of a text as a model does, where its tokenizer can be had without the model."""
    if name != "embedded":
        return None
    from tokenizers import Tokenizer

    from assay.models.embedded import BUNDLED

    path = parse_arguments(arguments, "model_args").get("path")
    tokenizer = Tokenizer.from_file(str(Path(str(path) if path else BUNDLED) / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def load_model(name: str, arguments: Mapping[str, Any]) -> AnyModel:
    """The model a name and its arguments mean."""
    if name not in BACKENDS:
        raise ConfigError([Problem(Place("model"), f"no model is called {name!r}", did_you_mean(name, BACKENDS))])
    factory = BACKENDS[name]
    known = inspect.signature(factory).parameters
    wrong = [
        Problem(
            Place("model_args"),
            f"model {name!r} has no argument {key!r}",
            did_you_mean(key, known) if known else "it takes none",
        )
        for key in arguments
        if key not in known
    ]
    wrong += [
        Problem(Place("model_args"), f"model {name!r} needs the argument {key!r}", f"add {key}=… to --model_args")
        for key, parameter in known.items()
        if parameter.default is parameter.empty and key not in arguments
    ]
    if wrong:
        raise ConfigError(wrong)
    return factory(**arguments)
