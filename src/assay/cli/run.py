"""`assay run`: evaluate a model on tasks. lm-eval's flags, under their names."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.cli.checkpoints import CANNOT, run_checkpoints
from assay.cli.graphs import define_graphs, with_graph_flags
from assay.cli.output import say, say_tables, tell
from assay.cli.progress import Progress
from assay.cli.runs import runs_dir
from assay.cli.write_out import write_out
from assay.config.arguments import parse_arguments, parse_value
from assay.config.run import RunConfig
from assay.config.source import Source
from assay.errors import ConfigError, Place, Problem
from assay.evaluation import Run
from assay.evaluation.checkpoints import checkpoint_runs
from assay.evaluation.models import OF_MODEL
from assay.evaluation.options import run_config, task_manager
from assay.models.load import backend, parameters
from assay.report.table import table_footing, table_heading
from assay.runs.redact import redacted_command

EXIT = {"complete": 0, "incomplete": 1, "partial": 3}
INTERRUPTED = 130


NOWHERE = ("v", "wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args")
"""Flags of lm-eval's that no option of a run stands for."""
SWITCH: dict[str, Any] = {"action": "store_true", "default": None}
MAYBE: dict[str, Any] = {"nargs": "?", "const": True, "default": None}
PAIRS: dict[str, Any] = {"nargs": "+", "action": "extend", "metavar": "K=V"}
IGNORED = ("--cache_requests", "--check_integrity", "--verbosity", "-v", "--wandb_args", "--wandb_config_args",
           "--trackio_args", "--hf_hub_log_args")  # fmt: skip


