"""A small world for models of transformers: random models of several architectures, a tokenizer of words, and what plain
`transformers` says of them."""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from assay.models.local.hf.backend import HF
from assay.records import Request, Response

WORDS = 120
LENGTH = 256
BEGIN, END, UNKNOWN = 0, 1, 2
SMALL: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": LENGTH, "bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": None,
}  # fmt: skip
GQA = SMALL | {"num_key_value_heads": 2}

CONFIGS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**GQA),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH, bos_token_id=BEGIN, eos_token_id=END
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SMALL),
    "qwen2": lambda: transformers.Qwen2Config(**GQA),
    "qwen3": lambda: transformers.Qwen3Config(**GQA, head_dim=16),
    "opt": lambda: transformers.OPTConfig(
        vocab_size=WORDS, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
        max_position_embeddings=LENGTH, bos_token_id=BEGIN, eos_token_id=END, pad_token_id=None,
    ),
    "phi": lambda: transformers.PhiConfig(**SMALL),
    "olmo2": lambda: transformers.Olmo2Config(**GQA),
    "gemma": lambda: transformers.GemmaConfig(**GQA, head_dim=16),
    "gemma2": lambda: transformers.Gemma2Config(**GQA, head_dim=16, sliding_window=32),
    "mistral": lambda: transformers.MistralConfig(**GQA, sliding_window=16),
    "bloom": lambda: transformers.BloomConfig(
        vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4, bos_token_id=BEGIN, eos_token_id=END
    ),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=8, bos_token_id=BEGIN, eos_token_id=END
    ),
    "rwkv": lambda: transformers.RwkvConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, context_length=LENGTH, bos_token_id=BEGIN, eos_token_id=END
    ),
    "t5": lambda: transformers.T5Config(
        vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=BEGIN,
        eos_token_id=END, pad_token_id=BEGIN,
    ),
}  # fmt: skip


def build(kind: str, seed: int = 0) -> Any:
    """A model with random weights, far enough from even chances that its choices mean something."""
    torch.manual_seed(seed)
    config = CONFIGS[kind]()
    maker = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = maker.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(4.0)
    return model


@cache
def plain(kind: str) -> Any:
    """The model as transformers has it; it is not handed to `HF`, which changes how it attends."""
    return build(kind)


@cache
def words(begins: bool = False) -> Any:
    """A tokenizer whose words are w3, w4 …, and that adds a BOS token to every text on request."""
    token_ids = {"<s>": BEGIN, "</s>": END, "<unk>": UNKNOWN} | {f"w{n}": n for n in range(3, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(token_ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BEGIN)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


@cache
def ours(kind: str, **options: Any) -> HF:
    return HF(build(kind), tokenizer=words(), **options)


def text(tokens: Sequence[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


def numbers(written: str) -> list[int]:
    """The tokens of such a text."""
    return [int(word[1:]) for word in written.split()]


def answers(model: Any, requests: Sequence[Request]) -> list[Response]:
    """What a model answers, request by request; each is answered once."""

    async def ask() -> list[Response]:
        responses: dict[int, Response] = {}
        async for items in model.answer(requests):
            for number, response in items:
                assert number not in responses, "answered twice"
                responses[number] = response
        return [responses[number] for number in range(len(requests))]

    return asyncio.run(ask())


def likelihood(model: Any, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
    """Of `transformers`, one sequence at a time."""
    whole = [*context, *continuation]
    with torch.no_grad():
        logits = model(torch.tensor([whole[:-1]])).logits[0, len(context) - 1 :]
    scores, expected = logits.log_softmax(-1), torch.tensor(continuation)
    return float(scores.gather(1, expected[:, None]).sum()), bool((scores.argmax(-1) == expected).all())


def generated(model: Any, prompt: Sequence[int], new: int) -> list[int]:
    """What `generate` writes after a prompt, without the token that ends it."""
    tokens_out = model.generate(
        torch.tensor([list(prompt)]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=new,
        do_sample=False, pad_token_id=UNKNOWN, eos_token_id=END, bos_token_id=BEGIN,
    )[0].tolist()  # fmt: skip
    tokens_out = tokens_out[1:] if model.config.is_encoder_decoder else tokens_out[len(prompt) :]
    return tokens_out[: tokens_out.index(END)] if END in tokens_out else tokens_out


def plain_likelihood(kind: str, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
    """What a plain model says of a continuation: computed once, since many tests ask for the same."""
    return _plain_likelihood(kind, tuple(context), tuple(continuation))


def plain_generated(kind: str, prompt: Sequence[int], new: int) -> list[int]:
    """What a plain model writes after a prompt: computed once, since many tests ask for the same."""
    return list(_plain_generated(kind, tuple(prompt), new))


@cache
def _plain_likelihood(kind: str, context: tuple[int, ...], continuation: tuple[int, ...]) -> tuple[float, bool]:
    return likelihood(plain(kind), context, continuation)


@cache
def _plain_generated(kind: str, prompt: tuple[int, ...], new: int) -> tuple[int, ...]:
    return tuple(generated(plain(kind), prompt, new))
