"""The stand-in for Hugging Face's `Dataset` that helper code finds as `datasets`: what it gives is what the library gives.

Every expected value was made by running the same expression on `datasets` 5.2.0.
"""

import sys
from typing import Any

import numpy as np
import pytest

from assay import ConfigError
from assay.compat.modules import HelperCode
from conftest import Write

OPERATIONS: list[tuple[str, Any]] = [
    ("ds.map(lambda r: {'m': r['n'] * 2}).to_list()", [{'q': 'c', 'n': 1, 'm': 2}, {'q': 'a', 'n': 2, 'm': 4}, {'q': 'd', 'n': 3, 'm': 6}, {'q': 'b', 'n': 4, 'm': 8}]),
    ('ds.map(lambda r: r.update(n=0) or r)[0]', {'q': 'c', 'n': 0}),
    ("ds.map(lambda r: {'n': str(r['n'])})[0]", {'q': 'c', 'n': 1}),
    ("ds.map(lambda r: {'m': r['q'] + '!'}, remove_columns=['q', 'n'])[:2]", {'m': ['c!', 'a!']}),
    ("ds.map(lambda r: {'q': 'new', 'z': 1}, remove_columns=['q']).column_names", ['q', 'n', 'z']),
    ("ds.map(lambda r, i: {'i': i}, with_indices=True)['i'][:]", [0, 1, 2, 3]),
    ("ds.map(lambda b: {'m': [x + 1 for x in b['n']]}, batched=True, batch_size=2)['m'][:]", [2, 3, 4, 5]),
    ("ds.map(lambda b: {'w': [w for q in b['q'] for w in (q, q.upper())]}, batched=True, remove_columns=ds.column_names)['w'][:]", ['c', 'C', 'a', 'A', 'd', 'D', 'b', 'B']),
    ("ds.map(lambda b, i: {'i': i}, batched=True, batch_size=2, with_indices=True)['i'][:]", [0, 1, 2, 3]),
    ("ds.map(lambda b: {'s': [sum(b['n'])]}, batched=True, batch_size=3, remove_columns=ds.column_names)['s'][:]", [6, 4]),
    ("ds.map(lambda r: {'t': (r['n'], 1)})[0]['t']", [1, 1]),
    ("ds.map(lambda r: {'o': 1 if r['n'] > 2 else 0.5})['o'][:]", [0.5, 0.5, 1.0, 1.0]),
    ("ds.filter(lambda r: r['n'] > 2)['q'][:]", ['d', 'b']),
    ("ds.filter(lambda r, i: i % 2 == 0, with_indices=True)['q'][:]", ['c', 'd']),
    ("ds.filter(lambda b: [n != 4 for n in b['n']], batched=True)['q'][:]", ['c', 'a', 'd']),
    ('(len(ds.filter(lambda r: False)), ds.filter(lambda r: False).column_names)', (0, ['q', 'n'])),
    ("ds.select([3, 0])['q'][:]", ['b', 'c']),
    ('ds.select(range(1, 3)).to_dict()', {'q': ['a', 'd'], 'n': [2, 3]}),
    ("ds.shuffle(seed=0)['q'][:]", ['d', 'c', 'a', 'b']),
    ("D.from_dict({'i': list(range(20))}).shuffle(seed=1234)['i'][:]", [3, 9, 18, 16, 8, 5, 12, 13, 0, 17, 15, 11, 2, 7, 10, 6, 4, 14, 1, 19]),
    ("(np.random.seed(3), ds.shuffle()['q'][:], ds.shuffle()['q'][:])[1:]", (['b', 'd', 'a', 'c'], ['b', 'c', 'a', 'd'])),
    ("ds.rename_column('q', 'question').to_dict()", {'question': ['c', 'a', 'd', 'b'], 'n': [1, 2, 3, 4]}),
    ("ds.remove_columns('q').column_names", ['n']),
    ("{k: v['q'][:] for k, v in ds.train_test_split(test_size=0.25, seed=7).items()}", {'train': ['d', 'a', 'b'], 'test': ['c']}),
    ("{k: v['q'][:] for k, v in ds.train_test_split(test_size=1, seed=0).items()}", {'train': ['c', 'a', 'b'], 'test': ['d']}),
    ("{k: v['q'][:] for k, v in ds.train_test_split(train_size=1, test_size=2, seed=1).items()}", {'train': ['d'], 'test': ['c', 'a']}),
    ("{k: v['q'][:] for k, v in ds.train_test_split(test_size=2, shuffle=False).items()}", {'train': ['c', 'a'], 'test': ['d', 'b']}),
    ("ds.sort('q')['n'][:]", [2, 4, 1, 3]),
    ("ds.sort('n', reverse=True)['n'][:]", [4, 3, 2, 1]),
    ("D.from_dict({'k': [1, 1, 0, 0], 'v': ['a', 'b', 'c', 'd']}).sort('k', reverse=True)['v'][:]", ['a', 'b', 'c', 'd']),
    ("D.from_dict({'k': [1, 0, 1, 0], 'v': [2, 1, 1, 2]}).sort(['k', 'v'], reverse=[False, True]).to_list()", [{'k': 0, 'v': 2}, {'k': 0, 'v': 1}, {'k': 1, 'v': 2}, {'k': 1, 'v': 1}]),
    ("D.from_dict({'k': [2, None, 1]}).sort('k')['k'][:]", [1, 2, None]),
    ("concat([ds.select([0]), ds.select([2])])['q'][:]", ['c', 'd']),
    ("concat([ds.select([0]), D.from_dict({'q': ['x'], 'z': [1]})]).to_list()", [{'q': 'c', 'n': 1, 'z': None}, {'q': 'x', 'n': None, 'z': 1}]),
    ("concat([ds, D.from_dict({'z': [5, 6, 7, 8]})], axis=1)[3]", {'q': 'b', 'n': 4, 'z': 8}),
    ("[r['q'] for r in ds]", ['c', 'a', 'd', 'b']),
    ('ds[1:3]', {'q': ['a', 'd'], 'n': [2, 3]}),
    ('ds[::2]', {'q': ['c', 'd'], 'n': [1, 3]}),
    ('ds[-1]', {'q': 'b', 'n': 4}),
    ('ds[[0, 2]]', {'q': ['c', 'd'], 'n': [1, 3]}),
    ("list(ds['n'])", [1, 2, 3, 4]),
    ('(len(ds), ds.num_rows, ds.num_columns, ds.shape)', (4, 4, 2, (4, 2))),
    ("D.from_list([{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]).to_dict()", {'a': [1, 2], 'b': ['x', 'y']}),
    ("D.from_list([{'a': 1}, {'a': 2, 'b': 2}]).to_list()", [{'a': 1}, {'a': 2}]),
    ("D.from_dict({'a': [1, 2], 'b': [[1], []]}).to_list()", [{'a': 1, 'b': [1]}, {'a': 2, 'b': []}]),
    ("D.from_dict({'a': [3, 1, 3]}).unique('a')", [3, 1]),
    ("ds.add_column('z', [1, 2, 3, 4])[2]", {'q': 'd', 'n': 3, 'z': 3}),
    ("ds.cast_column('n', lib.Value('float64'))['n'][:]", [1.0, 2.0, 3.0, 4.0]),
    ("ds.features['q'].dtype", 'string'),
    ("ds.cast_column('q', lib.ClassLabel(names=['a', 'b', 'c', 'd']))['q'][:]", [2, 0, 3, 1]),
    ("lib.ClassLabel(names=['x', 'y']).int2str(1)", 'y'),
    ("D.from_dict({'a': [1]}, features=lib.Features({'a': lib.Value('string')})).to_list()", [{'a': '1'}]),
    ("sorted(lib.Features({'a': lib.Value('string')}))", ['a']),
    ("lib.DatasetDict({'x': ds}).filter(lambda r: r['n'] > 3).rename_column('q', 'z')['x'].to_list()", [{'z': 'b', 'n': 4}]),
    ("ds.map(lambda r: {'m': np.array([1.5, 2])})[0]['m']", [1.5, 2.0]),
]  # fmt: skip


