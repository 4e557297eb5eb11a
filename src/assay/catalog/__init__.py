"""Folders of YAML to an index, and names to what they select. Nothing is imported or executed on the way.

This file imports nothing: a listing needs only `index`, and loading the rest would cost it more than its work.
"""
