"""The web application: one URL per view, each answered with a rendered page; and the server that runs it."""

import ctypes
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jinja2
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from assay.catalog.index import no_collector
from assay.errors import AssayError
from assay.number_text import (
    format_count,
    format_decimal,
    format_duration,
    format_money,
    format_signed,
)
from assay.report.drawing import STYLE, Drawing, as_svg
from assay.report.table_writers import write_page_table
from assay.version import __version__
from assay.viewer.compare_page import MAX_RUNS, compare_page, flips_page
from assay.viewer.deadline import DeadlineProtocol
from assay.viewer.downloads import DOWNLOADS, download, file_name
from assay.viewer.events import EventResponse, EventStreams, StreamServer
from assay.viewer.graph_page import graph_page
from assay.viewer.guard import RequestGuard, WritePermit, allowed_hosts
from assay.viewer.json_pages import DOCUMENTS, ProblemDocument, json_bytes, json_path
from assay.viewer.label_page import WRITING, label_page
from assay.viewer.library import ComparisonCache, RunLibrary
from assay.viewer.markup import rendered
from assay.viewer.matrix import FILES, make_file, matrix_page, scatter_page, trend_page
from assay.viewer.pages import (
    MissingPage,
    Page,
    PageSources,
    choices_table,
    format_time,
    run_page,
    runs_page,
    sample_page,
    scores_table,
    task_page,
    task_url,
    timeline_table,
)
from assay.viewer.query import Condition, read_query, url_for
from assay.viewer.samples import Database

STATIC = Path(__file__).parent / "static"
MAX_THREADS = 2
TRIES = 5
"""How often an answer is made at most while the files of its runs change."""
MAX_FIELDS = 50
"""Fields of a form."""
FIRST_TEMPLATES = (
    "page.html",
    "parts.html",
    "task.html",
    "charts.html",
    "runs.html",
    "run.html",
    "matrix.html",
    "sample.html",
)
ARENA_MAX = -8
"""The option of glibc's `mallopt` that is named M_ARENA_MAX."""
JSON = "application/json"
STATIC_FILES = {"view.css": "text/css", "view.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_app(folder: Path, host: str = "127.0.0.1", labeller: str = "") -> RequestGuard:
    """Build the application over a folder of runs, for a server that listens at `host`. With a `labeller`, people may store
    labels and notes beside runs."""
    permit = WritePermit.to(*WRITING) if labeller else None
    viewer = Viewer(folder, permit, labeller)
    pages = PAGES if permit else {path: page for path, page in PAGES.items() if path != "/label"}
    routes = [Route(path, partial(viewer.page, *page), methods=["GET"], name=path) for path, page in pages.items()]
    routes += [
        Route(json_path(path), partial(viewer.json, make, DOCUMENTS[path]), methods=["GET"])
        for path, (_, make) in pages.items()
    ]
    routes += [Route(path, partial(viewer.write, store), methods=["POST"]) for path, store in WRITING.items() if permit]
    routes += [
        Route("/samples.{kind}", viewer.download, methods=["GET"]),
        Route("/filter", viewer.filter, methods=["GET"]),
        Route("/events", viewer.events, methods=["GET"]),
        Route("/static/charts.css", lambda _: Response(STYLE, media_type="text/css"), methods=["GET"]),
        Route("/static/{name}", static_file, methods=["GET"]),
    ]
    routes += [Route(path, partial(make_file, viewer.library, path), methods=["GET"]) for path in FILES]
    unreadable = partial(viewer.problem, 404, "the samples cannot be read: ")
    missing = partial(viewer.problem, 404, "")
    handlers: dict[Any, Callable[..., Response]] = {
        MissingPage: missing, 404: missing, viewer.database.errors: unreadable, AssayError: missing, OSError: missing,
        InvalidForm: partial(viewer.problem, 400, ""), Exception: viewer.broken,
    }  # fmt: skip
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=partial(prepared, viewer.templates))
    return RequestGuard(app, allowed_hosts(host), viewer.streams.close, permit)


