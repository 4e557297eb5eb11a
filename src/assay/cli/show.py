"""`assay show`: a task or group with the line that each setting comes from; prompts as they would be sent."""

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from assay.catalog.functions import functions_in
from assay.cli.flags import task_manager
from assay.cli.output import counted, echo, echo_columns, echo_err, echo_json, echo_wrapped, plain
from assay.config.fields import Fields
from assay.config.option import YAMLValue
from assay.errors import ConfigError
from assay.graphs.reading import GraphFile, targets
from assay.graphs.spec import END, START, LambdaSpec, LikelihoodSpec, SubgraphSpec
from assay.groups import Group
from assay.models.load import token_counter
from assay.records import JSON, Call, Failed, Sample, arguments
from assay.redaction import written_arguments
from assay.report.report_table import make_table
from assay.safe_text import cut
from assay.tasks import Task, TaskManager
from assay.tasks.manager import LoadedTasks
from assay.tasks.validate import unchecked_parameters
from assay.user_code import UserCodeError, call_user_code, user_code

if TYPE_CHECKING:
    from assay.evaluation.prepare import PreparedRun
    from assay.tasks.runnable import Runnable

SETTINGS = ("key", "value", "from")
WIDTH = 72
SHOWN, COUNTED = 1, 25
"""Documents of a task that are printed, and those that requests and tokens are counted on."""
PROMPT_KEYS = ("output_type", "doc_to_text", "doc_to_choice", "doc_to_target", "target_delimiter", "gen_prefix")


def run_show(options: argparse.Namespace) -> int:
    if not options.name.strip():
        raise ConfigError.at("show", "no name given", "`assay ls` lists every name")
    manager = task_manager(options)
    loaded, problems = manager.attempt([options.name])
    serious = [problem for problem in problems if problem.serious]
    for problem in dict.fromkeys(problems):
        echo_err(str(problem) if problem.serious else f"{problem} (note)")
    if serious and not loaded["tasks"] and not loaded["groups"]:
        return 2
    if options.mermaid:
        _show_mermaid(loaded)
    elif options.json:
        echo_json(_described(manager, options.name, loaded))
    else:
        _show_all(manager, loaded, options)
    return 1 if serious else 0


def _show_all(manager: TaskManager, loaded: LoadedTasks, options: argparse.Namespace) -> None:
    """Print groups as trees, a single task with all its settings, many tasks by name."""
    tops = [group for group in loaded["groups"].values() if not group.parents]
    inside = {id(task) for group in tops for task in group.get_all_tasks()}
    alone = [task for task in loaded["tasks"].values() if id(task) not in inside]
    for number, group in enumerate(tops):
        if number:
            echo()
        _show_group(group, options.depth)
    if len(alone) == 1 and not tops:
        _show_task(manager, alone[0])
        if options.render:
            _show_functions(alone[0])
            _show_first(manager, alone[0], options.data_dir)
    elif alone:
        echo(f"{options.name}: {counted(len(alone), 'task')}" if not tops else f"\nand {counted(len(alone), 'task')}")
        for task in alone:
            echo(f"  {task.name}")


def _show_task(manager: TaskManager, task: Task) -> None:
    groups = manager.catalog.index.groups_of(task.config.task)
    echo_wrapped(f"{task.name}  ·  task, {task.output_type}, version {task.version}")
    for title, items in (("tags", task.tags), ("in groups", groups)):
        if items:
            echo_wrapped(f"{title}: {', '.join(items)}")
    for note in task.notes:
        echo_wrapped(f"note: {note}")
    for sentence in unchecked_parameters(task.config):
        echo_wrapped(f"note: {sentence}")
    if task.unsent is not None:
        echo(f"cannot be run: {task.unsent}")
    if isinstance(task.definition, GraphFile):
        echo()
        for line in drawn(task.definition):
            echo(line)
    _show_settings(task.fields)
    rewritten = [(key, _short(value), "format") for key, value in _rewritten(task)]
    if rewritten:
        echo("\nrewritten by the format:")
        echo_columns(make_table(SETTINGS, rewritten))


def _show_mermaid(loaded: LoadedTasks) -> None:
    definitions = [task.definition for task in loaded["tasks"].values()]
    graphs = [definition for definition in definitions if isinstance(definition, GraphFile)]
    if not graphs:
        fix = "name a graph_config.yaml, or a task that is a graph"
        raise ConfigError.at("show", "--mermaid is for graphs", fix)
    for graph in graphs:
        for line in mermaid(graph):
            echo(line)


def _show_settings(fields: Fields) -> None:
    folder = _common_folder(fields)
    echo(f"\nfiles below {folder}" if folder else "")
    echo_columns(make_table(SETTINGS, _settings(fields, folder)))


def _common_folder(fields: Fields) -> str:
    """Return the folder that holds all files a task is made of."""
    files = {place.file for key in fields if (place := fields.place(key, key=True)).line}
    return os.path.commonpath([os.path.dirname(file) for file in files]) if files else ""  # noqa: PTH120  # texts


