"""The two environments, made once under .bench/ and kept."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".bench"
LM_EVAL = ("lm_eval[hf,api]==0.4.13", "torch==2.13.0")


def bare_environment() -> dict[str, str]:
    """What a user's shell has: byte code may be written, no network is asked."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "ASSAY_CACHE_DIR": str(HOME / "cache")}


def lm_eval_python() -> Path:
    return _environment("lm_eval", *LM_EVAL)


def assay_python() -> Path:
    """An environment with assay as a wheel, built from the tree as it is now."""
    python = _environment("assay")
    dist = HOME / "dist"
    for old in dist.glob("*.whl"):
        old.unlink()
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(dist), str(ROOT))
    [wheel] = dist.glob("*.whl")
    _run(str(python), "-m", "pip", "install", "--quiet", str(wheel))
    _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))
    return python


@cache
def built_python() -> Path:
    """The one that the other parts of `python -m bench` have made, or a new one."""
    built = HOME / "assay/bin/python"
    return built if built.exists() else assay_python()


def _environment(name: str, *packages: str) -> Path:
    python = HOME / name / "bin/python"
    if not python.exists():
        _run(sys.executable, "-m", "venv", str(HOME / name))
        if packages:
            _run(str(python), "-m", "pip", "install", "--quiet", *packages)
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=bare_environment())
