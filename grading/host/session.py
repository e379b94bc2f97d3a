"""One job on a host: ask for the lease, fetch what is missing, grade, keep the lease alive, hand in the result.

The host believes the control side and nothing else about who holds a job. When it is told to stop, or hears nothing for
as long as the lease lasts, it ends the grade: somebody else may hold the job by then.
"""

import hashlib
import logging
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from time import monotonic

from grading.cpushapes import shapes_for
from grading.host.child import Child
from grading.host.gpus import count_company
from grading.host.link import Link
from grading.host.place import Place
from grading.parcel import ParcelError, find_kept, keep, open_parcel, pack, read_folder
from grading.problem import load_decks
from grading.tomldata import CatalogueError
from grading.warden.lock import DeviceBusy, hold_device
from grading.wire import (
    MAX_INLINE_BYTES,
    Ask,
    Beat,
    Fault,
    Fetch,
    Files,
    GoOn,
    Grant,
    Refusal,
    Result,
    Stop,
    Taken,
)

log = logging.getLogger(__name__)
_ANSWER_SECONDS = 5.0
_BEATS_PER_LEASE = 6
_POLL_SECONDS = 0.1
_MARGIN_SECONDS = 5
_OPAQUE = "candidate-output-"


class Lost(Exception):
    """The job is no longer this host's, and why."""


class Failed(Exception):
    """The job could not be graded here, and why."""


class Session:
    """What a worker does when it is woken for a job."""

    def __init__(self, link: Link, place: Place, stopping: Event) -> None:
        self._link, self._place, self._stopping = link, place, stopping

    def run(self, job: int) -> str:
        """Go through one job; return in one word what came of it. Never raises for what a grade does."""
        try:
            with hold_device(f"lease-{self._place.gpu.uuid}" if self._place.gpu.device != "cpu" else "cpu"):
                self._refuse_company()
                return self._run(job)
        except (DeviceBusy, Failed) as error:
            log.warning("job %d waits: %s", job, error)
            self._stopping.wait(_ANSWER_SECONDS)
            return "busy"

    def _refuse_company(self) -> None:
        """Raise Failed or DeviceBusy where something else uses the GPU: no time taken now would mean anything.

        Another grader on this host would make the grade fail after the lease, and spend one of the job's attempts.
        """
        with hold_device(self._place.gpu.device):
            pass
        others = count_company(self._place.gpu.device)
        if others:
            raise Failed(f"{others} other processes compute on {self._place.gpu.uuid}")

    def _run(self, job: int) -> str:
        grant = self._link.ask(Ask(job=job), _ANSWER_SECONDS)
        if not isinstance(grant, Grant):
            log.info("job %d: %s", job, grant.reason if isinstance(grant, Refusal) else "no answer")
            return "refused"
        attempt = Attempt(self._link, self._place, self._stopping, grant)
        try:
            return attempt.run()
        except Lost as error:
            log.warning("job %d was lost: %s", job, error)
            return "lost"
        except (Failed, ParcelError, CatalogueError, OSError) as error:
            log.warning("job %d failed: %s", job, error)
            is_final = isinstance(error, CatalogueError)
            fault = Fault(job=job, token=grant.token, cause=str(error)[:250], is_final=is_final)
            self._link.ask(fault, _ANSWER_SECONDS)
            return "failed"


