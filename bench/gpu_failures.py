"""`python bench/gpu_failures.py [--device cpu]`: failures put on a device, and the answers to the requests in hand.

The last one leaves the device unusable for its process: it must end with a ModelLost, in a separate process.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]

import torch  # noqa: E402

import architectures  # noqa: E402
from assay.models.local.attention import NAME  # noqa: E402
from assay.models.local.hf.backend import HF  # noqa: E402
from assay.models.protocol import ModelLost  # noqa: E402
from assay.records import Loglikelihood  # noqa: E402

LAST = "a token that is not in the vocabulary"


def opened(name, device, **options):
    model = architectures.build(name, device)
    return model, HF(model, tokenizer=architectures.tokenizer(), max_length=architectures.LENGTH, **options)


def fail(model, is_failing):
    """Let passes raise, by their number."""
    passes = []

    def check(*_):
        passes.append(1)
        if is_failing(len(passes)):
            raise RuntimeError("cuBLAS: not supported for this shape")

    model.get_input_embeddings().register_forward_pre_hook(check)


def once(_, model):
    fail(model, lambda number: number == 2)


def always_packed(_, model):
    fail(model, lambda number: number > 1 and model.config._attn_implementation == NAME)


def replayed(ours, _):
    """Recorded steps whose replay fails after some."""
    recorder, count = ours._runner.generator._recorder, [0]
    capture = recorder._captured

    def captured(step, mode):
        replay = capture(step, mode)

        def counted():
            count[0] += 1
            if count[0] > 5:
                raise RuntimeError("a graph cannot be replayed")
            replay()

        return counted

    recorder._captured = captured


def nothing(*_):
    pass


CASES = {
    "one pass fails": (once, {}),
    "packed attention fails": (always_packed, {}),
    "a recorded step fails": (replayed, {}),
    "compiled": (nothing, {"compile": True}),
    "compiled, packed attention fails": (always_packed, {"compile": True}),
}


def happens(case, way, device):
    """Whether a model that is run in this way has what fails: packed attention, or its steps, which a GPU records."""
    is_recorded = "recorded" in case
    if is_recorded and device == "cpu":
        return False
    return way == "packed" or not (is_recorded or "packed" in case)


def lose(device):
    """Ask about a token without a row in the embedding: on a GPU, an assertion of a kernel."""
    model = architectures.build("llama", device)
    model.resize_token_embeddings(100)
    ours = HF(model, tokenizer=architectures.tokenizer(), max_length=architectures.LENGTH)
    try:
        print(architectures.answers(ours, [Loglikelihood("w5 w6", " w7"), Loglikelihood("w5 w110 w6", " w7 w8")]))
    except ModelLost as error:
        print("ModelLost:", error)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lose", action="store_true")
    options = parser.parse_args()
    if options.lose:
        lose(options.device)
        return
    for name in ("llama", "gpt_oss", "qwen3_next"):
        expected = architectures.plain_answers(architectures.build(name, options.device))
        for case, (put, arguments) in CASES.items():
            with architectures.Warnings() as warned:
                model, ours = opened(name, options.device, **arguments)
                if not happens(case, ours.way, options.device):
                    continue
                put(ours, model)
                outcome = architectures.outcome(ours, expected, warned)
            equal = "equal" if outcome.is_equal else "DIFFERS"
            print(f"{name}: {case}: {equal}, {outcome.way}: {ours.fallbacks}", flush=True)
            torch.compiler.reset()
    command = [sys.executable, __file__, "--lose", "--device", options.device]
    lost = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    print(f"{LAST}: exit code {lost.returncode}: {(lost.stdout.splitlines() or [lost.stderr[-500:]])[-1]}")


if __name__ == "__main__":
    main()
