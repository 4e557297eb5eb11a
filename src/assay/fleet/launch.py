"""Scripts that run an evaluation on the nodes of SLURM or Kubernetes: a few lines around `ray symmetric-run`, or a RayJob.

Neither holds a secret: variables of the environment are named, and their values stay where the cluster keeps them.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.records import JSONDict
from assay.runs.results import plain

PORT = 6379
RESTARTS = 20
"""How often a run is resumed after preemption."""
INTERRUPTED = (130, 143)
"""Exit codes of a run that was stopped: the same command resumes it."""
LOCAL_MODELS = ("hf", "vllm", "embedded")
TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """The nodes of a run, and where they are."""

    nodes: int
    gpus_per_node: int = 0
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    image: str | None = None
    env: Sequence[str] = ()
    volume: str | None = None


def check(options: LaunchOptions, executor: str, config: RunConfig) -> None:
    """Refuse what no cluster could run; every problem at once."""
    problems = []
    if options.nodes < 1:
        problems.append(Problem(Place("--nodes"), f"must be 1 or more, got {options.nodes}", "write --nodes 4"))
    if options.gpus_per_node < 0:
        what = f"must not be below 0, got {options.gpus_per_node}"
        problems.append(Problem(Place("--gpus_per_node"), what, "write --gpus_per_node 8"))
    if options.time is not None and not TIME.fullmatch(options.time):
        problems.append(Problem(Place("--time"), f"invalid time {options.time!r}", "write 4:00:00, or 1-12:00:00"))
    for name in options.env:
        if not NAME.fullmatch(name):
            what = f"{name.partition('=')[0]!r} must be the name of a variable, without its value"
            problems.append(Problem(Place("--env"), what, "write --env HF_TOKEN; its value stays in the environment"))
    for flag in ("partition", "account"):
        value = getattr(options, flag)
        if value is not None and not re.fullmatch(r"[\w.,-]+", value):
            problems.append(Problem(Place(f"--{flag}"), f"invalid name {value!r}", "write the name that sinfo prints"))
    problems += _kubernetes_problems(options, config) if executor == "k8s" else []
    if problems:
        raise ConfigError(problems)


def _kubernetes_problems(options: LaunchOptions, config: RunConfig) -> list[Problem]:
    problems = []
    if options.image is None:
        fix = "name an image that has assay[ray] and the model's backend: --image NAME:TAG"
        problems.append(Problem(Place("--image"), "Kubernetes needs an image", fix))
    claim, _, path = (options.volume or "").partition("=")
    if options.volume is not None and not (re.fullmatch(r"[a-z0-9.-]+", claim) and path.startswith("/")):
        problems.append(Problem(Place("--volume"), f"invalid volume {options.volume!r}", "write CLAIM=/path"))
    folder = config.output_path or config.runs_dir or ""
    if "://" not in folder and not (path and folder.startswith(path)):
        what = f"the run would be written to {folder or 'runs'!r}, which ends with its pod"
        fix = "give output_path as a URL such as s3://bucket/run, or a folder of a volume: --volume CLAIM=/path"
        problems.append(Problem(Place("output_path"), what, fix))
    return problems


def entrypoint(file: str, config: RunConfig) -> list[str]:
    """The command on the head node; what the file says about the cluster is kept."""
    more = [] if config.ray is not None else ["--ray", "auto"]
    is_local = config.model in LOCAL_MODELS and config.replicas is None and config.serve is None
    return ["assay", "run", "--config", file, *more, *(["--replicas", "auto"] if is_local else [])]


def slurm_script(file: Path, config: RunConfig, options: LaunchOptions) -> str:
    """A batch script: Ray on every node, the run on the first, requeued when it is stopped."""
    directives = {
        "job-name": f"assay-{_plain_name(file.stem)}", "nodes": options.nodes, "ntasks-per-node": 1, "exclusive": "",
        "gpus-per-node": options.gpus_per_node or None, "time": options.time, "partition": options.partition,
        "account": options.account, "requeue": "", "open-mode": "append", "signal": "B:TERM@120",
    }  # fmt: skip
    header = [
        f"#SBATCH --{key}{f'={value}' if value != '' else ''}" for key, value in directives.items() if value is not None
    ]
    command = shlex.join(entrypoint(str(file.resolve()), config))
    codes = "|".join(map(str, INTERRUPTED))
    return "\n".join([
        "#!/bin/bash",
        *header,
        "set -euo pipefail",
        "export RAY_USAGE_STATS_ENABLED=0",
        *(f': "${{{name}:?set {name} before sbatch}}"' for name in options.env),
        f"cd {shlex.quote(str(Path.cwd()))}",
        'mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f'srun ray symmetric-run --address "${{nodes[0]}}:{PORT}" --min-nodes {options.nodes} --include-dashboard=false -- \\',
        f"    {command} &",
        "step=$! stopped='' code=0",
        "trap 'stopped=yes; kill -TERM \"$step\"' TERM  # before the time limit, and by preemption",
        'wait "$step" || code=$?',
        'if [ -n "$stopped" ]; then',
        '    wait "$step" || code=$?  # the signal ended the first wait',
        "fi",
        f"case $code in {codes}) stopped=yes ;; esac",
        f'if [ -n "$stopped" ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RESTARTS} ]; then',
        '    scontrol requeue "$SLURM_JOB_ID"  # the same command resumes the run',
        "fi",
        'exit "$code"',
        "",
    ])  # fmt: skip


def kubernetes_manifest(file: Path, config: RunConfig, options: LaunchOptions) -> list[JSONDict]:
    """A ConfigMap with the run file, and a RayJob of KubeRay, which starts the nodes, retries the run and removes them."""
    text = file.read_text(encoding="utf-8")
    refuse_secrets(file, config)
    name = f"assay-{_plain_name(file.stem)}"
    command = shlex.join(entrypoint("/etc/assay/run.yaml", config))
    workers = {
        "groupName": "workers", "replicas": options.nodes - 1, "minReplicas": options.nodes - 1,
        "maxReplicas": options.nodes - 1, "rayStartParams": {}, "template": _pod(name, options),
    }  # fmt: skip
    cluster: JSONDict = {
        "headGroupSpec": {"rayStartParams": {}, "template": _pod(name, options)},
        **({"workerGroupSpecs": [workers]} if options.nodes > 1 else {}),
    }
    spec: JSONDict = {
        "entrypoint": command, "shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 600,
        "backoffLimit": RESTARTS, "rayClusterSpec": cluster,
        **({"activeDeadlineSeconds": _seconds(options.time)} if options.time else {}),
    }  # fmt: skip
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"run.yaml": text}},
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": spec},
    ]


def _pod(name: str, options: LaunchOptions) -> JSONDict:
    claim, _, path = (options.volume or "").partition("=")
    gpus = {"resources": {"limits": {"nvidia.com/gpu": options.gpus_per_node}}} if options.gpus_per_node else {}
    secrets = [{"name": each, "valueFrom": {"secretKeyRef": {"name": "assay", "key": each}}} for each in options.env]
    mounts = [{"name": "run", "mountPath": "/etc/assay"}, *([{"name": "runs", "mountPath": path}] if claim else [])]
    volumes: list[JSONDict] = [{"name": "run", "configMap": {"name": name}}]
    volumes += [{"name": "runs", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    container = {
        "name": "ray", "image": options.image, "env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}, *secrets],
        "volumeMounts": mounts, **gpus,
    }  # fmt: skip
    return {"spec": {"containers": [container], "volumes": volumes}}


def refuse_secrets(file: Path, config: RunConfig) -> None:
    """Refuse a run file with keys or passwords: a manifest would print them."""
    stated: Mapping[str, object] = {
        key: getattr(config, key) for key in ("model_args", "model_role", "metadata", "serve") if getattr(config, key)
    }
    hidden = [key for key, value in stated.items() if plain({key: value}) != {key: value}]
    if hidden:
        fix = "remove it from the file, and name the variable that has it: --env OPENAI_API_KEY"
        raise ConfigError.at(file, f"{hidden[0]} holds a secret, which the manifest would show", fix)


def _plain_name(stem: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40].strip("-") or "run"


def _seconds(time: str) -> int:
    """A time as SLURM writes it: minutes, minutes:seconds, hours:minutes:seconds, with days before a dash.

    >>> _seconds("1-02:00:00"), _seconds("90"), _seconds("4:30:00")
    (93600, 5400, 16200)
    """
    days, _, rest = time.rpartition("-")
    parts = [int(each) for each in rest.split(":")]
    if days:
        parts = [*parts, 0, 0][:3]
    hours, minutes, seconds = parts if len(parts) == 3 else (0, *parts, 0)[:3] if len(parts) == 1 else (0, *parts)
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
