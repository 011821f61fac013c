"""What the records of running jobs say, as predicates; nothing is concluded here."""

from __future__ import annotations

from typing import Any

from schemas.enums import FactKind, Reason
from schemas.records import UNKNOWN_US
from streams.live.hostfacts import HostFact


def holding(row: Any) -> str | None:
    """What the holder of a record did or did not do, None where the reason is not of a running job."""
    reason = Reason(int(row["reason"]))
    said = _SAID.get(reason)
    return said(row) if callable(said) else said


def host_fact(fact: HostFact) -> str:
    """What a host says of itself."""
    if fact.what == FactKind.XID:
        return f"the kernel log of {fact.host} has Xid {fact.code} of the GPU at {fact.name}"
    what = "port" if fact.what == FactKind.PORT else "interface"
    return f"{fact.host} has lost the carrier of its {what} {fact.name}"


def _channel(row: Any) -> str:
    return f" on channel {int(row['channel'])}" if row["channel"] >= 0 else ""


def _not_ready(row: Any) -> str:
    if not row["total"]:
        return "has not started its kernel, though another member has"
    return (
        f"has filled {int(row['ready'])} of {int(row['total'])} steps{_channel(row)} and fills no more, "
        "with room to send"
    )


def _not_consuming(row: Any) -> str:
    return f"has taken {int(row['consumed'])} of the {int(row['received'])} steps that arrived{_channel(row)}"


def _not_transmitted(row: Any) -> str:
    return (
        f"has {int(row['ready'])} steps ready{_channel(row)} and has handed {int(row['transmitted'])} to the "
        f"network, though {int(row['posted'])} receives are posted"
    )


def _not_posted(row: Any) -> str:
    return (
        f"has posted {int(row['posted'])} receives{_channel(row)} and taken all {int(row['consumed'])} steps "
        f"that came, while {int(row['ready'])} are ready"
    )


def _not_delivered(row: Any) -> str:
    return (
        f"{max(int(row['transmitted']), int(row['ready']))} steps were sent{_channel(row)}, "
        f"{int(row['received'])} arrived, with {int(row['posted'])} receives posted"
    )


def _within(row: Any) -> str:
    if not row["total"]:
        return "is on the host that holds it"
    return (
        f"is on the host that holds it: {int(row['consumed'])} steps taken of {int(row['received'])} that "
        f"arrived there{_channel(row)}, {int(row['ready'])} of {int(row['total'])} ready to leave"
    )


def _in_unseen(row: Any) -> str:
    if row["waited_us"] == UNKNOWN_US:
        return "launched it, and nothing shows whether it has ended"
    return f"launched it {int(row['waited_us']) / 1e6:.1f} s ago, and nothing shows that it has ended"


_SAID: dict[Reason, Any] = {
    Reason.GPU_NOT_READY: _not_ready,
    Reason.GPU_NOT_CONSUMING: _not_consuming,
    Reason.NOT_TRANSMITTED: _not_transmitted,
    Reason.NOT_POSTED: _not_posted,
    Reason.NOT_DELIVERED: _not_delivered,
    Reason.LEFT: "finalised its communicator without launching it",
    Reason.CALLED: "called it, and NCCL has not launched it",
    Reason.DEAD: "is dead: its process is no more",
    Reason.STOPPED: "is stopped: its process is in state T",
    Reason.IN_UNSEEN: _in_unseen,
    Reason.UNSEEN: _within,
}
