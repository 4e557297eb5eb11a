"""Write the reference pages: every key of every file, every option of every command, from the code itself.

usage: python tools/make_reference.py FOLDER
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from assay.cli import COMMANDS, define
from assay.config.group import AggMetricConfig, GroupConfig
from assay.config.option import yaml_fields
from assay.config.run import RunConfig
from assay.config.task import (
    FewshotConfig,
    FilterConfig,
    FilterStep,
    FormatConfig,
    MetricConfig,
    ScorerConfig,
    TaskConfig,
)
from assay.evaluation.model_facts import MEANINGS
from assay.graphs.spec import (
    AgentSpec,
    AnswerField,
    AnswerSchema,
    Attribute,
    ChoiceSpec,
    DataConfig,
    EdgeConfig,
    GraphConfig,
    GraphProperties,
    GraphShape,
    LambdaSpec,
    LlmSpec,
    LoglikelihoodSpec,
    ModelConfig,
    MultiLlmSpec,
    OutputConfig,
    OutputField,
    PostProcess,
    RollingSpec,
    SamplerSpec,
    SchemaConfig,
    SchemaField,
    SinkConfig,
    SourceConfig,
    StructuredOutput,
    SubgraphSpec,
    Transformation,
)
from assay.models.arguments import Argument, arguments_of, distinct_backends

PAGES = {
    "task": ("Keys of a task file", [TaskConfig, FewshotConfig, FilterConfig, FilterStep, MetricConfig, ScorerConfig]),
    "group": ("Keys of a group file", [GroupConfig, AggMetricConfig]),
    "graph": (
        "Keys of a graph file",
        [
            GraphConfig,
            DataConfig,
            SourceConfig,
            SinkConfig,
            Transformation,
            GraphShape,
            EdgeConfig,
            GraphProperties,
            LlmSpec,
            AgentSpec,
            MultiLlmSpec,
            ChoiceSpec,
            LoglikelihoodSpec,
            RollingSpec,
            ModelConfig,
            StructuredOutput,
            AnswerSchema,
            AnswerField,
            LambdaSpec,
            SamplerSpec,
            Attribute,
            SubgraphSpec,
            OutputConfig,
            OutputField,
            SchemaConfig,
            SchemaField,
            PostProcess,
        ],
    ),
    "format": ("Keys of a format", [FormatConfig]),
    "run": ("Keys of a run", [RunConfig]),
}
NOTE = "<!-- written by `make docs`; change the code, not this page -->"


IDENTITY = (
    "With another value of an option that is marked *identity*, a run is another run, and its folder is not resumed. Models, tasks"
    " and helper code are identified by their content instead. `assay run` has the options as flags"
    " ([commands](commands.md#assay-run)), `assay.simple_evaluate` as parameters."
)
INCLUDE = (
    "| `include` | str or list of [str] |  | Files, relative to this one, whose keys are taken where this file does not have"
    " them; of several the later wins. |"
)
MEMBERS = (
    "## Members\n\nAn entry of `task` is a name; or a mapping with `task` or `group`, keys that change it, `include`, and\n"
    "`if`: a condition of the facts below, compared by `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, joined by `and`,\n"
    "`or`, `not`. A member whose condition is false is left out, and named in the results."
)
MODELS = "`--model_args` of each backend, by the name that `--model` takes. How to use them: [models](../models.md)."


def key_page(title: str, records: list[type]) -> str:
    """The page of a kind of file: a table of keys for each record."""
    parts = [NOTE, f"# {title}", ""]
    if records == [RunConfig]:
        return "\n".join([*parts, IDENTITY, "", *run_table()])
    for record in records:
        parts += [
            f"## {record.__name__}",
            "",
            (record.__doc__ or "").partition("\n\n")[0].strip(),
            "",
            "| key | type | default | |",
            "|---|---|---|---|",
        ]
        parts += [row(item) for item in yaml_fields(record)]
        parts += [INCLUDE, ""] if record in (TaskConfig, GroupConfig) else [""]
    return "\n".join([*parts, *(members() if GroupConfig in records else ())])


def members() -> Iterator[str]:
    """The section of a group's page about members, and the facts that their conditions can use."""
    yield from (MEMBERS, "", "| fact | |", "|---|---|")
    yield from (f"| `model.{name}` | {meaning} |" for name, meaning in MEANINGS.items())
    yield from (
        "| `model.ARGUMENT` | an argument of --model_args |",
        "| `run.OPTION` | an [option of the run](run.md) |",
        "| `metadata.KEY` | a key of --metadata |",
        "",
    )


