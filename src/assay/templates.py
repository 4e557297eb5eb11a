"""Jinja templates of task files, formats, judges and tokenizers: sandboxed, and limited in time, memory and output.

Whoever writes a template may not stop or fill the machine of whoever validates or runs it. Templates without loops, macros
and operations that make much out of little cannot, and are rendered here without any cost. Others are rendered by a process with
limits (`template_worker`). Expressions are never computed while a template is compiled, where nothing says whose fault it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import StrictUndefined, meta, nodes
from jinja2 import Undefined as JinjaUndefined
from jinja2.runtime import new_context
from jinja2.sandbox import SandboxedEnvironment

from assay.template_worker import MAX_RENDERED, CannotTravel, Render, Renderer
from assay.template_worker import RENDER_ERRORS as RENDER_ERRORS
from assay.template_worker import reason as reason
from assay.user_code import TIME_LIMIT, alarmed

Values = Mapping[str, Any]
MIN_SECONDS = 0.1
"""The shortest time limit of a template that always takes too long."""
_COMPUTED = (nodes.BinExpr, nodes.Filter, nodes.Test)
"""Expressions that Jinja computes while it compiles, if they are constant."""
_LOOPS = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.Include, nodes.Import,
          nodes.FromImport, nodes.Extends, nodes.Block)  # fmt: skip
_SIMPLE_FILTERS = frozenset((
    "abs", "answer_key_to_index", "capitalize", "d", "default", "first", "float", "int", "join", "last", "length",
    "letter_choices", "list", "lower", "max", "min", "random", "replace", "round", "string", "title", "trim", "upper",
))  # fmt: skip
_SIMPLE_METHODS = frozenset((
    "capitalize", "endswith", "find", "get", "index", "items", "join", "keys", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "replace", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
    "strip", "title", "upper", "values",
))  # fmt: skip
COMPILE_ERRORS = (*RENDER_ERRORS, SyntaxError)


class Undefined(StrictUndefined):
    """An undefined variable that is an error in a list, too, where others are written as the word "Undefined"."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)  # raises


def regex_replace(text: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, text, count=count)


def letter_choices(choices: Sequence[object], sep: str = "\n", style: str = ". ") -> str:
    """The choices, each with its letter (as in lm-eval 0.5)."""
    return sep.join(f"{chr(65 + number)}{style}{choice}" for number, choice in enumerate(choices))


def answer_key_to_index(key: object, labels: Sequence[object] | None = None) -> int:
    """The index of an answer key: its position among the labels, else in the alphabet."""
    return list(labels).index(key) if labels is not None else ord(str(key).strip().upper()) - 65


TASK_FILTERS: Mapping[str, Callable[..., Any]] = {
    "regex_replace": regex_replace, "letter_choices": letter_choices, "answer_key_to_index": answer_key_to_index,
}  # fmt: skip
"""Filters of the templates of tasks, beside Jinja's."""


class Sandbox(SandboxedEnvironment):
    """The environment of templates that others wrote. `trim` removes lines that hold a block alone."""

    def __init__(
        self,
        undefined: type[JinjaUndefined] = JinjaUndefined,
        filters: Mapping[str, Callable[..., Any]] | None = None,
        *,
        trim: bool = False,
    ) -> None:
        super().__init__(undefined=undefined, keep_trailing_newline=True, trim_blocks=trim, lstrip_blocks=trim)
        self.filters |= filters or {}
        self._settings = undefined, filters, trim

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all(_COMPUTED):
            node.__dict__["as_const"] = _not_now
        return tree

    def renderer(self, text: str, *, whole: bool = False) -> Render:
        """A function that renders a template. With `whole` the values are complete, with Jinja's own functions."""
        return alarmed(TIME_LIMIT, "the template", self._renderer, text, whole)

    def variables(self, text: str) -> set[str]:
        """The variables that a template uses and does not set."""
        return alarmed(TIME_LIMIT, "the template", lambda: meta.find_undeclared_variables(self.parse(text)))

    def _renderer(self, text: str, whole: bool) -> Render:
        tree = self.parse(text)
        render = self.render_here(tree, whole=whole)
        if is_simple(tree):
            return render
        draws = "random" in text or "lipsum" in text
        elsewhere = Renderer("the template", _render_text, text, *self._settings, draws=draws)
        used, usual, seconds = meta.find_undeclared_variables(tree), self.globals, TIME_LIMIT

        def render_limited(values: Values) -> str:
            """One that takes too long for every document gets a shorter limit each time, so that checks and runs end."""
            nonlocal seconds
            own = {name: values[name] for name in used if name in values and values[name] is not usual.get(name)}
            try:
                rendered = elsewhere(own, seconds)
            except CannotTravel:  # a user's objects, whose code runs here anyway
                rendered = alarmed(seconds, "the template", render, values)
            except TimeoutError:
                seconds = max(seconds / 2, MIN_SECONDS)
                raise
            seconds = TIME_LIMIT
            if len(rendered) > MAX_RENDERED:
                raise ValueError(f"the template gives more than {MAX_RENDERED >> 20} million characters")
            return rendered

        return render_limited

    def render_here(self, tree: nodes.Template, *, whole: bool = False) -> Render:
        """A function that renders a template in this process, without limits."""
        template = self.from_string(tree)
        root, name, blocks = template.root_render_func, template.name, template.blocks
        # Jinja would merge the same globals into every row, at three times the cost of the rendering, and list their names
        added = None if whole else template.globals

        def render(values: Values) -> str:
            return "".join(root(new_context(self, name, blocks, values, whole, added)))  # type: ignore[arg-type]  # copied if not whole

        return render


