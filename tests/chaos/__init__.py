"""Commands that are killed, stopped, starved of disk and lied to, and repeated: they must end as if nothing had happened.

`make test` replays a few histories; `make chaos HISTORIES=200 SEED=1 JOBS=2` draws more, and writes what it did as a table.
"""
