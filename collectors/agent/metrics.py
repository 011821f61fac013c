"""What the collector says of itself, in Prometheus' text format on a loopback port.

One catalogue: every number that there is, what it means and what to do about it. Nothing is labelled by
communicator, rank or pid: those are unbounded, and belong into records.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

_PREFIX = "mycroft_collector_"


class PortTaken(RuntimeError):
    """The metrics port cannot be bound; the text is one line with what to do."""


@dataclass(frozen=True)
class Metric:
    """One number: `meaning` becomes its help text, `remedy` says what to do about a bad one."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    remedy: str


CATALOGUE: tuple[Metric, ...] = (
    Metric("processes", "gauge", "live processes that are traced", "0 beside a job: mycroft doctor"),
    Metric("processes_dead", "gauge", "dead processes whose files are kept for a while", "none"),
    Metric("communicators", "gauge", "live communicators on this host", "none"),
    Metric("operations_in_flight", "gauge", "operations in flight at the last tick", "none"),
    Metric("operations_stalled", "gauge", "of these, how many stall", "above 0: mycroft incidents"),
    Metric("unnamed_processes", "gauge", "processes whose job has no name", "set MYCROFT_JOB"),
    Metric("files_refused", "gauge", "files in the directory that are not read", "see the log"),
    Metric("files_removed_total", "counter", "files of the dead removed once read", "none"),
    Metric(
        "files_not_removable", "gauge", "files of dead processes that may not be removed",
        "let the collector's user write to the directory",
    ),
    Metric("ticks_total", "counter", "samples taken", "none"),
    Metric(
        "ticks_late_total", "counter", "ticks that began more than one period late",
        "the host is overloaded, or too many processes are traced: see tick_seconds",
    ),
    Metric("tick_seconds_total", "counter", "time spent in ticks", "none"),
    Metric("tick_seconds_max", "gauge", "longest tick of the last minute", "none"),
    Metric("errors_total", "counter", "files or ticks that failed unexpectedly", "report it, with the log"),
    Metric("operations_total", "counter", "finished operations drained from rings", "none"),
    Metric("flows_total", "counter", "finished flows drained from rings", "none"),
    Metric(
        "ring_lost_total", "counter", "finished records overwritten before they were read",
        "give the plugin a larger file (MYCROFT_SHM_BYTES)",
    ),
    Metric(
        "plugin_drops_total", "counter", "events that full tables of the plugin could not take",
        "give the plugin a larger file (MYCROFT_SHM_BYTES)",
    ),
    Metric(
        "slots_torn_total", "counter", "slots passed over because they changed while being read",
        "none: the next tick reads them",
    ),
    Metric(
        "slots_corrupt_total", "counter", "slots passed over because what they hold cannot be",
        "somebody writes to the files, or versions differ: see the log",
    ),
    Metric(
        "records_sampled_out_total", "counter", "finished records that only sums cover, for the budget",
        "none, or raise MYCROFT_COLLECTOR_BUDGET_BYTES",
    ),
    Metric("records_sent_total", "counter", "records handed to Kafka", "none"),
    Metric("messages_sent_total", "counter", "messages handed to Kafka", "none"),
    Metric("bytes_sent_total", "counter", "bytes of messages handed to Kafka, uncompressed", "none"),
    Metric("messages_delivered_total", "counter", "messages that Kafka has acknowledged", "none"),
    Metric("messages_failed_total", "counter", "messages that Kafka has refused", "the log says why"),
    Metric("backlog_bytes", "gauge", "bytes that wait for Kafka", "growing: Kafka is away or too slow"),
    Metric(
        "backlog_dropped_total", "counter", "records dropped because the backlog was full",
        "Kafka was away for too long: see backlog_bytes",
    ),
    Metric("drops_total", "counter", "all records lost here, as each message tells", "see the parts"),
    Metric("cpu_seconds_total", "counter", "CPU time of the collector", "above 2 % of a core: report it"),
    Metric("resident_bytes", "gauge", "memory of the collector", "above 100 MiB: report"),
)  # fmt: skip

_KNOWN = frozenset(metric.name for metric in CATALOGUE)


class Metrics:
    """The values. Written by the loop's thread, read by the server's."""

    def __init__(self) -> None:
        self._values = dict.fromkeys((metric.name for metric in CATALOGUE), 0.0)

    def add(self, name: str, amount: float = 1) -> None:
        """Raise a counter; raises KeyError for one that is not in the catalogue."""
        self._values[name] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge; raises KeyError for one that is not in the catalogue."""
        if name not in _KNOWN:
            raise KeyError(name)
        self._values[name] = value

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def text(self) -> str:
        """All values in Prometheus' text format."""
        lines: list[str] = []
        for metric in CATALOGUE:
            name = _PREFIX + metric.name
            remedy = "" if metric.remedy == "none" else f"; {metric.remedy}"
            lines += (f"# HELP {name} {metric.meaning}{remedy}", f"# TYPE {name} {metric.kind}")
            lines.append(f"{name} {_number(self._values[metric.name])}")
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.6f}"


class MetricsServer:
    """Serves GET /metrics on loopback in a thread of its own until closed."""

    def __init__(self, metrics: Metrics, port: int) -> None:
        """Binds; port 0 takes a free one. Raises PortTaken."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the name is http.server's
                body = metrics.text().encode() if self.path.split("?")[0] == "/metrics" else b""
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Requests are not worth a line."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise PortTaken(
                f"port {port} for metrics: {error.strerror}; "
                "choose another with --metrics-port (MYCROFT_COLLECTOR_METRICS_PORT), 0 for none"
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
