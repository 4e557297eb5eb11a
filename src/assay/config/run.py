"""What a run may be asked to do: lm-eval's flags under their names, from a file, the command line or Python."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from assay.config.option import NOTHING, Remark, option


def _positive(value: object) -> Iterator[Remark]:
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        yield (), f"must be above 0, not {value}", "leave it out, or give a number from 1 on"


def _count(value: object) -> Iterator[Remark]:
    if isinstance(value, int) and value < 0:
        yield (), f"must be at least 0, not {value}", ""


def _part(value: object) -> Iterator[Remark]:
    number, slash, of = str(value).partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        yield (), f"{value!r} is no part of a whole", "write 2/4 for the second of four; the first is 1/4"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run: which tasks, which model, how, and where the results go."""

    tasks: tuple[object, ...] = option("Names, globs, tags, groups, paths, files, folders.", (), many=True)
    model: str = option("The model's backend.", "embedded")
    model_args: str | Mapping[str, object] | None = option("Arguments of the backend.", None)
    models_file: str | None = option("A models.yaml of SyGra's, for the models that graphs name.", None)
    model_role: Mapping[str, object] | None = option(
        "Further models by their role: {judge: {model:, model_args:}}.", None
    )
    # how the tasks are asked
    num_fewshot: int | None = option("Examples before each question.", None, check=_count)
    repeats: int | None = option("How many times each generation is asked.", None, check=_positive)
    gen_kwargs: str | Mapping[str, object] | None = option("Parameters of generation, over those of the tasks.", None)
    system_instruction: str | None = option("The system message.", None)
    apply_chat_template: bool | str = option("Use the model's chat template, or one of its templates by name.", False)
    fewshot_as_multiturn: bool = option("Examples as turns of a conversation.", True)
    over_length: Literal["error", "drop_shots", "truncate"] = option(
        "A prompt that is too long: fails, loses examples, or loses its beginning as with lm-eval.", "error"
    )
    # how much it may take
    max_cost: float | None = option("End when so much money is spent; needs prices.", None, check=_positive)
    max_time: float | None = option("End after so many seconds.", None, check=_positive)
    max_failures: int | None = option("End when so many requests have failed.", None, check=_positive)
    # which documents
    limit: float | None = option(
        "The first so many documents of a task; below 1, a share of them.", None, check=_positive
    )
    start_index: int = option("The first document that is evaluated, counted from 0.", 0, check=_count)
    sample: int | None = option("A random subset of so many documents, the same every time.", None, check=_positive)
    samples: Mapping[str, object] | None = option("Numbers of documents, by task.", None)
    shard: str | None = option(
        "One of n equal parts of the documents, as `2/4`: `assay merge` puts them together.", None, check=_part
    )
    # where things are
    include_path: tuple[str, ...] | None = option("Folders with further tasks.", None, many=True)
    plugins: tuple[str, ...] = option(
        "Modules or files of Python that are imported first: what they register has a name in task files.",
        (),
        many=True,
    )
    include_defaults: bool = option("Know the bundled tasks, lm_eval's and those of plug-ins.", True)
    data_dir: str | None = option("A folder where data sets are looked for first.", None)
    output_path: str | None = option("The folder of the run.", None)
    runs_dir: str | None = option(
        "Where a run goes without `output_path`: into a folder of its own below this one.", None
    )
    run_name: str | None = option("Stands before the names of the files that graphs write.", None)
    force: bool = option("Move another run in that folder aside.", False)
    log_samples: bool = option("Write the samples in lm-eval's layout, too.", False)
    use_cache: str | None = option("A folder of responses that are kept across runs.", None)
    # the model
    batch_size: int | str | None = option("Requests at once, or `auto`.", None)
    max_batch_size: int | None = option("The most that `auto` may choose.", None)
    device: str | None = option("Where a local model runs.", None)
    trust_remote_code: bool = option("Run code that comes with a model.", False)
    # scoring
    compat: Literal["lm-eval", "sygra"] | None = option("Reproduce another system where it errs.", None)
    bootstrap_iters: int | None = option("Draws of a bootstrap; 0 for no standard errors.", 100_000, check=_count)
    predict_only: bool = option("Ask and write down, but do not score.", False)
    max_failed: float = option("The share of failed documents above which a row counts as incomplete.", 0.01)
    confirm_run_unsafe_code: bool = option("Run code that a model wrote.", False)
    # seeds
    seed: tuple[int | None, ...] | int | None = option(
        "Seeds for python, numpy, torch and few-shot, in this order.", None
    )
    random_seed: int | None = option("Seed of Python's random numbers, which helper code may draw from.", 0)
    numpy_random_seed: int | None = option("Seed of numpy's.", 1234)
    torch_random_seed: int | None = option("Seed of torch's.", 1234)
    fewshot_random_seed: int | None = option("Seed of the choice of examples.", 1234)
    # what is shown
    write_out: bool = option("Show the first prompts.", False)
    show_config: bool = option("Show the configuration of every task.", False)
    dry_run: bool = option("Show what would be asked, and ask nothing.", False)
    metadata: str | Mapping[str, object] | None = option("Facts handed to every task.", NOTHING)
    # accepted for lm-eval's sake: what they are for is not needed here
    cache_requests: bool | str = option("No effect: requests are built in less time than a cache takes.", False)
    rewrite_requests_cache: bool = option("No effect.", False)
    delete_requests_cache: bool = option("No effect.", False)
    check_integrity: bool = option("No effect: `assay validate` checks.", False)
    verbosity: str | None = option("No effect: configure logging.", None)
    # not an option: whether somebody named the model, which then answers for all models of a graph
    model_named: bool = False
    records_at_once: int | None = None
