"""What hosts and the control side say to each other: typed messages in signed envelopes, JSON only, limited in size.

A host's key is derived from the site's secret, the host's name and a serial; it signs in both directions. Nothing that
comes from the other side is trusted before its size, form, signature and age were checked, in this order. What a
message means for a job is decided by the job's fencing token, never by the message's arrival.

Source: docs/operate.md "The grading service".
"""

import hashlib
import hmac
import re
import secrets
import time
from typing import Literal

import msgspec

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_INLINE_BYTES = 4 * 1024 * 1024
MAX_AGE_SECONDS = 600
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_KEY = re.compile(r"plh\.([a-z0-9][a-z0-9-]{0,39})\.([1-9][0-9]{0,8})\.([0-9a-f]{64})")
Direction = Literal["up", "down"]


class WireError(ValueError):
    """A message or a key that is refused; the text says why and holds nothing of the message's body."""


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What every message has: a tag that names its kind."""


class Ability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One finding of `doctor`."""

    name: str
    is_there: bool
    sentence: str


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """A worker's first word and its sign of life: which GPU it stands for, and what the host can prove.

    is_first   the worker has just started and waits for a welcome
    """

    gpu: str
    name: str
    driver: str
    versions: dict[str, str]
    isolation: str
    findings: list[Ability]
    is_first: bool


class Ask(Message, frozen=True, kw_only=True, tag="ask"):
    """A worker that was woken asks for the lease of a job."""

    job: int


class Fetch(Message, frozen=True, kw_only=True, tag="fetch"):
    """The holder of a job asks for files that its cache lacks."""

    job: int
    token: int
    digest: str


class Beat(Message, frozen=True, kw_only=True, tag="beat"):
    """The holder of a job says how far it is; percent from 0 to 100."""

    job: int
    token: int
    step: str
    shape: int | None
    percent: float


class Result(Message, frozen=True, kw_only=True, tag="result"):
    """The holder of a job hands in the packed archive, or says under which digest it lies in the shared folder."""

    job: int
    token: int
    digest: str
    size: int
    packed: bytes | None


class Fault(Message, frozen=True, kw_only=True, tag="fault"):
    """The holder of a job could not grade it; a final fault would happen on every host."""

    job: int
    token: int
    cause: str
    is_final: bool


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The control side knows the worker."""

    state: str
    reason: str


class Grant(Message, frozen=True, kw_only=True, tag="grant"):
    """A lease: what to grade, and within which times. Files are named by digest.

    run        where the run's files belong, ``DECK/GPU/RUN_ID``; empty for a reference
    reference  the problem's own solution that is graded; empty for a run
    """

    job: int
    token: int
    lease_seconds: int
    limit_seconds: int
    problem: str
    gpu: str
    tier: str
    run: str
    reference: str
    deck_digest: str
    run_digest: str


class Refusal(Message, frozen=True, kw_only=True, tag="refusal"):
    """There is no lease, or no file, and why."""

    job: int
    reason: str


class Files(Message, frozen=True, kw_only=True, tag="files"):
    """Packed files."""

    digest: str
    packed: bytes


class GoOn(Message, frozen=True, kw_only=True, tag="go_on"):
    """The lease was extended."""

    job: int


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    """The job is no longer the host's: end the grade."""

    job: int
    reason: str


class Taken(Message, frozen=True, kw_only=True, tag="taken"):
    """A result or fault was dealt with; the word is the verdict as judged here."""

    job: int
    word: str


Up = Hello | Ask | Fetch | Beat | Result | Fault
Down = Welcome | Grant | Refusal | Files | GoOn | Stop | Taken


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed message.

    gpu       UUID of the GPU that the worker stands for
    instance  the worker's process: the answer goes to its inbox
    nonce     makes the message unique; an answer carries that of its question
    at        seconds since the epoch
    body      the message as JSON text, exactly as it was signed
    """

    host: str
    serial: int
    gpu: str
    instance: str
    nonce: str
    at: float
    body: str
    mac: str


class HostKey(msgspec.Struct, frozen=True):
    """A host's name, the serial of its key, and the key itself; never shown by its representation."""

    host: str
    serial: int
    secret: str

    def __repr__(self) -> str:
        return f"HostKey({self.host}, {self.serial})"

    @property
    def text(self) -> str:
        """Return the one line that a host is configured with."""
        return f"plh.{self.host}.{self.serial}.{self.secret}"


