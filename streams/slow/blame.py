"""Who makes the others wait in a job that is slow, and in which stage: seconds of stages in, findings out.

Each stage that indicts (stages.py) yields suspicions; what explains another one goes before it:

1. a proxy that answers late delays everything that it carries, in both directions;
2. a GPU that does not take what has arrived holds up who sends to it; it may itself be held up by what it
   cannot send on: a slow wire explains the GPU before it, a slow GPU the wire before it;
3. a host that launches late, or a stream that starts late, explains what its GPU has not taken;
4. with several ranks on a host most legs show nothing: what the entering rank's GPU has not taken indicts the
   host, and only a stage seen of one of its devices alone says which one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.enums import Visibility
from streams.slow.findings import Finding, Measure, Scope, Stage
from streams.slow.stages import Flows, Stages, stages
from streams.slow.window import Window

SHARE: Final = 0.05
"""A stage counts where it cost at least this part of the time: half of the slowdown that has to be found."""
FLOOR_S: Final = 0.5
"""… and in all at least this: one pause of a garbage collector or a scheduler is no slowness. The largest of
any stage in a healthy recorded run is 0.38 s."""
TIMES: Final = 1.5
"""… and it is so many times what is usual among those alike; healthy recorded runs reach 1.45 above half the
floor."""
PROXY_TIMES: Final = 3.0
"""Flushing takes no time where nothing is wrong, so a busy machine alone multiplies it."""
PROXY_SHARE: Final = 0.02
PROXY_FLOOR_S: Final = 0.25
"""A proxy is busy with other things than flushes: these are a fraction of what its delay costs."""
EXPLAINS: Final = 0.5
"""What is at least half as long as what it holds up explains it: sums over some seconds meet no closer."""
BESIDE: Final = 1 / 3
"""A cause is reported beside a larger one only if it is so large: one slow wire disturbs every stage."""
ALIKE: Final = 0.5
"""Devices of one host lose alike where the least loses half of what the most does."""


@dataclass(frozen=True)
class _Suspicion:
    """A stage of one device, or of a wire between two, that costs too much."""

    measure: Measure
    comm: int = 0

    @property
    def dev(self) -> int:
        return self.measure.dev

    @property
    def lost_s(self) -> float:
        return self.measure.own_s - self.measure.others_s


_End = Callable[[_Suspicion], int]


@dataclass(frozen=True)
class _Job:
    """What is asked again and again of a job."""

    window: Window
    hosts: Mapping[int, str]
    members: Mapping[int, frozenset[int]]
    unseen: Mapping[int, frozenset[int]]
    """By communicator that shows only launches on them: its members."""

    def host(self, dev: int) -> str:
        return self.hosts.get(dev) or f"?{dev}"

    def on_host(self, comm: int, dev: int) -> frozenset[int]:
        """The members of a communicator on the host of a device, itself included."""
        host = self.host(dev)
        return frozenset(each for each in self.members.get(comm, ()) if self.host(each) == host) | {dev}

    def waiting(self, named: Iterable[int]) -> int:
        """How many other devices share a communicator with these."""
        mine = frozenset(named)
        met = [each for each in self.members.values() if each & mine]
        return len(frozenset().union(*met) - mine)


def localise(window: Window, hosts: Mapping[int, str]) -> list[Finding]:
    """Causes of slowness in a window of some seconds, the one that steals most first; empty: nobody.

    `hosts`: by device. All alike slow means nobody: devices and flows are only compared with their like.
    """
    job, measured = _job(window, hosts), stages(window, hosts)
    proxies = _proxies(job, measured)
    gpu = _flow_suspicions(job, measured.gpu, Stage.GPU)
    wires = _flow_suspicions(job, measured.wires, Stage.WIRE)
    carried = {each.dev for each in proxies}
    found = [_proxy(job, measured, each, gpu + wires) for each in proxies]
    wires = [each for each in wires if not {each.dev, each.measure.peer} & carried]
    gpu = [each for each in gpu if each.dev not in carried]
    slow_wires = [each for each in wires if not _taken_late(job, each, gpu)]
    gpu = [each for each in gpu if not _sent_late(job, each, wires)]
    late, stream = _own(job, measured, carried)
    late = [each for each in late if not _explained(each, gpu, lambda one: one.dev)]
    known = late + stream
    gpu = [each for each in gpu if not _explained(each, known, lambda one: job.host(one.dev))]
    found += _wires(job, measured, slow_wires)
    found += _devices(job, measured, stream, late)
    found += _hosts(job, measured, gpu)
    found.sort(key=lambda one: -one.stolen_s)
    largest = max((one.lost_s for one in found), default=0.0)
    return [one for one in found if one.lost_s >= BESIDE * largest]


def _job(window: Window, hosts: Mapping[int, str]) -> _Job:
    members: defaultdict[int, set[int]] = defaultdict(set)
    seen: set[tuple[int, int]] = set()
    lags = window.lags
    for comm, dev, visibility in zip(
        lags["comm"].tolist(), lags["dev"].tolist(), lags["visibility"].tolist(), strict=True
    ):
        members[comm].add(dev)
        if visibility != Visibility.LAUNCH:
            seen.add((comm, dev))
    unseen = {
        comm: frozenset(devs) for comm, devs in members.items()
        if len(devs) > 1 and not any((comm, dev) in seen for dev in devs)
    }  # fmt: skip
    return _Job(window, hosts, {comm: frozenset(devs) for comm, devs in members.items()}, unseen)


def _counts(job: _Job, own_s: float, others_s: float) -> bool:
    lost = own_s - others_s
    return lost >= max(FLOOR_S, SHARE * job.window.seconds) and own_s >= TIMES * others_s


def _flow_suspicions(job: _Job, flows: Flows, stage: Stage) -> list[_Suspicion]:
    few = np.flatnonzero(flows.excess_s >= FLOOR_S).tolist()
    return [
        _Suspicion(
            Measure(
                int(flows.dev[at]), stage, float(flows.own_s[at]), float(flows.others_s[at]),
                int(flows.peer[at]), int(flows.channel[at]),
            ),
            int(flows.comm[at]),
        )
        for at in few if _counts(job, float(flows.own_s[at]), float(flows.others_s[at]))
    ]  # fmt: skip


def _proxies(job: _Job, measured: Stages) -> list[_Suspicion]:
    """Devices whose proxy is late, each once."""
    flows = measured.proxy
    found: dict[int, _Suspicion] = {}
    least = max(PROXY_FLOOR_S, PROXY_SHARE * job.window.seconds)
    for at in np.flatnonzero(flows.excess_s >= least).tolist():
        own, others, dev = float(flows.own_s[at]), float(flows.others_s[at]), int(flows.dev[at])
        if own >= PROXY_TIMES * others and (dev not in found or own > found[dev].measure.own_s):
            found[dev] = _Suspicion(Measure(dev, Stage.PROXY, own, others), int(flows.comm[at]))
    return list(found.values())


def _proxy(job: _Job, measured: Stages, late: _Suspicion, held_up: Sequence[_Suspicion]) -> Finding:
    touched = [each for each in held_up if late.dev in (each.dev, each.measure.peer)]
    lost = max([late.lost_s, *(each.lost_s for each in touched)])
    return _finding(job, measured, "proxy", Stage.PROXY, Scope.DEVICE, [late.dev], [], lost,
                    [late, *touched])  # fmt: skip


def _taken_late(job: _Job, wire: _Suspicion, gpu: Sequence[_Suspicion]) -> bool:
    """Whether a wire only waits for the GPU behind it."""
    receiver = job.host(wire.measure.peer)
    return any(
        job.host(each.dev) == receiver and each.comm == wire.comm and each.lost_s >= EXPLAINS * wire.lost_s
        for each in gpu
    )


def _sent_late(job: _Job, held: _Suspicion, wires: Sequence[_Suspicion]) -> bool:
    """Whether a GPU only cannot send on what it should take."""
    host = job.host(held.dev)
    return any(
        job.host(each.dev) == host and each.comm == held.comm and each.lost_s >= EXPLAINS * held.lost_s
        for each in wires
    )


def _own(job: _Job, measured: Stages, carried: set[int]) -> tuple[list[_Suspicion], list[_Suspicion]]:
    """Devices that launch late, and devices whose stream starts late though their host is in time."""
    late, stream = [], []
    for at in np.flatnonzero((measured.launch_s >= FLOOR_S) | (measured.stream_s >= FLOOR_S)).tolist():
        dev, launch = int(measured.dev[at]), float(measured.launch_s[at])
        if dev in carried:
            continue
        kernels = float(measured.stream_s[at])
        traced = not np.isnan(measured.run_s[at])
        # Where kernels are seen, only what they show late has cost the others anything.
        if traced and not _counts(job, kernels, 0.0):
            continue
        if launch >= EXPLAINS * kernels and _counts(job, launch, 0.0):
            late.append(_Suspicion(Measure(dev, Stage.LAUNCH, launch, 0.0)))
        elif traced:
            stream.append(_Suspicion(Measure(dev, Stage.STREAM, kernels, 0.0)))
    return late, stream


def _explained(one: _Suspicion, by: Sequence[_Suspicion], of: Callable[[_Suspicion], object]) -> bool:
    return any(of(each) == of(one) and each.lost_s >= EXPLAINS * one.lost_s for each in by)


def _sender(wire: _Suspicion) -> int:
    return wire.dev


def _receiver(wire: _Suspicion) -> int:
    return wire.measure.peer


def _wires(job: _Job, measured: Stages, wires: Sequence[_Suspicion]) -> list[Finding]:
    """Wires that share an end have it in common; one alone has two ends."""
    found, left = [], list(wires)
    ends: tuple[tuple[str, Stage, _End, _End], ...] = (
        ("nic-send", Stage.SEND, _sender, _receiver),
        ("nic-recv", Stage.RECEIVE, _receiver, _sender),
    )
    for category, stage, near, far in ends:
        by_host: defaultdict[str, list[_Suspicion]] = defaultdict(list)
        for each in left:
            by_host[job.host(near(each))].append(each)
        for mine in by_host.values():
            if len({job.host(far(each)) for each in mine}) > 1:
                culprits = {near(each) for each in mine}
                found.append(_finding(
                    job, measured, category, stage, Scope.NIC, culprits, [],
                    max(each.lost_s for each in mine), mine,
                ))  # fmt: skip
                left = [each for each in left if each not in mine]
    links: defaultdict[frozenset[str], list[_Suspicion]] = defaultdict(list)
    for each in left:
        links[frozenset({job.host(each.dev), job.host(each.measure.peer)})].append(each)
    scope = Scope.SWITCH if _apart(links) else Scope.LINK
    for mine in links.values():
        both = {end for each in mine for end in (each.dev, each.measure.peer)}
        found.append(_finding(
            job, measured, "link", Stage.WIRE, scope, [], both, max(each.lost_s for each in mine), mine
        ))  # fmt: skip
    return found


def _apart(links: Iterable[frozenset[str]]) -> bool:
    """Whether several links are slow at once that have no host in common: what lies between, a switch."""
    pairs = list(links)
    return len(pairs) > 1 and sum(map(len, pairs)) == len(frozenset().union(*pairs))


def _devices(
    job: _Job, measured: Stages, stream: Sequence[_Suspicion], late: Sequence[_Suspicion]
) -> list[Finding]:
    """Devices that are late by themselves; those of one host that are late alike share what made them so."""
    found = []
    for stage, category, every in (
        (Stage.STREAM, "gpu-slow", stream), (Stage.LAUNCH, "late-launch", late),
    ):  # fmt: skip
        for host, mine in _by_host(job, every).items():
            devices = [each.dev for each in mine]
            lost = max(each.lost_s for each in mine)
            hidden = _hidden_together(job, devices) if len(mine) > 1 else frozenset()
            if hidden and stage is Stage.LAUNCH:
                found.append(_finding(
                    job, measured, "gpu-slow", Stage.GPU, Scope.HOST, [], hidden, lost, mine
                ))  # fmt: skip
                continue
            scope = Scope.HOST if len(mine) > 1 and _whole_host(job, host, devices) else Scope.DEVICE
            found.append(_finding(job, measured, category, stage, scope, devices, [], lost, mine))
    return found


def _hosts(job: _Job, measured: Stages, gpu: Sequence[_Suspicion]) -> list[Finding]:
    """GPUs that take late what has arrived: the rank where it enters its host alone, else its host's."""
    found = []
    for host, mine in _by_host(job, gpu).items():
        devices = [each.dev for each in mine]
        lost = max(each.lost_s for each in mine)
        if len(set(devices)) == 1 and (only := [e for e in mine if len(job.on_host(e.comm, e.dev)) == 1]):
            found.append(_finding(
                job, measured, "gpu-slow", Stage.GPU, Scope.DEVICE, [only[0].dev], [], lost, mine
            ))  # fmt: skip
            continue
        possible = frozenset().union(
            *(job.on_host(each.comm, each.dev) for each in mine), _hidden_together(job, devices)
        )
        if len(possible) > len(set(devices)) or _hidden_together(job, devices):
            found.append(_finding(
                job, measured, "gpu-slow", Stage.GPU, Scope.HOST, [], possible, lost, mine
            ))  # fmt: skip
            continue
        scope = Scope.HOST if _whole_host(job, host, devices) else Scope.DEVICE
        found.append(_finding(job, measured, "gpu-slow", Stage.GPU, scope, devices, [], lost, mine))
    return found


