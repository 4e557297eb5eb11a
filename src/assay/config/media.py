"""Images, audio and video: task files may name them, but assay sends only text."""

from collections.abc import Mapping

from assay.errors import Place, Problem

MEDIA = {"doc_to_image": "images", "doc_to_audio": "audio", "doc_to_video": "video"}


def unsent_media(fields: Mapping[str, object]) -> str | None:
    """Return the key by which a task sends more than text, if it has one."""
    return next((key for key in MEDIA if fields.get(key)), None)


def media_problem(key: str, place: Place) -> Problem:
    """Return the problem of a task that sends more than text: its text alone would be another task."""
    what = f"{key}: assay does not send {MEDIA[key]} to models yet, and the text alone is another task"
    return Problem(place, what, "omit the task, or run it with a harness that does")
