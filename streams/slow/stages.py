"""How much longer each device, and each flow, was in each stage than those like it: sums in, seconds out.

Waiting is not measured here. Who waits for data (RecvWait) or for its own GPU to be given data (SendGPUWait)
may be anybody's victim; these stages are not:

- launch: all members of a collective end together, so who was shortest in it came last. What a device itself
  waited in other operations explains a late launch: the rest is its host's.
- stream (kernels traced): time in NCCL's kernels, all communicators together. Who waits, waits inside them;
  whose kernels run shortest makes the others wait.
- gpu: data has arrived and the GPU has not taken it, head of line.
- proxy: flushing. Neither GPU nor peer delays it, only the proxy thread that has to see it.
- wire: sends in the network, head of line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from schemas.enums import Algo, Direction, Func
from schemas.records import UNKNOWN_NS, Records
from streams.grouping import groups_of
from streams.slow.window import CONNECTING, Window

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

PAIRWISE: Final = (Func.SEND, Func.RECV, Func.SEND_RECV)
TREE_SHARE: Final = 0.5
"""In a tree a healthy rank holds data while it waits for another child: where most operations of a
communicator are trees, what its GPUs have not taken indicts nobody."""


USED: Final = 1 / 8
"""A flow that carried less than this part of what its busiest like did says nothing of what is usual: where
an algorithm is chosen by size, tree and ring have different peers."""


@dataclass(frozen=True)
class Flows:
    """One side of flows by (communicator, device, peer); shape (W,). Seconds of the slowest channel."""

    comm: U64
    dev: U64
    peer: U64
    """Device at the other end, 0 where it is not known."""
    own_s: F64
    others_s: F64
    channel: I64

    @property
    def excess_s(self) -> F64:
        """Beyond what is usual among those like it; never negative."""
        return np.maximum(self.own_s - self.others_s, 0.0)


@dataclass(frozen=True)
class Stages:
    """Devices of a job, shape (D,), ascending, and in seconds of the window what each has lost the others."""

    dev: U64
    launch_own_s: F64
    launch_s: F64
    run_s: F64
    """Time in kernels, NaN where not all are traced."""
    usual_run_s: F64
    stream_s: F64
    gpu: Flows
    proxy: Flows
    wires: Flows
    steps: int

    def place(self, dev: int) -> int:
        """Index of a device."""
        return int(np.searchsorted(self.dev, np.uint64(dev)))


def stages(window: Window, hosts: Mapping[int, str]) -> Stages:
    """The stages of all devices in a window; `hosts`: by device."""
    lags = window.lags
    dev = np.unique(np.concatenate([lags["dev"], window.flows["dev"]]))
    own, launch = _launch(lags, dev, hosts)
    run, usual = _running(lags, dev)
    stream = np.where(np.isnan(run), 0.0, np.maximum(np.nan_to_num(usual) - np.nan_to_num(run), 0.0))
    shape = _Shape(lags)
    flows = window.flows
    receive = flows[flows["direction"] == Direction.RECV]
    send = flows[flows["direction"] == Direction.SEND]
    return Stages(
        dev, own, launch, run, usual, stream,
        _flows(receive[~np.isin(receive["comm"], shape.trees)], "gpu_us", shape),
        _flows(receive, "flush_us", shape),
        _flows(send, "net_us", shape),
        _steps(lags),
    )  # fmt: skip


def told(lags: Records) -> F64:
    """How many operations each row stands for: single ones may be a sample of all."""
    counted: F64 = np.maximum(lags["n"].astype(np.float64) - CONNECTING, lags["singles"])
    return counted


def _scaled(lags: Records, total: str, count: str) -> F64:
    """A sum over single operations as it would be over all of them; 0 where there are none."""
    known = lags[count].astype(np.float64)
    scale = np.where(known > 0, told(lags) / np.maximum(known, 1), 0.0)
    found: F64 = lags[total].astype(np.float64) * scale / 1e6
    return found


def _launch(lags: Records, dev: U64, hosts: Mapping[int, str]) -> tuple[F64, F64]:
    """Lateness of each device and what of it no wait of its own explains, s; both (D,)."""
    lags = lags[(lags["joined"] > 0) & ~np.isin(lags["func"], PAIRWISE)]
    place = np.searchsorted(dev, lags["dev"])
    waited = _scaled(lags, "waited_sum_us", "joined")
    group, _ = groups_of([lags[name] for name in ("comm", "func", "size_class", "algo", "proto")])
    late = np.maximum(medians(group, waited, upper=True) - waited, 0.0)
    # Launches of two hosts are compared where no end tells: then the clocks' bounds are a doubt.
    bound = np.where(lags["clock_bound_ns"] == UNKNOWN_NS, np.inf, lags["clock_bound_ns"].astype(np.float64))
    doubt = np.where((lags["timed"] < lags["n"]) & _spread(lags, group, hosts), bound / 1e9 * told(lags), 0.0)
    largest = np.zeros(int(group.max(initial=-1)) + 1)
    np.maximum.at(largest, group, doubt)
    late = np.where(late > largest[group], late, 0.0)
    each = late / np.maximum(told(lags), 1)
    most = np.zeros(len(dev))
    np.maximum.at(most, place, each)
    # Operations that were queued together are all as late as the first: what is lost is lost once.
    clear = (late > 0) & (each >= most[place] / 2)
    lateness = np.full(len(dev), np.inf)
    np.minimum.at(lateness, place[clear], late[clear])
    lateness[np.isinf(lateness)] = 0.0
    waits = np.zeros(len(dev))
    np.add.at(waits, place[~clear], waited[~clear])
    usual = waits[np.unique(place)].min(initial=np.inf) if len(place) else 0.0
    explained = np.maximum(waits - usual, 0.0)
    return lateness, np.maximum(lateness - explained, 0.0)


def _spread(lags: Records, group: I64, hosts: Mapping[int, str]) -> Bools:
    """Whether the devices of a row's group are on several hosts, for each row."""
    names = {dev: hosts.get(dev) or f"?{dev}" for dev in np.unique(lags["dev"]).tolist()}
    number = {name: place for place, name in enumerate(sorted(set(names.values())))}
    host = np.array([number[names[dev]] for dev in lags["dev"].tolist()], np.int64)
    low, high = np.full(len(host), len(host)), np.full(len(host), -1)
    np.minimum.at(low, group, host)
    np.maximum.at(high, group, host)
    spread: Bools = (low < high)[group]
    return spread


