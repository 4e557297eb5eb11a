"""The parts of graphs: prompts with braces, joins of sources, structured answers, models files, calls of the engine."""

import asyncio
import string
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.config.braces import Braces
from assay.engine import Ended, Engine, Started
from assay.errors import AssayError, ConfigError
from assay.graphs.models import find_models_file, read_models, variable
from assay.graphs.nodes import LambdaNode, Structure, SubgraphNode
from assay.graphs.sources import Numbered, joined
from assay.graphs.spec import AnswerField, SourceConfig
from assay.graphs.walk import ConditionalEdge, Graph
from assay.models import Scripted
from assay.records import Call, Failed, Message, Outcome, Plan, Returned
from assay.runs.journal import Journal
from assay.samples.rows import DataError
from graph_world import the_file, write_graph

NAMES = st.text(string.ascii_letters, min_size=1, max_size=5)
TEXTS = st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=20)


@given(st.lists(st.tuples(TEXTS, NAMES)), TEXTS, st.dictionaries(NAMES, TEXTS))
def test_braces_are_filled_as_python_formats(parts: list[tuple[str, str]], end: str, known: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return text.replace("{", "{{").replace("}", "}}")

    text = "".join(escaped(piece) + "{" + name + "}" for piece, name in parts) + escaped(end)
    values = {**{name: f"<{name}>" for _, name in parts}, **known}
    braces = Braces.of(text)
    assert braces.wrong == ""
    assert braces.names == tuple(name for _, name in parts)
    assert braces.fill(values) == text.format(**values)


@pytest.mark.parametrize("text", ['{"a": 1', "a } b", "{}", "{ }"])
def test_a_lone_brace_is_reported(text: str) -> None:
    assert Braces.of(text).wrong.startswith("has a lone")


def source(**options: Any) -> SourceConfig:
    return SourceConfig(**{"type": "disk", **options})


LEFT = [{"k": 1, "x": "a"}, {"k": 2, "x": "b"}, {"k": 3, "x": "c"}]
RIGHT = [{"j": 1, "y": "p"}, {"j": 1, "y": "q"}, {"j": 3, "y": "r"}]


def test_sources_are_concatenated_with_the_columns_they_share() -> None:
    both = [source(alias="l", join_type="vstack"), source(alias="r", join_type="vstack")]
    assert joined(both, [[{"a": 1, "b": 2}], [{"b": 3, "c": 4}]]) == [{"b": 2}, {"b": 3}]


def test_sources_are_joined_by_a_column_as_a_left_join_does() -> None:
    both = [
        source(alias="l", join_type="primary"),
        source(alias="r", join_type="column", primary_key="k", join_key="j"),
    ]
    result = joined(both, [LEFT, RIGHT])
    assert [(row["l->x"], row["r->y"]) for row in result] == [("a", "p"), ("a", "q"), ("b", None), ("c", "r")]


def test_sources_are_joined_in_turn_each_with_each_and_at_random_but_always_the_same() -> None:
    primary = source(alias="l", join_type="primary")
    in_turn = joined([primary, source(alias="r", join_type="sequential")], [LEFT, RIGHT[:2]])
    assert [row["r->y"] for row in in_turn] == ["p", "q", "p"]
    crossed = joined([primary, source(alias="r", join_type="cross")], [LEFT[:2], RIGHT[:2]])
    assert [row["l->x"] + row["r->y"] for row in crossed] == ["ap", "aq", "bp", "bq"]
    drawn = [joined([primary, source(alias="r", join_type="random")], [LEFT * 20, RIGHT]) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert {row["r->y"] for row in drawn[0]} == {"p", "q", "r"}


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([source(), source()], "every one of several sources needs alias and join_type"),
        ([source(alias="a", join_type="cross"), source(alias="b", join_type="cross")], "exactly one"),
        ([source(alias="a", join_type="primary"), source(alias="b", join_type="column")], "needs primary_key"),
    ],
)
def test_sources_that_cannot_be_joined_are_refused(sources: list[SourceConfig], message: str) -> None:
    with pytest.raises(DataError, match=message):
        joined(sources, [LEFT, RIGHT])


