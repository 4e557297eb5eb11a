"""The page of a graph: its workflow drawn, with visits, failures, time, tokens and cost per node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import QueryParams

from assay.models.servers.server_model import Price
from assay.number_text import format_money
from assay.records import Usage
from assay.report.graph_drawing import draw_graph, graph_nodes_and_edges
from assay.report.report_table import (
    Cell,
    CountCell,
    MoneyCell,
    NumberCell,
    ReportTable,
    make_table,
    number_columns,
)
from assay.viewer.pages import MissingPage, Page, PageSources
from assay.viewer.sample_page import node_prices
from assay.viewer.samples import SOURCE, Samples

MAX_RECORDS = 20_000


@dataclass
class NodeVisits:
    """The visits of a node: records, requests, failures, seconds in models, tokens read and written, and their cost."""

    name: str
    about: str = ""
    visits: int = 0
    records: int = 0
    requests: int = 0
    failed: int = 0
    seconds: float | None = None
    read: int = 0
    written: int = 0
    cost: float | None = None

    def add(self, usage: Usage, price: Price | None) -> None:
        """Count what a request spent."""
        self.seconds = (self.seconds or 0.0) + usage.seconds or None
        self.read, self.written = self.read + usage.read, self.written + usage.written
        if price is not None and (usage.read or usage.written):
            self.cost = (self.cost or 0.0) + price.of(usage)


def graph_page(sources: PageSources, query: QueryParams) -> Page:
    """The workflow of a graph, and what happened at each node; `known` is the number of records with which that is counted."""
    run, task = sources.task(query)
    samples = sources.samples(run, task)
    nodes, edges = graph_nodes_and_edges(run.graph(task))
    if len(nodes) == 2:
        raise MissingPage(f"task {task} is not a graph")
    known, visited = _count_visits(samples, node_prices(run, task)) if samples is not None else (0, {})
    drawn_visits = [replace(visited.get(node.name, NodeVisits(node.name)), about=node.about) for node in nodes[1:-1]]
    inner = [visits for name, visits in visited.items() if name not in {node.name for node in nodes}]
    notes = {visits.name: visits for visits in drawn_visits}
    drawn = [
        node._replace(note=_note(notes[node.name]), failed=notes[node.name].failed, spent=_spent(notes[node.name]))
        if node.name in notes and known
        else node
        for node in nodes
    ]
    visits = [*drawn_visits, *inner]
    return {
        "run": run, "task": task, "line": run.line(task), "drawing": draw_graph(drawn, edges), "visits": visits,
        "nodes": nodes_table(visits), "known": known,
    }  # fmt: skip


def _note(visited: NodeVisits) -> str:
    failed = f", {visited.failed:,} failed" if visited.failed else ""
    return f"{visited.visits:,}×{failed}"


def _spent(visited: NodeVisits) -> str:
    tokens = f"{visited.read + visited.written:,} tokens" if visited.read or visited.written else ""
    cost = f"cost {format_money(visited.cost)}" if visited.cost is not None else ""
    return " · ".join(part for part in (tokens, cost) if part)


def _count_visits(samples: Samples, prices: Mapping[str, Price | None]) -> tuple[int, dict[str, NodeVisits]]:
    """Count visits by node from the traces of the first records."""
    known, visited = 0, dict[str, NodeVisits]()
    query = f"select file_row_number from {SOURCE} where trace is not null limit {MAX_RECORDS}"
    numbers = samples.database.rows(query, [samples.file]) if "trace.node" in samples.stored.leaves else []
    for row in samples.read([number for [number] in numbers]):
        replies = row.replies or ()
        trace: list[Any] = next((each["trace"] for each in reversed(replies) if "trace" in each), [])
        known += 1
        for name in dict.fromkeys(name for name, _ in trace):
            visited.setdefault(name, NodeVisits(name)).records += 1
        for name, numbers in trace:
            node = visited[name]
            node.visits, node.requests = node.visits + 1, node.requests + len(numbers)
            for usage in (replies[number].get("usage") for number in numbers if number < len(replies)):
                if usage:
                    node.add(Usage(*usage), prices.get(name))
        if row.failed and trace:
            visited[trace[-1][0]].failed += 1
    return known, visited


def nodes_table(visits: Sequence[NodeVisits]) -> ReportTable:
    """The visits of a graph's nodes; the column of costs only where one is known."""
    has_costs = any(node.cost is not None for node in visits)
    titles = ["visits", "records", "requests", "seconds in models", "tokens in", "tokens out"]
    titles += ["cost"] if has_costs else []
    rows: list[list[Cell]] = []
    for node in visits:
        seconds = "" if node.seconds is None else NumberCell(node.seconds, digits=2)
        counts = map(CountCell, (node.visits, node.records, node.requests))
        tokens = CountCell(node.read or None), CountCell(node.written or None)
        cost = [MoneyCell(node.cost)] if has_costs else []
        failed = CountCell(node.failed, style="worse" if node.failed else "")
        rows.append([node.name, node.about, *counts, seconds, *tokens, *cost, failed])
    return make_table(["node", "type", *number_columns(*titles, "failed records")], rows)
