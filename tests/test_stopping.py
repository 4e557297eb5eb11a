"""`--stop_when`: a run ends when its rule has decided, counts documents in a random order and no other, and says why it ended."""

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay import simple_evaluate
from assay.cli import main
from assay.errors import AssayError
from assay.models import Scripted
from assay.runs.run import Run
from assay.statistics.sequences import SequentialTest, spent_at
from compared_world import write_tasks as scored_tasks
from serving import Arrived, loopback

N = 400
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{n}}}}"
doc_to_target: "{{{{ 'yes' }}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 8}}
metric_list: [{{metric: exact_match}}]
{more}
"""


def write_tasks(folder: Path, sizes: Mapping[str, int], more: str = "", group: str = "", of_cluster: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        rows = [{"n": f"{name} {n}", **({"page": n // of_cluster} if of_cluster else {})} for n in range(size)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, more=more))
    if group:
        (folder / "group.yaml").write_text(group)
    return folder


class CountingModel(Scripted):
    """A model that answers right where `right` says so, and counts what it is asked."""

    def __init__(self, right: Callable[[str, int], bool], identity: str = "m") -> None:
        self.prompts: list[str] = []

        def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
            self.prompts.append(prompt)
            name, number = prompt.split()[-2:]
            return "yes" if right(name, int(number)) else "no"

        super().__init__(generate=answer, identity=identity)


def run(model: Scripted, folder: Path, tasks: Sequence[str] = ("t",), **options: Any) -> dict[str, Any]:
    return simple_evaluate(
        model, tasks=list(tasks), include_path=str(folder), include_defaults=False, log_samples=False, **options
    )


def rule_of(results: Mapping[str, Any]) -> dict[str, Any]:
    return dict(results["assay"]["stop_when"])


# --- the statistics --------------------------------------------------------------------------------------------------


def test_the_capital_is_the_mean_of_all_bets_won_and_lost() -> None:
    """Worked out with Python's floats: a bet b multiplies the capital by 1 + b (score − threshold), and all bets begin alike."""
    test, scores = SequentialTest(0.3, (0.0, 1.0), documents=50), [1.0, 0.0, 0.5, 1.0]
    smallest, largest = 2 / (0.5 * 50**0.5), 0.95 / 0.3
    bets = [smallest * (largest / smallest) ** (k / 11) for k in range(12)]
    for score in scores:
        test.add(score)
    won = [np.prod([1 + bet * (score - 0.3) for score in scores]) for bet in bets]
    assert test.capital("pass") == pytest.approx(np.mean(won), rel=1e-12)


def test_a_test_of_mirrored_scores_decides_the_opposite_at_the_same_document() -> None:
    draw = random.Random(7)
    scores = [float(draw.random() < 0.75) for _ in range(200)]
    test, mirrored = SequentialTest(0.5, (0.0, 1.0), 200), SequentialTest(0.5, (0.0, 1.0), 200)
    decisions = [test.add(score) for score in scores]
    assert [mirrored.add(1 - score) for score in scores] == [
        {"pass": "fail", "inconclusive": "inconclusive"}[decision] for decision in decisions
    ]
    assert 5 < decisions.index("pass") < 100


def test_at_the_threshold_a_test_that_is_looked_at_always_is_wrong_in_at_most_1_of_20_runs() -> None:
    """Ville's inequality, at 2,000 runs: 0.05 + 3 √(0.05 · 0.95/2000) = 0.065."""
    random = np.random.default_rng(7)
    for threshold, draw in (
        (-0.01, lambda: random.choice([1.0, 0.0, -1.0], p=[0.095, 0.8, 0.105], size=2000)),
        (0.9, lambda: (random.random(2000) < 0.9) * 1.0),
        (0.5, lambda: random.random(2000)),
    ):
        test = SequentialTest(threshold, (-1.0, 1.0) if threshold < 0 else (0.0, 1.0), documents=300)
        wrong = {"pass": np.zeros(2000, bool), "fail": np.zeros(2000, bool)}
        for _ in range(300):
            test.count(draw())
            for claim, ever in wrong.items():
                ever |= test.capital(claim) >= 20
        assert max(ever.mean() for ever in wrong.values()) < 0.065


