"""`assay run` as a person uses it, and invalid arguments: each a clear error or a counted failure."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
import run_world
from assay.cli import main
from assay.errors import ConfigError
from assay.models import Scripted
from assay.report import progress
from assay.report.progress import Progress
from commands import Run
from run_world import failed_in, rows_of, start
from small_runs import generate, run, write_task

QUIZ = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: choices\ndoc_to_target: gold\n"
ROWS: list[dict[str, object]] = [{"q": f"q{n}", "choices": ["a", "b"], "gold": 0} for n in range(4)]


def choosing(values: Callable[[str], Any]) -> Scripted:
    """A model whose log-likelihood of the first choice depends on the question; of the second it is -2."""
    return Scripted(loglikelihood=lambda q, text: (values(q), True) if text == " a" else (-2.0, False))


@pytest.mark.parametrize(
    ("value", "said"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (None, "None")],
)
def test_a_nan_likelihood_is_a_failure_and_not_a_score(value: Any, said: str, tmp_path: Path) -> None:
    write_task(tmp_path, ROWS, QUIZ)
    results = run(tmp_path, choosing(lambda q: value if q == "q1" else -1.0))
    assert (results["results"]["t"]["acc,none"], results["results"]["t"]["sample_len"]) == (1.0, 3)
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert said in reason
    assert rows_of(results, "t")["acc,none"]["failure_bounds"] == [0.75, 1.0]


def test_minus_infinity_is_a_likelihood(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS, QUIZ)
    results = run(tmp_path, choosing(lambda q: float("-inf")))
    assert results["results"]["t"]["acc,none"] == 0.0
    assert failed_in(results) == 0


def test_no_text_is_a_failure(tmp_path: Path) -> None:
    write_task(
        tmp_path, [{"q": "0", "gold": "a"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    )
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: None))  # type: ignore[arg-type, return-value]
    assert results["assay"]["tasks"]["t"]["failed"] == 1
    assert "exact_match,none" not in results["results"]["t"]


@pytest.mark.slow
def test_an_answer_of_ten_megabytes_is_an_answer(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    results = generate(tmp_path, [long], [long], output_path=str(tmp_path / "run"))
    assert results["results"]["t"]["exact_match,none"] == 1.0


def test_a_right_answer_that_is_not_a_choice_is_a_failure(tmp_path: Path) -> None:
    write_task(
        tmp_path,
        [*ROWS, {"q": "q4", "choices": ["a", "b"], "gold": 2}, {"q": "q5", "choices": ["a", "b"], "gold": -1}],
        QUIZ,
    )
    results = run(tmp_path, choosing(lambda q: -1.0))
    assert (results["results"]["t"]["acc,none"], results["assay"]["tasks"]["t"]["failed"]) == (1.0, 2)
    assert any("none of the 2 choices" in reason for reason in results["assay"]["tasks"]["t"]["reasons"])


def test_a_row_that_lacks_what_the_template_needs_fails_alone(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"q": {"text": "0"}, "gold": "a"}, {"q": {}, "gold": "a"}]
    write_task(tmp_path, rows, "output_type: generate_until\ndoc_to_text: '{{q.text}}'\ndoc_to_target: gold\n")
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a"))
    assert results["results"]["t"]["exact_match,none"] == 1.0
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "text" in reason


@pytest.mark.parametrize(
    ("rows", "yaml", "said"),
    [
        ([], "doc_to_text: q\ndoc_to_target: gold\n", "empty"),
        ([{"q": "a"}], "doc_to_text: q\ndoc_to_target: '{{gold}}'\n", "gold"),
        ([{"q": "a"}], "doc_to_text: '{{question}}'\ndoc_to_target: q\n", "question"),
    ],
)
def test_unusable_data_is_reported_before_any_request(
    rows: list[dict[str, object]], yaml: str, said: str, tmp_path: Path
) -> None:
    write_task(tmp_path, rows, "output_type: generate_until\n" + yaml)
    asked: list[str] = []
    with pytest.raises(ConfigError, match=rf"(task 't'|t\.yaml:\d+:\d+: ).*{said}"):
        run(tmp_path, Scripted(generate=lambda prompt, params, repeat: asked.append(prompt) or "x"))
    assert asked == []


def test_a_task_without_its_data_does_not_stop_the_others(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS, QUIZ, "good")
    write_task(tmp_path, [], QUIZ, "empty")
    results = run(tmp_path, choosing(lambda q: -1.0), ["good", "empty"])
    assert results["results"]["good"]["acc,none"] == 1.0
    assert "empty" in results["assay"]["broken"]["empty"]
    assert results["assay"]["status"] == "incomplete"


def test_a_model_that_raises_fails_its_requests_and_not_the_run(tmp_path: Path) -> None:
    class Breaking(Scripted):
        async def answer(self, requests: Any) -> Any:
            async for piece in super().answer(requests[:2]):
                yield piece
            raise RuntimeError("out of memory")

    write_task(tmp_path, ROWS, QUIZ)
    results = run(tmp_path, Breaking(loglikelihood=lambda c, t: (-1.0, True)))
    where = f"test_run_command.py:{Breaking.answer.__code__.co_firstlineno + 3}"
    assert results["assay"]["tasks"]["t"]["reasons"] == {f"the model failed: RuntimeError: out of memory ({where})": 3}
    assert results["results"]["t"]["sample_len"] == 1


def test_a_prompt_longer_than_the_model_is_a_failure(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "2 + 3 =", "gold": "5"}, {"q": "word " * 3000, "gold": "5"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {until: ['\\n'], max_gen_toks: 5}\n")  # fmt: skip
    results = assay.simple_evaluate("embedded", tasks=["t"], include_path=str(tmp_path), include_defaults=False)
    [reason] = results["assay"]["tasks"]["t"]["reasons"]
    assert "exceed the model's context length of 1024" in reason
    assert results["results"]["t"]["sample_len"] == 1


def test_unsupported_requests_are_refused_before_the_run(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS, QUIZ)
    with pytest.raises(ConfigError, match=r"'t' needs a model that can give log-likelihoods"):
        run(tmp_path, Scripted(generate=lambda prompt, params, repeat: ""))


FIVE_TYPOS = """
    task: t
    dataset_path: json
    dataset_kwargs: {data_files: {test: t.jsonl}}
    test_splitt: test
    output_type: multiple_chioce
    doc_to_text: q
    doc_to_choice: choices
    doc_to_target: gold
    num_fewshot: three
    metric_list: [{metric: acc, agregation: mean}]
    filter_list: [{name: x, filter: [{function: take_frist}]}]
