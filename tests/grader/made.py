"""Makers of evidence for tests: a clean grade on a GPU, every part of which can be overridden."""

from grading.evidence import (
    EVIDENCE_SCHEMA,
    GRADER_VERSION,
    Call,
    Evidence,
    Intake,
    PassEvidence,
    ShapeEvidence,
)

US = 1000
FULL = {"namespaces": ["mount", "pid", "net", "ipc", "uts"], "root": "own", "uid": 61000, "seccomp": 45}
NOOP = [35 * US] * 20


def make_call(number: int = 1, group: str = "timed", **fields) -> Call:
    given = {
        "kind": "nominal",
        "name": "",
        "slot": 0,
        "done_ns": 130 * US,
        "snap_ns": 135 * US,
        "claim_ns": 100 * US,
        "ratio": 0.2,
        "bad": 0,
        "form": None,
        "hash": "00",
        "inputs_intact": True,
        "poison_left": 0,
    } | fields
    return Call(number=number, group=group, **given)


def make_shape(*calls: Call, **fields) -> ShapeEvidence:
    made = calls or tuple(make_call(number) for number in range(20))
    given = {"shape": {"M": 1.0}, "noop_done_ns": [30 * US] * 20, "noop_snap_ns": NOOP, "calls": list(made)} | fields
    return ShapeEvidence(**given)


def make_pass(number: int = 1, *shapes: ShapeEvidence, **fields) -> PassEvidence:
    given = {
        "ended": "complete",
        "at": "end",
        "detail": "",
        "signal": None,
        "commitment": "c",
        "secret": "s",
        "plan_seed": 1,
        "changed_at_import": [],
        "changed_at_end": [],
        "isolation": {"worker": FULL},
        "output_bytes": 0,
        "shapes": list(shapes or (make_shape(),)),
        "steps": [],
    } | fields
    return PassEvidence(number=number, **given)


def make_evidence(*passes: PassEvidence, **fields) -> Evidence:
    given = {
        "schema": EVIDENCE_SCHEMA,
        "grader_version": GRADER_VERSION,
        "problem": "toy/M",
        "problem_version": "v",
        "reference_digest": "d",
        "device": "cuda:0",
        "device_name": "NVIDIA H200",
        "tier": "full",
        "started_at": "2026-11-30T12:00:00+00:00",
        "intake": Intake(digest="d", files=["solution.py"], refused=[], forbidden=[], is_exempt=False),
        "forbidden_calls": [],
        "passes": list(passes or (make_pass(1), make_pass(2))),
    } | fields
    return Evidence(**given)
