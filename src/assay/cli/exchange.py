"""`assay export`, `assay import` and `assay pack`: runs in the formats of other tools, and runs to pass on."""

import argparse
from pathlib import Path

from assay.cli.flags import joined_pairs
from assay.cli.output import command_line, counted, echo, echo_err, echo_results
from assay.errors import ConfigError
from assay.exchange.archive import pack
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs


def run_export(options: argparse.Namespace) -> int:
    pairs = {name: joined_pairs(name, getattr(options, name)) for name in ("args", "config_args")}
    for place in export(options.folder, options.to, options.output_path, name=options.name, **pairs):
        echo(place)
    return 0


def run_import(options: argparse.Namespace) -> int:
    facts = {"command": command_line()}
    results = import_runs(
        options.files, options.output_path, groups=options.group, force=bool(options.force), facts=facts
    )
    return echo_results(results, Path(options.output_path))


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
