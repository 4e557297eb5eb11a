"""Sampled answers: each belongs to its sample, node, label, visit and place among equal calls; greedy ones are shared."""

import json
import os
import signal
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import assay
from assay.models import Scripted
from assay.models.load import load_model
from assay.runs.samples.reader import SampleFile
from graph_world import the_file, write_graph
from run_world import finish, start
from serving import TALKING, Servers, fetched
from small_runs import write_task

DRAW = json.dumps({"draw": True})
"""A question that the talking server answers with something that it never said before."""
HEATED = "{name: m, parameters: {temperature: 1.0}}"


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def model(url: str, name: str = "openai-chat", **more: object) -> dict[str, Any]:
    printed = "".join(f",{key}={value}" for key, value in more.items())
    return {"model": name, "model_args": f"model=m,base_url={url},max_retries=1{printed}"}


def sent(url: str) -> list[dict[str, Any]]:
    """What was asked of a server, but for the greeting."""
    bodies = [each["body"] for each in fetched(url, "/log")]
    return [body for body in bodies if "quick brown fox" not in json.dumps(body)]


def llm(name: str, reported: str = HEATED) -> str:
    return f"{name}: {{node_type: llm, output_keys: {name}, prompt: [{{user: '{{q}}'}}], model: {reported}}}\n"


def graph(*nodes: str, edges: str, more: str = "") -> str:
    written = "".join(f"    {node}" for node in nodes)
    data = "data_config: {source: {type: disk, file_path: records.jsonl}}\n"
    return f"{data}graph_config:\n  nodes:\n{written}{more}  edges: [{edges}]\n"


LABELS = f"""    vote:
      node_type: multi_llm
      output_keys: said
      prompt: [{{user: '{{q}}'}}]
      models: {{a: {HEATED}, b: {HEATED}, c: {HEATED}}}
"""
ENSEMBLE = graph(
    llm("x"),
    llm("y"),
    edges=", ".join(f"{{from: START, to: {n}}}, {{from: {n}, to: END}}" for n in ("vote", "x", "y")),
    more=LABELS,
)
IN_TURN = graph(*map(llm, "xyz"), edges="{from: START, to: x}, {from: x, to: y}, {from: y, to: z}, {from: z, to: END}")
RECORDS = [{"q": DRAW}] * 4


def run_graph(top: Path, url: str, text: str, records: Any = RECORDS, **options: Any) -> list[dict[str, Any]]:
    """The output of a graph, run with a server."""
    folder = write_graph(top, records, text)
    output = Path(options.pop("output_path", top / "run"))
    assay.simple_evaluate(**model(url), tasks=[str(folder)], output_path=str(output), **options)
    collected: list[dict[str, Any]] = the_file(output, "output_*.json")
    return collected


def answers(record: dict[str, Any]) -> list[str]:
    return [*(record["said"][0].values() if "said" in record else ()), *(record[k] for k in "xyz" if k in record)]


def test_every_node_and_every_label_draws_for_itself(tmp_path: Path, talking: str) -> None:
    output = run_graph(tmp_path, talking, ENSEMBLE)
    assert len(sent(talking)) == 4 * 5
    assert len({text for record in output for text in answers(record)}) == 4 * 5


def test_nodes_one_after_the_other_draw_for_themselves(tmp_path: Path, talking: str) -> None:
    output = run_graph(tmp_path, talking, IN_TURN)
    assert len(sent(talking)) == len({text for record in output for text in answers(record)}) == 4 * 3


@pytest.mark.parametrize(
    "parameters", ["{temperature: 0}", "{temperature: 0.0}", "{do_sample: false, temperature: 1.0}", "{max_tokens: 9}"]
)
def test_greedy_requests_of_all_nodes_and_records_are_one(tmp_path: Path, talking: str, parameters: str) -> None:
    output = run_graph(tmp_path, talking, ENSEMBLE.replace("{temperature: 1.0}", parameters))
    assert len(sent(talking)) == 1
    assert len({text for record in output for text in answers(record)}) == 1


