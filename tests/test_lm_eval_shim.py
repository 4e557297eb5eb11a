"""packages/assay-lm-eval: lm-eval's commands and names. In separate processes: the package has the name of lm-eval's."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.lm_eval_commands import COMMANDS, TABLE, Command, local, prepare, processes, verdict
from tests.run_world import ACC, ACC_STDERR, COLOURS, EXACT_MATCH, EXACT_MATCH_STDERR, SUMS

from assay.errors import ConfigError

HERE = Path(__file__).parent
ROOT = HERE.parent
SHIM = ROOT / "packages/assay-lm-eval/src"
MODEL = ROOT / "src/assay/bundled/model"
REAL = json.loads((HERE / "lm_eval_files/real.json").read_text(encoding="utf-8"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """Runs Python with the package on the path, in an empty folder."""

    def run(*arguments: object, path: tuple[object, ...] = (), **variables: str) -> "subprocess.CompletedProcess[str]":
        paths = os.pathsep.join(map(str, [SHIM, *path, *sys.path]))
        return subprocess.run(
            [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths, **variables},
        )  # fmt: skip

    return run


def test_a_script_written_for_lm_eval_runs_as_it_is(tasks: Path, tmp_path: Path, python: Run) -> None:
    (tasks / "colours.yaml").write_text(
        (tasks / "colours.yaml").read_text().replace("process_docs: !function tools.same\n", "")
    )
    ended = python(HERE / "lm_eval_script.py", tasks, "out")
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout.splitlines()[-1])
    sums, colours = shown["object"]["sums"], shown["object"]["colours"]
    assert sums["exact_match,none"] == EXACT_MATCH and sums["exact_match_stderr,none"] == pytest.approx(
        EXACT_MATCH_STDERR
    )
    assert colours["acc,none"] == ACC and colours["acc_stderr,none"] == pytest.approx(ACC_STDERR)
    assert shown["batches"] == [8]  # all requests of a kind at once, as lm-eval's models expect
    assert shown["named"] == sums
    assert shown["registered"]["length_of_answer,last"] == 1.0  # of the last letter
    assert shown["evaluate"] == 1.0  # the first two sums are right
    assert shown["letters"] == 0.5  # ` green` costs 6 and ` red` 8: always green, which is right for 2 of 4
    assert shown["dummy"] == ["lol"] and shown["classes"] == [True] * 3 and shown["match"] == ["sums"]
    assert shown["config"] == {"pretrained": "a", "b": 1}
    # a text of ten tokens in windows of four, by hand: the prefix before the first, then three tokens, then what is left
    assert shown["windows"] == [[[[99], [0, 1, 2, 3]], [[3], [4, 5, 6, 7]], [[5, 6, 7], [8, 9]]]]
    [results], [samples] = (list((tmp_path / "out/ScriptedLM").glob(f"{kind}_*")) for kind in ("results", "samples"))
    assert json.loads(results.read_text())["task_hashes"] == shown["hashes"]
    first = json.loads(samples.read_text().splitlines()[0])
    assert first["arguments"]["gen_args_0"]["arg_0"] == "1+1="


def test_the_table_is_that_of_lm_eval(python: Run) -> None:
    ended = python(HERE / "lm_eval_tables.py")
    assert ended.stdout == (HERE / "lm_eval_files/tables.txt").read_text(encoding="utf-8"), ended.stderr


@pytest.fixture
def written(python: Run, tmp_path: Path) -> Callable[[str], "subprocess.CompletedProcess[str]"]:
    """Runs the command that lm-eval's files were made with; the bundled model without torch."""

    def run(output: str) -> "subprocess.CompletedProcess[str]":
        flags = [
            "--tasks",
            "first_steps_facts,first_steps_sums",
            "--limit",
            "8",
            "--log_samples",
            "--output_path",
            output,
        ]
        ended = python("-m", "lm_eval", "--model", "embedded", "--model_args", f"path={MODEL}", *flags)
        assert ended.returncode == 0, ended.stderr
        return ended

    return run