def library(write: Write) -> Any:
    """What a helper module gets when it imports `datasets`."""
    return HelperCode().load(write({"helper.py": "import datasets\n"}) / "helper.py").datasets


@pytest.mark.parametrize(("expression", "expected"), OPERATIONS, ids=[each[0] for each in OPERATIONS])
def test_our_dataset_class_does_what_the_datasets_library_does(expression: str, expected: object, write: Write) -> None:
    lib = library(write)
    ds = lib.Dataset.from_dict({"q": ["c", "a", "d", "b"], "n": [1, 2, 3, 4]})
    names = {"ds": ds, "lib": lib, "D": lib.Dataset, "concat": lib.concatenate_datasets, "np": np}
    result = eval(expression, names)  # noqa: S307  # the table above
    assert repr(result) == repr(expected)  # 1 and 1.0 are not the same prompt


def test_more_rows_than_one_batch_holds_are_mapped_in_batches(write: Write) -> None:
    """Batches are of 1000 rows where nothing is said; lm-eval's `score` tasks map larger splits so."""
    many = library(write).Dataset.from_dict({"n": list(range(1001))})
    result = many.map(lambda batch: {"size": [len(batch["n"])] * len(batch["n"])}, batched=True)
    assert list(result["size"][999:]) == [1000, 1]


