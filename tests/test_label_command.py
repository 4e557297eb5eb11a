"""`assay label`: a table of documents, labels read from it, and the judge's rows corrected by them wherever rows are shown."""

import csv
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay import compare
from assay.cli import main
from assay.models import Scripted
from assay.report.write import report_text
from assay.runs.folder import RunError
from assay.runs.journal import sealed
from assay.runs.run import Run
from assay.statistics import estimate
from small_runs import run, write_task

DOCUMENTS = 60
TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
MILD = "scorer: {type: llm_judge, kwargs: {scale: [0, 1]}}\n"
GROUP = "group: g\ntask: [t, u]\naggregate_metric_list: [{metric: llm_judge, aggregation: mean}]\n"


def answers(prompt: str, params: dict[str, object], repeat: int) -> str:
    """Every third answer is wrong; those to even questions are long."""
    return ("wrong" if int(prompt) % 3 == 0 else "right") + (" indeed" if int(prompt) % 2 == 0 else "")


def judged(score: Callable[[str], object]) -> Scripted:
    def verdict(prompt: str, params: dict[str, object], repeat: int) -> str:
        [mark] = set(re.findall(r"mark ([0-9a-f]{32})", prompt))
        return json.dumps({"id": mark, **dict([score(prompt)])})  # type: ignore[list-item]  # a pair

    return Scripted(generate=verdict)


def likes_long(prompt: str) -> tuple[str, float]:
    [answer] = re.findall(r">>>\n(.*)\n<<<", prompt)
    return "score", float("right" in answer or "indeed" in answer)


