"""Loading of transformers models, from a folder or the hub to a device."""

import re
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from assay.ahead import Ahead
from assay.errors import ConfigError, installing
from assay.models.local.hf.adapters import check_adapter, merge_adapter
from assay.models.local.hf.devices import choose_device, input_device
from assay.models.local.loading import default_threads, fingerprint_folder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx")
"""Config keys of the context length."""
DEFAULT_LENGTH = 2048
UNLIMITED = 10**9
"""A tokenizer without a limit reports a larger number."""


@dataclass(frozen=True)
class HFOptions:
    """Options for loading, with lm-eval's argument names."""

    pretrained: Any  # a name, or a model object
    tokenizer: Any = None
    revision: str | None = None
    subfolder: str = ""
    dtype: str = "auto"
    device: str | None = None
    backend: Literal["default", "causal", "seq2seq"] = "default"
    peft: str | None = None
    parallelize: bool = False
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    gguf_file: str | None = None
    use_fast_tokenizer: bool = True
    add_bos_token: bool | None = None


@dataclass
class LoadedHFModel:
    """A loaded model with its tokenizer."""

    options: HFOptions
    model: Any
    tokenizer: Any
    is_seq2seq: bool
    fingerprint: Ahead[str] | None = None
    """Digest of its files, made by a thread while they are loaded."""

    @property
    def device(self) -> "torch.device":
        return input_device(self.model)

    @cached_property
    def identity(self) -> str:
        """Digest of its files; of a model passed as an object, of its weights."""
        options = self.options
        if not isinstance(options.pretrained, str):
            return _identity_of_object(self.model, self.tokenizer)
        return next(self.fingerprint) if self.fingerprint is not None else _fingerprint(options)

    def threads(self, count: int | None) -> int | None:
        """Number of torch threads: the argument, else the default on a CPU."""
        if count is not None or self.device.type != "cpu":
            return count
        import torch

        return default_threads(self.model.num_parameters(), torch.get_num_threads())

    def max_length(self) -> int:
        config = self.model.config.get_text_config()
        known = [getattr(config, key, None) for key in LENGTHS]
        length = next((length for length in known if length and length > 0), None)  # XLNet's is -1: no limit
        tokenizer_length = getattr(self.tokenizer, "model_max_length", None)
        if length is None and tokenizer_length is not None and tokenizer_length < UNLIMITED:
            length = tokenizer_length
        return int(length or DEFAULT_LENGTH)


def load_hf(options: HFOptions, fingerprint: Ahead[str] | None = None) -> LoadedHFModel:
    """Load a model onto its device, ready for inference."""
    _, transformers = import_libraries()
    if not isinstance(options.pretrained, str):
        model = options.pretrained.eval()
        if options.tokenizer is None or isinstance(options.tokenizer, str):
            raise TypeError("a model passed as an object needs its tokenizer: pass tokenizer=")
        return LoadedHFModel(options, model, options.tokenizer, bool(model.config.is_encoder_decoder))
    common = _common(options)
    _refuse_pickle(options)
    if options.peft is not None:
        check_adapter(options.peft, allow_pickle=options.allow_pickle)
    fingerprint = fingerprint or fingerprint_ahead(options)
    is_seq2seq = _is_seq2seq(options, common)
    kind = transformers.AutoModelForSeq2SeqLM if is_seq2seq else transformers.AutoModelForCausalLM
    device = choose_device(options.device, parallelize=options.parallelize)
    model_args = {
        dtype_argument(): _dtype(options.dtype),
        "use_safetensors": None if options.allow_pickle or options.gguf_file else True,
        **({"attn_implementation": options.attn_implementation} if options.attn_implementation else {}),
        **({"device_map": "auto"} if options.parallelize else {}),
    }
    model = _on_device(kind, options, common | model_args, device)
    return LoadedHFModel(options, model.eval(), _tokenizer(options, common), is_seq2seq, fingerprint)