def test_the_interval_leaves_out_the_threshold_just_when_it_is_decided() -> None:
    test, random = SequentialTest(0.6, (0.0, 1.0), documents=200), np.random.default_rng(3)
    decision, low, high = "inconclusive", 0.0, 1.0
    while decision == "inconclusive":
        assert low <= 0.6 <= high
        decision = test.add(float(random.random() < 0.8))
        low, high = test.interval()
    assert (decision, low > 0.6, high > 0.8) == ("pass", True, True)


def test_a_document_without_a_score_speaks_for_neither_side() -> None:
    test = SequentialTest(0.5, (0.0, 1.0), documents=100)
    for _ in range(100):
        assert test.add(0.0, 1.0) == "inconclusive"
    assert max(test.capital("pass"), test.capital("fail")) < 1


def test_alpha_is_spent_over_a_series_without_an_end() -> None:
    """Σ 1/(n(n + 1)) = 1 − 1/(n + 1)."""
    assert sum(spent_at(number, 0.05) for number in range(1, 1001)) == pytest.approx(0.05 * (1 - 1 / 1001))
    with pytest.raises(ValueError, match="the first is 1, got 0"):
        spent_at(0)


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_stops_when_its_bar_is_passed_or_failed(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": 2000})
    for bar, expected in ((0.5, "pass"), (0.95, "fail")):
        model = CountingModel(lambda name, n: n % 4 > 0)  # 0.75
        results = run(model, folder, stop_when=f"exact_match > {bar}", output_path=str(tmp_path / expected))
        rule = rule_of(results)
        assert (rule["decision"], rule["of"], results["assay"]["status"]) == (expected, 2000, "partial")
        assert (
            results["assay"]["ended"]
            == f"stop_when: exact_match > {bar}: {expected} after {rule['documents']} of 2000 documents"
        )
        assert rule["documents"] < 400 and len(model.prompts) < 600  # as many as are asked at a time may be too many
        assert results["n-samples"]["t"]["effective"] == rule["documents"]
        assert results["assay"]["tasks"]["t"]["not_asked"] == 2000 - rule["documents"]
        low, high = rule["interval"]
        assert low < 0.75 < high and not low <= bar <= high


def test_the_order_is_random_and_the_same_every_time(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": N})
    orders = []
    for _ in range(2):
        model = CountingModel(lambda name, n: True)
        run(model, folder, stop_when="exact_match > 0.999")
        orders.append(model.prompts)
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0], key=lambda prompt: int(prompt.split()[-1]))


