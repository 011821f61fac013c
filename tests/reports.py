"""An incident and evidence whose every name is an attack."""

from __future__ import annotations

from queries.report.chain import Edge, Place
from queries.report.evidence import Evidence, Flow
from queries.report.timeline import Operation
from schemas.incidents import Incident, Node

HOSTILE = "\"'><script>window.harmed=1</script><img src=x onerror=window.harmed=2>{{ 7*7 }}</svg></style>"


def hostile_incident() -> Incident:
    """Job, host and every sentence."""
    node = Node("device", 3, host=HOSTILE, pid=7)
    return Incident(
        id="0123456789abcdef", job=HOSTILE, attempt=HOSTILE, kind="stall", category="gpu-hang",
        severity="warning", confidence="likely", summary=HOSTILE, culprits=(node,), candidates=(),
        waiting=1, chain=(HOSTILE,), evidence=(HOSTILE,), ruled_out=(HOSTILE,), would_decide=(HOSTILE,),
        since="2026-03-01T03:12:09.000000Z", detected="2026-03-01T03:12:11.000000Z",
    )  # fmt: skip


def hostile_evidence() -> Evidence:
    """Communicators and hosts."""
    place = Place(3, HOSTILE)
    return Evidence(
        (
            Edge("device 1", HOSTILE, "operation 2", HOSTILE, HOSTILE, False),
            Edge("operation 2", HOSTILE, "device 3", HOSTILE, HOSTILE, True),
        ),
        (Flow(HOSTILE, 1, 2, 0, "send", 9, (("ready", 4), ("transmitted", 3), ("done", 2)), 1.0),),
        (Operation(place, True, HOSTILE, 1e9, 2.0, False),),
        1,
    )
