"""The lm_eval commands of lm-eval's own README and docs, through packages/assay-lm-eval: each runs, or is answered with assay's way.

    python -m bench.lm_eval_commands            # installs assay and assay-lm-eval into a new environment; writes the table
    python -m bench.lm_eval_commands --here     # with the packages of this one

Names of hub models and revisions, tasks, servers and devices are replaced by local ones (`local`). Three commands of COMMANDS are adapted by hand: the first
of megatron_lm lacks `tokenizer_type=…`, the one with --hf_hub_log_args lacks `autogptq=…,gptq_use_triton=True` (another row has it), and `think_end_token=200008`
is 2. Nothing is pushed to the hub or logged to wandb (offline), and accelerate and torchrun are an environment with WORLD_SIZE=2. The table is
docs/lm-eval-commands.md.
"""

import argparse
import json
import os
import re
import shlex
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs/lm-eval-commands.md"


class Command(NamedTuple):
    """A command as lm-eval's documentation has it; `answer` is a part of the message where it is answered instead of run."""

    source: str
    text: str
    answer: str = ""
    files: str = ""
    """A glob of the results file, where the command writes one; `MODEL` is the folder of the model."""


GPT_J = "--model_args pretrained=EleutherAI/gpt-j-6B --tasks hellaswag --device cuda:0 --batch_size 8"
PYTHIA = '--model_args pretrained=EleutherAI/pythia-160m,revision=step100000,dtype="float" --tasks lambada_openai,hellaswag --device cuda:0'
MEGATRON = "--model_args load=/path/to/checkpoint,tokenizer_model=/path/to/tokenizer"
HUB = "hub_results_org=EleutherAI,hub_repo_name=lm-eval-results,push_results_to_hub=True,push_samples_to_hub=True,public_repo=False"
SHARES = "assay evaluates in one process"
SERVER = "base_url=http://"

