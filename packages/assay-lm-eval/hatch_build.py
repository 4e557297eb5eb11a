"""The version, which is assay's, and the refusal to be installed over lm_eval itself."""

import re
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HERE = Path(__file__).parent
REFUSAL = (
    "lm_eval {version} is installed in {folder}. assay-lm-eval has a package of the same name, and pip would overwrite one with"
    " the other. Keep one of them: `pip uninstall lm_eval` first, or install assay-lm-eval into another environment."
    " `assay` itself runs beside lm_eval."
)


def _version() -> str:
    """The version of assay: from its sources around this folder, or as the source distribution records it."""
    sources = HERE.parent.parent / "src/assay/version.py"
    recorded = HERE / "PKG-INFO"
    text = sources.read_text() if sources.is_file() else recorded.read_text()
    found = re.search(r'__version__ = "(.+?)"|^Version: (\S+)', text, re.MULTILINE)
    assert found is not None, "version.py and PKG-INFO state the version"
    return found[1] or found[2]


__version__ = _version()


def installed_lm_eval() -> tuple[str, str] | None:
    """Version and folder of an lm_eval in the environment that is installed into.

    pip builds with the interpreter of that environment and hides its packages, but not where they are. Other installers may
    build elsewhere: then the package itself refuses, when it is imported.
    """
    folders = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    for found in distributions(path=list(dict.fromkeys(folders))):
        if re.sub(r"[-_.]+", "-", found.metadata["Name"] or "").lower() == "lm-eval":
            return found.version, str(found.locate_file(""))
    return None


class Dependencies(MetadataHookInterface):
    """States the assay that this version is part of."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = [f"assay=={__version__}"]


class Refusal(BuildHookInterface[Any]):
    """Builds nothing for an environment that has lm_eval itself."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        found = installed_lm_eval() if self.target_name == "wheel" else None
        if found is not None:
            raise RuntimeError(REFUSAL.format(version=found[0], folder=found[1]))
