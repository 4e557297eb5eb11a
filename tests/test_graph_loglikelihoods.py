"""Graphs that ask for log-likelihoods: the same numbers as tasks that ask for them."""

import json
import math
from pathlib import Path
from textwrap import dedent

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.errors import ConfigError
from assay.evaluation.merge import merge
from assay.graphs.likelihood_nodes import _shares
from assay.models import Scripted
from graph_world import the_file, write_graph

RECORDS = [
    {"q": "The sky is", "options": ["blue", "green and very far away"], "gold": 0},
    {"q": "Two and two are", "options": ["five", "four"], "gold": 1},
    {"q": "Snow is", "options": ["white", "black", "loud — löud"], "gold": 0},
    {"q": "Birds can", "options": ["swim", "fly"], "gold": 1},
]
FORMS = {"acc": "loglikelihood", "acc_norm": "per_character", "acc_bytes": "per_byte"}
TASK = """
    task: {name}
    dataset_path: json
    dataset_kwargs: {{data_files: {{test: records.jsonl}}}}
    test_split: test
    output_type: {kind}
    num_fewshot: 0
"""
CHOICE = (
    TASK.format(name="choice", kind="multiple_choice")
    + """
    doc_to_text: "Q: {{q}}\\nA:"
    doc_to_choice: options
    doc_to_target: gold
    metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
"""
)
LIKELIHOOD = (
    TASK.format(name="likelihood", kind="loglikelihood")
    + """
    doc_to_text: "{{q}}"
    doc_to_target: " {{options[0]}}"
"""
)
ROLLING = (
    TASK.format(name="rolling", kind="loglikelihood_rolling")
    + """
    doc_to_text: ""
    doc_to_target: "{{q}} {{options[1]}}"
"""
)
GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    spread: {node_type: lambda, lambda: code.spread, output_keys: [first, second, right]}
    pick: {node_type: multiple_choice, prompt: "Q: {q}\\nA:", choices: options, choose_by: BY, output_keys: picked, model: {name: m}}
    likelihood: {node_type: loglikelihood, prompt: "{q}", continuation: " {first}", output_keys: ll, model: {name: m}}
    roll: {node_type: loglikelihood_rolling, text: "{q} {second}", output_keys: whole, model: {name: m}}
    unit:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: right
      predicted_key: picked
      unit_metrics_map: [{name: exact_match, params: {key: text}}]
      output_keys: [exact_match_result]
  edges:
    - {from: START, to: spread}
    - {from: spread, to: pick}
    - {from: spread, to: likelihood}
    - {from: spread, to: roll}
    - {from: pick, to: unit}
    - {from: likelihood, to: unit}
    - {from: roll, to: unit}
    - {from: unit, to: END}
"""
CODE = """
    def spread(node, state):
        options = state["options"]
        return {"first": options[0], "second": options[1], "right": options[state["gold"]]}
"""


def world(top: Path, graph: str = GRAPH) -> Path:
    folder = write_graph(top, RECORDS, graph, code=CODE)
    for name, text in (("choice", CHOICE), ("likelihood", LIKELIHOOD), ("rolling", ROLLING)):
        (folder / f"{name}.yaml").write_text(dedent(text))
    return folder


def graph_of(folder: Path) -> list[str]:
    return [str(folder / "graph_config.yaml")]


@pytest.mark.parametrize("metric", FORMS)
def test_a_graph_chooses_as_a_choice_task_does_with_the_same_loglikelihoods(tmp_path: Path, metric: str) -> None:
    folder = world(tmp_path, GRAPH.replace("BY", FORMS[metric]))
    tasks = [str(folder / f"{name}.yaml") for name in ("choice", "likelihood", "rolling")]
    results = assay.simple_evaluate("embedded", tasks=tasks, log_samples=True)
    graph = assay.simple_evaluate("embedded", tasks=graph_of(folder), output_path=str(tmp_path / "out"))
    [row] = graph["results"].values()
    assert row["exact_match,none"] == results["results"]["choice"][f"{metric},none"]
    output = the_file(tmp_path / "out", "output_*.json")
    samples = results["samples"]
    for record, choice, one, whole in zip(
        output, *(samples[n] for n in ("choice", "likelihood", "rolling")), strict=True
    ):
        asked = [each[0] for each in choice["resps"]]
        choices = record["picked_choices"]
        assert [each["loglikelihood"] for each in choices] == pytest.approx([value for value, _ in asked], abs=1e-4)
        assert [each["is_greedy"] for each in choices] == [greedy for _, greedy in asked]
        for each in choices:
            assert each["per_character"] == pytest.approx(each["loglikelihood"] / len(each["choice"]))
            assert each["per_byte"] == pytest.approx(each["loglikelihood"] / len(each["choice"].encode()))
        assert sum(each["probability"] for each in choices) == pytest.approx(1)
        assert record["picked"] == max(choices, key=lambda each: each[FORMS[metric]])["choice"]
        [[value, greedy]] = one["resps"][0]
        assert (record["ll"], record["ll_is_greedy"]) == (pytest.approx(value, abs=1e-4), greedy)
        [[rolled]] = whole["resps"]
        assert record["whole"] == pytest.approx(rolled, abs=1e-4)
        text = f"{record['q']} {record['second']}"
        assert record["whole_per_word"] == pytest.approx(rolled / len(text.split()), abs=1e-4)
        assert record["whole_per_byte"] == pytest.approx(rolled / len(text.encode()), abs=1e-4)


PLAIN = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    pick: {node_type: multiple_choice, prompt: [{user: "{q}?"}], choices: [a, "{q}!"], target_delimiter: "", output_keys: p, model: {name: m}}
  edges: [{from: START, to: pick}, {from: pick, to: END}]
"""