COMMANDS = (
    Command("README", "lm-eval -h"),
    Command("README", "lm-eval run -h"),
    Command("README", "lm-eval ls tasks"),
    Command("README", f"lm_eval --model hf {GPT_J}"),
    Command("README", f"lm_eval --model hf {PYTHIA} --batch_size 8"),
    Command("README", f"lm_eval --model hf {PYTHIA} --batch_size auto:4"),
    Command("README", "lm_eval --model hf --model_args pretrained=/path/to/gguf_folder,gguf_file=model-name.gguf,tokenizer=/path/to/tokenizer"
            " --tasks hellaswag --device cuda:0 --batch_size 8", "gguf"),
    Command("README", "accelerate launch -m lm_eval --model hf --tasks lambada_openai,arc_easy --batch_size 16", SHARES),
    Command("README", "lm_eval --model hf --tasks lambada_openai,arc_easy --model_args parallelize=True --batch_size 16", "pretrained"),
    Command("README", "accelerate launch --multi_gpu --num_processes 2 -m lm_eval --model hf --tasks lambada_openai,arc_easy"
            " --model_args parallelize=True --batch_size 16", SHARES),
    Command("README", "torchrun --nproc-per-node=4 -m lm_eval --model hf --model_args pretrained=google/gemma-4-31B-it,tp_plan=auto"
            " --tasks lambada_openai,arc_easy --batch_size 16", SHARES),
    Command("README", "lm_eval --model steered --model_args pretrained=EleutherAI/pythia-160m,steer_path=steer_config.pt"
            " --tasks lambada_openai,hellaswag --device cuda:0 --batch_size 8", "--plugin"),
    Command("README", "lm_eval --model nemo_lm --model_args path=MODEL.nemo --tasks hellaswag --batch_size 32", "Hugging Face's format"),
    Command("README", "torchrun --nproc-per-node=8 --no-python lm_eval --model nemo_lm --model_args path=MODEL.nemo,devices=8"
            " --tasks hellaswag --batch_size 32", SHARES),
    Command("README", f"lm_eval --model megatron_lm {MEGATRON} --tasks hellaswag --batch_size 1", "Hugging Face's format"),
    Command("README", f'lm_eval --model megatron_lm {MEGATRON},extra_args="--no-rope-fusion --trust-remote-code" --tasks hellaswag',
            "Hugging Face's format"),
    Command("README", f"torchrun --nproc-per-node=4 -m lm_eval --model megatron_lm {MEGATRON},devices=4 --tasks hellaswag", SHARES),
    Command("README", "lm_eval --model openvino --tasks wikitext --model_args pretrained=OV_MODEL,pipeline_parallel=True"
            " --device HETERO:GPU.1,GPU.0", "OpenVINO's model server"),
    Command("README", "lm_eval --model vllm --model_args pretrained=EleutherAI/gpt-j-6B,tensor_parallel_size=1,dtype=auto,"
            "gpu_memory_utilization=0.8,data_parallel_size=1 --tasks lambada_openai --batch_size auto", "vllm"),
    Command("README", "lm_eval --model sglang --model_args pretrained=EleutherAI/gpt-j-6B,dp_size=1,tp_size=1,dtype=auto"
            " --tasks gsm8k_cot --batch_size auto", "likelihoods=sglang"),
    Command("README", "lm_eval --model onnxruntime-genai --model_args pretrained=/path/to/model_builder_output,execution_provider=cuda"
            " --tasks hellaswag --batch_size 1", "does not load ONNX"),
    Command("README", "lm_eval --model winml --model_args pretrained=/path/to/onnx/model --tasks mmlu --batch_size 1", "does not load ONNX"),
    Command("README", "lm_eval --model openai-completions --model_args model=davinci-002 --tasks lambada_openai,hellaswag", "HTTPS_PROXY"),
    Command("README", "lm_eval --model local-completions --tasks gsm8k --model_args model=facebook/opt-125m,base_url=http://{yourip}:8000/v1/completions,"
            "num_concurrent=1,max_retries=3,tokenized_requests=False,batch_size=16"),
    Command("README", "lm_eval --model openai --model_args engine=davinci-002 --tasks lambada_openai,hellaswag --check_integrity", "write model="),
    Command("README", "lm_eval --model hf --model_args pretrained=EleutherAI/gpt-j-6B,parallelize=True,load_in_4bit=True,peft=nomic-ai/gpt4all-j-lora"
            " --tasks openbookqa,arc_easy,winogrande,hellaswag,arc_challenge,piqa,boolq --device cuda:0", "load_in_4bit"),
    Command("README", "lm_eval --model hf --model_args pretrained=Ejafa/llama_7B,delta=lmsys/vicuna-7b-delta-v1.1 --tasks hellaswag", "delta"),
    Command("README", "lm_eval --model hf --model_args pretrained=model-name-or-path,gptqmodel=True --tasks hellaswag", "gptqmodel"),
    Command("README", "lm_eval --model hf --model_args pretrained=model-name-or-path,autogptq=model.safetensors,gptq_use_triton=True"
            " --tasks hellaswag", "autogptq"),
    Command("README", "lm_eval --model hf --model_args pretrained=model-name-or-path --tasks hellaswag --log_samples --output_path results"
            f" --hf_hub_log_args {HUB}", files="results/MODEL/results_*.json"),
    Command("README", f"lm_eval --model hf {GPT_J} --log_samples --output_path output/gpt-j-6B", files="output/gpt-j-6B/MODEL/results_*.json"),
    Command("README", "lm_eval --model hf --model_args pretrained=microsoft/phi-2,trust_remote_code=True --tasks hellaswag,mmlu_abstract_algebra"
            " --device cuda:0 --batch_size 8 --output_path output/phi-2 --limit 10 --wandb_args project=lm-eval-harness-integration"
            " --log_samples", files="output/phi-2/MODEL/results_*.json"),
    Command("interface", "lm-eval ls -h"),
    Command("interface", "lm-eval run --model hf --model_args pretrained=gpt2 --tasks hellaswag"),
    Command("interface", "lm-eval run --model hf --model_args pretrained=gpt2 --tasks arc_easy --num_fewshot 5"),
    Command("interface", "lm-eval run --model hf --model_args pretrained=gpt2 --tasks hellaswag --output_path ./results/ --log_samples",
            files="results/MODEL/results_*.json"),
    Command("interface", "lm-eval run --config eval_config.yaml", files="results/gpt2/MODEL/results_*.json"),
    Command("interface", "lm-eval --model hf --tasks hellaswag", "pretrained"),
    Command("interface", "lm-eval run --model hf --model_args pretrained=gpt2 dtype=float32 --tasks hellaswag"),
    Command("interface", "lm-eval run --model vllm --model_args pretrained=EleutherAI/gpt-j-6B --tasks arc_easy arc_challenge --num_fewshot 5", "vllm"),
    Command("interface", "lm-eval run --model hf --model_args pretrained=gpt2 --tasks lambada --gen_kwargs temperature=0.8 top_p=0.95"),
    Command("interface", "lm-eval run --config my_config.yaml --tasks mmlu", files="results/gpt2/MODEL/results_*.json"),
    Command("interface", 'lm-eval run --model vllm --model_args pretrained=Qwen/Qwen3-32B,enable_thinking=True,think_end_token="</think>"'
            " --tasks gsm8k --apply_chat_template", "vllm"),
    Command("interface", "lm-eval run --model hf --model_args pretrained=Qwen/Qwen3-32B,enable_thinking=True,think_end_token=2"
            " --tasks gsm8k --apply_chat_template"),
    Command("interface", "lm-eval run --model local-chat-completions --model_args model=Qwen/Qwen3-32B,base_url=http://localhost:8000/v1/chat/completions,"
            'think_end_token="</think>" --tasks ifeval --apply_chat_template'),
    Command("interface", "lm-eval ls groups"),
    Command("interface", "lm-eval ls tasks --include_path /path/to/external/tasks"),
    Command("interface", "lm-eval validate --tasks hellaswag"),
    Command("interface", "lm-eval validate --tasks arc_easy,arc_challenge,hellaswag"),
    Command("interface", "lm-eval validate --tasks mmlu"),
    Command("interface", "lm-eval validate --tasks my_custom_task --include_path ./custom_tasks"),
    Command("config_files", "lm-eval run --model hf --model_args pretrained=gpt2,dtype=float32 --tasks hellaswag arc_easy --num_fewshot 5"
            " --batch_size 8 --device cuda:0"),
    Command("config_files", "lm-eval run --config eval_config.yaml --tasks mmlu --limit 100", files="results/gpt2/MODEL/results_*.json"),
    Command("decontamination", "python -m lm_eval --model gpt2 --device 0 --tasks sciq", "--model hf --model_args pretrained=gpt2"),
)  # fmt: skip

