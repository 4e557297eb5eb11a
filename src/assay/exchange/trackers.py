"""Trackers of experiments: a run in MLflow, Weights & Biases, Trackio, or as data sets of the Hugging Face hub."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from assay.errors import ConfigError, Place, Problem, did_you_mean, installing
from assay.exchange.lm_eval import export_lm_eval
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.runs.folder import MANIFEST, RESULTS
from assay.runs.results_json import encode
from assay.runs.run import Run

PROJECT = "assay"
"""The experiment or project of a run without another name."""


def export_mlflow(run: Run, target: str | None, name: str | None = None) -> str:
    """Log a run to MLflow; `target` is a server or a folder, `name` the experiment. Returns where it is logged."""
    try:
        import mlflow
    except ImportError:
        raise _missing("mlflow") from None
    name, files = name or PROJECT, None
    if target is not None and "://" not in target:
        folder = Path(target).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        target, files = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
    if target is not None:
        mlflow.set_tracking_uri(target)
    if files is not None and mlflow.get_experiment_by_name(name) is None:
        mlflow.create_experiment(name, artifact_location=files)
    experiment = mlflow.set_experiment(name)
    with mlflow.start_run(run_name=run.path.resolve().name, tags=_tags(run)) as tracked:
        mlflow.log_params({key: _short(value) for key, value in tracked_settings(run.results.config).items()})
        mlflow.log_metrics(dict(tracked_metrics(run)))
        for file, content in ((RESULTS, encode(run.results)), (MANIFEST, run.manifest)):
            mlflow.log_text(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode(), file)
        return f"{mlflow.get_tracking_uri()} experiment {experiment.experiment_id} run {tracked.info.run_id}"


def export_wandb(
    run: Run,
    target: str | None,
    name: str | None = None,
    args: JSONObject | None = None,
    config_args: JSONObject | None = None,
) -> str:
    """Log a run to Weights & Biases; `target` is the folder for its files, `name` the project. `args` are those of `wandb.init`,
    `config_args` further settings. Returns where it is logged."""
    try:
        import wandb
    except ImportError:
        raise _missing("wandb") from None
    if target is not None:
        Path(target).mkdir(parents=True, exist_ok=True)
    arguments = dict(args or {})
    step = arguments.pop("step", None)
    own = {"name": run.path.resolve().name, "dir": target, "tags": list(_tags(run).values())}
    settings = {**tracked_settings(run.results.config), **(config_args or {})}
    tracked = wandb.init(**{"project": name or PROJECT, **own, **arguments, "config": settings})
    columns = ["model", "name", "kind", "metric", "filter", "value", "stderr", "low", "high", "n"]
    tracked.log({"numbers": wandb.Table(columns=columns, data=[list(row) for row in result_values(run)])}, step=step)
    tracked.summary.update(dict(tracked_metrics(run)))
    where = str(tracked.dir if tracked.offline else tracked.url)
    tracked.finish()
    return where


def export_trackio(run: Run, target: str | None, name: str | None = None, args: JSONObject | None = None) -> str:
    """Log a run to Trackio; `name` is the project, `args` are those of `trackio.init`. Returns the project."""
    if target is not None:
        fix = "leave it out, or set TRACKIO_DIR"
        raise ConfigError.at("--output_path", "Trackio always writes to its folder", fix)
    try:
        import trackio
    except ImportError:
        raise ConfigError.at("--to trackio", "trackio is not installed", "pip install trackio") from None
    arguments = dict(args or {})
    step = arguments.pop("step", None)
    own = {"project": name or PROJECT, "name": run.path.resolve().name, "config": tracked_settings(run.results.config)}
    project = {**own, **arguments}
    trackio.init(**project)
    trackio.log(dict(tracked_metrics(run)), **({} if step is None else {"step": step}))
    trackio.finish()
    return f"trackio project {project['project']}, run {project['name']}: trackio show --project {project['project']}"


HUB_ARGS: JSONObject = {
    "hub_results_org": "", "hub_repo_name": "", "details_repo_name": "", "results_repo_name": "",
    "push_results_to_hub": False, "push_samples_to_hub": False, "public_repo": False, "token": "", "leaderboard_url": "",
    "point_of_contact": "", "gated": False, "output_path": None,
}  # fmt: skip
"""The arguments of lm-eval's --hf_hub_log_args with their defaults. There is no data set card for two of them to be in, and
the files are written before they are pushed."""
HUB_NAME = "lm-eval-results"


def hub_arguments(args: JSONObject | None) -> JSONObject:
    """Complete the arguments of the hub's exporter; unknown ones are refused."""
    unknown = [key for key in args or {} if key not in HUB_ARGS]
    if unknown:
        raise ConfigError(
            [
                Problem(Place("hf_hub_log_args"), f"there is no argument {key!r}", did_you_mean(key, HUB_ARGS))
                for key in unknown
            ]
        )
    return {**HUB_ARGS, **(args or {})}


