"""A real Apache Kafka for tests: fetched once through Maven, run as one KRaft node on loopback.

The jars lie in `.cache/kafka-VERSION` of the tree, which git ignores. Needs `java` (17 or later) and `mvn`.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.kafka import BrokerUnreachable, admin, error_of, metadata

VERSION = "4.1.1"
_SCALA = "2.13"
_LOG4J = "2.24.3"  # the one that this Kafka brings; only its slf4j binding has to be added

_CACHE = Path(__file__).resolve().parents[2] / ".cache" / f"kafka-{VERSION}"
_FETCH_TIMEOUT_S = 600
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 30
_PR_SET_PDEATHSIG = 1

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mycroft.tests</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_{_SCALA}</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{_LOG4J}</version>
    </dependency>
  </dependencies>
</project>
"""

LOGGING = """status = warn
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
"""


class KafkaUnavailable(RuntimeError):
    """Apache Kafka cannot be had or started here; the text says why."""


def fetch() -> Path:
    """The folder with Kafka's jars, fetched if it is not there yet (about half a minute).

    Raises KafkaUnavailable.
    """
    libs = _CACHE / "libs"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once fetch it once
        if not libs.exists():
            _fetch_into(libs)
    return libs


def _fetch_into(libs: Path) -> None:
    maven = _tool("mvn")
    draft = _CACHE / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    (_CACHE / "pom.xml").write_text(_POM)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft}"]
    try:
        done = subprocess.run(
            [maven, "-q", "-B", *goal],
            cwd=_CACHE,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(f"mvn did not fetch Kafka {VERSION} within {_FETCH_TIMEOUT_S} s") from error
    if done.returncode or not list(draft.glob(f"kafka_{_SCALA}-*.jar")):
        raise KafkaUnavailable(f"mvn did not fetch Kafka {VERSION}: {(done.stdout + done.stderr)[-500:]}")
    draft.rename(libs)


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KafkaUnavailable(f"{name} is not installed (Debian: openjdk-17-jre-headless and maven)")
    return path


class ApacheKafka:
    """One KRaft node, broker and controller in one; `folder` holds its data and its log."""

    kind = "kafka"

    def __init__(self, folder: Path) -> None:
        """Formats and starts it; blocks until it answers. Raises KafkaUnavailable."""
        self._java = _tool("java")
        self._classpath = f"{fetch()}/*"
        self._folder = folder
        self._log = folder / "kafka.log"
        broker_port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        (folder / "log4j2.properties").write_text(LOGGING)
        self._config = folder / "server.properties"
        self._config.write_text(_server_properties(folder / "data", broker_port, controller_port))
        self._format()
        self.start()

    def _format(self) -> None:
        arguments = [
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={_cluster_id()}",
            "-c",
            str(self._config),
        ]
        done = subprocess.run(
            self._command(*arguments), capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise KafkaUnavailable(
                f"Kafka's storage cannot be formatted: {(done.stdout + done.stderr)[-500:]}"
            )

    def _command(self, *arguments: str) -> list[str]:
        return [
            self._java,
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # starts sooner; nothing here runs long
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            "-cp",
            self._classpath,
            *arguments,
        ]

    def start(self) -> None:
        """Starts it on the address it has had all along. Raises KafkaUnavailable."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._config)),
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - takes no lock
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        client = admin(self.bootstrap, "tests")
        while not _answers(client, self.bootstrap):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise KafkaUnavailable(f"Kafka does not start: {self._log.read_text()[-800:]}")

    def stop(self) -> None:
        """Ends it, by force where it takes too long; its data stays."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """As an operator restarts a broker: data and address remain."""
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Removes all topics and consumer groups, so that the next test finds it as new."""
        client = admin(self.bootstrap, "tests")
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while names := _own_topics(client):
            why = _refused(client.delete_topics(names, operation_timeout=10).values())
            _expect(deadline, f"topics {names} cannot be deleted: {why}")
        while groups := [group.group_id for group in client.list_consumer_groups().result().valid]:
            # Refused while a member that was killed has not timed out.
            why = _refused(client.delete_consumer_groups(groups).values())
            _expect(deadline, f"groups {groups} cannot be deleted: {why}")


def _own_topics(client: AdminClient) -> list[str]:
    return [name for name in client.list_topics(timeout=10).topics if not name.startswith("__")]


def _refused(futures: Iterable[Future[None]]) -> str:
    """Why the last of these that was refused was, empty where none was."""
    why = ""
    for future in futures:
        try:
            future.result()
        except KafkaException as error:
            why = error_of(error).str()
    return why


def _expect(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        raise KafkaUnavailable(otherwise)
    time.sleep(0.05)


def _answers(client: AdminClient, bootstrap: str) -> bool:
    try:
        return bool(metadata(client, bootstrap, timeout_s=1.0).brokers)
    except BrokerUnreachable:
        return False


def _die_with_parent() -> None:
    """A test run that is killed must not leave a JVM behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _cluster_id() -> str:
    """22 characters of URL-safe base64, as Kafka writes a UUID."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _server_properties(data: Path, broker_port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        # One node cannot replicate, and what it has must not be lost on a restart.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Topics come from whoever needs them, never from a typing error.
        "auto.create.topics.enable": "false",
        # Tests wait for every group; there is nobody else to wait for.
        "group.initial.rebalance.delay.ms": 0,
        # A broker that was killed keeps its registration for so long, and cannot come back before.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def in_ci() -> bool:
    """Whether the absence of Kafka is a failure instead of a skip."""
    return bool(os.environ.get("CI"))