def _settings(fields: Fields, folder: str) -> Iterator[tuple[str, str, str]]:
    for key in fields:
        place = fields.place(key, key=True)
        file = place.file.removeprefix(folder).lstrip("/") if folder else place.file
        yield key, _short(plain(fields[key])), f"{file}:{place.line}" if place.line else file


def _rewritten(task: Task) -> Iterator[tuple[str, YAMLValue]]:
    if task.notes or task.config.derived or task.config.doc_to_text != task.fields.get("doc_to_text"):
        for key in PROMPT_KEYS:
            value = getattr(task.config, key)
            if value is not None and value != task.fields.get(key):
                yield key, value


def _show_functions(task: Task) -> None:
    """Print where each function is defined. This runs the modules they are in."""
    from assay.compat.modules import HelperCode  # not imported where no code runs

    helper = HelperCode()
    echo("\nfunctions:")
    rows = []
    for function in functions_in(dict(task.fields)):
        target = call_user_code("cannot be loaded", helper.resolve, function)
        if isinstance(target, Failed):
            rows.append((str(function), target.reason))
            continue
        code = getattr(target, "__code__", None)
        rows.append((str(function), f"{code.co_filename}:{code.co_firstlineno}" if code else repr(target)))
    echo_columns(make_table(("function", "defined at"), rows))


def _show_first(manager: TaskManager, task: Task, data_dir: str | None) -> None:
    """Print the prompt, the requests and the target of the first document."""
    from assay.evaluation.flow import prepare_run
    from assay.evaluation.options import run_config

    echo()
    try:
        with user_code("sample 0 cannot be rendered", passes=UserCodeError):
            config = run_config({"tasks": [task], "data_dir": data_dir, "confirm_run_unsafe_code": True})
            write_task(prepare_run(config, manager).tasks[0], None)
    except UserCodeError as error:
        echo_err(str(error))


def _show_group(group: Group[Task], depth: int | None) -> None:
    tasks, groups = group.get_all_tasks(), group.get_all_groups()
    below = f"{counted(len(tasks), 'task')}, {counted(len(groups), 'group')} below"
    echo_wrapped(f"{group.name}  ·  group, {below}, version {group.version}")
    for key, value in group.metadata.items():
        if key != "version":
            echo(f"{key}: {value}")
    for member in group.config.task or ():
        if isinstance(member, Mapping) and "if" in member:
            echo(f"only if {member['if']}: {member.get('task', member.get('group'))}")
    echo()
    for line in _tree(group, "", depth):
        echo(line)
    _show_settings(group.fields.without("task"))


def _tree(group: Group[Task], indent: str, depth: int | None) -> Iterator[str]:
    if not indent:
        yield _title(group, None)
    if depth is not None and depth <= 0:
        if group.children:
            yield f"{indent}└─ … {counted(len(group.get_all_tasks()), 'task')}"
        return
    for number, child in enumerate(group.children):
        last = number == len(group.children) - 1
        yield f"{indent}{'└─' if last else '├─'} {_title(child, group.member_aliases.get(child.name))}"
        if isinstance(child, Group):
            yield from _tree(child, indent + ("   " if last else "│  "), None if depth is None else depth - 1)


def _title(node: "Group[Task] | Task", alias: str | None) -> str:
    shown = alias or node.alias
    title = node.name if shown == node.name else f"{node.name} ({shown})"
    if isinstance(node, Group):
        metrics = [entry.metric_name for entry in node.config.aggregate_metric_list or ()]
        return title + (f"  [{', '.join(metrics)}]" if metrics else "")
    return title + ("  (cannot be run)" if node.unsent is not None else "")


def _described(manager: TaskManager, name: str, loaded: LoadedTasks) -> dict[str, JSON]:
    """Return everything that is shown as data: tasks with value and origin of their keys, groups with their members."""
    tasks = {key: _described_task(manager, task) for key, task in loaded["tasks"].items()}
    groups = {
        key: {"alias": group.alias, "members": group.child_names, **_described_fields(group.fields)}
        for key, group in loaded["groups"].items()
    }
    return {"name": name, "kind": "group" if groups else "task", "tasks": tasks, "groups": groups}


def _described_task(manager: TaskManager, task: Task) -> dict[str, JSON]:
    entry = manager.catalog.index.named.get(task.config.task)
    return {
        "path": entry.path if entry is not None else None,
        "alias": task.alias,
        "tags": task.tags,
        "groups": manager.catalog.index.groups_of(task.config.task),
        "notes": list(task.notes),
        **({"cannot_be_run": str(task.unsent)} if task.unsent is not None else {}),
        **_described_fields(task.fields),
        "rewritten": {key: plain(value) for key, value in _rewritten(task)},
    }


def _described_fields(fields: Fields) -> dict[str, JSON]:
    origin = {key: str(fields.place(key, key=True)) for key in fields}
    return {"config": {key: plain(fields[key]) for key in fields}, "origin": origin}


