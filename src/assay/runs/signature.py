"""Signatures of runs: only a run of this user may name folders whose code runs when it is scored again.

A manifest is a file like any other: it may come in an archive, or be unpacked by hand. So assay signs the options of a new run
with a key that never leaves this user's folder; the paths of a manifest without that signature are not trusted.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import orjson

from assay.records import AnyJSON, JSONDict, JSONObject

SIGNATURE = "signature"
SIZE = 32


def with_signature(options: JSONObject) -> JSONDict:
    """Return the options for a manifest with the signature of this user; without one where no key can be stored."""
    key = _key(make=True)
    return {"options": options, **({SIGNATURE: _sign(key, options)} if key is not None else {})}


def is_signed_by_user(manifest: JSONObject) -> bool:
    """Whether this user made the run, and its options are as they were then."""
    key, written = _key(make=False), manifest.get(SIGNATURE)
    if key is None or not isinstance(written, str):
        return False
    return hmac.compare_digest(_sign(key, manifest.get("options")).encode(), written.encode("utf-8", "replace"))


def _sign(key: bytes, options: AnyJSON) -> str:
    """A signature of options: the same before they are written down and after they are read back."""
    written = orjson.loads(
        orjson.dumps(options, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    )
    return hmac.new(key, orjson.dumps(written, option=orjson.OPT_SORT_KEYS), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """Return the key of this user, if only this user can read it; with `make`, create a missing one."""
    path = _folder() / "run.key"
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(secrets.token_bytes(SIZE))
    except FileExistsError:
        pass  # made by another process meanwhile
    except OSError:
        return None
    try:
        with path.open("rb") as file:
            about, key = os.fstat(file.fileno()), file.read(SIZE + 1)
    except OSError:
        return None
    is_private = about.st_uid == os.getuid() and not about.st_mode & 0o077
    return key if is_private and len(key) == SIZE else None


def _folder() -> Path:
    """Return the folder of the key: $ASSAY_CACHE_DIR, else the system's folder for user data."""
    chosen = os.environ.get("ASSAY_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("assay")