def test_an_undecided_run_is_complete_and_inconclusive(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": 40})
    results = run(CountingModel(lambda name, n: n % 2 > 0), folder, stop_when="exact_match > 0.5")
    assert (rule_of(results)["decision"], results["assay"]["status"]) == ("inconclusive", "complete")
    assert results["results"]["t"]["exact_match,none"] == 0.5


def test_a_difference_is_that_to_the_same_documents_of_the_other_run(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": 1000})
    main_run = tmp_path / "main"
    run(CountingModel(lambda name, n: n % 2 > 0), folder, output_path=str(main_run))
    for rule, right, expected in (
        ("exact_match > -5pp", lambda name, n: n % 2 > 0 or n % 10 == 0, "pass"),  # +10pp
        ("exact_match > -5pp", lambda name, n: n % 2 > 0 and n % 10 != 1, "inconclusive"),  # -10pp
        ("exact_match > -2% rel", lambda name, n: n % 2 > 0 or n % 5 == 0, "pass"),
        ("exact_match < 1pp", lambda name, n: n % 2 > 0 and n % 4 > 1, "pass"),  # -25pp
    ):
        results = run(CountingModel(right, identity=rule), folder, stop_when=f"{rule} vs {main_run}")
        outcome = rule_of(results)
        assert outcome["decision"] == ("fail" if expected == "inconclusive" else expected), rule
        assert outcome["documents"] < 1000


def test_failed_documents_count_at_their_worst(tmp_path: Path) -> None:
    """Half of the documents fail, the others are right: between 0.5 and 1, neither above 0.6 nor below."""
    folder = write_tasks(tmp_path / "tasks", {"t": N})

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        if int(prompt.split()[-1]) % 2:
            raise RuntimeError("broken")
        return "yes"

    for bar, expected in ((0.6, "inconclusive"), (0.3, "pass")):
        rule = rule_of(run(Scripted(generate=answer), folder, stop_when=f"exact_match > {bar}"))
        assert (rule["decision"], rule["failed"] > 0) == (expected, True)
    assert (
        rule_of(run(Scripted(generate=answer), folder, stop_when="exact_match > 0.999"))["decision"] == "inconclusive"
    )


def test_clusters_and_groups_are_drawn_and_weighted_as_in_their_numbers(tmp_path: Path) -> None:
    """The small task is all right and the large one all wrong: by size 0.2, each alike 0.5."""
    for by_size, rule, expected in (("true", "exact_match < 0.35", "pass"), ("false", "exact_match < 0.35", "fail")):
        group = f"group: g\ntask: [t, u]\naggregate_metric_list: [{{metric: exact_match, weight_by_size: {by_size}}}]\n"
        folder = write_tasks(tmp_path / by_size, {"t": 200, "u": 800}, group=group)
        results = run(CountingModel(lambda name, n: name == "t"), folder, ["g"], stop_when=rule)
        assert (rule_of(results)["decision"], rule_of(results)["of"]) == (expected, 1000)
        assert (
            results["n-samples"]["t"]["effective"] + results["n-samples"]["u"]["effective"]
            == rule_of(results)["documents"]
        )
    folder = write_tasks(tmp_path / "pages", {"t": 600}, more="cluster_by: page", of_cluster=6)
    model = CountingModel(lambda name, n: n // 6 % 5 > 0)  # whole pages are right or wrong: 0.8
    rule = rule_of(run(model, folder, stop_when="t/exact_match > 0.5"))
    pages = [int(prompt.split()[-1]) // 6 for prompt in model.prompts[:60]]
    assert pages == [page for page in dict.fromkeys(pages) for _ in range(6)]
    assert (rule["decision"], rule["documents"] % 6) == ("pass", 0)
    assert rule["documents"] >= 6 * 12  # 12 pages that agree are needed, not 12 documents


def test_scores_of_user_code_need_declared_bounds(tmp_path: Path) -> None:
    more = "metric_list: [{metric: x, aggregation: mean, higher_is_better: true, bounds: [0, 4]}]\n"
    folder = scored_tasks(tmp_path / "tasks", {"t": [{}] * N}, more)
    rule = rule_of(
        run(Scripted(generate=lambda prompt, *_: str(1 + int(prompt.split()[-1]) % 3)), folder, stop_when="x > 1")
    )
    assert (rule["decision"], rule["interval"][0] > 1, rule["documents"] < N / 2) == ("pass", True, True)
    with pytest.raises(AssayError, match="has a score of 7, which is not between 0 and 4 — correct the bounds"):
        run(Scripted(generate=lambda *_: "7"), folder, stop_when="x > 1")


def test_limit_sample_and_repeats_work(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": N})
    for options in (
        {"limit": 100},
        {"sample": 100},
        {"limit": 100, "repeats": 3, "gen_kwargs": "temperature=1,do_sample=true"},
    ):
        model = CountingModel(lambda name, n: n % 10 > 0)
        rule = rule_of(run(model, folder, stop_when="exact_match > 0.4", **options))
        assert (rule["decision"], rule["of"]) == ("pass", 100)


@pytest.mark.parametrize(
    ("rule", "options", "expected"),
    [
        ("exact_match 0.5", {}, "invalid gate 'exact_match 0.5' — write it as 'acc > -1pp vs runs/main'"),
        ("exact_math > 0.5", {}, "no metric named 'exact_math' — did you mean 'exact_match'"),
        ("tt/exact_match > 0.5", {}, "no task or group named 'tt' has 'exact_match' — did you mean 't'"),
        ("exact_match > 5pp", {}, "has the unit 'pp' of a difference, and names no run — add 'vs RUN'"),
        ("exact_match > 5% vs {tmp}/main", {}, "does not say of what it is a percentage"),
        ("exact_match > 1.5", {}, "decided before any document: the number is always from 0 to 1"),
        ("exact_match > 0.5 vs {tmp}/none", {}, "none"),
        ("exact_match > 2 vs {tmp}/main", {}, "decided before any document: the difference is always from -1 to 1"),
        ("exact_match,strict > 0.5", {}, "no metric named 'exact_match,strict'"),
        (
            "exact_match > 0.5",
            {"tasks": ["t", "u"]},
            "several tasks and no group above all: t, u — name a task or group",
        ),
        ("t/exact_match > 0.5", {"tasks": ["t", "u"]}, "it would stop u as well"),
        (
            "exact_mach > 0.5",
            {"tasks": ["g"]},
            "no metric named 'exact_mach' — did you mean 'exact_match'?",
        ),
        ("exact_match > 0.5", {"shard": "1/2"}, "a shard cannot decide for all documents"),
        ("exact_match > 0.5", {"predict_only": True}, "nothing to decide — leave out --predict_only"),
        ("u/exact_match > -1pp vs {tmp}/main", {"tasks": ["u"]}, "main has no task or group 'u'"),
        ("exact_match > -1pp vs {tmp}/main", {"num_fewshot": 1}, "other prompts: --num_fewshot is not the same"),
        ("exact_match > -1pp vs {tmp}/short", {}, "has only the documents of --limit 10"),
        ("exact_match > -1pp vs {tmp}/other", {}, "task 't' has other documents or settings in"),
        ("perplexity > 1", {"tasks": ["p"]}, "is not a mean over documents but perplexity"),
        ("x > 1", {"tasks": ["s"]}, "the scores of 'x,none' of task 's' have no bounds — declare them in metric_list"),
        ("exact_match > 0.5 vs {tmp}/stopped", {}, "stopped is partial — resume it, or name one that is complete"),
    ],
)
def test_a_rule_that_cannot_be_decided_is_refused_before_any_request(
    worlds: Path, rule: str, options: dict[str, Any], expected: str
) -> None:
    model = CountingModel(lambda name, n: True)
    with pytest.raises(AssayError) as refused:
        run(model, worlds / "tasks", **{"tasks": ["t"], **options}, stop_when=rule.format(tmp=worlds))
    assert expected in str(refused.value)
    assert not model.prompts


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks t and u; a run of t, one of its first 10 documents, and one of another t."""
    tmp = tmp_path_factory.mktemp("stopping")
    folder = write_tasks(tmp / "tasks", {"t": 30, "u": 30})
    (folder / "p.yaml").write_text(TASK.format(name="t", more="").replace("task: t", "task: p").replace(
        "metric: exact_match", "metric: perplexity").replace("output_type: generate_until", "output_type: loglikelihood"))  # fmt: skip
    (folder / "g.yaml").write_text("group: g\ntask: [t, u]\naggregate_metric_list: [{metric: exact_match}]\n")
    scored_tasks(folder, {"s": [{}] * 5})
    other = write_tasks(tmp / "other_tasks", {"t": 31})
    run(CountingModel(lambda name, n: True), folder, output_path=str(tmp / "stopped"), stop_when="exact_match > 0.5")
    for name, where, options in (("main", folder, {}), ("short", folder, {"limit": 10}), ("other", other, {})):
        run(CountingModel(lambda name, n: True), where, output_path=str(tmp / name), **options)
    return tmp


def test_the_example_of_the_documents_gives_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent / "docs/running.md").read_text(encoding="utf-8")
    [words] = re.findall(r"^    assay (run .*--stop_when.*)$", page, re.MULTILINE)
    [shown] = re.findall(r"^    (stop_when: .*)$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(words)) == 0
    assert shown in capsys.readouterr().err


# --- servers, kills, the command ------------------------------------------------------------------------------------


def server_answer(slow: float) -> Callable[[Arrived], Any]:
    """Right for every second document at once, wrong for the others after a while."""

    def answer(arrived: Arrived) -> Any:
        if arrived.method == "GET":
            return {"data": [{"id": "m"}]}
        number = int((re.findall(r"\d+", json.loads(arrived.body)["prompt"]) or [0])[-1])  # a probe has none
        if number % 2:
            time.sleep(slow)
        return {"model": "m", "choices": [{"index": 0, "text": "no" if number % 2 else "yes", "finish_reason": "stop"}]}

    return answer


def asked(log: Sequence[Arrived]) -> int:
    return sum(b'"prompt":"t ' in each.body for each in log)


def command(folder: Path, url: str, *more: str) -> list[str]:
    return ["run", "--tasks", "t", "--include_path", str(folder), "--no_defaults", "--model", "openai",
            "--model_args", f"model=m,base_url={url},num_concurrent=32", *more]  # fmt: skip


def test_answers_that_land_first_do_not_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half are right, and land at once; the wrong ones take 0.2 s. By the order of arrival, 0.5 would pass a bar of 0.7."""
    folder = write_tasks(tmp_path / "tasks", {"t": N})
    with loopback(server_answer(0.2)) as (url, log):
        out = tmp_path / "run"
        code = main(command(folder, url, "--output_path", str(out), "--stop_when", "exact_match > 0.7"))
        posted = asked(log)
        shown = capsys.readouterr()
        rule = Run.open(out).results.stop_when
        assert (code, rule["decision"]) == (1, "fail")
        assert rule["documents"] < posted < N / 2
        usage = Run.open(out).usage
        assert (
            usage["requests"] < posted <= usage["requests"] + usage["unanswered"]
        )  # some were canceled before they were sent
        assert usage["at_least"] and f"at least {usage['requests']} answered" in shown.err
        assert f"stop_when: exact_match > 0.7: FAIL after {rule['documents']} of {N} documents" in shown.err
        assert "Traceback" not in shown.err and "never retrieved" not in shown.err
        assert main(["report", str(out), "--format", "md"]) == 0
        assert f"FAIL after {rule['documents']} of {N} documents" in capsys.readouterr().out
        # again: nothing is asked, and the decision is shown
        assert main(command(folder, url, "--output_path", str(out), "--stop_when", "exact_match > 0.7")) == 1
        assert asked(log) == posted
        assert "decided before" in capsys.readouterr().err
        # damaged results are worked out again, from the answers that are stored
        (out / "results.json").write_text((out / "results.json").read_text()[:200])
        assert main(command(folder, url, "--output_path", str(out), "--stop_when", "exact_match > 0.7")) == 1
        assert (asked(log), Run.open(out).results.stop_when) == (posted, rule)
        # without the rule: the rest is asked, and what was answered is not
        assert main(command(folder, url, "--output_path", str(out))) == 0
        assert N <= asked(log) <= N + 32  # those in flight were dropped
        assert Run.open(out).usage["at_least"]
    whole = Run.open(out)
    assert (whole.status, whole.results.tasks["t"].documents, bool(whole.results.stop_when)) == ("complete", N, False)
    assert whole.rows("t")[next(iter(whole.rows("t")))].estimate.value == 0.5


def test_a_killed_run_resumes_to_the_same_decision(tmp_path: Path) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": N})
    decided = []
    for name in ("whole", "killed"):
        out = tmp_path / name
        with loopback(server_answer(0.03)) as (url, log):
            words = command(folder, url, "--output_path", str(out), "--stop_when", "exact_match < 0.65")
            if name == "killed":
                process = subprocess.Popen([sys.executable, "-m", "assay", *words], stderr=subprocess.DEVNULL)
                while asked(log) < 40:
                    time.sleep(0.01)
                    assert process.poll() is None
                process.send_signal(signal.SIGKILL)
                process.wait()
                assert not Run.open(out).has_finished
            assert main(words) == 0
            rule, usage = Run.open(out).results.stop_when, Run.open(out).usage
            answered = {
                line["k"] for line in map(json.loads, (out / "responses.jsonl").read_text().splitlines()) if "u" in line
            }
            assert usage["requests"] == len(answered)  # also those that the rule did not need
            assert name == "whole" or usage["at_least"]
            decided.append({key: rule[key] for key in ("decision", "documents", "value", "interval")})
    assert decided[0] == decided[1]
    assert decided[0]["decision"] == "pass"


def test_a_limit_that_ends_the_run_first_leaves_it_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tasks(tmp_path / "tasks", {"t": N})
    with loopback(server_answer(0.1)) as (url, _):
        words = command(folder, url, "--stop_when", "exact_match > 0.5", "--max_time", "0.5", "--no_output")
        assert main(words) == 3
    shown = capsys.readouterr().err
    assert "exact_match > 0.5: INCONCLUSIVE after" in shown and "ended early: max_time" in shown
