"""Every command of the documents runs as it is written, page by page, in a folder that has what the page speaks of.

What stands for the reader's own things: the bundled model for a model folder, a server on loopback for theirs, small tasks for lm-eval's.
Commands that cannot be run here are listed with the reason; a command that is neither run nor listed fails.
"""

import csv
import json
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from assay.cli import main
from kinds import mostly_nightly
from serving import Arrived, loopback
from test_docs import PAGES, ROOT, ROWS, blocks, write_data, write_helpers

NOT_RUN = {
    r"^assay view\b": "serves until it is stopped: tests/test_viewer.py",
    r"--model vllm\b|\bvllm,": "needs vLLM: `make test-vllm`",
    r"--to (wandb|mlflow|trackio|hf-hub)": "needs an extra or an account: tests/test_exports.py, tests/test_trackers.py",
    r"--serve\b": "starts vLLM: tests/test_managed_servers.py, tests/test_managed_fleet.py",
    r"baselines/main": "is run in its order by tests/test_ci_files.py",
    r"s3://": "needs a bucket: tests/test_storage.py",
    r"--model (anthropic|litellm)\b": "needs a key: tests/test_protocols.py, tests/test_agent_backends.py",
    r"likelihoods=sglang": "needs SGLang's own protocol: tests/test_sglang.py",
    r"theirs\.eval": "needs a log of Inspect: tests/test_inspect.py",
    r"--ray \S|--replicas": "needs a cluster: tests/test_fleet_work.py and its neighbours",
    r"^assay launch\b": "needs a run file: tests/test_launch.py",
    r"^assay fetch\b": "needs a network: tests/test_run_command.py",
    r"tasks\.eval\.|eval/classification|output_2026": "needs a clone of SyGra: tests/test_sygra_clone.py",
}
"""Commands that are not run here, and why."""
ENDS = {
    r"^assay verify-backend": (0, 1),
    r"--gate": (0, 1, 4),
    r"^assay (label|plan)\b": (0, 4),
    r"--stop_when": (0, 1, 4),
}
"""Exit codes other than 0 that the page itself speaks of."""
REPLACEMENTS = (
    (r"(?<=--use_cache )DIR\b|(?<=cache ls )DIR\b|(?<=cache prune )DIR\b", "cached"), (r"--model …", "--model embedded"), (r" …", " --tasks first_steps_sums"), (r"pretrained=gpt2", "pretrained=model"),
    (r"\bFOLDER\b|\bDIR\b(?!/)|models/\w+", "model"), (r"\bNAME\b", "first"), (r"\bRUN\b", "runs/first"), (r"~/", "./"),
)  # fmt: skip
ACC = "aggregate_metric_list: [{metric: acc}]\n"
CHOICES = "output_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: choices\ndoc_to_target: answer\n"
TEXTS = "output_type: generate_until\ndoc_to_text: question\ndoc_to_target: '{{choices[answer]}}'\n"
DATA = "dataset_path: json\ndataset_kwargs: {data_files: {test: quiz.jsonl, train: quiz.jsonl}}\ntest_split: test\ntraining_split: train\n"


def commands(page: Path) -> list[str]:
    """The commands of a page in their order; a backslash at the end of a line joins it with the next."""
    lines = re.findall(r"^(?: {4}|\$ )(\S.*)$", page.read_text().replace("\\\n", " "), re.MULTILINE)
    whole = [re.sub(r"\s+# .*|\s+#$", "", line) for line in lines]
    parts = [part for line in whole for each in _unrolled(line) for part in re.split(r"\s*(?:&&|;)\s+", each)]
    plain = [re.sub(r"^(?:\w+=\S+ )+|\s&$", "", re.sub(r"\s+", " ", part.strip())) for part in parts]
    return [part for part in plain if part.startswith("assay ")]


def _unrolled(line: str) -> list[str]:
    """The body of a shell loop, for each of its values."""
    loop = re.fullmatch(r"for (\w+) in (.+?); do (.+?); done", line.strip())
    return [loop[3].replace(f"${loop[1]}", value) for value in loop[2].split()] if loop else [line]


def reason(command: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), "")


