"""Templates, patterns and numbers that would take all time or memory: they fail their document or their file, with words."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from jinja2.sandbox import SandboxedEnvironment

import run_world
from assay import TaskManager, simple_evaluate
from assay.errors import ConfigError
from assay.models import Scripted
from assay.models.tokenizer import FolderTokenizer
from assay.records import Message
from assay.samples.prompt import template
from assay.scoring import loop, verdicts
from assay.templates import Sandbox, is_simple
from conftest import Write
from run_world import rows_of
from small_runs import generate, run, says, write_task

LIMIT = "took more than|takes more than"
DEEP = f"nested too deeply, or calls itself|{LIMIT}"
DOUBLED = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = MORE %}{% endfor %}{{ ns.x }}"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
HANGING = "{{ ('a' * 40 ~ 'b') | regex_replace('(a+)+$', '') }}"
HOSTILE = {
    HANGING: "took more than",
    "{{ ('a' * 50) | regex_replace('(a|aa)+b', '') }}": "took more than",
    "{{ q | regex_replace('', 'y' * 500000000) }}": LIMIT,
    "{{ q | regex_replace('(' * 4000 ~ ')' * 4000, '') }}": DEEP,
    ENDLESS: "took more than",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}": LIMIT,
    "{% for a in range(1000000000) %}{% endfor %}": "Range too big",
    "{% for a in choices recursive %}{{ loop(choices) }}{% endfor %}": DEEP,
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": DEEP,
    "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(99) }}": "took more than",
    "{% block b %}{{ self.b() }}{% endblock %}": DEEP,
    "{{ 'x' * 10**10 }}": LIMIT,
    "{{ [q] * 10**10 }}": LIMIT,
    "{{ 7 ** 99999999 }}": LIMIT,
    "{{ '%1000000000d' % 1 }}": LIMIT,
    "{{ '%*d' % (1000000000, 1) }}": LIMIT,
    "{{ '%.1000000000f' % 1 }}": LIMIT,
    "{{ '%1000000000d' | format(1) }}": LIMIT,
    "{{ '{:>9999999999}'.format(q) }}": LIMIT,
    "{{ '{0:{1}}'.format(q, 9999999999) }}": LIMIT,
    "{{ q | center(9999999999) }}": LIMIT,
    "{{ q.center(9999999999) }}": LIMIT,
    "{{ q.zfill(9999999999) }}": LIMIT,
    "{{ q | indent(9999999999, true) }}": LIMIT,
    "{{ [q] | batch(9999999999, 'x') | list }}": LIMIT,
    "{{ [q] | slice(9999999999) | list }}": LIMIT,
    "{{ (5).to_bytes(9999999999, 'big') }}": LIMIT,
    "{{ lipsum(n=1000000) }}": LIMIT,
    "{{ ('x' * 10000000).replace('x', 'y' * 10000000) }}": LIMIT,
    "{{ q.replace('', 'y' * 600000000) }}": LIMIT,
    "{{ ('x' * 10000000).join(range(99999) | map('string')) }}": LIMIT,
    "{{ range(99999) | map('string') | join('x' * 10000000) }}": LIMIT,
    "{% filter center(9999999999) %}x{% endfilter %}": LIMIT,
    "{% set x = 'a' * 70000000 %}{{ x }}": f"gives more than 64 million characters|{LIMIT}",
    DOUBLED.replace("START", "'xx'").replace("MORE", "ns.x ~ ns.x"): LIMIT,
    DOUBLED.replace("START", "[1]").replace("MORE", "[ns.x, ns.x]"): LIMIT,
    DOUBLED.replace("START", "[1]").replace("MORE", "ns.x + ns.x"): LIMIT,
    f"{{{{ {'(' * 3000}1{')' * 3000} }}}}": DEEP,
    f"{{{{ {'[' * 3000}{']' * 3000} }}}}": DEEP,
    f"{{{{ {'not ' * 5000}1 }}}}": DEEP,
    f"{{{{ q{' | trim' * 3000} }}}}": DEEP,
    "{% if q %}" * 150 + "{% endif %}" * 150: "too many levels",
    "{{" * 3000: DEEP,
    "{{ [q] | map(attribute='nope') | list }}": "has no attribute 'nope'|no 'nope'",
    "{{ {'a': [nope]} }}": "no column 'nope'",
}
"""By template the words that are said about it."""
CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import assay.templates
assay.templates.TIME_LIMIT = 0.2
from assay.cli import main
codes = []
for arguments in json.loads(sys.argv[1]):
    try:
        codes.append(main(arguments))
    except SystemExit as error:
        codes.append(error.code)
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]  # ru_maxrss would be that of the parent
print(json.dumps([codes, int(peak.split()[1]) >> 10]))
"""


def hostile_task(number: int, text: str) -> str:
    """A task with a template at one of the places that take one."""
    fields = {"doc_to_text": "{{q}}", "doc_to_target": "{{gold}}"}
    fields |= {("doc_to_text", "doc_to_target", "description", "gen_prefix")[number % 4]: text}
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())
    return f"task: h{number}\noutput_type: generate_until\ndataset_path: json\ntest_split: test\n{lines}dataset_kwargs: {{data_files: {{test: d.jsonl}}}}\n"


