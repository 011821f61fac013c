"""What services of a deployment are started and asked by: `mycroft topics`, `mycroft healthy`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mycroft.health import address_towards
from schemas.topics import SINK_GROUP, TOPICS, WORKER_GROUP
from streams.kafka import consumer
from tests.integration.kafka_harness import ApacheKafka, free_ports

_ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mycroft.cli", *arguments], cwd=_ROOT, capture_output=True, text=True,
        timeout=60, check=False,
        env={"PATH": "/usr/bin:/bin", "MYCROFT_DATA": "/nonexistent", **environment},
    )  # fmt: skip


@pytest.mark.kafka
def test_topics_are_made_and_listed(apache_kafka: ApacheKafka) -> None:
    apache_kafka.wipe()
    listed = "".join(f"{topic.name}: 3 partitions\n" for topic in TOPICS)
    for partitions in ("3", "7"):
        done = run("topics", "--kafka", apache_kafka.bootstrap, MYCROFT_PARTITIONS=partitions)
        assert (done.returncode, done.stdout, done.stderr) == (0, listed, "")


def test_topics_without_kafka_is_one_line() -> None:
    done = run("topics", "--kafka", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mycroft: no Kafka answers at 127.0.0.1:1")
    assert done.stderr.count("\n") == 1


@pytest.mark.kafka
@pytest.mark.parametrize(("part", "group"), [("worker", WORKER_GROUP), ("sink", SINK_GROUP)])
def test_a_member_of_the_group_is_healthy(apache_kafka: ApacheKafka, part: str, group: str) -> None:
    apache_kafka.wipe()
    assert run("topics", "--kafka", apache_kafka.bootstrap).returncode == 0
    asked = ("healthy", part, "--kafka", apache_kafka.bootstrap)
    absent = run(*asked)
    for _ in range(20):  # a broker that has never had a group takes a moment to say so
        if "cannot be described" not in absent.stderr:
            break
        absent = run(*asked)
    assert (absent.returncode, absent.stdout) == (1, "")
    assert f"no {part} of this host (127.0.0.1) is in Kafka's group {group}: nobody" in absent.stderr
    member = consumer(apache_kafka.bootstrap, "tests", group)
    joined = threading.Event()
    member.subscribe([TOPICS[0].name], on_assign=lambda *_: joined.set())
    for _ in range(100):
        member.poll(0.2)
        if joined.is_set():
            break
    present = run(*asked)
    member.close()
    assert (present.returncode, present.stdout, present.stderr) == (0, "", "")
    assert run(*asked).returncode == 1


def test_a_worker_without_kafka_is_one_line() -> None:
    done = run("healthy", "worker", "--kafka", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no Kafka answers" in done.stderr


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (500, 1)])
def test_a_collector_is_asked_for_its_metrics(status: int, expected: int) -> None:
    with answering(status) as port:
        done = run("healthy", "collector", MYCROFT_COLLECTOR_METRICS_PORT=str(port))
    assert done.returncode == expected
    assert done.stderr.count("\n") == expected


def test_a_collector_that_is_not_there_is_one_line() -> None:
    (port,) = free_ports(1)
    done = run("healthy", "collector", MYCROFT_COLLECTOR_METRICS_PORT=str(port))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"no collector answers on 127.0.0.1:{port}" in done.stderr
    done = run("healthy", "collector", MYCROFT_COLLECTOR_METRICS_PORT="0")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("bootstrap", "address"),
    [
        ("127.0.0.1:9092", "127.0.0.1"),
        ("no-such-host.invalid:9092, 127.0.0.1:9092", "127.0.0.1"),
        ("[::1]:9092", "::1"),
        ("nonsense", "unknown address"),
    ],
)
def test_this_host_is_known_by_the_address_it_speaks_from(bootstrap: str, address: str) -> None:
    assert address_towards(bootstrap) == address
