"""Runs for tests of exports, imports, archives and reports; and hostile texts for documents and names."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay import simple_evaluate
from assay.exchange.archive import write_archive
from assay.exchange.inspect.log_file import member, read_log
from assay.models import Scripted

HERE = Path(__file__).parent
LOGGED = sorted(path.name for path in (HERE / "logged").iterdir())
"""What lm-eval 0.4.13 wrote itself: see tools/make_lm_eval_samples.py."""
INSPECT = HERE / "inspect_logs"
"""What inspect_ai 0.3.285 wrote itself: see tools/make_inspect_logs.py."""

HARM = (
    "<script>alert(1)</script>",
    '"><img src=http://evil.example/x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><link rel=stylesheet href=//evil.example/x.css>",
    "</pre></details><iframe src=https://evil.example></iframe>",
    "]]><svg onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "``` \n# heading\n| a | b |\n@someone #1 [x](https://evil.example)",
    "\x1b[31m\x00\u202egnp.exe",
    '=HYPERLINK("http://evil.example")',
    "javascript:alert(1)",
    "&lt;b&gt;&amp;",
)

TASKS = {
    "sums.yaml": """
        task: sums
        dataset_path: json
        dataset_kwargs: {data_files: {test: sums.jsonl}}
        test_split: test
        doc_to_text: "{{q}}="
        doc_to_target: a
        generation_kwargs: {until: ["\\n"], do_sample: true, temperature: 0.5}
        repeats: 2
        filter_list:
          - {name: first, filter: [{function: take_first}]}
          - {name: each, filter: [{function: take_first_k, k: 2}]}
        metric_list: [{metric: exact_match}]
    """,
}


def write_harm(folder: Path) -> Path:
    """A task whose documents, answers and names are all of that kind."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"q": text, "a": text, "kind": HARM[number % 2]} for number, text in enumerate(HARM)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "harm.yaml").write_text(
        "task: harm\n"
        "task_alias: \"<b onclick='x()'>harm</b> | @someone\"\n"
        "dataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
        'doc_to_text: "{{q}}"\ndoc_to_target: a\nmetric_list: [{metric: exact_match}]\n'
        'generation_kwargs: {until: ["§"], do_sample: false}\n'
    )
    return folder


def run_harm(folder: Path, output: Path, *, right: bool = False) -> dict[str, Any]:
    """A run that is asked such things and answers with such things."""
    model = Scripted(generate=lambda prompt, params, repeat: prompt if right else f"no: {prompt}")
    options = {"include_path": str(folder), "include_defaults": False, "output_path": str(output)}
    return simple_evaluate(model, tasks=["harm"], **options)


def as_json(source: Path, target: Path) -> Path:
    """A log of Inspect's as its other format has it: one JSON text."""
    log = read_log(source)
    samples = [epoch for epochs in log.samples() for epoch in epochs]
    target.write_text(json.dumps({**log.header, "samples": samples, "reductions": log.reductions}))
    return target


def changed_log(source: Path, target: Path, change: Callable[[str, Any], Any]) -> Path:
    """A log with what `change` makes of each of its members; without those that it makes nothing of."""
    with zipfile.ZipFile(source) as file:
        contents = {name: change(name, json.loads(member(file, name))) for name in file.namelist()}
    write_archive(target, [(name, json.dumps(value).encode()) for name, value in contents.items() if value is not None])
    return target
