"""Are Kafka and ClickHouse there, with our topics and tables?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import schemas
from mycroft.doctor.check import Check, ok, problem
from queries.client import StoreError, connect, store_errors, without_secret
from schemas.migrate import DATABASE
from schemas.topics import TOPICS
from streams.kafka import BrokerError, admin, is_embedded, metadata

ANSWER_S = 4.0
_WANTED = tuple(topic.name for topic in TOPICS)
_MIGRATIONS = Path(schemas.__file__).parent / "migrations"


@dataclass(frozen=True)
class Broker:
    """What Kafka told: partitions by topic. `error` is one line where it does not answer."""

    address: str
    error: str = ""
    brokers: int = 0
    embedded: bool = False
    topics: Mapping[str, int] = field(default_factory=dict)


def look_at_kafka(address: str) -> Broker:
    """Blocks for some seconds at most."""
    try:
        cluster = metadata(admin(address, "doctor"), address, ANSWER_S)
    except BrokerError as error:
        return Broker(address, str(error))
    except Exception as error:  # librdkafka refuses malformed addresses in several ways
        return Broker(address, " ".join(str(error).split()))
    topics = {name: len(topic.partitions) for name, topic in cluster.topics.items()}
    return Broker(address, "", len(cluster.brokers), is_embedded(cluster), topics)


def check_kafka(broker: Broker, wanted: Iterable[str] = _WANTED) -> Check:
    """Reachable, and all topics there with the same partitions where that matters."""
    name = "Kafka"
    if broker.error:
        remedy = (
            "start the local stack with mycroft up, or set --kafka (MYCROFT_KAFKA) and open the way there"
        )
        return problem(name, broker.error.split(": start the local stack")[0], remedy)
    missing = [topic for topic in wanted if not broker.topics.get(topic)]
    what = "the embedded broker" if broker.embedded else f"{broker.brokers} brokers"
    if missing:
        remedy = "start a worker (mycroft worker): it makes the topics"
        return problem(
            name, f"{broker.address} answers ({what}), without topics {', '.join(missing)}", remedy
        )
    partitions = broker.topics.get("nccl.trace", 0)
    return ok(
        name, f"{broker.address} answers ({what}), all topics there, {partitions} partitions of nccl.trace"
    )


@dataclass(frozen=True)
class Store:
    """What ClickHouse told. `applied` None: it has no tables of ours."""

    url: str
    error: str = ""
    version: str = ""
    applied: frozenset[int] | None = None


def look_at_clickhouse(url: str) -> Store:
    """Blocks for some seconds at most; `url` in the answer is without its secret."""
    shown = without_secret(url)
    try:
        client = connect(url)
        with store_errors(url):
            version = str(client.query("SELECT version()").result_rows[0][0])
            there = client.query(
                "SELECT count() FROM system.tables WHERE database = {d:String} AND name = 'schema_versions'",
                parameters={"d": DATABASE},
            ).result_rows[0][0]
            if not there:
                return Store(shown, "", version)
            rows = client.query(f"SELECT version FROM {DATABASE}.schema_versions").result_rows
    except StoreError as error:
        return Store(shown, str(error))
    except Exception as error:  # the driver lets some errors of its own through
        return Store(shown, " ".join(str(error).split()))
    return Store(shown, "", version, frozenset(int(row[0]) for row in rows))


def migrations() -> dict[int, str]:
    """The migrations of this version by number."""
    return {int(path.name.split("_")[0]): path.stem for path in sorted(_MIGRATIONS.glob("[0-9]*_*.sql"))}


def check_clickhouse(store: Store, wanted: Mapping[int, str]) -> Check:
    """Reachable and migrated; a store that is newer than we are is a problem too."""
    name = "ClickHouse"
    if store.error:
        remedy = "start the local stack with mycroft up, or set --clickhouse (MYCROFT_CLICKHOUSE)"
        return problem(name, store.error, remedy)
    what = f"{store.url} answers (version {store.version})"
    if store.applied is None:
        return problem(name, f"{what}, without tables of ours", "mycroft migrate")
    missing = [stem for number, stem in sorted(wanted.items()) if number not in store.applied]
    if missing:
        return problem(name, f"{what}, but lacks {', '.join(missing)}", "mycroft migrate")
    newer = sorted(store.applied - set(wanted))
    if newer:
        says = f"{what}, migrated by a newer Mycroft (migration {newer[-1]})"
        return problem(name, says, "upgrade Mycroft on this host")
    return ok(name, f"{what} and is migrated")
