"""Devices of a transformers model: which there are, and whether its layers are on more than one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def spread_over(model: "PreTrainedModel") -> str:
    """The devices that the layers of a model are on, in words; empty where that is one."""
    places = {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    return f"its layers are on several devices ({', '.join(sorted(places))})" if len(places) > 1 else ""
