"""The page of a graph: its workflow drawn, with how many records came through each node, and where they failed."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from assay.report.plots import draw_graph, graph_parts
from assay.report.reading import RunReading
from assay.viewer.pages import NotThere
from assay.viewer.samples import SOURCE, Database, Samples

LOOKED_AT = 20_000


class Visited(NamedTuple):
    """What happened at a node."""

    name: str
    about: str
    visits: int
    records: int
    requests: int
    failed: int
    seconds: float | None


def graph_view(
    run: RunReading, task: str, samples: Samples | None, database: Database
) -> tuple[str, list[Visited], int]:
    """The drawing, what happened at every node, and of how many records that is known."""
    nodes, ways = graph_parts(run.graph(task))
    if len(nodes) == 2:
        raise NotThere(f"{task} is no graph")
    known, visited = _visited(samples, database) if samples is not None else (0, {})
    told = [
        visited.get(node.name, Visited(node.name, "", 0, 0, 0, 0, None))._replace(about=node.about)
        for node in nodes[1:-1]
    ]
    inner = [each for name, each in visited.items() if name not in {node.name for node in nodes}]
    notes = {each.name: each for each in told}
    drawn = [
        node._replace(note=_note(notes[node.name]), failed=notes[node.name].failed)
        if node.name in notes and known
        else node
        for node in nodes
    ]
    return draw_graph(drawn, ways), [*told, *inner], known


def _note(visited: Visited) -> str:
    failed = f", {visited.failed:,} failed" if visited.failed else ""
    return f"{visited.visits:,}×{failed}"


def _visited(samples: Samples, database: Database) -> tuple[int, dict[str, Visited]]:
    """By node, what the traces of the first records say; runs from before there were traces have none."""
    visits: Counter[str] = Counter()
    records: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    known = 0
    query = f"select file_row_number from {SOURCE} where trace is not null limit {LOOKED_AT}"
    found = database.rows(query, [samples.file]) if "trace.node" in samples.stored.leaves else []
    for row in samples.read([number for [number] in found]):
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
        name: Visited(name, "", visits[name], records[name], requests[name], failures[name], seconds[name] or None)
        for name in visits
    }
