"""How the run folders in tests/runs_0_1 were made, so that they can be resumed: tasks, models that say the same every time,
and for each folder its command. tools/make_run_folders.py makes them; test_old_runs.py uses them in every later version.

Nothing here may change, but for what a later version asks of whoever calls it: the folders are what users have.
"""

import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from assay import simple_evaluate
from assay.models import Scripted
from assay.models.local.embedded import Embedded
from assay.models.protocol import Answered
from assay.records import Request
from graph_world import RECORDS, write_graph
from serving import TALKING, Servers, fetched

FOLDERS = Path(__file__).parent / "runs_0_1"
WORLD = "world"
"""The folder of the tasks, beside those of the runs."""
EXPECTED = "expected.json"
GRAPH = "tasks.eval.question_answering.simpleqa"

DATA = "dataset_path: json\ndataset_kwargs: {data_files: {test: %s.jsonl}}\ntest_split: test\n"
SUMS = [("1 + 1", "2"), ("353 - 6", "347"), ("7 - 4", "3"), ("30 * 3", "90"), ("939 - 21", "918"), ("6 - 6", "0")]
TASKS = {
    "choice.yaml": "task: old_choice\n" + DATA % "choice" + dedent("""\
        output_type: multiple_choice
        doc_to_text: "{{thing}} is"
        doc_to_choice: [green, red, white]
        doc_to_target: gold
        fewshot_split: test
        num_fewshot: 1
        metric_list: [{metric: acc}, {metric: acc_norm}]
        """),
    "text.yaml": "task: old_text\n" + DATA % "sums" + dedent("""\
        doc_to_text: "{{q}} ="
        doc_to_target: a
        generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false, temperature: 0.0}
        process_docs: !function helper.same
        fewshot_split: test
        filter_list:
          - {name: strict, filter: [{function: take_first}]}
          - {name: number, filter: [{function: regex, regex_pattern: "(-?\\\\d+)"}, {function: take_first}]}
        metric_list: [{metric: exact_match}]
        """),
    "group.yaml": dedent("""\
        group: old_group
        task: [old_choice, old_text]
        aggregate_metric_list:
          - {metric: acc, aggregation: mean, weight_by_size: true, filter_list: none, missing: skip}
        """),
    "rolling.yaml": "task: old_rolling\n" + DATA % "texts" + dedent("""\
        output_type: loglikelihood_rolling
        doc_to_text: ""
        doc_to_target: text
        metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
        """),
    "chat.yaml": "task: old_chat\n" + DATA % "chat" + dedent("""\
        doc_to_text: q
        doc_to_target: a
        generation_kwargs: {until: [], max_gen_toks: 20, do_sample: false, temperature: 0.0}
        metric_list: [{metric: exact_match}]
        """),
    "repeats.yaml": "task: old_repeats\n" + DATA % "sums" + dedent("""\
        doc_to_text: "{{q}} ="
        doc_to_target: a
        repeats: 3
        generation_kwargs: {until: ["\\n"], do_sample: true, temperature: 1.0}
        filter_list:
          - {name: first, filter: [{function: take_first}]}
          - {name: voted, filter: [{function: majority_vote}, {function: take_first}]}
        metric_list: [{metric: exact_match}]
        """),
    "judge.yaml": "task: old_judge\n" + DATA % "sums" + dedent("""\
        doc_to_text: "{{q}} ="
        doc_to_target: a
        scorer: llm_judge
        generation_kwargs: {until: [], do_sample: false, temperature: 0.0}
        """),
    "long.yaml": "task: old_long\n" + DATA % "long" + dedent("""\
        doc_to_text: "{{q}} ="
        doc_to_target: a
        generation_kwargs: {until: [], do_sample: false, temperature: 0.0}
        filter_list:
          - {name: last, filter: [{function: regex, regex_pattern: "(\\\\d+)$"}, {function: take_first}]}
        metric_list: [{metric: exact_match}]
        """),
    "helper.py": "def same(docs):\n    return docs\n",
    "sums.jsonl": "".join(json.dumps({"q": q, "a": a, "level": "hard" if "*" in q else "easy"}) + "\n" for q, a in SUMS),
    "choice.jsonl": "".join(
        json.dumps({"thing": thing, "gold": gold}) + "\n"
        for thing, gold in (("grass", 0), ("blood", 1), ("snow", 2), ("a leaf", 0), ("a rose", 1), ("milk", 2))
    ),
    "texts.jsonl": "".join(
        json.dumps({"text": text}) + "\n" for text in ("the cat sat on the mat", "a dog ran", "it was a warm day")
    ),
    "chat.jsonl": "".join(
        json.dumps({"q": json.dumps({"say": said, "usage": [12, 3, 0]}), "a": "yes"}) + "\n" for said in ("yes", "no", "yes")
    ),
    "long.jsonl": "".join(json.dumps({"q": str(number), "a": str(number)}) + "\n" for number in range(17)),
}  # fmt: skip


