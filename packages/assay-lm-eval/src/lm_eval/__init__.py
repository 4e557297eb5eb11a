"""lm-eval's names over assay. Modules below this one are made by `lm_eval._modules`."""

from importlib.metadata import PackageNotFoundError, distribution

__version__ = "0.4.13"
"""The version of lm-eval whose names and numbers these are."""

BOTH = (
    "lm_eval and assay-lm-eval are both installed, and each has overwritten files of the other — keep one: pip uninstall -y lm_eval"
    " assay-lm-eval, then pip install lm_eval, or pip install assay-lm-eval"
)


def _refuse_to_mix() -> None:
    """Stop where lm_eval itself is installed, too: files of both are in one folder, and no number could be trusted."""
    try:
        distribution("lm_eval")
    except PackageNotFoundError:
        return
    raise ImportError(BOTH)


_refuse_to_mix()

from lm_eval import _modules  # noqa: E402  # only where this package is the only one of its name

_modules.install()


def __getattr__(name: str) -> object:
    if name in ("evaluate", "simple_evaluate"):
        from lm_eval import _evaluation

        return getattr(_evaluation, name)
    return _modules.missing("lm_eval", name)


__all__ = ["__version__", "evaluate", "simple_evaluate"]
