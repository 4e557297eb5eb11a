"""What a run may be asked to do: lm-eval's flags under their names, from a file, the command line or Python."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from assay.config.option import NOTHING, option


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run: which tasks, which model, how, and where the results go."""

    tasks: tuple[str | Mapping[str, object], ...] = option(
        "Names, globs, tags, groups, paths, files, folders.", (), many=True
    )
    model: str = option("The model's backend.", "hf")
    model_args: Mapping[str, object] = option("Arguments of the backend.", NOTHING)
    num_fewshot: int | None = option("Examples before each question.", None)
    repeats: int | None = option("How many times each generation is asked.", None)
    batch_size: int | str = option("Requests at once, or `auto`.", 1)
    max_batch_size: int | None = option("The most that `auto` may choose.", None)
    device: str | None = option("Where a local model runs.", None)
    gen_kwargs: Mapping[str, object] = option("Parameters of generation, over those of the tasks.", NOTHING)
    limit: float | None = option("The first so many samples of a task, or below 1 a share of them.", None)
    samples: Mapping[str, object] | None = option("Indices of samples, by task.", None)
    output_path: str | None = option("The folder of the run.", None)
    log_samples: bool = option("Write the samples in lm-eval's layout too.", False)
    include_path: tuple[str, ...] = option("Folders with further tasks.", (), many=True)
    include_defaults: bool = option("Know the bundled tasks, lm_eval's and those of plug-ins.", True)
    compat: Literal["lm-eval"] | None = option("Reproduce another system where it errs.", None)
    data_dir: str | None = option("A folder where data sets are looked for first.", None)
    use_cache: str | None = option("A folder of responses that are kept across runs.", None)
    system_instruction: str | None = option("The system message.", None)
    apply_chat_template: bool | str = option("Use the model's chat template, or one of its templates by name.", False)
    fewshot_as_multiturn: bool | None = option("Examples as turns of a conversation.", None)
    predict_only: bool = option("Ask and write down, but do not score.", False)
    write_out: bool = option("Show the first prompts.", False)
    show_config: bool = option("Show the configuration of every task.", False)
    seed: tuple[int | None, ...] | int | None = option(
        "Seeds for python, numpy, torch and few-shot.", (0, 1234, 1234, 1234)
    )
    bootstrap_iters: int = option("Draws of a bootstrap.", 100_000)
    trust_remote_code: bool = option("Run code that comes with a model.", False)
    confirm_run_unsafe_code: bool = option("Run code that a model wrote.", False)
    metadata: Mapping[str, object] = option("Facts handed to every task.", NOTHING)
