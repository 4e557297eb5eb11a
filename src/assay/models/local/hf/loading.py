"""Models of transformers: from a folder or the hub to a device."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from assay.errors import ConfigError, Place, Problem, installing
from assay.models.local.fingerprint import identity_of_folder
from assay.models.local.threads import fitting

LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx")
"""Where a configuration says how long a text may be."""
DEFAULT_LENGTH = 2048
UNLIMITED = 10**9
"""A tokenizer that knows no limit says a very large number."""


@dataclass(frozen=True)
class HFOptions:
    """What is to be loaded, in lm-eval's words."""

    pretrained: Any
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
class Loaded:
    """A model that is there, with its tokenizer."""

    wanted: HFOptions
    model: Any
    tokenizer: Any
    is_seq2seq: bool

    @property
    def device(self) -> Any:
        return self.model.device

    @cached_property
    def identity(self) -> str:
        """The content of its files; of a model that was handed over, its weights."""
        wanted = self.wanted
        if not isinstance(wanted.pretrained, str):
            return _identity_of_object(self.model, self.tokenizer)
        named = [wanted.pretrained, *(each for each in (wanted.tokenizer, wanted.peft) if isinstance(each, str))]
        return identity_of_folder(*dict.fromkeys(_folder(name, wanted).resolve() for name in named))

    def threads(self, wanted: int | None) -> int | None:
        """How many threads it is computed with: as many as wanted; else what fits, on a processor."""
        if wanted is not None or self.device.type != "cpu":
            return wanted
        import torch

        return fitting(self.model.num_parameters(), torch.get_num_threads())

    def max_length(self) -> int:
        config = self.model.config.get_text_config()
        found = next((getattr(config, key) for key in LENGTHS if getattr(config, key, None)), None)
        of_words = getattr(self.tokenizer, "model_max_length", None)
        if found is None and of_words is not None and of_words < UNLIMITED:
            found = of_words
        return int(found or DEFAULT_LENGTH)


def load(wanted: HFOptions) -> Loaded:
    """The model on its device, ready to be asked."""
    torch, transformers = libraries()
    if not isinstance(wanted.pretrained, str):
        model = wanted.pretrained.eval()
        if wanted.tokenizer is None or isinstance(wanted.tokenizer, str):
            raise TypeError("a model that is handed over needs its tokenizer with it")
        return Loaded(wanted, model, wanted.tokenizer, bool(model.config.is_encoder_decoder))
    common = {"trust_remote_code": wanted.trust_remote_code, "revision": wanted.revision or "main"}
    if wanted.subfolder:
        common["subfolder"] = wanted.subfolder
    if wanted.gguf_file:
        common["gguf_file"] = wanted.gguf_file
    _refuse_pickle(wanted)
    if wanted.peft is not None:
        _peft()
    config = _found(transformers.AutoConfig, wanted.pretrained, common)
    is_seq2seq = wanted.backend == "seq2seq" or (wanted.backend == "default" and bool(config.is_encoder_decoder))
    kind = transformers.AutoModelForSeq2SeqLM if is_seq2seq else transformers.AutoModelForCausalLM
    device = _device(wanted, torch)
    told = {
        "dtype": _dtype(wanted.dtype, torch),
        "use_safetensors": None if wanted.allow_pickle or wanted.gguf_file else True,
        **({"attn_implementation": wanted.attn_implementation} if wanted.attn_implementation else {}),
        **({"device_map": "auto"} if wanted.parallelize else {}),
    }
    model = _found(kind, wanted.pretrained, common | told)
    if wanted.peft is not None:
        model = _with_peft(model, wanted)
    if not wanted.parallelize:
        model = _moved(model, device)
    of_words = wanted.tokenizer or wanted.pretrained
    begins = {} if wanted.add_bos_token is None else {"add_bos_token": wanted.add_bos_token}
    of_tokenizer = common | {"use_fast": wanted.use_fast_tokenizer} | begins
    tokenizer = _found(transformers.AutoTokenizer, of_words, of_tokenizer)
    return Loaded(wanted, model.eval(), tokenizer, is_seq2seq)


