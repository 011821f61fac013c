"""The obvious stream processor: a Faust agent, one JSON event a message, the latest of each key in a dict.

`python -m benchmarks.json_agent KAFKA EVENTS` prints its CPU seconds from the first event to the last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import faust

from mycroft.settings import Settings
from schemas.topics import TRACE
from streams.agents import raw_topic
from streams.app import App


def main(kafka: str, events: int) -> None:
    """Run until so many events were heard; does not return."""

    app = App(
        "benchmark-json", broker=f"kafka://{Settings(kafka=kafka).kafka}", store="memory://",
        topic_allow_declare=False, topic_disable_leader=True, web_enabled=False,
        consumer_auto_offset_reset="earliest",
    )  # fmt: skip
    latest: dict[tuple[int, ...], dict[str, int]] = {}

    async def keep(stream: Any) -> None:
        heard, began = 0, time.process_time()
        async for text in stream:
            event = json.loads(text)
            latest[event["comm"], event["dev"], event["kind"], event["seq"]] = event
            heard += 1
            if heard == events:
                print(time.process_time() - began, flush=True)
                os._exit(0)

    app.agent(raw_topic(app, TRACE))(keep)
    faust.Worker(app, loglevel="ERROR", redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
