"""The variables that templates cannot do without."""

from collections.abc import Sequence
from functools import cache

from jinja2 import nodes

from assay.samples.prompt import _ENVIRONMENT
from assay.templates import COMPILE_ERRORS


@cache
def required_variables(text: str) -> frozenset[str]:
    """The variables that a template needs a value of; none that it asks about with `is defined` or `default`.

    >>> sorted(required_variables("{{a}} {% if b is defined %}{{b}}{% endif %} {{c | default('')}} {{range(n)}}"))
    ['a', 'n']
    """
    try:
        tree, used = _ENVIRONMENT.parse(text), _ENVIRONMENT.variables(text)
    except COMPILE_ERRORS:
        return frozenset()
    asked = [*_tests(tree, nodes.Test, ("defined", "undefined")), *_tests(tree, nodes.Filter, ("default", "d"))]
    optional = {name.name for each in asked for name in each.find_all(nodes.Name)}
    return frozenset(used - optional - set(_ENVIRONMENT.globals))


def _tests(tree: nodes.Template, kind: type[nodes.Test] | type[nodes.Filter], names: Sequence[str]) -> list[nodes.Node]:
    return [each for each in tree.find_all(kind) if each.name in names]
