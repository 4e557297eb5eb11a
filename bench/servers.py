"""Models behind servers: speed beside a bare loop and lm-eval, faults, kills, memory; each server is a process on loopback."""

import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.runs.run import Run
from bench.environments import HOME, ROOT, assay_python, bare_environment, lm_eval_python
from bench.measure import Row, Said

STUB, TALKING = ROOT / "bench/openai_stub.py", ROOT / "tests/talking_server.py"
WORLD, TOKENIZER = HOME / "served", ROOT / "src/assay/bundled/model"
GENERATED, SCORED, MANY = 20_000, 1500, 100_000
STREAMS, PIECES, PAUSE = 500, 100, 0.6
KILLS, SEED = 20, 5
SLOW = {"generated": 4000, "scored": 300}
"""So many documents for lm-eval, whose rate does not depend on it."""
CHOICES = ("yes", "no", "maybe", "never")


def rows() -> Iterator[Row | Said]:
    ours, theirs = assay_python(), lm_eval_python()
    make_world(ours)
    yield from speeds(ours, theirs)
    yield from faults(ours)
    yield kills(ours)
    yield many(ours)
    yield streams(ours)


def make_world(python: Path) -> None:
    """Three tasks, with the bodies that the bare loop sends: generation, and four choices after contexts of 700 tokens."""
    shutil.rmtree(WORLD, ignore_errors=True)
    WORLD.mkdir(parents=True)
    draw = random.Random(SEED)
    words = ["red", "dog", "house", "seven", "green", "river", "stone", "little", "three", "cat"]
    questions = [" ".join(draw.choices(words, k=60)) + f" {number}" for number in range(MANY)]
    _task("many", [{"q": text, "gold": "x"} for text in questions], _GENERATE, [{"prompt": text} for text in questions])
    _task("generated", [{"q": text, "gold": "x"} for text in questions[:GENERATED]], _GENERATE,
          [{"prompt": text, "max_tokens": 64, "temperature": 0} for text in questions[:GENERATED]])  # fmt: skip
    contexts = [" ".join(draw.choices(words, k=248)) + f" {number}" for number in range(SCORED)]
    tokens = json.loads(
        _said(python, "-c", _ENCODE, str(TOKENIZER), stdin=json.dumps([f"{c} {e}" for c in contexts for e in CHOICES]))
    )
    print(f"<!-- contexts have {sum(map(len, tokens)) / len(tokens):.0f} tokens -->")
    _task("scored", [{"q": text, "gold": 0} for text in contexts], _CHOOSE, [
        {"prompt": each, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1} for each in tokens
    ])  # fmt: skip


_GENERATE = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {until: [], max_gen_toks: 64, do_sample: false}\n"
_CHOOSE = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: gold\ndoc_to_choice: ['yes', 'no', 'maybe', 'never']\n"
_ENCODE = (
    "import json, sys; from assay.models.tokenizer import FolderTokenizer; words = FolderTokenizer(sys.argv[1]);"
    "print(json.dumps([words.encode(text) for text in json.load(sys.stdin)]))"
)


