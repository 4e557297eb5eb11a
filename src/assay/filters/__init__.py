"""One document's responses to cleaner responses."""

from assay.filters.pipeline import Pipeline as Pipeline
from assay.filters.pipeline import build_pipeline as build_pipeline
from assay.filters.steps import FILTERS as FILTERS
