"""SyGra's two evaluation graphs, run unchanged over HTTP: its numbers with `--compat sygra`, and without it just the listed
fields otherwise.

Where the files of the reference are beside the repository they are run; our configurations with the same keys are run
always. Expected values follow by hand from SyGra's definitions.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from sklearn.metrics import f1_score, precision_score, recall_score

from graph_world import CLASSIFICATION, QUESTION_ANSWERING, the_file, write_graph
from serving import TALKING, Servers

Run = Callable[..., Any]
ROOT = Path(__file__).parent.parent
REFERENCE = Path(os.environ.get("ASSAY_REFERENCE") or ROOT.parent / "shared/reference") / "sygra_configs"
OURS = {"question_answering": QUESTION_ANSWERING, "classification": CLASSIFICATION}
KINDS = tuple(OURS)


def theirs(kind: str) -> str:
    """A file of the reference; only where the records come from is another place."""
    path = REFERENCE / f"{kind}_simpleqa.yaml"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    written = yaml.safe_load(path.read_text())
    source = written["data_config"]["source"]
    swapped = {"type": "disk", "file_path": "records.jsonl", "transformations": source["transformations"]}
    return yaml.safe_dump({**written, "data_config": {"source": swapped}}, sort_keys=False)


ORIGINS: dict[str, Callable[[str], str]] = {"ours": OURS.__getitem__, "theirs": theirs}


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def asked(field: str, answer: str | None) -> str:
    """A question that the server answers so; None is an answer that is not JSON."""
    return json.dumps({"say": "no idea" if answer is None else json.dumps({field: answer})})


QUESTIONS = [("Paris", "Paris"), ("rome", " Rome"), ("Bergen", "Oslo"), ("Bern", None)]
"""Golden and predicted answers: the first two are right, as exact_match compares."""
TOPICS = [("Music", "Music"), ("Music", "music"), ("Art", "Music"), ("Sports", None), ("History", "Opera")]
"""Golden and predicted topics: the first two are right."""


def records(kind: str, pairs: list[tuple[str, str | None]]) -> list[dict[str, Any]]:
    golden, field = ("answer", "predicted_answer") if kind == "question_answering" else ("topic", "predicted_topic")
    return [
        {"task_id": 100 + number, "problem": asked(field, arguments), golden: right}
        for number, (right, arguments) in enumerate(pairs)
    ]


def outcome(top: Path, graph: str, kind: str, pairs: list[tuple[str, str | None]], run: Run, *flags: str) -> Any:
    """Output and report of a graph."""
    write_graph(top, records(kind, pairs), graph, kind=kind)
    out = top / "-".join(["out", *(flag.strip("-") for flag in flags)])
    ended = run("run", "--task", f"tasks.eval.{kind}.simpleqa", "--output_dir", out, *flags)
    assert ended.returncode == 0, ended.stderr
    return the_file(out, "output_*.json"), the_file(out, "MetricCollatorPostProcessor_*.json")


@pytest.fixture
def run(run_assay: Run, talking: str) -> Run:
    def with_model(*arguments: object) -> Any:
        model_args = f"model=m,base_url={talking},max_retries=1"
        return run_assay(*arguments, "--model", "openai-chat", "--model_args", model_args)

    return with_model


LIKE_SYGRA = ("--compat", "sygra")


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_question_answering_graph_gives_what_sygra_gives(tmp_path: Path, run: Run, origin: str) -> None:
    graph = ORIGINS[origin]("question_answering")
    output, report = outcome(tmp_path, graph, "question_answering", QUESTIONS, run, *LIKE_SYGRA)
    assert [list(record) for record in output] == [
        ["original_index", "problem", "answer", "predicted_answer", "exact_match_result"]
    ] * 4
    assert [record["original_index"] for record in output] == [100, 101, 102, 103]
    assert [record["predicted_answer"] for record in output] == ["Paris", " Rome", "Oslo", ""]
    results = [record["exact_match_result"] for record in output]
    assert [result["correct"] for result in results] == [True, True, False, False]
    assert results[1]["golden"] == {"text": "rome"}
    assert results[1]["predicted"] == {"text": " Rome"}
    assert set(results[1]["metadata"]) == {
        "validator", "golden_text", "predicted_text", "case_sensitive", "normalize_whitespace",
    }  # fmt: skip
    assert report == [
        {"evaluation_summary": {"total_records": 4, "status": "success"}, "results": {"accuracy": {"accuracy": 0.5}}}
    ]


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_classification_graph_gives_what_sygra_gives(tmp_path: Path, run: Run, origin: str) -> None:
    graph = ORIGINS[origin]("classification")
    output, [report] = outcome(tmp_path, graph, "classification", TOPICS, run, *LIKE_SYGRA)
    assert [record["exact_match_result"]["correct"] for record in output] == [True, True, False, False, False]
    assert report["evaluation_summary"] == {"total_records": 5, "status": "success"}
    result = report["results"]
    assert list(result) == ["accuracy", "precision", "recall", "f1_score"]
    assert result["accuracy"] == {"accuracy": 0.4}
    # predicted: Music twice and right once, music once and right, "" and Opera once each and wrong; mean over the four
    assert result["precision"]["precision_per_class"] == {"Music": 0.5, "music": 1.0, "": 0.0, "Opera": 0.0}
    assert result["precision"]["average_precision"] == pytest.approx(1.5 / 4)
    # golden: Music twice and right twice, the others wrong; mean over the four
    assert result["recall"]["recall_per_class"] == {"Music": 1.0, "Art": 0.0, "Sports": 0.0, "History": 0.0}
    assert result["recall"]["average_recall"] == pytest.approx(1 / 4)
    # harmonic means: of 0.5 and 1 for Music, of 1 and nothing for music, and of the two averages
    items = result["f1_score"]["f1_score_per_class"]
    assert {label: value for label, value in items.items() if value} == {"Music": pytest.approx(2 / 3)}
    assert set(items) == {"Music", "music", "", "Opera", "Art", "Sports", "History"}
    assert result["f1_score"]["average_f1_score"] == pytest.approx(2 * 0.375 * 0.25 / 0.625)


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_constant_answer_over_five_classes_is_a_fifth_to_sygra_and_a_fifteenth_by_the_book(
    tmp_path: Path, run: Run, origin: str
) -> None:
    graph = ORIGINS[origin]("classification")
    pairs: list[tuple[str, str | None]] = [
        (topic, "Music") for topic in ("Music", "Art", "Sports", "History", "Other") * 2
    ]
    _, [like_sygra] = outcome(tmp_path, graph, "classification", pairs, run, *LIKE_SYGRA)
    _, [ours] = outcome(tmp_path, graph, "classification", pairs, run)
    averages = {"precision": "average_precision", "recall": "average_recall", "f1_score": "average_f1_score"}
    assert {name: like_sygra["results"][name][key] for name, key in averages.items()} == {
        name: pytest.approx(0.20) for name in averages
    }
    golden, arguments = zip(*pairs, strict=True)
    for name, oracle in (("precision", precision_score), ("recall", recall_score), ("f1_score", f1_score)):
        expected = oracle(golden, arguments, average="macro", zero_division=0)
        assert ours["results"][name][averages[name]] == pytest.approx(expected)
    assert ours["results"]["f1_score"]["average_f1_score"] == pytest.approx(0.0667, abs=1e-4)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a report by its path; of scores by class, all of them together."""
    if isinstance(value, Mapping) and value and not path.endswith("_per_class"):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}".removeprefix("."))
    else:
        yield path, value


