"""`python -m collectors.agent`: the collector as a process that loads nothing else (`mycroft collect`)."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from collectors.agent.agent import Agent, CannotCollect, Config
from collectors.agent.budget import Limits
from collectors.agent.metrics import PortTaken
from schemas.shown import log_lines

USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT; status 2 and one line on standard error where it cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m collectors.agent",
        description="Ships what the profiler plugin sees on this host. 'mycroft collect' starts it.",
    )
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--dir", required=True, type=Path)
    parser.add_argument("--host", default="")
    parser.add_argument("--budget", type=int, required=True)
    parser.add_argument("--comm-records", type=int, required=True)
    parser.add_argument("--backlog", type=int, required=True)
    parser.add_argument("--linger", type=float, required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    parser.add_argument("--nccl-log", default="")
    parser.add_argument("--parent", type=int, help="pid of the parent process, whose end is its own too")
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args(arguments)
    log_lines(options.log_level, "%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    config = Config(
        options.kafka, options.dir, options.host, Limits(options.budget, options.comm_records),
        options.backlog, options.linger, options.metrics_port, nccl_log=options.nccl_log,
        parent=options.parent,
    )  # fmt: skip
    try:
        agent = Agent(config)
        logging.info("collecting from %s for Kafka at %s", config.directory, config.kafka)
        agent.run(stop)
    except (CannotCollect, PortTaken) as error:
        print(f"mycroft: {error}", file=sys.stderr)
        return USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
