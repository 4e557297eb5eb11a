"""`assay schema`: what a file may say, for editors."""

import argparse

from assay.cli.output import say_json
from assay.config.format import FormatConfig
from assay.config.group import GroupConfig
from assay.config.run import RunConfig
from assay.config.schema import json_schema
from assay.config.task import TaskConfig
from assay.graphs.spec import GraphConfig


def define(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["task", "group", "graph", "format", "run"], help="the kind of file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # A group file may hold any key of a task: a default for its members.
    records: dict[str, tuple[type, ...]] = {
        "task": (TaskConfig,), "group": (GroupConfig, TaskConfig), "graph": (GraphConfig,), "format": (FormatConfig,),
        "run": (RunConfig,),
    }  # fmt: skip
    record, *more = records[options.kind]
    say_json(json_schema(record, f"assay {options.kind}", *more))
    return 0
