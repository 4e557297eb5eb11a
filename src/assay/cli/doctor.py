"""`assay doctor`: what is installed, reachable and writable, each with a remedy where it is not."""

import argparse
import asyncio
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from assay.cli.output import echo_columns, echo_json, terminal_width
from assay.config.folders import CACHE_VARIABLE, cache_folder
from assay.errors import AssayError, SelfExplanatory, installing
from assay.redaction import conceal, without_queries
from assay.report.report_table import Column, Style, TextCell, make_table
from assay.version import __version__

OK, NOTE, BROKEN = "ok", "note", "broken"
LIBRARIES = ("numpy", "pyarrow", "aiohttp", "jinja2", "pyyaml", "orjson", "tokenizers", "safetensors", "rich")
EXTRAS = {
    "hub": ("datasets",), "hf": ("transformers", "torch", "accelerate"), "vllm": ("vllm",),
    "metrics": ("sacrebleu", "sklearn", "rouge_score", "scipy", "regex", "word2number", "jsonschema"),
    "math": ("math_verify",), "view": ("duckdb", "starlette", "uvicorn"), "litellm": ("litellm",), "mlflow": ("mlflow",),
    "wandb": ("wandb",), "plot": ("matplotlib",), "object-storage": ("fsspec", "s3fs"), "ray": ("ray",),
}  # fmt: skip
"""The modules of every extra that users install."""
DEVICES = """
import torch
if torch.cuda.is_available():
    for each in map(torch.cuda.get_device_properties, range(torch.cuda.device_count())):
        print(f"{each.name} ({each.total_memory / 2**30:.0f} GB)")
elif torch.backends.mps.is_available():
    print("Apple GPU (mps)")
"""
TORCH_SECONDS, HUB_SECONDS, SERVER_SECONDS = 2.3, 1.0, 20.0
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
PROBE_BYTES = 4 * 2**20
LEAST_BYTES = 200 * 2**20
"""Less free space than this is a fault: samples and journals of one large run take as much."""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was checked: its state, what is known of it, and the remedy of a fault."""

    name: str
    state: str
    text: str
    fix: str = ""


def run_doctor(options: argparse.Namespace) -> int:
    from assay.cli.runs import runs_dir

    folders = {"runs folder": runs_dir(options.runs_dir), "cache folder": cache_folder()}
    slow: list[Callable[[], list[Diagnosis]]] = [
        _gpu,
        _hub,
        *(lambda n=n, p=p: [_disk(n, p)] for n, p in folders.items()),
    ]
    with ThreadPoolExecutor(len(slow)) as pool:
        running = [pool.submit(each) for each in slow]
        checks = [*_versions(), *_extras(), *_lm_eval(), _terminal()]
        checks += [check for each in running for check in each.result()]
    if options.model is not None:
        checks.append(_server(options))
    if options.format == "json":
        echo_json({"ok": not any(each.state == BROKEN for each in checks), "checks": [asdict(each) for each in checks]})
    else:
        styles: dict[str, Style] = {OK: "better", NOTE: "warning", BROKEN: "worse"}
        rows = [
            (TextCell(check.state, styles[check.state]), check.name, " — ".join(filter(None, (check.text, check.fix))))
            for check in checks
        ]
        echo_columns(make_table([Column("", "state"), "what", "found"], rows))
    return 1 if any(each.state == BROKEN for each in checks) else 0


def _versions() -> list[Diagnosis]:
    checks = [
        Diagnosis("python", OK if sys.version_info >= (3, 11) else BROKEN, f"{platform.python_version()}, {sys.executable}",
              "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer"),
        Diagnosis("assay", OK, f"{__version__}, {Path(__file__).resolve().parent.parent}"),
    ]  # fmt: skip
    installed = {name: _version(name) for name in LIBRARIES}
    missing = [name for name, number in installed.items() if number is None]
    text = ", ".join(f"{name} {number}" for name, number in installed.items() if number is not None)
    checks.append(Diagnosis("libraries", OK, text))
    if missing:
        checks.append(Diagnosis("libraries", BROKEN, f"missing: {', '.join(missing)}", "install assay again"))
    return checks


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _extras() -> list[Diagnosis]:
    checks = []
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        text = "installed" if not missing else f"without {', '.join(missing)}"
        checks.append(Diagnosis(f"extra {extra}", NOTE if missing else OK, text, installing(extra) if missing else ""))
    return checks


def _gpu() -> list[Diagnosis]:
    """The GPUs that torch can use; it is imported in another process: it may be slow, or crash."""
    if find_spec("torch") is None:
        return [Diagnosis("GPU", NOTE, "not asked: torch is not installed", installing("hf"))]
    try:
        done = subprocess.run(
            [sys.executable, "-c", DEVICES], capture_output=True, text=True, timeout=TORCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"torch took longer than {TORCH_SECONDS:g} s to import; the driver says: {_driver() or 'nothing'}"
        return [Diagnosis("GPU", NOTE, text, "try again")]
    number = _version("torch")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it crashed"])[-1]
        return [Diagnosis("GPU", BROKEN, f"torch {number} cannot be imported: {last}", installing("hf"))]
    devices = done.stdout.split("\n")[:-1]
    return [
        Diagnosis(
            "GPU", OK if devices else NOTE, f"torch {number}: {', '.join(devices) or 'no GPU, models run on the CPU'}"
        )
    ]


def _driver() -> str:
    """The GPUs by nvidia-smi, which needs no library."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HUB_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(done.stdout.splitlines()) if not done.returncode else ""


