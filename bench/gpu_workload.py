"""The GPU scoring workload, and lm-eval's `hf` on it: import this beside the code to compare, so that both run in one process on one model.

On the GPU machine nothing can be installed: carry lm_eval's package folder without its tasks (1.2 MB, keep tasks/*.py and the dist-info folder) and put
it on sys.path. Modules that lm_eval imports but this path never uses are stubbed *after* torch and transformers are imported.
"""

import importlib
import importlib.machinery
import random
import sys
import time
import types

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LETTERS = (" A", " B", " C", " D")
SHAPES = {
    "1b": dict(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        tie_word_embeddings=True,
    ),
    "8b": dict(
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14336,
        tie_word_embeddings=False,
    ),
}


def word_tokenizer():
    """One token per word, so that lengths are exact."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for word in [f" w{i}" for i in range(30_000)] + [f"w{i}" for i in range(30_000)] + [*LETTERS, "\n", "\n\n"]:
        vocab.setdefault(word, len(vocab))
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+| ?[A-Za-z0-9]+"), behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )


def random_llama(size, dtype=torch.bfloat16):
    with torch.device("cuda"):
        torch.set_default_dtype(dtype)
        model = LlamaForCausalLM(
            LlamaConfig(vocab_size=128_256, max_position_embeddings=8192, rope_theta=500_000.0, **SHAPES[size])
        )
        torch.set_default_dtype(torch.float32)
    return model.eval()


def sentence(rng, n):
    return f"w{rng.randrange(30_000)}" + "".join(f" w{rng.randrange(30_000)}" for _ in range(n - 1))


def mmlu_requests(subjects, documents, seed=0):
    """5-shot: 550 shared tokens per subject, 110 per question, four one-token choices."""
    rng = random.Random(seed)
    for _ in range(subjects):
        shots = "\n\n".join(sentence(rng, 108) + " A" for _ in range(5)) + "\n\n"
        for _ in range(documents):
            context = shots + sentence(rng, 109)
            yield from ((context, letter) for letter in LETTERS)


def hellaswag_requests(documents, seed=0):
    """10-shot: 1,000 tokens of context of its own per document, four continuations of 15-35 tokens."""
    rng = random.Random(seed)
    for _ in range(documents):
        context = sentence(rng, 1000)
        yield from ((context, " " + sentence(rng, rng.randint(15, 35))) for _ in range(4))


def lm_eval_hf(model, tokenizer, requests, batch_size):
    """(log-likelihoods, seconds) of lm-eval's hf backend on these requests."""
    for name in ("datasets", "evaluate", "dill", "sqlitedict", "sacrebleu", "rouge_score", "more_itertools"):
        try:
            importlib.import_module(name)
        except Exception:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(
        pretrained=model, tokenizer=tokenizer, batch_size=batch_size, max_batch_size=256, device="cuda", max_length=4096
    )
    instances = [Instance("loglikelihood", {}, request, 0) for request in requests]
    torch.cuda.synchronize()
    start = time.perf_counter()
    answers = lm.loglikelihood(instances, disable_tqdm=True)
    torch.cuda.synchronize()
    return answers, time.perf_counter() - start
