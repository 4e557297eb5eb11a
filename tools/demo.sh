#!/bin/sh
# What `make demo` shows: the bundled tasks, listed, drawn, explained and checked.
set -e
assay=$1

say() { printf '\n\033[1m$ assay %s\033[0m\n' "$*"; }
run() { say "$@"; "$assay" "$@"; }

run ls
run show first_steps
run show first_steps_word_classes@mcqa
run validate first_steps
printf '\nNext: %s new task my_task, or %s ls --include_path DIR with a folder of your own.\n' "$assay" "$assay"
