"""What to compare a worker with: agents of Faust on the same topic, that do nothing or the obvious thing.

`python -m benchmarks.faust_agent KAFKA nothing|stock|json MESSAGES` prints its CPU seconds from the first
message to the last. `nothing` only takes messages, as the worker does; `stock` takes them with Faust's own
transport; `json` has one JSON event a message, and the latest of each key.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import faust

from mycroft.settings import Settings
from schemas.topics import TRACE
from streams.agents import raw_topic
from streams.app import SESSION_TIMEOUT_S, App


def main(kafka: str, what: str, messages: int) -> None:
    """Run until so many messages were heard; does not return."""

    app = (faust.App if what == "stock" else App)(
        "benchmark-faust", broker=f"kafka://{Settings(kafka=kafka).kafka}", store="memory://",
        topic_allow_declare=False, topic_disable_leader=True, web_enabled=False,
        consumer_auto_offset_reset="earliest", broker_session_timeout=SESSION_TIMEOUT_S,
        broker_rebalance_timeout=SESSION_TIMEOUT_S, broker_heartbeat_interval=SESSION_TIMEOUT_S / 4,
    )  # fmt: skip
    latest: dict[tuple[int, ...], dict[str, int]] = {}

    def parse(text: bytes) -> None:
        event = json.loads(text)
        latest[event["comm"], event["dev"], event["kind"], event["seq"]] = event

    handle: Callable[[bytes], object] = parse if what == "json" else len

    async def keep(stream: Any) -> None:
        heard, began = 0, time.process_time()
        async for value in stream:
            handle(value)
            heard += 1
            if heard == messages:
                print(time.process_time() - began, flush=True)
                os._exit(0)

    app.agent(raw_topic(app, TRACE))(keep)
    faust.Worker(app, loglevel="ERROR", redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
