"""The shapes of catalogue, release, finding and upload answers."""

from typing import Any, Literal

from leaderboard.api.schemas import FullFinding, Metric, Reading, Shape, Strict


class ModelLinks(Strict):
    """Where to read more."""

    model: str


class LanguageModel(Strict):
    """A language model, or a named baseline."""

    slug: str
    name: str
    lab: str | None
    is_baseline: bool
    links: ModelLinks


class ModelList(Strict):
    """All models with visible runs."""

    results: list[LanguageModel]


class ProblemMetric(Metric):
    """How a problem is scored; formulas are over the names of its shapes."""

    regime: str | None
    dtype: str | None
    flops: str | None
    bytes: str | None
    floor_flops: str | None
    floor_bytes: str | None
    may_exceed_one: str | None


class ProblemLinks(Strict):
    """Where to read more."""

    problem: str


class ProblemEntry(Strict):
    """One problem of a deck."""

    deck: str
    problem: str
    title: str
    operation: str
    version: str
    is_retired: bool
    metric: ProblemMetric
    shapes: list[dict[str, Any]]
    links: ProblemLinks


class ProblemList(Strict):
    """All problems."""

    results: list[ProblemEntry]


class PeakTable(Strict):
    """A GPU's dense peaks, from a date on."""

    version: int
    since: str
    source: str
    tflops: dict[str, float]
    bandwidth_gbps: float | None


class GpuEntry(Strict):
    """One hardware target."""

    key: str
    name: str
    sm: str | None
    memory_gb: float | None
    peaks: list[PeakTable]


class GpuList(Strict):
    """All GPUs."""

    results: list[GpuEntry]


class ReleaseLinks(Strict):
    """Where to read more, and the archive of the release."""

    release: str
    archive: str


class Release(Strict):
    """A release. Its digest is of what it held when it was made; what is shown of it may be less."""

    number: int
    digest: str
    note: str
    created_at: str
    links: ReleaseLinks


class ReleaseWithCells(Release):
    """A release with its number of cells by status, as released."""

    cells: dict[str, int]


class ReleaseList(Strict):
    """All releases."""

    results: list[Release]


class RunLink(Strict):
    """Where the finding's numbers are."""

    run: str


class Finding(Strict):
    """What a rule says of a run, without numbers."""

    id: int
    code: str
    severity: str
    title: str
    file: str | None
    line: int | None
    run: str
    links: RunLink


class FindingPage(Strict):
    """Some findings."""

    count: int
    results: list[Finding]
    next: str | None


class Measurement(Strict):
    """One line of `measurements.ndjson`: one shape's timing in one variant, as printed, of a published run."""

    deck: str
    gpu: str
    run_id: str
    problem: str
    entrant: str
    file: str
    shape: str
    variant: str
    source: str
    readings: list[Reading]


class UploadedRun(Strict):
    """What became of one run of a bundle; all but the first four are null where it was already held."""

    deck: str
    gpu: str
    run_id: str
    outcome: Literal["new", "held"]
    standing: str | None
    blockers: list[str] | None
    recomputed: list[float | None] | None
    reported: str | None
    agrees: bool | None
    reason: str | None
    shapes: list[Shape] | None
    findings: list[FullFinding] | None


class UploadedAudit(Strict):
    """What became of one audit; `run` is null until the run it means is known."""

    file: str
    outcome: Literal["new", "held"]
    status: str
    verdict: str
    run: str | None


class UploadReport(Strict):
    """What an upload did, or would do."""

    is_dry_run: bool
    runs: list[UploadedRun]
    audits: list[UploadedAudit]
