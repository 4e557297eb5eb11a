"""Whole runs through `hf` on the folder of the bundled model: the scores of `embedded`, which computes them with numpy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.models.local.embedded import BUNDLED
from assay.models.local.hf.backend import HF
from assay.records import Generate, Likelihood, Loglikelihood, Rolling
from hf_world import answers, words
from kinds import mostly_nightly

HERE = Path(__file__).parent
CONTINUOUS = ("word_perplexity", "byte_perplexity", "perplexity", "bits_per_byte", "brier_score", "logprob")
"""Numbers that are made of log-likelihoods, not of which is higher."""
assert words()  # one thread for all of them


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    subprocess.run([sys.executable, str(HERE.parent / "bench/make_benchmark.py"), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def model() -> HF:
    return HF(str(BUNDLED), dtype="float32", over_length="truncate")


def both(model: HF, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    arguments = {"bootstrap_iters": 0, "over_length": "truncate", **options}
    return assay.simple_evaluate(model, **arguments), assay.simple_evaluate("embedded", **arguments)


def compare(mine: dict[str, Any], other: dict[str, Any], *, but: frozenset[str] = frozenset()) -> int:
    """The numbers of both are the same, and so is every answer: texts exactly, log-likelihoods to 1e-4 a token."""
    compared = 0
    for name, row in other["results"].items():
        for key, value in row.items():
            if name not in but:
                of_likelihoods = isinstance(value, float) and key.startswith(CONTINUOUS)
                expected = pytest.approx(value, rel=1e-3) if of_likelihoods else value
                assert mine["results"][name][key] == expected, (name, key)
    assert mine.get("groups", {}).keys() == other.get("groups", {}).keys()
    for name, samples in other["samples"].items():
        for own, theirs in zip(mine["samples"][name], samples, strict=True):
            assert own["arguments"] == theirs["arguments"]
            for a, b in zip(flat(own["resps"]), flat(theirs["resps"]), strict=True) if name not in but else ():
                compared += 1
                letters = len(str(own["arguments"]))  # a token has a letter at least
                assert a == (pytest.approx(b, abs=1e-4 * letters) if isinstance(b, float) else b)
    return compared


def flat(responses: Any) -> list[Any]:
    if isinstance(responses, list | tuple):
        return [each for repeats in responses for each in flat(repeats)]
    return [responses]


def drawn(data: dict[str, Any]) -> frozenset[str]:
    """Tasks whose texts are drawn: the two models draw them with different random numbers."""
    return frozenset(
        name for name, config in data["configs"].items() if config.get("generation_kwargs", {}).get("do_sample")
    )


def test_the_bundled_benchmark_has_the_scores_of_the_embedded_model(model: HF) -> None:
    mine, other = both(model, tasks=["first_steps"], limit=12)
    assert len(other["results"]) >= 12
    assert compare(mine, other, but=drawn(other)) > 200


@pytest.mark.parametrize(
    ("task", "limit"),
    mostly_nightly(
        [("synth_mmlu5", 4), ("synth_hellaswag", 4), ("synth_gsm8k", 3), ("synth_lambada", 5), ("synth_wino", 10)],
        kept=[("synth_gsm8k", 3), ("synth_wino", 10)],
    ),
)
def test_synthetic_benchmarks_have_the_scores_of_the_embedded_model(
    task: str, limit: int, model: HF, bench: Path
) -> None:
    mine, other = both(
        model, tasks=[task], include_path=str(bench / "tasks"), include_defaults=False, limit=limit,
        gen_kwargs={"max_gen_toks": 24} if "gsm8k" in task else None,
    )  # fmt: skip
    assert compare(mine, other) >= limit


def test_golden_tasks_have_the_scores_of_the_embedded_model(model: HF) -> None:
    mine, other = both(
        model, tasks=["golden_group", "golden_gen_filters"], include_path=str(HERE / "golden/custom_tasks"),
        include_defaults=False, data_dir=str(HERE / "golden/data"), limit=6, compat="lm-eval",
    )  # fmt: skip
    assert compare(mine, other, but=drawn(other)) > 10


def test_a_chat_has_the_scores_of_the_embedded_model(model: HF) -> None:
    mine, other = both(model, tasks=["first_steps_sums"], limit=8, apply_chat_template=True, num_fewshot=2)
    assert compare(mine, other) >= 8


def test_every_answer_is_the_one_of_lm_evals_own_backend() -> None:
    """hf_expected.json was written by lm-eval 0.4.13 (tools/make_hf_expected.py), on the same folder at float32."""
    expected = json.loads((HERE / "hf_expected.json").read_text(encoding="utf-8"))
    model = HF(str(BUNDLED), dtype="float32", max_length=256)
    pairs = expected["loglikelihood"]
    for (context, continuation, value, greedy), response in zip(
        pairs, answers(model, [Loglikelihood(*pair[:2]) for pair in pairs]), strict=True
    ):
        assert isinstance(response, Likelihood)
        assert response.value == pytest.approx(value, abs=1e-4 * len(continuation)), (context, continuation)
        assert response.greedy is greedy
    texts = expected["loglikelihood_rolling"]
    for (text, value), response in zip(texts, answers(model, [Rolling(each[0]) for each in texts]), strict=True):
        assert isinstance(response, Likelihood)
        assert response.usage is not None
        assert response.value == pytest.approx(value, abs=1e-4 * response.usage.read), text
    prompts = expected["generate_until"]
    written = answers(model, [Generate(prompt, params) for prompt, params, _ in prompts])
    assert [each.text for each in written] == [text for _, _, text in prompts]  # type: ignore[union-attr]
