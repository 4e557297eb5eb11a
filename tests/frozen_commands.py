"""Cases of the frozen corpus: runs scored again, imported and packed, and what commands make of several runs. See frozen_corpus.py."""

import json
from pathlib import Path
from typing import Any

from assay.models import Scripted
from compared_world import GROUP, make_run, two_runs
from compared_world import write_tasks as write_scoring_tasks
from exchange_world import INSPECT
from frozen_corpus import HERE, Outcome, World, case, command
from frozen_judges import judged, prefers_longer
from frozen_tasks import sums_and_colours
from run_world import RecordingModel
from run_world import run as run_world

# --- scored again, imported, packed ----------------------------------------------------------------------------------


@case()
def scored_again(world: World) -> Outcome:
    """With another filter, another metric, another file of the group; printed and stored."""
    tasks, output = sums_and_colours(world), world.folder / "run"
    (tasks / "g.yaml").write_text("group: g\ntask: [sums]\naggregate_metric_list: [{metric: exact_match}]\n")
    run_world(RecordingModel(failing={"7-4="}), tasks, output, tasks=["g", "colours"])
    first = command("score", output, "-t", "sums", "--filter", "none=regex:([1-3])", "--filter", "last=regex:(.)$")
    second = command("score", output, "--metric", "exact_match:ignore_case=true", "--metric", "token_f1", "-t", "g")
    (world.folder / "g.yaml").write_text(
        "group: g\ntask: [sums]\naggregate_metric_list: [{metric: exact_match, aggregation: max, name: best}]\n"
    )
    third = command("score", output, "--with", world.folder / "g.yaml")
    return {
        "run": output,
        "filters": output / "scored/001",
        "metrics": output / "scored/002",
        "group": output / "scored/003",
        "exits": [first["code"], second["code"], third["code"]],
    }


LOGGED = ("synth_wiki", "synth_gsm8k_r8", "synth_mmlu5")


@case()
def imported_lm_eval_logs(world: World) -> Outcome:
    outcome: dict[str, object] = {}
    for name in LOGGED:
        command("import", HERE / "logged" / name, "-o", world.folder / name)
        outcome[name] = world.folder / name
    return outcome


@case()
def imported_inspect_logs(world: World) -> Outcome:
    """Each log alone, and all of them with a group over two."""
    outcome: dict[str, object] = {}
    logs = sorted(INSPECT.glob("*.eval"))
    for log in logs:
        command("import", log, "-o", world.folder / log.stem)
        outcome[log.stem] = world.folder / log.stem
    return outcome


@case()
def packed_and_unpacked(world: World) -> Outcome:
    tasks, output = sums_and_colours(world), world.folder / "run"
    run_world(RecordingModel(failing={"7-4="}), tasks, output)
    packed = command("pack", output, "-o", world.folder / "whole.zip")
    without = command("pack", output, "--no_gold", "-o", world.folder / "no_gold.zip")
    for name in ("whole", "no_gold"):
        command("import", world.folder / f"{name}.zip", "-o", world.folder / name)
    outcome = {name: world.folder / name for name in ("whole", "no_gold")}
    return {**outcome, "exits": [packed["code"], without["code"]]}


# --- several runs ----------------------------------------------------------------------------------------------------

WORSE = [1] * 30 + [0] * 20
BETTER = [1] * 42 + [0] * 4 + [1] * 2 + [0] * 2


