"""Where the waits of a running job end: which devices, links and operations everything else waits for.

Devices wait in operations, operations for what holds them up. Edges come in by how much they are worth: what
is seen first, what may be (an older operation of which only the launch is known) only where a device would
otherwise be accused that nothing certain holds against. What then waits for nobody is a cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from schemas.enums import NodeKind, Reason
from schemas.ids import hash64
from schemas.records import WAIT, Records
from streams.graph import Mask, components, graph, sinks
from streams.live.hostfacts import HostFact
from streams.live.moment import SILENT_S, UNKNOWN_S, Process
from streams.live.stalls import AGE_S
from streams.membership import I64, U64
from streams.operations import U8
from streams.waitgraph import WaitGraph, nodes_of

DEATH_S = 2.0
"""Who was still said to live and run so long after the last progress of those who wait did not stall them by
dying or stopping. Hosts say so each second; on a busy host a death is found and told any time later."""
TURNING_S = 2.0
"""When a process dies others may follow at once, and what they leave looks like anything."""
RESUMED_S = 0.7
"""A process that was continued needs so long to show that it moves."""

FADING_S = (1.7, SILENT_S + 0.5)
"""A host that speaks each second and has missed its turn may be gone: it speaks soon or is told as silent."""

SETTLED_S = AGE_S + 0.1
"""Who has called nothing for so long stands in nothing that is not told as a stall by now."""

STANDING = (Reason.IN_OPERATION, Reason.IN_UNSEEN)
GPU = (Reason.GPU_NOT_READY, Reason.GPU_NOT_CONSUMING, Reason.UNSEEN, Reason.PEERS_FINISHED)
ENDPOINT = (*GPU, Reason.NOT_POSTED, Reason.NOT_TRANSMITTED, Reason.PROXY_SILENT)
ABSENT = (Reason.NOT_LAUNCHED, Reason.LEFT, Reason.CALLED)
GONE = (Reason.DEAD, Reason.STOPPED)


@dataclass(frozen=True)
class World:
    """What is known beside the waits; `now` in broker seconds."""

    now: float
    processes: Mapping[int, Process] = field(default_factory=dict)
    """By device."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """By device."""
    facts: tuple[HostFact, ...] = ()
    """What is wrong with the hosts."""

    def ended(self) -> bool:
        """Whether all processes of the job are no more: what they left unfinished is nobody's fault now."""
        return bool(self.processes) and not any(process.alive for process in self.processes.values())

    def turning(self) -> frozenset[int]:
        """Devices whose processes died a moment ago: whom that concerns shows when the dust has settled."""
        return frozenset(
            dev
            for dev, process in self.processes.items()
            if process.died_at is not None and self.now - process.died_at < TURNING_S
        )

    def unheard(self) -> bool:
        """Whether no host of the job speaks any more: then it is the way to here, and no host's fault."""
        alive = [each for each in self.processes.values() if each.alive]
        return bool(alive) and all(self.now - each.at > SILENT_S for each in alive)

    def fading(self) -> bool:
        """Whether some host may be about to be found silent: then what nothing shows may lie there."""
        missed, over = FADING_S
        return any(each.alive and missed <= self.now - each.at < over for each in self.processes.values())

    def unsettled(self, dev: int, since: float) -> bool:
        """Whether a device may have launched something since then (s) that does not count as a stall yet."""
        process = self.processes.get(dev)
        if process is None or not process.alive:
            return False
        # What is in flight there and is told as a stall has an edge of its own; else it is not late but busy.
        return process.at < since or process.quiet_s < SETTLED_S or process.busy_s < UNKNOWN_S

    def host(self, dev: int) -> str:
        """The host of a device; a name of its own where it is not known."""
        return self.hosts.get(dev) or f"?{dev}"


@dataclass(frozen=True)
class Sink:
    """One thing that everything before it waits for: node numbers, and the records that point at it."""

    nodes: tuple[int, ...]
    proof: tuple[int, ...]


