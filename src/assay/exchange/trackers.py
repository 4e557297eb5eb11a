"""The numbers of a run in MLflow or Weights & Biases: settings as parameters, numbers as metrics, files as artifacts."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from assay.errors import ConfigError, Place, Problem, installing
from assay.exchange.finished import model_name
from assay.exchange.to_parquet import numbers
from assay.runs.folder import MANIFEST, RESULTS
from assay.runs.redaction import redacted
from assay.runs.run import Run

PROJECT = "assay"


def export_mlflow(run: Run, target: str | None, name: str | None = None) -> str:
    """Log a run to MLflow; `target` is the address of its server, or a folder; `name` the experiment. What comes back is where."""
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
    with mlflow.start_run(run_name=run.path.resolve().name, tags=_tags(run)) as made:
        mlflow.log_params({key: _short(value) for key, value in settings(run.results).items()})
        mlflow.log_metrics(dict(metrics(run)))
        for file, content in ((RESULTS, run.results), (MANIFEST, run.manifest)):
            mlflow.log_text(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode(), file)
        return f"{mlflow.get_tracking_uri()} experiment {experiment.experiment_id} run {made.info.run_id}"


def export_wandb(run: Run, target: str | None, name: str | None = None) -> str:
    """Log a run to Weights & Biases; `target` is the folder for its files, `name` the project. What comes back is where."""
    try:
        import wandb
    except ImportError:
        raise _missing("wandb") from None
    if target is not None:
        Path(target).mkdir(parents=True, exist_ok=True)
    made = wandb.init(
        project=name or PROJECT,
        name=run.path.resolve().name,
        dir=target,
        config=settings(run.results),
        tags=list(_tags(run).values()),
    )
    columns = ["model", "name", "kind", "metric", "filter", "value", "stderr", "low", "high", "n"]
    made.log({"numbers": wandb.Table(columns=columns, data=[list(row) for row in numbers(run)])})
    made.summary.update(dict(metrics(run)))
    where = str(made.dir)
    made.finish()
    return where


def metrics(run: Run) -> Iterator[tuple[str, float]]:
    """The numbers by name, `task/metric/filter`, each with its standard error and ends of its interval where it has them."""
    for _, name, _, metric, filter_name, value, stderr, low, high, n in numbers(run):
        whole = "/".join(_plain(part) for part in (name, metric, filter_name))
        known = {"": value, "_stderr": stderr, "_low": low, "_high": high, "_n": n}
        yield from ((whole + ending, float(each)) for ending, each in known.items() if each is not None)


def settings(results: Mapping[str, Any]) -> dict[str, Any]:
    """What a run was asked for, flat: `model_args.pretrained`, `limit` …"""
    config = {key: value for key, value in redacted(results.get("config", {})).items() if value not in (None, [], {})}
    nested = config.pop("model_args", None) or {}
    told = nested.items() if isinstance(nested, Mapping) else [("text", nested)]
    return {**config, **{f"model_args.{key}": value for key, value in told}}


def _tags(run: Run) -> dict[str, str]:
    version = str(run.results.get("assay_version") or run.results.get("lm_eval_version") or "")
    return {"model": model_name(run), "status": str(run.results.get("assay", {}).get("status", "")), "version": version}


def _plain(name: str) -> str:
    """A name that every tracker takes."""
    return re.sub(r"[^\w.\- ]", "_", name)


def _short(value: Any) -> str:
    return str(value)[:500]


def _missing(package: str) -> ConfigError:
    return ConfigError([Problem(Place(f"--to {package}"), f"{package} is not installed", installing(package))])
