"""lm-eval's model classes both ways: a class written for lm-eval is asked by assay, and assay's backends have lm-eval's methods."""

import abc
import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.compat.task_base import Instance
from assay.errors import ConfigError
from assay.models.conversations import answer_rendered
from assay.models.lm_eval_names import OUR_WAY
from assay.models.load import BACKENDS, backend, load_model
from assay.models.protocol import Answered, AnyModel, Can, Remote
from assay.records import (
    Failed,
    Generate,
    Likelihood,
    Loglikelihood,
    Message,
    Request,
    Response,
    Rolling,
    Text,
    messages_to_plain,
)
from assay.records import arguments as request_arguments
from assay.user_code import UserCodeError, is_overridden, user_code
from lm_eval._utils import simple_parse_args_string

METHODS = {Loglikelihood: "loglikelihood", Generate: "generate_until", Rolling: "loglikelihood_rolling"}


class CacheHook:
    """Accepted and without effect: assay's --use_cache keeps responses of every model."""

    def __init__(self, cachinglm: object = None) -> None:
        self.dbdict = None

    def add_partial(self, attr: str, req: object, res: object) -> None:
        """Do nothing: the run keeps every response itself."""


class CachingLM:
    """Refused: responses are kept by the run, and shared between runs with use_cache."""

    def __init__(self, lm: object, cache_db: str) -> None:
        raise ImportError(
            f"responses are cached by assay: pass the model itself, with use_cache={cache_db!r} (a folder)"
        )


