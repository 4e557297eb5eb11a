#!/usr/bin/env python3
"""Run lm-eval 0.4.13 on a synthetic benchmark with an instant, deterministic model; print CPU seconds and write what it asked and scored.

usage (in an environment with lm_eval==0.4.13):  lm_eval_run.py BENCH_DIR TASK [--expected OUT.json] [--limit N] [--bootstrap N]

The model depends only on the request text, so another harness can answer in the same way:
  u(text)           = int(sha256(text)[:8], 16) / 0xffffffff
  loglikelihood     = (-50 * u(context + "\\x00" + continuation), u(continuation + "\\x00" + context) < 0.5)
  rolling           = -1000 * u(text)
  generation k      = " " + three words of the context chosen by u(context + "\\x00" + k) + "\\n#### " + int(1000 * u(...)),  k = 0, 1, ... for repeats of one request
"""

import argparse
import hashlib
import json
import logging
import os
import resource
import time
from collections import Counter

os.environ.setdefault("TQDM_DISABLE", "1")
START = time.process_time()
import lm_eval.evaluator as evaluator  # noqa: E402
from lm_eval.api.model import LM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

IMPORTED = time.process_time() - START


def u(text):
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def generation(context, k):
    x, words = u(f"{context}\x00{k}"), context.split()
    picked = " ".join(words[int(u(f"{context}\x00{k}\x00{i}") * len(words)) % len(words)] for i in range(3))
    return f" {picked}\n#### {int(1000 * x)}"


class Instant(LM):
    tokenizer_name = "instant"

    def __init__(self, record):
        super().__init__()
        self.record = record
        self.asked = []
        self.seconds = 0.0

    def _answer(self, requests, kind, answer):
        start = time.process_time()
        out = [answer(*request.args) for request in requests]
        if self.record:
            self.asked += [[kind, *request.args] for request in requests]
        self.seconds += time.process_time() - start
        return out

    def loglikelihood(self, requests, disable_tqdm=True):
        return self._answer(requests, "loglikelihood", lambda c, t: (-50 * u(c + "\x00" + t), u(t + "\x00" + c) < 0.5))

    def loglikelihood_rolling(self, requests, disable_tqdm=True):
        return self._answer(requests, "loglikelihood_rolling", lambda text: -1000 * u(text))

    def generate_until(self, requests, disable_tqdm=True):
        seen = Counter()

        def answer(context, kwargs):
            seen[context] += 1
            return generation(context, seen[context] - 1)

        return self._answer(requests, "generate_until", answer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("task")
    parser.add_argument("--expected")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--bootstrap", type=int, default=100_000)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    manager = TaskManager(include_path=os.path.join(args.bench, "tasks"), include_defaults=False)
    model = Instant(record=bool(args.expected))
    start = time.process_time()
    results = evaluator.simple_evaluate(
        model=model,
        tasks=[args.task],
        task_manager=manager,
        limit=args.limit,
        bootstrap_iters=args.bootstrap,
        log_samples=True,
    )
    total = time.process_time() - start - model.seconds
    if args.expected:
        with open(args.expected, "w") as out:
            json.dump(
                {
                    "results": results["results"],
                    "groups": results.get("groups"),
                    "n-samples": results["n-samples"],
                    "requests": model.asked,
                },
                out,
            )
    documents = sum(n["effective"] for n in results["n-samples"].values())
    print(
        json.dumps(
            {
                "task": args.task,
                "documents": documents,
                "import_cpu_s": round(IMPORTED, 2),
                "evaluate_cpu_s": round(total, 2),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "score": {k: v for k, v in results["results"][args.task].items() if isinstance(v, (int, float))},
            }
        )
    )


if __name__ == "__main__":
    main()
