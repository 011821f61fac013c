"""What the records of a replayed run have to say, by the oracle, and what is different in those that came.

`Comparison` holds what was told of a job (told.py) against the operations of its run. Of an operation only
its own process's flows count towards its end: what another process carries (PXN) is told as flows of the same
operation, and nothing more is known of it where the operation was launched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from collectors.agent.stall import STALL_MEDIANS
from collectors.replay.trace import Line
from schemas.enums import Algo, Direction, Flag, Kind, Proto, Visibility
from schemas.records import UNKNOWN_US
from tests.oracle import Flow, Operation, Picture
from tests.oracle_memory import DATA_TYPES, FUNCS
from tests.told import OperationKey, Row, Told

COUNTERS = ("total", "ready", "transmitted", "done", "posted", "received", "flushed", "consumed")
WITH_SIZES, WITH_CALLS, WITH_FACTS = 4, 5, 4
"""First versions that say a step's bytes with the step, that show API calls, that tell of a communicator."""
CLOCK_NS = 2_000_000
"""By how much two clocks of one machine may disagree after seconds (a tick rate is known to some 0.01 %)."""


@dataclass(frozen=True)
class Wanted:
    """An operation as the records can know it. `op` has its own process's flows, `whole` all of them.

    `over`: of one that shows nothing, whether something proves that it has ended; `closed`: its communicator
    was finalised.
    """

    op: Operation
    whole: Operation
    over: bool
    closed: bool

    @property
    def key(self) -> OperationKey:
        """What joins it."""
        op = self.op
        return op.comm.id, op.comm.rank, int(FUNCS[op.func]), op.seq, op.peer

    @property
    def ended(self) -> int:
        """When the last that is seen of it stopped, ns of the run."""
        kernels = [kernel.closed for kernel in self.op.kernels.values()]
        return max([*kernels, *(flow.last for flow in self.op.flows.values())])

    @property
    def began(self) -> int:
        """When the first that is seen of it showed itself, ns of the run; −1 for not yet."""
        kernels = [kernel.begun for kernel in self.op.kernels.values()]
        flows = [flow.first for flow in self.op.flows.values() if flow.first >= 0]
        return min([*kernels, *flows], default=-1)

    def facts(self, version: int) -> Row:
        """Fields that every record of it has."""
        op, comm = self.op, self.op.comm
        return {
            "count": op.count,
            "bytes": op.bytes,
            "datatype": int(DATA_TYPES[op.datatype]),
            "channels": op.channels,
            "algo": int(Algo[op.algo.upper()]) if op.algo else 0,
            "proto": int(Proto[op.proto.upper()]) if op.proto else 0,
            "nranks": comm.nranks if version >= WITH_FACTS else 0,
            "nnodes": comm.nnodes if version >= WITH_FACTS else 0,
            "n": 1,
        }


def wanted(picture: Picture, lines: Sequence[Line], version: int) -> list[Wanted]:
    """All operations, in order of their start. What a version cannot show is not there."""
    closed = {(line["p"], line["ctx"]) for line in lines if line["cb"] == "finalize"}
    finalised = {(p, comm.id) for (p, ctx), comm in picture.communicators.items() if (p, ctx) in closed}
    # Before v4 a send or receive does not say how many channels it has.
    known = [
        op if version >= WITH_FACTS or op.peer < 0 else replace(op, channels=0) for op in picture.operations
    ]
    own = [
        replace(op, flows={place: flow for place, flow in op.flows.items() if flow.carrier == op.p})
        for op in known
    ]
    moved: dict[tuple[int, int], int] = {}
    for op in own:
        if op.moved:
            # One stream a process: with the calls a later one of any communicator proves an end.
            for lane in (op.comm.id, *([-1] if op.called else [])):
                moved[op.p, lane] = max(moved.get((op.p, lane), -1), op.together)
    return [
        Wanted(
            op,
            whole,
            any(
                moved.get((op.p, lane), -1) > op.started
                for lane in (op.comm.id, *([-1] if op.called and version >= WITH_CALLS else []))
            ),
            (op.p, op.comm.id) in finalised,
        )
        for op, whole in zip(own, known, strict=True)
    ]


