#!/bin/sh
# What must hold before a release: the wheel and the sdist build and pass twine, the wheel installs into a clean environment,
# the versions agree, and the demo runs from what was installed. usage: release_check.sh PYTHON   (a python with build and twine)
set -eu
python=$1
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { printf '\n== %s\n' "$*"; }

step "The version is the same everywhere, and not one in the making"
"$python" "$root/tools/versions.py"

for package in "$root" "$root"/packages/*/; do
    [ -f "$package/pyproject.toml" ] || continue
    step "Build $(basename "$package"), and let twine check it"
    "$python" -m build --outdir "$work/dist" "$package" >"$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }
done
"$python" -m twine check --strict "$work"/dist/*

step "Install the wheel into a clean environment, and show the demo from there"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet "$work"/dist/assay-[0-9]*.whl
cd "$work"
"$work/venv/bin/assay" --version
sh "$root/tools/demo.sh" "$work/venv/bin/assay" "$work/demo-run" >"$work/demo.log" 2>&1 || { tail -40 "$work/demo.log"; exit 1; }
grep -F "First steps" "$work/demo.log" | tail -1
step "Ready: $(ls "$work/dist" | tr '\n' ' ')"
