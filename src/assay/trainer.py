"""A callback for the Trainer of transformers that evaluates the model while it is trained.

    trainer.add_callback(AssayCallback(["arc_easy"], every=500, limit=200, trainer=trainer))

The training is what it would be without the callback: the mode of the model and the state of every random generator are restored.
"""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from assay.errors import AssayError, ConfigError
from assay.models.local.hf.backend import HF
from assay.public import run as evaluate_run
from assay.runs.run import COMPLETE, Run
from assay.user_code import UserCodeError, user_code

LOG_PREFIX = "eval_assay/"


class AssayCallback(TrainerCallback):
    """Evaluates the live model every `every` steps, or whenever the Trainer evaluates, and at the end of the training.

    Each evaluation is a run below `runs_dir`, named step-100 and so on: `assay plot runs/step-* --kind time` draws them. Its
    numbers are logged as `eval_assay/TASK/METRIC`; those of `on_evaluate` can choose the best checkpoint. With `trainer`, every
    tracker of the Trainer gets them, else its history alone. A failure is logged and the training continues, unless
    `stop_on_failure`. Another keyword is an option of `assay.run`.
    """

    def __init__(
        self, tasks: str | Sequence[str], *, every: int | None = None, runs_dir: str | Path = "runs",
        tokenizer: PreTrainedTokenizerBase | None = None, trainer: Trainer | None = None, stop_on_failure: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        if every is not None and every < 1:
            raise ConfigError.at("every", f"must be a number of steps, got {every}", "give 1 or more")
        for name in ("model", "model_args", "output_path"):
            if name in options:
                fix = "leave it out; `runs_dir` is where runs are stored"
                raise ConfigError.at(name, "is set by the callback", fix)
        self.tasks, self.every, self.runs_dir, self.tokenizer = tasks, every, Path(runs_dir), tokenizer
        self.trainer, self.stop_on_failure, self.options = trainer, stop_on_failure, options
        self.runs: dict[int, Run] = {}
        """The runs of this training, by step."""
        self._evaluated = -1

    def on_train_begin(self, args: TrainingArguments, *_: object, **__: object) -> None:
        deepspeed = getattr(args, "hf_deepspeed_config", None)
        if getattr(args, "fsdp", None) or (deepspeed is not None and deepspeed.is_zero3()):
            what = "the weights are spread over processes, and one of them cannot evaluate alone"
            raise ConfigError.at("AssayCallback", what, "save checkpoints, and use `assay run` on them")

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002  # named as the Trainer names them
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **around: Any,
    ) -> None:
        if self.every is not None and state.global_step % self.every == 0:
            self._evaluate(state, around)

    def on_evaluate(
        self,
        args: TrainingArguments,  # noqa: ARG002  # named as the Trainer names them
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **around: Any,
    ) -> None:
        if self.every is None:
            around.get("metrics", {}).update(self._evaluate(state, around))

    def on_train_end(
        self,
        args: TrainingArguments,  # noqa: ARG002  # named as the Trainer names them
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **around: Any,
    ) -> None:
        if state.global_step != self._evaluated:
            self._evaluate(state, around)

    def _evaluate(self, state: TrainerState, around: Mapping[str, Any]) -> dict[str, float]:
        """Evaluate on the main process, and log; the others wait for the numbers."""
        self._evaluated = state.global_step
        outcome: list[dict[str, float] | str] = [{}]
        if state.is_world_process_zero:
            with _as_before(around["model"]):
                outcome = [self._numbers(state.global_step, around)]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.broadcast_object_list(outcome, src=0)
        [numbers] = outcome
        if isinstance(numbers, str):
            if self.stop_on_failure:
                raise UserCodeError(numbers)
            logging.getLogger("assay").warning("%s; the training continues", numbers)
            return {}
        if self.trainer is not None:
            self.trainer.log(dict(numbers))
        else:
            state.log_history.append({**numbers, "epoch": state.epoch, "step": state.global_step})
        return numbers

    def _numbers(self, step: int, around: Mapping[str, Any]) -> dict[str, float] | str:
        """The numbers of the model at this step, or why there are none."""
        try:
            with user_code(f"the evaluation at step {step} failed"):
                run = self._run(around, step)
        except AssayError as error:
            return f"the evaluation at step {step} failed: {error}"
        except UserCodeError as error:
            return str(error)
        self.runs[step] = run
        if run.status != COMPLETE:
            logging.getLogger("assay").warning("the evaluation at step %d is %s: %s", step, run.status, run.path)
        return logged_numbers(run)

    def _run(self, around: Mapping[str, Any], step: int) -> Run:
        tokenizer = self.tokenizer or around.get("processing_class")
        if tokenizer is None:
            what, fix = (
                "the Trainer has no tokenizer",
                "give AssayCallback(tokenizer=…), or Trainer(processing_class=…)",
            )
            raise ConfigError.at("tokenizer", what, fix)
        live = HF(_unwrapped(around["model"]), tokenizer=tokenizer)  # type: ignore[arg-type]  # objects, as load_hf takes them
        options = {"progress": False, "force": True, **self.options}
        return evaluate_run(live, tasks=self.tasks, output_path=str(self.runs_dir / f"step-{step}"), **options)


def logged_numbers(run: Run) -> dict[str, float]:
    """The numbers of a run as a Trainer logs them: `eval_assay/arc_easy/acc`, with the filter where it is not `none`."""
    numbers = {}
    for _, name, row in run.scored_rows():
        if row.estimate.value is not None:
            filtered = "" if row.filter == "none" else f",{row.filter}"
            numbers[f"{LOG_PREFIX}{name}/{row.metric}{filtered}"] = row.estimate.value
    return numbers


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, without what DataParallel or torch.compile put around it."""
    inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
    return model if inner is None else _unwrapped(inner)


@contextmanager
def _as_before(model: torch.nn.Module) -> Iterator[None]:
    """Restore modes, attention and random generators, and compute no gradients within."""
    inner: Any = _unwrapped(model)
    modes = {module: module.training for module in model.modules()}
    attention = inner.config._attn_implementation  # the hf backend replaces it
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        if inner.config._attn_implementation != attention:
            inner.set_attn_implementation(attention)
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
        if devices:
            torch.cuda.set_rng_state_all(devices)
