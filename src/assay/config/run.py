"""The options of a run, each listed once: lm-eval's flags under their names, from a file, the command line or Python.

Everything else derives from the fields of `RunConfig`: the flags of `assay run` (cli/flags.py), the reference page
(tools/make_reference.py), the signature of `simple_evaluate` (public.py), the identity of a run and the `config`
section of its results (evaluation/record.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal

from assay.config.option import MAX_REPEATS, NOTHING, Remark, YAMLValue, at_least, option
from assay.config.serve_command import serve_remarks
from assay.redaction import seal


@dataclass(frozen=True, slots=True)
class RunOption:
    """The uses of a run option beside its YAML key. Type, choices, default and help text are those of its field.

    metavar:   the placeholder of its value in `--help`
    short:     its short flag
    group:     the heading in `--help`; "" hides the flag, None means that there is none
    syntax:    how its flag is written where the type does not show it
    flag:      the name of the flag that switches it off, where it is on by default
    identity:  whether another value makes another run; models and tasks are identified by their content instead
    results:   its key in the `config` section of results.json
    imported:  its treatment in a run that was made on another machine
    for_model: passed to the model's backend if that has such a parameter
    """

    metavar: str | None = None
    short: str = ""
    group: str | None = None
    syntax: Literal["", "pairs", "role", "samples", "arguments", "duration", "numbers", "value", "append"] = ""
    flag: str = ""
    identity: bool = True
    results: str = ""
    imported: Literal["kept", "path", "consent", "dropped", "arguments"] = "kept"
    for_model: bool = False


WORK, PROMPTS, PATHS = "what to evaluate", "prompts", "paths"
LIMITS, SCORING, GRAPHS = "limits (exit code 3 when one is reached)", "scoring and display", "graphs (SyGra's flags)"
MACHINES = "many GPUs and machines (Ray)"
GROUPS = (WORK, PROMPTS, PATHS, LIMITS, SCORING, MACHINES, GRAPHS)

_work, _prompt, _limit = (
    partial(RunOption, group=WORK),
    partial(RunOption, group=PROMPTS),
    partial(RunOption, group=LIMITS),
)
_path = partial(RunOption, group=PATHS, identity=False)
_scoring, _graph = partial(RunOption, group=SCORING), partial(RunOption, group=GRAPHS)
_machines = partial(RunOption, group=MACHINES, identity=False, imported="dropped")
_seed = RunOption
_ignored = partial(RunOption, group="", identity=False)


def _positive(value: YAMLValue) -> Iterator[Remark]:
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        yield (), f"must be above 0, got {value}", "omit it, or give a number from 1 on"


def _shard(value: YAMLValue) -> Iterator[Remark]:
    number, slash, of = str(value).partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        yield (), f"must be a part such as 2/4, got {value!r}", "2/4 is the second of four; the first is 1/4"


def _replicas(value: YAMLValue) -> Iterator[Remark]:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if value is not None and value != "auto" and not is_number:
        yield (), f"must be a positive number or auto, got {value!r}", "write --replicas 8, or --replicas auto"


def _positive_or_zero(value: YAMLValue) -> Iterator[Remark]:
    if isinstance(value, int | float) and not isinstance(value, bool) and not value >= 0:
        yield (), f"must not be below 0, got {value}", "write a number of GPUs, such as 1 or 0.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run: which tasks, which model, how, and where the results go."""

    tasks: tuple[object, ...] = option(
        "Names, globs, tags, groups, a::b paths, task@format, files, folders.",
        (),
        many=True,
        run=_work("NAME", "-t", identity=False),
    )
    model: str = option(
        "The model's backend; `assay ls models` lists them.", "embedded", run=_work("NAME", "-M", identity=False)
    )
    model_args: str | Mapping[str, object] | None = option(
        "Arguments of the backend: k=v,k=v or JSON.",
        None,
        run=_work("K=V", "-a", syntax="pairs", identity=False, imported="arguments"),
    )
    models_file: str | None = option(
        "A models.yaml of SyGra, for the models that graphs name (default: beside the graph, or here).",
        None,
        run=_graph("FILE", identity=False, imported="path"),
    )
    model_role: Mapping[str, object] | None = option(
        "Another model, by its role: judge=openai-chat,model=x,base_url=…; in a file {judge: {model:, model_args:}}.",
        None,
        run=_work("ROLE=NAME,K=V", syntax="role", identity=False, imported="dropped"),
    )
    # prompts
    num_fewshot: int | None = option(
        "Examples before each question.", None, check=at_least(0), run=_prompt("N", "-f", results="num_fewshot")
    )
    repeats: int | None = option(
        "How many times each generation is requested; with a graph, how many times each record goes through it.",
        None,
        check=at_least(1, MAX_REPEATS),
        run=_prompt("N", "-r", results="repeats"),
    )
    gen_kwargs: str | Mapping[str, object] | None = option(
        "Parameters of generation; they override those of the tasks.", None, run=_prompt("K=V", syntax="pairs")
    )
    system_instruction: str | None = option(
        "The system message.", None, run=_prompt("TEXT", results="system_instruction")
    )
    apply_chat_template: bool | str = option(
        "Use the model's chat template, or one of its templates by name.",
        False,
        run=_prompt("NAME", syntax="value", results="apply_chat_template"),
    )
    fewshot_as_multiturn: bool = option("Examples as turns of the conversation.", True, run=_prompt("BOOL"))
    over_length: Literal["error", "drop_shots", "truncate"] = option(
        "A prompt that is too long fails, loses examples, or loses its beginning as in lm-eval.", "error", run=_prompt()
    )
    # limits
    max_cost: float | None = option(
        "Stop when this much money is spent; needs prices in model_args.",
        None,
        check=_positive,
        run=_limit("MONEY", identity=False),
    )
    max_time: float | None = option(
        "Stop after this many seconds; as a flag also 30m, 8h.",
        None,
        check=_positive,
        run=_limit("TIME", syntax="duration", identity=False),
    )
    max_failures: int | None = option(
        "Stop when this many requests have failed after all retries, or documents whose code or scores failed.",
        None,
        check=_positive,
        run=_limit("N", identity=False),
    )
    resume_calls: Literal["retry", "skip", "fail"] = option(
        "What becomes of a tool call that was begun and not finished when the run was stopped: it is made again, its model reads"
        " that the outcome is not known, or its record fails.",
        "fail",
        run=_graph(identity=False),
    )
    stop_when: str | None = option(
        "Stop when this is decided, for one task or group: 'acc > -1pp vs runs/main', or 'acc > 0.7'; documents are asked in"
        " random order. Exit 0: pass, 1: fail, 4: inconclusive.",
        None,
        run=_limit("RULE", identity=False, imported="dropped"),
    )
    # which documents
    limit: float | None = option(
        "The first N documents of each task; below 1, a share of them.",
        None,
        check=_positive,
        run=_work("N", "-L", results="limit"),
    )
    start_index: int = option("The first document, counted from 0.", 0, check=at_least(0), run=_graph("N", short="-si"))
    sample: int | None = option(
        "A random subset of N documents of each task, the same every time.",
        None,
        check=_positive,
        run=_work("N", results="sample"),
    )
    samples: Mapping[str, object] | None = option(
        'Indices of documents by task, {"task": [0, 5]}; as a flag also a file with that.',
        None,
        run=_work("JSON", "-E", syntax="samples"),
    )
    shard: str | None = option(
        "One of N equal parts of the documents, 1/N to N/N; `assay merge` combines them.",
        None,
        check=_shard,
        run=_work("I/N"),
    )
    # paths
    include_path: tuple[str, ...] | None = option(
        "A folder with more tasks; repeatable, or a:b.",
        None,
        many=True,
        run=_path("DIR", syntax="append", imported="path"),
    )
    plugins: tuple[str, ...] = option(
        "Python modules or files that are imported first; the names they register can be used in task files.",
        (),
        many=True,
        run=RunOption(identity=False, imported="path"),
    )
    include_defaults: bool = option(
        "Include bundled tasks, lm_eval's and those of plug-ins.", True, run=_path(flag="no_defaults")
    )
    data_dir: str | None = option(
        "Folder that is searched first for data: DIR/<path>/<name>/<split>.jsonl.",
        None,
        run=_path("DIR", imported="path"),
    )
    output_path: str | None = option(
        "The folder of the run, or a URL such as s3://bucket/run; the same command resumes it (default: a folder in runs_dir).",
        None,
        run=_path("DIR", "-o", imported="path"),
    )
    runs_dir: str | None = option(
        "A folder or URL for many runs: each has its own folder in it, named after model and tasks, and the same command"
        " the same one (default: $ASSAY_RUNS_DIR, else runs/, where a finished run is left alone).",
        None,
        run=_path("DIR", imported="path"),
    )
    run_name: str | None = option(
        "Prefix of the names of output files.", None, run=_graph("NAME", short="-rn", identity=False)
    )
    force: bool = option("Move another run in that folder aside.", False, run=_path(imported="dropped"))
    log_samples: bool = option("Also write samples_<task>.jsonl, as lm-eval does.", False, run=_path(short="-s"))
    use_cache: str | None = option(
        "A folder of responses that is shared by runs; see `assay cache`.",
        None,
        run=_path("DIR", "-c", results="use_cache", imported="path"),
    )
    # the model
    batch_size: int | str | None = option(
        "Concurrent requests, or `auto`.",
        None,
        run=_work("N", "-b", syntax="value", identity=False, results="batch_size", for_model=True),
    )
    max_batch_size: int | None = option(
        "The largest batch size that `auto` may choose.", None, run=_work("N", identity=False, for_model=True)
    )
    device: str | None = option(
        "The device of a local model.", None, run=_work("NAME", identity=False, results="device", for_model=True)
    )
    trust_remote_code: bool = option(
        "Run code that comes with a model.", False, run=_work(imported="consent", for_model=True)
    )
    # many GPUs and machines
    replicas: int | str | None = option(
        "Copies of a local model that share the requests of the run; `auto`: as many as the cluster can hold.",
        None,
        check=_replicas,
        run=_machines("N", syntax="value"),
    )
    gpus_per_replica: float | None = option(
        "GPUs of each replica; a share such as 0.5 puts two replicas on a GPU (default: 1 where the cluster has GPUs).",
        None,
        check=_positive_or_zero,
        run=_machines("N"),
    )
    ray: str | None = option(
        "The Ray cluster: `local` starts one here, `auto` joins the one that runs here; or its ADDRESS (default: local).",
        None,
        run=_machines("ADDRESS"),
    )
    serve: str | None = option(
        "A command that starts an OpenAI-compatible server, such as 'vllm serve MODEL': as many as --replicas are started, asked"
        " and stopped.",
        None,
        check=serve_remarks,
        run=_machines("COMMAND"),
    )
    serve_timeout: float = option(
        "Seconds that a server of --serve has until it answers; as a flag also 30m, 2h.",
        1800.0,
        check=_positive,
        run=_machines("TIME", syntax="duration"),
    )
    # scoring
    compat: Literal["lm-eval", "sygra"] | None = option(
        "Reproduce lm-eval 0.4.13, or SyGra, including their errors.", None, run=_scoring()
    )
    bootstrap_iters: int | None = option(
        "Bootstrap iterations; 0 for no standard errors.",
        100_000,
        check=at_least(0, 10_000_000),
        run=_scoring("N", results="bootstrap_iters"),
    )
    predict_only: bool = option("Store the answers, but do not score them.", False, run=_scoring(short="-x"))
    max_failed: float = option(
        "The share of failed documents above which a row is incomplete.", 0.01, run=_scoring("SHARE", identity=False)
    )
    confirm_run_unsafe_code: bool = option("Run code that the model wrote.", False, run=_scoring(imported="consent"))
    # seeds
    seed: tuple[int | None, ...] | int | None = option(
        "Seeds for python, numpy, torch and few-shot, in this order.", None, run=_scoring("N[,N,N,N]", syntax="numbers")
    )
    random_seed: int | None = option(
        "Seed of Python's random numbers, which helper code may use.", 0, run=_seed(results="random_seed")
    )
    numpy_random_seed: int | None = option("Seed of numpy.", 1234, run=_seed(results="numpy_seed"))
    torch_random_seed: int | None = option("Seed of torch.", 1234, run=_seed(results="torch_seed"))
    fewshot_random_seed: int | None = option("Seed of the choice of examples.", 1234, run=_seed(results="fewshot_seed"))
    # display
    write_out: bool = option(
        "Print the first prompt of each task before the run.",
        False,
        run=_scoring(short="-w", identity=False, imported="dropped"),
    )
    show_config: bool = option(
        "Print the configuration of every task with the results.",
        False,
        run=_scoring(identity=False, imported="dropped"),
    )
    dry_run: bool = option(
        "Print prompts, targets and counts; send no request.", False, run=_scoring(identity=False, imported="dropped")
    )
    metadata: str | Mapping[str, object] | None = option(
        "Values passed to every task: k=v,k=v or JSON.",
        NOTHING,
        run=_scoring("K=V", syntax="arguments", imported="arguments"),
    )
    # accepted because lm-eval has them
    cache_requests: bool | str = option(
        "No effect: building requests takes less time than reading a cache.", False, run=_ignored()
    )
    rewrite_requests_cache: bool = option("No effect.", False, run=RunOption(identity=False))
    delete_requests_cache: bool = option("No effect.", False, run=RunOption(identity=False))
    check_integrity: bool = option("No effect: use `assay validate`.", False, run=_ignored())
    verbosity: str | None = option("No effect: configure logging.", None, run=_ignored(short="-v", imported="dropped"))
    # not options: whether a model was named, which then answers for all models of a graph; SyGra's --batch_size
    model_named: bool = False
    keep_finished: bool = False  # whether runs_dir was not named: the same command then gets a new folder
    records_at_once: int | None = None

    def __repr__(self) -> str:
        """The options that were set, without secrets: tracebacks with local variables show it."""
        stated = {each.name: getattr(self, each.name) for each in fields(self)}
        return f"RunConfig({seal({name: value for name, value in stated.items() if value is not None}, texts=True)})"


OPTIONS: Mapping[str, RunOption] = {
    item.name: item.metadata["run"] for item in fields(RunConfig) if "run" in item.metadata
}
"""The uses of every option, by its name."""


def options_where(is_meant: Callable[[RunOption], bool]) -> tuple[str, ...]:
    """List the names of the options with a property.

    >>> options_where(lambda each: each.for_model)
    ('batch_size', 'max_batch_size', 'device', 'trust_remote_code')
    """
    return tuple(name for name, each in OPTIONS.items() if is_meant(each))


def identity_of(config: RunConfig) -> dict[str, YAMLValue]:
    """Collect the options that the results of a run depend on."""
    return {name: getattr(config, name) for name in options_where(lambda each: each.identity)}
