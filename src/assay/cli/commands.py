"""The flags of every command but `run`. Nothing here imports what a command does: help and completion are there at once."""

import argparse
from collections.abc import Sequence
from typing import get_args

from assay.cli.flags import (
    Flags,
    add_catalog_options,
    add_gate_flags,
    add_option,
    add_run_options,
    add_table_options,
    define_run,
    parse_count,
    parse_duration,
)
from assay.config.folders import RUNS_DIR, RUNS_VARIABLE
from assay.config.run import WORK

__all__ = ["define_run"]

RUN = "the folder of a run, or of a scoring of it: RUN/scored/001"
RUNS = "folders of runs, or of scorings (RUN/scored/001)"
BELOW = "only these and their members: names, globs, groups"
CATALOG = "a folder with tasks, in addition to those of the run"
OTHER_PROMPTS = "--allow_different_prompts"
BASELINE = "the run, or the file of `assay pack`, that differences are to"
VERIFIED = {
    **dict.fromkeys(("limit", "sample", "num_fewshot", "gen_kwargs", "system_instruction", "include_path")),
    **dict.fromkeys(("include_defaults", "data_dir", "confirm_run_unsafe_code")),
    "apply_chat_template": "use A's chat template; B is sent the same text",
    "output_path": "store both runs, as DIR/a and DIR/b; the same command resumes them",
    "force": "move other runs in those folders aside",
}
"""Options of a run that `verify-backend` has, with their help where it differs."""
LISTED_KINDS = {"tasks": ("task", "group", "tag"), "subtasks": ("task",), "groups": ("group",), "tags": ("tag",)}
REGISTRIES = ("formats", "models", "metrics", "filters", "scorers", "aggregators", "aggregations", "reductions", "samplers",
              "transforms", "unit_metrics", "aggregator_metrics", "exporters")  # fmt: skip
NEW_KINDS = ("task", "group", "metric", "filter", "scorer", "graph")


class Offered(tuple[str, ...]):
    """Words that completion offers for an argument that may also be another."""

    def __contains__(self, word: object) -> bool:
        return True


# --- evaluate ---------------------------------------------------------------------------------------------------------


def define_watch(parser: argparse.ArgumentParser) -> None:
    Flags(parser).text("folder", "DIR", "where checkpoints appear, or a pattern for them: out, 'out/step-*'")
    groups = add_run_options(parser)
    Flags(groups[WORK]).text("--config -C", "FILE", "a YAML file with any of these options; flags override it")
    add = Flags(parser.add_argument_group("checkpoints"))
    add.text("--ready", "FILE", "a file, or a pattern, that a complete checkpoint has (default: one that trainers write"
        " last, such as trainer_state.json or .complete; or no change for --stable)")  # fmt: skip
    add.number("--stable", 30.0, "TIME", "without such a file, complete is what has not changed for so long: 30s, 5m (30s)",
        parse_duration)  # fmt: skip
    add.text("--convert", "COMMAND", "a command that makes a model folder of a checkpoint: 'python convert.py"
        " {checkpoint} {out}'; {out} is removed after its evaluation")  # fmt: skip
    add.switch("--once", "evaluate what is ready, and end (for cron)")
    add.number(
        "--until", None, "STEP", "end when the checkpoint of this step, or a later one, is evaluated", parse_count
    )
    add = Flags(parser.add_argument_group("alarms (exit code 1)"))
    add.repeated("--gate", "GATE", "what each checkpoint must not show: 'acc > -1pp' fails when it"
        " is surely more than a point below one of the --last; 'acc >= 0.3', 'failed <= 1%%'; repeatable")  # fmt: skip
    add.number("--last", 3, "K", "checkpoints before it that differences are to (3)", parse_count)
    add.number("--level", 0.95, "P", "confidence that there is no false alarm in the whole watch (0.95)")
    add.text("--on_alarm", "COMMAND", "a command to run then: 'notify {step} {message}'; also {checkpoint}, {run}")
    add_table_options(parser)


