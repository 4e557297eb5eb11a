"""The kernel of generation steps, run by Triton's interpreter on the CPU, next to attention computed by hand in float64."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERPRETED = """
import math, torch
from assay.models.local.slot_kernel import attend_slots

def attended(query, keys, values, scale, sink):
    scores = (keys @ query).double() * scale
    weights = torch.exp(scores)
    total = weights.sum() + (0 if sink is None else math.exp(sink))
    return (weights[:, None] * values.double()).sum(0) / total

torch.manual_seed(0)
for size, heads, groups in ((16, 2, 3), (64, 1, 1), (24, 2, 4)):
    for window in (None, 5):
        for shared in (0, 7):
            for with_sinks in (False, True):
                if shared and window:
                    continue
                slots, length, scale = 3, 140, size**-0.5
                used = torch.tensor([1, 9, 139], dtype=torch.int32)
                query = torch.randn(heads * groups, slots, size).transpose(0, 1)
                keys, values = (torch.randn(slots * length, heads, size) for _ in range(2))
                prefix = [torch.randn(shared, heads, size) for _ in range(2)] if shared else None
                sinks = torch.randn(heads * groups) if with_sinks else None
                before = None
                if shared:
                    by_head = [each.repeat_interleave(groups, 1) for each in prefix]
                    scores = torch.einsum("qhd,khd->hqk", query, by_head[0]) * scale
                    before = (torch.einsum("hqk,khd->qhd", scores.softmax(-1), by_head[1]).contiguous(), scores.logsumexp(-1))
                seen = attend_slots(query, (keys, values), used, length, scale=scale, window=window, sinks=sinks, before=before)
                for slot in range(slots):
                    first = max(int(used[slot]) - window, 0) if window else 0
                    part = slice(slot * length + first, slot * length + int(used[slot]))
                    for head in range(heads * groups):
                        key, value = keys[part, head // groups], values[part, head // groups]
                        if shared:
                            key = torch.cat([prefix[0][:, head // groups], key])
                            value = torch.cat([prefix[1][:, head // groups], value])
                        sink = None if sinks is None else float(sinks[head])
                        expected = attended(query[slot, head], key, value, scale, sink)
                        torch.testing.assert_close(seen[slot, head].double(), expected, atol=1e-4, rtol=1e-4)
print("equal")
"""


def test_the_kernel_attends_as_attention_does() -> None:
    pytest.importorskip("triton", reason="needs Triton, which torch for CPUs does not include")
    path = os.pathsep.join([str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
