"""Samples on disk: records, schema, encoding and decoding, writer and reader of the Parquet files."""