def define_score(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("runs", "RUN", "the folder of a run; or samples_*.jsonl files of lm-eval, or their folder; or the output of a"
        " graph, which --tasks names")  # fmt: skip
    add.many("--tasks -t", "NAME", "only these: names, globs, groups")
    add.repeated("--filter", "NAME=STEP:VALUE", "another filter, or a replacement for the one of that name:"
        r" 'number=regex:(\d+)', or an entry of filter_list in YAML")  # fmt: skip
    add.repeated("--metric", "NAME[:K=V]", "another metric, or a replacement for the one of that"
        " name: exact_match:ignore_case=true, or an entry of metric_list in YAML")  # fmt: skip
    add.repeated("--with", "FILE", "a YAML file of a task or group that replaces the one of that name", dest="files")
    add_option(parser, "include_path", help=CATALOG)
    add_option(parser, "include_defaults", help="for lm-eval's files: omit bundled tasks, lm_eval's and plug-ins'")
    compat = "reproduce lm-eval 0.4.13, or SyGra's reports, including their errors (default: as in the run)"
    add_option(parser, "compat", help=compat)
    add.text("--output_path -o", "DIR", "put scored/ there (default: into the folder of the run)")
    add_option(parser, "confirm_run_unsafe_code")
    add_table_options(parser)


def define_merge(parser: argparse.ArgumentParser) -> None:
    Flags(parser).text("output", "OUT", "the folder of the whole run, new")
    Flags(parser).many("shards", "RUN", "the folders of all its shards")
    add_option(parser, "include_path", help=CATALOG)
    add_option(parser, "force", help="move another run in OUT aside")
    unsafe = "run code that the model wrote (not needed for shards that were made here with this flag)"
    add_option(parser, "confirm_run_unsafe_code", help=unsafe)
    add_table_options(parser)


def define_verify_backend(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    model = "a backend with its arguments: NAME,K=V,K=V, as in --model_role"
    add.text("a", "A", model)
    add.text("b", "B", model)
    for name in ("tasks", *VERIFIED):
        add_option(parser, name, help=VERIFIED.get(name), required=name == "tasks")
    precisions = ("float32", "float16", "bfloat16")
    add.choice("--precision", precisions, "what the models compute in; it sets the tolerances", "float32")
    add.number("--tolerance", None, "X", "the largest difference of a log-likelihood per token (default: by precision)")
    add.number("--max_divergent", None, "SHARE",
        "the largest share of greedy texts that may differ (default: by precision)")  # fmt: skip
    add.choice("--accept", ("same", "drifts"), "the worst verdict with exit code 0 (default: same)", "same")
    add.choice("--format", ("text", "json"), "for a person or a program", "text")


def define_plan(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add("tasks", nargs="*", metavar="TASK", help="tasks and groups (default with --baseline: those of the run)")
    add.text("--mde", "SIZE", "the difference to detect: 1pp, or in the metric's units 0.05", required=True)
    add(
        "--baseline",
        nargs="+",
        metavar="RUN",
        help="a run to take the variance from; or two, to take that of their differences",
    )
    add.text("--metric", "NAME", "the metric (default: the first of each task)")
    add.number("--power", 0.8, "P", "probability of detecting it (0.8)")
    add.number("--alpha", 0.05, "P", "probability of a false detection (0.05)")
    add.number("--repeats", 1, "N", "how many times each request is sent (1)", int)
    add.number(
        "--correlation", 0.5, "R", "between two models' scores on the same documents, if there is no second run (0.5)"
    )
    add.text("--half_width", "SIZE", "with --baseline: the wanted half-width of an interval (default: that of --mde)")
    add_table_options(parser, "json")
    add_catalog_options(parser)


def define_launch(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.text("file", "RUN.yaml", "the options of the run, as `assay run --config` takes them")
    executors = ("slurm", "k8s")
    add("--executor", choices=executors, required=True, help="a batch script for SLURM, or a RayJob for Kubernetes")
    add("--nodes", type=int, required=True, metavar="N", help="how many machines")
    add.number("--gpus_per_node", 0, "N", "GPUs of each; Ray gives them to replicas", int)
    add.text("--time", "H:MM:SS", "the time limit of the job")
    add.text("--partition", "NAME", "SLURM's partition")
    add.text("--account", "NAME", "SLURM's account")
    add.text("--image", "NAME:TAG", "Kubernetes: the image of every pod")
    add.text("--volume", "CLAIM=/PATH", "Kubernetes: a claim of a volume that all pods share, for the run")
    add.repeated("--env", "NAME",
        "a variable that the run needs, such as HF_TOKEN: by name; on Kubernetes a key of the secret `assay`")  # fmt: skip
    add.switch("--send", "send it with sbatch or kubectl, rather than print it")


# --- look -------------------------------------------------------------------------------------------------------------


def define_view(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add(
        "folder",
        nargs="?",
        default=".",
        metavar="DIR",
        help="a folder that contains runs, or a run (default: this folder)",
    )
    add("--port", type=int, default=8777, help="port of the server (8777); 0 for any free one")
    add("--host", default="127.0.0.1", help="address of the server (127.0.0.1)")
    add.switch("--allow_remote",
        "allow other machines to connect, at a --host that they reach: they see everything below DIR, without a"
        " password")  # fmt: skip
    add.switch("--label",
        "let people store labels, tags and notes beside runs, from pages opened by the printed URL (default:"
        " read-only)")  # fmt: skip
    add.text("--labeller", "NAME", "with --label: the name stored with labels (default: your login name)")


def define_samples(parser: argparse.ArgumentParser) -> None:
    from assay.tasks.audit import KINDS

    add = Flags(parser)
    add.text("folder", "RUN", RUN)
    add("--task", "--tasks", "-t", action="append", metavar="NAME", help="samples of this task; repeatable")
    add.switch("--wrong", "only those of which no filter's first metric is above 0")
    reasons = "; ".join(f"{kind}: {why}" for kind, why in KINDS.items())
    add("--reason", choices=list(KINDS), metavar="REASON", help=f"only those: {reasons}")
    add("--doc", type=int, nargs="+", metavar="ID", help="only these documents, by doc_id")
    add.number("-n", 5, "N", "number of samples of each task (5); 0 for all", parse_count)
    add.switch("--full", "print few-shot examples, and texts in full length")


def define_label(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.text("folder", "RUN", RUN)
    add.number("-n", 100, "N", "number of documents of each task to label, with those that have"
        " labels (100); 0 for all; they are chosen at random", parse_count)  # fmt: skip
    add.text("--output_path -o", "FILE", "the table to fill in (default: labels.csv here)")
    add.text("--import", "FILE", "read the filled table, and correct the judge's numbers by its labels", dest="filled")
    add.switch("--card", "print how well the judge agrees with the labels, and with itself")
    add.repeated("--task -t", "NAME", "only this task; repeatable")
    add.text("--metric", "NAME", "the row that people check (default: that of the judge)")
    add.switch("--show_scores", "write the judge's scores into the table (default: people label blindly)")
    add.text("--labeller", "NAME", "who labels: the labels of several people are kept apart (default: your login name)")
    add.number("--seed", 0, "N", "another random choice (0)", int)
    add_table_options(parser)


def define_plot(parser: argparse.ArgumentParser) -> None:
    from assay.runs.extensions import PlotKind

    add = Flags(parser)
    add.many("runs", "RUN", RUNS)
    add.choice("--kind", get_args(PlotKind), "intervals: scores of tasks and groups, runs side by side"
        " (default); time: scores over dates or training steps; reliability: confidence against accuracy, of tasks with the"
        " metric ece; pass_at_k: of tasks with repeats", "intervals")  # fmt: skip
    add.text("-o --output", "FILE", "FILE.svg, .png or .pdf (default: KIND.svg here); - prints SVG")
    add.many("--tasks -t", "NAME", BELOW)
    add.text(
        "--metric --metrics", "NAME", "acc, or with a filter exact_match,strict (default: the main one of each task)"
    )
    add.choice("--over", ("auto", "date", "step"), "for --kind time: the date of runs, or the step in"
        " their names, as in step-100 (default: the step where every run has one)", "auto")  # fmt: skip
    add.text("--title", "TEXT", "the title above the picture")


def define_report(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("runs", "RUN", "folders of runs; each is compared with the first")
    add.text("--output_path -o", "FILE", "where to write (default: report.html, other formats to the terminal)")
    add.choice("--format", ("html", "md", "json", "csv"), "default: by the suffix of the file, else html")
    add.number("--samples", 2, "N", "the worst samples of each of the worst tasks (2)", parse_count)
    add.number("--tasks", 5, "N", "number of those tasks (5)", parse_count)
    add.repeated("--slice", "COLUMN",
        "results by this column of the documents; repeatable (default: columns with few values)")  # fmt: skip
    add.switch(OTHER_PROMPTS, "compare runs whose prompts differ")


def define_runs(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=False)
    listed = actions.add_parser("list", help="every run: model, tasks, status, number", description="List runs.")
    shown = actions.add_parser("show", help="the results of a run", description="Show the results of a run.")
    removed = actions.add_parser("rm", help="remove runs", description="Remove runs; one in progress is refused.")
    pushed = actions.add_parser("push", help="upload a run", description="Upload a run to object storage, or again.")
    noted = actions.add_parser("note", help="tags and a note", description="Tag a run, or note something about it.")
    add = Flags(pushed)
    add.text("path", "DIR", "the folder of the run")
    add.text("url", "URL", "such as s3://bucket/run")
    add.switch("--force", "replace another run that is there")
    add = Flags(noted)
    add.repeated("--tag", "TAG", "add a tag; repeatable")
    add.repeated("--untag", "TAG", "remove a tag; repeatable")
    add.text("--note", "TEXT", "the note, which replaces the one before; '' removes it")
    name = "its name below that folder, or its path"
    add.text("name", "RUN", name)
    about = f"a folder or URL of runs (default: ${RUNS_VARIABLE}, else {RUNS_DIR}/)"
    Flags(parser).text("--runs_dir", "DIR", about)
    for action in (listed, shown, removed, noted):  # without a default, which would replace the value before the action
        Flags(action).text("--runs_dir", "DIR", about, default=argparse.SUPPRESS)
    add_table_options(listed)
    add_table_options(shown)
    Flags(shown).text("name", "RUN", name)
    Flags(removed).many("names", "RUN", "names below that folder, or paths")


# --- compare ----------------------------------------------------------------------------------------------------------


def define_compare(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("runs", "RUN", f"{RUNS}; each is compared with the first")
    add.many("--tasks -t", "NAME", BELOW)
    add.many("--metrics --metric", "NAME", "only these: acc, or with a filter exact_match,strict")
    add.repeated("--gate", "GATE", "required difference: 'acc > -0.5pp',"
        " 'mmlu/acc >= -1%% rel', 'word_perplexity < 0.05'; exit 0: all pass, 1: one fails, 4: one is inconclusive;"
        " repeatable")  # fmt: skip
    add_gate_flags(parser)
    add.text("--cluster_by", "COLUMN", "documents with the same value there are one cluster (default: as in the tasks)")
    add.switch(OTHER_PROMPTS, "compare documents whose prompts differ, too")
    add.switch("--allow_incomplete", "gates: decide on the documents that both runs scored, ignoring failures")
    add.number("--flips", 0, "N", "list N documents of each task that became worse, and N better", int)
    add.number("--level", 0.95, "P", "confidence of intervals, and one-sided of gates (0.95)")
    add.number("--power", 0.8, "P", "power at which a difference counts as detectable (0.8)")
    add_table_options(parser, "json", "csv")
    add.switch("--recovery", "also b ÷ a with its interval: how much of a reference is kept (quantization)")
    add("--plot", nargs="?", const=True, metavar="FILE",
        help="draw the differences with their intervals: below the table, or into FILE.svg, .png or .pdf")  # fmt: skip
    add.switch("--summary", "eight lines for a chat message, and nothing else")


def define_gate(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.text("folder", "RUN", "the folder of a run, or a file of `assay pack`")
    add.many("gates", "GATE", "'acc >= 0.8', 'mmlu/acc > 75%%', 'failed <= 1%%', 'cost <= 5', 'time <= 10m',"
        " 'tokens <= 2M', 'truncated <= 2%%', 'empty <= 0'; with --baseline 'acc >= baseline - 1pp', 'acc > -1%% rel',"
        " 'acc >= 99%% of baseline'")  # fmt: skip
    add.text("--baseline", "RUN", BASELINE)
    add_gate_flags(parser)
    add.number("--level", 0.95, "P", "one-sided confidence of all gates together (0.95)")
    add.switch(OTHER_PROMPTS, "compare documents whose prompts differ, too")
    add.switch("--allow_incomplete", "decide on the documents that were scored, whatever failed")
    add.choice("--format", ("text", "md", "json"), "how the verdicts are printed", "text")


def define_leaderboard(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("runs", "RUN", f"{RUNS}, one for each model")
    add.many("--tasks -t", "NAME", "only these: names, globs, groups")
    add.many("--metrics", "NAME", "rank by these, besides pairwise verdicts (default: the first"
        " metric of every task or group that is in no other; none where there are verdicts)")  # fmt: skip
    add.repeated("--name", "OLD=NEW", "another name for a run or a baseline; a baseline that is"
        " also a run gets its name; repeatable")  # fmt: skip
    add.number("--level", 0.95, "P", "confidence of intervals, and of all ranks together (0.95)")
    add.switch(OTHER_PROMPTS, "rank runs whose prompts differ, too")
    add_table_options(parser, "json", "csv")
    for name in ("json", "csv"):
        add(f"--{name}", action="store_const", const=name, dest="format", help=f"the same as --format {name}")


def define_table(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("runs", "RUN", f"{RUNS}, one for each line")
    add.choice("--format", ("terminal", "latex", "md", "html", "csv", "json"),
        "default: by the suffix of the file; terminal, which is md when piped, without a file")  # fmt: skip
    add.text("--output_path -o", "FILE", "where to write (default: to the terminal)")
    add.many(
        "--tasks -t", "NAME", "these tasks and groups, by name or glob (default: those that are in no other group)"
    )
    add.many("--metrics", "NAME", "these metrics of each (default: its main one)")
    add.text("--by", "KEY", "a column for each value of a key of the tasks' metadata, as metadata.domain: the mean of"
        " its tasks, weighted by their documents")  # fmt: skip
    add.repeated("--name", "OLD=NEW", "another name for a run; repeatable")
    add.choice("--error", ("stderr", "interval", "none"),
        "what is written beside a number: ± its standard error, its interval, or nothing (stderr)", "stderr")  # fmt: skip
    add.number("--digits", 3, "N", "digits after the point (3)", parse_count)
    add.number("--level", 0.95, "P", "confidence of the tests behind bold numbers (0.95)")
    add.switch("--transpose", "a line for each task, and a column for each run")
    add.switch(OTHER_PROMPTS, "compare runs whose prompts differ, too")
    add.switch("--wide", "all columns, however wide the terminal is")


# --- exchange ---------------------------------------------------------------------------------------------------------


def define_export(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.text("folder", "RUN", RUN)
    add.text("--to", "NAME", "lm-eval: results and samples files; inspect: a .eval log for each task;"
        " parquet: three tables; mlflow, wandb, trackio: numbers, settings and files in a tracker; hf-hub: lm-eval's files as"
        " data sets of the hub; or a plug-in's exporter", required=True)  # fmt: skip
    add.text("--output_path -o", "DIR", "where to write; for mlflow the address of its server or a folder, for wandb"
        " the folder of its files (default: as configured there)")  # fmt: skip
    add.text("--name", "NAME", "the experiment of mlflow, or the project of wandb (default: assay)")
    add.pairs("--args", "arguments of wandb.init, trackio.init, or of lm-eval's --hf_hub_log_args")
    add.pairs("--config_args", "further settings of the run in wandb")


def define_import(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("files", "FILE", "lm-eval's results or samples files or their folder; .eval or .json logs of"
        " Inspect; folders of runs; or one archive of `assay pack`, which is unpacked")  # fmt: skip
    add.text("--output_path -o", "DIR", "the folder of the new run", required=True)
    add.repeated("--group", "FILE", "a YAML file of a group whose members are among the imported tasks; repeatable")
    add_option(parser, "force", help="move another run in DIR aside")
    add_table_options(parser)


def define_pack(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("folders", "RUN", "the folder of a run; of several runs of one model, a baseline of their means")
    add.switch("--baseline", "a small file to compare with: scores, hashes and noise, no texts"
        " (compare, gate and run --baseline read it)")  # fmt: skip
    add.switch("--no_gold", "remove right answers: targets, the columns they are made of, examples in prompts;"
        " what was removed is listed")  # fmt: skip
    add.text("--output_path -o", "FILE", "the archive (default: RUN.zip here)")


# --- tasks ------------------------------------------------------------------------------------------------------------


def define_ls(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    kinds = Offered((*LISTED_KINDS, *REGISTRIES, "runs"))
    add("kind", nargs="?", default="tasks", choices=kinds, metavar="KIND",
        help=f"tasks: everything that can be run (default); {', '.join(kinds[1:])}")  # fmt: skip
    add("word", nargs="?", metavar="WORD",
        help="only names with this in them, as gsm or 'gsm*'; with runs: the folder that they are in")  # fmt: skip
    add.text("--runs_dir", "DIR", "the same")
    add.text("--pattern", "GLOB", "only names that match")
    add.switch("--json", "an array of objects: name, kind, path and more")
    add.switch("--wide", "with the files, however wide the terminal is")
    add_catalog_options(parser)


def define_show(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.text("name", "NAME", "a task, group, tag, path (a::b), task@format, or YAML file")
    add.number("--depth", None, "N", "levels of groups to draw", int)
    add.switch("--render", "run helper code: show its functions, and sample 0")
    add_option(parser, "data_dir", help="with --render, the folder that is searched first for data")
    add.switch("--mermaid", "a graph in Mermaid's language")
    add.switch("--json", "as one JSON object")
    add_catalog_options(parser)


def define_new(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add("kind", choices=NEW_KINDS, help="metric, filter, scorer and graph come with Python code")
    add.text("name", "NAME", "the name; also the name of the files")
    add.text("--dir", "DIR", "where to write (default: here)", default=".")


def define_validate(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add("names", nargs="*", metavar="NAME", help="what to check (default: everything)")
    add("--tasks", action="append", metavar="NAMES", help="the same, in lm-eval's spelling")
    add.switch("--json", "an array of file, line, column, what, fix, serious")
    add.switch("--load", "import helper modules, as a run does; else they are only read")
    add_option(parser, "data_dir")
    add_catalog_options(parser)


def define_fetch(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.many("tasks", "NAME", "tasks, groups or tags to download the data of; or `tasks`: lm-eval's files")
    add_option(parser, "data_dir", help="the folder for data: DIR/<path>/<name>/<split>.jsonl")
    add.text("--from", "WHEEL", "with `tasks`: a wheel of lm_eval, or its folder", dest="source")
    add.text("--version", "X.Y.Z", "with `tasks`: the version of lm_eval (default: 0.4.13)")
    add_catalog_options(parser)


def define_schema(parser: argparse.ArgumentParser) -> None:
    kinds: Sequence[str] = ("task", "group", "graph", "format", "run", "results", "view")
    about = "the kind of file; results: results.json of a run; view: the JSON of the viewer's pages"
    parser.add_argument("kind", choices=kinds, help=about)


# --- set-up -----------------------------------------------------------------------------------------------------------


def define_doctor(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "model", help="a model behind a server to greet: openai-chat, local-completions …")
    add_option(parser, "model_args", help="its arguments: model=NAME,base_url=URL")
    add = Flags(parser)
    add.text("--runs_dir", "DIR", "the folder of runs to check (default: as for `assay run`)")
    add.choice("--format", ("table", "json"), "for a person or a program", "table")


def define_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="print the script of this shell")


def define_cache(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("ls", help="list the stored responses by model")
    pruned = actions.add_parser("prune", help="remove responses: of a model, unused ones, or all")
    for action in (listed, pruned):
        Flags(action).text("folder", "DIR", "the folder that --use_cache named")
    add_table_options(listed)
    add = Flags(pruned)
    add.text("--model", "NAME", "only those of this model, by its name in `ls`")
    add.number("--unused_days", None, "N", "only those that no run has used for N days")
    add.switch("--all", "every response")
