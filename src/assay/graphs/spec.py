"""Keys of a graph_config.yaml. Names and defaults are SyGra's; what assay adds is at the end of each record."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from assay.config.option import NOTHING, Remark, at_least, option
from assay.config.task import generation_slips

Value = Any
"""A value of a record: JSON, or whatever user code returns."""
Record = Mapping[str, Any]
"""Values by key: a record, parameters from YAML, metadata."""

JoinType = Literal["primary", "column", "sequential", "cross", "random", "vstack"]
START, END = "START", "END"
MAX_STEPS = 100


def _not_yet(why: str) -> Callable[[object], Iterator[Remark]]:
    """Refuses a key of SyGra's that assay does not have."""

    def check(value: object) -> Iterator[Remark]:
        off = isinstance(value, Mapping) and str(value.get("required")).lower() in ("no", "false")
        if value not in (None, False, (), {}) and not off:
            yield (), "is not supported", why

    return check


_FIELD = re.compile(r"\{[A-Za-z_]\w*\}")
"""A value that a prompt would fill in from the record."""


def parameter_slips(params: Any, path: tuple[str | int, ...] = ()) -> Iterator[Remark]:
    """Find slips in parameters of generation, and `{column}`, which nothing fills in there. A stop string may be that."""
    if not path:
        yield from generation_slips(params)
    if isinstance(params, str) and _FIELD.fullmatch(params):
        what = f"{params!r:.60} is sent as it is written: parameters of generation are the same for all records"
        yield path, what, "write the value itself"
    parts = params.items() if isinstance(params, Mapping) else enumerate(params) if isinstance(params, list) else ()
    for key, value in parts:
        if key not in ("stop", "until"):
            yield from parameter_slips(value, (*path, key))


def _one_role(value: object) -> Iterator[Remark]:
    for number, message in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(message, Mapping) or len(message) != 1:
            yield (number,), "must be a list of messages with one role each", "write `- user: text`"
            continue
        [(role, content)] = message.items()
        if role not in ROLES:
            yield (number,), f"has a message of {role!r}", f"use one of: {', '.join(ROLES)}"
        for at, part in enumerate(content if isinstance(content, list | tuple) else ()):
            if not isinstance(part, Mapping):
                yield (number, role, at), "has a part that is not a mapping", "write `- {type: text, text: …}`"


def _not_empty(value: object) -> Iterator[Remark]:
    if not value:
        yield (), "is empty", "add an entry"


def _some_key(value: object) -> Iterator[Remark]:
    if isinstance(value, list | tuple) and not value:
        yield (), "has no key", "name the key for the answer; those of the conversation begin so"


def _turns(value: object) -> Iterator[Remark]:
    for number, message in enumerate(value if isinstance(value, list) else ()):
        for turn in message if isinstance(message, Mapping) else ():
            if not str(turn).isdecimal():
                yield (number,), f"has no turn {turn!r}", "write `- 2: text`"


def _above_zero(value: object) -> Iterator[Remark]:
    if isinstance(value, int | float) and value <= 0:
        yield (), f"must be above 0, not {value}", ""


