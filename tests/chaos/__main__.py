"""Disturb commands in histories drawn from a seed, and count what was lost, doubled, changed or left behind.

usage: python -m chaos [--fleet] [--histories 200] [--seed 1] [--jobs 2] [--only NUMBER …] [--kind KIND …] [--out FOLDER]   (in tests/; `make chaos` calls it)

Prints every failure with its history, which `--seed S --only NUMBER` repeats, and a table. Exits with 1 if there is any.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.fleet import FLEET
from chaos.histories import Chaos, Ended, Report, drawn, line
from chaos.worlds import KINDS

PHASES = ("start", "asking", "scoring", "samples", "results", "writing", "end")


def work(
    options: argparse.Namespace, numbers: Sequence[int], reports: "multiprocessing.Queue[Report | str | None]"
) -> None:
    """Histories one after the other, in a folder of this process."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.out))
    chaos = Chaos(folder)
    try:
        for number in numbers:
            reports.put(chaos.told(drawn(options.seed, number, FLEET if options.fleet else KINDS)))
    except (Ended, OSError) as error:
        reports.put(str(error))
    finally:
        chaos.close()
        shutil.rmtree(folder, ignore_errors=True)
        reports.put(None)


def told(options: argparse.Namespace) -> Iterator[Report | str]:
    """What comes of all histories, as they end."""
    kinds = list(FLEET if options.fleet else KINDS)
    numbers = options.only or [n for n in range(options.histories) if kinds[n % len(kinds)] in (options.kind or kinds)]
    context = multiprocessing.get_context("fork")
    reports: multiprocessing.Queue[Report | str | None] = context.Queue()
    jobs = min(options.jobs, len(numbers))
    order = sorted(
        numbers, key=lambda number: (number % len(kinds), number)
    )  # a kind's reference is run by few processes
    shares = [order[len(order) * job // jobs : len(order) * (job + 1) // jobs] for job in range(jobs)]
    processes = [context.Process(target=work, args=(options, share, reports)) for share in shares]
    for process in processes:
        process.start()
    while jobs:
        report = reports.get()
        if report is None:
            jobs -= 1
        else:
            yield report
    for process in processes:
        process.join()


def table(reports: Sequence[Report]) -> str:
    """The kills by command and phase, and the sums."""
    kills: Counter[tuple[str, str]] = sum((report.kills for report in reports), Counter())
    others: Counter[str] = sum((report.others for report in reports), Counter())
    kinds = Counter(report.history.kind for report in reports)
    rows = [f"| kills of a process at work | {' | '.join(PHASES)} | all |", "|---" * (len(PHASES) + 2) + "|"]
    for command in sorted({command for command, _ in kills}):
        counts = [kills[command, phase] for phase in PHASES]
        rows.append(f"| {command} | {' | '.join(map(str, counts))} | {sum(counts)} |")
    broken = [report for report in reports if report.problems]
    rows += [
        "",
        f"histories: {len(reports)} ({', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))})",
        f"kills: {kills.total()}; other disturbances: {', '.join(f'{how} {count}' for how, count in sorted(others.items())) or 'none'}",
        f"requests needed: {sum(report.needed for report in reports)}, asked: {sum(report.asked for report in reports)} (retries after faults and what was in flight)",
        f"histories with a problem: {len(broken)}",
    ]  # fmt: skip
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, nargs="*", metavar="NUMBER", help="just these histories of the seed")
    parser.add_argument("--kind", nargs="*", choices=list(KINDS))
    parser.add_argument("--fleet", action="store_true", help="runs of replicas on two Ray nodes, which are killed, too")
    parser.add_argument(
        "--out", default=tempfile.gettempdir(), help="the folder for worlds, and for chaos.jsonl and chaos.md"
    )
    options = parser.parse_args()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    failed = False
    with Path(options.out, "chaos.jsonl").open("w", encoding="utf-8") as log:
        for report in told(options):
            if isinstance(report, str):
                failed = True
                print(report, flush=True)
                continue
            reports.append(report)
            log.write(line(report) + "\n")
            log.flush()
            for problem in report.problems:
                failed = True
                print(f"{report.history}\n  {problem}", flush=True)
    Path(options.out, "chaos.md").write_text(table(reports) + "\n", encoding="utf-8")
    print(table(reports))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
