"""`python -m streams.sink`: the sink as a process, configured as all of Mycroft (mycroft/settings.py)."""

from __future__ import annotations

import argparse
import logging
import sys

from mycroft.settings import BadSettings, Settings
from schemas.shown import log_lines
from streams.kafka import BrokerError
from streams.process import stop_event
from streams.sink.loop import TooManyRefused, run_sink


def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT; status 1 and one line on standard error where it cannot go on."""
    parser = argparse.ArgumentParser(
        prog="python -m streams.sink", description="Stores every topic in ClickHouse."
    )
    parser.add_argument("--parent", type=int, help="pid of the parent process, whose end is the sink's too")
    parser.add_argument("--verbose", action="store_true", help="log what goes well, too")
    options = parser.parse_args(arguments)
    log_lines(
        logging.INFO if options.verbose else logging.WARNING,
        "%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = Settings()
    except BadSettings as error:
        print(f"sink: {error}", file=sys.stderr)
        return 2
    try:
        run_sink(settings, stop_event(options.parent))
    except (BrokerError, TooManyRefused) as error:
        print(f"sink: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
