"""A host's worker for tests: it seals what the real one would, and hands it straight to the control side."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from django.utils import timezone

from grading import wire
from grading.cpushapes import shapes_for
from grading.evidence import EVIDENCE_SCHEMA, GRADER_VERSION, CodeLook, DeviceSample, Evidence, Intake
from grading.parcel import pack
from leaderboard.models import GradeJob, HostGpu, HostState
from leaderboard.service import hosts
from leaderboard.service.control import handle
from leaderboard.service.parcels import problem_of, question_of
from tests.service.quickgrade import make_pass

PROBLEM = "05_topk_bitonic"


class Worker:
    """One worker on a host's processor."""

    def __init__(self, host: str, key: str = "CPU") -> None:
        self.key = hosts.add(host, timezone.now())
        self.gpu, self.uuid, self.instance = key, f"{host}-cpu-0", hashlib.md5(host.encode()).hexdigest()[:16]

    @property
    def row(self) -> HostGpu:
        return HostGpu.objects.get(uuid=self.uuid)

    def seal(self, message: Any, *, direction: str = "up", at: float | None = None) -> str:
        text = wire.seal(message, self.key, direction, (self.uuid, self.instance))
        if at is None:
            return text
        return self._sign(msgspec.structs.replace(wire.read_envelope(text), at=at))

    def seal_body(self, body: str) -> str:
        return self._sign(msgspec.structs.replace(wire.read_envelope(self.seal(self.hello())), body=body))

    def _sign(self, envelope: wire.Envelope) -> str:
        signed = msgspec.structs.replace(envelope, mac=wire._sign(envelope, self.key, "up"))
        return msgspec.json.encode(signed).decode()

    def say(self, message: Any) -> Any:
        """Return the control side's answer, after checking that it is ours."""
        text = self.seal(message)
        answer = handle(text)
        if answer is None:
            return None
        envelope = wire.read_envelope(answer.text)
        wire.check_envelope(envelope, self.key, "down", timezone.now().timestamp())
        assert (envelope.nonce, answer.instance) == (wire.read_envelope(text).nonce, self.instance)
        if answer.after is not None:
            answer.after()
        return wire.read_down(envelope)

    def hello(self, **changes: Any) -> wire.Hello:
        said = {
            "gpu": self.gpu,
            "name": "CPU",
            "driver": "",
            "versions": {"python": "3.12.1"},
            "isolation": "A",
            "findings": [wire.Ability(name="jail", is_there=True, sentence="it works")],
            "is_first": True,
        }
        return wire.Hello(**{**said, **changes})

    def say_hello(self, **changes: Any) -> Any:
        return self.say(self.hello(**changes))

    def pass_calibration(self) -> None:
        """Make the GPU healthy as a calibration within the record would."""
        hosts.set_state(self.row, HostState.HEALTHY, "", calibrated_at=timezone.now())

    def ask(self, job: int) -> Any:
        return self.say(wire.Ask(job=job))

    def beat(self, job: int, token: int) -> Any:
        return self.say(wire.Beat(job=job, token=token, step="shape", shape=1, percent=50.0))

    def result(self, job: int, token: int, **changes: Any) -> wire.Result:
        row = GradeJob.objects.select_related("run__problem", "problem").get(pk=job)
        packed = pack(make_archive(row, **changes))
        digest = hashlib.sha256(packed).hexdigest()
        return wire.Result(job=job, token=token, digest=digest, size=len(packed), packed=packed)

    def hand_in(self, job: int, token: int, **changes: Any) -> Any:
        return self.say(self.result(job, token, **changes))


def make_archive(
    job: GradeJob,
    *,
    is_wrong: bool = False,
    ms: float | list[float] = 1.0,
    samples: Sequence[DeviceSample] = (),
    looks: Sequence[CodeLook] = (),
    **changes: Any,
) -> dict[str, bytes]:
    """Return the archive of an honest grade of a job, or of one with wrong answers; changes go to the evidence.

    samples, looks  what NVML said during each pass, and what the looks at its code found
    """
    problem, question = problem_of(job), question_of(job)
    device = "cpu" if question.is_processor else "cuda:0"
    passes = range(1, 3 if job.tier == "full" else 2)
    shapes = shapes_for(problem, device)
    fields = {
        "schema": EVIDENCE_SCHEMA,
        "grader_version": GRADER_VERSION,
        "problem": problem.key,
        "problem_version": problem.version,
        "reference_digest": question.reference_digest,
        "device": device,
        "device_name": "CPU" if question.is_processor else question.gpu.device_names[0],
        "tier": job.tier,
        "started_at": "2026-11-30T12:00:00+00:00",
        "intake": Intake(digest=question.bundle or "", files=[], refused=[], forbidden=[], is_exempt=False),
        "forbidden_calls": [],
        "passes": [
            msgspec.structs.replace(
                make_pass(number, shapes, ms=ms, is_wrong=is_wrong), samples=list(samples), mapped_code=list(looks)
            )
            for number in passes
        ],
    }
    return {"evidence.json": msgspec.json.encode(Evidence(**{**fields, **changes}))}


def accept_record(worker: Worker, person: Any) -> None:
    """Let a worker pass its first calibration and a person accept it."""
    job = GradeJob.objects.get(target=worker.row, state="requested")
    grant = worker.ask(job.pk)
    worker.hand_in(job.pk, grant.token)
    hosts.accept(worker.row, person, timezone.now())
