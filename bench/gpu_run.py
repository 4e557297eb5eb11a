"""A whole `assay run` on a GPU: start-up, wall clock by phase, and how busy the device was in between.

usage: python3 bench/gpu_run.py [--tiny] [--scale 1.0] [--parts plain,compile] [--model_args …] [--src FOLDER] [--keep FOLDER]

Makes a folder with a random 1B Llama in bfloat16 and local tasks of three shapes (60,319 requests; `--scale` takes a share):

    MMLU        57 subjects × 190 documents, 5-shot: 550 shared tokens a subject, 110 a question, four letters   43,320 requests
    HellaSwag   3,920 documents, 10-shot drawn for each: 1,000 tokens of its own, four endings of 15-35 tokens   15,680 requests
    GSM8K       1,319 documents, 8-shot: 800 shared tokens, 50 a question, 128 new tokens                          1,319 requests

Then the real command runs in a process of its own, once for each part, with gpu_run_watch.py as a plug-in. Device busy is the
union of the time between CUDA events around every forward pass and every replayed graph (without the softmax behind it, so a
little low) and, beside it, the utilization that `nvidia-smi` samples. `--tiny` is a model for CPUs, where wall clocks replace
events. Nothing needs to be installed: PYTHONPATH is passed on. `--src` runs another tree, such as an earlier commit's.
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from make_benchmark import FIRST, header, metrics, pipeline, write_rows  # noqa: E402

SUBJECTS, QUESTIONS, STORIES, SUMS = 57, 190, 3_920, 1_319
NEW_TOKENS = 128
LETTERS = ("A", "B", "C", "D")
SHARED = "num_fewshot: {shots}\nfewshot_split: {split}\n"
IMPORT = "import time; start = time.perf_counter(); import torch, transformers; print(time.perf_counter() - start)"
COLUMNS = ("import", "own start-up", "asking", "end", "whole run", "device busy", "by nvidia-smi")


def words(rng: random.Random, count: int) -> str:
    return f"w{rng.randrange(30_000)}" + "".join(f" w{rng.randrange(30_000)}" for _ in range(count - 1))


def question(rng: random.Random) -> dict:
    return {"question": words(rng, 109), "answer": rng.randrange(4)}


def story(rng: random.Random) -> dict:
    endings = [words(rng, rng.randint(15, 35)) for _ in range(4)]
    return {"ctx": words(rng, 66), "endings": endings, "label": rng.randrange(4)}


def problem(rng: random.Random) -> dict:
    return {"question": words(rng, 50), "answer": words(rng, 50)}


def write_tasks(folder: Path, scale: float) -> tuple[list[str], dict[str, int]]:
    """Task files and their data; returns the names, and the requests of each shape."""
    tasks, data = folder / "tasks", folder / "data"
    for each in (tasks, data):
        each.mkdir(parents=True)
    sizes = [max(1, round(count * scale)) for count in (QUESTIONS, STORIES, SUMS)]

    def write(name, kind, rows, shots, text):
        rng = random.Random(name)
        write_rows(data / f"{name}_dev.jsonl", [rows(rng) for _ in range(max(shots, 200 if rows is story else shots))])
        write_rows(data / f"{name}_test.jsonl", (rows(rng) for _ in range(text[0])))
        head = header(name, data, kind, {"dev": None, "test": None})
        (tasks / f"{name}.yaml").write_text(head + SHARED.format(shots=shots, split="dev") + text[1], encoding="utf-8")
        return name

    first = "fewshot_config:\n  sampler: first_n\n"
    letters = f'doc_to_text: "{{{{question}}}}"\ndoc_to_choice: {json.dumps(LETTERS)}\ndoc_to_target: answer\n'
    endings = 'doc_to_text: "{{ctx}}"\ndoc_to_choice: "{{endings}}"\ndoc_to_target: label\n'
    answer = 'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\n'
    limit = f'generation_kwargs:\n  until: ["w0 w0 w0"]\n  do_sample: false\n  max_gen_toks: {NEW_TOKENS}\n'
    found = '      - function: regex\n        regex_pattern: "(w[0-9]+)"\n'
    filters = f"filter_list:\n{pipeline('first', found, FIRST)}"
    names = [
        write(f"run_mmlu_{each:02d}", "multiple_choice", question, 5, (sizes[0], first + letters + metrics("acc")))
        for each in range(SUBJECTS)
    ]
    names.append(write("run_hellaswag", "multiple_choice", story, 10, (sizes[1], endings + metrics("acc", "acc_norm"))))
    text = first + answer + limit + filters + metrics("exact_match")
    names.append(write("run_gsm8k", "generate_until", problem, 8, (sizes[2], text)))
    return names, {"MMLU": SUBJECTS * sizes[0] * 4, "HellaSwag": sizes[1] * 4, "GSM8K": sizes[2]}


def write_model(folder: str, kind: str) -> None:
    """A random Llama as files; called in a process of its own, whose memory on the device is then free."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from gpu_workload import SHAPES, word_tokenizer

    tiny = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    shape = tiny if kind == "tiny" else SHAPES[kind]
    vocabulary = 60_100 if kind == "tiny" else 128_256
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.set_default_dtype(torch.float32 if kind == "tiny" else torch.bfloat16)
        config = LlamaConfig(vocab_size=vocabulary, max_position_embeddings=8192, rope_theta=500_000.0, **shape)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)


