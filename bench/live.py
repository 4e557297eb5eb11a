"""A run at about 2,000 requests a second with a page open, beside the same run that writes no progress and has no page.

Both in turns, so that a busy machine slows both alike; the least CPU and the highest rate of each. The page is followed as a
browser does it: one stream of events, and the page again after each. `python -m bench live`.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from bench.measure import Said, serving

ROUNDS, DOCUMENTS, CONCURRENT, LATENCY = 5, 16_000, 64, 30
STUB = Path(__file__).parent / "openai_stub.py"
TASK = """task: texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: gold
generation_kwargs: {{until: [], max_gen_toks: 64, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def rows() -> Iterator[Said]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder)
        alone, followed = [], []
        ages: list[float] = []
        for number in range(ROUNDS):
            alone.append(run(folder, f"alone-{number}", live=False))
            followed.append(run(folder, f"followed-{number}", live=True, ages=ages))
        rate, cpu = (max(each["rate"] for each in alone), min(each["cpu"] for each in alone))
        rate_live, cpu_live = max(each["rate"] for each in followed), min(each["cpu"] for each in followed)
        text = (
            f"{rate:.0f} and {rate_live:.0f} requests/s ({rate_live / rate:.3f}×); CPU {cpu:.2f} and {cpu_live:.2f} s"
        )
        yield Said(f"{DOCUMENTS:,} requests without and with a page open", f"{text} ({cpu_live / cpu:.3f}×)", "≥ 0.98×")
        text = f"at most {max(ages):.2f} s, {sorted(ages)[len(ages) // 2]:.2f} s in the middle, {len(ages)} pages"
        yield Said("age of what the page shows, just before it is replaced", text, "≤ 2 s")


def write_task(folder: Path) -> None:
    data = folder / "texts.jsonl"
    data.write_text("".join(json.dumps({"q": f"question {n} " * 20, "gold": "x"}) + "\n" for n in range(DOCUMENTS)))
    (folder / "texts.yaml").write_text(TASK.format(data=data))


def run(folder: Path, name: str, *, live: bool, ages: list[float] | None = None) -> dict[str, float]:
    """One run in a process; with `live`, a viewer and a page beside it."""
    with serving(STUB, "--latency", str(LATENCY)) as url:
        command = [sys.executable, "-m", "bench.live", url, str(folder), name, str(int(live))]
        if not live:
            return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        (folder / "runs").mkdir(exist_ok=True)
        view = [sys.executable, "-m", "assay", "view", str(folder / "runs"), "--port", "0"]
        server = subprocess.Popen(view, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
                page = threading.Thread(target=follow, args=(address, name, folder / "runs" / name, ages))
                page.start()
                assert running.stdout is not None
                said = running.stdout.read()
            page.join(30)
            return dict(json.loads(said))
        finally:
            server.terminate()
            server.wait(30)


def follow(address: str, name: str, path: Path, ages: list[float] | None) -> None:
    """Follow a run as a page does, and note how old what it showed was when it was replaced."""
    while not (path / "run.lock").exists():
        time.sleep(0.02)
    written = 0.0
    with urlopen(f"{address}events?run={name}", timeout=60) as events:
        for line in events:
            if line.startswith(b"event: ended"):
                return
            if not line.startswith(b"data: "):
                continue
            text = urlopen(f"{address}run?run={name}", timeout=60).read().decode()
            record = re.search(r'data-written="([\d.]+)"', text)
            if record is None:
                continue
            if written and ages is not None:
                ages.append(time.time() - written)
            written = float(record[1])


def _nothing(*_: object) -> None:
    """Write no progress."""


def measured(url: str, folder: Path, name: str, live: bool) -> None:
    """The run, in this process: prints its rate and CPU."""
    from assay import simple_evaluate
    from assay.evaluation import live as module

    if not live:
        module.LiveRecord.__call__ = _nothing  # type: ignore[method-assign]
    model = f"model=stub,base_url={url}/completions,num_concurrent={CONCURRENT},tokenizer_backend=none"
    before, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    done = simple_evaluate(
        "local-completions", model_args=model, tasks=["texts"], include_path=str(folder), include_defaults=False,
        output_path=str(folder / "runs" / name),
    )  # fmt: skip
    took, after = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_SELF)
    assert done is not None
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    print(json.dumps({"rate": DOCUMENTS / took, "cpu": cpu}))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    measured(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")
