"""vLLM's engine with a model of a folder or the hub; what cannot be is told before it starts."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import ConfigError, Place, Problem, installing


class Library(NamedTuple):
    """What is needed of vLLM: the engine, the parameters of sampling, and what is raised where either is told wrongly."""

    llm: Any
    sampling: Any
    errors: tuple[type[Exception], ...]


def library() -> Library:
    """vLLM, where it is installed."""
    try:
        from vllm import LLM, SamplingParams
    except ModuleNotFoundError:
        what, fix = "vllm is not installed", f"{installing('vllm')}, or ask its server: --model openai"
        raise ConfigError([Problem(Place("model"), what, fix)]) from None
    errors: tuple[type[Exception], ...] = (TypeError, ValueError)
    with suppress(ImportError):  # older ones raise ValueError
        from vllm.exceptions import VLLMError

        errors = (*errors, VLLMError)
    return Library(LLM, SamplingParams, errors)


def start(found: Library, model: str, told: Mapping[str, Any]) -> Any:
    """An engine at work; why it did not start is told in its words."""
    errors: tuple[type[Exception], ...] = (*found.errors, OSError, RuntimeError)
    try:
        return found.llm(model=model, **told)
    except errors as error:
        what = f"vllm does not start: {error}"
        raise ConfigError([Problem(Place("model_args"), what, "the lines above are vLLM's own account")]) from None


def tokenizer_of(name: str, told: Mapping[str, Any]) -> Any:
    """A tokenizer of transformers."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, **{key: value for key, value in told.items() if value is not None})
    except (OSError, ValueError) as error:
        what = f"there is no tokenizer in {name}: {str(error).strip().splitlines()[0]}"
        raise ConfigError([Problem(Place("model_args.tokenizer"), what, "name a folder, or one of the hub")]) from None


def folder_of(name: str, revision: str | None, what_for: str = "pretrained") -> Path:
    """Where a model lies: the folder itself, or what the hub has of that name, brought here."""
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=["*.pth", "original/*", "*.gguf"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        what = f"{name!r} is no folder here, and the hub does not give it: {str(error).strip().splitlines()[0]}"
        raise ConfigError(
            [Problem(Place(f"model_args.{what_for}"), what, "check the name, or give a folder")]
        ) from None


def refuse(parallel: int, model_len: int | None, length: int | None, *, enable_lora: bool, lora: str | None) -> None:
    """Arguments that cannot be, or not together."""
    if parallel != 1:
        what = f"one process has one engine, not {parallel}"
        fix = "run the parts of --shard 1/N to N/N in processes of their own, and `assay merge` them; or use tensor_parallel_size"
        raise ConfigError([Problem(Place("model_args.data_parallel_size"), what, fix)])
    if None not in (model_len, length) and model_len != length:
        what = f"max_model_len and max_length are the same thing, and here {model_len} and {length}"
        raise ConfigError([Problem(Place("model_args.max_length"), what, "give one of them")])
    if enable_lora and lora is None:
        what = "there is no adapter to enable"
        raise ConfigError(
            [Problem(Place("model_args.enable_lora"), what, "give lora_local_path=DIR, which enables it")]
        )
    if lora is not None and not Path(lora).is_dir():
        raise ConfigError([Problem(Place("model_args.lora_local_path"), f"there is no folder {lora}", "correct it")])