def test_nodes_without_a_temperature_are_sent_the_temperature_0_and_share_an_answer(
    tmp_path: Path, talking: str
) -> None:
    run_graph(tmp_path, talking, ENSEMBLE.replace(HEATED, "{name: m}"))
    assert [body["temperature"] for body in sent(talking)] == [0.0]


def test_a_graph_that_is_used_twice_draws_twice(tmp_path: Path, talking: str) -> None:
    inner = graph(llm("x"), edges="{from: START, to: x}, {from: x, to: END}").partition("\n")[2]
    (write_graph(tmp_path, []) / "inner").mkdir()
    (tmp_path / "tasks/eval/question_answering/simpleqa/inner/graph_config.yaml").write_text(inner)
    one, two = (
        f"{n}: {{node_type: subgraph, subgraph: inner, node_config_map: {{x: {{output_keys: {n}}}}}}}\n" for n in "yz"
    )
    ways = "{from: START, to: y}, {from: START, to: z}, {from: y, to: END}, {from: z, to: END}"
    output = run_graph(tmp_path, talking, graph(one, two, edges=ways))
    assert len({text for record in output for text in answers(record)}) == len(sent(talking)) == 4 * 2


LOOP = graph(
    llm("x"),
    "more: {node_type: lambda, lambda: steps.more, output_keys: [n, seen]}\n",
    edges="{from: START, to: x}, {from: x, to: more}, {from: more, condition: steps.far, path_map: {END: END, again: x}}",
)
STEPS = """
def more(node, state):
    return {**state, "n": state.get("n", 0) + 1, "seen": [*state.get("seen", []), state["x"]]}
def far(state):
    return "END" if state["n"] == 3 else "again"
"""


def test_every_visit_of_a_loop_samples_a_new_answer(tmp_path: Path, talking: str) -> None:
    write_graph(tmp_path, [], steps=STEPS)
    output = run_graph(tmp_path, talking, LOOP)
    assert len({text for record in output for text in record["seen"]}) == len(sent(talking)) == 4 * 3


def test_an_agent_in_every_record_draws_for_itself(tmp_path: Path, talking: str) -> None:
    tools = "def look(city: str):\n    return '{\"draw\": true}'\n"
    one, two = (
        f"{n}: {{node_type: agent, output_keys: {n}, prompt: [{{user: '{{q}}'}}], tools: [steps.look], model: {HEATED}}}\n"
        for n in "xy"
    )
    ways = "{from: START, to: x}, {from: x, to: y}, {from: y, to: END}"
    write_graph(tmp_path, [], steps=tools)
    calling = {"q": json.dumps({"calls": [["look", {"city": "Oslo"}]]})}
    output = run_graph(tmp_path, talking, graph(one, two, edges=ways), [calling] * 3)
    assert len(sent(talking)) == 3 * 2 * 2  # two agents, two turns each
    assert len({text for record in output for text in answers(record)}) == 3 * 2


def test_answers_that_are_asked_for_again_are_drawn_by_label(tmp_path: Path, talking: str) -> None:
    structured = "{name: m, parameters: {temperature: 1.0}, structured_output: {schema: {fields: {said: {type: str}}}}}"
    text = ENSEMBLE.replace(
        f"models: {{a: {HEATED}, b: {HEATED}, c: {HEATED}}}", f"models: {{a: {structured}, b: {structured}}}"
    )
    run_graph(tmp_path, talking, text, RECORDS[:1])
    assert len(sent(talking)) == 2 + 2 * 2  # x and y once; a and b twice, since a draw is not a JSON object


