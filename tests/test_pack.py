"""One file of a run, to send to others: whole, without secrets, without right answers where that is asked for."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import run_world
from assay import ScoreOptions, score, simple_evaluate
from assay.errors import AssayError
from assay.exchange.archive import pack, unpack
from assay.exchange.gold_removal import TaskRemoval, sounds_like_gold, template_columns
from assay.models import Scripted
from assay.runs.folder import RunError
from assay.runs.samples.records import StoredRequest, StoredSample
from assay.score_keys import ScoreKey
from conftest import Write
from run_world import SUMS, RecordingModel, sample_rows


def unpacked(path: Path, folder: Path) -> Path:
    """The run in an archive, after looking at the names in it."""
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            assert not name.startswith("/") and ".." not in Path(name).parts and "\\" not in name
        file.extractall(folder)
    [run] = folder.iterdir()
    return run


def test_an_archive_holds_the_run_and_opens_like_it(run_assay: Any, tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    score(output, ScoreOptions(filters=["last=regex:(.)$"], tasks=["sums"]))
    packed = pack(output, tmp_path / "run.zip")
    assert list(packed.files) == [
        "manifest.json", "packed.json", "results.json", "samples/colours.parquet", "samples/sums.parquet",
        "scored/001/manifest.json", "scored/001/results.json", "scored/001/samples/sums.parquet",
    ]  # fmt: skip
    copies = ["samples_colours.jsonl", "samples_sums.jsonl"]
    assert packed.left == ["responses.jsonl", *copies, "scored/001/changes.jsonl"]
    run = unpacked(tmp_path / "run.zip", tmp_path / "there")
    assert run_world.samples(run, "sums") == run_world.samples(output, "sums")
    assert run_world.results(run)["results"] == run_world.results(output)["results"]
    for command in (
        ["samples", run, "-n", "1"],
        ["report", run, "--format", "md"],
        ["score", run, "--include_path", tasks],
    ):
        ended = run_assay(*command)
        assert ended.returncode == 0, ended.stderr


def test_the_same_run_gives_the_same_archive(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    for no_gold in (False, True):
        first, second = (pack(output, tmp_path / f"{name}.zip", no_gold=no_gold).path for name in "ab")
        assert first.read_bytes() == second.read_bytes()


def test_the_note_has_a_hash_of_every_file(tasks: Path, output: Path, tmp_path: Path) -> None:
    from hashlib import sha256

    run_world.run(RecordingModel(), tasks, output)
    run = unpacked(pack(output, tmp_path / "run.zip").path, tmp_path / "there")
    note = json.loads((run / "packed.json").read_text())
    result = {
        str(path.relative_to(run)): sha256(path.read_bytes()).hexdigest() for path in run.rglob("*") if path.is_file()
    }
    result.pop("packed.json")
    assert note["files"] == result


def test_secrets_and_the_name_of_the_home_folder_are_not_packed(
    tasks: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    manifest = run_world.manifest(output)
    monkeypatch.setenv("HOME", str(tmp_path))
    manifest["model"]["args"] = {"api_key": "sk-abcdefgh12345678", "base_url": "https://me:secret99@host/v1"}
    (output / "manifest.json").write_text(json.dumps(manifest))
    run = unpacked(pack(output, tmp_path / "run.zip").path, tmp_path / "there")
    text = (run / "manifest.json").read_text() + (run / "results.json").read_text()
    assert "sk-abcdefgh" not in text and "secret99" not in text and str(tmp_path) not in text
    assert "~/tasks" in text


@pytest.mark.parametrize("place", ["results", "samples"])
def test_the_value_of_a_secret_variable_is_never_packed(
    place: str, tasks: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "my key is quite-secret-value" if place == "samples" else "2"
    model = Scripted(generate=lambda prompt, params, repeat: said)
    simple_evaluate(model, tasks=["sums"], include_path=str(tasks), include_defaults=False, output_path=str(output))
    if place == "results":
        run_world.change_results(output, lambda content: content["facts"].update(model_name="quite-secret-value"))
    monkeypatch.setenv("MY_SERVICE_API_KEY", "quite-secret-value")
    with pytest.raises(AssayError, match="holds the value of the environment variable MY_SERVICE_API_KEY"):
        pack(output, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()


@pytest.mark.parametrize("secret", ['with "quotes" in it', "back\\slash\\es", "ümläuts-and-more", "two\nlines-of-it"])
@pytest.mark.parametrize("place", ["answer", "document", "results"])
def test_a_secret_is_found_in_its_json_escaped_form(
    secret: str, place: str, write: Write, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = write({**run_world.FILES, "sums.jsonl": json.dumps({"q": "1+1", "a": json.dumps([secret])}) + "\n"})
    model = Scripted(generate=lambda prompt, params, repeat: secret if place == "answer" else "2")
    simple_evaluate(model, tasks=["sums"], include_path=str(tasks), include_defaults=False, output_path=str(output))
    if place == "results":
        run_world.change_results(output, lambda content: content["facts"].update(model_name=secret))
    monkeypatch.setenv("MY_SERVICE_API_KEY", secret)
    with pytest.raises(AssayError, match="holds the value of the environment variable MY_SERVICE_API_KEY"):
        pack(output, tmp_path / "run.zip")


def test_a_link_in_the_folder_is_not_followed(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    elsewhere = tmp_path / "elsewhere.parquet"
    (output / "samples/sums.parquet").rename(elsewhere)
    (output / "samples/sums.parquet").symlink_to(elsewhere)
    assert "samples/sums.parquet" not in pack(output, tmp_path / "run.zip").files


@pytest.mark.parametrize("name", ["samples", "scored", "results.json", "manifest.json"])
def test_a_link_for_a_whole_folder_or_for_numbers_is_not_followed(
    name: str, tasks: Path, output: Path, tmp_path: Path
) -> None:
    run_world.run(RecordingModel(), tasks, output)
    score(output, ScoreOptions(include_path=[str(tasks)]))
    (output / name).rename(tmp_path / "elsewhere")
    (output / name).symlink_to(tmp_path / "elsewhere")
    if name.endswith(".json"):
        with pytest.raises(AssayError, match=f"{name}: is a link that leads out"):
            pack(output, tmp_path / "run.zip")
        assert not (tmp_path / "run.zip").exists()
    else:
        files = pack(output, tmp_path / "run.zip").files
        assert any(file.startswith("results") for file in files)
        assert [file for file in files if file.startswith(f"{name}/")] == []


def test_a_link_inside_of_the_folder_is_as_good_as_the_file(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    (output / "results.json").rename(output / "latest.json")
    (output / "results.json").symlink_to("latest.json")
    assert "results.json" in pack(output, tmp_path / "run.zip").files


FEWSHOT = """
    task: shots
    dataset_path: json
    dataset_kwargs: {data_files: {test: sums.jsonl, train: sums.jsonl}}
    test_split: test
    fewshot_split: train
    num_fewshot: 2
    doc_to_text: "{{q}}="
    doc_to_target: " {{a}}!"
    metric_list: [{metric: exact_match}]
