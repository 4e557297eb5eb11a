"""Rows to prompts."""
