"""How a command that made a run without asking a model ends: with its tables, where it lies, and the exit code of its status."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.cli.output import say, say_tables, tell
from assay.cli.run import EXIT
from assay.report.table import table_footing, table_heading


def say_results(results: Mapping[str, Any], folder: Path) -> int:
    say(table_heading(results))
    say_tables(results)
    for line in table_footing(results):
        tell(line)
    say(f"\nrun: {folder.resolve()}")
    return EXIT.get(results.get("assay", {}).get("status", ""), EXIT["incomplete"])
