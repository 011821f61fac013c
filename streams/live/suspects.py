"""What a cause is called, whom it names, and how sure that is.

Positive evidence first: a process that is gone, a wire that does not deliver, a GPU that has moved and
stopped. Absence comes next, and what nothing shows (operations without flows) only where nothing else
explains the waits: "candidates" is an answer, blaming a victim is a defect (diagnosis-rules, "Verdict").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schemas.enums import NodeKind, Reason
from streams.findings import Finding, quiet_s, waited_s
from streams.graph import Mask
from streams.live.attendance import LATE_S
from streams.live.causes import ABSENT, GONE, GPU, STANDING, Sink, World
from streams.live.hostfacts import lost_carriers, reported_gpus
from streams.live.order import astray, crossings
from streams.waitgraph import WaitGraph

RANKED = (
    GONE, (Reason.NOT_DELIVERED, Reason.NOT_TRANSMITTED), (Reason.NOT_POSTED, Reason.PROXY_SILENT),
    ABSENT, GPU, (Reason.SILENT,), (Reason.QUEUED,),
)  # fmt: skip
"""Of several reasons against one node, the first of these counts."""


STOPPED = (Reason.GPU_NOT_READY, Reason.GPU_NOT_CONSUMING)
SET_AGE_S = 2.0
"""What nothing shows is said last: what would explain the waits is told within a second of their start."""


@dataclass(frozen=True)
class Judged:
    """A finding with what decides whether it stands beside others."""

    finding: Finding
    weight: int
    """2: positive evidence; 1: absence; 0: what nothing shows."""
    gone: bool = False


def judge(web: WaitGraph, sinks: Sequence[Sink], world: World) -> list[Finding]:
    """The findings of one job at one moment, from where its waits end."""
    kinds: defaultdict[str, list[Sink]] = defaultdict(list)
    for sink in sinks:
        kinds[_kind(web, sink, world)].append(sink)
    found = [
        *_gone(web, kinds["gone"], world),
        *_wires(web, kinds["wire"], world),
        *_posted(web, kinds["posted"]),
        *_absent(web, kinds["absent"]),
        *_stopped(web, kinds["gpu"]),
        *_circles(web, kinds["circle"]),
        *_unseen(web, kinds["set"] + kinds["maze"], kinds["operation"]),
        *_silent(web, kinds["silent"], world),
    ]
    if not any(each.weight for each in found):
        found += _crossed(web)
    if world.fading():
        found = [each for each in found if each.weight]
    found = [_reported(web, each, world) for each in found]
    if any(each.gone for each in found):
        found = [each for each in found if each.weight == 2]
    if any(each.weight == 2 for each in found):
        found = [each for each in found if each.finding.category != "host-silent"]
    if any(each.weight for each in found):
        found = [each for each in found if each.weight]
    return [each.finding for each in found]


def _kind(web: WaitGraph, sink: Sink, world: World) -> str:
    node = sink.nodes[0]
    if len(sink.nodes) > 1:
        return "circle" if _inescapable(web, sink) else "maze"
    if web.kind[node] == NodeKind.OPERATION:
        return "operation" if _nothing_else(web, node) else "open"
    reasons = {Reason(int(web.waits["reason"][index])) for index in sink.proof}
    sure = {Reason(int(web.waits["reason"][index])) for index in sink.proof if web.waits["sure"][index]}
    rank = next((place for place, group in enumerate(RANKED) if reasons & set(group)), len(RANKED))
    if rank == 3 and sure & set(GPU):
        rank = 4
    names = ("gone", "wire", "posted", "absent", "gpu", "silent", "open", "open")
    name = names[rank]
    if name == "gpu" and not sure & set(GPU):
        return "open" if _older(web, sink) else "set"
    if name == "silent" and not sure:
        return "open"
    if name == "absent" and _stands(web, node):
        return "open"
    if name == "absent" and world.unsettled(
        int(web.node[node]), world.now - waited_s(web.waits, sink.proof) + LATE_S
    ):
        return "open"
    return name


def _older(web: WaitGraph, sink: Sink) -> bool:
    """Whether a GPU that has not begun may be busy with something older, of which nothing is told."""
    if any(web.waits["reason"][index] == Reason.UNSEEN for index in sink.proof):
        return False  # counts of its host say that something was begun
    ops = web.source[list(sink.proof)]
    own = (web.source == sink.nodes[0]) & np.isin(web.target, ops)
    seen = own & (web.waits["reason"] == Reason.IN_OPERATION)
    return bool(seen.any()) and not web.waits["sure"][seen].any()


def _stands(web: WaitGraph, node: int) -> bool:
    """Whether a device is seen to stand somewhere, even where it cannot be said yet what holds that up."""
    return bool(((web.source == node) & (web.waits["reason"] == Reason.IN_OPERATION)).any())


def _nothing_else(web: WaitGraph, node: int) -> bool:
    """Whether an operation is one whose members all stand in it or have ended it, unseen."""
    leaving = web.source == node
    standing = web.waits["reason"][web.target == node]
    return not leaving.any() and bool((standing == Reason.IN_UNSEEN).all())


def _finding(
    web: WaitGraph, category: str, confidence: str, culprits: Iterable[int], candidates: Iterable[int],
    sinks: Sequence[Sink], proof: Iterable[int] | None = None,
) -> Finding:  # fmt: skip
    """Devices are ids here."""
    nodes = tuple(node for sink in sinks for node in sink.nodes)
    given = [index for sink in sinks for index in sink.proof] if proof is None else list(proof)
    given.sort(key=lambda index: (_worth(web, index), *_place(web, index)))
    return Finding(category, confidence, tuple(culprits), tuple(candidates), nodes, tuple(given))


def _worth(web: WaitGraph, index: int) -> int:
    reason = Reason(int(web.waits["reason"][index]))
    place = next((place for place, group in enumerate(RANKED) if reason in group), len(RANKED))
    return 2 * place + (0 if web.waits["sure"][index] else 1)


def _place(web: WaitGraph, index: int) -> tuple[int, ...]:
    row = web.waits[index]
    return int(row["holder"]), int(row["comm"]), int(row["seq"]), int(row["channel"])


def _devices(web: WaitGraph, sinks: Sequence[Sink]) -> list[int]:
    return [int(web.node[node]) for sink in sinks for node in sink.nodes if web.kind[node] == NodeKind.DEVICE]


def _gone(web: WaitGraph, sinks: Sequence[Sink], world: World) -> Iterable[Judged]:
    """Dead and stopped processes: those of one host together."""
    groups: defaultdict[tuple[str, str], list[Sink]] = defaultdict(list)
    for sink in sinks:
        dead = any(web.waits["reason"][index] == Reason.DEAD for index in sink.proof)
        host = world.host(int(web.node[sink.nodes[0]]))
        groups["process-dead" if dead else "process-stopped", host].append(sink)
    for (category, _), group in groups.items():
        yield Judged(_finding(web, category, "proven", _devices(web, group), (), group), 2, gone=True)


def _wires(web: WaitGraph, sinks: Sequence[Sink], world: World) -> Iterable[Judged]:
    """Links and NICs: links that share a host are that host's NIC, one alone names both its ends."""
    links = [sink for sink in sinks if web.kind[sink.nodes[0]] == NodeKind.LINK]
    for sink in sinks:
        if sink not in links:
            devices = _devices(web, [sink])
            lost = lost_carriers(world.facts, world.host(devices[0]), _progress(web, sink, world))
            sure = "proven" if lost else "likely"
            yield Judged(replace(_finding(web, "nic-send", sure, devices, (), [sink]), facts=lost), 2)
    own = {world.host(dev) for sink in sinks if sink not in links for dev in _devices(web, [sink])}
    ends = {sink: _hosts(web, sink, world) for sink in links}
    left = [sink for sink in links if not own & ends[sink].keys()]
    for host, group in _dead_ends(web, left, ends, world).items():
        dead = {dev for sink in group for dev in ends[sink][host]}
        facts = [fact for s in group for fact in lost_carriers(world.facts, host, _progress(web, s, world))]
        found = _finding(web, _direction(web, group, dead), "proven", sorted(dead), (), group)
        yield Judged(replace(found, facts=tuple(dict.fromkeys(facts))), 2)
        left = [sink for sink in left if sink not in group]
    while left:
        count: defaultdict[str, int] = defaultdict(int)
        for sink in left:
            for host in ends[sink]:
                count[host] += 1
        host = max(sorted(count), key=lambda name: count[name])
        group = [sink for sink in left if host in ends[sink]]
        if len(group) == 1:
            both = sorted(dev for devs in ends[group[0]].values() for dev in devs)
            if not _in_common(web, group[0]):
                yield Judged(_finding(web, "link", "likely", both, (), group), 2)
            elif waited_s(web.waits, group[0].proof) >= SET_AGE_S:  # by then all who use it wait
                yield Judged(_finding(web, "link", "candidates", (), both, group), 2)
        else:
            devs = sorted({dev for sink in group for dev in ends[sink][host]})
            yield Judged(_finding(web, "link", "likely", devs, (), group), 2)
        left = [sink for sink in left if sink not in group]


