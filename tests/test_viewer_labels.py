"""Label mode of the viewer: who may write, what is stored, and that the judge is hidden; tags and notes of runs."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

from assay.cli import main
from assay.models import Scripted
from assay.runs.run import Run
from small_runs import run, write_task
from viewer_world import fetched, serving

pytest.importorskip("duckdb")
SAID = "The sum fits, says the judge."
RUBRIC = "Is the answer right and polite?"
TASK = (
    "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: exact_match}]\n"
    f"scorer: {{type: llm_judge, kwargs: {{scale: [1, 5], rubric: {RUBRIC!r}}}}}\n"
)


def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
    number = int(re.findall(r"\d+", prompt)[-1])
    return f"It is {number + 1}." if number % 3 else "=No()"


def judge(prompt: str, params: dict[str, object], repeat: int) -> str:
    [mark] = set(re.findall(r"mark ([0-9a-f]{32})", prompt))
    return "Well: " + json.dumps({"id": mark, "reason": SAID, "score": 5 if "It is" in prompt else 2})


def write_judged(folder: Path, size: int = 12) -> Path:
    """A folder of runs with one that a judge graded."""
    rows = [{"q": f"What is {number} plus one?", "gold": str(number + 1)} for number in range(size)]
    write_task(folder / "tasks", rows, TASK, name="polite")
    roles = {"judge": Scripted(generate=judge)}
    run(
        folder / "tasks", Scripted(generate=answer), "polite", model_role=roles, output_path=str(folder / "runs/judged")
    )
    return folder / "runs"


class Labelling(NamedTuple):
    """A viewer in label mode: its address, and the cookie of a browser that opened the URL with the token."""

    address: str
    cookie: str

    def post(self, path: str, form: dict[str, str], **changed: str | None) -> tuple[int, str, str]:
        """Status, text, and where it leads to; `changed` are headers, None leaves one out."""
        headers = {"Origin": self.address, "Cookie": self.cookie, "Content-Type": "application/x-www-form-urlencoded"}
        sent = {**headers, **{name.replace("_", "-"): value for name, value in changed.items()}}
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=30)
        connection.request(
            "POST", path, urlencode(form), {name: value for name, value in sent.items() if value is not None}
        )
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text, reply.headers.get("location", "")

    def label(self, doc: int, label: object, by: str = "Ann", **changed: str | None) -> tuple[int, str, str]:
        form = {"run": "judged", "task": "polite", "doc": str(doc), "label": str(label), "by": by}
        return self.post("/label", form, **changed)


@contextmanager
def labelling(runs: Path) -> Iterator[Labelling]:
    command = [sys.executable, "-m", "assay", "view", str(runs), "--port", "0", "--label", "--labeller", "Ann"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address, _, token = server.stdout.readline().strip().partition("/?")
        connection = HTTPConnection(urlsplit(address).netloc, timeout=30)
        connection.request("GET", f"/?{token}")
        reply = connection.getresponse()
        cookie = reply.headers["set-cookie"]
        assert (reply.status, reply.headers["location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
        connection.close()
        yield Labelling(address, cookie.partition(";")[0])
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_judged(tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="module")
def viewer(runs: Path) -> Iterator[Labelling]:
    with labelling(runs) as at:
        yield at


def page(viewer: Labelling, path: str, **query: str) -> str:
    status, text, _ = fetched(viewer.address, path, headers={"Cookie": viewer.cookie}, **query)
    assert status == 200, text
    return text


def test_the_main_number_of_a_task_that_names_a_judge_is_the_judges(tmp_path: Path) -> None:
    runs = write_judged(tmp_path)
    assert Run.open(runs / "judged").higher_is_better("polite") == {"exact_match": True, "llm_judge": True}
    with serving(runs) as at:
        listed, page = fetched(at, "/")[1], fetched(at, "/run", run="judged")[1]
        [whole] = re.findall(
            r"<dt>score</dt>.*?</dd>", fetched(at, "/sample", run="judged", task="polite", doc="1")[1], re.S
        )
    assert '<span class="faint">llm_judge</span> 0.7500</td>' in listed  # (8 + 4 / 4) / 12
    assert ">lowest samples</a>" in page and page.count('title="higher is better">↑</span>') == 2
    assert " ".join(re.sub("<.*?>", " ", whole).split()) == "score 5 on a scale from 1 to 5"


def test_a_sample_shows_score_reason_judge_and_the_question_that_was_asked(viewer: Labelling) -> None:
    text = page(viewer, "/sample", run="judged", task="polite", doc="1")
    for part in (SAID, "<b>5</b>", "Question that the judge was asked", RUBRIC, "What is 1 plus one?", "It is 2.", "role <bdi>judge</bdi>"):  # fmt: skip
        assert part in text, part
    document = json.loads(page(viewer, "/sample.json", run="judged", task="polite", doc="1"))
    [verdict] = document["verdicts"]
    assert (verdict["score"], verdict["reason"], verdict["role"]) == (5, SAID, "judge")
    assert verdict["question"].startswith("You judge an answer") and "<<<end of answer" in verdict["question"]


def test_a_packed_run_without_golds_has_no_question_of_a_judge(runs: Path, tmp_path: Path) -> None:
    assert main(["pack", str(runs / "judged"), "--no_gold", "-o", str(tmp_path / "p.zip")]) == 0
    assert main(["import", str(tmp_path / "p.zip"), "-o", str(tmp_path / "back")]) == 0
    replies = [reply for row in Run.open(tmp_path / "back").sample_file("polite").rows() for reply in row.replies or ()]  # type: ignore[union-attr]
    assert not any(RUBRIC in str(reply) or "plus one" in str(reply) for reply in replies)


def test_labels_are_given_by_the_plan_of_the_command_blind_to_the_judge_and_correct_the_number(tmp_path: Path) -> None:
    runs = write_judged(tmp_path)
    assert main(["label", str(runs / "judged"), "-n", "0", "-o", str(tmp_path / "l.csv")]) == 0
    planned = [int(line.split(",")[1]) for line in (tmp_path / "l.csv").read_text().splitlines()[1:]]
    before = {path: path.read_bytes() for path in (runs / "judged").rglob("*") if path.is_file()}
    with labelling(runs) as viewer:
        for done, doc in enumerate(planned):
            text = page(viewer, "/label", run="judged", task="polite")
            assert f"{done} labelled, {12 - done} to go" in text and f"document {doc}<" in text and RUBRIC in text
            assert SAID not in text and "Verdict of the judge" not in text
            status, _, leads = viewer.label(doc, 5 if doc % 3 == 1 else 1)
            assert status == 303 and leads.startswith("/label?run=judged&task=polite&by=Ann")
        assert viewer.label(planned[0], "")[0] == 303  # taken back
        assert "11 labelled, 1 to go" in page(viewer, "/label", run="judged", task="polite")
        assert viewer.label(planned[0], 5 if planned[0] % 3 == 1 else 1)[0] == 303
        text = page(viewer, "/label", run="judged", task="polite")
        assert "All 12 documents" in text and "corrected by labels" in text
        assert "labelled by <bdi>Ann</bdi> (12)" in page(viewer, "/task", run="judged", task="polite")
    rows = {row.metric: row for row in Run.open(runs / "judged").rows("polite").values()}
    assert rows["llm_judge"].estimate.value == pytest.approx((8 * 1 + 4 * 0.25) / 12)
    assert rows["llm_judge_corrected"].estimate.value == pytest.approx(
        4 / 12
    )  # all are labelled: the mean label, on 0 to 1
    assert {path: path.read_bytes() for path in before} == before


def test_two_people_at_once_lose_nothing_and_their_agreement_is_shown(tmp_path: Path) -> None:
    runs = write_judged(tmp_path)
    with labelling(runs) as viewer:
        labels = [(doc, by, 5 if by == "Ann" or doc < 9 else 1) for doc in range(12) for by in ("Ann", "Ben")]
        with ThreadPoolExecutor(8) as pool:
            assert {each[0] for each in pool.map(lambda each: viewer.label(each[0], each[2], each[1]), labels)} == {303}
        document = json.loads(page(viewer, "/label.json", run="judged", task="polite", by="Ben"))
        assert document["people"] == {"Ann": 12, "Ben": 12}
        assert document["agreement"]["same label: Ann and Ben"] == 0.75
    people = Run.open(runs / "judged").labels["polite"].people
    assert people == {"Ann": dict.fromkeys(range(12), 5.0), "Ben": {doc: 5.0 if doc < 9 else 1.0 for doc in range(12)}}


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Cookie": None}, 403),
        ({"Cookie": "assay_00000000=x"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Origin": "\xff://\xfe"}, 403),
        ({"Cookie": "=;;=\x01"}, 403),
        ({"Origin": None}, 403),
        ({"Origin": None, "Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Content_Type": "text/plain"}, 415),
        ({"Origin": None, "Sec_Fetch_Site": "same-origin"}, 303),
        ({}, 303),
    ],
)
def test_only_a_page_of_this_server_with_the_token_may_write(
    changed: dict[str, str | None], status: int, viewer: Labelling, runs: Path
) -> None:
    labels, notes = runs / "judged/labels.jsonl", runs / "judged/notes.json"
    for file in (labels, notes):
        file.unlink(missing_ok=True)
    assert viewer.label(1, 5, **changed)[0] == status
    assert viewer.post("/note", {"run": "judged", "tags": "x", "note": ""}, **changed)[0] == status
    assert [labels.exists(), notes.exists()] == [status == 303] * 2


def test_no_other_path_and_no_other_method_writes_and_without_label_nothing_does(viewer: Labelling, runs: Path) -> None:
    for path in (
        "/",
        "/run",
        "/task",
        "/sample",
        "/runs.json",
        "/label.json",
        "/samples.csv",
        "/filter",
        "/static/view.js",
    ):
        assert viewer.post(path, {})[0] == 405, path
    for method in ("PUT", "DELETE", "PATCH"):
        assert fetched(viewer.address, "/label", method)[0] == 405
    assert fetched(viewer.address, "/", token="wrong")[0] == 403
    with serving(runs) as address:
        plain = Labelling(address, viewer.cookie)
        assert plain.label(1, 5)[0] == plain.post("/note", {"run": "judged"})[0] == 405
        assert fetched(address, "/label", run="judged", task="polite")[0] == 404
        assert "Label samples" not in fetched(address, "/task", run="judged", task="polite")[1]
    assert "Label samples" in page(viewer, "/task", run="judged", task="polite")
    assert "Label samples" not in fetched(viewer.address, "/task", run="judged", task="polite")[1]  # without the token


@pytest.mark.parametrize(("doc", "label"), [("1", "6"), ("1", "nan"), ("1", "x"), ("99", "1"), ("-1", "1"), ("", "1")])
def test_a_label_off_the_scale_or_of_no_document_is_refused(
    doc: str, label: str, viewer: Labelling, runs: Path
) -> None:
    (runs / "judged/labels.jsonl").unlink(missing_ok=True)
    form = {"run": "judged", "task": "polite", "doc": doc, "label": label}
    assert viewer.post("/label", form)[0] == 404
    assert not (runs / "judged/labels.jsonl").exists()
    assert viewer.post("/label", {**form, "note": "x" * 200_000})[0] == 413
    status, text, _ = viewer.post("/label", {**form, **{f"field{number}": "" for number in range(60)}})
    assert status == 400 and "a form has at most 50 fields" in text


def test_tags_and_a_note_are_a_file_beside_the_run_shown_and_found(
    viewer: Labelling, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert viewer.post("/note", {"run": "judged", "tags": "nightly, <b>, nightly,", "note": "a\r\n<i>b"})[0] == 303
    assert json.loads((runs / "judged/notes.json").read_text()) == {"tags": ["nightly", "<b>"], "note": "a\n<i>b"}
    text = page(viewer, "/run", run="judged")
    assert "<bdi>nightly</bdi>" in text and "&lt;i&gt;b" in text
    assert 'value="judged"' in page(viewer, "/", q="nightly") and "No runs match" in page(viewer, "/", q="weekly")
    note = ["runs", "note", str(runs / "judged")]
    assert main([*note, "--tag", "paper", "--untag", "nightly", "--note", "for the paper"]) == 0
    assert "tags: <b>, paper\nnote: for the paper" in capsys.readouterr().out
    assert json.loads(page(viewer, "/run.json", run="judged"))["run"]["tags"] == ["<b>", "paper"]
    assert main([*note, "--tag", "x" * 41]) == 2
    assert viewer.post("/note", {"run": "judged", "tags": "x" * 41})[0] == 404
    (runs / "judged/notes.json").write_text('{"tags": 1}')
    assert "notes.json" in page(viewer, "/run", run="judged")  # the run is shown, with what is wrong
    assert main([*note, "--tag", "y"]) == 2
    (runs / "judged/notes.json").unlink()
