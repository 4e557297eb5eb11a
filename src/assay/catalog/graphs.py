"""Graph files by the names that SyGra gives to tasks: `tasks.eval.a.b`, `eval/a/b`."""

import re
from collections.abc import Sequence
from pathlib import Path

FILE = "graph_config.yaml"
_NAME = re.compile(r"[\w-]+(?:[./][\w-]+)+")


def graph_file(name: str, folders: Sequence[str]) -> Path | None:
    """The graph file of a task's name: below the working directory or one of the folders, with `tasks` before it or not."""
    if not _NAME.fullmatch(name):
        return None
    inside = Path(*re.split(r"[./]", name))
    for start in (Path.cwd(), *map(Path, folders)):
        short = Path(*inside.parts[1:]) if inside.parts[0] == "tasks" else inside
        for way in (inside, Path("tasks") / inside, short):
            if (start / way / FILE).is_file():
                return (start / way / FILE).resolve()
    return None
