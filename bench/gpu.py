"""`python bench/gpu.py [--quick]` on a machine with a GPU: lm-eval's `hf` and ours on the same model, requests and process.

lm_eval's package is looked for in `.bench/gpu` beside what is installed: it is carried there without its tasks, where nothing can
be installed. Warm-up and compilation are outside the times; tokenisation is inside, on both sides.
"""

import argparse
import datetime
import gc
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench"), str(ROOT / ".bench/gpu")]

import torch  # noqa: E402
import transformers  # noqa: E402

import architectures  # noqa: E402
from assay.engine.thread_lane import SWITCH_SECONDS  # noqa: E402
from assay.models.local.hf.backend import HF  # noqa: E402
from assay.records import Failed, Generate, Loglikelihood  # noqa: E402
from gpu_workload import hellaswag_requests, lm_eval_hf, mmlu_requests, random_llama, sentence, word_tokenizer  # noqa: E402

BATCHES = (8, 16, 32, 64, 128)
WORKLOADS = {
    "MMLU-shaped": {"1b": lambda seed: mmlu_requests(4, 250, seed), "8b": lambda seed: mmlu_requests(2, 250, seed)},
    "HellaSwag-shaped": {
        "1b": lambda seed: hellaswag_requests(200, seed),
        "8b": lambda seed: hellaswag_requests(100, seed),
    },
}
NEW_TOKENS = 128


def matrix_rate(size: int = 8192) -> float:
    """The measured rate of bf16 matrix products, in operations a second."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        a @ b
    torch.cuda.synchronize()
    return 10 * 2 * size**3 / (time.perf_counter() - start)


def ask(model, requests):
    """Our answers in the order of the requests, seconds, and tokens asked and computed."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    answers = architectures.answers(model, requests)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    failed = [each for each in answers if isinstance(each, Failed)]
    assert not failed, failed[0]
    asked = sum(each.usage.read for each in answers)
    return answers, seconds, asked, asked - sum(each.usage.stored for each in answers)


def anew(model, requests):
    """Our answers by a model that has kept nothing of what it was asked before."""
    model._runner.scorer.forget()
    return ask(model, requests)


def operations(model, requests, computed):
    """Those that cannot be left out: the matrices for every token computed, attention, and the vocabulary where it is read."""
    config = model.config
    embedding = model.get_input_embeddings().weight.numel()
    matrices = sum(each.numel() for each in model.parameters()) - embedding * (1 if config.tie_word_embeddings else 2)
    contexts = {context: len(context.split()) for context, _ in requests}
    read_out = len(contexts) + sum(len(each.split()) - 1 for _, each in requests)
    seen = sum(contexts.values()) / len(contexts) / 2  # half of a context on average; the few-shot part is seen whole
    attention = 4 * config.num_hidden_layers * config.hidden_size * seen * computed
    return 2 * matrices * computed + attention + 2 * read_out * embedding


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one batch size of lm-eval's, no precision, no texts")
    parser.add_argument("--sizes", default="1b,8b")
    parser.add_argument(
        "--parts", default="score,precision,write", help="those, and archs: tiny models of many architectures"
    )
    options = parser.parse_args()
    print(datetime.date.today().isoformat(), torch.cuda.get_device_name(), "torch", torch.__version__, "transformers",
          transformers.__version__, flush=True)  # fmt: skip
    if "archs" in options.parts:
        for dtype in (torch.float32, torch.bfloat16):
            architectures.run(device="cuda", dtype=dtype)
    if options.parts == "archs":
        return
    sys.setswitchinterval(SWITCH_SECONDS)  # both as in a run
    gc.set_threshold(100_000, 20, 20)
    rate = matrix_rate()
    print(f"bf16 matrix product, measured: {rate / 1e12:.0f} TFLOP/s", flush=True)
    for size in options.sizes.split(","):
        tokenizer = word_tokenizer()
        model = random_llama(size)
        if "score" in options.parts:
            score(size, model, tokenizer, (16,) if options.quick else BATCHES, rate)
        if "precision" in options.parts:
            precision(size, model, tokenizer)
        if "write" in options.parts and size == "1b":
            write(model, tokenizer, (128,) if options.quick else (64, 128, 512))
        del model
        gc.collect()
        torch.cuda.empty_cache()


def ours(model, tokenizer, compiled):
    return HF(model, tokenizer=tokenizer, max_length=4096, compile=compiled)


def plainly(model):
    """The model as it was before it was ours."""
    model.set_attn_implementation("sdpa")
    for module in model.modules():
        module._compiled_call_impl = None
    return model


