"""`assay leaderboard`: Bradley–Terry ratings by hand, by choix 0.4.1 and by logistic regression; ranks by paired differences."""

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cli import main
from assay.cli.report import leaderboard_tables
from assay.comparison.leaderboard import Leaderboard, Ranking, Standing, leaderboard
from assay.models import Scripted
from assay.report.table_writers import write_markdown
from assay.results import Estimate
from assay.statistics.intervals import student
from assay.statistics.paired import PairedDifference
from assay.statistics.ratings import ELO, Game, bradley_terry, rank_intervals
from compared_world import make_run, write_tasks
from small_runs import run, write_task

# --- ratings ----------------------------------------------------------------------------------------------------------------


def games(counts: Mapping[tuple[str, str], int]) -> list[Game]:
    """So many wins of the first over the second, each on a document that no other game has."""
    won = [pair for pair, count in counts.items() for _ in range(count)]
    return [Game(first, second, 1.0, number) for number, (first, second) in enumerate(won)]


def test_two_players_have_the_closed_form() -> None:
    """14 of 20: log-odds ln(14/6), half of it above the middle; their variance is 20/19 · 20·0.7·0.3 / (20·0.7·0.3)²."""
    one, other = bradley_terry(games({("a", "b"): 14, ("b", "a"): 6}))
    assert (one.name, other.name) == ("a", "b")
    assert one.estimate.value == pytest.approx(1000 + ELO * math.log(14 / 6) / 2)
    assert one.estimate.value + other.estimate.value == pytest.approx(2000)
    error = math.sqrt(20 / 19 / 4.2) / 2
    assert one.estimate.stderr == pytest.approx(ELO * error)
    assert one.estimate.low == pytest.approx(one.estimate.value - student(0.95, 19) * ELO * error)
    assert (one.wins, one.ties, one.losses, one.estimate.n) == (14, 0, 6, 20)


def test_ratings_are_those_of_choix() -> None:
    """choix.ilsr_pairwise(4, data) of choix 0.4.1."""
    counts = {
        ("0", "1"): 9,
        ("1", "0"): 5,
        ("1", "2"): 8,
        ("2", "1"): 4,
        ("0", "2"): 11,
        ("2", "0"): 3,
        ("2", "3"): 7,
        ("3", "2"): 6,
    }
    expected = {"0": 0.8329132247722193, "1": 0.23998044729659612, "2": -0.4593714961207786, "3": -0.6135221759480367}
    rated = bradley_terry(games(counts))
    assert {each.name: (each.estimate.value - 1000) / ELO for each in rated} == pytest.approx(expected)
    assert [each.rank for each in rated] == [1, 2, 3, 4]


def test_errors_are_those_of_a_logistic_regression_with_clusters() -> None:
    """statsmodels: without a constant, player c as reference, games of a document in one cluster, with its factor G/(G−1)."""
    draw = np.random.default_rng(4)
    played = [Game(first, second, float(draw.random() < chance), document) for document in range(40)
              for first, second, chance in (("a", "b", 0.6), ("b", "c", 0.7), ("a", "c", 0.8))]  # fmt: skip
    design = np.array([[(game.first == name) - (game.second == name) for name in "ab"] for game in played], float)
    model = sm.GLM([game.score for game in played], design, family=sm.families.Binomial())
    clusters = {"groups": np.array([game.cluster for game in played]), "use_correction": False}
    fitted = model.fit(cov_type="cluster", cov_kwds=clusters)
    by_name = {each.name: each for each in bradley_terry(played)}
    assert [(by_name[name].estimate.value - by_name["c"].estimate.value) / ELO for name in "ab"] == pytest.approx(
        list(fitted.params)
    )
    covariance = np.zeros((3, 3))
    covariance[:2, :2] = fitted.cov_params() * 40 / 39
    center = np.eye(3) - 1 / 3  # ratings are relative to the mean of all
    errors = np.sqrt(np.diag(center @ covariance @ center.T))
    assert [by_name[name].estimate.stderr for name in "abc"] == pytest.approx((ELO * errors).tolist())


def test_a_tie_is_half_a_win() -> None:
    tied = [Game("a", "b", 0.5, number) for number in range(10)]
    assert [(each.estimate.value, each.rank, each.ties) for each in bradley_terry(tied)] == [
        (1000.0, 1, 10),
        (1000.0, 1, 10),
    ]
    halves = [Game("a", "b", score, number) for number, score in enumerate([1, 1, 0.5, 0.5, 0])]
    assert bradley_terry(halves)[0].estimate.value == pytest.approx(1000 + ELO * math.log(3 / 2) / 2)


