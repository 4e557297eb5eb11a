"""Folders of this machine that every package may use."""

import os
from pathlib import Path

CACHE_VARIABLE, RUNS_VARIABLE = "ASSAY_CACHE_DIR", "ASSAY_RUNS_DIR"
RUNS_DIR = "runs"


def cache_folder() -> Path:
    """The cache folder: $ASSAY_CACHE_DIR, else the system's cache directory."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("assay")


def runs_folder() -> str:
    """The folder of runs where none is named: $ASSAY_RUNS_DIR, else `runs` here."""
    return os.environ.get(RUNS_VARIABLE) or RUNS_DIR
