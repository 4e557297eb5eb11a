"""What the arguments of models mean. The same name means the same everywhere; where it is a little else, it is said so."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import Parameter, isclass
from typing import Any, NamedTuple, get_type_hints

from assay.models.load import BACKENDS, backend, parameters
from assay.models.protocol import AnyModel

MEANING: Mapping[str, str] = {
    "add_bos_token": "Whether texts begin with the token that begins a text; else as the tokenizer does it. Never twice.",
    "allow_pickle": "Load weights that are pickled, which may run code; else only safetensors.",
    "attn_implementation": "How attention is computed, by transformers' names: `sdpa`, `eager`, `flash_attention_2` …",
    "backend": "What kind of model it is: `causal`, `seq2seq`; `default`: as its configuration says.",
    "batch_size": "The most requests at once; `auto`: as many as fit.",
    "chat_template": "The tokenizer's template of this name, where it has several.",
    "chat_template_args": "Handed to the chat template.",
    "compile": "Compile the model first: slower to start, faster then.",
    "custom_prefix_token_id": "The token that a text without a context is seen after.",
    "data_parallel_size": "Only 1: run the parts of `--shard` in processes of their own, and `assay merge` them.",
    "device": "Where it runs: `cpu`, `cuda`, `cuda:1`, `mps`.",
    "dtype": "What it computes in: `float32`, `bfloat16`, `float16`; `auto`: as its configuration says.",
    "enable_lora": "Taken for its name's sake: `lora_local_path` enables it.",
    "enable_thinking": "Handed to the chat template, where it is given.",
    "enforce_eager": "Without compiled graphs: starts sooner, runs slower.",
    "engine_args": "Further arguments of the engine, by its names: `{\"kv_cache_dtype\": \"fp8\"}`.",
    "gguf_file": "The file of a folder with GGUF weights.",
    "gpu_memory_utilization": "The share of the GPU's memory that is taken.",
    "label": "The label whose score is the reward, where there are several.",
    "likelihoods": "Where log-likelihoods come from: the `echo`ed prompt, vLLM's `prompt_logprobs` (`prompt`), SGLang's `/generate`"
    " (`sglang`), or of one-token choices the next token's (`generated`).",
    "lora_local_path": "The folder of a LoRA adapter.",
    "max_batch_size": "The most requests at once, where `batch_size` is `auto`.",
    "max_gen_toks": "How many tokens are generated where a task says nothing.",
    "max_length": "How many tokens a text may have.",
    "max_lora_rank": "The largest rank of the adapter.",
    "max_model_len": "The same as `max_length`, by vLLM's name.",
    "model": "The model's name at the server.",
    "n": "The repeats of a question go in one request.",
    "over_length": "A prompt that is too long is an `error`, or loses its beginning (`truncate`), which is counted.",
    "parallelize": "Spread the model over all GPUs there are.",
    "path": "A folder in Hugging Face's layout.",
    "peft": "The folder of an adapter, which is merged into the weights.",
    "prefix_token_id": "The token that a text without a context is seen after.",
    "pretrained": "A folder in Hugging Face's layout, or a name at the hub.",
    "quantization": "How the weights are quantized, where the model does not say: `awq`, `gptq`, `fp8` …",
    "revision": "The branch, tag or commit at the hub.",
    "seed": "Of what is drawn: every generation has its own, made of this, its prompt and its repeat.",
    "share_prefixes": "Compute what requests share once; `false` for plain batches.",
    "subfolder": "Where in the folder the model lies.",
    "tensor_parallel_size": "Over how many GPUs the model is spread.",
    "think_end_token": "What ends thinking: it is kept apart from the answer, and stops are for the answer alone.",
    "threads": "Of torch on a CPU: one for a model below 50 million parameters, else as many as cores are free.",
    "thinking": "How many tokens it may think.",
    "tokenizer": "A folder with a tokenizer, or a name at the hub; else the model's own.",
    "tokenizer_backend": "`huggingface` (a folder), `tiktoken`, or `remote`: the server's own `/tokenize`.",
    "tokenizer_mode": "`auto`, or `slow` for the tokenizer in Python.",
    "tokenizer_revision": "The branch, tag or commit of the tokenizer.",
    "truncate": "The same as `over_length=truncate`, by lm-eval's name.",
    "trust_remote_code": "Run code that comes with the model.",
    "use_fast_tokenizer": "The tokenizer in Rust, where there is one.",
    "way": "Which of vLLM's protocols it is asked by.",
}  # fmt: skip

ELSE: Mapping[tuple[str, str], str] = {
    ("openai", "pretrained"): "The same as `model`, by lm-eval's name.",
    ("openai-chat", "pretrained"): "The same as `model`, by lm-eval's name.",
    ("openai", "tokenizer"): "A folder with the model's tokenizer: log-likelihoods are then those of its tokens.",
    (
        "hf",
        "pretrained",
    ): "A folder in Hugging Face's layout, or a name at the hub; a pattern or a list: several checkpoints.",
    (
        "hf",
        "batch_size",
    ): "The most texts written at once, and 512 tokens of a pass for each; `auto` or nothing: by the memory.",
    (
        "hf",
        "think_end_token",
    ): "What ends thinking, as text or the number of a token; stops are for the answer behind it alone.",
    ("embedded", "path"): "A Llama in Hugging Face's layout; else the bundled one.",
    ("openai-chat", "likelihoods"): "`generated`: log-likelihoods of one-token choices, from the next token's.",
    ("litellm", "model"): "LiteLLM's name for it: `provider/name`.",
}
"""Of one backend, where a name means something else than elsewhere."""


class Argument(NamedTuple):
    """One argument of a backend."""

    name: str
    kind: Any
    default: Any
    meaning: str

    @property
    def is_required(self) -> bool:
        return self.default is Parameter.empty


def arguments_of(name: str) -> list[Argument]:
    """All arguments of a backend, those it must be given first."""
    factory = backend(name)
    made = [
        Argument(key, _kind(factory, key), default, _meaning(name, key)) for key, default in parameters(factory).items()
    ]
    return sorted(made, key=lambda each: not each.is_required)


def distinct_backends() -> dict[str, list[str]]:
    """The backends by their first name, each with its others."""
    found: dict[Callable[..., AnyModel], list[str]] = {}
    for name in BACKENDS:
        found.setdefault(backend(name), []).append(name)
    return {names[0]: names[1:] for names in found.values()}


def _meaning(name: str, key: str) -> str:
    found = ELSE.get((name, key)) or (_of_connection().get(key) if "base_url" in parameters(backend(name)) else None)
    return found or MEANING.get(key, "")


def _of_connection() -> dict[str, str]:
    from assay.models.servers.served import Connection

    return {each.name: each.metadata["doc"] for each in fields(Connection)}


def _kind(factory: Callable[..., AnyModel], key: str) -> Any:
    from assay.models.servers.served import Connection

    own = get_type_hints(factory.__init__ if isclass(factory) else factory)
    return own.get(key) or get_type_hints(Connection).get(key)
