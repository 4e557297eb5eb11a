"""The flag --export, and lm-eval's --wandb_args, --trackio_args and --hf_hub_log_args: a finished run is exported, as `assay
export` does it.

A tracker that fails changes neither the run nor the exit code: the reason is printed, and the command that does it afterwards.
"""

import argparse
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from assay.cli.flags import TRACKERS, joined_pairs
from assay.cli.output import echo, echo_err
from assay.config.arguments import parse_arguments
from assay.config.option import YAMLValue
from assay.errors import AssayError, ConfigError, Place
from assay.runs.results import plain
from assay.user_code import UserCodeError, user_code

TARGETS = {"wandb_args": "wandb", "trackio_args": "trackio", "hf_hub_log_args": "hf-hub"}
LIBRARIES = {"wandb": "wandb", "trackio": "trackio", "hf-hub": "huggingface_hub"}
NEEDS_FOLDER = "a tracker needs the files of the run: leave --no_output out"
EXPORTS = "exports"
"""The folder in that of a run with what --export writes, by exporter."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """One export of the finished run: the flag that asks for it, the exporter, and its arguments by parameter."""

    flag: str
    to: str
    arguments: Mapping[str, Mapping[str, YAMLValue]] = field(repr=False)
    has_target: bool = False
    """Whether it writes files, which go below the folder of the run."""

    def target(self, folder: Path) -> Path | None:
        return folder / EXPORTS / self.to if self.has_target else None

    def command(self, folder: Path) -> str:
        """The command that does it, without secrets."""
        flags = [part for name, pairs in self.arguments.items() for part in (f"--{name}", *(_written(plain(pairs))))]
        target = self.target(folder)
        flags += ["-o", str(target)] if target is not None else []
        return shlex.join(["assay", "export", str(folder), "--to", self.to, *flags])


def requested_trackers(options: argparse.Namespace, file: dict[str, YAMLValue]) -> list[Tracking]:
    """Collect the trackers of flags and of a file, whose keys are taken out; wrong arguments are refused before the run."""
    pairs = {name: _arguments(name, getattr(options, name), file.pop(name, None)) for name in TRACKERS}
    if pairs["wandb_config_args"] and not pairs["wandb_args"]:
        echo_err("--wandb_config_args has no effect without --wandb_args")
    trackers = []
    for name, to in TARGETS.items():
        if not pairs[name]:
            continue
        arguments = {"args": pairs[name]}
        if name == "wandb_args" and pairs["wandb_config_args"]:
            arguments["config_args"] = pairs["wandb_config_args"]
        if name == "hf_hub_log_args":
            from assay.exchange.trackers import hub_arguments  # exporters are imported where one is asked for

            known = hub_arguments(pairs[name])
            if not (known["push_results_to_hub"] or known["push_samples_to_hub"]):
                continue
        trackers.append(Tracking(name, to, arguments))
    trackers += _exports(options.export or file.pop("export", None) or [])
    if trackers and options.no_output:
        raise ConfigError.at(trackers[0].flag, "there is nothing to log", NEEDS_FOLDER)
    for each in trackers:
        if each.to in LIBRARIES and find_spec(LIBRARIES[each.to]) is None:
            echo_err(f"--{each.flag}: {LIBRARIES[each.to]} is not installed, so this run will not be logged there")
    return trackers


def track(trackers: Iterable[Tracking], folder: Path | None) -> None:
    """Export a finished run to every tracker; a failure is reported with the command to do it afterwards."""
    for each in trackers if folder is not None else ():
        from assay.exchange.exporters import export

        path = folder or Path()
        try:
            with user_code(each.to):
                places = export(
                    path,
                    each.to,
                    each.target(path),
                    args=each.arguments.get("args"),
                    config_args=each.arguments.get("config_args"),
                )
        except (AssayError, UserCodeError) as error:
            reason = "; ".join(map(str, error.problems)) if isinstance(error, AssayError) else str(error)
            echo_err(
                f"not logged: {reason}\nthe run is stored; to log it: {each.command((folder or Path()).resolve())}"
            )
        else:
            for place in places:
                echo(f"{each.to}: {place}")


def _exports(names: YAMLValue) -> list[Tracking]:
    """The exports that --export asks for; an unknown exporter is refused before the run."""
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list):
        raise ConfigError.at("export", f"must be names of exporters, got {names!r:.60}", "write [lm-eval]")
    if not names:
        return []
    from assay.exchange.exporters import EXPORTERS, writes_files  # imported where one is asked for

    return [
        Tracking("export", name, {}, writes_files(EXPORTERS.check(name, {}, Place("--export"))))
        for name in dict.fromkeys(map(str, names))
    ]


def _arguments(name: str, flag: Sequence[str] | None, in_file: YAMLValue) -> dict[str, YAMLValue]:
    if flag is None and not isinstance(in_file, str | Mapping | None):
        raise ConfigError.at(name, f"must have arguments, got {in_file!r:.60}", "write {project: name} or project=name")
    return joined_pairs(name, flag) or parse_arguments(None if flag is not None else in_file, name)


def _written(pairs: Mapping[str, YAMLValue]) -> list[str]:
    """Arguments as a command takes them: as pairs where that keeps them, else as JSON."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in pairs.items()}
    plain = [f"{key}={text}" for key, text in texts.items()]
    try:
        is_same = joined_pairs("args", plain) == dict(pairs)
    except ConfigError:
        is_same = False
    return plain if is_same else [json.dumps(dict(pairs), ensure_ascii=False)]
