"""Hugging Face's `datasets` as helper code finds it: the installed library, whose `load_dataset` finds the data of tasks."""

import sys
from typing import Any

import pytest

from assay.compat.dataset import as_dataset
from assay.compat.modules import HelperCode
from assay.samples.rows import DataError
from conftest import Write

datasets = pytest.importorskip("datasets")


def helper(write: Write, code: str, **options: Any) -> Any:
    return HelperCode(**options).load(write({"helper.py": code}) / "helper.py")


def test_helper_code_has_the_classes_of_the_library(write: Write) -> None:
    module = helper(write, "import datasets\nfrom datasets import Dataset, concatenate_datasets\n")
    assert module.Dataset is module.datasets.Dataset is datasets.Dataset
    assert module.concatenate_datasets is datasets.concatenate_datasets
    assert module.datasets.__version__ == datasets.__version__


def test_rows_are_handed_over_as_a_data_set_with_the_columns_of_all_rows() -> None:
    rows = as_dataset([{"a": 1}, {"a": 2, "b": {"x": 1}}])
    assert isinstance(rows, datasets.Dataset)
    assert rows.to_list() == [{"a": 1, "b": None}, {"a": 2, "b": {"x": 1}}]
    assert as_dataset(rows) is rows


def test_a_data_set_that_helper_code_loads_comes_from_the_data_folder(write: Write) -> None:
    root = write({"org/data/default/test.jsonl": '{"q": "a"}\n', "org/data/default/train.jsonl": '{"q": "b"}\n'})
    module = helper(write, "from datasets import load_dataset\n", data_dir=str(root))
    assert module.load_dataset("org/data", split="test")["q"][:] == ["a"]
    both = module.load_dataset("org/data")
    assert isinstance(both, datasets.DatasetDict)
    assert {name: split.to_list() for name, split in both.items()} == {"test": [{"q": "a"}], "train": [{"q": "b"}]}


def test_mapping_documents_draws_nothing_into_the_output(capfd: pytest.CaptureFixture[str]) -> None:
    as_dataset([{"n": 1}]).map(lambda row: {"n": row["n"] + 1})
    assert capfd.readouterr() == ("", "")


def test_documents_for_helper_code_without_the_library_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # its import is forbidden
    with pytest.raises(DataError, match=r"not installed: pip install .*hub"):
        as_dataset([{"a": 1}])
