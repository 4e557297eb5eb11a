"""`assay launch`: scripts for SLURM and Kubernetes. Neither was run on a real cluster; Ray itself is a stand-in here, since
`ray symmetric-run` ends with `ray stop`, which would stop every Ray of this machine."""

import os
import shutil
import stat
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from assay.cli import main

RUN = "model: hf\nmodel_args: {pretrained: org/model}\ntasks: [first_steps_sums]\noutput_path: s3://bucket/run\n"
SLURM = ("--executor", "slurm", "--nodes", "2", "--gpus_per_node", "8", "--time", "4:00:00", "--partition", "gpu")
K8S = ("--executor", "k8s", "--nodes", "4", "--gpus_per_node", "8", "--image", "me/assay:1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my run.yaml"
    path.write_text(RUN)
    return path


class Ended(NamedTuple):
    """The end of a command."""

    returncode: int
    stdout: str
    stderr: str


def launched(file: Path, *flags: str) -> Ended:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), chdir(file.parent):
        try:
            code = main(["launch", str(file), *flags])
        except SystemExit as error:
            code = int(str(error.code))
    return Ended(code, out.getvalue(), err.getvalue())


def test_a_slurm_script_has_its_directives_and_no_fault_that_shells_or_shellcheck_see(file: Path) -> None:
    script = launched(file, *SLURM, "--env", "HF_TOKEN").stdout
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    for directive in (
        "nodes=2",
        "ntasks-per-node=1",
        "gpus-per-node=8",
        "time=4:00:00",
        "partition=gpu",
        "requeue",
        "signal=B:TERM@120",
    ):
        assert f"#SBATCH --{directive}" in lines
    assert '--address "${nodes[0]}:6379" --min-nodes 2 --include-dashboard=false -- \\' in script
    assert f"assay run --config '{file}' --ray auto --replicas auto &" in script
    assert "export RAY_USAGE_STATS_ENABLED=0" in lines
    checks = [["bash", "-n"]]
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    checks += [[shellcheck, "--shell=bash", "-"]] if shellcheck else []
    for check in checks:
        checked = subprocess.run(check, input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout) == (0, "")


PROGRAMS = {
    "scontrol": 'if [ "$1" = show ]; then echo node-a; echo node-b; else echo "$@" >> "$LOG"; fi',
    "srun": 'exec "$@"',
    "ray": 'echo "$@" >> "$LOG"; ${RAY_DOES:-true}',
}


@pytest.mark.process
@pytest.mark.parametrize(
    ("does", "restarts", "code", "requeued"),
    [
        ("true", "0", 0, False),
        ("exit 1", "0", 1, False),  # some documents failed: again would be the same
        ("exit 3", "0", 3, False),  # a budget was reached
        ("exit 143", "0", 143, True),
        ("exit 130", "3", 130, True),
        ("exit 143", "20", 143, False),  # not for ever
        ("sleep 30", "0", 143, True),  # preempted: the script gets the signal
    ],
)
def test_a_run_that_was_stopped_is_requeued(file: Path, does: str, restarts: str, code: int, requeued: bool) -> None:
    for name, body in PROGRAMS.items():
        program = file.parent / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    log, script = file.parent / "log", file.parent / "job.sh"
    script.write_text(launched(file, *SLURM).stdout)
    environment = {
        "PATH": f"{file.parent / 'bin'}:{os.environ['PATH']}", "LOG": str(log), "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_RESTART_COUNT": restarts, "RAY_DOES": does,
    }  # fmt: skip
    with subprocess.Popen(["bash", str(script)], env=environment, start_new_session=True) as job:
        if does.startswith("sleep"):
            while not log.exists():
                assert job.poll() is None
            job.terminate()
        assert job.wait(20) == code
    lines = log.read_text().splitlines()
    assert lines[0].startswith(
        "symmetric-run --address node-a:6379 --min-nodes 2 --include-dashboard=false -- assay run"
    )
    assert lines[1:] == (["requeue 77"] if requeued else [])