def _running(lags: Records, dev: U64) -> tuple[F64, F64]:
    """Time of each device in NCCL's kernels and what is usual among those it works with, s; both (D,)."""
    lags = lags[lags["singles"] > 0]
    place = np.searchsorted(dev, lags["dev"])
    run = np.zeros(len(dev))
    np.add.at(run, place, _scaled(lags, "run_sum_us", "run_n"))
    traced = np.zeros(len(dev), np.bool_)
    traced[place] = True
    traced[place[lags["run_n"] == 0]] = False
    run[~traced] = np.nan
    # Compared within communicators in which all do the same: stages of a pipeline do not.
    together = lags[~np.isin(lags["func"], PAIRWISE) & traced[place]]
    group, _ = groups_of([together["comm"], together["dev"]])
    comm_of, dev_of = (np.zeros(int(group.max(initial=-1)) + 1, np.uint64) for _ in range(2))
    comm_of[group], dev_of[group] = together["comm"], together["dev"]
    at = np.searchsorted(dev, dev_of)
    comm_group, _ = groups_of([comm_of]) if len(comm_of) else (np.zeros(0, np.int64), None)
    usual = np.full(len(dev), np.nan)
    if len(at):
        np.fmin.at(usual, at, medians(comm_group, run[at], upper=True))
    return run, usual