def listed(kind: str) -> set[str]:
    """The fields that docs/sygra.md says are others without `--compat sygra`."""
    page = (ROOT / "docs/sygra.md").read_text()
    [row] = re.findall(rf"^\| `{kind}` \|(.*)\|$", page, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row))


PAIRS = {"question_answering": QUESTIONS, "classification": TOPICS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("origin", ORIGINS)
def test_without_compat_exactly_the_listed_fields_differ(tmp_path: Path, run: Run, origin: str, kind: str) -> None:
    graph = ORIGINS[origin](kind)
    like_sygra, [their_report] = outcome(tmp_path, graph, kind, PAIRS[kind], run, *LIKE_SYGRA)
    ours, [our_report] = outcome(tmp_path, graph, kind, PAIRS[kind], run)
    assert ours == like_sygra
    before, after = dict(leaves(their_report)), dict(leaves(our_report))
    lacking = object()
    differing = {path for path in {**before, **after} if before.get(path, lacking) != after.get(path, lacking)}
    assert differing == listed(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_configurations_have_every_key_of_the_reference_and_no_other(kind: str) -> None:
    def shape(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: shape(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [shape(inner) for inner in value]
        return "a text" if isinstance(value, str) and " " in value else value

    assert shape(yaml.safe_load(OURS[kind])) == shape(yaml.safe_load(theirs(kind)))
