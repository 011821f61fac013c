"""Faust's Kafka transport with a fetch wait that suits seconds-long answers.

Faust fixes it at 1.5 s, and the embedded broker answers a fetch that finds nothing new only when it has
passed, also when something arrives meanwhile: 0.8 s of median delay for nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from faust.transport.drivers import aiokafka as driver

FETCH_MAX_WAIT_MS = 50


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any, *args: Any, **kwargs: Any) -> Any:
        consumer = super()._create_worker_consumer(transport, *args, **kwargs)
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        return consumer


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop or asyncio.get_event_loop(), beacon=self.beacon)


class Transport(driver.Transport):
    """aiokafka as Faust uses it, but for the fetch wait."""

    Consumer = _Consumer
