"""A part of the documents is asked just what it is asked in a run of all of them, however the part is chosen."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import assay
from assay.models import Scripted
from commands import Run
from conftest import Write

COUNT = 12
HEAD = "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: test\n"
QUESTION = 'doc_to_text: "{{q}}"\ndoc_to_target: "{{a}}"\n'
HELPER = """
import random
from lm_eval.api.samplers import ContextSampler
from lm_eval.api.task import ConfigurableTask

def shuffled(doc):
    words = ["u", "v", "w", "x", "y"]
    random.shuffle(words)
    return doc["q"] + " " + " ".join(words)

class Last(ContextSampler):
    def sample(self, n, eval_doc=None, df=None, **_):
        return self.rnd.sample(self.df, n)

class Own(ConfigurableTask):
    def doc_to_text(self, doc, doc_to_text=None):
        return f"own {random.random()} {doc['q']}"
"""
CHOSEN = 'output_type: multiple_choice\ndoc_to_choice: "{{c}}"\n'
WAYS = {
    "examples": f"{HEAD}{QUESTION}num_fewshot: 3\n",
    "examples of the evaluated split": f"{HEAD}{QUESTION}num_fewshot: 3\nfewshot_split: test\n",
    "a sampler of helper code": f"{HEAD}{QUESTION}num_fewshot: 2\nfewshot_config: {{sampler: !function h.Last}}\n",
    "a function that draws": f"{HEAD}doc_to_text: !function h.shuffled\ndoc_to_target: a\n",
    "a template that draws": f"{HEAD}doc_to_text: '{{{{q}}}} {{{{ range(1000) | random }}}}'\ndoc_to_target: a\n",
    "examples that draw": f"{HEAD}{QUESTION}num_fewshot: 2\nfewshot_config: {{doc_to_text: !function h.shuffled}}\n",
    "choices": f"{HEAD}doc_to_text: q\ndoc_to_target: 0\n{CHOSEN}num_fewshot: 2\n",
    "choices in the context": f"{HEAD}doc_to_text: 0\ndoc_to_target: a\n{CHOSEN}num_fewshot: 2\n",
    "documents that cannot be asked": f"{HEAD}doc_to_text: '{{{{q}}}}{{{{1 // n}}}}'\ndoc_to_target: a\nnum_fewshot: 2\n"
    "fewshot_config: {doc_to_text: '{{q}}'}\n",
    "a class": f"{HEAD}class: !function h.Own\n{QUESTION}num_fewshot: 2\n",
}


@pytest.fixture
def folder(write: Write) -> Path:
    rows = [{"q": f"q{n}", "a": f"a{n}", "c": [f"c{n}", "d"], "n": n % 5} for n in range(COUNT)]
    return write({"d.jsonl": "".join(json.dumps(row) + "\n" for row in rows), "h.py": HELPER})


def prompts(folder: Path, **options: Any) -> dict[int, Any]:
    """What is asked, by the number of the document."""
    model = Scripted(generate=lambda *_: "x", loglikelihood=lambda *_: (-1.0, False))
    fixed: dict[str, Any] = {"include_path": str(folder), "include_defaults": False, "bootstrap_iters": 0}
    result = assay.simple_evaluate(model, tasks=["t"], **fixed, **options)["samples"]["t"]
    return {sample["doc_id"]: [arguments[:1] for arguments in sample["arguments"]] for sample in result}


def is_part(part: dict[int, Any], whole: dict[int, Any]) -> bool:
    return all(whole[number] == asked for number, asked in part.items())


@pytest.mark.parametrize("way", WAYS)
def test_a_part_of_the_documents_is_asked_what_all_of_them_are(way: str, folder: Path) -> None:
    (folder / "t.yaml").write_text(WAYS[way])
    whole = prompts(folder)
    parts: dict[str, dict[str, Any]] = {
        "sample": {"sample": 4}, "samples": {"samples": {"t": [11, 6, 2]}}, "one": {"samples": {"t": [7]}},
        "limit": {"limit": 5}, "a share": {"limit": 0.5}, "start": {"start_index": 4, "limit": 3},
        "shard": {"shard": "2/3"}, "shard of a sample": {"sample": 6, "shard": "1/2"},
        "shard of samples": {"samples": {"t": [9, 4, 1, 8]}, "shard": "2/2"},
    }  # fmt: skip
    for name, options in parts.items():
        part = prompts(folder, **options)
        assert part, name
        assert is_part(part, whole), name


@pytest.mark.slow
@given(numbers=st.sets(st.integers(0, COUNT - 1), min_size=1), way=st.sampled_from(sorted(WAYS)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_part_of_the_documents_gives_a_part_of_the_prompts(numbers: set[int], way: str, folder: Path) -> None:
    (folder / "t.yaml").write_text(WAYS[way])
    numbers = numbers | {1}  # a task none of whose documents can be asked is refused
    part = prompts(folder, samples={"t": sorted(numbers)})
    assert set(part) <= numbers
    assert is_part(part, prompts(folder))


def test_under_compat_examples_are_drawn_for_the_chosen_documents_alone(folder: Path) -> None:
    """As lm-eval does: the first document that is asked about gets the first draw."""
    (folder / "t.yaml").write_text(
        f"{HEAD}{QUESTION}num_fewshot: 3\nfewshot_config: {{samples: {json.dumps([{'q': f'e{n}', 'a': str(n)} for n in range(9)])}}}\n"
    )
    whole, part = prompts(folder, compat="lm-eval"), prompts(folder, compat="lm-eval", samples={"t": [7, 8]})
    first, second = part.values()
    assert [text.rpartition("q")[0] for [text] in first] == [text.rpartition("q")[0] for [text] in whole[0]]
    assert [text.rpartition("q")[0] for [text] in second] == [text.rpartition("q")[0] for [text] in whole[1]]


def test_a_run_of_a_sample_is_compared_with_the_whole_run(folder: Path, tmp_path: Path, run_assay: Run) -> None:
    (folder / "t.yaml").write_text(WAYS["examples"])
    runs = ("run", "--model", "dummy", "--tasks", "t", "--include_path", folder, "--no_defaults", "--output_path")
    assert run_assay(*runs, tmp_path / "whole").returncode == 0
    assert run_assay(*runs, tmp_path / "part", "--sample", 5).returncode == 0
    compared = run_assay("compare", tmp_path / "whole", tmp_path / "part")
    assert compared.returncode == 0, compared.stderr
    assert "differ" not in compared.stderr
