"""Devices of a transformers model: which there are, which is used, and whether its layers are on more than one."""

from typing import TYPE_CHECKING

from assay.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def choose_device(name: str | None, *, parallelize: bool) -> "torch.device":
    """The named device, else the fastest that there is."""
    import torch

    if name is None:
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(kind)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise _refused(f"no device named {name!r}", "use cpu, cuda, cuda:1 or mps") from None
    known = available_devices()
    if device.type == "meta" or (device.type in ("cuda", "mps") and not _is_among(device, known)):
        raise _refused(f"no device {name!r} on this machine", f"use {', '.join(known)}")
    if parallelize and device.index is not None:
        fix = "leave out device; CUDA_VISIBLE_DEVICES selects the GPUs"
        raise _refused(f"parallelize=true spreads the model over all GPUs, and device={name} is one", fix)
    return device


def available_devices() -> list[str]:
    """The devices that torch can compute on here."""
    import torch

    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def _is_among(device: "torch.device", known: list[str]) -> bool:
    return str(device) in known or (device.index is None and any(each.startswith(device.type) for each in known))


def _refused(what: str, fix: str) -> ConfigError:
    return ConfigError.at("model_args.device", what, fix)


def input_device(model: "PreTrainedModel") -> "torch.device":
    """The device that takes the tokens: that of the first weights, unless those are kept elsewhere and loaded for each pass."""
    import torch

    device: torch.device = model.device
    if device.type != "meta":
        return device
    places = _places(model) - {"cpu", "disk"}
    return torch.device(min(places) if places else "cpu")


def spread_over(model: "PreTrainedModel") -> str:
    """The devices that the layers of a model are on, in words; empty where that is one.

    Packed attention and copied states keep tensors on one device. Padded batches leave the moves to accelerate.
    """
    places = _places(model)
    return f"its layers are on several devices ({', '.join(sorted(places))})" if len(places) > 1 else ""


def _places(model: "PreTrainedModel") -> set[str]:
    named = (getattr(model, "hf_device_map", None) or {}).values()
    return {f"cuda:{place}" if isinstance(place, int) else str(place) for place in named}
