"""Tables on a terminal: no line is wider than it, nothing that matters is left out; piped, they are what they were."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import simple_evaluate
from assay.cli import COMMANDS, main
from assay.cli.output import break_line
from assay.models import Scripted
from assay.report.report_table import make_table
from assay.report.table import results_table
from assay.report.terminal import wrap, write_terminal
from terminal_world import STYLE, cells, on_terminal, widest
from test_label_command import evaluated, filled

LONG = "a_task_with_a_name_that_is_much_longer_than_most_terminals_would_like_it_to_be"
TWIN = LONG.replace("most", "many")
"""A name that differs from the other in the middle alone."""
JAPANESE = "日本語の長い名前のグループで、端末の幅を超えるもの😀"
METRIC = "a_metric_whose_name_is_nearly_as_long_as_that"
WIDTHS = (40, 60, 80, 100, 120, 200)
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: a
filter_list: [{{name: {filter}, filter: [{{function: take_first}}]}}, {{name: lower, filter: [{{function: lowercase}}, {{function: take_first}}]}}]
metric_list: [{{metric: exact_match}}, {{metric: !function scores.{metric}, aggregation: mean, higher_is_better: false}}]
"""
FILTER = "a_filter_that_is_named_by_a_sentence"
SCORES = f"def {METRIC}(references, predictions, **more):\n    return 0.5\n"
GROUP = """
group: everything
group_alias: {alias}
task: [{tasks}]
aggregate_metric_list: [{{metric: exact_match, aggregation: mean}}]
"""
DOCUMENTS = 12


def write_world(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "scores.py").write_text(SCORES)
    rows = "".join(json.dumps({"q": f"{n}?", "a": "yes" if n % 3 else "no"}) + "\n" for n in range(DOCUMENTS))
    (folder / "rows.jsonl").write_text(rows)
    for name in (LONG, TWIN):
        (folder / f"{name[:40]}_{len(list(folder.iterdir()))}.yaml").write_text(
            TASK.format(name=name, data=folder / "rows.jsonl", metric=METRIC, filter=FILTER)
        )
    (folder / "group.yaml").write_text(GROUP.format(alias=JAPANESE, tasks=f"{LONG}, {TWIN}"))
    return folder