TASKS = {
    "hellaswag": "first_steps_facts", "lambada_openai": "first_steps_cloze", "lambada": "first_steps_cloze", "arc_easy": "first_steps_larger",
    "arc_challenge": "first_steps_opposites", "gsm8k_cot": "first_steps_sums", "gsm8k": "first_steps_sums", "mmlu": "first_steps_arithmetic",
    "ifeval": "first_steps_sums", "wikitext": "first_steps_stories", "openbookqa": "first_steps_plurals", "winogrande": "first_steps_word_classes",
    "piqa": "first_steps_differences", "boolq": "first_steps_finding", "mmlu_abstract_algebra": "first_steps_plurals", "sciq": "first_steps_facts",
}  # fmt: skip
MODELS = ("EleutherAI/gpt-j-6B", "EleutherAI/gpt-j-6b", "EleutherAI/pythia-160m", "google/gemma-4-31B-it", "model-name-or-path", "Ejafa/llama_7B",
          "microsoft/phi-2", "Qwen/Qwen3-32B", "/path/to/gguf_folder", "/path/to/tokenizer", "gpt2")  # fmt: skip

CONFIG = """\
model: hf
model_args:
  pretrained: {model}
  dtype: float32
tasks:
  - first_steps_facts
  - first_steps_larger
num_fewshot: 0
batch_size: auto
device: cpu
output_path: ./results/gpt2/
log_samples: true
wandb_args: {{}}
hf_hub_log_args:
  hub_results_org: my-org
  results_repo_name: llm-eval-results
  push_results_to_hub: false
"""
OWN_TASK = """\
task: my_custom_task
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
doc_to_text: q
doc_to_target: a
"""


def local(text: str, model: Path, server: str, work: Path) -> str:
    """A command with local names: the bundled model for hub models, bundled tasks for theirs, a loopback server, a CPU."""
    for name in sorted(TASKS, key=len, reverse=True):
        text = re.sub(rf"(?<=[ ,]){name}(?=[ ,]|$)", TASKS[name], text)
    for name in MODELS:
        text = re.sub(rf"(?<=[=]){re.escape(name)}(?=[ ,]|$)", str(model), text)
    for address in ("http://{yourip}:8000/v1", "http://localhost:8000/v1"):
        text = text.replace(address, server)
    text = text.replace("/path/to/external/tasks", str(work / "custom_tasks")).replace(
        "--device cuda:0", "--device cpu"
    )
    return text.replace(",revision=step100000", "")