def test_no_template_stops_or_fills_the_machine_and_each_is_reported_with_its_place(
    write: Write, tmp_path: Path
) -> None:
    files = {f"h{number}.yaml": hostile_task(number, text) for number, text in enumerate(HOSTILE)}
    fine = hostile_task(0, "{{q}}").replace("task: h0", "task: fine")
    folder = write({**files, "fine.yaml": fine, "d.jsonl": '{"q": "q0", "gold": "x", "choices": ["a", "b"]}\n'})
    where = ["--include_path", str(folder), "--no_defaults"]
    broken = [
        f"h{number}" for number, text in enumerate(HOSTILE) if "nope" not in text
    ]  # a typo is refused before a run
    run_all = ["run", "--model", "dummy", *where, "--output_path", str(tmp_path / "run"), "--tasks", "fine", *broken]
    command = [sys.executable, "-c", CHILD, json.dumps([["ls", *where], ["validate", *where], run_all])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    codes, peak = json.loads(ended.stdout.splitlines()[-1])
    assert codes == [0, 1, 1]
    assert peak < 900
    for number, words in enumerate(HOSTILE.values()):
        lines = [line for line in said.splitlines() if f"{folder}/h{number}.yaml:" in line]
        assert lines, number
        assert any(part in line for line in lines for part in (*words.split("|"), *LIMIT.split("|"))), (
            number,
            words,
            lines,
        )
    results = run_world.results(tmp_path / "run")
    assert list(results["results"]) == ["fine"]


PLAIN = {
    "{{q}} {{choices[0]}} {{ choices|length }}": True,
    "{{ q.strip().upper() }}{{ q.replace('a', 'b') }}{{ ', '.join(choices) }}": True,
    "{% for c in choices %}{{loop.index}}. {{c}}{{ '\n' if not loop.last }}{% endfor %}": True,
    "{% for c in choices %}{{'ABCD'[loop.index0]}} {{labels[loop.index0]}}{% endfor %}": True,
    "{% if q == 'a' %}{{1}}{% else %}{{ [q, -1, 'x'] }}{% endif %}{# none #}": True,
    "{{ 2 * 3 }}{{ 'a' * 3 }}{{ 7 % 4 }}{{ 2 ** 5 }}{{ '%03d' % 7 }}": False,
    "{{ 'x'|center(9) }}{{ 'a-b'|replace('-', '+++') }}{{ '%s!'|format(q) }}": False,
    "{% for i in range(3) %}{{ i }}{% endfor %}{% set x = q ~ q %}{{ x }}": False,
    "{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(q) }}{{ choices|map('upper')|list }}": False,
    "{% for c in choices %}{% for d in choices %}{{c}}{{d}}{% endfor %}{{ choices }}{% endfor %}": False,
    "{% for c in choices %}{{ q }}{% endfor %}": False,
}
"""By template whether it is rendered without limits."""


@pytest.mark.parametrize("text", PLAIN)
def test_templates_give_what_jinja_gives_with_limits_and_without(text: str) -> None:
    row = {"q": " an a", "choices": ["one", "two"], "labels": ["A", "B"]}
    assert is_simple(Sandbox().parse(text)) is PLAIN[text]
    assert template(text)(row) == SandboxedEnvironment(keep_trailing_newline=True).from_string(text).render(row)


def test_a_template_that_hangs_for_some_documents_fails_those_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.templates.TIME_LIMIT", 0.3)
    text = json.dumps("{{ q | regex_replace('(a+)+$', '') }}")
    rows = [{"q": each, "gold": "x"} for each in ("0", "a" * 40 + "b", "2")]
    write_task(tmp_path, rows, f"output_type: generate_until\ndoc_to_text: {text}\ndoc_to_target: gold\n")
    results = run(tmp_path, says(["x", "", "x"]))
    [row] = rows_of(results, "t").values()
    assert (row["n"], row["failed"], row["value"]) == (2, 1, 1.0)


SLOW = "metric_list: [{metric: exact_match, regexes_to_ignore: ['(a+)+$']}]\n"


def slow_metric(folder: Path) -> dict[str, Any]:
    results = generate(folder, ["x", "a" * 40 + "b"], ["x", "x"], SLOW)
    return rows_of(results, "t")["exact_match,none"]  # type: ignore[no-any-return]


def test_a_pattern_of_a_metric_that_takes_too_long_fails_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "TIME_LIMIT", 0.3)
    row = slow_metric(tmp_path)
    assert (row["n"], row["failed"], row["value"]) == (1, 1, 1.0)


def test_time_limits_hold_inside_a_running_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TIME_LIMIT", 0.3)

    async def cell() -> dict[str, Any]:
        before = asyncio.get_running_loop(), asyncio.current_task()
        row = slow_metric(tmp_path)
        await asyncio.sleep(0)
        assert (asyncio.get_running_loop(), asyncio.current_task()) == before
        return row

    assert asyncio.run(cell())["failed"] == 1


