"""One worker for one GPU: it registers, then grades what it is woken for. Its configuration comes on standard input."""

import logging
import secrets
import shutil
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
from celery import Celery
from celery.signals import worker_shutting_down

from grading.host.link import Link
from grading.host.place import Place
from grading.host.session import Session
from grading.tasks import GRADE_TASK, add_own_queue, gpu_queue, make_app, run_worker
from grading.wire import Hello, Refusal, Welcome

log = logging.getLogger(__name__)
_HELLO_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_MOST_PARCELS = 500


def make_worker_app(place: Place, instance: str, stopping: Event) -> Celery:
    """Return the application whose one task grades one job at a time."""
    app = make_app("proofline-host", place.broker)
    link = Link(app, place.key, place.gpu.uuid, instance)
    session = Session(link, place, stopping)

    @app.task(name=GRADE_TASK)  # type: ignore[untyped-decorator]
    def grade(*given: Any, **named: Any) -> None:
        """Take a wake-up: a job's number and nothing else."""
        if named or len(given) != 1 or type(given[0]) is not int:
            log.warning("refused a wake-up that names no job")
            return
        if not stopping.is_set():
            log.info("job %d: %s", given[0], session.run(given[0]))

    return app


def register(app: Celery, place: Place, instance: str, stopping: Event) -> bool:
    """Say hello until the control side welcomes this worker; False where it was stopped before."""
    link = Link(app, place.key, place.gpu.uuid, instance)
    while not stopping.is_set():
        answer = link.ask(hello(place, is_first=True), _ANSWER_SECONDS)
        if isinstance(answer, Welcome):
            log.info("welcome: %s is %s %s", place.gpu.uuid, answer.state, answer.reason)
            link.close()
            return True
        log.warning("not welcome yet: %s", answer.reason if isinstance(answer, Refusal) else "no answer")
        stopping.wait(1 if answer is None else _HELLO_SECONDS)
    return False


def hello(place: Place, *, is_first: bool) -> Hello:
    """Return what a worker says about its GPU and its host."""
    gpu, found = place.gpu, place.found
    return Hello(
        gpu=gpu.key,
        name=gpu.name,
        driver=gpu.driver,
        versions=found.versions,
        isolation=found.isolation,
        findings=found.findings if is_first else [],
        is_first=is_first,
    )


def _keep_saying_hello(app: Celery, place: Place, instance: str, stopping: Event) -> None:
    """Tell the control side that this worker lives; what is lost with the broker is said again."""
    link = Link(app, place.key, place.gpu.uuid, instance)
    while not stopping.wait(_HELLO_SECONDS):
        link.tell(hello(place, is_first=False))
    link.close()


def tidy(folder: Path) -> None:
    """Remove what a killed worker left, and the parcels that were not used for longest."""
    cache = folder / "cache"
    for left in (*folder.glob("job-*"), *cache.glob(".parcel-*"), *cache.glob("parcel-*")):
        shutil.rmtree(left, ignore_errors=True)
    kept = sorted(cache.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in kept[_MOST_PARCELS:]:
        shutil.rmtree(old, ignore_errors=True)


def main() -> int:
    """Read the configuration, register, work until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    place = msgspec.json.decode(sys.stdin.buffer.read(), type=Place)
    tidy(place.folder)
    instance, stopping = secrets.token_hex(8), Event()
    app = make_worker_app(place, instance, stopping)

    def stop(**_: Any) -> None:
        stopping.set()

    worker_shutting_down.connect(stop)
    if not register(app, place, instance, stopping):
        return 0
    Thread(target=_keep_saying_hello, args=(app, place, instance, stopping), daemon=True).start()
    queues = [gpu_queue(place.gpu.key), add_own_queue(app, place.gpu.key, instance)]
    return run_worker(app, queues, 1, f"{place.key.host}@{instance}")


if __name__ == "__main__":
    sys.exit(main())
