"""From findings to incidents: identity, severity, and the texts that explain a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.enums import Reason
from schemas.ids import hash64, hex_id
from schemas.incidents import Incident, Node, iso_time
from schemas.records import Records
from schemas.snapshots import SnapshotEnd
from streams.facts import Facts
from streams.findings import Finding, Findings, step_s, waited_s
from streams.live import sentences
from streams.severity import Rules, severity
from streams.summaries import summary
from streams.suspects import Known
from streams.words import Words


@dataclass(frozen=True)
class Occasion:
    """What the incidents of one judgement have in common."""

    job: str
    attempt: str
    job_id: int
    attempt_id: int
    detected: int
    """ns since the epoch, the judge's clock."""
    blind: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    """Trace partitions that had not reported in time."""
    unread: tuple[int, ...] = ()
    """Of these, the ones that no worker reads."""
    lost: int = 0
    """Messages that never arrived."""
    rules: Rules | None = None
    """How loud, of a job that runs and is told of by its hosts; None for dumps of one that does not."""

    @property
    def live(self) -> bool:
        """Whether the job runs."""
        return self.rules is not None

    @property
    def incomplete(self) -> bool:
        """Whether the verdict rests on less than was sent."""
        return bool(self.missing or self.lost)


def knowledge(waits: Records, facts: Facts, occasion: Occasion, end: SnapshotEnd | None) -> Known:
    """What the judge of a snapshot knows beside its waits."""
    standing = set(waits["waiter"][waits["reason"] == Reason.IN_OPERATION].tolist())
    return Known(
        blind="p2p" in occasion.blind,
        silent=facts.silent(),
        present=None if end is None else len(set(end.ranks) - set(end.silent)),
        idle={dev: order for dev, order in facts.orders.items() if dev not in standing},
    )


_DECIDES = {
    "late-launch": "a stack of the process (py-spy dump --pid …): what is its host code doing?",
    "gpu-hang": "the kernel log of its host (dmesg: NVRM Xid …) and a core dump of the kernel",
    "host-silent": "its Flight Recorder dump, the job's log on that host, whether the process is alive",
    "mismatch": "the call sites of this operation in the ranks named (Flight Recorder's frames)",
    "deadlock": "the call sites of these operations: every rank has to issue them in the same order",
    "process-dead": "the job's log and the kernel log of its host (out of memory, Xid, a signal)",
    "process-stopped": "who sent the signal: a debugger, a scheduler, a console (kill -CONT resumes it)",
    "in-nccl-call": "a stack of the process (gdb -p, py-spy dump --native): where in NCCL is it?",
    "outside-nccl": "stacks of these processes (py-spy dump --pid …): what do they wait for outside NCCL?",
    "link": "carrier, errors and retransmits of both NICs (/sys/class/net, ethtool -S), the switch's ports",
    "nic-send": "carrier, errors and retransmits of its NIC (/sys/class/net, /sys/class/infiniband)",
    "nic-recv": "errors of its NIC (ethtool -S) and of the port of the switch that it is plugged into",
    "proxy": "a native stack of the process (gdb -p): what does NCCL's proxy thread do?",
    "unknown": "flow counters of these ranks (Mycroft's profiler plugin), or the kernel log of their hosts",
}


def incidents(occasion: Occasion, facts: Facts, findings: Findings) -> list[Incident]:
    """One incident per finding, in the order of the findings."""
    words = Words(facts, findings.waits)
    seen: set[str] = set()
    return [_incident(occasion, facts, findings.waits, words, finding, seen) for finding in findings.found]


def _incident(
    occasion: Occasion, facts: Facts, waits: Records, words: Words, finding: Finding, seen: set[str]
) -> Incident:
    return Incident(
        id=_identity(occasion, waits, finding, seen),
        job=occasion.job,
        attempt=occasion.attempt,
        kind="stall",
        category=finding.category,
        severity=_severity(occasion, waits, finding),
        confidence=finding.confidence,
        summary=summary(words, finding, occasion.live),
        culprits=nodes(facts, finding.culprits),
        candidates=nodes(facts, finding.candidates),
        waiting=finding.waiting,
        chain=(*(words.link(link) for link in finding.chain), *words.verdict(finding)),
        evidence=(
            *(sentences.host_fact(fact) for fact in finding.facts),
            *words.evidence(finding),
            *_caveats(occasion),
        ),
        ruled_out=tuple(_ruled_out(words, finding)),
        would_decide=tuple(_would_decide(occasion, words, waits, finding)),
        since=_since(waits, finding),
        detected=iso_time(occasion.detected),
    )


