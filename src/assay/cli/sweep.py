"""Several models in one command: the runs of a sweep one after another, and one table of all."""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from assay.cli.output import DECISION_EXIT, EXIT, echo, echo_err, echo_table, exit_code, plain
from assay.config.fields import Fields
from assay.config.run import RunConfig
from assay.errors import AssayError, ConfigError
from assay.evaluation.options import checkpoint_runs
from assay.evaluation.sweep import KEY, sweep_runs
from assay.report.table import checkpoints_json, checkpoints_table, table_footing
from assay.results import Results
from assay.runs.storage import write_beside

CANNOT = 2
SweepResults = dict[str, Results | None]


class SweepOutcome(NamedTuple):
    """The results of a model, or the reason that there are none."""

    results: Results | None
    reason: str = ""


def runs_of(config: RunConfig, file: Fields | None, options: argparse.Namespace) -> dict[str, RunConfig]:
    """A run by label for each model of a command; none where it has one model."""
    if file is None or KEY not in file:
        return checkpoint_runs(config)
    for name in ("model", "model_args"):
        if name in file or getattr(options, name):
            place = file.place(name, key=True) if name in file else file.place(KEY, key=True)
            what = f"{name} and {KEY} exclude each other"
            raise ConfigError.at(place, what, f"write it in the entries of {KEY}, or leave out {KEY}")
    return sweep_runs(config, file[KEY], file.origin(KEY))


def run_sweep(runs: Mapping[str, RunConfig], evaluate: Callable[[RunConfig], Results], output: str | None) -> int:
    """Evaluate every model and print one table; returns the exit code."""
    outcomes: dict[str, SweepOutcome] = {}
    for number, (name, config) in enumerate(runs.items(), 1):
        echo_err(f"model {number} of {len(runs)}: {name}")
        try:
            outcomes[name] = SweepOutcome(evaluate(config))
        except (AssayError, OSError) as error:
            outcomes[name] = SweepOutcome(None, _reason(error))
            echo_err(f"{name}: {outcomes[name].reason}")
        free_memory()
    return show_outcomes(outcomes, output)


def show_outcomes(outcomes: Mapping[str, SweepOutcome], output: str | None) -> int:
    """Print one table of all models, and write their results beside their runs; returns the exit code."""
    results = {name: each.results for name, each in outcomes.items()}
    reasons = {name: each.reason for name, each in outcomes.items() if each.results is None}
    show_sweep(results, reasons)
    if output is not None:
        content = json.dumps(plain(checkpoints_json(results, reasons)), indent=1, ensure_ascii=False).encode()
        echo(f"\nruns: {write_beside(output, 'checkpoints.json', content)}")
    return sweep_code(results)


def _reason(error: AssayError | OSError) -> str:
    return "; ".join(map(str, error.problems)) if isinstance(error, AssayError) else str(error)


def show_sweep(results: SweepResults, reasons: Mapping[str, str], *, with_footing: bool = True) -> None:
    """Print the table of all models, and below it what is to be known about each."""
    echo_table(checkpoints_table(results))
    for name, result in results.items():
        footing = table_footing(result) if result is not None and with_footing else []
        for line in footing if result is not None else [f"could not be evaluated: {reasons[name]}"]:
            echo_err(f"{name}: {line}")


def sweep_code(results: SweepResults) -> int:
    """The exit code of the worst."""
    codes = [CANNOT if result is None else exit_code(result) for result in results.values()]
    order = (CANNOT, EXIT["incomplete"], DECISION_EXIT["inconclusive"], EXIT["partial"])  # the worst first
    return next((code for code in order if code in codes), EXIT["complete"])


def free_memory() -> None:
    """Free the memory of a model that is no longer needed."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()
