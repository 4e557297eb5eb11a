"""Install what the suite needs into the environment of this Python, with uv: pip needs four times its CPU.

usage: python tools/install_test.py [pip's words: --editable '.[test]' …]

uv does not read pip's settings, so they are handed to it. Where it cannot be had, fails, or does not know a setting, pip
installs everything itself.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
OF_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""What uv calls the settings that decide which packages are installed, and from where."""
OF_PIP_ALONE = {
    "disable-pip-version-check",
    "no-input",
    "progress-bar",
    "quiet",
    "retries",
    "root-user-action",
    "cache-dir",
    "no-cache-dir",
    "require-virtualenv",
}
"""Settings that change nothing of what is installed."""


def uv_variables(listed: str) -> dict[str, str] | None:
    """Translate what `pip config list` prints, in which a later line wins; None where uv has no such setting."""
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip: the newest version of all indexes
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in OF_PIP_ALONE or name.startswith(":env:.config"):
            continue
        if option not in OF_UV:
            return None
        words = str(ast.literal_eval(value)).split()
        variables[OF_UV[option]] = ("," if option == "find-links" else " ").join(words)
    return variables


def install_with_uv(arguments: list[str]) -> bool:
    """Say whether uv has installed all that the arguments ask for."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    variables = uv_variables(listed)
    if variables is None or subprocess.run([*PIP, "install", "--quiet", "uv"], check=False).returncode:
        return False
    command = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    return subprocess.run([*command, *arguments], env={**os.environ, **variables}, check=False).returncode == 0


if __name__ == "__main__":
    if not install_with_uv(sys.argv[1:]):
        print("uv is not used here: pip installs, which takes some minutes", file=sys.stderr)
        sys.exit(subprocess.run([*PIP, "install", "--quiet", *sys.argv[1:]], check=False).returncode)