def _hub() -> list[Diagnosis]:
    """Whether the hub of Hugging Face can be connected to, unless a variable says that it must not."""
    chosen = next((name for name in OFFLINE if os.environ.get(name, "").lower() in ("1", "on", "yes", "true")), None)
    if chosen is not None:
        return [Diagnosis("hub", NOTE, f"offline: ${chosen} is set", f"unset {chosen} to download, or use --data_dir")]
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    token = "a token is set" if os.environ.get("HF_TOKEN") else "no token ($HF_TOKEN)"
    try:
        socket.create_connection((host, port), HUB_SECONDS).close()
    except OSError as error:
        fix = "set HF_HUB_OFFLINE=1 and give --data_dir, or check the network"
        return [Diagnosis("hub", NOTE, f"{host} cannot be reached: {error.strerror or error}", fix)]
    return [Diagnosis("hub", OK, f"{host} can be reached; {token}")]


def _lm_eval() -> list[Diagnosis]:
    from assay.catalog.index import load_snapshot
    from assay.catalog.roots import Root, installed_folders
    from assay.exchange.lm_eval_tasks import fetched_version

    folder = dict(installed_folders()).get("lm_eval")
    if not folder:
        return [Diagnosis("lm_eval", NOTE, "its tasks are not installed", "assay fetch tasks, or --include_path")]
    known = load_snapshot(Root(folder, "lm_eval"))
    count = f"{len(known.entries):,} files of tasks and groups" if known is not None else "not listed yet (`assay ls`)"
    number = _version("lm_eval") or fetched_version(Path(folder)) or "version unknown"
    return [Diagnosis("lm_eval", OK, f"{number}, {folder}: {count}")]


def _disk(name: str, folder: Path) -> Diagnosis:
    """Whether a folder can be written, how fast, and the space that is left; nothing stays there."""
    fix = f"choose another with {'$' + CACHE_VARIABLE if name == 'cache folder' else '--runs_dir or $ASSAY_RUNS_DIR'}"
    if "://" in str(folder):
        return Diagnosis(name, NOTE, f"{without_queries(str(folder))}: not on this machine")
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".assay-doctor-") as file:
            begun = time.perf_counter()
            file.write(os.urandom(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            rate = PROBE_BYTES / 2**20 / max(time.perf_counter() - begun, 1e-6)
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Diagnosis(name, BROKEN, f"{folder} cannot be written: {error.strerror or error}", fix)
    text = f"{folder}{'' if folder.exists() else ' (not there yet)'}: {free / 2**30:.1f} GB free, {rate:,.0f} MB/s"
    return (
        Diagnosis(name, OK, text)
        if free >= LEAST_BYTES
        else Diagnosis(name, BROKEN, text, f"free some space, or {fix}")
    )


def _terminal() -> Diagnosis:
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    where = (
        f"{terminal_width(sys.stdout)} columns, TERM={os.environ.get('TERM', '')}" if sys.stdout.isatty() else "piped"
    )
    text = f"{sys.stdout.encoding}, {where}, locale {os.environ.get('LC_ALL') or os.environ.get('LANG') or 'not set'}"
    if encoding == "utf8":
        return Diagnosis("terminal", OK, text)
    return Diagnosis("terminal", NOTE, text, "set PYTHONUTF8=1 or LANG=C.UTF-8: other characters are escaped")


def _server(options: argparse.Namespace) -> Diagnosis:
    """Greet a model's server, as a run does."""
    from assay.config.arguments import parse_arguments
    from assay.engine.retry import retry_before_run
    from assay.evaluation.dispatch import run_async
    from assay.models.load import load_model
    from assay.models.servers.server_model import ServerModel

    begun = time.perf_counter()
    try:
        texts: Sequence[str] = options.model_args or ()
        arguments = {key: part for text in texts for key, part in parse_arguments(text, "model_args").items()}
        model = load_model(options.model, arguments)
        if not isinstance(model, ServerModel):
            return Diagnosis("server", NOTE, f"{options.model} is not behind a server: there is nothing to greet")
        run_async(asyncio.wait_for(retry_before_run(model.greet), SERVER_SECONDS))
    except AssayError as error:
        [problem, *_] = error.problems
        return Diagnosis("server", BROKEN, conceal(f"{problem.place}: {problem.what}"), conceal(problem.fix))
    except TimeoutError:
        return Diagnosis("server", BROKEN, f"no answer within {SERVER_SECONDS:g} s", "look at the server's log")
    except (SelfExplanatory, OSError) as error:
        return Diagnosis("server", BROKEN, conceal(str(error)), "check base_url and the key")
    took = time.perf_counter() - begun
    return Diagnosis(
        "server", OK, conceal(f"{', '.join(model.addresses)}: {model.model} answers; greeted in {took:.1f} s")
    )
