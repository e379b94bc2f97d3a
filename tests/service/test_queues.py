"""What workers leave on a broker goes with them: real brokers, and what is on them after a worker was killed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection, Producer
from kombu.exceptions import ChannelError
from kombu.simple import SimpleQueue

from grading import folderqueue
from grading.tasks import CONTROL_QUEUE, GRADE_TASK, add_own_queue, gpu_queue, inbox, make_app
from grading.transports import FORGOTTEN_SECONDS, is_own
from grading.wire import MAX_AGE_SECONDS
from tests.service.support import RedisServer, Site, children_of, grader, kill, wait_for

GONE = "0123456789abcdef"


def answer(connection: Connection, instance: str = GONE) -> None:
    """Send an answer to a worker as the control side does, which declares nothing."""
    name = inbox(instance).name
    Producer(connection.channel(), serializer="json").publish("text", exchange="", routing_key=name)


def wake(app: Any, connection: Connection, queue: str) -> None:
    app.send_task(GRADE_TASK, [1], queue=queue, connection=connection, retry=False)


def test_a_queue_says_whether_it_belongs_to_one_worker() -> None:
    assert is_own(inbox(GONE).name) and is_own(add_own_queue(make_app("test", "memory://"), "H100_SXM", GONE))
    assert not is_own(CONTROL_QUEUE) and not is_own(gpu_queue("H100_SXM"))
    assert FORGOTTEN_SECONDS > MAX_AGE_SECONDS, "nothing goes that somebody would still accept"


@pytest.mark.redis
def test_redis_lets_the_queues_of_one_worker_expire(redis_server: RedisServer) -> None:
    app, client = make_app("test", redis_server.url), redis.Redis.from_url(redis_server.url)
    own = add_own_queue(app, "CPU", GONE)
    with app.connection_for_write() as connection:
        answer(connection)
        wake(app, connection, own)
        wake(app, connection, gpu_queue("CPU"))
    for name in (inbox(GONE).name, own):
        assert 0 < client.ttl(f"proofline:{name}") <= FORGOTTEN_SECONDS
    assert client.ttl(f"proofline:{gpu_queue('CPU')}") == -1, "what any worker may take waits for one"
    client.close()


@pytest.mark.redis
def test_redis_forgets_what_a_dead_worker_held(redis_server: RedisServer) -> None:
    """What it had taken and not acknowledged is handed out again hours later, to a queue that nobody reads."""
    app, client = make_app("test", redis_server.url), redis.Redis.from_url(redis_server.url)
    own = add_own_queue(app, "CPU", GONE)
    with app.connection_for_write() as connection:
        wake(app, connection, own)
        held = SimpleQueue(connection.channel(), app.amqp.queues[own]).get(timeout=5)
        assert not client.exists(f"proofline:{own}") and client.hlen("proofline:unacked") == 1
        held.channel.qos.restore_by_tag(held.delivery_tag)
        held.channel.qos.ack(held.delivery_tag)
    assert 0 < client.ttl(f"proofline:{own}") <= FORGOTTEN_SECONDS
    client.close()


def test_the_folder_forgets_old_messages_of_one_worker(tmp_path: Path) -> None:
    app = make_app("test", f"filesystem://{tmp_path}")
    messages, old = tmp_path / "messages", time.time() - FORGOTTEN_SECONDS - 5
    (messages / ".left.taken").write_text("")
    (messages / f".left.{gpu_queue('CPU')}.msg.part").write_text("")
    with app.connection_for_write() as connection:
        for queue in (gpu_queue("CPU"), add_own_queue(app, "CPU", GONE)):
            wake(app, connection, queue)
        answer(connection)
        for path in messages.iterdir():
            os.utime(path, (old, old))
        folderqueue._tidied.clear()
        answer(connection, "f" * 16)
    kept = sorted(path.name.partition(".")[2] for path in messages.iterdir())
    assert kept == [f"{gpu_queue('CPU')}.msg", f"inbox.{'f' * 16}.msg"]


@pytest.mark.rabbitmq
def test_rabbitmq_drops_the_inbox_of_a_killed_worker_at_once(rabbit: str, make_site: Callable[..., Site]) -> None:
    site = make_site(rabbit)
    site.start_control()
    host = site.start_host(grader=grader())
    site.wait_until_ready(1)
    ((instance,),) = site.rows("SELECT instance FROM leaderboard_hostgpu WHERE state = 'healthy'")
    own = add_own_queue(make_app("test", rabbit), "CPU", instance)
    assert is_there(rabbit, inbox(instance).name) and is_there(rabbit, own)
    (worker,) = children_of(host)
    kill(host.pid)
    kill(worker)
    wait_for(lambda: not is_there(rabbit, inbox(instance).name), 20, "the end of the inbox")
    with Connection(rabbit) as connection, connection.channel() as channel:
        channel.queue_delete(own)


@pytest.mark.rabbitmq
def test_rabbitmq_lets_a_queue_that_nobody_reads_expire(rabbit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grading.transports.FORGOTTEN_SECONDS", 1)
    app = make_app("test", rabbit)
    own = add_own_queue(app, "CPU", GONE)
    with app.connection_for_write() as connection:
        wake(app, connection, own)
    assert is_there(rabbit, own)
    time.sleep(3)  # asking for it again and again would keep it alive
    assert not is_there(rabbit, own)


def is_there(broker: str, queue: str) -> bool:
    """Tell whether a queue exists; asking for it does not make it."""
    with Connection(broker) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except (ChannelError, *connection.channel_errors):
            return False
    return True