def write_world(folder: Path) -> Path:
    """The tasks of all folders."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in TASKS.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_graph(folder, RECORDS)
    return folder


@dataclass
class RequestCount:
    """What was asked of models: each request counts."""

    count: int = 0
    first: Callable[["RequestCount"], None] = lambda asked: None

    def note(self, requests: int = 1) -> None:
        for _ in range(requests):
            self.first(self)
            self.count += 1


class CountedModel(Embedded):
    """The bundled model, with a count of its requests."""

    def __init__(self, asked: RequestCount) -> None:
        super().__init__()
        self._asked = asked

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        self._asked.note(len(requests))
        async for part in super().answer(requests):
            yield part


def scripted(asked: RequestCount, says: Callable[[str, int], str], name: str) -> Scripted:
    """A model of one function, which is called by its name however its code changes."""

    def generate(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.note()
        return says(prompt, repeat)

    return Scripted(generate=generate, chat_template=template, name=name, identity=f"old runs: {name}")


def template(messages: list[dict[str, Any]], add_generation_prompt: bool) -> str:
    text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
    return text + "<assistant>" if add_generation_prompt else text


RIGHT = dict(SUMS)


def counts(prompt: str, repeat: int) -> str:
    """Right about sums but for one; of three answers one or two are wrong, or none."""
    question = prompt.removesuffix(" =").rpartition("\n")[2]
    number = [q for q, _ in SUMS].index(question)
    return "many" if number == 3 or (repeat == 1 and number % 2) else RIGHT[question]


def often_fails(prompt: str, repeat: int) -> str:
    if prompt in ("7 - 4 =", "6 - 6 ="):
        raise TimeoutError("no answer in time")
    return counts(prompt, repeat)


def slowly(prompt: str, repeat: int) -> str:
    """One answer after another, so that each is written down before the next is asked for."""
    time.sleep(0.01)
    return counts(prompt, repeat)


def judges(prompt: str, repeat: int) -> str:
    """Ten points for a number, one for a word."""
    mark = prompt.partition("<<<answer ")[2][:32]
    answer = prompt.partition(f"<<<answer {mark}>>>\n")[2].partition(f"\n<<<end of answer {mark}>>>")[0]
    return json.dumps({"id": mark, "reason": "so", "score": 10 if answer.isdecimal() else 1})


def answers_as_asked(prompt: str, repeat: int) -> str:
    """The answer that a record of the graph asks for."""
    start = prompt.index('{"say"')
    return str(json.JSONDecoder().raw_decode(prompt[start:])[0]["say"])


def talks(prompt: str, repeat: int) -> str:
    """A megabyte of words, and the number at its end: right but for the last two."""
    number = int(prompt.removesuffix(" ="))
    return "and so on " * 105_000 + str(number if number < 15 else 0)


Evaluate = Callable[[Path, Path, RequestCount], dict[str, Any]]
"""Runs the command of a folder: with the tasks in the first, into the second."""


def run(world: Path, output: Path, model: Any, tasks: object, **options: Any) -> dict[str, Any]:
    arguments = {
        "include_path": str(world),
        "include_defaults": False,
        "bootstrap_iters": 100,
        "log_samples": False,
        **options,
    }
    return simple_evaluate(model, tasks=tasks, output_path=str(output), **arguments)


def embedded(tasks: object, **options: Any) -> Evaluate:
    return lambda world, output, asked: run(world, output, CountedModel(asked), tasks, **options)


def scripted_run(says: Callable[[str, int], str], name: str, tasks: object, **options: Any) -> Evaluate:
    return lambda world, output, asked: run(world, output, scripted(asked, says, name), tasks, **options)


def judged(world: Path, output: Path, asked: RequestCount) -> dict[str, Any]:
    judge = scripted(asked, judges, "judge")
    return run(world, output, scripted(asked, counts, "counts"), ["old_judge"], model_role={"judge": judge})


def served(world: Path, output: Path, asked: RequestCount) -> dict[str, Any]:
    """RecordingModel of a server, which counts: what it was greeted with does not."""
    servers = Servers()
    try:
        url = servers(script=TALKING)
        where = {"model": "m", "base_url": url, "price_in": 1, "price_out": 2}
        options = {"apply_chat_template": True, "system_instruction": "Answer with a word.", "model_args": where}
        results = run(world, output, "openai-chat", ["old_chat"], **options)
        bodies = [entry["body"] for entry in fetched(url, "/log")]
        asked.note(sum('"say"' in json.dumps(body["messages"][-1]["content"]) or "say" in str(body) for body in bodies))
        return results
    finally:
        servers.end()


@dataclass(frozen=True)
class Recipe:
    """How a folder was made, and what its command asks again: `None` where it has no command."""

    evaluate: Evaluate | None
    asks_again: int | None = 0
    """How many requests the same command sends: those that failed; of the killed one those that are missing."""
    has_ended: bool = True
    is_scored_again: bool = True
    note: str = field(default="", compare=False)


RECIPES: Mapping[str, Recipe] = {
    "choice": Recipe(embedded(["old_group"], num_fewshot=2)),
    "text": Recipe(embedded(["old_text"], num_fewshot=3, log_samples=True)),
    "chat": Recipe(served),
    "rolling": Recipe(embedded(["old_rolling"])),
    "repeats": Recipe(scripted_run(counts, "counts", ["old_repeats"])),
    "judge": Recipe(judged),
    "graph": Recipe(scripted_run(answers_as_asked, "answers", [GRAPH])),
    "shard_1": Recipe(scripted_run(counts, "counts", ["old_text"], shard="1/2")),
    "shard_2": Recipe(scripted_run(counts, "counts", ["old_text"], shard="2/2")),
    "merged": Recipe(scripted_run(counts, "counts", ["old_text"])),
    "compressed": Recipe(scripted_run(talks, "talks", ["old_long"])),
    "failed": Recipe(scripted_run(often_fails, "fails", ["old_text"]), asks_again=2),
    "killed": Recipe(scripted_run(slowly, "slowly", ["old_text", "old_repeats"]), asks_again=None, has_ended=False, is_scored_again=False),
    "rescored": Recipe(scripted_run(counts, "counts", ["old_text"], num_fewshot=0)),
    "imported_lm_eval": Recipe(None),
    "imported_inspect": Recipe(None, is_scored_again=False, note="Inspect's own: no definition of its task is here"),
    "imported_inspect_own": Recipe(None),
}  # fmt: skip
KILLED_AFTER = 9
"""Requests after which the killed one is killed, of 6 + 18."""


def numbers(results: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of results: by task and group its rows; and how many documents failed."""
    rows = {
        name: {key: value for key, value in row.items() if "," in key and not isinstance(value, dict)}
        for name, row in results["results"].items()
    }
    return {"rows": rows, "failed": results["assay"]["failed"], "status": results["assay"]["status"]}


def folders() -> list[str]:
    """The folders that are there."""
    return (
        sorted(path.name for path in FOLDERS.iterdir() if path.is_dir() and path.name != WORLD)
        if FOLDERS.is_dir()
        else []
    )


def copied(name: str, target: Path) -> tuple[Path, Path]:
    """A copy of a folder, and of the tasks beside it: what is committed is never touched."""
    shutil.copytree(FOLDERS / WORLD, target / WORLD)
    shutil.copytree(FOLDERS / name, target / name)
    return target / WORLD, target / name