class _Shape:
    """What communicators look like: channels, who is which rank, which are trees or pipelines."""

    def __init__(self, lags: Records) -> None:
        comm, at = np.unique(lags["comm"], return_inverse=True)
        at = at.reshape(-1)
        self.comm = comm
        self.channels = np.ones(len(comm), np.int64)
        np.maximum.at(self.channels, at, lags["channels"].astype(np.int64))
        time = lags["duration_sum_us"].astype(np.float64)
        tree = np.bincount(at, time * (lags["algo"] == Algo.TREE), len(comm))
        self.trees: U64 = comm[tree > TREE_SHARE * np.bincount(at, time, len(comm))]
        alike = np.bincount(at, ~np.isin(lags["func"], PAIRWISE), len(comm)) > 0
        self.pairwise = ~alike
        self.nranks = np.zeros(len(comm), np.int64)
        np.maximum.at(self.nranks, at, lags["nranks"].astype(np.int64))
        self._device: Mapping[tuple[int, int], int] = dict(
            zip(zip(lags["comm"].tolist(), lags["rank"].tolist(), strict=True), lags["dev"].tolist(),
                strict=True)
        )  # fmt: skip

    def of(self, comm: U64) -> I64:
        """Place of each communicator; all are known, or 0."""
        at = np.minimum(np.searchsorted(self.comm, comm), max(len(self.comm) - 1, 0))
        found: I64 = at.astype(np.int64)
        return found

    def device(self, comm: U64, rank: npt.NDArray[np.int32]) -> U64:
        """The device of each rank, 0 where it is not known."""
        pairs = zip(comm.tolist(), rank.tolist(), strict=True)
        return np.array([self._device.get(pair, 0) for pair in pairs], np.uint64)


def _flows(rows: Records, name: str, shape: _Shape) -> Flows:
    """Seconds in a stage of the flows of each (communicator, device, peer), by the slowest channel."""
    if not len(rows) or not len(shape.comm):
        nothing, none = np.zeros(0, np.uint64), np.zeros(0)
        return Flows(nothing, nothing, nothing, none, none, np.zeros(0, np.int64))
    at = shape.of(rows["comm"])
    flow, example = groups_of([rows["comm"], rows["dev"], rows["peer"]])
    apart = rows["channel"] >= 0
    singled = np.bincount(flow, apart, len(example))
    common = np.maximum(shape.channels[at] - singled[flow], 1)
    seconds = rows[name].astype(np.float64) / np.where(apart, 1.0, common) / 1e6
    order = np.lexsort((seconds, flow))
    slowest = order[np.append(flow[order][1:] != flow[order][:-1], True)]
    lead = rows[slowest]
    own = seconds[slowest]
    # Ends of a pipeline do different work: a rank is compared with the same rank of other pipelines.
    own_at = at[slowest]
    pipeline = shape.pairwise[own_at] & (shape.nranks[own_at] == 2)
    group, _ = groups_of([
        np.where(pipeline, shape.nranks[own_at].astype(np.uint64), lead["comm"]),
        np.where(pipeline, lead["rank"].astype(np.uint64) + np.uint64(1), np.uint64(0)),
    ])  # fmt: skip
    sent = np.zeros(len(example))
    np.add.at(sent, flow, rows["bytes"].astype(np.float64))
    most = np.zeros(int(group.max()) + 1)
    np.maximum.at(most, group, sent[flow[slowest]])
    used = sent[flow[slowest]] >= USED * most[group]
    usual = np.zeros(len(most))
    usual[group[used]] = medians(group[used], own[used], upper=False)
    others = usual[group]
    alone = np.bincount(group[used])[group] == 1
    channel = np.where((apart & (singled[flow] < shape.channels[at]))[slowest], lead["channel"], -1)
    return Flows(
        lead["comm"].copy(), lead["dev"].copy(), shape.device(lead["comm"], lead["peer"]), own,
        np.where(alone, own, others), channel.astype(np.int64),
    )  # fmt: skip


def medians(group: I64, values: F64, *, upper: bool) -> F64:
    """The median of each row's group, for each row; of an even number the upper or the lower one.

    >>> medians(np.array([0, 0, 1]), np.array([1.0, 3.0, 9.0]), upper=False).tolist()
    [1.0, 1.0, 9.0]
    """
    if not len(group):
        return values
    order = np.lexsort((values, group))
    ordered = group[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(ordered)))
    middle = values[order][starts + (sizes // 2 if upper else (sizes - 1) // 2)]
    found = np.zeros(int(group.max()) + 1)
    found[ordered[starts]] = middle
    of_each: F64 = found[group]
    return of_each


def _steps(lags: Records) -> int:
    """Training steps, as far as operations tell: the least often called of what is called regularly."""
    if not len(lags):
        return 1
    count = lags["n"].astype(np.int64)
    return max(int(count[count * 8 >= count.max()].min()), 1)