def test_who_wins_everything_has_an_open_end_and_a_sure_rank() -> None:
    rated = bradley_terry(games({("a", "b"): 20, ("b", "c"): 5, ("c", "b"): 5}))
    assert (rated[0].name, rated[0].estimate.high, rated[0].ranks) == ("a", math.inf, (1, 1))
    assert rated[0].estimate.reason == "won all 20 games: nothing limits its rating from above"
    assert all(each.estimate.low == -math.inf and math.isfinite(each.estimate.high or math.nan) for each in rated[1:])
    few = bradley_terry(games({("a", "b"): 3}))
    assert [each.ranks for each in few] == [(1, 2), (1, 2)]  # as likely as 1 in 4 if both are equal
    assert few[1].estimate.reason == "lost all 3 games: nothing limits its rating from below"


def test_players_that_never_met_are_in_pools() -> None:
    rated = bradley_terry(
        games({("a", "b"): 3, ("b", "a"): 2, ("c", "b"): 1, ("b", "c"): 1, ("x", "y"): 4, ("y", "x"): 4})
    )
    assert {each.name: each.pool for each in rated} == {"a": 0, "b": 0, "c": 0, "x": 1, "y": 1}
    assert [each.estimate.value for each in rated if each.pool] == [1000.0, 1000.0]
    assert bradley_terry([]) == []


