"""Verdicts of gates for CI: JUnit XML, a summary in Markdown, and annotations of GitHub."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from xml.etree import ElementTree

from assay.number_text import format_level, format_share
from assay.report.comparison_text import DECISIONS, gate_line, gate_number
from assay.report.report_table import (
    Cell,
    Column,
    NumberCell,
    ReportTable,
    ShareCell,
    make_table,
    number_columns,
)
from assay.report.table_writers import write_markdown
from assay.runs.comparison import Comparison, GateVerdict, decision_of
from assay.safe_text import markdown_text
from assay.score_keys import metric_title
from assay.statistics.intervals import Decision

Policy = Literal["pass", "fail"] | None
"""How an inconclusive gate counts: None as itself, with its own exit code."""
MARKS: dict[Decision, str] = {"pass": "✅", "fail": "❌", "inconclusive": "⚠️"}
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class GateOutcome:
    """All verdicts of a command, and what inconclusive ones count as."""

    title: str
    verdicts: Sequence[GateVerdict]
    policy: Policy = None
    notes: Sequence[str] = ()

    def counted(self, verdict: GateVerdict) -> Decision:
        """Apply the policy to a verdict. A run that is not complete passes by no policy."""
        if verdict.decision != "inconclusive" or self.policy is None or (verdict.kind, self.policy) == ("run", "pass"):
            return verdict.decision
        return self.policy

    @property
    def decision(self) -> Decision | None:
        return decision_of([replace(each, decision=self.counted(each)) for each in self.verdicts])


def gates_text(outcome: GateOutcome) -> str:
    """The verdicts as lines, and the one of all in front."""
    return "\n".join(line.replace("\n", "⏎") for line in (headline(outcome), *map(gate_line, outcome.verdicts)))


def headline(outcome: GateOutcome) -> str:
    decision = decision_of(outcome.verdicts)
    if decision is None:
        return outcome.title
    counts = f" (counts as {outcome.policy}: --inconclusive {outcome.policy})" if decision != outcome.decision else ""
    return f"{DECISIONS[decision]}{counts}: {outcome.title}"


def gates_markdown(outcome: GateOutcome) -> str:
    """The verdicts as Markdown, for GitHub's step summary or a comment."""
    counts = Counter(each.decision for each in outcome.verdicts)
    rows = []
    for each in outcome.verdicts:
        value, bound = ("" if n is None else gate_number(each, n) for n in (each.difference, each.bound))
        rows.append([MARKS[each.decision], each.gate, each.row, value, bound, each.reason])
    parts = [
        f"### {MARKS[outcome.decision or 'pass']} {markdown_text(headline(outcome))}",
        write_markdown(
            make_table([Column("", "decision"), "gate", "row", *number_columns("value", "bound"), "note"], rows)
        ),
        ", ".join(f"{counts[name]} {name}" for name in MARKS if counts[name]),
        *(f"> {markdown_text(note)}" for note in outcome.notes),
    ]
    return "\n\n".join(parts) + "\n"


def recovery_table(comparison: Comparison) -> ReportTable:
    """How much of the first run's number each other one keeps."""
    level = Column(format_level(comparison.level), "interval")
    rows: list[list[Cell]] = []
    for row in comparison.rows:
        if row.recovery is not None and row.a is not None and row.b is not None:
            low, high = row.recovery.low, row.recovery.high
            known = low is not None and high is not None
            ends = f"{format_share(low, 2)} … {format_share(high, 2)}" if known else "–"
            run = comparison.runs[row.run].label
            numbers = NumberCell(row.a, digits=4), NumberCell(row.b, digits=4), ShareCell(row.recovery.value, digits=2)
            rows.append([row.name, metric_title(row.metric, row.filter), run, *numbers, ends])
    return make_table(["Tasks", "Metric", "Run", *number_columns("a", "b", "b ÷ a"), level], rows)


def annotations(outcome: GateOutcome) -> list[str]:
    """A command of GitHub Actions for each gate that does not pass."""
    lines = []
    for each in outcome.verdicts:
        counted = outcome.counted(each)
        if each.decision != "pass":
            level = "error" if counted == "fail" else "warning"
            title = f"gate {each.decision}: {each.gate}"
            lines.append(f"::{level} title={_property(title)}::{_message(gate_line(each)[2:])}")
    return lines


def _message(text: str) -> str:
    r"""
    >>> _message("100% sure\n::error::x")
    '100%25 sure%0A::error::x'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def junit_xml(outcome: GateOutcome, seconds: float = 0.0, error: str = "") -> bytes:
    """The verdicts as JUnit XML, a test case for each. An inconclusive one is an error; a failure or skipped where the policy
    says so. `error` is that of a command without a verdict."""
    cases = [_case(outcome, each) for each in outcome.verdicts]
    if error:
        cases.append(
            _test_case("assay.gate", "configuration", ("error", "configuration", error.splitlines()[0], error))
        )
    counts = Counter(child.tag for case in cases for child in case if child.tag != "system-out")
    numbers = {
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{seconds:.3f}",
    }
    suite = ElementTree.Element("testsuite", {"name": _in_xml(f"assay gate {outcome.title}"), **numbers})
    suite.extend(cases)
    root = ElementTree.Element(
        "testsuites", {"name": "assay gate", **{k: v for k, v in numbers.items() if k != "skipped"}}
    )
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'.encode()


def _case(outcome: GateOutcome, verdict: GateVerdict) -> ElementTree.Element:
    line = gate_line(verdict)
    counted, kind = outcome.counted(verdict), None
    if verdict.decision != "pass":
        tag = {"fail": "failure", "pass": "skipped", "inconclusive": "error"}[counted]
        kind = (tag, verdict.decision, line[2:], line)
    name = f"{verdict.gate}: {verdict.row}"
    return _test_case(f"assay.gate.{verdict.name}", name, kind, line)


def _test_case(
    classname: str, name: str, kind: tuple[str, str, str, str] | None, said: str = ""
) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": _in_xml(classname), "name": _in_xml(name), "time": "0"})
    if kind is not None:
        tag, type_name, message, text = kind
        about = {"message": _in_xml(message)} if tag == "skipped" else {"message": _in_xml(message), "type": type_name}
        ElementTree.SubElement(case, tag, about).text = _in_xml(text)
    else:
        ElementTree.SubElement(case, "system-out").text = _in_xml(said)
    return case


def _in_xml(text: str) -> str:
    """Replace characters that XML 1.0 cannot have."""
    return _NOT_IN_XML.sub("�", text)
