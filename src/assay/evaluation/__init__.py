"""The whole flow: from names of tasks to results. The only package that imports every other."""
