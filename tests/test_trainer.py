"""The callback for the Trainer of transformers: it evaluates the live model, and the training does not notice."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")

import numpy as np
import torch
import transformers
from tests import hf_world

import assay
from assay.trainer import AssayCallback

CHOICES = [{"q": f"w{number} w{number + 1}", "c": ["w5", "w6 w7", "w8"], "g": number % 3} for number in range(10, 22)]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "d.jsonl").write_text("\n".join(map(json.dumps, CHOICES)))
    head = f"dataset_path: json\ndataset_kwargs: {{data_files: {folder / 'd.jsonl'}}}\ntest_split: train\ndoc_to_text: '{{{{q}}}}'\n"
    (folder / "choices.yaml").write_text(
        f"task: choices\n{head}output_type: multiple_choice\ndoc_to_choice: c\ndoc_to_target: g\nmetric_list: [{{metric: acc}}]\n"
    )
    (folder / "texts.yaml").write_text(
        f"task: texts\n{head}output_type: generate_until\ndoc_to_target: '{{{{ \"w5\" }}}}'\n"
        "generation_kwargs: {max_gen_toks: 4, do_sample: true, temperature: 1.0}\nmetric_list: [{metric: exact_match}]\n"
        "process_docs: !function draws.from_every_generator\n"
    )
    (folder / "draws.py").write_text(
        "import random\nimport numpy\nimport torch\n"
        "def from_every_generator(docs):\n    random.random(), numpy.random.rand(), torch.rand(1)\n    return docs\n"
    )
    return str(folder)


def trained(
    folder: Path, *, evaluates: bool = False, **callback: Any
) -> tuple[transformers.Trainer, list[AssayCallback]]:
    """Four steps of a model with dropout, which draws random numbers in every one of them."""
    torch.manual_seed(0)
    model = hf_world.build("gpt2")  # its dropout is 0.1
    rows = [{"input_ids": [5 + number, 6, 7, 8], "labels": [5 + number, 6, 7, 8]} for number in range(16)]
    args = transformers.TrainingArguments(
        output_dir=str(folder / "out"), max_steps=4, per_device_train_batch_size=2, logging_steps=1, save_strategy="no",
        report_to=[], use_cpu=True, seed=1, disable_tqdm=True, eval_strategy="steps" if evaluates else "no", eval_steps=2,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model,
        args,
        data_collator=transformers.default_data_collator,
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=hf_world.words(),
    )
    callbacks = [AssayCallback(runs_dir=folder / "runs", **callback)] if callback else []
    for each in callbacks:
        trainer.add_callback(each)
    trainer.train()
    return trainer, callbacks


def losses(trainer: transformers.Trainer) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def test_a_training_with_evaluations_is_bit_for_bit_the_training_without(tmp_path: Path, tasks: str) -> None:
    plain, _ = trained(tmp_path / "plain")
    drawn = random.random(), np.random.rand(), torch.rand(1)
    watched, [callback] = trained(tmp_path / "watched", tasks=["choices", "texts"], every=1, include_path=tasks)
    assert (random.random(), np.random.rand(), torch.rand(1)) == drawn, "the code of tasks drew from these generators"
    assert sorted(callback.runs) == [1, 2, 3, 4]
    assert losses(plain) == losses(watched) and len(set(losses(plain))) == 4
    before, after = plain.model.state_dict(), watched.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert plain.model.config._attn_implementation == watched.model.config._attn_implementation
    assert [module.training for module in plain.model.modules()] == [
        module.training for module in watched.model.modules()
    ]


def test_the_live_model_is_evaluated_and_its_numbers_are_logged(tmp_path: Path, tasks: str) -> None:
    trainer, [callback] = trained(tmp_path, tasks="choices", every=2, limit=6, include_path=tasks)
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["step-2", "step-4"]
    logged = {
        row["step"]: row["eval_assay/choices/acc"]
        for row in trainer.state.log_history
        if "eval_assay/choices/acc" in row
    }
    stored = {step: run.rows("choices")["acc", "none"].estimate.value for step, run in callback.runs.items()}
    assert logged == stored and callback.runs[4].rows("choices")["acc", "none"].estimate.n == 6
    last = assay.Run.open(tmp_path / "runs/step-4")
    assert last.status == "complete"
    prompt = torch.tensor([hf_world.numbers("w10 w11 w5")])
    trainer.model.eval()
    with torch.no_grad():
        scores = torch.log_softmax(trainer.model(prompt).logits[0, -2], -1)[prompt[0, -1]]
    first = last.samples("choices").to_pylist()[0]["responses"][0][0]["value"]
    assert first == pytest.approx(float(scores), abs=1e-4), "the weights of step 4, as transformers computes them"


def test_the_numbers_of_an_evaluation_go_to_trackers_and_choose_the_best_model(tmp_path: Path, tasks: str) -> None:
    class Tracker(transformers.TrainerCallback):  # type: ignore[misc]
        seen: list[dict[str, float]] = []  # noqa: RUF012

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **around: Any) -> None:
            self.seen.append(logs)

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **around: Any) -> None:
            self.seen.append(metrics)

    trainer, _ = trained(tmp_path / "a")
    tracker = Tracker()
    trainer.add_callback(AssayCallback("choices", include_path=tasks, runs_dir=tmp_path / "runs", trainer=trainer))
    trainer.add_callback(tracker)
    metrics = trainer.evaluate()
    assert (
        metrics["eval_assay/choices/acc"]
        == assay.Run.open(tmp_path / "runs/step-4").rows("choices")["acc", "none"].estimate.value
    )
    assert sum("eval_assay/choices/acc" in each for each in tracker.seen) >= 2, (
        "logged, and in the metrics of the evaluation"
    )


def test_a_failed_evaluation_does_not_end_the_training_unless_asked(
    tmp_path: Path, tasks: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="assay"):
        trainer, [callback] = trained(tmp_path / "a", tasks="chioces", every=2, include_path=tasks)
    assert trainer.state.global_step == 4 and callback.runs == {}
    assert "the evaluation at step 2 failed" in caplog.text and "did you mean" in caplog.text
    with pytest.raises(Exception, match="the evaluation at step 2 failed"):
        trained(tmp_path / "b", tasks="chioces", every=2, include_path=tasks, stop_on_failure=True)


def test_wrong_options_are_refused_when_the_callback_is_made() -> None:
    for options, said in (
        ({"every": 0}, "must be a number of steps"),
        ({"output_path": "x"}, "is set by the callback"),
    ):
        with pytest.raises(assay.ConfigError, match=said):
            AssayCallback("choices", **options)
