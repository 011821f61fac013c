"""What of a tick is worth sending, and when: ticks in, flushes out.

Every second each job of the host gets a flush: positions, sums, single finished operations as far as the
budget goes, processes. A tick at which something stalls gets one of its own: states come at once, then on
change, at least each second, for as long as the operation is in flight. An operation that was told of so is
told of when it ends, too, whatever the budget says.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from collectors.agent.analysis import Analysis, Tick
from collectors.agent.backlog import Flush
from collectors.agent.budget import Limits, choose, demand
from collectors.agent.flush import Said, due, home, sections
from collectors.agent.groups import picked, stacked
from collectors.agent.held import Held, aged, levels_of
from collectors.agent.layout import PAIR, CommunicatorState, Raw, Table
from collectors.agent.metrics import Metrics
from collectors.agent.positions import PAIRWISE, pair_positions, position_keys, positions
from collectors.agent.stall import STALL_QUIET_NS, micros
from collectors.agent.summarise import FlowPeriod, coll_sums
from schemas.enums import Flag, Kind
from schemas.records import COLL, FLOW, PROC, Records

U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

SECOND_NS = 1_000_000_000
IDLE_NS = 5 * SECOND_NS
"""Positions that do not change, and what may be held up by something unseen, are told so often."""
FLOW_PERIOD_NS = 5 * SECOND_NS
PAIRS_IDLE_NS = 60 * SECOND_NS
_HALF_TICK_NS = 50_000_000
"""Ticks are not exact: what is due within half of one is due now."""
_EACH_SECOND_NS = SECOND_NS - _HALF_TICK_NS
_IDLE_NS = IDLE_NS - _HALF_TICK_NS
_MESSAGE_BYTES = 128
MAX_OWED = 10_000
"""Operations that were told to stall and whose end has not been told, at most."""


class Reporter:
    """Decides what is told. One call of `flushes` a tick."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._held = Held(bounded=limits.host_bytes > 0)
        self._coll_done: list[Records] = []
        self._forced: list[tuple[int, Records]] = []
        self._forced_flows: list[tuple[int, Records]] = []
        self._abandoned = np.empty(0, np.uint64)
        """Keys of the flows that are in `_forced_flows`, or were."""
        self._period = FlowPeriod()
        self._owed = np.empty(0, np.uint64)
        self._stalls, self._unseen, self._flows = Said(), Said(), Said()
        self._positions, self._pairs = Said(), Said()
        self._next_second = self._next_period = 0
        self._spent = 0
        self.told_at = self.summed_at = -1
        """When all that had finished was last told, and when its flows were summed too: ticks, ns."""

    def due(self, now: int) -> bool:
        """Whether a second ends with the tick at `now`: then finished records are wanted."""
        return now >= self._next_second - _HALF_TICK_NS

    def flushes(self, tick: Tick, analysis: Analysis, whole: bool, last: bool = False) -> list[Flush]:
        """What is to be sent now: all that was finished too where `whole`; `last` at a clean stop."""
        states, flows = self._states(tick, _HALF_TICK_NS if self.due(tick.now) else _EACH_SECOND_NS)
        self._take_done(tick)
        self._orphans(tick)
        self._orphan_flows(tick)
        if not whole and not len(states) and not len(flows):
            return []
        coll, flow, proc = [states], [flows], []
        if whole:
            if self.due(tick.now):
                behind = tick.now - self._next_second > SECOND_NS
                self._next_second = tick.now + SECOND_NS if behind else self._next_second + SECOND_NS
            coll += self._position_rows(tick, analysis)
            coll.append(coll_sums(stacked(self._coll_done, COLL.dtype)))
            coll += [aged(rows, tick.now - at) for at, rows in self._forced]
            flow += [aged(rows, tick.now - at) for at, rows in self._forced_flows]
            self._coll_done, self._forced, self._forced_flows = [], [], []
            self.told_at = tick.now
            if last or tick.now >= self._next_period - _HALF_TICK_NS:
                self._next_period = tick.now + FLOW_PERIOD_NS
                flow.append(self._period.take())
                self.summed_at = tick.now
        proc = self._processes(tick, None if whole else set(states["dev"].tolist()))
        self._spent += sum(rows.nbytes for part in (coll, flow) for rows in part)
        self._spent += PROC.dtype.itemsize * len(proc)
        if whole:
            live = np.unique(tick.world.comms["comm"][tick.world.comms["known"]])
            done = self._affordable(tick, self._spent + _MESSAGE_BYTES * len(live))
            coll.append(done[0])
            flow.append(done[1])
            self._spent = 0
        return self._divided(tick, coll, flow, proc, whole)

    def due_ns(self, now: int) -> int:
        """After how long something has to be told again although nothing has moved."""
        told = np.concatenate([self._stalls.at, self._flows.at]) + _EACH_SECOND_NS
        rest = self._unseen.at + _IDLE_NS
        every = np.concatenate([told, rest])
        return int(every.min()) - now if len(every) else SECOND_NS

    # -- what has finished

    def _take_done(self, tick: Tick) -> None:
        """Keeps what has finished until it is told; not what an earlier collector has told of."""
        done, flows = tick.done.coll, tick.done.flow
        if len(done):
            self._metrics.add("operations_total", len(done))
            fresh = ~tick.done.told
            counted = (done["kind"] == Kind.DONE) & ~tick.done.amended & fresh
            self._coll_done.append(picked(done, counted))
            must = (done["kind"] == Kind.ORPHAN) & fresh
            if len(self._owed):  # most hosts never owe anything
                must |= np.isin(tick.done.keys, self._owed) & fresh
                self._owed = np.setdiff1d(self._owed, tick.done.keys)
            if must.any():
                self._forced.append((tick.now, picked(done, must)))
            self._held.add(COLL.name, picked(done, fresh & ~must), tick.now)
        if len(flows):
            self._metrics.add("flows_total", len(flows))
            self._period.add(_without(flows, tick.done.flow_summed))
            self._held.add(FLOW.name, _without(flows, tick.done.flow_told), tick.now)

    def _orphans(self, tick: Tick) -> None:
        """Once, for what was in flight in a process that died: it will never end."""
        fresh = np.array(
            [traced.died_at is not None and not traced.told_dead for traced in tick.readings.traced], np.bool_
        )
        if not fresh.any():
            return
        orphans = tick.states(fresh[tick.coll.found.where])
        orphans["kind"] = Kind.ORPHAN
        orphans["flags"] |= np.uint32(Flag.DIED)
        self._forced.append((tick.now, orphans))
        for traced, new in zip(tick.readings.traced, fresh.tolist(), strict=True):
            traced.told_dead = traced.told_dead or new

    def _orphan_flows(self, tick: Tick) -> None:
        """Once, for what a process that died had in flight of an operation that is over or gone.

        With PXN a kernel may be through before the process that carries its flow is. Flows of operations
        in flight are told with those (see _states).
        """
        died = np.array([traced.died_at is not None for traced in tick.readings.traced], np.bool_)
        if not died.any():
            return
        abandoned = died[tick.flow.where] & (tick.flow.of < 0)
        fresh = abandoned & ~np.isin(tick.flow.keys, self._abandoned)
        self._abandoned = tick.flow.keys[abandoned]
        if fresh.any():
            rows = tick.flow_states(fresh)
            rows["kind"] = Kind.ORPHAN
            rows["flags"] |= np.uint32(Flag.DIED)
            self._forced_flows.append((tick.now, rows))

    def _affordable(self, tick: Tick, spent: int) -> tuple[Records, Records]:
        """Single finished operations and flows of this second, as far as the budget goes."""
        coll, flow, thinned = self._held.take(tick.now)
        comms = np.concatenate([coll["comm"], flow["comm"]])
        level = np.concatenate([levels_of(coll), levels_of(flow)])
        size = np.concatenate(
            [np.full(len(coll), COLL.dtype.itemsize), np.full(len(flow), FLOW.dtype.itemsize)]
        )
        names, where = np.unique(comms, return_inverse=True)
        where = where.reshape(-1)
        share = _shares(tick)
        chosen = choose(
            [
                demand(comm, level[where == at], size[where == at], share.get(comm, 1.0))
                for at, comm in enumerate(names.tolist())
            ],
            spent,
            self._limits,
        )
        least = np.array([chosen[comm] for comm in names.tolist()], np.int64)
        keep = level >= least[where] if len(names) else np.zeros(0, np.bool_)
        self._metrics.add("records_sampled_out_total", thinned + int((~keep).sum()))
        return picked(coll, keep[: len(coll)]), picked(flow, keep[len(coll) :])

    # -- what is in flight

    def _states(self, tick: Tick, most_ns: int) -> tuple[Records, Records]:
        """Operations that stall and their flows, those that are due: all that were told `most_ns` ago.

        With each second's flush all are told, so that what stalls on a host shares its messages and looks.
        """
        live, flow = tick.coll, tick.flow
        told = live.stalls | live.dead | self._stalls.knows(live.keys)
        self._metrics.set("operations_stalled", int(live.stalls.sum()))
        if not len(self._stalls.keys) and not told.any() and not live.unseen.any():
            self._unseen = Said()
            return COLL.empty(0), FLOW.empty(0)
        ended = np.setdiff1d(self._stalls.keys, live.keys)
        if len(ended):
            self._owed = np.union1d(self._owed, ended)[-MAX_OWED:]
        # What stands still is told as soon as it changes, what moves again each second.
        least = np.where(live.stalls, 0, _EACH_SECOND_NS)
        # What moved when it was told, and stands by now, shows something new; the dead do not move.
        prints = live.prints + (live.stalls | live.dead)
        self._stalls, now = due(self._stalls, live.keys[told], prints[told], tick.now, least[told], most_ns)
        rows = [tick.states(_within(told, now))]
        unseen = live.unseen & ~told
        self._unseen, now = due(self._unseen, live.keys[unseen], live.prints[unseen], tick.now, 0, _IDLE_NS)
        rows.append(tick.states(_within(unseen, now)))
        mine = (
            (flow.of >= 0) & told[np.maximum(flow.of, 0)] if len(told) else np.zeros(len(flow.of), np.bool_)
        )
        least = least[flow.of[mine]] if len(least) else least
        stands = (flow.quiet_ns[mine] >= STALL_QUIET_NS) | live.dead[flow.of[mine]]
        prints = flow.prints[mine] + stands
        self._flows, now = due(self._flows, flow.keys[mine], prints, tick.now, least, most_ns)
        return stacked(rows, COLL.dtype), tick.flow_states(_within(mine, now))

    # -- each second

    def _position_rows(self, tick: Tick, analysis: Analysis) -> list[Records]:
        rows = positions(tick.comms_raw, tick.comms_where, tick.world, tick.moved_order, tick.ended, tick.now)
        used, process = _pairs(tick)
        each = pair_positions(
            used, process, tick.comms_raw, tick.comms_where, tick.world, tick.moved_order, analysis.pairs,
            tick.now, STALL_QUIET_NS,
        )  # fmt: skip
        for found in (rows, each):
            quiet = np.array([tick.device_quiet.get(dev, 0) for dev in found["dev"].tolist()], np.int64)
            found["quiet_us"] = micros(quiet)
        least = _EACH_SECOND_NS
        self._positions, now = due(self._positions, *position_keys(rows), tick.now, least, _IDLE_NS)
        self._pairs, now_pairs = due(self._pairs, *position_keys(each), tick.now, least, PAIRS_IDLE_NS)
        return [picked(rows, now), picked(each, now_pairs)]

    def _processes(self, tick: Tick, devices: set[int] | None) -> list[tuple[Records, int]]:
        """PROC rows with the communicator in whose partition each is told.

        All of them with their home, and again where something of theirs stalls; or, with `devices`, only
        those of these devices there.
        """
        found = []
        told = self._stalls.knows(tick.coll.keys)
        facts = tick.coll.found.facts[told]
        headers = tick.readings.snapshot.headers
        clocks = tick.readings.snapshot.clocks
        each = zip(tick.readings.traced, headers, tick.heard, tick.busy_us.tolist(), strict=True)
        for number, (traced, header, heard, busy_us) in enumerate(each):
            mine = facts["comm"][np.isin(facts["dev"], traced.facts["dev"])] if len(facts) else facts["comm"]
            comms = set(mine.tolist())
            if devices is None:
                comms.add(home(traced.comms(), traced.id))
            elif not devices & set(traced.facts["dev"].tolist()):
                continue
            row = traced.row(header, partial(clocks.monotonic, number), heard, busy_us, tick.now, tick.wall)
            found += [(row, comm) for comm in sorted(comms)]
        return found

    def _divided(
        self,
        tick: Tick,
        coll: list[Records],
        flow: list[Records],
        proc: list[tuple[Records, int]],
        whole: bool,
    ) -> list[Flush]:
        """A flush for each job."""
        colls, flows = stacked(coll, COLL.dtype), stacked(flow, FLOW.dtype)
        procs = stacked([row for row, _ in proc], PROC.dtype)
        proc_comms = np.array([comm for _, comm in proc], np.uint64)
        found = []
        jobs = {(traced.job.id, traced.job.attempt_id) for traced in tick.readings.traced}
        every = _jobs(procs) | _jobs(colls) | _jobs(flows) | (jobs if whole else set())
        for job, attempt in sorted(every):
            parts = [
                picked(rows, (rows["job"] == job) & (rows["attempt"] == attempt))
                for rows in (colls, flows, procs)
            ]
            mine = (procs["job"] == job) & (procs["attempt"] == attempt)
            comms = (
                _live(tick, job, attempt)
                if whole
                else np.unique(np.concatenate([part["comm"] for part in parts[:2]]))
            )
            found.append(
                Flush(
                    job,
                    attempt,
                    tick.wall,
                    comms,
                    sections([parts[0]], [parts[1]], [parts[2]]),
                    proc_comms[mine],
                )
            )
        return found


