"""The names and the Celery settings that both ends of the grading service share.

A message on ``gpu.<KEY>`` only wakes a worker: it carries a job's number. Everything else travels signed, as one text
on ``control`` and back to the worker's own inbox. Results are rows, never Celery's.
"""

from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from grading import transports

CONTROL_QUEUE = "control"
CONTROL_TASK = "proofline.control"
GRADE_TASK = "proofline.grade"
FOLDER_SCHEME = "filesystem://"
_LONGEST_GRADE_SECONDS = 4 * 3600


def gpu_queue(key: str) -> str:
    """Return the queue that wakes any worker of a GPU key."""
    return f"gpu.{key}"


def add_own_queue(app: Celery, key: str, instance: str) -> str:
    """Make known the queue that wakes one worker only, for its calibration; return its name."""
    name = f"gpu.{key}.{instance}"
    if name not in app.amqp.queues:
        app.amqp.queues.add(Queue(name, Exchange(""), routing_key=name, expires=transports.FORGOTTEN_SECONDS))
    return name


def inbox(instance: str) -> Queue:
    """Return the queue with the answers to one worker. It goes with its worker: nothing in it is worth keeping."""
    name = f"inbox.{instance}"
    fading = {"durable": False, "auto_delete": True, "expires": transports.FORGOTTEN_SECONDS}
    return Queue(name, Exchange(""), routing_key=name, **fading)


def make_app(name: str, broker: str) -> Celery:
    """Return a Celery application on a broker.

    broker  ``filesystem:///folder``, or what Celery knows: ``redis://``, ``amqp://``
    """
    transports.register()
    address = f"{FOLDER_SCHEME}localhost" if broker.startswith(FOLDER_SCHEME) else broker
    app = Celery(name, broker=address, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_store_errors_even_if_ignored=False,
        task_publish_retry=False,
        worker_consumer="grading.guard:Consumer",
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_heartbeat=0,
        broker_transport_options=_transport_options(broker),
    )
    return app


def run_worker(app: Celery, queues: list[str], concurrency: int, name: str | None = None) -> int:
    """Consume some queues in threads, without talk among workers, until told to stop; return the exit status."""
    worker = app.Worker(
        hostname=name,
        queues=queues,
        pool="threads",
        concurrency=concurrency,
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _transport_options(broker: str) -> dict[str, Any]:
    """Return what the broker's transport is told.

    A message that is handed out twice is harmless, since the job row decides. Redis hands out again what a dead worker
    held when the visibility timeout is over; the sweeper is much faster and does not depend on it.
    """
    if broker.startswith(FOLDER_SCHEME):
        folder = Path(broker.removeprefix(FOLDER_SCHEME)).resolve()
        for part in ("messages", "exchanges"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        messages = str(folder / "messages")
        return {
            "data_folder_in": messages,
            "data_folder_out": messages,
            "control_folder": str(folder / "exchanges"),
            "polling_interval": 0.1,
        }
    if broker.startswith("redis"):
        return {
            "visibility_timeout": _LONGEST_GRADE_SECONDS + 60,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "global_keyprefix": "proofline:",
            "socket_timeout": 20,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        }
    return {}
