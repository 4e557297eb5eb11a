"""The web application: an address for every view, each answered with a page that was made here."""

import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

import assay
from assay.errors import AssayError
from assay.report.plots import STYLE, Interval, interval_bar
from assay.runs.run import Number
from assay.viewer.compare_page import Comparisons, compare_page, flips_page
from assay.viewer.graph_page import graph_view
from assay.viewer.guard import Guard, names_for
from assay.viewer.library import Library
from assay.viewer.pages import (
    NotThere,
    Page,
    known_run,
    known_task,
    run_page,
    runs_page,
    sample_page,
    samples_of,
    task_address,
    task_page,
)
from assay.viewer.query import Condition, address, read_wish
from assay.viewer.samples import Database

STATIC = Path(__file__).parent / "static"
AT_ONCE = 3
FILES = {"view.css": "text/css", "view.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_app(folder: Path, host: str = "127.0.0.1") -> Guard:
    """The application over a folder of runs, for a server that listens at `host`."""
    from duckdb import Error

    viewer = Viewer(folder)
    pages = {"/": viewer.runs, "/run": viewer.run, "/task": viewer.task, "/sample": viewer.sample, "/graph": viewer.graph,
             "/compare": viewer.compare, "/flips": viewer.flips}  # fmt: skip
    routes = [Route(path, partial(viewer.page, made), methods=["GET"], name=path) for path, made in pages.items()]
    routes += [
        Route("/filter", viewer.filter, methods=["GET"]),
        Route("/stamp", viewer.stamp, methods=["GET"]),
        Route("/static/plots.css", lambda _: Response(STYLE, media_type="text/css"), methods=["GET"]),
        Route("/static/{name}", static_file, methods=["GET"]),
    ]
    unreadable = partial(viewer.problem, 500, "the samples cannot be read: ")
    missing, failed = partial(viewer.problem, 404, ""), partial(viewer.problem, 500, "")
    handlers: dict[Any, Callable[..., Response]] = {
        NotThere: missing, 404: missing, Error: unreadable, AssayError: failed, Exception: viewer.broken,
    }  # fmt: skip
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=few_at_once), names_for(host))


@asynccontextmanager
async def few_at_once(_: Starlette) -> AsyncIterator[None]:
    """A few pages are made at a time, the others wait: each may take memory of its own."""
    current_default_thread_limiter().total_tokens = AT_ONCE
    yield


class Viewer:
    """The pages over one folder."""

    def __init__(self, folder: Path) -> None:
        self.library = Library(folder)
        self.database = Database(folder)
        self.comparisons = Comparisons()
        self.templates = environment()

    def page(self, made: Callable[[QueryParams], tuple[str, Page]], request: Request) -> Response:
        """A page as HTML."""
        template, shown = made(request.query_params)
        return self._html(template, {"path": request.url.path, "live": "", **shown})

    def problem(self, status: int, before: str, request: Request, error: Exception) -> Response:
        """A page that says what is wrong."""
        told = getattr(error, "detail", None) or str(error)
        return self._html("problem.html", {"path": request.url.path, "live": "", "what": before + told}, status)

    def broken(self, request: Request, error: Exception) -> Response:
        """A page for what nobody thought of; the terminal has more."""
        return self.problem(500, f"the page cannot be made: {type(error).__name__}: ", request, error)

    def _html(self, template: str, shown: Page, status: int = 200) -> Response:
        text = self.templates.get_template(template).render(folder=self.library.folder, **shown)
        return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)  # half a character is told by its number

    def runs(self, query: QueryParams) -> tuple[str, Page]:
        return "runs.html", runs_page(self.library, query)

    def run(self, query: QueryParams) -> tuple[str, Page]:
        return "run.html", run_page(self.library, query)

    def task(self, query: QueryParams) -> tuple[str, Page]:
        return "task.html", task_page(self.library, self.database, query)

    def sample(self, query: QueryParams) -> tuple[str, Page]:
        return "sample.html", sample_page(self.library, self.database, query)

    def compare(self, query: QueryParams) -> tuple[str, Page]:
        return "compare.html", compare_page(self.library, self.comparisons, query)

    def flips(self, query: QueryParams) -> tuple[str, Page]:
        return "flips.html", flips_page(self.library, self.comparisons, query)

    def graph(self, query: QueryParams) -> tuple[str, Page]:
        run = known_run(self.library, query.get("run", ""))
        task = known_task(run, query.get("task", ""))
        drawn, visited, known = graph_view(run, task, samples_of(run, task, self.database), self.database)
        line = run.line(task)
        return "graph.html", {
            "run": run,
            "task": task,
            "line": line,
            "drawn": drawn,
            "visited": visited,
            "known": known,
        }

    def filter(self, request: Request) -> Response:
        """From the form of a condition, to the address that has it: so every list of samples has one."""
        query = request.query_params
        wish = read_wish(query)
        column, operator, value = (query.get(name, "") for name in ("column", "op", "value"))
        added = read_wish(QueryParams([("f", str(Condition(column, operator, value)))])).conditions
        wanted = wish.but(conditions=(*wish.conditions, *added))
        parameters = address("task", wanted.parameters, run=query.get("run"), task=query.get("task"))
        return RedirectResponse(parameters, 303)

    def stamp(self, request: Request) -> Response:
        """A word that changes when what is shown does."""
        return PlainTextResponse(self.library.stamp(request.query_params.getlist("run")))


def static_file(request: Request) -> Response:
    """One of our own files, by its name: nothing else can be had."""
    name = request.path_params["name"]
    if name not in FILES:
        raise NotThere(f"there is no file {name!r:.40}")
    return FileResponse(STATIC / name, media_type=FILES[name])


def environment() -> jinja2.Environment:
    """The templates: whatever stands in a run is text in them, never markup."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    made.filters |= {"number": plain_number, "count": counted, "duration": duration, "when": when, "svg": Markup,
                     "breakable": breakable}  # fmt: skip
    made.globals |= {"address": address, "task_address": task_address, "bar": bar, "version": assay.__version__}
    return made


def breakable(name: str) -> Markup:
    """A name that may go on in the next line behind the signs that part its words.

    >>> breakable("exact_match")
    Markup('exact_<wbr>match')
    """
    return Markup(re.sub(r"(?<=[_+/])(?=.)", "<wbr>", str(escape(name))))


def bar(number: Number) -> Markup:
    """The bar of a number; of one that is no share there is none."""
    if not number.is_share or number.value is None:
        return Markup("")
    return Markup(interval_bar(Interval(number.metric, number.value, number.low, number.high)))


def plain_number(value: Any) -> str:
    """A number with four digits behind the point, or a dash."""
    if value is None or value == "":
        return "–"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"


def counted(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """A time as people say it.

    >>> duration(0.5), duration(75), duration(7300)
    ('0.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def when(created: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created)) if created else ""


def serve(app: Guard, listening: socket.socket) -> None:
    """Serve pages until interrupted."""
    quiet = {"log_level": "warning", "access_log": False, "server_header": False, "date_header": False}
    uvicorn.Server(uvicorn.Config(app, lifespan="on", **quiet)).run(sockets=[listening])  # type: ignore[arg-type]
