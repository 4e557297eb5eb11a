"""The rules that a task file is read and scored by, where lm-eval or SyGra do something else.

A `Dialect` is a record with one field for each such rule. All are False in assay's own dialect. Which hold is decided once,
when a task is loaded, from where its file is and from `--compat`; code then asks by the name of the rule, and never which
program it imitates:

    if dialect.ignores_fewshot_indices:
        ...

A rule that exists in the code and not here cannot be listed in the documentation: the tables of docs/lm-eval.md and
docs/sygra.md are generated from the sentences below (tools/make_differences_pages.py), and tests/test_dialect.py has a case
for each rule that fails when the rule is flipped. A package must not combine rules into a boolean of its own and pass that
on: pass the dialect. Statistics and groups know no dialect; the loader writes what they need into their configuration.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import NamedTuple

LM_EVAL_FILES = "files of lm-eval"
"""lm-eval's own task files: mistakes that it accepts are notes, and numbers are corrected."""
COMPAT_LM_EVAL = "--compat lm-eval"
"""lm-eval 0.4.13, its defects included; every file is read as its own are."""
COMPAT_SYGRA = "--compat sygra"
"""SyGra, its defects included."""
IN_FILES = (LM_EVAL_FILES, COMPAT_LM_EVAL)
IN_LM_EVAL = (COMPAT_LM_EVAL,)
IN_SYGRA = (COMPAT_SYGRA,)
IN_BOTH = (COMPAT_LM_EVAL, COMPAT_SYGRA)

CATALOG, RUN, DATA = "catalog", "run", "data"
UNIT_METRICS, AGGREGATORS, REPORTS = "unit metrics", "aggregator metrics", "reports"
"""The tables of differences; RUN and DATA are one in docs/lm-eval.md."""


class Deviation(NamedTuple):
    """A row in a table of differences: what the other program does, and what assay does."""

    subject: str
    theirs: str
    ours: str


def rule(table: str, *rows: Deviation, holds_in: tuple[str, ...]) -> bool:
    """Declare a rule of a dialect: it is off in assay's own, and on in those named. Its rows appear in a table of differences."""
    return field(default=False, metadata={"table": table, "rows": rows, "holds_in": holds_in})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # there is one object of each, which may be a key