def _on_device(kind: Any, options: HFOptions, arguments: dict[str, Any], device: "torch.device") -> Any:
    """Read the weights straight onto a GPU where that is possible; else into memory first."""
    is_plain = options.peft is None and options.gguf_file is None and not options.parallelize
    if is_plain and device.type == "cuda" and find_spec("accelerate") is not None:
        with suppress(ConfigError, AssertionError):  # the way below says what is wrong, with the weights or the device
            return _from_pretrained(kind, options.pretrained, arguments | {"device_map": {"": device}})
    model = _from_pretrained(kind, options.pretrained, arguments)
    if options.peft is not None:
        model = merge_adapter(model, options.peft, options.pretrained, allow_pickle=options.allow_pickle)
    return model if options.parallelize else _moved(model, device)


_BEGUN: dict[HFOptions, Ahead[str]] = {}
"""Digests that are computed already, for models that will be loaded."""


def begin_fingerprint(options: HFOptions) -> None:
    """Begin to compute the digest of a model's files before anything else of it is loaded."""
    begun = fingerprint_ahead(options)
    if begun is not None:
        _BEGUN[options] = begun


def fingerprint_ahead(options: HFOptions) -> Ahead[str] | None:
    """The digest of a model's files by a thread, which needs no torch; None if the files are not here yet."""
    if isinstance(options.pretrained, str) and options in _BEGUN:
        return _BEGUN.pop(options)
    named = _named_folders(options)
    if not named or not all(Path(name).expanduser().is_dir() for name in named):
        return None

    def digest() -> Generator[str]:
        yield _fingerprint(options)

    return Ahead(digest())


def _fingerprint(options: HFOptions) -> str:
    return fingerprint_folder(*dict.fromkeys(_folder(name, options).resolve() for name in _named_folders(options)))


def _named_folders(options: HFOptions) -> list[str]:
    return [each for each in (options.pretrained, options.tokenizer, options.peft) if isinstance(each, str)]


def load_hf_tokenizer(options: HFOptions) -> tuple["PreTrainedTokenizerBase", bool]:
    """Load the tokenizer alone, from files of this machine, and whether the model has an encoder."""
    common = _common(options) | {"local_files_only": True}
    return _tokenizer(options, common), _is_seq2seq(options, common)


def _common(options: HFOptions) -> dict[str, Any]:
    """Arguments of every part of a model."""
    common: dict[str, Any] = {"trust_remote_code": options.trust_remote_code, "revision": options.revision or "main"}
    if options.subfolder:
        common["subfolder"] = options.subfolder
    if options.gguf_file:
        common["gguf_file"] = options.gguf_file
    return common


def _is_seq2seq(options: HFOptions, common: dict[str, Any]) -> bool:
    from transformers import AutoConfig

    config = _from_pretrained(AutoConfig, options.pretrained, common)
    return options.backend == "seq2seq" or (options.backend == "default" and bool(config.is_encoder_decoder))


def _tokenizer(options: HFOptions, common: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    begins = {} if options.add_bos_token is None else {"add_bos_token": options.add_bos_token}
    arguments = common | {"use_fast": options.use_fast_tokenizer} | begins
    return _from_pretrained(AutoTokenizer, options.tokenizer or options.pretrained, arguments)


def import_libraries(name: str = "hf", begin: Callable[[], None] | None = None) -> tuple[ModuleType, ModuleType]:
    """Import torch and transformers; `begin` is called in between."""
    try:
        import torch

        if begin is not None:
            begin()
        import transformers
    except ModuleNotFoundError as error:
        what = f"model {name!r} needs {error.name}, which is not installed"
        raise ConfigError.at("model", what, installing("hf")) from None
    bars: Any = transformers.utils.logging
    bars.disable_progress_bar()  # a run has its own progress line
    return torch, transformers


def _from_pretrained(kind: Any, name: str, arguments: dict[str, Any]) -> Any:
    """Load by name; raise a ConfigError with transformers' message if that fails."""
    from safetensors import SafetensorError

    is_path = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1
    if is_path and not Path(name).expanduser().exists():
        what, fix = (
            f"no folder named {name!r}",
            "give a folder with config.json and weights, or a hub name: owner/name",
        )
        raise ConfigError.at("model_args.pretrained", what, fix)
    try:
        return kind.from_pretrained(
            str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name, **arguments
        )
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError) as error:
        # transformers ends with an address on the hub, which it makes up for a folder
        message = re.sub(r"\s*Checkout 'https?://[^']*'.*", "", str(error).strip()).splitlines()
        what = f"{name!r} cannot be loaded: {message[0] if message else type(error).__name__}"
        raise ConfigError.at("model_args.pretrained", what, _remedy(str(error))) from None