@dataclass(frozen=True)
class Comparison:
    """A job's records beside the run's operations. `pids` by world rank; `wall`: ns of the replay's begin."""

    told: Told
    operations: list[Wanted]
    version: int
    pids: tuple[int, ...]
    wall: int
    speed: float

    @cached_property
    def by_key(self) -> dict[OperationKey, Wanted]:
        """All operations."""
        found = {want.key: want for want in self.operations}
        assert len(found) == len(self.operations), "two operations of one name"
        return found

    # -- at the end: everything has been told, and every process is gone

    def differences(self) -> list[str]:
        """What is different, a line each."""
        right = self.by_key
        return [
            *self.told.gaps(),
            *(
                f"{key} never was, told {rows[-1]}"
                for key, rows in self.told.coll.items()
                if key not in self.by_key
            ),
            *(f"flow {key} never was" for key in self.told.flows if key[0] not in right),
            *(f"{want.key}: {what}" for want in self.operations for what in self._operation(want)),
            *(f"{want.key}: {what}" for want in self.operations for what in self._flows(want)),
            *self._after_one_another(),
            *self.positions(),
            *self._sums(),
            *self._flow_sums(),
        ]

    def _operation(self, want: Wanted) -> Iterator[str]:
        rows = self.told.coll.get(want.key, [])
        done = [row for row in rows if row["kind"] == Kind.DONE]
        orphans = [row for row in rows if row["kind"] == Kind.ORPHAN]
        if want.op.done:
            kinds = [Kind(row["kind"]).name for row in rows]
            # Overtaken before its kernel was told of: over without it, and again with the whole truth. So are
            # sends and receives where nothing says how many kernel channels they have.
            early = [row for row in done[:-1] if UNKNOWN_US in (row["kernel_start_us"], row["end_us"])]
            few = want.op.traced and (want.over or not want.op.channels)
            if not done or done[:-1] != early or len(early) > few or rows[-1] != done[-1] or orphans:
                yield f"done, but told as {kinds}"
            rows = [row for row in rows if not any(row is one for one in early)]
        elif want.op.done is False:
            died = Flag.ABORTED if want.closed else Flag.DIED
            if done or len(orphans) != 1 or not orphans[0]["flags"] & died:
                yield f"never over, but told as {[Kind(row['kind']).name for row in rows]}"
        else:
            yield from self._unseen(want, rows)
        for row in rows:
            yield from self._facts(want, row)

    def _unseen(self, want: Wanted, rows: list[Row]) -> Iterator[str]:
        """Of which only the launch shows: it is never told as in flight once it is known to be over."""
        kinds = [Kind(row["kind"]) for row in rows]
        if kinds.count(Kind.DONE) > 1 or kinds.count(Kind.ORPHAN) > 1 or kinds[:-1].count(Kind.DONE):
            yield f"told as {kinds}"
        if want.closed and kinds[-1:] != [Kind.DONE]:
            yield f"its communicator was finalised, but told as {kinds}"
        if want.over and Kind.ORPHAN in kinds:
            yield "told as an orphan though a later one has moved"
        if not want.over and not want.closed and Kind.DONE in kinds:
            yield "told as done though nothing shows it"

    def _facts(self, want: Wanted, row: Row) -> Iterator[str]:
        facts = want.facts(self.version)
        if different := {name: (row[name], value) for name, value in facts.items() if row[name] != value}:
            yield f"told, right: {different}"
        shown = {want.op.visibility}
        if row["kind"] != Kind.DONE:  # before its flows have shown up, or while another carries them
            shown |= {want.whole.visibility, "launch"}
        if Visibility(row["visibility"]).name.lower() not in shown:
            yield f"visibility {Visibility(row['visibility']).name}, right: {shown}"
        yield from self._times(want, row)

    def _times(self, want: Wanted, row: Row) -> Iterator[str]:
        """Nothing is called early: no time may come before the run's. GPU times are told as they were."""
        op, launched = want.op, row["launched"]
        over = row["kind"] == Kind.DONE and bool(op.done)
        if over != (row["end_us"] != UNKNOWN_US):
            yield f"end_us {row['end_us']}, though {'over' if over else 'not seen to end'}"
        if (row["api_us"] != UNKNOWN_US) != (op.called and self.version >= WITH_CALLS):
            yield f"api_us {row['api_us']}"
        if over and (row["first_us"] == UNKNOWN_US or row["first_us"] > row["end_us"]):
            yield f"first_us {row['first_us']} and end_us {row['end_us']}"
        if want.began < 0 and row["first_us"] != UNKNOWN_US:
            yield f"first_us {row['first_us']} though nothing has begun"
        times = [(0, op.started), (row["first_us"], want.began)]
        if over:
            times.append((row["end_us"], want.ended))
        for us, t in times:
            if us != UNKNOWN_US and launched + us * 1000 + CLOCK_NS < self.wall + t / self.speed:
                yield f"{us} µs after its launch is before {t} ns of the run"
        if row["kind"] == Kind.DONE:
            yield from self._kernel_times(op, row)

    def _kernel_times(self, op: Operation, row: Row) -> Iterator[str]:
        start, end, kernels = row["kernel_start_us"], row["kernel_end_us"], list(op.kernels.values())
        if (start != UNKNOWN_US, end != UNKNOWN_US) != (bool(kernels), bool(kernels)):
            yield f"kernel times {start} and {end}, {len(kernels)} kernel channels"
        if not kernels or self.version < WITH_FACTS:
            return

        def after_launch(timer: int) -> int:
            return max(0, int(self.wall + int(timer / self.speed) - row["launched"])) // 1000

        if abs(start - after_launch(min(kernel.started for kernel in kernels))) > 1:
            yield f"kernel_start_us {start}, right: {after_launch(min(k.started for k in kernels))}"
        # A call that was made late leaves too little room for its kernel: the callback's time is told then.
        stops = [after_launch(kernel.stopped) for kernel in kernels if kernel.stopped >= 0]
        closed = after_launch(max(kernel.closed for kernel in kernels))
        if not any(abs(end - stop) <= 1 for stop in stops) and end + CLOCK_NS // 1000 < closed:
            yield f"kernel_end_us {end}, right: {stops}, by callback {closed} or later"

    def _after_one_another(self) -> Iterator[str]:
        """One proxy thread a communicator and process: what ended before the next began is told so."""
        lanes: defaultdict[tuple[int, int], list[Wanted]] = defaultdict(list)
        for want in self.operations:
            if want.op.done and want.op.flows and len(self.told.coll.get(want.key, [])) > 0:
                lanes[want.op.p, want.op.comm.id].append(want)
        for lane in lanes.values():
            lane.sort(key=lambda want: want.ended)
            for before, after in pairwise(lane):
                if after.began <= before.ended:
                    continue
                ended, began = self.told.coll[before.key][-1], self.told.coll[after.key][-1]
                end = ended["launched"] + ended["end_us"] * 1000
                begin = began["launched"] + (began["first_us"] + 1) * 1000
                if end > begin + CLOCK_NS:
                    yield f"{before.key} ends {(end - begin) / 1e6} ms after {after.key} has begun"

    def _flows(self, want: Wanted) -> Iterator[str]:
        for place, flow in want.whole.flows.items():
            key = (want.key, *place)
            rows = self.told.flows.get(key, [])
            done = [row for row in rows if row["kind"] == Kind.DONE]
            if want.op.done and not flow.complete:  # its kernel is through, and who carries it has died
                orphans = [row for row in rows if row["kind"] == Kind.ORPHAN]
                if done or len(orphans) != 1 or rows[-1] != orphans[0]:
                    kinds = [Kind(row["kind"]).name for row in rows]
                    yield f"flow {place} of a dead carrier, told as {kinds}"
                else:
                    yield from self._flow(place, flow, rows[-1])
                continue
            if len(done) != flow.complete or not rows or (done and rows[-1] != done[0]):
                kinds = [Kind(row["kind"]).name for row in rows]
                yield f"flow {place} complete: {flow.complete}, told as {kinds}"
            else:
                yield from self._flow(place, flow, rows[-1])

    def _flow(self, place: tuple[int, int, bool], flow: Flow, row: Row) -> Iterator[str]:
        right = {name: getattr(flow, name) for name in (*COUNTERS, "no_credit")}
        if self.version >= WITH_SIZES:
            right["bytes"] = flow.bytes
        if different := {name: (row[name], value) for name, value in right.items() if row[name] != value}:
            yield f"flow {place} told, right: {different}"
        if (pid := self.told.pids.get(row["carrier"])) != self.pids[flow.carrier]:
            yield f"flow {place} carried by process {pid}, right: {self.pids[flow.carrier]}"
        begun = flow.first >= 0
        if begun != (row["first_us"] != UNKNOWN_US):
            yield f"flow {place}: first_us {row['first_us']}"
        elif begun:
            first = row["launched"] + row["first_us"] * 1000
            if first + CLOCK_NS < self.wall + flow.first / self.speed:
                yield f"flow {place}: first_us {row['first_us']} is before its first step"

    def positions(self) -> Iterator[str]:
        """Where each device was told to be in each communicator: last launched, last ended."""
        launched: dict[OperationKey, int] = {}
        least: Counter[OperationKey] = Counter()
        most: Counter[OperationKey] = Counter()
        for want in self.operations:
            key: OperationKey = (*want.key[:3], 0, want.op.peer)
            seq = want.op.seq
            launched[key] = max(launched.get(key, 0), seq)
            if want.op.done:
                least[key] = max(least[key], seq)
            # What shows nothing: by a later one, at once for a collective, else when its record comes.
            if want.op.done or want.over or want.closed:
                most[key] = max(most[key], seq)
                if want.op.done is None and want.op.peer < 0 and want.over:
                    least[key] = max(least[key], seq)
            if want.op.peer >= 0:  # and all of a communicator's sends, or receives, together
                total: OperationKey = (*want.key[:3], 0, -1)
                launched[total] = launched.get(total, 0) + 1
                least[total] += bool(want.op.done)
                most[total] += bool(want.op.done)
        for key, last in launched.items():
            row = self.told.positions.get(key)
            if row is None or row["seq"] != last or not least[key] <= row["ended"] <= most[key]:
                said = None if row is None else (row["seq"], row["ended"])
                yield f"position {key}: {said}, right: {last}, ended {least[key]} to {most[key]}"
        for key, row in self.told.positions.items():
            if row["seq"] and key not in launched:
                yield f"position {key} of nobody: {row['seq']}"

    def _sums(self) -> Iterator[str]:
        """Totals of what has ended. What shows nothing is summed when its own record comes."""
        told: Counter[tuple[int, ...]] = Counter()
        right: Counter[tuple[int, ...]] = Counter()
        for row in self.told.sums:
            for at, name in enumerate(("n", "bytes", "count")):
                told[row["comm"], row["rank"], row["func"], at] += row[name]
        for want in self.operations:
            single = any(row["kind"] == Kind.DONE for row in self.told.coll.get(want.key, []))
            if want.op.done or (want.op.done is None and single):
                comm, rank, func, *_ = want.key
                for at, value in enumerate((1, want.op.bytes, want.op.count)):
                    right[comm, rank, func, at] += value
        yield from _unequal("sum", told, right)

    def _flow_sums(self) -> Iterator[str]:
        """The same of flows, by peer and direction."""
        told: Counter[tuple[int, ...]] = Counter()
        right: Counter[tuple[int, ...]] = Counter()
        names = (*COUNTERS, "no_credit", *(["bytes"] if self.version >= WITH_SIZES else []))
        for row in self.told.flow_sums:
            for at, name in enumerate(names):
                told[row["comm"], row["rank"], row["peer"], row["direction"], at] += row[name]
        for want in self.operations:
            for flow in want.whole.flows.values():
                direction = int(Direction.SEND if flow.send else Direction.RECV)
                for at, name in enumerate(names):
                    place = (*want.key[:2], flow.peer, direction, at)
                    right[place] += getattr(flow, name) if flow.complete else 0
        yield from _unequal("flow sum", told, right)

    # -- at a moment: the processes live

    def stands(self, held_s: float) -> list[str]:
        """What is different in what was told of a job that has stood so long: all of it has been told."""
        found = list(self.told.gaps())
        heads = self._heads(held_s)
        for key, rows in self.told.coll.items():
            want = self.by_key.get(key)
            if want is None:
                found.append(f"{key} never was")
            elif rows[-1]["kind"] == Kind.STATE and (want.op.done or (want.op.done is None and want.over)):
                found.append(f"{key} is over and looks open")
            elif rows[-1]["kind"] != Kind.STATE and want.op.done is False:
                found.append(f"{key} is open, told as {Kind(rows[-1]['kind']).name}")
        for want in heads:
            rows = self.told.coll.get(want.key, [])
            if not rows or rows[-1]["kind"] != Kind.STATE or not rows[-1]["current"]:
                found.append(f"{want.key} stands, told: {rows[-1:]}")
        for want in self.operations:
            rows = self.told.coll.get(want.key, [])
            if want.op.done or (rows and want.whole.done is False):
                said = rows[-1:] if want.op.done else rows
                found += [f"{want.key}: {what}" for row in said for what in self._facts(want, row)]
                found += [f"{want.key}: {what}" for what in self._flows(want)]
        return [*found, *self.positions()]

    def _heads(self, held_s: float) -> list[Wanted]:
        """By process the oldest operation that is seen not to be over: there its device stands.

        Of communicators that share a stream the others may wait for it. One that stalls is told of when it is
        older than so many usual durations: none where that takes longer than the job has stood.
        """
        usual = [want.ended - want.op.started for want in self.operations if want.op.done]
        if STALL_MEDIANS * max(usual, default=0) / self.speed > (held_s - 1) * 1e9:
            return []
        found: dict[int, Wanted] = {}
        for want in self.operations:
            if want.op.done is False:  # in the order in which they were launched
                found.setdefault(want.op.p, want)
        return list(found.values())


def _unequal(what: str, told: Counter[tuple[int, ...]], right: Counter[tuple[int, ...]]) -> Iterator[str]:
    for key in right | told:
        if told[key] != right[key]:
            yield f"{what} {key}: {told[key]}, right: {right[key]}"
