"""One document's responses to cleaner responses."""

from assay.scoring.filters.pipeline import Pipeline as Pipeline
from assay.scoring.filters.pipeline import build_pipeline as build_pipeline
from assay.scoring.filters.steps import FILTERS as FILTERS
