"""Tiny random models of many architectures, answered by our `hf` backend and by plain transformers, one sequence at a time.

`python bench/architectures.py [--device cuda] [NAME …]`, or `python bench/gpu.py --parts archs` on a machine with a GPU.
"""

import argparse
import asyncio
import logging
import random
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from assay.models.local.hf.backend import HF  # noqa: E402
from assay.records import Failed, Generate, Loglikelihood  # noqa: E402

WORDS, LENGTH = 120, 256
BEGIN, END, UNKNOWN = 0, 1, 2
NEW_TOKENS = 12
TOLERANCE = 1e-3
"""Log-probability per token at float32."""

ENDS = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": None}
DENSE = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": LENGTH, **ENDS,
}  # fmt: skip
EXPERTS = DENSE | {"moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2}
LATENT = DENSE | {
    "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "moe_intermediate_size": 48, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
}  # fmt: skip
GPT = {"vocab_size": WORDS, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LENGTH, **ENDS}

ARCHITECTURES = {
    # dense
    "llama": ("LlamaConfig", DENSE), "mistral": ("MistralConfig", DENSE | {"sliding_window": None}),
    "mistral sliding": ("MistralConfig", DENSE | {"sliding_window": 16}),
    "qwen2": ("Qwen2Config", DENSE), "qwen3": ("Qwen3Config", DENSE | {"head_dim": 16}),
    "gemma": ("GemmaConfig", DENSE | {"head_dim": 16}),
    "gemma2": ("Gemma2Config", DENSE | {"head_dim": 16, "sliding_window": 32}),
    "gemma3": ("Gemma3TextConfig", DENSE | {"head_dim": 16, "sliding_window": 32}),
    "phi": ("PhiConfig", DENSE), "phi3": ("Phi3Config", DENSE), "olmo": ("OlmoConfig", DENSE),
    "olmo2": ("Olmo2Config", DENSE), "stablelm": ("StableLmConfig", DENSE), "starcoder2": ("Starcoder2Config", DENSE),
    "cohere": ("CohereConfig", DENSE), "granite": ("GraniteConfig", DENSE), "glm": ("GlmConfig", DENSE | {"head_dim": 16}),
    "smollm3": ("SmolLM3Config", DENSE), "nemotron": ("NemotronConfig", DENSE),
    "helium": ("HeliumConfig", DENSE | {"head_dim": 16}),
    "gpt2": ("GPT2Config", GPT), "gpt_neox": ("GPTNeoXConfig", {k: v for k, v in DENSE.items() if k != "num_key_value_heads"}),
    "gptj": ("GPTJConfig", GPT | {"rotary_dim": 8}), "gpt_bigcode": ("GPTBigCodeConfig", GPT),
    "opt": ("OPTConfig", DENSE | {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "bloom": ("BloomConfig", {"vocab_size": WORDS, "hidden_size": 64, "n_layer": 2, "n_head": 4, **ENDS}),
    "falcon": ("FalconConfig", DENSE | {"new_decoder_architecture": False, "multi_query": True}),
    "mpt": ("MptConfig", {"vocab_size": WORDS, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": LENGTH, **ENDS}),
    # mixtures of experts
    "mixtral": ("MixtralConfig", DENSE | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2_moe": ("Qwen2MoeConfig", EXPERTS | {"shared_expert_intermediate_size": 48}),
    "qwen3_moe": ("Qwen3MoeConfig", EXPERTS | {"head_dim": 16}),
    "olmoe": ("OlmoeConfig", EXPERTS), "phimoe": ("PhimoeConfig", DENSE | {"num_local_experts": 8, "sliding_window": None}),
    "granitemoe": ("GraniteMoeConfig", DENSE | {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "deepseek_v2": ("DeepseekV2Config", LATENT | {"topk_method": "greedy"}), "deepseek_v3": ("DeepseekV3Config", LATENT),
    "glm4_moe": ("Glm4MoeConfig", LATENT | {"num_key_value_heads": 2, "head_dim": 16}),
    "gpt_oss": ("GptOssConfig", DENSE | {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 32}),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", EXPERTS | {"moe_num_experts": 8, "moe_k": 2}),
    "llama4": ("Llama4TextConfig", DENSE | {"num_hidden_layers": 4, "head_dim": 16, "num_local_experts": 4, "attention_chunk_size": 16,
               "intermediate_size_mlp": 96, "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 1, 0]}),
    # sliding windows
    "qwen2 sliding": ("Qwen2Config", DENSE | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    "cohere2": ("Cohere2Config", DENSE | {"num_hidden_layers": 4, "sliding_window": 16}),
    "olmo3": ("Olmo3Config", DENSE | {"num_hidden_layers": 4, "sliding_window": 16}),
    "exaone4": ("Exaone4Config", DENSE | {"num_hidden_layers": 4, "sliding_window": 16, "sliding_window_pattern": 4}),
    "ministral": ("MinistralConfig", DENSE | {"head_dim": 16, "sliding_window": 16,
                  "layer_types": ["sliding_attention", "full_attention"]}),
    # other dense ones
    "apertus": ("ApertusConfig", DENSE), "arcee": ("ArceeConfig", DENSE), "seed_oss": ("SeedOssConfig", DENSE | {"head_dim": 16}),
    "glm4": ("Glm4Config", DENSE | {"head_dim": 16}), "ernie4_5": ("Ernie4_5Config", DENSE | {"head_dim": 16}),
    "hunyuan": ("HunYuanDenseV1Config", DENSE | {"head_dim": 16}), "vaultgemma": ("VaultGemmaConfig", DENSE | {"head_dim": 16, "sliding_window": 16}),
    "gpt_neo": ("GPTNeoConfig", {"vocab_size": WORDS, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                "window_size": 16, "max_position_embeddings": LENGTH, **ENDS}),
    "minimax_m2": ("MiniMaxM2Config", DENSE | {"head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 2}),
    # states instead of attention, and both
    "mamba": ("MambaConfig", {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, **ENDS}),
    "rwkv": ("RwkvConfig", {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "context_length": LENGTH, **ENDS}),
    "recurrent_gemma": ("RecurrentGemmaConfig", DENSE | {"num_hidden_layers": 3, "attention_window_size": 32}),
    "jamba": ("JambaConfig", DENSE | {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4,
              "mamba_d_state": 8, "use_mamba_kernels": False}),
    "mamba2": ("Mamba2Config", {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 16,
               "n_groups": 2, "chunk_size": 16, **ENDS}),
    "qwen3_next": ("Qwen3NextConfig", EXPERTS | {"num_hidden_layers": 4, "head_dim": 16, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
                   "linear_key_head_dim": 16, "linear_value_head_dim": 16, "shared_expert_intermediate_size": 48}),
    "granitemoehybrid": ("GraniteMoeHybridConfig", DENSE | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48,
                         "layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2}),
    "minimax": ("MiniMaxConfig", DENSE | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 16,
                "layer_types": ["linear_attention", "full_attention"]}),
    "bamba": ("BambaConfig", DENSE | {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2}),
    "falcon_h1": ("FalconH1Config", DENSE | {"head_dim": 16, "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2}),
    "falcon_mamba": ("FalconMambaConfig", {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, **ENDS}),
    "lfm2": ("Lfm2Config", DENSE | {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]}),
    "zamba2": ("Zamba2Config", DENSE | {"num_hidden_layers": 4, "mamba_d_state": 8, "mamba_headdim": 16, "n_mamba_heads": 8, "mamba_ngroups": 2,
               "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "num_mem_blocks": 1, "use_mem_rope": True}),
    "nemotron_h": ("NemotronHConfig", DENSE | {"num_hidden_layers": 4, "hybrid_override_pattern": "M*M-", "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 16,
                   "ssm_state_size": 8, "n_groups": 2}),
    # encoder and decoder
    "t5": ("T5Config", {"vocab_size": WORDS, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4,
           "decoder_start_token_id": BEGIN, "eos_token_id": END, "pad_token_id": BEGIN}),
}  # fmt: skip

SAMPLE = ("llama", "gemma2", "mixtral", "bloom", "mamba", "rwkv", "t5")
"""One of each family, for tests of every change: dense, with windows, of experts, with attention of its own, with states, with states
that cannot be copied, with an encoder."""
STATES = (
    "gptj", "bloom", "falcon", "mpt", "gpt_neo", "mamba", "jamba", "mamba2", "qwen3_next", "granitemoehybrid", "bamba", "falcon_h1",
    "falcon_mamba", "lfm2", "zamba2", "nemotron_h",
)  # fmt: skip
"""Shared by copies of transformers' caches: custom attention code, or layers with states."""
UNSHARED = ("rwkv", "recurrent_gemma", "minimax")
"""In padded batches: their states cannot be copied."""
WAYS = (
    dict.fromkeys(ARCHITECTURES, "packed")
    | dict.fromkeys(STATES, "states")
    | dict.fromkeys(UNSHARED, "padded")
    | {"t5": "encoder-decoder"}
)
"""How each is run."""


@dataclass(frozen=True)
class Plain:
    """Log-likelihoods of questions and greedy texts after prompts, by plain transformers."""

    asked: list
    prompts: list
    values: list
    texts: list


@dataclass(frozen=True)
class Outcome:
    """The largest difference per token, tokens computed for each different one, how many greedy texts are equal, the way it was
    run, and what the backend remarked."""

    largest: float
    computed: float
    equal_texts: int
    texts: int
    way: str
    remarks: tuple[str, ...]

    @property
    def is_equal(self):
        return self.largest <= TOLERANCE and self.equal_texts == self.texts


def tokenizer():
    token_ids = {"<s>": BEGIN, "</s>": END, "<unk>": UNKNOWN} | {f"w{n}": n for n in range(3, WORDS)}
    words = Tokenizer(models.WordLevel(token_ids, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>", clean_up_tokenization_spaces=False
    )


def build(name, device="cpu", dtype=torch.float32):
    """A model with random weights, scaled so that its choices are far from even; the same weights each time."""
    kind, fields = ARCHITECTURES[name]
    config = getattr(transformers, kind)(**fields)
    maker = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    model = maker.from_config(config).float().eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() == 2:
                weights.mul_(4.0)
    return model.to(device=device, dtype=dtype)


def text(tokens):
    return " ".join(f"w{token}" for token in tokens)


def questions(seed=0):
    """Contexts with a common beginning, each with choices of several lengths."""
    rng = random.Random(seed)

    def some(count):
        return [rng.randrange(3, WORDS) for _ in range(count)]

    shared = some(40)
    contexts = [shared + some(rng.randint(3, 12)) for _ in range(6)] + [some(rng.randint(5, 30)) for _ in range(4)]
    return [(context, some(rng.randint(1, 5))) for context in contexts for _ in range(3)]


def likelihood(model, context, continuation):
    """By plain transformers, one sequence at a time."""
    device = model.device
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            written = [model.config.decoder_start_token_id, *continuation[:-1]]
            loaded_model = model(
                torch.tensor([context], device=device), decoder_input_ids=torch.tensor([written], device=device)
            )
            logits = loaded_model.logits[0]
        else:
            whole = torch.tensor([[*context, *continuation[:-1]]], device=device)
            logits = model(whole, use_cache=False).logits[0, len(context) - 1 :]
    scores = logits.float().log_softmax(-1)
    return float(scores.gather(1, torch.tensor(continuation, device=device)[:, None]).sum())


def generated(model, prompt):
    """What transformers' `generate` writes, without the token that ends it."""
    device = model.device
    tokens_out = model.generate(
        torch.tensor([prompt], device=device), attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=device),
        max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=UNKNOWN, eos_token_id=END, bos_token_id=BEGIN,
    )[0].tolist()  # fmt: skip
    tokens_out = tokens_out[1:] if model.config.is_encoder_decoder else tokens_out[len(prompt) :]
    return tokens_out[: tokens_out.index(END)] if END in tokens_out else tokens_out


def answers(model, requests):
    async def collect():
        result = [None] * len(requests)
        async for items in model.answer(requests):
            for number, response in items:
                result[number] = response
        return result

    return asyncio.run(collect())


class Warnings(logging.Handler):
    """Keeps what `assay` warns of while it is a context."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        logging.getLogger("assay").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("assay").removeHandler(self)


def plain_answers(model, every=3):
    """Plain transformers' answers, the texts to every n-th question."""
    asked = questions()
    prompts = [context for context, _ in asked[::every]]
    values = [likelihood(model, *each) for each in asked]
    return Plain(asked, prompts, values, [generated(model, each) for each in prompts])


def compare(name, device="cpu", dtype=torch.float32):
    """Our answers of an architecture against those of plain transformers."""
    expected = plain_answers(build(name, device, dtype))
    with Warnings() as warned:
        ours = HF(build(name, device, dtype), tokenizer=tokenizer(), max_length=LENGTH)
        return outcome(ours, expected, warned)


def outcome(ours, expected, warned):
    """How far our answers are from the expected ones."""
    scored = answers(ours, [Loglikelihood(text(c), " " + text(w)) for c, w in expected.asked])
    params = {"until": [], "max_gen_toks": NEW_TOKENS, "do_sample": False}
    written = answers(ours, [Generate(text(each), params) for each in expected.prompts])
    failed = [each for each in (*scored, *written) if isinstance(each, Failed)]
    if failed:
        raise RuntimeError(f"{len(failed)} requests failed: {failed[0].reason}")
    tokens = [len(continuation) for _, continuation in expected.asked]
    far = [abs(ours.value - true) / n for ours, true, n in zip(scored, expected.values, tokens, strict=True)]
    decode = tokenizer().decode  # as lm-eval's `hf` and ours: without special tokens
    texts = [decode(true, skip_special_tokens=True) for true in expected.texts]
    same = sum(mine.text == true for mine, true in zip(written, texts, strict=True))
    computed = sum(each.usage.read - each.usage.stored for each in scored) / unique_tokens(expected.asked)
    return Outcome(max(far), computed, same, len(texts), ours.way, (*ours.remarks.values(), *warned.lines))


def unique_tokens(asked):
    """Number of different beginnings of all texts: the tokens that must be computed."""
    texts = ((*context, *continuation[:-1]) for context, continuation in asked)
    return len({text[:end] for text in texts for end in range(1, len(text) + 1)})


def run(names=(), device="cpu", dtype=torch.float32):
    """Print a line for each architecture; the number of those that differ, fail, or are run in another way than WAYS says."""
    names, bad, exact = names or list(ARCHITECTURES), 0, dtype == torch.float32
    for name in names:
        try:
            result = compare(name, device, dtype)
        except Exception as error:  # noqa: BLE001  # the next architecture is wanted all the same
            bad += 1
            print(f"{name:18} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        is_bad = (exact and not result.is_equal) or result.way != WAYS[name]
        bad += is_bad
        figures = f"{result.largest:.1e} per token, {result.equal_texts}/{result.texts} texts equal, tokens × {result.computed:.2f}"
        print(f"{name:18} {result.way:8}", "DIFFERS" * is_bad, "; ".join((figures, *result.remarks)), flush=True)
    label = str(dtype).removeprefix("torch.")
    print(
        f"{label} on {device}: {len(names) - bad} of {len(names)} architectures {'equal' if exact else 'ran'}",
        flush=True,
    )
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    sys.exit(bool(run(options.names, options.device, getattr(torch, options.dtype))))