def test_files_have_the_places_keys_and_values_of_lm_eval(written: Any, tmp_path: Path) -> None:
    ended = written("out")
    folder = tmp_path / "out" / re.sub(r"[\"<>:/|\\?*\[\]]+", "__", str(MODEL))
    names = sorted(re.sub(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+", "DATE", each.name) for each in folder.iterdir())
    assert names == ["results_DATE.json", "samples_first_steps_facts_DATE.jsonl", "samples_first_steps_sums_DATE.jsonl"]
    results = json.loads(next(folder.glob("results_*")).read_text())
    assert set(REAL["keys"]) - set(results) == {"tokenizer_pad_token", "tokenizer_bos_token", "tokenizer_eos_token"}
    for key in ("n-samples", "n-shot", "versions", "higher_is_better", "group_subtasks"):
        assert results[key] == REAL[key], key
    for task, row in REAL["results"].items():
        assert results["results"][task] == {name: pytest.approx(value, abs=1e-6) for name, value in row.items()}, task
    for task, expected in REAL["samples"].items():
        lines = [json.loads(line) for line in next(folder.glob(f"samples_{task}_*")).read_text().splitlines()]
        assert sorted(lines[0]) == REAL["sample_keys"][task]
        for line, theirs in zip(lines, expected, strict=False):
            for key in (
                "doc_id",
                "target",
                "filter",
                "arguments",
                "doc_hash",
                "prompt_hash",
                "target_hash",
                "acc",
                "exact_match",
            ):
                assert line.get(key) == theirs.get(key), (task, key)
    assert (
        "embedded ({'path': '" in ended.stdout
        and "), gen_kwargs: ({}), limit: 8.0, num_fewshot: None, batch_size: 1" in ended.stdout
    )
    [run] = (tmp_path / "out/.assay").iterdir()
    assert (run / "manifest.json").is_file() and str(run) in ended.stderr


def test_a_json_path_gets_the_date_into_its_name(written: Any, tmp_path: Path) -> None:
    written("deep/out.json")
    names = sorted(each.name[:14] for each in (tmp_path / "deep").iterdir() if each.is_file())
    assert names == [f"out_{json_date()}", "samples_first_", "samples_first_"]


def json_date() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat()[:10]


def test_both_packages_at_once_are_refused_with_the_remedy(tmp_path: Path, python: Run) -> None:
    (tmp_path / "site/lm_eval-0.4.13.dist-info").mkdir(parents=True)
    (tmp_path / "site/lm_eval-0.4.13.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: lm_eval\nVersion: 0.4.13\n"
    )
    ended = python("-m", "lm_eval", "ls", "tasks", path=(tmp_path / "site",))
    assert ended.returncode == 1 and "pip uninstall -y lm_eval assay-lm-eval, then pip install" in ended.stderr


def test_the_build_refuses_an_environment_that_has_lm_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hatchling", reason="builds happen elsewhere")
    import importlib.util

    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "packages/assay-lm-eval/hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr("sysconfig.get_path", lambda kind: str(tmp_path))
    assert module.installed_lm_eval() is None
    (tmp_path / "lm_eval-0.4.13.dist-info").mkdir()
    (tmp_path / "lm_eval-0.4.13.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: lm_eval\nVersion: 0.4.13\n"
    )
    assert module.installed_lm_eval() == ("0.4.13", str(tmp_path))


def test_the_task_folder_of_lm_eval_is_not_looked_for_in_this_package(python: Run) -> None:
    ended = python("-c", "from assay.catalog.roots import lm_eval_tasks; import lm_eval.tasks; print(lm_eval_tasks())")
    assert ended.stdout.strip() == "None", ended.stderr


NAMES = {
    "from lm_eval.models.mamba_lm import MambaLMWrapper": "derive from lm_eval.api.model.LM",
    "from lm_eval.models.utils import Collator": "copy it into your script",
    "import lm_eval.decontamination.janitor": "no search for contaminated documents",
    "import lm_eval; lm_eval.nothing": "docs/migrating.md",
    "from lm_eval.api.registry import get_model; get_model('nemo_lm')": "convert the .nemo file",
    "from lm_eval.api.registry import register_task; register_task('x')": "class: !function module.Class",
    "import lm_eval.models.huggingface as h\nclass Mine(h.HFLM):\n    def _model_call(self): ...": "from lm_eval.api.model.TemplateLM",
    "import lm_eval; lm_eval.simple_evaluate(object(), tasks=['first_steps_sums'])": "an HFLM, or an object of a class derived",
    "from lm_eval.tasks import get_task_dict; get_task_dict(['first_steps_sums'])['first_steps_sums'].test_docs()": "--dry_run",
}


def test_a_name_that_is_not_there_is_answered_with_a_way(python: Run) -> None:
    lines = ["import sys, traceback", f"cases = {list(NAMES)!r}", "for case in cases:", "    try: exec(case, {})",
             "    except Exception as error: print(str(error).replace(chr(10), ' '))", "    else: print('nothing was raised')"]  # fmt: skip
    ended = python("-c", "\n".join(lines))
    said = ended.stdout.splitlines()
    assert len(said) == len(NAMES), ended.stderr
    for (case, way), answer in zip(NAMES.items(), said, strict=True):
        assert way in answer, case


DRIVER = """
import contextlib, io, json, os, sys
from lm_eval._cli import main
for words, variables in json.load(sys.stdin):
    os.environ.update(variables)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
    for name in variables:
        del os.environ[name]
    print(json.dumps([code, output.getvalue()]))
"""


def _light(command: Command) -> bool:
    """Whether a command needs neither torch nor a server: those are run by bench/lm_eval_commands.py."""
    return "--model hf" not in command.text and "--config" not in command.text and "base_url=" not in command.text


def test_commands_of_the_documentation_of_lm_eval_run_or_are_answered(tmp_path: Path) -> None:
    prepare(tmp_path, MODEL)
    chosen = [
        each for each in COMMANDS if _light(each) and not each.text.startswith("python") and "vllm" not in each.text
    ]
    assert len(chosen) >= 20
    asked = [processes(shlex.split(local(each.text, MODEL, "http://127.0.0.1:9", tmp_path))) for each in chosen]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SHIM), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER], input=json.dumps([[words[1:], more] for words, more in asked]), capture_output=True,
        text=True, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    shown = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(shown) == len(chosen), ended.stderr
    verdicts = {
        each.text: verdict(each, code, output, tmp_path, MODEL)
        for each, (code, output) in zip(chosen, shown, strict=True)
    }
    assert {text: each for text, each in verdicts.items() if each not in ("runs", "answered")} == {}