def test_votes_of_one_model_need_not_be_unanimous(tmp_path: Path, talking: str) -> None:
    code = """
    def majority(replies):
        odd = [int(reply.content.split()[1]) % 2 for reply in replies.values()]
        return {"votes": sum(odd), "won": sum(odd) > len(odd) / 2}
    """
    write_graph(tmp_path, [], steps=code)
    voting = LABELS.replace(
        "output_keys: said", "output_keys: [votes, won]\n      multi_llm_post_process: steps.majority"
    )
    text = graph(edges="{from: START, to: vote}, {from: vote, to: END}", more=voting)
    votes = [record["votes"] for record in run_graph(tmp_path, talking, text)]
    assert any(0 < each < 3 for each in votes)


def test_a_finished_run_is_read_again_without_a_request_and_a_cache_gives_the_same_at_the_same_places(
    tmp_path: Path, talking: str
) -> None:
    first = run_graph(tmp_path, talking, ENSEMBLE, use_cache=str(tmp_path / "cache"))
    asked = len(sent(talking))
    assert run_graph(tmp_path, talking, ENSEMBLE) == first
    assert (
        run_graph(tmp_path, talking, ENSEMBLE, output_path=tmp_path / "b", use_cache=str(tmp_path / "cache")) == first
    )
    some = run_graph(
        tmp_path, talking, ENSEMBLE, output_path=tmp_path / "c", use_cache=str(tmp_path / "cache"),
        samples={"eval.question_answering.simpleqa": [1, 3]},
    )  # fmt: skip
    assert some == [first[1], first[3]]
    assert len(sent(talking)) == asked == 20


def test_a_node_that_is_added_before_the_others_leaves_them_their_answers(tmp_path: Path, talking: str) -> None:
    first = run_graph(tmp_path, talking, IN_TURN, use_cache=str(tmp_path / "cache"))
    ways = "{from: START, to: w}, {from: w, to: x}, {from: x, to: y}, {from: y, to: z}, {from: z, to: END}"
    longer = graph(*map(llm, "wxyz"), edges=ways)
    second = run_graph(tmp_path, talking, longer, output_path=tmp_path / "b", use_cache=str(tmp_path / "cache"))
    assert [answers(record) for record in second] == [answers(record) for record in first]
    assert len(sent(talking)) == 4 * 4


# Plain tasks

TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
SAMPLED = "generation_kwargs: {do_sample: true, temperature: 1.0, until: []}\n"


def run_task(folder: Path, arguments: dict[str, Any], yaml: str, count: int = 2, **options: Any) -> list[list[str]]:
    """What was answered to samples that all ask the same."""
    other = {"q": "another question, which is not asked", "gold": "x"}
    write_task(folder, [*[{"q": DRAW, "gold": "x"}] * count, other], TASK + yaml)
    asked = {} if "samples" in options else {"limit": count}
    fixed = {"log_samples": True, **asked, "include_path": str(folder), "include_defaults": False}
    results = assay.simple_evaluate(**arguments, tasks=["t"], **(fixed | options))
    return [sample["resps"][0] for sample in results["samples"]["t"]]


@pytest.mark.parametrize("name", ["openai-chat", "openai", "anthropic"])
@pytest.mark.parametrize(
    ("kwargs", "requests"),
    [
        ("{temperature: 1.0, until: []}", 2),
        ("{do_sample: true, until: []}", 2),
        ("{until: []}", 1),
        ("{top_p: 0.5, until: []}", 1),
        ("{temperature: null, until: []}", 2),
        ("{temperature: 0, until: []}", 1),
        ("{do_sample: false, until: []}", 1),
    ],
)
def test_samples_that_ask_the_same_share_an_answer_only_where_it_is_greedy(
    name: str, kwargs: str, requests: int, tmp_path: Path, talking: str
) -> None:
    arguments = (
        {**model(talking, name), "gen_kwargs": {"temperature": None}} if "null" in kwargs else model(talking, name)
    )
    written = kwargs.replace("temperature: null, ", "")
    results = run_task(tmp_path, arguments, f"generation_kwargs: {written}\n")
    assert len(sent(talking)) == len({text for items in results for text in items}) == requests


