"""A web page over a folder of runs: read-only, on this machine, nothing from elsewhere."""