def test_records_have_ids_their_own_those_of_a_column_or_their_numbers() -> None:
    assert [row["id"] for row in Numbered([{"id": 0}, {"id": "b"}, {"id": None}])] == [0, "b", 2]
    assert [row["id"] for row in Numbered([{"k": "x"}, {"k": "y"}], "k")] == ["x", "y"]
    with pytest.raises(DataError, match="no column 'q'"):
        Numbered([{"k": 1}], "q")


ANSWER = Structure.of_fields("answer", {"text": AnswerField(), "sure": AnswerField(type="bool", default=False)})


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"text": "a"}', True),
        ('{"text": "a", "sure": true, "more": 1}', True),
        ('{"text": 3}', False),
        ('{"text": "a", "sure": 1}', False),
        ('{"sure": true}', False),
        ('["text"]', False),
        ("text", False),
    ],
)
def test_an_answer_fits_a_structure_by_fields_and_types(text: str, fits: bool) -> None:
    assert ANSWER.fits(text) is fits


def test_a_structure_is_sent_as_a_schema_and_in_words() -> None:
    schema = ANSWER.response_format["json_schema"]["schema"]
    assert schema["properties"] == {"text": {"type": "string"}, "sure": {"type": "boolean"}}
    assert schema["required"] == ["text"]
    asked = ANSWER.asked_in((Message("system", "s"), Message("user", "q")))
    assert asked[0] == Message("system", "s")
    assert str(asked[1].content).startswith("q\n\nAnswer with one JSON object")


def entry(tmp_path: Path, text: str, name: str = "m") -> dict[str, Any]:
    (tmp_path / "models.yaml").write_text(text)
    return read_models([tmp_path / "models.yaml"])[name].backend()


