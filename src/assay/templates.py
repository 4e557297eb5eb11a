"""Jinja templates of task files, formats, judges and tokenizers: sandboxed, and limited in time, memory and output.

Whoever writes a template may not stop or fill the machine of whoever validates or runs it. Templates without loops, macros
and operations that make much out of little cannot, and are rendered without any cost. Others are rendered under an alarm and
a limit on memory. Expressions are never computed while a template is compiled, where nothing says whose fault it is.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2.runtime import new_context
from jinja2.sandbox import SandboxedEnvironment

from assay.memory_turns import limiting_memory
from assay.user_code import TIME_LIMIT, alarmed, in_main_thread

P = ParamSpec("P")
T = TypeVar("T")
Values = Mapping[str, Any]
MAX_RENDERED = 64 * 2**20
"""Characters of one rendered template: as many as an answer may have bytes, and more than any model reads."""
MAX_MEMORY = 512 * 2**20
"""Bytes that a template may take while it is rendered: 64 Mi characters, of up to four bytes, in pieces and joined."""
MAX_REASON = 500
"""Characters of the reason that a template failed: it may name what the template made."""
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
RENDER_ERRORS = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, NameError, re.error,
    RuntimeError, MemoryError, TimeoutError,
)  # fmt: skip
"""Errors that a template may raise for a document."""
COMPILE_ERRORS = (*RENDER_ERRORS, SyntaxError)


class Undefined(StrictUndefined):
    """An undefined variable that is an error in a list, too, where others are written as the word "Undefined"."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)  # raises


class Sandbox(SandboxedEnvironment):
    """The environment of templates that others wrote."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all(_COMPUTED):
            node.__dict__["as_const"] = _not_now
        return tree

    def renderer(self, text: str, *, whole: bool = False) -> Callable[[Values], str]:
        """A function that renders a template. With `whole` the values are complete, with Jinja's own functions."""
        return limited(TIME_LIMIT, "the template", self._renderer, text, whole)

    def variables(self, text: str) -> set[str]:
        """The variables that a template uses and does not set."""
        return limited(TIME_LIMIT, "the template", lambda: meta.find_undeclared_variables(self.parse(text)))

    def _renderer(self, text: str, whole: bool) -> Callable[[Values], str]:
        tree = self.parse(text)
        template = self.from_string(tree)
        root, name, blocks = template.root_render_func, template.name, template.blocks
        # Jinja would merge the same globals into every row, at three times the cost of the rendering, and list their names
        added = None if whole else template.globals

        def render(values: Values) -> str:
            return "".join(root(new_context(self, name, blocks, values, whole, added)))  # type: ignore[arg-type]  # copied if not whole

        seconds = TIME_LIMIT

        def render_limited(values: Values) -> str:
            """One that takes too long for every document gets a shorter limit each time, so that checks and runs end."""
            nonlocal seconds
            try:
                rendered = limited(seconds, "the template", render, values)
            except TimeoutError:
                seconds = max(seconds / 2, MIN_SECONDS)
                raise
            seconds = TIME_LIMIT
            if len(rendered) > MAX_RENDERED:
                raise ValueError(f"the template gives more than {MAX_RENDERED >> 20} million characters")
            return rendered

        return render if is_simple(tree) else render_limited


def reason(error: BaseException) -> str:
    """The reason that a template failed, in words."""
    if isinstance(error, RecursionError):
        return "the template is nested too deeply, or calls itself without end"
    said = str(error) or type(error).__name__
    return said if len(said) <= MAX_REASON else f"{said[:MAX_REASON]}…"


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


def limited(seconds: float, what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function with a limit on time and memory: a TimeoutError or a MemoryError says that it was reached.

    Other threads than the main one have neither: alarms reach only that one, and two could not set limits for each other.
    """
    if not in_main_thread() or sys.platform != "linux":
        return alarmed(seconds, what, function, *args, **kwargs)
    with limiting_memory():
        return _with_less_memory(seconds, what, function, *args, **kwargs)


def _with_less_memory(seconds: float, what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    import resource

    limits = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = [each for each in (soft, hard) if each != resource.RLIM_INFINITY]
    for again in (False, True):
        known = _mapped(again=again)
        resource.setrlimit(resource.RLIMIT_AS, (min([known + MAX_MEMORY, *allowed]), hard))
        try:
            return alarmed(seconds, what, function, *args, **kwargs)
        except TimeoutError as error:
            stopped = str(error)
        except MemoryError:
            stopped = ""
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
        # out of the handlers: errors hold, with their frames, all that the function had made
        if stopped:
            raise TimeoutError(stopped)
        if _mapped(again=True) < known + MAX_MEMORY // 8:
            break  # else libraries have mapped more since the address space was last read
    raise MemoryError(f"{what} takes more than {MAX_MEMORY >> 20} MB of memory")


_known: tuple[float, int] = (0.0, 0)


def _mapped(*, again: bool) -> int:
    """The address space of this process in bytes, read once in a while: reading takes as long as rendering."""
    global _known
    now = time.monotonic()
    if again or now > _known[0]:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
        _known = (now + 0.1, pages * os.sysconf("SC_PAGE_SIZE"))
    return _known[1]
