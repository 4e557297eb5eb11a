"""Registers what a run and a comparison get from this package: their tables, plots and reports."""

from assay.report.comparison_text import table_of_comparison
from assay.report.pictures import plot, plot_comparison
from assay.report.table import table_of_run
from assay.report.write import write_report
from assay.runs.extensions import REPORT


class RunReports:
    table_of_run = staticmethod(table_of_run)
    table_of_comparison = staticmethod(table_of_comparison)
    plot = staticmethod(plot)
    plot_comparison = staticmethod(plot_comparison)
    write_report = staticmethod(write_report)


REPORT.register(RunReports())