"""


def test_five_typos_are_reported_at_once_with_place_and_remedy(tmp_path: Path, run_assay: Run) -> None:
    from textwrap import dedent

    (tmp_path / "t.yaml").write_text(dedent(FIVE_TYPOS).lstrip())
    ended = run_assay("run", "--tasks", "./t.yaml", "--model", "dummy")
    assert ended.returncode == 2
    for place, remedy in (
        ("t.yaml:4:1", "test_split"),
        ("t.yaml:5:14", "multiple_choice"),
        ("t.yaml:9:14", "num"),
        ("t.yaml:10:29", "aggregation"),
        ("t.yaml:11:45", "take_first"),
    ):
        assert place in ended.stderr, ended.stderr
        assert remedy in ended.stderr
    assert "Traceback" not in ended.stderr


def test_terminal_escapes_of_a_task_are_shown_neutralised(tmp_path: Path, run_assay: Run) -> None:
    write_task(
        tmp_path,
        [{"q": "\x1b[31mred\x07", "gold": "\x1b]0;title\x07"}],
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n",
    )
    ended = run_assay("run", "--tasks", "t", "--include_path", tmp_path, "--model", "dummy", "--write_out")
    assert "\x1b" not in ended.stdout + ended.stderr
    assert "red" in ended.stdout


def test_a_dry_run_shows_what_would_be_asked_and_asks_nothing(tmp_path: Path, run_assay: Run) -> None:
    ended = run_assay("run", "--tasks", "first_steps_sums", "--limit", 2, "--dry_run", "-o", tmp_path / "out")
    assert ended.returncode == 0
    assert "763 + 32 = 795" in ended.stdout  # an example of the training split
    assert "target: '90'" in ended.stdout
    assert "2 requests" in ended.stdout
    assert not (tmp_path / "out").exists()


def test_options_come_from_a_file_and_flags_win(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "run.yaml").write_text("tasks: [first_steps_larger]\nmodel: dummy\nlimit: 7\noutput_path: out\n")
    assert run_assay("run", "--config", "run.yaml", "--limit", "3").returncode == 0
    loaded = run_world.results(tmp_path / "out")
    assert loaded["n-samples"] == {"first_steps_larger": {"original": 60, "effective": 3}}
    (tmp_path / "run.yaml").write_text("tasks: [first_steps_larger]\nlimti: 7\n")
    wrong = run_assay("run", "--config", "run.yaml")
    assert wrong.returncode == 2
    assert "limit" in wrong.stderr


def test_the_table_has_hierarchy_numbers_and_failures(run_assay: Run) -> None:
    ended = run_assay("run", "--tasks", "first_steps_arithmetic", "--limit", "4")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    header = next(line for line in lines if line.startswith("|Tasks"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "Tasks",
        "Version",
        "Filter",
        "n-shot",
        "Metric",
        "",
        "Value",
        "",
        "Stderr",
        "95 %",
        "n",
        "failed",
    ]
    assert any(line.startswith("|arithmetic") for line in lines)
    assert any(line.startswith("| - sums") and "|4|" in line.replace(" ", "") for line in lines)


def test_an_earlier_run_is_data_for_another(tmp_path: Path) -> None:
    write_task(
        tmp_path,
        [{"q": "1", "gold": "a"}, {"q": "2", "gold": "b"}],
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n",
    )
    run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a"), output_path=str(tmp_path / "first"))
    (tmp_path / "again.yaml").write_text(
        "task: again\ndataset_path: assay\ndataset_kwargs: {run: first}\ntest_split: t\noutput_type: generate_until\n"
        "doc_to_text: 'Is {{responses[0][0]}} right for {{q}}?'\ndoc_to_target: \"{{'yes' if scores['exact_match,none'] else 'no'}}\"\n"
    )
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "yes"), "again")
    assert results["results"]["again"]["exact_match,none"] == 0.5
    assert [sample["arguments"][0][0] for sample in results["samples"]["again"]] == [
        "Is a right for 1?",
        "Is a right for 2?",
    ]


def test_data_is_fetched_into_a_folder_that_runs_find(tmp_path: Path, run_assay: Run, run_assay_process: Run) -> None:
    """`datasets` loads a folder of the working directory as it loads a name of the hub."""
    (tmp_path / "things").mkdir()
    (tmp_path / "things/test.jsonl").write_text('{"q": "1", "gold": "a"}\n')
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/t.yaml").write_text(
        "task: t\ndataset_path: things\ntest_split: test\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    )
    known = ("--include_path", tmp_path / "tasks", "--no_defaults")
    variables = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    ended = run_assay_process("fetch", "t", *known, "--data_dir", "data", **variables)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "data/things/default/test.jsonl").read_text()) == {"q": "1", "gold": "a"}
    (tmp_path / "elsewhere").mkdir()
    again = run_assay(
        "run", "--tasks", "t", *known, "--data_dir", tmp_path / "data", "--model", "dummy", cwd=tmp_path / "elsewhere"
    )
    assert again.returncode == 0, again.stderr


@pytest.mark.slow  # asks the hub, which retries without a network
def test_a_hub_task_without_network_or_folder_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "t.yaml").write_text(
        "task: t\ndataset_path: none/nothing\ntest_split: test\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: q\n"
    )
    with pytest.raises(ConfigError, match="data_dir"):
        run(tmp_path, Scripted(generate=lambda prompt, params, repeat: ""))


def test_the_folder_for_data_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data/none/nothing/default"
    folder.mkdir(parents=True)
    (folder / "test.csv").write_text("q,gold\nx,a\n")
    (tmp_path / "t.yaml").write_text(
        "task: t\ndataset_path: none/nothing\ntest_split: test\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    )
    monkeypatch.setenv("ASSAY_DATA_DIR", str(tmp_path / "data"))
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: "a"))
    assert results["results"]["t"]["exact_match,none"] == 1.0


def test_a_log_gets_one_line_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(tmp_path, ROWS, QUIZ)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    collected: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", collected.append)
    from assay.evaluation.flow import execute, prepare_run
    from assay.evaluation.options import run_config, task_manager

    config = run_config({"tasks": ["t"], "include_path": str(tmp_path), "include_defaults": False})
    prepared = prepare_run(config, task_manager(config), choosing(lambda q: time.sleep(0.001) or -1.0))
    with Progress() as watch:
        execute(prepared, watch)
    assert collected
    assert "of 4 documents" in collected[-1] and "requests/s" in collected[-1]


def test_templates_are_compiled_once(tmp_path: Path) -> None:
    from assay.samples.prompt import template

    write_task(tmp_path, ROWS * 50, QUIZ.replace("doc_to_text: q", "doc_to_text: 'Q: {{q}} {# only here #}'"))
    before = template.cache_info().misses
    run(tmp_path, choosing(lambda q: -1.0))
    assert template.cache_info().misses - before <= 3


def test_evaluate_takes_tasks_that_were_loaded() -> None:
    loaded = assay.TaskManager().load(["first_steps_larger"])
    results = assay.evaluate(Scripted(loglikelihood=lambda c, t: (-len(t), False)), loaded, limit=5)
    assert results["n-samples"]["first_steps_larger"]["effective"] == 5


def test_an_invalid_command_line_is_reported_without_a_traceback(tmp_path: Path, run_assay: Run) -> None:
    write_task(tmp_path, ROWS, QUIZ)
    (tmp_path / "g.yaml").write_text("group: empty\ntask: []\n")
    known = ("run", "--include_path", tmp_path, "--model", "dummy", "--tasks")
    for arguments, said in (
        (("t", "--limit", "nan"), "limit"),
        (("t", "--max_failed", "7"), "max_failed"),
        (("t", "--data_dir", "nowhere"), "no folder nowhere"),
        (("t", "--model", "openai"), "needs the argument 'model'"),
        (("empty",), "no task"),
    ):
        ended = run_assay(*known, *arguments)
        assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended.stderr
        assert said in ended.stderr


def test_answers_alone_may_be_asked_for_of_a_group(tmp_path: Path, run_assay: Run) -> None:
    ended = run_assay("run", "--tasks", "first_steps", "--limit", 1, "--predict_only", "--model", "dummy", "-o", "out")
    assert ended.returncode == 0, ended.stderr
    assert "999" not in ended.stdout
    assert (tmp_path / "out/samples/first_steps_sums.parquet").exists()


def test_helper_code_that_wants_to_end_everything_fails_its_document(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("def score(doc, results):\n    raise SystemExit(3)\n")
    write_task(tmp_path, ROWS, QUIZ + "process_results: !function utils.score\nmetric_list: [{metric: acc}]\n")
    results = run(tmp_path, choosing(lambda q: -1.0))
    assert results["assay"]["tasks"]["t"]["reasons"] == {
        "scoring: process_results of filter 'none': SystemExit: 3 (utils.py:2)": 4
    }


def until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def cpu_ticks(pid: int) -> int:
    """CPU time of a process, in hundredths of a second."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def test_a_pattern_without_end_is_stopped_and_ctrl_c_gets_through(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "x", "gold": "a"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nfilter_list: [{name: c, filter: [{function: regex, regex_pattern: '(a+)+$'}]}]\n")  # fmt: skip
    code = (
        "import assay; from assay.models import Scripted; from pathlib import Path\n"
        "model = Scripted(generate=lambda p, k, r: Path('answered').touch() or 'a' * 40 + 'b')\n"
        f"assay.simple_evaluate(model, tasks=['t'], include_path={str(tmp_path)!r}, include_defaults=False)\n"
    )
    process = start("-c", code, cwd=tmp_path)
    until(lambda: (tmp_path / "answered").exists(), process)
    answered = cpu_ticks(process.pid)
    until(lambda: cpu_ticks(process.pid) > answered + 50, process)  # half a second of work since: that is the pattern
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=20)[1]
    assert "KeyboardInterrupt" in said


def test_perplexities_have_intervals_above_nothing(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": f"q{n}", "gold": "a"} for n in range(5)], "output_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: ' {{gold}}'\n")  # fmt: skip
    model = Scripted(loglikelihood=lambda q, text: (-(float(q[1]) ** 2), True))
    row = rows_of(run(tmp_path, model), "t")["perplexity,none"]
    assert 0 < row["interval"][0] < row["value"] < row["interval"][1]


@pytest.mark.parametrize("first", [["--model", "dummy"], ["--limit", "1", "--model=dummy"]])
def test_lm_evals_command_without_a_word_runs(first: list[str], tmp_path: Path) -> None:
    """`lm_eval --model … --tasks …`, with the name of the program alone changed."""
    task = ["--tasks", "first_steps_sums", "--limit", "1", "--output_path", str(tmp_path / "out")]
    assert main([*first, *task]) == 0
    assert run_world.results(tmp_path / "out")["results"]["first_steps_sums"]["sample_len"] == 1
    assert main(["--limit", "1"]) == 2  # no tasks
