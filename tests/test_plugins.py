"""Plug-ins: packages with entry points, files of --plugin, decorators; and what is refused about them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import assay
import run_world
from assay import ConfigError
from assay.errors import Place
from assay.plugins import REGISTRIES, registry
from assay.registry import Registry, must_be_callable
from commands import Ended, Run, run_process
from small_runs import SAMPLED, run, says, write_task

PACKAGE = Path(__file__).parent / "plugin_package"
AT = Place("t.yaml", 3, 5)

QUIZ = """
    output_type: generate_until
    doc_to_text: q
    doc_to_target: gold
    repeats: 2
    num_fewshot: 1
    fewshot_split: test
    fewshot_config: {sampler: last_n}
    generation_kwargs: {do_sample: true, temperature: 1.0, until: []}
    filter_list: [{name: word, filter: [{function: nth_word, n: 1}, {function: take_first_k, k: 2}]}]
    metric_list:
      - {metric: starts_alike, letters: 3, aggregation: lowest, floor: 0.25}
      - {metric: exact_match, reduction: {both: spread}}
"""
LONG = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nscorer: {type: long_enough, kwargs: {least: 9}}\n"
GRAPH = """
    data_config:
      source:
        type: disk
        file_path: records.jsonl
        transformations: [{transform: loud, params: {field: problem}}]
    graph_config:
      nodes:
        ask: {node_type: llm, prompt: [{user: "{problem}"}], output_keys: said, model: {name: any}}
        unit_metrics:
          node_type: lambda
          lambda: tasks.eval.utils.UnitMetrics
          golden_key: answer
          predicted_key: said
          unit_metrics_map: [{name: same_length, params: {slack: 1}}]
          output_keys: [same_length_result]
      edges: [{from: START, to: ask}, {from: ask, to: unit_metrics}, {from: unit_metrics, to: END}]
    output_config:
      output_map: {said: {from: said}, same_length_result: {from: same_length_result}}
    graph_post_process:
      - processor: tasks.eval.utils.MetricCollatorPostProcessor
        params:
          aggregator_metrics_map:
            - {name: share_right, params: {scale: 10}, unit_metrics_results: [same_length_result]}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder into which the wheel of the demo package was installed."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PACKAGE, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    build = [*pip, "wheel", *offline, "--no-build-isolation", "-w", folder / "wheels", folder / "source"]
    subprocess.run(list(map(str, build)), check=True)
    [wheel] = (folder / "wheels").glob("*.whl")
    subprocess.run(list(map(str, [*pip, "install", *offline, "--target", folder / "site", wheel])), check=True)
    return str(folder / "site")


@pytest.fixture
def with_plugin(installed: str, run_assay_process: Run) -> Run:
    path = os.pathsep.join([installed, os.environ.get("PYTHONPATH", "")])
    return lambda *arguments, **more: run_assay_process(*arguments, PYTHONPATH=path, **more)


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return run_world.results(folder)["results"]


