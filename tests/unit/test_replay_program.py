"""What a run becomes: calls, what they wait for, and descriptors of each version."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from collectors.replay import abi, calls
from collectors.replay.program import Program, compile_run
from collectors.replay.trace import BadRun, Line, Run

INIT: Line = {
    "cb": "init", "th": 0, "ctx": 1, "commId": "0xabc", "commName": "world", "nNodes": 1, "nranks": 2,
    "rank": 0,
}  # fmt: skip


def compiled(*lines: Line, version: int = 6, speed: float = 1, ranks: int = 1) -> Program:
    timed = [{"t": 100 * n, "p": 0, "th": 0, **line} for n, line in enumerate(lines)]
    return compile_run(Run("x", timed, tuple([0] * ranks), 0), version, speed)


def start(event: str, h: int, parent: int = 0, **fields: Any) -> Line:
    return {"cb": "startEvent", "ty": event, "h": h, "ctx": 1, "parent": parent, "rank": 0, **fields}


def state(h: int, number: int, event: str = "ProxyStep", **fields: Any) -> Line:
    return {"cb": "recordEventState", "ty": event, "h": h, "state": number, "args": 1, **fields}


def stop(h: int, **fields: Any) -> Line:
    return {"cb": "stopEvent", "h": h, **fields}


COLL: dict[str, Any] = {
    "seq": 3, "func": "AllReduce", "count": 7, "root": 0, "dt": "ncclFloat32", "nCh": 2, "nWarps": 5,
    "algo": "RING", "proto": "LL", "parentGroup": 4,
}  # fmt: skip
PROXY = {"opPid": 0, "ch": 1, "peer": 1, "nSteps": 2, "chunkSize": 64, "isSend": 1}


def only(program: Program, thread: int = 0) -> list[calls.Call]:
    return program.processes[0].threads[thread]


def member(program: Program, number: int, event: str, name: str) -> Any:
    layout = abi.layout(program.version)
    offset, code = layout.members[event, name]
    return struct.unpack_from(code, program.processes[0].descriptors, number * layout.size + offset)[0]


def test_mask_bits_of_children_ask_for_the_parent() -> None:
    assert abi.wanted_by("ProxyStep") & abi.EVENTS["NetPlugin"]
    assert abi.wanted_by("GroupApi") & abi.EVENTS["KernelLaunch"]
    assert not abi.wanted_by("KernelLaunch") & abi.EVENTS["Coll"]
    assert not abi.wanted_by("KernelCh") & abi.EVENTS["ProxyOp"]


def test_versions_have_the_events_that_they_brought() -> None:
    assert [abi.exists("CollApi", version) for version in abi.VERSIONS] == [False, False, True, True, True]
    assert [abi.exists("CeColl", version) for version in abi.VERSIONS] == [False, False, False, True, True]
    assert [abi.exists("KernelPhase", version) for version in abi.VERSIONS] == [False] * 4 + [True]


def test_times_scale() -> None:
    first, second = only(compiled(INIT, start("ProxyCtrl", 2), speed=2))
    assert (first[1], second[1]) == (0, 50)


def test_descriptor_holds_what_was_recorded() -> None:
    program = compiled(INIT, start("Coll", 5, **COLL))
    values = {
        name: member(program, 0, "Coll", name) for name in ("seqNumber", "count", "nChannels", "nWarps")
    }
    assert values == {"seqNumber": 3, "count": 7, "nChannels": 2, "nWarps": 5}
    words = program.processes[0].strings
    offset = abi.layout(6).members["Coll", "func"][0]
    assert words[b"AllReduce"] == [offset // 8]
    assert set(words) == {b"AllReduce", b"ncclFloat32", b"RING", b"LL"}


def test_before_api_events_the_group_is_the_parent() -> None:
    lines = INIT, start("CollApi", 3, func="AllReduce"), start("Group", 4), start("Coll", 5, 3, **COLL)
    *_, new = only(compiled(*lines, version=5))
    patches = dict(new[8])
    group = abi.layout(5).members["Coll", "parentGroup"][0]
    api_slot, group_slot = (only(compiled(*lines))[n][4] for n in (1, 2))
    size = abi.layout(5).size
    assert patches == {(2 * size + 8) // 8: api_slot, (2 * size + group) // 8: group_slot}
    old = only(compiled(*lines, version=4))
    assert [call[2] for call in old] == [calls.INIT, calls.START, calls.START]  # no CollApi
    assert [slot for _, slot in old[2][8]] == [old[1][4]]


def test_v3_names_the_communicator_and_counts_on_the_proxy_op() -> None:
    lines = (
        INIT, start("Coll", 5, **COLL), start("ProxyOp", 6, 5, **PROXY), state(6, 19, "ProxyOp"),
        start("ProxyStep", 7, 6, step=0), state(7, 8, trans=0), state(7, 20, trans=0), state(7, 9, trans=48),
        stop(7), start("ProxyStep", 8, 6, step=1), state(8, 8, trans=0), state(8, 20, trans=0),
        state(8, 9, trans=16), stop(8),
    )  # fmt: skip
    program = compiled(*lines, version=3)
    assert member(program, 0, "Coll", "commHash") == 0xABC
    slots = {call[4]: number for number, call in enumerate(only(program)) if call[2] == calls.START}
    op = next(slot for slot, number in slots.items() if only(program)[number][7] == abi.wanted_by("ProxyOp"))
    told = []
    for call in only(program):
        if call[2] == calls.STATE:
            args = call[6] >= 0 and struct.unpack_from("Qi", program.processes[0].args, 16 * call[6])
            told.append((call[4] == op, call[5], args))
    assert told == [
        (True, 0, (0, 1)), (False, 8, False), (True, 2, (0, 1)), (False, 9, False), (True, 3, (48, 1)),
        (True, 0, (48, 2)), (False, 8, False), (True, 2, (48, 2)), (False, 9, False), (True, 3, (64, 2)),
    ]  # fmt: skip


def test_a_call_waits_for_what_another_thread_has_to_do_first() -> None:
    lines = (
        INIT,  # 0
        start("Coll", 5, **COLL),  # 1
        start("ProxyOp", 6, 5, th=1, **PROXY),  # 2: context and parent of thread 0
        state(6, 19, "ProxyOp", th=1),  # 3: its own
        stop(5, th=2),  # 4: launched on thread 0, stopped on thread 2
        start("Group", 7, th=0),  # 5: launches of a process stay in order
        {"cb": "finalize", "ctx": 1},  # 6: everything before it
    )
    program = compiled(*lines)
    after = {call[0]: set(call[3]) for todo in program.processes[0].threads.values() for call in todo}
    assert after == {0: set(), 1: set(), 2: {0, 1}, 3: set(), 4: {1}, 5: {4}, 6: {3, 4}}


def test_a_gpu_shows_itself_after_all_that_other_threads_did_before() -> None:
    lines = (
        INIT,  # 0
        start("Coll", 5, **COLL),  # 1
        start("ProxyOp", 6, 5, th=1, **PROXY),  # 2
        start("Coll", 7, **COLL),  # 3
        start("ProxyOp", 8, 7, th=2, **PROXY),  # 4
        start("ProxyStep", 9, 6, th=1, step=0),  # 5
        start("ProxyStep", 10, 8, th=2, step=0),  # 6
        state(10, 8, th=2, trans=0),  # 7: posted, nothing has moved
        state(10, 20, th=2, trans=0),  # 8: the GPU has filled it
        state(10, 9, th=2, trans=48),  # 9: known by now
        stop(9, th=1),  # 10: the other's first sign
        start("KernelCh", 11, 7, th=3, ch=0, pTimer=1),  # 11
    )
    program = compiled(*lines)
    after = {call[0]: set(call[3]) for todo in program.processes[0].threads.values() for call in todo}
    assert {number: after[number] for number in range(5, 12)} == {
        5: set(), 6: set(), 7: set(), 8: {3, 5}, 9: set(), 10: {3, 9}, 11: {0, 3, 9, 10},
    }  # fmt: skip


def test_a_relay_waits_for_the_owner_and_uses_its_slots() -> None:
    lines = (
        {**INIT, "p": 1}, {**INIT, "p": 0}, start("Coll", 5, p=1, **COLL), start("Coll", 5, p=0, **COLL),
        start("ProxyOp", 6, 5, fp=1, th=1, **{**PROXY, "opPid": 1}),
        start("ProxyStep", 7, 6, fp=1, th=1, step=0),
    )  # fmt: skip
    program = compiled(*lines, ranks=2)
    owner_context = program.processes[1].threads[0][0][4]
    owner_coll = program.processes[1].threads[0][1][4]
    op, step = program.processes[0].threads[1]
    assert op[5] == step[5] == owner_context
    assert [slot for _, slot in op[8]] == [owner_coll]
    assert [slot for _, slot in step[8]] == [op[4]]
    assert set(op[3]) == {0, 2}
    assert program.processes[0].pids[0][1] == 1


def test_null_context_stale_handles_and_the_last_finalize() -> None:
    lines = (
        INIT, start("CollApi", 3, hIn=1, func="AllReduce"), start("CollApi", 4, hIn=1, func="AllReduce"),
        start("Group", 5, ctx=-1), {"cb": "MASK", "v": 255}, {"cb": "initFAIL", "commName": "tp"},
        {"cb": "finalize", "ctx": 1}, {"cb": "note", "what": "process ends normally"},
    )  # fmt: skip
    program = compiled(*lines)
    _, first, second, group, mask, finalize = only(program)
    assert (first[9], second[9]) == (calls.STALE_SLOT, first[4])
    assert group[5] == calls.NULL_SLOT
    assert mask[2:5] == (calls.MASK, (), 255)
    assert finalize[5] == 1
    assert program.processes[0].end == 700


def test_values_that_do_not_fit_are_named() -> None:
    with pytest.raises(BadRun, match="callback 2 cannot be replayed"):
        compiled(INIT, start("Coll", 5, **{**COLL, "nCh": 300}))
    with pytest.raises(BadRun, match="callback 1 cannot be replayed"):
        compiled({**INIT, "commId": "no number"})
