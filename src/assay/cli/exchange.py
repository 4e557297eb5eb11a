"""`assay export`, `assay import` and `assay pack`: runs in the formats of other tools, and runs to pass on."""

import argparse
from pathlib import Path

from assay.cli.flags import add_option, add_table_options, joined_pairs
from assay.cli.output import command_line, counted, echo, echo_err, echo_results
from assay.errors import ConfigError
from assay.exchange.archive import pack
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs


def define_export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="RUN", help="the folder of a run, or of a scoring of it: RUN/scored/001")
    add("--to", required=True, metavar="NAME", help="lm-eval: results and samples files; inspect: a .eval log for each task;"
        " parquet: three tables; mlflow, wandb, trackio: numbers, settings and files in a tracker; hf-hub: lm-eval's files as"
        " data sets of the hub; or a plug-in's exporter")  # fmt: skip
    add("--output_path", "-o", metavar="DIR", help="where to write; for mlflow the address of its server or a folder, for wandb"
        " the folder of its files (default: as configured there)")  # fmt: skip
    add("--name", metavar="NAME", help="the experiment of mlflow, or the project of wandb (default: assay)")
    for name, whose in (("args", "arguments of wandb.init, trackio.init, or of lm-eval's --hf_hub_log_args"),
                        ("config_args", "further settings of the run in wandb")):  # fmt: skip
        add(f"--{name}", nargs="+", action="extend", metavar="K=V", help=whose)
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    pairs = {name: joined_pairs(name, getattr(options, name)) for name in ("args", "config_args")}
    for place in export(options.folder, options.to, options.output_path, name=options.name, **pairs):
        echo(place)
    return 0


def define_import(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="lm-eval's results or samples files or their folder; .eval or .json logs of"
        " Inspect; folders of runs; or one archive of `assay pack`, which is unpacked")  # fmt: skip
    add("--output_path", "-o", required=True, metavar="DIR", help="the folder of the new run")
    add("--group", action="append", default=[], metavar="FILE", help="a YAML file of a group whose members are among the"
        " imported tasks; repeatable")  # fmt: skip
    add_option(parser, "force", help="move another run in DIR aside")
    add_table_options(parser)
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    facts = {"command": command_line()}
    results = import_runs(
        options.files, options.output_path, groups=options.group, force=bool(options.force), facts=facts
    )
    return echo_results(results, Path(options.output_path))


def define_pack(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folders",
        nargs="+",
        metavar="RUN",
        help="the folder of a run; of several runs of one model, a baseline of their means",
    )
    add("--baseline", action="store_true", help="a small file to compare with: scores, hashes and noise, no texts"
        " (compare, gate and run --baseline read it)")  # fmt: skip
    add("--no_gold", action="store_true", help="remove right answers: targets, the columns they are made of, examples in prompts;"
        " what was removed is listed")  # fmt: skip
    add("--output_path", "-o", metavar="FILE", help="the archive (default: RUN.zip here)")
    parser.set_defaults(run=run_pack)


def run_pack(options: argparse.Namespace) -> int:
    if options.baseline or len(options.folders) > 1:
        return _pack_baseline(options)
    archive = pack(options.folders[0], options.output_path, no_gold=options.no_gold)
    for what in archive.removed:
        echo_err(f"removed: {what}")
    if options.no_gold:
        echo_err("answers and scores remain: an answer with a high score reveals the right one")
    if archive.left:
        echo_err(
            f"left out: {', '.join(archive.left[:8])}"
            + (f" and {len(archive.left) - 8} more" if len(archive.left) > 8 else "")
        )
    echo(f"{archive.path}: {counted(len(archive.files), 'file')}, {archive.path.stat().st_size:,} bytes")
    echo(f"to read it: assay import {archive.path} -o FOLDER (or unzip it), then assay view FOLDER")
    return 0


def _pack_baseline(options: argparse.Namespace) -> int:
    from assay.comparison.packs import noise_lines, open_run, pack_baseline

    if options.no_gold:
        raise ConfigError.at("--no_gold", "a baseline has no texts at all", "leave it out")
    path = options.output_path or f"{Path(options.folders[0]).resolve().name}-baseline.zip"
    archive = pack_baseline(options.folders, path)
    runs = counted(len(options.folders), "run")
    echo(f"{archive.path}: the scores of {runs}, no texts, {archive.path.stat().st_size:,} bytes")
    for line in noise_lines(archive.path):
        echo(line)
    packed = open_run(archive.path)
    metric = next((key.metric for name in packed.scored_tasks for key in packed.rows(name)), "acc")
    echo(f"to compare with it: assay gate RUN '{metric} >= baseline' --baseline {archive.path}")
    return 0
