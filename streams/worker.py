"""Runs the Faust app as a process of its own."""

from __future__ import annotations

import argparse
import logging
import os
import sys

import faust

from mycroft.settings import BadSettings, Settings
from streams.app import create
from streams.kafka import BrokerError
from streams.process import when_orphaned
from streams.topics import ensure_topics


def run(settings: Settings, loglevel: str = "WARNING") -> None:
    """Run until SIGTERM or SIGINT; does not return. Raises BrokerError where Kafka does not answer."""
    ensure_topics(settings)
    # Faust opens the root logger to everything and filters afterwards: aiokafka writes a line for each fetch.
    logging.getLogger("aiokafka").setLevel(loglevel)
    worker = faust.Worker(create(settings), loglevel=loglevel, redirect_stdouts=False)
    worker.execute_from_commandline()


def main() -> int:
    """Run as told by the environment; status 1 and one line on standard error where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m streams.worker", description="Watch and diagnose.")
    parser.add_argument("--parent", type=int, help="pid of the parent process, whose end is the worker's too")
    parent = parser.parse_args().parent
    if parent is not None:
        # Its broker is gone too, so there is nothing to leave in order.
        when_orphaned(parent, lambda: os._exit(0))
    try:
        run(Settings())
    except (BrokerError, BadSettings) as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
