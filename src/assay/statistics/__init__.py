"""Numbers with honest error bars, from plain arrays: `estimate`, `combine`, `compare`, `passes`. See docs/statistics.md."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.statistics.arrays import PairedDifference as PairedDifference
    from assay.statistics.arrays import combine as combine
    from assay.statistics.arrays import compare as compare
    from assay.statistics.arrays import estimate as estimate
    from assay.statistics.arrays import passes as passes
    from assay.statistics.influence import Estimate as Estimate

__all__ = ["Estimate", "PairedDifference", "combine", "compare", "estimate", "passes"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.statistics import arrays

    return getattr(arrays, name)