def run_here(page: Path) -> list[str]:
    return [command for command in commands(page) if not reason(command)]


PAGES_RUN = [page for page in PAGES if run_here(page) and page.name not in ("seeds.md", "CHANGELOG.md")]
SAMPLE = [ROOT / "docs" / name for name in ("tutorial.md", "graphs.md", "exporting.md", "reports.md")]
"""Pages whose commands `make test` runs: between them each kind of command that reads or writes a run."""


def says(arrived: Arrived) -> object:
    """A server that answers what it is asked: a text, a verdict for a judge, likelihoods for what is echoed."""
    if arrived.method == "GET":
        return {"data": [{"id": "small"}, {"id": "large"}, {"id": "llama"}, {"id": "x"}, {"id": "y"}, {"id": "m"}]}
    body = json.loads(arrived.body)
    text = json.dumps(body.get("messages", body.get("prompt")))
    fence = re.search(r"<<<answer ([0-9a-f]{32})>>>", text)
    answer = json.dumps({"id": fence[1], "reason": "so", "score": 1}) if fence else "4"
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    if "messages" in body:
        message = {"role": "assistant", "content": answer}
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
            "model": body["model"],
        }
    prompts = (
        body["prompt"]
        if isinstance(body["prompt"], list) and isinstance(body["prompt"][0], list | str)
        else [body["prompt"]]
    )
    choices = [
        {"index": n, "text": _text(prompt, answer, body), "finish_reason": "stop", "logprobs": _echoed(prompt)}
        for n, prompt in enumerate(prompts)
    ]
    return {"choices": choices, "usage": usage, "model": body["model"]}


def _text(prompt: object, answer: str, body: Mapping[str, object]) -> str:
    """The answer, or the echo of a text; an echo of tokens is not spelled."""
    if not body.get("echo"):
        return answer
    return prompt if isinstance(prompt, str) else ""