def test_entries_of_a_models_file_become_backends(tmp_path: Path) -> None:
    row = entry(tmp_path, "m: {model_type: vllm, url: [http://a/v1, http://b/v1], model: big, delay: 100, timeout: 9}")
    assert row == {
        "model": "openai-chat", "model_args": {"model": "big", "base_url": ["http://a/v1", "http://b/v1"], "timeout": 9},
    }  # fmt: skip
    assert entry(tmp_path, "m: {model_type: openai, parameters: {temperature: 1}}")["model_args"] == {"model": "m"}
    azure = entry(tmp_path, "m: {model_type: azure_openai, url: http://a, auth_token: t, model: gpt}")
    assert azure == {"model": "litellm", "model_args": {"model": "azure/gpt", "base_url": "http://a", "api_key": "t"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m: {model_type: vlm, url: http://a}", "did you mean 'vllm'?"),
        ("m: {model_type: openai, ulr: http://a}", "did you mean 'url'?"),
        ("m: {model_type: openai, output_type: audio}", "remove it: the model is asked for text"),
        ("m: {model_type: bedrock, aws_region_name: x}", "set AWS_REGION_NAME in the environment"),
        ("m: {model_type: openai, auth_token: [a, b]}", "several tokens"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_at_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        entry(tmp_path, text)
    assert message in str(caught.value)
    assert caught.value.problems[0].place.line == 1


def test_the_environment_overrides_more_settings_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("my-model 1.5", "url"), "http://a/v1|http://b/v1")
    monkeypatch.setenv("SYGRA_MY-MODEL_1.5_TOKEN", "abc")
    row = entry(tmp_path, "my-model 1.5: {model_type: vllm}", "my-model 1.5")
    assert row["model_args"] == {
        "model": "my-model 1.5", "base_url": ["http://a/v1", "http://b/v1"], "api_key": "abc",
    }  # fmt: skip


def test_a_models_file_is_searched_beside_the_graph_and_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "tasks/a"
    inner.mkdir(parents=True)
    for folder in (inner, tmp_path):
        (folder / "models.yaml").write_text("m: {model_type: openai}")
    assert find_models_file(None, str(inner)) == [tmp_path / "models.yaml", inner / "models.yaml"]
    assert find_models_file("x.yaml", str(inner)) == [Path("x.yaml")]


def walked(graph: Graph, record: Mapping[str, Any]) -> Any:
    plan = graph.plan(record, "x")
    with pytest.raises(StopIteration) as stop:
        next(plan)
    return stop.value.value[-1]


def test_a_condition_may_say_anything_that_the_path_map_has() -> None:
    def node(name: str) -> LambdaNode:
        return LambdaNode(name, lambda _, state: {**state, "way": state.get("way", "") + name}, {})

    def is_good(state: Mapping[str, Any]) -> Any:
        return state["is_good"]

    fork = ConditionalEdge(is_good, {True: "b", "False": "END"})
    graph = Graph({"a": node("a"), "b": node("b")}, {"a": [fork], "b": ["END"], "START": ["a"]})
    assert walked(graph, {"is_good": True}).record["way"] == "ab"
    assert walked(graph, {"is_good": False}).record["way"] == "a"
    where = f"test_graph_parts.py:{is_good.__code__.co_firstlineno + 1}"
    assert walked(graph, {}).failed == f"a condition: KeyError: 'is_good' ({where})"


def test_the_way_of_a_record_is_noted_also_where_it_ends_early() -> None:
    def node(name: str) -> LambdaNode:
        return LambdaNode(name, lambda _, state: {"seen": state[name]}, {})

    graph = Graph({"a": node("a"), "b": node("b")}, {"a": ["b"], "b": ["END"], "START": ["a"]})
    assert walked(graph, {"a": 1, "b": 1}).trace == [("a", []), ("b", [])]
    assert walked(graph, {"b": 1}).trace == [("a", [])]
    inner = SubgraphNode("outer", graph)
    outer = Graph({"outer": inner}, {"outer": ["END"], "START": ["outer"]})
    assert [name for name, _ in walked(outer, {"a": 1, "b": 1}).trace] == ["outer", "outer/a", "outer/b"]


def test_a_node_that_returns_nothing_fails_its_record_alone_and_beside_another() -> None:
    nodes = {"a": LambdaNode("a", lambda _, state: None, {}), "b": LambdaNode("b", lambda _, state: {"x": 1}, {})}
    ways = {"a": ["END"], "b": ["END"]}
    said = "the node 'a' must return the state, or a mapping of changes to it, got nothing (None)"
    assert walked(Graph(nodes, {**ways, "START": ["a"]}), {}).failed == said
    assert walked(Graph(nodes, {**ways, "START": ["a", "b"]}), {}).failed == said


def test_a_record_is_not_changed_by_its_walk() -> None:
    def change(_: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        state["x"] = 2
        return state

    graph = Graph({"a": LambdaNode("a", change, {})}, {"a": ["END"], "START": ["a"]})
    record = {"x": 1}
    outcome = walked(graph, record)
    assert isinstance(outcome, Outcome)
    assert (outcome.record["x"], record) == (2, {"x": 1})


def drive(plans: list[Plan], most: int | None = None) -> list[Any]:
    ended: dict[int, Any] = {}

    def end(each: Ended) -> None:
        ended[each.what] = each.responses

    async def work(journal: Journal) -> None:
        engine = Engine({"model": Scripted(lambda *_: "x")}, journal, max_plans=most)
        await engine.run(iter([Started(n, b"%d" % n, plan) for n, plan in enumerate(plans)]), end)

    with closing(Journal(None)) as journal:
        asyncio.run(work(journal))
    return [ended[number] for number in range(len(plans))]


def calling(function: Any, *arguments: Any) -> Plan:
    return (yield [Call(function, arguments), Call(function, arguments)])


def test_calls_wait_beside_each_other_and_what_they_raise_is_a_failure_of_their_plan() -> None:
    tasks, threads = asyncio.Barrier(8), threading.Barrier(2)  # one call alone would wait until it fails

    async def slow(number: int) -> int:
        await asyncio.wait_for(tasks.wait(), 60)
        return number

    def blocking(number: int) -> int:
        threads.wait(60)
        return number

    def raising(_: int) -> int:
        raise ValueError("no")

    responses = drive([calling(function, n) for function in (slow, blocking, raising) for n in range(4)])
    values = [[each.value for each in two if isinstance(each, Returned)] for two in responses[:8]]
    assert values == [[n, n] for n in (*range(4), *range(4))]
    where = f"test_graph_parts.py:{raising.__code__.co_firstlineno + 1}"
    assert responses[8:] == [[Failed(f"ValueError: no ({where})")] * 2] * 4


@pytest.mark.parametrize("most", [1, 3, None])
def test_no_more_plans_are_at_work_than_were_asked_for(most: int | None) -> None:
    at_work = highest = 0

    def counting() -> Plan:
        nonlocal at_work, highest
        at_work += 1
        highest = max(highest, at_work)
        responses = yield [Call(asyncio.sleep, (0.001,))]
        at_work -= 1
        return responses

    drive([counting() for _ in range(12)], most)
    assert highest == (most or 12)


SAMPLED = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    draw: {node_type: weighted_sampler, attributes: {tone: {values: {column: word, source: {type: disk, file_path: tones.csv}}}}}
  edges: [{from: START, to: draw}, {from: draw, to: END}]
"""


def test_a_sampler_takes_values_of_a_data_source_in_turn(tmp_path: Path) -> None:
    folder = write_graph(tmp_path, [{"x": number} for number in range(5)], SAMPLED)
    (folder / "tones.csv").write_text("word,other\nkind,1\nharsh,2\n")

    def tones(at: str, **options: Any) -> list[str]:
        assay.simple_evaluate(None, tasks=[str(folder)], output_path=str(tmp_path / at), **options)
        return [record["tone"] for record in the_file(tmp_path / at, "output_*.json")]

    assert tones("out") == ["kind", "harsh", "kind", "harsh", "kind"]
    assert tones("second", shard="2/2") == ["harsh", "harsh"]  # by the number of a record, wherever it is asked about
    (folder / "tones.csv").write_text("word,other\nkind,1\nplain,2\n")
    with pytest.raises(AssayError, match="another run"):  # the values are part of what a run depends on
        tones("out")


def test_a_column_missing_from_a_samplers_source_is_reported(tmp_path: Path) -> None:
    folder = write_graph(tmp_path, [{"x": 1}], SAMPLED.replace("column: word", "column: wort"))
    (folder / "tones.csv").write_text("word\nkind\n")
    with pytest.raises(AssayError, match="'wort', and its source has: word"):
        assay.simple_evaluate(None, tasks=[str(folder)])


def test_weights_and_a_source_exclude_each_other(tmp_path: Path) -> None:
    graph = SAMPLED.replace("tones.csv}}", "tones.csv}}, weights: [1]")
    folder = write_graph(tmp_path, [{"x": 1}], graph)
    with pytest.raises(ConfigError, match="without weights"):
        assay.simple_evaluate(None, tasks=[str(folder)])


def test_a_wrong_parameter_of_a_transformation_is_refused_before_the_run(tmp_path: Path) -> None:
    graph = SAMPLED.replace(
        "file_path: records.jsonl}",
        "file_path: records.jsonl, transformations: [{transform: sygra.processors.data_transform.RenameFieldsTransform,"
        " params: {mapping: {x: y}, overwite: true}}]}",
    )
    folder = write_graph(tmp_path, [{"x": 1}], graph)
    (folder / "tones.csv").write_text("word\nkind\n")
    with pytest.raises(ConfigError) as refused:
        assay.simple_evaluate(None, tasks=[str(folder)])
    assert "graph_config.yaml:2:" in str(refused.value)
    assert "did you mean 'overwrite'?" in str(refused.value)


ANSWERS = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    all: {node_type: multi_llm, prompt: [{user: "{x}"}], output_keys: said, models: MODELS}
  edges: [{from: START, to: all}, {from: all, to: END}]
output_config: {output_map: {said: FIELD}}
"""
FIELDS = "{m: {name: m, structured_output: {schema: {fields: {n: {type: TYPE}}}}}}"


@pytest.mark.parametrize(
    ("models", "field", "message"),
    [
        ("{}", "{from: said}", "models is empty — add an entry"),
        ("{a: {name: m}, b: }", "{from: said}", "b is empty — add its keys"),
        ("{a: gpt}", "{from: said}", "a must be a mapping, got the text 'gpt' — write `a: {name: gpt}`"),
        ("{a: {name: m}}", "{}", "said is empty — add its keys"),
        (
            FIELDS.replace("TYPE", "text"),
            "{from: said}",
            "type must be one of str, int, float, bool, list, dict, got 'text'",
        ),
        (FIELDS.replace("{n: {type: TYPE}}", "{}"), "{from: said}", "fields is empty — add an entry"),
    ],
)
def test_entries_of_mappings_are_refused_at_their_places(models: str, field: str, message: str, tmp_path: Path) -> None:
    folder = write_graph(tmp_path, [{"x": 1}], ANSWERS.replace("MODELS", models).replace("FIELD", field))
    with pytest.raises(ConfigError) as refused:
        assay.simple_evaluate(Scripted(lambda *_: "x"), tasks=[str(folder)])
    [problem] = refused.value.problems
    assert message in str(problem)
    assert problem.place.line == (7 if "said is" in message else 5)


OUTPUT = SAMPLED + "output_config: {output_map: {x: {from: x}}, EXTRA}\n"


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ("oasst_mapper: {required: 'yes', type: sft}", "write a generator"),
        ("data_quality: {tasks: [{name: ppl_score}]}", "use scorers of tasks"),
        ("oasst_mapper: {required: 'no', type: sft}", ""),
    ],
)
def test_layouts_and_tags_of_quality_are_refused_unless_they_are_switched_off(
    tmp_path: Path, extra: str, refused: str
) -> None:
    folder = write_graph(tmp_path, [{"x": 1}], OUTPUT.replace("EXTRA", extra))
    (folder / "tones.csv").write_text("word\nkind\n")
    if not refused:
        assay.simple_evaluate(None, tasks=[str(folder)])
        return
    with pytest.raises(ConfigError, match="is not supported") as error:
        assay.simple_evaluate(None, tasks=[str(folder)])
    assert refused in str(error.value)


def test_a_sink_on_the_hub_is_refused_with_what_can_be_had(tmp_path: Path) -> None:
    graph = SAMPLED.replace("data_config: {", "data_config: {sink: {type: hf, repo_id: a/b}, ")
    folder = write_graph(tmp_path, [{"x": 1}], graph)
    with pytest.raises(ConfigError) as refused:
        assay.simple_evaluate(None, tasks=[str(folder)])
    assert "'hf'" in str(refused.value)
    assert "parquet" in str(refused.value)


def test_a_model_type_may_mean_anthropic(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(
        "a: {model_type: anthropic, model: claude, url: 'http://x/v1', parameters: {}}\nb: {model_type: claude_proxy}\n"
    )
    entries = read_models([path])
    assert entries["a"].backend() == {
        "model": "anthropic",
        "model_args": {"model": "claude", "base_url": "http://x/v1"},
    }
    with pytest.raises(ConfigError, match="write model_type: anthropic if the server speaks that protocol"):
        entries["b"].backend()
