"""`assay run`: evaluate a model on tasks. Its flags are the options of RunConfig, and SyGra's names for some of them."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from assay.catalog.selection import no_spec
from assay.cli import interrupted_code
from assay.cli.flags import ALIASES, ELSEWHERE, NOT_NEEDED, run_options
from assay.cli.output import EXIT, command_line, echo, echo_err, echo_tables, echo_wrapped
from assay.cli.run_gates import gates_of, taken_from
from assay.cli.sweep import run_sweep, runs_of, show_outcomes
from assay.cli.trackers import Tracking, requested_trackers, track
from assay.config.fields import Fields, Origin
from assay.config.option import NOTHING
from assay.config.run import RunConfig, options_where
from assay.config.source import Source, read_bytes
from assay.errors import ConfigError, Problem, grouped
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.options import in_runs_folder, run_config, task_manager
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.sweep import KEY as MODELS
from assay.evaluation.sweep import WEIGHTS, finished_run, weights_folder
from assay.evaluation.writing import Evaluation, OutputOptions
from assay.models.load import backend, parameters
from assay.report.progress import Progress
from assay.report.table import table_footing, table_heading
from assay.results import Results
from assay.runs.results import MANY, tasks_text
from assay.runs.run import Run
from assay.runs.storage import UploadError, shown_place
from assay.tasks.order import StopRule


def run_run(options: argparse.Namespace, shell: "Shell | None" = None) -> int:
    shell = shell or Shell()
    records_at_once = _translate_sygra(options)
    written = config_file(options.config)
    file = taken_from(written.without(MODELS) if written is not None else {}, options)
    trackers = requested_trackers(options, file)
    config = replace(run_config(run_options(options, file), written), records_at_once=records_at_once)
    config = shell.with_folder(config, options)
    command = command_line(shell.name)
    models = runs_of(config, written, options)
    _warn_ineffective(options, next(iter(models.values()), config))
    gates = gates_of(options, config, has_checkpoints=bool(models))
    try:
        if models and not config.dry_run:
            # A chat template needs the model; any other problem of the tasks is the same for all.
            if not config.apply_chat_template:
                prepare_run(next(iter(models.values())), task_manager(config))
            if config.replicas is not None and config.serve is None:
                from assay.cli.sweep_processes import run_together

                return show_outcomes(run_together(models, command, trackers), config.output_path)
            return run_sweep(models, lambda each: swept(each, command, trackers), config.output_path)
        work = _prepared(next(iter(models.values()), config), load_ahead=not models)
        gates.check(work)
        if config.dry_run:
            _stop_rule(work)
            _write_out(work)
            return EXIT["complete"]
        evaluation = _evaluated(work, command)
    except UploadError as error:  # the run itself has its results
        shell.show(Evaluation(Run.open(error.folder).results, None, ()), config, options)
        track(trackers, error.folder)
        raise
    except KeyboardInterrupt:
        is_stored = config.output_path or config.runs_dir
        echo_err("\nstopped" + (f"; resume with: {shlex.join(command)}" if is_stored else ""))
        return interrupted_code()
    shell.show(evaluation, config, options)
    _tracked(evaluation, trackers)
    return gates.exit_code(evaluation)


def _with_folder(config: RunConfig, options: argparse.Namespace) -> RunConfig:
    """Add the folder for runs, unless nothing is to be written."""
    if not options.no_output:
        return in_runs_folder(config)
    for name in ("output_path", "runs_dir", "log_samples", "predict_only"):
        if getattr(config, name) and not config.dry_run:
            raise ConfigError.at(name, f"--no_output excludes --{name}", "leave one of them out")
    return config


def _prepared(config: RunConfig, *, load_ahead: bool = False) -> PreparedRun:
    """Prepare a run: everything that can fail without a model has been tried."""
    with redirect_stdout(sys.stderr):  # what user code prints is not part of the table
        work = prepare_run(config, task_manager(config), load_ahead=load_ahead)
    is_kept = config.output_path or config.runs_dir
    for names, reason in grouped(work.broken.items()):
        tasks = tasks_text(names, len(work.broken) + len(work.tasks)) if len(names) > 1 else f"task {names[0]!r}"
        more = "; all names in results.json" if is_kept and len(names) > MANY else ""
        echo_wrapped(
            f"{tasks} cannot be run: {reason}; continuing without {'them' if len(names) > 1 else 'it'}{more}",
            sys.stderr,
        )
    return work


def swept(config: RunConfig, command: Sequence[str], trackers: Sequence[Tracking]) -> Results:
    """Evaluate one of many models, unless that is done."""
    results, is_new = evaluated_once(replace(config, keep_finished=False), command, weights_folder(config), trackers)
    if not is_new:
        echo_err("finished before: nothing is asked")
    return results


def evaluated_once(
    config: RunConfig, command: Sequence[str], weights: Path | None, trackers: Sequence[Tracking] = ()
) -> tuple[Results, bool]:
    """The results of a run, and whether it had to be made. Without a change of its `weights` since, a complete one is read."""
    work = _prepared(config)
    known = finished_run(work, weights)
    if known is not None:
        return known.results, False
    notes = {WEIGHTS: str(weights)} if weights is not None else {}
    return _tracked(_evaluated(work, command, notes), trackers).results, True


def _evaluated(work: PreparedRun, command: Sequence[str], notes: Mapping[str, str] = NOTHING) -> Evaluation:
    if work.config.write_out:
        _write_out(work)
    rule = _stop_rule(work)
    with Progress() as progress, redirect_stdout(sys.stderr):
        evaluation = execute(
            work, progress, OutputOptions(notes={"command": command, **notes}, announce=echo_err), rule
        )
    if rule is not None and not evaluation.tasks:
        echo_err("decided before: nothing is asked; without --stop_when, the other documents are")
    return evaluation


def _tracked(evaluation: Evaluation, trackers: Sequence[Tracking]) -> Evaluation:
    """Log a finished run to its trackers."""
    track(trackers, evaluation.folder)
    return evaluation


def _write_out(work: PreparedRun) -> None:
    """Print prompts; what draws them, graphs included, is imported only for it."""
    from assay.cli.show import write_out

    write_out(work)


def _stop_rule(work: PreparedRun) -> StopRule | None:
    """The rule of --stop_when, checked; comparisons are imported only for it."""
    if work.config.stop_when is None:
        return None
    from assay.comparison.gate_checks import stop_rule

    return stop_rule(work)


def _show(evaluation: Evaluation, config: RunConfig, options: argparse.Namespace) -> None:
    results = evaluation.results
    echo_wrapped(table_heading(results))
    echo_tables(results, options.depth)
    if config.show_config:
        echo(
            json.dumps(
                {name: results.tasks[name].config for name in sorted(results.tasks)},
                indent=2,
                default=str,
                ensure_ascii=False,
            )
        )
    for line in table_footing(results, with_broken=False):
        echo_wrapped(line, sys.stderr)
    if evaluation.folder is not None:
        echo(f"\nrun: {shown_place(evaluation.folder)}")


@dataclass(frozen=True, slots=True)
class Shell:
    """The parts of the command that `lm_eval` of packages/assay-lm-eval has otherwise: its name, where a run is stored, and
    what is printed and written at its end."""

    name: str = "assay"
    with_folder: Callable[[RunConfig, argparse.Namespace], RunConfig] = _with_folder
    show: Callable[[Evaluation, RunConfig, argparse.Namespace], None] = _show


def _warn_ineffective(options: argparse.Namespace, config: RunConfig) -> None:
    """List the flags that change nothing: lm-eval's that have no use here, and those this model has no parameter for."""
    known = parameters(backend(config.model))
    unused = options_where(lambda each: each.group == "")
    unsupported = [name for name in options_where(lambda each: each.for_model) if name not in known]
    names = [*unsupported, *unused]
    ineffective = [f"--{name}" for name in names if getattr(options, name, None) not in (None, False)]
    if ineffective:
        echo_err(f"no effect here: {', '.join(ineffective)}")


