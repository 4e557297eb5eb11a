"""The command line: a shell around the rooms below. Each command is a file; nothing heavy is imported to print help."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import assay
from assay.cli.parser import Parser

COMMANDS = {
    "run": "evaluate a model on tasks",
    "score": "score the answers of a run again: other filters, other metrics, no model",
    "merge": "put the shards of a run together",
    "compare": "is B worse than A, and why: runs against the first of them, document by document",
    "plan": "how many documents or repeats it takes to see a difference",
    "verify-backend": "ask two backends the same, and see what they answer differently",
    "view": "look at runs in a browser: groups, tasks, samples, comparisons",
    "samples": "show samples of a run: prompt, answer, target, scores",
    "report": "one file of what runs came to, and how they compare: a page, markdown, JSON or CSV",
    "export": "hand a run on: lm-eval's files, Inspect's logs, Parquet, MLflow, Weights & Biases",
    "import": "a run from lm-eval's files or Inspect's logs, or several runs as one, with groups over them",
    "pack": "one file of a run to hand on: without secrets, and if asked without right answers",
    "ls": "list tasks, groups, tags, formats and what else has a name",
    "show": "what a task or group is made of, and where each setting comes from",
    "validate": "check task and group files without a model, a network or a GPU",
    "new": "write a starter file for a task or group",
    "runs": "list, show and remove runs",
    "cache": "what a cache of responses holds, and taking things out of it",
    "fetch": "download the data sets of tasks into a folder, for machines without a network",
    "schema": "print the JSON Schema of task or group files, for editors",
}
MODULES = {"import": "imports", "verify-backend": "verify_backend"}
"""Commands whose name cannot be that of a file."""
NAMELESS = ("import", "pack", "new", "runs", "cache", "schema")
"""Commands that look up no name which a plug-in could have registered."""
PLUGIN = (
    "a module or a .py file that is imported first: it may register metrics, models, … (docs/plugins.md); repeatable"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code: 0 done, 1 something is wrong with it, 2 cannot be done."""
    gc.set_threshold(50_000)  # the process is ours: with the usual 700, listing spends a tenth of its time collecting
    parser = Parser(prog="assay", description="Evaluate language models.")
    parser.add_argument("--version", action="version", version=f"assay {assay.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = parser
    for name, sentence in COMMANDS.items():
        command = commands.add_parser(name, help=sentence, description=sentence[0].upper() + sentence[1:] + ".")
        if name in arguments[:1]:  # the others show one line each, and need not be loaded for it
            import_module(f"assay.cli.{MODULES.get(name, name)}").define(command)
            if name not in NAMELESS:
                command.add_argument("--plugin", action="append", default=[], metavar="MODULE_OR_FILE", help=PLUGIN)
            chosen = command
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen.refuse(unknown)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from assay.cli.output import prepare_streams, tell
    from assay.errors import AssayError

    prepare_streams()
    try:
        if getattr(options, "plugin", None):
            from assay.registry import load_plugins

            load_plugins(options.plugin)
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except AssayError as error:
        for problem in error.problems:
            tell(str(problem))
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        tell(f"{error.filename or 'output'}: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except KeyboardInterrupt:
        return 130
