#!/usr/bin/env python3
"""Write the run folders of a version that later versions must open, compare, export, score again and resume.

usage:  make_run_folders.py OUT_DIR        (tests/runs_0_1, with version 0.1.1; a folder that is there is made anew)

tests/old_runs.py has the recipe of each. Afterwards nothing in them names a folder of this machine. `expected.json` has the
numbers of each, as they were when it was made; those of the killed one are of an undisturbed run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import assay
from assay.evaluation.merge import merge
from assay.evaluation.score import ScoreOptions, score
from assay.exchange.exporters import export
from assay.exchange.importers import import_runs
from old_runs import EXPECTED, KILLED_AFTER, RECIPES, WORLD, RequestCount, numbers, write_world

TESTS = Path(__file__).parent.parent / "tests"


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-folders-") as scratch:
        os.environ["ASSAY_CACHE_DIR"] = f"{scratch}/cache"
        root = Path(scratch) / "root"
        world = write_world(root / WORLD)
        for name, recipe in RECIPES.items():
            if recipe.evaluate is not None and name not in ("merged", "killed"):
                recipe.evaluate(world, root / name, RequestCount())
        merge(root / "merged", [root / "shard_1", root / "shard_2"], include_path=[str(world)])
        score(root / "rescored", ScoreOptions(filters=["last=regex:(\\d)$"], include_path=[str(world)]))
        kill(world, root / "killed")
        import_folders(root, Path(scratch))
        expected = {
            name: numbers(json.loads((root / name / "results.json").read_text()))
            for name in RECIPES
            if name != "killed"
        }
        killed = RECIPES["killed"].evaluate
        assert killed is not None
        expected["killed"] = numbers(killed(world, Path(scratch) / "whole", RequestCount()))
        for name in RECIPES:
            tidy(root / name, root)
        written = json.dumps({"version": assay.__version__, "folders": expected}, indent=1, sort_keys=True)
        (root / EXPECTED).write_text(written + "\n")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(root, out, ignore=shutil.ignore_patterns("__pycache__", ".part-*"))
    print(
        f"{out}: {len(RECIPES)} folders, {sum(path.stat().st_size for path in out.rglob('*') if path.is_file()):,} bytes"
    )


def import_folders(root: Path, scratch: Path) -> None:
    """The folders of what comes from other programs."""
    export(root / "text", "lm-eval", scratch / "lm_eval")
    import_runs([scratch / "lm_eval"], root / "imported_lm_eval")
    import_runs([TESTS / "inspect_logs/sums.eval"], root / "imported_inspect")
    import_runs(export(root / "repeats", "inspect", scratch / "inspect"), root / "imported_inspect_own")


def kill(world: Path, output: Path) -> None:
    """A run whose process is killed while its model is asked."""
    ended = subprocess.run([sys.executable, __file__, "--killed", str(world), str(output)], check=False)
    assert ended.returncode == -signal.SIGKILL, ended.returncode
    assert not (output / "results.json").exists()


def killed(world: Path, output: Path) -> None:
    """The process that is killed: it ends itself at a request."""

    def first(asked: RequestCount) -> None:
        if asked.count == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)

    evaluate = RECIPES["killed"].evaluate
    assert evaluate is not None
    evaluate(world, output, RequestCount(first=first))


def tidy(run: Path, root: Path) -> None:
    """Take out of a run what names this machine: its folders, its name, a signature that only holds here."""
    for file in sorted(run.rglob("*")):
        if file.name == "run.lock":
            file.write_text(json.dumps({"host": "elsewhere", "pid": 1, "time": 0.0, "documents": {}}))
        elif file.suffix == ".json" or file.name == "changes.jsonl":
            text = file.read_text().replace(f"{root}/", "").replace(str(root), ".").replace(str(TESTS), "tests")
            if file.name == "manifest.json":
                loaded = json.loads(text)
                loaded.pop("signature", None)
                loaded["environment"] = {**loaded["environment"], "platform": "Linux", "git": None}
                text = json.dumps(loaded, indent=2) + "\n"
            file.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--killed"]:
        killed(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]))
