"""The bundled tasks: there without a network, and made by the script that is kept."""

import json
import subprocess
import sys
from pathlib import Path

from assay import TaskManager
from assay.tasks.validate import validate

ROOT = Path(__file__).parent.parent
DATA = ROOT / "src/assay/bundled/first_steps/data"
ASKED_AGAIN = ("first_steps_word_classes", "first_steps_plurals", "first_steps_cloze")
"""Knowledge that cannot be guessed: the model card says that part of these tests is in training, too."""


def test_the_bundled_tasks_are_found_and_valid() -> None:
    manager = TaskManager()
    assert validate(manager, ["first_steps"]) == []
    assert len(manager.load("first_steps")["tasks"]) >= 12


def test_their_data_is_made_by_the_script_and_the_same_every_time(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools/make_first_steps.py"), str(tmp_path)], check=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in DATA.iterdir()
    }


def test_every_file_they_name_is_there_and_test_rows_are_not_training_rows() -> None:
    for task in TaskManager().load("first_steps")["tasks"].values():
        files = (task.config.dataset_kwargs or {})["data_files"]
        assert isinstance(files, dict)
        rows = {split: (DATA.parent / str(name)).read_text().splitlines() for split, name in files.items()}
        assert all(isinstance(json.loads(row), dict) for lines in rows.values() for row in lines)
        if task.name not in ASKED_AGAIN:
            assert set(rows["train"]).isdisjoint(rows["test"]), task.name
