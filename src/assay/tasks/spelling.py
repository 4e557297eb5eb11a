"""Names in a task's lists that nothing is called: found when the file is read, with all its other problems."""

from collections.abc import Iterator, Mapping, Sequence

from assay.catalog.functions import functions_in
from assay.config.fields import Fields
from assay.errors import Problem, did_you_mean
from assay.scoring.filters import FILTERS


def misspelt(fields: Fields) -> list[Problem]:
    """Filter steps that do not exist. Helper code may add some, so a task that has any is left alone."""
    if any(fields.origin(key).lenient for key in fields) or next(iter(functions_in(dict(fields))), None) is not None:
        return []
    return list(_steps(fields))


def _steps(fields: Fields) -> Iterator[Problem]:
    for number, pipeline in _entries(fields.get("filter_list")):
        for step, each in _entries(pipeline.get("filter")):
            name = each.get("function")
            if isinstance(name, str) and name != "custom" and name not in FILTERS:
                place = fields.place("filter_list", number, "filter", step, "function")
                yield Problem(place, f"no filter named {name!r}", did_you_mean(name, FILTERS.names()))


def _entries(value: object) -> Iterator[tuple[int, Mapping[str, object]]]:
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return ((number, each) for number, each in enumerate(several) if isinstance(each, Mapping))