@asynccontextmanager
async def prepared(templates: jinja2.Environment, _: Starlette) -> AsyncIterator[None]:
    """Render few pages at a time: each may need its own memory. Load what pages need while the first one is awaited."""
    current_default_thread_limiter().total_tokens = MAX_THREADS
    threading.Thread(target=load_early, args=(templates,), name="load early", daemon=True).start()
    yield


def load_early(templates: jinja2.Environment) -> None:
    """Import libraries and compile templates, which the first page would wait for."""
    import pyarrow as pa

    # others keep a heap for each thread that has ended: a hundred megabytes after some searches
    pa.set_memory_pool(pa.system_memory_pool())
    import_module("pyarrow.parquet")
    for name in FIRST_TEMPLATES:
        templates.get_template(name)
    import_module("pyarrow.compute")  # for searches


class InvalidForm(Exception):
    """A form cannot be read."""


MakePage = Callable[[PageSources, QueryParams], Page]
PAGES: dict[str, tuple[str, MakePage]] = {
    "/": ("runs.html", runs_page), "/run": ("run.html", run_page), "/task": ("task.html", task_page),
    "/sample": ("sample.html", sample_page), "/graph": ("graph.html", graph_page), "/compare": ("compare.html", compare_page),
    "/flips": ("flips.html", flips_page), "/matrix": ("matrix.html", matrix_page), "/trend": ("trend.html", trend_page),
    "/scatter": ("scatter.html", scatter_page), "/label": ("label.html", label_page),
}  # fmt: skip
"""By its path the template of a page, and what gathers its content."""


class Viewer:
    """The pages over one folder."""

    def __init__(self, folder: Path, permit: WritePermit | None = None, labeller: str = "") -> None:
        self.permit = permit
        self.library = RunLibrary(folder)
        self.database = Database(folder)
        self.sources = PageSources(self.library, self.database, ComparisonCache(), labeller)
        self.streams = EventStreams()
        self.templates = template_environment()

    def page(self, template: str, make: MakePage, request: Request) -> Response:
        """Render a page as HTML."""

        def render() -> Response:
            return self._html(request, template, make(self.sources, request.query_params))

        with no_collector():  # a page is many small objects that live as long as it is rendered
            return self._make(request, render)

    def _make(self, request: Request, make: Callable[[], Response]) -> Response:
        """Make an answer from runs that other processes may be writing: if it fails while files are replaced or renamed, it is made
        of those that are there then."""
        names = request.query_params.getlist("run")[:MAX_RUNS]
        for _ in range(TRIES - 1):
            before = self.library.stamps(names)
            try:
                return make()
            except (AssayError, MissingPage, OSError, self.database.errors):
                if self.library.stamps(names) == before:
                    raise
        return make()

    def json(self, make: MakePage, as_document: Callable[[Page], Any], request: Request) -> Response:
        """The content of a page as JSON."""

        def render() -> Response:
            content = make(self.sources, request.query_params)
            if content.get("pending"):
                self.library.read_all()
                content = make(self.sources, request.query_params)
            return Response(json_bytes(as_document(content)), media_type=JSON)

        with no_collector():
            return self._make(request, render)

    async def write(self, store: Callable[[PageSources, Mapping[str, str]], str], request: Request) -> Response:
        """Store the content of a form, and lead to the page that follows."""
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        try:
            pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise InvalidForm(f"a form has at most {MAX_FIELDS} fields") from None
        return RedirectResponse(await run_in_threadpool(store, self.sources, dict(pairs)), 303)

    def download(self, request: Request) -> Response:
        """Stream the samples that a query finds, as a file."""
        return self._make(request, partial(self._download, request))

    def _download(self, request: Request) -> Response:
        kind, query = request.path_params["kind"], request.query_params
        run, task = self.sources.task(query)
        sample_query = read_query(query)
        samples = self.sources.samples(run, task, sample_query.metric)
        if kind not in DOWNLOADS or samples is None:
            raise MissingPage(f"no samples of {task} as {kind!r:.20}")
        headers = {"content-disposition": f'attachment; filename="{file_name(run.name, task, kind)}"'}
        content = iter(()) if request.method == "HEAD" else download(samples, sample_query, kind)
        return StreamingResponse(content, media_type=DOWNLOADS[kind][0], headers=headers)

    def problem(self, status: int, before: str, request: Request, error: Exception) -> Response:
        """Render an error page."""
        message = before + (getattr(error, "detail", None) or str(error))
        if request.url.path.endswith(".json"):
            return Response(json_bytes(ProblemDocument(message)), status, media_type=JSON)
        return self._html(request, "problem.html", {"what": message}, status)

    def broken(self, request: Request, error: Exception) -> Response:
        """Render the page of an unexpected error; the terminal has the traceback."""
        return self.problem(500, f"the page cannot be rendered: {type(error).__name__}: ", request, error)

    def _html(self, request: Request, template: str, content: Page, status: int = 200) -> Response:
        path = request.url.path
        own = json_path(path) if path in DOCUMENTS and status == 200 else ""
        shared = {
            "path": path, "live": "", "folder": self.library.folder, "can_write": self._can_write(request),
            "json_url": f"{own}?{request.url.query}".rstrip("?") if own else "",
        }  # fmt: skip
        text = self.templates.get_template(template).render(**{**shared, **content})
        content.get("release", bool)()  # templates and what they got refer to each other, and stay for a while
        return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)  # a lone surrogate is shown escaped

    def _can_write(self, request: Request) -> bool:
        return self.permit is not None and self.permit.is_held(request.headers)

    def filter(self, request: Request) -> Response:
        """Redirect the filter form to the URL that has the condition, so that every list of samples has a URL."""
        query = request.query_params
        sample_query = read_query(query)
        column, operator, value = (query.get(name, "") for name in ("column", "op", "value"))
        added = read_query(QueryParams([("f", str(Condition(column, operator, value)))])).conditions
        changed = sample_query.replace(conditions=(*sample_query.conditions, *added))
        return RedirectResponse(url_for("task", changed.parameters, run=query.get("run"), task=query.get("task")), 303)

    async def events(self, request: Request) -> Response:
        """Stream an event whenever the shown run changes, or any run where none is named."""
        name = request.query_params.get("run", "")
        return EventResponse(self.streams, name, partial(self.library.state, name))


