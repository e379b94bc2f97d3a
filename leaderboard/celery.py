"""The web side's Celery application: one task that takes the hosts' messages, and the sweeper beside it.

Pages never talk to the broker. They write rows; the control worker sends what has to be sent.
"""

import logging
from threading import Event, Thread

from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from kombu import Producer

from grading.tasks import CONTROL_QUEUE, CONTROL_TASK, inbox, make_app, run_worker
from grading.wire import WireError

log = logging.getLogger(__name__)
app = make_app("leaderboard", settings.BROKER_URL)
_stopping = Event()


@app.task(name=CONTROL_TASK)
def control(*given: object, **named: object) -> None:
    """Take one message of a host, and answer it."""
    from leaderboard.service.control import handle

    try:
        if named or len(given) != 1:
            raise WireError("a message is one text")
        answer = handle(given[0])
    except WireError as error:
        log.warning("refused a message: %s", error)
        return
    if answer is None:
        return
    with app.connection_for_write() as connection:
        name = inbox(answer.instance).name
        Producer(connection.channel(), serializer="json").publish(answer.text, exchange="", routing_key=name)
    if answer.after is not None:
        answer.after()


def serve() -> int:
    """Run the control worker and the sweeper until told to stop; return the exit status."""
    return run_worker(app, [CONTROL_QUEUE], 2)


@worker_ready.connect
def _start_sweeper(sender: object = None, **_: object) -> None:
    from leaderboard.service.policies import follow
    from leaderboard.service.sweeper import Sweeper

    if getattr(sender, "app", None) is app:
        for loop in (Sweeper(app).run, follow):
            Thread(target=loop, args=(_stopping,), daemon=True).start()


@worker_shutting_down.connect
def _stop_sweeper(**_: object) -> None:
    _stopping.set()
