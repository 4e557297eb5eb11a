"""The help of the command line: commands in sections, and examples."""

import re
import textwrap
from collections.abc import Mapping

SECTIONS = {
    "evaluate": ("run", "watch", "score", "merge", "verify-backend", "plan", "launch"),
    "look": ("view", "samples", "runs", "report", "plot", "label"),
    "compare": ("compare", "gate", "leaderboard", "table"),
    "exchange": ("export", "import", "pack"),
    "tasks": ("ls", "show", "new", "validate", "fetch", "schema"),
    "set-up": ("doctor", "completion", "cache"),
}
"""The commands of every section, in the order of the help."""
EXAMPLES = {
    "run": "assay run --tasks first_steps --limit 10 \\\n    --model openai-chat --model_args model=NAME,base_url=URL",
    "watch": "assay watch out --tasks arc_easy --gate 'acc > -1pp'",
    "score": "assay score runs/a --metric exact_match:ignore_case=true",
    "merge": "assay merge runs/whole runs/part1 runs/part2",
    "verify-backend": "assay verify-backend embedded dummy --tasks first_steps_sums --limit 20",
    "plan": "assay plan first_steps_sums --mde 5pp",
    "launch": "assay launch run.yaml --executor slurm --nodes 4 --gpus_per_node 8",
    "view": "assay view runs",
    "samples": "assay samples runs/a --wrong -n 3",
    "runs": "assay runs list",
    "report": "assay report runs/a runs/b -o report.html",
    "label": "assay label runs/a -n 100",
    "compare": "assay compare runs/a runs/b --gate 'acc > -1pp'",
    "gate": "assay gate runs/a 'acc >= 0.8' 'failed <= 1%'",
    "plot": "assay plot runs/a runs/b -o scores.svg",
    "leaderboard": "assay leaderboard runs/a runs/b runs/c",
    "table": "assay table runs/a runs/b --format latex -o table.tex",
    "export": "assay export runs/a --to lm-eval -o files",
    "import": "assay import files -o runs/a",
    "pack": "assay pack runs/a --no_gold",
    "ls": "assay ls gsm8k",
    "show": "assay show first_steps_sums",
    "new": "assay new task my_task",
    "validate": "assay validate --include_path my_tasks",
    "fetch": "assay fetch tasks",
    "schema": "assay schema task > task.schema.json",
    "doctor": "assay doctor",
    "completion": "assay completion bash >> ~/.bashrc",
    "cache": "assay cache ls answers",
}
BRIEFLY = {
    "watch": "evaluate checkpoints as they appear, and alarm if one is worse",
    "score": "score the answers of a run again, without a model",
    "plan": "how many documents are needed to detect a difference",
    "report": "results and comparison in one file: HTML, markdown, JSON, CSV",
    "label": "documents for people to label, to correct a judge",
    "compare": "compare runs document by document: is B worse than A, and why",
    "gate": "exit code for CI: does a run pass, fail, or is it too small?",
    "plot": "draw runs as SVG, PNG or PDF",
    "leaderboard": "rank models, with intervals of ranks",
    "table": "models by tasks as a paper prints them: LaTeX, markdown …",
    "export": "to lm-eval's files, Inspect's logs, Parquet, MLflow, W&B",
    "import": "from lm-eval's files, Inspect's logs, other runs",
    "pack": "write a run to one file without secrets",
    "ls": "list tasks, groups, metrics, models, runs …",
    "new": "write a task, metric, filter, scorer or graph to start from",
    "fetch": "download lm-eval's task files, or data sets of tasks",
    "doctor": "check versions, extras, GPU, server, hub, disk",
    "completion": "completion for bash, zsh or fish",
}
"""Shorter sentences, where that of a command does not fit a line."""
WIDTH = 80
NAME_WIDTH = 16


def main_help(commands: Mapping[str, str]) -> str:
    """The help of `assay`: every command with a sentence, by section, on one screen."""
    placed = {name for names in SECTIONS.values() for name in names}
    rest = tuple(name for name in commands if name not in placed)
    lines = ["usage: assay COMMAND …   (assay COMMAND --help: its flags; assay --version)"]
    for title, names in {**SECTIONS, **({"more": rest} if rest else {})}.items():
        lines.append(f"{title}:")
        lines += [
            f"  {name:{NAME_WIDTH}}{_clause(BRIEFLY.get(name, commands[name]))}" for name in names if name in commands
        ]
    lines.append("examples:")
    lines += ["  assay run --model embedded --tasks first_steps --limit 8", "  assay compare runs/a runs/b"]
    lines.append("  assay view runs")
    return "\n".join(lines) + "\n"


def _clause(sentence: str) -> str:
    """The beginning of a sentence that fits a line: up to a comma, colon or semicolon, if it must be cut."""
    most = WIDTH - NAME_WIDTH - 2
    if len(sentence) <= most:
        return sentence
    cuts = [each.start() for each in re.finditer("[,:;]", sentence) if each.start() <= most]
    return sentence[: cuts[0]] if cuts else sentence[: most - 1] + "…"


def description(sentence: str) -> str:
    return textwrap.fill(sentence[0].upper() + sentence[1:] + ".", WIDTH - 2)


def example(name: str) -> str | None:
    return f"example:\n  {EXAMPLES[name]}" if name in EXAMPLES else None