def test_the_page_of_commands_lists_each_with_its_result() -> None:
    page = TABLE.read_text(encoding="utf-8")
    assert len(COMMANDS) >= 25 and page.count("\n| ") == len(COMMANDS) + 1 and "WRONG" not in page
    for command in COMMANDS:
        assert f"| `{command.text}` | {'answered' if command.answer else 'runs'}" in page, command.text


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in this process, for as long as a test: torch is loaded only once."""
    monkeypatch.syspath_prepend(str(SHIM))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        del sys.modules[name]
    sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != "lm_eval._modules"]


def test_a_model_in_memory_gives_the_numbers_of_lm_eval(in_process: None) -> None:
    torch = pytest.importorskip("torch", reason="transformers is an extra: pip install 'assay[hf]'")
    transformers = pytest.importorskip("transformers")
    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=8, dtype=torch.float32, device=torch.device("cpu"))
    results = lm_eval.simple_evaluate(model=lm, tasks=["first_steps_facts", "first_steps_sums"], limit=8, device="cpu")
    for task, row in REAL["results"].items():
        assert results["results"][task] == {name: pytest.approx(value, abs=1e-6) for name, value in row.items()}, task
    first = REAL["samples"]["first_steps_facts"][0]
    asked = Instance("loglikelihood", {}, tuple(first["arguments"]["gen_args_0"].values()), 0)
    [(value, greedy)] = lm.loglikelihood([asked])
    assert value == pytest.approx(float(first["resps"][0][0][0]), abs=1e-5) and str(greedy) == first["resps"][0][0][1]
    assert lm.model is model and lm.tokenizer is tokenizer and lm.device == model.device


SAID = {question: said for question, (_, said) in SUMS.items()}
WEIGHTS = {thing: weights for thing, (_, *weights) in COLOURS.items()}
TEXTS = """task: texts
custom_dataset: !function texts.rows
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{metric: word_perplexity}]
"""
SET_ON_OBJECT: dict[str, tuple[Callable[[Any], Any], str, str, float]] = {
    "loglikelihood": (lambda request: (WEIGHTS[request.args[0].split()[0]][request.args[1] == " red"], False), "colours",
                      "acc,none", ACC),
    "generate_until": (lambda request: SAID[request.args[0]], "sums", "exact_match,none", EXACT_MATCH),
    # Two words with a log-likelihood of -2 ln 3: 3 for each word.
    "loglikelihood_rolling": (lambda _: -2 * math.log(3), "texts", "word_perplexity,none", 3.0),
}  # fmt: skip


@pytest.mark.parametrize("method", SET_ON_OBJECT)
@pytest.mark.parametrize("consumer", ["simple_evaluate", "evaluate"])
def test_a_method_set_on_a_model_object_is_called(tasks: Path, in_process: None, method: str, consumer: str) -> None:
    import lm_eval
    from lm_eval.models.dummy import DummyLM
    from lm_eval.tasks import TaskManager

    (tasks / "texts.yaml").write_text(TEXTS)
    (tasks / "texts.py").write_text("def rows(**kwargs):\n    return {'test': [{'text': 'a b'}]}\n")
    answer, task, row, expected = SET_ON_OBJECT[method]
    lm, calls = DummyLM(), []

    def answers(requests: list[Any], disable_tqdm: bool = False) -> list[Any]:
        calls.append(len(requests))
        return [answer(request) for request in requests]

    setattr(lm, method, answers)
    manager = TaskManager(include_path=str(tasks))
    if consumer == "evaluate":
        results = lm_eval.evaluate(lm, manager.load([task]), task_manager=manager)
    else:
        results = lm_eval.simple_evaluate(lm, tasks=[task], task_manager=manager)
    assert results["results"][task][row] == pytest.approx(expected)
    assert calls


def test_a_wrapped_method_of_a_model_object_still_gives_the_models_answers(tasks: Path, in_process: None) -> None:
    import lm_eval
    from lm_eval.models.dummy import DummyLM

    lm, seen = DummyLM(), []
    plain, lm.loglikelihood = (
        lm.loglikelihood,
        lambda requests, **more: [*map(seen.append, requests)] and plain(requests),
    )
    wrapped = lm_eval.simple_evaluate(lm, tasks=["colours"], include_path=str(tasks))
    assert len(seen) == 2 * len(COLOURS)
    assert (
        wrapped["results"] == lm_eval.simple_evaluate(DummyLM(), tasks=["colours"], include_path=str(tasks))["results"]
    )


def test_a_chat_template_set_on_a_model_object_is_used(tasks: Path, in_process: None) -> None:
    import lm_eval
    from lm_eval.models.dummy import DummyLM

    lm = DummyLM()
    lm.apply_chat_template = lambda history, **_: "mine " + history[-1]["content"]
    results = lm_eval.simple_evaluate(lm, tasks=["sums"], include_path=str(tasks), apply_chat_template=True)
    assert "mine 1+1=" in json.dumps(results["samples"]["sums"][0]["arguments"])


class Duck:
    """A model of lm-eval's kind that is derived from nothing."""

    def generate_until(self, requests: list[Any], **_: object) -> list[str]:
        return ["2"] * len(requests)

    loglikelihood = loglikelihood_rolling = generate_until