def _progress(web: WaitGraph, sink: Sink, world: World) -> float:
    """When what a sink holds up last moved, broker seconds."""
    return world.now - quiet_s(web.waits, sink.proof)


def _dead_ends(
    web: WaitGraph, links: Sequence[Sink], ends: Mapping[Sink, Mapping[str, set[int]]], world: World
) -> dict[str, list[Sink]]:
    """Links of which exactly one end's host has lost a carrier since they moved, by that host."""
    found: defaultdict[str, list[Sink]] = defaultdict(list)
    for sink in links:
        progress = _progress(web, sink, world)
        dead = [host for host in ends[sink] if lost_carriers(world.facts, host, progress)]
        if len(dead) == 1 and len(ends[sink]) > 1:
            found[dead[0]].append(sink)
    return found


def _direction(web: WaitGraph, links: Sequence[Sink], devices: set[int]) -> str:
    """Whether a dead NIC shows as one that does not send or, only where nothing else shows it, receive."""
    senders = {int(web.waits["holder"][index]) for sink in links for index in sink.proof}
    return "nic-send" if senders & devices else "nic-recv"


_OF_GPUS = ("process-dead", "gpu-hang", "late-launch", "in-nccl-call", "outside-nccl")


def _reported(web: WaitGraph, judged: Judged, world: World) -> Judged:
    """A finding about devices on whose GPU the driver has reported since: those are the culprits."""
    finding = judged.finding
    if finding.category not in _OF_GPUS:
        return judged
    progress = world.now - quiet_s(web.waits, finding.proof)
    facts = reported_gpus(world.facts, finding.named, progress)
    if not facts:
        return judged
    culprits = tuple(sorted({fact.dev for fact in facts}))
    if finding.category == "process-dead":  # it may well have died of that
        return replace(judged, finding=replace(finding, facts=facts))
    proven = replace(
        finding, category="gpu-hang", confidence="proven", culprits=culprits, candidates=(), facts=facts
    )
    return replace(judged, finding=proven, weight=2)