def sampled_utilization(folder: Path) -> subprocess.Popen | None:
    """`nvidia-smi` writing the utilization ten times a second; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=timestamp,utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
    try:
        return subprocess.Popen(command, stdout=(folder / "utilization.csv").open("w"), stderr=subprocess.DEVNULL)
    except OSError:
        return None


def utilization(folder: Path, begin: float, end: float) -> float | None:
    """The mean utilization between two times."""
    shares = []
    for line in (folder / "utilization.csv").read_text().splitlines():
        with contextlib.suppress(ValueError):  # a line that is not finished, or no figure
            stamp, share = line.split(",")
            at = datetime.datetime.strptime(stamp.strip(), "%Y/%m/%d %H:%M:%S.%f").timestamp()
            if begin <= at <= end:
                shares.append(float(share))
    return sum(shares) / len(shares) / 100 if shares else None


def run(folder: Path, names: list[str], options: argparse.Namespace, part: str) -> dict:
    """The times of one run of the command, in seconds since its start; `busy` and `sampled` are shares."""
    out, watched = folder / f"run_{part}", folder / f"{part}.json"
    plugin = folder / f"watch_{part}.py"
    plugin.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'bench')!r})\n"
        f"import gpu_run_watch\ngpu_run_watch.install({str(watched)!r})\n"
    )
    arguments = [f"pretrained={folder / 'model'}"]
    arguments += ["compile=true"] if part == "compile" else []
    arguments += [options.model_args] if options.model_args else []
    command = [
        sys.executable, "-m", "assay", "run", "--model", "hf", "--model_args", ",".join(arguments), "--tasks", ",".join(names),
        "--include_path", str(folder / "tasks"), "--output_path", str(out), "--plugin", str(plugin), "--bootstrap_iters", "0",
    ]  # fmt: skip
    sampler = sampled_utilization(folder)
    started = time.time()
    try:
        with (folder / f"{part}.log").open("w") as output:
            subprocess.run(
                command, env=environment(options), check=True, stdout=output, stderr=output, timeout=options.seconds
            )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print((folder / f"{part}.log").read_text()[-3000:], flush=True)
        raise SystemExit(f"{part}: {error}") from None
    finally:
        if sampler is not None:
            sampler.terminate()
            sampler.wait()
    ended = time.time()
    seen = json.loads(watched.read_text())
    log = (folder / f"{part}.log").read_text().splitlines()
    share = None if sampler is None else utilization(folder, seen["first_request"], seen["last_answer"])
    return {
        "imported": seen["imported"] - started,
        "load": seen["load"] - started,
        "loaded": seen["loaded"] - started,
        "first": seen["first_request"] - started,
        "last": seen["last_answer"] - started,
        "whole": ended - started,
        "busy": seen["busy"] / (seen["last_answer"] - seen["first_request"]),
        "sampled": share,
        "requests": next((line for line in log if line.startswith("requests:")), ""),
    }


def environment(options: argparse.Namespace) -> dict[str, str]:
    source = Path(options.src) if options.src else ROOT / "src"
    known = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(source.resolve()), known))),
        "HF_HUB_OFFLINE": "1",
    }


def import_seconds(options: argparse.Namespace) -> float:
    """Seconds of `import torch, transformers` alone, in a fresh process: the lower of two, since the first may read a disk."""
    command = [sys.executable, "-c", IMPORT]
    times = [
        float(
            subprocess.run(
                command, env=environment(options), check=True, capture_output=True, text=True
            ).stdout.split()[-1]
        )
        for _ in range(2)
    ]
    print(f"import torch, transformers alone: {times[0]:.2f} s, then {times[1]:.2f} s", flush=True)
    return min(times)


def measure(folder: Path, options: argparse.Namespace) -> None:
    names, counts = write_tasks(folder, options.scale)
    kind = "tiny" if options.tiny else options.size
    path, model = str(ROOT / "bench"), str(folder / "model")
    make = f"import sys; sys.path.insert(0, {path!r}); import gpu_run; gpu_run.write_model({model!r}, {kind!r})"
    subprocess.run([sys.executable, "-c", make], env=environment(options), check=True, capture_output=True)
    size = sum(file.stat().st_size for file in (folder / "model").glob("*.safetensors"))
    shapes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    print(f"{kind} Llama, {size / 1e9:.2f} GB; {sum(counts.values()):,} requests: {shapes}", flush=True)
    alone = import_seconds(options)
    print(f"| part | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    for part in options.parts.split(","):
        show(part, run(folder, names, options, part), alone)


def show(part: str, times: dict, alone: float) -> None:
    first, last = times["first"], times["last"]
    sampled = "–" if times["sampled"] is None else f"{times['sampled']:.1%}"
    figures = [f"{each:.2f} s" for each in (alone, first - alone, last - first, times["whole"] - last, times["whole"])]
    print(f"| {part} | {' | '.join(figures)} | {times['busy']:.1%} | {sampled} |", flush=True)
    points = ("imported", "load", "loaded", "first", "last", "whole")
    print(f"  {part}: " + ", ".join(f"{name} {times[name]:.2f} s" for name in points), flush=True)
    print(f"  {times['requests']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--size", default="1b", choices=("1b", "8b"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--parts", default="plain,compile")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of one run")
    parser.add_argument("--model_args", default="", help="more arguments of the model")
    parser.add_argument("--src", help="the src folder of another tree")
    parser.add_argument("--keep", help="a new folder in which everything stays")
    options = parser.parse_args()
    if options.keep:
        measure(Path(options.keep).resolve(), options)
        return
    with tempfile.TemporaryDirectory() as scratch:
        measure(Path(scratch), options)


if __name__ == "__main__":
    main()
