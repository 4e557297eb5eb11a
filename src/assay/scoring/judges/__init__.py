"""Judges and reward models: scorers that ask other models."""
