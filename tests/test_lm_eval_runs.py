"""The same requests and numbers as lm-eval, measured on what lm-eval itself asked and found; and without compat, exactly the listed differences.

All expectations were made by lm-eval 0.4.13: `golden/` on real tasks, `synthetic/` on generated ones (tools/make_synthetic_expected.py),
`differences/` where it errs (tools/make_differences.py).
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bench.instant import instant
from tests.fake_models import golden_model

import assay
from assay import TaskManager

HERE = Path(__file__).parent
Results = Mapping[str, Any]

STDERR = "standard errors"
POOLED = "standard errors of groups"
OWN, ZERO, LABEL, IDS, SHUFFLED, INDICES, PART, CELLS = (
    "few-shot examples from the evaluated split", "`num_fewshot: 0`", "target not among the choices",
    "document numbers with `--samples`", "random numbers in helper code",
    "`fewshot_config.fewshot_indices`", "few-shot examples with `--samples`", "csv data",
)  # fmt: skip
SYSTEM, ROLLING_SHOTS = "`--system_instruction` without a chat template", "`n-shot` of rolling tasks"
REFERENCES, PREDICTED = "multiple references with a custom metric", "`--predict_only`"

GOLDEN: dict[str, dict[str, str]] = {path.stem: {} for path in sorted((HERE / "golden/expected").iterdir())} | {
    "afrisenti_amh_prompt_1": {"afrisenti_amh_prompt_1/f1_stderr,none": STDERR},
    "cb": {"cb/f1_stderr,none": STDERR},
    "cola": {"cola/mcc_stderr,none": STDERR},
    "golden_group": {
        "golden_mc_all/mcc_stderr,none": STDERR, "golden_mc_all/brier_score_stderr,none": STDERR,
        "golden_group/acc_stderr,none": POOLED, "groups/golden_group/acc_stderr,none": POOLED,
        "golden_group/acc_norm_stderr,none": POOLED, "groups/golden_group/acc_norm_stderr,none": POOLED,
    },
    "golden_mc_all": {"golden_mc_all/mcc_stderr,none": STDERR, "golden_mc_all/brier_score_stderr,none": STDERR},
    "lambada_openai": {"lambada_openai/perplexity_stderr,none": STDERR},
    "squad_completion": {"squad_completion/contains_stderr,none": STDERR},
    "squad_completion__predict_only": {
        f"squad_completion/{key},none": PREDICTED
        for key in ("contains", "contains_stderr", "bypass", "bypass_stderr")
    },
    "truthfulqa_mc2__predict_only": {
        f"truthfulqa_mc2/{key}": PREDICTED for key in ("sample_len", "bypass,none", "bypass_stderr,none")
    },
    "wikitext": {
        f"wikitext/{metric}_stderr,none": STDERR for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte")
    },
    "wmt-ro-en-t5-prompt": {"wmt-ro-en-t5-prompt/bleu_stderr,none": STDERR},
    "wmt16-ro-en": {f"wmt16-ro-en/{metric}_stderr,none": STDERR for metric in ("bleu", "chrf", "ter")},
}  # fmt: skip
SYNTHETIC: dict[str, dict[str, str]] = {path.stem: {} for path in sorted((HERE / "synthetic").iterdir())} | {
    "synth_lambada": {"synth_lambada/perplexity_stderr,none": STDERR},
    "synth_wiki": {
        f"synth_wiki/{metric}_stderr,none": STDERR for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte")
    },
    "synth_translate": {f"synth_translate/{metric}_stderr,none": STDERR for metric in ("bleu", "chrf", "ter")},
}
DIFFERENCES = {
    "own_examples": {"requests/own_examples": OWN},
    "no_examples": {"requests/no_examples": ZERO, "n-shot/no_examples": ZERO},
    "wrong_label": {
        "wrong_label/acc,none": LABEL, "wrong_label/acc_stderr,none": LABEL, "wrong_label/sample_len": LABEL,
        "requests/wrong_label": LABEL,
    },
    "samples": {"requests/plain": IDS},
    "shuffled": {"requests/shuffled_then": SHUFFLED},
    "several_references": {
        f"several_references/{metric},none": REFERENCES
        for metric in ("overlap", "overlap_stderr", "overlap_of_pair", "overlap_of_pair_stderr")
    },
    "numpy_target": {},
    "predicted": {},
    "predicted_choices": {
        f"own_choice/{key}": PREDICTED for key in ("sample_len", "bypass,none", "bypass_stderr,none")
    },
    "predicted_class": {
        f"own_class/{key},none": PREDICTED for key in ("length", "length_stderr", "bypass", "bypass_stderr")
    },
    "indices": {"requests/indices": INDICES, "requests/indices_first": INDICES},
    "part": {"requests/shots": PART},
    "codes": {"requests/codes": CELLS},
    "instructed": {"requests/plain": SYSTEM},
    "rolling": {"texts/byte_perplexity_stderr,none": STDERR, "n-shot/texts": ROLLING_SHOTS},
}  # fmt: skip
"""By run, the rows in which ours differ without compat, each with the line of the table in docs/lm-eval.md that says why."""
NUMBERS_MAY_MOVE = ("own_examples", "no_examples", "shuffled", "indices", "part", "codes", "instructed")
"""Where other prompts are sent, the scores may be others."""
ELSEWHERE = ("instructed",)
"""What differs in task files outside of lm-eval's own folder alone; the others are read as if they were in it."""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_runs_equal_lm_evals(name: str, manager: TaskManager) -> None:
    assert golden_differences(name, manager, compat="lm-eval") == set()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_runs_without_compat_differ_in_the_listed_rows_alone(name: str, manager: TaskManager) -> None:
    assert golden_differences(name, manager) == set(GOLDEN[name])


