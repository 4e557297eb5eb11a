"""Scores to a number, and how sure one can be of it."""