def _by_host(job: _Job, every: Sequence[_Suspicion]) -> dict[str, list[_Suspicion]]:
    """Suspicions by host: of those on one host only those that lose as much as its worst, or nearly."""
    groups: defaultdict[str, list[_Suspicion]] = defaultdict(list)
    for each in every:
        groups[job.host(each.dev)].append(each)
    for host, mine in groups.items():
        most = max(each.lost_s for each in mine)
        groups[host] = [each for each in mine if each.lost_s >= ALIKE * most]
    return dict(groups)


def _hidden_together(job: _Job, devices: Sequence[int]) -> frozenset[int]:
    """The members of communicators that show nothing and that all these devices are in."""
    wanted = frozenset(devices)
    hidden = [members for members in job.unseen.values() if wanted <= members]
    return frozenset().union(*hidden)


def _whole_host(job: _Job, host: str, devices: Iterable[int]) -> bool:
    every = {dev for members in job.members.values() for dev in members if job.host(dev) == host}
    return len(every) > 1 and every <= set(devices)


def _finding(
    job: _Job, measured: Stages, category: str, stage: Stage, scope: Scope, culprits: Iterable[int],
    candidates: Iterable[int], lost_s: float, proof: Sequence[_Suspicion],
) -> Finding:  # fmt: skip
    named, possible = tuple(sorted(set(culprits))), tuple(sorted(set(candidates)))
    return Finding(
        category=category,
        confidence="likely" if named else "candidates",
        culprits=named,
        candidates=possible,
        stage=stage,
        scope=scope,
        lost_s=lost_s,
        share=min(lost_s / job.window.seconds, 1.0),
        # Of candidates all wait but the one that it is.
        waiting=max(job.waiting(named or possible) + max(len(possible) - 1, 0), 1),
        steps=measured.steps,
        measures=tuple(sorted((each.measure for each in proof), key=lambda one: -(one.own_s - one.others_s))),
    )