def config_file(path: str | None) -> Fields | None:
    """The options of a --config file, each with its place."""
    if path is None:
        return None
    try:
        source = Source(path, read_bytes(path))
    except OSError as error:
        raise ConfigError.at(path, f"cannot be read: {error.strerror}", "check the path") from None
    if source.problems or not isinstance(source.value, Mapping):
        raise ConfigError(
            source.problems or [Problem(source.place(), "the file is not a mapping of options", "write key: value")]
        )
    tasks = source.value.get("tasks")
    for number, each in enumerate(tasks) if isinstance(tasks, list) else [(None, tasks)]:
        if not isinstance(each, str | Mapping) and tasks is not None:
            raise no_spec(each, source.place(("tasks",) if number is None else ("tasks", number)))
    return Fields.of(source.value, Origin(source))


def _translate_sygra(options: argparse.Namespace) -> int | None:
    """Replace SyGra's flags by ours; returns the number of concurrent records, which is their --batch_size."""
    records_at_once = None
    if options.task is not None:
        if options.tasks:
            raise ConfigError.at("task", "--task and --tasks exclude each other", "give one of them")
        options.tasks = [options.task]
        records_at_once, options.batch_size = _records_at_once(options.batch_size), None
        if records_at_once is not None and records_at_once > 32 and "num_concurrent" not in str(options.model_args):
            echo_err(f"at most 32 requests are sent at once: --model_args num_concurrent={records_at_once} sends more")
    for theirs, ours in ALIASES.items():
        value = getattr(options, theirs)
        if value is not None and getattr(options, ours) is not None:
            raise ConfigError.at(theirs, f"--{theirs} and --{ours} are the same", "give one of them")
        if value is not None:
            setattr(options, ours, value)
    _answer_sygra(options)
    return records_at_once


def _answer_sygra(options: argparse.Namespace) -> None:
    """Refuse flags of SyGra that have another way here, and say which have no effect."""
    for name, (_, fix) in ELSEWHERE.items():
        if str(getattr(options, name) or "false").strip().lower() not in ("false", "{}", "none", "0"):
            raise ConfigError.at(f"--{name}", "is not supported", fix)
    for name, (_, why) in NOT_NEEDED.items():
        if getattr(options, name) is not None:
            echo_err(f"--{name} has no effect: {why}")


def _records_at_once(text: str | None) -> int | None:
    if text is not None and (not text.isdigit() or int(text) < 1):
        raise ConfigError.at("batch_size", f"must be a number of records, got {text!r}", "give 1 or more")
    return None if text is None else int(text)
