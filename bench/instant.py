"""The instant model of the synthetic benchmarks: the same answers as the one that bench/lm_eval_run.py gives to lm-eval."""

from hashlib import sha256

from assay.models import Scripted


def share(text: str) -> float:
    """A number from 0 to 1 that depends on the text alone."""
    return int(sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def generation(context: str, repeat: int) -> str:
    x, words = share(f"{context}\x00{repeat}"), context.split()
    picked = [words[int(share(f"{context}\x00{repeat}\x00{i}") * len(words)) % len(words)] for i in range(3)]
    return f" {' '.join(picked)}\n#### {int(1000 * x)}"


def instant() -> Scripted:
    return Scripted(
        generate=lambda prompt, params, repeat: generation(prompt, repeat),  # noqa: ARG005  # parameters change nothing
        loglikelihood=lambda context, text: (-50 * share(f"{context}\0{text}"), share(f"{text}\0{context}") < 0.5),
        loglikelihood_rolling=lambda text: -1000 * share(text),
    )