@case()
def comparison_of_two_runs(world: World) -> Outcome:
    """All rows, printed as JSON, CSV and Markdown; with gates that pass, fail and stay open."""
    runs = two_runs(world.folder, WORSE, BETTER, passage=[number // 5 for number in range(50)])
    gates = ["--gate", "x > -0.5pp", "--gate", "x > 30pp"]
    return {
        "json": command("compare", *runs, "--format", "json", *gates),
        "csv": command("compare", *runs, "--format", "csv"),
        "md": command("compare", *runs, "--format", "md", "--flips", 2),
        "clusters": command("compare", *runs, "--format", "json", "--cluster_by", "passage"),
        "undecided": command("compare", *runs, "--gate", "x > 23pp", "--format", "json"),
    }


def runs_of_a_group(folder: Path) -> list[Path]:
    """Three runs of a group of two tasks; in the last some documents fail."""
    tasks = write_scoring_tasks(folder / "tasks", {"t": [{}] * 40, "u": [{}] * 30}, group=GROUP)
    right = {"t": [1.0] * 30 + [0.0] * 10, "u": [1.0, 0.0, 0.5] * 10}
    better = {"t": [1.0] * 36 + [0.0] * 4, "u": [1.0, 0.5, 0.5] * 10}
    failing: dict[str, Any] = {**right, "t": [1.0] * 20 + ["broken"] * 2 + [0.0] * 18}
    made = {"main": right, "better": better, "failing": failing}
    return [make_run(tasks, folder / name, scores, tasks=["g"], log_samples=True) for name, scores in made.items()]


@case()
def comparison_of_groups(world: World) -> Outcome:
    runs = runs_of_a_group(world.folder)
    return {
        "runs": command("compare", *runs[:2], "--format", "json"),
        "failing": command("compare", runs[0], runs[2], "--format", "json"),
        **{run.name: run for run in runs},
    }


@case()
def gates(world: World) -> Outcome:
    main, better, failing = runs_of_a_group(world.folder)
    conditions = ("x >= 0.4", "t/x > 75%", "failed <= 1%", "u/x >= 0.99")
    return {
        "alone": command("gate", main, *conditions, "--format", "json"),
        "failing": command("gate", failing, *conditions, "--format", "json"),
        "baseline": command("gate", better, "x >= baseline - 1pp", "t/x > 1pp", "--baseline", main, "--format", "json"),
        "printed": command("gate", "better", "x >= baseline - 1pp", "--baseline", "main", "--format", "md"),
    }


@case()
def leaderboards(world: World) -> Outcome:
    """By scores of the same documents, and by the verdicts of a pairwise judge."""
    runs = runs_of_a_group(world.folder)
    yaml = "scorer: {type: llm_judge, kwargs: {pairwise: true, baseline: other}}\n"
    roles = {"judge": Scripted(generate=prefers_longer, identity="longer")}
    answers = {"long": ["xxxxxx", "x", "xx", "xxxxx", "x"], "short": ["x", "", "x", "xxx", "xxxxxxx"]}
    rated = [judged(world.folder, name, yaml, roles, said) for name, said in answers.items()]
    return {
        "scores": command("leaderboard", *runs[:2], "--format", "json"),
        "tasks": command("leaderboard", *runs[:2], "--format", "csv", "--tasks", "t", "u"),
        "ratings": command("leaderboard", *rated, "--format", "json"),
    }


@case()
def plans(world: World) -> Outcome:
    """From one run, from the differences of two, and without any."""
    main, better, _ = runs_of_a_group(world.folder)
    tasks = ["--include_path", world.folder / "tasks", "--no_defaults"]
    return {
        "one": command("plan", "--mde", "5pp", "--baseline", main, "--format", "json"),
        "two": command("plan", "--mde", "2pp", "--baseline", main, better, "--format", "json", "--power", 0.9),
        "none": command("plan", "--mde", "3pp", "t", "u", *tasks, "--format", "json", "--repeats", 2),
    }


@case()
def printed_results(world: World) -> Outcome:
    """Tables, reports and lists of samples, as a reader sees them."""
    main, _, failing = runs_of_a_group(world.folder)
    return {
        "md": command("report", main, "--format", "md"),
        "csv": command("report", failing, "--format", "csv"),
        "json": command("report", failing, "--format", "json"),
        "samples": command("samples", failing, "-n", 3),
    }


@case()
def runs_by_command(world: World) -> Outcome:
    """`assay run` with its flags, of the model `dummy`: the tables that it prints, and the runs."""
    tasks = sums_and_colours(world)
    (tasks / "g.yaml").write_text("group: g\ntask: [colours]\naggregate_metric_list: [{metric: acc}]\n")
    command_line = ["run", "--model", "dummy", "--tasks", "g", "sums", "--include_path", tasks, "--no_defaults"]
    samples = json.dumps({"colours": [0, 2], "sums": [1, 4]})
    variants = {
        "whole": ["--gate", "acc >= 0.2"],
        "limited": ["--limit", 3, "--seed", 5],
        "shard": ["--shard", "1/2"],
        "chosen": ["--samples", samples, "--log_samples"],
        "like_lm_eval": ["--compat", "lm-eval", "--predict_only"],
    }
    outcome: dict[str, object] = {}
    for name, flags in variants.items():
        outcome[f"{name} printed"] = command(*command_line, *flags, "-o", name)
        outcome[name] = world.folder / name
    return outcome