def evaluated(folder: Path, name: str = "run", model: Callable[..., str] = answers, tasks: str = "g") -> Path:
    rows = [{"q": str(number), "gold": "right", "other": "so"} for number in range(DOCUMENTS)]
    for task in ("t", "u"):
        write_task(folder / "tasks", [{**row, "of": task} for row in rows], TASK + MILD, name=task)
    (folder / "tasks/g.yaml").write_text(GROUP)
    scripted = Scripted(generate=model, identity=name)
    roles = {"judge": judged(likes_long)}
    run(folder / "tasks", scripted, tasks, model_role=roles, output_path=str(folder / name))
    return folder / name


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluated(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def filled(path: Path, label: Callable[[dict[str, str]], object]) -> Path:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows([{**row, "label": label(row)} for row in rows])
    return path


def is_right(row: dict[str, str]) -> int:
    return int("right" in row["answer"])


def labelled(folder: Path, n: int = 30) -> Path:
    table = folder.with_suffix(".csv")
    assert main(["label", str(folder), "-n", str(n), "-o", str(table)]) == 0
    assert main(["label", str(folder), "--import", str(filled(table, is_right))]) == 0
    return folder


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_table_is_blind_random_and_says_how_wide_intervals_will_be(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", str(folder), "-n", "20", "-o", str(tmp_path / "few.csv")]) == 0
    said = capsys.readouterr().out
    assert "t: labels from 0 to 1; 20 of 60 documents, chosen at random" in said
    assert re.search(r"\|t +\| +50\| +0\.2\d\d", said)
    rows = read(tmp_path / "few.csv")
    assert [*rows[0]] == ["task", "id", "prompt", "target", "answer", "label"]
    assert [len([row for row in rows if row["task"] == task]) for task in "tu"] == [20, 20]
    assert {row["label"] for row in rows} == {""}
    chosen = [int(row["id"]) for row in rows if row["task"] == "t"]
    assert len(set(chosen)) == 20
    assert chosen != sorted(chosen)
    main(["label", str(folder), "-n", "25", "-t", "t", "--show_scores", "-o", str(tmp_path / "more.csv")])
    more = read(tmp_path / "more.csv")
    assert [int(row["id"]) for row in more[:20]] == chosen  # asked for more, it continues
    assert {row["judge"] for row in more} == {"0.0", "1.0"}
    main(["label", str(folder), "-n", "20", "-t", "t", "--seed", "1", "-o", str(tmp_path / "other.csv")])
    assert [int(row["id"]) for row in read(tmp_path / "other.csv")] != chosen


def test_a_corrected_row_is_beside_the_judges_and_the_files_of_the_run_are_as_they_were(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    labelled(folder)
    after = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {name: data for name, data in after.items() if name != "labels.jsonl"} == before
    rows = {row.metric: row for row in Run.open(folder).rows("t").values()}
    judge, people = rows["llm_judge"], rows["llm_judge_corrected"]
    assert judge.estimate.value == pytest.approx(50 / 60)  # 40 right ones, and 10 of the 20 wrong ones, which are long
    assert people.estimate.value is not None
    assert people.estimate.low is not None
    assert people.estimate.high is not None
    assert people.estimate.low < 40 / 60 < people.estimate.high < 0.84
    assert (people.estimate.n, people.higher_is_better) == (60, judge.higher_is_better)
    capsys.readouterr()
    main(["runs", "show", str(folder)])
    shown = capsys.readouterr().out
    assert re.search(rf"llm_judge_corrected\|.*\|{people.estimate.value:.4f}\|", shown)
    assert (people.labels, people.estimate.method) == (30, "ppi++")
    assert main(["label", str(folder), "-n", "30", "-o", str(folder / "more.csv")]) == 2
    assert "60 documents have labels already" in capsys.readouterr().err
    assert "by 30 labels of 60 documents" in str(Run.open(folder).results.tasks["t"].remarks)


def test_a_group_of_judged_tasks_has_the_mean_of_their_corrected_values(folder: Path) -> None:
    labelled(folder)
    opened = Run.open(folder)
    members = [opened.rows(task) for task in "tu"]
    [key] = [key for key in members[0] if key.metric == "llm_judge_corrected"]
    values = [own[key].estimate.value or 0.0 for own in members]
    group = opened.rows("g")[key]
    assert group.estimate.value == pytest.approx(sum(values) / 2)
    assert group.slopes == pytest.approx({("t", key): 0.5, ("u", key): 0.5})
    assert group.estimate.stderr is not None
    assert group.estimate.stderr < max(own[key].estimate.stderr or 0.0 for own in members)


def test_a_group_with_a_member_without_labels_is_not_corrected(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    main(["label", str(folder), "-t", "t", "-n", "30", "-o", str(table)])
    main(["label", str(folder), "--import", str(filled(table, is_right))])
    assert [key.metric for key in Run.open(folder).rows("g")] == ["llm_judge"]
    assert "llm_judge_corrected" in {key.metric for key in Run.open(folder).rows("t")}


def test_a_comparison_and_its_gates_use_corrected_values(folder: Path, tmp_path: Path) -> None:
    def terse(prompt: str, params: dict[str, object], repeat: int) -> str:
        return "wrong" if int(prompt) % 10 == 0 else "right"

    runs = [labelled(folder, 60), labelled(evaluated(tmp_path, "terse", terse, "t"), 60)]
    compared = compare(runs, gates=["llm_judge_corrected > 10pp", "llm_judge > 10pp"], tasks=["t"])
    rows = {row.metric: row for row in compared.rows}
    people = rows["llm_judge_corrected"]
    assert (people.a, people.b) == pytest.approx((40 / 60, 54 / 60))
    assert people.difference.value == pytest.approx(14 / 60)
    assert rows["llm_judge"].difference.value == pytest.approx(54 / 60 - 50 / 60)
    assert people.difference.interval is not None
    assert people.difference.interval[0] < 14 / 60 < people.difference.interval[1]
    assert (people.wins, people.losses) == (None, None)  # a document has no score of such a row
    bounds = {each.metric: each.bound for each in compared.verdicts}
    assert bounds["llm_judge_corrected"] == pytest.approx(people.difference.interval[0], abs=0.05)


def test_the_commands_of_the_page_about_judges_run_as_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent / "docs/judges.md").read_text(encoding="utf-8")
    commands = [line.split("#")[0].split()[1:] for line in re.findall(r"^    (assay label .*)$", page, re.MULTILINE)]
    assert [command[-1] for command in commands] == ["labels.csv", "labels.csv", "--card"]
    shutil.copytree(finished, tmp_path / "runs/judged")
    monkeypatch.chdir(tmp_path)
    assert main(commands[0]) == 0
    filled(tmp_path / "labels.csv", is_right)
    assert [main(command) for command in commands[1:]] == [0, 0]
    assert "specificity" in capsys.readouterr().out


def test_labels_travel_with_a_packed_run_and_not_with_a_scoring_or_an_imported_run(
    finished: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(folder)
    [key] = [key for key in Run.open(folder).rows("t") if key.metric == "llm_judge_corrected"]
    assert main(["pack", str(folder), "-o", str(tmp_path / "p.zip")]) == 0
    assert main(["import", str(tmp_path / "p.zip"), "-o", str(tmp_path / "unpacked")]) == 0
    assert Run.open(tmp_path / "unpacked").rows("t")[key] == Run.open(folder).rows("t")[key]
    assert main(["import", str(folder), "-o", str(tmp_path / "imported")]) == 0
    assert key not in Run.open(tmp_path / "imported").rows("t")
    capsys.readouterr()
    assert main(["score", str(folder), "--include_path", str(finished.parent / "tasks")]) == 0
    assert "corrected" not in capsys.readouterr().out
    assert key not in Run.open(folder / "scored/001").rows("t")


def test_every_problem_of_a_table_is_reported_with_its_line_and_nothing_is_stored(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "bad.csv"
    lines = ["t,1,1", "t,1,0", "t,999,1", "x,2,1", "t,two,1", "t,3,maybe", "t,4,2", "t,5,", '"t",6,"1"', "t,7,nan"]
    table.write_text("task,id,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    assert main(["label", str(folder), "--import", str(table)]) == 2
    problems = capsys.readouterr().err.splitlines()
    for line, part in ((3, "has a label in line 2"), (4, "no document 999"), (5, "'x'"), (6, "'two'"), (7, "'maybe'"),
                       (8, "from 0 to 1, got 2"), (11, "got nan")):  # fmt: skip
        assert any(f"bad.csv:{line}" in each and part in each for each in problems), (line, problems)
    assert len(problems) == 7
    assert not (folder / "labels.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"task,id\nt,1\n", "there is no column 'label'"),
        (b"task,id,label\nt,1,\n", "no line has a label"),
        (b"", "there is no column 'id'"),
        (b"task,id,label\nt,1,\xff\n", "it is not written in UTF-8"),
        (b"PK\x03\x04\xff\xfe", "it is not written in UTF-8"),
        (b"id,label\n1,1\n", "there is no column 'task'"),
        (b"task,id,label,label\nt,1,1,0\n", "two columns are named 'label'"),
        (b"task,id,label\nt,1,1,0\n", "bad.csv:2:1: the line has 4 cells for 3 columns"),
        (b"task,id,label\nt,1,1\nt,2\n", "bad.csv:3:1: the line has 2 cells for 3 columns"),
        (b'task,id,answer,label\nt,1,"so,1\nt,2,so,1\n', "it is not a table"),
        (b"task,id,label\nt,1.5,1\n", "the id must be a whole number, got '1.5'"),
        (b"task,id,label\nt,-1,1\n", "the id must be a whole number, got '-1'"),
        (b'task,id,label\nt,1,"0,5"\n', "from 0 to 1, got '0,5'"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(
    content: bytes, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    assert main(["label", str(folder), "--import", str(tmp_path / "bad.csv")]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "labels.jsonl").exists()


@pytest.mark.parametrize(
    "content",
    [
        "task;id;label\nt;1;0,5\nt;2;1\n".encode("utf-8-sig"),
        b"sep=;\ntask;id;label\nt;1;0,5\nt;2;1\n",
        "Task\tID\tLabel\r\nt\t1\t0,5\r\nt\t2\t1\r\n".encode("utf-16"),
        b"task,id,label\nt,1.0,0.5\nt,2.0,1.0\n",
        b'label,id,task,notes\r\n 0.5 ,1,t,\r\n1,2,t,"a, b"\r\n,,,\r\n',
    ],
)
def test_tables_of_spreadsheets_are_read(content: bytes, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(content)
    assert main(["label", str(folder), "--import", str(tmp_path / "table.csv")]) == 0
    assert dict(Run.open(folder).labels["t"].labels) == {1: 0.5, 2: 1.0}


def test_a_table_from_a_spreadsheet_is_read_and_a_later_label_replaces_an_earlier_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "sheet.csv"
    text = "﻿task;id;Label\r\nt;0;0\r\nt;1;1\r\nt;2;\r\n;;\r\nt;4;1\r\nt;5;1\r\nt;6;0\r\n"
    table.write_bytes(text.encode())
    assert main(["label", str(folder), "--import", str(table)]) == 0
    assert "1 line without a label" in capsys.readouterr().err
    table.write_text("id,label,task\n0,1,t\n", encoding="utf-8")
    main(["label", str(folder), "--import", str(table)])
    assert Run.open(folder).labels["t"].labels == {0: 1.0, 1: 1.0, 4: 1.0, 5: 1.0, 6: 0.0}


def test_a_table_is_not_overwritten(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "labels.csv").write_text("mine")
    assert main(["label", str(folder), "-o", str(tmp_path / "labels.csv")]) == 2
    assert "the file exists" in capsys.readouterr().err


def test_labels_are_on_the_judges_scale_and_a_damaged_file_of_them_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(
        tmp_path / "tasks", [{"q": str(number), "gold": "right"} for number in range(12)], TASK + "scorer: llm_judge\n"
    )
    roles = {"judge": judged(lambda prompt: ("score", 10))}
    run(tmp_path / "tasks", Scripted(generate=answers), model_role=roles, output_path=str(tmp_path / "run"))
    (tmp_path / "l.csv").write_text("id,label\n" + "".join(f"{n},{1 if n < 6 else 10}\n" for n in range(12)))
    assert main(["label", str(tmp_path / "run"), "--import", str(tmp_path / "l.csv")]) == 0
    row = {key.metric: row for key, row in Run.open(tmp_path / "run").rows("t").items()}["llm_judge_corrected"]
    alone = estimate([0] * 6 + [1] * 6)
    assert (row.estimate.value, row.estimate.interval) == (0.5, pytest.approx((alone.low, alone.high)))
    path = tmp_path / "run/labels.jsonl"
    data = path.read_bytes()
    for place in range(0, len(data), 41):  # a changed bit anywhere is noticed
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(RunError, match=r"labels.jsonl:\d+:1: the file is damaged"):
            Run.open(tmp_path / "run").rows("t")
    line = json.loads(data.splitlines()[0])
    for change in ({"doc": "one"}, {"label": 11}, {"scale": [None, 1]}, {"scale": [1, 1]}, {"rows": 1}, {"by": None}):
        wrong = json.dumps({name: value for name, value in {**line, **change}.items() if name != "c"})
        path.write_bytes(data + sealed(wrong.encode()[:-1]))
        assert main(["runs", "show", str(tmp_path / "run")]) == 2
        assert "labels.jsonl:13:1: the file is damaged" in capsys.readouterr().err
    path.write_bytes(data + data.splitlines()[0][:-9])  # a process ended in the middle of a line
    assert len(Run.open(tmp_path / "run").labels["t"].labels) == 12
    (tmp_path / "l.csv").write_text("id,label\n0,5\n")
    assert main(["label", str(tmp_path / "run"), "--import", str(tmp_path / "l.csv")]) == 0
    assert Run.open(tmp_path / "run").labels["t"].labels[0] == 5
    assert path.read_bytes().startswith(data)


def test_labels_about_other_answers_are_left_out_and_the_others_stay(folder: Path, tmp_path: Path) -> None:
    labelled(folder, 60)
    other = evaluated(tmp_path, "other", lambda prompt, params, repeat: "right" if int(prompt) < 15 else "new", "t")
    shutil.copy(folder / "labels.jsonl", other)
    same = [number for number in range(15) if answers(str(number), {}, 0) == "right"]
    opened = Run.open(other)
    assert sorted(opened.labels["t"].labels) == same
    assert f"{60 - len(same)} labels are left out" in str(opened.results.tasks["t"].remarks)


def test_labels_of_two_people_are_kept_apart_averaged_and_compared(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "ann.csv"
    assert main(["label", str(folder), "-t", "t", "-n", "30", "--labeller", "Ann", "-o", str(first)]) == 0
    chosen = [int(row["id"]) for row in read(filled(first, is_right))]
    assert main(["label", str(folder), "--labeller", "Ann", "--import", str(first)]) == 0
    second = tmp_path / "ben.csv"
    assert main(["label", str(folder), "-t", "t", "-n", "30", "--labeller", "Ben", "-o", str(second)]) == 0
    assert [int(row["id"]) for row in read(second)] == chosen  # the same ones, so that both can be compared
    for_ben = {
        number: int(answers(str(number), {}, 0) == "right") for number in chosen
    }  # finds long answers wrong, too
    filled(second, lambda row: for_ben[int(row["id"])])
    assert main(["label", str(folder), "--labeller", "Ben", "--import", str(second)]) == 0
    about = Run.open(folder).labels["t"]
    assert set(about.people) == {"Ann", "Ben"}
    both = {number: (int("right" in answers(str(number), {}, 0)), for_ben[number]) for number in chosen}
    assert about.labels == {number: sum(pair) / 2 for number, pair in both.items()}
    lines = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    assert len(lines) == 60
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line["at"]) for line in lines)
    capsys.readouterr()
    assert main(["label", str(folder), "-t", "t", "--card"]) == 0
    card = {
        cells[2].strip(): cells[3:] for line in capsys.readouterr().out.splitlines() if (cells := line.split("|"))[1:]
    }
    same = sum(one == two for one, two in both.values()) / 30
    chance = sum((sum(one == kind for one, _ in both.values()) / 30) * (sum(two == kind for _, two in both.values()) / 30)
                 for kind in (0, 1))  # fmt: skip
    assert float(card["same label: Ann and Ben"][0]) == pytest.approx(same, abs=1e-4)
    assert float(card["kappa: Ann and Ben"][0]) == pytest.approx((same - chance) / (1 - chance), abs=1e-4)
    assert main(["label", str(folder), "--labeller", " ", "--import", str(second)]) == 2


def test_many_processes_that_label_at_once_lose_nothing(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from assay.runs.labels import *\n"
        "for n in range(60): append_labels(Path(sys.argv[1]), [PersonLabel('t', n, 1.0, sys.argv[2], [ScoreKey('llm_judge', 'none')], (0, 1), (0, 1))])"
    )
    people = [subprocess.Popen([sys.executable, "-c", code, str(folder), f"p{number}"]) for number in range(4)]
    assert [each.wait(timeout=60) for each in people] == [0] * 4
    about = Run.open(folder).labels["t"]
    assert {name: len(own) for name, own in about.people.items()} == {f"p{number}": 60 for number in range(4)}


def test_a_folder_that_cannot_be_written_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "l.csv").write_text("task,id,label\nt,1,1\n")
    (folder / "labels.jsonl").symlink_to(tmp_path / "elsewhere")  # a link is not followed
    assert main(["label", str(folder), "--import", str(tmp_path / "l.csv")]) == 2
    assert "labels cannot be written: Too many levels of symbolic links" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_labels_that_cannot_be_read_are_reported_with_their_file(folder: Path) -> None:
    (folder / "labels.jsonl").unlink(missing_ok=True)
    (folder / "labels.jsonl").mkdir()
    with pytest.raises(RunError, match=r"labels\.jsonl: the file is damaged: Is a directory — remove it"):
        Run.open(folder).labels  # noqa: B018


def test_any_metric_with_bounds_can_be_checked_by_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = "metric_list: [{metric: exact_match}]\n"
    write_task(tmp_path / "tasks", [{"q": str(number), "gold": "right"} for number in range(20)], TASK + metrics)
    run(tmp_path / "tasks", Scripted(generate=answers), output_path=str(tmp_path / "run"))
    assert main(["label", str(tmp_path / "run")]) == 2
    assert "no task of this run has a row of a judge" in capsys.readouterr().err
    (tmp_path / "l.csv").write_text("id,label\n" + "".join(f"{n},{int(n % 3 > 0)}\n" for n in range(20)))
    assert main(["label", str(tmp_path / "run"), "--metric", "exact_match", "--import", str(tmp_path / "l.csv")]) == 0
    row = {key.metric: row for key, row in Run.open(tmp_path / "run").rows("t").items()}["exact_match_corrected"]
    assert row.estimate.value == pytest.approx(13 / 20)  # all are labelled, so it is the mean label
    assert main(["label", str(tmp_path / "run"), "--metric", "bleu"]) == 2
    assert main(["label", str(tmp_path / "run"), "--task", "tt"]) == 2
    assert "did you mean 't'?" in capsys.readouterr().err


def test_the_card_shows_agreement_and_that_the_judge_likes_long_answers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", str(folder), "--card"]) == 2
    assert "no document of this run has a label" in capsys.readouterr().err
    labelled(folder, 60)
    capsys.readouterr()
    assert main(["label", str(folder), "-t", "t", "--card"]) == 0
    card = {
        cells[2].strip(): cells[3:] for line in capsys.readouterr().out.splitlines() if (cells := line.split("|"))[1:]
    }
    assert float(card["sensitivity"][0]) == 1.0  # of 40 right ones it finds all
    assert float(card["specificity"][0]) == 0.5  # of 20 wrong ones half, since the others are long
    assert float(card["mean error"][0]) == pytest.approx(10 / 60, abs=1e-4)
    assert float(card["Cohen's kappa"][0]) == pytest.approx((50 / 60 - 11 / 18) / (1 - 11 / 18), abs=1e-4)
    assert float(card["length preference"][0]) > 0.3
    low, high = map(float, card["specificity"][1].split("…"))
    assert (low, high) == pytest.approx((0.2886, 0.7114), abs=1e-3)  # mid-p of 10 in 20, by SciPy


def test_a_report_has_the_judges_card_as_long_as_labels_are_about_its_answers(folder: Path) -> None:
    assert json.loads(report_text([folder], "json"))["runs"][0]["card"] == []
    labelled(folder, 60)
    card = {(each["task"], each["name"]): each for each in json.loads(report_text([folder], "json"))["runs"][0]["card"]}
    assert card["t", "specificity"]["value"] == 0.5  # of 20 wrong answers, half are long
    assert card["t", "mean error"]["value"] == pytest.approx(10 / 60)
    for kind in ("html", "md"):
        text = report_text([folder], kind)
        assert "Judge and people" in text
        assert "Cohen's kappa" in html.unescape(text)
    lines = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    others = [{**line, "answer": "0" * 16, "samples": ""} for line in lines]  # of other answers
    (folder / "labels.jsonl").write_bytes(
        b"".join(sealed(json.dumps({k: v for k, v in line.items() if k != "c"}).encode()[:-1]) for line in others)
    )
    assert json.loads(report_text([folder], "json"))["runs"][0]["card"] == []


def test_a_judge_of_pairs_is_tested_for_the_order_and_repeats_for_chance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = "scorer: {type: llm_judge, kwargs: {pairwise: true, baseline: other}}\nrepeats: 2\n"
    sampled = "generation_kwargs: {do_sample: true, temperature: 1.0, until: []}\n"
    rows = [{"q": str(number), "gold": "right", "other": "so"} for number in range(8)]
    write_task(tmp_path / "tasks", rows, TASK + pairs + sampled)
    model = Scripted(generate=lambda prompt, params, repeat: f"{prompt} {repeat if int(prompt) < 2 else 0}")

    def first(prompt: str) -> tuple[str, str]:
        return "winner", "A" if "\n7 0\n" not in prompt else "tie"

    run(tmp_path / "tasks", model, model_role={"judge": judged(first)}, output_path=str(tmp_path / "run"))
    assert main(["label", str(tmp_path / "run"), "-o", str(tmp_path / "l.csv")]) == 0
    assert "1: the answer is better than the other" in capsys.readouterr().out
    assert read(tmp_path / "l.csv")[0]["other"] == "so"
    assert main(["label", str(tmp_path / "run"), "--card"]) == 0
    card = {
        cells[2].strip(): cells[3:] for line in capsys.readouterr().out.splitlines() if (cells := line.split("|"))[1:]
    }
    assert float(card["first preferred"][0]) == 1.0
    assert float(card["same for all repeats"][0]) == 1.0


def test_a_table_of_two_judges_has_the_second_answer_of_a_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`a` comes first and has no other answer; with 12 documents the plan is that of 12 labels."""
    rows = [{"q": str(number), "gold": "right", "other": f"other {number}"} for number in range(12)]
    pairs = "scorer: {type: llm_judge, kwargs: {pairwise: true, baseline: other}}\n"
    grades = "scorer: {type: llm_judge, kwargs: {scale: [0, 1]}}\n"
    write_task(tmp_path / "tasks", rows, TASK + pairs, name="b")
    write_task(tmp_path / "tasks", rows, TASK + grades, name="a")
    model = Scripted(generate=lambda prompt, params, repeat: f"said {prompt}")

    def verdict(prompt: str) -> tuple[str, str]:
        return ("winner", "A") if "winner" in prompt else ("score", 1.0)

    run(tmp_path / "tasks", model, ["a", "b"], model_role={"judge": judged(verdict)}, output_path=str(tmp_path / "run"))
    assert main(["label", str(tmp_path / "run"), "-o", str(tmp_path / "l.csv"), "--show_scores"]) == 0
    found = read(tmp_path / "l.csv")
    assert [*found[0]] == ["task", "id", "prompt", "target", "answer", "other", "judge", "label"]
    assert {row["other"] for row in found if row["task"] == "a"} == {""}
    assert {row["other"] for row in found if row["task"] == "b"} == {f"other {number}" for number in range(12)}
    printed = capsys.readouterr().out
    assert re.search(r"\|a +\| +12\| +0\.\d+", printed)
    assert re.search(r"\|b +\| +12\| +0\.\d+", printed)


def test_labels_of_two_documents_give_no_interval_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"q": str(number), "gold": "right"} for number in range(2)]
    write_task(tmp_path / "tasks", rows, TASK + "scorer: {type: llm_judge, kwargs: {scale: [0, 1]}}\n")
    model = Scripted(generate=lambda prompt, params, repeat: f"said {prompt}")
    run(tmp_path / "tasks", model, model_role={"judge": judged(lambda _: ("score", 1.0))}, output_path=str(tmp_path / "run"))  # fmt: skip
    assert main(["label", str(tmp_path / "run"), "-o", str(tmp_path / "l.csv")]) == 0
    printed = capsys.readouterr().out
    assert "t: labels of 2 documents give no interval" in printed
    assert "|labels" not in printed
