"""Runs in the files of others, out and in: lm-eval's, Inspect's, Parquet, trackers; and archives to hand on."""