class Attempt:
    """One lease, from the grant to its end."""

    def __init__(self, link: Link, place: Place, stopping: Event, grant: Grant) -> None:
        self._link, self._place, self._stopping, self._grant = link, place, stopping, grant
        self._valid_until = monotonic() + grant.lease_seconds
        self._next_beat = 0.0
        self._deadline = monotonic() + grant.limit_seconds - _MARGIN_SECONDS
        self._folder = place.folder / f"job-{grant.job}-{grant.token}"

    def run(self) -> str:
        """Grade and hand in; nothing but the cache is left behind."""
        cache = self._place.folder / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        self._folder.mkdir()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            command, shapes = self._prepare(cache)
            child = Child(command, shapes, 2 if self._grant.tier == "full" else 1)
            stack.callback(child.close)
            self._watch(child)
            return self._hand_in(self._collect(child), child)

    def _prepare(self, cache: Path) -> tuple[list[str], int]:
        """Fetch the files; return the grader's command line, and how many shapes it will go through."""
        grant, gpu = self._grant, self._place.gpu
        decks = self._obtain(grant.deck_digest, cache)
        deck, _, name = grant.problem.partition("/")
        shapes = shapes_for(load_decks(decks)[deck].problems[name], gpu.device)
        source = ["--reference", grant.reference]
        if grant.run:
            archive = self._folder / "archive" / grant.run
            shutil.copytree(self._obtain(grant.run_digest, cache), archive)
            source = ["--archive", str(archive)]
        where = ["--device", gpu.device, "--gpu", grant.gpu, "--tier", grant.tier]
        folders = ["--decks", str(decks), "--out", str(self._folder / "out")]
        return [*self._place.grader, grant.problem, *source, *where, *folders, "--json"], len(shapes)

    def _obtain(self, digest: str, cache: Path) -> Path:
        """Return the folder of a parcel, from the cache or from the control side."""
        kept = find_kept(digest, cache)
        if kept is not None:
            return kept
        question = Fetch(job=self._grant.job, token=self._grant.token, digest=digest)
        answer = self._link.ask(question, _ANSWER_SECONDS * 2)
        if not isinstance(answer, Files):
            raise Failed(
                f"files {digest[:12]} did not come: {answer.reason if isinstance(answer, Refusal) else 'no answer'}"
            )
        return keep(open_parcel(answer.packed, cache), digest, cache)

    def _watch(self, child: Child) -> None:
        """Wait for the grade's end and keep the lease alive. Raises Lost or Failed."""
        while child.wait(_POLL_SECONDS) is None:
            if self._stopping.is_set():
                raise Failed("the host is being stopped")
            if monotonic() > self._deadline:
                raise Failed(f"it ran longer than {self._grant.limit_seconds} s at step {child.step}")
            self._beat(child.step, child.shape, child.percent)

    def _beat(self, step: str, shape: int | None, percent: float) -> None:
        """Say how far the grade is, if it is time to. Raises Lost."""
        if monotonic() < self._next_beat:
            return
        pause = self._grant.lease_seconds / _BEATS_PER_LEASE
        sent_at = monotonic()
        self._next_beat = sent_at + pause
        message = Beat(job=self._grant.job, token=self._grant.token, step=step[:60], shape=shape, percent=percent)
        answer = self._link.ask(message, pause)
        if isinstance(answer, Stop):
            raise Lost(answer.reason)
        if isinstance(answer, GoOn):
            self._valid_until = sent_at + self._grant.lease_seconds
        if monotonic() > self._valid_until:
            raise Lost(f"no answer for {self._grant.lease_seconds} s")

    def _collect(self, child: Child) -> Mapping[str, bytes]:
        """Return the files of the archive that the grade left. Raises Failed where it left none."""
        folders = [path for path in (self._folder / "out").glob("*/*/*") if path.is_dir()]
        if len(folders) != 1:
            raise Failed(f"the grade left no archive (exit status {child.status}): {child.last_words()[:200]}")
        return read_folder(folders[0])

    def _hand_in(self, files: Mapping[str, bytes], child: Child) -> str:
        """Send the archive until it is taken; return the verdict's word. Raises Lost or Failed."""
        packed = pack(files)
        if len(packed) > MAX_INLINE_BYTES and not self._place.evidence_dir:
            packed = pack({name: data for name, data in files.items() if not name.startswith(_OPAQUE)})
        digest = hashlib.sha256(packed).hexdigest()
        is_inline = len(packed) <= MAX_INLINE_BYTES
        if not is_inline:
            self._put_aside(packed, digest)
        result = Result(
            job=self._grant.job,
            token=self._grant.token,
            digest=digest,
            size=len(packed),
            packed=packed if is_inline else None,
        )
        while True:
            answer = self._link.ask(result, max(_ANSWER_SECONDS, self._grant.lease_seconds / _BEATS_PER_LEASE))
            if isinstance(answer, Taken):
                return answer.word
            if isinstance(answer, Stop | Refusal):
                raise Lost(answer.reason)
            self._stopping.wait(_POLL_SECONDS)
            self._beat("hand_in", child.shape, 99.0)

    def _put_aside(self, packed: bytes, digest: str) -> None:
        """Lay a large archive into the folder that the web side shares. Raises Failed without one."""
        if not self._place.evidence_dir:
            raise Failed(f"the archive has {len(packed)} bytes; above {MAX_INLINE_BYTES} it needs a shared folder")
        target = Path(self._place.evidence_dir) / f"{digest}.tar.gz"
        staged = target.with_suffix(".part")
        staged.write_bytes(packed)
        staged.rename(target)