class Dialect:
    """Which rules hold for a task. Each is a statement about it: `dialect.scores_nan` reads "this dialect scores NaN"."""

    # --- files -------------------------------------------------------------------------------------------------------
    keeps_last_of_equal_keys: bool = rule(
        CATALOG,
        Deviation("duplicate keys", "the last wins silently", "rejected"),
        holds_in=IN_FILES,
    )
    takes_misspelled_keys_for_parameters: bool = rule(
        CATALOG,
        Deviation(
            "misspelled keys of metrics and filters (`agregation: mean`)",
            "parameters of the function",
            "rejected, with the nearest key",
        ),
        holds_in=IN_FILES,
    )
    accepts_invalid_values: bool = rule(
        CATALOG,
        Deviation(
            "values of another type, null for a default, values that a key does not have", "accepted", "rejected"
        ),
        holds_in=IN_FILES,
    )
    takes_name_from_include: bool = rule(
        CATALOG,
        Deviation(
            "a file whose `task` is only in its include", "the included task, defined twice", "a template, not listed"
        ),
        holds_in=IN_FILES,
    )
    accepts_spaces_in_names: bool = rule(
        CATALOG, Deviation("spaces in the name of a task or group", "accepted", "rejected"), holds_in=IN_FILES
    )
    accepts_misplaced_keys: bool = rule(
        CATALOG,
        Deviation("`group` in a task file, `tag` in a group", "accepted, without effect", "rejected"),
        holds_in=IN_FILES,
    )
    keeps_first_of_equal_files: bool = rule(
        CATALOG,
        Deviation("two files of a folder with one name", "the first that is found", "rejected, with both paths"),
        holds_in=IN_FILES,
    )
    notes_what_cannot_run: bool = rule(
        CATALOG,
        Deviation(
            "a task without data, with missing files, or with documents that cannot be asked",
            "found when it is run",
            "`validate` reports an error",
        ),
        holds_in=IN_FILES,
    )
    has_lm_evals_generate_format: bool = rule(
        RUN,
        Deviation(
            "`TASK@generate` (lm-eval 0.5)",
            "the first line, at most 32 tokens, compared as a whole",
            "256 tokens, of which the stated choice counts",
        ),
        holds_in=IN_LM_EVAL,
    )

    # --- data --------------------------------------------------------------------------------------------------------
    gives_columns_one_type: bool = rule(
        DATA,
        Deviation("numbers in json data", "a column with 2 and 0.5 gives 2.0 and 0.5", "as written"),
        holds_in=IN_LM_EVAL,
    )
    rounds_large_integers: bool = rule(
        DATA,
        Deviation("integers beyond 64 bits in json data", "floats", "texts of all digits"),
        holds_in=IN_BOTH,
    )
    reads_csv_as_pandas: bool = rule(
        DATA,
        Deviation(
            "csv data",
            "as pandas: `007` is 7, `1.50` is 1.5, integers in a column with a gap become 1.0, `true` is True, "
            "the text `NA` is null",
            "numeric only if all numbers print as written ([types](running.md))",
        ),
        holds_in=IN_BOTH,
    )
    keeps_python_objects: bool = rule(
        DATA,
        Deviation("dates, decimals, NaN in Parquet data, and lm-eval's hub data", "Python objects", "text; null"),
        holds_in=IN_BOTH,
    )
    drops_last_window: bool = rule(
        DATA, Deviation("`CombineRecords`", "leaves out the last full window", "returns it"), holds_in=IN_SYGRA
    )

    # --- prompts -----------------------------------------------------------------------------------------------------
    draws_examples_from_evaluated_split: bool = rule(
        RUN,
        Deviation(
            "few-shot examples from the evaluated split",
            "with the validation split, a document may be its own example",
            "never",
        ),
        holds_in=IN_LM_EVAL,
    )
    draws_examples_for_selection_alone: bool = rule(
        RUN,
        Deviation(
            "few-shot examples with `--samples`", "drawn for the selected documents only", "those of the full run"
        ),
        holds_in=IN_LM_EVAL,
    )
    ignores_fewshot_indices: bool = rule(
        RUN,
        Deviation(
            "`fewshot_config.fewshot_indices`",
            "ignored: examples come from the whole split",
            "only these rows are used",
        ),
        holds_in=IN_LM_EVAL,
    )
    zero_shots_block_num_fewshot: bool = rule(
        RUN, Deviation("`num_fewshot: 0`", "blocks `--num_fewshot`", "an ordinary default"), holds_in=IN_LM_EVAL
    )
    counts_shots_of_rolling_tasks: bool = rule(
        RUN,
        Deviation("`n-shot` of rolling tasks", "`--num_fewshot`, which has no effect on them", "0"),
        holds_in=IN_LM_EVAL,
    )
    prepares_unused_examples: bool = rule(
        RUN,
        Deviation("`process_docs` of the few-shot split", "called without examples, too", "called for examples"),
        holds_in=IN_LM_EVAL,
    )
    keeps_one_random_stream: bool = rule(
        RUN,
        Deviation(
            "random numbers in helper code",
            "one stream: numbers depend on the tasks before",
            "independent of other tasks",
        ),
        holds_in=IN_LM_EVAL,
    )
    puts_system_instruction_before_question: bool = rule(
        RUN,
        Deviation(
            "`--system_instruction` without a chat template",
            "directly before the question: `Be brief.Q: …`",
            "a blank line between",
        ),
        holds_in=IN_FILES,
    )
    sends_mistakes_as_written: bool = rule(
        RUN,
        Deviation(
            "unknown column names, a quoted `!function`, a target that is none of the columns",
            "sent as written",
            "rejected before the run, with the nearest name",
        ),
        holds_in=IN_FILES,
    )
    sends_templates_in_lists: bool = rule(
        RUN,
        Deviation("templates inside a list of choices", "sent as written", "filled"),
        holds_in=IN_LM_EVAL,
    )
    writes_none_for_null: bool = rule(
        RUN,
        Deviation("null where a text is expected", '"None"', "failed document, counted and reported"),
        holds_in=IN_LM_EVAL,
    )
    takes_digits_for_text: bool = rule(
        RUN,
        Deviation(
            "a target of digits that is none of the choices (`'2'`)", "a text, so scored 0", "the index of a choice"
        ),
        holds_in=IN_LM_EVAL,
    )
    breaks_unaskable_tasks: bool = rule(
        RUN,
        Deviation(
            "a column that no document has", "the task fails in the run", "rejected before the run, with the place"
        ),
        holds_in=IN_FILES,
    )
    accepts_equal_prompts: bool = rule(
        RUN,
        Deviation("all documents are asked the same", "accepted", "rejected before the run"),
        holds_in=IN_FILES,
    )
    numbers_documents_by_request: bool = rule(
        RUN,
        Deviation(
            "document numbers with `--samples`",
            "the n-th document gets the n-th requested number",
            "its own number",
        ),
        holds_in=IN_LM_EVAL,
    )

    # --- scores ------------------------------------------------------------------------------------------------------
    scores_first_repeat: bool = rule(
        RUN, Deviation("repeats without filters", "the first answer", "all answers"), holds_in=IN_FILES
    )
    aggregates_repeats_together: bool = rule(
        RUN,
        Deviation(
            "repeats of a metric that hands pairs to its aggregation (`f1`, `mcc`)",
            "one pair, with a list of all answers",
            "aggregated for each repeat, then averaged",
        ),
        holds_in=IN_FILES,
    )
    calls_metrics_as_lm_eval: bool = rule(
        RUN,
        Deviation(
            "parameters of a custom metric",
            "a pair for any single one; else `references` and `predictions`, a list of one of each",
            "by their names: all references or one, an answer or a list of one; others are rejected",
        ),
        Deviation("a custom metric of repeats", "all in one call", "one call each"),
        holds_in=IN_FILES,
    )
    ignores_kwargs_of_pairs: bool = rule(
        RUN,
        Deviation("`kwargs` that a metric of a pair does not have", "dropped", "rejected before the run"),
        holds_in=IN_FILES,
    )
    ignores_kwargs_of_likelihoods: bool = rule(
        RUN,
        Deviation("`kwargs` that a metric of log-likelihoods does not have", "dropped", "rejected before the run"),
        holds_in=IN_FILES,
    )
    accepts_kwargs_of_other_types: bool = rule(
        RUN,
        Deviation("`kwargs` of a metric of another type", "accepted", "rejected before the run"),
        holds_in=IN_FILES,
    )
    computes_f1_of_texts: bool = rule(
        RUN,
        Deviation(
            "metric `f1` over answers that are texts",
            "accepted; it is of the classes 0 and 1",
            "rejected before the run",
        ),
        holds_in=IN_FILES,
    )
    applies_text_filters_to_likelihoods: bool = rule(
        RUN,
        Deviation("a filter of texts over log-likelihoods", "accepted", "rejected before the run"),
        holds_in=IN_FILES,
    )
    accepts_what_is_not_computed: bool = rule(
        RUN,
        Deviation(
            "a scorer beside `process_results`, a filter without a metric", "accepted, without effect", "rejected"
        ),
        holds_in=IN_FILES,
    )
    takes_whole_answer_for_first_token: bool = rule(
        RUN,
        Deviation(
            "scorer `first_token` without a format (lm-eval 0.5)",
            "the whole answer is compared",
            "the choice that the answer states",
        ),
        holds_in=IN_FILES,
    )
    keeps_last_of_equal_rows: bool = rule(
        RUN,
        Deviation(
            "two filters, metrics or scores with the same name",
            "the later replaces the earlier",
            "rejected, with both locations; if user code returns them, failed documents",
        ),
        holds_in=IN_FILES,
    )
    accepts_two_directions: bool = rule(
        RUN,
        Deviation("one metric with two values of `higher_is_better`", "the later counts", "rejected before the run"),
        holds_in=IN_FILES,
    )
    accepts_any_row_name: bool = rule(
        RUN,
        Deviation("names of scores that results read otherwise (`a,b`, `acc_stderr`)", "accepted", "failed documents"),
        holds_in=IN_FILES,
    )
    leaves_out_missing_scores: bool = rule(
        RUN,
        Deviation(
            "a score that `process_results` or a metric does not return for a document",
            "left out of the mean",
            "failed document, counted and reported",
        ),
        holds_in=IN_FILES,
    )
    scores_nan: bool = rule(
        RUN,
        Deviation(
            "a score that is NaN",
            "the mean is NaN",
            "the document fails in that row, with the reason; `nanmean` accepts NaN",
        ),
        holds_in=IN_LM_EVAL,
    )
    scores_zero_without_right_choice: bool = rule(
        RUN,
        Deviation("target not among the choices", "scored 0", "failed document, counted and reported"),
        holds_in=IN_LM_EVAL,
    )
    takes_empty_target_list_for_one_target: bool = rule(
        RUN,
        Deviation("an empty list of targets", "one target, the empty list", "several targets, of which there are none"),
        holds_in=IN_LM_EVAL,
    )
    compares_numbers_with_texts: bool = rule(
        RUN,
        Deviation(
            "numbers in a list of references", "numbers, which equal no text", "as texts, where the answer is one"
        ),
        holds_in=IN_LM_EVAL,
    )
    counts_any_right_reference: bool = rule(
        RUN,
        Deviation(
            "multiple references with a custom metric",
            "1 if any value is not 0, otherwise 0",
            "the best: the largest, or smallest with `higher_is_better: false`; named values separately",
        ),
        holds_in=IN_LM_EVAL,
    )
    counts_only_generated_predictions: bool = rule(
        RUN,
        Deviation("`--predict_only`", "counts only documents of generation tasks", "counts all documents"),
        holds_in=IN_LM_EVAL,
    )
    scores_classes_in_predict_only: bool = rule(
        RUN,
        Deviation("`--predict_only` with class tasks", "they are still scored", "scores none"),
        holds_in=IN_LM_EVAL,
    )

    # --- numbers of tasks and groups ---------------------------------------------------------------------------------
    takes_upper_median: bool = rule(
        RUN,
        Deviation(
            "`aggregation: median` of an even number of scores",
            "the greater of the two middle ones",
            "their mean; `median_high` is the greater one",
        ),
        holds_in=IN_FILES,
    )
    has_lm_evals_standard_errors: bool = rule(
        RUN,
        Deviation(
            "standard errors",
            '"N/A" for many metrics (Brier score, rolling perplexities, custom aggregations); bootstrap without the '
            "factor √(n/(n−1))",
            "from influence values, else a bootstrap with that factor (100 draws for bleu, chrf, ter, at most 1,000 for "
            "others), else the reason",
        ),
        holds_in=IN_LM_EVAL,
    )
    averages_groups_as_lm_eval: bool = rule(
        RUN,
        Deviation(
            "standard errors of groups",
            "size-weighted means: pooled, which adds the spread between sizes",
            "exact: by strata, with a document shared by members as one draw",
        ),
        Deviation(
            "group weights",
            "all scored documents of a task, even if some lack the metric",
            "documents that have the metric",
        ),
        holds_in=IN_LM_EVAL,
    )
    drops_members_without_metric: bool = rule(
        RUN,
        Deviation(
            "group metric missing from members",
            "those members are dropped silently",
            "rejected before the run without `missing: skip`; in lm-eval's own folder they are dropped and counted",
        ),
        holds_in=IN_FILES,
    )

    # --- unit metrics ------------------------------------------------------------------------------------------------
    wraps_mappings_as_text: bool = rule(
        UNIT_METRICS,
        Deviation(
            "golden or predicted mapping",
            'wrapped in `{"text": …}`, so boxes and scrolls are unreadable',
            "compared as it is",
        ),
        holds_in=IN_SYGRA,
    )
    reads_missing_values_as_text: bool = rule(
        UNIT_METRICS,
        Deviation(
            "golden value missing or unreadable",
            "an empty text, or a wrong answer",
            "the record fails with an error; wrong for a metric object that helper code makes",
        ),
        Deviation(
            "predicted value missing",
            'an empty text, equal to another missing one; `None` is the text "None"',
            "wrong, equal to nothing",
        ),
        holds_in=IN_SYGRA,
    )
    takes_errors_for_wrong_answers: bool = rule(
        UNIT_METRICS, Deviation("a metric raises", "wrong answer", "the record fails"), holds_in=IN_SYGRA
    )
    ignores_frequent_letters: bool = rule(
        UNIT_METRICS,
        Deviation(
            "texts of 200 or more letters (`typed_value_match`)", "frequent letters are ignored", "all letters count"
        ),
        holds_in=IN_SYGRA,
    )
    compares_whole_mappings: bool = rule(
        UNIT_METRICS,
        Deviation(
            "`exact_match` without `key`",
            "compares the texts of the whole mappings",
            "of a lone `text` its value; a golden list means any of them",
        ),
        holds_in=IN_SYGRA,
    )
    loses_unfinished_records: bool = rule(
        UNIT_METRICS,
        Deviation(
            "an agent that does not finish in `max_turns`",
            "the record fails",
            "not solved, measured or failed, as `at_max_turns` says",
        ),
        holds_in=IN_SYGRA,
    )

    # --- aggregator metrics ------------------------------------------------------------------------------------------
    averages_classes_as_sygra: bool = rule(
        AGGREGATORS,
        Deviation(
            "`average_precision`",
            "mean over predicted classes",
            "mean over all classes that occur, as scikit-learn's `macro`",
        ),
        Deviation("`average_recall`", "mean over golden classes", "mean over all classes that occur"),
        Deviation(
            "`average_f1_score`",
            "harmonic mean of both averages (constant answer, 5 classes: 0.20)",
            "mean of the classes' F1 (0.067)",
        ),
        Deviation(
            "classes",
            "case-sensitive, unlike correctness (`Music` and `music` are two)",
            "as the unit metric distinguishes texts; `labels:` selects classes",
        ),
        holds_in=IN_SYGRA,
    )
    pools_attempts: bool = rule(
        AGGREGATORS,
        Deviation(
            "`pass@k`",
            "all records are attempts at one problem; 0 if k exceeds them",
            "unbiased, per problem (`group_by:`); null with a warning if a problem has fewer attempts",
        ),
        Deviation("`pass^k`", "the rate to the power k", "per problem, all ways to draw k attempts"),
        holds_in=IN_SYGRA,
    )
    takes_unnamed_steps_for_one: bool = rule(
        AGGREGATORS,
        Deviation(
            "`step_efficiency`",
            "records without ids are one step; attempts without a number are first ones",
            "error; attempts are numbered in order; `group_by:` names other columns",
        ),
        holds_in=IN_SYGRA,
    )
    scores_nothing_as_zero: bool = rule(
        AGGREGATORS, Deviation("`accuracy` of no unit results", "0.0", "no number"), holds_in=IN_SYGRA
    )
    aggregates_first_column_alone: bool = rule(
        AGGREGATORS,
        Deviation("`unit_metrics_results` with more than one column", "the first", "each, as `<column>-<name>`"),
        holds_in=IN_SYGRA,
    )

    # --- records and reports -----------------------------------------------------------------------------------------
    accepts_lambdas_without_declared_keys: bool = rule(
        REPORTS,
        Deviation("a lambda that does not write one of its `output_keys`", "null", "the record fails"),
        holds_in=IN_SYGRA,
    )
    writes_null_for_unknown_keys: bool = rule(
        REPORTS,
        Deviation("an `output_map` from a key that neither the data nor a node has", "null", "rejected before the run"),
        holds_in=IN_SYGRA,
    )
    hides_trajectories: bool = rule(
        REPORTS,
        Deviation("an agent without an `output_map`", "only its answer", "its trajectory is in the output, too"),
        holds_in=IN_SYGRA,
    )
    reports_without_records: bool = rule(
        REPORTS,
        Deviation("data without records", "a report with the status `no_data`", "an error: there is nothing to run"),
        holds_in=IN_SYGRA,
    )
    counts_records_alone: bool = rule(
        REPORTS,
        Deviation(
            "counts",
            "`total_records`",
            "also `requested`, `ok`, `failed`, `skipped`, and `without_result` if numbers miss records",
        ),
        holds_in=IN_SYGRA,
    )
    reports_success_despite_failures: bool = rule(
        REPORTS,
        Deviation(
            "failed records",
            "a row of nulls, or a wrong answer if a post-processor converts the error; status `success`",
            "left out, reported, status `incomplete`. `--compat sygra`: left out, not reported, status `success`, exit "
            "code still 1",
        ),
        holds_in=IN_SYGRA,
    )
    loses_report_to_one_error: bool = rule(
        REPORTS,
        Deviation(
            "one aggregator fails",
            "status `fatal_error`, all results lost",
            "its entry is `error`, status `incomplete`; `fatal_error` only if all fail",
        ),
        holds_in=IN_SYGRA,
    )
    keeps_last_of_equal_results: bool = rule(
        REPORTS,
        Deviation(
            "two entries with the same name",
            "over columns `*_result`, the second overwrites the first; newer: `<column>-<name>`",
            "over two columns, `<column>-<name>` each; over one, rejected before the run: rename with `as:`",
        ),
        holds_in=IN_SYGRA,
    )

    def rules(self) -> Iterator[str]:
        """Yield the names of the rules that hold."""
        return (entry.name for entry in fields(self) if getattr(self, entry.name))


