"""The documents stay true: pages are generated, examples are run, and every requirement names its test."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml
from tools import make_reference

from assay import TaskManager, simple_evaluate
from assay.catalog.selection import looks_like_path
from assay.cli import main
from assay.errors import ConfigError
from assay.models import Scripted
from assay.models.arguments import BACKEND_DESCRIPTIONS, DESCRIPTIONS, arguments_of, distinct_backends
from assay.tasks.validate import validate
from commands import isolated_state

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ROWS = "".join(
    f'{{"question": "q{n}", "choices": ["a", "b"], "answer": 0, "other_answer": "c", "passage": "p"}}\n'
    for n in range(7)
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def write_helpers(folder: Path) -> None:
    """The Python examples that begin with the name of their file."""
    for text in [text for page in PAGES for text in blocks(page, "python") if re.match(r"# \w+\.py\n", text)]:
        (folder / text.split()[1]).write_text(text)


def write_data(folder: Path, *pages: Path) -> None:
    """The data that the line before it names."""
    for page in pages:
        for name, text in re.findall(r"`(\w+\.jsonl)`:\n\n```json\n(.*?)```", page.read_text(), re.DOTALL):
            (folder / name).write_text(text)


def test_the_functions_in_the_documents_give_what_they_should(tmp_path: Path) -> None:
    """The references are "a" and "b". The last two words of the answers begin alike in 3 of 4, and are equal to one in 2."""
    [text] = [text for text in blocks(ROOT / "docs/metrics.md", "yaml") if "task: quiz_own" in text]
    (tmp_path / "quiz_own.yaml").write_text(text)
    (tmp_path / "quiz.jsonl").write_text(ROWS * 3)
    write_helpers(tmp_path)
    answers = ["a", "b", "so it is an x", "so it is"]
    model = Scripted(generate=lambda prompt, params, repeat: answers[repeat])
    row = simple_evaluate(model=model, tasks=["quiz_own"], include_path=str(tmp_path), include_defaults=False)[
        "results"
    ]
    values = {name: value for name, value in row["quiz_own"].items() if name.endswith(",last") and "stderr" not in name}
    assert values == {
        "near,last": 0.75,
        "length,last": (1 + 1 + 4 + 5) / 4,
        "exact_match,last": 0.5,
        "steady,last": 0.0,
    }


def test_every_yaml_example_in_the_documents_loads(tmp_path: Path) -> None:
    helpers = "def process_docs(rows): return rows\n\n\ndef question(row): return row['question']\n\n\nworst_two = spread = question\n"
    helpers += "\n\ndef scores(doc, results): return {}\n"
    count = 0
    for page in PAGES:
        for text in blocks(page, "yaml"):
            count += 1
            name = re.search(r"^(?:task|group|format): *(\w+)", text, re.MULTILINE)
            assert name, f"{page.name}: a YAML block that names nothing:\n{text}"
            (tmp_path / f"{name.group(1)}.yaml").write_text(text)
    assert count >= 6
    (tmp_path / "utils.py").write_text(helpers)
    write_helpers(tmp_path)
    write_data(tmp_path, *PAGES)
    for name in ("quiz", "quiz_hard"):
        (tmp_path / f"{name}.jsonl").write_text(ROWS)
    for name in ("extract", "solve"):  # tasks with any metric: only their code knows
        scored = "dataset_path: json\ndataset_kwargs: {data_files: {test: quiz.jsonl}}\ntest_split: test\n"
        scored += "doc_to_text: question\ndoc_to_target: answer\nprocess_results: !function utils.scores\n"
        (tmp_path / f"{name}.yaml").write_text(
            f"task: {name}\n{scored}metric_list: [{{metric: acc, aggregation: mean}}]\n"
        )
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    notes = [problem for problem in validate(manager) if not problem.serious and "in the role" not in problem.what]
    assert [str(problem) for problem in validate(manager) if problem.serious] == []
    assert [(Path(note.place.file).name, note.what) for note in notes] == [
        ("quiz_by_a_graph.yaml", "no metric: nothing is measured")  # it shows three nodes and no more
    ]
    assert manager.load(manager.all_tasks)["tasks"]


@pytest.mark.torch
def test_python_examples_in_the_documents_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tasks").mkdir()
    monkeypatch.chdir(tmp_path)
    for page in PAGES:
        for text in blocks(page, "python"):
            with isolated_state(), warnings.catch_warnings():  # each as a reader runs it, who has not run the others
                warnings.simplefilter("default")
                exec(compile(text, page.name, "exec"), {"__name__": "__main__"})


def test_the_generated_pages_are_up_to_date(tmp_path: Path) -> None:
    make_reference.main(tmp_path)
    for page in sorted(tmp_path.iterdir()):
        assert page.read_text() == (ROOT / "docs/reference" / page.name).read_text(), f"{page.name}: run `make docs`"


def test_the_tables_of_differences_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools/make_differences_pages.py"), str(tmp_path)], check=True)
    for page in ("lm-eval.md", "sygra.md"):
        assert (tmp_path / page).read_text() == (ROOT / "docs" / page).read_text(), f"{page}: run `make docs`"


def test_every_backend_has_a_page_with_all_its_arguments_explained() -> None:
    """A page links to the backend's section of the generated reference, where no argument is without its sentence."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/backends").glob("*.md"))
    reference = (ROOT / "docs/reference/models.md").read_text()
    assert set(re.findall(r"\]\(\.\./reference/models\.md#(\S+)\)", pages)) == set(distinct_backends())
    assert set(re.findall(r"^## (\S+)$", reference, re.MULTILINE)) == set(distinct_backends())
    for name in distinct_backends():
        assert [argument.name for argument in arguments_of(name) if not argument.meaning] == [], name
    used = {argument.name for name in distinct_backends() for argument in arguments_of(name)}
    assert sorted({*DESCRIPTIONS, *(key for _, key in BACKEND_DESCRIPTIONS)} - used) == []


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_requirement_that_is_built_names_tests_that_exist() -> None:
    tests = {
        f"{path.name}::{name}"
        for path in (ROOT / "tests").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = re.findall(r"`(test_\w+\.py::test_\w+)`", (ROOT / "docs/seeds.md").read_text())
    assert len(named) > 20
    assert sorted(set(named) - tests) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_path_of_a_machine(page: Path) -> None:
    assert not re.search(r"/(?:home|root|Users|work)/\w", page.read_text())


def test_bundled_task_files_are_yaml_that_others_can_read() -> None:
    for path in (ROOT / "src/assay/bundled").rglob("*.yaml"):
        assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_page_of_the_api_names_what_is_public() -> None:
    import assay

    named = set(re.findall(r"`(\w+)`", (ROOT / "docs/api.md").read_text()))
    assert {name for name in named if name not in dir(assay)} <= {"assay"}
    missing = {name for name in assay.__all__ if name not in named and not name.endswith(("Aggregator", "Registry"))}
    explained_elsewhere = {  # the seeds' names, on the pages of scorers, groups, graphs and plug-ins
        "AggMetricConfig", "AggregatorFactory", "AggregatorMetric", "CrossFilterScorer", "DataTransform", "GenResult", "GenerateTask",
        "GraphPostProcessor", "Instance", "MCResult", "MetricCollatorPostProcessor", "MultipleChoiceTask", "ProcessResultsScorer",
        "Results", "SCORER_REGISTRY", "ScorerFactory", "UnitMetric", "UnitMetricResult", "UnitMetrics", "__version__",
        "register_aggregator", "register_scorer",
    }  # fmt: skip
    assert missing == explained_elsewhere


NAMED = re.compile(r"\bassay\b.*?(?:--tasks|-t|\bshow|\bvalidate|\bfetch(?: data)?)[ =]+([^\s`|;)…]+)")
OWN = {"eval/classification/simpleqa", "my_graph", "quiz", "tag:reasoning", "tasks"}
"""Names that a reader chooses; and `assay fetch tasks`."""


def test_every_name_of_a_task_in_a_command_of_the_documents_resolves_or_is_answered_with_the_way_to_get_it() -> None:
    """After the documented install, without lm_eval."""
    manager, checked = TaskManager(), set()
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        defined = {*re.findall(r"^\s*(?:task|group): (\w+)$", text, re.MULTILINE), *OWN}
        for name in {each for listed in NAMED.findall(text) for each in listed.split(",")}:
            bare = name.partition("@")[0]
            if looks_like_path(bare) or bare in defined or bare.isupper() or bare.startswith("-"):
                continue
            checked.add(bare)
            try:
                assert manager.load([name])["tasks"], (page.name, name)
            except ConfigError as error:
                assert "is one of lm-eval's" in str(error) and "assay fetch tasks" in str(error), (
                    page.name,
                    str(error),
                )
    assert checked >= {"first_steps", "gsm8k", "arc_easy", "mmlu"}


def test_the_table_of_the_page_on_runs_is_what_its_command_prints(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--tasks", "first_steps_sums", "--output_path", str(tmp_path / "run")]) == 0
    printed = [line for line in capfd.readouterr().out.splitlines() if line.startswith("|")]
    page = [line.strip() for line in (ROOT / "docs/running.md").read_text(encoding="utf-8").splitlines()]
    assert len(printed) == 4
    assert page[page.index(printed[0]) :][:4] == printed
