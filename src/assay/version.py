"""The version of assay, which every layer may import."""

__version__ = "0.3.0.dev0"
