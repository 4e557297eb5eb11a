"""What a run and a comparison get from packages above: tables, plots, reports and comparisons.

Imports go one way, and `Run` is below the packages that compare and draw it. Each of them registers its functions in one module,
which is imported when a method first needs it (docs/decisions/0028-one-run-for-every-reader.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from assay.runs.labels import Corrections

if TYPE_CHECKING:
    from assay.runs.comparison import Comparison
    from assay.runs.run import Run

PlotKind = Literal["intervals", "time", "reliability", "pass_at_k"]
Functions = TypeVar("Functions")


class ShownTable(Protocol):
    """A table: it fits the terminal, is HTML in a notebook, and Markdown as `str`."""

    def __str__(self) -> str: ...
    def _repr_html_(self) -> str: ...


class ShownPlot(Protocol):
    """A plot: a notebook shows it, and `save` writes it as SVG, PNG or PDF."""

    @property
    def svg(self) -> str: ...
    def save(self, path: str | PathLike[str]) -> Path: ...


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of a report: how many of the worst tasks and samples, and the columns to slice by."""

    tasks: int = 5
    samples: int = 2
    columns: Sequence[str] = ()
    flips: int = 5
    allow_different_prompts: bool = False


class ComparisonFunctions(Protocol):
    """What `comparison` registers."""

    def compare(
        self, runs: Sequence[str | PathLike[str]], *, tasks: Sequence[str], metrics: Sequence[str], gates: Sequence[str],
        allow_different_prompts: bool, level: float,
    ) -> "Comparison": ...  # fmt: skip
    def corrected_rows(self, run: "Run") -> Corrections: ...


class ReportFunctions(Protocol):
    """What `report` registers."""

    def table_of_run(self, run: "Run") -> ShownTable: ...
    def table_of_comparison(self, comparison: "Comparison") -> ShownTable: ...
    def plot(
        self, runs: Sequence[str | PathLike[str]], kind: PlotKind, *, tasks: Sequence[str], metric: str | None
    ) -> ShownPlot: ...
    def plot_comparison(self, comparison: "Comparison", *, metric: str | None) -> ShownPlot: ...
    def write_report(
        self, runs: Sequence[str | PathLike[str]], path: str | PathLike[str], *, options: ReportOptions | None
    ) -> Path: ...


class Extension(Generic[Functions]):
    """Functions of a package above, which the module of this name registers."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._functions: Functions | None = None

    def register(self, functions: Functions) -> None:
        self._functions = functions

    @property
    def functions(self) -> Functions:
        """The functions; the module that registers them is imported at the first use."""
        if self._functions is None:
            import_module(self._module)
        assert self._functions is not None, f"{self._module} registers its functions when it is imported"
        return self._functions


COMPARISON: Extension[ComparisonFunctions] = Extension("assay.comparison.run_functions")
REPORT: Extension[ReportFunctions] = Extension("assay.report.run_functions")
