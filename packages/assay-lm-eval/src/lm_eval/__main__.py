"""`lm_eval`, `lm-eval` and `python -m lm_eval`."""

import sys


def cli_evaluate() -> None:
    """Run one command and end the process with its exit code."""
    from assay.cli import run_program

    sys.exit(run_program(_main, is_whole_process=True))


def _main() -> int:
    from lm_eval._cli import main

    return main()


if __name__ == "__main__":
    cli_evaluate()
