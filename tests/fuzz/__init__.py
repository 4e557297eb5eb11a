"""Inputs that nobody would write, through the doors of assay: nothing but an error in words may come out.

`make test` tries a few of each target and every case that was once found; `make fuzz SECONDS=600` tries more.
"""
