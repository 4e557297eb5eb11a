"""`lm_eval`, `lm-eval` and `python -m lm_eval`."""

import sys


def cli_evaluate() -> None:
    """Run one command and end the process with its exit code."""
    from lm_eval._cli import main

    sys.exit(main())


if __name__ == "__main__":
    cli_evaluate()
