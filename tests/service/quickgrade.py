"""A grader for tests of the service: takes the arguments of the real one and leaves an honest-looking archive at once.

``quickgrade.py [--pause S] [--ms MS] [--wrong] [--silent] PROBLEM ...``: how long it takes, which time it claims,
whether the answers are wrong, whether it leaves nothing.
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import msgspec

from grading.cpushapes import shapes_for
from grading.evidence import EVIDENCE_SCHEMA, GRADER_VERSION, Call, Evidence, Intake, PassEvidence, ShapeEvidence
from grading.problem import load_decks
from grading.warden.bundles import bundle_of_archive, bundle_of_reference
from grading.warden.intake import bundle_digest

WALLED = {
    "namespaces": ["mount", "pid", "net", "ipc", "uts"],
    "missing": {},
    "root": "own",
    "uid": 61000,
    "seccomp": 45,
}


def main() -> int:
    options = parse()
    problem = load_decks(options.decks)[options.problem.split("/")[0]].problems[options.problem.split("/")[1]]
    if options.archive is not None:
        bundle = bundle_of_archive(problem, options.archive)
    else:
        bundle = bundle_of_reference(problem, options.reference, options.decks)
    shapes = shapes_for(problem, options.device)
    for index in range(len(shapes)):
        sys.stderr.write(f"   0.0 s  pass 1: shape {index}\n")
        sys.stderr.flush()
        time.sleep(options.pause / len(shapes))
    if options.silent:
        sys.stderr.write("error: nothing came of it\n")
        return 4
    evidence = Evidence(
        schema=EVIDENCE_SCHEMA,
        grader_version=GRADER_VERSION,
        problem=problem.key,
        problem_version=problem.version,
        reference_digest=hashlib.sha256(
            (options.decks / problem.deck / problem.id / "reference.py").read_bytes()
        ).hexdigest(),
        device=options.device,
        device_name="CPU",
        tier=options.tier,
        started_at="2026-11-30T12:00:00+00:00",
        intake=Intake(
            digest=bundle_digest(bundle.files), files=sorted(bundle.files), refused=[], forbidden=[], is_exempt=False
        ),
        forbidden_calls=[],
        passes=[
            make_pass(number, shapes, ms=options.ms, is_wrong=options.wrong)
            for number in range(1, 3 if options.tier == "full" else 2)
        ],
    )
    folder = options.out / problem.deck / options.gpu / "20261130_120000_proofline-grade_x_y"
    folder.mkdir(parents=True)
    (folder / "evidence.json").write_bytes(msgspec.json.encode(evidence))
    (folder / "candidate-output-1.log").write_bytes(b"hello\n")
    return 0


def make_pass(number: int, shapes: list[dict[str, float]], *, ms: float | list[float], is_wrong: bool) -> PassEvidence:
    """Return a pass whose every call takes so long, by shape where a list is given."""
    times = ms if isinstance(ms, list) else [ms] * len(shapes)
    return PassEvidence(
        number=number,
        ended="complete",
        at="end",
        detail="",
        signal=None,
        commitment="0" * 64,
        secret="0" * 64,
        plan_seed=1,
        changed_at_import=[],
        changed_at_end=[],
        isolation={"oracle": WALLED, "worker": WALLED},
        output_bytes=0,
        shapes=[make_shape(shape, time_ms, is_wrong=is_wrong) for shape, time_ms in zip(shapes, times, strict=True)],
        steps=["end"],
        calibration_before_ms=None,
    )


def make_shape(shape: dict[str, float], ms: float, *, is_wrong: bool) -> ShapeEvidence:
    ns = int(ms * 1e6)
    calls = [
        Call(
            number=number,
            group="timed",
            kind="nominal",
            name="",
            slot=0,
            done_ns=ns,
            snap_ns=ns,
            claim_ns=ns,
            ratio=7.0 if is_wrong else 0.1,
            bad=3 if is_wrong else 0,
            form=None,
            hash=f"{number:032x}",
            inputs_intact=True,
            poison_left=0,
        )
        for number in range(10)
    ]
    sizes = {name: float(value) for name, value in shape.items()}
    return ShapeEvidence(shape=sizes, noop_done_ns=[1000] * 6, noop_snap_ns=[1000] * 6, calls=calls)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--ms", type=float, default=1.0)
    for name in ("wrong", "silent", "json"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("archive", "decks", "out"):
        parser.add_argument(f"--{name}", type=Path)
    for name in ("reference", "device", "gpu", "tier"):
        parser.add_argument(f"--{name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