JSON_TYPES = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object",
}  # fmt: skip
"""Types of JSON Schema by what Python calls them."""
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """A change of all records before the first is asked about."""

    transform: str = option("The dotted name of a DataTransform class.")
    params: Mapping[str, object] = option("Its parameters.", NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """Where records come from."""

    type: Literal["hf", "disk"] = option("`hf` for the hub, `disk` for a file.")
    alias: str | None = option("Its name among several sources.", None)
    join_type: JoinType | None = option("How it is joined with the others.", None)
    primary_key: str | None = option("The column of the primary source that `join_key` is compared with.", None)
    join_key: str | None = option("The column of this source for a join by column.", None)
    transformations: tuple[Transformation, ...] = option("Changes of the records, in order.", ())
    fields: tuple[str, ...] | None = option("The columns that are kept, beside `id`.", None)
    repo_id: str | None = option("The data set on the hub.", None)
    config_name: str | None = option("The configuration of the data set.", None)
    split: str | tuple[str, ...] = option("The split, or several one after the other.", "train")
    token: str | None = option("A token for the hub.", None)
    streaming: bool = option("No effect: rows are read as they are needed.", False)
    shard: Mapping[str, object] | None = option(
        "Parts of a data set.", None, check=_not_yet("name the files, or a pattern, in file_path")
    )
    file_path: str | None = option("A json, jsonl, csv or parquet file, or a pattern of files.", None)
    file_format: str | None = option("No effect: the ending of the name decides, as with SyGra.", None)
    encoding: str | None = option("Encoding of a csv file.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """A further copy of the output."""

    type: Literal["json", "jsonl", "csv", "parquet"] = option(
        "How it is written; in csv and parquet, mappings and lists are JSON."
    )
    file_path: str = option("Its path, relative to the working directory.")
    alias: str | None = option("No effect.", None)
    encoding: str = option("Encoding of its text.", "utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The records of a graph."""

    source: tuple[SourceConfig, ...] | None = option("Where they come from; empty ones when absent.", None, many=True)
    sink: tuple[SinkConfig, ...] = option("Further copies of the output.", (), many=True)
    resumable: bool = option("No effect: every run with a folder is.", False)
    id_column: str | None = option("The column that is the `id` of a record.", None)
    num_records: int | None = option("Number of empty records, if no source is named.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerField:
    """A field of a structured answer."""

    type: Literal["str", "int", "float", "bool", "list", "dict"] = option("Its type.", "str")
    description: str | None = option("What it is, for the model.", None)
    default: object = option("With a default, an answer need not have the field.", NOTHING)
    more: Mapping[str, object] = option("No effect.", NOTHING, rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSchema:
    """The fields of a structured answer."""

    name: str = option("What the answer is called.", "answer")
    fields: Mapping[str, AnswerField] = option("The fields, by name.", check=_not_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutput:
    """The fields that an answer must have."""

    enabled: bool = option("Whether to ask for them.", True)
    schema: str | AnswerSchema = option("`{fields: {name: {type:}}}`, or the dotted name of a pydantic class.")
    fallback_strategy: str | None = option("No effect, as with SyGra.", None)
    retry_on_parse_error: bool | None = option("No effect, as with SyGra: once.", None)
    max_parse_retries: int | None = option("No effect, as with SyGra: once.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model as a node names it. Keys beyond these change its entry of models.yaml."""

    name: str = option("Its name in models.yaml, or of a role of the run.")
    parameters: Mapping[str, object] = option("Parameters of generation.", NOTHING, check=parameter_slips)
    structured_output: StructuredOutput | None = option("The fields that an answer must have.", None)
    entry: Mapping[str, object] = option("Keys of models.yaml.", NOTHING, rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Keys of every node."""

    node_type: str = option(
        "llm, agent, user, multi_llm, multiple_choice, loglikelihood, loglikelihood_rolling, lambda, weighted_sampler, subgraph."
    )
    node_state: Literal["active", "idle"] = option("An idle node is not part of the graph.", "active")
    ends: ClassVar[tuple[str, ...]] = ()
    """How the keys end that it writes beside its output_keys; they begin as the first of these."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its output_keys."""
        keys = getattr(self, "output_keys", ())
        return (keys,) if isinstance(keys, str) else tuple(keys)

    @property
    def further_keys(self) -> tuple[str, ...]:
        return tuple(f"{self.keys[0]}{end}" for end in self.ends)

    @property
    def models(self) -> "Mapping[str, ModelConfig]":
        """Its models by label; a single one has none."""
        return {"": self.model} if isinstance(self, LlmSpec | LikelihoodSpec) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """Functions that a model may call, and how a resumed run treats their calls."""

    name: str = option("The dotted name of a function, a class or a module.")
    on_resume: Literal["reuse", "rerun"] = option("What a resumed record does with calls that were finished.", "reuse")
    repeatable: bool = option(
        "Whether a call that was begun and not finished may be made again; else its record fails.", False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSpec(NodeConfig):
    """Keys of nodes that ask a model for text."""

    prompt: tuple[Mapping[str, object], ...] = option("Messages: `- user: text with {key}`.", check=_one_role)
    output_keys: str | tuple[str, ...] = option("Where the answer is put.", "messages")
    input_key: str = option("A list of messages that follow the prompt.", "messages")
    output_role: str = option("The role of the answer among `messages`.", "assistant")
    pre_process: str | None = option("A function of the state, or a NodePreProcessor, before asking.", None)
    chat_history: bool = option("Whether earlier turns are sent, too.", False)
    tools: tuple[str | ToolSpec, ...] = option(
        "Functions that the model may call: dotted names of them, classes, modules; or `{name:, repeatable:, on_resume:}`.",
        (),
    )
    tool_choice: str | Mapping[str, object] | None = option(
        "Whether it must call one: auto, none, required, or which.", None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSpec(GenerationSpec):
    """A node that asks one model."""

    model: ModelConfig = option("The model.")
    post_process: str | None = option("A function of the answer, or a NodePostProcessor.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec(LlmSpec):
    """A node that asks one model, calls the tools that it wants, and asks again, until it wants none."""

    output_keys: str | tuple[str, ...] = option("Where the answer is put.", "messages", check=_some_key)
    inject_system_messages: tuple[Mapping[object, str], ...] = option(
        "Messages to the model, by turn: `- 2: text`.", (), check=_turns
    )
    max_turns: int = option("Maximum number of turns.", 25, check=at_least(1))
    ends = ("_messages", "_tool_calls", "_usage")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec(LlmSpec):
    """A node that plays the user: its model sees the conversation with the roles exchanged."""

    output_role: str = option("The role of the answer among `messages`.", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLlmSpec(GenerationSpec):
    """A node that asks several models the same."""

    models: Mapping[str, ModelConfig] = option("Models by label.", check=_not_empty)
    multi_llm_post_process: str | None = option("A function of the answers by label.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodSpec(NodeConfig):
    """Keys of nodes that ask for log-likelihoods. Their types are named as `output_type` is."""

    model: ModelConfig = option("The model; it takes no parameters.")
    output_keys: str = option("The key of the result; what belongs to it has keys that begin so.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSpec(LikelihoodSpec):
    """A node that asks how likely each of some choices is: the most likely one is put into `output_keys`, and into
    `<output_keys>_choices` for each its `loglikelihood`, `is_greedy`, `per_character`, `per_byte`, `probability`."""

    prompt: str | tuple[Mapping[str, object], ...] = option(
        "What they follow: a text with {key}, or messages.", check=_one_role
    )
    choices: str | tuple[str, ...] = option("Texts with {key}; or the key of the state that has a list of them.")
    target_delimiter: str = option("The text between prompt and choice.", " ")
    choose_by: Literal["loglikelihood", "per_character", "per_byte"] = option(
        "What is compared: as `acc`, `acc_norm` and `acc_bytes` do.", "loglikelihood"
    )
    ends = ("_choices",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoglikelihoodSpec(LikelihoodSpec):
    """A node that asks how likely a continuation is. Into `<output_keys>_is_greedy`: whether the model would say it."""

    prompt: str | tuple[Mapping[str, object], ...] = option(
        "What it follows: a text with {key}, or messages.", check=_one_role
    )
    continuation: str = option("A text with {key}; it follows as it is written.")
    ends = ("_is_greedy",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingSpec(LikelihoodSpec):
    """A node that asks how likely a whole text is; also into `<output_keys>_per_word` and `<output_keys>_per_byte`."""

    text: str = option("A text with {key}.")
    ends = ("_per_word", "_per_byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaSpec(NodeConfig):
    """A node that calls a function. Keys beyond these are for the function."""

    function: str = option("A function of node and state, or a LambdaFunction.", key="lambda")
    output_keys: str | tuple[str, ...] = option("The keys it puts into the state.", ())
    thread_safe: bool = option(
        "Whether its function may run in threads, as one that takes longer than 1 ms does; else it runs alone.", True
    )
    settings: Mapping[str, object] = option("Keys for the function.", NOTHING, rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledColumn:
    """Values of a sampler that come from a data source: one record after the other, and from the start again."""

    column: str = option("The column that has them.")
    source: SourceConfig = option("Where it comes from.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """The values of a sampler."""

    values: tuple[object, ...] | list[object] | SampledColumn = option(
        "The values; or `{column:, source:}`, of which the n-th record gets the n-th."
    )
    weights: tuple[float, ...] | list[float] | None = option("How likely each is.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec(NodeConfig):
    """A node that draws values, the same ones for a record every time."""

    attributes: Mapping[str, Attribute] = option("By key of the state: `{values:, weights:}`.")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphSpec(NodeConfig):
    """A node that is the graph of another file."""

    subgraph: str = option("The graph: a dotted name, a folder or a file.")
    node_config_map: Mapping[str, object] = option("Changes of its nodes, by name.", NOTHING)


NODE_TYPES: dict[str, type[NodeConfig]] = {
    "llm": LlmSpec,
    "agent": AgentSpec,
    "user": UserSpec,
    "multi_llm": MultiLlmSpec,
    "multiple_choice": ChoiceSpec,
    "loglikelihood": LoglikelihoodSpec,
    "loglikelihood_rolling": RollingSpec,
    "lambda": LambdaSpec,
    "weighted_sampler": SamplerSpec,
    "subgraph": SubgraphSpec,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeConfig:
    """A way from one node to the next: always the same, or as a condition says."""

    source: str = option("Where it begins.", key="from")
    target: str | None = option("Where it leads.", None, key="to")
    condition: str | None = option("A function of the state, or an EdgeCondition, that chooses the path.", None)
    path_map: Mapping[str, object] | None = option("The node for each of its values.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """How much a record may use. One that uses more fails with that reason."""

    turns: int | None = option("Replies of models.", None, check=at_least(1))
    tokens: int | None = option("Tokens that models read and write.", None, check=at_least(1))
    seconds: float | None = option("Seconds that models and tools take, together.", None, check=_above_zero)
    cost: float | None = option("The cost of the replies, where prices are known.", None, check=_above_zero)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProperties:
    """Properties for all nodes. Further keys are for the nodes' code."""

    chat_conversation: Literal["multiturn", "singleturn"] | None = option("What `chat_history` does.", None)
    chat_history_window_size: int = option("How many turns are sent.", 5, check=at_least(1))
    max_steps: int = option("How many steps a record may take.", MAX_STEPS, check=at_least(1))
    limits: RecordLimits = option("How much a record may use.", RecordLimits())
    more: Mapping[str, object] = option("Anything else.", NOTHING, rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphShape:
    """Nodes and the ways between them."""

    nodes: Mapping[str, object] = option("The nodes, by name.")
    edges: tuple[EdgeConfig, ...] = option("The edges between them, from START to END.")
    graph_properties: GraphProperties = option("Properties for all nodes.", GraphProperties())
    graph_state: object = option("No effect, as with SyGra.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputField:
    """One field of an output record."""

    source: str | None = option("The key of the state it comes from.", None, key="from")
    value: object = option("A value that is always the same; `$a.b` is one of this file.", NOTHING)
    transform: str | None = option("A method of the generator that changes it.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputConfig:
    """The output record."""

    output_map: Mapping[str, OutputField] | None = option("The fields; the whole state when absent.", None)
    generator: str | None = option("A BaseOutputGenerator.", None)
    oasst_mapper: Mapping[str, object] | None = option("Another layout.", None, check=_not_yet("write a generator"))
    data_quality: Mapping[str, object] | None = option("Tags of quality.", None, check=_not_yet("use scorers of tasks"))
    format: Literal["json", "jsonl"] | None = option("How it is written: json up to 25,000 records, else jsonl.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """A constraint on one key of the final state."""

    name: str = option("The key.")
    type: str = option("Its type, as `str` or `list[dict[str,any]]`.")
    is_greater_than: float | None = option("It must be above this.", None)
    is_less_than: float | None = option("It must be below this.", None)
    is_equal_to: object = option("It must be this.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """Constraints on the final state: a record that does not fit has failed."""

    schema: str | None = option("The dotted name of a pydantic class.", None)
    fields: tuple[SchemaField, ...] = option("Keys with their types.", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PostProcess:
    """A post-processor of all records."""

    processor: str = option("The dotted name of a GraphPostProcessor.")
    params: Mapping[str, object] = option("Arguments of its constructor.", NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """An evaluation that is a graph: every record goes from START to END."""

    graph_config: GraphShape = option("Nodes and edges.")
    data_config: DataConfig = option("The records.", DataConfig())
    output_config: OutputConfig = option("The output record.", OutputConfig())
    schema_config: SchemaConfig | None = option("Constraints on the final state.", None)
    graph_post_process: tuple[str | PostProcess, ...] = option("Post-processors of all records, in order.", ())
    imports: tuple[str, ...] = option("Modules to load first, for the metrics that they register.", (), many=True)
    task_name: str | None = option("No effect: the folder, or `task`, is its name.", None)
    task: str | None = option("A name by which it can be selected; the folder's when absent.", None)
    task_alias: str | None = option("The name shown in tables.", None)
    tag: tuple[str, ...] = option("Names by which it can be selected together with others.", (), many=True)
    metadata: Mapping[str, object] | None = option("`version`, and anything else.", None)
    cluster_by: str | None = option("A column: records with the same value in it are one draw.", None)

    @property
    def processors(self) -> tuple[PostProcess, ...]:
        return tuple(
            each if isinstance(each, PostProcess) else PostProcess(processor=each) for each in self.graph_post_process
        )


AnyNode = Any
"""One of the node records; their types say what they have."""