@pytest.mark.parametrize("compat", ["lm-eval", None])
@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_runs_equal_lm_evals_but_for_the_listed_rows(name: str, compat: str | None, bench: Path) -> None:
    expected = json.loads((HERE / f"synthetic/{name}.json").read_text())
    manager = TaskManager(include_path=bench / "tasks", include_defaults=False, compat=compat)
    results = assay.simple_evaluate(instant(), tasks=[name], task_manager=manager, bootstrap_iters=1000, compat=compat)
    asked = json.dumps(
        [request for task in results["samples"] for request in repeated(results, task)], separators=(",", ":")
    )
    assert sha256(asked.encode()).hexdigest() == expected["requests_sha256"]
    assert differing(expected, results) == ({} if compat else SYNTHETIC[name]).keys()


@pytest.mark.parametrize("compat", ["lm-eval", None])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_where_lm_eval_errs_ours_differ_unless_compat_is_asked_for(
    name: str, compat: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE / "differences")
    expected = json.loads((HERE / f"differences/{name}.json").read_text())
    dialect = compat if name in ELSEWHERE else "lm-eval"
    manager = TaskManager(include_path="tasks", include_defaults=False, compat=dialect)
    results = assay.simple_evaluate(
        instant(), task_manager=manager, bootstrap_iters=1000, compat=compat, **expected["options"]
    )
    result = {
        f"requests/{task}" for task, items in expected["asked"].items() if json_value(numbered(results, task)) != items
    }
    result |= {f"n-shot/{task}" for task, shots in expected["n-shot"].items() if results["n-shot"].get(task) != shots}
    result |= {key for key in differing(expected, results) if not (name in NUMBERS_MAY_MOVE and "acc" in key)}
    assert result == ({} if compat else DIFFERENCES[name]).keys()


def test_every_reason_for_another_number_is_listed_in_the_table_of_the_docs() -> None:
    """The others are shown in tests/test_dialect.py, those without a rule in test_media.py, test_filters.py and test_hf_*.py."""
    table = (HERE.parent / "docs/lm-eval.md").read_text().partition("## Differences in a run")[2].partition("\n## ")[0]
    listed = {line.split("|")[1].strip(" †‡") for line in table.splitlines() if re.match(r"\| (?!subject|--)", line)}
    reasons = {
        reason for runs in (GOLDEN, SYNTHETIC, DIFFERENCES) for rows in runs.values() for reason in rows.values()
    }
    assert reasons <= listed


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    subprocess.run([sys.executable, str(HERE.parent / "bench/make_benchmark.py"), str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def manager(tmp_path_factory: pytest.TempPathFactory, lm_eval_folder: Path) -> TaskManager:
    """One that knows lm-eval's 14,000 files, for all of these tests: to look whether they have changed takes longer than a run."""
    folders = [lm_eval_folder / "lm_eval/tasks", HERE / "golden/custom_tasks"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ASSAY_CACHE_DIR", str(tmp_path_factory.mktemp("index")))
        return TaskManager(None, folders, False, compat="lm-eval")


def golden_differences(name: str, manager: TaskManager, compat: str | None = None) -> set[str]:
    expected = json.loads((HERE / f"golden/expected/{name}.json").read_text())
    results = assay.simple_evaluate(
        golden_model(), tasks=[expected["task"]], task_manager=manager, data_dir=str(HERE / "golden/data"),
        compat=compat, **expected["kwargs"],
    )  # fmt: skip
    values = set(differing(expected, results))
    for task, own in expected["tasks"].items():
        asked = [[request["args"] for request in each["instances"]] for each in own["requests"]]
        if json_value([arguments for _, arguments in numbered(results, task)]) != asked:
            values.add(f"requests/{task}")
    return values


def differing(expected: Results, built: Results) -> set[str]:
    """The rows in which two results differ: by more than 1e-12, or because one of them has it and the other not."""
    theirs = {**flat(expected["results"]), **flat(expected.get("groups") or {}, "groups/")}
    ours = {**flat(built["results"]), **flat(built.get("groups", {}) if "groups" in expected else {}, "groups/")}
    return {key for key in {**theirs, **ours} if not same(theirs.get(key), ours.get(key))}


def flat(rows: Results, before: str = "") -> dict[str, Any]:
    return {f"{before}{name}/{key}": value for name, row in rows.items() for key, value in row.items()}


def same(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, str) and isinstance(ours, float):
        return theirs == str(ours)  # not a number, or without end
    if isinstance(theirs, float) and isinstance(ours, float):
        return math.isclose(theirs, ours, rel_tol=1e-12, abs_tol=1e-15)
    return bool(theirs == ours)


def numbered(built: Results, task: str) -> list[Any]:
    """Every document's number with the arguments of its requests."""
    samples = built["samples"][task]
    first = samples[0]["filter"]
    return [[each["doc_id"], each["arguments"]] for each in samples if each["filter"] == first]


def repeated(built: Results, task: str) -> list[Any]:
    """Every request of a task, as often as it was asked, with its kind."""
    samples = built["samples"][task]
    return [
        [kind(arguments), *arguments]
        for each in samples
        if each["filter"] == samples[0]["filter"]
        for arguments, responses in zip(each["arguments"], each["resps"], strict=True)
        for _ in responses
    ]


def kind(arguments: tuple[Any, ...]) -> str:
    if len(arguments) == 1:
        return "loglikelihood_rolling"
    return "generate_until" if isinstance(arguments[1], dict) else "loglikelihood"


def json_value(value: Any) -> Any:
    return json.loads(json.dumps(value))