def _echoed(prompt: object) -> dict[str, object]:
    size = len(prompt) if isinstance(prompt, list) else len(str(prompt))
    return {
        "tokens": ["t"] * (size + 1), "token_logprobs": [None, *[-1.0] * size],
        "top_logprobs": [None, *[{"t": -0.5}] * size], "text_offset": list(range(size + 1)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which stands for every run that a page speaks of."""
    folder = tmp_path_factory.mktemp("finished")
    stand_ins(folder)
    tasks = ["gsm8k", "mmlu", "arc_easy", "wikitext", "first_steps_sums"]
    options = ["--include_path", str(folder / "site/lm_eval/tasks"), "--limit", "5", "-o", str(folder / "run")]
    assert main(["run", "--tasks", *tasks, *options]) == 0
    assert main(["export", str(folder / "run"), "--to", "lm-eval", "-o", str(folder / "lm_eval")]) == 0
    shutil.copytree(ROOT / "src/assay/bundled/model", folder / "model")  # a command may write there
    return folder / "run"


def stand_ins(folder: Path) -> None:
    """Small tasks under the names of lm-eval that the pages use."""
    tasks = folder / "site/lm_eval/tasks"
    tasks.mkdir(parents=True)
    metadata = folder / "site/lm_eval-0.4.13.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: lm_eval\nVersion: 0.4.13\n")
    (tasks / "quiz.jsonl").write_text(ROWS)
    whole = "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: question\nmetric_list: [{metric: word_perplexity}]\n"
    for name, kind in {
        "gsm8k": TEXTS + "tag: reasoning\n",
        "arc_easy": CHOICES,
        "hellaswag": CHOICES,
        "wikitext": whole,
    }.items():
        (tasks / f"{name}.yaml").write_text(f"task: {name}\n{DATA}{kind}")
    for group, member in {"mmlu_stem": "mmlu_anatomy", "mmlu_other": "mmlu_virology"}.items():
        (tasks / f"{member}.yaml").write_text(f"task: {member}\n{DATA}{CHOICES}")
        (tasks / f"{group}.yaml").write_text(f"group: {group}\ntask: [{member}]\n{ACC}")
    (tasks / "mmlu.yaml").write_text(f"group: mmlu\ntask: [mmlu_stem, mmlu_other]\n{ACC}")


def furnish(folder: Path, page: Path, finished: Path) -> None:
    """The files that a page shows, and those that every reader has: tasks, models, runs, files of lm-eval."""
    stand_ins(folder)
    written = {
        run for command in commands(page) for run in re.findall(r"(?:-o|--output_path|merge) (runs/[\w-]+)", command)
    }
    for run in {
        "runs/first",
        *(run for command in commands(page) for run in re.findall(r"runs/[\w-]+", command)),
    } - written:
        shutil.copytree(finished, folder / run)
    shutil.copytree(finished, folder / "imported")
    shutil.copytree(finished.parent / "lm_eval/embedded", folder / "output/model")
    [samples] = (folder / "output/model").glob("samples_gsm8k_*.jsonl")
    shutil.copy(samples, folder / "samples_gsm8k_2025-06-01T10-00-00.jsonl")
    for place in ("model", "runs/x/step-1", "a", "b"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(finished.parent / "model")
    (folder / "data").mkdir()
    (folder / "out").mkdir()
    (folder / "run.yaml").write_text("tasks: [first_steps_sums]\n")
    (folder / "sweep.yaml").write_text("tasks: [first_steps_sums]\nmodels: [embedded, dummy]\n")
    for place in (folder, folder / "tasks", folder / "my_tasks"):
        place.mkdir(exist_ok=True)
        (place / "quiz.jsonl").write_text(ROWS)
        (place / "quiz.yaml").write_text(f"task: quiz\n{DATA}{TEXTS}")
    (folder / "quiz_hard.jsonl").write_text(ROWS)
    (folder / "better_gsm8k.yaml").write_text(f"task: gsm8k\n{DATA}{TEXTS}")
    shutil.copy(ROOT / "src/assay/bundled/first_steps/graph_answers.yaml", folder / "changed.yaml")
    write_helpers(folder)
    write_data(folder, page)
    (folder / "my_file.py").write_text("\n".join(text for text in blocks(ROOT / "docs/plugins.md", "python")))
    for text in blocks(page, "yaml"):
        name = re.search(r"^(?:task|group|format): *(\w+)", text, re.MULTILINE)
        if name:
            (folder / f"{name[1]}.yaml").write_text(text)


def fill_labels(path: Path) -> None:
    """The people's part."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    with path.open("w") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows({**row, "label": "1"} for row in rows)


@pytest.mark.parametrize("page", mostly_nightly(PAGES_RUN, kept=SAMPLE), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run(
    page: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(tmp_path, page, finished)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ASSAY_RUNS_DIR", str(tmp_path / "runs"))
    failed = []
    with loopback(says) as (url, _):
        for command in run_here(page):
            written = shlex.split(replaced(command, url))[1:]
            arguments = [
                each for word in written for each in (sorted(map(str, Path().glob(word))) if "/*" in word else [word])
            ]
            if arguments[0] == "run" and "--limit" not in arguments and "--sample" not in arguments:
                arguments += ["--limit", "2"]
            if "--import" in arguments:
                fill_labels(tmp_path / "labels.csv")
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = int(str(ended.code))
            allowed = next((codes for pattern, codes in ENDS.items() if re.search(pattern, command)), (0,))
            if code not in allowed:
                said = capsys.readouterr()
                failed.append(f"exit {code}: {command}\n    as {shlex.join(arguments)}\n    {said.err[-600:]}")
            capsys.readouterr()
    assert not failed, "\n".join(failed)


def test_what_is_not_run_here_is_tested_elsewhere() -> None:
    for why in NOT_RUN.values():
        assert all((ROOT / file).is_file() for file in re.findall(r"tests/\w+\.py", why)), why
    assert all(any(re.search(pattern, each) for page in PAGES for each in commands(page)) for pattern in NOT_RUN)


def replaced(command: str, url: str) -> str:
    command = re.sub(r"http://(?:localhost|127\.0\.0\.1):\d+/v1|http://…", url, command)
    for pattern, thing in REPLACEMENTS:
        command = re.sub(pattern, thing, command)
    return re.sub(r"\s>>? \S+$", "", command)  # what is written into a file of the shell is not kept
