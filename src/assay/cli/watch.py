"""`assay watch`: evaluate the checkpoints of a training as they appear, and alarm when one is worse than those before it."""

import argparse
import json
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from glob import has_magic
from pathlib import Path
from typing import Any

import orjson

from assay.cli import interrupted_code
from assay.cli.flags import run_options
from assay.cli.output import EXIT, command_line, echo, echo_err, echo_wrapped, plain
from assay.cli.run import config_file, evaluated_once
from assay.cli.sweep import SweepResults, free_memory, show_sweep, sweep_code
from assay.comparison.compare import decide_next
from assay.comparison.gate_checks import check_gates
from assay.config.arguments import parse_arguments
from assay.config.folders import runs_folder
from assay.config.run import RunConfig, identity_of
from assay.config.source import digest
from assay.errors import AssayError, ConfigError
from assay.evaluation.flow import prepare_run
from assay.evaluation.options import run_config, task_manager, training_step, weights_argument
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.replicas import FleetOptions, fleet_options
from assay.evaluation.sweep import KEY, finished_run, same_but_model
from assay.evaluation.watch import Checkpoint, CheckpointWatch, CommandTemplate, WatchOptions, convert
from assay.models.load import check_arguments
from assay.number_text import format_duration
from assay.report.comparison_text import gate_line
from assay.report.table import checkpoints_json, headline
from assay.results import Results
from assay.runs.files import make_folder, new_file
from assay.runs.lease import Lease
from assay.runs.run import runs_in
from assay.runs.storage import refuse_url

SUMMARY = "checkpoints.json"
ALARMED = 1
CONVERTED = "converted"


