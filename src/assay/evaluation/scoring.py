"""What scorers that take long have during a run: processes to compute in, and scores that were computed before."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from assay.runs.scores import ScoreFile
from assay.scoring.scorer import Scorer
from assay.scoring.workers import ScoreCache, Workers


@contextmanager
def processes(scorers: Sequence[Scorer]) -> Iterator[None]:
    """Processes for the scorers that want them."""
    wanted = [scorer for scorer in scorers if scorer.parallel]
    with closing(Workers(wanted)) as workers:
        for scorer in wanted:
            scorer.work_in(workers)
        yield


@contextmanager
def memories(scorers: Sequence[Scorer], folder: Path) -> Iterator[None]:
    """The scores that a run in this folder has computed before, for the scorers that want them."""
    wanted = [(scorer, identity) for scorer in scorers if scorer.cached and (identity := scorer.identity()) is not None]
    if not wanted:
        yield
        return
    with closing(ScoreFile(folder)) as file:
        for scorer, identity in wanted:
            scorer.remember(ScoreCache(identity, file))
        yield
