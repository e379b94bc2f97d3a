"""The tables. Catalogue and evidence are written by ingest, assessments by recompute, publication by publishing."""

from leaderboard.models.access import ApiToken
from leaderboard.models.catalogue import Deck, Entrant, Gpu, LanguageModel, Problem
from leaderboard.models.evidence import Audit, Blob, Rejection, Run
from leaderboard.models.judgement import Assessment, Finding
from leaderboard.models.publication import Decision, Publication, Release, ReleasedCell, Waiver
from leaderboard.models.revision import Revision
from leaderboard.models.signatures import SharedKey, Signature
from leaderboard.models.verification import (
    Calibration,
    GradeEvent,
    GradeJob,
    Host,
    HostGpu,
    HostState,
    SeenMessage,
    Verification,
)

__all__ = [
    "ApiToken",
    "Assessment",
    "Audit",
    "Blob",
    "Calibration",
    "Decision",
    "Deck",
    "Entrant",
    "Finding",
    "Gpu",
    "GradeEvent",
    "GradeJob",
    "Host",
    "HostGpu",
    "HostState",
    "LanguageModel",
    "Problem",
    "Publication",
    "Rejection",
    "Release",
    "ReleasedCell",
    "Revision",
    "Run",
    "SeenMessage",
    "SharedKey",
    "Signature",
    "Verification",
    "Waiver",
]
