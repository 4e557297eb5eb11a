"""The page of a graph: its workflow drawn, with visits, failures and time per node."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from assay.report.plots import draw_graph, graph_nodes_and_edges
from assay.report.reading import RunSummary
from assay.viewer.pages import MissingPage
from assay.viewer.samples import SOURCE, Database, Samples

MAX_RECORDS = 20_000


class NodeVisits(NamedTuple):
    """The visits of a node: records, requests, failures and time."""

    name: str
    about: str
    visits: int
    records: int
    requests: int
    failed: int
    seconds: float | None


def graph_view(
    run: RunSummary, task: str, samples: Samples | None, database: Database
) -> tuple[str, list[NodeVisits], int]:
    """Draw the graph; returns the drawing, the visits of every node, and the number of records they were counted
    from.
    """
    nodes, edges = graph_nodes_and_edges(run.graph(task))
    if len(nodes) == 2:
        raise MissingPage(f"task {task} is not a graph")
    known, visited = _count_visits(samples, database) if samples is not None else (0, {})
    drawn_visits = [
        visited.get(node.name, NodeVisits(node.name, "", 0, 0, 0, 0, None))._replace(about=node.about)
        for node in nodes[1:-1]
    ]
    inner = [visits for name, visits in visited.items() if name not in {node.name for node in nodes}]
    notes = {visits.name: visits for visits in drawn_visits}
    drawn = [
        node._replace(note=_note(notes[node.name]), failed=notes[node.name].failed)
        if node.name in notes and known
        else node
        for node in nodes
    ]
    return draw_graph(drawn, edges), [*drawn_visits, *inner], known


def _note(visited: NodeVisits) -> str:
    failed = f", {visited.failed:,} failed" if visited.failed else ""
    return f"{visited.visits:,}×{failed}"


def _count_visits(samples: Samples, database: Database) -> tuple[int, dict[str, NodeVisits]]:
    """Count visits by node from the traces of the first records; runs of older versions have no traces."""
    visits: Counter[str] = Counter()
    records: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    known = 0
    query = f"select file_row_number from {SOURCE} where trace is not null limit {MAX_RECORDS}"
    numbers = database.rows(query, [samples.file]) if "trace.node" in samples.stored.leaves else []
    for row in samples.read([number for [number] in numbers]):
        replies, failed = row.replies or (), row.failed
        trace: list[Any] = next((each["trace"] for each in reversed(replies) if "trace" in each), [])
        known += 1
        records.update({name for name, _ in trace})
        for name, numbers in trace:
            visits[name] += 1
            requests[name] += len(numbers)
            used = [replies[number].get("usage") for number in numbers if number < len(replies)]
            seconds[name] += sum(usage[2] for usage in used if usage)
        if failed and trace:
            failures[trace[-1][0]] += 1
    return known, {
        name: NodeVisits(name, "", visits[name], records[name], requests[name], failures[name], seconds[name] or None)
        for name in visits
    }