NOT_REPRODUCED: dict[str, dict[str, tuple[Deviation, ...]]] = {
    COMPAT_LM_EVAL: {
        CATALOG: (
            Deviation(
                "unknown names in a group",
                "become inline tasks that fail when data is loaded",
                "rejected, with the nearest names",
            ),
            Deviation("groups that contain each other", "RecursionError", "rejected, with the cycle"),
            Deviation("`task: name` (not a list) in a group", "a group without members", "a group of one"),
            Deviation("settings of nested groups", "the outer group's defaults win", "the nearest to the task wins"),
            Deviation("two groups share a task", '"Duplicate task"', "one task, in both"),
            Deviation("one task with different overrides", "the second replaces the first", "two tasks, `group::task`"),
            Deviation("files that fail to load", "skipped", "listed as broken, with the reason"),
            Deviation("one file included in two ways", '"Include cycle"', "allowed; only cycles are rejected"),
            Deviation("`--include_path a:b`, `ls --pattern`", "documented, missing", "work"),
        ),
        RUN: (
            Deviation("`group_select` beyond the matches", "IndexError", "`[invalid]`"),
            Deviation("`doc_to_image`, `doc_to_audio`", "sent to models that accept them", "rejected: text only"),
            Deviation("`hf`: BOS token in rolling perplexities", "twice if the tokenizer adds it", "once"),
            Deviation(
                "`hf`: `--apply_chat_template NAME`",
                "recorded, but the default template is used",
                "that template; rejected if missing",
            ),
            Deviation(
                "`hf`: `top_k`, `repetition_penalty` … in `generation_config.json`",
                "apply unless the task overrides them",
                "ignored: the task decides",
            ),
        ),
    },
    COMPAT_SYGRA: {
        UNIT_METRICS: (
            Deviation("result", "a verdict", "a verdict and a `score`, so similarities can be averaged"),
            Deviation(
                "field of a result",
                "`<metric>_result`; newer: `<metric>`",
                "`<metric>_result`; `<metric>` if in the node's `output_keys`; any name with `as:`",
            ),
            Deviation("`difference_percent` of `scroll_amount` with target 0", "`Infinity`, invalid JSON", "null"),
            Deviation(
                "`fuzzy_match`, `action_within_bbox.tolerance`, `typed_value_match.case_sensitive`",
                "documented, missing",
                "available",
            ),
            Deviation(
                "other metrics",
                "–",
                "every metric of assay with one number per answer, by name; correct if perfect, or at least `threshold`",
            ),
            Deviation("`golden_text` and `predicted_text` in the metadata", "as written", "as compared"),
            Deviation("unknown parameters", "ignored", "rejected, with the nearest name"),
            Deviation(
                "a metric configured twice in a node",
                "the second overwrites the first",
                "rejected, unless `as:` renames one",
            ),
        ),
        AGGREGATORS: (
            Deviation("`pass_at_k`", "documented, missing", "alias of `pass@k`"),
            Deviation(
                "other aggregators",
                "–",
                "every aggregation of assay, by name: over scores, or golden and predicted values",
            ),
        ),
        REPORTS: (
            Deviation(
                "names of results",
                "`<name>`; newer: `<column>-<name>`",
                "`<name>`; `<column>-<name>` with `field_names: true` in the processor's `params`",
            ),
            Deviation("`timestamp` (newer)", "in the summary", "in the run's manifest"),
            Deviation("unknown metrics, parameters, columns", "found after the run", "found before"),
            Deviation("output in JSONL, or larger than memory", "no report", "read once, record by record"),
        ),
    },
}
"""Differences that no dialect reproduces, by program and table; marked † there."""


