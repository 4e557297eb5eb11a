"""Adapters of peft, merged into the weights of a model: LoRA, DoRA, IA3 and others that change weights."""

import json
import logging
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, some

CONFIG = "adapter_config.json"
WEIGHTS, PICKLED = "adapter_model.safetensors", "adapter_model.bin"
PROMPTS = frozenset(("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "ADAPTION_PROMPT", "CPT"))
"""Adapters that put something before the prompt, or beside the attention: no weights could be changed to the same effect."""
MERGE = "merge the adapter with the script that trained it, save the whole model, and give that as pretrained="


def check_adapter(name: str, *, allow_pickle: bool) -> Path:
    """The folder of an adapter, from here or the hub; refuse one that cannot be merged, before the model is loaded."""
    import_peft()
    folder = _folder(name)
    if not (folder / CONFIG).is_file():
        raise _refused(
            f"no adapter in {name!r}: {CONFIG} is missing", "give a folder that peft's save_pretrained wrote"
        )
    try:
        kind = str(json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("peft_type"))
    except (ValueError, AttributeError):
        raise _refused(f"{CONFIG} in {name!r} must be a JSON object", "save the adapter again") from None
    if kind in PROMPTS:
        what = f"the adapter {name!r} of type {kind} changes no weights, and cannot be merged"
        raise _refused(
            what, "serve it, for example with peft behind an OpenAI-compatible server, and use --model openai"
        )
    if not (folder / WEIGHTS).is_file() and (folder / PICKLED).is_file() and not allow_pickle:
        what = f"the weights of the adapter {name!r} are pickled, and loading them can run code"
        raise _refused(what, "save them as safetensors, or add allow_pickle=true if you trust them")
    if not (folder / WEIGHTS).is_file() and not (folder / PICKLED).is_file():
        raise _refused(f"no weights in the adapter {name!r}: {WEIGHTS} is missing", "save the adapter again")
    return folder


def import_peft() -> Any:
    try:
        import peft  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        raise _refused("an adapter needs peft, which is not installed", "pip install peft") from None
    return peft


def _folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["adapter_*"]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise _refused(f"no adapter {name!r}: {reason}", "give a folder, or a hub name: owner/name") from None


def merge_adapter(model: Any, name: str, base: str, *, allow_pickle: bool) -> Any:
    """The model with the adapter in its weights."""
    from safetensors import SafetensorError

    peft, folder = import_peft(), check_adapter(name, allow_pickle=allow_pickle)
    try:
        adapted = peft.PeftModel.from_pretrained(model, str(folder))
        _check_weights(peft, adapted, name, folder)
        merged = adapted.merge_and_unload(safe_merge=True)
    except ConfigError:
        raise
    except SafetensorError as error:
        raise _refused(
            f"the weights of the adapter {name!r} cannot be read: {error}", "save the adapter again"
        ) from None
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, ImportError, NotImplementedError) as error:
        raise _unfitting(name, base, str(error)) from None
    _warn_of_another_base(adapted, name, base)
    return merged


def _check_weights(peft: Any, adapted: Any, name: str, folder: Path) -> None:
    """Refuse weights that peft would leave out, or leave as they were before the training, with no more than a warning."""
    stored = set(peft.load_peft_weights(str(folder), device="cpu"))
    needed = set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False))
    for missing, what in (
        (needed - stored, "has no weights for"),
        (_layers(stored - needed), "has weights for layers without it:"),
    ):
        if missing:
            raise _refused(
                f"the adapter {name!r} {what} {some(sorted(missing))}", "give the adapter of this model, complete"
            )


def _layers(names: set[str]) -> set[str]:
    """Names of weights but those of embeddings, which may be stored beside an adapter."""
    return {name for name in names if not any(part in name for part in ("embed", "lm_head", "wte", "wpe"))}


def _unfitting(name: str, base: str, message: str) -> ConfigError:
    lines = [line.strip() for line in message.strip().splitlines()]
    sizes = next((line for line in lines if "size mismatch" in line), "")
    reason = (sizes or (lines[0] if lines else "no reason given"))[:300]
    if sizes and any(part in sizes for part in ("embed", "lm_head", "wte")):
        return _refused(f"the adapter {name!r} has another vocabulary than {base!r}: {reason}", MERGE)
    what = f"the adapter {name!r} does not fit {base!r}: {reason}"
    return _refused(what, f"give the model that it was trained on as pretrained=; or {MERGE}")


def _warn_of_another_base(adapted: Any, name: str, base: str) -> None:
    """Of two names of the hub it is known that they are not the same; paths of other machines say nothing."""
    trained = str(getattr(adapted.peft_config.get("default"), "base_model_name_or_path", None) or "")
    if trained != base and all(each.count("/") == 1 and not Path(each).exists() for each in (trained, base)):
        logging.getLogger("assay").warning(
            "the adapter %r was trained on %r, and is merged into %r", name, trained, base
        )


def _refused(what: str, fix: str) -> ConfigError:
    return ConfigError.at("model_args.peft", what, fix)