"""


def test_right_answers_are_removed_from_the_columns_that_hold_them(write: Write, output: Path, tmp_path: Path) -> None:
    folder = write({**run_world.FILES, "shots.yaml": FEWSHOT})
    model = Scripted(generate=lambda prompt, params, repeat: "who knows")
    options = {"include_path": str(folder), "include_defaults": False, "output_path": str(output)}
    simple_evaluate(model, tasks=["shots"], **options)
    packed = pack(output, tmp_path / "run.zip", no_gold=True)
    assert packed.removed == [
        "target and gold (shots)", "the columns a of documents (shots)", "examples before the question (shots)",
    ]  # fmt: skip
    run = unpacked(packed.path, tmp_path / "there")
    rows = sample_rows(run / "samples/shots.parquet")
    assert [(row["target"], row["gold"]) for row in rows] == [("null", None)] * 5
    assert [json.loads(row["doc"]) for row in rows] == [{"q": question[:-1]} for question in SUMS]
    assert [(row["prefix"] + row["prompt"]).rpartition("\n\n")[2] for row in rows] == list(SUMS)
    assert "!" not in json.dumps([row["prompt"] + row["prefix"] for row in rows])
    assert [row["responses"] for row in rows] == [[["who knows"]]] * 5


def test_a_run_without_right_answers_is_not_rescored(tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    run = unpacked(pack(output, tmp_path / "run.zip", no_gold=True).path, tmp_path / "there")
    with pytest.raises(AssayError, match="the right answers were taken out"):
        score(run)


def row(**columns: Any) -> StoredSample:
    known = {"doc": {}, "target": "x", **columns}
    written = {key: json.dumps(known[key]) for key in ("doc", "target")}
    empty = StoredSample(
        0,
        "generate",
        None,
        "",
        "",
        None,
        None,
        "",
        "",
        [StoredRequest("generate", params="{}")],
        [],
        None,
        {},
        {},
        {},
        None,
        {},
        (),
    )
    return empty._replace(**{**known, **written})


def test_a_document_is_removed_whole_where_its_right_answer_is_unknown() -> None:
    removal = TaskRemoval({"doc_to_target": "!function utils.f"}, 0)
    result_row = removal.row(row(doc={"question": "q", "hidden": 3}, target=3))
    assert result_row.doc == "{}"
    assert "whole documents: which column has the right answer is not known" in removal.summary()


def test_a_single_continuation_is_the_right_answer() -> None:
    removal = TaskRemoval({"doc_to_target": "word"}, 0)
    result_row = removal.row(
        row(
            doc={"word": "cat"},
            target="cat",
            requests=[StoredRequest("loglikelihood", continuation="cat")],
            scores={ScoreKey("acc", "none"): 1, ScoreKey("f1", "none"): ["cat", "dog"]},
        )
    )
    assert (result_row.requests[0].continuation, result_row.scores) == ("[removed]", {ScoreKey("acc", "none"): 1})
    items = [StoredRequest("loglikelihood", continuation=each) for each in ("cat", "dog")]
    assert removal.row(row(doc={"word": "cat"}, requests=items)).requests == items


def test_outputs_of_graphs_and_judges_may_contain_the_right_answer() -> None:
    removal = TaskRemoval({"doc_to_target": "word"}, 0)
    params = '{"temperature":0}'
    asked = [
        StoredRequest("generate", params=params),
        StoredRequest(
            "generate", "Is it cat? They said: dog.", [{"role": "user", "content": "Is it cat?"}], params=params
        ),
    ]
    answers = {"none": [{"golden": "cat"}], "first": ["dog"], "both": [["dog", "cow"]]}
    replies = [{"finish": "stop"}, {"verdict": "no, it is cat"}, {"verdict": 0.25}]
    result_row = removal.row(row(doc={"word": "cat"}, target="cat", requests=asked, answers=answers, replies=replies))
    assert result_row.answers == {**answers, "none": ["[removed]"]}
    assert result_row.replies == [replies[0], {"verdict": "[removed]"}, replies[2]]
    assert result_row.requests == [asked[0], StoredRequest("generate", "[removed]", params=params)]
    assert "cat" not in repr(result_row)


def test_columns_that_are_called_like_right_answers_go_too() -> None:
    assert sounds_like_gold("AnswerKey", "A")
    assert sounds_like_gold("mc2_targets", {"labels": [1]})
    assert not sounds_like_gold("question", "what is the answer?")
    assert template_columns("{{choices[answer]}}{% if x %}{{y}}{% endif %}") == {"choices", "answer", "x", "y"}
    assert template_columns(3) == set()


@pytest.mark.parametrize(
    ("prompt", "left"),
    [
        ("Q1 A1\n\nQ2 A2\n\nQ3", "Q3"),
        ("<u>Intro\n\nQ1<a>GOLD1<u>Q2<a>GOLD2<u>Q3<a>", "[removed]"),
        ("Instructions\n\nQ1 A1\n\nQ2 A2\n\nQ3", "[removed]"),
        ("Q1 GOLD1 Q2 GOLD2 Q3", "[removed]"),
    ],
)
def test_a_question_is_kept_only_where_it_is_known_where_the_examples_end(prompt: str, left: str) -> None:
    result_row = TaskRemoval({"doc_to_target": "a"}, 2).row(row(doc={"a": "x"}, prompt=prompt))
    assert result_row.prompt == left
    chat = TaskRemoval({"doc_to_target": "a"}, 2, is_chat=True).row(row(doc={"a": "x"}, prompt=prompt))
    assert chat.prompt == "[removed]"


def test_columns_that_contain_or_explain_the_right_answer_are_removed_too() -> None:
    doc = {
        "q": "Which city?", "a": "Paris", "answer_idx": 2, "explanation": "see the map", "worked_solution": "s", "Rationale": "r",
        "note": "everybody knows that PARIS is", "more": {"hints": ["It is Paris"]}, "aliases": ["Paris", "Paris, France"],
        "options": ["Rome", "Paris"], "comparison": "no",
    }  # fmt: skip
    result_row = TaskRemoval({"doc_to_target": "a"}, 0).row(row(doc=doc, target=["Paris", "B"]))
    assert json.loads(result_row.doc) == {"q": "Which city?", "options": ["Rome", "Paris"], "comparison": "no"}


def test_the_command_lists_what_it_removed(run_assay: Any, tasks: Path, output: Path, tmp_path: Path) -> None:
    run_world.run(RecordingModel(), tasks, output)
    ended = run_assay("pack", output, "--no_gold", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "run-no_gold.zip").is_file()
    assert "removed: target and gold (sums, colours)" in ended.stderr
    assert "answers and scores remain" in ended.stderr


@pytest.mark.slow
def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file, file.open("run/results.json", "w") as member:
        for _ in range(300):
            member.write(bytes(1 << 20))
    with pytest.raises(RunError, match=r"would unpack to 0\.3 GB"):
        unpack(bomb, tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bomb.zip"]