def _severity(occasion: Occasion, waits: Records, finding: Finding) -> str:
    if occasion.rules is not None:
        return severity(finding, waited_s(waits, finding.proof), step_s(waits, finding.proof), occasion.rules)
    # Somebody dumps a job because it hangs: what is found is why.
    return "warning" if finding.category == "mismatch" else "critical"


def _identity(occasion: Occasion, waits: Records, finding: Finding, seen: set[str]) -> str:
    """Of job, attempt and the first operation that is held up: nothing that a later judgement may revise."""
    first = min(
        ((int(row["comm"]), int(row["seq"]), int(row["op"])) for row in waits[list(finding.proof)]),
        default=(0, 0, 0),
    )
    number = 0
    while True:
        identity = hex_id(hash64("incident", occasion.job_id, occasion.attempt_id, *first, number))
        if identity not in seen:
            seen.add(identity)
            return identity
        number += 1


def nodes(facts: Facts, devices: Sequence[int]) -> tuple[Node, ...]:
    """Devices as an incident names them, by world rank."""
    nodes = []
    for dev in devices:
        known = facts.devices.get(dev)
        ranks = {hex_id(comm): rank for comm, rank in sorted(facts.ranks.get(dev, {}).items())}
        nodes.append(
            Node(
                kind="device",
                rank=known.world_rank if known else None,
                ranks=ranks,
                dev=hex_id(dev),
                host=known.host if known else None,
                pid=known.pid if known else None,
                gpu=known.gpu if known else None,
            )
        )
    return tuple(sorted(nodes, key=lambda node: (node.rank is None, node.rank, node.dev)))


def _caveats(occasion: Occasion) -> list[str]:
    caveats = []
    if occasion.missing:
        parts = ", ".join(str(partition) for partition in occasion.missing)
        unread = f"; no worker reads {', '.join(map(str, occasion.unread))}" if occasion.unread else ""
        caveats.append(f"incomplete: nothing came from trace partitions {parts} in time{unread}")
    if occasion.lost:
        caveats.append(f"incomplete: {occasion.lost} messages of the snapshot never arrived")
    return caveats


def _ruled_out(words: Words, finding: Finding) -> list[str]:
    lines = []
    if finding.ahead:
        ahead, behind = words.devices(finding.ahead), words.devices(finding.named)
        verb = "is" if len(finding.ahead) == 1 else "are"
        lines.append(f"{ahead} {verb} idle too, but ahead: launched more operations than {behind}")
    if finding.waiting and finding.category not in ("deadlock", "unknown"):
        one = finding.waiting == 1
        ranks = "the rank that waits: it" if one else f"the {finding.waiting} ranks that wait: each"
        lines.append(f"{ranks} stands in an operation that others hold up")
    return lines


def _would_decide(occasion: Occasion, words: Words, waits: Records, finding: Finding) -> list[str]:
    lines = [_DECIDES[finding.category]]
    if not finding.culprits and (doubt := _doubt(occasion, words, finding)):
        lines.insert(0, doubt)
    if not occasion.live and Reason.UNSEEN in {int(waits["reason"][index]) for index in finding.proof}:
        lines.insert(0, "launches and ends alone do not show progress inside an operation")
    return lines


def _doubt(occasion: Occasion, words: Words, finding: Finding) -> str:
    """Why no culprit can be named, empty where the category says it."""
    named = words.devices(finding.candidates)
    if occasion.incomplete and finding.category in ("late-launch", "host-silent"):
        return f"records are missing: {named} may wait in an operation of which none arrived"
    if finding.category == "late-launch" and "p2p" in occasion.blind:
        return (
            f"the source records no point-to-point operations: {named} have nothing pending and cannot be "
            "told apart by their launches, so each may wait for the other in a send or receive; "
            "a record of those (NCCL's Flight Recorder, Mycroft's plugin) would tell"
        )
    if finding.category == "late-launch":
        return (
            f"{named} have nothing pending and are missing from the same operations: any of them may "
            "wait for another outside NCCL (a barrier, a store, a lock)"
        )
    if finding.category == "gpu-hang":
        return f"{named} may only wait for another member's data at the end of the operation"
    if finding.category == "host-silent":
        return f"without records {named} may as well wait for somebody else"
    if finding.category == "unknown" and len(finding.nodes) == 1 and len(finding.candidates) > 1:
        return (
            "the dumps keep no finished sends and receives, so one that is not in them may never have been "
            "launched or be long finished; dumps that keep them would tell"
        )
    return ""


def _since(waits: Records, finding: Finding) -> str | None:
    """Launch of the operation in which the first link's waiter stands, by its host's clock."""
    times = [int(waits["since"][link.standing]) for link in finding.chain]
    times += [int(waits["since"][index]) for index in finding.proof]
    known = [time for time in times if time > 0]
    return iso_time(known[0]) if known else None