def test_a_model_without_a_temperature_always_samples(tmp_path: Path, talking: str) -> None:
    greedy = "generation_kwargs: {temperature: 0, do_sample: false, until: []}\n"
    run_task(tmp_path, model(talking, "anthropic", thinking=100), greedy)
    assert len(sent(talking)) == 2
    loaded: Any = load_model("openai-chat", {"model": "gpt-5-mini", "api_key": "k"})
    assert loaded.can.samples == "always"


def test_repeats_of_equal_samples_are_all_drawn(tmp_path: Path, talking: str) -> None:
    results = run_task(tmp_path, model(talking), SAMPLED, repeats=3)
    assert [len(items) for items in results] == [3, 3]
    assert len({text for items in results for text in items}) == 6
    assert [body.get("n") for body in sent(talking)] == [None, 2, 3]  # the first is tried before the run


def test_a_seed_differs_for_every_sample_and_is_the_same_in_every_run(tmp_path: Path, talking: str) -> None:
    run_task(tmp_path, model(talking, seed=5), SAMPLED)
    run_task(tmp_path, model(talking, seed=5), SAMPLED, num_fewshot=0)
    first, second, *again = [body["seed"] for body in sent(talking)]
    assert first != second
    assert sorted(again) == sorted([first, second])
    assert all(0 <= seed < 2**31 for seed in (first, second))
    run_task(tmp_path, model(talking, seed=5), "generation_kwargs: {temperature: 0, until: []}\n")
    assert sent(talking)[-1]["seed"] == 5


LONGER = "generation_kwargs: {do_sample: true, temperature: 1.5, max_gen_toks: 12, until: []}\n"


def test_a_local_model_draws_for_every_sample_and_the_same_in_every_run(tmp_path: Path) -> None:
    first = run_task(tmp_path, {"model": "embedded"}, LONGER, 6)
    assert len({text for items in first for text in items}) > 3  # some end at once, with nothing said
    assert run_task(tmp_path, {"model": "embedded"}, LONGER, 6) == first
    assert run_task(tmp_path, {"model": "embedded"}, LONGER, 6, samples={"t": [2, 4]}) == [first[2], first[4]]
    assert run_task(tmp_path, {"model": "embedded"}, LONGER, 6, batch_size=1) == first
    greedy = run_task(tmp_path, {"model": "embedded"}, LONGER.replace("true, temperature: 1.5", "false"), 6)
    assert len({text for items in greedy for text in items}) == 1


def test_a_local_run_that_was_killed_draws_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    rows = [*[{"q": "Anna went to the", "gold": "x"}] * 599, {"q": "Anna walks to the", "gold": "x"}]
    write_task(tmp_path, rows, TASK + LONGER)
    command = ["-m", "assay", "run", "--model", "embedded", "--tasks", "t", "--include_path", tmp_path]
    assert finish(*command, "--output_path", tmp_path / "whole", cwd=tmp_path) == 0
    process = start(*command, "--output_path", tmp_path / "killed", cwd=tmp_path)
    journal = tmp_path / "killed/responses.jsonl"
    for _ in range(20_000):
        if process.poll() is not None or (journal.exists() and journal.stat().st_size > 3_000):
            break
        os.sched_yield()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert finish(*command, "--output_path", tmp_path / "killed", cwd=tmp_path) == 0
    one, two = (
        [row.responses for row in SampleFile(tmp_path / name / "samples/t.parquet").rows()]
        for name in ("whole", "killed")
    )
    assert one == two
    assert len({str(each) for each in one}) > 300


