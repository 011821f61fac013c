"""Compiles the kernels into numba's cache, so that the first start need not.

`python -m streams.compile` judges a job of two ranks, which touches every kernel with the types in use.
"""

from __future__ import annotations

import numpy as np

from schemas.enums import DataType, Flag, Func, Kind, Visibility
from schemas.envelope import Envelope, MessageKind
from schemas.members import Announcement, Member
from schemas.records import COLL
from streams.diagnosis import diagnose
from streams.live.latest import Latest
from streams.slow.window import CONNECTING
from streams.slow.windows import Windows
from streams.snapshots import judge


def compile_kernels() -> None:
    """Run every kernel once."""
    _stalls()
    _slowness()


def _slowness() -> None:
    rows = COLL.empty(2)
    rows["comm"], rows["dev"], rows["nranks"], rows["kind"] = 7, 1, 1, [Kind.SUM, Kind.DONE]
    rows["func"], rows["n"], rows["launched"], rows["seq"] = Func.ALL_REDUCE, 1, 1, CONNECTING + 1
    windows = Windows(1, 1, 0)
    windows.take(Envelope(MessageKind.FLUSH, 1, 1, "compile", sections={COLL.name: rows}), 10.0)
    (told,) = [closed for closed in windows.close(20.0) if len(closed.rates)]
    assert told.window.lags["joined"].tolist() == [1], "the kernels do not work on this machine"


def _stalls() -> None:
    members = tuple(Member(rank, rank + 1, rank) for rank in range(2))
    announcement = Announcement("job", 1, "attempt", 1, 7, "comm", "compile", 2, None, members)
    rows = COLL.empty(3)
    rows["comm"], rows["nranks"], rows["flags"] = 7, 2, Flag.SEQ_PER_COMM
    rows["visibility"] = Visibility.COMPLETE
    rows["kind"], rows["seq"] = [Kind.STATE, Kind.POSITION, Kind.DONE], [2, 1, 1]
    rows["rank"], rows["current"] = [0, 1, 1], [1, 0, 0]
    rows["func"], rows["datatype"] = [Func.ALL_REDUCE, Func.ANY, Func.ALL_REDUCE], DataType.FLOAT32
    latest = Latest(COLL, ("comm", "rank"))
    latest.add(rows, np.zeros(3), np.zeros(3, np.int64))
    latest.settle()
    judged = judge([announcement], [rows], 1, 1)
    (finding,) = diagnose(judged.waits).found
    assert finding.culprits == (2,), "the kernels do not work on this machine"


if __name__ == "__main__":
    compile_kernels()