class LM(abc.ABC):
    """The base of a model written for lm-eval. A subclass defines the three methods for lists of requests."""

    def __init__(self) -> None:
        self._rank, self._world_size, self._device = 0, 1, None
        self.cache_hook = CacheHook(None)

    @abc.abstractmethod
    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations after contexts, and whether greedy decoding would give them."""

    @abc.abstractmethod
    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        """Log-likelihoods of whole texts."""

    @abc.abstractmethod
    def generate_until(self, requests: list[Any]) -> list[str]:
        """Texts after prompts, up to a stop string."""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        raise NotImplementedError(f"{type(self).__name__} must define apply_chat_template for --apply_chat_template")

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Mapping[str, Any] | None = None) -> "LM":
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None
    ) -> "LM":
        more = {key: value for key, value in (additional_config or {}).items() if value is not None}
        return cls(**{**arg_dict, **more})

    @property
    def device(self) -> Any:
        return self._device

    @property
    def rank(self) -> int:
        return getattr(self, "_rank", 0)

    @property
    def world_size(self) -> int:
        return getattr(self, "_world_size", 1)

    @property
    def tokenizer_name(self) -> str:
        return ""

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return ""

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        self.cache_hook = cache_hook


class TemplateLM(LM):
    """A model that scores tokens: a subclass defines `tok_encode`, `eot_token_id` and `_loglikelihood_tokens`."""

    tokenizer: Any = None
    backend = "causal"

    @property
    @abc.abstractmethod
    def eot_token_id(self) -> int: ...

    @property
    def prefix_token_id(self) -> int:
        return self.eot_token_id

    @abc.abstractmethod
    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]: ...

    @abc.abstractmethod
    def _loglikelihood_tokens(self, requests: list[Any], **kwargs: Any) -> list[tuple[float, bool]]: ...

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens of both; blanks at the end of the context belong to the continuation."""
        bare = context.rstrip()
        continuation, context = context[len(bare) :] + continuation, bare
        before = self.tok_encode(context)
        if self.backend != "causal":
            return before, self.tok_encode(continuation, add_special_tokens=False)
        return before, self.tok_encode(context + continuation)[len(before) :]

    def _without_context(self, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens of a text that nothing precedes but the prefix token, which it may begin with."""
        tokens = self.tok_encode(continuation, add_special_tokens=False)
        return ([self.prefix_token_id], tokens) if tokens[:1] != [self.prefix_token_id] else (tokens[:1], tokens[1:])

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        pairs = [request.args for request in requests]
        encoded = [
            ((context, text), *(self._encode_pair(context, text) if context else self._without_context(text)))
            for context, text in pairs
        ]
        return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)


class LMModel:
    """A model of lm-eval's kind as assay asks it: batches become lists of instances."""

    window = 16_384
    max_length: int | None = None

    def __init__(self, lm: LM, name: str | None = None) -> None:
        self.lm, self.name = lm, name or type(lm).__name__
        self.identity = f"lm_eval {type(lm).__module__}.{type(lm).__qualname__} {uuid.uuid4().hex}"
        has_template = hasattr(lm, "apply_chat_template")
        self.can = Can(chat=has_template and is_overridden(lm, "apply_chat_template", LM))

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return answer_rendered(requests, self.chat_template, self._answer) if self.can.chat else self._answer(requests)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        for kind, method in METHODS.items():
            numbers = [number for number, each in enumerate(requests) if isinstance(each, kind)]
            if numbers:
                yield list(zip(numbers, self._asked(method, [requests[number] for number in numbers]), strict=True))

    def _asked(self, method: str, requests: Sequence[Request]) -> list[Response]:
        instances = [
            Instance(method, {}, request_arguments(each), 0, ("", number, 1)) for number, each in enumerate(requests)
        ]
        try:
            with user_code(f"{self.name}.{method}"):
                found = list(getattr(self.lm, method)(instances))
        except UserCodeError as error:
            return [Failed(str(error))] * len(requests)
        if len(found) != len(requests):
            return [Failed(f"{self.name}.{method} returned {len(found)} of {len(requests)} answers")] * len(requests)
        return [Text(str(each)) if method == METHODS[Generate] else _likelihood(each) for each in found]

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        return self.lm.apply_chat_template(messages_to_plain(messages), add_generation_prompt=add_generation_prompt)

    def count_tokens(self, text: str) -> int | None:  # lm-eval's models need not count
        return None


def _likelihood(answer: Any) -> Likelihood:
    if isinstance(answer, tuple | list):
        return Likelihood(float(answer[0]), bool(answer[1]) if len(answer) > 1 else False)
    return Likelihood(float(answer), False)


CALLED_INSTEAD = (
    "derive it from lm_eval.api.model.TemplateLM or LM, or pass the model itself:"
    " HFLM(pretrained=MODEL, tokenizer=TOKENIZER)"
)


class BackendLM(LM):
    """A backend of assay with lm-eval's methods. Subclasses name the backend."""

    backend_name = ""
    unsupported = ("_model_call", "_model_generate", "_loglikelihood_tokens", "tok_encode", "tok_decode", "_create_model",
                   "_encode_pair", "model_generate_until")  # fmt: skip
    """Methods of lm-eval's classes that assay's backends do not call."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        parts = [name for name in cls.unsupported if name in cls.__dict__]
        if parts:
            what = (
                f"{cls.__name__} overrides {', '.join(parts)}, which assay's backend {cls.backend_name!r} does not call"
            )
            raise TypeError(f"{what} — {CALLED_INSTEAD}")

    def __init__(self, *names: Any, **arguments: Any) -> None:
        super().__init__()
        named = dict(zip(("pretrained", "backend"), names, strict=False)) if self.backend_name == "hf" else {}
        first = {"model" if self.backend_name != "vllm" else "pretrained": names[0]} if names and not named else named
        self.arguments = {**first, **arguments}
        self.assay_model = self._load(self.arguments)

    def _load(self, arguments: Mapping[str, Any]) -> AnyModel:
        return load_model(self.backend_name, dict(arguments))

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        answers = self._answers([Loglikelihood(*each.args) for each in requests])
        return [(each.value, each.greedy) for each in answers]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        return [each.value for each in self._answers([Rolling(each.args[0]) for each in requests])]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        return [each.text for each in self._answers([Generate(each.args[0], each.args[1], 0) for each in requests])]

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        messages = tuple(Message(each["role"], each["content"]) for each in chat_history)
        return str(self.assay_model.chat_template(messages, add_generation_prompt))

    def _answers(self, requests: Sequence[Request]) -> list[Any]:
        with ThreadPoolExecutor(1) as thread:  # the caller may be inside an event loop, as in a notebook
            answers = thread.submit(asyncio.run, _ask(self.assay_model, requests)).result()
        failed = next((each for each in answers if isinstance(each, Failed)), None)
        if failed is not None:
            raise RuntimeError(failed.reason)
        return answers

    @property
    def max_length(self) -> int | None:
        return self.assay_model.max_length


async def _ask(model: AnyModel, requests: Sequence[Request]) -> list[Response | None]:
    if isinstance(model, Remote):
        async with model:
            return list(await asyncio.gather(*(model.ask(each) for each in requests)))
    answers: list[Response | None] = [None] * len(requests)
    async for part in model.answer(requests):
        for number, response in part:
            answers[number] = response
    return answers


class HFLM(BackendLM):
    """A model of transformers: a name, a folder, or a model object with its tokenizer."""

    backend_name = "hf"

    def _load(self, arguments: Mapping[str, Any]) -> AnyModel:
        own = {key: _plain(value) for key, value in arguments.items()}
        if isinstance(own.get("pretrained"), str):
            return super()._load(own)
        return _live_model(own)

    @property
    def model(self) -> Any:
        return self.assay_model._loaded.model  # type: ignore[union-attr]

    @property
    def tokenizer(self) -> Any:
        return self.assay_model._loaded.tokenizer  # type: ignore[union-attr]

    @property
    def device(self) -> Any:
        return self.model.device


def _plain(value: Any) -> Any:
    """Torch's types and devices by their names."""
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def _live_model(arguments: Mapping[str, Any]) -> AnyModel:
    """The backend over a model object. Arguments that say how to load one have no effect on it."""
    from assay.models.local.hf.backend import HF

    model, tokenizer = arguments.get("pretrained"), arguments.get("tokenizer")
    if not hasattr(model, "config"):
        what = f"{model!r:.60} is not a model of transformers"
        fix = "give a name, a folder, or a PreTrainedModel; any other model: derive from lm_eval.api.model.LM"
        raise ConfigError.at("pretrained", what, fix)
    if tokenizer is None or isinstance(tokenizer, str):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(tokenizer or model.config.name_or_path)
    kept = ("batch_size", "max_batch_size", "max_length", "add_bos_token", "prefix_token_id", "think_end_token", "enable_thinking",
            "chat_template_args")  # fmt: skip
    return HF(model, tokenizer=tokenizer, **{key: arguments[key] for key in kept if arguments.get(key) is not None})


def _backend_class(name: str, backend_name: str) -> type[BackendLM]:
    return type(name, (BackendLM,), {"backend_name": backend_name, "__doc__": f"assay's backend {backend_name!r}."})


DummyLM = _backend_class("DummyLM", "dummy")
VLLM = _backend_class("VLLM", "vllm")
LocalCompletionsAPI = _backend_class("LocalCompletionsAPI", "local-completions")
LocalChatCompletion = _backend_class("LocalChatCompletion", "local-chat-completions")
OpenAICompletionsAPI = _backend_class("OpenAICompletionsAPI", "openai-completions")
OpenAIChatCompletion = _backend_class("OpenAIChatCompletion", "openai-chat-completions")
AnthropicChat = _backend_class("AnthropicChat", "anthropic-chat")
LiteLLMChatCompletion = _backend_class("LiteLLMChatCompletion", "litellm")

CLASSES = {each.backend_name: each for each in (
    HFLM, DummyLM, VLLM, LocalCompletionsAPI, LocalChatCompletion, OpenAICompletionsAPI, OpenAIChatCompletion, AnthropicChat,
    LiteLLMChatCompletion,
)}  # fmt: skip
REGISTERED: dict[str, type] = {}
"""Classes that scripts registered, by name."""
MODEL_MAPPING = {name: f"assay.models.load:{name}" for name in (*BACKENDS.names(), *OUR_WAY)}
"""Every name of lm-eval and assay; `get_model` gives the class, or the way to evaluate such a model."""


def class_named(name: str) -> type:
    """The class of a model: registered by a script, or over a backend."""
    if name in REGISTERED:
        return REGISTERED[name]
    factory = backend(name)
    same = next((each for key, each in CLASSES.items() if key == name or backend(key) is factory), None)
    return same or _backend_class(name, name)


def factory(kind: type) -> Callable[..., LMModel]:
    """The function that assay calls for a registered class: lm-eval's options are arguments, where the class takes them."""

    def make(**arguments: Any) -> LMModel:
        return LMModel(kind(**arguments), getattr(kind, "__name__", "lm"))

    make.__doc__ = kind.__doc__
    return make


def as_model(model: Any) -> Any:
    """A model as assay's functions take it: names stay, lm-eval's objects are adapted."""
    if isinstance(model, str) or (not isinstance(model, LM) and hasattr(model, "identity")):
        return model
    if not all(hasattr(model, method) for method in METHODS.values()):
        what = f"{model!r:.60} is neither a model nor the name of one"
        fix = "give a name, an HFLM, or an object of a class derived from lm_eval.api.model.LM"
        raise ConfigError.at("model", what, fix)
    if not isinstance(model, BackendLM):
        return LMModel(model)
    uncalled = [name for name in model.unsupported if name in vars(model)]
    if uncalled:
        what = (
            f"{', '.join(uncalled)} is set on the object, and assay's backend {model.backend_name!r} does not call it"
        )
        raise ConfigError.at("model", what, CALLED_INSTEAD)
    own = (*METHODS.values(), "apply_chat_template")
    return LMModel(model) if any(is_overridden(model, name, BackendLM) for name in own) else model.assay_model