def test_games_on_one_document_are_one_draw() -> None:
    alone = [Game("a", "b", float(number % 3 > 0), number) for number in range(30)]
    repeated = [
        game._replace(cluster=number // 3) for number, game in enumerate(sorted(alone, key=lambda each: each.score))
    ]
    one, together = bradley_terry(alone)[0], bradley_terry(repeated)[0]
    assert one.estimate.value == pytest.approx(together.estimate.value)
    assert (together.estimate.stderr or 0) > 1.5 * (one.estimate.stderr or 0)


PLAYED = st.lists(
    st.tuples(st.sampled_from([("a", "b"), ("b", "c"), ("a", "c")]), st.sampled_from([0.0, 0.5, 1.0])),
    min_size=3,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(PLAYED)
def test_laws_of_ratings(played: list[tuple[tuple[str, str], float]]) -> None:
    """The order of games and of the players in them does not matter; ranks are within their intervals; pools have one middle."""
    own = [Game(*pair, score, number) for number, (pair, score) in enumerate(played)]
    turned = [Game(game.second, game.first, 1 - game.score, game.cluster) for game in reversed(own)]
    rated, again = ({each.name: each for each in bradley_terry(each)} for each in (own, turned))
    assert {name: each.estimate.value for name, each in rated.items()} == pytest.approx(
        {n: each.estimate.value for n, each in again.items()}
    )
    assert all(each.ranks[0] <= each.rank <= each.ranks[1] for each in rated.values())
    assert sum(each.estimate.value for each in rated.values()) == pytest.approx(1000 * len(rated))


def test_rank_intervals_by_hand() -> None:
    assert rank_intervals({(0, 1), (0, 2)}, 3) == [(1, 1), (2, 3), (2, 3)]
    assert rank_intervals(set(), 2) == [(1, 2), (1, 2)]


# --- runs with pairwise judges ------------------------------------------------------------------------------------------------

WINS = {"strong": "W" * 16 + "T" * 2 + "L" * 6, "weak": "W" * 6 + "T" * 2 + "L" * 16}
"""How the answers of two models compare with the baseline's."""
FENCED = re.compile(r"<<<answer ([AB]) ([0-9a-f]+)>>>\n(.*)\n")


def judge(prompt: str, params: dict[str, object], repeat: int) -> str:
    """Prefers as the answer of a model says: `W` it is better, `L` worse than the baseline's `other`."""
    shown = {side: text for side, _, text in FENCED.findall(prompt)}
    mine = next(side for side, text in shown.items() if text != "other")
    other = "B" if mine == "A" else "A"
    winner = {"W": mine, "L": other, "T": "tie"}[shown[mine][0]]
    return json.dumps({"id": FENCED.search(prompt)[2], "reason": "", "winner": winner})  # type: ignore[index]


def judged(
    folder: Path, outcomes: Mapping[str, str], columns: Mapping[str, str] | None = None, more: str = ""
) -> list[Path]:
    """Runs of models whose answers win, tie and lose against a column of the data."""
    runs = []
    for name, ends in outcomes.items():
        rows = [{"q": f"{number}", "rival": "other", "gold": "x", **(columns or {})} for number in range(len(ends))]
        yaml = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n" + more
        write_task(folder, rows, yaml + "scorer: {type: llm_judge, kwargs: {pairwise: true, baseline: rival}}\n")
        model = Scripted(
            generate=lambda prompt, params, repeat, ends=ends: f"{ends[int(prompt)]} {prompt}", identity=name
        )
        roles = {"judge": Scripted(generate=judge, identity="judge")}
        run(folder, model, output_path=str(folder / name), model_role=roles)
        runs.append(folder / name)
    return runs


def test_models_are_rated_by_the_verdicts_of_a_judge(tmp_path: Path) -> None:
    board = leaderboard(judged(tmp_path / "w", WINS))
    assert [(each.name, each.wins, each.ties, each.losses) for each in board.ratings] == [
        ("strong", 16, 2, 6), ("rival", 22, 4, 22), ("weak", 6, 2, 16),
    ]  # fmt: skip
    strong, rival, weak = board.ratings
    assert strong.estimate.value - rival.estimate.value == pytest.approx(ELO * math.log(17 / 7))
    assert rival.estimate.value - weak.estimate.value == pytest.approx(ELO * math.log(17 / 7))
    assert strong.estimate.n == rival.estimate.n == 24  # the same questions in both runs
    assert (strong.ranks[0], weak.ranks[1]) == (1, 3)


def test_a_baseline_that_is_also_a_run_is_one_player(tmp_path: Path) -> None:
    runs = judged(tmp_path / "w", WINS, {"rival_model": "weak"})
    board = leaderboard(runs)
    assert [each.name for each in board.ratings] == ["strong", "weak"]  # weak is not rated against itself
    renamed = leaderboard(runs[:1], names={"weak": "old", "strong": "new"})
    assert [each.name for each in renamed.ratings] == ["new", "old"]


def test_tasks_that_some_runs_lack_are_skipped_there(tmp_path: Path) -> None:
    [strong] = judged(tmp_path / "w", {"strong": WINS["strong"]})
    plain = make_run(write_tasks(tmp_path / "tasks", {"u": [{}] * 2}), tmp_path / "plain", {"u": [0.0, 1.0]})
    assert [each.name for each in leaderboard([plain, strong], tasks=["t"]).ratings] == ["strong", "rival"]


def test_the_command_prints_a_table_json_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(each) for each in judged(tmp_path / "w", {"strong": "W" * 9, "weak": "WLWLLLWLT"})]
    assert main(["leaderboard", *runs]) == 0
    shown = capsys.readouterr()
    assert re.search(r"\| +1\|1 +\|strong *\| *\d+\| *\d+ … ∞\|9/0/0", shown.out)
    assert "note: strong: won all 9 games: nothing limits its rating from above" in shown.err
    assert main(["leaderboard", *runs, "--json"]) == 0
    [first, *_] = json.loads(capsys.readouterr().out)["ratings"]
    assert (first["name"], first["high"], first["ranks"]) == ("strong", None, [1, 1])
    assert main(["leaderboard", *runs, "--csv", "--metrics", "llm_judge"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["board"], row["name"], row["rank"]) for row in rows] == [
        ("ratings", "strong", "1"), ("ratings", "rival", "2"), ("ratings", "weak", "3"), ("t", "strong", "1"), ("t", "weak", "2"),
    ]  # fmt: skip


# --- runs with scores ---------------------------------------------------------------------------------------------------------


def scored(tmp_path: Path, scores: Mapping[str, Sequence[float]], more: str | None = None) -> list[Path]:
    n = len(next(iter(scores.values())))
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * n}, *([more] if more else []))
    return [make_run(folder, tmp_path / name, {"t": own}) for name, own in scores.items()]


