"""`assay launch`: a script that runs an evaluation on SLURM or Kubernetes, printed or sent."""

import argparse
import shutil
import subprocess
from pathlib import Path

from assay.cli.flags import define_run, given, run_options
from assay.cli.output import echo
from assay.cli.run import config_file
from assay.cli.run_gates import taken_from
from assay.cli.sweep import runs_of
from assay.config.run import RunConfig
from assay.errors import ConfigError
from assay.evaluation.options import run_config, task_manager
from assay.evaluation.prepare import load
from assay.evaluation.sweep import KEY as MODELS
from assay.fleet.launch import LaunchOptions, check, kubernetes_manifest, slurm_script

SENDERS = {"slurm": ("sbatch",), "k8s": ("kubectl", "apply", "-f", "-")}


def run_launch(options: argparse.Namespace) -> int:
    config = _checked(options.file, shares_disk=options.executor == "slurm")
    names = ("nodes", "gpus_per_node", "time", "partition", "account", "image", "env", "volume")
    launch_options = LaunchOptions(**given(options, *names))
    check(launch_options, options.executor, config)
    file = Path(options.file)
    if options.executor == "slurm":
        script = slurm_script(file, config, launch_options)
    else:
        import yaml

        script = yaml.safe_dump_all(kubernetes_manifest(file, config, launch_options), sort_keys=False)
    if not options.send:
        echo(script.rstrip("\n"))
        return 0
    return _send(options.executor, script)


def _checked(file: str, *, shares_disk: bool) -> RunConfig:
    """The run of a file, refused as `assay run` would refuse it; its tasks are looked up, and no code of them is executed.
    Its checkpoints are looked for where the cluster has the same disk."""
    parser = argparse.ArgumentParser()
    define_run(parser)
    options = parser.parse_args(["--config", file])
    written = config_file(file)
    assert written is not None, "a file is named"
    config = run_config(run_options(options, taken_from(written.without(MODELS), options)), written)
    if shares_disk:
        runs_of(config, written, options)
    load(config, task_manager(config))
    return config


def _send(executor: str, script: str) -> int:
    command = SENDERS[executor]
    if shutil.which(command[0]) is None:
        fix = "run this where it is, or leave --send out and send the script yourself"
        raise ConfigError.at("--send", f"{command[0]} is not installed", fix)
    return subprocess.run(command, input=script.encode(), check=False).returncode
