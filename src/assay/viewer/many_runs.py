"""The routes over many runs: matrix, metric over time or training steps, scatter; each as a page, CSV, JSON and SVG."""

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from assay.report.drawing import as_svg
from assay.viewer.library import RunLibrary
from assay.viewer.matrix import LONG, as_csv, build_matrix, draw_matrix, matrix_json, matrix_page, matrix_rows

View = Callable[[QueryParams], tuple[str, dict[str, Any]]]
TYPES = {"csv": "text/csv", "json": "application/json", "svg": "image/svg+xml"}
Content = Callable[[RunLibrary, QueryParams], str | bytes]


def many_runs_pages(library: RunLibrary) -> dict[str, View]:
    """The pages by path, each with its template and content."""
    pages = {"matrix": matrix_page}
    return {f"/{name}": partial(_page, f"{name}.html", make, library) for name, make in pages.items()}


def _page(
    template: str, make: Callable[[RunLibrary, QueryParams], dict[str, Any]], library: RunLibrary, query: QueryParams
) -> tuple[str, dict[str, Any]]:
    return template, make(library, query)


def many_runs_files(library: RunLibrary) -> dict[str, Callable[[Request], Response]]:
    """The files by path."""
    return {
        f"/{page}.{kind}": partial(_file, f"{page}.{kind}", make, library)
        for page, kinds in FILES.items()
        for kind, make in kinds.items()
    }


def _file(name: str, make: Content, library: RunLibrary, request: Request) -> Response:
    kind = name.rpartition(".")[2]
    headers = {"content-disposition": f'{"inline" if kind == "svg" else "attachment"}; filename="{name}"'}
    return Response(make(library, request.query_params), media_type=TYPES[kind], headers=headers)


def _matrix_csv(library: RunLibrary, query: QueryParams) -> str:
    return as_csv(LONG, matrix_rows(build_matrix(library, query)))


def _matrix_json(library: RunLibrary, query: QueryParams) -> bytes:
    return orjson.dumps(matrix_json(build_matrix(library, query)), option=orjson.OPT_INDENT_2)


def _matrix_svg(library: RunLibrary, query: QueryParams) -> str:
    return as_svg(draw_matrix(build_matrix(library, query)))


FILES: dict[str, dict[str, Content]] = {
    "matrix": {"csv": _matrix_csv, "json": _matrix_json, "svg": _matrix_svg},
}
