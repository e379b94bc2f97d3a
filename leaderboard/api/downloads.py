"""Exports: whole lists as files, streamed, and the archive of a release."""

from django.http import FileResponse, HttpRequest, StreamingHttpResponse
from ninja import Query, Router
from pydantic import Field

from leaderboard import exports
from leaderboard.api import catalogue_schemas, params, schemas
from leaderboard.api.answers import answer_stream, find_release, reading, snapshot_of
from leaderboard.boards.listing import filter_cells
from leaderboard.release_archive import write_archive

CSV, NDJSON, GZIP = "text/csv; charset=utf-8; header=present", "application/x-ndjson", "application/gzip"
router = Router()


class MeasurementQuery(params.ReleaseQuery):
    """Parameters of ``/measurements.ndjson``."""

    deck: params.Deck | None = Field(None, description="deck id")
    gpu: params.Gpu | None = Field(None, description="GPU key")
    problem: params.Text | None = Field(None, description="problem id")
    model: params.Text | None = Field(None, description="model slug")


@router.get("/cells.csv", summary="Cells as CSV", operation_id="export_cells_csv", response=reading(schemas.Cell))
def export_cells_csv(request: HttpRequest, query: Query[params.CellFilters]) -> StreamingHttpResponse:
    """Return the matching cells of a release as CSV that no spreadsheet takes for formulas."""
    snapshot = snapshot_of(request, query.release)
    lines = exports.cell_table(filter_cells(snapshot.cells, query.chosen()))
    return answer_stream(exports.join_text(lines), CSV, f"proofline-cells-release-{snapshot.release or 0}.csv")


@router.get(
    "/cells.ndjson", summary="Cells as NDJSON", operation_id="export_cells_ndjson", response=reading(schemas.Cell)
)
def export_cells_ndjson(request: HttpRequest, query: Query[params.CellFilters]) -> StreamingHttpResponse:
    """Return the matching cells of a release, one JSON object a line."""
    snapshot = snapshot_of(request, query.release)
    lines = exports.cell_lines(snapshot, query.chosen())
    return answer_stream(exports.join_lines(lines), NDJSON, f"proofline-cells-release-{snapshot.release or 0}.ndjson")


@router.get("/runs.csv", summary="Runs as CSV", operation_id="export_runs_csv", response=reading(schemas.RunLine))
def export_runs_csv(request: HttpRequest, query: Query[params.Filters]) -> StreamingHttpResponse:
    """Return the matching visible runs as CSV, in order of run id."""
    lines = exports.run_table(query.chosen(), request.moment)  # type: ignore[attr-defined]
    return answer_stream(exports.join_text(lines), CSV, "proofline-runs.csv")


@router.get(
    "/runs.ndjson", summary="Runs as NDJSON", operation_id="export_runs_ndjson", response=reading(schemas.RunLine)
)
def export_runs_ndjson(request: HttpRequest, query: Query[params.Filters]) -> StreamingHttpResponse:
    """Return the matching visible runs, one JSON object a line, in order of run id."""
    lines = exports.run_lines(query.chosen(), request.moment)  # type: ignore[attr-defined]
    return answer_stream(exports.join_lines(lines), NDJSON, "proofline-runs.ndjson")


@router.get(
    "/measurements.ndjson",
    summary="Measurements as NDJSON",
    operation_id="export_measurements",
    response=reading(catalogue_schemas.Measurement),
)
def export_measurements(request: HttpRequest, query: Query[MeasurementQuery]) -> StreamingHttpResponse:
    """Return every timing line of the published runs of a release, as printed, one JSON object a line."""
    release = find_release(query.release)
    lines = exports.measurement_lines(release, query.dict(exclude_none=True), request.moment)  # type: ignore[attr-defined]
    number = release.number if release else 0
    return answer_stream(exports.join_lines(lines), NDJSON, f"proofline-measurements-release-{number}.ndjson")


@router.get(
    "/releases/{number}/archive.tar.gz",
    summary="Archive of a release",
    operation_id="get_release_archive",
    response=reading(schemas.Cell),
)
def get_release_archive(request: HttpRequest, number: params.Number) -> FileResponse:
    """Return one archive: cells, runs, measurements, schemas, licence, Croissant metadata, citation, checksums."""
    release = find_release(number)
    file, digest = write_archive(release, request.public_state, request.moment)  # type: ignore[attr-defined, arg-type]
    response = FileResponse(file, as_attachment=True, filename=f"proofline-release-{number}.tar.gz", content_type=GZIP)
    response["Repr-Digest"] = f"sha-256=:{digest}:"
    return response