def test_an_installed_package_adds_one_of_each_kind_to_the_command_line(tmp_path: Path, with_plugin: Run) -> None:
    rows = [{"q": "one red", "gold": "redder"}, {"q": "two blue", "gold": "blue"}]
    write_task(tmp_path, rows, QUIZ, "quiz")
    write_task(tmp_path, rows, LONG, "long")
    entry = "{metric: long_enough, aggregation: widest, kwargs: {scale: 2}}"
    (tmp_path / "pair.yaml").write_text(f"group: pair\ntask: [long, short]\naggregate_metric_list: [{entry}]\n")
    write_task(tmp_path, rows, LONG.replace("least: 9", "least: 8"), "short")
    (tmp_path / "records.jsonl").write_text(
        '{"problem": "a cat", "answer": "A DOG"}\n{"problem": "no", "answer": "yes!"}\n'
    )
    (tmp_path / "graph_config.yaml").write_text(dedent(GRAPH))
    ended = with_plugin(
        "run", "--model", "parrot", "-a", "suffix=!", "-o", "out", "--include_path", ".", "--no_defaults",
        "--tasks", "quiz", "pair", "long@plain_question", "./graph_config.yaml",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    result_row = rows_of(tmp_path / "out")
    # prompts: the last document as example, "two blue blue", then the question: the word at 1 is "blue"; its copy is "blue"
    assert result_row["quiz"]["starts_alike,word"] == 0.25
    assert result_row["quiz"]["both,word"] == 0.0
    # "one red!" has 8 letters, "two blue!" has 9: half are long enough for 9, all for 8; twice the difference
    assert (result_row["long"]["long_enough,none"], result_row["short"]["long_enough,none"]) == (0.5, 1.0)
    assert result_row["pair"]["long_enough,none"] == 1.0
    # "A CAT!" is one letter longer than "A DOG", "NO!" one shorter than "yes!"
    [graph] = [row for name, row in result_row.items() if "share_right,none" in row]
    assert graph["share_right,none"] == 10.0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["plugins"] == {"assay-demo": "1.2.3"}
    exported = with_plugin("export", "out", "--to", "names_only", "-o", "names")
    assert exported.returncode == 0, exported.stderr
    assert "quiz" in (tmp_path / "names/names.txt").read_text()


WORDS = """
    output_type: generate_until
    doc_to_text: q
    doc_to_target: gold
    metric_list: [{metric: same_length, slack: 2}]
"""


def test_metrics_of_an_installed_package_work_in_tasks_and_graphs_alike(tmp_path: Path, with_plugin: Run) -> None:
    """By hand: "one red!" is two letters longer than redder, "two blue!" five than blue; "A CAT!" starts with two letters as
    "A DOG" does, "NO!" not as "yes!"; the lowest of these is 0, and `floor` is 0.25."""
    write_task(tmp_path, [{"q": "one red", "gold": "redder"}, {"q": "two blue", "gold": "blue"}], WORDS, "words")
    graph = dedent(GRAPH).replace(
        "{name: same_length, params: {slack: 1}}", "{name: starts_alike, params: {letters: 2}}"
    )
    graph = graph.replace("{name: share_right, params: {scale: 10},", "{name: lowest, params: {floor: 0.25},")
    (tmp_path / "graph_config.yaml").write_text(graph.replace("same_length", "starts_alike"))
    (tmp_path / "records.jsonl").write_text(
        '{"problem": "a cat", "answer": "A DOG"}\n{"problem": "no", "answer": "yes!"}\n'
    )
    tasks = ["words", "./graph_config.yaml"]
    checked = with_plugin("validate", "--include_path", ".", "--no_defaults", *tasks)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shared = ["--model", "parrot", "-a", "suffix=!", "-o", "out", "--include_path", ".", "--no_defaults"]
    ended = with_plugin("run", *shared, "--tasks", *tasks)
    assert ended.returncode == 0, ended.stderr
    result_rows = rows_of(tmp_path / "out")
    assert result_rows["words"]["same_length,none"] == 0.5
    [row] = [row for name, row in result_rows.items() if name != "words"]
    assert (row["starts_alike,none"], row["lowest,none"]) == (0.5, 0.25)


LIST = "import sys\nfrom assay.cli import main\nfor kind in sys.argv[1:]: print(f'[{kind}]'); main(['ls', kind, '--no_defaults'])"


@pytest.fixture(scope="module")
def listed(installed: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `ls` lists of each kind where the demo package is installed, under the kind in brackets."""
    path = os.pathsep.join([installed, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "ASSAY_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, "-c", LIST, *REGISTRIES]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", REGISTRIES)
def test_ls_lists_the_plug_ins_of_every_kind(kind: str, installed: str, listed: str) -> None:
    names = (Path(installed) / "assay_demo-1.2.3.dist-info/entry_points.txt").read_text()
    [own] = [line.split(" =")[0] for line in names.partition(f"[assay.{kind}]\n")[2].splitlines()[:1]]
    assert own in listed.partition(f"[{kind}]\n")[2].partition("[")[0].splitlines()


SLIPS = [
    ("metric_list: [{metric: starts_alik}]", "no metric named 'starts_alik' — did you mean 'starts_alike'?"),
    ("metric_list: [{metric: starts_alike, leters: 2}]", "has no parameter 'leters' — did you mean 'letters'?"),
    ("metric_list: [{metric: starts_alike, letters: two}]", "'letters' cannot be 'two' — it must be of type int"),
    ("filter_list: [{name: f, filter: [{function: nth_wrod}]}]", "did you mean 'nth_word'?"),
    ("filter_list: [{name: f, filter: [{function: nth_word, n: one}]}]", "'n' cannot be 'one'"),
    ("scorer: {type: long_enough, kwargs: {lest: 1}}", "scorer 'long_enough' has no parameter 'lest'"),
    ("metric_list: [{metric: exact_match, aggregation: lowst}]", "did you mean 'lowest'?"),
    ("metric_list: [{metric: exact_match, reduction: spraed}]", "did you mean 'spread'?"),
    ("fewshot_config: {sampler: last_m}", "did you mean 'last_n'?"),
]


@pytest.fixture(scope="module")
def checked(installed: str, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """What `validate` says of tasks with one slip each, where the demo package is installed."""
    folder = tmp_path_factory.mktemp("slips")
    fields = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    for number, (yaml, _) in enumerate(SLIPS):
        write_task(folder, [{"q": "a", "gold": "b"}], f"{fields}{yaml}\n", name=f"t{number}")
    path = os.pathsep.join([installed, os.environ.get("PYTHONPATH", "")])
    return run_process(
        "validate", ".", cwd=folder, PYTHONPATH=path, ASSAY_CACHE_DIR=str(tmp_path_factory.mktemp("cache"))
    )


@pytest.mark.parametrize(("yaml", "said"), SLIPS)
def test_the_names_and_parameters_of_plug_ins_are_checked_by_validate(yaml: str, said: str, checked: Ended) -> None:
    file = f"t{[slip for slip, _ in SLIPS].index(yaml)}.yaml:"
    assert [line for line in checked.stdout.splitlines() if file in line and said in line]
    assert checked.returncode == 1


def test_an_argument_of_a_plug_ins_model_is_checked(tmp_path: Path, with_plugin: Run) -> None:
    write_task(
        tmp_path, [{"q": "a", "gold": "b"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    )
    ended = with_plugin("run", "--tasks", "./t.yaml", "--no_output", "--model", "parrot", "-a", "sufix=x")
    assert "model 'parrot' has no argument 'sufix' — did you mean 'suffix'?" in ended.stderr
    assert ended.returncode == 2


def site(folder: Path, name: str, code: str, entries: str, version: str = "1.0") -> Path:
    """An installed package: its module and its metadata."""
    (folder / f"{name}.py").write_text(dedent(code))
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(dedent(entries))
    return folder


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def small(kind: str = "metric", **more: Any) -> Registry[Any, Any]:
    return Registry(kind, {"own": len}, group="assay.trial", adopt=must_be_callable, **more)


def test_a_plug_in_that_cannot_be_imported_is_reported_with_its_package_and_the_reason(sites: Path) -> None:
    site(sites, "broken_one", "import no_such_library\n", "[assay.trial]\nmine = broken_one:mine\n")
    with pytest.raises(
        ConfigError, match=r"assay\.trial of broken_one \(broken_one:mine\).*'mine' cannot be loaded.*no_such_library"
    ):
        small().find("mine", AT)


def test_an_entry_point_that_is_not_callable_is_refused(sites: Path) -> None:
    site(sites, "number_one", "mine = 42\n", "[assay.trial]\nmine = number_one:mine\n")
    with pytest.raises(ConfigError, match=r"of number_one .*'mine' must be a function or a class, got 42"):
        small().find("mine", AT)


def test_an_entry_point_whose_object_does_not_exist_is_refused(sites: Path) -> None:
    site(sites, "empty_one", "", "[assay.trial]\nmine = empty_one:mine\n")
    with pytest.raises(ConfigError, match=r"of empty_one .*AttributeError.*no attribute 'mine'"):
        small().find("mine", AT)


def test_two_plug_ins_with_one_name_are_refused_with_both_places(sites: Path) -> None:
    site(sites, "first_one", "def mine(): ...\n", "[assay.trial]\nmine = first_one:mine\n")
    site(sites, "second_one", "def mine(): ...\n", "[assay.trial]\nmine = second_one:mine\n")
    with pytest.raises(
        ConfigError,
        match=r"two plug-ins register the metric 'mine'.*first_one:mine.*second_one:mine|second_one:mine.*first_one:mine",
    ):
        small().find("mine", AT)
    assert len(small().plugin_problems()) == 1


def test_a_registered_thing_with_the_name_of_another_packages_plug_in_is_refused_with_both_places(sites: Path) -> None:
    site(sites, "third_one", "def mine(): ...\n", "[assay.trial]\nmine = third_one:mine\n")
    with pytest.raises(ConfigError, match=r"two metrics are called 'mine': .*third_one:mine.* and .*test_plugins"):
        small().register("mine")(lambda: None)


def test_a_plug_in_with_the_name_of_a_built_in_is_reported_and_never_imported(sites: Path) -> None:
    site(sites, "greedy_one", "raise SystemExit\n", "[assay.trial]\nown = greedy_one:own\n")
    known = small()
    assert known["own"] is len
    [problem] = known.plugin_problems()
    assert "greedy_one" in str(problem)
    assert "built-in metric" in str(problem)


def test_validate_reports_a_plug_in_that_has_the_name_of_a_built_in(tmp_path: Path, run_assay_process: Run) -> None:
    (tmp_path / "site").mkdir()
    site(tmp_path / "site", "greedy_two", "", "[assay.metrics]\nexact_match = greedy_two:x\n")
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    ended = run_assay_process("validate", "--no_defaults", "--include_path", ".", PYTHONPATH=path)
    assert "greedy_two" in ended.stdout
    assert "that of a built-in metric" in ended.stdout
    assert ended.returncode == 1


def test_a_class_with_a_wrong_signature_is_refused_when_it_is_registered() -> None:
    class Stubborn(assay.RowAggregator):
        def __init__(self) -> None: ...

        def combine(self, members: Any, weights: Any) -> Any: ...

    with pytest.raises(
        TypeError, match=r"Stubborn cannot be used as aggregator: it must take \(config, …\) by position"
    ):
        assay.aggregator("stubborn")(Stubborn)
    with pytest.raises(TypeError, match=r"must take \(references, prediction, …\)"):
        assay.metric("lonely")(lambda prediction: 0)
    assert "stubborn" not in registry("aggregators")


def test_a_decorator_refuses_the_name_of_a_built_in_and_a_name_of_another_place() -> None:
    with pytest.raises(ConfigError, match="'exact_match' is that of a built-in metric"):
        assay.metric("exact_match")(lambda references, prediction: 1)
    known = small()

    def first() -> None: ...

    def second() -> None: ...

    known.register("mine")(first)
    known.register("mine")(first)
    with pytest.raises(ConfigError, match=r"two metrics are called 'mine': .*first and .*second"):
        known.register("mine")(second)


def test_every_problem_of_a_binding_is_reported_at_once_and_kwargs_take_anything() -> None:
    def scaled(values: Any, *, factor: float, steps: int = 1, mode: str = "up", anything: Any = None) -> None: ...

    known = small(supplied=("values",))
    params = {"steps": "two", "mod": "down", "anything": object()}
    with pytest.raises(ConfigError) as caught:
        known.bind(scaled, params, lambda key: Place("t.yaml", 3, len(key) + 1), [])
    assert [str(problem) for problem in caught.value.problems] == [
        "t.yaml:3:6: metric 'scaled': 'steps' cannot be 'two' — it must be of type int",
        "t.yaml:3:4: metric 'scaled' has no parameter 'mod' — did you mean 'mode'?",
        "t.yaml:3:1: metric 'scaled' needs the parameter 'factor' — add `factor:`",
    ]

    def loose(values: Any, **kwargs: Any) -> Any:
        return kwargs

    assert known.bind(loose, {"steps": "two"}, AT, []) == {"steps": "two"}
    assert known.accepts(loose).takes_any


def test_show_prints_which_metric_takes_any_parameter(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "own.py").write_text("def loose(references, predictions, **kwargs): return 1\n")
    yaml = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: !function own.loose, aggregation: mean, x: 1}]\n"
    write_task(tmp_path, [{"q": "a", "gold": "b"}], yaml)
    assert "metric 'loose' takes any parameter (**kwargs)" in run_assay("show", "./t.yaml").stdout


PLUGIN = '''
    """A user's own metric, model and reduction."""
    import assay
    from assay.models import Scripted


    @assay.metric("gap", higher_is_better=False)
    def gap(references, prediction, *, weight: float = 1.0):
        return weight * abs(len(prediction) - len(references[0]))


    @assay.model("fixed")
    def fixed(*, text: str = "abc"):
        return Scripted(lambda prompt, params, repeat: text, name="fixed", identity=f"fixed {text}")
'''
GAP = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: gap, weight: 2}]\n"


def test_a_file_given_with_plugin_is_honoured_by_run_resume_score_and_validate(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "mine.py").write_text(dedent(PLUGIN))
    write_task(tmp_path, [{"q": "a", "gold": "b"}], GAP)
    assert run_assay("validate", "./t.yaml").returncode == 1
    assert run_assay("validate", "./t.yaml", "--plugin", "mine.py").returncode == 0
    command = ("run", "--plugin", "mine.py", "--model", "fixed", "--tasks", "./t.yaml", "-o", "out")
    ended = run_assay(*command)
    assert ended.returncode == 0, ended.stderr
    assert rows_of(tmp_path / "out")["t"]["gap,none"] == 4.0  # twice the two letters that "abc" has more than "b"
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["options"]["plugins"] == [str(tmp_path / "mine.py")]
    assert list(manifest["helper_files"]) == [str(tmp_path / "mine.py")]
    again = run_assay(*command)
    assert again.returncode == 0, again.stderr
    scored = run_assay("score", "out")
    assert scored.returncode == 0, scored.stderr
    assert "no number changed" in scored.stdout
    assert "gap" in run_assay("ls", "metrics", "--plugin", "mine.py").stdout.split()


def test_a_run_whose_plug_in_changed_is_another_run(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "mine.py").write_text(dedent(PLUGIN))
    write_task(tmp_path, [{"q": "a", "gold": "b"}], GAP)
    command = ("run", "--plugin", "mine.py", "--model", "fixed", "--tasks", "./t.yaml", "-o", "out")
    assert run_assay(*command).returncode == 0
    (tmp_path / "mine.py").write_text(dedent(PLUGIN).replace("return weight *", "return 3 * weight *"))
    ended = run_assay(*command)
    assert ended.returncode == 2
    assert "helper_code" in ended.stderr


def test_plugins_may_be_named_in_the_file_of_a_run_and_in_python(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "mine_too.py").write_text(dedent(PLUGIN).replace('"gap"', '"gap_too"'))
    write_task(tmp_path, [{"q": "0", "gold": "b"}], GAP.replace("gap", "gap_too"))
    (tmp_path / "run.yaml").write_text("plugins: mine_too.py\nmodel: fixed\ntasks: ./t.yaml\noutput_path: out\n")
    ended = run_assay("run", "--config", "run.yaml")
    assert ended.returncode == 0, ended.stderr
    try:
        results = run(tmp_path, says(["abcd"]), plugins=[str(tmp_path / "mine_too.py")])
        assert results["results"]["t"]["gap_too,none"] == 6.0
    finally:
        for kind, name in (("metrics", "gap_too"), ("models", "fixed")):
            registry(kind).pop(name, None)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("gone.py", None, "--plugin gone.py: there is no such file"),
        ("no_such_module_here", None, "the plug-in cannot be loaded: ModuleNotFoundError"),
        ("bad.py", "import assay\n1 / 0\n", "--plugin bad.py: the plug-in cannot be loaded: ZeroDivisionError"),
        ("ends.py", "raise SystemExit(0)\n", "the plug-in cannot be loaded: SystemExit: 0"),
        ("slip.py", "def (\n", "the plug-in cannot be loaded: SyntaxError"),
        ("taken.py", "import assay\nassay.metric('acc')(lambda references, prediction: 1)\n", "'acc' is that of a built-in metric"),
        ("shape.py", "import assay\nassay.metric('x')(lambda: 1)\n", "must take (references, prediction, …)"),
        ("wrong.py", "import assay\nassay.scorer('x')(dict)\n", "must be a class derived from assay.Scorer"),
    ],
)  # fmt: skip
def test_a_plug_in_that_cannot_be_used_ends_the_command_before_anything_runs(
    name: str, code: str | None, said: str, tmp_path: Path, run_assay: Run
) -> None:
    if code is not None:
        (tmp_path / name).write_text(code)
    ended = run_assay("ls", "metrics", "--plugin", name)
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 2


def test_a_run_from_elsewhere_does_not_load_the_plug_ins_it_names(tmp_path: Path, run_assay: Run) -> None:
    write_task(tmp_path, [{"q": "a", "gold": "b"}], GAP.replace("{metric: gap, weight: 2}", "{metric: exact_match}"))
    assert run_assay("run", "--model", "dummy", "--tasks", "./t.yaml", "-o", "out").returncode == 0
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    manifest["options"]["plugins"] = [str(tmp_path / "evil.py")]  # the signature no longer fits: it is not our own
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest))
    run_assay("score", "out", "--include_path", ".")
    assert not (tmp_path / "executed").exists()


METRIC = """
    def half(references, prediction, *, weight: float = 0.5):
        return weight * (prediction in references)


    def halves(references, predictions, *, weight=0.5):
        return weight * (predictions[0] == references[0])


    def of_pair(items, *, weight=0.5):
        return weight * (items[0] == items[1])


    def top(values, *, least=0.0):
        return max([least, *values])
"""


@pytest.mark.parametrize("name", ["half", "halves", "of_pair"])
def test_a_users_metric_takes_parameters_in_each_of_the_three_shapes(name: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(dedent(METRIC))
    entry = f"{{metric: !function own.{name}, aggregation: !function own.top, weight: 0.25, least: 0.125}}"
    write_task(
        tmp_path, [{"q": "0", "gold": "a"}, {"q": "1", "gold": "b"}], GAP.replace("{metric: gap, weight: 2}", entry)
    )
    results = run(tmp_path, says(["a", "x"]))
    assert results["results"]["t"][f"{name},none"] == 0.25
    assert run(tmp_path, says(["x", "x"]))["results"]["t"][f"{name},none"] == 0.125


@pytest.mark.parametrize("name", ["half", "halves", "of_pair"])
def test_a_typo_in_a_parameter_of_a_users_metric_is_refused_by_validate_and_before_any_request(
    name: str, tmp_path: Path, run_assay: Run
) -> None:
    (tmp_path / "own.py").write_text(dedent(METRIC))
    entry = f"{{metric: !function own.{name}, aggregation: mean, weigth: 0.25}}"
    write_task(tmp_path, [{"q": "a", "gold": "b"}], GAP.replace("{metric: gap, weight: 2}", entry))
    said = f"metric '{name}' has no parameter 'weigth' — did you mean 'weight'?"
    assert said in run_assay("validate", "./t.yaml").stdout
    asked: list[str] = []
    with pytest.raises(ConfigError, match="did you mean 'weight'"):
        run(tmp_path, says(asked))
    assert asked == []


def test_a_typo_in_a_parameter_of_a_users_filter_is_refused_before_any_request(tmp_path: Path) -> None:
    code = (
        "def cut(resps, docs, *, length: int = 1):\n    return [[r[:length] for r in several] for several in resps]\n"
    )
    (tmp_path / "own.py").write_text(code)
    yaml = (
        GAP.replace("{metric: gap, weight: 2}", "{metric: exact_match}")
        + "filter_list: [{name: f, filter: [{function: !function own.cut, KEY}, {function: take_first}]}]\n"
    )
    for key, said in (("lenght: 2", "did you mean 'length'?"), ("length: two", "it must be of type int")):
        write_task(tmp_path, [{"q": "0", "gold": "ab"}], yaml.replace("KEY", key))
        with pytest.raises(ConfigError, match=said):
            run(tmp_path, says(["abc"]))
    write_task(tmp_path, [{"q": "0", "gold": "ab"}], yaml.replace("KEY", "length: 2"))
    assert run(tmp_path, says(["abc"]))["results"]["t"]["exact_match,f"] == 1.0


def test_a_plug_in_reduction_may_have_a_numeric_suffix(tmp_path: Path) -> None:
    @assay.reduction("best_of_")
    def best_of(scores: list[float], *, k: int) -> float:
        return max(scores[:k])

    yaml = GAP.replace("{metric: gap, weight: 2}", "{metric: exact_match, reduction: [best_of_1, best_of_2]}")
    write_task(tmp_path, [{"q": "0", "gold": "a"}], yaml + SAMPLED + "repeats: 2\n")
    try:
        row = run(tmp_path, says([["x", "a"]]))["results"]["t"]
        assert (row["best_of_1,none"], row["best_of_2,none"], row["exact_match,none"]) == (0.0, 1.0, 0.5)
        write_task(tmp_path, [{"q": "0", "gold": "a"}], yaml.replace("[best_of_1, best_of_2]", "best_of_") + SAMPLED)
        with pytest.raises(ConfigError, match="no reduction named 'best_of_'"):
            run(tmp_path, says(["a"]))
    finally:
        del registry("reductions")["best_of_"]


def test_the_page_about_plug_ins_shows_each_kind_in_at_most_fifteen_lines() -> None:
    page = (Path(__file__).parent.parent / "docs/plugins.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert max(len(block.splitlines()) for block in blocks) <= 15
    for kind in REGISTRIES:
        assert any(f'{kind.removesuffix("s")}("' in block for block in blocks), kind
        assert f"`assay.{kind}`" in page


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("aggregation: meen", "no aggregator named 'meen' — did you mean 'mean'?"),
        ("aggregation: pass@k, kwargs: {kk: 2}", "aggregator 'pass@k' has no parameter 'kk' — did you mean 'k'?"),
        ("aggregation: !function own.gap, kwargs: {scal: 2}", "aggregator 'gap' has no parameter 'scal' — did you mean 'scale'?"),
        ("aggregation: !function own.gap, kwargs: {scale: two}", "aggregator 'gap': 'scale' cannot be 'two'"),
        ("aggregation: !function own.short", "aggregator 'short' must take 2 arguments by position"),
    ],
)  # fmt: skip
def test_the_aggregators_of_a_group_are_checked_by_validate(
    entry: str, said: str, tmp_path: Path, run_assay: Run
) -> None:
    code = "def gap(group, results, *, scale: float = 1.0): return 0.5\n\n\ndef short(group): return 0\n"
    (tmp_path / "own.py").write_text(code)
    write_task(tmp_path, [{"q": "a", "gold": "b"}], GAP.replace("{metric: gap, weight: 2}", "{metric: exact_match}"))
    (tmp_path / "g.yaml").write_text(
        f"group: g\ntask: [t]\naggregate_metric_list:\n  - {{metric: exact_match, {entry}}}\n"
    )
    ended = run_assay("validate", "g", "--include_path", ".", "--no_defaults")
    assert said in ended.stdout
    assert "g.yaml:4:" in ended.stdout


def test_problems_of_filters_and_metrics_are_reported_together(tmp_path: Path, run_assay: Run) -> None:
    (tmp_path / "d.jsonl").write_text('{"q": "1+1=", "a": "2"}\n')
    (tmp_path / "t.yaml").write_text(
        "task: t\ndataset_path: json\ndataset_kwargs: {data_files: d.jsonl}\ntest_split: train\n"
        "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\n"
        "filter_list:\n"
        "  - {name: a, filter: [{function: regex, regex_patern: x}]}\n"
        "  - {name: b, filter: [{function: take_first}], scorer: llm_juge}\n"
        "metric_list:\n  - {metric: exact_match, ignore_cas: true}\n"
    )
    ended = run_assay("run", "--model", "dummy", "--tasks", str(tmp_path / "t.yaml"), "--no_output")
    assert ended.returncode == 2
    for place, what in (("t.yaml:9:", "'regex_patern'"), ("t.yaml:10:", "'llm_juge'"), ("t.yaml:12:", "'ignore_cas'")):
        assert [line for line in ended.stderr.splitlines() if place in line and what in line], ended.stderr
