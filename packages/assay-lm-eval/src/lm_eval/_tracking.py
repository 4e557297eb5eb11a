"""lm-eval's EvaluationTracker, which writes its files, and its loggers for Weights & Biases and Trackio."""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.exchange.trackers import HUB_NAME, hub_arguments, push_files
from lm_eval._utils import handle_non_serializable, hash_string, random_name_id, sanitize_list, sanitize_model_name

logger = logging.getLogger("lm_eval")


@dataclass
class GeneralConfigTracker:
    """Facts of the model for names of files; `simple_evaluate` fills them in."""

    model_source: str | None = None
    model_name: str | None = None
    model_name_sanitized: str | None = None
    system_instruction: str | None = None

    def log_experiment_args(self, model_source: str, model_args: Any, *_: Any, **__: Any) -> None:
        """Note the model: its name is the first of lm-eval's arguments for one."""
        found = model_args if isinstance(model_args, Mapping) else {}
        named = next(
            (str(found[key]) for key in ("peft", "delta", "pretrained", "model", "path", "engine") if key in found),
            None,
        )
        self.model_source, self.model_name = model_source, named or random_name_id()
        self.model_name_sanitized = sanitize_model_name(self.model_name)


class EvaluationTracker:
    """Writes results and samples at lm-eval's places, and pushes them to the hub if that is asked for."""

    def __init__(self, output_path: str | None = None, **hub: Any) -> None:
        self.output_path, self.arguments = output_path, hub_arguments(hub)
        self.general_config_tracker = GeneralConfigTracker()
        self.push_results_to_hub = bool(self.arguments["push_results_to_hub"])
        self.push_samples_to_hub = bool(self.arguments["push_samples_to_hub"])
        self.date_id = _now()

    def save_results_aggregated(
        self, results: dict[str, Any], samples: Mapping[str, Iterable[Any]] | None = None
    ) -> None:
        """Write MODEL/results_DATE.json below the output path, or STEM_DATE.json beside a .json path."""
        if not self.output_path:
            logger.info("Output path not provided, skipping saving results aggregated")
            return
        self.date_id = _now()
        self.general_config_tracker.model_name_sanitized = self._model(results)
        hashes = {task: _hash(each) for task, each in (samples or {}).items()}
        path = Path(self.output_path)
        file = (
            path.with_name(f"{path.stem}_{self.date_id}.json")
            if path.suffix == ".json"
            else self._folder() / f"results_{self.date_id}.json"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        results["task_hashes"] = hashes
        kept = {key: value for key, value in results.items() if key != "samples"}
        file.write_text(
            json.dumps(kept, indent=2, default=handle_non_serializable, ensure_ascii=False), encoding="utf-8"
        )
        if self.push_results_to_hub:
            self._pushed("results_repo_name", [file])

    def save_results_samples(self, task_name: str, samples: Iterable[Mapping[str, Any]]) -> None:
        """Write samples_TASK_DATE.jsonl beside the results."""
        if not self.output_path:
            logger.info("Output path not provided, skipping saving sample results")
            return
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"samples_{task_name}_{self.date_id}.jsonl"
        with file.open("a", encoding="utf-8") as lines:
            for sample in samples:
                lines.write(json.dumps(_written(sample), default=handle_non_serializable, ensure_ascii=False) + "\n")
        if self.push_samples_to_hub:
            self._pushed("details_repo_name", [file])

    def recreate_metadata_card(self) -> None:
        """Do nothing: no card is written."""

    def _model(self, results: Mapping[str, Any]) -> str:
        known = self.general_config_tracker.model_name_sanitized or results.get("model_name_sanitized")
        return known or sanitize_model_name(str(results.get("model_name") or random_name_id()))

    def _folder(self) -> Path:
        path = Path(self.output_path or ".")
        return path.parent if path.suffix == ".json" else path / str(self.general_config_tracker.model_name_sanitized)

    def _pushed(self, key: str, files: list[Path]) -> None:
        own = self.arguments
        push_files(files, str(own["hub_repo_name"] or own[key] or own["details_repo_name"] or HUB_NAME), own)


def _now() -> str:
    return datetime.now().isoformat().replace(":", "-")


def _hash(samples: Iterable[Mapping[str, Any]]) -> str:
    return hash_string("".join(each["doc_hash"] + each["prompt_hash"] + each["target_hash"] for each in samples))


def _written(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample as lm-eval's files have it: arguments by number, answers as texts."""
    arguments = sample["arguments"]
    if not isinstance(arguments, Mapping):
        arguments = {
            f"gen_args_{number}": {f"arg_{place}": part for place, part in enumerate(each)}
            for number, each in enumerate(arguments)
        }
    texts = {key: sanitize_list(sample[key]) for key in ("resps", "filtered_resps")}
    return {**sample, **texts, "arguments": arguments, "target": str(sample["target"])}


class _Logger:
    """What the loggers share: the results, and their numbers by name."""

    def post_init(self, results: Mapping[str, Any]) -> None:
        """Take the results of `simple_evaluate`."""
        self.results = results

    def _numbers(self) -> dict[str, float]:
        rows = self.results.get("results", {})
        return {
            f"{task}/{key.removesuffix(',none')}": value
            for task, row in rows.items()
            for key, value in row.items()
            if "," in key and isinstance(value, int | float)
        }

    def _settings(self) -> dict[str, Any]:
        return {"task_configs": self.results.get("configs", {}), "cli_configs": self.results.get("config", {})}


class WandbLogger(_Logger):
    """Logs results to the open run of Weights & Biases, or to a new one."""

    def __init__(
        self, init_args: Mapping[str, Any] | None = None, config_args: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        try:
            import wandb
        except ImportError:
            raise ImportError("wandb is not installed — pip install wandb") from None
        self.wandb_args = {**(init_args or {}), **more}
        self.step = self.wandb_args.pop("step", None)
        self.run = wandb.run or wandb.init(**self.wandb_args)
        if config_args:
            self.run.config.update(dict(config_args))

    def log_eval_result(self) -> None:
        """Log the numbers and the settings."""
        self.run.config.update(json.loads(json.dumps(self._settings(), default=str)), allow_val_change=True)
        self.run.log(self._numbers(), step=self.step)

    def log_eval_samples(self, samples: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """Log a table of every task's documents."""
        import wandb

        for task, rows in samples.items():
            data = [
                [
                    row["doc_id"],
                    json.dumps(row["arguments"], default=str),
                    str(row["target"]),
                    str(row["filtered_resps"]),
                ]
                for row in rows
            ]
            table = wandb.Table(columns=["id", "arguments", "target", "filtered_resps"], data=data)
            self.run.log({f"{task}_eval_results": table}, step=self.step)


class TrackioLogger(_Logger):
    """Logs results to Trackio."""

    def __init__(self, init_args: Mapping[str, Any] | None = None) -> None:
        try:
            import trackio
        except ImportError:
            raise ImportError("trackio is not installed — pip install trackio") from None
        self._trackio, arguments = trackio, dict(init_args or {})
        self.step = arguments.pop("step", None)
        self.run = trackio.init(**{"project": "lm-eval-harness", **arguments})

    def log_eval_result(self) -> None:
        """Log the numbers."""
        self._trackio.log(self._numbers(), **({} if self.step is None else {"step": self.step}))

    def log_eval_samples(self, samples: Any) -> None:
        """Refuse: samples are in the files of the run."""
        logger.info("samples are not logged to Trackio: EvaluationTracker writes them, and `assay view` shows them")

    def finish(self) -> None:
        self._trackio.finish()