@pytest.mark.parametrize(
    "expression",
    ["ds['zz']", "ds[9]", "ds.select([9])", "ds.remove_columns('zz')", "ds.rename_column('zz', 'y')", "ds.rename_column('q', 'n')"],
)  # fmt: skip
def test_our_dataset_class_refuses_what_the_datasets_library_refuses(expression: str, write: Write) -> None:
    """`datasets` 5.2.0 raises ValueError or IndexError for each of these."""
    ds = library(write).Dataset.from_dict({"q": ["c"], "n": [1]})
    with pytest.raises((ValueError, KeyError, IndexError)):
        eval(expression, {"ds": ds})  # noqa: S307


def test_changing_a_row_does_not_change_the_data_set(write: Write) -> None:
    ds = library(write).Dataset.from_dict({"choices": [["a", "b"]], "more": [{"k": [1]}]})
    ds.map(lambda row: row["choices"].reverse())
    for row in ds:
        row["choices"].clear()
        row["more"]["k"].append(2)
    assert ds[0] == {"choices": ["a", "b"], "more": {"k": [1]}}


def test_a_column_that_map_changes_keeps_its_type_where_its_values_allow_it(write: Write) -> None:
    ds = library(write).Dataset.from_list([{"f": 0.5, "t": True, "i": [1], "z": {"a": 1, "b": "x"}}] * 2)
    changed = ds.map(lambda row: {"f": "3", "t": 3, "i": ["1"], "z": {"a": "7"}})
    assert repr(changed[0]) == repr({"f": 3.0, "t": True, "i": [1], "z": {"a": 7, "b": None}})
    other = ds.map(lambda row: {"f": "x", "t": "yes", "i": [1.5], "z": {"a": 1, "c": 2}})
    assert repr(other[0]) == repr({"f": "x", "t": "yes", "i": [1.5], "z": {"a": 1, "c": 2}})


def test_columns_that_no_longer_fit_each_other_are_refused(write: Write) -> None:
    ds = library(write).Dataset.from_dict({"q": ["c", "d"]})
    with pytest.raises(ValueError, match="other lengths"):
        ds.map(lambda batch: {"w": [1, 2, 3]}, batched=True)


@pytest.mark.server  # datasets 3.0 opens a socket
def test_the_real_library_is_used_where_it_is_asked_for(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("datasets")
    monkeypatch.setenv("ASSAY_DATASETS", "real")
    code = HelperCode()
    module = code.load(write({"helper.py": "import datasets\nfrom datasets import Dataset\n"}) / "helper.py")
    assert module.datasets is real
    assert module.Dataset is real.Dataset
    handed = code.as_dataset([{"a": 1}, {"a": 2}])
    assert isinstance(handed, real.Dataset)
    assert handed.to_list() == [{"a": 1}, {"a": 2}]


def test_a_library_that_is_not_known_or_not_there_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATASETS", "reel")
    with pytest.raises(ConfigError, match="'reel'"):
        HelperCode()
    monkeypatch.setenv("ASSAY_DATASETS", "real")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match="not installed"):
        HelperCode()