def trace(waits: Records, world: World) -> tuple[WaitGraph, list[Sink]]:
    """The graph of all waits of a job, mismatches left out, and its sinks."""
    waits = _with_gone(waits[waits["reason"] != Reason.MISMATCH], world)
    reason, sure = waits["reason"], waits["sure"] == 1
    kind, node, source, target = nodes_of(waits, _identities(waits, world))
    own = _own(source, target, np.isin(reason, STANDING), np.isin(reason, (*ENDPOINT, *GONE)))
    active = (reason == Reason.IN_OPERATION) & ~own
    active |= ~np.isin(reason, STANDING) & (sure | np.isin(reason, ENDPOINT))
    # Who has launched an operation and stands in another one holds it up by what it does there.
    standing = np.unique(source[active & (reason == Reason.IN_OPERATION)])
    active |= (reason == Reason.QUEUED) & np.isin(target, standing)
    # Where it cannot be said what holds an operation up, standing in it explains nothing.
    held = np.unique(source[active & ~np.isin(reason, STANDING)])
    active &= (reason != Reason.IN_OPERATION) | np.isin(target, held)
    while True:
        web = _web(waits, kind, node, source, target, active)
        more = _possible(web) & ~own & ~active
        if not more.any():
            return web, [_sink(web, nodes) for nodes in web.sink_nodes()]
        active = active | more


def _web(waits: Records, kind: U8, node: U64, source: I64, target: I64, active: Mask) -> WaitGraph:
    forward = graph(len(node), source[active], target[active])
    component = components(forward)
    return WaitGraph(waits, kind, node, source, target, active, forward, component, sinks(forward, component))


def _sink(web: WaitGraph, nodes: I64) -> Sink:
    into = web.active & np.isin(web.target, nodes) & ~np.isin(web.waits["reason"], STANDING)
    return Sink(tuple(nodes.tolist()), tuple(np.flatnonzero(into).tolist()))


def _own(source: I64, target: I64, standing: Mask, holding: Mask) -> Mask:
    """Standing records of a device in an operation that it holds up itself: it does not wait there."""
    nodes = max(int(source.max(initial=0)), int(target.max(initial=0))) + 1
    mask: Mask = standing & np.isin(source * nodes + target, target[holding] * nodes + source[holding])
    return mask


def _possible(web: WaitGraph) -> Mask:
    """Records to follow from sinks against which there is nothing certain, shape (W,)."""
    reason, sure = web.waits["reason"], web.waits["sure"] == 1
    more = np.zeros(len(reason), np.bool_)
    standing = np.bincount(web.target[reason == Reason.IN_UNSEEN], minlength=len(web.node))
    held = np.zeros(len(web.node), np.bool_)
    held[web.source[~np.isin(reason, STANDING)]] = True
    for nodes in web.sink_nodes():
        leaving = np.isin(web.source, nodes) & (reason == Reason.IN_UNSEEN)
        for node in nodes.tolist():
            into = web.active & (web.target == node) & ~np.isin(reason, STANDING)
            firm = into & (np.isin(reason, GONE) | (np.isin(reason, ENDPOINT) & sure))
            if not firm.any():
                # Where it alone stands and nothing holds it, there is nobody to follow.
                mine = leaving & (web.source == node) & ((standing[web.target] > 1) | held[web.target])
                more |= mine & ~_overtaken(web, node, mine)
    # An operation that nobody is seen to hold up waits for members that have launched it and say nothing.
    closed = web.closed[web.component[web.source]] & (web.kind[web.source] == NodeKind.OPERATION)
    more |= closed & (reason == Reason.QUEUED)
    return more


def _overtaken(web: WaitGraph, node: int, standing: Mask) -> Mask:
    """Of these, the ones whose communicator has gone on without the device: the others are past them."""
    absent = np.isin(web.waits["reason"], ABSENT) & (web.target == node)
    gone_on = np.isin(web.waits["comm"], web.waits["comm"][absent])
    mask: Mask = standing & gone_on
    return mask


