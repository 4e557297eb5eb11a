"""What lm-eval 0.4.13's own `hf` says of the bundled model: written to tests/hf_expected.json.

usage, in an environment with lm_eval[hf]==0.4.13 and torch: python tools/make_hf_expected.py
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "src/assay/bundled/model"
SHOTS = "2 + 3 = 5\n\n10 + 4 = 14\n\nOne fox, two foxes\n\n"
CONTEXTS = [
    "2 + 3 =", "2 + 3 = ", SHOTS + "7 + 1 =", SHOTS + "9 + 9 =", SHOTS + "One dog, two", "Anna went to the", "Anna went to the\n",
    "Where is Ben? ", "Anna ünd", "",
]  # fmt: skip
CONTINUATIONS = [" 5", "5", " 8", " dogs", " park. There Anna found a red ball.", "In the garden", "\n\n"]
TEXTS = [
    "Anna went to the park. There Anna found a red ball.",
    "One fish.",
    "Anna went to the park. There Anna found a red ball. " * 40,
]
PARAMS = [
    {"until": ["\n"], "max_gen_toks": 16, "do_sample": False},
    {"until": [".", "found"], "max_gen_toks": 24, "do_sample": False, "temperature": 0.0},
    {"until": "\n\n", "max_new_tokens": 5},
]


def main() -> None:
    torch.set_num_threads(1)
    lm = HFLM(pretrained=str(MODEL), device="cpu", dtype="float32", batch_size=4, max_length=256)

    def ask(kind, items):
        instances = [Instance(kind, {}, each, number) for number, each in enumerate(items)]
        return getattr(lm, kind)(instances, disable_tqdm=True)

    pairs = [(context, continuation) for context in CONTEXTS for continuation in CONTINUATIONS]
    prompts = [(context, params) for context in CONTEXTS[:-1] for params in PARAMS]
    result = {
        "loglikelihood": [[*pair, *answer] for pair, answer in zip(pairs, ask("loglikelihood", pairs), strict=True)],
        "loglikelihood_rolling": [
            [text, answer]
            for text, answer in zip(TEXTS, ask("loglikelihood_rolling", [(t,) for t in TEXTS]), strict=True)
        ],
        "generate_until": [
            [*prompt, text] for prompt, text in zip(prompts, ask("generate_until", prompts), strict=True)
        ],
    }
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/hf_expected.json"
    out.write_text(json.dumps(result, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