def export_hub(run: Run, target: str | None, args: JSONObject | None = None) -> list[str]:
    """Push lm-eval's files of a run to data sets of the Hugging Face hub, as lm-eval does; returns their names.

    `args` are those of lm-eval's --hf_hub_log_args; `target`, if any, is the owner of the data sets."""
    arguments = hub_arguments(args)
    details = str(arguments["hub_repo_name"] or arguments["details_repo_name"] or HUB_NAME)
    results = str(arguments["hub_repo_name"] or arguments["results_repo_name"] or details)
    pushes = {"results": bool(arguments["push_results_to_hub"]), "samples": bool(arguments["push_samples_to_hub"])}
    pushed = []
    with TemporaryDirectory() as folder:
        files = export_lm_eval(run, Path(folder))
        for what, repository in (("results", results), ("samples", details)):
            if pushes[what]:
                own = [file for file in files if file.name.startswith(f"{what}_")]
                pushed.append(push_files(own, repository, arguments, target))
    return list(dict.fromkeys(pushed))


def push_files(files: Sequence[Path], repository: str, arguments: JSONObject, owner: str | None = None) -> str:
    """Push files into the model's folder of a data set, of `owner` or as the arguments say; returns its address."""
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise ConfigError.at("--to hf-hub", "huggingface_hub is not installed", installing("hub")) from None
    api = HfApi(token=str(arguments["token"]) or None, endpoint=os.environ.get("HF_ENDPOINT"))
    owner = owner or str(arguments["hub_results_org"]) or str(api.whoami()["name"])
    repository = f"{owner}/{repository}" + ("" if arguments["public_repo"] else "-private")
    api.create_repo(repository, repo_type="dataset", private=not arguments["public_repo"], exist_ok=True)
    if arguments["gated"]:
        api.update_repo_settings(repository, repo_type="dataset", gated="auto")
    api.create_commit(
        repository,
        [CommitOperationAdd(f"{file.parent.name}/{file.name}", file) for file in files],
        repo_type="dataset",
        commit_message=f"Results of {files[0].parent.name}",
    )
    return f"{api.endpoint}/datasets/{repository}"


def tracked_metrics(run: Run) -> Iterator[tuple[str, float]]:
    """The numbers by name, `task/metric/filter`, each with its standard error and ends of its interval where it has them."""
    for _, name, _, metric, filter_name, value, stderr, low, high, n in result_values(run):
        whole = "/".join(_tracker_name(part) for part in (name, metric, filter_name))
        known = {"": value, "_stderr": stderr, "_low": low, "_high": high, "_n": n}
        yield from ((whole + ending, float(each)) for ending, each in known.items() if each is not None)


def tracked_settings(options: JSONObject) -> JSONDict:
    """Flatten the options of a run: `model_args.pretrained`, `limit` …"""
    config = {key: value for key, value in options.items() if value not in (None, [], {})}
    nested = config.pop("model_args", None) or {}
    items = nested.items() if isinstance(nested, Mapping) else [("text", nested)]
    return {**config, **{f"model_args.{key}": value for key, value in items}}


def _tags(run: Run) -> dict[str, str]:
    facts = run.results.facts
    version = str(facts.get("assay_version") or facts.get("lm_eval_version") or "")
    return {"model": run.model_name, "status": run.results.status, "version": version}


def _tracker_name(name: str) -> str:
    """A name that every tracker takes."""
    return re.sub(r"[^\w.\- ]", "_", name)


def _short(value: AnyJSON) -> str:
    return str(value)[:500]


def _missing(package: str) -> ConfigError:
    return ConfigError.at(f"--to {package}", f"{package} is not installed", installing(package))


def result_values(run: Run) -> Iterator[tuple[AnyJSON, ...]]:
    """Every number of a run: model, name, task or group, metric, filter, value, standard error, interval, documents."""
    model = run.model_name
    for kind, name, row in run.scored_rows():
        number = row.estimate
        yield (
            model,
            name,
            kind,
            row.metric,
            row.filter,
            number.value,
            number.stderr,
            number.low,
            number.high,
            number.n,
        )
