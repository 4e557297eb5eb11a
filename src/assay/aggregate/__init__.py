"""Aggregator metrics of graphs: unit results to what a report says."""
