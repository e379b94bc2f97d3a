"""Evidence of a grade: everything that was seen, in a form that newer rules can judge again without a GPU.

Source: docs/grader.md "Evidence".
"""

import msgspec

from grading.problem import Form

EVIDENCE_SCHEMA = 1
GRADER_VERSION = "2"
# Heads the method version of an archive whose times a grade took; the rule ``timing.other_method`` knows it by that.
GRADER_METHOD = "grader-"
# What is written over what still lies in the L2 never reaches the memory, so that a flush moves less than it writes.
_FLUSH_SHARES = (0.7, 1.3)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the candidate.

    group          what the call was for: ``warmup``, ``timed``, ``rotated``, ``repeated_content``, ``same_storage`` ...
    kind, name     the content's kind and case
    done_ns        outside clock from ``go`` to the worker's ``done``
    snap_ns        outside clock from ``go`` to the oracle's copy of the answer
    held_ns        how long the oracle kept the device busy, from about ``go`` on, by its own events
    claim_ns       what the worker says it measured
    ratio          largest error over its bound; None = not finite where the reference is, or no answer
    is_within_deck the deck's own absolute tolerance would have let the answer pass
    moved          for an edit: how far the reference's answer moved, in tolerances
    """

    number: int
    group: str
    kind: str
    name: str
    slot: int
    done_ns: int
    snap_ns: int
    held_ns: int = 0
    claim_ns: int
    ratio: float | None
    bad: int
    form: str | None
    hash: str
    inputs_intact: bool
    poison_left: int
    is_within_deck: bool = False
    class_ratio: float | None = None
    moved: float | None = None
    fault: str | None = None
    fault_text: str | None = None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU's counters while some calls ran: mean shares, in percent, of the memory's peak rate, of the tensor cores'
    time, of the multiprocessors that were busy, between two samples in the midst of them (over all of them in evidence
    before 2026-12-01, 15:00, where a sample's age blurs the shares).

    seconds  from the first call to the last
    """

    calls: int
    seconds: float
    dram_util: float
    tensor_util: float
    sm_util: float


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What calls move between the GPU and its memory, counted from outside (NVML's GPM).

    noop, model       a window of flushes alone, and one of flushes and calls; None where nothing was counted
    peak_bytes_per_s  of the memory, by its clock and its bus, as the counters' shares mean it
    flush_bytes       what one flush writes: a known amount, by which the counters themselves are held
    least_bytes       what no call can avoid to move; None = not known
    unread            why nothing was counted
    """

    noop: Window | None = None
    model: Window | None = None
    peak_bytes_per_s: float = 0.0
    flush_bytes: int = 0
    least_bytes: float | None = None
    unread: str | None = None

    @property
    def dram_bytes(self) -> float | None:
        """Bytes that one call moves beside its flush; None where nothing was counted or a flush counts as another."""
        flushed, share = self._moved(self.noop), self.flush_share
        both = self._moved(self.model)
        if flushed is None or both is None or share is None or not _FLUSH_SHARES[0] <= share <= _FLUSH_SHARES[1]:
            return None
        return max(0.0, both - flushed)

    @property
    def flush_share(self) -> float | None:
        """What a flush moves by the counters, divided by what it writes; None where either is not known."""
        flushed = self._moved(self.noop)
        return flushed / self.flush_bytes if flushed is not None and self.flush_bytes else None

    def _moved(self, window: Window | None) -> float | None:
        if window is None:
            return None
        return window.dram_util / 100 * window.seconds / window.calls * self.peak_bytes_per_s


class ShapeEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One shape in one pass: the calls in order, and the same protocol with a call that does nothing.

    began_s, took_s  seconds from the grade's start to the shape's first call, and from there to its last
    traffic          None where no calls were made for it, as in older evidence
    """

    shape: dict[str, float]
    noop_done_ns: list[int]
    noop_snap_ns: list[int]
    noop_held_ns: list[int] = []
    calls: list[Call]
    census: list[dict[str, str | float | int]] = []
    traffic: Traffic | None = None
    floor_ms: float | None = None
    began_s: float = 0.0
    took_s: float = 0.0


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU between two calls, as NVML says.

    at_s              seconds since the pass began
    throttle          NVML's bit mask of reasons for lower clocks
    worker_processes  compute processes of the candidate's jail; foreign ones by pid
    """

    at_s: float
    sm_mhz: int
    memory_mhz: int
    power_w: float
    temperature_c: int
    throttle: int
    worker_processes: int
    foreign: list[int]


class CodeLook(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's executable memory as the warden saw it once, from outside, against files and the first look.

    at        the step after which it looked; the first look comes before the bundle is imported
    files     libraries whose text was compared, ``text_bytes`` in all
    altered   text that is not the file's any more; ``replaced``: library text that is mapped there no longer
    restored  text that was written to and is the file's again
    slots     addresses of clocks and CUDA calls that point out of every library; ``relro``: libraries unsealed again
    notes     other executable memory that is new, as compilers and closures make it; accuses nobody
    unread    why nothing could be looked at, on a host that does not let the warden
    """

    at: str
    seconds: float
    files: int | None = None
    text_bytes: int | None = None
    altered: list[str] = []
    replaced: list[str] = []
    restored: list[str] = []
    slots: list[str] = []
    relro: list[str] = []
    notes: list[str] = []
    unread: str | None = None


class PassEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One pass: a fresh oracle with a fresh secret, a fresh worker, all shapes.

    ended       ``complete``, or what stopped it: ``build``, ``died``, ``timeout``, ``protocol``, ``output``, ``oracle``
    at          the step at which it stopped
    isolation   by process, what its jail could and could not do

    Empty in older evidence: ``step_seconds``, what each step took on the warden's monotonic clock, and ``mapped_code``,
    the looks at the worker's executable memory.
    """

    number: int
    ended: str
    at: str
    detail: str
    signal: int | None
    commitment: str | None
    secret: str | None
    plan_seed: int | None
    changed_at_import: list[str]
    changed_at_end: list[str]
    isolation: dict[str, dict[str, object]]
    output_bytes: int
    shapes: list[ShapeEvidence]
    steps: list[str]
    writable_inputs: bool = False
    samples: list[DeviceSample] = []
    calibration_before_ms: float | None = None
    calibration_after_ms: float | None = None
    step_seconds: dict[str, float] = {}
    mapped_code: list[CodeLook] = []


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One of the problem's own solutions, timed in a worker of its own before the candidate was imported anywhere.

    variant  ``eager``, ``compiled`` or ``sota``, as the decks' logs call them
    ended    as of a pass; shapes that it did not reach are missing
    """

    variant: str
    digest: str
    ended: str
    detail: str
    shapes: list[ShapeEvidence]


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A shape beside those that the deck lists, asked about after all passes in a worker of its own; nothing is timed.

    ended   ``complete``; ``build``: its model refused the shape; as of a pass where the worker ended with it; or
            ``unreached``, because it had ended before
    """

    shape: dict[str, float]
    ended: str
    detail: str
    calls: list[Call]


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """What was said about the bundle before anything ran.

    form  ``plain``: its model is called with the reference's tensors; ``entry``: through the deck's own entry points
    """

    digest: str
    files: list[str]
    refused: list[str]
    forbidden: list[str]
    is_exempt: bool
    form: Form = "plain"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A whole grade.

    untimed      why no time is claimed, whatever the calls' clocks say; empty where one is
    gpu_seconds  how long the grade held its GPU; None on a processor, and in evidence that is older than it
    gates        measured tolerances that went before the built-in ones of the grader's version
    """

    schema: int
    grader_version: str
    problem: str
    problem_version: str
    reference_digest: str
    device: str
    device_name: str | None
    tier: str
    started_at: str
    intake: Intake
    forbidden_calls: list[str]
    passes: list[PassEvidence]
    baselines: list[Baseline] = []
    neighbours: list[Neighbour] = []
    published_ms: list[float | None] = []
    untimed: str = ""
    gpu_seconds: float | None = None
    gates: dict[str, dict[str, float]] = {}
    host: dict[str, object] = {}


def shape_label(shape: dict[str, float]) -> str:
    """Return a shape as readable text, for example ``M=4096 N=4096 K=4096``."""
    return " ".join(f"{name}={value:g}" for name, value in shape.items())


def read_evidence(data: bytes) -> Evidence:
    """Return recorded evidence. Raises msgspec.ValidationError."""
    return msgspec.json.decode(data, type=Evidence)