JUDGED = """
output_type: generate_until
doc_to_text: q
doc_to_target: gold
scorer: {type: llm_judge, kwargs: {prompt: PROMPT}}
"""


@pytest.mark.parametrize("text", [ENDLESS, "{{ 'x' * 10**10 }}", "{{ answer.center(9999999999) }}"])
def test_a_judge_prompt_without_limits_fails_its_document(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (verdicts, loop):
        monkeypatch.setattr(module, "TIME_LIMIT", 0.3)
    monkeypatch.setattr("assay.templates.TIME_LIMIT", 0.3)
    prompt = f"{{% if 'bad' in answer %}}{text}{{% endif %}}{{{{answer}}}} {{{{id}}}}"
    rows = [{"q": str(number), "gold": "x"} for number in range(2)]
    write_task(tmp_path, rows, dedent(JUDGED).replace("PROMPT", json.dumps(prompt)))
    judge = Scripted(generate=lambda prompt, *_: json.dumps({"id": prompt.split()[-1], "reason": "", "score": 10}))
    results = run(tmp_path, says(["good", "bad"]), model_role={"judge": judge})
    [row] = rows_of(results, "t").values()
    assert (row["n"], row["failed"]) == (1, 1), results["assay"]["tasks"]["t"]


@pytest.mark.parametrize("text", [ENDLESS, "{{ nope.x }}", "{{ 'x' * 10**10 }}"])
def test_a_chat_template_without_limits_fails_with_words(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.templates.TIME_LIMIT", 0.2)
    from assay.models.local.embedded import BUNDLED

    (tmp_path / "tokenizer.json").write_bytes((BUNDLED / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": text}))
    tokenizer = FolderTokenizer.load(str(tmp_path))
    model = Scripted(generate=lambda *_: "x", chat_template=tokenizer.chat_template)
    results = simple_evaluate(model, tasks=["first_steps_sums"], limit=2, apply_chat_template=True)
    failures = json.dumps(results["assay"]["tasks"]["first_steps_sums"])
    assert "the chat template failed" in failures
    with pytest.raises(Exception, match=r"took more than|undefined|takes more than"):
        tokenizer.chat_template((Message("user", "hi"),), True)


NUMBERS: Mapping[str, str] = {
    "repeats: 99999999999": "t.yaml:8:10: repeats must be at most 100000",
    "repeats: 99999999999999999999": "t.yaml:8:10: a value cannot be read: a whole number of more than 64 bits",
    "num_fewshot: 1000000000000": "t.yaml:8:14: 1000000000000 examples are asked for, and the pool holds 1",
    "generation_kwargs: {max_gen_toks: 99999999999999999999}": "t.yaml:8:35: a value cannot be read: a whole number of",
    "generation_kwargs: {temperature: 1.0e+400}": "temperature must be a number, got inf",
    "generation_kwargs: {temperature: .nan}": "temperature must be a number, got nan",
    "generation_kwargs: {seed: -99999999999999999999}": "a whole number of more than 64 bits",
    "metadata: {version: 0x1fffffffffffffffffffff}": "a whole number of more than 64 bits",
    "metric_list: [{metric: exact_match, regexes_to_ignore: ['a{99999999999}']}]": "is not a regular expression",
    "filter_list: [{name: f, filter: [{function: regex, regex_pattern: 'a{99999999999}'}]}]": "repetition number is too large",
}


@pytest.mark.parametrize("line", NUMBERS)
def test_huge_numbers_in_a_task_file_are_refused_with_their_place(line: str, write: Write) -> None:
    text = hostile_task(0, "{{q}}").replace("task: h0", "task: t")
    folder = write({"t.yaml": f"{text}{line}\n", "d.jsonl": '{"q": "q0", "gold": "x"}\n'})
    with pytest.raises(ConfigError) as refused:
        simple_evaluate(
            Scripted(generate=lambda *_: "x"), tasks=["t"], include_path=str(folder), include_defaults=False
        )
    assert NUMBERS[line] in str(refused.value)
    TaskManager(include_path=str(folder), include_defaults=False)


OPTIONS: Mapping[str, tuple[object, str]] = {
    "repeats": (10**11, "repeats must be at most 100000"),
    "bootstrap_iters": (10**14, "bootstrap_iters must be at most 10000000"),
    "seed": (2**32, "numpy's must be between 0 and 4294967295"),
    "num_fewshot": (10**30, "num_fewshot: is a whole number of more than 64 bits"),
    "limit": (10**30, "limit: is a whole number of more than 64 bits"),
    "gen_kwargs": ("max_gen_toks=99999999999999999999999", "max_gen_toks is a whole number of more than 64 bits"),
    "metadata": ({"a": [10**30]}, "a whole number of more than 64 bits"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_huge_numbers_among_the_options_are_refused(name: str) -> None:
    value, words = OPTIONS[name]
    with pytest.raises(ConfigError) as refused:
        simple_evaluate(Scripted(generate=lambda *_: "x"), tasks=["first_steps_sums"], **{name: value})
    assert words in str(refused.value)
