"""Graphs, as SyGra writes them: one kind of task."""