def test_runs_are_ranked_by_paired_differences(tmp_path: Path) -> None:
    """b is better than a on 12 documents and worse on none, c is a with two documents exchanged."""
    a = [0.0] * 20 + [1.0] * 10
    b = [1.0] * 12 + a[12:]
    c = [1.0, *a[1:-1], 0.0]
    [ranking] = leaderboard(scored(tmp_path, {"a": a, "b": b, "c": c})).rankings
    assert [(each.name, each.rank, each.ranks) for each in ranking.standings] == [
        ("b", 1, (1, 1)),
        ("a", 2, (2, 3)),
        ("c", 2, (2, 3)),
    ]
    second = ranking.standings[1]
    assert (second.estimate.value, float(second.difference or 0)) == pytest.approx((10 / 30, -12 / 30))
    assert (
        second.difference is not None and (second.difference.high or 0) < 0 and ranking.standings[0].difference is None
    )


def test_lower_is_better_where_the_metric_says_so(tmp_path: Path) -> None:
    runs = scored(tmp_path, {"a": [3.0, 4.0, 5.0], "b": [1.0, 2.0, 2.5]},
                  "metric_list: [{metric: x, aggregation: mean, higher_is_better: false}]\n")  # fmt: skip
    [ranking] = leaderboard(runs).rankings
    assert [each.name for each in ranking.standings] == ["b", "a"]


WRONG = {
    "one run has nothing to be ranked against — name two runs or more": ["a"],
    "the same run is named twice": ["a", "a"],
    "invalid name 'a' — write OLD=NEW": ["a", "b", "--name", "a"],
    "two runs are named 'x'": ["a", "b", "--name", "a=x", "--name", "b=x"],
    "must be between 0.5 and 1, got 95": ["a", "b", "--level", "95"],
    "the runs share no number": ["a", "u"],
    "no shared task or group named 'tt'": ["a", "b", "--tasks", "tt"],
}


def test_wrong_commands_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(tmp_path, {"a": [0.0, 1.0], "b": [1.0, 1.0]})
    make_run(write_tasks(tmp_path / "other", {"v": [{}] * 2}), tmp_path / "u", {"v": [0.0, 1.0]})
    monkeypatch.chdir(tmp_path)
    for said, arguments in WRONG.items():
        assert main(["leaderboard", *arguments]) == 2, arguments
        assert said in capsys.readouterr().err


def test_a_ranking_names_the_level_of_each_interval_and_a_small_p_is_not_zero() -> None:
    first = Standing("one", 1, (1, 1), Estimate(0.9, interval=(0.8, 0.95), n=50))
    difference = PairedDifference(-0.4, interval=(-0.5, -0.3), n=50, p=3e-7)
    second = Standing("two", 2, (2, 2), Estimate(0.5, interval=(0.4, 0.6), n=50), difference)
    ranking = Ranking("t", "acc", "none", higher_is_better=True, standings=[first, second])
    [table] = leaderboard_tables(Leaderboard([], [ranking], [], 0.8))
    text = write_markdown(table)
    assert re.search(r"\| +95 %\| n\|to the first\| +80 % of it\| +p\|", text)
    assert "|<0.0001|" in text


def test_a_number_of_which_nothing_says_whether_more_is_better_is_not_ranked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "metric_list: [{metric: x, aggregation: mean}]\n"
    write_tasks(tmp_path / "tasks", {"t": [{}] * 3}, more)
    folder = write_tasks(tmp_path / "tasks", {"u": [{}] * 3})
    scores = {"a": [1, 0, 1], "b": [1, 1, 0.5]}
    runs = [str(make_run(folder, tmp_path / name, {"t": own, "u": own})) for name, own in scores.items()]
    assert main(["leaderboard", *runs]) == 0
    printed = capsys.readouterr()
    assert "t: x" not in printed.out
    assert "u: x, higher is better" in printed.out
    assert "note: t: not ranked by x: its task does not say whether more is better (higher_is_better)" in printed.err
    assert main(["leaderboard", *runs, "--tasks", "t"]) == 2
    assert "does not say whether more is better" in capsys.readouterr().err


def test_a_run_without_the_number_is_named(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": [{}] * 3})
    scores = {"a": [1, 0, 1], "b": [1, 1, 0.5], "c": ["failed"] * 3}
    runs = [make_run(folder, tmp_path / name, {"t": own}) for name, own in scores.items()]
    board = leaderboard(runs)
    assert [standing.name for standing in board.rankings[0].standings] == ["b", "a"]
    assert "t: not ranked by x, for want of a number: c" in board.notes
