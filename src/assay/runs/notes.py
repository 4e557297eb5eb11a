"""Tags and a note that people give to a run: `notes.json` beside the run's own files, which anyone may also write by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from assay.errors import ConfigError
from assay.runs.files import read_bytes
from assay.runs.folder import RunError, write_json
from assay.runs.validation import Check, fields, listed, text

NOTES = "notes.json"
LONGEST_TAG, MOST_TAGS, LONGEST_NOTE = 40, 50, 20_000
LAYOUT: Check = fields({"tags": listed(text), "note": text})


@dataclass(frozen=True)
class Notes:
    """The tags of a run, each once in their order, and a note; `problem` where the file cannot be read."""

    tags: Sequence[str] = ()
    note: str = ""
    problem: str = ""


def read_notes(folder: Path) -> Notes:
    """The notes of a run. A run with a damaged file is shown all the same."""
    try:
        content = orjson.loads(read_bytes(folder / NOTES))
    except (FileNotFoundError, NotADirectoryError):
        return Notes()
    except (OSError, ValueError) as error:
        return Notes(problem=f"{NOTES}: {getattr(error, 'strerror', None) or error}")
    wrong = LAYOUT(content)
    if wrong:
        return Notes(problem=f"{NOTES}:{wrong if wrong[0] == ' ' else f' {wrong}'}")
    tags, note = content.get("tags") or (), content.get("note") or ""
    return Notes(tuple(dict.fromkeys(tag[:LONGEST_TAG] for tag in tags if tag))[:MOST_TAGS], note[:LONGEST_NOTE])


def write_notes(folder: Path, tags: Iterable[str], note: str) -> Notes:
    """Write the notes of a run, checked."""
    kept = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    for tag in kept:
        if len(tag) > LONGEST_TAG or not tag.isprintable() or "," in tag:
            what = f"a tag has at most {LONGEST_TAG} characters, and no comma: {tag!r:.60}"
            raise ConfigError.at("tags", what, "shorten it, or put it into the note")
    if len(kept) > MOST_TAGS or len(note) > LONGEST_NOTE:
        what = f"a run has at most {MOST_TAGS} tags, and {LONGEST_NOTE:,} characters of a note"
        raise ConfigError.at("notes", what, "remove some")
    try:
        write_json(folder / NOTES, {"tags": list(kept), "note": note})
    except OSError as error:
        what = f"notes cannot be written: {error.strerror or error}"
        raise RunError.at(folder / NOTES, what, "make the folder of the run writable") from None
    return Notes(kept, note)
