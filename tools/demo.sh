#!/bin/sh
# What `make demo` shows: a real model on a real nested benchmark, with error bars; no GPU, network or key.
set -e
assay=$1
out=${2:-demo-run}

bold() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { bold "\$ assay $*"; "$assay" "$@"; }

bold "The benchmark: 15 small tasks in nested groups"
run show first_steps
bold "What one task asks, before any model is loaded"
run run --tasks first_steps_sums --limit 1 --dry_run
bold "The run: a transformer of 1.6 million parameters that comes with assay, on the CPU"
run run --tasks first_steps --output_path "$out"
bold "What to look at next"
printf '%s/samples holds every prompt, answer and score as Parquet; results.json all numbers; the same command again asks nothing twice.\n' "$out"
printf 'In a browser, with groups, samples and comparisons: make view; or pip install ".[view]" here, then assay view %s\n' "$out"
printf 'Your own task: %s new task my_task, then %s run --tasks ./my_task.yaml --output_path runs/mine\n' "$assay" "$assay"
