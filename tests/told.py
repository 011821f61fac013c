"""Everything that came over `nccl.trace` for one job, joined: operations, flows, positions and sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from schemas.enums import Direction, Func, Kind
from schemas.envelope import Envelope

Row = dict[str, int]
OperationKey = tuple[int, int, int, int, int]
"""Communicator, rank there, func, seq, peer (−1 for collectives)."""
FlowKey = tuple[OperationKey, int, int, bool]
"""Operation, channel, peer, whether it sends."""
PAIRWISE = (Func.SEND, Func.RECV)


def _pairwise(func: int) -> bool:
    return func in PAIRWISE


class Told:
    """The records of one job, in the order in which their source sent them."""

    def __init__(self, flushes: Iterable[Envelope]) -> None:
        self.flushes = list(flushes)
        self.coll: defaultdict[OperationKey, list[Row]] = defaultdict(list)
        self.flows: defaultdict[FlowKey, list[Row]] = defaultdict(list)
        self.positions: dict[OperationKey, Row] = {}
        self.sums: list[Row] = []
        self.flow_sums: list[Row] = []
        self.pids: dict[int, int] = {}
        """Of each process instance."""
        for flush in self.flushes:
            for name in ("coll", "flow", "proc"):
                if (rows := flush.sections.get(name)) is not None:
                    for values in rows.tolist():
                        self._take(name, dict(zip(rows.dtype.names or (), values, strict=True)))

    def _take(self, name: str, row: Row) -> None:
        if name == "proc":
            self.pids[row["proc"]] = row["pid"]
        elif name == "coll":
            peer = row["peer"] if _pairwise(row["func"]) else -1
            key = (row["comm"], row["rank"], row["func"], row["seq"], peer)
            if row["kind"] == Kind.POSITION:
                self.positions[row["comm"], row["rank"], row["func"], 0, peer] = row
            elif row["kind"] == Kind.SUM:
                self.sums.append(row)
            else:
                self.coll[key].append(row)
        elif name == "flow":
            if row["kind"] == Kind.SUM:
                self.flow_sums.append(row)
                return
            peer = row["peer"] if _pairwise(row["func"]) else -1
            of = (row["comm"], row["rank"], row["func"], row["seq"], peer)
            self.flows[of, row["channel"], row["peer"], row["direction"] == Direction.SEND].append(row)

    def while_alive(self) -> Told:
        """Only what each host said before it saw any of its processes dead."""
        dead: set[str] = set()
        alive = []
        for flush in sorted(self.flushes, key=lambda flush: flush.through):
            rows = flush.sections.get("proc", ())
            if any(not row["alive"] for row in rows):
                dead.add(flush.source)
            if flush.source not in dead:
                alive.append(flush)
        return Told(alive)

    def gaps(self) -> Iterator[str]:
        """Messages that are missing or tell of losses: after one, nothing else needs to be right."""
        drops = sum(flush.drops for flush in self.flushes)
        if drops:
            yield f"{drops} records were lost"
