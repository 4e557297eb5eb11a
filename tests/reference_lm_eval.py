"""lm-eval 0.4.13's own index and factory, run on its own task folder, as the other implementation to compare with.

usage: python reference_lm_eval.py FOLDER OUT.json    FOLDER holds an unpacked lm_eval, without its dependencies

Only the classes that would load data sets are replaced: a task here is just the configuration it was given. Functions
are not imported; they come out as "!function FOLDER module.name".
"""

import functools
import json
import sys
import types
from pathlib import Path


class Named(str):
    """A function by its name. As a class of a Python task it can be called, and gives the task."""

    def __call__(self, config=None):
        return sys.modules["lm_eval.api.task"].ConfigurableTask(config)


def prepare(folder: Path):
    for name in ("lm_eval", "lm_eval.tasks", "lm_eval.api", "lm_eval.config"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    stand_in = types.ModuleType("lm_eval.api.task")

    class Task:
        def __init__(self, config=None):
            self.settings, self.task_name = config, config["task"]

    stand_in.Task, stand_in.ConfigurableTask = Task, type("ConfigurableTask", (Task,), {})
    sys.modules["lm_eval.api.task"] = stand_in
    from lm_eval.tasks import _factory, _index, _yaml_loader

    def named(base, resolve):  # the signature of what it replaces
        return lambda loader, node: Named(f"!function {base} {loader.construct_scalar(node)}")

    _yaml_loader._mk_function_ctor = named
    _factory.load_yaml = functools.partial(_yaml_loader.load_yaml, resolve_func=False)
    _factory._ctor_accepts_config = lambda cls: True
    return _index, _factory, _yaml_loader


def leaves(factory, entry, index):
    """The configuration of every task below a group, as lm-eval would hand it to the task, or why it cannot."""
    try:
        return [task.settings for task in factory.build(entry, registry=index).get_all_tasks()]
    except RecursionError:
        return "RecursionError"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is lm-eval's answer
        return f"{type(error).__name__}: {error}"


def main():
    folder, out = Path(sys.argv[1]), sys.argv[2]
    _index, _factory, _yaml_loader = prepare(folder)
    index = _index.TaskIndex.build([folder / "lm_eval/tasks"])
    factory = _factory.TaskFactory()
    result = {"kinds": {}, "tags": {}, "configs": {}, "leaves": {}}
    for name, entry in list(index.items()):
        result["kinds"][name] = entry.kind.name
        if entry.kind.name == "TAG":
            result["tags"][name] = sorted(entry.tags)
        else:
            result["configs"][name] = _yaml_loader.load_yaml(entry.yaml_path, resolve_func=False)
        if entry.kind.name == "GROUP":
            result["leaves"][name] = leaves(factory, entry, index)
    Path(out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
