"""Write the generated parts of src/assay/public.py: the parameters of `simple_evaluate` and `evaluate`, from the options of a
run, and the imports that editors and type checkers read.

usage: python tools/make_public.py [FILE]
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

import assay.config.run
from assay.config.option import yaml_fields
from assay.config.run import RunConfig
from assay.public import HOMES

FILE = Path(__file__).parent.parent / "src/assay/public.py"
WIDTH = 120
TYPES = {"assay.models.protocol": "AnyModel"}
LEADING = {
    "simple_evaluate": (
        'model: "AnyModel | str | None"', "model_args", "tasks: Tasks = None", "*", 'task_manager: "TaskManager | None" = None',
        "evaluation_tracker: object = None",
    ),
    "run": (
        'model: "AnyModel | str | None"', "model_args", "tasks: Tasks = None", "*", 'task_manager: "TaskManager | None" = None',
        "progress: bool = True",
    ),
    "evaluate": ('lm: "AnyModel"', "task_dict: Mapping[str, Any]", "*", "model_args"),
}  # fmt: skip
"""Parameters that are not options of a run, and the options among them that come first."""
DEFAULTS = {
    "run": {},
    "simple_evaluate": {"log_samples": True},
    "evaluate": {"log_samples": True, "fewshot_as_multiturn": False},
}
"""Defaults that differ from those of the command line, as in lm-eval."""
RETURNS = {"run": '"Run"'}


def generated(text: str) -> str:
    """Fill the blocks of the file."""
    blocks = {"imports": "".join(f"    {line}\n" for line in imports()), **{name: signature(name) for name in LEADING}}
    for name, block in blocks.items():
        pattern = rf"( *# <generated {name}>\n).*?( *# </generated>\n)"
        text = re.sub(pattern, lambda match, block=block: match[1] + block + match[2], text, count=1, flags=re.DOTALL)
    return text


def imports() -> list[str]:
    """The imports of public names, and of the types of parameters that are not public."""
    lines = [f"from {module} import {name}" for module, name in TYPES.items()]
    for module, names in HOMES.items():
        for name in names:
            note = "  # noqa: A004  # used as assay." + name if name in ("filter", "format") else ""
            lines.append(f"from {module} import {name} as {name}{note}")
    # as ruff sorts imports
    return sorted(lines, key=lambda line: (line.split()[1], not line.split()[3].isupper(), line))


def signature(function: str) -> str:
    """The head of a function: its own parameters, then every option of a run by keyword."""
    options = {item.name: parameter(item, DEFAULTS[function]) for item in yaml_fields(RunConfig)}
    first = [options.get(name, name) for name in LEADING[function]]
    placed = {name.partition(":")[0] for name in LEADING[function]} | {"model", "tasks"}
    rest = [text for name, text in options.items() if name not in placed]
    head = f"def {function}(  # noqa: PLR0913  # the options of a run\n"
    return (
        head
        + "".join(f"    {line}\n" for line in packed([*first, *rest, "**unknown: Never"]))
        + f") -> {RETURNS.get(function, 'dict[str, Any]')}:  # fmt: skip\n"
    )


def parameter(item: "Field[Any]", defaults: dict[str, object]) -> str:
    """One option as a parameter: a sequence where the record has a tuple, and one text where one may be written alone."""
    kind = re.sub(r"tuple\[(.*), \.\.\.\]", r"Sequence[\1]", ANNOTATIONS[item.name])
    kind = f"str | {kind}" if item.metadata["many"] else kind
    default = defaults.get(item.name, None if item.default is MISSING else item.default)
    return f"{item.name}: {kind} = " + repr(default).replace("'", '"')


def packed(parameters: list[str]) -> Iterator[str]:
    """As many parameters on a line as fit."""
    line = ""
    for each in parameters:
        if line and len(line) + len(each) + 2 > WIDTH - 4:
            yield line
            line = ""
        line += f"{' ' if line else ''}{each},"
    yield line


def annotations() -> dict[str, str]:
    """The types of the options as they are written."""
    tree = ast.parse(inspect.getsource(assay.config.run))
    [record] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == RunConfig.__name__]
    written = (node for node in record.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
    return {ast.unparse(node.target): ast.unparse(node.annotation).replace("'", '"') for node in written}


ANNOTATIONS = annotations()


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    file.write_text(generated(file.read_text(encoding="utf-8")), encoding="utf-8")