def _pairs(tick: Tick) -> tuple[Raw, npt.NDArray[np.intp]]:
    """The used pair slots of all processes that have launched sends or receives, and the process of each."""
    pairwise = tick.comms_raw["launched"][:, PAIRWISE].any(axis=1)
    found = []
    for number in np.unique(tick.comms_where[pairwise]).tolist():
        traced, header = tick.readings.traced[number], tick.readings.snapshot.headers[number]
        slots = traced.reader.table(header, Table.PAIRS)
        found.append((number, picked(slots, slots["key"] != 0)))
    sizes = [len(rows) for _, rows in found]
    process = np.repeat(np.array([number for number, _ in found], np.intp), sizes)
    return stacked([rows for _, rows in found], PAIR), process


def _within(mask: Bools, chosen: Bools) -> Bools:
    """Of what the mask has, what was chosen; a mask of the same length."""
    found: Bools = mask.copy()
    found[mask] = chosen
    return found


def _without(rows: Records, gone: Bools) -> Records:
    """The rows without those of a mask, which is empty but after a start."""
    return picked(rows, ~gone) if gone.any() else rows


def _jobs(rows: Records) -> set[tuple[int, int]]:
    return set(zip(rows["job"].tolist(), rows["attempt"].tolist(), strict=True)) if len(rows) else set()


def _live(tick: Tick, job: int, attempt: int) -> U64:
    """Communicators of a job that are not finalised, also of a process that has just died."""
    comms = tick.world.comms
    mine = comms["known"] & (comms["state"] == CommunicatorState.OPEN)
    return np.unique(comms["comm"][mine & (comms["job"] == job) & (comms["attempt"] == attempt)])


def _shares(tick: Tick) -> dict[int, float]:
    """The part of each communicator's ranks that are on this host."""
    comms = tick.world.comms[tick.world.comms["known"]]
    ranks: dict[int, list[int]] = {}
    for comm, nranks in zip(comms["comm"].tolist(), comms["nranks"].tolist(), strict=True):
        ranks.setdefault(comm, []).append(nranks)
    return {comm: len(known) / max(len(known), *known) for comm, known in ranks.items()}
