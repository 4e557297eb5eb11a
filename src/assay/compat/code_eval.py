"""What `evaluate.load("code_eval")` computes, with every program in the sandbox."""

from collections.abc import Sequence
from typing import Any

from assay.scoring.sandbox import SandboxLimits, passes
from assay.statistics.pass_at_k import pass_at_k

Verdicts = dict[int, list[tuple[int, dict[str, Any]]]]


def code_eval(
    predictions: Sequence[Sequence[str]],
    references: Sequence[str],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,  # noqa: ARG001  # theirs; one program runs at a time here
    timeout: float = 3.0,
) -> tuple[dict[str, float], Verdicts]:
    """`pass@k` over tasks, for each k that all tasks have programs for; and what became of every program."""
    verdicts: Verdicts = {}
    for task, (programs, tests) in enumerate(zip(predictions, references, strict=True)):
        verdicts[task] = [
            (number, _verdict(task, number, f"{program}\n{tests}", timeout)) for number, program in enumerate(programs)
        ]
    counts = [(len(each), sum(verdict["passed"] for _, verdict in each)) for each in verdicts.values()]
    shares = {
        f"pass@{several}": sum(pass_at_k(n, right, several) for n, right in counts) / len(counts)
        for several in k
        if all(n >= several for n, _ in counts)
    }
    return shares, verdicts


def _verdict(task: int, number: int, program: str, timeout: float) -> dict[str, Any]:
    passed = passes(program, SandboxLimits(timeout))
    return {"task_id": task, "passed": passed, "result": "passed" if passed else "failed", "completion_id": number}
