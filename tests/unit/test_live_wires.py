"""What one flow's two ends say, row by row of "What the wire says" and "What blocks the kernel"."""

from __future__ import annotations

import pytest

from schemas.enums import Proto, Reason
from streams.live.pairs import holdings
from streams.live.wires import End, slots, wire

SENDER = End(1, 2, 0, True, 0, 0, 4.0, 16, 0, 0, 0, 0, 0, 0, 0)
RECEIVER = End(2, 1, 0, False, 0, 0, 4.0, 16, 0, 0, 0, 0, 0, 0, 0)


def send(ready: int, transmitted: int, done: int, total: int = 16) -> End:
    return SENDER._replace(total=total, ready=ready, transmitted=transmitted, done=done)


def receive(posted: int, received: int, consumed: int, total: int = 16) -> End:
    return RECEIVER._replace(total=total, posted=posted, received=received, consumed=consumed)


SENT_NOT_ARRIVED = send(8, 8, 6), receive(10, 6, 6)
SENT_NOT_POSTED = send(8, 8, 6), receive(6, 6, 6)
READY_NOT_SENT = send(8, 6, 6), receive(10, 6, 6)
READY_NOT_POSTED = send(7, 6, 6), receive(6, 6, 6)
RECEIVER_GPU_STOPS = send(10, 10, 10), receive(10, 10, 6)
ALL_ARRIVED = send(6, 6, 6), receive(10, 6, 6)


@pytest.mark.parametrize(
    ("ends", "credits", "reason", "rank", "peer"),
    [
        (SENT_NOT_ARRIVED, False, Reason.NOT_DELIVERED, 1, 2),
        (SENT_NOT_ARRIVED, True, Reason.NOT_DELIVERED, 1, 2),
        (SENT_NOT_POSTED, False, Reason.NOT_POSTED, 2, -1),
        (READY_NOT_SENT, False, Reason.NOT_TRANSMITTED, 1, -1),
        # The credit itself may be lost: with credits it is the link, both ends.
        (READY_NOT_SENT, True, Reason.NOT_DELIVERED, 1, 2),
        (READY_NOT_POSTED, False, Reason.NOT_POSTED, 2, -1),
        (READY_NOT_POSTED, True, Reason.NOT_POSTED, 2, -1),
    ],
)
def test_the_wire_holds(ends: tuple[End, End], credits: bool, reason: Reason, rank: int, peer: int) -> None:
    (held,) = wire(*ends, credits)
    assert (held.reason, held.rank, held.peer, held.sure) == (reason, rank, peer, True)


@pytest.mark.parametrize("credits", [False, True])
@pytest.mark.parametrize(
    "ends",
    [
        RECEIVER_GPU_STOPS,
        (send(8, 8, 6), receive(6, 6, 2)),  # no receive posted, since its GPU takes nothing
        (send(7, 6, 6), receive(6, 6, 2)),
        ALL_ARRIVED,
        (send(16, 16, 16), receive(16, 16, 10)),
    ],
)
def test_the_cause_lies_behind_an_end(ends: tuple[End, End], credits: bool) -> None:
    assert wire(*ends, credits) == []


@pytest.mark.parametrize("moving", [0, 1])
@pytest.mark.parametrize("ends", [SENT_NOT_ARRIVED, READY_NOT_SENT, READY_NOT_POSTED])
def test_both_ends_have_to_be_quiet(ends: tuple[End, End], moving: int) -> None:
    """A sender that is just sending is not accused."""
    moved = [end._replace(quiet_s=0.4) if at == moving else end for at, end in enumerate(ends)]
    assert wire(moved[0], moved[1], False) == []


def test_what_blocks_a_receive() -> None:
    assert receive(10, 6, 6).starved
    assert not receive(10, 7, 6).starved
    assert not receive(16, 16, 16).starved, "all taken"
    assert receive(10, 7, 6).unconsumed
    assert not receive(10, 6, 6)._replace(send=True).starved


@pytest.mark.parametrize(
    ("end", "full"),
    [
        (send(8, 6, 6), True),  # ready, not transmitted
        (send(10, 10, 6), True),  # four slots taken
        (send(9, 9, 6), False),
        (send(6, 6, 6), False),
        (send(16, 16, 12), False),  # nothing more to fill
        (receive(10, 6, 6), False),
    ],
)
def test_what_blocks_a_send(end: End, full: bool) -> None:
    assert end.full(4) is full


def test_slots_of_a_leg() -> None:
    """4 in ring Simple, 8 elsewhere."""
    assert [slots(proto) for proto in (Proto.SIMPLE, Proto.LL, Proto.LL128)] == [4, 8, 8]


@pytest.mark.parametrize(
    ("ends", "reason", "rank", "sure"),
    [
        (RECEIVER_GPU_STOPS, Reason.GPU_NOT_CONSUMING, 2, True),
        (ALL_ARRIVED, Reason.GPU_NOT_READY, 1, True),
        (SENT_NOT_ARRIVED, Reason.NOT_DELIVERED, 1, True),
        # One that has not moved may wait for its turn behind a pair that is not seen.
        ((send(8, 8, 8), receive(8, 8, 0)), Reason.GPU_NOT_CONSUMING, 2, False),
        ((send(0, 0, 0), receive(8, 0, 0)), Reason.GPU_NOT_READY, 1, False),
    ],
)
def test_a_pair(ends: tuple[End, End], reason: Reason, rank: int, sure: bool) -> None:
    (held,) = holdings(ends, False)
    assert (held.reason, held.rank, held.sure) == (reason, rank, sure)


def test_channels_of_a_pair_are_judged_each() -> None:
    other = [end._replace(channel=1) for end in ALL_ARRIVED]
    found = holdings([*RECEIVER_GPU_STOPS, *other], False)
    assert [(held.reason, held.channel) for held in found] == [
        (Reason.GPU_NOT_CONSUMING, 0),
        (Reason.GPU_NOT_READY, 1),
    ]


def test_one_end_of_a_pair() -> None:
    """What is there and not taken shows by itself; that nothing is ready needs the other end."""
    assert [held.rank for held in holdings([RECEIVER_GPU_STOPS[1]], False)] == [2]
    assert holdings([ALL_ARRIVED[0]], False) == []
    assert holdings([ALL_ARRIVED[1]], False) == []