def _identities(waits: Records, world: World) -> U64:
    """Node ids of holders: a link is what lies between two hosts, whichever flow showed it."""
    ids: U64 = waits["holder"].copy()
    for index in np.flatnonzero(waits["holder_kind"] == NodeKind.LINK).tolist():
        ends = sorted(world.host(int(waits[name][index])) for name in ("holder", "holder_peer"))
        ids[index] = hash64("link", *ends)
    return ids


def _with_gone(waits: Records, world: World) -> Records:
    """The waits, with every operation that a dead or stopped member has not ended held up by that alone."""
    odd = [dev for dev, process in world.processes.items() if process.interrupted]
    if not odd:
        return waits[~np.isin(waits["reason"], GONE)]
    quiet = _longest_quiet(waits)
    held: defaultdict[int, dict[int, Reason]] = defaultdict(dict)
    for op, dev in _involved(waits, np.array(odd, np.uint64)):
        reason = _gone(world.processes.get(dev), world.now, quiet.get(op, 0.0))
        if reason is not None:
            held[op][dev] = reason
    waits = waits[~np.isin(waits["reason"], GONE)]
    if not held:
        return waits
    gone = {dev for devs in held.values() for dev in devs}
    holds = ~np.isin(waits["reason"], STANDING)
    keep = ~(holds & np.isin(waits["op"], np.array(list(held), np.uint64)))
    keep &= ~(~holds & np.isin(waits["waiter"], np.array(list(gone), np.uint64)))
    return np.concatenate([waits[keep], _gone_records(waits, held)])


def _involved(waits: Records, devices: U64) -> Iterable[tuple[int, int]]:
    """Operation and device of each record that is about one of these devices."""
    standing = np.isin(waits["reason"], STANDING)
    device = np.where(standing, waits["waiter"], waits["holder"])
    chosen = np.isin(device, devices)
    return zip(waits["op"][chosen].tolist(), device[chosen].tolist(), strict=True)


def _longest_quiet(waits: Records) -> dict[int, float]:
    """For how long each operation has shown no progress, s: of those who wait there the longest."""
    found: dict[int, float] = {}
    standing = waits[np.isin(waits["reason"], STANDING)]
    for op, quiet in zip(standing["op"].tolist(), standing["quiet_us"].tolist(), strict=True):
        found[op] = max(found.get(op, 0.0), quiet / 1e6)
    return found


def _gone(process: Process | None, now: float, quiet_s: float) -> Reason | None:
    if process is None:
        return None
    progress = now - quiet_s
    if process.died_at is not None or process.stopped_at is not None:
        reason = Reason.STOPPED if process.alive else Reason.DEAD
        return reason if process.gone_since - progress <= DEATH_S else None
    if process.cont_at is not None and now - process.cont_at <= RESUMED_S:
        return Reason.STOPPED
    return None


def _gone_records(waits: Records, held: Mapping[int, Mapping[int, Reason]]) -> Records:
    rows = []
    for op, devs in held.items():
        lead = waits[np.flatnonzero(waits["op"] == op)[0]]
        for dev, reason in devs.items():
            row = WAIT.empty(1)
            for name in ("job", "attempt", "comm", "seq", "op", "func", "members", "launched", "finished",
                         "sender", "receiver", "epoch", "partition", "count", "datatype"):  # fmt: skip
                row[name] = lead[name]
            row["reason"], row["sure"], row["channel"] = reason, 1, -1
            row["waiter_kind"], row["waiter"], row["waiter_rank"] = NodeKind.OPERATION, op, -1
            row["holder_kind"], row["holder"], row["holder_peer_rank"] = NodeKind.DEVICE, dev, -1
            row["holder_rank"] = _rank(waits, op, dev)
            row["holder_func"] = lead["func"]
            rows.append(row)
    return np.concatenate(rows)


def _rank(waits: Records, op: int, dev: int) -> int:
    mine = waits[waits["op"] == op]
    standing = mine[mine["waiter"] == dev]
    if len(standing):
        return int(standing["waiter_rank"][0])
    holding = mine[mine["holder"] == dev]
    return int(holding["holder_rank"][0]) if len(holding) else -1
