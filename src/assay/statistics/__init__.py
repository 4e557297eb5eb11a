"""Statistics: scores in, estimates with standard errors and intervals out; differences of two runs. No files, no I/O."""