class Proxy:
    """An object that hands what it lacks to another."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("through", [lambda lm: lm, Proxy])
def test_a_chat_template_set_on_an_object_of_no_class_of_lm_eval_is_used(
    through: Callable[[object], object], tasks: Path, in_process: None
) -> None:
    import lm_eval

    lm: Any = Duck()
    lm.apply_chat_template = lambda history, **_: "mine " + history[-1]["content"]
    results = lm_eval.simple_evaluate(through(lm), tasks=["sums"], include_path=str(tasks), apply_chat_template=True)
    assert "mine 1+1=" in json.dumps(results["samples"]["sums"][0]["arguments"])


def test_a_method_that_is_not_called_is_refused_when_it_is_set_on_a_model_object(tasks: Path, in_process: None) -> None:
    import lm_eval
    from lm_eval.models.dummy import DummyLM

    lm = DummyLM()
    lm._model_call = lambda *_: None
    with pytest.raises(
        ConfigError, match=r"model: _model_call is set on the object.*'dummy' does not call it — derive it"
    ):
        lm_eval.simple_evaluate(lm, tasks=["sums"], include_path=str(tasks))


def test_a_model_without_a_base_class_needs_no_chat_template(tasks: Path, in_process: None) -> None:
    import lm_eval

    class Plain:
        loglikelihood = loglikelihood_rolling = None

        def generate_until(self, requests: list[Any]) -> list[str]:
            return [SAID[request.args[0]] for request in requests]

    results = lm_eval.simple_evaluate(Plain(), tasks=["sums"], include_path=str(tasks))
    assert results["results"]["sums"]["exact_match,none"] == EXACT_MATCH