def _task(name: str, documents: list[dict[str, Any]], yaml: str, bodies: list[dict[str, Any]]) -> None:
    (WORLD / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    compact = [json.dumps({"model": "stub", **each}, separators=(",", ":")) + "\n" for each in bodies]
    (WORLD / f"{name}.bodies").write_text("".join(compact))
    data = f"task: {name}\ndataset_path: json\ntest_split: test\ndataset_kwargs: {{data_files: {{test: {WORLD / name}.jsonl}}}}\n"
    (WORLD / f"{name}.yaml").write_text(data + yaml)


# speed


def speeds(ours: Path, theirs: Path) -> Iterator[Said]:
    for concurrency in (64, 256):
        result = {
            name: client(python, name, "generated", concurrency, "--latency", "20")
            for name, python in (("bare", ours), ("assay", ours), ("lm_eval", theirs))
        }
        yield _speed(f"generation, 20 ms, concurrency {concurrency}", result, "≥ 0.9× bare, its CPU + 0.15 ms")
    result = {
        name: client(python, name, "scored", 64, "--latency", "20", tokenizer=True)
        for name, python in (("bare", ours), ("assay", ours), ("lm_eval", theirs))
    }
    yield _speed("log-likelihood, 700-token contexts, concurrency 64", result, "≥ 0.8× bare")


def _speed(what: str, result: dict[str, dict[str, float]], expected: str) -> Said:
    bare, us, them = result["bare"], result["assay"], result["lm_eval"]
    text = (
        f"bare {bare['rate']:.0f}/s, {bare['cpu_ms']:.2f} ms; assay {us['rate']:.0f}/s, {us['cpu_ms']:.2f} ms:"
        f" {us['rate'] / bare['rate']:.2f}×, + {us['cpu_ms'] - bare['cpu_ms']:.2f} ms;"
        f" lm-eval {them['rate']:.0f}/s, {them['cpu_ms']:.2f} ms"
    )
    return Said(what, text, expected)


def client(python: Path, name: str, task: str, concurrency: int, *server: str, tokenizer: bool = False, runs: int = 3, limit: int | None = None) -> dict[str, float]:  # fmt: skip
    """The best of several runs of a client, each on a separate server."""
    best: dict[str, float] = {}
    for _ in range(runs if name != "lm_eval" else 1):
        out = HOME / "served_run"
        shutil.rmtree(out, ignore_errors=True)
        more = ["--tokenizer", str(TOKENIZER)] if tokenizer else []
        most = SLOW[task] if name == "lm_eval" else limit
        more += ["--limit", str(most)] if most is not None else []
        with serving(*server) as url:
            words = ["-m", "bench.server_clients", name, str(WORLD), task, url, str(concurrency), "--out", str(out)]
            data: dict[str, float] = json.loads(_said(python, *words, *more).splitlines()[-1])
        if not best or data["rate"] > best["rate"]:
            best = data
    return best


# faults


def faults(python: Path) -> Iterator[Said]:
    """Every document is answered or counted, whatever the server does."""
    for what, server in (
        ("30 % HTTP 500", ("--p500", "0.3")),
        ("10 % 429 with Retry-After", ("--p429", "0.1")),
        ("malformed JSON", ("--malformed", "100")),
        ("truncated body", ("--truncate", "100")),
    ):
        with serving(*server) as url:
            code, results = evaluated(python, "generated", url, 64, limit=1500)
            summary = f"{results['scored']} answered, {results['failed']} failed of 1500, {results['retries']} asked again, exit {code}"
            repeated = stats(url)["repeated"]
        yield Said(what, f"{summary}; {repeated} answered twice", "finishes; every sample answered or counted failed")
    yield from strange(python)
    yield dies(python, "one", "one")
    yield dies(python, "one", "two")


def strange(python: Path) -> Iterator[Said]:
    """A server that drips, and one that resets connections: every third question makes it do so, three times."""
    for what, query in (("slow-loris (comments for ever, time-out 1 s)", "drip"), ("connection reset", "reset")):
        documents = [
            {"q": json.dumps({"say": "x", "n": n, **({query: True} if n % 50 == 0 else {})}), "gold": "x"}
            for n in range(300)
        ]
        _task("strange", documents, _GENERATE, [])
        with serving(script=TALKING) as url:
            code, results = evaluated(python, "strange", url, 64, more="stream=true,timeout=1,max_retries=2")
        summary = f"{results['scored']} answered, {results['failed']} failed of 300, exit {code}"
        yield Said(f"{what}, always for 6 of 300", summary, "finishes; those counted failed")


def dies(python: Path, before: str, after: str) -> Said:
    port = free_port()
    with serving("--latency", "20", "--die", "700", "--answer", before, port=port) as url:
        out = HOME / "served_run"
        shutil.rmtree(out, ignore_errors=True)
        run = subprocess.Popen(command(python, "generated", url, 64, out, limit=1319), env=bare_environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        _wait_until(lambda: run.poll() is not None or not _is_there(url), 60)
        time.sleep(5)
        with serving("--latency", "20", "--answer", after, port=port):
            _, error = run.communicate(timeout=120)
            asked = stats(url)
    answered = _answered(out)
    summary = f"exit {run.returncode}, {answered} of 1319 answered, {asked['repeated']} answered twice"
    if before == after:
        return Said(
            "server dies at half and comes back 5 s later", summary, "finishes, nothing answered is asked again"
        )
    refused = "another model answers" in error.decode()
    return Said("it comes back as another model", f"{summary}; refused: {refused}", "the other model is refused")


# kills and memory


def kills(python: Path) -> Said:
    """Kill a run at random moments and run it again: what the server answered twice was done twice."""
    draw, redone, lost = random.Random(SEED), [], 0
    for _ in range(KILLS):
        with serving("--latency", "20") as url:
            out = HOME / "served_run"
            shutil.rmtree(out, ignore_errors=True)
            run = subprocess.Popen(command(python, "generated", url, 64, out, limit=1319), env=bare_environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            expected = draw.randrange(50, 1250)
            _wait_until(lambda expected=expected: stats(url)["answered"] >= expected, 60)  # type: ignore[misc]
            run.kill()
            run.wait()
            time.sleep(0.2)
            subprocess.run(command(python, "generated", url, 64, out, limit=1319), env=bare_environment(), check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            redone.append(stats(url)["repeated"] - 3)  # the greeting is said twice, and again
            lost += 1319 - _answered(out)
    summary = f"redone {min(redone)}–{max(redone)} (in flight: up to 64), {lost} lost"
    return Said(
        f"kill -9 at {KILLS} random moments at concurrency 64, then resume", summary, "at most what was in flight"
    )


def many(python: Path) -> Said:
    measured = client(python, "assay", "many", 256, "--latency", "20", runs=1)
    half = client(python, "assay", "many", 256, "--latency", "20", runs=1, limit=MANY // 2)
    summary = f"{measured['mb']:.0f} MB ({half['mb']:.0f} MB for half as many), {measured['rate']:.0f}/s"
    return Said(f"{MANY:,} requests, concurrency 256: memory", summary, "≤ 200 MB, flat")


def streams(python: Path) -> Said:
    """Answers of 100 KB that come in pieces for a minute, many at once."""
    query = {"size": 100_000, "pieces": PIECES, "pause": PAUSE}
    _task("streamed", [{"q": json.dumps({**query, "n": n}), "gold": "x"} for n in range(STREAMS)], _GENERATE, [])
    out = HOME / "served_run"
    shutil.rmtree(out, ignore_errors=True)
    with serving(script=TALKING) as url:
        begin = time.monotonic()
        process = subprocess.Popen(command(python, "streamed", url, STREAMS, out, more="stream=true,timeout=20"),
                                   env=bare_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(0.2)
    result = _account(out)
    summary = f"{peak:.0f} MB, {result['scored']} answered, {result['failed']} failed, exit {process.returncode}, {time.monotonic() - begin:.0f} s"
    return Said(
        f"{STREAMS} in flight for {PIECES * PAUSE:.0f} s, 100 KB streamed each (of 2,000 asked for)",
        summary,
        "≤ 200 MB; no time-out",
    )


# parts


def command(python: Path, task: str, url: str, concurrency: int, out: Path, limit: int | None = None, more: str = "") -> list[str]:  # fmt: skip
    model_args = f"model=stub,base_url={url},num_concurrent={concurrency}" + (f",{more}" if more else "")
    words = [
        str(python),
        "-m",
        "assay",
        "run",
        "--tasks",
        task,
        "--include_path",
        str(WORLD),
        "--no_defaults",
        "-o",
        str(out),
    ]
    return [
        *words,
        "--model",
        "local-completions",
        "--model_args",
        model_args,
        *(["--limit", str(limit)] if limit else []),
    ]


def evaluated(python: Path, task: str, url: str, concurrency: int, limit: int | None = None, more: str = "") -> tuple[int, dict[str, Any]]:  # fmt: skip
    out = HOME / "served_run"
    shutil.rmtree(out, ignore_errors=True)
    ended = subprocess.run(command(python, task, url, concurrency, out, limit, more), env=bare_environment(), capture_output=True, timeout=600)  # fmt: skip
    return ended.returncode, _account(out)


def _account(out: Path) -> dict[str, Any]:
    own = lm_eval_layout(Run.open(out).results)["assay"]
    [task] = own["tasks"].values()
    return {**task, "retries": own["usage"]["retries"]}


def _answered(out: Path) -> int:
    lines = (out / "responses.jsonl").read_bytes().splitlines()
    return len({json.loads(line)["k"] for line in lines[1:] if b'"text"' in line})  # behind the header


def _said(python: Path, *words: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [str(python), *words], env=bare_environment(), cwd=ROOT, input=stdin, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return done.stdout


def _memory(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(*options: str, script: Path = STUB, port: int | None = None) -> Iterator[str]:
    """A server, for as long as the context lasts; ended by its process id."""
    at = port or free_port()
    process = subprocess.Popen([sys.executable, str(script), str(at), *options], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{at}/v1"
    try:
        _wait_until(lambda: _is_there(url), 30)
        yield url
    finally:
        process.kill()
        process.wait()


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=10) as answer:
        data: dict[str, Any] = json.load(answer)
    return data


def _is_there(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/models", timeout=2).close()
    except OSError:
        return False
    return True


def _wait_until(condition: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("it took too long")
        time.sleep(0.02)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory():
        for row in rows():
            print(row, flush=True)
