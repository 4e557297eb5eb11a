"""Metrics: one answer and its references to a number."""
