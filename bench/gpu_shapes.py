"""`python bench/gpu_shapes.py [NAME …]` on a machine with a GPU: shapes of today's models, random weights, bf16, MMLU-shaped requests.

Seconds of lm-eval's `hf` at its best batch size and of assay on the same model, and tokens computed for each different one; for
mixtures of experts also texts, by ours and in padded batches of plain transformers. lm_eval's package as for bench/gpu.py.
"""

import gc
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench"), str(ROOT / ".bench/gpu")]

import torch  # noqa: E402
import transformers  # noqa: E402

import architectures  # noqa: E402
from assay.models.local.hf.backend import HF  # noqa: E402
from assay.records import Failed, Generate, Loglikelihood  # noqa: E402
from gpu_workload import lm_eval_hf, mmlu_requests, sentence, word_tokenizer  # noqa: E402

WORDS = {
    "vocab_size": 61_000,
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
SHAPES = {
    "gemma3-4b": ("Gemma3TextConfig", {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
                  "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024}),
    "qwen3-next": ("Qwen3NextConfig", {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 2,
                   "head_dim": 256, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
                   "shared_expert_intermediate_size": 512, "linear_num_value_heads": 32, "linear_num_key_heads": 16}),
    "gpt-oss": ("GptOssConfig", {"hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 12, "num_attention_heads": 64,
                "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128}),
    "mistral-window": ("MistralConfig", {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 16, "num_attention_heads": 32,
                       "num_key_value_heads": 8, "sliding_window": 512}),
    "olmo3": ("Olmo3Config", {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 16, "num_attention_heads": 32,
              "num_key_value_heads": 32, "sliding_window": 512}),
    "mamba2": ("Mamba2Config", {"hidden_size": 2048, "num_hidden_layers": 24, "state_size": 128, "num_heads": 64, "head_dim": 64, "n_groups": 1}),
    "deepseek-v3": ("DeepseekV3Config", {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 12, "num_attention_heads": 16,
                    "num_key_value_heads": 16, "q_lora_rank": 768, "kv_lora_rank": 512, "n_routed_experts": 32, "num_experts_per_tok": 4,
                    "moe_intermediate_size": 1024, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}),
    "qwen3-moe": ("Qwen3MoeConfig", {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 16, "num_attention_heads": 32,
                  "num_key_value_heads": 4, "head_dim": 128, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768}),
}  # fmt: skip
EXPERTS = ("qwen3-moe", "gpt-oss", "deepseek-v3")
BATCHES = (16, 64)
SMALLER = (4, 1)
"""Batch sizes of lm-eval's for a model whose larger ones do not fit."""


def build(name):
    kind, fields = SHAPES[name]
    config = getattr(transformers, kind)(**WORDS | fields)
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def timed(model, requests):
    torch.cuda.synchronize()
    began = time.perf_counter()
    answers = architectures.answers(model, requests)
    torch.cuda.synchronize()
    failed = [each for each in answers if isinstance(each, Failed)]
    assert not failed, failed[0]
    return answers, time.perf_counter() - began


def forget(model):
    getattr(model._runner, "scorer", model._runner).forget()


def score(name, model, tokenizer):
    requests = list(mmlu_requests(2, 100))
    theirs = {}
    for batch in (*BATCHES, *SMALLER):
        if batch in SMALLER and theirs:
            break
        try:
            values, theirs[batch] = lm_eval_hf(model, tokenizer, requests, batch)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    best = min(theirs.values())
    ours = HF(model, tokenizer=tokenizer, max_length=4096)
    asked = [Loglikelihood(*each) for each in requests]
    timed(ours, asked[:100])
    rounds = []
    for _ in range(2):
        forget(ours)
        rounds.append(timed(ours, asked))
    answers, seconds = min(rounds, key=lambda each: each[1])
    computed = sum(each.usage.read - each.usage.stored for each in answers)
    unique = architectures.unique_tokens([(tuple(c.split(" ")), (w,)) for c, w in requests])
    far = sum(abs(mine.value - other[0]) for mine, other in zip(answers, values, strict=True)) / len(values)
    listed = ", ".join(f"{batch}: {each:.2f} s" for batch, each in theirs.items())
    print(f"{name}: lm-eval {listed}; assay {seconds:.2f} s = {best / seconds:.1f}x; computed {computed} of {unique} "
          f"different tokens = {computed / unique:.2f}; mean difference {far:.4f}; {type(ours._runner).__name__}"
          f" {'; '.join(ours.remarks.values())}", flush=True)  # fmt: skip
    return ours


def write(name, ours, model, tokenizer):
    import random

    rng = random.Random(0)
    shared = sentence(rng, 500)
    params = {"until": ["\n\n"], "max_gen_toks": 64, "do_sample": False}
    asked = [Generate(shared + " " + sentence(rng, 99), params) for _ in range(128)]
    timed(ours, asked[:16])
    with architectures.Warnings() as warned:
        answers, seconds = timed(ours, asked)
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:
        model.set_attn_implementation("eager")
    plain = HF(model, tokenizer=tokenizer, max_length=4096, share_prefixes=False, batch_size=128)
    expected, plainly = timed(plain, asked)
    written = sum(each.usage.written for each in answers)
    same = sum(a.text == b.text for a, b in zip(answers, expected, strict=True))
    print(f"{name} texts: {written / seconds:.0f} tokens/s, plain {written / plainly:.0f} = {plainly / seconds:.1f}x; "
          f"{same} of {len(asked)} equal at bf16; {warned.lines}", flush=True)  # fmt: skip


def main(names):
    print(
        torch.cuda.get_device_name(), "torch", torch.__version__, "transformers", transformers.__version__, flush=True
    )
    tokenizer = word_tokenizer()
    for name in names or SHAPES:
        try:
            model = build(name)
            ours = score(name, model, tokenizer)
            if name in EXPERTS:
                write(name, ours, model, tokenizer)
        except Exception as error:  # noqa: BLE001  # the next shape is wanted all the same
            print(f"{name}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
        model = ours = None
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1:])