OURS = Dialect()
"""assay's own rules."""
DIALECTS: dict[frozenset[str], Dialect] = {frozenset(): OURS}
"""The dialects that were decided, by the names that they are made of: this is where a test flips a rule."""
_JOINED: dict[tuple[Dialect, Dialect], Dialect] = {}
_OF_FILES: dict[Dialect, Dialect] = {}


def dialect_of(compat: str | None, *, is_lm_evals_file: bool = False) -> Dialect:
    """Return the dialect of a task: by the `--compat` of its run, and whether its file, or a part of it, is lm-eval's.

    >>> list(dialect_of("lm-eval").rules()) == list(dialect_of(None).rules())
    False
    >>> dialect_of(None) is OURS
    True
    """
    names = frozenset(
        {
            *((f"--compat {compat}",) if compat is not None else ()),
            *((LM_EVAL_FILES,) if is_lm_evals_file else ()),
        }
    )
    if names not in DIALECTS:
        DIALECTS[names] = Dialect(
            **{each.name: not names.isdisjoint(each.metadata["holds_in"]) for each in fields(Dialect)}
        )
    return DIALECTS[names]


def join(one: Dialect, other: Dialect) -> Dialect:
    """Return the rules that hold in one of two dialects: a task may be made of files of both."""
    if other is OURS or one is other:
        return one
    if one is OURS:
        return other
    if (one, other) not in _JOINED:
        _JOINED[one, other] = Dialect(**dict.fromkeys([*one.rules(), *other.rules()], True))
    return _JOINED[one, other]


def dialect_of_files(compat: str | None) -> Dialect:
    """Return the dialect of all files in a run with this `--compat`, before it is known how the run scores: with lm-eval's, every
    file is read as its own are.

    >>> dialect_of_files("lm-eval").keeps_last_of_equal_keys, dialect_of_files("lm-eval").scores_nan
    (True, False)
    """
    whole = dialect_of(compat)
    if whole not in _OF_FILES:
        shared = {each.name for each in fields(Dialect) if LM_EVAL_FILES in each.metadata["holds_in"]}
        rules = [name for name in whole.rules() if name in shared]
        _OF_FILES[whole] = Dialect(**dict.fromkeys(rules, True)) if rules else OURS
    return _OF_FILES[whole]
