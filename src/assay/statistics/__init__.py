"""Numbers with error bars, from plain arrays: `estimate`, `combine`, `compare`, `passes`, `corrected`. See docs/statistics.md."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.statistics.arrays import combine as combine
    from assay.statistics.arrays import compare as compare
    from assay.statistics.arrays import estimate as estimate
    from assay.statistics.arrays import passes as passes
    from assay.statistics.evidence import Estimate as Estimate
    from assay.statistics.labels import Corrected as Corrected
    from assay.statistics.labels import corrected as corrected
    from assay.statistics.paired import PairedDifference as PairedDifference

__all__ = ["Corrected", "Estimate", "PairedDifference", "combine", "compare", "corrected", "estimate", "passes"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.statistics import arrays, labels

    return getattr(labels if name.lower() == "corrected" else arrays, name)
