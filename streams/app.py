"""The Faust app: one agent a topic, and a task that takes the steps between them.

`members` and `trace` feed the snapshots of each trace partition, `waits` the cases of each partition of
nccl.waits; what they do stands in agents.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import faust

from mycroft.settings import Settings
from schemas.topics import MEMBERS, TRACE, WAITS, WORKER_GROUP, Topic
from streams.agents import Event, Worker, raw_topic
from streams.guard import Unhandled, guarded
from streams.transport import Transport

log = logging.getLogger(__name__)

TICK_S = 0.5
"""Running jobs are judged, and partitions marked, so often: half of it is waited for on average."""
SESSION_TIMEOUT_S = 6.0
"""Faust's 60 s would leave a killed worker's partitions without one for a minute."""

COMMIT_INTERVAL_S = 0.5
"""Importers wait for commits before they send more; Faust's 2.8 s would hold them up."""

UNHANDLED = 70
"""Exit status of a worker that can neither handle a message nor set it aside (EX_SOFTWARE)."""


class App(faust.App):
    """Faust's App on our transport, and without folders: tables would need them, we have none."""

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Faust would leave a `mycroft-data` wherever the worker is started."""


def create(settings: Settings) -> App:
    """The app, ready to be run by a Faust worker. Raises BrokerError where Kafka does not answer."""
    app = App(
        WORKER_GROUP,
        broker=f"kafka://{settings.kafka}",
        store="memory://",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_rebalance_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=SESSION_TIMEOUT_S / 4,
        broker_commit_interval=COMMIT_INTERVAL_S,
        producer_max_request_size=1_048_576,
        # Messages stay unacknowledged on purpose until a snapshot is judged; Faust would warn.
        broker_commit_livelock_soft_timeout=3600.0,
    )
    worker = Worker(app, settings)

    @app.on_partitions_revoked.connect
    async def _forget(*_: Any, **__: Any) -> None:
        worker.clear()

    def agent(topic: Topic, handle: Callable[[Event], Awaitable[bool]]) -> None:
        async def run(stream: Any) -> None:
            async for event in stream.noack().events():
                await handled(worker, event, handle)

        app.agent(raw_topic(app, topic), name=topic.name)(run)

    agent(MEMBERS, worker.members)
    agent(TRACE, worker.trace)
    agent(WAITS, worker.waits)

    @app.task
    async def _steps() -> None:
        marked = time.monotonic()
        while not app.should_stop:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(worker.wake.wait(), max(0.0, marked + TICK_S - time.monotonic()))
            worker.wake.clear()
            tick = time.monotonic() >= marked + TICK_S
            if tick:
                marked = time.monotonic()
            try:
                await worker.step(tick)
            except Unhandled:
                give_up()
            except Exception:
                if app.should_stop:
                    return  # the app's producer ends before its tasks
                # What was to be sent is still there: the next step sends it.
                log.exception("a step failed; the next one tries again")

    return app


async def handled(worker: Worker, event: Event, handle: Callable[[Event], Awaitable[bool]]) -> None:
    """Handle one message; acknowledge it unless the worker keeps it for later.

    `handle` returns whether it does. A message that cannot be handled is set aside, then acknowledged.
    """
    message = event.message
    kept = False

    async def once() -> None:
        nonlocal kept
        kept = await handle(event)

    async def aside(reason: str) -> None:
        await worker.aside([event], message.topic, reason)

    try:
        await guarded(once, aside, f"{message.topic} {message.partition}:{message.offset}")
    except Unhandled:
        give_up()
    if not kept:
        event.ack()


def give_up() -> None:
    """End the process before anything is acknowledged; its successor reads the messages again."""
    log.critical("ending the worker", exc_info=True)
    os._exit(UNHANDLED)
