"""Descriptions of model arguments. A name means the same for every backend; `BACKEND_DESCRIPTIONS` lists the exceptions."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import isclass
from typing import Any, NamedTuple, get_type_hints

from assay.models.load import BACKENDS, backend, parameters
from assay.models.protocol import AnyModel
from assay.signatures import REQUIRED

DESCRIPTIONS: Mapping[str, str] = {
    "api_version": "Version of the provider's API; Azure needs one.",
    "add_bos_token": "Start each text with the BOS token, at most once; default: as the tokenizer does.",
    "allow_pickle": "Load pickled weights, which can run code; otherwise only safetensors.",
    "attn_implementation": "Attention implementation in transformers: `sdpa`, `eager`, `flash_attention_2` …",
    "backend": "Model type: `causal`, `seq2seq`, or `default` (from its configuration).",
    "batch_size": "Maximum number of requests in a batch; `auto`: as many as fit.",
    "chat_template": "Name of the chat template, if the tokenizer has more than one.",
    "chat_template_args": "Arguments for the chat template.",
    "compile": "Compile the model's layers with `torch.compile`. Left out: on a GPU, if the rest of the run takes some minutes.",
    "custom_prefix_token_id": "Token before a text without context.",
    "data_parallel_size": "Number of replicas, as `--replicas`: the model is opened so many times, and they share the requests.",
    "device": "Device: `cpu`, `cuda`, `cuda:1`, `mps`.",
    "dtype": "Precision: `float32`, `bfloat16`, `float16`, or `auto` (from its configuration).",
    "enable_lora": "Accepted and ignored: `lora_local_path` enables LoRA.",
    "enable_thinking": "Passed to the chat template if set.",
    "enforce_eager": "No CUDA graphs: faster start, slower run.",
    "engine_args": "More engine arguments, with vLLM's names: `{\"kv_cache_dtype\": \"fp8\"}`.",
    "gguf_file": "Name of the GGUF file in the folder.",
    "gpu_memory_utilization": "Share of the GPU memory to use.",
    "label": "Label whose score is the reward, if there is more than one.",
    "likelihoods": "Source of log-likelihoods: `echo` (the echoed prompt), `prompt` (vLLM's `prompt_logprobs`),"
    " `sglang` (its `/generate`), `llamacpp` (llama.cpp's `/completion`), or `generated` (the next token's"
    " log-probabilities, for one-token choices).",
    "lora_local_path": "Folder of a LoRA adapter.",
    "max_batch_size": "Maximum batch size with `batch_size=auto`.",
    "max_gen_toks": "Maximum number of generated tokens if the task sets none.",
    "max_length": "Context length in tokens.",
    "max_lora_rank": "Maximum rank of the LoRA adapter.",
    "max_model_len": "Same as `max_length` (vLLM's name).",
    "model": "Name of the model on the server.",
    "n": "Send the repeats of a prompt in one request.",
    "over_length": "Prompts that are too long: `error`, or `truncate` the beginning (counted).",
    "parallelize": "Spread the model over all GPUs.",
    "path": "Model folder in Hugging Face format.",
    "peft": "Folder of a PEFT adapter, merged into the weights.",
    "prefix_token_id": "Token before a text without context.",
    "pretrained": "Model folder in Hugging Face format, or a hub name.",
    "quantization": "Quantization, if the model does not declare it: `awq`, `gptq`, `fp8` …",
    "revision": "Branch, tag or commit on the hub.",
    "seed": "Seed for sampling. Each generation derives its own from this, its prompt and its repeat.",
    "share_prefixes": "Compute shared prefixes once; `false`: plain batches.",
    "subfolder": "Subfolder that contains the model.",
    "tensor_parallel_size": "Number of GPUs to split the model over.",
    "think_end_token": "End of thinking. Thinking is separated from the answer; stop strings apply to the answer only.",
    "threads": "Torch threads on a CPU. Default: one for models below 50 million parameters, otherwise the free cores.",
    "thinking": "Thinking budget in tokens.",
    "tokenizer": "Tokenizer folder or hub name; default: the model's own.",
    "tokenizer_backend": "`huggingface` (a folder), `tiktoken`, or `remote` (the server's `/tokenize`).",
    "tokenizer_mode": "`auto`, or `slow` for the Python tokenizer.",
    "tokenizer_revision": "Branch, tag or commit of the tokenizer.",
    "truncate": "Same as `over_length=truncate` (lm-eval's name).",
    "trust_remote_code": "Run Python code from the model repository.",
    "use_fast_tokenizer": "Use the Rust tokenizer if there is one.",
    "way": "vLLM protocol to use.",
}  # fmt: skip

BACKEND_DESCRIPTIONS: Mapping[tuple[str, str], str] = {
    ("openai", "pretrained"): "Same as `model` (lm-eval's name).",
    ("openai-chat", "pretrained"): "Same as `model` (lm-eval's name).",
    ("openai", "tokenizer"): "Folder of the model's tokenizer, used to align log-likelihoods with tokens.",
    (
        "hf",
        "pretrained",
    ): "Model folder in Hugging Face format, or a hub name; a pattern or list evaluates each checkpoint.",
    (
        "hf",
        "batch_size",
    ): "Maximum number of texts generated at once, with 512 tokens per pass for each; `auto` (default): by memory.",
    (
        "hf",
        "think_end_token",
    ): "End of thinking, as text or token id; stop strings apply to the answer after it.",
    ("embedded", "path"): "Llama model folder in Hugging Face format; default: the bundled model.",
    (
        "openai-chat",
        "likelihoods",
    ): "`generated`: log-likelihoods of one-token choices, from the next token's log-probabilities.",
    ("litellm", "model"): "LiteLLM's model name: `provider/name`.",
    ("litellm", "api_version"): "Version of Azure's protocol, such as `2024-08-01-preview`.",
}
"""Descriptions that differ for one backend."""


class Argument(NamedTuple):
    """One argument of a backend."""

    name: str
    kind: Any
    default: Any
    meaning: str

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


def arguments_of(name: str) -> list[Argument]:
    """Return the arguments of a backend, required ones first."""
    factory = backend(name)
    listed = [
        Argument(key, _kind(factory, key), default, _meaning(name, key)) for key, default in parameters(factory).items()
    ]
    return sorted(listed, key=lambda argument: not argument.is_required)


def distinct_backends() -> dict[str, list[str]]:
    """Return the backends by their first name, with their aliases."""
    names_of: dict[Callable[..., AnyModel], list[str]] = {}
    for name in BACKENDS:
        names_of.setdefault(backend(name), []).append(name)
    return {names[0]: names[1:] for names in names_of.values()}


def _meaning(name: str, key: str) -> str:
    special = BACKEND_DESCRIPTIONS.get((name, key)) or (
        _of_connection().get(key) if "base_url" in parameters(backend(name)) else None
    )
    return special or DESCRIPTIONS.get(key, "")


def _of_connection() -> dict[str, str]:
    from assay.models.servers.server_model import Connection

    return {each.name: each.metadata["doc"] for each in fields(Connection)}


def _kind(factory: Callable[..., AnyModel], key: str) -> Any:
    from assay.models.servers.server_model import Connection

    own = get_type_hints(factory.__init__ if isclass(factory) else factory)
    return own.get(key) or get_type_hints(Connection).get(key)
