"""Why two runs may differ: the first stage at which what they were made with is not the same."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.comparison.comparison import STAGES, Attribution, Difference
from assay.comparison.pairing import PROMPT_OPTIONS, PairedTask
from assay.comparison.run_scores import model_of
from assay.runs.run import Run

OPTIONS = {
    "data": ("limit", "sample", "samples", "start_index", "shard", "data_dir"),
    "prompt": PROMPT_OPTIONS,
    "sampling": ("gen_kwargs", "repeats", "random_seed", "numpy_random_seed", "torch_random_seed"),
    "scorer": ("compat", "bootstrap_iters", "predict_only"),
}  # fmt: skip
"""Options of a run, by the stage that they change."""
KEYS = {
    "data": ("dataset_path", "dataset_name", "dataset_kwargs", "custom_dataset", "test_split", "validation_split",
             "training_split", "process_docs"),
    "sampling": ("generation_kwargs", "repeats"),
    "filter": ("filter_list",),
    "scorer": ("metric_list", "process_results", "scorer", "should_decontaminate", "doc_to_decontamination_query"),
}  # fmt: skip
"""Keys of a task, likewise; those that are not here make its prompts."""
NOWHERE = ("task", "task_alias", "tag", "metadata", "unsafe_code", "cluster_by", "include", "group", "dataset_version")


def attribute(a: Run, b: Run, tasks: Sequence[PairedTask], number: int) -> Attribution:
    """In what the other run differs from the first. What was asked is told by the documents and prompts themselves: settings
    that left those as they were are not mentioned."""
    data = [task.name for task in tasks if task.by_content or len(task.places_a) < max(_sizes(task))]
    prompts = {task.name: len(several) for task in tasks if (several := task.prompts_that_differ)}
    found: list[Difference] = []
    if data:
        found.append(Difference("data", "documents", *_counts(tasks, data), data))
        found += [*_options("data", a, b), *_keys("data", a, b, _named(tasks, data))]
    if prompts:
        asked = sum(len(task.places_a) for task in tasks if task.name in prompts)
        what = f"prompts of {sum(prompts.values())} of {asked} documents"
        found.append(Difference("prompt", what, "", "", list(prompts)))
        found += [*_options("prompt", a, b), *_keys("prompt", a, b, _named(tasks, prompts))]
    found += [*_options("sampling", a, b), *_keys("sampling", a, b, tasks)]
    found += _models(a, b)
    found += _keys("filter", a, b, tasks)
    found += [*_options("scorer", a, b), *_keys("scorer", a, b, tasks), *_code(a, b)]
    return Attribution(number, sorted(found, key=lambda each: STAGES.index(each.stage)))


def _sizes(task: PairedTask) -> tuple[int, int]:
    return len(task.scores_a.documents), len(task.scores_b.documents)


def _named(tasks: Sequence[PairedTask], names: Iterable[str]) -> list[PairedTask]:
    wanted = set(names)
    return [task for task in tasks if task.name in wanted]


def _counts(tasks: Sequence[PairedTask], names: Sequence[str]) -> tuple[str, str]:
    sizes = [_sizes(task) for task in _named(tasks, names)]
    return str(sum(a for a, _ in sizes)), str(sum(b for _, b in sizes))


def _options(stage: str, a: Run, b: Run) -> Iterable[Difference]:
    mine, others = _spec(a), _spec(b)
    for name in OPTIONS[stage]:
        if mine.get(name) != others.get(name):
            yield Difference(stage, name, _short(mine.get(name)), _short(others.get(name)))


def _spec(run: Run) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.answers_manifest.get("spec", {})
    return found


def _keys(stage: str, a: Run, b: Run, tasks: Sequence[PairedTask]) -> list[Difference]:
    """The keys of this stage that tasks say otherwise; the same change in many tasks is told once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for task in tasks:
        mine, others = a.config(task.name), b.config(task.name_b)
        for key in {**mine, **others}:
            if _stage(key) == stage and mine.get(key) != others.get(key):
                change = key, _short(mine.get(key)), _short(others.get(key))
                found.setdefault(change, []).append(task.name)
    return [Difference(stage, *change, names) for change, names in found.items()]


def _stage(key: str) -> str | None:
    if key in NOWHERE:
        return None
    return next((stage for stage, keys in KEYS.items() if key in keys), "prompt")


def _models(a: Run, b: Run) -> Iterable[Difference]:
    mine, others = _spec(a).get("model"), _spec(b).get("model")
    if mine != others:
        yield Difference("model", "model", _model(a, mine), _model(b, others))
    roles = _spec(a).get("roles") or {}, _spec(b).get("roles") or {}
    for role in sorted({*roles[0], *roles[1]}):
        if roles[0].get(role) != roles[1].get(role):
            yield Difference(
                "scorer", f"model in the role {role}", _short(roles[0].get(role)), _short(roles[1].get(role))
            )


def _model(run: Run, identity: object) -> str:
    return f"{model_of(run)} [{str(identity)[-12:]}]"


def _code(a: Run, b: Run) -> Iterable[Difference]:
    """Code that may score otherwise: helper files, and the versions of what computes."""
    mine, others = a.answers_manifest.get("helper_files", {}), b.answers_manifest.get("helper_files", {})
    changed = sorted(file for file in {*mine, *others} if mine.get(file) != others.get(file))
    if changed and sorted(mine.values()) != sorted(others.values()):
        yield Difference("scorer", "helper code", _short(changed[:3]), "")
    versions = (_packages(a), _packages(b))
    for name in ("assay", "sacrebleu"):
        if versions[0].get(name) != versions[1].get(name):
            yield Difference("scorer", f"version of {name}", str(versions[0].get(name)), str(versions[1].get(name)))


def _packages(run: Run) -> Mapping[str, str]:
    found: Mapping[str, str] = run.manifest.get("environment", {}).get("packages", {})
    return found


def _short(value: object) -> str:
    text = value if isinstance(value, str) else "–" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
