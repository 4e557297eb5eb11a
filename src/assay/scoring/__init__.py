"""Answers to scores: one loop, metrics declared by kind."""
