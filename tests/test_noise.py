"""Noise within and between documents: by an analysis of variance, in results, and in the table of `assay plan`."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.anova import anova_lm

from assay.cli import main
from assay.statistics.noise import noise_of
from compared_world import make_run, write_tasks
from run_world import rows_of
from small_runs import SAMPLED, generate, roll


def test_components_are_those_of_an_analysis_of_variance() -> None:
    """Mean squares by statsmodels: within documents the residual's, between them (MSB − MSW)/repeats."""
    draw = np.random.default_rng(1)
    scores = draw.normal(0, 1, 30)[:, None] + draw.normal(0, 0.5, (30, 4))
    long = pd.DataFrame({"score": scores.ravel(), "document": np.repeat(np.arange(30), 4)})
    table = anova_lm(smf.ols("score ~ C(document)", long).fit())
    between, within = table["mean_sq"]
    noise = noise_of(scores.tolist())
    assert noise is not None
    assert (noise.within, noise.between, noise.repeats) == pytest.approx((within, (between - within) / 4, 4))
    assert noise.per_document(4) == pytest.approx(between / 4)


def test_noise_needs_two_documents_with_repeats() -> None:
    assert noise_of([[0.0, 1.0], [1.0]]) is None
    assert noise_of([[0.0, math.inf], [1.0, 0.0]]) is None
    alike = noise_of([[0.0, 1.0], [1.0, 0.0]])
    assert alike is not None and (alike.within, alike.between) == (0.5, 0.0)  # never below 0


YAML = (
    SAMPLED
    + "repeats: 2\nfilter_list: [{name: none, filter: [{function: noop}]}]\nmetric_list: [{metric: exact_match}]\n"
)
ANSWERS = [["x", "x"], ["x", "y"], ["y", "y"], ["x", "y"]]
"""Scores 1 1, 1 0, 0 0, 1 0: within (0 + ½ + 0 + ½)/4 = ¼; the means 1, ½, 0, ½ vary by ⅙, of which ⅛ is from within."""


def test_results_and_plan_have_the_noise_of_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = generate(tmp_path / "w", ANSWERS, ["x"] * 4, YAML, output_path=str(tmp_path / "r"))
    row = rows_of(results, "t")["exact_match,none"]
    assert row["noise"] == pytest.approx({"within": 1 / 4, "between": 1 / 6 - 1 / 8, "repeats": 2})
    assert main(["plan", "--mde", "10pp", "--baseline", str(tmp_path / "r"), "--format", "json"]) == 0
    [noise] = json.loads(capsys.readouterr().out)["noise"]
    assert (noise["n"], noise["half_width"]) == pytest.approx((4, 1.959964 * math.sqrt(1 / 6 / 4)), rel=1e-6)
    expected = {str(m): math.ceil((1 / 24 + 1 / 4 / m) * (1.959964 / 0.1) ** 2) for m in (1, 2, 4, 8)}
    assert noise["needed"] == expected
    assert main(["plan", "--mde", "10pp", "--half_width", "20pp", "--baseline", str(tmp_path / "r")]) == 0
    table = capsys.readouterr().out
    assert "20.00pp|" in table and "n for ± with 8 repeats" in table
    assert main(["plan", "--mde", "1pp", "--half_width", "wide", "--baseline", str(tmp_path / "r")]) == 2
    assert "invalid width 'wide' — write 1pp, or 0.05" in capsys.readouterr().err


def test_a_perplexity_is_not_called_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {f"word {number} and more": -3.0 - number for number in range(5)}
    roll(tmp_path / "w", texts, "metric_list: [{metric: word_perplexity}]\n", output_path=str(tmp_path / "r"))
    assert main(["plan", "--mde", "0.5", "--metric", "word_perplexity", "--baseline", str(tmp_path / "r")]) == 0
    table = capsys.readouterr().out
    assert "word_perplexity" in table and "pp" not in table.replace("word_perplexity", "")


def test_without_repeats_all_noise_is_between_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 4})
    output = make_run(folder, tmp_path / "a", {"t": [0.0, 1.0, 1.0, 0.0]})
    assert main(["plan", "--mde", "10pp", "--baseline", str(output), "--format", "json"]) == 0
    [noise] = json.loads(capsys.readouterr().out)["noise"]
    assert (noise["within"], noise["between"]) == (None, pytest.approx(1 / 3))
    assert noise["needed"] == {"1": math.ceil(1 / 3 * (1.959964 / 0.1) ** 2)}