def static_file(request: Request) -> Response:
    """Serve one of the viewer's files by name; no other file can be requested."""
    name = request.path_params["name"]
    if name not in STATIC_FILES:
        raise MissingPage(f"no file named {name!r:.40}")
    return FileResponse(STATIC / name, media_type=STATIC_FILES[name])


def template_environment() -> jinja2.Environment:
    """Build the Jinja environment: everything a run holds is text in it, never markup."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters |= {
        "number": format_decimal, "signed": format_signed, "count": format_count, "duration": format_duration,
        "when": format_time, "svg": embedded_svg, "rendered": rendered, "clock": format_clock, "money": format_money,
    }  # fmt: skip
    environment.globals |= {
        "url_for": url_for,
        "task_url": task_url,
        "table": write_page_table,
        "choices_table": choices_table,
        "timeline_table": timeline_table,
        "scores_table": scores_table,
        "version": __version__,
    }
    return environment


def embedded_svg(drawing: Drawing) -> Markup:
    """Write a drawing as a part of a page."""
    return Markup(as_svg(drawing, embedded=True))


def format_clock(moment: float) -> str:
    return time.strftime("at %H:%M:%S", time.localtime(moment))


def share_heaps() -> None:
    """Let threads share two heaps where the C library has one for each: one thread cannot use what another has freed."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(ARENA_MAX, 2)


def serve(app: RequestGuard, listening: socket.socket) -> None:
    """Serve pages until interrupted."""
    share_heaps()
    StreamServer(server_config(app), app.close).run(sockets=[listening])


def server_config(app: RequestGuard) -> uvicorn.Config:
    """The settings of the server."""
    quiet = {"log_level": "warning", "access_log": False, "server_header": False, "date_header": False}
    return uvicorn.Config(app, lifespan="on", http=DeadlineProtocol, **quiet)  # type: ignore[arg-type]
