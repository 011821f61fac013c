"""Whether a worker, sink or collector of this host does its work."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import suppress

from streams.groups import member_hosts

ANSWER_S = 4.0


def of_member(bootstrap: str, part: str, group: str) -> str:
    """Why Kafka has no `part` of this host in a consumer group, empty where it has; raises BrokerError.

    This host is known by the address with which it speaks to Kafka, so several of its parts are one.
    """
    here, hosts = address_towards(bootstrap), member_hosts(bootstrap, group)
    if here in hosts:
        return ""
    others = f"only {', '.join(sorted(hosts))}" if hosts else "nobody"
    return f"no {part} of this host ({here}) is in Kafka's group {group}: {others}"


def of_collector(port: int) -> str:
    """Why the collector does not answer on its metrics' port on loopback, empty where it does."""
    if port == 0:
        return "the collector has no metrics' port (MYCROFT_COLLECTOR_METRICS_PORT=0), so it cannot be asked"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_S):
            return ""
    except OSError as error:
        return f"no collector answers on 127.0.0.1:{port}: {error}"


def address_towards(bootstrap: str) -> str:
    """The address of this host from which packets to the first broker that has one would go."""
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        with suppress(OSError, ValueError):
            kind, _, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port))[0]
            with socket.socket(kind, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # of UDP: nothing is sent
                return str(probe.getsockname()[0])
    return "unknown address"
