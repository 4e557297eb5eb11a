"""Every file that names the version names the same. usage: versions.py [--in-the-making]"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACES = {
    "src/assay/version.py": r'__version__ = "(.+)"',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## (\S+)",
    "packages/assay-lm-eval/pyproject.toml": r'^version = "(.+)"',
}
"""Files that name the version, with the pattern of its first mention."""


def versions() -> dict[str, str]:
    named = {}
    for name, pattern in PLACES.items():
        path = ROOT / name
        match = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
        if match:
            named[name] = match[1]
    return named


def main() -> int:
    named = versions()
    print("\n".join(f"{version}  {name}" for name, version in named.items()))
    [version, *others] = sorted({each.removesuffix(".dev0") for each in named.values()})
    if others:
        print(f"they differ: {version}, {', '.join(others)}")
        return 1
    if named["src/assay/version.py"] != version and "--in-the-making" not in sys.argv:
        print(f"{named['src/assay/version.py']} is in the making: write {version} into src/assay/version.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