def libraries(name: str = "hf") -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        what = f"model {name!r} needs {error.name}, which is not installed"
        raise ConfigError([Problem(Place("model"), what, installing("hf"))]) from None
    bars: Any = transformers.utils.logging
    bars.disable_progress_bar()  # a run has a line of its own for how far it is
    return torch, transformers


def _found(kind: Any, name: str, given: dict[str, Any]) -> Any:
    """What transformers makes of a name; its own words where it cannot."""
    from safetensors import SafetensorError

    is_path = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1
    if is_path and not Path(name).expanduser().exists():
        what, fix = (
            f"there is no folder {name!r}",
            "name one with config.json and weights, or a model of the hub: owner/name",
        )
        raise ConfigError([Problem(Place("model_args.pretrained"), what, fix)])
    try:
        return kind.from_pretrained(str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name, **given)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError) as error:
        said = str(error).strip().splitlines()
        what = f"{name!r} cannot be loaded: {said[0] if said else type(error).__name__}"
        raise ConfigError([Problem(Place("model_args.pretrained"), what, _remedy(str(error)))]) from None


def _remedy(said: str) -> str:
    if "trust_remote_code" in said:
        return "it brings code of its own: add trust_remote_code=true if you trust it"
    if "safetensors" in said:
        return "its weights are pickled: convert them to safetensors, or add allow_pickle=true if you trust them"
    return "name a folder with config.json and weights, or a model of the hub that is there"


def _refuse_pickle(wanted: HFOptions) -> None:
    folder = Path(wanted.pretrained).expanduser()
    if wanted.allow_pickle or wanted.gguf_file or not folder.is_dir():
        return
    inside = folder / wanted.subfolder
    if any(inside.glob("*.bin")) and not any(inside.glob("*.safetensors")):
        what = f"the weights in {wanted.pretrained!r} are pickled, and loading them may run code"
        raise ConfigError([Problem(Place("model_args.pretrained"), what, _remedy("safetensors"))])


def _device(wanted: HFOptions, torch: Any) -> Any:
    if wanted.device is not None:
        try:
            return torch.device(wanted.device)
        except RuntimeError:
            what, fix = f"there is no device {wanted.device!r}", "write cpu, cuda, cuda:1 or mps"
            raise ConfigError([Problem(Place("model_args.device"), what, fix)]) from None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _moved(model: Any, device: Any) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch says with an assertion that it cannot do CUDA
        what = f"the model cannot be put on {str(device)!r}: {str(error).strip().splitlines()[0]}"
        raise ConfigError([Problem(Place("model_args.device"), what, "write cpu, or a device that is there")]) from None


def _dtype(name: str, torch: Any) -> Any:
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}
    if name == "auto":
        return "auto"
    found = getattr(torch, names.get(name, name), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        what, fix = f"{name!r} is no kind of number", "write auto, float32, bfloat16 or float16"
        raise ConfigError([Problem(Place("model_args.dtype"), what, fix)])
    return found


def _peft() -> Any:
    try:
        from peft import PeftModel  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        what = "an adapter needs peft, which is not installed"
        raise ConfigError([Problem(Place("model_args.peft"), what, "pip install peft")]) from None
    return PeftModel


def _with_peft(model: Any, wanted: HFOptions) -> Any:
    return _peft().from_pretrained(model, wanted.peft).merge_and_unload()


def _folder(name: str, wanted: HFOptions) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        inside = folder / wanted.subfolder if name != wanted.peft else folder
        return inside if inside.is_dir() else folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=wanted.revision, local_files_only=True)) / wanted.subfolder


def _identity_of_object(model: Any, tokenizer: Any) -> str:
    """A digest of weights in memory and of the tokenizer's words."""
    import hashlib

    import torch

    made = hashlib.blake2b(digest_size=16)
    is_fast = getattr(tokenizer, "is_fast", False)
    words = tokenizer.backend_tokenizer.to_str() if is_fast else repr(sorted(tokenizer.get_vocab().items()))
    made.update(repr(model.config.to_dict()).encode() + words.encode())
    for name, weights in model.state_dict().items():
        made.update(name.encode() + weights.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()