def evaluate(world: Path, output: Path, answer: str, **options: Any) -> Path:
    def say(prompt: str, params: Mapping[str, object], repeat: int) -> str:
        if options.get("failing") and prompt == "3?":
            raise TimeoutError("no answer")
        return answer

    simple_evaluate(
        Scripted(generate=say, identity=answer), tasks=["everything"], include_path=str(world), include_defaults=False,
        output_path=str(output), limit=options.get("limit"), shard=options.get("shard"),
    )  # fmt: skip
    return output


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of tasks with long names, two shards, a cache, and a judged run with labels."""
    folder = tmp_path_factory.mktemp("world")
    tasks = write_world(folder / "tasks")
    evaluate(tasks, folder / "runs" / f"first_{LONG}", "yes", failing=True)
    evaluate(tasks, folder / "runs" / f"second_{LONG}", "no")
    (folder / "judged").mkdir()
    judged = evaluated(folder / "judged")
    assert main(["label", str(judged), "-o", str(folder / "labels.csv"), "-n", "20"]) == 0
    filled(folder / "labels.csv", lambda row: int("right" in row["answer"]))
    arguments = ["--tasks", LONG, "--include_path", str(tasks), "--no_defaults", "--model", "dummy"]
    for part in ("1/2", "2/2"):
        assert main(["run", *arguments, "--shard", part, "-o", str(folder / f"part{part[0]}")]) in (0, 1, 3)
    assert main(["run", *arguments, "--no_output", "--use_cache", str(folder / "cache")]) == 0
    assert main(["export", str(folder / "runs" / f"first_{LONG}"), "--to", "lm-eval", "-o", str(folder / "lm")]) == 0
    return folder


def commands(world: Path, out: Path) -> dict[str, list[object]]:
    """Every command that prints a table."""
    first, second = (world / "runs" / f"{each}_{LONG}" for each in ("first", "second"))
    catalog = ["--include_path", world / "tasks", "--no_defaults"]
    return {
        "run": ["run", "--model", "dummy", "--tasks", "everything", *catalog, "--no_output"],
        "runs show": ["runs", "show", first],
        "runs list": ["runs", "list", "--runs_dir", world / "runs"],
        "score": [
            "score",
            first,
            "--metric",
            "exact_match:ignore_case=true",
            "--filter",
            "other=lowercase",
            "-o",
            out / "scored",
            *catalog,
        ],
        "merge": ["merge", out / "merged", world / "part1", world / "part2", "--include_path", world / "tasks"],
        "import": ["import", world / "lm", "-o", out / "imported"],
        "compare": ["compare", first, second],
        "leaderboard": ["leaderboard", first, second],
        "plan from tasks": ["plan", LONG, TWIN, "--mde", "5pp", "--metric", "exact_match", *catalog],
        "plan from a run": ["plan", "--mde", "5pp", "--baseline", first],
        "label": ["label", world / "judged/run", "-o", out / "labels.csv"],
        "label import": ["label", world / "judged/run", "--import", world / "labels.csv", "--card"],
        "ls": ["ls", *catalog],
        "ls metrics": ["ls", "metrics"],
        "ls models": ["ls", "models"],
        "ls runs": ["ls", "runs", "--runs_dir", world / "runs"],
        "cache": ["cache", "ls", world / "cache"],
        "show": ["show", LONG, *catalog],
    }


WHOLE = ("run: /", "scored: /", "all of them: /", "/", "files below /")
"""Lines with paths, which stay whole so that they can be copied."""


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_of_any_table_is_wider_than_the_terminal(columns: int, world: Path, tmp_path: Path) -> None:
    for name, arguments in commands(world, tmp_path).items():
        code, text = on_terminal(arguments, columns)
        lines = [line for line in text.splitlines() if not line.startswith(WHOLE)]
        assert code in (0, 1), (name, text)
        assert len(lines) > 1, name
        assert widest("\n".join(lines)) <= columns, (name, text)


def plain(text: str) -> str:
    return STYLE.sub("", text)


def first_run(world: Path) -> Path:
    return world / "runs" / f"first_{LONG}"


def test_columns_are_left_out_in_order_and_failures_never(world: Path) -> None:
    """Of 12 documents of each task one failed: 1 failed, which makes the number incomplete."""
    heads = {}
    for columns in (80, 300):
        _, text = on_terminal(["runs", "show", first_run(world)], columns)
        head = next(line for line in plain(text).splitlines() if line.startswith("Tasks"))
        heads[columns] = [name for name in re.split(r" {2,}", head) if name]
        assert "1*" in text
    assert heads[80] == ["Tasks", "Filter", "Metric", "Value", "95 %", "n", "failed"]
    everything = ["Tasks", "Version", "Filter", "n-shot", "Metric", "Value", "Stderr", "95 %", "n", "failed"]
    assert heads[300] == everything
    _, text = on_terminal(["runs", "show", first_run(world), "--wide"], 80)
    assert widest(text) > 100
    assert [name for name in re.split(r" {2,}", plain(text).splitlines()[1]) if name] == everything
    assert "left out" not in text


def test_names_that_differ_in_the_middle_stay_apart_at_any_width(world: Path) -> None:
    for columns in WIDTHS:
        _, text = on_terminal(["runs", "show", first_run(world)], columns)
        letters = (
            re.sub(r"[^a-z]", "", "".join(line[:12] for line in plain(text).splitlines())) if columns == 60 else ""
        )
        whole = re.sub(r"\s", "", plain(text))
        assert ("most" in whole and "many" in whole) or "most" in letters


def test_group_rows_are_there_once_on_a_terminal_and_twice_when_piped(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = on_terminal(["runs", "show", first_run(world)], 300)
    assert text.count(JAPANESE) == 1
    assert f"\x1b[1m{JAPANESE}\x1b[0m" in text
    assert main(["runs", "show", str(first_run(world))]) == 0
    piped = capsys.readouterr().out
    assert piped.count(JAPANESE) == 2 and piped.splitlines()[1].startswith("|Tasks ") and "\x1b" not in piped
    assert on_terminal(["runs", "show", first_run(world), "--format", "md"], 60) == (0, piped)


def test_colours_are_left_out_where_that_is_asked_for(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["compare", first_run(world), world / "runs" / f"second_{LONG}"]
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1mTasks" in on_terminal(arguments)[1]
    for flags, variables in (
        (["--no_color"], {}),
        (["--no-color"], {}),
        ([], {"NO_COLOR": "1"}),
        ([], {"TERM": "dumb"}),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code, text = on_terminal([*arguments, *flags])
            assert code == 0 and "\x1b" not in text and widest(text) <= 80


def test_worse_is_red_and_better_green(tmp_path: Path) -> None:
    from compared_world import two_runs

    a, b = two_runs(tmp_path, [1] * 60 + [0] * 40, [1] * 90 + [0] * 10)
    assert "\x1b[32mbetter\x1b[0m" in on_terminal(["compare", a, b])[1]
    assert "\x1b[31mworse\x1b[0m" in on_terminal(["compare", b, a])[1]


def test_a_perplexity_keeps_its_factor_and_the_ends_of_its_interval() -> None:
    from assay.results import Estimate, Results, Row, TaskEntry

    number = Estimate(198.66, 379.8, 9, interval=(2.47, 9300.748), method="student-log")
    task = TaskEntry("t", "t", [Row("t", "word_perplexity", "none", number)], documents=9)
    lines, left_out = write_terminal(results_table(Results({"t": task}), is_fitted=True), 100)
    assert re.split(r" {2,}", lines[1].strip())[3:] == [
        "word_perplexity",
        "198.6600",
        "×/÷ 6.77",
        "2.47 … 9300",
        "9",
        "0",
    ]
    assert not left_out


def test_the_width_is_that_of_columns_then_of_the_terminal_then_80(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["runs", "show", first_run(world)]
    assert 80 < widest(on_terminal(arguments, 120)[1]) <= 120
    assert widest(on_terminal(arguments, 0)[1]) <= 80
    for chosen, most in (("60", 60), ("x", 120), ("0", 120)):
        monkeypatch.setenv("COLUMNS", chosen)
        assert widest(on_terminal(arguments, 120)[1]) <= most


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        (" - first_steps_graph_classes", 16, [" - first_steps_", "   graph_classes"]),
        ("日本語の名前", 5, ["日本", "語の", "名前"]),
        ("org/model-7b", 10, ["org/model-", "7b"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("", 4, [""]),
    ],
)
def test_long_cells_are_wrapped_and_lose_nothing(text: str, width: int, lines: Sequence[str]) -> None:
    assert wrap(text, width) == lines
    assert max(map(cells, lines)) <= width


def test_numbers_among_words_and_words_that_fit_are_not_broken() -> None:
    """Where one row has words in place of an interval, too. Words fit from 59 cells on: 15 + 12 + 16 + 10 and three gaps."""
    rows = [
        ("  - differences", "exact_match (flexible)\N{NO-BREAK SPACE}↑", "+0.0017 [-0.016,\N{NO-BREAK SPACE}+0.011]", "same answers"),
        ("  - stories", "word_perplexity\N{NO-BREAK SPACE}↓", "+0.0000 no document differs", "unclear"),
    ]  # fmt: skip
    table = make_table(("Tasks", "Metric", "b − a [95 %]", "b is"), rows)
    for width in (*range(59, 100), 46):
        lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in write_terminal(table, width)[0]]
        assert max(map(cells, lines)) <= width
        for number in ("+0.0017", "-0.016,", "+0.011]", "+0.0000"):
            assert any(number in line for line in lines), (width, lines)
        if width >= 59:
            assert any("[-0.016, +0.011]" in line for line in lines), (width, lines)
            assert all(any(word in line for line in lines) for word in ("differences", "stories", "answers", "unclear"))


def test_a_number_with_an_exponent_is_not_a_word() -> None:
    table = make_table(
        ("name", "95 %"), [("a long name of several words", "1.00\N{NO-BREAK SPACE}… 7.29e+16"), ("b", "0.1 … 0.2")]
    )
    assert any(line.endswith("1.00 … 7.29e+16") for line in write_terminal(table, 30)[0])


def test_a_table_of_numbers_too_many_for_a_line_becomes_blocks() -> None:
    table = make_table(("name", *"abcdefgh"), [("x", *["0.123456789"] * 8)])
    assert write_terminal(table, 40)[1] == ()  # a block for each row
    assert write_terminal(table, 40)[0] == ["x", *(f"  {name}: 0.123456789" for name in "abcdefgh")]


def test_paths_stay_whole_in_sentences_and_long_words_do_not() -> None:
    path = "/a/path/that/is/rather/long"
    assert break_line(f"see {path} for more", 20) == ["see", f"  {path}", "  for more"]
    assert break_line("see " + "x" * 20, 12) == ["see", "  " + "x" * 10, "  " + "x" * 10]
    assert break_line("see " + "x" * 20, None) == ["see " + "x" * 20]


# --- flags ------------------------------------------------------------------------------------------------------------


def test_flags_take_dashes_and_underscores_alike(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = str(world / "tasks")
    said = []
    for flags in (
        ["--model_args", "", "--include_path", tasks, "--no_defaults", "--num_fewshot=1", "--no_output"],
        ["--model-args", "", "--include-path", tasks, "--no-defaults", "--num-fewshot=1", "--no-output"],
        ["--model_args", "", "--include-path", tasks, "--no_defaults", "--num_fewshot=1", "--no-output"],
    ):
        assert main(["run", "--model", "dummy", "--tasks", LONG, "--limit", "2", *flags]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2] and "num_fewshot: 1" in said[0]
    assert main(["runs", "list", "--runs-dir", str(world / "runs")]) == 0
    assert "first_a_task" in capsys.readouterr().out


def test_every_flag_of_every_command_is_known_with_dashes() -> None:
    from assay.cli import COMMANDS, Parser, define

    checked = 0
    for name in COMMANDS:
        parser = Parser(prog="assay")
        define(name, parser)
        flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
        assert len({flag.replace("-", "_") for flag in flags}) == len(flags), name
        for flag in flags:
            for spelled in (flag.replace("_", "-").replace("--", "--", 1), "--" + flag[2:].replace("-", "_")):
                assert parser.as_defined(f"{spelled}=x") == f"{flag}=x"
                checked += "_" in flag
    assert checked > 150


def test_actions_of_a_command_take_the_flags_of_all_commands(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["list", "--no-color"], ["--no_color", "list"]):
        code, text = on_terminal(["runs", *flags, *(["--runs-dir", world / "runs"] if flags[0] == "list" else [])])
        assert code == 0 and "\x1b" not in text
    with pytest.raises(SystemExit, match="2"):
        main(["runs", "list", "--runs-dri", "x"])
    assert "did you mean --runs_dir?" in capsys.readouterr().err


def test_an_unknown_flag_with_dashes_has_its_suggestion_and_abbreviations_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for wrong, said in (
        ("--num-fewshots", "unknown argument --num-fewshots — did you mean --num_fewshot?"),
        ("--num-few", "unknown argument --num-few"),
        ("--mod", "unknown argument --mod"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["run", "--model", "dummy", "--tasks", "x", wrong, "3"])
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["verify_backend", "--help"])


REFUSED = {
    "rnu": "assay: no command named 'rnu' — did you mean run?",
    "xyzzy": "assay: no command named 'xyzzy' — `assay --help` lists its commands",
    "run --taks t": "assay run: unknown argument --taks — did you mean --task or --tasks?",
    "run --zzz": "assay run: unknown argument --zzz — `assay run --help` lists its flags",
    "run --limit abc": "assay run: --limit/-L: 'abc' is not a number — `assay run --help` lists its flags",
    "plan --repeats x": "assay plan: --repeats: 'x' is not a whole number — `assay plan --help` lists its flags",
    "plot r --kind intervls": "assay plot: --kind: no 'intervls' — did you mean intervals?",
    "plot r --over week": "assay plot: --over: no 'week' — use one of: auto, date, step",
    "ls metrcs": "ls: no kind of names 'metrcs' — did you mean 'metrics'?",
    "ls thing gsm": "ls: no kind of names 'thing' — use one of: tasks, subtasks, groups, tags,",
    "ls acc --pattern a*": "ls: 'acc' and --pattern exclude each other — give one of them",
    "fetch taks": "fetch: no task named 'taks' — did you mean `assay fetch tasks`?",
}


@pytest.mark.parametrize("command", REFUSED)
def test_a_wrong_command_line_is_answered_by_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(command.split())
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert (code, said.count("\n"), said.startswith(REFUSED[command])) == (2, 1, True), said


def test_names_are_searched_by_a_word(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = ["--include_path", str(world / "tasks"), "--no_defaults"]
    for words, names in (
        (["than_many"], [TWIN]),
        (["tasks", "a_task*"], sorted([LONG, TWIN])),
        (["groups", "every"], ["everything"]),
        (["metrics", "_mutual_"], ["acc_mutual_info"]),
    ):
        assert main(["ls", *words, *catalog]) == 0
        assert capsys.readouterr().out.splitlines() == names


def test_no_line_of_a_help_is_wider_than_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        wide = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
        assert not wide, (name, wide)


# --- reasons ----------------------------------------------------------------------------------------------------------


def test_tasks_without_data_are_one_line_before_the_table_and_none_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_world(tmp_path / "tasks")
    names = [f"subject_{number:02}" for number in range(56)]
    for name in names:
        text = TASK.format(name=name, data=f"gone/{name}/test.jsonl", metric=METRIC, filter=FILTER)
        (folder / f"{name}.yaml").write_text(text)
    (folder / "odd.yaml").write_text(TASK.format(name="odd", data="rows.jsonl", metric="missing", filter=FILTER))
    arguments = ["run", "--model", "dummy", "--include_path", str(folder), "--no_defaults", "--tasks", LONG, *names]
    assert main([*arguments, "-o", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    [line] = [line for line in said.splitlines() if "no data file" in line]
    assert line.startswith("56 of 57 tasks (subject_00, subject_01, subject_02 and 53 more) cannot be run: ")
    assert "gone/subject_…/test.jsonl" in line and line.endswith("continuing without them; all names in results.json")
    assert said.count("subject_00") == 1
    broken = json.loads((tmp_path / "run/results.json").read_text())["broken"]
    assert list(broken) == names
    assert main(["runs", "show", str(tmp_path / "run")]) == 0


def test_the_same_failure_of_many_tasks_is_one_line_with_their_sums() -> None:
    from assay.results import Results, TaskEntry
    from assay.runs.results import failure_lines

    def task(name: str, failed: int, reason: str) -> TaskEntry:
        return TaskEntry(name, name, documents=10, failed=failed, reasons={reason: failed}, is_incomplete=True)

    tasks = [*(task(f"t{number}", number, "no answer") for number in range(1, 5)), task("other", 7, "too long")]
    results = Results({entry.name: entry for entry in tasks}, broken={"u": "old", "v": "old"})
    assert failure_lines(results) == [
        "incomplete: 4 tasks (t1, t2, t3 and 1 more): 10 of 40 documents failed (10× no answer)",
        "incomplete: other: 7 of 10 documents failed (7× too long)",
        "not run: 2 of 7 tasks (u, v): old",
    ]


def test_reasons_with_other_remedies_are_not_united() -> None:
    from assay.errors import grouped

    libraries = {f"task_{name}": f"needs {name}: pip install {name}" for name in ("nltk", "rouge", "langdetect")}
    libraries = {f"t{number}": reason for number, reason in enumerate(libraries.values())}
    assert [names for names, _ in grouped(libraries.items())] == [["t0"], ["t1"], ["t2"]]
    two = {"task_a": "data/task_a is missing", "task_b": "data/task_b is missing"}
    assert grouped(two.items()) == [(["task_a"], "data/task_a is missing"), (["task_b"], "data/task_b is missing")]
