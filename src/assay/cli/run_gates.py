"""The gates of `assay run`: checked before the first request, decided after the last one."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from assay.cli.output import echo, exit_code
from assay.config.option import YAMLValue
from assay.config.run import RunConfig
from assay.errors import ConfigError
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.writing import Evaluation

KEYS = frozenset(("gate", "baseline", "inconclusive", "junit"))


@dataclass(frozen=True)
class RunGates:
    """The gates of a run with the flags about them; comparisons are imported only if there is one."""

    options: argparse.Namespace

    def check(self, work: PreparedRun) -> None:
        """Refuse what this run cannot be asked about."""
        if self.options.gate:
            from assay.cli.gate import begin_report
            from assay.comparison.gate_checks import check_gates

            check_gates(work, self.options.gate, self.options.baseline)
            if not work.config.dry_run:
                begin_report(self.options)

    def exit_code(self, evaluation: Evaluation) -> int:
        """Decide the gates, and return their exit code; without a gate, that of the run."""
        folder, options = evaluation.folder, self.options
        if not options.gate or folder is None:
            return exit_code(evaluation.results)
        from assay.cli.gate import concluded
        from assay.comparison.compare import gate

        echo()
        return concluded(lambda: gate(folder, options.gate, baseline=options.baseline), options)


def taken_from(file: Mapping[str, YAMLValue], options: argparse.Namespace) -> dict[str, YAMLValue]:
    """Take the keys about gates from a --config file, where no flag has them; returns the other ones."""
    for key in KEYS & file.keys():
        value = file[key]
        texts = value if key == "gate" and isinstance(value, list) else [value]
        wrong = [each for each in texts if not isinstance(each, str)]
        if wrong or (key == "inconclusive" and value not in ("pass", "fail")):
            must = {"gate": "a text or a list of texts", "inconclusive": "pass or fail"}.get(key, "a text")
            raise ConfigError.at(f"{options.config}: {key}", f"must be {must}, got {value!r:.60}")
        if not getattr(options, key):
            setattr(options, key, texts if key == "gate" else value)
    return {key: value for key, value in file.items() if key not in KEYS}


def gates_of(options: argparse.Namespace, config: RunConfig, *, has_checkpoints: bool) -> RunGates:
    """The gates of a command, refused where it cannot have any."""
    for flag in ("baseline", "inconclusive", "junit"):
        if getattr(options, flag) and not options.gate:
            raise ConfigError.at(f"--{flag}", "is for gates, and there is none", "add --gate 'acc >= 0.8'")
    if options.gate and has_checkpoints:
        raise ConfigError.at("--gate", "is for one model, and there are several", "use `assay gate` for each run")
    if options.gate and options.no_output and not config.dry_run:
        raise ConfigError.at("--gate", "needs the files of the run", "leave out --no_output")
    return RunGates(options)
