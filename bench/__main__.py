"""`python -m bench [catalog ...]`: prints a table for each part; `viewer:matrix` is one of the parts of a part."""

import datetime
import platform
import sys
from importlib import import_module

PARTS = (
    "catalog",
    "runs",
    "demo",
    "errors",
    "groups",
    "servers",
    "under_fire",
    "soak",
    "scoring",
    "rescore",
    "graphs",
    "paired",
    "stopping",
    "gates",
    "viewer",
    "local",
    "labels",
    "eta",
    "fleet",
    "watch",
    "live",
    "anchor",
    "step",
)


def main() -> None:
    expected = sys.argv[1:] or PARTS
    print(f"{datetime.date.today().isoformat()}, Python {platform.python_version()}, {platform.machine()}")
    for part in expected:
        print(f"\n### {part}\n\n| what | lm-eval 0.4.13 | assay | ratio | wanted |\n|---|---|---|---|---|")
        module, _, chosen = part.partition(":")
        for row in import_module(f"bench.{module}").rows(*([chosen] if chosen else [])):
            print(row, flush=True)


if __name__ == "__main__":
    main()