def run_table() -> Iterator[str]:
    yield from ("| key | type | default | identity | |", "|---|---|---|---|---|")
    for item in yaml_fields(RunConfig):
        key, kind, default, doc = cells(item)
        yield f"| {key} | {kind} | {default} | {'yes' if item.metadata['run'].identity else ''} | {doc} |"


def row(item: "dataclasses.Field[object]") -> str:
    return f"| {' | '.join(cells(item))} |"


def cells(item: "dataclasses.Field[object]") -> tuple[str, str, str, str]:
    """Key, type, default and sentence of an option."""
    key = item.metadata["key"] or item.name
    kind = getattr(item.type, "__name__", None) if isinstance(item.type, type) else str(item.type)
    shown = readable(str(kind))
    default = "required" if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING else ""
    if item.default not in (dataclasses.MISSING, None, ()) and not dataclasses.is_dataclass(item.default):
        default = f"`{item.default!r}`".replace("|", "\\|")
    return f"`{key}`", shown, default, item.metadata["doc"]


def readable(kind: str) -> str:
    """Write a type in the words of YAML."""
    for old, new in (
        ("collections.abc.", ""), ("typing.", ""), ("assay.records.", ""), ("assay.config.task.", ""),
        ("assay.config.group.", ""), ("assay.graphs.spec.", ""), ("Mapping[str, object]", "mapping"),
        ("Mapping[str, ", "mapping of ["),
        ("tuple[object, ...]", "list"), ("Function", "`!function`"), ("tuple[", "list of ["), (", ...]", "]"),
        (" | None", ""), ("NoneType", "null"),
    ):  # fmt: skip
        kind = kind.replace(old, new)
    kind = re.sub(r"Optional\[(.*)\]", r"\1", kind)
    kind = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " or "), kind)
    return kind.replace("|", "or")


def command_page() -> str:
    return "\n".join([NOTE, "# Commands", "", *command_parts()])


def command_parts() -> Iterator[str]:
    for name, sentence in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"assay {name}", description=sentence, formatter_class=wide)
        define(name, parser)
        yield from (f"## assay {name}", "", "```", parser.format_help().rstrip(), "```", "")


def wide(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=110, max_help_position=32)


def model_page() -> str:
    """The page of the backends' arguments, with a section for each."""
    parts = [NOTE, "# Arguments of models", "", MODELS]
    for name in sorted(distinct_backends()):
        parts += ["", f"## {name}", "", argument_table(name)]
    return "\n".join(parts)


def argument_table(name: str) -> str:
    rows = ["| argument | type | default | |", "|---|---|---|---|", *map(argument_row, arguments_of(name))]
    return "\n".join(rows) if len(rows) > 2 else "It takes no arguments."


def argument_row(argument: Argument) -> str:
    kind = getattr(argument.kind, "__name__", None) if isinstance(argument.kind, type) else str(argument.kind)
    default = "required" if argument.is_required else "" if argument.default is None else f"`{argument.default!r}`"
    return f"| `{argument.name}` | {readable(str(kind))} | {default} | {argument.meaning} |".replace("\n", " ")


def pages() -> dict[str, str]:
    """Every generated page, by file name."""
    keys = {f"{name}.md": key_page(title, records) for name, (title, records) in PAGES.items()}
    return {**keys, "commands.md": command_page(), "models.md": model_page()}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