def _short(value: YAMLValue) -> str:
    text = value if isinstance(value, str) else str(plain(value))
    return cut(text.replace("\n", "⏎"), WIDTH)


def write_out(run: "PreparedRun") -> None:
    """Print the first prompt of each task, and the number of requests and tokens of all."""
    count = token_counter(run.config.model, run.config.model_args)
    requests = tokens = 0
    for each in run.tasks:
        sent, length = write_task(each, count)
        requests, tokens = requests + sent, tokens + length
    unit = "tokens" if count is not None else "characters"
    echo(f"\nin all: {counted(requests, 'request')}, about {tokens:,} {unit} of prompts\n")


def write_task(task: "Runnable", count: Callable[[str], int] | None) -> tuple[int, int]:
    """Print the first prompt of a task; returns the approximate numbers of requests and tokens of all its documents."""
    measure = count or len
    samples = [_with_first_requests(task, sample) for sample in islice(task.samples(), COUNTED)]
    each = sum(len(sample.requests) for sample in samples) / max(len(samples), 1)
    length = sum(measure(str(arguments(request)[0])) for sample in samples for request in sample.requests) / max(
        len(samples), 1
    )
    echo(f"\n{task.task.name}: {counted(task.facts.size, 'document')} of {task.facts.original}, {task.facts.num_fewshot}-shot, "
        f"{'at least' if task.task.definition is not None else 'about'} {each * task.facts.size:,.0f} requests")  # fmt: skip
    for sample in samples[:SHOWN]:
        _write_sample(sample)
    return round(each * task.facts.size), round(length * task.facts.size)


def _with_first_requests(task: "Runnable", sample: Sample) -> Sample:
    """Return a sample with its first requests: later ones of a graph depend on the answers."""
    if task.task.definition is None:
        return sample
    requests = next(task.plan(sample), ())
    return sample._replace(requests=[request for request in requests if not isinstance(request, Call)])


def _write_sample(sample: Sample) -> None:
    if not sample.requests:
        echo(f"--- document {sample.doc_id}: its first step asks no model\n---")
        return
    first, *others = sample.requests
    prompt = arguments(first)[0]
    echo(f"--- prompt of document {sample.doc_id}\n{prompt}\n---")
    for request in [first, *others][:8]:
        more = written_arguments(request)[1:]
        if more:
            echo(f"then: {more[0]!r}")
    echo(f"target: {sample.target!r}")


def drawn(graph: GraphFile) -> Iterator[str]:
    """Every node in the order it is reached, each with the nodes after it; ways back are marked."""
    order = _order(graph)
    for number, name in enumerate(order):
        if name == END:
            continue
        about = f"  {_about(graph, name)}" if name in graph.nodes else ""
        yield f"{name}{about}"
        ways = list(_ways(graph, name))
        for at, (label, target) in enumerate(ways):
            corner = "└" if at == len(ways) - 1 else "├"
            back = "  ↺" if target in order[: number + 1] else ""
            yield f"  {corner}─{f' {label} ─' if label else ''}► {target}{back}"
    yield END


def mermaid(graph: GraphFile) -> Iterator[str]:
    """The graph in Mermaid's language."""
    yield "flowchart TD"
    numbers = {name: f"n{number}" for number, name in enumerate(_order(graph))}
    for name, number in numbers.items():
        if name in (START, END):
            yield f"    {number}([{name}])"
        else:
            yield f'    {number}["{_escaped(name)}<br/>{_escaped(_about(graph, name))}"]'
    for name, number in numbers.items():
        for label, target in _ways(graph, name):
            said = f'|"{_escaped(label)}"|' if label else ""
            yield f"    {number} -->{said} {numbers[target]}"


def _escaped(text: str) -> str:
    return re.sub(r'["<>|]', lambda sign: f"#{ord(sign.group())};", text)


def _ways(graph: GraphFile, name: str) -> Iterator[tuple[str, str]]:
    """The label of every edge from a node, and the node it leads to; without a choice the label is empty."""
    for edge in graph.edges:
        if edge.source != name:
            continue
        if edge.target is not None:
            yield "", edge.target
        for said, target in (edge.path_map or {}).items():
            yield str(said), str(target)


def _order(graph: GraphFile) -> list[str]:
    """START, then every node when it is first reached, then END."""
    order = [START]
    for name in order:
        for edge in graph.edges:
            if edge.source == name:
                order += [each for each in dict.fromkeys(targets(edge)) if each not in order and each != END]
    return [*order, END]


def _about(graph: GraphFile, name: str) -> str:
    """Describe a node: its type, the model or function it calls, and the keys it writes."""
    node = graph.nodes[name]
    description = str(node.node_type)
    if node.models:
        description += " " + ", ".join(model.name for model in node.models.values())
    elif isinstance(node, LambdaSpec):
        description += " " + node.function.rpartition(".")[2]
    elif isinstance(node, SubgraphSpec):
        description += " " + node.subgraph
    written = (*node.keys, *(node.further_keys if isinstance(node, LikelihoodSpec) else ()))
    return description + (f" → {', '.join(written)}" if written else "")
