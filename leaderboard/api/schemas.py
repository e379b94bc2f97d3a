"""The shapes of answers, for OpenAPI. Routes answer ready JSON from representation.py; tests hold the two together."""

from typing import Any, Literal

import msgspec
from ninja import Schema
from pydantic import ConfigDict, Field, create_model

from grading import record

Score = float | None
Interval = tuple[float, float] | None
Standing = Literal["published", "withheld", "failed"]


class Strict(Schema):
    """An object that has these fields, all of them, and no other."""

    model_config = ConfigDict(extra="forbid")


def mirror(struct: type[msgspec.Struct], *names: str) -> Any:
    """Return the schema of a struct of grading/record.py, so that ingest and the API cannot differ."""
    hints = {field.name: field.type for field in msgspec.structs.fields(struct)}
    chosen = {name: (hints[name], ...) for name in names or hints}
    return create_model(struct.__name__, __base__=Strict, **chosen)


Usage = mirror(record.Usage)
ArchiveFile = mirror(record.ArchiveFile)
Reading = mirror(record.Reading)


class ErrorPart(Strict):
    """One part of a request that is at fault."""

    path: str
    message: str


class Problem(Strict):
    """An RFC 9457 document."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="stable; listed on the documentation page")
    field: str | None
    errors: list[ErrorPart]


class Metric(Strict):
    """What a score is."""

    kind: str
    unit: str
    higher_is_better: bool


class ModelName(Strict):
    """A language model, named."""

    slug: str
    name: str
    lab: str | None


class Entrant(Strict):
    """Model, harness and effort."""

    id: str
    model: ModelName
    harness: str
    effort: str = Field(description="empty = the default effort")


class AuditSummary(Strict):
    """The audit of a cell's run. The summary of a withheld run stands on its own run resource only."""

    verdict: str
    summary: str | None
    auditor: str | None
    at: str | None


class Reason(Strict):
    """Why there is no score; never a number of the run."""

    code: str
    message: str


class Verification(Strict):
    """Our own grade of a run, made from its source on a GPU of ours."""

    verdict: str = Field(description="the grader's word")
    outcome: Literal["passed", "failed", "inconclusive"]
    tier: Literal["quick", "full"]
    gpu: str
    at: str
    ratio: float | None = Field(description="our time over the published one, geometric mean; null unless it is shown")
    gpu_seconds: float | None = Field(
        description="for how long it held its GPU, where its evidence says and it is shown"
    )
    counts: bool = Field(
        description="made on the run's own GPU, of its present source, with a time; else it proves the answer only"
    )


class CellLinks(Strict):
    """Where to read more."""

    run: str
    api_run: str
    board: str


class Cell(Strict):
    """One entrant on one problem and GPU. Unknown and withheld are null, never 0."""

    id: str
    deck: str
    problem: str
    gpu: str
    entrant: Entrant
    status: Standing
    metric: Metric
    score: Score
    interval: Interval = Field(description="what the printed digits allow")
    rank: tuple[int, int] | None = Field(description="best and worst place that the intervals allow")
    share_of_best: Score
    run_id: str
    framework: str | None = Field(description="what the source is written in, such as `cuda+triton`")
    audit: AuditSummary | None
    verification: Verification | None
    reasons: list[Reason]
    release: int
    links: CellLinks


class RunLinks(Strict):
    """Where to read more."""

    run: str


class RunLine(Strict):
    """A run as lists show it."""

    deck: str
    gpu: str
    run_id: str
    problem: str
    entrant: Entrant
    status: Literal["published", "withheld", "failed", "pending"]
    score: Score
    interval: Interval
    verdict: str | None
    reasons: list[Reason]
    started_at: str | None
    framework: str | None
    verification: Verification | None
    links: RunLinks


def partial(model: type[Strict], name: str) -> Any:
    """Return the schema of an object that holds some of a model's fields, as ``fields=`` chooses them."""
    config = ConfigDict(extra="forbid", json_schema_extra=lambda schema: schema.pop("required", None))
    made = create_model(name, __base__=model)
    made.model_config = config
    made.model_rebuild(force=True)
    return made


CellPart, RunPart = partial(Cell, "CellPart"), partial(RunLine, "RunPart")


class CellPage(Strict):
    """Some cells of a release."""

    release: int | None
    count: int
    results: list[Cell | CellPart]
    next: str | None


class RunPage(Strict):
    """Some runs."""

    count: int
    results: list[RunLine | RunPart]
    next: str | None


class FullFinding(Strict):
    """A finding with its numbers."""

    code: str
    severity: str
    message: str
    file: str | None
    line: int | None
    data: dict[str, Any]


class FullAudit(Strict):
    """An audit as read."""

    file: str
    status: str
    verdict: str
    verdict_text: str | None
    publishable: str
    blockers: list[str]
    auditor: str | None
    summary: str | None


class ShapeReading(Strict):
    """One printed number, with its line in the log."""

    quantity: str
    text: str
    line: int


class Shape(Strict):
    """One shape of a run: [value, low, high] of its time and value."""

    index: int
    label: str
    value: list[float | None] | None
    ms: list[float | None] | None
    floor_ms: float | None
    floor_bound: str | None
    share_of_attainable: list[float | None] | None
    readings: list[ShapeReading]
    is_consistent: bool


class Evidence(Strict):
    """What the run's files say. It is no result unless `is_result`."""

    is_result: bool
    reported: str | None
    recomputed: list[float | None]
    agrees: bool | None
    reason: str | None
    shapes: list[Shape]
    findings: list[FullFinding]
    audits: list[FullAudit]


class Run(RunLine):
    """A run in full."""

    metric: Metric
    problem_version: str
    peak_version: int
    method_version: str
    evidence_digest: str
    device_name: str | None
    failure_reason: str | None
    session_complete: bool | None
    elapsed_seconds: int | None
    usage: Usage
    files: list[ArchiveFile]
    releases: list[int]
    verifications: list[Verification] = Field(description="every grade of ours, newest first")
    evidence: Evidence