def _remedy(message: str) -> str:
    if "trust_remote_code" in message:
        return "the model needs its own code: add trust_remote_code=true if you trust it"
    if "accelerate" in message:
        return "pip install accelerate"
    if "safetensors" in message:
        return "its weights are pickled: convert them to safetensors, or add allow_pickle=true if you trust them"
    return "give a folder with config.json and weights, or an existing hub name"


def _refuse_pickle(options: HFOptions) -> None:
    folder = Path(options.pretrained).expanduser()
    if options.allow_pickle or options.gguf_file or not folder.is_dir():
        return
    inside = folder / options.subfolder
    if any(inside.glob("*.bin")) and not any(inside.glob("*.safetensors")):
        what = f"the weights in {options.pretrained!r} are pickled, and loading them can run code"
        raise ConfigError.at("model_args.pretrained", what, _remedy("safetensors"))


def start_device(options: HFOptions) -> None:
    """Let a thread start the GPU of a model, which takes a second, while other modules are imported."""
    import torch

    device = choose_device(options.device, parallelize=options.parallelize)
    if device.type != "cuda" or options.parallelize:
        return

    def start() -> Generator[None]:
        with torch.inference_mode():  # whatever fails here is reported when the model is loaded
            some = torch.ones(64, 64, device=device, dtype=torch.bfloat16)
            (some @ some).sum().item()
        yield

    Ahead(start())


def _moved(model: "PreTrainedModel", device: "torch.device") -> "PreTrainedModel":
    try:
        moved: PreTrainedModel = model.to(device)  # type: ignore[arg-type]  # transformers declares another type
    except (RuntimeError, AssertionError) as error:  # torch without CUDA raises an AssertionError
        what = f"the model cannot be moved to {str(device)!r}: {str(error).strip().splitlines()[0]}"
        raise ConfigError.at("model_args.device", what, "use cpu, or an available device") from None
    return moved


def dtype_argument() -> str:
    """The name of that argument of `from_pretrained`: `dtype` since transformers 4.56."""
    import transformers

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def _dtype(name: str) -> "torch.dtype | str":
    import torch

    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}
    if name == "auto":
        return "auto"
    dtype = getattr(torch, names.get(name, name), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        what, fix = f"invalid dtype {name!r}", "use auto, float32, bfloat16 or float16"
        raise ConfigError.at("model_args.dtype", what, fix)
    return dtype


def _folder(name: str, options: HFOptions) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        inside = folder / options.subfolder if name != options.peft else folder
        return inside if inside.is_dir() else folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=options.revision, local_files_only=True)) / options.subfolder


def _identity_of_object(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> str:
    """Digest of weights in memory and of the tokenizer's tokens."""
    import hashlib

    import torch

    if any(weights.is_meta for weights in model.state_dict().values()):
        what = "a model object with weights on disk or in another memory has no fingerprint"
        raise ConfigError.at("model", what, "give its folder: pretrained=DIR, with parallelize=true")
    digest = hashlib.blake2b(digest_size=16)
    is_fast = getattr(tokenizer, "is_fast", False)
    tokens = tokenizer.backend_tokenizer.to_str() if is_fast else repr(sorted(tokenizer.get_vocab().items()))
    digest.update(repr(model.config.to_dict()).encode() + tokens.encode())
    for name, weights in model.state_dict().items():
        digest.update(name.encode() + weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
