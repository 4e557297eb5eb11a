"""The options of a run are listed once, in RunConfig: flags, Python parameters and the identity of a run derive from it."""

import argparse
import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import assay
from assay import public
from assay.cli import define
from assay.cli.flags import run_options
from assay.config.option import yaml_fields, yaml_keys
from assay.config.run import OPTIONS, RunConfig, identity_of
from assay.errors import ConfigError
from assay.public import RunOptions


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    define("run", parser)
    return parser.parse_args(words)


def test_every_option_is_a_parameter_of_the_python_api() -> None:
    for function in (assay.run, assay.simple_evaluate, assay.evaluate):
        known = inspect.signature(function).parameters
        assert set(yaml_keys(RunConfig)) - set(known) <= {"model", "tasks"}
        assert known["limit"].annotation == float | None
        assert known["numpy_random_seed"].default == 1234
    assert inspect.signature(assay.run).parameters["log_samples"].default is False
    assert inspect.signature(assay.simple_evaluate).parameters["log_samples"].default is True
    assert inspect.signature(assay.evaluate).parameters["fewshot_as_multiturn"].default is False


def test_the_keywords_that_editors_read_are_the_options_of_a_run() -> None:
    kinds = {name: str(kind).replace("typing.", "") for name, kind in get_type_hints(RunConfig).items()}
    expected = {}
    for field in yaml_fields(RunConfig):
        kind = re.sub(r"tuple\[(.*), \.\.\.\]", r"collections.abc.Sequence[\1]", kinds[field.name])
        expected[field.name] = f"str | {kind}" if field.metadata["many"] else kind
    for name in ("model", "model_args", "tasks"):
        del expected[name]
    simple = {"<class 'int'>": "int", "<class 'bool'>": "bool", "<class 'float'>": "float", "<class 'str'>": "str"}
    keywords = {name: str(kind).replace("typing.", "") for name, kind in get_type_hints(RunOptions).items()}
    assert [(name, simple.get(kind, kind)) for name, kind in keywords.items()] == [
        (name, simple.get(kind, kind)) for name, kind in expected.items()
    ]


def test_the_names_that_editors_read_are_the_public_names() -> None:
    tree = ast.parse(inspect.getsource(public))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    exported = {(str(each.module), name.name) for each in imports for name in each.names if name.asname == name.name}
    assert exported == {(home, name) for home, names in public.HOMES.items() for name in names}


def test_an_unknown_parameter_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'limit'"):
        assay.simple_evaluate("dummy", tasks=["t"], limt=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--limit", "3"], {"limit": 3.0}),
        (["--model_args", "a=1,b=x", "c=true"], {"model_args": {"a": 1, "b": "x", "c": True}}),
        (["--model_role", "judge=dummy,n=1"], {"model_role": {"judge": "dummy,n=1"}}),
        (["--max_time", "30m"], {"max_time": 1800.0}),
        (["--seed", "1,2,3"], {"seed": [1, 2, 3]}),
        (["--samples", '{"t": [0, 5]}'], {"samples": {"t": [0, 5]}}),
        (["--metadata", "a=1"], {"metadata": {"a": 1}}),
        (["--batch_size", "8"], {"batch_size": 8}),
        (["--batch_size", "auto"], {"batch_size": "auto"}),
        (["--apply_chat_template"], {"apply_chat_template": True}),
        (["--apply_chat_template", "tool_use"], {"apply_chat_template": "tool_use"}),
        (["--fewshot_as_multiturn", "false"], {"fewshot_as_multiturn": False}),
        (["--no_defaults", "--include_path", "a", "--include_path", "b"], {"include_defaults": False, "include_path": ["a", "b"]}),
        (["--over_length", "truncate", "-x"], {"over_length": "truncate", "predict_only": True}),
        (["-v", "DEBUG"], {"verbosity": "DEBUG"}),
        ([], {}),
    ],
)  # fmt: skip
def test_a_flag_is_read_by_the_type_of_its_option(words: list[str], expected: dict[str, Any]) -> None:
    assert run_options(flags(*words)) == expected


def test_a_flag_overrides_the_file() -> None:
    file = {"limit": 1, "seed": "1,2,3", "num_fewshot": 5}
    assert run_options(flags("--limit", "2"), file) == {"limit": 2.0, "seed": [1, 2, 3], "num_fewshot": 5}


@pytest.mark.parametrize("words", [["--max_time", "soon"], ["--fewshot_as_multiturn", "maybe"], ["--compat", "other"]])
def test_a_value_of_the_wrong_kind_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags(*words)
    assert repr(words[1]) in capsys.readouterr().err


def test_the_identity_of_a_run_is_what_its_results_depend_on() -> None:
    """Changing this list makes every stored run another run: it cannot be resumed."""
    assert set(identity_of(RunConfig())) == {
        "num_fewshot", "repeats", "gen_kwargs", "system_instruction", "apply_chat_template", "fewshot_as_multiturn", "over_length",
        "limit", "start_index", "sample", "samples", "shard", "trust_remote_code", "compat", "bootstrap_iters", "predict_only",
        "confirm_run_unsafe_code", "seed", "random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed",
        "metadata",
    }  # fmt: skip


def test_every_field_is_an_option_or_internal() -> None:
    assert {item.name for item in fields(RunConfig)} - set(OPTIONS) == {
        "model_named",
        "keep_finished",
        "records_at_once",
    }
    assert all(isinstance(use, type(OPTIONS["limit"])) for use in OPTIONS.values())


def test_the_help_of_run_imports_no_evaluation() -> None:
    code = "import sys; from assay.cli import main\ntry: main(['run', '--help'])\nexcept SystemExit: print(sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--num_fewshot" in ended.stdout
    assert not {"'numpy'", "'yaml'", "'jinja2'", "'assay.evaluation'"} & set(
        ended.stdout.replace("]", ",").replace("[", " ").split(", ")
    )
