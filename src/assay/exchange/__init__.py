"""Importers, exporters and archives: lm-eval, Inspect, Parquet, MLflow, Weights & Biases."""
