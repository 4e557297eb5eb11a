"""The routes over many runs: matrix, metric over time or training steps, scatter; each as a page, CSV and SVG."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from assay.catalog.index import no_collector
from assay.config.record_json import json_keys, json_values
from assay.report.drawing import Drawing, as_svg
from assay.report.table_writers import csv_text
from assay.viewer.library import RunLibrary
from assay.viewer.matrix import MatrixNumber, build_matrix, draw_matrix, matrix_numbers, matrix_page
from assay.viewer.pages import MissingPage
from assay.viewer.trends import (
    P,
    ScatterPoint,
    Shown,
    TrendPoint,
    draw_scatter,
    draw_trend,
    scatter,
    scatter_page,
    trend,
    trend_page,
)

View = Callable[[QueryParams], tuple[str, dict[str, Any]]]
TYPES = {"csv": "text/csv", "svg": "image/svg+xml"}
Content = Callable[[RunLibrary, QueryParams], str]


def many_runs_pages(library: RunLibrary) -> dict[str, View]:
    """The pages by path, each with its template and content."""
    pages = {"matrix": matrix_page, "trend": trend_page, "scatter": scatter_page}
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
    library.read_all()
    with no_collector():
        text = make(library, request.query_params)
    return Response(text, media_type=TYPES[kind], headers=headers)


def _as_csv(kind: type, records: Iterable[object]) -> str:
    """Records of a kind as CSV."""
    return csv_text(json_keys(kind), ([*json_values(record).values()] for record in records))


def _matrix_csv(library: RunLibrary, query: QueryParams) -> str:
    return _as_csv(MatrixNumber, matrix_numbers(build_matrix(library, query)))


def _matrix_svg(library: RunLibrary, query: QueryParams) -> str:
    return as_svg(draw_matrix(build_matrix(library, query)))


def _table(kind: type[P], make: Callable[[RunLibrary, QueryParams], Shown[P]]) -> Content:
    """The numbers of a chart."""
    return lambda library, query: _as_csv(kind, make(library, query).points)


def _drawn(
    make: Callable[[RunLibrary, QueryParams], Shown[P]], drawing: Callable[[Shown[P]], Drawing | None]
) -> Content:
    def as_file(library: RunLibrary, query: QueryParams) -> str:
        drawn = drawing(make(library, query))
        if drawn is None:
            raise MissingPage("no run has a number to draw")
        return as_svg(drawn)

    return as_file


FILES: dict[str, dict[str, Content]] = {
    "matrix": {"csv": _matrix_csv, "svg": _matrix_svg},
    "trend": {"csv": _table(TrendPoint, trend), "svg": _drawn(trend, draw_trend)},
    "scatter": {"csv": _table(ScatterPoint, scatter), "svg": _drawn(scatter, draw_scatter)},
}