def define(parser: argparse.ArgumentParser) -> None:
    _define_work(parser.add_argument_group("what is evaluated").add_argument)
    _define_prompts(parser.add_argument_group("how the model is asked").add_argument)
    _define_files(parser.add_argument_group("where things lie").add_argument)
    _define_limits(parser.add_argument_group("how much it may take (exit code 3 when it is reached)").add_argument)
    _define_numbers(parser.add_argument_group("numbers and display").add_argument)
    define_graphs(parser.add_argument_group("graphs, by SyGra's flags").add_argument)
    for name in IGNORED:
        parser.add_argument(name, **MAYBE, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def _define_work(add: Callable[..., object]) -> None:
    add("--tasks", "-t", nargs="+", metavar="NAME", help="names, globs, tags, groups, a::b paths, task@format, files")
    add("--model", "-M", metavar="NAME", help="the model's backend (default: embedded; see `assay ls models`)")
    add("--model_args", "-a", **PAIRS, help="its arguments: k=v,k=v or JSON")
    add(
        "--model_role",
        action="append",
        metavar="ROLE=NAME,K=V",
        help="a further model: judge=openai-chat,model=x,base_url=…",
    )
    add("--batch_size", "-b", metavar="N", help="requests at once, or auto")
    add("--max_batch_size", type=int, metavar="N", help="the most that auto may choose")
    add("--device", metavar="NAME", help="where a local model runs")
    add("--trust_remote_code", **SWITCH, help="run code that comes with a model")
    add("--limit", "-L", type=float, metavar="N", help="the first N documents of each task; below 1, a share")
    add("--sample", type=int, metavar="N", help="a random subset of N documents of each task, the same every time")
    add("--samples", "-E", metavar="JSON", help='numbers of documents by task: {"task": [0, 5]}, or a file with that')
    add("--shard", metavar="I/N", help="one of N equal parts of the documents, 1/N to N/N; see `assay merge`")
    add("--config", "-C", metavar="FILE", help="a YAML file with any of these options; flags win over it")


def _define_prompts(add: Callable[..., object]) -> None:
    add("--num_fewshot", "-f", type=int, metavar="N", help="examples before each question")
    add("--repeats", "-r", type=int, metavar="N", help="how many times each generation is asked")
    add("--gen_kwargs", **PAIRS, help="parameters of generation, over those of the tasks")
    add("--apply_chat_template", **MAYBE, metavar="NAME", help="use the model's chat template")
    add("--fewshot_as_multiturn", **MAYBE, type=_truth, metavar="BOOL", help="examples as turns of the chat")
    add("--system_instruction", metavar="TEXT", help="the system message")
    add("--over_length", choices=["error", "drop_shots", "truncate"], help="a prompt that is too long fails (default), loses"
        " examples, or its beginning as with lm-eval")  # fmt: skip


def _define_files(add: Callable[..., object]) -> None:
    add("--output_path", "-o", metavar="DIR", help="the folder of the run (default: a new one in --runs_dir); the same"
        " command resumes an unfinished run")  # fmt: skip
    add("--runs_dir", metavar="DIR", help="where runs without -o go (default: $ASSAY_RUNS_DIR, else runs/)")
    add("--no_output", action="store_true", help="write no files; the table is all there is")
    add("--force", **SWITCH, help="move another run in that folder aside")
    add("--log_samples", "-s", **SWITCH, help="write samples_<task>.jsonl as lm-eval does, too")
    add("--include_path", action="append", metavar="DIR", help="a folder with further tasks; repeatable, or a:b")
    add("--no_defaults", action="store_true", help="leave out bundled tasks, lm_eval's and those of plug-ins")
    add("--data_dir", metavar="DIR", help="where data is looked for first: DIR/<path>/<name>/<split>.jsonl")
    add("--use_cache", "-c", metavar="DIR", help="a folder of responses that are kept across runs; see `assay cache`")


def _define_limits(add: Callable[..., object]) -> None:
    add("--max_cost", type=float, metavar="MONEY", help="end when so much is spent; needs prices in --model_args")
    add("--max_time", type=_seconds, metavar="TIME", help="end after so many seconds, or 30m, 8h")
    add("--max_failures", type=int, metavar="N", help="end when so many requests have failed for good")


def _define_numbers(add: Callable[..., object]) -> None:
    add("--compat", choices=["lm-eval", "sygra"], help="reproduce lm-eval 0.4.13, or SyGra, also where they err")
    add("--bootstrap_iters", type=int, metavar="N", help="draws of a bootstrap; 0 for no standard errors")
    add("--seed", metavar="N[,N,N,N]", help="seeds for python, numpy, torch and few-shot")
    add("--max_failed", type=float, metavar="SHARE", help="failed documents that make a row incomplete (0.01)")
    add("--metadata", metavar="JSON", help="facts handed to every task")
    add("--predict_only", "-x", **SWITCH, help="ask and write down, but do not score")
    add("--dry_run", **SWITCH, help="show prompts, targets and counts, and ask nothing")
    add("--write_out", "-w", **SWITCH, help="show the first prompt of each task before the run")
    add("--depth", type=_level, metavar="N", help="how many levels below the top the table shows")
    add("--show_config", **SWITCH, help="print the configuration of every task with the results")
    add("--confirm_run_unsafe_code", **SWITCH, help="run code that the model wrote")


def run(options: argparse.Namespace) -> int:
    config = replace(run_config(_given(options)), records_at_once=options.records_at_once)
    config = _with_folder(config, no_output=options.no_output)
    command = redacted_command(["assay", *sys.argv[1:]])
    _tell_ineffective(options, config)
    several = checkpoint_runs(config)
    try:
        if several and not config.dry_run:
            if not config.apply_chat_template:  # which needs the model: what else is wrong now is wrong for all of them
                Run(config, task_manager(config)).prepare()
            ended = run_checkpoints(several, lambda each: _evaluated(_prepared(each, command)), config.output_path)
            return _worst([CANNOT if each is None else _code(each) for each in ended])
        work = _prepared(next(iter(several.values()), config), command)
        if config.dry_run:
            write_out(work)
            return EXIT["complete"]
        results = _evaluated(work)
    except KeyboardInterrupt:
        kept = config.output_path or config.runs_dir
        tell("\nstopped" + (f"; go on with: {shlex.join(command)}" if kept else ""))
        return INTERRUPTED
    _show(results, config, options.depth)
    if work.folder is not None:
        say(f"\nrun: {work.folder.path.resolve()}")
    return _code(results)


def _with_folder(config: RunConfig, *, no_output: bool) -> RunConfig:
    """The configuration with a place for the run, unless none is wanted."""
    if not no_output:
        return config if config.output_path is not None else replace(config, runs_dir=str(runs_dir(config.runs_dir)))
    for name in ("output_path", "runs_dir", "log_samples", "predict_only"):
        if getattr(config, name) and not config.dry_run:
            raise ConfigError([Problem(Place(name), f"--no_output excludes --{name}", "leave one of them out")])
    return config


def _prepared(config: RunConfig, command: Sequence[str]) -> Run:
    """A run of which all that can be tried without asking has been tried."""
    work = Run(config, task_manager(config), facts={"command": command})
    work.prepare()
    for name, reason in work.broken.items():
        tell(f"task {name!r} cannot be run: {reason}; the others go on")
    return work


def _evaluated(work: Run) -> dict[str, Any]:
    if work.config.write_out:
        write_out(work)
    with Progress() as work.watch:
        return work.execute()


def _code(results: Mapping[str, Any]) -> int:
    account = results["assay"]
    return EXIT[account.get("shard", account)["status"]]


def _worst(codes: Sequence[int]) -> int:
    """The exit code of several runs: that they cannot be done, that something failed, that a limit ended them, or 0."""
    return next((code for code in (CANNOT, EXIT["incomplete"], EXIT["partial"]) if code in codes), EXIT["complete"])


def _show(results: Mapping[str, Any], config: RunConfig, depth: int | None) -> None:
    say(table_heading(results))
    say_tables(results, depth)
    if config.show_config:
        say(json.dumps(results["configs"], indent=2, default=str, ensure_ascii=False))
    for line in table_footing(results):
        tell(line)


def _tell_ineffective(options: argparse.Namespace, config: RunConfig) -> None:
    """Flags that were given and change nothing: lm-eval's that have no use here, and those that this model has none for."""
    known = parameters(backend(config.model))
    idle = [name for name in OF_MODEL if name not in known]
    named = [*idle, *NOWHERE, "cache_requests", "check_integrity", "verbosity"]
    given = [f"--{name}" for name in named if getattr(options, name, None) not in (None, False)]
    if given:
        tell(f"no effect here: {', '.join(given)}")


def _given(options: argparse.Namespace) -> dict[str, object]:
    """The options that were given: by flag, else by file."""
    with_graph_flags(options)
    flags = {key: value for key, value in vars(options).items() if value is not None}
    for key in ("config", "command", "run", "plugin", "no_defaults", "no_output", "depth", "records_at_once", *NOWHERE):
        flags.pop(key, None)
    given: dict[str, object] = {**_from_file(options.config), **flags}
    if options.plugin:
        given["plugins"] = list(options.plugin)
    for key in ("model_args", "gen_kwargs"):
        if key in flags:
            given[key] = {k: v for text in flags[key] for k, v in parse_arguments(text, key).items()}
    if "model_role" in flags:
        given["model_role"] = dict(_role(text) for text in flags["model_role"])
    if options.no_defaults:
        given["include_defaults"] = False
    given |= {key: parse_value(str(given[key])) for key in ("batch_size", "apply_chat_template") if key in given}
    if isinstance(given.get("seed"), str):
        given["seed"] = [parse_value(part) for part in str(given["seed"]).split(",")]
    if isinstance(given.get("samples"), str):
        given["samples"] = _samples(str(given["samples"]))
    if isinstance(given.get("metadata"), str):
        given["metadata"] = parse_arguments(given["metadata"], "metadata")
    return given


def _from_file(path: str | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        source = Source(path, Path(path).read_bytes())
    except OSError as error:
        raise ConfigError([Problem(Place(path), f"cannot be read: {error.strerror}", "check the path")]) from None
    if source.problems or not isinstance(source.value, Mapping):
        raise ConfigError(
            source.problems or [Problem(source.place(), "the file is not a mapping of options", "write key: value")]
        )
    return {str(key): value for key, value in source.value.items()}


def _samples(written: str) -> object:
    text = Path(written).read_text() if not written.lstrip().startswith("{") and Path(written).is_file() else written
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(
            [Problem(Place("samples"), f"is not valid JSON: {error}", 'write {"task": [0, 1]}')]
        ) from None


def _role(text: str) -> tuple[str, str]:
    role, found, model = text.partition("=")
    if not found:
        fix = "write judge=openai-chat,model=x,base_url=…"
        raise ConfigError([Problem(Place("model_role"), f"{text!r} names no role", fix)])
    return role.strip(), model


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    number = text[:-1] if text[-1:] in units else text
    try:
        return float(number) * units.get(text[-1:], 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90, 30m or 8h") from None


def _level(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of levels")
    return int(text)


def _truth(text: str) -> bool:
    found = parse_value(text)
    if not isinstance(found, bool):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return found