TEXT, NUMBER, FLAG = str, int, bool
POD: Any = {"spec": {
    "containers": [{
        "name": TEXT, "image": TEXT,
        "env": [{"name": TEXT, "value": TEXT, "valueFrom": {"secretKeyRef": {"name": TEXT, "key": TEXT}}}],
        "volumeMounts": [{"name": TEXT, "mountPath": TEXT}],
        "resources": {"limits": {"nvidia.com/gpu": NUMBER}, "requests": {}},
    }],
    "volumes": [{"name": TEXT, "configMap": {"name": TEXT}, "persistentVolumeClaim": {"claimName": TEXT}}],
}}  # fmt: skip
RAY_JOB: Any = {
    "apiVersion": TEXT, "kind": TEXT, "metadata": {"name": TEXT},
    "spec": {
        "entrypoint": TEXT, "shutdownAfterJobFinishes": FLAG, "ttlSecondsAfterFinished": NUMBER, "backoffLimit": NUMBER,
        "activeDeadlineSeconds": NUMBER,
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {}, "template": POD},
            "workerGroupSpecs": [{
                "groupName": TEXT, "replicas": NUMBER, "minReplicas": NUMBER, "maxReplicas": NUMBER,
                "rayStartParams": {}, "template": POD,
            }],
        },
    },
}  # fmt: skip
"""Fields of rayjobs.ray.io v1 and of pods, by name and type, from KubeRay's and Kubernetes' published types."""


def unknown(value: Any, schema: Any, path: str = "") -> list[str]:
    """The places of a value that its schema does not have."""
    if isinstance(schema, dict) and isinstance(value, dict):
        return [each for key, inner in value.items() for each in
                (unknown(inner, schema[key], f"{path}.{key}") if key in schema else [f"{path}.{key}"])]  # fmt: skip
    if isinstance(schema, list) and isinstance(value, list):
        return [each for number, inner in enumerate(value) for each in unknown(inner, schema[0], f"{path}[{number}]")]
    return [] if type(value) is schema else [path]


def test_a_manifest_has_fields_that_kuberay_knows(file: Path) -> None:
    flags = ("--env", "HF_TOKEN", "--volume", "shared=/data", "--time", "4:30:00")
    config, job = yaml.safe_load_all(launched(file, *K8S, *flags).stdout)
    assert (config["kind"], config["data"]["run.yaml"]) == ("ConfigMap", RUN)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert unknown(job, RAY_JOB) == []
    spec = job["spec"]
    assert spec["entrypoint"] == "assay run --config /etc/assay/run.yaml --ray auto --replicas auto"
    assert (spec["shutdownAfterJobFinishes"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (True, 20, 16200)
    assert [group["replicas"] for group in spec["rayClusterSpec"]["workerGroupSpecs"]] == [3]  # beside the head
    [container] = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "assay", "key": "HF_TOKEN"}}} in container["env"]


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        ("", ("--executor", "slrum", "--nodes", "2"), "no 'slrum' — "),
        ("", ("--executor", "slurm", "--nodes", "0"), "--nodes: must be 1 or more, got 0 — write --nodes 4"),
        ("", ("--executor", "slurm", "--nodes", "2", "--time", "soon"), "--time: invalid time 'soon' — write 4:00:00"),
        ("", ("--executor", "slurm", "--nodes", "2", "--partition", "a\n#SBATCH --uid=0"), "--partition: invalid name"),
        ("", (*SLURM, "--env", "HF_TOKEN=hf_abc"), "'HF_TOKEN' must be the name of a variable, without its value"),
        ("", ("--executor", "k8s", "--nodes", "2"), "--image: Kubernetes needs an image — "),
        ("output_path: runs/a", K8S, "the run would be written to 'runs/a', which ends with its pod — "),
        ("model_args: {pretrained: m, token: hf_0123456789abc}", K8S, "model_args holds a secret, which the manifest would show"),
        ("limmit: 5", SLURM, "did you mean 'limit'?"),
        ("tasks: [first_steps_sumz]", SLURM, "first_steps_sums"),
        ("replicas: many", SLURM, "must be a positive number or auto, got 'many'"),
        ("num_fewshot: five", SLURM, "num_fewshot"),
        ("over_length: cut", SLURM, "over_length"),
        ("", (*SLURM, "--send"), "sbatch is not installed — "),
    ],
)  # fmt: skip
def test_what_no_cluster_could_run_is_refused_before_anything_is_printed(
    file: Path, change: str, flags: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    kept = [line for line in RUN.splitlines() if line.partition(":")[0] != change.partition(":")[0]]
    file.write_text("\n".join([*kept, change]))
    ended = launched(file, *flags)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert "hf_0123456789abc" not in ended.stderr
