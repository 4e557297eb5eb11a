"""The names that users write in Python, and what helper code of lm-eval and SyGra imports, stay: tests/public_names.txt lists them."""

import builtins
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import assay
from assay.compat.names import provided_modules
from assay.compat.registered import Registered

NAMES = Path(__file__).with_name("public_names.txt").read_text().splitlines()


@cache
def provided() -> dict[str, ModuleType]:
    return provided_modules(Registered(), None)


def has(value: object, attribute: str) -> bool:
    """Methods, properties and class attributes; fields of records are only annotated, or set by `__init__` as slots."""
    if hasattr(value, attribute):
        return True
    bases = inspect.getmro(value) if inspect.isclass(value) else ()
    return any(attribute in inspect.get_annotations(base) for base in bases)


@pytest.mark.parametrize("name", [line for line in NAMES if line and not line.startswith("#")])
def test_a_public_name_stays(name: str) -> None:
    module, _, path = name.partition(":")
    value: object = provided()[module] if module in provided() else import_module(module)
    for attribute in path.split("."):
        assert has(value, attribute), f"{name}: {attribute} is gone"
        value = getattr(value, attribute, None)


def test_every_name_of_assay_is_listed() -> None:
    assert {f"assay:{name}" for name in assay.__all__} <= set(NAMES)


def test_importing_all_names_leaves_those_of_python_alone() -> None:
    names: dict[str, object] = {}
    exec("from assay import *", names)
    assert names["run"] is assay.run
    assert not [name for name in names if hasattr(builtins, name)]
    assert callable(assay.filter) and callable(assay.format)
