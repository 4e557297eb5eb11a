"""The names that helper code written for lm-eval imports, mapped to ours; seen by helper modules only."""
