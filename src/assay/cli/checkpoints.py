"""`assay run` with several checkpoints in `pretrained`: each in its turn, and one table of all."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.cli.output import plain, say, tell
from assay.config.run import RunConfig
from assay.errors import AssayError
from assay.evaluation.checkpoints import make_room
from assay.report.table import checkpoints_json, checkpoints_table, table_footing

CANNOT = 2
Evaluate = Callable[[RunConfig], Mapping[str, Any]]


def run_checkpoints(
    runs: Mapping[str, RunConfig], evaluate: Evaluate, output: str | None
) -> list[Mapping[str, Any] | None]:
    """Evaluate every checkpoint and show one table; what each came to, nothing where it could not be evaluated."""
    found: dict[str, Mapping[str, Any] | None] = {}
    for number, (name, config) in enumerate(runs.items(), 1):
        tell(f"checkpoint {number} of {len(runs)}: {name}")
        try:
            found[name] = evaluate(config)
        except AssayError as error:
            found[name] = None
            for problem in error.problems:
                tell(f"{name}: {problem}")
        make_room()
    say(checkpoints_table(found))
    for name, results in found.items():
        for line in table_footing(results) if results is not None else ["could not be evaluated"]:
            tell(f"{name}: {line}")
    if output is not None:
        file = Path(output) / "checkpoints.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(plain(checkpoints_json(found)), indent=1, ensure_ascii=False), encoding="utf-8")
        say(f"\nruns: {Path(output).resolve()}")
    return list(found.values())
