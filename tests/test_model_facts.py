"""Facts of models for conditions: known before a model is opened, from its files, its arguments or the command line."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from assay import ConfigError, simple_evaluate
from assay.evaluation.model_facts import ModelFacts
from assay.evaluation.options import run_config, run_facts
from group_world import group_file, scored
from small_runs import ANYTHING, run


def a_folder(folder: Path, **config: object) -> Path:
    """A model of 2 × 3 + 4 + 5 × 1 = 15 weights in two files, without the weights themselves."""
    folder.mkdir()
    for number, shapes in enumerate(({"a": [2, 3], "b": [4]}, {"c": [5, 1]})):
        header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
        written = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        (folder / f"model-{number}.safetensors").write_bytes(struct.pack("<Q", len(written)) + written)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("backend", ["hf", "vllm"])
def test_a_local_models_files_show_its_size_and_context(backend: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "m", max_position_embeddings=128)
    facts = ModelFacts({"name": backend, "pretrained": str(folder)}, {})
    assert (facts["params"], facts["context"], facts["name"]) == (15, 128, backend)
    assert ModelFacts({"name": backend, "pretrained": str(folder), "max_length": 64}, {})["context"] == 64


def test_nothing_is_read_until_a_condition_asks(tmp_path: Path) -> None:
    facts = ModelFacts({"name": "hf", "pretrained": str(a_folder(tmp_path / "m"))}, {})
    assert list(facts) == ["name", "pretrained"]
    assert "params" in facts
    assert list(facts) == ["name", "pretrained", "params"]
    assert "context" not in facts, "its config.json does not say"


def test_the_bundled_model_has_the_weights_that_its_file_holds() -> None:
    from safetensors.numpy import load_file

    from assay.models.local.embedded import BUNDLED

    expected = sum(weights.size for file in BUNDLED.glob("*.safetensors") for weights in load_file(file).values())
    assert ModelFacts({"name": "embedded"}, {})["params"] == expected


def test_what_no_file_shows_is_given_as_metadata() -> None:
    config = run_config({"model": "openai-chat", "tasks": ["t"], "metadata": {"params": 8e9}})
    facts: Any = run_facts(config)
    assert facts["model"]["params"] == 8e9
    assert "context" not in facts["model"]
    damaged = ModelFacts({"name": "hf", "pretrained": "no/such_model"}, {"context": 8})
    assert (damaged["context"], "params" in damaged) == (8, False)


def conditional(folder: Path, condition: str) -> None:
    scored(folder, "a", acc=[1, 1])
    scored(folder, "b", acc=[0, 0])
    entry = "aggregate_metric_list: [{metric: acc}]\n"
    group_file(folder, f"group: g\ntask: [a, {{task: b, if: '{condition}'}}]\n{entry}")


@pytest.mark.parametrize(("condition", "expected"), [("model.params >= 7e9", 1.0), ("model.params < 7e9", 0.5)])
def test_a_condition_by_size_works_with_the_bundled_model(condition: str, expected: float, tmp_path: Path) -> None:
    conditional(tmp_path, condition)
    results = simple_evaluate("embedded", tasks="g", include_path=str(tmp_path), include_defaults=False)
    assert results["groups"]["g"]["acc,none"] == expected


def test_an_unknown_fact_is_refused_with_how_to_give_it(tmp_path: Path) -> None:
    conditional(tmp_path, "model.params >= 7e9")
    match = r"group_file.yaml:2:\d+: invalid condition: 'model.params' is not known of this model — give --metadata params=8e9"
    with pytest.raises(ConfigError, match=match):
        run(tmp_path, ANYTHING, "g")
    assert run(tmp_path, ANYTHING, "g", metadata={"params": 8e9})["groups"]["g"]["acc,none"] == 0.5


def test_an_invalid_file_gives_no_size(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"short")
    assert "params" not in ModelFacts({"name": "hf", "pretrained": str(tmp_path)}, {})
