"""The values that flow between the rooms: frozen, and known to all of them."""

from dataclasses import dataclass, field

from assay.errors import Place


@dataclass(frozen=True, slots=True)
class Function:
    """A Python object that a YAML file names with `!function module.name`. Nothing is imported until it is used.

    `folder` is where the YAML file lies: `module` is looked for there first. Two are equal when they name the same
    object, wherever they are written.
    """

    folder: str
    module: str
    name: str
    place: Place = field(default=Place("?"), compare=False)

    def __str__(self) -> str:
        return f"!function {self.module}.{self.name}"