_ENVELOPE = msgspec.json.Decoder(Envelope)
_UP = msgspec.json.Decoder(Up)
_DOWN = msgspec.json.Decoder(Down)


def derive_key(site_secret: str, host: str, serial: int) -> HostKey:
    """Return the key of a host. Raises WireError for a name that is none."""
    if not _NAME.fullmatch(host):
        raise WireError(f"host name is {host[:60]!r}; need 1 to 40 of a-z, 0-9 and -, starting with a letter or digit")
    text = f"proofline-host:{host}:{serial}".encode()
    return HostKey(host, serial, hmac.new(site_secret.encode(), text, hashlib.sha256).hexdigest())


def parse_key(text: str) -> HostKey:
    """Return the key of a host's configuration. Raises WireError, without repeating the text."""
    found = _KEY.fullmatch(text.strip())
    if found is None:
        raise WireError("the host's key is not of the form plh.NAME.SERIAL.HEX; `manage.py host add NAME` prints one")
    return HostKey(found[1], int(found[2]), found[3])


def seal(message: Up | Down, key: HostKey, direction: Direction, sender: tuple[str, str], nonce: str = "") -> str:
    """Return a signed envelope as text.

    sender  (GPU UUID, instance) of the worker that asks or is answered
    nonce   of the question, for an answer
    Raises WireError for a message that is too large.
    """
    gpu, instance = sender
    envelope = Envelope(
        host=key.host,
        serial=key.serial,
        gpu=gpu,
        instance=instance,
        nonce=nonce or secrets.token_hex(16),
        at=time.time(),
        body=msgspec.json.encode(message).decode(),
        mac="",
    )
    text = msgspec.json.encode(msgspec.structs.replace(envelope, mac=_sign(envelope, key, direction)))
    if len(text) > MAX_MESSAGE_BYTES:
        raise WireError(f"a message of {len(text)} bytes is too large; at most {MAX_MESSAGE_BYTES} are sent")
    return text.decode()


def read_envelope(text: object) -> Envelope:
    """Return an envelope whose form is right and whose signature was not looked at. Raises WireError."""
    if not isinstance(text, str) or len(text) > MAX_MESSAGE_BYTES:
        size = len(text) if isinstance(text, str) else type(text).__name__
        raise WireError(f"the message is {size}; need text of at most {MAX_MESSAGE_BYTES} characters")
    try:
        envelope = _ENVELOPE.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise WireError(f"the message is no envelope: {str(error)[:200]}") from error
    if not (len(envelope.nonce) == 32 and envelope.nonce.isalnum() and len(envelope.gpu) <= 80):
        raise WireError("the envelope's nonce or GPU is malformed")
    if not re.fullmatch(r"[0-9a-f]{16}", envelope.instance):
        raise WireError("the envelope's instance is malformed")
    return envelope


def check_envelope(envelope: Envelope, key: HostKey, direction: Direction, now: float) -> None:
    """Raise WireError unless an envelope was signed by this key for this direction, and lately."""
    if not hmac.compare_digest(_sign(envelope, key, direction), envelope.mac):
        raise WireError(f"the signature of host {envelope.host[:40]!r} does not match")
    if not abs(envelope.at - now) <= MAX_AGE_SECONDS:
        raise WireError(f"the message is {now - envelope.at:.0f} s old; at most {MAX_AGE_SECONDS} s, see the clocks")


def read_up(envelope: Envelope) -> Up:
    """Return what a host said. Raises WireError."""
    try:
        return _UP.decode(envelope.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"the message's body is malformed: {str(error)[:200]}") from error


def read_down(envelope: Envelope) -> Down:
    """Return what the control side answered. Raises WireError."""
    try:
        return _DOWN.decode(envelope.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"the answer's body is malformed: {str(error)[:200]}") from error


def _sign(envelope: Envelope, key: HostKey, direction: Direction) -> str:
    fields = [direction, key.host, key.serial, envelope.gpu, envelope.instance, envelope.nonce, envelope.at]
    text = msgspec.json.encode([*fields, envelope.body])
    return hmac.new(key.secret.encode(), text, hashlib.sha256).hexdigest()