def _in_common(web: WaitGraph, sink: Sink) -> set[int]:
    """Devices at an end of every flow that shows a dead link.

    A stuck proxy or a lost credit of one of them leaves the same counters; flows without a device in common
    leave the link and the two NICs.
    """
    rows = web.waits[list(sink.proof)]
    pairs = [{int(row["holder"]), int(row["holder_peer"])} for row in rows]
    return set.intersection(*pairs)


def _hosts(web: WaitGraph, sink: Sink, world: World) -> dict[str, set[int]]:
    """The hosts at the ends of a link, with the devices whose flows show it."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for index in sink.proof:
        for name in ("holder", "holder_peer"):
            dev = int(web.waits[name][index])
            found[world.host(dev)].add(dev)
    return dict(found)


def _posted(web: WaitGraph, sinks: Sequence[Sink]) -> Iterable[Judged]:
    for sink in sinks:
        yield Judged(_finding(web, "proxy", "likely", _devices(web, [sink]), (), [sink]), 2)


def _absent(web: WaitGraph, sinks: Sequence[Sink]) -> Iterable[Judged]:
    """Members that have not launched what others wait in.

    One without which some operation would have everybody is late. Several may wait for one another outside
    NCCL (a barrier, a store, a lock), or in an operation of which nothing shows that it has ended.
    """
    holders: defaultdict[int, set[int]] = defaultdict(set)
    for sink in sinks:
        for index in sink.proof:
            if Reason(int(web.waits["reason"][index])) in ABSENT:
                holders[int(web.waits["op"][index])].add(sink.nodes[0])
    alone = {next(iter(nodes)) for nodes in holders.values() if len(nodes) == 1}
    reasons = web.waits["reason"]
    sure = [sink for sink in sinks if sink.nodes[0] in alone]
    called = [sink for sink in sure if (reasons[list(sink.proof)] == Reason.CALLED).all()]
    late = [sink for sink in sure if sink not in called]
    for sink in called:
        yield Judged(_finding(web, "in-nccl-call", "proven", _devices(web, [sink]), (), [sink]), 1)
    missing = [sink for sink in sinks if sink not in called]
    if len(late) == 1:
        yield Judged(_finding(web, "late-launch", "proven", _devices(web, late), (), late), 1)
    elif missing and (late or not called):
        yield Judged(_finding(web, "outside-nccl", "candidates", (), _devices(web, missing), missing), 1)


def _stopped(web: WaitGraph, sinks: Sequence[Sink]) -> Iterable[Judged]:
    """GPUs that moved and stopped with nothing in their way: several may wait outside what NCCL shows."""
    devices = _devices(web, sinks)
    if len(devices) == 1:
        yield Judged(_finding(web, "gpu-hang", "likely", devices, (), sinks), 2)
    elif devices:
        yield Judged(_finding(web, "gpu-hang", "candidates", (), devices, sinks), 2)


def _held(web: WaitGraph, inside: Mask) -> list[int]:
    """Of these records, those that say what holds an operation up."""
    found: list[int] = np.flatnonzero(inside & ~np.isin(web.waits["reason"], STANDING)).tolist()
    return found


def _inescapable(web: WaitGraph, sink: Sink) -> bool:
    """Whether all waits of a circle are certain; in others a device may stand elsewhere than it seems."""
    inside = web.inside(np.array(sink.nodes, np.int64))
    reasons = {Reason(int(reason)) for reason in web.waits["reason"][inside]}
    return reasons <= {Reason.IN_OPERATION, Reason.QUEUED, *ABSENT}


def _circles(web: WaitGraph, sinks: Sequence[Sink]) -> Iterable[Judged]:
    """Devices that wait for one another in operations that none of them can end."""
    for sink in sinks:
        proof = _held(web, web.inside(np.array(sink.nodes, np.int64)))
        yield Judged(_finding(web, "deadlock", "proven", (), _devices(web, [sink]), [sink], proof), 2)


def _crossed(web: WaitGraph) -> Iterable[Judged]:
    """Circles in which devices launched two collectives in different orders, whoever holds them besides."""
    for component, crossed in crossings(web).items():
        nodes = np.flatnonzero(web.component == component)
        inside = web.inside(nodes)
        if waited_s(web.waits, np.flatnonzero(inside).tolist()) < SET_AGE_S:
            continue
        alone, circle = astray(crossed), [Sink(tuple(nodes.tolist()), tuple(_held(web, inside)))]
        if alone is not None:
            yield Judged(_finding(web, "deadlock", "likely", [int(web.node[alone])], (), circle), 1)
        else:
            them = sorted(set().union(*(each.astray | each.others for each in crossed)))
            yield Judged(_finding(web, "deadlock", "candidates", (), web.node[them].tolist(), circle), 1)


def _unseen(web: WaitGraph, sinks: Sequence[Sink], operations: Sequence[Sink]) -> Iterable[Judged]:
    """What holds is one of several members, none of which shows anything: one finding for all of them."""
    suspects = set(_devices(web, sinks))
    proof = [index for sink in sinks for index in sink.proof]
    for sink in operations:
        standing = np.flatnonzero(web.active & np.isin(web.target, sink.nodes))
        inside = np.flatnonzero(np.isin(web.target, sink.nodes) & (web.waits["reason"] == Reason.IN_UNSEEN))
        if len(standing):
            suspects |= set(web.waits["waiter"][inside].tolist())
            proof += inside.tolist()
    if not suspects or waited_s(web.waits, proof) < SET_AGE_S:
        return
    seen = all(web.waits["reason"][index] in STOPPED for index in proof)
    if len(suspects) == 1 and seen:
        yield Judged(_finding(web, "gpu-hang", "likely", suspects, (), [*sinks, *operations], proof), 0)
    else:
        named = sorted(suspects)
        yield Judged(_finding(web, "gpu-hang", "candidates", (), named, [*sinks, *operations], proof), 0)


def _silent(web: WaitGraph, sinks: Sequence[Sink], world: World) -> Iterable[Judged]:
    """Hosts that do not speak any more and that others wait for, whose hosts do."""
    if world.unheard():
        return
    groups: defaultdict[str, list[Sink]] = defaultdict(list)
    for sink in sinks:
        groups[world.host(int(web.node[sink.nodes[0]]))].append(sink)
    for group in groups.values():
        sure = "likely" if len(groups) == 1 else "candidates"
        devices = _devices(web, group)
        culprits, candidates = (devices, []) if sure == "likely" else ([], devices)
        yield Judged(_finding(web, "host-silent", sure, culprits, candidates, group), 1)