def _render_text(
    text: str, undefined: type[JinjaUndefined], filters: Mapping[str, Callable[..., Any]] | None, trim: bool
) -> Render:
    """A function that renders a template: made in the process with limits."""
    sandbox = Sandbox(undefined, filters, trim=trim)
    return sandbox.render_here(sandbox.parse(text))


def _not_now(*_: object) -> None:
    raise nodes.Impossible


def is_simple(tree: nodes.Template) -> bool:
    """Whether a template takes no longer, and gives no more, than a few times what a document and its own text are.

    >>> simple = lambda text: is_simple(Sandbox().parse(text))
    >>> simple("{{q.strip()}}{% for c in choices %}{{loop.index}}. {{c}}{% endfor %}"), simple("{{'x' * 10**10}}")
    (True, False)
    """
    return (
        all(isinstance(each, nodes.For) and _is_simple_loop(each) for each in tree.find_all(_LOOPS))
        and not any(isinstance(each, nodes.Mul | nodes.Pow | nodes.Mod) for each in tree.find_all(nodes.BinExpr))
        and all(each.name in _SIMPLE_FILTERS and not _is_growing(each) for each in tree.find_all(nodes.Filter))
        and all(_is_method(each) and not _is_growing(each) for each in tree.find_all(nodes.Call))
    )


def _is_simple_loop(loop: nodes.For) -> bool:
    """Whether a loop is over something that a document has, and shows no more of it than what it is at."""
    if loop.recursive or next(loop.iter.find_all((nodes.Call, nodes.Filter)), None) is not None:
        return False
    inside = [node for part in loop.body for node in (part, *part.find_all(nodes.Node))]
    if any(isinstance(node, nodes.For | nodes.Assign) for node in inside):
        return False
    own = {
        "loop",
        *(name.name for name in (loop.target, *loop.target.find_all(nodes.Name)) if isinstance(name, nodes.Name)),
    }
    items = {id(node.node) for node in inside if isinstance(node, nodes.Getitem)}
    return all(node.name in own or id(node) in items for node in inside if isinstance(node, nodes.Name))


def _is_method(call: nodes.Call) -> bool:
    return isinstance(call.node, nodes.Getattr) and call.node.attr in _SIMPLE_METHODS


def _is_growing(call: nodes.Call | nodes.Filter) -> bool:
    """Whether a call of `replace` or `join` may multiply what it is applied to."""
    name = call.name if isinstance(call, nodes.Filter) else getattr(call.node, "attr", "")
    sizes = [len(str(each.value)) if isinstance(each, nodes.Const) else MAX_RENDERED for each in call.args]
    if name == "replace":
        return len(sizes) < 2 or bool(call.kwargs) or sizes[1] > max(sizes[0], 1) or sizes[0] in (0, MAX_RENDERED)
    separator = getattr(call.node, "node", None) if isinstance(call, nodes.Call) else nodes.Const("")
    return name == "join" and (not isinstance(separator, nodes.Const) or len(str(separator.value)) > 16)
