"""The limits of tests/budget.toml, and the report on the time a whole run of the suite took."""

import os
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

LIMITS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("budget.toml").read_text(encoding="utf-8"))


class SuiteTime:
    """Prints the time of a whole run beside its limit, and fails the run where it is more than twice that.

    The limits are for two idle cores. Where others have kept the machine busy, a run only prints its time.
    """

    def __init__(self, name: str, seconds_per_unit: float) -> None:
        self.name, self.unit, self.begun = name, seconds_per_unit, time.monotonic()

    @property
    def took(self) -> float:
        return (time.monotonic() - self.begun) / self.unit

    @property
    def is_far_over(self) -> bool:
        is_busy = os.getloadavg()[2] > 2 * (os.cpu_count() or 1)
        return self.took > 2 * LIMITS[self.name]["limit"] and not is_busy

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_far_over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        limit = LIMITS[self.name]["limit"]
        verdict = ": more than twice the limit (tests/budget.toml)" if self.is_far_over else ""
        terminalreporter.write_line(f"{self.name}: {self.took:.1f}, budget {limit}{verdict}")
