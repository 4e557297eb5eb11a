"""One side of `bench.local`: lm-eval's `hf`, or ours, on a synthetic benchmark; prints CPU seconds and tokens embedded.

usage: local_run.py lm_eval|assay BENCH_DIR MODEL_DIR TASK LIMIT BATCH    (each in a separate environment)
       local_run.py make BENCH_DIR MODEL_DIR                              (a tiny random Llama with a tokenizer)
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")
ROOT = Path(__file__).resolve().parent.parent


def counting(model):
    """A list that gets the number of tokens of every pass through a model, padding included."""
    counted = []
    model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: counted.append(inputs[0].numel()))
    return counted


def lm_eval(bench, folder, task, limit, batch):
    import lm_eval as harness
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    lm = HFLM(pretrained=folder, device="cpu", dtype="float32", batch_size=batch)
    counted = counting(lm.model)
    start = time.process_time()
    results = harness.simple_evaluate(
        lm, tasks=[task], limit=limit, bootstrap_iters=0,
        task_manager=TaskManager(include_path=f"{bench}/tasks", include_defaults=False),
    )  # fmt: skip
    return {"seconds": time.process_time() - start, "forwarded": sum(counted), "results": scores(results)}


def assay(bench, folder, task, limit, batch):
    sys.path[:0] = [str(ROOT / "src")]
    from assay import simple_evaluate
    from assay.models.local.hf.backend import HF

    model = HF(folder, device="cpu", dtype="float32", batch_size=batch or None)
    counted = counting(model._loaded.model)
    start = time.process_time()
    results = simple_evaluate(
        model, tasks=[task], limit=limit, bootstrap_iters=0, include_path=f"{bench}/tasks", include_defaults=False
    )
    seconds = time.process_time() - start
    return {"seconds": seconds, "forwarded": sum(counted), "unique": unique(model, results), "results": scores(results)}


def scores(result):
    return {name: row["acc,none"] for name, row in result["results"].items() if "acc,none" in row}


def unique(model, result):
    """How many tokens cannot be spared: every beginning of a request, but for its last token, once."""
    seen = set()
    for samples in result["samples"].values():
        for sample in samples:
            for context, continuation in sample["arguments"]:
                before, after = model._tokenizer.pair(context, continuation)
                whole = before + after
                seen.update(hash(tuple(whole[:count])) for count in range(1, len(whole)))
    return len(seen)


def make(bench, folder):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    lines = [Path(f"{bench}/data/synth_mmlu_s00_anatomy_test.jsonl").read_text()]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def main():
    side, bench, folder, *rest = sys.argv[1:]
    if side == "make":
        make(bench, folder)
        return
    import torch

    torch.set_num_threads(1)  # on both sides: threads that wait for each other distort the measurement
    task, limit, batch = rest
    print(json.dumps({"lm_eval": lm_eval, "assay": assay}[side](bench, folder, task, int(limit), int(batch))))


if __name__ == "__main__":
    main()
