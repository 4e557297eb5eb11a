"""What somebody stumbles over who tries everything for the first time."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import run_world
from assay.exchange.formats import export, import_runs
from conftest import Write
from run_world import ACC, COLOURS, FILES, Asked

RunAssay = Callable[..., "CompletedProcess[str]"]

TREE = {
    **FILES,
    "tints.yaml": FILES["colours.yaml"].replace("task: colours", "task: tints"),
    "plain.yaml": "group: plain\ntask: [colours]\n",
    "all.yaml": """
        group: all
        task: [plain, tints]
        aggregate_metric_list: [{metric: acc}]
    """,
}


@pytest.mark.parametrize("counts_are_told", [True, False])
def test_a_group_that_is_exported_and_imported_is_of_as_many_documents(
    counts_are_told: bool, write: Write, output: Path, tmp_path: Path
) -> None:
    run_world.run(Asked(), write(TREE), output, tasks=["all"])
    [results, *_] = export(output, "lm-eval", tmp_path / "files")
    told = json.loads(Path(results).read_text())
    if not counts_are_told:
        del told["groups"]["all"]["sample_count"]
    Path(results).write_text(json.dumps(told))
    found = import_runs([tmp_path / "files"], tmp_path / "back")
    row = found["assay"]["groups"]["all"]["rows"]["acc,none"]
    assert (row["value"], row["n"]) == (ACC, 2 * len(COLOURS))
    assert row["interval"] == pytest.approx(
        run_world.results(output)["assay"]["groups"]["all"]["rows"]["acc,none"]["interval"]
    )
    assert found["group_subtasks"]["plain"] == ["colours"]


def test_a_told_number_that_is_no_mean_of_its_members_is_of_no_known_number_of_documents(
    write: Write, output: Path, tmp_path: Path
) -> None:
    run_world.run(Asked(), write(TREE), output, tasks=["all"])
    [results, *_] = export(output, "lm-eval", tmp_path / "files")
    told = json.loads(Path(results).read_text())
    told["groups"]["all"] = {"alias": "all", "acc,none": 0.9, "acc_stderr,none": 0.1}
    Path(results).write_text(json.dumps(told))
    found = import_runs([tmp_path / "files"], tmp_path / "back")
    row = found["assay"]["groups"]["all"]["rows"]["acc,none"]
    assert (row["value"], row["stderr"], row["n"], row["interval"]) == (0.9, 0.1, 0, None)