def score(size, model, tokenizer, batches, rate):
    for name, built in WORKLOADS.items():
        requests = list(built[size](0))
        theirs, answers = {}, {}
        for batch in batches:
            answers[batch], theirs[batch] = lm_eval_hf(model, tokenizer, requests, batch)
            gc.collect()
            torch.cuda.empty_cache()
        best = min(theirs, key=theirs.__getitem__)
        listed = " / ".join(f"{theirs[batch]:.2f}" for batch in batches)
        print(f"\n{size} {name}: lm-eval {listed} s (batch {batches}), best {best}", flush=True)
        asked = [Loglikelihood(context, continuation) for context, continuation in requests]
        for compiled in (False, True):
            began = time.perf_counter()
            mine = ours(model, tokenizer, compiled)
            ask(mine, [Loglikelihood(*each) for each in built[size](1)])
            warm = time.perf_counter() - began
            result, seconds, tokens, computed = min((anew(mine, asked) for _ in range(3)), key=lambda each: each[1])
            far = [abs(mine.value - other[0]) for mine, other in zip(result, answers[best], strict=True)]
            done = operations(model, requests, computed)
            print(
                f"{size} {name}: assay{' compiled' if compiled else ''} {seconds:.3f} s, {theirs[best] / seconds:.2f}x, "
                f"{done / seconds / 1e12:.0f} TFLOP/s = {done / seconds / rate:.1%} of the rate; asked {tokens}, "
                f"computed {computed}; mean difference {sum(far) / len(far):.4f}; warm-up {warm:.1f} s",
                flush=True,
            )
            plainly(model)


def precision(size, model, tokenizer):
    """How far the log-likelihoods of both are from those at float32."""
    requests = [*list(mmlu_requests(1, 20, 3)), *list(hellaswag_requests(10, 3))]
    counted = [len(continuation.split()) for _, continuation in requests]
    asked = [Loglikelihood(*each) for each in requests]
    theirs, _ = lm_eval_hf(model, tokenizer, requests, 16)
    response, *_ = ask(ours(model, tokenizer, False), asked)
    plainly(model).float()
    reference, _ = lm_eval_hf(model, tokenizer, requests, 16)
    exact, *_ = ask(ours(model, tokenizer, False), asked)
    plainly(model).bfloat16()

    prompts = [
        Generate(context, {"until": ["\n\n"], "max_gen_toks": 32}) for context in dict.fromkeys(c for c, _ in requests)
    ]
    mine = ours(model.float(), tokenizer, False)
    together, alone = ask(mine, prompts)[0], [ask(mine, [each])[0][0] for each in prompts]
    plainly(model).bfloat16()
    print(f"{size} texts at float32: {sum(a.text == b.text for a, b in zip(together, alone, strict=True))} of {len(prompts)} "
          "the same alone and together", flush=True)  # fmt: skip

    def far(values, others):
        return [abs(a - b) / n for a, b, n in zip(values, others, counted, strict=True)]

    true = [each[0] for each in reference]
    e_theirs, e_ours = far([each[0] for each in theirs], true), far([each.value for each in response], true)
    same = far([each.value for each in exact], true)
    print(
        f"{size} precision: at float32 {max(same):.2e} per token at most from lm-eval; at bf16 from float32: lm-eval "
        f"{sum(e_theirs) / len(same):.5f}, assay {sum(e_ours) / len(same):.5f} per token in the mean "
        f"({sum(e_ours) / sum(e_theirs):.2f}x)", flush=True,
    )  # fmt: skip


def write(model, tokenizer, batches):
    """512 prompts of 600 tokens, 500 of them shared; 128 new ones each."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    rng = random.Random(0)
    shared = sentence(rng, 500)
    prompts = [shared + " " + sentence(rng, 99) for _ in range(512)]
    params = {"until": ["\n\n"], "max_gen_toks": NEW_TOKENS, "do_sample": False}
    rates = {}
    for batch in batches:
        lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch, device="cuda", max_length=4096)
        instances = [Instance("generate_until", {}, (prompt, dict(params)), 0) for prompt in prompts]
        torch.cuda.synchronize()
        start = time.perf_counter()
        texts = lm.generate_until(instances, disable_tqdm=True)
        torch.cuda.synchronize()
        rates[batch] = sum(len(tokenizer(text)["input_ids"]) for text in texts) / (time.perf_counter() - start)
    mine = ours(model, tokenizer, False)
    asked = [Generate(prompt, params) for prompt in prompts]
    ask(mine, asked[:64])
    result, seconds, *_ = min((ask(mine, asked) for _ in range(3)), key=lambda each: each[1])
    rate = sum(each.usage.written for each in result) / seconds
    same = sum(each.text == text for each, text in zip(result, texts, strict=True))
    listed = " / ".join(f"{rates[batch]:.0f}" for batch in batches)
    print(f"\n1b texts: lm-eval {listed} tokens/s (batch {batches}); assay {rate:.0f} tokens/s in {seconds:.2f} s = "
          f"{rate / max(rates.values()):.2f}x its best; {same} of 512 texts the same at bf16", flush=True)  # fmt: skip
    plainly(model)


if __name__ == "__main__":
    main()
