"""Faust's Kafka transport with a fetch wait that suits seconds-long answers.

Faust fixes it at 1.5 s, and the embedded broker answers a fetch that finds nothing new only when it has
passed, also when something arrives meanwhile: 0.8 s of median delay for nothing.

And Faust starts four tasks for each message, to wait for room in its stream or for a rebalance, whichever is
first: a good part of what a message costs, when there nearly always is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from faust.transport.drivers import aiokafka as driver
from mode.services import WaitResults

FETCH_MAX_WAIT_MS = 50


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any, *args: Any, **kwargs: Any) -> Any:
        consumer = super()._create_worker_consumer(transport, *args, **kwargs)
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        return consumer


class Rest:
    """What is left of a coroutine that has been taken to its first wait, for `waits_for`; to be awaited."""

    def __init__(self, begun: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._begun, self._waits_for = begun, waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    told = yield waits_for
                except BaseException as error:
                    waits_for = self._begun.throw(error)
                else:
                    waits_for = self._begun.send(told)
        except StopIteration as end:
            return end.value


class _Consumer(driver.Consumer):
    async def wait_first(self, *waits: Any, timeout: Any = None) -> Any:
        """The first of what is waited for; a message whose stream has room is there at once, taskless."""
        passing, *others = waits
        if not asyncio.iscoroutine(passing):
            return await super().wait_first(*waits, timeout=timeout)
        try:
            waits_for = passing.send(None)
        except BaseException as end:
            for other in others:
                if asyncio.iscoroutine(other):
                    other.close()
            if not isinstance(end, StopIteration):
                raise
            await asyncio.sleep(0)  # others' turn: what is not taken waits at the broker, not here
            return WaitResults([passing], [end.value], self.should_stop)
        return await super().wait_first(Rest(passing, waits_for), *others, timeout=timeout)

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop or asyncio.get_event_loop(), beacon=self.beacon)


class Transport(driver.Transport):
    """aiokafka as Faust uses it, but for the fetch wait."""

    Consumer = _Consumer