def run_watch(options: argparse.Namespace) -> int:
    watched = _watch_options(options)
    commands = _commands(options)
    config = _config(options, watched)
    session = WatchSession(options, config, commands, command_line())
    session.check()
    with _held(Path(session.output)):
        session.recall()
        watch = CheckpointWatch(watched, session.evaluate, echo_err)
        echo_err(f"watching {watched.folder}/{watched.pattern}; runs: {session.output}")
        try:
            watch.run()
        except KeyboardInterrupt:
            session.show(watch.failed)
            echo_err(f"\nstopped; continue with: {shlex.join(session.command)}")
            return interrupted_code()
        session.show(watch.failed)
        return ALARMED if session.alarms else session.exit_code(watch.failed)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder, so that no second watch works in it."""
    make_folder(folder)
    lease = Lease(folder)
    try:
        yield
    finally:
        lease.release()


def _watch_options(options: argparse.Namespace) -> WatchOptions:
    folder, pattern = Path(options.folder).expanduser(), "*"
    if has_magic(folder.name) and not folder.exists():
        folder, pattern = folder.parent, folder.name
    if not folder.is_dir():
        what = f"no folder {folder}"
        raise ConfigError.at("DIR", what, "make it before the training starts, or correct the path")
    if not 0.5 < options.level < 1:
        raise ConfigError.at("--level", f"must be between 0.5 and 1, got {options.level:g}", "0.95, say")
    if options.last < 1:
        raise ConfigError.at("--last", "must be at least 1", "leave it out, or give 3, say")
    if options.on_alarm and not options.gate:
        raise ConfigError.at("--on_alarm", "is for gates, and there is none", "add --gate 'acc > -1pp'")
    return WatchOptions(folder.resolve(), pattern, options.ready, options.stable, options.once, options.until)


@dataclass(frozen=True)
class _WatchCommands:
    convert: CommandTemplate | None
    alarm: CommandTemplate | None


def _commands(options: argparse.Namespace) -> _WatchCommands:
    converting = CommandTemplate(options.convert, "--convert") if options.convert else None
    alarming = CommandTemplate(options.on_alarm, "--on_alarm") if options.on_alarm else None
    if converting is not None:
        converting.check({"checkpoint": "", "out": ""}, ("checkpoint", "out"))
    if alarming is not None:
        alarming.check({"checkpoint": "", "step": "", "run": "", "message": ""})
    return _WatchCommands(converting, alarming)


def _config(options: argparse.Namespace, watched: WatchOptions) -> RunConfig:
    """The options of all runs; the folder for them is one of this watch."""
    file = config_file(options.config)
    if file is not None and KEY in file:
        raise ConfigError.at(file.place(KEY, key=True), "a watch has one model", f"leave out {KEY}")
    stated = run_options(options, dict(file or {}))
    config = run_config({"model": "hf", **stated}, file)
    arguments = parse_arguments(config.model_args, "model_args")
    weights = weights_argument(config.model, arguments)
    if weights in arguments:
        what = f"{weights} is the checkpoint that is evaluated"
        raise ConfigError.at(f"model_args.{weights}", what, f"leave it out: DIR is {watched.folder}")
    own, _ = fleet_options(config.model, arguments, FleetOptions.of_run(config))
    check_arguments(config.model, {**own, weights: str(watched.folder)})
    if config.dry_run:
        raise ConfigError.at("dry_run", "a watch has no dry run", "use `assay run --dry_run`")
    output = config.output_path or f"{config.runs_dir or runs_folder()}/{_watch_name(config, watched)}"
    refuse_url(output, "--output_path")
    return replace(config, output_path=output, runs_dir=None)


def _watch_name(config: RunConfig, watched: WatchOptions) -> str:
    """The name of the folder with the runs of a watch: always the same for the same command."""
    about = [str(watched.folder), watched.pattern, config.model, config.model_args, config.tasks, identity_of(config)]
    return f"{watched.folder.name}-{digest(orjson.dumps(about, default=str))[:8]}"


@dataclass
class WatchSession:
    """The runs of a watch: those of earlier commands, and those it makes."""

    options: argparse.Namespace
    config: RunConfig
    commands: _WatchCommands
    command: Sequence[str]
    results: SweepResults = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    decided: dict[str, list[str]] = field(default_factory=dict)
    """The alarms of each checkpoint whose gates were decided."""
    alarms: int = 0
    _prepared: PreparedRun | None = None

    @property
    def output(self) -> str:
        assert self.config.output_path is not None, "it is set where options are read"
        return self.config.output_path

    def check(self) -> None:
        """Refuse what is wrong with tasks and gates before there is a checkpoint; a chat template needs one."""
        if self.config.apply_chat_template:
            return
        self._prepared = prepare_run(self.config, task_manager(self.config))
        if self.options.gate:
            check_gates(self._prepared, self.options.gate, None, is_series=True)

    def recall(self) -> None:
        """Read the runs that earlier commands of this watch finished."""
        if self._prepared is not None:
            for folder in runs_in(Path(self.output)):
                step = training_step(folder.name)
                run = same_but_model(folder, self._prepared)
                if step is not None and run is not None:
                    self.results[folder.name], self.steps[folder.name] = run.results, step
        try:
            noted = json.loads((Path(self.output) / SUMMARY).read_bytes())["checkpoints"]
            self.decided = {
                each["name"]: each["alarms"] for each in noted if "alarms" in each and each["name"] in self.results
            }
        except (OSError, ValueError, KeyError, TypeError):  # the first time, or damaged: gates are decided again
            self.decided = {}
        if self.results:
            echo_err(f"evaluated before: {len(self.results)} checkpoints, up to step {max(self.steps.values())}")

    def evaluate(self, checkpoint: Checkpoint) -> None:
        """Evaluate a checkpoint, unless that is done, decide its gates, and print its line."""
        started = time.monotonic()
        results, is_new = self._results(checkpoint)
        self.results[checkpoint.name], self.steps[checkpoint.name] = results, checkpoint.step
        if is_new:
            seconds = time.monotonic() - started
            echo(f"step {checkpoint.step}: {headline(results)} ({checkpoint.name}, {format_duration(seconds)})")
        if checkpoint.name not in self.decided:
            self._decide(checkpoint)
        self._write()

    def _results(self, checkpoint: Checkpoint) -> tuple[Results, bool]:
        config = self._config_of(checkpoint, checkpoint.path)
        if self._prepared is not None:
            known = finished_run(replace(self._prepared, config=config), checkpoint.path)
            if known is not None:
                return known.results, False
        try:
            if self.commands.convert is not None:
                out = Path(self.output) / CONVERTED / checkpoint.name
                config = self._config_of(checkpoint, convert(self.commands.convert, checkpoint, out))
            return evaluated_once(config, self.command, checkpoint.path)
        finally:
            free_memory()
            if self.commands.convert is not None:
                shutil.rmtree(Path(self.output) / CONVERTED / checkpoint.name, ignore_errors=True)

    def _config_of(self, checkpoint: Checkpoint, weights: Path) -> RunConfig:
        arguments = parse_arguments(self.config.model_args, "model_args")
        arguments[weights_argument(self.config.model, arguments)] = str(weights)
        return replace(
            self.config, model_args=arguments, model_named=True, output_path=f"{self.output}/{checkpoint.name}"
        )

    def _decide(self, checkpoint: Checkpoint) -> None:
        """Decide the gates of a checkpoint against the last ones before it, and alarm if one fails."""
        earlier = sorted((step, name) for name, step in self.steps.items() if step < checkpoint.step)
        before = [Path(self.output) / name for _, name in earlier[-self.options.last :]]
        if not self.options.gate:
            return
        run = Path(self.output) / checkpoint.name
        try:
            verdicts = decide_next(run, self.options.gate, before, len(self.decided) + 1, self.options.level)
        except AssayError as error:
            echo_err(f"{checkpoint.name}: its gates cannot be decided: {error}")
            return
        failed = [each for each in verdicts if each.verdict.decision == "fail"]
        lines = [
            gate_line(each.verdict) + (f" against {each.baseline.name}" if each.baseline is not None else "")
            for each in failed
        ]
        for line in lines:
            echo_wrapped(f"ALARM at step {checkpoint.step}: {line}")
        if lines:
            self.alarms += 1
            self._run_alarm(checkpoint, run, "; ".join(lines))
        self.decided[checkpoint.name] = lines

    def _run_alarm(self, checkpoint: Checkpoint, run: Path, message: str) -> None:
        if self.commands.alarm is None:
            return
        try:
            self.commands.alarm.run(
                {"checkpoint": checkpoint.path, "step": checkpoint.step, "run": run, "message": message}
            )
        except AssayError as error:
            echo_err(str(error))

    def _write(self) -> None:
        """Write the results and alarms of all checkpoints, in the order of their steps."""
        written = checkpoints_json(self._ordered())
        entries: list[dict[str, Any]] = written["checkpoints"]
        for each in entries:
            each["step"] = self.steps[each["name"]]
            if each["name"] in self.decided:
                each["alarms"] = self.decided[each["name"]]
        with new_file(Path(self.output) / SUMMARY) as part:
            part.write_text(json.dumps(plain(written), indent=1, ensure_ascii=False), encoding="utf-8")

    def _ordered(self) -> SweepResults:
        return dict(sorted(self.results.items(), key=lambda each: (self.steps[each[0]], each[0])))

    def show(self, failed: dict[str, str]) -> None:
        """Print the table of all checkpoints."""
        every: SweepResults = {**self._ordered(), **dict.fromkeys(failed)}
        if every:
            show_sweep(every, failed, with_footing=False)
            echo(f"\nruns: {Path(self.output).resolve()}")
        else:
            echo_err("no checkpoint was evaluated")

    def exit_code(self, failed: dict[str, str]) -> int:
        every: SweepResults = {**self.results, **dict.fromkeys(failed)}
        return sweep_code(every) if every else EXIT["complete"]
