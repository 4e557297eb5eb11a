"""The rules that a task file is read and scored by, where lm-eval or SyGra do something else.

A `Dialect` is a record with one field for each such rule. All are False in assay's own dialect. Which hold is decided once,
when a task is loaded, from where its file is and from `--compat`; code then asks by the name of the rule, and never which
program it imitates:

    if dialect.ignores_fewshot_indices:
        ...

A rule that exists in the code and not here cannot be listed in the documentation: docs/lm-eval.md and docs/sygra.md are
generated from the sentences below (tools/make_differences_pages.py), and tests/test_dialect.py has a case for each rule that
fails when the rule is flipped. A package must not combine rules into a boolean of its own and pass that on: pass the dialect.
Statistics and groups know no dialect; the loader writes what they need into their configuration.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import NamedTuple

LM_EVAL_FILES = "files of lm-eval"
"""lm-eval's own task files: read with its leniency, numbers corrected."""
COMPAT_LM_EVAL = "--compat lm-eval"
"""lm-eval 0.4.13, its defects included; every file is read as its own are."""
COMPAT_SYGRA = "--compat sygra"
"""SyGra, its defects included."""


class Difference(NamedTuple):
    """A row in a table of differences: what the other program does, and what assay does."""

    subject: str
    theirs: str
    ours: str


def rule(difference: Difference, *, holds_in: tuple[str, ...]) -> bool:
    """Declare a rule of a dialect: it is off in assay's own, and on in those named."""
    return field(default=False, metadata={"difference": difference, "holds_in": holds_in})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Which rules hold for a task. Each is a statement about it: `dialect.scores_nan` reads "this dialect scores NaN"."""

    ignores_fewshot_indices: bool = rule(
        Difference(
            "`fewshot_config.fewshot_indices`",
            "ignored: examples come from the whole split",
            "only these rows are used",
        ),
        holds_in=(COMPAT_LM_EVAL,),
    )
    draws_examples_from_evaluated_split: bool = rule(
        Difference(
            "few-shot examples from the evaluated split",
            "with the validation split, a document may be its own example",
            "never",
        ),
        holds_in=(COMPAT_LM_EVAL,),
    )
    zero_shots_block_num_fewshot: bool = rule(
        Difference("`num_fewshot: 0`", "blocks `--num_fewshot`", "an ordinary default"), holds_in=(COMPAT_LM_EVAL,)
    )
    takes_empty_target_list_for_one_target: bool = rule(
        Difference(
            "an empty list of targets", "one target, the empty list", "several targets, of which there are none"
        ),
        holds_in=(COMPAT_LM_EVAL,),
    )
    puts_system_instruction_before_question: bool = rule(
        Difference(
            "`--system_instruction` without a chat template",
            "directly before the question: `Be brief.Q: …`",
            "a blank line between; in lm-eval's own folder as lm-eval",
        ),
        holds_in=(LM_EVAL_FILES, COMPAT_LM_EVAL),
    )
    notes_mistakes_in_files: bool = rule(
        Difference(
            "unknown keys, keys of another type, a key written twice",
            "accepted silently; the last of two wins",
            "rejected; in lm-eval's own folder noted by `validate`",
        ),
        holds_in=(LM_EVAL_FILES, COMPAT_LM_EVAL),
    )
    drops_last_window: bool = rule(
        Difference("`CombineRecords`", "leaves out the last full window", "returns it"), holds_in=(COMPAT_SYGRA,)
    )

    def rules(self) -> Iterator[str]:
        """Yield the names of the rules that hold."""
        return (entry.name for entry in fields(self) if getattr(self, entry.name))


@cache
def dialect_of(compat: str | None, *, is_lm_evals_file: bool = False) -> Dialect:
    """Return the dialect of a task: by the `--compat` of its run, and whether its file, or a part of it, is lm-eval's.

    >>> list(dialect_of("sygra").rules())
    ['drops_last_window']
    >>> dialect_of(None) == OURS
    True
    """
    names = {f"--compat {compat}"} if compat is not None else set()
    if is_lm_evals_file:
        names.add(LM_EVAL_FILES)
    return Dialect(**{entry.name: bool(names & {*entry.metadata["holds_in"]}) for entry in fields(Dialect)})


def differences(name: str) -> list[Difference]:
    """Return the rows of the table of differences that a dialect has, in the order of the rules."""
    return [entry.metadata["difference"] for entry in fields(Dialect) if name in entry.metadata["holds_in"]]


OURS = Dialect()
"""assay's own rules."""