def processes(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The command that a launcher starts, and the environment of its processes."""
    if words[0] not in ("accelerate", "torchrun"):
        return words, {}
    start = words.index("lm_eval")
    return words[start:], {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}


def prepare(work: Path, model: Path) -> None:
    """Write the files that the commands name."""
    for name in ("eval_config.yaml", "my_config.yaml"):
        (work / name).write_text(CONFIG.format(model=model))
    (work / "custom_tasks").mkdir(exist_ok=True)
    (work / "custom_tasks/my_custom_task.yaml").write_text(OWN_TASK)
    (work / "custom_tasks/data.jsonl").write_text('{"q": "1+1=", "a": "2"}\n')


def verdict(command: Command, code: int, output: str, work: Path, model: Path) -> str:
    """How a command ended: `runs`, `answered`, or what is wrong."""
    if command.answer:
        return "answered" if code == 2 and command.answer in output else f"WRONG: exit code {code}: {output[-300:]}"
    if code != 0:
        return f"WRONG: exit code {code}: {output[-300:]}"
    place = command.files.replace("MODEL", re.sub(r"[\"<>:/|\\?*\[\]]+", "__", str(model)))
    if place and not list(work.glob(place)):
        return f"WRONG: no file {place}"
    return "runs"


class Outcome(NamedTuple):
    """A command with its verdict, its answer in a line, and its seconds."""

    command: Command
    verdict: str
    line: str
    seconds: float


def outcomes(python: Path, server: str, work: Path, model: Path) -> Iterator[Outcome]:
    """Run every command in a process of an environment that has assay-lm-eval."""
    prepare(work, model)
    variables = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "PYTHONPATH": "",
        "ASSAY_RUNS_DIR": str(work / "runs"),
    }
    for command in COMMANDS:
        words, more = processes(shlex.split(local(command.text, model, server, work)))
        program = [str(python.parent / words[0]), *words[1:]] if words[0] != "python" else [str(python), *words[1:]]
        started = time.perf_counter()
        ended = subprocess.run(
            program, cwd=work, env={**variables, **more}, capture_output=True, text=True, timeout=300, check=False
        )
        output = ended.stdout + ended.stderr
        line = next((each for each in output.splitlines() if command.answer and command.answer in each), "")
        yield Outcome(
            command, verdict(command, ended.returncode, output, work, model), line, time.perf_counter() - started
        )


def environment(folder: Path) -> Path:
    """A new environment with assay and assay-lm-eval from this repository; heavy libraries are those of this interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin/python"
    for package in (ROOT, ROOT / "packages/assay-lm-eval"):
        subprocess.run([str(python), "-m", "pip", "install", "-q", str(package)], check=True)
    own = subprocess.run(
        [str(python), "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    )
    Path(own.stdout.strip(), "libraries.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def table(results: list[Outcome]) -> str:
    """The page with every command."""
    counts: Mapping[str, int] = {kind: sum(each.verdict == kind for each in results) for kind in ("runs", "answered")}
    rows = [
        f"| {each.command.source} | `{each.command.text}` | {each.verdict}{': ' + _cell(each.line) if each.line else ''} |"
        for each in results
    ]
    head = f"""# Commands of lm-eval's documentation through `assay-lm-eval`

`python -m bench.lm_eval_commands` ran these {len(results)} commands of lm-eval's README and docs (interface, config_files, decontamination) in an environment
with `assay-lm-eval`: {counts["runs"]} run, {counts["answered"]} are answered with assay's way (exit code 2), {len(results) - sum(counts.values())} neither.
Hub models are replaced by the bundled model (without `revision=`), tasks by bundled ones, `cuda:0` by `cpu`, servers by one on loopback. `accelerate launch` and `torchrun` are not
started: the command they start runs as one process of two (`WORLD_SIZE=2`). Three commands are shorter or changed here: the first of `megatron_lm` without `tokenizer_type=…`, the one with
`--hf_hub_log_args` without `autogptq=…,gptq_use_triton=True` (refused in its own row), and `think_end_token=2` for 200008, which the bundled model's vocabulary does not have. The rows with
`--hf_hub_log_args` and `--wandb_args` ran offline: nothing was pushed to the hub or sent to wandb. Where a command writes files, they are where lm-eval
puts them. [Migrating](migrating.md) explains each flag.

| from | command | result |
|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def _cell(line: str) -> str:
    return line.replace("|", "\\|").replace(str(ROOT), "…").replace("<", "&lt;")[:400]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--here", action="store_true", help="use the packages of this interpreter's environment")
    parser.add_argument("--output", type=Path, default=TABLE, help="where to write the table")
    options = parser.parse_args()
    from tests.serving import Servers

    servers = Servers()
    with tempfile.TemporaryDirectory() as folder:
        try:
            python = Path(sys.executable) if options.here else environment(Path(folder, "environment"))
            work = Path(folder, "work")
            work.mkdir()
            results = []
            for each in outcomes(python, servers(), work, ROOT / "src/assay/bundled/model"):
                results.append(each)
                print(json.dumps([each.verdict[:200], round(each.seconds, 1), each.command.text[:100]]), flush=True)
        finally:
            servers.end()
    options.output.write_text(table(results), encoding="utf-8")
    sys.exit(any(each.verdict.startswith("WRONG") for each in results))


if __name__ == "__main__":
    main()
