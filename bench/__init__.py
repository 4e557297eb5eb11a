"""`make bench`: assay and the other side, measured in one run, as a ratio.

Figures are CPU seconds (user + system, children included): wall time on a shared machine says little. assay is
installed as a wheel in a separate environment, as users have it; lm-eval 0.4.13 in another.
"""
