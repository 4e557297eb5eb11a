"""`assay verify-backend`: the same requests to two backends, and what they answer differently."""

import argparse
from dataclasses import replace

from assay.cli.output import say, say_json, tell
from assay.cli.progress import Progress
from assay.comparison.verification import DIFFER, DRIFTS, NOTHING, PRECISIONS, SAME, verification
from assay.config.arguments import parse_arguments
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.options import run_config
from assay.evaluation.verify import verify
from assay.report.comparison_text import verification_json, verification_text

OF_RUN = ("tasks", "limit", "sample", "num_fewshot", "gen_kwargs", "apply_chat_template", "system_instruction", "include_path",
          "data_dir", "output_path", "force", "confirm_run_unsafe_code")  # fmt: skip
"""Flags that are options of the two runs, under their names."""
EXIT = {SAME: 0, DRIFTS: 1, DIFFER: 1, NOTHING: 2}


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    model = "a backend with its arguments: NAME,K=V,K=V, as in --model_role"
    add("a", metavar="A", help=model)
    add("b", metavar="B", help=model)
    add("--tasks", "-t", nargs="+", required=True, metavar="NAME", help="what is asked: names, globs, groups, files")
    add("--limit", "-L", type=float, metavar="N", help="the first N documents of each task; below 1, a share")
    add("--sample", type=int, metavar="N", help="a random subset of N documents of each task, the same every time")
    add("--num_fewshot", "-f", type=int, metavar="N", help="examples before each question")
    add("--gen_kwargs", metavar="K=V", help="parameters of generation, over those of the tasks")
    add(
        "--apply_chat_template",
        nargs="?",
        const=True,
        metavar="NAME",
        help="use A's chat template; B is sent the same text",
    )
    add("--system_instruction", metavar="TEXT", help="the system message")
    add("--include_path", action="append", metavar="DIR", help="a folder with further tasks")
    add("--no_defaults", action="store_true", help="leave out bundled tasks, lm_eval's and those of plug-ins")
    add("--data_dir", metavar="DIR", help="where data is looked for first")
    add(
        "--output_path",
        "-o",
        metavar="DIR",
        help="keep both runs, as DIR/a and DIR/b; the same command goes on with them",
    )
    add("--force", action="store_true", default=None, help="move other runs in those folders aside")
    add(
        "--precision",
        choices=list(PRECISIONS),
        default="float32",
        help="what the models compute in: sets the tolerances",
    )
    add("--tolerance", type=float, metavar="X", help="the most a log-likelihood may differ by per token, in place of the"
        " precision's")  # fmt: skip
    add(
        "--max_divergent",
        type=float,
        metavar="SHARE",
        help="the most greedy texts that may differ, in place of the precision's",
    )
    add("--accept", choices=[SAME, DRIFTS], default=SAME, help="up to which verdict the exit code is 0 (default: same)")
    add("--format", choices=["text", "json"], default="text", help="for a person or a program")
    add("--confirm_run_unsafe_code", action="store_true", default=None, help="run code that the models wrote")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in OF_RUN}
    if options.gen_kwargs is not None:
        given["gen_kwargs"] = parse_arguments(options.gen_kwargs, "gen_kwargs")
    if options.no_defaults:
        given["include_defaults"] = False
    given["plugins"] = list(options.plugin)
    tolerance = PRECISIONS[options.precision]
    if options.tolerance is not None:
        tolerance = replace(tolerance, per_token=_share(options.tolerance, "tolerance"))
    if options.max_divergent is not None:
        tolerance = replace(tolerance, texts=_share(options.max_divergent, "max_divergent"))
    found = verification(verify(options.a, options.b, run_config(given), watching=Progress), tolerance)
    if options.format == "json":
        say_json(verification_json(found))
    else:
        say(verification_text(found))
    if options.output_path is not None:
        tell(f"runs: {options.output_path}/a, {options.output_path}/b")
    return 0 if found.verdict == options.accept else EXIT[found.verdict]


def _share(number: float, option: str) -> float:
    if not number >= 0:
        raise ConfigError([Problem(Place(option), f"must be at least 0, not {number}", "give a number from 0 on")])
    return number
