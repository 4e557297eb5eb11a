"""Scoring a long run again, and four shards against one run: CPU time, memory, equality."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.environments import ROOT, bare_environment, built_python
from bench.measure import Row, Said, peak_memory

DOCUMENTS, RUNS, SHARDS = 100_000, 3, 4
TASK = "synth_big"


def rows() -> Iterator[Row | Said]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Path(folder) / "synthetic"
        subprocess.run([str(built_python()), str(ROOT / "bench/make_benchmark.py"), str(bench), "--big"], check=True)
        whole = Path(folder) / "whole"
        _side("run", bench, whole)
        taken = [_side("score", whole) for _ in range(RUNS)]
        seconds, memory = (min(each[key] for each in taken) for key in ("cpu_s", "peak_mb"))
        yield Row(f"`assay score` of {DOCUMENTS:,} samples, {4 * DOCUMENTS:,} responses, CPU", None, seconds, "≤ 5 s")
        yield Row("the same, peak memory", None, memory, "–", "MB")
        for number in range(1, SHARDS + 1):
            _side("run", bench, Path(folder) / f"shard{number}", f"{number}/{SHARDS}")
        merged = Path(folder) / "merged"
        _side("merge", merged, *(Path(folder) / f"shard{number}" for number in range(1, SHARDS + 1)))
        different = [name for name, data in _outcome(whole).items() if _outcome(merged).get(name) != data]
        result = f"{', '.join(different)} differ" if different else "results, samples and journal equal"
        yield Said(
            f"{SHARDS} shards of {DOCUMENTS:,} documents, merged, against one run", result, "equal but for times"
        )


def _side(*arguments: object) -> dict[str, Any]:
    command = [str(built_python()), "-m", "bench.rescore", *map(str, arguments)]
    environment = {**bare_environment(), "OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=True)
    data: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return data


def _outcome(output: Path) -> dict[str, bytes]:
    """The outcome of a run: results.json but for its times, the samples, and the journal's lines in any order."""
    import pyarrow as pa

    times = rb'"(date|start_time|end_time|total_evaluation_time_seconds|crc32)": "?[0-9a-f.]+'
    text = re.sub(times, b"", (output / "results.json").read_bytes())
    samples = {path.name: path.read_bytes() for path in output.glob("samples/*")}
    with pa.input_stream(str(output / "responses.jsonl.zst"), compression="zstd") as packed:
        _, *lines = packed.read().splitlines()  # the header has times in it
    return {"results.json": text, **samples, "journal": b"\n".join(sorted(lines))}


def main(arguments: Sequence[str]) -> None:
    """One step in a separate process; import is not measured."""
    import pyarrow.parquet  # noqa: F401  # would come with the first sample

    from assay import merge, score, simple_evaluate
    from bench.instant import instant

    what, *paths = arguments
    start = time.process_time()
    if what == "run":
        bench, out, *shard = paths
        simple_evaluate(
            instant(), tasks=[TASK], include_path=f"{bench}/tasks", include_defaults=False, compat="lm-eval",
            output_path=out, log_samples=False, limit=DOCUMENTS, shard=shard[0] if shard else None,
        )  # fmt: skip
    elif what == "score":
        shutil.rmtree(score(paths[0]).folder)
    else:
        merge(paths[0], paths[1:])
    print(json.dumps({"cpu_s": time.process_time() - start, "peak_mb": peak_memory()}))


if __name__ == "__main__":
    main(sys.argv[1:])