def test_choices_are_texts_with_keys_and_prompts_may_be_conversations(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def loglikelihood(context: str, continuation: str) -> tuple[float, bool]:
        asked.append((context, continuation))
        return -float(len(continuation)), False

    model = Scripted(
        loglikelihood=loglikelihood, chat_template=lambda messages, opened: f"{json.dumps(messages)}{opened}"
    )
    folder = write_graph(tmp_path, [{"q": "so"}], PLAIN)
    assay.simple_evaluate(model, tasks=[str(folder)], output_path=str(tmp_path / "out"))
    context = '[{"role": "user", "content": "so?"}]True'
    assert asked == [(context, "a"), (context, "so!")]
    [record] = the_file(tmp_path / "out", "output_*.json")
    assert record["p"] == "a"
    # by hand: e^-1 and e^-3 as shares
    assert record["p_choices"][0]["probability"] == pytest.approx(1 / (1 + math.exp(-2)))


def test_a_second_run_asks_no_log_likelihood_again_and_shards_keep_every_kind_of_request(tmp_path: Path) -> None:
    folder = world(tmp_path, GRAPH.replace("BY", "loglikelihood"))
    whole = assay.simple_evaluate("embedded", tasks=graph_of(folder), output_path=str(tmp_path / "whole"))
    again = assay.simple_evaluate("embedded", tasks=graph_of(folder), output_path=str(tmp_path / "whole"))
    assert again["results"] == whole["results"]
    manifest = json.loads((tmp_path / "whole/manifest.json").read_text())
    assert manifest["requests"]["sent"] == 0
    parts = [tmp_path / f"part{number}" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        assay.simple_evaluate("embedded", tasks=graph_of(folder), output_path=str(part), shard=f"{number}/2")
    merge(tmp_path / "merged", parts)
    kept = ["doc_id", "doc", "prompt", "requests"]
    tables = [pq.read_table(tmp_path / at / "samples", columns=kept).to_pylist() for at in ("whole", "merged")]
    assert tables[0] == tables[1]


TYPOS = {
    "choices: options": ("choices: option", "nothing produces 'option'", "did you mean 'options'?"),
    "choose_by: BY": ("choose_by: likelyhood", "choose_by", "'loglikelihood'"),
    'continuation: " {first}"': ('continuation: " {frist}"', "nothing produces 'frist'", "did you mean 'first'?"),
    'text: "{q} {second}"': ('txt: "{q}"', "'txt'", "text"),
    "output_keys: ll, model: {name: m}": (
        "output_keys: ll, model: {name: m, parameters: {temperature: 1}}",
        "parameters has no meaning for log-likelihoods",
        "remove parameters",
    ),
    "node_type: loglikelihood,": ("node_type: loglikelihoods,", "'loglikelihoods'", "did you mean 'loglikelihood'?"),
    "choices: options, choose_by: BY": ("choices: [a, a]", "two or more texts, all different", "correct the list"),
}


@pytest.mark.parametrize("written", TYPOS)
def test_a_typo_in_a_loglikelihood_node_is_refused_with_place_and_remedy(tmp_path: Path, written: str) -> None:
    typo, what, fix = TYPOS[written]
    folder = world(tmp_path, GRAPH.replace(written, typo).replace("BY", "loglikelihood"))
    with pytest.raises(ConfigError) as refused:
        assay.simple_evaluate(Scripted(), tasks=[str(folder)])
    printed = str(refused.value)
    assert what in printed
    assert fix in printed
    assert "graph_config.yaml:" in printed


def test_a_model_without_log_likelihoods_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    folder = world(tmp_path, GRAPH.replace("BY", "loglikelihood"))
    with pytest.raises(ConfigError, match=r"needs a model that can give log-likelihoods.* — choose another model"):
        assay.simple_evaluate(Scripted(lambda *_: "x"), tasks=[str(folder)])


def test_choices_of_a_record_that_are_not_a_list_fail_that_record(tmp_path: Path) -> None:
    graph = PLAIN.replace('[a, "{q}!"]', "options").replace("[{user:", "[{user:")
    model = Scripted(loglikelihood=lambda *_: (-1.0, False), chat_template=lambda messages, _: str(messages))
    folder = write_graph(tmp_path, [{"q": "x", "options": ["a", 2]}, {"q": "y", "options": "a"}], graph)
    results = assay.simple_evaluate(model, tasks=[str(folder)], output_path=str(tmp_path / "out"))
    [account] = results["assay"]["tasks"].values()
    assert account["reasons"] == {"'options' must be a list of two choices or more, got 'a'": 1}
    [record] = the_file(tmp_path / "out", "output_*.json")
    assert [each["choice"] for each in record["p_choices"]] == ["a", "2"]


@given(st.lists(st.floats(-700, 0), min_size=2, max_size=9), st.floats(-50, 0))
def test_shares_add_up_keep_the_order_and_do_not_change_with_a_common_factor(values: list[float], shift: float) -> None:
    shares = _shares(values)
    assert sum(shares) == pytest.approx(1)
    assert shares[values.index(max(values))] == max(shares)
    assert _shares([value + shift for value in values]) == pytest.approx(shares, abs=1e-9)
