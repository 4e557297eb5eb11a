"""The commands `lm_eval` and `lm-eval`: lm-eval 0.4.13's `run`, `ls` and `validate`, carried out by assay.

A run is evaluated with --compat lm-eval. lm-eval's files are written below --output_path, as lm-eval names them; assay's folder of
the run is in OUTPUT_PATH/.assay, and without --output_path where `assay run` puts it.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay.cli import PLUGIN, Parser
from assay.cli import _run as run_command
from assay.cli.output import echo, echo_err, plain
from assay.cli.runs import runs_dir
from assay.config.arguments import parse_arguments
from assay.config.run import RunConfig
from assay.errors import ConfigError
from assay.evaluation.writing import Evaluation
from lm_eval._evaluation import COMPAT, TaskManager, over_length
from lm_eval._utils import make_table, setup_logging

COMMANDS = ("run", "ls", "validate")
RUNS = ".assay"
"""The folder of assay's runs below --output_path."""
KINDS = {
    "tasks": {},
    "groups": {"list_subtasks": False, "list_tags": False},
    "subtasks": {"list_groups": False, "list_tags": False},
    "tags": {"list_groups": False, "list_subtasks": False},
}
LISTED = {"list": "tasks", "list_groups": "groups", "list_subtasks": "subtasks", "list_tags": "tags"}
"""What `--tasks` lists, by lm-eval's words for it before 0.4.10."""
SEVERAL = (
    "assay evaluates in one process: --model hf --model_args parallelize=true spreads a model over the GPUs, --model vllm"
    " --model_args tensor_parallel_size=N, too; to share the documents of a run out, start `assay run … --shard I/N` for each"
    " part and `assay merge` them. Start lm_eval without accelerate launch or torchrun"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns assay's exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser, commands = _parser(arguments)
    if not arguments or arguments == ["run"] or arguments == ["ls"]:
        commands.get("".join(arguments), parser).print_help()
        return 0
    if len(arguments) > 1 and arguments[0] not in COMMANDS:
        arguments.insert(0, "run")  # as before lm-eval had commands
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        commands[options.command].refuse(unknown)
    setup_logging(getattr(options, "verbosity", None) or "WARNING")
    return run_command(options)


def _parser(arguments: Sequence[str]) -> tuple[Parser, dict[str, Parser]]:
    from assay.cli.flags import define_run

    about = "lm-eval's command, carried out by assay. Without a command, run is meant."
    parser = Parser(prog="lm-eval", description=about)
    made = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    sentences = {
        "run": "evaluate a model on tasks",
        "ls": "list tasks, groups, subtasks or tags",
        "validate": "check task names",
    }
    commands = {
        name: made.add_parser(name, help=sentence, description=sentence) for name, sentence in sentences.items()
    }
    if arguments[:1] != ["ls"] and arguments[:1] != ["validate"]:
        define_run(commands["run"])
        commands["run"].add_argument("--plugin", action="append", default=[], metavar="MODULE_OR_FILE", help=PLUGIN)
        commands["run"].set_defaults(run=_run)
    commands["ls"].add_argument(
        "what", nargs="?", choices=list(KINDS), help="tasks (all names), groups, subtasks or tags"
    )
    commands["ls"].set_defaults(run=_ls)
    commands["validate"].add_argument("--tasks", "-t", required=True, metavar="TASK1,TASK2", help="names, with commas")
    commands["validate"].set_defaults(run=_validate)
    for each in commands.values():
        each.set_defaults(no_color=False, wide=False, format=None)
    for name in ("ls", "validate"):
        commands[name].add_argument("--include_path", metavar="DIR", help="a folder with more tasks")
    return parser, commands


def _ls(options: argparse.Namespace) -> int:
    echo(TaskManager(include_path=options.include_path).list_all_tasks(**KINDS[options.what or "tasks"]))
    return 0


def _validate(options: argparse.Namespace) -> int:
    wanted = options.tasks.split(",")
    echo(f"Validating tasks: {wanted}")
    found = TaskManager(include_path=options.include_path).match_tasks(wanted)
    missing = [name for name in wanted if name not in found and "*" not in name]
    echo(f"Tasks not found: {', '.join(missing)}" if missing else "All tasks found and valid")
    echo_err(f"assay validate {' '.join(wanted)} also checks their files, templates and metrics")
    return 1 if missing else 0


def _run(options: argparse.Namespace) -> int:
    from assay.cli.run import Shell, run_run

    wanted = ",".join(map(str, options.tasks or ()))
    if wanted in LISTED:  # as before lm-eval had `ls`
        return _ls(argparse.Namespace(what=LISTED[wanted], include_path=options.include_path))
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        problem = f"is one of {os.environ['WORLD_SIZE']} processes of accelerate launch or torchrun"
        raise ConfigError.at("lm_eval", problem, SEVERAL)
    asked: list[RunConfig] = []

    def with_folder(config: RunConfig, options: argparse.Namespace) -> RunConfig:
        asked.append(config)
        return _with_lm_evals_defaults(config, no_output=options.no_output)

    def show(evaluation: Evaluation, config: RunConfig, options: argparse.Namespace) -> None:  # noqa: ARG001
        _show(evaluation, config, asked[0])

    return run_run(options, Shell("lm_eval", with_folder, show))


def _with_lm_evals_defaults(config: RunConfig, *, no_output: bool) -> RunConfig:
    """A run with lm-eval's defaults and numbers, in a folder beside lm-eval's files."""
    model = config.model if config.model_named else "hf"
    path = Path(config.output_path) if config.output_path is not None else None
    folder = None if path is None else (path.parent if path.suffix == ".json" else path) / RUNS
    later = (
        {"keep_finished": True} if hasattr(config, "keep_finished") else {}
    )  # a second run is a new one, as in lm-eval
    return replace(
        config,
        **later,
        model=model,
        model_named=True,
        compat=config.compat or COMPAT,
        over_length=over_length(model) if config.over_length == "error" else config.over_length,
        output_path=None,
        runs_dir=None if no_output else str(folder or runs_dir(config.runs_dir)),
        log_samples=False,  # lm-eval's files are written from the samples of the run
    )


def _show(evaluation: Evaluation, config: RunConfig, asked: RunConfig) -> None:
    """Print lm-eval's tables, and write lm-eval's files as they were asked for."""
    from assay.exchange.lm_eval import export_lm_eval
    from assay.exchange.lm_eval_layout import lm_eval_layout
    from assay.report.table import table_footing
    from assay.runs.run import finished_run

    results = lm_eval_layout(evaluation.results)
    if config.show_config:
        echo(json.dumps(plain(results), indent=2, ensure_ascii=False))
    echo(_heading(config))
    echo(make_table(results))
    if results.get("groups"):
        echo(make_table(results, "groups"))
    for line in table_footing(evaluation.results):
        echo_err(line)
    if evaluation.folder is None:
        return
    if asked.output_path is not None:
        samples = asked.log_samples or asked.predict_only
        for file in export_lm_eval(finished_run(evaluation.folder), Path(asked.output_path), samples=samples):
            echo_err(f"written: {file}")
    echo_err(f"run: {evaluation.folder.resolve()} (assay view shows it)")


def _heading(config: RunConfig) -> str:
    """lm-eval's line above its table."""
    arguments = parse_arguments(config.model_args, "model_args")
    generation = parse_arguments(config.gen_kwargs, "gen_kwargs")
    limit = None if config.limit is None else float(config.limit)
    settings = f"limit: {limit}, num_fewshot: {config.num_fewshot}, batch_size: {config.batch_size or 1}"
    return f"{config.model} ({arguments}), gen_kwargs: ({generation}), {settings}"
