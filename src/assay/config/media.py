"""Images, sound and video: task files may name them, and assay sends text only."""

from collections.abc import Mapping

from assay.errors import Place, Problem

MEDIA = {"doc_to_image": "images", "doc_to_audio": "audio", "doc_to_video": "video"}


def unsent_media(fields: Mapping[str, object]) -> str | None:
    """The key by which a task wants to send more than text, if it has one."""
    return next((key for key in MEDIA if fields.get(key)), None)


def media_problem(key: str, place: Place) -> Problem:
    """Why a task that sends more than text cannot be run: a score of its texts alone would not be of this task."""
    what = f"{key}: assay does not send {MEDIA[key]} to models yet, and the texts alone are another task"
    return Problem(place, what, "leave the task out, or run it with a harness that does")
