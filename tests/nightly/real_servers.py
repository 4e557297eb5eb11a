"""Servers that people use, started on loopback around the bundled model, and ended by process id.

Each lives in a virtual environment of its own below the folder $ASSAY_NIGHTLY (`make nightly` makes them).
"""

import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from assay.models.local.embedded import BUNDLED
from serving import free_port

HERE = Path(__file__).parent
NAME = "bundled"
"""The name that servers give to the model, where it can be chosen."""
START_SECONDS = 300
"""vLLM compiles and warms up for a minute on a busy machine."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def environment_folder(server: str) -> Path:
    """The virtual environment of a server."""
    return Path(os.environ["ASSAY_NIGHTLY"]).resolve() / server


def executable(server: str, name: str) -> str:
    """A command of a server's virtual environment."""
    path = environment_folder(server) / "bin" / name
    assert path.exists(), f"{path} is missing: `make nightly` installs it"
    return str(path)


@contextmanager
def running(command: Sequence[object], ready: str, environment: dict[str, str] | None = None) -> Iterator[Path]:
    """A process that is started with its children as one group and killed at the end; `ready` is asked until it answers."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(map(str, command)), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, **OFFLINE, **(environment or {})}, cwd=folder, start_new_session=True,
            )  # fmt: skip
        try:
            wait_until_ready(process, ready, log)
            yield log
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Ask `url` until it answers; any status is an answer."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended: {log.read_text(errors='replace')[-3000:]}"
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"no answer in {START_SECONDS} s: {log.read_text(errors='replace')[-3000:]}")


def make_gguf(folder: Path) -> Path:
    """The bundled model for llama.cpp."""
    out = folder / "bundled.gguf"
    python = executable("llama", "python")
    subprocess.run([python, HERE / "make_gguf.py", BUNDLED, out], check=True, capture_output=True)
    return out


@contextmanager
def llama_server() -> Iterator[str]:
    """llama.cpp's server, with four slots."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [executable("llama", "python"), HERE / "llama_server.py", port, make_gguf(Path(folder))]
        with running(command, f"http://127.0.0.1:{port}/v1/models"):
            yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def transformers_server() -> Iterator[str]:
    """`transformers serve`."""
    port = free_port()
    command = [executable("transformers", "transformers"), "serve", "--host", "127.0.0.1", "--port", port]
    with running([*command, "--dtype", "float32", "--device", "cpu"], f"http://127.0.0.1:{port}/v1/models"):
        yield f"http://127.0.0.1:{port}/v1"


MASTER_KEY = "sk-nightly"


@contextmanager
def litellm_proxy(upstream: str) -> Iterator[str]:
    """LiteLLM's proxy with a master key, in front of another server."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        settings = Path(folder, "config.yaml")
        settings.write_text(
            "model_list:\n"
            f"  - model_name: {NAME}\n"
            f"    litellm_params: {{model: openai/{NAME}, api_base: '{upstream}', api_key: none}}\n"
            f"  - model_name: {NAME}-text\n"
            f"    litellm_params: {{model: text-completion-openai/{NAME}, api_base: '{upstream}', api_key: none}}\n"
            f"general_settings: {{master_key: {MASTER_KEY}}}\n"
        )
        command = [executable("litellm", "litellm"), "--config", settings, "--host", "127.0.0.1", "--port", port]
        with running(command, f"http://127.0.0.1:{port}/health/liveliness", {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}):
            yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def nginx(upstream: str, limits: str = "", location: str = "") -> Iterator[str]:
    """nginx in front of another server; `limits` go into its `http` section, `location` into the place of the upstream."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        settings = Path(folder, "nginx.conf")
        settings.write_text(
            f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
            "events { worker_connections 256; }\n"
            f"http {{ access_log off; {limits}\n"
            + "".join(
                f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            + f"\nserver {{ listen 127.0.0.1:{port};\n"
            "location = /ready { return 204; }\n"
            f"location / {{ {location} proxy_pass {upstream.removesuffix('/v1')}; }} }} }}\n"
        )
        with running(["nginx", "-c", settings, "-p", folder], f"http://127.0.0.1:{port}/ready"):
            yield f"http://127.0.0.1:{port}/v1"


VLLM = ("--served-model-name", NAME, "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024")
"""Options of every vLLM server here. Graphs would take minutes to compile, and change nothing that is tested."""
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "CUDA_VISIBLE_DEVICES": ""}


@contextmanager
def vllm_server(*options: str) -> Iterator[str]:
    """`vllm serve` on the CPU."""
    port = free_port()
    command = [executable("vllm", "vllm"), "serve", BUNDLED, "--host", "127.0.0.1", "--port", port, *VLLM, *options]
    with running(command, f"http://127.0.0.1:{port}/health", VLLM_ENVIRONMENT):
        yield f"http://127.0.0.1:{port}/v1"
