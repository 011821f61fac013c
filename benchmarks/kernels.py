"""The pure part: records in, waits and culprits out, beside the obvious alternatives on the same data."""

from __future__ import annotations

import time
from collections.abc import Callable

import networkx as nx
import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from schemas.enums import DataType, Flag, Func, Kind, Visibility
from schemas.members import Announcement, Member
from schemas.records import COLL, Records
from streams.compile import compile_kernels
from streams.diagnosis import diagnose
from streams.graph import components, graph
from streams.membership import membership
from streams.operations import join
from streams.snapshots import judge
from streams.waitgraph import build

DEVICES = 16_384
TENSOR = 8
OPERATIONS = 64
CULPRIT = 4_321


def hung_job(devices: int, operations: int) -> tuple[list[Announcement], Records]:
    """Tensor groups of 8 and one data group for each place in them; CULPRIT never launches the last one.

    `operations` per communicator are finished, one more is pending.
    """
    groups = [list(range(first, first + TENSOR)) for first in range(0, devices, TENSOR)]
    groups += [list(range(place, devices, TENSOR)) for place in range(TENSOR)]
    announcements, batches = [], []
    for number, ranks in enumerate(groups):
        comm, tensor = 1000 + number, number < devices // TENSOR
        members = tuple(Member(rank, dev + 1, dev) for rank, dev in enumerate(ranks))
        announcements.append(
            Announcement("bench", 1, "a", 1, comm, f"g{number}", "s", len(ranks), None, members)
        )
        late = CULPRIT in ranks and tensor
        batches.append(_records(comm, ranks, operations, late=late, pending=late or not tensor))
    return announcements, np.concatenate(batches)


def _records(comm: int, ranks: list[int], operations: int, *, late: bool, pending: bool) -> Records:
    count = len(ranks)
    rows = COLL.empty(count * (operations + 2))
    rows["comm"], rows["nranks"], rows["flags"] = comm, count, Flag.SEQ_PER_COMM
    rows["visibility"], rows["datatype"] = Visibility.COMPLETE, DataType.BFLOAT16
    rows["peer"], rows["count"], rows["n"] = -1, 4096, 1
    rows["rank"] = np.tile(np.arange(count, dtype=np.uint32), operations + 2)
    done = rows[: count * operations]
    done["kind"], done["func"] = Kind.DONE, Func.ALL_REDUCE
    done["seq"] = np.repeat(np.arange(1, operations + 1, dtype=np.uint64), count)
    state = rows[count * operations : count * (operations + 1)]
    state["kind"], state["func"], state["seq"], state["current"] = (
        Kind.STATE,
        Func.ALL_REDUCE,
        operations + 1,
        1,
    )
    position = rows[count * (operations + 1) :]
    position["kind"], position["func"], position["ended"] = Kind.POSITION, Func.ANY, operations
    position["seq"] = operations + 1
    keep = np.ones(len(rows), np.bool_)
    if late:
        missing = ranks.index(CULPRIT)
        position["seq"][missing] = operations
        keep[count * operations + missing] = False
    if not pending:
        position["seq"] = operations
        keep[count * operations : count * (operations + 1)] = False
    elif not late and CULPRIT in ranks:
        first = CULPRIT // TENSOR * TENSOR
        for dev in range(first, first + TENSOR):
            if dev in ranks:  # these still stand in their tensor operation, or never came
                position["seq"][ranks.index(dev)] = operations
                keep[count * operations + ranks.index(dev)] = False
    result: Records = rows[keep]
    return result


def _best(call: Callable[[], object], runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Measure and print."""
    compile_kernels()
    announcements, rows = hung_job(DEVICES, OPERATIONS)
    members = membership(announcements)
    judged = judge(announcements, [rows], 1, 1)
    web = build(judged.waits)
    edges = list(zip(web.source[web.active].tolist(), web.target[web.active].tolist(), strict=True))
    (finding,) = diagnose(judged.waits).found
    assert finding.culprits == (CULPRIT + 1,), "the benchmark's own job is judged wrongly"

    def by_networkx() -> None:
        other = nx.DiGraph(edges)
        list(nx.strongly_connected_components(other))

    def ours() -> None:
        components(graph(len(web.node), web.source[web.active], web.target[web.active]))

    def by_dict() -> None:
        groups: dict[tuple[int, int], list[int]] = {}
        for comm, seq, rank in rows[["comm", "seq", "rank"]].tolist():
            groups.setdefault((comm, seq), []).append(rank)

    columns = {name: np.ascontiguousarray(rows[name]) for name in ("comm", "seq", "rank")}

    def by_polars() -> None:
        # The same result: of each operation the rows, by rank; columns are given, records are not cut up.
        pl.DataFrame(columns).with_row_index().sort("rank").group_by("comm", "seq").agg("index")

    polars_s = _best(by_polars)
    join_s, dict_s = _best(lambda: join(members, rows)), _best(by_dict, 1)
    judge_s = _best(lambda: judge(announcements, [rows], 1, 1))
    diagnose_s = _best(lambda: diagnose(judged.waits))
    ours_s, networkx_s = _best(ours), _best(by_networkx, 1)
    table = Table(title=f"{len(rows):,} records of {DEVICES:,} devices, one culprit; one core")
    for column in ("step", "time", "rate", "beside"):
        table.add_column(column, justify="left" if column in ("step", "beside") else "right")
    table.add_row(
        "join", f"{join_s * 1e3:.0f} ms", f"{len(rows) / join_s / 1e6:.1f} M records/s",
        f"a Python dict: {dict_s / join_s:.1f} × as long; Polars, {pl.thread_pool_size()} threads, from "
        f"columns: {polars_s / join_s:.1f} ×",
    )  # fmt: skip
    table.add_row(
        "records to waits", f"{judge_s * 1e3:.0f} ms", f"{len(rows) / judge_s / 1e6:.1f} M records/s", ""
    )
    table.add_row(
        "waits to culprit",
        f"{diagnose_s * 1e3:.0f} ms",
        f"{len(judged.waits) / diagnose_s / 1e6:.1f} M waits/s",
        "",
    )
    table.add_row(
        "components of the graph",
        f"{ours_s * 1e3:.1f} ms",
        "",
        f"networkx: {networkx_s / ours_s:.0f} × as long",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