def drawn(asked: list[tuple[str, int]]) -> Scripted:
    """A model that says something new every time; what it was asked is noted."""

    def say(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append((prompt, repeat))
        return f"draw {len(asked)}"

    return Scripted(generate=say, identity="drawn")


# Judges


def judge(asked: list[str]) -> Scripted:
    """A judge whose verdicts differ from time to time: 1, 2, 3, … of 10; of two, first A and then a tie."""

    def say(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        mark = prompt.rpartition('"id": "')[2][:32]
        return json.dumps({"id": mark, "score": len(asked), "winner": ("tie", "A")[len(asked) % 2]})

    return Scripted(generate=say, identity="judge")


def judged(folder: Path, yaml: str, asked: list[str], answers: tuple[str, ...] = ("same", "same")) -> dict[str, Any]:
    rows = [{"q": f"{number}", "gold": "x", "other": "same"} for number in range(len(answers))]
    write_task(folder, rows, TASK + dedent(yaml))
    under_test = Scripted(generate=lambda prompt, params, repeat: answers[int(prompt)], identity="fixed")
    run_results = assay.simple_evaluate(
        under_test, tasks=["t"], include_path=str(folder), include_defaults=False, model_role={"judge": judge(asked)}
    )
    results: dict[str, Any] = run_results["results"]["t"]
    return results


WARM = "gen_kwargs: {temperature: 1.0}"


def test_two_orders_that_read_the_same_are_judged_twice_where_the_judge_draws(tmp_path: Path) -> None:
    asked: list[str] = []
    yaml = "scorer: {type: llm_judge, kwargs: {pairwise: true, baseline: other%s}}\n"
    responses = judged(tmp_path, yaml % f", {WARM}", asked, ("same",))
    assert len(asked) == 2
    assert responses["llm_judge_consistent,none"] == 0.0  # A, and then a tie: 1 + 0.5 is not 1
    asked = []
    judged(tmp_path, yaml % "", asked, ("same",))
    assert len(asked) == 1


def test_two_judges_of_an_ensemble_draw_two_verdicts(tmp_path: Path) -> None:
    member = f"{{type: llm_judge, kwargs: {{{WARM}}}}}"
    asked: list[str] = []
    judged(tmp_path, f"scorer: {{type: ensemble, kwargs: {{scorers: [{member}, {member}]}}}}\n", asked)
    assert len(asked) == 4
    asked = []
    judged(tmp_path, "scorer: {type: ensemble, kwargs: {scorers: [llm_judge, llm_judge]}}\n", asked)
    assert len(asked) == 2


def test_verdicts_of_two_filters_are_drawn_for_each(tmp_path: Path) -> None:
    filters = """
    filter_list:
      - {name: one, filter: [{function: take_first}]}
      - {name: two, filter: [{function: take_first}]}
    """
    asked: list[str] = []
    judged(tmp_path, f"scorer: {{type: llm_judge, kwargs: {{{WARM}}}}}\n" + dedent(filters), asked)
    assert len(asked) == 4


# The key of a request, written down from its description


def described_key(identity: str, params: dict[str, object], prompt: str, *sampled: bytes) -> str:
    """The key of a generation: every part with its length before it."""
    written = json.dumps(params, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    digest = blake2b(digest_size=16)
    for part in (b"generate", identity.encode(), written.encode(), prompt.encode(), *sampled):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


def test_a_greedy_key_is_of_the_request_and_a_drawn_one_of_sample_and_repeat_too(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "a", "gold": "x"}], TASK)
    for name, params in (("warm", {"do_sample": True, "until": ["§"]}), ("cold", {"temperature": 0.0, "until": ["§"]})):
        asked: list[tuple[str, int]] = []
        assay.simple_evaluate(
            drawn(asked), tasks=["t"], include_path=str(tmp_path), include_defaults=False, repeats=2,
            gen_kwargs=params, output_path=str(tmp_path / name),
        )  # fmt: skip
        identity = json.loads((tmp_path / name / "manifest.json").read_text())["model"]["identity"]
        _, *lines = (tmp_path / name / "responses.jsonl").read_text().splitlines()
        keys = [json.loads(line)["k"] for line in lines]
        known = {"do_sample": False, "max_gen_toks": 256, "temperature": 0.0, "until": ["\n\n"], **params}
        places = [(b"t\x000", n.to_bytes(4)) for n in range(2)] if name == "warm" else [()]
        assert keys == [described_key(identity, known, "a", *place) for place in places]
